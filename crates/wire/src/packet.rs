//! RoCEv2 packets: everything after the UDP header (rules H.1, H.2).
//!
//! [`Packet`] holds the content of a packet, and cannot hold anything that no packet may contain. [`Packet::parse`]
//! reads one, [`Packet::write`] writes one. The ICRC at the end of each packet is in [`icrc`](crate::icrc), because it
//! covers the IP and UDP headers too.
//!
//! If you gather the payload into a buffer, leave a gap before it for the headers:
//!
//! ```
//! use transom_wire::Psn;
//! use transom_wire::icrc::{Path, Verdict};
//! use transom_wire::packet::{Ending, ICRC_BYTES, Operation, Packet, Transport};
//!
//! let operation = Operation::SendOnly(Ending::Immediate(7));
//! let packet = Packet { ack_request: true, ..Packet::new(Transport::Rc, operation, 0x12, Psn::new(5)) };
//! let gap = packet.header_length();
//! let mut buffer = [0; 64];
//! buffer[gap..][..5].copy_from_slice(b"hello");
//!
//! let (header, payload) = buffer.split_at_mut(gap);
//! let packet = Packet { payload: &payload[..5], ..packet };
//! packet.write_header(header);
//! let end = packet.length() - ICRC_BYTES;
//! let datagram = &mut buffer[..end + ICRC_BYTES];
//! datagram[gap + 5..end].fill(0);
//!
//! let path = Path::new([10, 0, 0, 1].into(), 49_152, [10, 0, 0, 2].into()).unwrap();
//! let icrc = path.icrc(0, &datagram[..end]);
//! datagram[end..].copy_from_slice(&icrc);
//! assert_eq!(Packet::parse(datagram).unwrap().payload, b"hello");
//! assert_eq!(path.check(0, datagram), Verdict::Right);
//! ```

mod opcode;
mod parse;
mod write;

use crate::{Psn, Syndrome};

pub use opcode::Opcode;

/// The UDP port that RoCEv2 packets go to (rule NET-01).
pub const PORT: u16 = 4791;
/// Bytes of the check value that ends each packet (rules H.6).
pub const ICRC_BYTES: usize = 4;

/// The partition that everything belongs to, as a full member (rule PK-14).
pub const DEFAULT_PKEY: u16 = 0xffff;

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Transport service, with the header that only it has.
    pub transport: Transport,
    /// Operation, with the headers that it has.
    pub operation: Operation,
    /// Raise a solicited event (SE).
    pub solicited: bool,
    /// MigReq: always set when we send, ignored when received (rule PK-16).
    pub migrated: bool,
    /// Partition key.
    pub pkey: u16,
    /// The network was congested on the way (FECN).
    pub fecn: bool,
    /// The network was congested in the other direction (BECN).
    pub becn: bool,
    /// The destination queue pair, 24 bits.
    pub to: u32,
    /// An acknowledgement is asked for (AckReq).
    pub ack_request: bool,
    /// Its number.
    pub psn: Psn,
    /// Without pad and ICRC.
    pub payload: &'a [u8],
}

impl Packet<'_> {
    /// A packet for the queue pair `to`, in the default partition, with MigReq (rule PK-16). It has no payload and no
    /// congestion mark, and asks for no acknowledgement.
    pub const fn new(transport: Transport, operation: Operation, to: u32, psn: Psn) -> Self {
        Self {
            transport,
            operation,
            solicited: false,
            migrated: true,
            pkey: DEFAULT_PKEY,
            fecn: false,
            becn: false,
            to,
            ack_request: false,
            psn,
            payload: &[],
        }
    }

    /// Whether it does nothing but acknowledge.
    pub fn is_acknowledgement(&self) -> bool {
        match self.operation {
            Operation::Acknowledge(aeth) => matches!(aeth.syndrome(), Some(Syndrome::Ack { .. })),
            _ => false,
        }
    }

    /// The same without its payload.
    #[must_use]
    pub const fn headers(&self) -> Packet<'static> {
        Packet {
            transport: self.transport,
            operation: self.operation,
            solicited: self.solicited,
            migrated: self.migrated,
            pkey: self.pkey,
            fecn: self.fecn,
            becn: self.becn,
            to: self.to,
            ack_request: self.ack_request,
            psn: self.psn,
            payload: &[],
        }
    }
}

/// Transport services on the wire (bits 7 to 5 of the opcode).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram, with its DETH.
    Ud {
        /// Q_Key.
        qkey: u32,
        /// The source queue pair, 24 bits.
        source: u32,
    },
    /// Extended reliable connection. Requests carry an XRCETH, responses none.
    Xrc {
        /// The shared receive queue that a request names, 24 bits; zero in a response.
        srq: u32,
    },
}

/// RETH: the range that a WRITE, READ or FLUSH is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// First address.
    pub address: u64,
    /// R_Key.
    pub key: u32,
    /// Bytes.
    pub length: u32,
}

/// AETH: how a request went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// The byte on the wire; see [`Aeth::syndrome`].
    pub byte: u8,
    /// Messages that the responder has completed, 24 bits (rule PSN-20).
    pub msn: u32,
}

impl Aeth {
    /// The meaning of the byte. `None` if it is reserved (rule PSN-32).
    pub const fn syndrome(&self) -> Option<Syndrome> {
        Syndrome::from_byte(self.byte)
    }
}

/// The header at the end of a SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Nothing more.
    Plain,
    /// Immediate data: its four bytes on the wire, read as a big-endian number.
    Immediate(u32),
    /// The key of a window to invalidate (IETH).
    Invalidate(u32),
}

/// Operations (bits 4 to 0 of the opcode) with the headers they carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the table of opcodes")]
pub enum Operation {
    SendFirst,
    SendMiddle,
    SendLast(Ending),
    SendOnly(Ending),
    WriteFirst(Reth),
    WriteMiddle,
    WriteLast {
        immediate: Option<u32>,
    },
    WriteOnly {
        reth: Reth,
        immediate: Option<u32>,
    },
    ReadRequest(Reth),
    ReadResponseFirst(Aeth),
    ReadResponseMiddle,
    ReadResponseLast(Aeth),
    ReadResponseOnly(Aeth),
    Acknowledge(Aeth),
    AtomicAcknowledge {
        aeth: Aeth,
        old: u64,
    },
    CompareSwap {
        address: u64,
        key: u32,
        swap: u64,
        compare: u64,
    },
    FetchAdd {
        address: u64,
        key: u32,
        add: u64,
    },
    /// `placement` has four bits, `selectivity` two.
    Flush {
        placement: u8,
        selectivity: u8,
        reth: Reth,
    },
    AtomicWrite(Reth),
    /// The five bits of an opcode that means nothing in its service (rules OP-21, OP-33). Everything after the
    /// service's header is payload. If the opcode means nothing in any service, there is no XRCETH.
    Reserved(u8),
    /// A congestion notification (rules H.5). It belongs to no service; `transport` is `Rc`.
    Congestion,
}

/// Why bytes are no packet. Such bytes are dropped without an answer (rules RA-02, NET-13).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Shorter than its headers, its pad and the ICRC.
    #[error("shorter than its headers, its pad and the ICRC")]
    Short,
    /// Not a whole number of 32-bit words, as every packet is with its pad (rule PK-08).
    #[error("not a whole number of 32-bit words")]
    Length,
    /// A transport header version other than zero (rule PK-13).
    #[error("of another transport header version than zero")]
    Version,
    /// A transport service that does not exist here.
    #[error("of a transport service that does not exist here")]
    Transport,
}

#[cfg(test)]
mod tests;
