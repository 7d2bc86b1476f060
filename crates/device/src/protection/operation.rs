//! The table of operations: what each one needs is said here, once, and everything else asks here.

use super::numbered::numbered;
use crate::Access;

numbered! {
    /// What is done with memory, a window or a receive.
    pub enum Operation {
        /// A peer's RDMA WRITE, with or without immediate.
        Write = 1,
        /// A peer's RDMA READ.
        Read = 2,
        /// A peer's compare and swap.
        CompareSwap = 3,
        /// The adapter reading local memory to send it.
        LocalRead = 4,
        /// The adapter writing local memory: received data, READ data, an atomic's result.
        LocalWrite = 5,
        /// Binding a window.
        Bind = 6,
        /// LOCAL_INV.
        Invalidate = 7,
        /// The invalidation carried by a peer's SEND_WITH_INV.
        RemoteInvalidate = 8,
        /// A peer's SEND.
        Send = 9,
        /// A peer's ATOMIC WRITE.
        AtomicWrite = 10,
        /// A peer's FLUSH to global visibility.
        Flush = 11,
        /// A peer's FLUSH to persistence.
        FlushPersistent = 12,
        /// A peer's fetch and add.
        FetchAdd = 13,
    }
}

/// What an operation is about, and who asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A peer, by an R_Key, for memory.
    RemoteMemory,
    /// A peer, for a posted receive.
    Receive,
    /// A peer, for the end of a window's binding.
    RemoteWindow,
    /// This process, by an L_Key, for memory to read.
    LocalSource,
    /// This process, by an L_Key, for memory to write.
    LocalDestination,
    /// This process, for a window and a region to bind.
    Binding,
    /// This process, for the end of a window's binding.
    LocalWindow,
}

impl Subject {
    /// Whether a peer asks.
    pub const fn is_remote(self) -> bool {
        match self {
            Self::RemoteMemory | Self::Receive | Self::RemoteWindow => true,
            Self::LocalSource | Self::LocalDestination | Self::Binding | Self::LocalWindow => false,
        }
    }
}

/// A right, and the rule that asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// Every one of these must be granted (rule RA-31).
    pub access: Access,
    /// The id of the rule.
    pub rule: &'static str,
}

/// The rules for an operation on a word of eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Its address is a multiple of eight.
    pub alignment: &'static str,
    /// It is eight bytes long.
    pub length: &'static str,
}

/// What an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The operation in words.
    pub name: &'static str,
    /// The same for programs and command lines, in lower case; operations that only differ in
    /// their arguments have one.
    pub label: &'static str,
    /// What it is about, and who asks.
    pub subject: Subject,
    /// What the key's object must grant; `None` if it names no memory or needs no right.
    pub right: Option<Right>,
    /// What the target's queue pair must allow its peer (rule RA-06).
    pub queue_pair: Access,
    /// It takes one of the target's responder resources until it is answered (rules RA-09, RN-11).
    pub responder_resources: bool,
    /// It works on one aligned word of eight bytes.
    pub word: Option<Word>,
}

const fn right(access: Access, rule: &'static str) -> Option<Right> {
    Some(Right { access, rule })
}

impl Operation {
    /// What it needs. A new operation says all of it here, or does not compile.
    #[inline]
    pub const fn needs(self) -> Needs {
        match self {
            Self::Write => Needs {
                name: "WRITE",
                label: "write",
                subject: Subject::RemoteMemory,
                right: right(Access::REMOTE_WRITE, "RA-28"),
                queue_pair: Access::REMOTE_WRITE,
                responder_resources: false,
                word: None,
            },
            Self::Read => Needs {
                name: "READ",
                label: "read",
                subject: Subject::RemoteMemory,
                right: right(Access::REMOTE_READ, "RA-29"),
                queue_pair: Access::REMOTE_READ,
                responder_resources: true,
                word: None,
            },
            Self::CompareSwap | Self::FetchAdd => Needs {
                name: "Atomic",
                label: "atomic",
                subject: Subject::RemoteMemory,
                right: right(Access::REMOTE_ATOMIC, "RA-30"),
                queue_pair: Access::REMOTE_ATOMIC,
                responder_resources: true,
                word: Some(Word { alignment: "AT-01", length: "AT-08" }),
            },
            Self::AtomicWrite => Needs {
                name: "ATOMIC WRITE",
                label: "atomic_write",
                subject: Subject::RemoteMemory,
                right: right(Access::REMOTE_WRITE, "AT-15"),
                queue_pair: Access::REMOTE_WRITE,
                responder_resources: true,
                word: Some(Word { alignment: "AT-16", length: "AT-17" }),
            },
            Self::Flush => Needs {
                name: "FLUSH",
                label: "flush",
                subject: Subject::RemoteMemory,
                right: right(Access::FLUSH_GLOBAL, "FL-01"),
                queue_pair: Access::FLUSH_GLOBAL,
                responder_resources: true,
                word: None,
            },
            Self::FlushPersistent => {
                Needs { right: right(Access::FLUSH_PERSISTENT, "FL-02"), ..Self::Flush.needs() }
            }
            Self::Send => Needs {
                name: "SEND",
                label: "send",
                subject: Subject::Receive,
                right: None,
                queue_pair: Access::empty(),
                responder_resources: false,
                word: None,
            },
            Self::RemoteInvalidate => Needs {
                name: "SEND_WITH_INV",
                label: "remote_invalidate",
                subject: Subject::RemoteWindow,
                right: None,
                queue_pair: Access::empty(),
                responder_resources: false,
                word: None,
            },
            Self::LocalRead => Needs {
                name: "Reading local memory",
                label: "local_read",
                subject: Subject::LocalSource,
                right: None,
                queue_pair: Access::empty(),
                responder_resources: false,
                word: None,
            },
            Self::LocalWrite => Needs {
                name: "Writing local memory",
                label: "local_write",
                subject: Subject::LocalDestination,
                right: right(Access::LOCAL_WRITE, "LA-02"),
                queue_pair: Access::empty(),
                responder_resources: false,
                word: None,
            },
            Self::Bind => Needs {
                name: "Bind",
                label: "bind",
                subject: Subject::Binding,
                right: None,
                queue_pair: Access::empty(),
                responder_resources: false,
                word: None,
            },
            Self::Invalidate => Needs {
                name: "LOCAL_INV",
                label: "invalidate",
                subject: Subject::LocalWindow,
                right: None,
                queue_pair: Access::empty(),
                responder_resources: false,
                word: None,
            },
        }
    }

    /// The rights that the key's object must grant.
    #[inline]
    pub const fn rights(self) -> Access {
        match self.needs().right {
            Some(right) => right.access,
            None => Access::empty(),
        }
    }
}
