//! The fault of a call that is refused at once. The code that decides names the fault, and the verb notes it for
//! `transom explain`. A call that succeeds does not use this module.

use std::ffi::c_int;

use transom_device::queue::SizeError;
use transom_host::Limits;
use transom_host::device::Device;
use transom_host::objects::{BoundWindows, RegisterError};
use transom_system::addresses::Unreachable;
use transom_system::registry::{CallFault, CallRefusal, Holders, Name};
use transom_system::say_to_a_reader;

use crate::answers::{self, By};
use crate::{errno, told};

/// The reason why a verb is refused, and the errno for the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wrong {
    errno: c_int,
    /// `None` if it needs no note, or no further note.
    fault: Option<CallFault>,
    field: &'static str,
    value: u64,
    limit: u64,
    more: [u64; 2],
    rule: &'static str,
    said: &'static str,
}

impl Wrong {
    /// Objects of two devices do not go together: `EINVAL`.
    pub(crate) const OTHER_DEVICE: Self =
        Self::because(libc::EINVAL, "it takes objects of one device only", "DEVS-04");

    /// Objects of two contexts do not go together, because each context has handles of its own: `EINVAL`.
    pub(crate) const OTHER_CONTEXT: Self = Self::because(
        libc::EINVAL,
        "it takes objects of one context only, and each ibv_open_device makes another",
        "DEVS-04",
    );

    /// The field is `value` and may be at most `limit`: `EINVAL`.
    pub(crate) const fn too_much(
        field: &'static str,
        value: u64,
        limit: u64,
        rule: &'static str,
    ) -> Self {
        Self { field, limit, ..Self::with(libc::EINVAL, CallFault::TooMuch, value, rule) }
    }

    /// The field is `value`, where the program itself has chosen `limit`, and the device has `most`: `EINVAL`.
    pub(crate) const fn beyond_own(
        field: &'static str,
        value: u64,
        limit: u64,
        most: u64,
        rule: &'static str,
    ) -> Self {
        Self { more: [most, 0], ..Self::too_much(field, value, limit, rule) }
    }

    /// A request has more SGEs than its queue pair takes: `EINVAL`, or as the adapter answers that the device stands
    /// for.
    #[cold]
    pub(crate) fn too_many_sges(sges: usize, limit: usize, by: By) -> Self {
        let most = Limits::here().max_sge;
        Self::beyond_own("num_sge", sges as u64, limit as u64, most.into(), "PS-03")
            .answering(answers::too_many_sges(by))
    }

    /// The same of inline data.
    #[cold]
    pub(crate) fn inline_too_long(length: u64, room: u64, is_datagram: bool, by: By) -> Self {
        let limits = Limits::here();
        let most = if is_datagram { limits.datagram_inline } else { limits.inline };
        Self::beyond_own("the inline length", length, room, most.into(), "PS-04")
            .answering(answers::inline_too_long(by))
    }

    /// The field is `value` and must be at least `limit`: `EINVAL`.
    pub(crate) const fn too_little(
        field: &'static str,
        value: u64,
        limit: u64,
        rule: &'static str,
    ) -> Self {
        Self { field, limit, ..Self::with(libc::EINVAL, CallFault::TooLittle, value, rule) }
    }

    /// The field is `value`, but the table has only `entries` entries, or that one is empty: `EINVAL`.
    pub(crate) const fn no_entry(
        field: &'static str,
        value: u64,
        entries: u64,
        rule: &'static str,
    ) -> Self {
        let wrong = Self::with(libc::EINVAL, CallFault::NoEntry, value, rule);
        Self { field, limit: entries, ..wrong }
    }

    /// A fault in words.
    pub(crate) const fn because(errno: c_int, said: &'static str, rule: &'static str) -> Self {
        Self { said, ..Self::with(errno, CallFault::Told, 0, rule) }
    }

    /// Checks a port number. `field` is its field's name. The device has only port 1.
    pub(crate) const fn check_port(
        field: &'static str,
        port: u32,
        rule: &'static str,
    ) -> Result<(), Self> {
        match port {
            1 => Ok(()),
            0 => Err(Self::invalid(field, 0, rule)),
            port => Err(Self::too_much(field, port as u64, 1, rule)),
        }
    }

    /// A refused queue size. `field` is its field's name.
    pub(crate) const fn of_size(
        field: &'static str,
        size: u64,
        error: SizeError,
        rule: &'static str,
    ) -> Self {
        match error {
            SizeError::TooSmall { least } => Self::too_little(field, size, least as u64, rule),
            SizeError::NoMemory => Self::exhausted(rule),
        }
    }

    /// The field must not be `value`: `EINVAL`.
    pub(crate) const fn invalid(field: &'static str, value: u64, rule: &'static str) -> Self {
        Self { field, ..Self::with(libc::EINVAL, CallFault::Invalid, value, rule) }
    }

    /// The device does not do what the field asks for: `EOPNOTSUPP`.
    pub(crate) const fn unsupported(field: &'static str, value: u64, rule: &'static str) -> Self {
        Self { field, ..Self::with(libc::EOPNOTSUPP, CallFault::Unsupported, value, rule) }
    }

    /// The field names no object that exists.
    pub(crate) const fn unknown(field: &'static str, errno: c_int, rule: &'static str) -> Self {
        Self { field, ..Self::with(errno, CallFault::Unknown, 0, rule) }
    }

    /// The limit is reached, or there is no memory for more: `ENOMEM`.
    pub(crate) const fn exhausted(rule: &'static str) -> Self {
        Self::with(libc::ENOMEM, CallFault::Exhausted, 0, rule)
    }

    /// The queue is full: `ENOMEM`. `occupancy` is the number of its places, and of those whose work is not carried out
    /// yet. Without it, nothing is noted.
    pub(crate) fn full(
        queue: &'static str,
        occupancy: Option<(usize, usize)>,
        is_in_error: bool,
    ) -> Self {
        let (places, waiting) = occupancy.unwrap_or_default();
        let wrong = Self::with(libc::ENOMEM, CallFault::Full, places as u64, "");
        let fault = occupancy.map(|_| CallFault::Full);
        Self { fault, field: queue, more: [waiting as u64, is_in_error.into()], ..wrong }
    }

    /// A fault of no certain field.
    pub(crate) const fn with(
        errno: c_int,
        fault: CallFault,
        value: u64,
        rule: &'static str,
    ) -> Self {
        Self { errno, fault: Some(fault), field: "", value, limit: 0, more: [0; 2], rule, said: "" }
    }

    /// The same, with the second number that belongs to the fault.
    pub(crate) const fn and(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    /// The same, with two more numbers that belong to the fault.
    pub(crate) const fn and_more(self, more: [u64; 2]) -> Self {
        Self { more, ..self }
    }

    /// The same, with another errno.
    pub(crate) const fn answering(self, errno: c_int) -> Self {
        Self { errno, ..self }
    }

    /// Other objects hold the object that the program wants to end: `EBUSY`.
    pub(crate) fn held(holders: Holders, rule: &'static str) -> Self {
        let (counts, first) = holders.numbers();
        Self::with(libc::EBUSY, CallFault::Held, counts, rule).and(first)
    }

    /// Windows are bound to the region that the program wants to end or change: `EBUSY`.
    pub(crate) fn bound(windows: &BoundWindows, rule: &'static str) -> Self {
        let BoundWindows { count, key, qp, wr_id, age } = *windows;
        let first = u64::from(qp) << 32 | u64::from(key);
        let wrong = Self::with(libc::EBUSY, CallFault::WindowsBound, count, rule).and(first);
        Self { more: [wr_id, age], ..wrong }
    }

    /// Packets cannot be sent to the address. The errno comes from the reason.
    pub(crate) fn unreachable(why: Unreachable) -> Self {
        let gid = u128::from_be_bytes(why.gid());
        let wrong = Self::with(why.errno(), CallFault::Unreachable, (gid >> 64) as u64, "ST-29");
        Self { field: "grh.dgid", limit: gid as u64, ..wrong }
    }

    /// A refused object of the device that has no address range.
    pub(crate) fn of_object(error: RegisterError, rule: &'static str) -> Self {
        match error {
            RegisterError::Exhausted => Self::exhausted(rule),
            RegisterError::OtherDevice => Self::OTHER_DEVICE,
            other => errno::of_register(other).into(),
        }
    }

    /// Like [`Wrong::told`], for a verb that a program may call in a loop. It is noted once a second.
    #[cold]
    pub(crate) fn told_seldom(self, device: &Device, verb: &'static str) -> c_int {
        if told::is_due(verb, self.errno) {
            return self.told(Some(device), verb, 0);
        }
        told::is_no_fault();
        self.errno
    }

    /// Notes it as the answer of a verb, about a queue pair or zero. Returns its errno. Without a device, it is noted
    /// at the device of the object that the verb has found.
    #[cold]
    pub(crate) fn told(self, device: Option<&Device>, verb: &'static str, qp: u32) -> c_int {
        match self.fault {
            None => told::is_no_fault(),
            Some(fault) => told::note(
                device,
                &CallRefusal {
                    verb: Name::new(verb),
                    errno: self.errno,
                    fault,
                    field: Name::new(self.field),
                    value: self.value,
                    limit: self.limit,
                    more: self.more,
                    rule: Name::new(self.rule),
                    qp,
                    said: Name::new(self.said),
                },
            ),
        }
        self.errno
    }
}

/// Reports that a verb waits for delivered events, and which call acknowledges them.
#[cold]
pub(crate) fn waits(verb: &'static str, acknowledges: &'static str, count: u64) {
    let said = format!("{acknowledges} to be called for {count} more of its events");
    told::note(
        None,
        &CallRefusal {
            verb: Name::new(verb),
            fault: CallFault::Waits,
            value: count,
            said: Name::new(&said),
            ..CallRefusal::default()
        },
    );
    told::goes_on();
    say_to_a_reader(format_args!("{verb} waits for {said}"));
}

impl From<c_int> for Wrong {
    fn from(errno: c_int) -> Self {
        Self::with(errno, CallFault::Unnamed, 0, "")
    }
}

impl From<Wrong> for c_int {
    fn from(wrong: Wrong) -> Self {
        wrong.errno
    }
}
