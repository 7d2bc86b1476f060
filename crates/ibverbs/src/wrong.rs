//! What is wrong with a call that is refused at once: named where that is decided, and noted for
//! `transom explain` by the verb. A call that succeeds has nothing to do with it.

use std::ffi::c_int;

use transom_abi::{ibv_context, ibv_pd};
use transom_host::device::Device;
use transom_host::objects::RegisterError;
use transom_system::addresses::Unreachable;
use transom_system::registry::{CallFault, CallRefusal, Name};

use crate::context::Context;
use crate::{adapters, errno, pd};

/// Why a verb is refused, and the errno that says so to the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wrong {
    errno: c_int,
    /// None is not worth a note: a queue that is full is an answer.
    fault: Option<CallFault>,
    field: &'static str,
    value: u64,
    limit: u64,
    rule: &'static str,
}

impl Wrong {
    /// The field is `value` and may be at most `limit`: `EINVAL`.
    pub(crate) const fn too_much(
        field: &'static str,
        value: u64,
        limit: u64,
        rule: &'static str,
    ) -> Self {
        Self { field, limit, ..Self::with(libc::EINVAL, CallFault::TooMuch, value, rule) }
    }

    /// The field cannot be `value`: `EINVAL`.
    pub(crate) const fn invalid(field: &'static str, value: u64, rule: &'static str) -> Self {
        Self { field, ..Self::with(libc::EINVAL, CallFault::Invalid, value, rule) }
    }

    /// The device does not do what the field asks for: `EOPNOTSUPP`.
    pub(crate) const fn unsupported(field: &'static str, value: u64, rule: &'static str) -> Self {
        Self { field, ..Self::with(libc::EOPNOTSUPP, CallFault::Unsupported, value, rule) }
    }

    /// The field names no object that is there.
    pub(crate) const fn unknown(field: &'static str, errno: c_int, rule: &'static str) -> Self {
        Self { field, ..Self::with(errno, CallFault::Unknown, 0, rule) }
    }

    /// There are as many as there may be, or there is no memory for more: `ENOMEM`.
    pub(crate) const fn exhausted(rule: &'static str) -> Self {
        Self::with(libc::ENOMEM, CallFault::Exhausted, 0, rule)
    }

    /// The queue is full: `ENOMEM`.
    pub(crate) const fn full() -> Self {
        Self { fault: None, ..Self::with(libc::ENOMEM, CallFault::Unnamed, 0, "") }
    }

    /// A fault that no field is named for.
    pub(crate) const fn with(
        errno: c_int,
        fault: CallFault,
        value: u64,
        rule: &'static str,
    ) -> Self {
        Self { errno, fault: Some(fault), field: "", value, limit: 0, rule }
    }

    /// The same, with the second number that belongs to the fault.
    pub(crate) const fn and(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    /// The address is none that packets can be sent to: the errno of why.
    pub(crate) fn unreachable(why: Unreachable) -> Self {
        let gid = u128::from_be_bytes(why.gid());
        let wrong = Self::with(why.errno(), CallFault::Unreachable, (gid >> 64) as u64, "ST-29");
        Self { field: "grh.dgid", limit: gid as u64, ..wrong }
    }

    /// Why an object of the device is refused that has no range.
    pub(crate) fn of_object(error: RegisterError, rule: &'static str) -> Self {
        match error {
            RegisterError::Exhausted => Self::exhausted(rule),
            other => errno::of_register(other).into(),
        }
    }

    /// Notes it as the answer of a verb, about a queue pair or zero; its errno.
    #[cold]
    pub(crate) fn told(self, device: Option<&Device>, verb: &'static str, qp: u32) -> c_int {
        if let (Some(device), Some(fault)) = (device, self.fault) {
            device.process().note_refused_call(&CallRefusal {
                verb: Name::new(verb),
                errno: self.errno,
                fault,
                field: Name::new(self.field),
                value: self.value,
                limit: self.limit,
                rule: Name::new(self.rule),
                qp,
                ..CallRefusal::default()
            });
        }
        self.errno
    }

    /// The same of a verb that was given a protection domain.
    ///
    /// # Safety
    /// `pd` is null or readable.
    #[cold]
    pub(crate) unsafe fn told_in(self, pd: *const ibv_pd, verb: &'static str) -> c_int {
        // SAFETY: by the contract of this function.
        let found = unsafe { pd::find(pd) }.ok().map(|found| found.domain.device().clone());
        self.told(found.or_else(adapters::only).as_deref(), verb, 0)
    }

    /// The same of a verb that was given a context.
    ///
    /// # Safety
    /// `context` is null or open.
    #[cold]
    pub(crate) unsafe fn told_of(self, context: *mut ibv_context, verb: &'static str) -> c_int {
        // SAFETY: by the contract of this function.
        let found = unsafe { Context::of(context) }.map(|context| context.device().clone());
        self.told(found.or_else(adapters::only).as_deref(), verb, 0)
    }
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
