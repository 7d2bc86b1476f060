//! Names and rates: `ibv_wc_status_str(3)` and others. They equal rdma-core's to the letter, because people search for
//! them, and scripts look for them in logs.

use std::ffi::{CStr, c_char, c_int};

use transom_abi::*;

fn name(text: &'static CStr) -> *const c_char {
    text.as_ptr()
}

/// A completion status in words.
pub extern "C" fn ibv_wc_status_str(status: ibv_wc_status) -> *const c_char {
    name(match status {
        IBV_WC_SUCCESS => c"success",
        IBV_WC_LOC_LEN_ERR => c"local length error",
        IBV_WC_LOC_QP_OP_ERR => c"local QP operation error",
        IBV_WC_LOC_EEC_OP_ERR => c"local EE context operation error",
        IBV_WC_LOC_PROT_ERR => c"local protection error",
        IBV_WC_WR_FLUSH_ERR => c"Work Request Flushed Error",
        IBV_WC_MW_BIND_ERR => c"memory management operation error",
        IBV_WC_BAD_RESP_ERR => c"bad response error",
        IBV_WC_LOC_ACCESS_ERR => c"local access error",
        IBV_WC_REM_INV_REQ_ERR => c"remote invalid request error",
        IBV_WC_REM_ACCESS_ERR => c"remote access error",
        IBV_WC_REM_OP_ERR => c"remote operation error",
        IBV_WC_RETRY_EXC_ERR => c"transport retry counter exceeded",
        IBV_WC_RNR_RETRY_EXC_ERR => c"RNR retry counter exceeded",
        IBV_WC_LOC_RDD_VIOL_ERR => c"local RDD violation error",
        IBV_WC_REM_INV_RD_REQ_ERR => c"remote invalid RD request",
        IBV_WC_REM_ABORT_ERR => c"aborted error",
        IBV_WC_INV_EECN_ERR => c"invalid EE context number",
        IBV_WC_INV_EEC_STATE_ERR => c"invalid EE context state",
        IBV_WC_FATAL_ERR => c"fatal error",
        IBV_WC_RESP_TIMEOUT_ERR => c"response timeout error",
        IBV_WC_GENERAL_ERR => c"general error",
        IBV_WC_TM_ERR => c"TM error",
        IBV_WC_TM_RNDV_INCOMPLETE => c"TM software rendezvous",
        _ => c"unknown",
    })
}

/// A node type in words.
pub extern "C" fn ibv_node_type_str(node: ibv_node_type) -> *const c_char {
    name(match node {
        IBV_NODE_CA => c"InfiniBand channel adapter",
        IBV_NODE_SWITCH => c"InfiniBand switch",
        IBV_NODE_ROUTER => c"InfiniBand router",
        IBV_NODE_RNIC => c"iWARP NIC",
        IBV_NODE_USNIC => c"usNIC",
        IBV_NODE_USNIC_UDP => c"usNIC UDP",
        IBV_NODE_UNSPECIFIED => c"unspecified",
        _ => c"unknown",
    })
}

/// A port state in words.
pub extern "C" fn ibv_port_state_str(state: ibv_port_state) -> *const c_char {
    name(match state {
        IBV_PORT_NOP => c"no state change (NOP)",
        IBV_PORT_DOWN => c"down",
        IBV_PORT_INIT => c"init",
        IBV_PORT_ARMED => c"armed",
        IBV_PORT_ACTIVE => c"active",
        IBV_PORT_ACTIVE_DEFER => c"active defer",
        _ => c"unknown",
    })
}

/// An asynchronous event in words.
pub extern "C" fn ibv_event_type_str(event: ibv_event_type) -> *const c_char {
    name(match event {
        IBV_EVENT_CQ_ERR => c"CQ error",
        IBV_EVENT_QP_FATAL => c"local work queue catastrophic error",
        IBV_EVENT_QP_REQ_ERR => c"invalid request local work queue error",
        IBV_EVENT_QP_ACCESS_ERR => c"local access violation work queue error",
        IBV_EVENT_COMM_EST => c"communication established",
        IBV_EVENT_SQ_DRAINED => c"send queue drained",
        IBV_EVENT_PATH_MIG => c"path migrated",
        IBV_EVENT_PATH_MIG_ERR => c"path migration request error",
        IBV_EVENT_DEVICE_FATAL => c"local catastrophic error",
        IBV_EVENT_PORT_ACTIVE => c"port active",
        IBV_EVENT_PORT_ERR => c"port error",
        IBV_EVENT_LID_CHANGE => c"LID change",
        IBV_EVENT_PKEY_CHANGE => c"P_Key change",
        IBV_EVENT_SM_CHANGE => c"SM change",
        IBV_EVENT_SRQ_ERR => c"SRQ catastrophic error",
        IBV_EVENT_SRQ_LIMIT_REACHED => c"SRQ limit reached",
        IBV_EVENT_QP_LAST_WQE_REACHED => c"last WQE reached",
        IBV_EVENT_CLIENT_REREGISTER => c"client reregistration",
        IBV_EVENT_GID_CHANGE => c"GID table change",
        IBV_EVENT_WQ_FATAL => c"WQ fatal",
        _ => c"unknown",
    })
}

/// Static rates: the enum value, the multiple of 2.5 Gbit/s (zero if rdma-core's library has none), Mbit/s.
const RATES: [(ibv_rate, c_int, c_int); 23] = [
    (IBV_RATE_2_5_GBPS, 1, 2_500),
    (IBV_RATE_5_GBPS, 2, 5_000),
    (IBV_RATE_10_GBPS, 4, 10_000),
    (IBV_RATE_14_GBPS, 0, 14_062),
    (IBV_RATE_20_GBPS, 8, 20_000),
    (IBV_RATE_25_GBPS, 0, 25_781),
    (IBV_RATE_28_GBPS, 11, 28_125),
    (IBV_RATE_30_GBPS, 12, 30_000),
    (IBV_RATE_40_GBPS, 16, 40_000),
    (IBV_RATE_50_GBPS, 20, 53_125),
    (IBV_RATE_56_GBPS, 0, 56_250),
    (IBV_RATE_60_GBPS, 24, 60_000),
    (IBV_RATE_80_GBPS, 32, 80_000),
    (IBV_RATE_100_GBPS, 0, 103_125),
    (IBV_RATE_112_GBPS, 0, 112_500),
    (IBV_RATE_120_GBPS, 48, 120_000),
    (IBV_RATE_168_GBPS, 0, 168_750),
    (IBV_RATE_200_GBPS, 0, 206_250),
    (IBV_RATE_300_GBPS, 0, 309_375),
    (IBV_RATE_400_GBPS, 160, 425_000),
    (IBV_RATE_600_GBPS, 240, 637_500),
    (IBV_RATE_800_GBPS, 320, 850_000),
    (IBV_RATE_1200_GBPS, 480, 1_275_000),
];

/// A rate as a multiple of 2.5 Gbit/s, or -1.
pub extern "C" fn ibv_rate_to_mult(rate: ibv_rate) -> c_int {
    RATES.iter().find(|known| known.0 == rate && known.1 != 0).map_or(-1, |known| known.1)
}

/// The rate of a multiple of 2.5 Gbit/s, or the port's maximum.
pub extern "C" fn mult_to_ibv_rate(mult: c_int) -> ibv_rate {
    let found = RATES.iter().find(|known| known.1 == mult && mult != 0);
    found.map_or(IBV_RATE_MAX, |known| known.0)
}

/// A rate in Mbit/s, or -1.
pub extern "C" fn ibv_rate_to_mbps(rate: ibv_rate) -> c_int {
    RATES.iter().find(|known| known.0 == rate).map_or(-1, |known| known.2)
}

/// The rate of a number of Mbit/s, or the port's maximum.
pub extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> ibv_rate {
    RATES.iter().find(|known| known.2 == mbps).map_or(IBV_RATE_MAX, |known| known.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// rdma-core's values: a rate's number, its multiple of 2.5 Gbit/s, and its Mbit/s. A rate that is no multiple of
    /// 2.5 Gbit/s has -1.
    #[test]
    fn rates_are_those_of_rdma_core() {
        let known = [
            (2, 1, 2_500),
            (3, 4, 10_000),
            (4, 12, 30_000),
            (5, 2, 5_000),
            (6, 8, 20_000),
            (7, 16, 40_000),
            (8, 24, 60_000),
            (9, 32, 80_000),
            (10, 48, 120_000),
            (11, -1, 14_062),
            (12, -1, 56_250),
            (13, -1, 112_500),
            (14, -1, 168_750),
            (15, -1, 25_781),
            (16, -1, 103_125),
            (17, -1, 206_250),
            (18, -1, 309_375),
            (19, 11, 28_125),
            (20, 20, 53_125),
            (21, 160, 425_000),
            (22, 240, 637_500),
            (23, 320, 850_000),
            (24, 480, 1_275_000),
        ];
        for (rate, mult, mbps) in known {
            assert_eq!((ibv_rate_to_mult(rate), ibv_rate_to_mbps(rate)), (mult, mbps), "{rate}");
            assert_eq!(mbps_to_ibv_rate(mbps), rate);
            if mult > 0 {
                assert_eq!(mult_to_ibv_rate(mult), rate);
            }
        }
        for unknown in [0, 1, 25, u32::MAX] {
            assert_eq!((ibv_rate_to_mult(unknown), ibv_rate_to_mbps(unknown)), (-1, -1));
        }
        for unknown in [-1, 0, 3, 10, 40, 80, i32::MAX] {
            assert_eq!(mult_to_ibv_rate(unknown), IBV_RATE_MAX, "{unknown}");
            assert_eq!(mbps_to_ibv_rate(unknown), IBV_RATE_MAX, "{unknown}");
        }
    }
}
