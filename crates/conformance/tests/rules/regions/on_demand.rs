//! Regions that are paged on demand, the whole address space among them, and advice about them.

use transom_abi::*;
use transom_conformance::extended_qp::*;
use transom_conformance::harness::*;
use transom_conformance::memory::*;
use transom_conformance::on_each_link;
use transom_host::Options;

const ON_DEMAND: i32 = IBV_ACCESS_ON_DEMAND as i32;
const HUGETLB: i32 = IBV_ACCESS_HUGETLB as i32;
const ZERO_BASED: i32 = IBV_ACCESS_ZERO_BASED as i32;
const READ: u32 = IBV_ADVISE_MR_ADVICE_PREFETCH;
const WRITE: u32 = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
const NO_FAULT: u32 = IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
const FLUSH: u32 = IBV_ADVISE_MR_FLAG_FLUSH;

fn end() -> End {
    End::new(Options::default())
}

on_each_link! {
    /// One region for all memory there is and will be.
    /// Rules: MR-33
    fn an_implicit_region_covers_all_memory(link: Link) {
        let pair = Pair::rc(link);
        let all = |end: &End| try_reg(end.pd, 0, usize::MAX, ALL | ON_DEMAND).expect("a region");
        let (ma, mb) = (all(&pair.a), all(&pair.b));
        let (near, far) = (Buffer::filled(8192, 1), Buffer::apart(8192));
        let mut sges = [sge(near.addr() + 1, 8000, ma)];
        post(pair.qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, far.addr(), keys(mb).1));
        pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(far.read(0, 8000), near.read(1, 8000));
        recv(pair.qb, 2, &mut [sge(far.addr() + 10, 8000, mb)]);
        post(pair.qa, &mut with_sges(wr(IBV_WR_SEND), &mut sges));
        pair.a.expect(IBV_WC_SUCCESS);
        pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!(far.read(10, 8000), near.read(1, 8000));
        // Where no memory is, the access fails; the process does not.
        let status = pair.request(&mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, 4096, keys(mb).1));
        assert_eq!(status, IBV_WC_REM_OP_ERR);
    }

    /// Pages may come after the registration, go, and come again.
    /// Rules: MR-34
    fn pages_come_and_go(link: Link) {
        let pair = Pair::rc(link);
        let (near, far) = (Buffer::filled(4096, 6), Buffer::new(4096));
        far.protect(libc::PROT_NONE);
        let ma = pair.a.reg(&near, ALL);
        let mb = pair.b.reg(&far, ALL | ON_DEMAND);
        let write = || {
            let mut sges = [sge(near.addr(), 4096, ma)];
            pair.request(&mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, far.addr(), keys(mb).1))
        };
        assert_eq!(write(), IBV_WC_REM_OP_ERR);
        far.protect(libc::PROT_READ | libc::PROT_WRITE);
        assert_eq!(write(), IBV_WC_SUCCESS);
        assert_eq!(far.read(0, 4096), near.read(0, 4096));
        far.protect(libc::PROT_NONE);
        assert_eq!(write(), IBV_WC_REM_OP_ERR);
    }
}

on_each_link! {
    /// FLUSH and ATOMIC WRITE, as the capabilities say, in one range and in all memory; of pages that
    /// cannot be had they fail as WRITE does.
    /// Rules: MR-33, MR-34
    fn newer_operations_reach_it_too(link: Link) {
        let pair = Pair::unconnected(link, IBV_QPT_RC);
        let near = Buffer::new(4096);
        near.set_word(0, 0x0102_0304_0506_0708);
        let ma = pair.a.reg(&near, ALL);
        let operations = IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_ATOMIC_WRITE;
        let connected = || {
            let [qa, qb] = [&pair.a, &pair.b].map(|end| qp_ex(end, IBV_QPT_RC, operations));
            bring_up(qa, &usual_attr(qb));
            let usual = usual_attr(qa);
            let rights = usual.qp_access_flags | IBV_ACCESS_FLUSH_GLOBAL;
            bring_up(qb, &ibv_qp_attr { qp_access_flags: rights, ..usual });
            (qa, Builder::of(qa))
        };
        let access = ALL | ON_DEMAND | IBV_ACCESS_FLUSH_GLOBAL as i32;
        for implicit in [false, true] {
            let far = Buffer::apart(8192);
            far.protect(libc::PROT_NONE);
            let (addr, length) = if implicit { (0, usize::MAX) } else { (far.addr(), 8192) };
            let key = keys(try_reg(pair.b.pd, addr, length, access).expect("a region")).1;
            let write = |qa| {
                let mut sges = [sge(near.addr(), 8, ma)];
                post(qa, &mut rdma_wr(IBV_WR_ATOMIC_WRITE, &mut sges, far.addr() + 16, key));
                pair.a.wait().status
            };
            let (qa, _) = connected();
            assert_eq!(write(qa), IBV_WC_REM_OP_ERR);
            far.protect(libc::PROT_READ | libc::PROT_WRITE);
            let (qa, build) = connected();
            assert_eq!(write(qa), IBV_WC_SUCCESS);
            assert_eq!(far.word(16), 0x0102_0304_0506_0708);
            let code = build.batch(|build| {
                build.signaled(1).flush(key, far.addr(), 8192, 1, IBV_FLUSH_RANGE);
                build.signaled(2).flush(key, 0, 0, 1, IBV_FLUSH_MR);
            });
            assert_eq!(code, 0);
            pair.a.expect(IBV_WC_SUCCESS);
            pair.a.expect(IBV_WC_SUCCESS);
        }
    }
}

/// Rules: MR-12, MR-33
#[test]
fn implicit_is_exactly_that() {
    let end = end();
    let reg = |addr, length, access| try_reg(end.pd, addr, length, access);
    let mr = reg(0, usize::MAX, ON_DEMAND).expect("a region");
    // SAFETY: a live region.
    assert_eq!(unsafe { ((*mr).addr as u64, (*mr).length) }, (0, usize::MAX));
    assert_eq!(reg(0, usize::MAX, ON_DEMAND | ZERO_BASED).map(dereg), Ok(0));
    assert_eq!(reg(0, usize::MAX, 0), Err(libc::EINVAL));
    assert_eq!(reg(0, usize::MAX - 1, ON_DEMAND), Err(libc::EINVAL));
    assert_eq!(reg(4096, usize::MAX, ON_DEMAND), Err(libc::EINVAL));
    // Huge pages are promised for a range.
    assert_eq!(reg(0, usize::MAX, ON_DEMAND | HUGETLB), Err(libc::EINVAL));
    assert_eq!(reg(0, usize::MAX, ON_DEMAND | IBV_ACCESS_REMOTE_WRITE as i32), Err(libc::EINVAL));
    assert_eq!(try_reg_iova(end.pd, 0, usize::MAX, 4096, ON_DEMAND), Err(libc::EINVAL));
    // Without paging on demand there is no such region, so it cannot become one.
    let change = Change { access: Some(ALL), ..Change::default() };
    assert_eq!(rereg(mr, change), Err((IBV_REREG_MR_ERR_CMD, libc::EINVAL)));
    assert_eq!(dereg(mr), 0);
}

/// How many pages of a buffer are in memory.
fn present(buffer: &Buffer) -> usize {
    let mut pages = vec![0_u8; buffer.len() / 4096];
    // SAFETY: our own mapping, and a byte for each of its pages.
    let done = unsafe { libc::mincore(buffer.addr() as *mut _, buffer.len(), pages.as_mut_ptr()) };
    assert_eq!(done, 0);
    pages.iter().filter(|page| **page & 1 == 1).count()
}

/// With the flag, pages are there when the verb returns; those asked for, and no others.
#[test]
fn prefetching_brings_pages_in() {
    let end = end();
    for advice in [READ, WRITE] {
        let buffer = Buffer::new(16 * 4096);
        let mr = end.reg(&buffer, ALL | ON_DEMAND);
        assert_eq!(present(&buffer), 0);
        let mut sges = [sge(buffer.addr() + 100, 3996, mr), sge(buffer.addr() + 8191, 2, mr)];
        assert_eq!(advise(end.pd, NO_FAULT, FLUSH, &mut sges), 0);
        assert_eq!(present(&buffer), 0);
        assert_eq!(advise(end.pd, advice, FLUSH, &mut sges), 0);
        // What is read only, the system may back by its page of zeros, which counts as present.
        assert_eq!(present(&buffer), 3);
        assert!(buffer.is_all(0), "advice changes nothing");
    }
    // By offsets, and in all memory.
    let buffer = Buffer::new(4096);
    let based = end.reg(&buffer, ALL | ON_DEMAND | ZERO_BASED);
    assert_eq!(advise(end.pd, WRITE, FLUSH, &mut [sge(0, 1, based)]), 0);
    assert_eq!(present(&buffer), 1);
    let buffer = Buffer::new(4096);
    let all = try_reg(end.pd, 0, usize::MAX, ALL | ON_DEMAND).expect("a region");
    assert_eq!(advise(end.pd, WRITE, FLUSH, &mut [sge(buffer.addr(), 1, all)]), 0);
    assert_eq!(present(&buffer), 1);
}

/// Rules: MR-39
#[test]
fn advice_that_makes_no_sense_is_refused() {
    let end = end();
    let buffer = Buffer::apart(3 * 4096);
    let mr = end.reg(&buffer, ALL | ON_DEMAND);
    let good = || [sge(buffer.addr(), 4096, mr)];
    for flags in [0, FLUSH] {
        for advice in [READ, WRITE, NO_FAULT] {
            assert_eq!(advise(end.pd, advice, flags, &mut good()), 0);
            assert_eq!(advise(end.pd, advice, flags | 2, &mut good()), libc::EINVAL);
            assert_eq!(advise(end.pd, advice, flags, &mut []), libc::EINVAL);
            let nobody = unknown_pd(end.context);
            assert_eq!(advise(nobody, advice, flags, &mut good()), libc::ENOENT);
            // A range that is not in the region.
            for (addr, length) in
                [(buffer.addr() - 1, 2), (buffer.addr() + 3 * 4096 - 1, 2), (u64::MAX, 2), (0, 1)]
            {
                let mut sges = [good()[0], sge(addr, length, mr)];
                assert_eq!(advise(end.pd, advice, flags, &mut sges), libc::EFAULT);
            }
            // A region of another domain, a key of nobody, of a window, of one not on demand.
            let theirs = reg(end.another_pd(), &buffer, ALL | ON_DEMAND);
            let mut sges = [sge(buffer.addr(), 1, theirs)];
            assert_eq!(advise(end.pd, advice, flags, &mut sges), libc::EFAULT);
            for lkey in [0, keys(mr).0 ^ 1, u32::MAX] {
                sges[0].lkey = lkey;
                assert_eq!(advise(end.pd, advice, flags, &mut sges), libc::ENOENT);
            }
            sges[0].lkey = rkey(end.mw(IBV_MW_TYPE_1));
            assert_eq!(advise(end.pd, advice, flags, &mut sges), libc::EINVAL);
            let pinned = end.reg(&buffer, ALL);
            let mut sges = [sge(buffer.addr(), 1, pinned)];
            assert_eq!(advise(end.pd, advice, flags, &mut sges), libc::EINVAL);
        }
    }
    // Pages for writing, of a region that may only be read.
    let read_only = end.reg(&buffer, ON_DEMAND);
    let mut sges = [sge(buffer.addr(), 1, read_only)];
    assert_eq!(advise(end.pd, WRITE, FLUSH, &mut sges), libc::EPERM);
    assert_eq!(advise(end.pd, READ, FLUSH, &mut sges), 0);
    // Memory that is gone.
    buffer.unmap(4096, 4096);
    let mut sges = [sge(buffer.addr(), 3 * 4096, mr)];
    assert_eq!(advise(end.pd, READ, FLUSH, &mut sges), libc::EFAULT);
    assert_eq!(advise(end.pd, READ, 0, &mut sges), 0, "found out when it is used");
}
