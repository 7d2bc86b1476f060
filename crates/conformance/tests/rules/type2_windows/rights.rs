//! What a window of type 2 may be bound to, and what it grants then: rights, ranges, zero-based
//! addresses (rules D.2).

use transom_abi::*;
use transom_conformance::access::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;

const WRITE: u32 = IBV_ACCESS_REMOTE_WRITE;
const READ: u32 = IBV_ACCESS_REMOTE_READ;
const ATOMIC: u32 = IBV_ACCESS_REMOTE_ATOMIC;
const LOCAL: i32 = IBV_ACCESS_LOCAL_WRITE as i32;
const BIND: i32 = IBV_ACCESS_MW_BIND as i32;
const ZERO_BASED: u32 = IBV_ACCESS_ZERO_BASED;

/// How a bind of a new window to this range ends on queue pairs of its own; those and the window.
fn try_bind(both: &MemoryPair, range: Range) -> (ibv_wc_status, Qps, *mut ibv_mw) {
    let qps = both.more();
    let mw = both.pair.b.mw(IBV_MW_TYPE_2);
    post(qps.1, &mut bind2_wr(mw, rkey(mw).wrapping_add(1), range));
    (both.pair.b.wait().status, qps, mw)
}

/// The bind fails and its queue pair with it; the window is still free.
fn refused_bind(both: &MemoryPair, range: Range) {
    let (status, qps, mw) = try_bind(both, range);
    assert_eq!((status, state(qps.1)), (IBV_WC_MW_BIND_ERR, IBV_QPS_ERR), "{range:?}");
    both.reconnect(qps);
    bind(&both.pair.b, qps.1, mw, both.range(0, 64, REMOTE));
    assert_eq!(dealloc_mw(mw), 0);
    end_qps(qps);
}

/// The bind succeeds.
fn accepted_bind(both: &MemoryPair, range: Range) -> (Qps, u32) {
    let (status, qps, mw) = try_bind(both, range);
    assert_eq!(status, IBV_WC_SUCCESS, "{range:?}");
    (qps, rkey(mw))
}

/// Another registration of the target's memory.
fn another_mr(both: &MemoryPair, access: i32) -> *mut ibv_mr {
    both.pair.b.reg(&both.far, access)
}

/// A region that a window shall be bound to must allow binding, and be writable for remote rights
/// that write; its own remote rights do not matter. Windows of both types agree.
/// Rules: T2-28, T2-34
#[test]
fn the_region_must_allow_what_the_window_grants() {
    let both = MemoryPair::pages(Link::Loopback);
    let windows = [0, READ, WRITE, ATOMIC, WRITE | READ, ATOMIC | READ, REMOTE];
    for mr_access in [0, LOCAL, BIND, BIND | LOCAL, BIND | READ as i32, ALL & !BIND, ALL] {
        let mr = another_mr(&both, mr_access);
        for access in windows {
            let range = Range { mr, addr: both.far.addr(), length: 4096, access };
            let writes = access & (WRITE | ATOMIC) != 0;
            let binds = mr_access & BIND != 0 && (!writes || mr_access & LOCAL != 0);
            if !binds {
                refused_bind(&both, range);
            }
            // Type 1 is judged alike.
            let (_, qb) = both.more();
            assert_eq!(bind1(qb, both.pair.b.mw(IBV_MW_TYPE_1), 1, IBV_SEND_SIGNALED, range), 0);
            let expected = if binds { IBV_WC_SUCCESS } else { IBV_WC_MW_BIND_ERR };
            assert_eq!(both.pair.b.wait().status, expected, "type 1, {mr_access:#x} {range:?}");
            if binds {
                accepted_bind(&both, range);
            }
        }
    }
}

/// Rights that no window can have fail the bind.
/// Rules: T2-28
#[test]
fn other_rights_are_refused() {
    let both = MemoryPair::pages(Link::Loopback);
    for other in [IBV_ACCESS_MW_BIND, IBV_ACCESS_ON_DEMAND, 1 << 30] {
        refused_bind(&both, both.range(0, 64, READ | other));
    }
}

/// LOCAL_WRITE gives a window nothing: neither the right to write, nor a bind that fails.
/// Rules: T1-14
#[test]
fn local_writing_is_ignored() {
    let both = MemoryPair::pages(Link::Loopback);
    let readable = another_mr(&both, BIND);
    for access in [0, READ] {
        let (addr, access) = (both.far.addr(), access | IBV_ACCESS_LOCAL_WRITE);
        let range = Range { mr: readable, addr, length: 64, access };
        accepted_bind(&both, range);
        let (_, qb) = both.more();
        assert_eq!(bind1(qb, both.pair.b.mw(IBV_MW_TYPE_1), 1, IBV_SEND_SIGNALED, range), 0);
        both.pair.b.expect(IBV_WC_SUCCESS);
    }
}

/// The range must lie in the region, to the byte and without wrapping round; an exact fit does.
/// Rules: T2-28
#[test]
fn the_range_must_lie_in_the_region() {
    let both = MemoryPair::pages(Link::Loopback);
    let inner = try_reg(both.pair.b.pd, both.far.addr() + 100, 1000, ALL).expect("registers");
    let start = both.far.addr() + 100;
    let range = |addr, length| Range { mr: inner, addr, length, access: REMOTE };
    for (addr, length) in [
        (start - 1, 8),
        (start - 1, 1000),
        (start, 1001),
        (start + 999, 2),
        (start + 1000, 1),
        (start - 64, 64),
        (0, 8),
        (u64::MAX, 2),
        (u64::MAX - 7, 8),
        (start, u64::MAX),
        (start, u64::MAX - start + 1),
        (start + 8, 0_u64.wrapping_sub(8)),
    ] {
        refused_bind(&both, range(addr, length));
        refused_bind(&both, Range { access: REMOTE | ZERO_BASED, ..range(addr, length) });
    }
    for (addr, length) in [(start, 1000), (start, 1), (start + 999, 1)] {
        let (qps, key) = accepted_bind(&both, range(addr, length));
        both.allowed_on(qps, Op::Write, addr, length as u32, key);
    }
}

/// A region that has ended when the bind is carried out, and a key that was never one.
/// Rules: T2-28
#[test]
fn the_region_must_be_there() {
    let both = MemoryPair::pages(Link::Loopback);
    let mr = another_mr(&both, ALL);
    let mut gone = ibv_mr { ..Default::default() };
    for lkey in [keys(mr).0, keys(both.mb).0 ^ 1, 0, u32::MAX] {
        if lkey == keys(mr).0 {
            assert_eq!(dereg(mr), 0);
        }
        gone.lkey = lkey;
        refused_bind(&both, Range { mr: &mut gone, ..both.range(0, 64, REMOTE) });
    }
    // A window's key is no region's.
    let (_, key) = both.bound(IBV_MW_TYPE_2, both.range(0, 4096, REMOTE));
    gone.lkey = key;
    refused_bind(&both, Range { mr: &mut gone, ..both.range(0, 64, REMOTE) });
}

on_each_link! {
    /// A window grants each of its rights and no other, whatever its region grants.
    /// Rules: T2-34
    fn a_window_grants_its_own_rights_only(link: Link) {
        let both = MemoryPair::pages(link);
        let addr = both.far.addr();
        let private = another_mr(&both, BIND | LOCAL);
        for mr in [both.mb, private] {
            for access in [0, READ, WRITE, ATOMIC, READ | WRITE, REMOTE] {
                let (qps, key) = accepted_bind(&both, Range { mr, addr, length: 64, access });
                for op in Op::ALL {
                    if access & op.needs() != 0 {
                        both.allowed_on(qps, op, addr, 8, key);
                    }
                }
                // A refusal ends the queue pairs: the owner is the one that may be refused for
                // its rights.
                for op in Op::ALL.into_iter().filter(|op| access & op.needs() == 0) {
                    both.refused_on(qps, op, addr, 8, key);
                    both.reconnect(qps);
                }
            }
        }
        // READ needs nothing of the region but that it can be bound to.
        let mr = another_mr(&both, BIND);
        let range = Range { mr, addr, length: 64, access: READ };
        let (qps, key) = accepted_bind(&both, range);
        both.allowed_on(qps, Op::Read, addr, 64, key);
        both.refused(Op::Read, addr, 8, keys(mr).1);
    }

    /// A zero-based window is addressed by offsets from its own start, and ends at its length.
    /// Rules: T2-29, T2-30
    fn a_zero_based_window_is_addressed_from_its_start(link: Link) {
        let both = MemoryPair::pages(link);
        let range = both.range(104, 1000, REMOTE | ZERO_BASED);
        let (qps, key) = accepted_bind(&both, range);
        for (offset, length) in [(0, 1), (0, 1000), (999, 1), (500, 250)] {
            both.near.fill(0);
            assert_eq!(both.attempt(qps, Op::Read, offset, length, key), IBV_WC_SUCCESS);
            let (at, length) = (offset as usize, length as usize);
            assert_eq!(both.near.read(0, length), both.far.read(104 + at, length));
        }
        both.near.write(0, b"at the end");
        assert_eq!(both.attempt(qps, Op::Write, 990, 10, key), IBV_WC_SUCCESS);
        assert_eq!(both.far.read(1094, 10), b"at the end");
        let word = both.far.word(104 + 16);
        assert_eq!(both.attempt(qps, Op::Add, 16, 8, key), IBV_WC_SUCCESS);
        assert_eq!(both.far.word(104 + 16), word.wrapping_add(5));

        let outside = [(1000, 1), (999, 2), (0, 1001), (u64::MAX, 1), (u64::MAX, 2)];
        let addresses = [(range.addr, 1), (both.far.addr(), 8)];
        for (addr, length) in outside.into_iter().chain(addresses) {
            for op in [Op::Read, Op::Write] {
                both.refused_on(qps, op, addr, length, key);
                both.reconnect(qps);
            }
        }
        assert_eq!(both.attempt(qps, Op::Read, 0, 8, key), IBV_WC_SUCCESS);
    }

    /// On a zero-based region a window's range and addresses are offsets into the region; a
    /// zero-based window counts from its own start there as well.
    /// Rules: T2-31, T2-29
    fn windows_on_a_zero_based_region(link: Link) {
        let both = MemoryPair::pages(link);
        let mr = another_mr(&both, ALL | ZERO_BASED as i32);
        let range = Range { mr, addr: 104, length: 1000, access: REMOTE };
        for (access, start) in [(REMOTE, 104), (REMOTE | ZERO_BASED, 0)] {
            let (qps, key) = accepted_bind(&both, Range { access, ..range });
            both.near.write(0, b"here");
            assert_eq!(both.attempt(qps, Op::Write, start, 4, key), IBV_WC_SUCCESS);
            assert_eq!(both.far.read(104, 4), b"here");
            both.far.write(104, b"gone");
            assert_eq!(both.attempt(qps, Op::Read, start + 992, 8, key), IBV_WC_SUCCESS);
            assert_eq!(both.near.read(0, 8), both.far.read(1096, 8));
            let outside = [start.wrapping_sub(1), start + 1000, both.far.addr() + 104];
            for addr in outside {
                both.refused_on(qps, Op::Read, addr, 1, key);
                both.reconnect(qps);
            }
        }
        refused_bind(&both, Range { addr: 8192 - 999, ..range });
        refused_bind(&both, Range { addr: both.far.addr() + 104, ..range });
    }

    /// A window may be longer than any message, and reaches to its end.
    /// Rules: T2-39
    fn a_window_may_be_longer_than_any_message(link: Link) {
        let length = 5_usize << 30;
        let both = MemoryPair::pages(link);
        // Never touched but for its last bytes.
        let huge = Buffer::new(length);
        let mr = both.pair.b.reg(&huge, ALL);
        for length in [1 << 31, (1 << 31) + 1, length as u64] {
            let range = Range { mr, addr: huge.addr(), length, access: REMOTE };
            let (qps, key) = accepted_bind(&both, range);
            both.near.write(0, b"far away");
            let last = huge.addr() + length - 8;
            assert_eq!(both.attempt(qps, Op::Write, last, 8, key), IBV_WC_SUCCESS);
            assert_eq!(huge.read(length as usize - 8, 8), b"far away");
            both.refused_on(qps, Op::Write, last + 1, 8, key);
        }
    }
}

/// What a program writes into the handles of its structs does no harm.
/// Rules: T2-37
#[test]
fn handles_of_the_structs_are_not_trusted() {
    let both = MemoryPair::pages(Link::Loopback);
    for handle in [1, 0xdead_beef, u32::MAX] {
        let mr = another_mr(&both, ALL);
        let qps = both.more();
        let mw = both.pair.b.mw(IBV_MW_TYPE_2);
        let set = |handles| {
            // SAFETY: live objects of this test.
            let old = unsafe { ((*mr).handle, (*mw).handle) };
            // SAFETY: as above.
            unsafe { ((*mr).handle, (*mw).handle) = handles };
            old
        };
        let true_handles = set((handle, !handle));
        let range = Range { mr, addr: both.far.addr(), length: 64, access: REMOTE };
        post(qps.1, &mut bind2_wr(mw, rkey(mw) + 1, range));
        let status = both.pair.b.wait().status;
        assert!(matches!(status, IBV_WC_SUCCESS | IBV_WC_MW_BIND_ERR), "{status}");
        if status == IBV_WC_SUCCESS {
            both.allowed_on(qps, Op::Read, both.far.addr(), 64, rkey(mw));
        }
        set(true_handles);
        assert_eq!((dealloc_mw(mw), dereg(mr)), (0, 0));
    }
}
