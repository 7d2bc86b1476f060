//! The table of operations. It lists the needs of each operation, once. Everything else asks here.

use transom_wire::packet;

use crate::Access;
use crate::numbered::numbered;
use crate::qp::Service;

numbered! {
    /// An operation on memory, a window or a receive.
    pub enum Operation {
        /// A peer's SEND.
        Send = 9,
        /// A peer's RDMA WRITE, with or without immediate.
        Write = 1,
        /// A peer's RDMA READ.
        Read = 2,
        /// A peer's compare and swap.
        CompareSwap = 3,
        /// A peer's fetch and add.
        FetchAdd = 13,
        /// A peer's ATOMIC WRITE.
        AtomicWrite = 10,
        /// A peer's FLUSH to global visibility.
        Flush = 11,
        /// A peer's FLUSH to persistence.
        FlushPersistent = 12,
        /// The invalidation carried by a peer's SEND_WITH_INV.
        RemoteInvalidate = 8,
        /// The adapter reading local memory to send it.
        LocalRead = 4,
        /// The adapter writing local memory: received data, READ data, an atomic's result.
        LocalWrite = 5,
        /// Binding a window.
        Bind = 6,
        /// LOCAL_INV.
        Invalidate = 7,
    }
}

numbered! {
    /// The operation that completed, with the values of `enum ibv_wc_opcode`.
    pub enum Opcode {
        /// Any SEND.
        Send = 0,
        /// Any RDMA WRITE.
        Write = 1,
        /// RDMA READ.
        Read = 2,
        /// Compare and swap.
        CompareSwap = 3,
        /// Fetch and add.
        FetchAdd = 4,
        /// A bind.
        BindWindow = 5,
        /// LOCAL_INV.
        LocalInvalidate = 6,
        /// FLUSH.
        Flush = 8,
        /// ATOMIC WRITE.
        AtomicWrite = 9,
        /// A message received.
        Receive = 128,
        /// A WRITE with immediate received.
        ReceiveWriteImmediate = 129,
        /// A tagged buffer added.
        TagAdd = 130,
        /// A tagged buffer removed.
        TagRemove = 131,
        /// The count of unexpected messages reported.
        TagSync = 132,
        /// A message with a tag received, or the data of a rendezvous.
        TagReceive = 133,
        /// A message without a tag received by a queue that matches tags.
        TagNone = 134,
    }
}

/// The object of an operation, and who asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A peer, by an R_Key, for memory.
    RemoteMemory,
    /// A peer, for a posted receive.
    Receive,
    /// A peer, to end a window's binding.
    RemoteWindow,
    /// This process, by an L_Key, for memory to read.
    LocalSource,
    /// This process, by an L_Key, for memory to write.
    LocalDestination,
    /// This process, to bind a window to a region.
    Binding,
    /// This process, to end a window's binding.
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

/// The services that have an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Services {
    /// Those that acknowledge: RC and XRC.
    Reliable,
    /// Those and UC.
    Connected,
    /// Those and UD.
    All,
}

impl Services {
    /// Whether this is one of them.
    #[inline]
    pub const fn include(self, service: Service) -> bool {
        match self {
            Self::Reliable => service.is_reliable(),
            Self::Connected => !matches!(service, Service::Ud),
            Self::All => true,
        }
    }
}

/// Local data that goes with an operation, or comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// None.
    None,
    /// Data of local buffers goes to the target.
    Sent,
    /// Data of the target's memory comes into local buffers.
    Fetched,
    /// The old value of a word of the target's memory comes into local buffers.
    OldValue,
}

/// Whether an operation takes a posted receive of its target. Operations that can take one can bring immediate data,
/// and no others can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receive {
    /// It takes none.
    Never,
    /// It takes one for its immediate data, if it has some.
    WithImmediate,
    /// It takes one.
    Always,
}

/// A right, and the rule that requires it.
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

/// The needs of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The operation in words.
    pub name: &'static str,
    /// The same for programs and command lines, in lower case; operations that only differ in
    /// their arguments have one.
    pub label: &'static str,
    /// Its object, and who asks.
    pub subject: Subject,
    /// Which services have it.
    pub services: Services,
    /// The right that the key's object must grant. `None` if the operation names no memory or needs no right.
    pub right: Option<Right>,
    /// The right that the target's queue pair must grant its peer (rule RA-06).
    pub queue_pair: Access,
    /// It takes one of the target's responder resources until it is answered (rules RA-09, RN-11).
    pub responder_resources: bool,
    /// It works on one aligned word of eight bytes.
    pub word: Option<Word>,
    /// Data each way.
    pub data: Data,
    /// Whether it takes a receive, and may have immediate data.
    pub receive: Receive,
    /// The opcode of the completion of a work request for it. `None` if it is only a part of other operations.
    pub completion: Option<Opcode>,
}

const fn right(access: Access, rule: &'static str) -> Option<Right> {
    Some(Right { access, rule })
}

/// Compare and swap; fetch and add is called otherwise when it completes.
const ATOMIC: Needs = Needs {
    name: "Atomic",
    label: "atomic",
    subject: Subject::RemoteMemory,
    services: Services::Reliable,
    right: right(Access::REMOTE_ATOMIC, "RA-30"),
    queue_pair: Access::REMOTE_ATOMIC,
    responder_resources: true,
    word: Some(Word { alignment: "AT-01", length: "AT-08" }),
    data: Data::OldValue,
    receive: Receive::Never,
    completion: Some(Opcode::CompareSwap),
};

/// FLUSH to global visibility; that to persistence needs another right.
const FLUSH: Needs = Needs {
    name: "FLUSH",
    label: "flush",
    subject: Subject::RemoteMemory,
    services: Services::Reliable,
    right: right(Access::FLUSH_GLOBAL, "FL-01"),
    queue_pair: Access::FLUSH_GLOBAL,
    responder_resources: true,
    word: None,
    data: Data::None,
    receive: Receive::Never,
    completion: Some(Opcode::Flush),
};

impl Operation {
    /// Its needs. A new operation must list all of them here, or it does not compile.
    #[inline(always)]
    pub const fn needs(self) -> Needs {
        match self {
            Self::Write => Needs {
                name: "WRITE",
                label: "write",
                subject: Subject::RemoteMemory,
                services: Services::Connected,
                right: right(Access::REMOTE_WRITE, "RA-28"),
                queue_pair: Access::REMOTE_WRITE,
                responder_resources: false,
                word: None,
                data: Data::Sent,
                receive: Receive::WithImmediate,
                completion: Some(Opcode::Write),
            },
            Self::Read => Needs {
                name: "READ",
                label: "read",
                subject: Subject::RemoteMemory,
                services: Services::Reliable,
                right: right(Access::REMOTE_READ, "RA-29"),
                queue_pair: Access::REMOTE_READ,
                responder_resources: true,
                word: None,
                data: Data::Fetched,
                receive: Receive::Never,
                completion: Some(Opcode::Read),
            },
            Self::CompareSwap => ATOMIC,
            Self::FetchAdd => Needs { completion: Some(Opcode::FetchAdd), ..ATOMIC },
            Self::AtomicWrite => Needs {
                name: "ATOMIC WRITE",
                label: "atomic_write",
                subject: Subject::RemoteMemory,
                services: Services::Reliable,
                right: right(Access::REMOTE_WRITE, "AT-15"),
                queue_pair: Access::REMOTE_WRITE,
                responder_resources: true,
                word: Some(Word { alignment: "AT-16", length: "AT-17" }),
                data: Data::Sent,
                receive: Receive::Never,
                completion: Some(Opcode::AtomicWrite),
            },
            Self::Flush => FLUSH,
            Self::FlushPersistent => {
                Needs { right: right(Access::FLUSH_PERSISTENT, "FL-02"), ..FLUSH }
            }
            Self::Send => Needs {
                name: "SEND",
                label: "send",
                subject: Subject::Receive,
                services: Services::All,
                right: None,
                queue_pair: Access::empty(),
                responder_resources: false,
                word: None,
                data: Data::Sent,
                receive: Receive::Always,
                completion: Some(Opcode::Send),
            },
            Self::RemoteInvalidate => Needs {
                name: "SEND_WITH_INV",
                label: "remote_invalidate",
                subject: Subject::RemoteWindow,
                services: Services::Reliable,
                right: None,
                queue_pair: Access::empty(),
                responder_resources: false,
                word: None,
                data: Data::None,
                receive: Receive::Never,
                completion: None,
            },
            Self::LocalRead => Needs {
                name: "Reading local memory",
                label: "local_read",
                subject: Subject::LocalSource,
                services: Services::All,
                right: None,
                queue_pair: Access::empty(),
                responder_resources: false,
                word: None,
                data: Data::None,
                receive: Receive::Never,
                completion: None,
            },
            Self::LocalWrite => Needs {
                name: "Writing local memory",
                label: "local_write",
                subject: Subject::LocalDestination,
                services: Services::All,
                right: right(Access::LOCAL_WRITE, "LA-02"),
                queue_pair: Access::empty(),
                responder_resources: false,
                word: None,
                data: Data::None,
                receive: Receive::Never,
                completion: None,
            },
            Self::Bind => Needs {
                name: "Bind",
                label: "bind",
                subject: Subject::Binding,
                services: Services::Connected,
                right: None,
                queue_pair: Access::empty(),
                responder_resources: false,
                word: None,
                data: Data::None,
                receive: Receive::Never,
                completion: Some(Opcode::BindWindow),
            },
            Self::Invalidate => Needs {
                name: "LOCAL_INV",
                label: "invalidate",
                subject: Subject::LocalWindow,
                services: Services::Connected,
                right: None,
                queue_pair: Access::empty(),
                responder_resources: false,
                word: None,
                data: Data::None,
                receive: Receive::Never,
                completion: Some(Opcode::LocalInvalidate),
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

    /// The operation that a packet of this opcode asks for. `None` for answers. A FLUSH names its kind in its headers.
    pub const fn of_packet(opcode: packet::Opcode) -> Option<Self> {
        use packet::Opcode as On;
        Some(match opcode {
            On::SendFirst
            | On::SendMiddle
            | On::SendLast
            | On::SendLastImmediate
            | On::SendLastInvalidate
            | On::SendOnly
            | On::SendOnlyImmediate
            | On::SendOnlyInvalidate => Self::Send,
            On::WriteFirst
            | On::WriteMiddle
            | On::WriteLast
            | On::WriteLastImmediate
            | On::WriteOnly
            | On::WriteOnlyImmediate => Self::Write,
            On::ReadRequest => Self::Read,
            On::CompareSwap => Self::CompareSwap,
            On::FetchAdd => Self::FetchAdd,
            On::AtomicWrite => Self::AtomicWrite,
            On::Flush => Self::Flush,
            On::ReadResponseFirst
            | On::ReadResponseMiddle
            | On::ReadResponseLast
            | On::ReadResponseOnly
            | On::Acknowledge
            | On::AtomicAcknowledge => return None,
        })
    }
}
