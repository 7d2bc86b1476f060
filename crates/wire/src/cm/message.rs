//! The messages, field by field. `local` is the sender's own, `remote` the receiver's.

use super::body::Body;
use super::fields::{Bits, CommId, Information, PathMtu, Qpn, TimeCode};
use super::reason::{RejectReason, SidrStatus};
use super::service::ServiceId;
use super::{MESSAGE_BYTES, Mad};
use crate::Psn;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Asks for a connection.
    Req(Req),
    /// Asks for more time.
    Mra(Mra),
    /// Refuses, or ends what was not a connection yet.
    Rej(Rej),
    /// Answers a REQ.
    Rep(Rep),
    /// Answers a REP: the connection stands.
    Rtu(Rtu),
    /// Ends a connection.
    Dreq(Dreq),
    /// Answers a DREQ.
    Drep(Drep),
    /// Asks for the queue pair of a datagram service.
    SidrReq(SidrReq),
    /// Answers a SIDR_REQ.
    SidrRep(SidrRep),
}

/// Extended connection establishment: what a vendor's adapters agree on beside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ece {
    /// The vendor.
    pub vendor: Bits<24>,
    /// What it offers.
    pub options: u32,
}

/// The kind of queue pair that a REQ asks to be connected.
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

/// A way between two ports, as seen from the sender of a REQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// The sender's LID; nothing on RoCE (rule CM-05).
    pub local_lid: u16,
    /// The receiver's.
    pub remote_lid: u16,
    /// The sender's GID.
    pub local_gid: [u8; 16],
    /// The receiver's.
    pub remote_gid: [u8; 16],
    /// Flow label.
    pub flow_label: Bits<20>,
    /// Packet rate; 0 is the port's.
    pub rate: Bits<6>,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level.
    pub sl: Bits<4>,
    /// Both are in one subnet.
    pub subnet_local: bool,
    /// How long the sender waits for an acknowledgement of a packet.
    pub local_ack_timeout: TimeCode,
}

impl Path {
    /// No path: the alternate one where there is none.
    pub const ABSENT: Self = Self {
        local_lid: 0,
        remote_lid: 0,
        local_gid: [0; 16],
        remote_gid: [0; 16],
        flow_label: Bits::low(0),
        rate: Bits::low(0),
        traffic_class: 0,
        hop_limit: 0,
        sl: Bits::low(0),
        subnet_local: false,
        local_ack_timeout: TimeCode::of(Bits::low(0)),
    };

    fn read(body: &Body<MESSAGE_BYTES>, at: usize) -> Self {
        Self {
            local_lid: body.u16(at),
            remote_lid: body.u16(at + 2),
            local_gid: body.bytes(at + 4),
            remote_gid: body.bytes(at + 20),
            flow_label: Bits::low(body.u32(at + 36) >> 12),
            rate: body.bits(at + 39, 0),
            traffic_class: body.u8(at + 40),
            hop_limit: body.u8(at + 41),
            sl: body.bits(at + 42, 4),
            subnet_local: body.bit(at + 42, 3),
            local_ack_timeout: TimeCode::of(body.bits(at + 43, 3)),
        }
    }

    fn write(&self, body: &mut Body<MESSAGE_BYTES>, at: usize) {
        body.set(at, self.local_lid.to_be_bytes());
        body.set(at + 2, self.remote_lid.to_be_bytes());
        body.set(at + 4, self.local_gid);
        body.set(at + 20, self.remote_gid);
        body.set(at + 36, (self.flow_label.get() << 12 | self.rate.get()).to_be_bytes());
        body.set(at + 40, [self.traffic_class, self.hop_limit]);
        body.set_bits(at + 42, 4, self.sl);
        body.set_bit(at + 42, 3, self.subnet_local);
        body.set_bits(at + 43, 3, self.local_ack_timeout.bits());
    }
}

/// REQ, a connection request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Req {
    /// What the sender calls the connection.
    pub local_id: CommId,
    /// What the sender's adapter offers beside.
    pub ece: Ece,
    /// What it is for.
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
    /// How soon the receiver is to answer.
    pub remote_response_timeout: TimeCode,
    /// Of what kind the queue pairs are.
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
    /// The way.
    pub primary: Path,
    /// Another way, or [`Path::ABSENT`].
    pub alternate: Path,
    /// Private data, of which the header with the IP addresses is the first part.
    pub private_data: [u8; Self::PRIVATE],
}

/// MRA: the receiver of a message needs more time to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mra {
    /// What the sender calls the connection.
    pub local_id: CommId,
    /// What the receiver calls it.
    pub remote_id: CommId,
    /// What is not answered yet.
    pub answered: Answered,
    /// How long that may take.
    pub service_timeout: TimeCode,
    /// Private data.
    pub private_data: [u8; Self::PRIVATE],
}

/// What an MRA is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of the messages")]
pub enum Answered {
    Req,
    Rep,
    Lap,
}

/// REJ: no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rej {
    /// What the sender calls the connection; zero if it has no name for it.
    pub local_id: CommId,
    /// What the receiver calls it; zero if that is not known.
    pub remote_id: CommId,
    /// What is refused.
    pub rejected: Rejected,
    /// Why.
    pub reason: RejectReason,
    /// What would do, or whom it is from: the meaning is the reason's.
    pub information: Information,
    /// Private data.
    pub private_data: [u8; Self::PRIVATE],
}

/// What a REJ refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of the messages")]
pub enum Rejected {
    Req,
    Rep,
    /// No message, or one that is not known any more.
    Other,
}

/// REP, the answer to a REQ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rep {
    /// What the sender calls the connection.
    pub local_id: CommId,
    /// What the receiver calls it.
    pub remote_id: CommId,
    /// What the sender's adapter agrees to beside.
    pub ece: Ece,
    /// Q_Key; of no use here.
    pub qkey: u32,
    /// The sender's queue pair, unless it is of XRC.
    pub qpn: Qpn,
    /// The sender's queue pair, if it is of XRC.
    pub eecn: Bits<24>,
    /// The PSN with which the receiver begins.
    pub starting_psn: Psn,
    /// READs and atomics that the sender will answer at once.
    pub responder_resources: u8,
    /// READs and atomics that the sender will have under way.
    pub initiator_depth: u8,
    /// How long the sender's adapter may take for an acknowledgement.
    pub target_ack_delay: TimeCode,
    /// Whether the alternate path was taken; 0 says yes.
    pub failover: Bits<2>,
    /// The sender's adapter has end-to-end flow control.
    pub flow_control: bool,
    /// Retries of a message that found no receive.
    pub rnr_retry_count: Bits<3>,
    /// The sender's queue pair has a shared receive queue.
    pub srq: bool,
    /// The sender's node GUID.
    pub ca_guid: u64,
    /// Private data.
    pub private_data: [u8; Self::PRIVATE],
}

/// RTU: the sender of a REQ has the REP, and is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rtu {
    /// What the sender calls the connection.
    pub local_id: CommId,
    /// What the receiver calls it.
    pub remote_id: CommId,
    /// Private data.
    pub private_data: [u8; Self::PRIVATE],
}

/// DREQ: the connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dreq {
    /// What the sender calls the connection.
    pub local_id: CommId,
    /// What the receiver calls it.
    pub remote_id: CommId,
    /// The receiver's queue pair.
    pub remote_qpn: Qpn,
    /// Private data.
    pub private_data: [u8; Self::PRIVATE],
}

/// DREP: it has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drep {
    /// What the sender calls the connection.
    pub local_id: CommId,
    /// What the receiver calls it.
    pub remote_id: CommId,
    /// Private data.
    pub private_data: [u8; Self::PRIVATE],
}

/// SIDR_REQ asks for the queue pair of a datagram service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidrReq {
    /// What the sender calls the request.
    pub request_id: CommId,
    /// Partition.
    pub pkey: u16,
    /// Whose queue pair.
    pub service: ServiceId,
    /// Private data, of which the header with the IP addresses is the first part.
    pub private_data: [u8; Self::PRIVATE],
}

/// SIDR_REP tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidrRep {
    /// What the receiver calls the request.
    pub request_id: CommId,
    /// How it went.
    pub status: SidrStatus,
    /// What goes with the status.
    pub information: Information,
    /// What the sender's adapter offers beside.
    pub ece: Ece,
    /// The queue pair.
    pub qpn: Qpn,
    /// The service that was asked for.
    pub service: ServiceId,
    /// The queue pair's Q_Key.
    pub qkey: u32,
    /// Private data.
    pub private_data: [u8; Self::PRIVATE],
}

/// Why a message cannot be read.
pub(super) enum Unread {
    Attribute(u16),
    AlternatePath,
    Reserved,
    Impossible(CommId, RejectReason),
}

/// What says which message it is (rule CM-02).
#[expect(missing_docs, reason = "the names are those of the messages")]
pub mod attribute {
    pub const REQ: u16 = 0x10;
    pub const MRA: u16 = 0x11;
    pub const REJ: u16 = 0x12;
    pub const REP: u16 = 0x13;
    pub const RTU: u16 = 0x14;
    pub const DREQ: u16 = 0x15;
    pub const DREP: u16 = 0x16;
    pub const SIDR_REQ: u16 = 0x17;
    pub const SIDR_REP: u16 = 0x18;
    pub const LAP: u16 = 0x19;
    pub const APR: u16 = 0x1a;
}

use attribute::*;

impl Message {
    /// The attribute that it is (rule CM-02).
    pub const fn attribute(&self) -> u16 {
        match self {
            Self::Req(_) => REQ,
            Self::Mra(_) => MRA,
            Self::Rej(_) => REJ,
            Self::Rep(_) => REP,
            Self::Rtu(_) => RTU,
            Self::Dreq(_) => DREQ,
            Self::Drep(_) => DREP,
            Self::SidrReq(_) => SIDR_REQ,
            Self::SidrRep(_) => SIDR_REP,
        }
    }

    /// What the specification calls it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Req(_) => "REQ",
            Self::Mra(_) => "MRA",
            Self::Rej(_) => "REJ",
            Self::Rep(_) => "REP",
            Self::Rtu(_) => "RTU",
            Self::Dreq(_) => "DREQ",
            Self::Drep(_) => "DREP",
            Self::SidrReq(_) => "SIDR_REQ",
            Self::SidrRep(_) => "SIDR_REP",
        }
    }

    /// Reads the message of an attribute with its modifier.
    pub(super) fn read(
        attribute: u16,
        modifier: u32,
        body: &Body<MESSAGE_BYTES>,
    ) -> Result<Self, Unread> {
        Ok(match attribute {
            REQ => Self::Req(Req::read(modifier, body)?),
            MRA => Self::Mra(Mra::read(body)?),
            REJ => Self::Rej(Rej::read(body)?),
            REP => Self::Rep(Rep::read(modifier, body)),
            RTU => Self::Rtu(Rtu::read(body)),
            DREQ => Self::Dreq(Dreq::read(body)),
            DREP => Self::Drep(Drep::read(body)),
            SIDR_REQ => Self::SidrReq(SidrReq::read(body)),
            SIDR_REP => Self::SidrRep(SidrRep::read(modifier, body)?),
            LAP | APR => return Err(Unread::AlternatePath),
            attribute => return Err(Unread::Attribute(attribute)),
        })
    }

    /// Writes it into zeroes, and returns the attribute's modifier.
    pub(super) fn write(&self, body: &mut Body<MESSAGE_BYTES>) -> u32 {
        match self {
            Self::Req(req) => return req.write(body),
            Self::Mra(mra) => mra.write(body),
            Self::Rej(rej) => rej.write(body),
            Self::Rep(rep) => return rep.write(body),
            Self::Rtu(rtu) => rtu.write(body),
            Self::Dreq(dreq) => dreq.write(body),
            Self::Drep(drep) => drep.write(body),
            Self::SidrReq(request) => request.write(body),
            Self::SidrRep(reply) => return reply.write(body),
        }
        0
    }
}

/// The two ids that most messages begin with.
fn ids(body: &Body<MESSAGE_BYTES>) -> (CommId, CommId) {
    (CommId(body.u32(0)), CommId(body.u32(4)))
}

fn set_ids(body: &mut Body<MESSAGE_BYTES>, local: CommId, remote: CommId) {
    body.set(0, local.0.to_be_bytes());
    body.set(4, remote.0.to_be_bytes());
}

fn information(length: u32, room: [u8; Information::MAX]) -> Result<Information, Unread> {
    let bytes = room.get(..length as usize).ok_or(Unread::Reserved)?;
    Information::new(bytes).ok_or(Unread::Reserved)
}

impl Req {
    /// Bytes of private data.
    pub const PRIVATE: usize = 92;

    fn read(options: u32, body: &Body<MESSAGE_BYTES>) -> Result<Self, Unread> {
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

    fn write(&self, body: &mut Body<MESSAGE_BYTES>) -> u32 {
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

impl Mra {
    /// Bytes of private data.
    pub const PRIVATE: usize = 222;

    fn read(body: &Body<MESSAGE_BYTES>) -> Result<Self, Unread> {
        let (local_id, remote_id) = ids(body);
        let answered = match body.bits::<2>(8, 6).get() {
            0 => Answered::Req,
            1 => Answered::Rep,
            2 => Answered::Lap,
            _ => return Err(Unread::Reserved),
        };
        let service_timeout = TimeCode::of(body.bits(9, 3));
        Ok(Self { local_id, remote_id, answered, service_timeout, private_data: body.bytes(10) })
    }

    fn write(&self, body: &mut Body<MESSAGE_BYTES>) {
        set_ids(body, self.local_id, self.remote_id);
        let answered = match self.answered {
            Answered::Req => 0,
            Answered::Rep => 1,
            Answered::Lap => 2,
        };
        body.set_bits(8, 6, Bits::<2>::low(answered));
        body.set_bits(9, 3, self.service_timeout.bits());
        body.set(10, self.private_data);
    }
}

impl Rej {
    /// Bytes of private data.
    pub const PRIVATE: usize = 148;

    fn read(body: &Body<MESSAGE_BYTES>) -> Result<Self, Unread> {
        let (local_id, remote_id) = ids(body);
        let rejected = match body.bits::<2>(8, 6).get() {
            0 => Rejected::Req,
            1 => Rejected::Rep,
            2 => Rejected::Other,
            _ => return Err(Unread::Reserved),
        };
        Ok(Self {
            local_id,
            remote_id,
            rejected,
            reason: RejectReason::from_code(body.u16(10)),
            information: information(body.bits::<7>(9, 1).get(), body.bytes(12))?,
            private_data: body.bytes(84),
        })
    }

    fn write(&self, body: &mut Body<MESSAGE_BYTES>) {
        set_ids(body, self.local_id, self.remote_id);
        let rejected = match self.rejected {
            Rejected::Req => 0,
            Rejected::Rep => 1,
            Rejected::Other => 2,
        };
        body.set_bits(8, 6, Bits::<2>::low(rejected));
        body.set_bits(9, 1, Bits::<7>::low(self.information.length().into()));
        body.set(10, self.reason.code().to_be_bytes());
        body.set(12, self.information.room());
        body.set(84, self.private_data);
    }
}

impl Rep {
    /// Bytes of private data.
    pub const PRIVATE: usize = 196;

    fn read(options: u32, body: &Body<MESSAGE_BYTES>) -> Self {
        let (local_id, remote_id) = ids(body);
        let vendor = u32::from_be_bytes([0, body.u8(15), body.u8(19), body.u8(23)]);
        Self {
            local_id,
            remote_id,
            ece: Ece { vendor: Bits::low(vendor), options },
            qkey: body.u32(8),
            qpn: body.u24(12),
            eecn: body.u24(16),
            starting_psn: Psn::new(body.u24(20).get()),
            responder_resources: body.u8(24),
            initiator_depth: body.u8(25),
            target_ack_delay: TimeCode::of(body.bits(26, 3)),
            failover: body.bits(26, 1),
            flow_control: body.bit(26, 0),
            rnr_retry_count: body.bits(27, 5),
            srq: body.bit(27, 4),
            ca_guid: body.u64(28),
            private_data: body.bytes(36),
        }
    }

    fn write(&self, body: &mut Body<MESSAGE_BYTES>) -> u32 {
        let [_, high, middle, low] = self.ece.vendor.get().to_be_bytes();
        set_ids(body, self.local_id, self.remote_id);
        body.set(8, self.qkey.to_be_bytes());
        body.set_u24(12, self.qpn);
        body.set(15, [high]);
        body.set_u24(16, self.eecn);
        body.set(19, [middle]);
        body.set_u24(20, Bits::low(self.starting_psn.value()));
        body.set(23, [low]);
        body.set(24, [self.responder_resources, self.initiator_depth]);
        body.set_bits(26, 3, self.target_ack_delay.bits());
        body.set_bits(26, 1, self.failover);
        body.set_bit(26, 0, self.flow_control);
        body.set_bits(27, 5, self.rnr_retry_count);
        body.set_bit(27, 4, self.srq);
        body.set(28, self.ca_guid.to_be_bytes());
        body.set(36, self.private_data);
        self.ece.options
    }
}

impl Rtu {
    /// Bytes of private data.
    pub const PRIVATE: usize = 224;

    fn read(body: &Body<MESSAGE_BYTES>) -> Self {
        let (local_id, remote_id) = ids(body);
        Self { local_id, remote_id, private_data: body.bytes(8) }
    }

    fn write(&self, body: &mut Body<MESSAGE_BYTES>) {
        set_ids(body, self.local_id, self.remote_id);
        body.set(8, self.private_data);
    }
}

impl Dreq {
    /// Bytes of private data.
    pub const PRIVATE: usize = 220;

    fn read(body: &Body<MESSAGE_BYTES>) -> Self {
        let (local_id, remote_id) = ids(body);
        Self { local_id, remote_id, remote_qpn: body.u24(8), private_data: body.bytes(12) }
    }

    fn write(&self, body: &mut Body<MESSAGE_BYTES>) {
        set_ids(body, self.local_id, self.remote_id);
        body.set_u24(8, self.remote_qpn);
        body.set(12, self.private_data);
    }
}

impl Drep {
    /// Bytes of private data.
    pub const PRIVATE: usize = 224;

    fn read(body: &Body<MESSAGE_BYTES>) -> Self {
        let (local_id, remote_id) = ids(body);
        Self { local_id, remote_id, private_data: body.bytes(8) }
    }

    fn write(&self, body: &mut Body<MESSAGE_BYTES>) {
        set_ids(body, self.local_id, self.remote_id);
        body.set(8, self.private_data);
    }
}

impl SidrReq {
    /// Bytes of private data.
    pub const PRIVATE: usize = 216;

    fn read(body: &Body<MESSAGE_BYTES>) -> Self {
        Self {
            request_id: CommId(body.u32(0)),
            pkey: body.u16(4),
            service: ServiceId(body.u64(8)),
            private_data: body.bytes(16),
        }
    }

    fn write(&self, body: &mut Body<MESSAGE_BYTES>) {
        body.set(0, self.request_id.0.to_be_bytes());
        body.set(4, self.pkey.to_be_bytes());
        body.set(8, self.service.0.to_be_bytes());
        body.set(16, self.private_data);
    }
}

impl SidrRep {
    /// Bytes of private data.
    pub const PRIVATE: usize = 136;

    fn read(options: u32, body: &Body<MESSAGE_BYTES>) -> Result<Self, Unread> {
        let vendor = u32::from(body.u16(6)) << 8 | u32::from(body.u8(11));
        Ok(Self {
            request_id: CommId(body.u32(0)),
            status: SidrStatus::from_code(body.u8(4)),
            information: information(body.u8(5).into(), body.bytes(24))?,
            ece: Ece { vendor: Bits::low(vendor), options },
            qpn: body.u24(8),
            service: ServiceId(body.u64(12)),
            qkey: body.u32(20),
            private_data: body.bytes(96),
        })
    }

    fn write(&self, body: &mut Body<MESSAGE_BYTES>) -> u32 {
        let [_, high, middle, low] = self.ece.vendor.get().to_be_bytes();
        body.set(0, self.request_id.0.to_be_bytes());
        body.set(4, [self.status.code(), self.information.length(), high, middle]);
        body.set_u24(8, self.qpn);
        body.set(11, [low]);
        body.set(12, self.service.0.to_be_bytes());
        body.set(20, self.qkey.to_be_bytes());
        body.set(24, self.information.room());
        body.set(96, self.private_data);
        self.ece.options
    }
}

/// For which end a message is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// Whoever serves this.
    Service(ServiceId),
    /// Whoever calls the connection or request so.
    Id(CommId),
    /// Whoever has a connection that the end with this node GUID calls so: its sender has not learned
    /// the receiver's id (rule CM-27).
    Peer(u64, CommId),
}

impl Mad {
    /// For which end it is meant.
    pub fn receiver(&self) -> Receiver {
        match &self.message {
            Message::Req(req) => Receiver::Service(req.service),
            Message::SidrReq(request) => Receiver::Service(request.service),
            Message::Rej(rej) => match rej.timed_out() {
                Some(guid) => Receiver::Peer(guid, rej.local_id),
                None => Receiver::Id(rej.remote_id),
            },
            Message::Mra(Mra { remote_id, .. })
            | Message::Rep(Rep { remote_id, .. })
            | Message::Rtu(Rtu { remote_id, .. })
            | Message::Dreq(Dreq { remote_id, .. })
            | Message::Drep(Drep { remote_id, .. }) => Receiver::Id(*remote_id),
            Message::SidrRep(reply) => Receiver::Id(reply.request_id),
        }
    }
}

impl Rej {
    /// The sender's node GUID, if it says that it gave up waiting.
    pub fn timed_out(&self) -> Option<u64> {
        if self.reason != RejectReason::Timeout {
            return None;
        }
        self.information.as_bytes().first_chunk().map(|guid| u64::from_be_bytes(*guid))
    }
}
