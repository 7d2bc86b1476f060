//! `EBUSY` says what holds the object.

use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::datagrams::{ah, here};
use transom_conformance::extended::verbs;
use transom_conformance::harness::*;
use transom_conformance::queues::*;
use transom_conformance::shared_receive::srq;
use transom_device::qp::QpNumber;
use transom_ibverbs::*;
use transom_system::registry::Registry;

/// The last call of the process of a queue pair that was refused.
fn last(qp: *mut ibv_qp) -> String {
    let registry = Registry::open().expect("the registry");
    let calls = registry.refused_calls(QpNumber::from_bits(number(qp)).slot());
    calls.last().map_or_else(String::new, |record| record.call.to_string())
}

/// Which window, bound by whom, as which work request, and how long ago.
/// Rules: EX-04, DR-03, RR-12
#[test]
fn a_region_says_which_windows_are_bound_to_it() {
    let end = End::new(Default::default());
    let (buffer, qp) = (Buffer::new(4096), end.qp(IBV_QPT_RC));
    let mr = end.reg(&buffer, ALL | IBV_ACCESS_MW_BIND as i32);
    connect(qp, end.qp(IBV_QPT_RC));
    let (one, two) = (end.mw(IBV_MW_TYPE_2), end.mw(IBV_MW_TYPE_2));
    let range = Range { mr, addr: buffer.addr(), length: 64, access: IBV_ACCESS_REMOTE_READ };
    let key = bind(&end, qp, one, range);
    assert_eq!(dereg(mr), libc::EBUSY);
    let told = last(qp);
    let window = format!(
        "a window is bound to the region, with key {key:#010x}, by QP {:#x} as wr_id ",
        number(qp)
    );
    assert!(told.starts_with("ibv_dereg_mr answered EBUSY: ") && told.contains(&window), "{told}");
    assert!(told.contains(" before. Invalidate it") && told.ends_with("(rule DR-03)"), "{told}");
    bind(&end, qp, two, range);
    let access = Change { access: Some(ALL), ..Change::default() };
    assert!(rereg(mr, access).is_err());
    let told = last(qp);
    assert!(
        told.contains(
            "ibv_rereg_mr answered EBUSY: 2 windows are bound to the region; one, with key"
        ),
        "{told}"
    );
}

/// Rules: EX-04, PD-02, CR-12, CR-16, CR-17
#[test]
fn what_is_in_use_says_by_what() {
    let end = End::new(Default::default());
    let (pd, probe) = (end.another_pd(), end.qp(IBV_QPT_RC));
    let expect = |answer, words: &str| {
        assert_eq!(answer, libc::EBUSY, "{words}");
        let told = last(probe);
        assert!(told.contains(words), "{words}: {told}");
    };
    // Of a domain all kinds, and one by its name.
    let buffer = Buffer::new(4096);
    let mr = reg(pd, &buffer, ALL);
    let mw = alloc_mw(pd, IBV_MW_TYPE_2).expect("a window");
    let handle = ah(pd, &here());
    let queue = srq(pd, 8);
    let words = format!(
        "ibv_dealloc_pd answered EBUSY: still there: 1 memory region (with key {:#010x}), 1 memory window, 1 shared \
         receive queue, 1 address handle. Destroy these first (rule PD-02)",
        keys(mr).0
    );
    expect(dealloc_pd(pd), &words);
    assert_eq!((dereg(mr), dealloc_mw(mw)), (0, 0));
    // SAFETY: live objects.
    unsafe {
        assert_eq!(ibv_destroy_ah(handle), 0);
        let channel = channel(end.context);
        let cq = ibv_create_cq(end.context, 4, null_mut(), channel, 0);
        let mut init =
            ibv_qp_init_attr { send_cq: cq, recv_cq: cq, srq: queue, ..end.init(IBV_QPT_RC) };
        let qp = ibv_create_qp(pd, &mut init);
        assert!(!qp.is_null());
        let named = format!(
            "still there: 1 queue pair (with number {:#x}). Destroy these first",
            number(qp)
        );
        expect(destroy_cq(cq), &format!("ibv_destroy_cq answered EBUSY: {named}"));
        expect(ibv_destroy_srq(queue), &format!("ibv_destroy_srq answered EBUSY: {named}"));
        expect(
            ibv_destroy_comp_channel(channel),
            "ibv_destroy_comp_channel answered EBUSY: still there: 1 completion queue.",
        );
        assert_eq!((destroy_qp(qp), destroy_cq(cq), ibv_destroy_srq(queue)), (0, 0, 0));
        assert_eq!((ibv_destroy_comp_channel(channel), dealloc_pd(pd)), (0, 0));

        let verbs = verbs(end.context);
        let td = verbs.alloc_td.expect("there")(end.context, &mut ibv_td_init_attr::default());
        let mut parent = ibv_parent_domain_init_attr { pd: end.pd, td, ..Default::default() };
        let parent = verbs.alloc_parent_domain.expect("there")(end.context, &mut parent);
        assert!(!parent.is_null());
        expect(
            verbs.dealloc_td.expect("there")(td),
            "ibv_dealloc_td answered EBUSY: still there: 1 parent domain.",
        );
    }
}

/// Rules: EX-04, CR-18
#[test]
fn a_destroy_that_waits_for_an_acknowledgement_says_so() {
    let end = End::new(Default::default());
    let (probe, channel) = (end.qp(IBV_QPT_RC), channel(end.context));
    let cq = try_cq(end.context, 4, channel).expect("a queue");
    let qp = end.qp_with(&mut ibv_qp_init_attr { recv_cq: cq, ..end.init(IBV_QPT_RC) });
    connect(qp, probe);
    assert_eq!(arm(cq, false), 0);
    recv(qp, 1, &mut []);
    assert_eq!(set_state(qp, IBV_QPS_ERR), 0);
    until("a completion event", || has_cq_event(channel).then_some(()));
    let (mut found, mut context) = (null_mut(), null_mut());
    // SAFETY: a live channel, and places for the answers.
    assert_eq!(unsafe { ibv_get_cq_event(channel, &mut found, &mut context) }, 0);
    assert_eq!(found, cq);
    assert_eq!(destroy_qp(qp), 0);
    let queue = Across::new(cq);
    let destroy = || assert_eq!(destroy_cq(queue.get()), 0);
    let words = "ibv_destroy_cq waits for ibv_ack_cq_events to be called for 1 more";
    blocks_until(destroy, || {
        until("it is told", || last(probe).starts_with(words).then_some(()));
        // SAFETY: a live queue.
        unsafe { ibv_ack_cq_events(queue.get(), 1) };
    });
}
