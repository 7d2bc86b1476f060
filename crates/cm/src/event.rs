//! The events of an id (rules CM-32, CM-33).

use std::net::IpAddr;

use transom_wire::cm::{Bits, CommId, Ece, Qpn, RejectReason, SidrStatus};

use crate::attributes::AddressVector;
use crate::cause::Cause;
use crate::refused::Errno;

/// Something that happened to an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The id.
    pub id: CommId,
    /// What happened to it.
    pub happened: Happened,
}

/// The kind of an event, with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// The route to the destination is known.
    AddressResolved,
    /// There is no route to the destination.
    AddressError(Errno),
    /// The path for a connection is known.
    RouteResolved,
    /// There is no path for a connection.
    RouteError(Errno),
    /// A peer wants a connection. This event's id is new.
    ConnectRequest {
        /// The listening id.
        listener: CommId,
        /// The peer's offer. `None` for a datagram service.
        offer: Option<Offer>,
        /// The peer's private data, padded with zeros.
        private_data: Box<[u8]>,
    },
    /// The peer has accepted. The program must make its queue pair ready and confirm.
    ConnectResponse {
        /// The peer's offer.
        offer: Offer,
        /// The peer's private data, padded with zeros.
        private_data: Box<[u8]>,
    },
    /// Nobody answered in time.
    Unreachable,
    /// No process there takes connection requests. It is reported like Linux's answer where no program listens, because
    /// no program can be there.
    NobodyThere {
        /// Whether the request was for a datagram service.
        datagram: bool,
    },
    /// The datagram service is not available.
    NotServed {
        /// The reason.
        status: SidrStatus,
        /// The peer's private data, padded with zeros.
        private_data: Box<[u8]>,
    },
    /// The peer has refused.
    Rejected {
        /// The reason.
        reason: RejectReason,
        /// The cause of a consumer's rejection, if it is known.
        cause: Option<Cause>,
        /// The peer's private data, padded with zeros.
        private_data: Box<[u8]>,
    },
    /// The connection is established.
    Established,
    /// The peer's datagram queue pair is known.
    Resolved {
        /// The address vector to it.
        address: AddressVector,
        /// Its number.
        qpn: Qpn,
        /// Its Q_Key.
        qkey: u32,
        /// Its adapter's offer of enhanced connection establishment.
        ece: Ece,
        /// The peer's private data, padded with zeros.
        private_data: Box<[u8]>,
    },
    /// The connection has ended.
    Disconnected {
        /// Whether the peer has not confirmed the end.
        timed_out: bool,
    },
    /// The time wait is over: no packet of the connection can be under way any more.
    TimewaitExit,
    /// The device is gone.
    DeviceRemoval,
    /// The id's address has moved to another interface, or its interface has another hardware address.
    AddressChange,
    /// The id belongs to a multicast group.
    MulticastJoin(Group),
    /// The id could not join the multicast group.
    MulticastError(Group, Errno),
    /// The program has written the event itself, for the thread that fetches the id's events.
    Written {
        /// Its number.
        code: u32,
        /// Its status.
        status: i32,
        /// Its argument.
        argument: u64,
    },
}

/// A peer's offer for a connection, from the receiver's point of view. The peer's initiator depth is the number of
/// responder resources here (rule CM-35).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The number of READs and atomics that the peer wants to have under way.
    pub responder_resources: u8,
    /// The number of READs and atomics that the peer can answer at once.
    pub initiator_depth: u8,
    /// Whether the peer's adapter has end-to-end flow control.
    pub flow_control: bool,
    /// The number of retries of a packet. A REP has none.
    pub retry_count: Bits<3>,
    /// The number of retries of a message that found no receive.
    pub rnr_retry_count: Bits<3>,
    /// Whether the peer's queue pair has a shared receive queue.
    pub srq: bool,
    /// The peer's queue pair.
    pub qpn: Qpn,
    /// Its adapter's offer of enhanced connection establishment.
    pub ece: Ece,
}

/// A multicast group (rule CM-39).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its IP address.
    pub address: IpAddr,
    /// Whether the queue pair only sends to it.
    pub send_only: bool,
    /// Its Q_Key.
    pub qkey: u32,
}

impl Group {
    /// The destination queue pair of datagrams to any group.
    pub const QPN: u32 = 0xff_ffff;
}

/// The reason why a message has reached nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nobody {
    /// No process there takes connection requests.
    NoProcess,
    /// There is no route there.
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
            Self::Unreachable | Self::NotServed { .. } | Self::NobodyThere { datagram: true } => 7,
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

    /// Its status: a negative errno, or the peer's reason.
    pub fn status(&self) -> i32 {
        match self {
            Self::AddressError(errno) | Self::RouteError(errno) => -errno.0,
            Self::MulticastError(_, errno) => -errno.0,
            Self::Unreachable | Self::Disconnected { timed_out: true } => -Errno::ETIMEDOUT.0,
            Self::NotServed { status, .. } => status.code().into(),
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
            | Self::NotServed { private_data, .. }
            | Self::Resolved { private_data, .. } => private_data,
            _ => &[],
        }
    }
}
