//! XRC: messages that name the shared receive queue they are for.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process;
use std::ptr::null_mut;
use std::time::Duration;

use transom_abi::*;
use transom_conformance::access::*;
use transom_conformance::extended::verbs;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::processes::file_without_name;
use transom_conformance::queues::*;
use transom_conformance::shared_receive::*;
use transom_conformance::xrc::*;
use transom_ibverbs::ibv_modify_qp;

/// Posts a SEND of part of the origin's buffer to a shared queue.
fn send(xrc: &Xrc, qa: *mut ibv_qp, at: usize, length: u32, srqn: u32) {
    let mut sges = [sge(xrc.near.addr() + at as u64, length, xrc.ma)];
    post(qa, &mut naming(with_sges(wr(IBV_WR_SEND), &mut sges), srqn));
}

/// Larger than any segment, on every link.
const LONG: usize = 1 << 20;

/// Lets a message to a shared queue begin that never ends: its sender's memory is gone half-way, which is
/// paged on demand, so that nobody keeps it.
fn half_a_message(xrc: &Xrc, srq: *mut ibv_srq) {
    let from = Buffer::filled(LONG, 3);
    let mr = xrc.pair.a.reg(&from, ALL | IBV_ACCESS_ON_DEMAND as i32);
    from.protect_part(LONG - 4096, 4096, libc::PROT_NONE);
    let mut sges = [sge(from.addr(), LONG as u32, mr)];
    let request = with_sges(wr(IBV_WR_SEND), &mut sges);
    post(xrc.pair.qa, &mut naming(request, srq_number(srq)));
    xrc.pair.a.expect(IBV_WC_LOC_PROT_ERR);
    Follower::new(&xrc.pair.a, &xrc.pair.b).follow();
}

/// Has the sending end alone begin anew, with the number that its peer expects.
fn begin_anew(xrc: &Xrc) {
    assert_eq!(set_state(xrc.pair.qa, IBV_QPS_RESET), 0);
    bring_up(xrc.pair.qa, &usual_attr(xrc.pair.qb));
}

/// Posts a receive into part of the target's buffer.
fn receive(xrc: &Xrc, srq: *mut ibv_srq, wr_id: u64, at: usize, room: u32) {
    srq_recv(srq, wr_id, &mut [sge(xrc.far.addr() + at as u64, room, xrc.mb)]);
}

on_each_link! {
    /// What a sender is told to wait follows `min_rnr_timer`, also if that changes while it receives.
    /// Rules: RN-01, RN-02
    fn a_changed_rnr_timer_is_told(link: Link) {
        let xrc = Xrc::new(link, 64);
        let follower = Follower::new(&xrc.pair.a, &xrc.pair.b);
        // 246 ms.
        let (qp, mask) = (xrc.pair.qb, IBV_QP_MIN_RNR_TIMER as i32);
        let mut attr = ibv_qp_attr { min_rnr_timer: 29, ..ibv_qp_attr::default() };
        // SAFETY: the queue pair is live.
        assert_eq!(unsafe { ibv_modify_qp(qp, &mut attr, mask) }, 0);
        takes_at_least(Duration::from_micros(245_760), || {
            send(&xrc, xrc.pair.qa, 0, 8, srq_number(xrc.srq));
            follower.follow();
            receive(&xrc, xrc.srq, 5, 0, 8);
            xrc.pair.a.expect(IBV_WC_SUCCESS);
        });
        xrc.pair.b.expect(IBV_WC_SUCCESS);
    }

    /// A message goes to the shared queue that it names, and completes where that one says.
    fn a_message_goes_to_the_queue_it_names(link: Link) {
        let xrc = Xrc::new(link, 1 << 20);
        let (other, cq) = xrc.another_srq(xrc.pair.b.pd);
        let (third, third_cq) = xrc.another_srq(xrc.pair.b.pd);
        let queues = [(xrc.srq, xrc.pair.b.cq), (other, cq), (third, third_cq)];
        for (place, (srq, _)) in queues.iter().enumerate() {
            for round in 0..3 {
                receive(&xrc, *srq, (10 * place + round) as u64, place * 300_000, 300_000);
            }
        }
        let second = xrc.another();
        for round in 0..3 {
            for (place, (srq, cq)) in queues.iter().enumerate() {
                let (qa, qb) = [(xrc.pair.qa, xrc.pair.qb), second][(round + place) % 2];
                let length = [8, 0, 300_000][round];
                send(&xrc, qa, 4096 * round, length, srq_number(*srq));
                xrc.pair.a.expect(IBV_WC_SUCCESS);
                let wc = wait(*cq);
                assert_eq!((wc.status, wc.opcode), (IBV_WC_SUCCESS, IBV_WC_RECV));
                assert_eq!((wc.wr_id, wc.qp_num), ((10 * place + round) as u64, number(qb)));
                assert_eq!(wc.byte_len, length);
                let (at, length) = (place * 300_000, length as usize);
                assert!(xrc.far.read(at, length) == xrc.near.read(4096 * round, length));
                for (_, cq) in queues {
                    assert!(poll(cq).is_none(), "on one queue only");
                }
            }
        }
    }

    /// Immediate data, solicited or not, and WRITE with immediate take a receive of the named queue;
    /// without one the sender waits.
    /// Rules: SQ-06, PS-06
    fn every_message_can_name_a_queue(link: Link) {
        let xrc = Xrc::new(link, 4096);
        let srqn = srq_number(xrc.srq);
        let mut sges = [sge(xrc.near.addr(), 8, xrc.ma)];
        for opcode in [IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM] {
            let mut request = rdma_wr(opcode, &mut sges, xrc.far.addr(), keys(xrc.mb).1);
            request.imm.imm_data = 0x1234;
            post(xrc.pair.qa, &mut naming(request, srqn));
            for _ in 0..100 {
                xrc.pair.a.expect_nothing();
            }
            receive(&xrc, xrc.srq, 4, 64, 64);
            xrc.pair.a.expect(IBV_WC_SUCCESS);
            let wc = xrc.pair.b.expect(IBV_WC_SUCCESS);
            assert_eq!((wc.wr_id, wc.byte_len, wc.wc_flags), (4, 8, IBV_WC_WITH_IMM));
            // SAFETY: all variants are plain numbers.
            assert_eq!(unsafe { wc.imm.imm_data }, 0x1234);
        }
        assert!(xrc.far.read(0, 8) == xrc.near.read(0, 8));
        assert!(xrc.far.read(64, 8) == xrc.near.read(0, 8));
    }

    /// A number that no queue of the domain has is an invalid request; so is one of another domain,
    /// and one of a queue that is no XRC queue or is gone.
    fn an_unknown_queue_is_an_invalid_request(link: Link) {
        let xrc = Xrc::new(link, 4096);
        let b = &xrc.pair.b;
        let elsewhere = xrcd(b.context);
        let foreign = try_srq_ex(b.context, &xrc_srq_init(b.pd, elsewhere, b.cq)).expect("a queue");
        srq_recv(foreign, 1, &mut [sge(xrc.far.addr(), 64, xrc.mb)]);
        let (gone, _) = xrc.another_srq(b.pd);
        let was = srq_number(gone);
        assert_eq!(destroy_srq(gone), 0);
        receive(&xrc, xrc.srq, 2, 0, 64);
        let before = xrc.far.read(0, 4096);
        for srqn in [srq_number(foreign), was, 0, u32::MAX, srq_number(xrc.srq) ^ 0x8000] {
            for opcode in [IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE] {
                let (qa, qb) = xrc.another();
                let mut sges = [sge(xrc.near.addr(), 8, xrc.ma)];
                let request = rdma_wr(opcode, &mut sges, xrc.far.addr(), keys(xrc.mb).1);
                post(qa, &mut naming(request, srqn));
                let wc = xrc.pair.a.expect(IBV_WC_REM_INV_REQ_ERR);
                assert_eq!((wc.wr_id, state(qa), state(qb)), (1, IBV_QPS_ERR, IBV_QPS_ERR));
                assert_eq!(b.event(), (IBV_EVENT_QP_REQ_ERR, qb.cast()));
                b.expect_nothing();
                end_qps((qa, qb));
            }
        }
        assert!(xrc.far.read(0, 4096) == before);
        // The receives are still there.
        send(&xrc, xrc.pair.qa, 0, 8, srq_number(xrc.srq));
        xrc.pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(b.expect(IBV_WC_SUCCESS).wr_id, 2);
        assert_eq!(destroy_srq(foreign), 0);
    }

    /// One-sided operations are judged by the domain of the shared queue that they name.
    /// Rules: PS-06
    fn keys_are_judged_by_the_named_queues_domain(link: Link) {
        let xrc = Xrc::new(link, 4096);
        let elsewhere = xrc.pair.b.another_pd();
        let (other, _) = xrc.another_srq(elsewhere);
        let theirs = reg(elsewhere, &xrc.far, ALL);
        let (own, foreign) = (srq_number(xrc.srq), srq_number(other));
        for opcode in [
            IBV_WR_RDMA_WRITE,
            IBV_WR_RDMA_READ,
            IBV_WR_ATOMIC_FETCH_AND_ADD,
            IBV_WR_ATOMIC_CMP_AND_SWP,
            IBV_WR_ATOMIC_WRITE,
        ] {
            for (srqn, mr, status) in [
                (own, xrc.mb, IBV_WC_SUCCESS),
                (foreign, theirs, IBV_WC_SUCCESS),
                (own, theirs, IBV_WC_REM_ACCESS_ERR),
                (foreign, xrc.mb, IBV_WC_REM_ACCESS_ERR),
            ] {
                let before = xrc.far.read(0, 4096);
                let found = xrc.op(opcode, srqn, keys(mr).1);
                assert_eq!(found, status, "opcode {opcode}");
                if status != IBV_WC_SUCCESS {
                    assert!(xrc.far.read(0, 4096) == before);
                }
            }
        }
        let untouched: Vec<_> = (8..4096).map(|at| pattern(at, 101)).collect();
        assert!(xrc.far.read(8, 4088) == untouched);
    }

    /// What moved is what should: WRITE, READ and atomics.
    fn one_sided_operations_move_the_right_bytes(link: Link) {
        let xrc = Xrc::new(link, 4096);
        let srqn = srq_number(xrc.srq);
        let key = keys(xrc.mb).1;
        assert_eq!(xrc.op(IBV_WR_RDMA_WRITE, srqn, key), IBV_WC_SUCCESS);
        assert_eq!(xrc.far.word(0), xrc.near.word(0));
        xrc.far.set_word(0, 41);
        assert_eq!(xrc.op(IBV_WR_ATOMIC_FETCH_AND_ADD, srqn, key), IBV_WC_SUCCESS);
        assert_eq!((xrc.near.word(0), xrc.far.word(0)), (41, 42));
        assert_eq!(xrc.op(IBV_WR_RDMA_READ, srqn, key), IBV_WC_SUCCESS);
        assert_eq!(xrc.near.word(0), 42);
        xrc.near.set_word(0, 99);
        assert_eq!(xrc.op(IBV_WR_ATOMIC_WRITE, srqn, key), IBV_WC_SUCCESS);
        assert_eq!(xrc.far.word(0), 99);
    }

    /// A right that the receiving end does not grant is not granted by any queue.
    /// Rules: RA-06
    fn the_receiving_end_grants_rights(link: Link) {
        let xrc = Xrc::new(link, 4096);
        let (qa, qb) = (xrc.pair.a.qp(IBV_QPT_XRC_SEND), xrc_target(xrc.pair.b.context, xrc.xrcd));
        bring_up(qa, &usual_attr(qb));
        bring_up(qb, &ibv_qp_attr { qp_access_flags: IBV_ACCESS_REMOTE_READ, ..usual_attr(qa) });
        let mut sges = [sge(xrc.near.addr(), 8, xrc.ma)];
        let mut op = |opcode| {
            let request = rdma_wr(opcode, &mut sges, xrc.far.addr(), keys(xrc.mb).1);
            post(qa, &mut naming(request, srq_number(xrc.srq)));
            xrc.pair.a.wait().status
        };
        assert_eq!(op(IBV_WR_RDMA_READ), IBV_WC_SUCCESS);
        assert_eq!(op(IBV_WR_RDMA_WRITE), IBV_WC_REM_INV_REQ_ERR);
    }

    /// Windows are bound and invalidated on the sending end as on RC.
    /// Rules: T1-10, T2-11, INV-19
    fn the_sending_end_binds_windows(link: Link) {
        let xrc = Xrc::new(link, 4096);
        let (a, qa) = (&xrc.pair.a, xrc.pair.qa);
        let range = Range { mr: xrc.ma, addr: xrc.near.addr(), length: 64, access: REMOTE };
        let one = a.mw(IBV_MW_TYPE_1);
        let before = rkey(one);
        assert_ne!(bind(a, qa, one, range), before);
        let two = a.mw(IBV_MW_TYPE_2);
        let key = bind(a, qa, two, range);
        assert_eq!(dereg(xrc.ma), libc::EBUSY);
        post(qa, &mut local_inv_wr(key));
        assert_eq!(a.expect(IBV_WC_SUCCESS).opcode, IBV_WC_LOCAL_INV);
        assert_eq!(bind1(qa, one, 1, IBV_SEND_SIGNALED, NOTHING), 0);
        a.expect(IBV_WC_SUCCESS);
        assert_eq!(dereg(xrc.ma), 0);
    }

    /// A fenced request waits for the READs before it.
    /// Rules: ORD-11, ORD-10
    fn a_fence_waits_for_reads(link: Link) {
        const LENGTH: usize = 1 << 20;
        let xrc = Xrc::new(link, LENGTH);
        let (srqn, key) = (srq_number(xrc.srq), keys(xrc.mb).1);
        for round in 0..8 {
            xrc.far.fill(round);
            let mut all = [sge(xrc.near.addr(), LENGTH as u32, xrc.ma)];
            let read = rdma_wr(IBV_WR_RDMA_READ, &mut all, xrc.far.addr(), key);
            let mut last = [sge(xrc.near.addr() + LENGTH as u64 - 8, 8, xrc.ma)];
            let mut write = rdma_wr(IBV_WR_RDMA_WRITE, &mut last, xrc.far.addr(), key);
            write.send_flags |= IBV_SEND_FENCE;
            let mut list = [naming(read, srqn), naming(write, srqn)];
            assert_eq!(try_post_list(xrc.pair.qa, &mut list), Ok(()));
            xrc.pair.a.expect(IBV_WC_SUCCESS);
            xrc.pair.a.expect(IBV_WC_SUCCESS);
            assert_eq!(xrc.far.read(0, 8), [round; 8], "what the READ brought");
        }
    }

    /// In error the sending end flushes, and the receiving end's message half received is flushed on
    /// the queue of its shared receives.
    /// Rules: ST-19, SQ-09
    fn a_message_half_received_is_flushed(link: Link) {
        let xrc = Xrc::new(link, LONG);
        let (other, cq) = xrc.another_srq(xrc.pair.b.pd);
        for wr_id in 0..2 {
            receive(&xrc, other, wr_id, 0, LONG as u32);
        }
        half_a_message(&xrc, other);
        send(&xrc, xrc.pair.qa, 0, 8, srq_number(other));
        xrc.pair.a.expect(IBV_WC_WR_FLUSH_ERR);
        assert!(poll(cq).is_none());
        assert_eq!(set_state(xrc.pair.qb, IBV_QPS_ERR), 0);
        let wc = wait(cq);
        assert_eq!((wc.status, wc.wr_id), (IBV_WC_WR_FLUSH_ERR, 0));
        assert_eq!(wc.qp_num, number(xrc.pair.qb));
        let (qa, _) = xrc.another();
        send(&xrc, qa, 0, 8, srq_number(other));
        xrc.pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(wait(cq).wr_id, 1);
        xrc.pair.b.expect_nothing();
    }

    /// A receive that was taken for a message that never ended is not for a message that names
    /// another queue: it comes back flushed.
    fn a_receive_left_over_is_of_its_own_queue(link: Link) {
        if link == Link::Wire {
            // The target expects the number of the next packet there, and not of the message.
            return;
        }
        let xrc = Xrc::new(link, 2 * LONG);
        let (other, cq) = xrc.another_srq(xrc.pair.b.pd);
        receive(&xrc, other, 7, 0, LONG as u32);
        receive(&xrc, xrc.srq, 8, LONG, LONG as u32);
        half_a_message(&xrc, other);
        begin_anew(&xrc);
        send(&xrc, xrc.pair.qa, 0, 8, srq_number(xrc.srq));
        xrc.pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(xrc.pair.b.expect(IBV_WC_SUCCESS).wr_id, 8);
        assert!(xrc.far.read(LONG, 8) == xrc.near.read(0, 8));
        let wc = wait(cq);
        assert_eq!((wc.status, wc.wr_id), (IBV_WC_WR_FLUSH_ERR, 7));
        assert_eq!((state(xrc.pair.qb), xrc.pair.b.has_event()), (IBV_QPS_RTS, false));
    }

    /// A queue that goes takes a receive along that was taken for a message: nothing is placed there
    /// any more.
    fn a_queue_that_goes_takes_its_receives_along(link: Link) {
        if link == Link::Wire {
            // The target expects the number of the next packet there, and not of the message.
            return;
        }
        let xrc = Xrc::new(link, 2 * LONG);
        let (other, cq) = xrc.another_srq(xrc.pair.b.pd);
        let was = srq_number(other);
        receive(&xrc, other, 7, 0, LONG as u32);
        half_a_message(&xrc, other);
        begin_anew(&xrc);
        assert_eq!((destroy_srq(other), destroy_cq(cq)), (0, 0));
        xrc.far.fill(0);
        send(&xrc, xrc.pair.qa, 0, 8, was);
        xrc.pair.a.expect(IBV_WC_REM_INV_REQ_ERR);
        assert!(xrc.far.is_all(0));
        assert_eq!(xrc.pair.b.event(), (IBV_EVENT_QP_REQ_ERR, xrc.pair.qb.cast()));
    }

    /// A receive that cannot take its message completes on its queue, and both ends fail.
    /// Rules: RA-52, LA-02
    fn a_bad_receive_completes_on_its_queue(link: Link) {
        let xrc = Xrc::new(link, 4096);
        let (other, cq) = xrc.another_srq(xrc.pair.b.another_pd());
        for (room, mr, at_a, at_b) in [
            (4, xrc.mb, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR),
            (64, null_mut(), IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR),
            (64, xrc.mb, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR),
        ] {
            let (qa, qb) = xrc.another();
            srq_recv(other, 3, &mut [sge(xrc.far.addr(), room, mr)]);
            send(&xrc, qa, 0, 8, srq_number(other));
            xrc.pair.a.expect(at_a);
            let wc = wait(cq);
            assert_eq!((wc.status, wc.wr_id, wc.qp_num), (at_b, 3, number(qb)));
            assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_ERR));
        }
        xrc.pair.b.expect_nothing();
    }

    /// Through another handle it is the same queue pair; it goes with the last handle.
    fn an_opened_end_holds_the_queue_pair(link: Link) {
        let xrc = Xrc::new(link, 4096);
        let (b, qb) = (&xrc.pair.b, xrc.pair.qb);
        let second = try_open_qp(b.context, xrc.xrcd, number(qb)).expect("a handle");
        assert_ne!(second, qb);
        assert_eq!((number(second), state(second)), (number(qb), IBV_QPS_RTS));
        let message = |wr_id| {
            receive(&xrc, xrc.srq, wr_id, 0, 64);
            send(&xrc, xrc.pair.qa, 0, 8, srq_number(xrc.srq));
            xrc.pair.a.expect(IBV_WC_SUCCESS);
            assert_eq!(b.expect(IBV_WC_SUCCESS).wr_id, wr_id);
        };
        message(1);
        assert_eq!((destroy_qp(qb), destroy_qp(qb)), (0, libc::ENOENT));
        message(2);
        let third = try_open_qp(b.context, xrc.xrcd, number(second)).expect("a handle");
        assert_eq!(destroy_qp(second), 0);
        message(3);
        assert_eq!(close_xrcd(b.context, xrc.xrcd), libc::EBUSY);
        assert_eq!(set_state(third, IBV_QPS_ERR), 0);
        let was = number(third);
        assert_eq!(destroy_qp(third), 0);
        assert_eq!(try_open_qp(b.context, xrc.xrcd, was).unwrap_err(), libc::ENOENT);
        give_up_soon(xrc.pair.qa);
        send(&xrc, xrc.pair.qa, 0, 8, srq_number(xrc.srq));
        xrc.pair.a.expect(IBV_WC_RETRY_EXC_ERR);
        assert_eq!((destroy_srq(xrc.srq), close_xrcd(b.context, xrc.xrcd)), (0, 0));
    }
}

/// A completion queue of shared receives that overruns is dead, and the receiving ends that complete
/// into it fail.
/// Rules: CQ-05, AE-03
#[test]
fn an_overrun_fails_the_receiving_end() {
    let xrc = Xrc::new(Link::Loopback, 4096);
    let b = &xrc.pair.b;
    let cq = try_cq(b.context, 1, null_mut()).expect("a queue");
    let init = xrc_srq_init(b.pd, xrc.xrcd, cq);
    let shared = try_srq_ex(b.context, &init).expect("a queue");
    let elsewhere = xrc_target(b.context, xrcd(b.context));
    take_to(b, elsewhere, IBV_QPS_RTS);
    // SAFETY: a live queue.
    for _ in 0..=unsafe { (*cq).cqe } {
        receive(&xrc, shared, 1, 0, 64);
        send(&xrc, xrc.pair.qa, 0, 8, srq_number(shared));
        xrc.pair.a.expect(IBV_WC_SUCCESS);
    }
    assert_eq!(b.event(), (IBV_EVENT_CQ_ERR, cq.cast()));
    assert_eq!(b.event(), (IBV_EVENT_QP_FATAL, xrc.pair.qb.cast()));
    assert_eq!((state(xrc.pair.qb), state(elsewhere)), (IBV_QPS_ERR, IBV_QPS_RTS));
    assert!(!b.has_event());
}

/// Two contexts of a process that name the same file share its domain; creating and exclusiveness
/// are as with files.
#[test]
fn contexts_share_the_domain_of_a_file() {
    let (one, two) = ends(Link::Loopback, Default::default());
    let (file, other) = (file_without_name(), file_without_name());
    let fd = file.as_raw_fd();
    let (create, exclusive) = (libc::O_CREAT, libc::O_CREAT | libc::O_EXCL);
    // Who waits for another to create it asks again.
    for flags in [0, libc::O_EXCL, libc::O_RDWR] {
        assert_eq!(try_xrcd(one.context, fd, flags).unwrap_err(), libc::EAGAIN);
    }
    let first = try_xrcd(one.context, fd, exclusive).expect("a new domain");
    for flags in [exclusive, libc::O_EXCL] {
        assert_eq!(try_xrcd(two.context, fd, flags).unwrap_err(), libc::EINVAL);
    }
    let second = try_xrcd(two.context, fd, 0).expect("the same domain");
    // Other flags mean nothing.
    let third = try_xrcd(two.context, fd, create | libc::O_RDWR).expect("the same domain");
    assert_eq!(try_xrcd(two.context, other.as_raw_fd(), 0).unwrap_err(), libc::EAGAIN);

    // A target of one context, a shared queue of the other.
    let target = xrc_target(one.context, first);
    let shared = try_srq_ex(two.context, &xrc_srq_init(two.pd, second, two.cq)).expect("a queue");
    let origin = one.qp(IBV_QPT_XRC_SEND);
    connect(origin, target);
    srq_recv(shared, 5, &mut []);
    post(origin, &mut naming(wr(IBV_WR_SEND), srq_number(shared)));
    one.expect(IBV_WC_SUCCESS);
    assert_eq!(two.expect(IBV_WC_SUCCESS).wr_id, 5);
    // The other context opens the target by its number.
    let opened = try_open_qp(two.context, third, number(target)).expect("a handle");
    assert_eq!((destroy_qp(opened), destroy_qp(target)), (0, 0));

    // The last one cannot be closed before the queue is gone, the others can.
    assert_eq!((close_xrcd(two.context, third), close_xrcd(one.context, first)), (0, 0));
    assert_eq!(close_xrcd(two.context, second), libc::EBUSY);
    assert_eq!((destroy_srq(shared), close_xrcd(two.context, second)), (0, 0));
    assert_eq!(try_xrcd(one.context, fd, 0).unwrap_err(), libc::EAGAIN);
    let again = try_xrcd(one.context, fd, exclusive).expect("a new domain");
    assert_eq!((close_xrcd(one.context, again), close_xrcd(one.context, again)), (0, libc::ENOENT));
}

/// A domain is one of its file's as long as it is open, though that has been removed and is closed: a file
/// that is made later is another, and many file systems would give it the same inode at once.
#[test]
fn a_domain_outlives_its_file() {
    let end = End::new(Default::default());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("domain-{}", process::id()));
    let make = || {
        let file = File::create_new(&path).expect("a file");
        fs::remove_file(&path).expect("the file is there");
        file
    };
    let (create, exclusive) = (libc::O_CREAT, libc::O_CREAT | libc::O_EXCL);
    let one = try_xrcd(end.context, make().as_raw_fd(), create).expect("a domain");
    let target = xrc_target(end.context, one);
    let file = make();
    assert_eq!(try_xrcd(end.context, file.as_raw_fd(), 0).unwrap_err(), libc::EAGAIN);
    let two = try_xrcd(end.context, file.as_raw_fd(), exclusive).expect("a domain of its own");
    assert_eq!(try_open_qp(end.context, two, number(target)).unwrap_err(), libc::ENOENT);
    assert_eq!((destroy_qp(target), close_xrcd(end.context, one)), (0, 0));
    assert_eq!(close_xrcd(end.context, two), 0);
}

/// Private domains are each their own, and are made anew, whatever the flags are.
#[test]
fn private_domains_are_apart() {
    let end = End::new(Default::default());
    for flags in [0, libc::O_EXCL, i32::MIN] {
        let one = try_xrcd(end.context, -1, flags).expect("a new domain");
        assert_eq!(close_xrcd(end.context, one), 0);
    }
    let (one, two) = (xrcd(end.context), xrcd(end.context));
    let target = xrc_target(end.context, one);
    assert_eq!(try_open_qp(end.context, two, number(target)).unwrap_err(), libc::ENOENT);
    assert_eq!((close_xrcd(end.context, one), close_xrcd(end.context, two)), (libc::EBUSY, 0));
    assert_eq!(try_xrc_target(end.context, two).unwrap_err(), libc::ENOENT);
    assert_eq!((destroy_qp(target), close_xrcd(end.context, one)), (0, 0));
}

/// Descriptors that are not open and missing attributes are refused.
#[test]
fn bad_domains_are_refused() {
    let end = End::new(Default::default());
    for fd in [-2, i32::MIN, i32::MAX] {
        assert_eq!(try_xrcd(end.context, fd, libc::O_CREAT).unwrap_err(), libc::EBADF);
    }
    let open = verbs(end.context).open_xrcd.expect("set");
    for comp_mask in [0, IBV_XRCD_INIT_ATTR_FD, IBV_XRCD_INIT_ATTR_OFLAGS, 7, u32::MAX] {
        let mut init = ibv_xrcd_init_attr { comp_mask, fd: -1, oflags: libc::O_CREAT };
        // SAFETY: an open context.
        assert!(unsafe { open(end.context, &mut init) }.is_null());
        assert_eq!(errno(), libc::EINVAL);
    }
    // SAFETY: null, which is refused.
    assert!(unsafe { open(end.context, null_mut()) }.is_null());
    assert_ne!(close_xrcd(end.context, null_mut()), 0);
}

/// A shared queue for XRC needs its domain and a completion queue, and is for no queue pair by
/// itself; a plain one has no number.
/// Rules: CR-07, CR-19
#[test]
fn an_xrc_queue_is_for_xrc_only() {
    let end = End::new(Default::default());
    let domain = xrcd(end.context);
    let whole = xrc_srq_init(end.pd, domain, end.cq);
    let shared = try_srq_ex(end.context, &whole).expect("a queue");
    for kind in [IBV_QPT_RC, IBV_QPT_UD, IBV_QPT_UC, IBV_QPT_XRC_SEND] {
        let mut init = ibv_qp_init_attr { srq: shared, ..end.init(kind) };
        assert_eq!(try_qp(end.pd, &mut init), Err(libc::EINVAL), "type {kind}");
    }
    assert_eq!(try_srq_number(srq(end.pd, 4)), Err(libc::EOPNOTSUPP));
    for missing in [IBV_SRQ_INIT_ATTR_XRCD, IBV_SRQ_INIT_ATTR_CQ, IBV_SRQ_INIT_ATTR_PD] {
        let part = ibv_srq_init_attr_ex { comp_mask: whole.comp_mask & !missing, ..whole };
        assert_eq!(try_srq_ex(end.context, &part), Err(libc::EINVAL));
    }
    for bad in [
        ibv_srq_init_attr_ex { xrcd: null_mut(), ..whole },
        ibv_srq_init_attr_ex { cq: null_mut(), ..whole },
        ibv_srq_init_attr_ex { pd: null_mut(), ..whole },
        ibv_srq_init_attr_ex { srq_type: IBV_SRQT_TM, ..whole },
        ibv_srq_init_attr_ex { srq_type: 77, ..whole },
        ibv_srq_init_attr_ex { comp_mask: u32::MAX, ..whole },
        ibv_srq_init_attr_ex { attr: ibv_srq_attr::default(), ..whole },
    ] {
        assert!(try_srq_ex(end.context, &bad).is_err());
    }
    assert_eq!(close_xrcd(end.context, domain), libc::EBUSY);
    assert_eq!(destroy_cq(end.cq), libc::EBUSY);
    assert_eq!(destroy_srq(shared), 0);
    assert_eq!(try_srq_number(shared), Err(libc::ENOENT));
    assert_eq!((close_xrcd(end.context, domain), destroy_cq(end.cq)), (0, 0));
}

/// Each end has the queues it needs: the sending end no receives, the receiving end none at all.
/// Rules: CR-07, PS-11, PS-06
#[test]
fn each_end_has_its_own_queues() {
    let xrc = Xrc::new(Link::Loopback, 4096);
    let (qa, qb) = (xrc.pair.qa, xrc.pair.qb);
    let cap = query(qa).cap;
    assert_eq!((cap.max_recv_wr, cap.max_recv_sge, cap.max_send_wr), (0, 0, 64));
    assert_eq!(query(qb).cap, ibv_qp_cap::default());
    assert_eq!(try_recv(qa, 1, &mut []), libc::EINVAL);
    assert_eq!(try_recv(qb, 1, &mut []), libc::EINVAL);
    assert_eq!(try_post(qb, &mut naming(wr(IBV_WR_SEND), srq_number(xrc.srq))), libc::EINVAL);
    let range = Range { mr: xrc.mb, addr: xrc.far.addr(), length: 64, access: REMOTE };
    let mw = xrc.pair.b.mw(IBV_MW_TYPE_1);
    assert_eq!(bind1(qb, mw, 1, IBV_SEND_SIGNALED, range), libc::EINVAL);
    // The plain verb cannot name a domain.
    let mut init = xrc.pair.b.init(IBV_QPT_XRC_RECV);
    assert_eq!(try_qp(xrc.pair.b.pd, &mut init), Err(libc::EINVAL));
    for bad in [null_mut(), xrc.xrcd] {
        let open = try_open_qp(xrc.pair.b.context, bad, 0xff_fffe);
        assert!(open.is_err());
    }
    // A queue pair that is no receiving end is not opened.
    let rc = xrc.pair.b.qp(IBV_QPT_RC);
    for qp in [rc, qa] {
        let open = try_open_qp(xrc.pair.b.context, xrc.xrcd, number(qp));
        assert_eq!(open.unwrap_err(), libc::ENOENT);
    }
}

/// What `comp_mask` does not name is not looked at, also where the verb is refused.
/// Rules: CR-19, PS-06
#[test]
fn a_domain_that_is_not_given_may_be_anything() {
    let xrc = Xrc::new(Link::Loopback, 4096);
    let context = xrc.pair.b.context;
    let anything = std::ptr::without_provenance_mut(8);
    let mut init = ibv_qp_init_attr_ex {
        qp_type: IBV_QPT_XRC_RECV,
        comp_mask: IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        xrcd: xrc.xrcd,
        pd: anything,
        send_ops_flags: 1,
        ..Default::default()
    };
    // SAFETY: an open context, and a domain of this test.
    let qp = unsafe { verbs(context).create_qp_ex.expect("never null")(context, &mut init) };
    assert_eq!((qp.is_null(), errno()), (true, libc::EOPNOTSUPP));
    let mut init = ibv_srq_init_attr_ex { pd: anything, ..Default::default() };
    // SAFETY: as above.
    let srq = unsafe { verbs(context).create_srq_ex.expect("never null")(context, &mut init) };
    assert_eq!((srq.is_null(), errno()), (true, libc::EINVAL));
}

/// A context takes its ends, queues and domains along when it is closed.
#[test]
fn a_context_takes_everything_along() {
    let mut xrc = Xrc::new(Link::Loopback, 4096);
    xrc.pair.b.close();
    assert_eq!((destroy_qp(xrc.pair.qb), destroy_srq(xrc.srq)), (libc::ENOENT, libc::ENOENT));
    send(&xrc, xrc.pair.qa, 0, 8, 0);
    xrc.pair.a.expect(IBV_WC_RETRY_EXC_ERR);
}
