//! Imports: one more context of a device, and second names for its objects.

use std::os::fd::AsRawFd;
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

fn pd_handle(pd: *mut ibv_pd) -> u32 {
    // SAFETY: a domain of this test; its struct stays readable.
    unsafe { (*pd).handle }
}

fn mr_handle(mr: *mut ibv_mr) -> u32 {
    // SAFETY: a region of this test; its struct stays readable.
    unsafe { (*mr).handle }
}

fn close(context: *mut ibv_context) {
    // SAFETY: an open context, not used afterwards.
    assert_eq!(unsafe { ibv_close_device(context) }, 0);
}

/// Whether a descriptor is open.
fn is_open(fd: i32) -> bool {
    // SAFETY: this only asks the kernel about the number.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

#[test]
fn a_context_has_a_descriptor_that_names_its_device() {
    let (end, other) = (end(), end());
    // SAFETY: an open context.
    let fd = unsafe { (*end.context).cmd_fd };
    assert!(is_open(fd));
    let imported = import_context(end.context);
    // SAFETY: an open context.
    let theirs = unsafe { (*imported).cmd_fd };
    assert!(theirs >= 0 && theirs != fd);
    // It is of that device and no other: handles mean something there.
    assert!(import_pd(imported, pd_handle(end.pd)).is_ok());
    assert_eq!(import_pd(imported, pd_handle(other.pd)), Err(libc::ENOENT));
    assert_eq!(device_attr(imported).max_qp, device_attr(end.context).max_qp);
    // An import of an import is one as well.
    let again = import_context(imported);
    assert!(import_pd(again, pd_handle(end.pd)).is_ok());
    close(again);
    close(imported);
    assert!(is_open(fd), "the first context's descriptor is its own");
    let mr = end.reg(&Buffer::new(4096), ALL);
    assert_eq!(dereg(mr), 0);
}

#[test]
fn other_descriptors_are_refused() {
    let refused = |fd| {
        let context = ibv_import_device(fd);
        assert_eq!(context, null_mut());
        errno()
    };
    assert_eq!(refused(-1), libc::EBADF);
    assert_eq!(refused(i32::MAX), libc::EBADF);
    let file = std::fs::File::open("/proc/self/exe").expect("this program");
    assert_eq!(refused(file.as_raw_fd()), libc::EINVAL);
    assert!(is_open(file.as_raw_fd()), "a refused descriptor stays the caller's");
    // A device's descriptor, but not of this process: another process's looks like this one.
    // SAFETY: a name that ends in zero.
    let foreign = unsafe { libc::memfd_create(c"transom".as_ptr(), libc::MFD_CLOEXEC) };
    assert_eq!(refused(foreign), libc::EOPNOTSUPP);
    // SAFETY: made above.
    unsafe { libc::close(foreign) };
}

on_each_link! {
    /// What is made under a second name of a domain works with what is made under the first, and an
    /// imported region grants what it granted.
    fn imported_objects_carry_data(link: Link) {
        let (a, b) = ends(link, Options::default());
        let (near, far) = (Buffer::filled(4096, 8), Buffer::new(4096));
        let (ma, mb) = (a.reg(&near, ALL), b.reg(&far, ALL));
        let context = import_context(b.context);
        let pd = import_pd(context, pd_handle(b.pd)).expect("a domain");
        let mr = import_mr(pd, mr_handle(mb)).expect("a region");
        // SAFETY: a live region.
        let imported = unsafe { &*mr };
        assert_eq!((imported.context, imported.pd, imported.addr), (context, pd, null_mut()));
        assert_eq!((imported.length, keys(mr)), (4096, keys(mb)));
        // A queue pair of the imported domain, with completions of the importing context.
        // SAFETY: an open context.
        let cq = unsafe { ibv_create_cq(context, 16, null_mut(), null_mut(), 0) };
        let qb = End::of(context, pd, cq).qp(IBV_QPT_RC);
        let qa = a.qp(IBV_QPT_RC);
        connect(qa, qb);
        let mut sges = [sge(near.addr(), 4096, ma)];
        post(qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, far.addr(), keys(mr).1));
        a.expect(IBV_WC_SUCCESS);
        assert_eq!(far.read(0, 4096), near.read(0, 4096));
        recv(qb, 1, &mut [sge(far.addr(), 4096, mr)]);
        post(qa, &mut with_sges(wr(IBV_WR_SEND), &mut sges));
        a.expect(IBV_WC_SUCCESS);
        assert_eq!(wait(cq).status, IBV_WC_SUCCESS);
        // SAFETY: names and objects of this test, not used afterwards.
        unsafe {
            assert_eq!(ibv_destroy_qp(qb), 0);
            ibv_unimport_mr(mr);
            ibv_unimport_pd(pd);
        }
        close(context);
        // The first names are good as ever.
        let (qa, qb) = (a.qp(IBV_QPT_RC), b.qp(IBV_QPT_RC));
        connect(qa, qb);
        post(qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, far.addr(), keys(mb).1));
        a.expect(IBV_WC_SUCCESS);
        assert_eq!(dereg(mb), 0);
    }
}

/// An object ends under one of its names, and then it has ended under all of them; what is left of
/// the others can still be given up.
#[test]
fn an_object_ends_under_one_of_its_names() {
    let end = end();
    let context = import_context(end.context);
    let dm = alloc_dm(end.context, 64);
    // SAFETY: live device memory.
    let dm_handle = unsafe { (*dm).handle };
    for import_ends_it in [false, true] {
        let pd = end.another_pd();
        let mr = reg(pd, &Buffer::new(4096), ALL);
        let pd2 = import_pd(context, pd_handle(pd)).expect("a domain");
        let mr2 = import_mr(pd2, mr_handle(mr)).expect("a region");
        assert_eq!((dealloc_pd(pd), dealloc_pd(pd2)), (libc::EBUSY, libc::EBUSY));
        let (first, second) = if import_ends_it { (mr2, mr) } else { (mr, mr2) };
        assert_eq!((dereg(first), dereg(first), dereg(second)), (0, libc::ENOENT, libc::ENOENT));
        assert_eq!(import_mr(pd2, mr_handle(mr)), Err(libc::ENOENT));
        let (first, second) = if import_ends_it { (pd2, pd) } else { (pd, pd2) };
        assert_eq!((dealloc_pd(first), dealloc_pd(second)), (0, libc::ENOENT));
        let buffer = Buffer::new(4096);
        let refused = try_reg(second, buffer.addr(), 4096, 0);
        assert!(matches!(refused, Err(libc::ENOENT | libc::EINVAL)), "{refused:?}");
        // SAFETY: names of this test, not used afterwards.
        unsafe {
            ibv_unimport_mr(mr2);
            ibv_unimport_pd(pd2);
        }
    }
    let dm2 = import_dm(context, dm_handle).expect("device memory");
    let buffer = Buffer::filled(64, 2);
    assert_eq!(to_dm(dm, 0, buffer.addr(), 64), 0);
    let copy = Buffer::new(4096);
    assert_eq!(from_dm(copy.addr(), dm2, 0, 64), 0);
    assert_eq!(copy.read(0, 64), buffer.read(0, 64));
    assert_eq!((free_dm(dm2), free_dm(dm)), (0, libc::ENOENT));
    assert_eq!(import_dm(context, dm_handle), Err(libc::ENOENT));
}

/// Giving up a name leaves the object alone, and does nothing to what is not imported.
#[test]
fn unimport_ends_a_name_only() {
    let end = end();
    let mr = end.reg(&Buffer::new(4096), ALL);
    let dm = alloc_dm(end.context, 64);
    // SAFETY: names of this test.
    unsafe {
        let pd2 = import_pd(end.context, pd_handle(end.pd)).expect("a domain");
        ibv_unimport_pd(pd2);
        ibv_unimport_pd(pd2);
        assert_eq!(dealloc_pd(pd2), libc::ENOENT);
        let mr2 = import_mr(end.pd, mr_handle(mr)).expect("a region");
        ibv_unimport_mr(mr2);
        ibv_unimport_mr(mr2);
        assert_eq!(dereg(mr2), libc::ENOENT);
        let dm2 = import_dm(end.context, (*dm).handle).expect("device memory");
        ibv_unimport_dm(dm2);
        ibv_unimport_dm(dm2);
        assert_eq!(free_dm(dm2), libc::ENOENT);
        ibv_unimport_pd(end.pd);
        ibv_unimport_mr(mr);
        ibv_unimport_dm(dm);
        ibv_unimport_pd(null_mut());
        ibv_unimport_mr(null_mut());
        ibv_unimport_dm(null_mut());
    }
    assert_eq!(free_dm(dm), 0);
    assert_eq!(dereg(mr), 0);
    let mr = end.reg(&Buffer::new(4096), ALL);
    assert_eq!(dereg(mr), 0);
}

#[test]
fn unknown_handles_are_refused() {
    let (end, other) = (end(), end());
    for handle in [0, u32::MAX, pd_handle(other.pd)] {
        assert_eq!(import_pd(end.context, handle), Err(libc::ENOENT));
    }
    let theirs = other.reg(&Buffer::new(4096), ALL);
    for handle in [0, u32::MAX, mr_handle(theirs)] {
        assert_eq!(import_mr(end.pd, handle), Err(libc::ENOENT));
    }
    let mine = end.reg(&Buffer::new(4096), ALL);
    let refused = import_mr(unknown_pd(end.context), mr_handle(mine));
    assert!(matches!(refused, Err(libc::ENOENT | libc::EINVAL)), "{refused:?}");
    for handle in [0, u32::MAX] {
        assert_eq!(import_dm(end.context, handle), Err(libc::ENOENT));
    }
}

/// Rules: T1-07
#[test]
fn an_imported_region_is_neither_bound_nor_changed() {
    let pair = Pair::rc(Link::Loopback);
    let buffer = Buffer::new(4096);
    let mr = import_mr(pair.a.pd, mr_handle(pair.a.reg(&buffer, ALL))).expect("a region");
    let range = Range { mr, addr: buffer.addr(), length: 64, access: REMOTE };
    let refused = bind1(pair.qa, pair.a.mw(IBV_MW_TYPE_1), 1, IBV_SEND_SIGNALED, range);
    assert_eq!(refused, libc::ENOTSUP);
    let change = Change { access: Some(0), ..Change::default() };
    assert_eq!(rereg(mr, change), Err((IBV_REREG_MR_ERR_INPUT, libc::EINVAL)));
}

/// Closing the importing context leaves the objects to the one they were made in.
#[test]
fn closing_a_context_gives_up_its_names() {
    let end = end();
    let context = import_context(end.context);
    let pd = import_pd(context, pd_handle(end.pd)).expect("a domain");
    let mr = end.reg(&Buffer::new(4096), ALL);
    import_mr(pd, mr_handle(mr)).expect("a region");
    let own = reg(pd, &Buffer::new(4096), ALL);
    assert_eq!(dealloc_pd(end.pd), libc::EBUSY);
    close(context);
    assert_eq!(dereg(own), libc::ENOENT);
    assert_eq!(dealloc_pd(end.pd), libc::EBUSY);
    assert_eq!(dereg(mr), 0);
    assert_eq!(dealloc_pd(end.pd), 0);
}
