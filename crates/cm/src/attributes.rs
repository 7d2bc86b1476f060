//! The attributes to set a queue pair to, as plain values (rule CM-34).

use transom_wire::Psn;
use transom_wire::cm::{Bits, PathMtu, Qpn, TimeCode};

use crate::host::Route;

/// The Q_Key of datagram queue pairs, unless a program gives another.
pub const DEFAULT_QKEY: u32 = 0x0123_4567;
/// The hop limit of all routes of ids.
pub const HOP_LIMIT: u8 = 64;
/// The only port.
pub const PORT: u8 = 1;

/// States that an id can bring a queue pair to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of the states")]
pub enum QpState {
    Init,
    ReadyToReceive,
    ReadyToSend,
}

/// The rights of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the access flags")]
pub struct Access {
    pub remote_write: bool,
    pub remote_read: bool,
    pub remote_atomic: bool,
    pub flush_global: bool,
}

/// An address vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressVector {
    /// The route.
    pub route: Route,
    /// Flow label.
    pub flow_label: Bits<20>,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
}

/// The path to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The address vector to the peer.
    pub address: AddressVector,
    /// Path MTU.
    pub mtu: PathMtu,
    /// How long a packet may be under way.
    pub life_time: TimeCode,
}

/// The attributes for a state. Attributes that are not listed stay unchanged. The P_Key index is 0, and the port is
/// [`PORT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attributes {
    /// To INIT, for a connection: P_Key index, port, and rights.
    Init {
        /// Access flags.
        access: Access,
    },
    /// To INIT, for datagrams: P_Key index, port, and Q_Key.
    InitDatagram {
        /// Q_Key.
        qkey: u32,
    },
    /// To RTR, for a connection.
    ReadyToReceive {
        /// The address vector to the peer.
        address: AddressVector,
        /// Path MTU.
        mtu: PathMtu,
        /// The peer's queue pair.
        destination: Qpn,
        /// RQ_PSN.
        psn: Psn,
        /// MAX_DEST_RD_ATOMIC, for queue pairs that have it. Their MIN_RNR_TIMER is 0.
        responder_resources: Option<u8>,
    },
    /// To RTR, for datagrams: only the state.
    ReadyToReceiveDatagram,
    /// To RTS.
    ReadyToSend {
        /// SQ_PSN.
        psn: Psn,
        /// TIMEOUT, for queue pairs that have it.
        timeout: Option<TimeCode>,
        /// Additional attributes of a queue pair that sends reliably.
        retries: Option<Retries>,
    },
}

/// Additional attributes of a queue pair that sends reliably.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// RETRY_CNT.
    pub retry_count: Bits<3>,
    /// RNR_RETRY.
    pub rnr_retry_count: Bits<3>,
    /// MAX_QP_RD_ATOMIC.
    pub initiator_depth: u8,
}
