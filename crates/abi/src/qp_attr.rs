//! The attributes of a QP that can be modified and queried.

use crate::{
    IBV_QPT_RC, IBV_QPT_UD, IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND, ibv_ah_attr, ibv_mtu, ibv_qp_cap,
    ibv_qp_type,
};
use core::ffi::c_uint;

c_enum! {
    /// Which fields of [`ibv_qp_attr`] a call of `ibv_modify_qp(3)` sets.
    ibv_qp_attr_mask: c_uint {
        /// `qp_state`.
        IBV_QP_STATE = 1 << 0,
        /// `cur_qp_state`.
        IBV_QP_CUR_STATE = 1 << 1,
        /// `en_sqd_async_notify`.
        IBV_QP_EN_SQD_ASYNC_NOTIFY = 1 << 2,
        /// `qp_access_flags`.
        IBV_QP_ACCESS_FLAGS = 1 << 3,
        /// `pkey_index`.
        IBV_QP_PKEY_INDEX = 1 << 4,
        /// `port_num`.
        IBV_QP_PORT = 1 << 5,
        /// `qkey`.
        IBV_QP_QKEY = 1 << 6,
        /// `ah_attr`.
        IBV_QP_AV = 1 << 7,
        /// `path_mtu`.
        IBV_QP_PATH_MTU = 1 << 8,
        /// `timeout`.
        IBV_QP_TIMEOUT = 1 << 9,
        /// `retry_cnt`.
        IBV_QP_RETRY_CNT = 1 << 10,
        /// `rnr_retry`.
        IBV_QP_RNR_RETRY = 1 << 11,
        /// `rq_psn`.
        IBV_QP_RQ_PSN = 1 << 12,
        /// `max_rd_atomic`.
        IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13,
        /// `alt_ah_attr`, `alt_pkey_index`, `alt_port_num` and `alt_timeout`.
        IBV_QP_ALT_PATH = 1 << 14,
        /// `min_rnr_timer`.
        IBV_QP_MIN_RNR_TIMER = 1 << 15,
        /// `sq_psn`.
        IBV_QP_SQ_PSN = 1 << 16,
        /// `max_dest_rd_atomic`.
        IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17,
        /// `path_mig_state`.
        IBV_QP_PATH_MIG_STATE = 1 << 18,
        /// `cap`.
        IBV_QP_CAP = 1 << 19,
        /// `dest_qp_num`.
        IBV_QP_DEST_QPN = 1 << 20,
        /// `rate_limit`.
        IBV_QP_RATE_LIMIT = 1 << 25,
    }
}

c_enum! {
    /// The states of a QP.
    ibv_qp_state: c_uint {
        /// Reset: empty and idle.
        IBV_QPS_RESET = 0,
        /// Initialised: takes receive requests.
        IBV_QPS_INIT = 1,
        /// Ready to receive.
        IBV_QPS_RTR = 2,
        /// Ready to send.
        IBV_QPS_RTS = 3,
        /// The send queue drains, or has drained.
        IBV_QPS_SQD = 4,
        /// The send queue is in error.
        IBV_QPS_SQE = 5,
        /// In error: all requests are flushed.
        IBV_QPS_ERR = 6,
        /// Not known.
        IBV_QPS_UNKNOWN = 7,
    }
}

/// What `ibv_modify_qp(3)` must be given on the way from RESET by INIT and RTR to RTS, by service; only the
/// state for others.
pub const fn required_attributes(service: ibv_qp_type, to: ibv_qp_state) -> ibv_qp_attr_mask {
    let datagrams = service == IBV_QPT_UD;
    let asks = matches!(service, IBV_QPT_RC | IBV_QPT_XRC_SEND);
    let answers = matches!(service, IBV_QPT_RC | IBV_QPT_XRC_RECV);
    let mut mask = IBV_QP_STATE;
    match to {
        IBV_QPS_INIT => {
            mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT;
            mask |= if datagrams { IBV_QP_QKEY } else { IBV_QP_ACCESS_FLAGS };
        }
        IBV_QPS_RTR if !datagrams => {
            mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
            if answers {
                mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
            }
        }
        IBV_QPS_RTS => {
            mask |= IBV_QP_SQ_PSN;
            if asks || answers {
                mask |= IBV_QP_TIMEOUT;
            }
            if asks {
                mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
            }
        }
        _ => {}
    }
    mask
}

c_enum! {
    /// The state of path migration.
    ibv_mig_state: c_uint {
        /// On the primary path, or moved.
        IBV_MIG_MIGRATED = 0,
        /// Asked to arm the alternate path.
        IBV_MIG_REARM = 1,
        /// Ready to move.
        IBV_MIG_ARMED = 2,
    }
}

/// The attributes of a QP, see `ibv_modify_qp(3)` and `ibv_query_qp(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_qp_attr {
    /// State to move to, or the current one.
    pub qp_state: ibv_qp_state,
    /// State it is assumed to be in.
    pub cur_qp_state: ibv_qp_state,
    /// MTU of the path.
    pub path_mtu: ibv_mtu,
    /// State of path migration.
    pub path_mig_state: ibv_mig_state,
    /// Queue key of a datagram QP.
    pub qkey: u32,
    /// First packet sequence number expected, 24 bits.
    pub rq_psn: u32,
    /// First packet sequence number sent, 24 bits.
    pub sq_psn: u32,
    /// The connected QP, 24 bits.
    pub dest_qp_num: u32,
    /// Remote operations allowed: bits of `ibv_access_flags`.
    pub qp_access_flags: c_uint,
    /// Sizes of the queues.
    pub cap: ibv_qp_cap,
    /// Primary path.
    pub ah_attr: ibv_ah_attr,
    /// Alternate path.
    pub alt_ah_attr: ibv_ah_attr,
    /// Index of the partition key.
    pub pkey_index: u16,
    /// Index of the alternate path's partition key.
    pub alt_pkey_index: u16,
    /// Nonzero to be told when the send queue has drained.
    pub en_sqd_async_notify: u8,
    /// Nonzero while the send queue drains.
    pub sq_draining: u8,
    /// Reads and atomics outstanding as requester.
    pub max_rd_atomic: u8,
    /// Reads and atomics served at a time as responder.
    pub max_dest_rd_atomic: u8,
    /// Code of the delay asked for by receiver-not-ready NAKs.
    pub min_rnr_timer: u8,
    /// Port of the primary path.
    pub port_num: u8,
    /// Retransmission timeout: 4.096 µs times 2 to this power, 0 for none.
    pub timeout: u8,
    /// Transport retries.
    pub retry_cnt: u8,
    /// Receiver-not-ready retries; 7 is without end.
    pub rnr_retry: u8,
    /// Port of the alternate path.
    pub alt_port_num: u8,
    /// Retransmission timeout of the alternate path.
    pub alt_timeout: u8,
    /// Rate limit, kbit/s.
    pub rate_limit: u32,
}

/// Input of `ibv_modify_qp_rate_limit(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_qp_rate_limit_attr {
    /// Rate, kbit/s; 0 is without limit.
    pub rate_limit: u32,
    /// Bytes of the largest burst.
    pub max_burst_sz: u32,
    /// Bytes of a typical packet.
    pub typical_pkt_sz: u16,
    /// No bits are defined: 0.
    pub comp_mask: u32,
}
