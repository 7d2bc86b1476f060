//! `ibv_reg_mr_ex`, which rdma-core has since version 59: memory of the program or of a dma-buf.

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
    let mut piece = [sge(near.addr(), 5, ma)];
    post(pair.qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut piece, 0x7010, keys(mb).1));
    pair.a.expect(IBV_WC_SUCCESS);
    assert_eq!(far.read(16, 5), b"moved");
}
