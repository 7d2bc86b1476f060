//! The state machine of a queue pair and its table of attributes (rules G.3, G.3.1).

use bitflags::bitflags;
use transom_wire::packet::Transport;

/// States, with the values of `enum ibv_qp_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum QpState {
    /// Nothing is sent or received.
    Reset = 0,
    /// Receives may be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// The send queue drains.
    Sqd = 4,
    /// The send queue has failed (UC and UD).
    Sqe = 5,
    /// Everything flushes.
    Error = 6,
}

impl QpState {
    /// Its name in C, without `IBV_QPS_`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::Sqd => "SQD",
            Self::Sqe => "SQE",
            Self::Error => "ERR",
        }
    }

    /// The state of a value of `enum ibv_qp_state`, if it is one a program may ask for or name.
    pub const fn new(value: u32) -> Option<Self> {
        match value {
            0 => Some(Self::Reset),
            1 => Some(Self::Init),
            2 => Some(Self::Rtr),
            3 => Some(Self::Rts),
            4 => Some(Self::Sqd),
            5 => Some(Self::Sqe),
            6 => Some(Self::Error),
            _ => None,
        }
    }

    /// From the shared summary, where anything unknown counts as an error.
    pub(super) const fn from_code(code: u8) -> Self {
        match Self::new(code as u32) {
            Some(state) => state,
            None => Self::Error,
        }
    }
}

/// Transport services. Each end of XRC is a kind of queue pair of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Service {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Unreliable datagram.
    Ud = 2,
    /// Extended reliable connection, the end that sends.
    XrcInitiator = 3,
    /// Extended reliable connection, the end that receives, into the shared receive queue that each
    /// message names.
    XrcTarget = 4,
}

impl Service {
    /// Whether packets of this kind are for queue pairs of this service (rule OP-32).
    pub fn serves(self, transport: &Transport) -> bool {
        match transport {
            Transport::Rc => self == Self::Rc,
            Transport::Uc => self == Self::Uc,
            Transport::Ud { .. } => self == Self::Ud,
            Transport::Xrc { .. } => matches!(self, Self::XrcInitiator | Self::XrcTarget),
        }
    }

    /// The service of a code, as `self as u8` gives it.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Rc,
            1 => Self::Uc,
            2 => Self::Ud,
            3 => Self::XrcInitiator,
            4 => Self::XrcTarget,
            _ => return None,
        })
    }

    /// Whether messages are acknowledged.
    pub const fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::XrcInitiator | Self::XrcTarget)
    }

    /// The attributes that a modify may name and that mean nothing to this end of XRC. Programs set
    /// both ends alike, and the kernel's verbs leave these out as well.
    pub const fn unheeded(self) -> Mask {
        match self {
            Self::XrcInitiator => Mask::MAX_DEST_RD_ATOMIC.union(Mask::MIN_RNR_TIMER),
            Self::XrcTarget => Mask::MAX_QP_RD_ATOMIC.union(Mask::RETRY_CNT).union(Mask::RNR_RETRY),
            _ => Mask::empty(),
        }
    }

    /// The service of the queue pairs that its requests are for.
    pub const fn target(self) -> Self {
        match self {
            Self::XrcInitiator => Self::XrcTarget,
            other => other,
        }
    }
}

bitflags! {
    /// Which attributes a modify names, with the values of `enum ibv_qp_attr_mask`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Mask: u32 {
        /// `qp_state`
        const STATE = 1;
        /// `cur_qp_state`
        const CUR_STATE = 1 << 1;
        /// `en_sqd_async_notify`
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// `qp_access_flags`
        const ACCESS_FLAGS = 1 << 3;
        /// `pkey_index`
        const PKEY_INDEX = 1 << 4;
        /// `port_num`
        const PORT = 1 << 5;
        /// `qkey`
        const QKEY = 1 << 6;
        /// `ah_attr`
        const AV = 1 << 7;
        /// `path_mtu`
        const PATH_MTU = 1 << 8;
        /// `timeout`
        const TIMEOUT = 1 << 9;
        /// `retry_cnt`
        const RETRY_CNT = 1 << 10;
        /// `rnr_retry`
        const RNR_RETRY = 1 << 11;
        /// `rq_psn`
        const RQ_PSN = 1 << 12;
        /// `max_rd_atomic`
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// `alt_ah_attr` and its companions
        const ALT_PATH = 1 << 14;
        /// `min_rnr_timer`
        const MIN_RNR_TIMER = 1 << 15;
        /// `sq_psn`
        const SQ_PSN = 1 << 16;
        /// `max_dest_rd_atomic`
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// `path_mig_state`
        const PATH_MIG_STATE = 1 << 18;
        /// `cap`
        const CAP = 1 << 19;
        /// `dest_qp_num`
        const DEST_QPN = 1 << 20;
        /// `rate_limit`
        const RATE_LIMIT = 1 << 25;
    }
}

/// The attributes that a transition needs and allows, beside the state.
struct Row {
    from: QpState,
    to: QpState,
    required: Mask,
    optional: Mask,
}

const fn row(from: QpState, to: QpState, required: Mask, optional: Mask) -> Row {
    Row { from, to, required, optional }
}

const INIT: Mask = Mask::PKEY_INDEX.union(Mask::PORT).union(Mask::ACCESS_FLAGS);
const RTR_UC: Mask = Mask::AV.union(Mask::PATH_MTU).union(Mask::DEST_QPN).union(Mask::RQ_PSN);
const RTR_RC: Mask = RTR_UC.union(Mask::MAX_DEST_RD_ATOMIC).union(Mask::MIN_RNR_TIMER);
const RTR_OPTIONAL: Mask = Mask::ALT_PATH.union(Mask::ACCESS_FLAGS).union(Mask::PKEY_INDEX);
const RTS_RC: Mask = Mask::TIMEOUT
    .union(Mask::RETRY_CNT)
    .union(Mask::RNR_RETRY)
    .union(Mask::SQ_PSN)
    .union(Mask::MAX_QP_RD_ATOMIC);
const RTS_OPTIONAL_UC: Mask =
    Mask::CUR_STATE.union(Mask::ALT_PATH).union(Mask::ACCESS_FLAGS).union(Mask::PATH_MIG_STATE);
const RTS_OPTIONAL_RC: Mask = RTS_OPTIONAL_UC.union(Mask::MIN_RNR_TIMER);
const RTS_XRC_TARGET: Mask = Mask::TIMEOUT.union(Mask::SQ_PSN);
const SQD_OPTIONAL_UC: Mask = Mask::AV
    .union(Mask::ALT_PATH)
    .union(Mask::ACCESS_FLAGS)
    .union(Mask::PKEY_INDEX)
    .union(Mask::PATH_MIG_STATE);
const SQD_OPTIONAL_RC: Mask = SQD_OPTIONAL_UC
    .union(Mask::PORT)
    .union(Mask::TIMEOUT)
    .union(Mask::RETRY_CNT)
    .union(Mask::RNR_RETRY)
    .union(Mask::MAX_QP_RD_ATOMIC)
    .union(Mask::MAX_DEST_RD_ATOMIC)
    .union(Mask::MIN_RNR_TIMER);
const SQD_OPTIONAL_XRC_INITIATOR: Mask =
    SQD_OPTIONAL_RC.difference(Mask::MAX_DEST_RD_ATOMIC.union(Mask::MIN_RNR_TIMER));
const SQD_OPTIONAL_XRC_TARGET: Mask = SQD_OPTIONAL_UC
    .union(Mask::PORT)
    .union(Mask::TIMEOUT)
    .union(Mask::MAX_DEST_RD_ATOMIC)
    .union(Mask::MIN_RNR_TIMER);
const INIT_UD: Mask = Mask::PKEY_INDEX.union(Mask::PORT).union(Mask::QKEY);
const RTS_OPTIONAL_UD: Mask = Mask::CUR_STATE.union(Mask::QKEY);
const KEYS_UD: Mask = Mask::PKEY_INDEX.union(Mask::QKEY);

use QpState::{Error, Init, Reset, Rtr, Rts, Sqd, Sqe};

const UC: &[Row] = &[
    row(Reset, Init, INIT, Mask::empty()),
    row(Init, Init, Mask::empty(), INIT),
    row(Init, Rtr, RTR_UC, RTR_OPTIONAL),
    row(Rtr, Rts, Mask::SQ_PSN, RTS_OPTIONAL_UC),
    row(Rts, Rts, Mask::empty(), RTS_OPTIONAL_UC),
    row(Rts, Sqd, Mask::empty(), Mask::EN_SQD_ASYNC_NOTIFY),
    row(Sqd, Rts, Mask::empty(), RTS_OPTIONAL_UC),
    row(Sqd, Sqd, Mask::empty(), SQD_OPTIONAL_UC),
    row(Sqe, Rts, Mask::empty(), Mask::CUR_STATE.union(Mask::ACCESS_FLAGS)),
];

const RC: &[Row] = &[
    row(Reset, Init, INIT, Mask::empty()),
    row(Init, Init, Mask::empty(), INIT),
    row(Init, Rtr, RTR_RC, RTR_OPTIONAL),
    row(Rtr, Rts, RTS_RC, RTS_OPTIONAL_RC),
    row(Rts, Rts, Mask::empty(), RTS_OPTIONAL_RC),
    row(Rts, Sqd, Mask::empty(), Mask::EN_SQD_ASYNC_NOTIFY),
    row(Sqd, Rts, Mask::empty(), RTS_OPTIONAL_RC),
    row(Sqd, Sqd, Mask::empty(), SQD_OPTIONAL_RC),
];

const UD: &[Row] = &[
    row(Reset, Init, INIT_UD, Mask::empty()),
    row(Init, Init, Mask::empty(), INIT_UD),
    row(Init, Rtr, Mask::empty(), KEYS_UD),
    row(Rtr, Rts, Mask::SQ_PSN, RTS_OPTIONAL_UD),
    row(Rts, Rts, Mask::empty(), RTS_OPTIONAL_UD),
    row(Rts, Sqd, Mask::empty(), Mask::EN_SQD_ASYNC_NOTIFY),
    row(Sqd, Rts, Mask::empty(), RTS_OPTIONAL_UD),
    row(Sqd, Sqd, Mask::empty(), KEYS_UD),
    row(Sqe, Rts, Mask::empty(), RTS_OPTIONAL_UD),
];

const XRC_INITIATOR: &[Row] = &[
    row(Reset, Init, INIT, Mask::empty()),
    row(Init, Init, Mask::empty(), INIT),
    row(Init, Rtr, RTR_UC, RTR_OPTIONAL),
    row(Rtr, Rts, RTS_RC, RTS_OPTIONAL_UC),
    row(Rts, Rts, Mask::empty(), RTS_OPTIONAL_UC),
    row(Rts, Sqd, Mask::empty(), Mask::EN_SQD_ASYNC_NOTIFY),
    row(Sqd, Rts, Mask::empty(), RTS_OPTIONAL_UC),
    row(Sqd, Sqd, Mask::empty(), SQD_OPTIONAL_XRC_INITIATOR),
];

const XRC_TARGET: &[Row] = &[
    row(Reset, Init, INIT, Mask::empty()),
    row(Init, Init, Mask::empty(), INIT),
    row(Init, Rtr, RTR_RC, RTR_OPTIONAL),
    row(Rtr, Rts, RTS_XRC_TARGET, RTS_OPTIONAL_RC),
    row(Rts, Rts, Mask::empty(), RTS_OPTIONAL_RC),
    row(Rts, Sqd, Mask::empty(), Mask::EN_SQD_ASYNC_NOTIFY),
    row(Sqd, Rts, Mask::empty(), RTS_OPTIONAL_RC),
    row(Sqd, Sqd, Mask::empty(), SQD_OPTIONAL_XRC_TARGET),
];

/// The attributes of a modify, in plain values. All have been range-checked on the way in.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// The state asked for.
    pub state: QpState,
    /// The state the caller believes in.
    pub current: Option<QpState>,
}

/// Why a modify is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModifyError {
    /// No such transition (rule ST-01).
    #[error("there is no such transition")]
    NoTransition,
    /// A required attribute is missing (rule ST-02).
    #[error("attributes are missing: {0:?}")]
    Missing(Mask),
    /// An attribute is named that this transition does not take (rule ST-03).
    #[error("attributes that this transition does not take: {0:?}")]
    Excess(Mask),
    /// `cur_qp_state` is not the state (rule ST-05).
    #[error("the queue pair is in another state")]
    OtherState,
    /// Alternate paths do not exist on RoCE (rule ST-08).
    #[error("RoCE has no alternate paths")]
    NoAlternatePath,
}

/// Whether a queue pair in `from` may go to `to` with the attributes of `mask` (rules ST-01 to ST-08).
pub fn check_transition(
    service: Service,
    from: QpState,
    attributes: &Attributes,
    mask: Mask,
) -> Result<(), ModifyError> {
    let to = attributes.state;
    if let Some(current) = attributes.current
        && (current != from || !matches!(current, Rtr | Rts | Sqd | Sqe))
    {
        return Err(ModifyError::OtherState);
    }
    let table = match service {
        Service::Rc => RC,
        Service::Uc => UC,
        Service::Ud => UD,
        Service::XrcInitiator => XRC_INITIATOR,
        Service::XrcTarget => XRC_TARGET,
    };
    let row = table.iter().find(|row| row.from == from && row.to == to);
    let (required, optional) = match (row, to) {
        (Some(row), _) => (row.required, row.optional),
        // Any state may be left for RESET; ERR from all but RESET (rule ST-04).
        (None, Reset) => (Mask::empty(), Mask::empty()),
        (None, Error) if from != Reset => (Mask::empty(), Mask::empty()),
        _ => return Err(ModifyError::NoTransition),
    };
    let missing = required.difference(mask);
    if !missing.is_empty() {
        return Err(ModifyError::Missing(missing));
    }
    let excess = mask.difference(required | optional | Mask::STATE);
    if !excess.is_empty() {
        return Err(ModifyError::Excess(excess));
    }
    if mask.intersects(Mask::ALT_PATH | Mask::PATH_MIG_STATE) {
        return Err(ModifyError::NoAlternatePath);
    }
    Ok(())
}
