//! Every status that a completion can have: this device never gives it, or one that has it has a sentence.

use std::net::Ipv4Addr;

use transom_abi::*;
use transom_conformance::documents::root;
use transom_conformance::explained::explains;
use transom_conformance::forger::Forger;
use transom_conformance::harness::*;
use transom_conformance::queues::*;
use transom_conformance::tag_matching::Matching;
use transom_device::qp::QpNumber;
use transom_device::queue::Status;
use transom_system::registry::{Record, Registry};
use transom_wire::Psn;
use transom_wire::packet::{Aeth, Operation, Packet, Transport};

/// Those that the device never gives: of services that are not there, or what it carries out itself.
const NEVER: [(ibv_wc_status, &str); 10] = [
    (IBV_WC_LOC_EEC_OP_ERR, "LOC_EEC_OP_ERR"),
    (IBV_WC_LOC_RDD_VIOL_ERR, "LOC_RDD_VIOL_ERR"),
    (IBV_WC_REM_INV_RD_REQ_ERR, "REM_INV_RD_REQ_ERR"),
    (IBV_WC_REM_ABORT_ERR, "REM_ABORT_ERR"),
    (IBV_WC_INV_EECN_ERR, "INV_EECN_ERR"),
    (IBV_WC_INV_EEC_STATE_ERR, "INV_EEC_STATE_ERR"),
    (IBV_WC_FATAL_ERR, "FATAL_ERR"),
    (IBV_WC_RESP_TIMEOUT_ERR, "RESP_TIMEOUT_ERR"),
    (IBV_WC_GENERAL_ERR, "GENERAL_ERR"),
    (IBV_WC_TM_RNDV_INCOMPLETE, "TM_RNDV_INCOMPLETE"),
];

/// The others, each with what brings it about and asserts that it is told of.
const GIVEN: [(ibv_wc_status, fn()); 13] = [
    (IBV_WC_LOC_LEN_ERR, || {
        let it = memory();
        recv(it.pair.qb, 7, &mut [sge(it.far.addr(), 99, it.mb)]);
        send(&it, it.ma);
        at_target(&it, IBV_WC_LOC_LEN_ERR, "IBV_WC_LOC_LEN_ERR");
    }),
    (IBV_WC_LOC_QP_OP_ERR, || {
        let it = memory();
        let (origin, target) = it.connected(|attr| attr.max_rd_atomic = 0, |_| ());
        access(&it, origin, IBV_WR_RDMA_READ, 0);
        at(&it.pair.a, origin, target, IBV_WC_LOC_QP_OP_ERR, "IBV_WC_LOC_QP_OP_ERR");
    }),
    (IBV_WC_LOC_PROT_ERR, || {
        let it = memory();
        send(&it, std::ptr::null_mut());
        at_origin(&it, IBV_WC_LOC_PROT_ERR, "IBV_WC_LOC_PROT_ERR");
    }),
    (IBV_WC_WR_FLUSH_ERR, || {
        let it = memory();
        assert_eq!(set_state(it.pair.qa, IBV_QPS_ERR), 0);
        send(&it, it.ma);
        at_origin(&it, IBV_WC_WR_FLUSH_ERR, "IBV_WC_WR_FLUSH_ERR");
    }),
    (IBV_WC_MW_BIND_ERR, || {
        let it = memory();
        post(it.pair.qa, &mut local_inv_wr(keys(it.ma).1));
        at_origin(&it, IBV_WC_MW_BIND_ERR, "IBV_WC_MW_BIND_ERR");
    }),
    (IBV_WC_BAD_RESP_ERR, bad_response),
    (IBV_WC_LOC_ACCESS_ERR, || {
        let it = memory();
        recv(it.pair.qb, 7, &mut []);
        access(&it, it.pair.qa, IBV_WR_RDMA_WRITE_WITH_IMM, 1);
        at_target(&it, IBV_WC_LOC_ACCESS_ERR, "IBV_WC_LOC_ACCESS_ERR");
    }),
    (IBV_WC_REM_INV_REQ_ERR, || {
        let it = memory();
        recv(it.pair.qb, 7, &mut []);
        send(&it, it.ma);
        at_origin(&it, IBV_WC_REM_INV_REQ_ERR, "IBV_WC_REM_INV_REQ_ERR");
    }),
    (IBV_WC_REM_ACCESS_ERR, || {
        let it = memory();
        access(&it, it.pair.qa, IBV_WR_RDMA_READ, 1);
        at_origin(&it, IBV_WC_REM_ACCESS_ERR, "IBV_WC_REM_ACCESS_ERR");
    }),
    (IBV_WC_REM_OP_ERR, || {
        let it = memory();
        recv(it.pair.qb, 7, &mut [sge(it.far.addr(), 100, std::ptr::null_mut())]);
        send(&it, it.ma);
        at_origin(&it, IBV_WC_REM_OP_ERR, "IBV_WC_REM_OP_ERR");
    }),
    (IBV_WC_RETRY_EXC_ERR, || {
        let it = memory();
        let (origin, target) = it.connected(|attr| (attr.timeout, attr.retry_cnt) = (8, 0), |_| ());
        assert_eq!(set_state(target, IBV_QPS_RESET), 0);
        post(origin, &mut wr(IBV_WR_SEND));
        at(&it.pair.a, origin, target, IBV_WC_RETRY_EXC_ERR, "IBV_WC_RETRY_EXC_ERR");
    }),
    (IBV_WC_RNR_RETRY_EXC_ERR, || {
        let it = memory();
        let (origin, target) = it.connected(|attr| attr.rnr_retry = 0, |_| ());
        post(origin, &mut wr(IBV_WR_SEND));
        at(&it.pair.a, origin, target, IBV_WC_RNR_RETRY_EXC_ERR, "IBV_WC_RNR_RETRY_EXC_ERR");
    }),
    (IBV_WC_TM_ERR, || {
        let matching = Matching::new(Link::Loopback);
        assert_eq!(matching.remove(77), IBV_WC_TM_ERR);
        let registry = Registry::open().expect("the registry");
        let told = registry.records(QpNumber::from_bits(number(matching.qb)).slot());
        let of_it = |record: &Record| matches!(record, Record::Work(work) if work.status() == Some("IBV_WC_TM_ERR"));
        let told = told.iter().rev().find(|record| of_it(record)).expect("it is told of");
        let words = "removal of a tagged buffer (wr_id 70) ended with IBV_WC_TM_ERR: the buffer is not in the list";
        assert!(told.to_string().starts_with(words), "{told}");
    }),
];

fn memory() -> MemoryPair {
    MemoryPair::new(Link::Loopback, 4096)
}

/// A SEND of a hundred bytes of this region's.
fn send(it: &MemoryPair, mr: *mut ibv_mr) {
    let mut sges = [sge(it.near.addr(), 100, mr)];
    post(it.pair.qa, &mut with_sges(wr(IBV_WR_SEND), &mut sges));
}

/// An access of eight bytes by a key that is so far from the right one.
fn access(it: &MemoryPair, origin: *mut ibv_qp, opcode: ibv_wr_opcode, wrong: u32) {
    let mut sges = [it.near_sge(0, 8)];
    post(origin, &mut rdma_wr(opcode, &mut sges, it.far.addr(), it.key() ^ wrong));
}

/// An answer with a syndrome that there is not. Only a peer that is no device of ours sends one.
fn bad_response() {
    let pair = Pair::rc(Link::Wire);
    assert_eq!(set_state(pair.qb, IBV_QPS_RESET), 0);
    post(pair.qa, &mut wr(IBV_WR_SEND));
    let forger = Forger::at(Ipv4Addr::LOCALHOST);
    let first = Psn::new(usual_attr(pair.qb).sq_psn);
    let aeth = Aeth { byte: 0x40, msn: 0 };
    let answer = Packet::new(Transport::Rc, Operation::Acknowledge(aeth), number(pair.qa), first);
    forger.send(&forger.seal(&answer));
    at(&pair.a, pair.qa, pair.qb, IBV_WC_BAD_RESP_ERR, "IBV_WC_BAD_RESP_ERR");
}

/// The next completion of an end has this status, and a sentence.
fn at(end: &End, here: *mut ibv_qp, there: *mut ibv_qp, status: ibv_wc_status, name: &str) {
    let wc = end.expect(status);
    assert!(explains(number(here), number(there), name, wc.wr_id), "nothing explains {name}");
}

fn at_origin(it: &MemoryPair, status: ibv_wc_status, name: &str) {
    at(&it.pair.a, it.pair.qa, it.pair.qb, status, name);
}

fn at_target(it: &MemoryPair, status: ibv_wc_status, name: &str) {
    at(&it.pair.b, it.pair.qb, it.pair.qa, status, name);
}

/// Rules: EX-01, WC-22
#[test]
fn every_status_has_a_sentence_or_never_comes() {
    let page = std::fs::read_to_string(root().join("docs/symptoms.md")).expect("the page");
    for number in 1..=IBV_WC_TM_RNDV_INCOMPLETE {
        let given = GIVEN.iter().find(|(status, _)| *status == number);
        let never = NEVER.iter().find(|(status, _)| *status == number);
        // What the device does not know it cannot give.
        let known = Status::from_code(number as u8).is_some();
        match (given, never) {
            (Some((_, brings_about)), None) => {
                assert!(known, "{number}");
                brings_about();
            }
            (None, Some((_, name))) => {
                assert!(!known, "{name}");
                let row = page.lines().find(|line| line.contains(&format!("`IBV_WC_{name}`")));
                assert!(row.is_some_and(|row| row.contains("| Never")), "{name}: {row:?}");
            }
            _ => panic!("status {number} is either given or not"),
        }
    }
}
