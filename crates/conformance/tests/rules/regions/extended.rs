//! `ibv_reg_mr_ex`, which rdma-core has since version 59: memory of the program, of a dma-buf, or, since
//! version 64, of a buffer that the library has allocated.

use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_ibverbs::*;

const BLANK: ibv_mr_init_attr = ibv_mr_init_attr {
    length: 4096,
    access: ALL,
    comp_mask: 0,
    iova: 0,
    addr: null_mut(),
    fd: -1,
    fd_offset: 0,
    dmah: null_mut(),
};

/// Registers as the attributes say; the errno if it is refused.
fn register(end: &End, attr: &ibv_mr_init_attr) -> Result<*mut ibv_mr, i32> {
    // SAFETY: a live domain, and attributes of this test.
    let mr = unsafe { ibv_reg_mr_ex(end.pd, attr) };
    if mr.is_null() { Err(errno()) } else { Ok(mr) }
}

/// Exactly one kind of memory is named: an address or a descriptor.
/// Rules: MR-38
#[test]
fn exactly_one_kind_of_memory_is_named() {
    let end = End::new(Default::default());
    let buffer = Buffer::new(4096);
    let addr = buffer.addr() as *mut _;
    let with = |comp_mask| register(&end, &ibv_mr_init_attr { comp_mask, addr, ..BLANK });
    let (address, fd, iova) = (IBV_REG_MR_MASK_ADDR, IBV_REG_MR_MASK_FD, IBV_REG_MR_MASK_IOVA);
    for neither_or_both in [0, iova, address | fd, address | fd | iova] {
        assert_eq!(with(neither_or_both), Err(libc::EINVAL), "{neither_or_both:#x}");
    }
    // A descriptor that is none.
    let access = IBV_ACCESS_LOCAL_WRITE as i32;
    let none = register(&end, &ibv_mr_init_attr { comp_mask: fd | iova, access, ..BLANK });
    assert_eq!(none, Err(libc::EBADF));
    let mr = with(address).expect("a region");
    // SAFETY: a live region.
    unsafe {
        assert_eq!(((*mr).addr, (*mr).length), (addr, 4096));
        assert_eq!(ibv_dereg_mr(mr), 0);
    }
    assert_eq!(with(address | 1 << 40), Err(libc::EOPNOTSUPP));
}

/// Requests name the memory by the iova that was given, or by its own addresses.
#[test]
fn requests_name_it_by_its_iova() {
    let pair = Pair::rc(Link::Loopback);
    let (near, far) = (Buffer::new(4096), Buffer::new(4096));
    let ma = pair.a.reg(&near, ALL);
    near.write(0, b"moved");
    let comp_mask = IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_IOVA;
    let addr = far.addr() as *mut _;
    let attr = ibv_mr_init_attr { comp_mask, addr, iova: 0x7000, ..BLANK };
    let mb = register(&pair.b, &attr).expect("a region");
    let mut element = [sge(near.addr(), 5, ma)];
    post(pair.qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut element, 0x7010, keys(mb).1));
    pair.a.expect(IBV_WC_SUCCESS);
    assert_eq!(far.read(16, 5), b"moved");
}

/// `ibv_alloc_buf`: the address and the handle; the errno if it is refused.
fn alloc_buf(pd: *mut ibv_pd, size: usize) -> Result<(u64, *mut ibv_buf), i32> {
    let mut buf = null_mut();
    // SAFETY: a domain of this test, and room for the handle.
    let address = unsafe { ibv_alloc_buf(pd, size, &mut buf) };
    if address.is_null() { Err(errno()) } else { Ok((address as u64, buf)) }
}

/// `ibv_reg_buf_mr`; the errno if it is refused.
fn reg_buf(
    pd: *mut ibv_pd,
    buf: *mut ibv_buf,
    addr: u64,
    length: usize,
) -> Result<*mut ibv_mr, i32> {
    // SAFETY: a live domain, and a buffer of this test.
    let mr = unsafe { ibv_reg_buf_mr(pd, buf, addr as *mut _, length, ALL) };
    if mr.is_null() { Err(errno()) } else { Ok(mr) }
}

fn free_buf(buf: *mut ibv_buf) {
    // SAFETY: a buffer of this test, be it freed.
    unsafe { ibv_free_buf(buf) };
}

/// A buffer begins at a page and is all the program's; one that cannot be had is refused, and one that
/// has been freed is none.
/// Rules: MR-41, MR-43, PD-08
#[test]
fn a_buffer_is_memory_of_the_program() {
    let end = End::new(Default::default());
    let (address, buf) = alloc_buf(end.pd, 10_000).expect("a buffer");
    assert!(address.is_multiple_of(4096), "{address:#x}");
    // SAFETY: the buffer has that many bytes, which are this test's.
    unsafe { (address as *mut u8).write_bytes(7, 10_000) };
    // SAFETY: a buffer of this test.
    assert_eq!((unsafe { ibv_export_buf_dmabuf_fd(buf) }, errno()), (-1, libc::ENODATA));
    free_buf(buf);
    free_buf(buf);
    free_buf(null_mut());
    assert_eq!(reg_buf(end.pd, buf, address, 1), Err(libc::EINVAL));
    // SAFETY: the handle stays readable.
    assert_eq!((unsafe { ibv_export_buf_dmabuf_fd(buf) }, errno()), (-1, libc::ENOENT));
    assert_eq!(alloc_buf(end.pd, usize::MAX / 2), Err(libc::ENOMEM));
    assert_eq!(alloc_buf(null_mut(), 64), Err(libc::EINVAL));
    // SAFETY: a live domain; there is no room for the handle.
    let nowhere = unsafe { ibv_alloc_buf(end.pd, 64, null_mut()) };
    assert_eq!((nowhere, errno()), (null_mut(), libc::EINVAL));
    let pd = end.another_pd();
    // SAFETY: a live domain, which nothing belongs to.
    assert_eq!(unsafe { ibv_dealloc_pd(pd) }, 0);
    assert_eq!(alloc_buf(pd, 64), Err(libc::ENOENT));
}

/// Ranges of a buffer are registered in the domain it was allocated from, which a parent domain is not,
/// and data moves through them.
/// Rules: MR-42
#[test]
fn ranges_of_a_buffer_become_regions() {
    let pair = Pair::rc(Link::Loopback);
    let (near, from) = alloc_buf(pair.a.pd, 8192).expect("a buffer");
    let (far, to) = alloc_buf(pair.b.pd, 8192).expect("a buffer");
    // SAFETY: the buffer has that many bytes, which are this test's.
    unsafe { (near as *mut u8).write_bytes(7, 4096) };
    let half = reg_buf(pair.a.pd, from, near, 4096).expect("a region");
    let other_half = reg_buf(pair.a.pd, from, near + 4096, 4096).expect("a region");
    assert_ne!(keys(half).0, keys(other_half).0);
    // SAFETY: live regions.
    let address = unsafe { (*other_half).addr } as u64;
    assert_eq!(address, near + 4096);
    // As `ibv_reg_mr_ex` has it, under other addresses.
    let with = |comp_mask| {
        let base =
            ibv_mr_init_attr { comp_mask, addr: (far + 4096) as *mut _, iova: 0x7000, ..BLANK };
        let attr = ibv_mr_init_attr_buf { base, buf: to };
        // SAFETY: attributes of the longer kind, as they say.
        let mr = unsafe { ibv_reg_mr_ex(pair.b.pd, (&raw const attr).cast()) };
        if mr.is_null() { Err(errno()) } else { Ok(mr) }
    };
    let whole = IBV_REG_MR_MASK_BUF | IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_IOVA;
    let target = with(whole).expect("a region");
    let mut element = [sge(near, 4096, half)];
    post(pair.qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut element, 0x7000, keys(target).1));
    pair.a.expect(IBV_WC_SUCCESS);
    // SAFETY: the buffer has that many bytes, and nothing is on its way to it.
    let arrived = unsafe { std::slice::from_raw_parts((far + 4096) as *const u8, 4096) };
    assert!(arrived.iter().all(|byte| *byte == 7));

    let wrong = Err(libc::EINVAL);
    assert_eq!(with(IBV_REG_MR_MASK_BUF), wrong);
    assert_eq!(with(whole | IBV_REG_MR_MASK_FD), wrong);
    assert_eq!(with(whole | IBV_REG_MR_MASK_FD_OFFSET), wrong);
    for (addr, length) in [(near, 8193), (near + 8192, 1), (near - 1, 1), (near + 1, usize::MAX)] {
        assert_eq!(reg_buf(pair.a.pd, from, addr, length), wrong, "{addr:#x} {length}");
    }
    assert_eq!(reg_buf(pair.a.another_pd(), from, near, 4096), wrong);
    assert_eq!(reg_buf(pair.a.pd, null_mut(), near, 4096), wrong);
    for mr in [half, other_half, target] {
        // SAFETY: a live region.
        assert_eq!(unsafe { ibv_dereg_mr(mr) }, 0);
    }
    free_buf(from);
    free_buf(to);
}

/// There is no bus whose caches a handle could steer.
/// Rules: MR-44
#[test]
fn there_are_no_dma_handles() {
    let end = End::new(Default::default());
    let buffer = Buffer::new(4096);
    assert_eq!((ibv_alloc_dmah(end.context, null_mut()), errno()), (null_mut(), libc::EOPNOTSUPP));
    let comp_mask = IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_DMAH;
    let addr = buffer.addr() as *mut _;
    let refused = register(&end, &ibv_mr_init_attr { comp_mask, addr, ..BLANK });
    assert_eq!(refused, Err(libc::EOPNOTSUPP));
}
