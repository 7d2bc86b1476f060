//! Protection domains: what holds them, and what an unknown one is answered (rules A.1).

use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::path_of;
use transom_conformance::processes::{Way, alone};
use transom_host::{Adapter, Options};
use transom_ibverbs::*;

fn end() -> End {
    End::new(Options::default())
}

/// A domain that was never allocated, as a confused program would have it.
fn unknown_pd(end: &End) -> ibv_pd {
    ibv_pd { context: end.context, handle: u32::MAX }
}

#[test]
fn pd_01_a_domain_belongs_to_its_context() {
    let adapter = Adapter::open(Options::default()).expect("a device opens");
    let ends = [adapter.clone(), adapter].map(End::of_device);
    for end in &ends {
        // SAFETY: a live domain.
        assert_eq!(unsafe { (*end.another_pd()).context }, end.context);
    }
}

#[test]
fn pd_02_a_region_holds_its_domain() {
    let end = end();
    let pd = end.another_pd();
    let mr = reg(pd, &Buffer::new(4096), 0);
    assert_eq!(dealloc_pd(pd), libc::EBUSY);
    assert_eq!(dereg(mr), 0);
    assert_eq!(dealloc_pd(pd), 0);
}

#[test]
fn pd_03_a_window_holds_its_domain_bound_or_not() {
    let end = end();
    for kind in [IBV_MW_TYPE_1, IBV_MW_TYPE_2] {
        let pd = end.another_pd();
        let mw = alloc_mw(pd, kind).expect("a window");
        assert_eq!(dealloc_pd(pd), libc::EBUSY);
        assert_eq!(dealloc_mw(mw), 0);
        assert_eq!(dealloc_pd(pd), 0);
    }
}

#[test]
fn pd_04_a_queue_pair_holds_its_domain() {
    let end = end();
    let pd = end.another_pd();
    let other = end.with_pd(pd);
    for kind in [IBV_QPT_RC, IBV_QPT_UC] {
        let qp = other.qp(kind);
        assert_eq!(dealloc_pd(pd), libc::EBUSY);
        // SAFETY: a live queue pair, not used afterwards.
        assert_eq!(unsafe { ibv_destroy_qp(qp) }, 0);
    }
    assert_eq!(dealloc_pd(pd), 0);
}

#[test]
fn pd_07_an_unknown_domain_cannot_be_freed() {
    let end = end();
    assert_eq!(dealloc_pd(&mut unknown_pd(&end)), libc::ENOENT);
    let pd = end.another_pd();
    assert_eq!(dealloc_pd(pd), 0);
    assert_eq!(dealloc_pd(pd), libc::ENOENT, "freed already");
}

#[test]
fn pd_08_nothing_is_made_in_an_unknown_domain() {
    let end = end();
    let freed = end.another_pd();
    assert_eq!(dealloc_pd(freed), 0);
    let buffer = Buffer::new(4096);
    for pd in [&raw mut *Box::leak(Box::new(unknown_pd(&end))), freed] {
        let mr = try_reg(pd, buffer.addr(), 4096, 0);
        assert!(matches!(mr, Err(libc::ENOENT | libc::EINVAL)), "{mr:?}");
        for kind in [IBV_MW_TYPE_1, IBV_MW_TYPE_2] {
            let mw = alloc_mw(pd, kind);
            assert!(matches!(mw, Err(libc::ENOENT | libc::EINVAL)), "{mw:?}");
        }
        // SAFETY: the domain's struct is readable, though it names nothing.
        let qp = unsafe { ibv_create_qp(pd, &mut end.init(IBV_QPT_RC)) };
        assert_eq!(qp, null_mut());
        assert!(matches!(errno(), libc::ENOENT | libc::EINVAL));
    }
}

on_each_link! {
    /// A domain that could not be freed, and all in it, works as before.
    /// Rules: PD-09
    fn refused_dealloc_changes_nothing(link: Link) {
        let pair = Pair::rc(link);
        let (near, far) = (Buffer::filled(4096, 7), Buffer::new(4096));
        let (ma, mb) = (pair.a.reg(&near, 0), pair.b.reg(&far, ALL));
        for end in [&pair.a, &pair.b] {
            assert_eq!(dealloc_pd(end.pd), libc::EBUSY);
        }
        let mut sges = [sge(near.addr(), 4096, ma)];
        post(pair.qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, far.addr(), keys(mb).1));
        pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(far.read(0, 4096), near.read(0, 4096));
        // It still takes new members, too.
        assert_eq!(dereg(pair.b.reg(&far, ALL)), 0);
    }
}

#[test]
fn pd_11_there_are_max_pd_domains_and_no_more() {
    alone(path_of!("pd_11_there_are_max_pd_domains_and_no_more"), Way::Direct, || {
        let end = end();
        // SAFETY: an open context.
        let allocate = || unsafe { ibv_alloc_pd(end.context) };
        // The end has one itself.
        let all: Vec<_> = (1..device_attr(end.context).max_pd).map(|_| allocate()).collect();
        assert!(all.iter().all(|pd| !pd.is_null()));
        assert_eq!((allocate(), errno()), (null_mut(), libc::ENOMEM));
        assert_eq!(dealloc_pd(all[0]), 0);
        assert!(!allocate().is_null(), "one was freed");
    });
}
