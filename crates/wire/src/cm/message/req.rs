//! REQ: the request for a connection.

use super::{Ece, Path, Unread};
use crate::Psn;
use crate::cm::MESSAGE_BYTES;
use crate::cm::body::Body;
use crate::cm::fields::{Bits, CommId, PathMtu, Qpn, TimeCode};
use crate::cm::reason::RejectReason;
use crate::cm::service::ServiceId;

/// REQ, a connection request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Req {
    /// The sender's id of the connection.
    pub local_id: CommId,
    /// The vendor options that the sender's adapter offers.
    pub ece: Ece,
    /// The service that it asks for.
    pub service: ServiceId,
    /// The sender's node GUID.
    pub ca_guid: u64,
    /// Q_Key; of no use here.
    pub qkey: u32,
    /// The sender's queue pair.
    pub qpn: Qpn,
    /// READs and atomics that the sender will answer at once.
    pub responder_resources: u8,
    /// End-to-end context; of no use here.
    pub eecn: Bits<24>,
    /// READs and atomics that the sender wants to have under way.
    pub initiator_depth: u8,
    /// The receiver's end-to-end context; for XRC the shared receive queue.
    pub remote_eecn: Bits<24>,
    /// How soon the receiver must answer.
    pub remote_response_timeout: TimeCode,
    /// The kind of queue pairs.
    pub transport: Transport,
    /// The sender's adapter has end-to-end flow control.
    pub flow_control: bool,
    /// The PSN with which the receiver begins.
    pub starting_psn: Psn,
    /// How soon the sender answers.
    pub local_response_timeout: TimeCode,
    /// Retries of a packet.
    pub retry_count: Bits<3>,
    /// Partition.
    pub pkey: u16,
    /// How long payloads may be.
    pub mtu: PathMtu,
    /// There is a domain of reliable datagrams; of no use here.
    pub rdc_exists: bool,
    /// Retries of a message that found no receive.
    pub rnr_retry_count: Bits<3>,
    /// How often either end repeats a message of connection management.
    pub max_cm_retries: Bits<4>,
    /// The sender's queue pair has a shared receive queue.
    pub srq: bool,
    /// The primary path.
    pub primary: Path,
    /// The alternate path, or [`Path::ABSENT`].
    pub alternate: Path,
    /// Private data. It begins with the header with the IP addresses.
    pub private_data: [u8; Self::PRIVATE],
}

/// The kind of queue pair that a REQ asks to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Extended reliable connection.
    Xrc,
}

impl Transport {
    /// Transport service type, and its extension.
    const fn codes(self) -> (Bits<2>, Bits<3>) {
        let (code, extended) = match self {
            Self::Rc => (0, 0),
            Self::Uc => (1, 0),
            Self::Xrc => (3, 1),
        };
        (Bits::low(code), Bits::low(extended))
    }

    const fn from_codes(code: Bits<2>, extended: Bits<3>) -> Option<Self> {
        Some(match (code.get(), extended.get()) {
            (0, _) => Self::Rc,
            (1, _) => Self::Uc,
            (3, 1) => Self::Xrc,
            _ => return None,
        })
    }
}

impl Req {
    /// Bytes of private data.
    pub const PRIVATE: usize = 92;

    pub(super) fn read(options: u32, body: &Body<MESSAGE_BYTES>) -> Result<Self, Unread> {
        let local_id = CommId(body.u32(0));
        let transport = Transport::from_codes(body.bits(43, 1), body.bits(51, 0))
            .ok_or(Unread::Impossible(local_id, RejectReason::InvalidTransportType))?;
        let mtu = PathMtu::from_code(body.bits::<4>(50, 4).get())
            .ok_or(Unread::Impossible(local_id, RejectReason::InvalidMtu))?;
        Ok(Self {
            local_id,
            ece: Ece { vendor: body.u24(5), options },
            service: ServiceId(body.u64(8)),
            ca_guid: body.u64(16),
            qkey: body.u32(28),
            qpn: body.u24(32),
            responder_resources: body.u8(35),
            eecn: body.u24(36),
            initiator_depth: body.u8(39),
            remote_eecn: body.u24(40),
            remote_response_timeout: TimeCode::of(body.bits(43, 3)),
            transport,
            flow_control: body.bit(43, 0),
            starting_psn: Psn::new(body.u24(44).get()),
            local_response_timeout: TimeCode::of(body.bits(47, 3)),
            retry_count: body.bits(47, 0),
            pkey: body.u16(48),
            mtu,
            rdc_exists: body.bit(50, 3),
            rnr_retry_count: body.bits(50, 0),
            max_cm_retries: body.bits(51, 4),
            srq: body.bit(51, 3),
            primary: Path::read(body, 52),
            alternate: Path::read(body, 96),
            private_data: body.bytes(140),
        })
    }

    pub(super) fn write(&self, body: &mut Body<MESSAGE_BYTES>) -> u32 {
        let (transport, extended) = self.transport.codes();
        body.set(0, self.local_id.0.to_be_bytes());
        body.set_u24(5, self.ece.vendor);
        body.set(8, self.service.0.to_be_bytes());
        body.set(16, self.ca_guid.to_be_bytes());
        body.set(28, self.qkey.to_be_bytes());
        body.set_u24(32, self.qpn);
        body.set(35, [self.responder_resources]);
        body.set_u24(36, self.eecn);
        body.set(39, [self.initiator_depth]);
        body.set_u24(40, self.remote_eecn);
        body.set_bits(43, 3, self.remote_response_timeout.bits());
        body.set_bits(43, 1, transport);
        body.set_bit(43, 0, self.flow_control);
        body.set_u24(44, Bits::low(self.starting_psn.value()));
        body.set_bits(47, 3, self.local_response_timeout.bits());
        body.set_bits(47, 0, self.retry_count);
        body.set(48, self.pkey.to_be_bytes());
        body.set_bits(50, 4, Bits::<4>::low(self.mtu.code().into()));
        body.set_bit(50, 3, self.rdc_exists);
        body.set_bits(50, 0, self.rnr_retry_count);
        body.set_bits(51, 4, self.max_cm_retries);
        body.set_bit(51, 3, self.srq);
        body.set_bits(51, 0, extended);
        self.primary.write(body, 52);
        self.alternate.write(body, 96);
        body.set(140, self.private_data);
        self.ece.options
    }
}
