//! Regions of dma-bufs: what is taken, and, where the kernel can make one, that peers reach it.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::memory::*;
use transom_device::Access;
use transom_host::Options;

const PAGE: u64 = 4096;
const ACCESS: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_RELAXED_ORDERING;

/// A file in memory, of so many pages, that no longer shrinks.
fn memfd(pages: u64) -> File {
    // SAFETY: a name that ends in zero; the descriptor is this call's own.
    unsafe {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        let fd = libc::memfd_create(c"test".as_ptr(), flags);
        assert!(fd >= 0);
        let file = File::from_raw_fd(fd);
        file.set_len(pages * PAGE).expect("memory");
        assert_eq!(libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK), 0);
        file
    }
}

/// A dma-buf of a file's pages; `None` where the kernel does not make them for this user.
fn dma_buf(file: &File, pages: u64) -> Option<OwnedFd> {
    #[repr(C)]
    struct Create {
        memfd: u32,
        flags: u32,
        offset: u64,
        size: u64,
    }
    const UDMABUF_CREATE: libc::c_ulong = 0x4018_7542;
    let device = OpenOptions::new().read(true).write(true).open("/dev/udmabuf").ok()?;
    let memfd = file.as_raw_fd() as u32;
    let create = Create { memfd, flags: 1, offset: 0, size: pages * PAGE };
    // SAFETY: the kernel reads the struct, and answers a descriptor of this call's own.
    unsafe {
        let fd = libc::ioctl(device.as_raw_fd(), UDMABUF_CREATE, &create);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        Some(OwnedFd::from_raw_fd(fd))
    }
}

fn end() -> End {
    End::new(Options::default())
}

/// Rights are looked at before the descriptor: that of a file would be `EINVAL`.
/// Rules: MR-37
#[test]
fn other_rights_are_refused() {
    let end = end();
    let file = memfd(1);
    let reg = |access| try_dmabuf(end.pd, 0, 4096, 0, file.as_raw_fd(), access);
    let huge = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB;
    for right in [
        IBV_ACCESS_MW_BIND,
        IBV_ACCESS_ZERO_BASED,
        IBV_ACCESS_ON_DEMAND,
        huge,
        Access::FLUSH_GLOBAL.bits(),
        Access::FLUSH_PERSISTENT.bits(),
    ] {
        assert_eq!(reg(right), Err(libc::EOPNOTSUPP), "{right:#x}");
        assert_eq!(reg(right | ACCESS), Err(libc::EOPNOTSUPP), "{right:#x}");
    }
    assert_eq!(reg(1 << 15), Err(libc::EINVAL));
}

#[test]
fn what_is_no_dma_buf_is_refused() {
    let end = end();
    assert_eq!(try_dmabuf(end.pd, 0, 4096, 0, -1, ACCESS), Err(libc::EBADF));
    assert_eq!(try_dmabuf(end.pd, 0, 4096, 0, i32::MAX, ACCESS), Err(libc::EBADF));
    let file = memfd(1);
    assert_eq!(try_dmabuf(end.pd, 0, 4096, 0, file.as_raw_fd(), ACCESS), Err(libc::EINVAL));
    // The address and the offset must be at the same place of a page.
    assert_eq!(try_dmabuf(end.pd, 1, 64, 2, file.as_raw_fd(), ACCESS), Err(libc::EINVAL));
    let refused = try_dmabuf(unknown_pd(end.context), 0, 4096, 0, file.as_raw_fd(), ACCESS);
    assert!(matches!(refused, Err(libc::ENOENT | libc::EINVAL)), "{refused:?}");
    assert_eq!(dealloc_pd(end.pd), 0, "nothing of it is left");
}

/// Rules: MR-37, T1-07
#[test]
fn peers_reach_a_dma_buf() {
    let file = memfd(4);
    let Some(fd) = dma_buf(&file, 4) else {
        eprintln!("skipped: this kernel, or this user, makes no dma-bufs from memory");
        return;
    };
    for link in [Link::Loopback, Link::Local, Link::Rings] {
        let pair = Pair::rc(link);
        let reg = |offset, length, iova| {
            try_dmabuf(pair.b.pd, offset, length, iova, fd.as_raw_fd(), ACCESS)
        };
        assert_eq!(reg(0, 4 * PAGE as usize + 1, 0), Err(libc::EINVAL));
        assert_eq!(reg(4 * PAGE, 1, 0), Err(libc::EINVAL));
        assert_eq!(reg(0, 0, 0), Err(libc::EINVAL));
        let base = 0x7000_0000 + 17;
        let mr = reg(PAGE + 17, 5000, base).expect("a region");
        // SAFETY: a live region.
        let (addr, length) = unsafe { ((*mr).addr.addr() as u64, (*mr).length) };
        assert_eq!((addr, length), (PAGE + 17, 5000));
        let near = Buffer::filled(8192, link as u8);
        let ma = pair.a.reg(&near, ALL);
        let mut sges = [sge(near.addr(), 5000, ma)];
        let status = pair.request(&mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, base, keys(mr).1));
        assert_eq!(status, IBV_WC_SUCCESS);
        let mut written = vec![0; 5000];
        file.read_exact_at(&mut written, PAGE + 17).expect("the file is there");
        assert_eq!(written, near.read(0, 5000));
        let copy = Buffer::new(8192);
        let mut sges = [sge(copy.addr(), 5000, pair.a.reg(&copy, ALL))];
        let status = pair.request(&mut rdma_wr(IBV_WR_RDMA_READ, &mut sges, base, keys(mr).1));
        assert_eq!((status, copy.read(0, 5000)), (IBV_WC_SUCCESS, written));
        let range = Range { mr, addr: base, length: 64, access: REMOTE };
        let refused = bind1(pair.qb, pair.b.mw(IBV_MW_TYPE_1), 1, 0, range);
        assert_eq!(refused, libc::ENOTSUP);
        assert_eq!(dereg(mr), 0);
    }
}
