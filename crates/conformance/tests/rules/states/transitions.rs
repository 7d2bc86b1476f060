//! The states of a queue pair and the attributes each step takes (rules G.3, G.3.1): the whole
//! table, and everything that is not in it.

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::queues::*;
use transom_conformance::xrc::*;

const KINDS: [ibv_qp_type; 5] =
    [IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV];

const STATES: [ibv_qp_state; 7] =
    [IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE, IBV_QPS_ERR];

/// Every attribute but the state.
const ATTRIBUTES: [u32; 21] = [
    IBV_QP_CUR_STATE,
    IBV_QP_EN_SQD_ASYNC_NOTIFY,
    IBV_QP_ACCESS_FLAGS,
    IBV_QP_PKEY_INDEX,
    IBV_QP_PORT,
    IBV_QP_QKEY,
    IBV_QP_AV,
    IBV_QP_PATH_MTU,
    IBV_QP_TIMEOUT,
    IBV_QP_RETRY_CNT,
    IBV_QP_RNR_RETRY,
    IBV_QP_RQ_PSN,
    IBV_QP_MAX_QP_RD_ATOMIC,
    IBV_QP_ALT_PATH,
    IBV_QP_MIN_RNR_TIMER,
    IBV_QP_SQ_PSN,
    IBV_QP_MAX_DEST_RD_ATOMIC,
    IBV_QP_PATH_MIG_STATE,
    IBV_QP_CAP,
    IBV_QP_DEST_QPN,
    IBV_QP_RATE_LIMIT,
];

const OF_INIT: u32 = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
const OF_RTR: u32 = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
const OF_RTR_RC: u32 = OF_RTR | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
const OF_RTS_RC: u32 =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
const RUNNING: u32 =
    IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE;
const DRAINED: u32 =
    IBV_QP_AV | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PATH_MIG_STATE;
const DRAINED_RC: u32 = DRAINED
    | IBV_QP_PORT
    | IBV_QP_TIMEOUT
    | IBV_QP_RETRY_CNT
    | IBV_QP_RNR_RETRY
    | IBV_QP_MAX_QP_RD_ATOMIC
    | IBV_QP_MAX_DEST_RD_ATOMIC
    | IBV_QP_MIN_RNR_TIMER;

const DRAINED_XRC_SEND: u32 = DRAINED_RC & !(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
const DRAINED_XRC_RECV: u32 =
    DRAINED | IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

/// What a step needs and what it allows beside the state, as table G.3.1 has it; `None` if there is
/// no such step.
fn row(kind: ibv_qp_type, from: ibv_qp_state, to: ibv_qp_state) -> Option<(u32, u32)> {
    match (from, to) {
        (IBV_QPS_RESET, IBV_QPS_ERR) => None,
        (_, IBV_QPS_RESET | IBV_QPS_ERR) => Some((0, 0)),
        (IBV_QPS_RTS, IBV_QPS_SQD) => Some((0, IBV_QP_EN_SQD_ASYNC_NOTIFY)),
        _ if kind == IBV_QPT_UD => row_of_ud(from, to),
        _ => row_of_connected(kind, from, to),
    }
}

fn row_of_ud(from: ibv_qp_state, to: ibv_qp_state) -> Option<(u32, u32)> {
    let of_init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    let (keys, running) = (IBV_QP_PKEY_INDEX | IBV_QP_QKEY, IBV_QP_CUR_STATE | IBV_QP_QKEY);
    Some(match (from, to) {
        (IBV_QPS_RESET, IBV_QPS_INIT) => (of_init, 0),
        (IBV_QPS_INIT, IBV_QPS_INIT) => (0, of_init),
        (IBV_QPS_INIT, IBV_QPS_RTR) | (IBV_QPS_SQD, IBV_QPS_SQD) => (0, keys),
        (IBV_QPS_RTR, IBV_QPS_RTS) => (IBV_QP_SQ_PSN, running),
        (IBV_QPS_RTS | IBV_QPS_SQD | IBV_QPS_SQE, IBV_QPS_RTS) => (0, running),
        _ => return None,
    })
}

fn row_of_connected(kind: ibv_qp_type, from: ibv_qp_state, to: ibv_qp_state) -> Option<(u32, u32)> {
    let answers = kind == IBV_QPT_RC || kind == IBV_QPT_XRC_RECV;
    let running = if answers { RUNNING | IBV_QP_MIN_RNR_TIMER } else { RUNNING };
    Some(match (from, to) {
        (IBV_QPS_RESET, IBV_QPS_INIT) => (OF_INIT, 0),
        (IBV_QPS_INIT, IBV_QPS_INIT) => (0, OF_INIT),
        (IBV_QPS_INIT, IBV_QPS_RTR) => {
            let optional = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
            (if answers { OF_RTR_RC } else { OF_RTR }, optional)
        }
        (IBV_QPS_RTR, IBV_QPS_RTS) => {
            let required = match kind {
                IBV_QPT_UC => IBV_QP_SQ_PSN,
                IBV_QPT_XRC_RECV => IBV_QP_TIMEOUT | IBV_QP_SQ_PSN,
                _ => OF_RTS_RC,
            };
            (required, running)
        }
        (IBV_QPS_RTS | IBV_QPS_SQD, IBV_QPS_RTS) => (0, running),
        (IBV_QPS_SQD, IBV_QPS_SQD) => {
            let optional = match kind {
                IBV_QPT_UC => DRAINED,
                IBV_QPT_XRC_SEND => DRAINED_XRC_SEND,
                IBV_QPT_XRC_RECV => DRAINED_XRC_RECV,
                _ => DRAINED_RC,
            };
            (0, optional)
        }
        (IBV_QPS_SQE, IBV_QPS_RTS) if kind == IBV_QPT_UC => {
            (0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS)
        }
        _ => return None,
    })
}

/// The states a queue pair of this service can be in.
fn states_of(kind: ibv_qp_type) -> impl Iterator<Item = ibv_qp_state> {
    let fails_alone = kind == IBV_QPT_UC || kind == IBV_QPT_UD;
    STATES.into_iter().filter(move |state| fails_alone || *state != IBV_QPS_SQE)
}

/// Every step of the table, all services.
/// What may be named in any step of an end of XRC, for it means nothing there.
fn unheeded(kind: ibv_qp_type) -> u32 {
    match kind {
        IBV_QPT_XRC_SEND => IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        IBV_QPT_XRC_RECV => IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY,
        _ => 0,
    }
}

fn steps() -> impl Iterator<Item = (ibv_qp_type, ibv_qp_state, ibv_qp_state, u32, u32)> {
    KINDS.into_iter().flat_map(|kind| {
        states_of(kind).flat_map(move |from| {
            STATES.into_iter().filter_map(move |to| {
                row(kind, from, to).map(|(required, optional)| {
                    let optional = (optional | unheeded(kind)) & !required;
                    (kind, from, to, required, optional)
                })
            })
        })
    })
}

/// A fresh queue pair in a state.
fn in_state(end: &End, kind: ibv_qp_type, state: ibv_qp_state) -> *mut ibv_qp {
    let qp = match kind {
        IBV_QPT_XRC_RECV => xrc_target(end.context, xrcd(end.context)),
        _ => end.qp(kind),
    };
    take_to(end, qp, state);
    qp
}

/// Attributes for a step, valid for every mask.
fn step_attr(qp: *mut ibv_qp, to: ibv_qp_state) -> ibv_qp_attr {
    ibv_qp_attr { qp_state: to, cur_qp_state: state(qp), ..usual_attr(qp) }
}

/// The modify is refused with `EINVAL` and nothing has changed.
fn expect_refused(qp: *mut ibv_qp, attr: &ibv_qp_attr, mask: u32) {
    let before = attributes(qp);
    let code = modify_with(qp, attr, mask);
    assert_eq!(code, libc::EINVAL, "to {} with {mask:#x}, from {before}", attr.qp_state);
    assert_eq!(attributes(qp), before, "mask {mask:#x}");
}

/// Every pair of states: what the table has succeeds, all else is `EINVAL` and changes nothing.
/// Rules: ST-01, ST-04
#[test]
fn only_the_steps_of_the_table_can_be_made() {
    let end = End::new(Default::default());
    for kind in KINDS {
        for from in states_of(kind) {
            for to in STATES {
                let qp = in_state(&end, kind, from);
                let attr = step_attr(qp, to);
                match row(kind, from, to) {
                    Some((required, _)) => {
                        let code = modify_with(qp, &attr, IBV_QP_STATE | required);
                        assert_eq!(code, 0, "type {kind}: {from} to {to}");
                        assert_eq!(state(qp), to, "type {kind}: {from} to {to}");
                    }
                    None => {
                        expect_refused(qp, &attr, IBV_QP_STATE);
                        expect_refused(qp, &attr, required_attributes(kind, to));
                    }
                }
                assert_eq!(destroy_qp(qp), 0);
            }
            let qp = in_state(&end, kind, from);
            for to in [IBV_QPS_UNKNOWN, 8, 99, u32::MAX] {
                expect_refused(qp, &step_attr(qp, to), IBV_QP_STATE);
            }
        }
    }
}

/// Without each of the required attributes, alone or together with others, nothing happens.
/// Rules: ST-02
#[test]
fn every_missing_attribute_refuses_the_step() {
    let end = End::new(Default::default());
    let mut seen = 0;
    for (kind, from, to, required, _) in steps().filter(|step| step.3 != 0) {
        let qp = in_state(&end, kind, from);
        let attr = step_attr(qp, to);
        // All proper subsets of the required bits.
        let mut subset = required;
        while subset != 0 {
            subset = (subset - 1) & required;
            expect_refused(qp, &attr, IBV_QP_STATE | subset);
            seen += 1;
        }
        assert_eq!(modify_with(qp, &attr, IBV_QP_STATE | required), 0, "all of them will do");
    }
    let (rc, uc, ud) = (7 + 63 + 31, 7 + 15 + 1, 7 + 1);
    assert_eq!(seen, rc + uc + ud + (7 + 15 + 31) + (7 + 63 + 3));
}

/// Every attribute that a step neither needs nor allows refuses it; each one it allows does not.
/// Rules: ST-03, ST-08
#[test]
fn every_excess_attribute_refuses_the_step() {
    let end = End::new(Default::default());
    for (kind, from, to, required, optional) in steps() {
        let qp = in_state(&end, kind, from);
        let attr = step_attr(qp, to);
        let path = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
        for bit in ATTRIBUTES.into_iter().filter(|bit| required & bit == 0) {
            // Paths are in the table, and are refused because RoCE has but one (rule ST-08).
            if (optional & !path) & bit == 0 {
                expect_refused(qp, &attr, IBV_QP_STATE | required | bit);
                continue;
            }
            let fresh = in_state(&end, kind, from);
            let attr = step_attr(fresh, to);
            let code = modify_with(fresh, &attr, IBV_QP_STATE | required | bit);
            assert_eq!(code, 0, "type {kind}: {from} to {to} with {bit:#x}");
            assert_eq!(state(fresh), to);
            assert_eq!(destroy_qp(fresh), 0);
        }
        // Bits without a meaning.
        for bit in (21..25).chain(26..32) {
            expect_refused(qp, &attr, IBV_QP_STATE | required | 1 << bit);
        }
        assert_eq!(destroy_qp(qp), 0);
    }
}

/// RESET and ERR need nothing but the state, from everywhere but RESET to ERR.
/// Rules: ST-04
#[test]
fn reset_and_error_need_only_the_state() {
    let end = End::new(Default::default());
    for kind in KINDS {
        for from in states_of(kind) {
            let qp = in_state(&end, kind, from);
            let fails = if from == IBV_QPS_RESET { libc::EINVAL } else { 0 };
            assert_eq!(set_state(qp, IBV_QPS_ERR), fails, "type {kind}: {from} to ERR");
            assert_eq!(set_state(qp, IBV_QPS_RESET), 0, "type {kind}: ERR to RESET");
            let qp = in_state(&end, kind, from);
            assert_eq!(set_state(qp, IBV_QPS_RESET), 0, "type {kind}: {from} to RESET");
            assert_eq!(state(qp), IBV_QPS_RESET);
        }
    }
}

/// The state the caller believes in must be the real one, where it may be named at all.
/// Rules: ST-05
#[test]
fn the_current_state_must_be_right() {
    let end = End::new(Default::default());
    for (kind, from, to, required, optional) in steps() {
        let mask = IBV_QP_STATE | IBV_QP_CUR_STATE | required;
        let qp = in_state(&end, kind, from);
        for named in (0..9).filter(|named| *named != from) {
            let attr = ibv_qp_attr { cur_qp_state: named, ..step_attr(qp, to) };
            expect_refused(qp, &attr, mask);
        }
        let attr = step_attr(qp, to);
        if optional & IBV_QP_CUR_STATE == 0 {
            expect_refused(qp, &attr, mask);
        } else {
            assert!(matches!(from, IBV_QPS_RTR | IBV_QPS_RTS | IBV_QPS_SQD | IBV_QPS_SQE));
            assert_eq!(modify_with(qp, &attr, mask), 0, "type {kind}: {from} to {to}");
            assert_eq!(state(qp), to);
        }
    }
}

/// A modify that names no state keeps it, and takes what the step to the same state takes.
/// Rules: ST-01, ST-03, ST-26
#[test]
fn a_modify_without_a_state_keeps_it() {
    let end = End::new(Default::default());
    let qp = in_state(&end, IBV_QPT_RC, IBV_QPS_RTS);
    let attr = ibv_qp_attr { qp_access_flags: 0, qp_state: IBV_QPS_ERR, ..usual_attr(qp) };
    assert_eq!(modify_with(qp, &attr, IBV_QP_ACCESS_FLAGS), 0);
    assert_eq!((state(qp), query(qp).qp_access_flags), (IBV_QPS_RTS, 0));
    expect_refused(qp, &attr, IBV_QP_SQ_PSN);
}
