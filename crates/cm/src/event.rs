//! The events of an id (rules CM-32, CM-33).

use std::net::IpAddr;

use transom_wire::cm::{Bits, CommId, Ece, Qpn, RejectReason, SidrStatus};

use crate::attributes::AddressVector;
use crate::cause::Cause;
use crate::refused::Errno;

/// Something that happened to an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// To which.
    pub id: CommId,
    /// What.
    pub happened: Happened,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// The way to the destination is known.
    AddressResolved,
    /// There is none.
    AddressError(Errno),
    /// What a connection needs of the way is known.
    RouteResolved,
    /// It is not.
    RouteError(Errno),
    /// A peer wants a connection: a new id, which is this event's.
    ConnectRequest {
        /// The id that listens.
        listener: CommId,
        /// What the peer offers; of a datagram service nothing.
        offer: Option<Offer>,
        /// The peer's private data with zeroes behind.
        private_data: Box<[u8]>,
    },
    /// The peer has accepted. The program brings its queue pair up and goes on.
    ConnectResponse {
        /// What the peer offers.
        offer: Offer,
        /// The peer's private data with zeroes behind.
        private_data: Box<[u8]>,
    },
    /// Nobody answered in time.
    Unreachable,
    /// No process there takes requests for connections: what Linux answers where no program listens, as no other can
    /// be there.
    NobodyThere {
        /// What was asked for is a datagram service.
        datagram: bool,
    },
    /// The datagram service cannot be had.
    NotServed(SidrStatus),
    /// The peer has refused.
    Rejected {
        /// Why.
        reason: RejectReason,
        /// Which of the ways it was by which a consumer refuses, if that is known.
        cause: Option<Cause>,
        /// The peer's private data with zeroes behind.
        private_data: Box<[u8]>,
    },
    /// The connection stands.
    Established,
    /// The peer's datagram queue pair is known.
    Resolved {
        /// The way to it.
        address: AddressVector,
        /// Its number.
        qpn: Qpn,
        /// Its Q_Key.
        qkey: u32,
        /// What its adapter offers beside.
        ece: Ece,
        /// The peer's private data with zeroes behind.
        private_data: Box<[u8]>,
    },
    /// The connection has ended.
    Disconnected {
        /// The peer has not confirmed it.
        timed_out: bool,
    },
    /// Nothing of the connection can be under way any more.
    TimewaitExit,
    /// The device is gone.
    DeviceRemoval,
    /// The interface that has the id's address is another now, or has another hardware address.
    AddressChange,
    /// The id belongs to a multicast group.
    MulticastJoin(Group),
    /// It cannot.
    MulticastError(Group, Errno),
    /// The program has written it itself, for whoever fetches the id's events.
    Written {
        /// Its number.
        code: u32,
        /// Its status.
        status: i32,
        /// What it carries.
        argument: u64,
    },
}

/// What a peer offers for a connection, as the receiver is to use it: its own responder resources are
/// what the peer wants to have under way (rule CM-35).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// READs and atomics that the peer wants to have under way.
    pub responder_resources: u8,
    /// READs and atomics that the peer will answer at once.
    pub initiator_depth: u8,
    /// The peer's adapter has end-to-end flow control.
    pub flow_control: bool,
    /// Retries of a packet; of a REP none is said.
    pub retry_count: Bits<3>,
    /// Retries of a message that found no receive.
    pub rnr_retry_count: Bits<3>,
    /// The peer's queue pair has a shared receive queue.
    pub srq: bool,
    /// The peer's queue pair.
    pub qpn: Qpn,
    /// What its adapter offers beside.
    pub ece: Ece,
}

/// A multicast group (rule CM-39).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its IP address.
    pub address: IpAddr,
    /// The queue pair sends to it only.
    pub send_only: bool,
    /// Its Q_Key.
    pub qkey: u32,
}

impl Group {
    /// The queue pair that datagrams to any group are for.
    pub const QPN: u32 = 0xff_ffff;
}

/// Why a message has come to nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nobody {
    /// No process there takes any.
    NoProcess,
    /// There is no way there.
    NoWay,
}

impl Nobody {
    pub(crate) fn of_connection(self) -> Happened {
        match self {
            Self::NoProcess => Happened::NobodyThere { datagram: false },
            Self::NoWay => Happened::Unreachable,
        }
    }

    pub(crate) fn of_datagram_service(self) -> Happened {
        match self {
            Self::NoProcess => Happened::NobodyThere { datagram: true },
            Self::NoWay => Happened::Unreachable,
        }
    }
}

impl Happened {
    /// Its number, of `enum rdma_cm_event_type`.
    pub const fn code(&self) -> u32 {
        match self {
            Self::AddressResolved => 0,
            Self::AddressError(_) => 1,
            Self::RouteResolved => 2,
            Self::RouteError(_) => 3,
            Self::ConnectRequest { .. } => 4,
            Self::ConnectResponse { .. } => 5,
            Self::Unreachable | Self::NotServed(_) | Self::NobodyThere { datagram: true } => 7,
            Self::Rejected { .. } | Self::NobodyThere { datagram: false } => 8,
            Self::Established | Self::Resolved { .. } => 9,
            Self::Disconnected { .. } => 10,
            Self::DeviceRemoval => 11,
            Self::MulticastJoin(_) => 12,
            Self::MulticastError(..) => 13,
            Self::AddressChange => 14,
            Self::TimewaitExit => 15,
            Self::Written { code, .. } => *code,
        }
    }

    /// Its status: an error below zero, or the peer's reason.
    pub fn status(&self) -> i32 {
        match self {
            Self::AddressError(errno) | Self::RouteError(errno) => -errno.0,
            Self::MulticastError(_, errno) => -errno.0,
            Self::Unreachable | Self::Disconnected { timed_out: true } => -Errno::ETIMEDOUT.0,
            Self::NotServed(status) => status.code().into(),
            Self::NobodyThere { datagram: true } => SidrStatus::NotSupported.code().into(),
            Self::NobodyThere { datagram: false } => RejectReason::InvalidServiceId.code().into(),
            Self::Rejected { reason, .. } => reason.code().into(),
            Self::Written { status, .. } => *status,
            _ => 0,
        }
    }

    /// Its private data.
    pub fn private_data(&self) -> &[u8] {
        match self {
            Self::ConnectRequest { private_data, .. }
            | Self::ConnectResponse { private_data, .. }
            | Self::Rejected { private_data, .. }
            | Self::Resolved { private_data, .. } => private_data,
            _ => &[],
        }
    }
}
