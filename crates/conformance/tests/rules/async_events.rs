//! Asynchronous events: which errors raise one, in whose context, and that it is waited for.

use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;
use transom_ibverbs::*;

fn send(wr_id: u64) -> ibv_send_wr {
    ibv_send_wr { wr_id, ..wr(IBV_WR_SEND) }
}

/// Waits for the next event of a context and takes it, not acknowledged.
fn take_event(context: *mut ibv_context) -> ibv_async_event {
    let mut event = ibv_async_event::default();
    // SAFETY: an open context and a place for the event.
    assert_eq!(unsafe { ibv_get_async_event(context, &mut event) }, 0);
    event
}

/// Acknowledges an event.
fn ack(mut event: ibv_async_event) {
    // SAFETY: an event that was taken.
    unsafe { ibv_ack_async_event(&mut event) };
}

on_each_link! {
    /// A peer without the right to what it asks for raises an access error, in the context of the
    /// queue pair that refused, once; the peer has none.
    /// Rules: AE-01
    fn a_refused_access_raises_an_event(link: Link) {
        let near = Buffer::new(4096);
        for opcode in [
            IBV_WR_RDMA_WRITE,
            IBV_WR_RDMA_READ,
            IBV_WR_ATOMIC_FETCH_AND_ADD,
            IBV_WR_ATOMIC_CMP_AND_SWP,
        ] {
            let pair = Pair::rc(link);
            let ma = pair.a.reg(&near, ALL);
            let mut sges = [sge(near.addr(), 8, ma)];
            let mut wr = rdma_wr(opcode, &mut sges, 0x1000, 0x1234_5678);
            if matches!(opcode, IBV_WR_ATOMIC_FETCH_AND_ADD | IBV_WR_ATOMIC_CMP_AND_SWP) {
                wr = atomic_wr(opcode, &mut sges, 0x1000, 0x1234_5678, 1, 2);
            }
            post(pair.qa, &mut wr);
            pair.a.expect(IBV_WC_REM_ACCESS_ERR);
            assert_eq!(pair.b.event(), (IBV_EVENT_QP_ACCESS_ERR, pair.qb.cast()));
            assert!(!pair.a.has_event() && !pair.b.has_event());
            pair.b.expect_nothing();
        }
    }

    /// An invalid request raises a request error.
    /// Rules: AE-02
    fn an_invalid_request_raises_an_event(link: Link) {
        let pair = Pair::rc(link);
        let (near, far) = (Buffer::new(4096), Buffer::new(4096));
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        let mut sges = [sge(near.addr(), 8, ma)];
        let add = IBV_WR_ATOMIC_FETCH_AND_ADD;
        post(pair.qa, &mut atomic_wr(add, &mut sges, far.addr() + 4, keys(mb).1, 1, 0));
        pair.a.expect(IBV_WC_REM_INV_REQ_ERR);
        assert_eq!(pair.b.event(), (IBV_EVENT_QP_REQ_ERR, pair.qb.cast()));
        assert!(!pair.a.has_event() && !pair.b.has_event());
    }

    /// The first request that comes in RTR is announced, once; in RTS the program knows.
    /// Rules: AE-04
    fn the_first_request_in_rtr_is_announced(link: Link) {
        let pair = Pair::unconnected(link, IBV_QPT_RC);
        let attr = usual_attr(pair.qa);
        for to in [IBV_QPS_INIT, IBV_QPS_RTR] {
            assert_eq!(modify(pair.qb, &attr, to), 0);
        }
        bring_up(pair.qa, &usual_attr(pair.qb));
        assert!(!pair.b.has_event());
        for wr_id in 0..3 {
            recv(pair.qb, wr_id, &mut []);
            post(pair.qa, &mut send(wr_id));
            pair.a.expect(IBV_WC_SUCCESS);
            pair.b.expect(IBV_WC_SUCCESS);
        }
        assert_eq!(pair.b.event(), (IBV_EVENT_COMM_EST, pair.qb.cast()));
        let (qa, qb) = pair.another(IBV_QPT_RC);
        recv(qb, 9, &mut []);
        post(qa, &mut send(9));
        pair.a.expect(IBV_WC_SUCCESS);
        pair.b.expect(IBV_WC_SUCCESS);
        assert!(!pair.b.has_event() && !pair.a.has_event());
    }

    /// What a completion tells, no event repeats: the next event is that of the next queue pair.
    /// Rules: AE-08
    fn no_event_repeats_a_completion(link: Link) {
        let pair = Pair::rc(link);
        let near = Buffer::new(4096);
        let ma = pair.a.reg(&near, ALL);
        let mut sges = [sge(near.addr(), 8, ma)];
        // The receive of a WRITE with immediate data carries the news of the violation.
        recv(pair.qb, 5, &mut []);
        let with_imm = IBV_WR_RDMA_WRITE_WITH_IMM;
        post(pair.qa, &mut rdma_wr(with_imm, &mut sges, 0x1000, 0x1234_5678));
        pair.a.expect(IBV_WC_REM_ACCESS_ERR);
        assert_eq!(pair.b.expect(IBV_WC_LOC_ACCESS_ERR).wr_id, 5);
        // A receive that is too small, and one without a key.
        for (status, at_b) in [
            (IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR),
            (IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR),
        ] {
            let (qa, qb) = pair.another(IBV_QPT_RC);
            let room = if at_b == IBV_WC_LOC_LEN_ERR { 4 } else { 8 };
            recv(qb, 6, &mut [sge(0x1000, room, null_mut())]);
            post(qa, &mut with_sges(send(1), &mut sges));
            pair.a.expect(status);
            assert_eq!(pair.b.expect(at_b).wr_id, 6);
        }
        // The origin's own errors are completions as well.
        let (qa, qb) = pair.another(IBV_QPT_RC);
        post(qa, &mut with_sges(send(1), &mut [sge(0x1000, 8, null_mut())]));
        pair.a.expect(IBV_WC_LOC_PROT_ERR);
        assert_eq!(destroy_qp(qb), 0);
        let (qa, qb) = pair.another(IBV_QPT_RC);
        post(qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, 0x1000, 0x1234_5678));
        pair.a.expect(IBV_WC_REM_ACCESS_ERR);
        assert_eq!(pair.b.event(), (IBV_EVENT_QP_ACCESS_ERR, qb.cast()));
        assert!(!pair.b.has_event() && !pair.a.has_event());
    }

    /// The event of one queue pair goes to the context it was made in, and to no other.
    /// Rules: AE-01, AE-06
    fn a_queue_pair_waits_for_the_acknowledgement_of_its_events(link: Link) {
        let pair = Pair::rc(link);
        let near = Buffer::new(4096);
        let ma = pair.a.reg(&near, ALL);
        let mut sges = [sge(near.addr(), 8, ma)];
        post(pair.qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, 0x1000, 0x1234_5678));
        pair.a.expect(IBV_WC_REM_ACCESS_ERR);
        assert!(!pair.a.has_event());
        let event = take_event(pair.b.context);
        let gone = Across::new(pair.qb);
        blocks_until(move || assert_eq!(destroy_qp(gone.get()), 0), || ack(event));
        assert_eq!(destroy_qp(pair.qb), libc::ENOENT);
        // One that was not taken holds nothing up.
        let (qa, qb) = pair.another(IBV_QPT_RC);
        post(qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, 0x1000, 0x1234_5678));
        pair.a.expect(IBV_WC_REM_ACCESS_ERR);
        until("the event", || pair.b.has_event().then_some(()));
        assert_eq!(destroy_qp(qb), 0);
    }
}

/// A completion queue that overran waits for the acknowledgement of that event too.
/// Rules: AE-06, CR-18
#[test]
fn an_overrun_queue_waits_for_the_acknowledgement() {
    let end = End::new(Default::default());
    let cq = try_cq(end.context, 1, null_mut()).unwrap();
    let qp = end.qp_with(&mut ibv_qp_init_attr { recv_cq: cq, ..end.init(IBV_QPT_RC) });
    take_to(&end, qp, IBV_QPS_ERR);
    // SAFETY: a live queue.
    for _ in 0..=unsafe { (*cq).cqe } {
        recv(qp, 1, &mut []);
    }
    let event = take_event(end.context);
    assert_eq!(event.event_type, IBV_EVENT_CQ_ERR);
    // SAFETY: the event is about a queue.
    assert_eq!(unsafe { event.element.cq }, cq);
    assert_eq!(destroy_qp(qp), 0);
    let gone = Across::new(cq);
    blocks_until(move || assert_eq!(destroy_cq(gone.get()), 0), || ack(event));
}

/// The descriptor is readable with an event and not without; asking waits, or is `EAGAIN`.
/// Rules: AE-07
#[test]
fn the_descriptor_can_be_polled() {
    let pair = Pair::rc(Link::Loopback);
    // SAFETY: an open context.
    let fd = unsafe { (*pair.b.context).async_fd };
    assert!(!readable(fd));
    let raise = || {
        let (qa, _) = pair.another(IBV_QPT_RC);
        let add = IBV_WR_ATOMIC_FETCH_AND_ADD;
        let near = Buffer::new(8);
        let mut sges = [sge(near.addr(), 8, pair.a.reg(&near, ALL))];
        post(qa, &mut atomic_wr(add, &mut sges, 8, 0x1234_5678, 1, 0));
        pair.a.expect(IBV_WC_REM_ACCESS_ERR);
    };
    raise();
    raise();
    for _ in 0..2 {
        assert!(readable(fd));
        ack(take_event(pair.b.context));
    }
    assert!(!readable(fd));
    let context = Across::new(pair.b.context);
    blocks_until(move || ack(take_event(context.get())), raise);
    let mut event = ibv_async_event::default();
    // SAFETY: an open context with its descriptor, and a place for the event.
    unsafe {
        assert_eq!(libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK), 0);
        assert_eq!(ibv_get_async_event(pair.b.context, &mut event), -1);
    }
    assert_eq!(errno(), libc::EAGAIN);
    raise();
    ack(take_event(pair.b.context));
}
