//! Parent domains and thread domains: what they stand for, and what holds them.

use std::ffi::c_void;
use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::memory::*;
use transom_conformance::on_each_link;
use transom_host::Options;
use transom_ibverbs::*;

fn end() -> End {
    End::new(Options::default())
}

/// Rules: PD-10
#[test]
fn a_parent_domain_is_a_child_of_its_domain() {
    let end = end();
    let pd = end.another_pd();
    let parent = try_parent(end.context, parent_attr(pd, NO_TD)).expect("a parent domain");
    // SAFETY: a live domain.
    assert_eq!(unsafe { (*parent).context }, end.context);
    assert_eq!(dealloc_pd(pd), libc::EBUSY);
    assert_eq!(dealloc_pd(parent), 0);
    assert_eq!(dealloc_pd(parent), libc::ENOENT);
    assert_eq!(dealloc_pd(pd), 0);
}

/// What is made in a parent domain holds it.
/// Rules: PD-02, PD-03, PD-04, PD-10
#[test]
fn a_parent_domain_has_children() {
    let end = end();
    let parent = try_parent(end.context, parent_attr(end.pd, NO_TD)).expect("a parent domain");
    let within = end.with_pd(parent);
    let mr = within.reg(&Buffer::new(4096), ALL);
    assert_eq!(dealloc_pd(parent), libc::EBUSY);
    assert_eq!(dereg(mr), 0);
    for kind in [IBV_MW_TYPE_1, IBV_MW_TYPE_2] {
        let mw = within.mw(kind);
        assert_eq!(dealloc_pd(parent), libc::EBUSY);
        assert_eq!(dealloc_mw(mw), 0);
    }
    let qp = within.qp(IBV_QPT_RC);
    assert_eq!(dealloc_pd(parent), libc::EBUSY);
    // SAFETY: a live queue pair, not used afterwards.
    assert_eq!(unsafe { ibv_destroy_qp(qp) }, 0);
    // One parent domain may stand for another.
    let grandparent = try_parent(within.context, parent_attr(parent, NO_TD)).expect("another");
    assert_eq!(dealloc_pd(parent), libc::EBUSY);
    assert_eq!(dealloc_pd(grandparent), 0);
    assert_eq!(dealloc_pd(parent), 0);
}

#[test]
fn a_parent_domain_holds_its_thread_domain() {
    let end = end();
    let td = alloc_td(end.context);
    let parents = [(); 2].map(|()| try_parent(end.context, parent_attr(end.pd, td)));
    for parent in parents {
        assert_eq!(dealloc_td(end.context, td), libc::EBUSY);
        assert_eq!(dealloc_pd(parent.expect("a parent domain")), 0);
    }
    assert_eq!(dealloc_td(end.context, td), 0);
    assert_eq!(dealloc_td(end.context, td), libc::ENOENT);
    assert_eq!(dealloc_td(end.context, null_mut()), libc::EINVAL);
    let gone = try_parent(end.context, parent_attr(end.pd, td));
    assert!(matches!(gone, Err(libc::ENOENT | libc::EINVAL)), "{gone:?}");
    // The refused one holds nothing.
    let pd = end.another_pd();
    assert!(try_parent(end.context, parent_attr(pd, td)).is_err());
    assert_eq!(dealloc_pd(pd), 0);
}

unsafe extern "C" fn alloc(
    _pd: *mut ibv_pd,
    _context: *mut c_void,
    _size: usize,
    _alignment: usize,
    _kind: u64,
) -> *mut c_void {
    IBV_ALLOCATOR_USE_DEFAULT
}

unsafe extern "C" fn free(_: *mut ibv_pd, _: *mut c_void, _: *mut c_void, _: u64) {}

/// Rules: PD-18
#[test]
fn attributes_are_checked() {
    let end = end();
    let plain = parent_attr(end.pd, NO_TD);
    let with = |comp_mask| ibv_parent_domain_init_attr { comp_mask, ..plain };
    let allocators = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
    let context = IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    let both = ibv_parent_domain_init_attr { alloc: Some(alloc), free: Some(free), ..plain };
    for attr in [
        plain,
        with(context),
        with(IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC),
        ibv_parent_domain_init_attr { comp_mask: allocators, ..both },
        ibv_parent_domain_init_attr { comp_mask: allocators | context, ..both },
    ] {
        assert_eq!(dealloc_pd(try_parent(end.context, attr).expect("a parent domain")), 0);
    }
    let half = ibv_parent_domain_init_attr { free: None, comp_mask: allocators, ..both };
    for attr in [with(1 << 3), with(u32::MAX), with(allocators), half] {
        assert_eq!(try_parent(end.context, attr), Err(libc::EINVAL), "{attr:?}");
    }
    for pd in [null_mut(), unknown_pd(end.context)] {
        let refused = try_parent(end.context, parent_attr(pd, NO_TD));
        assert!(matches!(refused, Err(libc::ENOENT | libc::EINVAL)), "{refused:?}");
    }
    let alloc_td = transom_conformance::extended::verbs(end.context).alloc_td.expect("it is there");
    // SAFETY: an open context; the attributes are null or live.
    unsafe {
        let mut unknown = ibv_td_init_attr { comp_mask: 1 };
        assert_eq!((alloc_td(end.context, &mut unknown), errno()), (null_mut(), libc::EINVAL));
        assert_eq!((alloc_td(end.context, null_mut()), errno()), (null_mut(), libc::EINVAL));
    }
}

#[test]
fn a_context_takes_its_domains_along() {
    let mut end = end();
    let td = alloc_td(end.context);
    let parent = try_parent(end.context, parent_attr(end.pd, td)).expect("a parent domain");
    let qp = end.with_pd(parent).qp(IBV_QPT_RC);
    assert!(!qp.is_null());
    end.close();
}

on_each_link! {
    /// A queue pair in a parent domain uses regions of the domain it stands for, and the other way.
    /// Rules: PD-10
    fn a_parent_domain_stands_for_its_domain(link: Link) {
        let (a, b) = ends(link, Options::default());
        let td = alloc_td(a.context);
        let parent = |end: &End, td| {
            try_parent(end.context, parent_attr(end.pd, td)).expect("a parent domain")
        };
        let (parent_a, parent_b) = (parent(&a, td), parent(&b, NO_TD));
        let (near, far) = (Buffer::filled(4096, 3), Buffer::new(4096));
        let (ma, mb) = (reg(a.pd, &near, ALL), reg(parent_b, &far, ALL));
        let qa = a.with_pd(parent_a).qp(IBV_QPT_RC);
        let qb = b.qp(IBV_QPT_RC);
        connect(qa, qb);
        let mut sges = [sge(near.addr(), 4096, ma)];
        post(qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, far.addr(), keys(mb).1));
        assert_eq!(wait(a.cq).status, IBV_WC_SUCCESS);
        assert_eq!(far.read(0, 4096), near.read(0, 4096));
        // A stranger's region is no more theirs than it was.
        let stranger = reg(b.another_pd(), &far, ALL);
        post(qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, far.addr(), keys(stranger).1));
        assert_eq!(wait(a.cq).status, IBV_WC_REM_ACCESS_ERR);
    }
}
