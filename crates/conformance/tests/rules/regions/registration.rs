//! Registration: which rights and ranges are accepted, and what a region carries (rules A.2).

use std::collections::HashSet;
use std::ffi::c_int;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::{Way, alone};
use transom_device::Access;
use transom_host::Options;

const LOCAL_WRITE: c_int = IBV_ACCESS_LOCAL_WRITE as c_int;
const REMOTE_WRITE: c_int = IBV_ACCESS_REMOTE_WRITE as c_int;
const REMOTE_READ: c_int = IBV_ACCESS_REMOTE_READ as c_int;
const REMOTE_ATOMIC: c_int = IBV_ACCESS_REMOTE_ATOMIC as c_int;
const MW_BIND: c_int = IBV_ACCESS_MW_BIND as c_int;
const ZERO_BASED: c_int = IBV_ACCESS_ZERO_BASED as c_int;
const ON_DEMAND: c_int = IBV_ACCESS_ON_DEMAND as c_int;
const HUGETLB: c_int = IBV_ACCESS_HUGETLB as c_int;
const FLUSH_GLOBAL: c_int = 0x100;
const FLUSH_PERSISTENT: c_int = 0x200;

fn end() -> End {
    End::new(Options::default())
}

/// What registering a page with these rights answers; the region is gone again.
fn outcome(end: &End, access: c_int) -> Result<(), i32> {
    let buffer = Buffer::new(4096);
    try_reg(end.pd, buffer.addr(), 4096, access).map(|mr| assert_eq!(dereg(mr), 0))
}

#[test]
fn mr_01_the_flags_have_their_values() {
    assert_eq!(IBV_ACCESS_LOCAL_WRITE, 1);
    assert_eq!(IBV_ACCESS_REMOTE_WRITE, 2);
    assert_eq!(IBV_ACCESS_REMOTE_READ, 4);
    assert_eq!(IBV_ACCESS_REMOTE_ATOMIC, 8);
    assert_eq!(IBV_ACCESS_MW_BIND, 0x10);
    assert_eq!(IBV_ACCESS_ZERO_BASED, 0x20);
    assert_eq!(IBV_ACCESS_ON_DEMAND, 0x40);
    assert_eq!(IBV_ACCESS_HUGETLB, 0x80);
    assert_eq!(Access::FLUSH_GLOBAL.bits(), 0x100);
    assert_eq!(Access::FLUSH_PERSISTENT.bits(), 0x200);
    assert_eq!(IBV_ACCESS_RELAXED_ORDERING, 1 << 20);
    // The device takes the bits of the interface as they are.
    assert_eq!(Access::LOCAL_WRITE.bits(), IBV_ACCESS_LOCAL_WRITE);
    assert_eq!(Access::REMOTE_WRITE.bits(), IBV_ACCESS_REMOTE_WRITE);
    assert_eq!(Access::REMOTE_READ.bits(), IBV_ACCESS_REMOTE_READ);
    assert_eq!(Access::REMOTE_ATOMIC.bits(), IBV_ACCESS_REMOTE_ATOMIC);
    assert_eq!(Access::MW_BIND.bits(), IBV_ACCESS_MW_BIND);
    assert_eq!(Access::ZERO_BASED.bits(), IBV_ACCESS_ZERO_BASED);
    assert_eq!(Access::ON_DEMAND.bits(), IBV_ACCESS_ON_DEMAND);
    assert_eq!(Access::HUGETLB.bits(), IBV_ACCESS_HUGETLB);
    assert_eq!(Access::RELAXED_ORDERING.bits(), IBV_ACCESS_RELAXED_ORDERING);
}

/// Rules: MR-04, MR-05, MR-06
#[test]
fn remote_writing_needs_local_writing_and_reading_nothing() {
    let end = end();
    assert_eq!(outcome(&end, REMOTE_READ), Ok(()));
    for rights in [REMOTE_WRITE, REMOTE_ATOMIC, REMOTE_WRITE | REMOTE_ATOMIC] {
        for more in [0, REMOTE_READ, MW_BIND, ZERO_BASED, ON_DEMAND] {
            assert_eq!(outcome(&end, rights | more), Err(libc::EINVAL), "{:#x}", rights | more);
            assert_eq!(outcome(&end, rights | more | LOCAL_WRITE), Ok(()), "{:#x}", rights | more);
        }
    }
}

#[test]
fn mr_08_unknown_bits_are_refused() {
    let end = end();
    for bit in (10..20).chain([30, 31]) {
        let access = (1_u32 << bit) as c_int;
        assert_eq!(outcome(&end, access), Err(libc::EINVAL), "bit {bit}");
        assert_eq!(outcome(&end, access | ALL), Err(libc::EINVAL), "bit {bit}");
    }
}

#[test]
fn mr_11_nothing_here_outlasts_a_power_cut() {
    let end = end();
    for more in [0, ALL] {
        assert_eq!(outcome(&end, FLUSH_GLOBAL | more), Ok(()));
        assert_eq!(outcome(&end, FLUSH_PERSISTENT | more), Err(libc::EOPNOTSUPP));
        assert_eq!(outcome(&end, FLUSH_GLOBAL | FLUSH_PERSISTENT | more), Err(libc::EOPNOTSUPP));
    }
}

#[test]
fn mr_12_huge_pages_are_for_on_demand_regions() {
    let end = end();
    assert_eq!(outcome(&end, HUGETLB), Err(libc::EINVAL));
    assert_eq!(outcome(&end, HUGETLB | ALL), Err(libc::EINVAL));
    assert_eq!(outcome(&end, HUGETLB | ON_DEMAND), Ok(()));
}

#[test]
fn mr_14_a_region_carries_what_it_was_made_of() {
    let end = end();
    let buffer = Buffer::new(8192);
    let mr = try_reg(end.pd, buffer.addr() + 100, 5000, ALL).expect("a region");
    // SAFETY: a live region.
    let mr = unsafe { &*mr };
    assert_eq!((mr.context, mr.pd), (end.context, end.pd));
    assert_eq!((mr.addr as u64, mr.length), (buffer.addr() + 100, 5000));
    assert_ne!(mr.lkey, 0);
    assert_ne!(mr.rkey, 0);
}

#[test]
fn mr_15_no_two_live_objects_share_a_key() {
    let end = end();
    let buffer = Buffer::new(4096);
    let other = end.with_pd(end.another_pd());
    let mut indexes = HashSet::new();
    for round in 0..500 {
        let end = if round % 2 == 0 { &end } else { &other };
        let (local, remote) = keys(end.reg(&buffer, ALL));
        assert_eq!(local >> 8, remote >> 8, "a region has one index");
        assert!(indexes.insert(remote >> 8), "{remote:#x} names two objects");
        for kind in [IBV_MW_TYPE_1, IBV_MW_TYPE_2] {
            // Whatever the low byte becomes by binding, the index stays the window's own.
            let key = rkey(end.mw(kind));
            assert!(indexes.insert(key >> 8), "{key:#x} names two objects");
        }
    }
}

/// Rules: MR-18, MR-19
#[test]
fn ranges_that_wrap_are_refused() {
    let end = end();
    let top = |below: u64| 0_u64.wrapping_sub(below);
    for access in [0, ALL, ON_DEMAND, ALL | ON_DEMAND, ZERO_BASED] {
        let reg = |addr, length| try_reg(end.pd, addr, length, access);
        assert_eq!(reg(top(4096), 8192), Err(libc::EINVAL));
        // The end itself does not wrap, but that of its page does.
        assert_eq!(reg(top(100), 50), Err(libc::EINVAL));
        assert_eq!(reg(top(4096), 1), Err(libc::EINVAL));
        // All memory at once is for regions paged on demand.
        if access & ON_DEMAND == 0 {
            assert_eq!(reg(0, usize::MAX), Err(libc::EINVAL));
        }
    }
}

#[test]
fn mr_20_memory_with_a_hole_is_refused() {
    let end = end();
    let buffer = Buffer::apart(5 * 4096);
    buffer.unmap(2 * 4096, 4096);
    let reg = |page: usize, pages: usize, access| {
        let addr = buffer.addr() + page as u64 * 4096;
        try_reg(end.pd, addr, pages * 4096, access).map(drop)
    };
    for access in [0, REMOTE_READ, ALL] {
        assert_eq!(reg(0, 5, access), Err(libc::EFAULT), "a hole inside");
        assert_eq!(reg(2, 1, access), Err(libc::EFAULT), "nothing but a hole");
        assert_eq!(reg(1, 2, access), Err(libc::EFAULT), "a hole at the end");
        assert_eq!(reg(2, 2, access), Err(libc::EFAULT), "a hole at the beginning");
        assert_eq!(reg(4, 2, access), Err(libc::EFAULT), "past the end");
        assert_eq!(reg(0, 2, access), Ok(()), "before the hole");
        assert_eq!(reg(3, 2, access), Ok(()), "after the hole");
    }
    let last_byte = buffer.addr() + 2 * 4096 - 1;
    assert_eq!(try_reg(end.pd, last_byte, 1, ALL).map(drop), Ok(()));
    assert_eq!(try_reg(end.pd, last_byte, 2, ALL), Err(libc::EFAULT));
    assert_eq!(try_reg(end.pd, 0, 4096, 0), Err(libc::EFAULT), "the null page");
}

/// Rules: MR-21, MR-22
#[test]
fn read_only_memory_is_for_regions_that_nobody_writes() {
    let end = end();
    let buffer = Buffer::new(3 * 4096);
    let middle = buffer.addr() + 4096;
    let protected = Buffer::new(4096);
    protected.protect(libc::PROT_READ);
    buffer.protect_part(4096, 4096, libc::PROT_READ);
    for (addr, length) in [(protected.addr(), 4096), (buffer.addr(), 3 * 4096), (middle, 1)] {
        for access in [0, REMOTE_READ, ZERO_BASED | REMOTE_READ] {
            assert!(try_reg(end.pd, addr, length, access).is_ok(), "rights {access:#x}");
        }
        // A window may grant writing, so a region for windows counts as written.
        let atomic = LOCAL_WRITE | REMOTE_ATOMIC;
        for access in [LOCAL_WRITE, LOCAL_WRITE | REMOTE_WRITE, atomic, MW_BIND] {
            assert_eq!(try_reg(end.pd, addr, length, access), Err(libc::EFAULT), "{access:#x}");
        }
    }
    assert!(try_reg(end.pd, buffer.addr(), 4096, ALL).is_ok(), "its neighbour is writable");
}

/// Counts what fits; zero-length regions need no memory looked at.
/// Rules: MR-26
#[test]
fn there_are_max_mr_regions_and_no_more() {
    alone(path_of!("there_are_max_mr_regions_and_no_more"), Way::Direct, || {
        let end = end();
        let buffer = Buffer::new(4096);
        let register = || try_reg(end.pd, buffer.addr(), 0, 0);
        let first = register().expect("the first region");
        for count in 1..device_attr(end.context).max_mr {
            assert!(register().is_ok(), "after {count} regions: errno {}", errno());
        }
        assert_eq!(register(), Err(libc::ENOMEM));
        assert_eq!(dereg(first), 0);
        assert!(register().is_ok(), "one was freed");
        assert_eq!(register(), Err(libc::ENOMEM));
    });
}

#[test]
fn mr_27_longer_than_max_mr_size_is_refused() {
    let end = end();
    let longest = device_attr(end.context).max_mr_size as usize;
    for access in [0, ON_DEMAND] {
        assert_eq!(try_reg(end.pd, 4096, longest + 1, access), Err(libc::EINVAL));
    }
    assert!(try_reg(end.pd, 4096, longest, ON_DEMAND).is_ok());
}

/// Rules: MR-29, MR-32
#[test]
fn an_iova_lies_in_its_page_as_the_memory_does_and_does_not_wrap() {
    let end = end();
    let buffer = Buffer::new(3 * 4096);
    let reg = |skip: u64, length, iova| {
        try_reg_iova(end.pd, buffer.addr() + skip, length, iova, ALL).map(drop)
    };
    assert_eq!(reg(0, 4096, 0x1000_0000), Ok(()));
    assert_eq!(reg(17, 4096, 0x1000_0011), Ok(()));
    assert_eq!(reg(17, 4096, 0x1000_0000), Err(libc::EINVAL));
    assert_eq!(reg(0, 4096, 0x1000_0001), Err(libc::EINVAL));
    assert_eq!(reg(0, 4096, 0x1000_0800), Err(libc::EINVAL));
    assert_eq!(reg(0, 8192, 0_u64.wrapping_sub(4096)), Err(libc::EINVAL));
    assert_eq!(reg(0, 8192, 0_u64.wrapping_sub(3 * 4096)), Ok(()));
}

/// Rules: MR-17
#[test]
fn a_zero_length_region_is_accepted_anywhere() {
    let end = end();
    let buffer = Buffer::new(4096);
    for addr in [buffer.addr(), buffer.addr() + 17, 0] {
        for access in [0, ALL, ZERO_BASED] {
            let mr = try_reg(end.pd, addr, 0, access).expect("a region");
            // SAFETY: a live region.
            assert_eq!(unsafe { ((*mr).addr as u64, (*mr).length) }, (addr, 0));
            assert_eq!(dereg(mr), 0);
        }
    }
}
