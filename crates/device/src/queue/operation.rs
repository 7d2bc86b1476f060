//! The operation of a send work request, here or at its target.

use bitflags::bitflags;

use crate::operation::{Data, Operation, Receive};
use crate::protection::{Bind, Key, RemoteAddress};

bitflags! {
    /// The guarantee of a FLUSH, with the values of `enum ibv_placement_type`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Placement: u8 {
        /// Everyone can see the written data.
        const GLOBAL = 1;
        /// The written data survives a loss of power.
        const PERSISTENT = 2;
    }
}

impl Placement {
    /// The operations of a FLUSH with this placement. Each needs a right of its own.
    pub fn operations(self) -> impl Iterator<Item = Operation> {
        let persistent = self.contains(Self::PERSISTENT).then_some(Operation::FlushPersistent);
        let global = self.contains(Self::GLOBAL) || persistent.is_none();
        global.then_some(Operation::Flush).into_iter().chain(persistent)
    }
}

/// The operation of a send work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// It sends a message.
    Message(Body),
    /// It stays here.
    Local(LocalOp),
    /// An operation this service does not have; completes in error (rule PS-06).
    Unsupported,
}

impl SendOp {
    /// The operation it asks for, if there is one.
    pub const fn operation(&self) -> Option<Operation> {
        match self {
            Self::Message(body) => Some(body.operation()),
            Self::Local(LocalOp::BindType1(_) | LocalOp::BindType2(_)) => Some(Operation::Bind),
            Self::Local(LocalOp::Invalidate(_)) => Some(Operation::Invalidate),
            Self::Unsupported => None,
        }
    }
}

/// The operation of a message at its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// SEND.
    Send,
    /// SEND with immediate data, in network order.
    SendImmediate(u32),
    /// SEND that invalidates a window of the target.
    SendInvalidate(Key),
    /// RDMA WRITE; with immediate data it takes a receive at the target.
    Write {
        /// First address of the whole message, as the remote object names its addresses.
        address: u64,
        /// R_Key.
        key: Key,
        /// Immediate data in network order.
        immediate: Option<u32>,
    },
    /// RDMA READ.
    Read {
        /// First address of the whole message, as the remote object names its addresses.
        address: u64,
        /// R_Key.
        key: Key,
    },
    /// Compare and swap of eight bytes.
    CompareSwap {
        /// Remote address.
        address: u64,
        /// R_Key.
        key: Key,
        /// Stored if the old value equals `compare`.
        swap: u64,
        /// Compared with the old value.
        compare: u64,
    },
    /// Fetch and add of eight bytes.
    FetchAdd {
        /// Remote address.
        address: u64,
        /// R_Key.
        key: Key,
        /// Added, wrapping.
        add: u64,
    },
    /// ATOMIC WRITE of the eight bytes that come with it: nobody sees them by halves.
    AtomicWrite {
        /// Remote address, a multiple of eight.
        address: u64,
        /// R_Key.
        key: Key,
    },
    /// FLUSH: waits until data written to a remote range can be seen there.
    Flush {
        /// First remote address.
        address: u64,
        /// R_Key.
        key: Key,
        /// Bytes; ignored if `whole` says the whole region.
        length: u32,
        /// The guarantee asked for.
        placement: Placement,
        /// The whole region or window, whatever the range.
        whole: bool,
    },
}

impl Body {
    /// Whether local data goes with it to the target.
    pub const fn carries_data(&self) -> bool {
        matches!(self.operation().needs().data, Data::Sent)
    }

    /// Whether its answer brings data for local buffers.
    pub const fn returns_data(&self) -> bool {
        matches!(self.operation().needs().data, Data::Fetched | Data::OldValue)
    }

    /// Whether it takes a receive at its target.
    pub const fn takes_receive(&self) -> bool {
        match self.operation().needs().receive {
            Receive::Never => false,
            Receive::WithImmediate => matches!(self, Self::Write { immediate: Some(_), .. }),
            Receive::Always => true,
        }
    }

    /// Its address at its target, if it names memory.
    pub const fn remote(&self) -> Option<RemoteAddress> {
        match *self {
            Self::Send | Self::SendImmediate(_) | Self::SendInvalidate(_) => None,
            Self::Write { address, key, .. }
            | Self::Read { address, key }
            | Self::CompareSwap { address, key, .. }
            | Self::FetchAdd { address, key, .. }
            | Self::AtomicWrite { address, key }
            | Self::Flush { address, key, .. } => Some(RemoteAddress { address, key }),
        }
    }

    /// The new value that a fetch-and-add or a compare-and-swap makes of the word (rules AT-05, AT-06).
    pub const fn updated(&self, old: u64) -> u64 {
        match *self {
            Self::FetchAdd { add, .. } => old.wrapping_add(add),
            Self::CompareSwap { swap, compare, .. } if old == compare => swap,
            Self::CompareSwap { .. }
            | Self::Send
            | Self::SendImmediate(_)
            | Self::SendInvalidate(_)
            | Self::Write { .. }
            | Self::Read { .. }
            | Self::AtomicWrite { .. }
            | Self::Flush { .. } => old,
        }
    }

    /// The operation that its target must allow, with the range and the key that it names. A FLUSH to persistence may
    /// ask for [more](Placement::operations).
    pub const fn operation(&self) -> Operation {
        match self {
            Self::Send | Self::SendImmediate(_) | Self::SendInvalidate(_) => Operation::Send,
            Self::Write { .. } => Operation::Write,
            Self::Read { .. } => Operation::Read,
            Self::CompareSwap { .. } => Operation::CompareSwap,
            Self::FetchAdd { .. } => Operation::FetchAdd,
            Self::AtomicWrite { .. } => Operation::AtomicWrite,
            Self::Flush { placement, .. } if placement.contains(Placement::PERSISTENT) => {
                Operation::FlushPersistent
            }
            Self::Flush { .. } => Operation::Flush,
        }
    }

    /// Whether it takes one of the target's READ resources until it is answered, so that a fence waits for it (rules
    /// ORD-10, RN-11).
    pub const fn uses_read_resources(&self) -> bool {
        self.operation().needs().responder_resources
    }
}

/// An operation on a window of this process. It sends nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalOp {
    /// Bind of a type 1 window; length zero unbinds.
    BindType1(Bind),
    /// Bind of a type 2 window.
    BindType2(Bind),
    /// LOCAL_INV of a type 2 window's key.
    Invalidate(Key),
}
