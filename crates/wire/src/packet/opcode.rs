//! Which opcodes there are, and how long the headers are that they bring (rules H.2).

use super::{Ending, Operation, Packet, Transport};

/// The opcode of a congestion notification, a byte for itself (rule OP-26).
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
/// What follows the BTH of a congestion notification (rule CNP-01).
pub(super) const CONGESTION_BYTES: usize = 16;

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

    /// Whether the operation with this code exists in the service (the table in rules H.2).
    pub(super) const fn has(&self, code: u8) -> bool {
        match self {
            Self::Rc | Self::Xrc { .. } => matches!(code, 0..=0x14 | 0x16 | 0x17 | 0x1c | 0x1d),
            Self::Uc => matches!(code, 0..=0x0b),
            Self::Ud { .. } => matches!(code, 0x04 | 0x05),
        }
    }
}

impl Operation {
    /// Bits 4 to 0 of the opcode (rules OP-00 to OP-26).
    pub const fn code(&self) -> u8 {
        match self {
            Self::SendFirst => 0x00,
            Self::SendMiddle => 0x01,
            Self::SendLast(Ending::Plain) => 0x02,
            Self::SendLast(Ending::Immediate(_)) => 0x03,
            Self::SendOnly(Ending::Plain) => 0x04,
            Self::SendOnly(Ending::Immediate(_)) => 0x05,
            Self::WriteFirst(_) => 0x06,
            Self::WriteMiddle => 0x07,
            Self::WriteLast { immediate: None } => 0x08,
            Self::WriteLast { immediate: Some(_) } => 0x09,
            Self::WriteOnly { immediate: None, .. } => 0x0a,
            Self::WriteOnly { immediate: Some(_), .. } => 0x0b,
            Self::ReadRequest(_) => 0x0c,
            Self::ReadResponseFirst(_) => 0x0d,
            Self::ReadResponseMiddle => 0x0e,
            Self::ReadResponseLast(_) => 0x0f,
            Self::ReadResponseOnly(_) => 0x10,
            Self::Acknowledge(_) => 0x11,
            Self::AtomicAcknowledge { .. } => 0x12,
            Self::CompareSwap { .. } => 0x13,
            Self::FetchAdd { .. } => 0x14,
            Self::SendLast(Ending::Invalidate(_)) => 0x16,
            Self::SendOnly(Ending::Invalidate(_)) => 0x17,
            Self::Flush { .. } => 0x1c,
            Self::AtomicWrite(_) => 0x1d,
            Self::Reserved(code) => *code & 0x1f,
            Self::Congestion => CONGESTION & 0x1f,
        }
    }

    /// Whether it answers a request, so that the requester takes it.
    pub const fn is_response(&self) -> bool {
        is_response(self.code()) && !matches!(self, Self::Reserved(_))
    }

    /// Whether the sending half of a queue pair takes it: answers, and word of congestion.
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

/// Whether the operation with this code is a response.
pub(super) const fn is_response(code: u8) -> bool {
    matches!(code, 0x0d..=0x12)
}

/// Whether an XRCETH comes with the operation: with every request that means something.
pub(super) const fn has_xrceth(code: u8) -> bool {
    Transport::Xrc { srq: 0 }.has(code) && !is_response(code)
}

impl Packet<'_> {
    /// The longest that [`Packet::header_length`] can be: an atomic request of XRC.
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
            (operation, Transport::Xrc { .. }) if has_xrceth(operation.code()) => XRCETH_BYTES,
            _ => 0,
        };
        BTH_BYTES + of_service + self.operation.header_length()
    }
}
