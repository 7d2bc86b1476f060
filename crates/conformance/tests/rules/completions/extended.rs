//! Extended completion queues: what a batch reads, whose turn it is, what a queue can be asked for.

use std::collections::BTreeSet;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{SystemTime, UNIX_EPOCH};

use transom_abi::*;
use transom_conformance::extended::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;
use transom_ibverbs::*;

fn end() -> End {
    End::new(Default::default())
}

fn plain(cq: *mut ibv_cq_ex) -> *mut ibv_cq {
    cq.cast()
}

fn refused(context: *mut ibv_context, attr: &ibv_cq_init_attr_ex) -> i32 {
    try_cq_ex(context, attr).expect_err("it must be refused")
}

/// The fields of a completion but the number of its queue pair, to compare with another's.
fn fields(wc: &ibv_wc) -> String {
    format!("{:?}", ibv_wc { qp_num: 0, ..*wc }) + &format!(" {}", immediate(wc))
}

fn immediate(wc: &ibv_wc) -> u32 {
    // SAFETY: both members are plain words.
    unsafe { wc.imm.imm_data }
}

/// Runs most operations between two ends whose queue pairs complete into these queues, and fails
/// at last: seven completions at the origin, three at the target.
fn run_operations(pair: &Pair, cqa: *mut ibv_cq, cqb: *mut ibv_cq) -> (u32, u32) {
    let (a, b) = (&pair.a, &pair.b);
    let qa = a.qp_with(&mut ibv_qp_init_attr { send_cq: cqa, recv_cq: cqa, ..a.init(IBV_QPT_RC) });
    let qb = b.qp_with(&mut ibv_qp_init_attr { send_cq: cqb, recv_cq: cqb, ..b.init(IBV_QPT_RC) });
    connect(qa, qb);
    let (near, far) = (Buffer::filled(4096, 1), Buffer::new(4096));
    let (local, remote) = (a.reg(&near, ALL), b.reg(&far, ALL));
    let (to, key) = (far.addr(), keys(remote).1);
    for wr_id in 10..13 {
        recv(qb, wr_id, &mut [sge(far.addr() + 2048, 1000, remote)]);
    }
    let at = |length| [sge(near.addr(), length, local)];
    let post_as = |wr_id, wr: ibv_send_wr| {
        let imm = ibv_send_wr_imm { imm_data: 0x0102_0304 };
        post(qa, &mut ibv_send_wr { wr_id, imm, ..wr });
    };
    post_as(1, with_sges(wr(IBV_WR_SEND_WITH_IMM), &mut at(100)));
    post_as(2, rdma_wr(IBV_WR_RDMA_WRITE, &mut at(64), to, key));
    post_as(3, rdma_wr(IBV_WR_RDMA_READ, &mut at(32), to, key));
    post_as(4, atomic_wr(IBV_WR_ATOMIC_FETCH_AND_ADD, &mut at(8), to, key, 1, 0));
    post_as(5, rdma_wr(IBV_WR_RDMA_WRITE_WITH_IMM, &mut at(48), to, key));
    post_as(6, rdma_wr(IBV_WR_RDMA_WRITE, &mut at(8), to, key ^ 0xff));
    until("the queue pair to fail", || {
        // Makes progress, and takes no completion from the queues under test.
        poll(a.cq);
        poll(b.cq);
        (state(qa) == IBV_QPS_ERR).then_some(())
    });
    post_as(7, wr(IBV_WR_SEND));
    (number(qa), number(qb))
}

on_each_link! {
    /// Each field of a completion reads as `ibv_poll_cq` says it.
    /// Rules: CQ-02, CQ-03, CQ-04
    fn every_field_reads_as_it_is_polled(link: Link) {
        let pair = Pair::unconnected(link, IBV_QPT_RC);
        let (context_a, context_b) = (pair.a.context, pair.b.context);
        let [cqa, cqb] = [context_a, context_b].map(|on| try_cq(on, 64, null_mut()).unwrap());
        run_operations(&pair, cqa, cqb);
        let (sent, received) = (wait_for(cqa, 7), wait_for(cqb, 3));

        let (exa, exb) = (cq_ex(context_a), cq_ex(context_b));
        let (qa, qb) = run_operations(&pair, plain(exa), plain(exb));
        let (read_sent, read_received) = (take_ex(exa, 7, read_wc), take_ex(exb, 3, read_wc));
        for (polled, read, qp) in [(sent, read_sent, qa), (received, read_received, qb)] {
            for (polled, read) in polled.iter().zip(&read) {
                assert_eq!(fields(polled), fields(read));
                assert_eq!(read.qp_num, qp);
            }
        }
    }

    /// A completion's time is when it was added, by the device's clock and by that on the wall.
    fn times_rise_and_are_true(link: Link) {
        let wall = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        let pair = Pair::unconnected(link, IBV_QPT_RC);
        let context = pair.b.context;
        let cq = cq_ex(context);
        let qb = pair.b.qp_with(&mut ibv_qp_init_attr {
            recv_cq: plain(cq),
            ..pair.b.init(IBV_QPT_RC)
        });
        connect(pair.qa, qb);
        let (mut before, mut last) = ((raw_clock(context), wall()), 0);
        for wr_id in 0..20 {
            recv(qb, wr_id, &mut []);
            post(pair.qa, &mut wr(IBV_WR_SEND));
            let (ticks, on_the_wall) = take_ex(cq, 1, read_times)[0];
            let after = (raw_clock(context), wall());
            assert!(last < ticks && before.0 <= ticks && ticks <= after.0, "{ticks}");
            // The two clocks are read one after the other.
            let slack = 1_000_000;
            assert!(before.1 < on_the_wall + slack && on_the_wall < after.1 + slack);
            (before, last) = (after, ticks);
            pair.a.expect(IBV_WC_SUCCESS);
        }
    }
}

/// An empty queue begins no batch, and is as good as before; a batch ends with the last completion.
#[test]
fn a_batch_has_what_is_there() {
    let end = end();
    let cq = cq_ex(end.context);
    let qp = flushing(&end, plain(cq));
    for count in [0, 1, 5, 0, 2] {
        (0..count).for_each(|wr_id| recv(qp, wr_id, &mut []));
        let taken = take_batch(cq, |cq| read_wc(cq).wr_id);
        assert_eq!(taken, (0..count).collect::<Vec<_>>());
    }
    // What comes within a batch belongs to it.
    recv(qp, 7, &mut []);
    assert_eq!(start_poll(cq), 0);
    assert_eq!(next_poll(cq), libc::ENOENT);
    recv(qp, 8, &mut []);
    assert_eq!(next_poll(cq), 0);
    assert_eq!((read_wc(cq).wr_id, read_wc(cq).status), (8, IBV_WC_WR_FLUSH_ERR));
    end_poll(cq);
    assert_eq!(start_poll(cq), libc::ENOENT);
}

/// A batch that never began is not ended, and unknown or missing attributes begin none.
#[test]
fn wrong_polls_are_harmless() {
    let end = end();
    let cq = cq_ex(end.context);
    recv(flushing(&end, plain(cq)), 3, &mut []);
    end_poll(cq);
    // SAFETY: a live queue; the operation checks its attributes.
    let start = |attr| unsafe { (*cq).start_poll.expect("always there")(cq, attr) };
    assert_eq!(start(&mut ibv_poll_cq_attr { comp_mask: 1 }), libc::EINVAL);
    assert_eq!(start(null_mut()), libc::EINVAL);
    assert_eq!(take_batch(cq, |cq| read_wc(cq).wr_id), [3]);
}

/// While one thread reads a batch, another waits for its turn.
#[test]
fn one_thread_polls_at_a_time() {
    let end = end();
    let cq = cq_ex(end.context);
    let qp = flushing(&end, plain(cq));
    (0..2).for_each(|wr_id| recv(qp, wr_id, &mut []));
    assert_eq!(start_poll(cq), 0);
    let shared = Across::new(cq);
    let waits = move || {
        let cq = shared.get();
        assert_eq!(start_poll(cq), 0);
        assert_eq!(read_wc(cq).wr_id, 1);
        end_poll(cq);
    };
    blocks_until(waits, || {
        assert_eq!(read_wc(cq).wr_id, 0);
        end_poll(cq);
    });
}

/// Threads that poll one queue take each completion once, in the order of each thread, whether
/// field by field or not.
#[test]
fn threads_lose_and_double_nothing() {
    const COUNT: usize = 20_000;
    let end = end();
    let cq = cq_ex(end.context);
    let shared = Across::new((cq, flushing(&end, plain(cq))));
    let (taken, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    let all = Mutex::new(BTreeSet::new());
    let note = |ids: Vec<u64>| {
        assert!(ids.is_sorted());
        taken.fetch_add(ids.len(), SeqCst);
        let mut all = all.lock().unwrap();
        assert!(ids.into_iter().all(|id| all.insert(id)), "taken twice");
    };
    std::thread::scope(|scope| {
        for poller in 0..3 {
            let (note, done) = (&note, &done);
            scope.spawn(move || {
                let cq = shared.get().0;
                while !done.load(SeqCst) {
                    note(match poller {
                        0 => poll(plain(cq)).into_iter().map(|wc| wc.wr_id).collect(),
                        _ => take_batch(cq, |cq| read_wc(cq).wr_id),
                    });
                    std::thread::yield_now();
                }
            });
        }
        let _over = Over(&done);
        for id in 0..COUNT {
            until("room", || (id - taken.load(SeqCst).min(id) < 4000).then_some(()));
            recv(shared.get().1, id as u64, &mut []);
        }
        until("the rest", || (taken.load(SeqCst) == COUNT).then_some(()));
    });
    assert_eq!(all.into_inner().unwrap().len(), COUNT);
}

/// A queue of one thread reads the same.
#[test]
fn a_queue_for_one_thread_works_without_turns() {
    let end = end();
    let attr = ibv_cq_init_attr_ex {
        comp_mask: IBV_CQ_INIT_ATTR_MASK_FLAGS,
        flags: IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
        ..cq_attr(FIELDS)
    };
    let cq = try_cq_ex(end.context, &attr).unwrap();
    let qp = flushing(&end, plain(cq));
    (0..9).for_each(|wr_id| recv(qp, wr_id, &mut []));
    assert_eq!(take_batch(cq, |cq| read_wc(cq).wr_id), (0..9).collect::<Vec<_>>());
}

/// Only what is asked for can be read; three operations and three fields are always there.
#[test]
fn fields_are_there_that_are_asked_for() {
    let end = end();
    for bit in (0..12).map(|bit| 1_u32 << bit).chain([0, IBV_WC_STANDARD_FLAGS, FIELDS]) {
        if bit & !FIELDS != 0 {
            assert_eq!(refused(end.context, &cq_attr(bit)), libc::EOPNOTSUPP);
            continue;
        }
        let cq = try_cq_ex(end.context, &cq_attr(bit)).unwrap();
        // SAFETY: a live queue.
        let queue = unsafe { &*cq };
        assert!(queue.start_poll.is_some() && queue.next_poll.is_some());
        assert!(queue.end_poll.is_some() && queue.read_opcode.is_some());
        assert!(queue.read_vendor_err.is_some() && queue.read_wc_flags.is_some());
        let there = [
            (IBV_WC_EX_WITH_BYTE_LEN, queue.read_byte_len.is_some()),
            (IBV_WC_EX_WITH_IMM, queue.read_imm_data.is_some()),
            (IBV_WC_EX_WITH_QP_NUM, queue.read_qp_num.is_some()),
            (IBV_WC_EX_WITH_SRC_QP, queue.read_src_qp.is_some()),
            (IBV_WC_EX_WITH_SLID, queue.read_slid.is_some()),
            (IBV_WC_EX_WITH_SL, queue.read_sl.is_some()),
            (IBV_WC_EX_WITH_DLID_PATH_BITS, queue.read_dlid_path_bits.is_some()),
            (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, queue.read_completion_ts.is_some()),
            (
                IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
                queue.read_completion_wallclock_ns.is_some(),
            ),
            (IBV_WC_EX_WITH_CVLAN, queue.read_cvlan.is_some()),
            (IBV_WC_EX_WITH_FLOW_TAG, queue.read_flow_tag.is_some()),
            (IBV_WC_EX_WITH_TM_INFO, queue.read_tm_info.is_some()),
        ];
        for (field, there) in there {
            assert_eq!(there, bit & field != 0, "field {field:#x} of {bit:#x}");
        }
        assert_eq!(destroy_cq(plain(cq)), 0);
    }
}

/// What the device does not know, or no queue can have, is refused.
/// Rules: CR-13, CR-14, CR-15
#[test]
fn wrong_attributes_are_refused() {
    let end = end();
    let good = cq_attr(0);
    let most = device_attr(end.context).max_cqe as u32;
    let flags = |flags, comp_mask| ibv_cq_init_attr_ex { flags, comp_mask, ..good };
    let wrong = [
        (ibv_cq_init_attr_ex { cqe: 0, ..good }, libc::EINVAL),
        (ibv_cq_init_attr_ex { cqe: most + 1, ..good }, libc::EINVAL),
        (ibv_cq_init_attr_ex { cqe: u32::MAX, ..good }, libc::EINVAL),
        (ibv_cq_init_attr_ex { comp_vector: 1, ..good }, libc::EINVAL),
        (ibv_cq_init_attr_ex { comp_vector: u32::MAX, ..good }, libc::EINVAL),
        (ibv_cq_init_attr_ex { wc_flags: 1 << 12, ..good }, libc::EOPNOTSUPP),
        (ibv_cq_init_attr_ex { wc_flags: 1 << 63, ..good }, libc::EOPNOTSUPP),
        (flags(0, 4), libc::EINVAL),
        (flags(0, 1 << 31), libc::EINVAL),
        (flags(4, IBV_CQ_INIT_ATTR_MASK_FLAGS), libc::EOPNOTSUPP),
        (flags(0, IBV_CQ_INIT_ATTR_MASK_PD), libc::EINVAL),
    ];
    for (attr, errno) in wrong {
        assert_eq!(refused(end.context, &attr), errno, "{attr:?}");
    }
    // SAFETY: the operation checks its attributes.
    let none = unsafe { verbs(end.context).create_cq_ex.unwrap()(end.context, null_mut()) };
    assert_eq!((none, errno()), (null_mut(), libc::EINVAL));
    // Without the mask the flags say nothing.
    let cq = try_cq_ex(end.context, &flags(u32::MAX, 0)).unwrap();
    assert_eq!(destroy_cq(plain(cq)), 0);
}

/// A parent domain cannot go before the queue that uses it, and is one of the same context.
#[test]
fn a_parent_domain_is_kept() {
    let (end, other) = (end(), end());
    let parent = end.another_pd();
    let with = |parent_domain| ibv_cq_init_attr_ex {
        comp_mask: IBV_CQ_INIT_ATTR_MASK_PD,
        parent_domain,
        ..cq_attr(0)
    };
    assert_eq!(refused(end.context, &with(other.pd)), libc::EINVAL);
    let cq = try_cq_ex(end.context, &with(parent)).unwrap();
    assert_eq!(dealloc_pd(parent), libc::EBUSY);
    assert_eq!(destroy_cq(plain(cq)), 0);
    assert_eq!(dealloc_pd(parent), 0);
    assert_eq!(refused(end.context, &with(parent)), libc::ENOENT);
}

/// Cast to an ordinary queue it is one: polled, armed, resized, destroyed once.
/// Rules: CQ-01, CQ-06, CQ-14, CR-12
#[test]
fn it_is_an_ordinary_queue_as_well() {
    let end = end();
    let channel = channel(end.context);
    let mine = (&raw const end).cast_mut().cast();
    let attr = ibv_cq_init_attr_ex { cqe: 8, channel, cq_context: mine, ..cq_attr(FIELDS) };
    let cq = try_cq_ex(end.context, &attr).unwrap();
    // SAFETY: a live queue.
    let seen = unsafe { &*plain(cq) };
    assert_eq!((seen.context, seen.channel, seen.cq_context), (end.context, channel, mine));
    assert!(seen.cqe >= 8);
    let qp = flushing(&end, plain(cq));
    assert_eq!(arm(plain(cq), false), 0);
    recv(qp, 4, &mut []);
    assert_eq!(cq_event(channel), plain(cq));
    assert_eq!(wait(plain(cq)).wr_id, 4);
    // SAFETY: a live queue.
    assert_eq!(unsafe { ibv_resize_cq(plain(cq), 100) }, 0);
    // SAFETY: a live queue.
    assert!(unsafe { (*cq).cqe } >= 100);
    assert_eq!(destroy_cq(plain(cq)), libc::EBUSY);
    assert_eq!(destroy_qp(qp), 0);
    assert_eq!(destroy_cq(plain(cq)), 0);
    assert_eq!(destroy_cq(plain(cq)), libc::ENOENT);
}

/// A queue that has overrun begins no batch; one that ignores it goes on with the latest.
/// Rules: CQ-05
#[test]
fn a_full_queue_fails_unless_it_may_lose() {
    let end = end();
    let small = ibv_cq_init_attr_ex { cqe: 4, ..cq_attr(FIELDS) };
    let losing = ibv_cq_init_attr_ex {
        comp_mask: IBV_CQ_INIT_ATTR_MASK_FLAGS,
        flags: IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
        ..small
    };
    let cq = try_cq_ex(end.context, &losing).unwrap();
    // SAFETY: a live queue.
    let room = unsafe { (*plain(cq)).cqe } as u64;
    let qp = flushing(&end, plain(cq));
    (0..2 * room).for_each(|wr_id| recv(qp, wr_id, &mut []));
    assert!(!end.has_event());
    let latest: Vec<_> = (room..2 * room).collect();
    assert_eq!(take_batch(cq, |cq| read_wc(cq).wr_id), latest);

    let cq = try_cq_ex(end.context, &small).unwrap();
    let qp = flushing(&end, plain(cq));
    (0..=room).for_each(|wr_id| recv(qp, wr_id, &mut []));
    assert_eq!(end.event(), (IBV_EVENT_CQ_ERR, cq.cast()));
    assert_eq!(start_poll(cq), libc::EIO);
    assert_eq!(start_poll(cq), libc::EIO);
}
