//! The opcodes, and the lengths of the headers that they bring (rules H.2).

use super::{Ending, Operation, Packet, Transport};

/// The opcode of a congestion notification: a whole byte, outside the services (rule OP-26).
pub(super) const CONGESTION: u8 = 0x81;

/// Bytes of each header (rules PK-01 to PK-06).
pub(super) const BTH_BYTES: usize = 12;
const DETH_BYTES: usize = 8;
const XRCETH_BYTES: usize = 4;
const RETH_BYTES: usize = 16;
const ATOMICETH_BYTES: usize = 28;
const AETH_BYTES: usize = 4;
const ATOMICACKETH_BYTES: usize = 8;
const IMMDT_BYTES: usize = 4;
const IETH_BYTES: usize = 4;
const FETH_BYTES: usize = 4;
/// Bytes after the BTH of a congestion notification (rule CNP-01).
pub(super) const CONGESTION_BYTES: usize = 16;

macro_rules! opcodes {
    ($($opcode:ident = $code:literal,)+) => {
        /// The low five bits of each opcode with a meaning (rules OP-00 to OP-25).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        #[expect(missing_docs, reason = "the names are those of the table of opcodes")]
        pub enum Opcode { $($opcode = $code,)+ }

        impl Opcode {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$opcode),+];

            /// The one with this code; `None` if it means nothing (rule OP-21).
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$opcode),)+
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    SendFirst = 0x00,
    SendMiddle = 0x01,
    SendLast = 0x02,
    SendLastImmediate = 0x03,
    SendOnly = 0x04,
    SendOnlyImmediate = 0x05,
    WriteFirst = 0x06,
    WriteMiddle = 0x07,
    WriteLast = 0x08,
    WriteLastImmediate = 0x09,
    WriteOnly = 0x0a,
    WriteOnlyImmediate = 0x0b,
    ReadRequest = 0x0c,
    ReadResponseFirst = 0x0d,
    ReadResponseMiddle = 0x0e,
    ReadResponseLast = 0x0f,
    ReadResponseOnly = 0x10,
    Acknowledge = 0x11,
    AtomicAcknowledge = 0x12,
    CompareSwap = 0x13,
    FetchAdd = 0x14,
    SendLastInvalidate = 0x16,
    SendOnlyInvalidate = 0x17,
    Flush = 0x1c,
    AtomicWrite = 0x1d,
}

/// The services that have an opcode (the table in rules H.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Services {
    /// RC and XRC.
    Reliable,
    /// RC, XRC and UC.
    Connected,
    /// RC, XRC, UC and UD.
    All,
}

impl Opcode {
    /// The five bits.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Whether it answers a request.
    pub const fn is_response(self) -> bool {
        match self {
            Self::ReadResponseFirst
            | Self::ReadResponseMiddle
            | Self::ReadResponseLast
            | Self::ReadResponseOnly
            | Self::Acknowledge
            | Self::AtomicAcknowledge => true,
            Self::SendFirst
            | Self::SendMiddle
            | Self::SendLast
            | Self::SendLastImmediate
            | Self::SendLastInvalidate
            | Self::SendOnly
            | Self::SendOnlyImmediate
            | Self::SendOnlyInvalidate
            | Self::WriteFirst
            | Self::WriteMiddle
            | Self::WriteLast
            | Self::WriteLastImmediate
            | Self::WriteOnly
            | Self::WriteOnlyImmediate
            | Self::ReadRequest
            | Self::CompareSwap
            | Self::FetchAdd
            | Self::AtomicWrite
            | Self::Flush => false,
        }
    }

    const fn services(self) -> Services {
        match self {
            Self::SendOnly | Self::SendOnlyImmediate => Services::All,
            Self::SendFirst
            | Self::SendMiddle
            | Self::SendLast
            | Self::SendLastImmediate
            | Self::WriteFirst
            | Self::WriteMiddle
            | Self::WriteLast
            | Self::WriteLastImmediate
            | Self::WriteOnly
            | Self::WriteOnlyImmediate => Services::Connected,
            Self::SendLastInvalidate
            | Self::SendOnlyInvalidate
            | Self::ReadRequest
            | Self::ReadResponseFirst
            | Self::ReadResponseMiddle
            | Self::ReadResponseLast
            | Self::ReadResponseOnly
            | Self::Acknowledge
            | Self::AtomicAcknowledge
            | Self::CompareSwap
            | Self::FetchAdd
            | Self::AtomicWrite
            | Self::Flush => Services::Reliable,
        }
    }
}

impl Transport {
    /// Bits 7 to 5 of the opcode.
    pub(super) const fn bits(&self) -> u8 {
        match self {
            Self::Rc => 0,
            Self::Uc => 1,
            Self::Ud { .. } => 3,
            Self::Xrc { .. } => 5,
        }
    }

    /// Whether the service has the opcode.
    pub(super) const fn has(&self, opcode: Opcode) -> bool {
        match self {
            Self::Rc | Self::Xrc { .. } => true,
            Self::Uc => matches!(opcode.services(), Services::Connected | Services::All),
            Self::Ud { .. } => matches!(opcode.services(), Services::All),
        }
    }
}

impl Operation {
    /// Its opcode. A reserved one has none, and neither has a congestion notification.
    pub const fn opcode(&self) -> Option<Opcode> {
        Some(match self {
            Self::SendFirst => Opcode::SendFirst,
            Self::SendMiddle => Opcode::SendMiddle,
            Self::SendLast(Ending::Plain) => Opcode::SendLast,
            Self::SendLast(Ending::Immediate(_)) => Opcode::SendLastImmediate,
            Self::SendLast(Ending::Invalidate(_)) => Opcode::SendLastInvalidate,
            Self::SendOnly(Ending::Plain) => Opcode::SendOnly,
            Self::SendOnly(Ending::Immediate(_)) => Opcode::SendOnlyImmediate,
            Self::SendOnly(Ending::Invalidate(_)) => Opcode::SendOnlyInvalidate,
            Self::WriteFirst(_) => Opcode::WriteFirst,
            Self::WriteMiddle => Opcode::WriteMiddle,
            Self::WriteLast { immediate: None } => Opcode::WriteLast,
            Self::WriteLast { immediate: Some(_) } => Opcode::WriteLastImmediate,
            Self::WriteOnly { immediate: None, .. } => Opcode::WriteOnly,
            Self::WriteOnly { immediate: Some(_), .. } => Opcode::WriteOnlyImmediate,
            Self::ReadRequest(_) => Opcode::ReadRequest,
            Self::ReadResponseFirst(_) => Opcode::ReadResponseFirst,
            Self::ReadResponseMiddle => Opcode::ReadResponseMiddle,
            Self::ReadResponseLast(_) => Opcode::ReadResponseLast,
            Self::ReadResponseOnly(_) => Opcode::ReadResponseOnly,
            Self::Acknowledge(_) => Opcode::Acknowledge,
            Self::AtomicAcknowledge { .. } => Opcode::AtomicAcknowledge,
            Self::CompareSwap { .. } => Opcode::CompareSwap,
            Self::FetchAdd { .. } => Opcode::FetchAdd,
            Self::Flush { .. } => Opcode::Flush,
            Self::AtomicWrite(_) => Opcode::AtomicWrite,
            Self::Reserved(_) | Self::Congestion => return None,
        })
    }

    /// Bits 4 to 0 of the opcode (rules OP-00 to OP-26).
    pub const fn code(&self) -> u8 {
        match (self.opcode(), self) {
            (Some(opcode), _) => opcode.code(),
            (None, Self::Reserved(code)) => *code & 0x1f,
            (None, _) => CONGESTION & 0x1f,
        }
    }

    /// Whether it answers a request, so that the requester takes it.
    pub const fn is_response(&self) -> bool {
        match self.opcode() {
            Some(opcode) => opcode.is_response(),
            None => false,
        }
    }

    /// Whether the sending half of a queue pair takes it: answers, and congestion notifications.
    pub const fn is_for_requester(&self) -> bool {
        self.is_response() || matches!(self, Self::Congestion)
    }

    /// Bytes of the headers that come with it, after those of the service.
    const fn header_length(&self) -> usize {
        match self {
            Self::SendLast(ending) | Self::SendOnly(ending) => match ending {
                Ending::Plain => 0,
                Ending::Immediate(_) => IMMDT_BYTES,
                Ending::Invalidate(_) => IETH_BYTES,
            },
            Self::WriteLast { immediate: Some(_) } => IMMDT_BYTES,
            Self::WriteOnly { immediate: Some(_), .. } => RETH_BYTES + IMMDT_BYTES,
            Self::WriteFirst(_)
            | Self::WriteOnly { immediate: None, .. }
            | Self::ReadRequest(_)
            | Self::AtomicWrite(_) => RETH_BYTES,
            Self::ReadResponseFirst(_)
            | Self::ReadResponseLast(_)
            | Self::ReadResponseOnly(_)
            | Self::Acknowledge(_) => AETH_BYTES,
            Self::AtomicAcknowledge { .. } => AETH_BYTES + ATOMICACKETH_BYTES,
            Self::CompareSwap { .. } | Self::FetchAdd { .. } => ATOMICETH_BYTES,
            Self::Flush { .. } => FETH_BYTES + RETH_BYTES,
            Self::Congestion => CONGESTION_BYTES,
            Self::SendFirst
            | Self::SendMiddle
            | Self::WriteMiddle
            | Self::WriteLast { immediate: None }
            | Self::ReadResponseMiddle
            | Self::Reserved(_) => 0,
        }
    }
}

/// Whether an XRCETH comes with the opcode of an XRC packet. It does with every request that has a meaning.
pub(super) const fn has_xrceth(opcode: Option<Opcode>) -> bool {
    matches!(opcode, Some(opcode) if !opcode.is_response())
}

impl Packet<'_> {
    /// The largest [`Packet::header_length`]: that of an atomic request of XRC.
    pub const MAX_HEADER: usize = BTH_BYTES + XRCETH_BYTES + ATOMICETH_BYTES;

    /// The first byte of the packet.
    pub const fn opcode(&self) -> u8 {
        match self.operation {
            Operation::Congestion => CONGESTION,
            _ => self.transport.bits() << 5 | self.operation.code(),
        }
    }

    /// Bytes of all headers before the payload.
    pub const fn header_length(&self) -> usize {
        let of_service = match (&self.operation, &self.transport) {
            (Operation::Congestion, _) => 0,
            (_, Transport::Ud { .. }) => DETH_BYTES,
            (operation, Transport::Xrc { .. }) if has_xrceth(operation.opcode()) => XRCETH_BYTES,
            _ => 0,
        };
        BTH_BYTES + of_service + self.operation.header_length()
    }
}
