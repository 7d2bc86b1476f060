//! A verb that was refused at once, as `transom explain` gets it, and its sentence.

mod advice;
mod sentence;

use std::fmt;

use super::record::{Kind, RECORD_WORDS};

/// A name of up to `N` bytes: of a verb, an argument, a rule. Other processes may have written anything there, so only
/// printable characters are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name<const N: usize>([u8; N]);

impl<const N: usize> Name<N> {
    /// None.
    pub const EMPTY: Self = Self([0; N]);

    /// As much of the text as there is room for.
    pub fn new(text: &str) -> Self {
        let mut bytes = [0; N];
        for (to, from) in bytes.iter_mut().zip(text.bytes()) {
            *to = from;
        }
        Self(bytes)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.first().is_none_or(|byte| *byte == 0)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        let length = self.0.iter().position(|byte| *byte == 0).unwrap_or(N);
        &self.0[..length]
    }

    pub(super) fn from_words(words: &[u64]) -> Self {
        let mut bytes = [0; N];
        for (to, from) in bytes.iter_mut().zip(words.iter().flat_map(|word| word.to_le_bytes())) {
            *to = from;
        }
        Self(bytes)
    }

    pub(super) fn to_words(self, words: &mut [u64]) {
        for (word, bytes) in words.iter_mut().zip(self.0.chunks(8)) {
            let mut all = [0; 8];
            all[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(all);
        }
    }
}

impl<const N: usize> fmt::Display for Name<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.iter().take_while(|byte| byte.is_ascii_graphic() || **byte == b' ') {
            write!(f, "{}", char::from(*byte))?;
        }
        Ok(())
    }
}

impl<const N: usize> fmt::Debug for Name<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// The error in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::FromRepr)]
#[repr(u8)]
pub enum CallFault {
    /// Only its errno is known.
    Unnamed = 1,
    /// The field is `value` and may be at most `limit`. If the program chose the limit, the device has `more[0]`.
    TooMuch = 2,
    /// The field is `value` and must be at least `limit`.
    TooLittle = 22,
    /// The device does not support the value `value` of the field.
    Unsupported = 3,
    /// The field cannot be `value`.
    Invalid = 4,
    /// The field names no existing object.
    Unknown = 5,
    /// There is no transition of a queue pair from the state `value` to the state `limit`.
    NoTransition = 6,
    /// The attributes of the mask `value` are missing for a change to the state `limit`.
    Missing = 7,
    /// The attributes of the mask `value` are not allowed in a change to the state `limit`.
    Excess = 8,
    /// The attributes of the mask `value` are out of their ranges; the first of them is `more[0]` and may be at most
    /// `more[1]`.
    OutOfRange = 9,
    /// The state `value` of the queue pair does not allow it.
    WrongState = 10,
    /// The type of queue pair does not have the operation with the opcode `value`.
    WrongService = 11,
    /// The memory from the address `value` on, of `limit` bytes, is not all there, or not writable.
    Memory = 12,
    /// The limit is reached.
    Exhausted = 13,
    /// Nothing can be sent to the GID whose first eight bytes are `value` and whose last are `limit`, the
    /// most significant first.
    Unreachable = 14,
    /// All `value` places of the queue are taken. Work that has not been carried out takes `more[0]` of them. `more[1]`
    /// is 1 if the queue pair is in ERR.
    Full = 15,
    /// `value` windows are bound to the region. One of them has the key in the lower half of `limit`. The queue pair in
    /// its upper half bound it with the work request `more[0]`, `more[1]` nanoseconds before.
    WindowsBound = 16,
    /// Others hold it. `value` has their number for each kind of `Holder`, and `limit` names one of
    /// the first kind present.
    Held = 17,
    /// The queue pair was not created for an operation, whose bit of `send_ops_flags` is `value`.
    NotCreatedFor = 18,
    /// The field is `value`, and the table has `limit` entries; or that one is empty.
    NoEntry = 19,
    /// The error is told in words.
    Told = 20,
    /// There is no error yet: it waits, for the reason told in words.
    Waits = 21,
    /// The address vector has no GRH.
    NoGrh = 24,
    /// The source GID with the index `value` is of another family than the destination, which is of IPv4 if `limit` is 1.
    OtherFamily = 25,
}

impl CallFault {
    fn from_code(code: u8) -> Option<Self> {
        Self::from_repr(code)
    }
}

/// The name of a send queue that is [`CallFault::Full`].
pub const SEND_QUEUE: &str = "send queue";

/// A call that was refused, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRefusal {
    /// The verb.
    pub verb: Name<32>,
    /// The errno that it returned.
    pub errno: i32,
    /// The error.
    pub fault: CallFault,
    /// The argument field in error. May be empty.
    pub field: Name<24>,
    /// A number that belongs to the fault.
    pub value: u64,
    /// Another.
    pub limit: u64,
    /// Two more.
    pub more: [u64; 2],
    /// The rule that refuses it. May be empty.
    pub rule: Name<8>,
    /// The queue pair of the call. Zero if none.
    pub qp: u32,
    /// The error in words, for [`CallFault::Told`] and [`CallFault::Waits`].
    pub said: Name<{ Self::SAID }>,
}

impl Default for CallRefusal {
    /// An empty refusal, to fill in.
    fn default() -> Self {
        Self {
            verb: Name::EMPTY,
            errno: 0,
            fault: CallFault::Unnamed,
            field: Name::EMPTY,
            value: 0,
            limit: 0,
            more: [0; 2],
            rule: Name::EMPTY,
            qp: 0,
            said: Name::EMPTY,
        }
    }
}

/// A call that was refused, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// Nanoseconds since 1970.
    pub time: u64,
    /// The refused call, and the reason.
    pub call: CallRefusal,
}

impl CallRecord {
    pub(crate) fn to_words(self) -> [u64; RECORD_WORDS] {
        let mut words = self.call.to_words();
        words[1] = self.time;
        words
    }

    pub(crate) fn from_words(words: &[u64; RECORD_WORDS]) -> Option<Self> {
        Some(Self { time: words[1], call: CallRefusal::from_words(words)? })
    }
}

impl CallRefusal {
    /// How many bytes there are for the error in words.
    pub const SAID: usize = 192;

    fn to_words(self) -> [u64; RECORD_WORDS] {
        let mut words = [0; RECORD_WORDS];
        let small = [Kind::Call as u8, self.fault as u8, 0, 0];
        words[2] = u64::from(u32::from_le_bytes(small)) | u64::from(self.errno as u32) << 32;
        (words[3], words[4]) = (self.value, self.limit);
        self.verb.to_words(&mut words[5..9]);
        self.field.to_words(&mut words[9..12]);
        self.rule.to_words(&mut words[12..13]);
        words[13] = u64::from(self.qp);
        words[14..16].copy_from_slice(&self.more);
        self.said.to_words(&mut words[16..]);
        words
    }

    fn from_words(words: &[u64; RECORD_WORDS]) -> Option<Self> {
        let [mark, fault, ..] = words[2].to_le_bytes();
        if mark != Kind::Call as u8 {
            return None;
        }
        Some(Self {
            verb: Name::from_words(&words[5..9]),
            errno: (words[2] >> 32) as i32,
            fault: CallFault::from_code(fault)?,
            field: Name::from_words(&words[9..12]),
            value: words[3],
            limit: words[4],
            rule: Name::from_words(&words[12..13]),
            qp: words[13] as u32,
            more: [words[14], words[15]],
            said: Name::from_words(&words[16..]),
        })
    }

    /// Whether a correct program may meet it: one that probes the device, or posts until there is no room.
    pub(super) fn is_ordinary(&self) -> bool {
        let asks = matches!(self.errno, libc::EOPNOTSUPP | libc::ENOSYS | libc::EAGAIN);
        asks || self.fault == CallFault::Full
    }

    /// The name of the errno, or its number.
    pub fn errno_name(&self) -> String {
        macro_rules! names {
            ($($name:ident)*) => {
                match self.errno {
                    $(libc::$name => stringify!($name),)*
                    number => return format!("errno {number}"),
                }
            };
        }
        let name = names! {
            EPERM ENOENT EINTR EIO ENXIO EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY ENODEV EINVAL
            EMFILE ENFILE ENOSPC EPIPE EDOM ENOSYS ENODATA EPROTO EMSGSIZE EPROTONOSUPPORT
            ESOCKTNOSUPPORT ENOPROTOOPT EDESTADDRREQ EOPNOTSUPP EAFNOSUPPORT EADDRINUSE
            EADDRNOTAVAIL EEXIST ENETUNREACH ECONNABORTED ECONNRESET EISCONN ENOTCONN ETIMEDOUT
            ECONNREFUSED EHOSTUNREACH EALREADY EINPROGRESS
        };
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other processes write records, so their fields need not fit together.
    #[test]
    fn what_others_wrote_is_still_a_sentence() {
        for fault in 0..=u8::MAX {
            for fill in [0, 0x4141_4141_4141_4141, u64::MAX] {
                let mut words = [fill; RECORD_WORDS];
                words[2] = u64::from_le_bytes([Kind::Call as u8, fault, 0, 0, 22, 0, 0, 0]);
                let Some(record) = CallRecord::from_words(&words) else { continue };
                let sentence = record.call.to_string();
                let waits = record.call.fault == CallFault::Waits;
                let has = if waits { " waits for " } else { " answered EINVAL" };
                assert!(sentence.contains(has), "{sentence}");
                assert!(sentence.chars().all(|letter| !letter.is_control()), "{sentence}");
                assert_eq!(CallRecord::from_words(&record.to_words()), Some(record));
            }
        }
    }
}
