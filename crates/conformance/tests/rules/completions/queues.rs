//! Completion queues: what a poll returns, what a completion says, resizing and overrunning.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::thread;

use transom_abi::*;
use transom_conformance::extended::{cq_ex, end_poll, flushing, start_poll};
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;

fn send(wr_id: u64) -> ibv_send_wr {
    ibv_send_wr { wr_id, ..wr(IBV_WR_SEND) }
}

/// `ibv_poll_cq` as it is: the count, and the entries filled.
fn poll_some(cq: *mut ibv_cq, limit: i32) -> (i32, Vec<ibv_wc>) {
    let mut wcs = vec![ibv_wc { wr_id: u64::MAX, ..ibv_wc::default() }; 16];
    assert!(limit <= 16);
    // SAFETY: a live queue, and room for so many completions.
    let count =
        unsafe { (*(*cq).context).ops.poll_cq.expect("never null")(cq, limit, wcs.as_mut_ptr()) };
    wcs.truncate(count.max(0) as usize);
    (count, wcs)
}

fn ids(wcs: &[ibv_wc]) -> Vec<u64> {
    wcs.iter().map(|wc| wc.wr_id).collect()
}

/// `ibv_resize_cq`; zero or an errno.
fn resize(cq: *mut ibv_cq, cqe: i32) -> i32 {
    // SAFETY: a live queue.
    unsafe { transom_ibverbs::ibv_resize_cq(cq, cqe) }
}

/// A poll takes as many as it may, in order, and says how many; they are gone then.
/// Rules: CQ-01
#[test]
fn a_poll_takes_what_it_counts() {
    let end = End::new(Default::default());
    assert_eq!(poll_some(end.cq, 16).0, 0);
    let qp = flushing(&end, end.cq);
    for wr_id in 0..3 {
        recv(qp, wr_id, &mut []);
    }
    assert_eq!(poll_some(end.cq, 0).0, 0);
    let (count, wcs) = poll_some(end.cq, 2);
    assert_eq!((count, ids(&wcs)), (2, vec![0, 1]));
    let (count, wcs) = poll_some(end.cq, 2);
    assert_eq!((count, ids(&wcs)), (1, vec![2]));
    assert_eq!(poll_some(end.cq, 2).0, 0);
    recv(qp, 3, &mut []);
    assert_eq!(poll_some(end.cq, -1).0, -1);
    assert_eq!(ids(&poll_some(end.cq, 16).1), [3]);
}

/// Keeps this thread on one processor.
fn stay_on(processor: usize) {
    // SAFETY: a set of bits, all zero at first, of this call's own.
    let answer = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set)
    };
    assert_eq!(answer, 0, "this thread runs there already");
}

/// A poll that finds nothing may let others run, and looks again then: it says what there is at its end. A program
/// that next hears that its peer has gone has had all that came before.
/// Rules: CQ-01
#[test]
fn a_poll_that_let_others_run_looks_again() {
    const ROUNDS: u64 = 100;
    let end = End::new(Default::default());
    let extended = cq_ex(end.context);
    let [plain_cq, extended_cq] = [end.cq, extended.cast()].map(Across::new);
    let took_plain = || poll_some(plain_cq.get(), 1).0 > 0;
    let took_extended = || {
        let found = start_poll(extended_cq.get().cast()) == 0;
        if found {
            end_poll(extended_cq.get().cast());
        }
        found
    };
    let ways: [(_, &(dyn Fn() -> bool + Sync)); 2] =
        [(plain_cq, &took_plain), (extended_cq, &took_extended)];
    // SAFETY: it only says where this thread runs.
    let processor = unsafe { libc::sched_getcpu() }.try_into().expect("it runs somewhere");
    for (cq, took) in ways {
        let qp = Across::new(flushing(&end, cq.get()));
        let [awaited, posted] = [const { AtomicU64::new(0) }; 2];
        let late = thread::scope(|scope| {
            // It has the processor only when the other lets it.
            scope.spawn(|| {
                stay_on(processor);
                for round in 1..=ROUNDS {
                    while awaited.load(Acquire) < round {
                        thread::yield_now();
                    }
                    recv(qp.get(), round, &mut []);
                    posted.store(round, Release);
                }
            });
            let poller = scope.spawn(|| {
                stay_on(processor);
                let mut late = 0;
                for round in 1..=ROUNDS {
                    awaited.store(round, Release);
                    while !took() {
                        late += u64::from(posted.load(Acquire) == round);
                    }
                }
                late
            });
            poller.join().expect("it polls")
        });
        // It may lose the processor between its poll and its look.
        assert!(late < ROUNDS / 2, "{late} of {ROUNDS} polls missed what was there");
    }
}

on_each_link! {
    /// Completions say what was done, how long it was, and for which queue pair.
    /// Rules: CQ-03, CQ-04, WC-00
    fn completions_say_what_was_done(link: Link) {
        let pair = Pair::rc(link);
        let (near, far) = (Buffer::filled(8192, 1), Buffer::new(8192));
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        let key = keys(mb).1;
        let window = pair.b.mw(IBV_MW_TYPE_2);
        let range = Range { mr: mb, addr: far.addr(), length: 64, access: REMOTE };
        let bound = bind(&pair.b, pair.qb, window, range);
        for (opcode, sent, received) in [
            (IBV_WR_SEND, IBV_WC_SEND, Some(IBV_WC_RECV)),
            (IBV_WR_SEND_WITH_IMM, IBV_WC_SEND, Some(IBV_WC_RECV)),
            (IBV_WR_SEND_WITH_INV, IBV_WC_SEND, Some(IBV_WC_RECV)),
            (IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, None),
            (IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE, Some(IBV_WC_RECV_RDMA_WITH_IMM)),
            (IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, None),
            (IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP, None),
            (IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD, None),
        ] {
            let atomic = matches!(opcode, IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD);
            let length = if atomic { 8 } else { 4097 };
            if received.is_some() {
                recv(pair.qb, 70, &mut [sge(far.addr(), 8192, mb)]);
            }
            let mut sges = [sge(near.addr(), length, ma)];
            let mut wr = rdma_wr(opcode, &mut sges, far.addr(), key);
            if atomic {
                wr = atomic_wr(opcode, &mut sges, far.addr(), key, 0, 0);
            }
            if opcode == IBV_WR_SEND_WITH_INV {
                wr.imm.invalidate_rkey = bound;
            }
            wr.wr_id = 0xdead_beef_0000_0001;
            post(pair.qa, &mut wr);
            let wc = pair.a.expect(IBV_WC_SUCCESS);
            assert_eq!((wc.wr_id, wc.opcode), (wr.wr_id, sent), "opcode {opcode}");
            assert_eq!((wc.qp_num, wc.vendor_err), (number(pair.qa), 0));
            if atomic || opcode == IBV_WR_RDMA_READ {
                assert_eq!(wc.byte_len, length, "opcode {opcode}");
            }
            let Some(received) = received else { continue };
            let wc = pair.b.expect(IBV_WC_SUCCESS);
            assert_eq!((wc.wr_id, wc.opcode, wc.byte_len), (70, received, length));
            assert_eq!(wc.qp_num, number(pair.qb));
        }
        // Local operations; `bind` and this check their opcodes.
        let bound = bind(&pair.b, pair.qb, window, range);
        post(pair.qb, &mut local_inv_wr(bound));
        assert_eq!(pair.b.expect(IBV_WC_SUCCESS).opcode, IBV_WC_LOCAL_INV);
        pair.b.expect_nothing();
    }

    /// A failed request says which, on which queue pair, how and why; the opcode too.
    /// Rules: CQ-02
    fn a_failed_completion_says_which_request(link: Link) {
        for (opcode, says, status) in [
            (IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR),
            (IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, IBV_WC_REM_ACCESS_ERR),
            (IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD, IBV_WC_REM_ACCESS_ERR),
            (IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP, IBV_WC_REM_ACCESS_ERR),
            (IBV_WR_LOCAL_INV, IBV_WC_LOCAL_INV, IBV_WC_MW_BIND_ERR),
            (IBV_WR_BIND_MW, IBV_WC_BIND_MW, IBV_WC_MW_BIND_ERR),
        ] {
            let pair = Pair::rc(link);
            let near = Buffer::new(4096);
            let ma = pair.a.reg(&near, ALL);
            let mut sges = [sge(near.addr(), 8, ma)];
            let mut wr = match opcode {
                IBV_WR_LOCAL_INV => local_inv_wr(0x1234_5678),
                IBV_WR_BIND_MW => {
                    let beyond = near.addr() + 4096;
                    let range = Range { mr: ma, addr: beyond, length: 8, access: REMOTE };
                    bind2_wr(pair.a.mw(IBV_MW_TYPE_2), 1, range)
                }
                _ => rdma_wr(opcode, &mut sges, 0x1000, 0x1234_5678),
            };
            if says == IBV_WC_FETCH_ADD || says == IBV_WC_COMP_SWAP {
                wr = atomic_wr(opcode, &mut sges, 0x1000, 0x1234_5678, 0, 0);
            }
            (wr.wr_id, wr.send_flags) = (9, 0);
            post(pair.qa, &mut wr);
            post(pair.qa, &mut send(10));
            let wc = pair.a.expect(status);
            assert_eq!((wc.wr_id, wc.qp_num, wc.opcode), (9, number(pair.qa), says));
            if status == IBV_WC_MW_BIND_ERR {
                assert_ne!(wc.vendor_err, 0, "the reason is at hand");
            }
            let wc = pair.a.expect(IBV_WC_WR_FLUSH_ERR);
            assert_eq!((wc.wr_id, wc.qp_num), (10, number(pair.qa)));
        }
    }

    /// A completion too many makes the queue unusable, and fails the queue pairs that complete
    /// there, of either direction; others go on.
    /// Rules: CQ-05, AE-03, AE-04
    fn an_overrun_ends_the_queue_and_its_queue_pairs(link: Link) {
        let pair = Pair::rc(link);
        let far = Buffer::new(4096);
        let key = keys(pair.b.reg(&far, ALL)).1;
        let small = try_cq(pair.a.context, 6, null_mut()).unwrap();
        // SAFETY: a live queue.
        let room = unsafe { (*small).cqe };
        let with = |send_cq, recv_cq| ibv_qp_init_attr {
            send_cq,
            recv_cq,
            ..pair.a.init(IBV_QPT_RC)
        };
        let busy = pair.a.qp_with(&mut with(small, pair.a.cq));
        let receiving = pair.a.qp_with(&mut with(pair.a.cq, small));
        let busy_peer = pair.b.qp(IBV_QPT_RC);
        connect(busy, busy_peer);
        take_to(&pair.a, receiving, IBV_QPS_RTS);
        recv(receiving, 1, &mut []);
        recv(busy, 2, &mut []);
        for _ in 0..room + 10 {
            let mut write = rdma_wr(IBV_WR_RDMA_WRITE, &mut [], far.addr(), key);
            post(busy, &mut write);
        }
        let mut events = Vec::new();
        while events.len() < 3 {
            until("an event", || pair.a.has_event().then_some(()));
            events.push(pair.a.event());
        }
        assert_eq!(events[0], (IBV_EVENT_CQ_ERR, small.cast()));
        for qp in [busy, receiving] {
            assert!(events.contains(&(IBV_EVENT_QP_FATAL, qp.cast())), "{events:?}");
            assert_eq!(state(qp), IBV_QPS_ERR);
        }
        assert!(poll_some(small, 4).0 < 0);
        // What they have in other queues is flushed there.
        let wc = pair.a.expect(IBV_WC_WR_FLUSH_ERR);
        assert_eq!((wc.wr_id, wc.qp_num), (2, number(busy)));
        // A queue pair with other queues has not noticed.
        recv(pair.qb, 3, &mut []);
        post(pair.qa, &mut send(4));
        assert_eq!(pair.a.expect(IBV_WC_SUCCESS).wr_id, 4);
        assert!(!pair.a.has_event());
        assert!(poll_some(small, 4).0 < 0);
        assert_eq!((destroy_qp(busy), destroy_qp(receiving), destroy_cq(small)), (0, 0, 0));
    }
}

/// As many completions as there is room for are no overrun; taking some makes room.
/// Rules: CQ-05
#[test]
fn a_full_queue_is_no_overrun() {
    let end = End::new(Default::default());
    let cq = try_cq(end.context, 4, null_mut()).unwrap();
    // SAFETY: a live queue.
    let room = unsafe { (*cq).cqe } as u64;
    let qp = flushing(&end, cq);
    for round in 0..5 {
        for at in 0..room {
            recv(qp, round * room + at, &mut []);
        }
        assert!(!end.has_event());
        let done = wait_for(cq, room as usize);
        assert_eq!(ids(&done), (round * room..(round + 1) * room).collect::<Vec<_>>());
    }
}

/// A receive that is flushed as it is posted can be the one too many: the others are told at once.
/// Rules: CQ-05
#[test]
fn a_flushed_receive_can_overrun() {
    let end = End::new(Default::default());
    let cq = try_cq(end.context, 1, null_mut()).unwrap();
    // SAFETY: a live queue.
    let room = unsafe { (*cq).cqe };
    let (failed, other) = (flushing(&end, cq), end.qp(IBV_QPT_RC));
    assert_eq!(destroy_qp(other), 0);
    let other = end.qp_with(&mut ibv_qp_init_attr { recv_cq: cq, ..end.init(IBV_QPT_RC) });
    take_to(&end, other, IBV_QPS_RTS);
    for _ in 0..=room {
        recv(failed, 1, &mut []);
    }
    assert_eq!(state(other), IBV_QPS_ERR);
    assert_eq!(end.event(), (IBV_EVENT_CQ_ERR, cq.cast()));
    assert_eq!(end.event(), (IBV_EVENT_QP_FATAL, other.cast()));
}

/// A queue without a channel can be armed; nothing comes of it.
/// Rules: CQ-12
#[test]
fn a_queue_without_a_channel_can_be_armed() {
    let end = End::new(Default::default());
    let qp = flushing(&end, end.cq);
    for solicited in [false, true] {
        assert_eq!(arm(end.cq, solicited), 0);
        recv(qp, 1, &mut []);
        end.expect(IBV_WC_WR_FLUSH_ERR);
    }
    assert!(!end.has_event());
}

/// A queue can be made larger and smaller, but not smaller than what waits in it, which stays.
/// Rules: CQ-14
#[test]
fn a_queue_keeps_its_completions_when_resized() {
    let end = End::new(Default::default());
    let cq = try_cq(end.context, 20, null_mut()).unwrap();
    // SAFETY: a live queue.
    let size = || unsafe { (*cq).cqe };
    let qp = flushing(&end, cq);
    for wr_id in 0..10 {
        recv(qp, wr_id, &mut []);
    }
    let before = size();
    for bad in [5, 7, 0, -1, device_attr(end.context).max_cqe + 1] {
        assert_eq!(resize(cq, bad), libc::EINVAL, "{bad}");
    }
    assert_eq!(size(), before);
    assert_eq!(ids(&poll_some(cq, 3).1), [0, 1, 2]);
    assert_eq!(resize(cq, 100), 0);
    assert!(size() >= 100);
    // The room is real.
    for wr_id in 10..103 {
        recv(qp, wr_id, &mut []);
    }
    assert!(!end.has_event());
    assert_eq!(ids(&wait_for(cq, 93)), (3..96).collect::<Vec<_>>());
    // As small as what waits; then one more is too many.
    assert_eq!(resize(cq, 7), 0);
    let smaller = size();
    assert!(smaller >= 7);
    assert_eq!(ids(&wait_for(cq, 7)), (96..103).collect::<Vec<_>>());
    for wr_id in 0..=smaller {
        recv(qp, wr_id as u64, &mut []);
    }
    assert_eq!(end.event(), (IBV_EVENT_CQ_ERR, cq.cast()));
}

/// Completions of an ended queue pair may be there or not; those of others stay, in order.
/// Rules: CQ-17
#[test]
fn ending_a_queue_pair_leaves_the_completions_of_others() {
    let end = End::new(Default::default());
    let (first, second) = (flushing(&end, end.cq), flushing(&end, end.cq));
    let gone = number(first);
    for wr_id in 0..20 {
        recv(if wr_id % 2 == 0 { first } else { second }, wr_id, &mut []);
    }
    assert_eq!(destroy_qp(first), 0);
    recv(second, 21, &mut []);
    let mut found = Vec::new();
    until("the last completion", || {
        found.extend(poll(end.cq));
        found.last().is_some_and(|wc| wc.wr_id == 21).then_some(())
    });
    let (of_gone, of_other): (Vec<_>, Vec<_>) = found.into_iter().partition(|wc| wc.qp_num == gone);
    assert_eq!(ids(&of_other), (0..10).map(|n| 2 * n + 1).chain([21]).collect::<Vec<_>>());
    assert!(of_gone.iter().all(|wc| wc.wr_id % 2 == 0 && wc.status == IBV_WC_WR_FLUSH_ERR));
    end.expect_nothing();
}
