//! Connects queue pairs from RESET to RTS: their attributes and states.

use std::ffi::c_int;

use transom_abi::*;
use transom_ibverbs::*;

/// The remote rights.
pub const REMOTE: u32 = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// The attributes that [`connect`] uses. Change fields for other timeouts or rights.
pub fn usual_attr(peer: *mut ibv_qp) -> ibv_qp_attr {
    let mut attr = ibv_qp_attr {
        path_mtu: IBV_MTU_1024,
        // SAFETY: the queue pair is live.
        dest_qp_num: if peer.is_null() { 0 } else { unsafe { (*peer).qp_num } },
        rq_psn: 17,
        sq_psn: 17,
        qp_access_flags: REMOTE,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        min_rnr_timer: 1,
        port_num: 1,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        ..ibv_qp_attr::default()
    };
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = ibv_gid { raw: LOOPBACK_GID };
    attr
}

/// Moves a queue pair to a state, with the attributes that it requires. Returns zero or the errno.
pub fn modify(qp: *mut ibv_qp, attr: &ibv_qp_attr, to: ibv_qp_state) -> c_int {
    let mut attr = *attr;
    attr.qp_state = to;
    // SAFETY: the queue pair is live.
    unsafe { ibv_modify_qp(qp, &mut attr, required_attributes((*qp).qp_type, to) as c_int) }
}

/// Moves a queue pair through INIT and RTR to RTS with these attributes.
pub fn bring_up(qp: *mut ibv_qp, attr: &ibv_qp_attr) {
    for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
        assert_eq!(modify(qp, attr, state), 0, "to state {state}");
    }
}

/// Connects two queue pairs, RESET to RTS.
pub fn connect(a: *mut ibv_qp, b: *mut ibv_qp) {
    connect_with(a, b, |_| ());
}

/// The same with other attributes at both ends.
pub fn connect_with(a: *mut ibv_qp, b: *mut ibv_qp, change: impl Fn(&mut ibv_qp_attr)) {
    for (qp, peer) in [(a, b), (b, a)] {
        let mut attr = usual_attr(peer);
        change(&mut attr);
        bring_up(qp, &attr);
    }
}

/// Makes an idle queue pair in RTS give up soon, for requests that nobody will answer.
pub fn give_up_soon(qp: *mut ibv_qp) {
    let attr = ibv_qp_attr { timeout: 10, retry_cnt: 1, ..usual_attr(qp) };
    let timers = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT;
    for (to, mask) in
        [(IBV_QPS_SQD, IBV_QP_STATE), (IBV_QPS_SQD, timers), (IBV_QPS_RTS, IBV_QP_STATE)]
    {
        let mut attr = ibv_qp_attr { qp_state: to, ..attr };
        // SAFETY: the queue pair is live.
        let code = unsafe { ibv_modify_qp(qp, &mut attr, mask as c_int) };
        assert_eq!(code, 0, "to state {to}");
    }
}

/// Sets only the state.
pub fn set_state(qp: *mut ibv_qp, state: ibv_qp_state) -> c_int {
    let mut attr = ibv_qp_attr { qp_state: state, ..ibv_qp_attr::default() };
    // SAFETY: the queue pair is live.
    unsafe { ibv_modify_qp(qp, &mut attr, IBV_QP_STATE as c_int) }
}

/// The state of the queue pair, as the device reports it.
pub fn state(qp: *mut ibv_qp) -> ibv_qp_state {
    query(qp).qp_state
}

/// All attributes.
pub fn query(qp: *mut ibv_qp) -> ibv_qp_attr {
    let (mut attr, mut init) = (ibv_qp_attr::default(), ibv_qp_init_attr::default());
    // SAFETY: the queue pair is live.
    assert_eq!(unsafe { ibv_query_qp(qp, &mut attr, -1, &mut init) }, 0);
    attr
}
