//! Device memory: how much there is, how it is reached, and what holds it.

use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::memory::*;
use transom_conformance::on_each_link;
use transom_host::{Adapter, Limits, Options};
use transom_ibverbs::*;

const ACCESS: u32 = IBV_ACCESS_ZERO_BASED
    | IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC;

fn end() -> End {
    End::new(Options::default())
}

#[test]
fn there_is_as_much_as_promised_and_no_more() {
    let adapter = Adapter::open(Options::default()).expect("a device opens");
    let contexts = [adapter.clone(), adapter].map(open_context);
    let all = Limits::DEVICE.device_memory as usize;
    let attr = |length| ibv_alloc_dm_attr { length, ..Default::default() };
    for context in contexts {
        assert_eq!(try_dm(context, attr(all + 1)), Err(libc::ENOMEM));
        assert_eq!(try_dm(context, attr(usize::MAX)), Err(libc::ENOMEM));
        assert_eq!(try_dm(context, attr(0)), Err(libc::EINVAL));
    }
    let most = alloc_dm(contexts[0], all - 8);
    assert_eq!(try_dm(contexts[1], attr(9)), Err(libc::ENOMEM), "one device for both");
    let rest = alloc_dm(contexts[1], 8);
    assert_eq!(free_dm(most), 0);
    assert_eq!(free_dm(most), libc::ENOENT);
    assert_eq!(free_dm(rest), 0);
    let whole = alloc_dm(contexts[1], all);
    // SAFETY: an open context, not used afterwards; it takes its memory along.
    assert_eq!(unsafe { ibv_close_device((*whole).context) }, 0);
    assert_eq!(free_dm(alloc_dm(contexts[0], all)), 0);
}

#[test]
fn attributes_are_checked() {
    let end = end();
    let attr = ibv_alloc_dm_attr { length: 64, ..Default::default() };
    for log_align_req in [0, 3, 12] {
        let dm = try_dm(end.context, ibv_alloc_dm_attr { log_align_req, ..attr });
        assert_eq!(free_dm(dm.expect("device memory")), 0);
    }
    for wrong in [
        ibv_alloc_dm_attr { comp_mask: 1, ..attr },
        ibv_alloc_dm_attr { log_align_req: 13, ..attr },
        ibv_alloc_dm_attr { log_align_req: u32::MAX, ..attr },
    ] {
        assert_eq!(try_dm(end.context, wrong), Err(libc::EINVAL), "{wrong:?}");
    }
}

#[test]
fn it_is_copied_to_and_from_in_words() {
    let end = end();
    let dm = alloc_dm(end.context, 4096);
    let (from, to) = (Buffer::filled(4096, 9), Buffer::new(4096));
    to.fill(1);
    assert_eq!(from_dm(to.addr(), dm, 0, 4096), 0);
    assert!(to.is_all(0), "fresh device memory is zero");
    assert_eq!(to_dm(dm, 0, from.addr(), 4096), 0);
    assert_eq!(from_dm(to.addr(), dm, 8, 4088), 0);
    assert_eq!(to.read(0, 4088), from.read(8, 4088));
    assert_eq!(to_dm(dm, 4096, from.addr(), 0), 0);
    for (offset, length, errno) in [
        (1, 4, libc::EINVAL),
        (4, 3, libc::EINVAL),
        (0, 4100, libc::EFAULT),
        (4096, 4, libc::EFAULT),
        (4100, 0, libc::EFAULT),
        (u64::MAX - 3, 4, libc::EFAULT),
        (4, usize::MAX - 3, libc::EFAULT),
    ] {
        assert_eq!(to_dm(dm, offset, from.addr(), length), errno, "{offset} {length}");
        assert_eq!(from_dm(to.addr(), dm, offset, length), errno, "{offset} {length}");
    }
    // A program's address that is none.
    assert_eq!(to_dm(dm, 0, 4096, 64), libc::EFAULT);
    assert_eq!(from_dm(4096, dm, 0, 64), libc::EFAULT);
    assert_eq!(free_dm(dm), 0);
    assert_eq!(to_dm(dm, 0, from.addr(), 64), libc::ENOENT);
}

on_each_link! {
    /// Peers reach a region of device memory as any other: by byte offsets, within its bounds.
    /// Rules: MR-30, RA-33
    fn peers_reach_it_by_offset(link: Link) {
        let pair = Pair::rc(link);
        let dm = alloc_dm(pair.b.context, 8192);
        let mr = try_reg_dm(pair.b.pd, dm, 4096, 1000, ACCESS).expect("a region");
        // SAFETY: a live region.
        assert_eq!(unsafe { ((*mr).addr, (*mr).length) }, (null_mut(), 1000));
        let near = Buffer::filled(4096, 4);
        let ma = pair.a.reg(&near, ALL);
        let request = |opcode, at, length| {
            let mut sges = [sge(near.addr(), length, ma)];
            pair.request(&mut rdma_wr(opcode, &mut sges, at, keys(mr).1))
        };
        assert_eq!(request(IBV_WR_RDMA_WRITE, 8, 992), IBV_WC_SUCCESS);
        let copy = Buffer::new(4096);
        assert_eq!(from_dm(copy.addr(), dm, 4096, 1000), 0);
        assert_eq!(copy.read(8, 992), near.read(0, 992));
        for (at, length) in [(0, 1001), (1000, 1), (u64::MAX, 1)] {
            assert_eq!(request(IBV_WR_RDMA_READ, at, length), IBV_WC_REM_ACCESS_ERR);
        }
        // An atomic: the memory is as aligned as its offset.
        let mut sges = [sge(near.addr(), 8, ma)];
        assert_eq!(to_dm(dm, 4096, &raw const FORTY as u64, 8), 0);
        let opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        let status = pair.request(&mut atomic_wr(opcode, &mut sges, 0, keys(mr).1, 2, 0));
        assert_eq!((status, near.word(0)), (IBV_WC_SUCCESS, FORTY));
        // And this side, with its local key.
        let mut there = [sge(0, 8, mr)];
        let theirs = pair.a.reg(&copy, ALL);
        let (qa, qb) = pair.another(IBV_QPT_RC);
        recv(qa, 1, &mut [sge(copy.addr(), 8, theirs)]);
        post(qb, &mut with_sges(wr(IBV_WR_SEND), &mut there));
        pair.b.expect(IBV_WC_SUCCESS);
        pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(copy.word(0), FORTY + 2);
    }
}

static FORTY: u64 = 40;

#[test]
fn a_region_lies_within_its_memory_and_counts_from_zero() {
    let end = end();
    let dm = alloc_dm(end.context, 1000);
    let reg = |offset, length, access| try_reg_dm(end.pd, dm, offset, length, access);
    for (offset, length) in [(0, 1001), (1000, 1), (1, 1000), (u64::MAX, 2), (8, usize::MAX)] {
        assert_eq!(reg(offset, length, ACCESS), Err(libc::EINVAL), "{offset} {length}");
    }
    for access in [
        ACCESS & !IBV_ACCESS_ZERO_BASED,
        IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_WRITE,
        ACCESS | IBV_ACCESS_ON_DEMAND,
        ACCESS | 1 << 15,
    ] {
        assert_eq!(reg(0, 1000, access), Err(libc::EINVAL), "{access:#x}");
    }
    for (offset, length) in [(0, 1000), (999, 1), (1000, 0), (3, 5)] {
        assert_eq!(reg(offset, length, ACCESS).map(dereg), Ok(0), "{offset} {length}");
    }
    let refused = try_reg_dm(unknown_pd(end.context), dm, 0, 8, ACCESS);
    assert!(matches!(refused, Err(libc::ENOENT | libc::EINVAL)), "{refused:?}");
    let other = end_on_another_device();
    assert_eq!(try_reg_dm(other.pd, dm, 0, 8, ACCESS), Err(libc::EINVAL));
    assert_eq!(free_dm(dm), 0);
    let refused = reg(0, 8, ACCESS);
    assert!(matches!(refused, Err(libc::ENOENT | libc::EINVAL)), "{refused:?}");
}

fn end_on_another_device() -> End {
    end()
}

#[test]
fn a_region_holds_its_memory_and_its_domain() {
    let end = end();
    let (dm, pd) = (alloc_dm(end.context, 64), end.another_pd());
    let mrs = [(); 2].map(|()| try_reg_dm(pd, dm, 0, 64, ACCESS).expect("a region"));
    for mr in mrs {
        assert_eq!(free_dm(dm), libc::EBUSY);
        assert_eq!(dealloc_pd(pd), libc::EBUSY);
        assert_eq!(
            rereg(mr, Change { pd: Some(end.pd), ..Change::default() }).map_err(|e| e.1),
            Err(libc::EINVAL)
        );
        assert_eq!(dereg(mr), 0);
    }
    assert_eq!(free_dm(dm), 0);
    assert_eq!(dealloc_pd(pd), 0);
}

/// Windows of type 1 are not for special regions; those of type 2 may be bound to device memory.
/// Rules: T1-07
#[test]
fn windows_of_type_2_only() {
    let pair = Pair::rc(Link::Loopback);
    let dm = alloc_dm(pair.a.context, 64);
    let access = ACCESS | IBV_ACCESS_MW_BIND;
    let mr = try_reg_dm(pair.a.pd, dm, 0, 64, access).expect("a region");
    let range = Range { mr, addr: 0, length: 64, access: REMOTE };
    let refused = bind1(pair.qa, pair.a.mw(IBV_MW_TYPE_1), 1, IBV_SEND_SIGNALED, range);
    assert_eq!(refused, libc::ENOTSUP);
    bind(&pair.a, pair.qa, pair.a.mw(IBV_MW_TYPE_2), range);
}
