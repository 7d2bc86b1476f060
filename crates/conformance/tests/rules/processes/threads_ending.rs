//! What one thread ends while others use it, or what is around it: an end waits, or is refused and
//! then nobody notices.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc;
use std::thread::scope;

use transom_abi::*;
use transom_conformance::datagrams::*;
use transom_conformance::harness::*;
use transom_conformance::memory::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;
use transom_conformance::shared_receive::*;
use transom_conformance::xrc::*;
use transom_ibverbs::*;

/// How often each thing is used.
const TRIES: usize = 1000;

/// A call; zero or an errno.
type Attempt<'a> = Box<dyn Fn() -> i32 + 'a>;

/// A program cannot end an object in use, and a thread that uses it meanwhile does not see the attempt: each pair
/// is an end that is refused and a use that succeeds.
/// Rules: PD-02, CR-12, CR-17, DR-03
#[test]
fn a_refused_end_disturbs_nobody() {
    let pair = Pair::rc(Link::Loopback);
    let (end, context) = (&pair.a, pair.a.context);
    let buffer = Buffer::new(4096);
    let mr = end.reg(&buffer, ALL);
    let range = Range { mr, addr: buffer.addr(), length: 8, access: IBV_ACCESS_REMOTE_READ };
    bind(end, pair.qa, end.mw(IBV_MW_TYPE_2), range);
    let srq = srq(end.pd, 4);
    qp_of_srq(end, IBV_QPT_RC, srq);
    let xrcd = xrcd(context);
    let xrc = xrc_srq_init(end.pd, xrcd, end.cq);
    try_srq_ex(context, &xrc).expect("a queue");
    let dm = alloc_dm(context, 4096);
    let zero_based = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE;
    try_reg_dm(end.pd, dm, 0, 64, zero_based).expect("a region");
    let td = alloc_td(context);
    try_parent(context, parent_attr(end.pd, td)).expect("a domain");
    let channel = channel(context);
    try_cq(context, 1, channel).expect("a queue");
    let member = ud_qp(end);
    let mut raw = [0; 16];
    raw[0] = 0xff;
    // SAFETY: a live queue pair and a GID.
    assert_eq!(unsafe { ibv_attach_mcast(member, &ibv_gid { raw }, 0) }, 0);

    let with_qp = |change: &dyn Fn(&mut ibv_qp_init_attr)| {
        let mut init = end.init(IBV_QPT_RC);
        change(&mut init);
        try_qp(end.pd, &mut init).map_or_else(|errno| errno, destroy_qp)
    };
    let attempts: [(&str, Attempt<'_>, Attempt<'_>); 9] = [
        (
            "domain",
            Box::new(|| dealloc_pd(end.pd)),
            Box::new(|| try_reg(end.pd, buffer.addr(), 8, 0).map_or_else(|errno| errno, dereg)),
        ),
        ("completion queue", Box::new(|| destroy_cq(end.cq)), Box::new(|| with_qp(&|_| ()))),
        (
            "shared receive queue",
            Box::new(|| destroy_srq(srq)),
            Box::new(|| with_qp(&|init| init.srq = srq)),
        ),
        (
            "XRC domain",
            Box::new(|| close_xrcd(context, xrcd)),
            Box::new(|| try_srq_ex(context, &xrc).map_or_else(|errno| errno, destroy_srq)),
        ),
        ("device memory", Box::new(|| free_dm(dm)), Box::new(|| to_dm(dm, 0, buffer.addr(), 64))),
        (
            "thread domain",
            Box::new(|| dealloc_td(context, td)),
            Box::new(|| {
                let parent = try_parent(context, parent_attr(end.pd, td));
                parent.map_or_else(|errno| errno, dealloc_pd)
            }),
        ),
        (
            "channel",
            // SAFETY: a live channel.
            Box::new(|| unsafe { ibv_destroy_comp_channel(channel) }),
            Box::new(|| try_cq(context, 1, channel).map_or_else(|errno| errno, destroy_cq)),
        ),
        (
            "region",
            Box::new(|| dereg(mr)),
            Box::new(|| {
                // SAFETY: a live region's number.
                let again = import_mr(end.pd, unsafe { (*mr).handle });
                again.map_or_else(
                    |errno| errno,
                    |second| {
                        // SAFETY: a second name, given up.
                        unsafe { ibv_unimport_mr(second) };
                        0
                    },
                )
            }),
        ),
        (
            "member of a group",
            Box::new(|| destroy_qp(member)),
            Box::new(|| {
                let received = try_recv(member, 1, &mut []);
                let error = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..Default::default() };
                let moved = modify_with(member, &error, IBV_QP_STATE);
                let flushed = wait(end.cq).wr_id == 1;
                let reset = ibv_qp_attr { qp_state: IBV_QPS_RESET, ..Default::default() };
                let moved = moved.max(modify_with(member, &reset, IBV_QP_STATE));
                bring_up_ud(member, QKEY);
                received.max(moved).max(i32::from(!flushed))
            }),
        ),
    ];
    for (name, refused, used) in &attempts {
        let (refused, used) = (Across::new(refused), Across::new(used));
        let done = AtomicBool::new(false);
        scope(|threads| {
            threads.spawn(|| {
                while !done.load(Acquire) {
                    assert_eq!(refused.get()(), libc::EBUSY, "{name} ended");
                }
            });
            let over = Over(&done);
            let errors: Vec<i32> = (0..TRIES).map(|_| used.get()()).filter(|it| *it != 0).collect();
            drop(over);
            assert!(errors.is_empty(), "{name}: {} times {errors:?}", errors.len());
        });
    }
}

on_each_link! {
    /// Events are taken in one thread and acknowledged in another; what they are of is ended only when
    /// that is done.
    /// Rules: CR-18, AE-06
    fn events_are_acknowledged_elsewhere(link: Link) {
        let pair = &Pair::rc(link);
        let near = Buffer::new(4096);
        let (ma, channel) = (pair.a.reg(&near, ALL), channel(pair.b.context));
        let (events, acknowledge) = mpsc::channel::<Across<(*mut ibv_cq, ibv_async_event)>>();
        scope(|threads| {
            threads.spawn(move || {
                for event in acknowledge {
                    // SAFETY: delivered and not acknowledged so far, so what they are of is there.
                    unsafe {
                        let (cq, mut event) = event.get();
                        ibv_ack_async_event(&mut event);
                        ibv_ack_cq_events(cq, 1);
                    }
                }
            });
            for number in 0..100 {
                let cq = try_cq(pair.b.context, 16, channel).expect("a queue");
                let mut init = ibv_qp_init_attr { recv_cq: cq, ..pair.b.init(IBV_QPT_RC) };
                let (qa, qb) = (pair.a.qp(IBV_QPT_RC), pair.b.qp_with(&mut init));
                connect(qa, qb);
                assert_eq!(arm(cq, false), 0);
                recv(qb, number, &mut []);
                post(qa, &mut wr(IBV_WR_SEND));
                pair.a.expect(IBV_WC_SUCCESS);
                let (mut woken, mut context) = (null_mut(), null_mut());
                // SAFETY: a live channel, and places for the answers.
                assert_eq!(unsafe { ibv_get_cq_event(channel, &mut woken, &mut context) }, 0);
                assert_eq!((woken, wait(cq).wr_id), (cq, number));
                // What is refused is an event of the queue pair that refused it.
                let mut sges = [sge(near.addr(), 8, ma)];
                post(qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, 0x1000, 0x1234_5678));
                pair.a.expect(IBV_WC_REM_ACCESS_ERR);
                until("the event", || pair.b.has_event().then_some(()));
                let mut event = ibv_async_event::default();
                // SAFETY: an open context; the thread above acknowledges what it delivers.
                assert_eq!(unsafe { ibv_get_async_event(pair.b.context, &mut event) }, 0);
                assert_eq!(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
                events.send(Across::new((woken, event))).expect("the thread listens");
                assert_eq!((destroy_qp(qb), destroy_qp(qa), destroy_cq(cq)), (0, 0, 0));
            }
            drop(events);
        });
        // SAFETY: a live channel that nothing uses any more.
        assert_eq!(unsafe { ibv_destroy_comp_channel(channel) }, 0);
    }
}
