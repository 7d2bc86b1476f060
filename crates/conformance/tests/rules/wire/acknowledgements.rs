//! Acknowledgements over the wire may wait for something to go out with. They come in any case.

use std::sync::atomic::Ordering::Relaxed;

use transom_abi::*;
use transom_conformance::forger::counters;
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::{Channel, Child, meet, play};
use transom_conformance::queues::*;
use transom_host::Options;

/// Plays the part of another process, when started for it.
#[test]
fn role() {
    play(&[("leaver", leaver)]);
}

/// Takes a message and exits with everything open.
fn leaver(channel: &mut Channel) {
    let end = End::new(wire_only());
    let qp = end.qp(IBV_QPT_RC);
    meet(channel, qp);
    recv(qp, 1, &mut []);
    end.expect(IBV_WC_SUCCESS);
    // SAFETY: ends the process, and with it all that is borrowed.
    unsafe { libc::exit(0) };
}

fn wire_only() -> Options {
    Options { wire_only: true, ..Options::default() }
}

/// A program that takes a message and then neither posts nor polls: the origin's request completes
/// nevertheless.
/// Rules: ACK-01
#[test]
fn a_message_is_acknowledged_though_nothing_follows() {
    let pair = Pair::rc(Link::Wire);
    for round in 0..200 {
        recv(pair.qb, round, &mut []);
        post(pair.qa, &mut wr(IBV_WR_SEND));
        assert_eq!(pair.b.expect(IBV_WC_SUCCESS).wr_id, round);
        pair.a.expect(IBV_WC_SUCCESS);
    }
}

/// The ends send each other a message in turn, on two connections that delay acknowledgements at the same time.
/// Rules: ACK-01
#[test]
fn answers_and_acknowledgements_both_come() {
    let pair = Pair::rc(Link::Wire);
    let (qc, qd) = pair.another(IBV_QPT_RC);
    for round in 0..1000 {
        for (from, to) in [(pair.qa, pair.qb), (qc, qd)] {
            recv(to, round, &mut []);
            post(from, &mut wr(IBV_WR_SEND));
        }
        let came = [pair.b.expect(IBV_WC_SUCCESS), pair.b.expect(IBV_WC_SUCCESS)];
        assert!(came.iter().all(|wc| wc.opcode == IBV_WC_RECV), "{came:?}");
        for (from, to) in [(pair.qb, pair.qa), (qd, qc)] {
            recv(to, round, &mut []);
            post(from, &mut wr(IBV_WR_SEND));
        }
        // Two messages, and the acknowledgements of two.
        for _ in 0..4 {
            pair.a.expect(IBV_WC_SUCCESS);
        }
        for _ in 0..2 {
            pair.b.expect(IBV_WC_SUCCESS);
        }
    }
}

/// An answer of as many packets as go out together leaves no room for the acknowledgement.
/// Rules: ACK-01
#[test]
fn an_answer_may_leave_no_room_for_the_acknowledgement() {
    const LENGTH: usize = 64 * 256;
    let pair = Pair::unconnected(Link::Wire, IBV_QPT_RC);
    for (own, other) in [(pair.qa, pair.qb), (pair.qb, pair.qa)] {
        bring_up(own, &ibv_qp_attr { path_mtu: IBV_MTU_256, ..usual_attr(other) });
    }
    let (near, far) = (Buffer::filled(LENGTH, 1), Buffer::new(LENGTH));
    let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
    for _ in 0..100 {
        recv(pair.qb, 1, &mut [sge(far.addr(), LENGTH as u32, mb)]);
        post(pair.qa, &mut with_sges(wr(IBV_WR_SEND), &mut [sge(near.addr(), LENGTH as u32, ma)]));
        pair.b.expect(IBV_WC_SUCCESS);
        recv(pair.qa, 1, &mut [sge(near.addr(), LENGTH as u32, ma)]);
        post(pair.qb, &mut with_sges(wr(IBV_WR_SEND), &mut [sge(far.addr(), LENGTH as u32, mb)]));
        for _ in 0..2 {
            pair.a.expect(IBV_WC_SUCCESS);
        }
        pair.b.expect(IBV_WC_SUCCESS);
    }
    assert!(near.read(0, LENGTH) == far.read(0, LENGTH), "the bytes");
}

/// What has been taken is acknowledged before the queue pair that took it is reset, fails or ends.
/// Rules: ACK-01
#[test]
fn a_queue_pair_that_ends_has_acknowledged() {
    let pair = Pair::rc(Link::Wire);
    for way in 0..3 {
        for _ in 0..20 {
            let (qa, qb) = pair.another(IBV_QPT_RC);
            recv(qb, 1, &mut []);
            post(qa, &mut wr(IBV_WR_SEND));
            pair.b.expect(IBV_WC_SUCCESS);
            match way {
                0 => assert_eq!(set_state(qb, IBV_QPS_RESET), 0),
                1 => assert_eq!(set_state(qb, IBV_QPS_ERR), 0),
                _ => assert_eq!(destroy_qp(qb), 0),
            }
            pair.a.expect(IBV_WC_SUCCESS);
        }
    }
}

/// A queue pair that is destroyed repeats its last acknowledgement: if that was lost, the origin's next
/// attempt finds nobody. It says nothing of a READ, whose answer nobody could tell from it.
/// Rules: ACK-01, PSN-23
#[test]
fn a_queue_pair_that_is_destroyed_repeats_its_last_acknowledgement() {
    let pair = Pair::rc(Link::Wire);
    let (near, far) = (Buffer::new(8), Buffer::new(8));
    let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
    let sent = &counters(pair.qb).sent;
    for (reads, repeated) in [(0, 2), (1, 0)] {
        let (qa, qb) = pair.another(IBV_QPT_RC);
        let at_first = sent.load(Relaxed);
        recv(qb, 1, &mut []);
        post(qa, &mut wr(IBV_WR_SEND));
        pair.b.expect(IBV_WC_SUCCESS);
        pair.a.expect(IBV_WC_SUCCESS);
        for _ in 0..reads {
            let mut sges = [sge(near.addr(), 8, ma)];
            post(qa, &mut rdma_wr(IBV_WR_RDMA_READ, &mut sges, far.addr(), keys(mb).1));
            pair.a.expect(IBV_WC_SUCCESS);
        }
        // A packet may arrive before the thread that sent it has counted it.
        until("all answers are counted", || (sent.load(Relaxed) > at_first + reads).then_some(()));
        let before = sent.load(Relaxed);
        assert_eq!(destroy_qp(qb), 0);
        assert_eq!(sent.load(Relaxed) - before, repeated);
    }
    // One that has received nothing has nothing to say.
    let (_, qb) = pair.another(IBV_QPT_RC);
    let before = sent.load(Relaxed);
    assert_eq!(destroy_qp(qb), 0);
    assert_eq!(sent.load(Relaxed), before);
}

/// A process that has taken a message exits with its device open.
/// Rules: ACK-01
#[test]
fn a_process_that_exits_has_acknowledged() {
    take_turn(Link::Wire);
    let end = End::new(wire_only());
    for _ in 0..10 {
        let mut child = Child::start(path_of!("leaver"));
        let qp = end.qp(IBV_QPT_RC);
        meet(&mut child.channel, qp);
        post(qp, &mut wr(IBV_WR_SEND));
        end.expect(IBV_WC_SUCCESS);
    }
}
