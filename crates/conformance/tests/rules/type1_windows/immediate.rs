//! Binds of type 1 windows that are refused at once: the verb answers an errno, nothing is queued,
//! the key stays (rules C.1). None of it depends on a link.

use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::access::*;
use transom_conformance::harness::*;

/// Two ends of one device and a window of this type.
fn with_window(kind: ibv_mw_type) -> (MemoryPair, *mut ibv_mw) {
    let both = MemoryPair::pages(Link::Loopback);
    let mw = both.pair.b.mw(kind);
    (both, mw)
}

/// The bind is refused with this errno and leaves no trace: no change of key, queue pair or window,
/// and no completion before that of a good bind.
fn refused(both: &MemoryPair, mw: *mut ibv_mw, flags: u32, range: Range, errno: i32) {
    let (key, qb) = (rkey(mw), both.pair.qb);
    assert_eq!(bind1(qb, mw, 1, IBV_SEND_SIGNALED | flags, range), errno, "{range:x?}");
    assert_eq!((rkey(mw), state(qb)), (key, IBV_QPS_RTS));
    let witness = both.pair.b.mw(IBV_MW_TYPE_1);
    assert_eq!(bind1(qb, witness, 2, IBV_SEND_SIGNALED, both.range(0, 8, 0)), 0);
    assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).wr_id, 2);
    both.pair.b.expect_nothing();
    assert_eq!(dealloc_mw(witness), 0);
    both.refused(Op::Read, both.far.addr(), 8, key);
}

/// A region in a domain of its own, over the target's memory.
fn foreign_region(both: &MemoryPair, access: i32) -> *mut ibv_mr {
    reg(both.pair.b.another_pd(), &both.far, access)
}

/// Rules: T1-01
#[test]
fn a_type_2_window_is_not_bound_by_the_verb() {
    let (both, mw) = with_window(IBV_MW_TYPE_2);
    refused(&both, mw, 0, both.range(0, 64, REMOTE), libc::EINVAL);
    refused(&both, mw, 0, NOTHING, libc::EINVAL);
}

/// Rules: T1-02
#[test]
fn no_region_means_no_address_and_no_length() {
    let (both, mw) = with_window(IBV_MW_TYPE_1);
    let addr = both.far.addr();
    for (addr, length) in [(0, 64), (addr, 0), (addr, 64), (1, 0), (0, 1), (u64::MAX, u64::MAX)] {
        refused(&both, mw, 0, Range { mr: null_mut(), addr, length, access: 0 }, libc::EINVAL);
    }
}

/// Rules: T1-03
#[test]
fn the_region_must_be_of_the_windows_domain() {
    let (both, mw) = with_window(IBV_MW_TYPE_1);
    let mr = foreign_region(&both, ALL);
    refused(&both, mw, 0, Range { mr, ..both.range(0, 64, REMOTE) }, libc::EPERM);
    refused(&both, mw, 0, Range { mr, ..both.range(0, 0, 0) }, libc::EPERM);
}

/// The type counts before the domain, and the domain before all that the device looks at: rights,
/// kind of region, flags, state and room of the queue pair.
/// Rules: T1-04
#[test]
fn the_type_counts_first_then_the_domain() {
    let (both, mw) = with_window(IBV_MW_TYPE_1);
    let mr = foreign_region(&both, ALL | IBV_ACCESS_ZERO_BASED as i32);
    let foreign = Range { mr, ..both.range(0, 64, REMOTE) };
    let worse = Range { access: IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE, ..foreign };
    let type_2 = both.pair.b.mw(IBV_MW_TYPE_2);
    refused(&both, type_2, 0, foreign, libc::EINVAL);
    refused(&both, mw, IBV_SEND_INLINE, worse, libc::EPERM);
    let unconnected = both.pair.b.qp(IBV_QPT_RC);
    assert_eq!(bind1(unconnected, mw, 1, 0, foreign), libc::EPERM);
    assert_eq!(bind1(unconnected, type_2, 1, 0, foreign), libc::EINVAL);
}

/// Only the remote rights can be given to a type 1 window.
/// Rules: T1-05, T1-14
#[test]
fn other_rights_are_refused() {
    let (both, mw) = with_window(IBV_MW_TYPE_1);
    // LOCAL_WRITE is ignored, for programs name it along with the remote rights that need it.
    let known = REMOTE | IBV_ACCESS_LOCAL_WRITE;
    for bit in (0..32).map(|bit| 1_u32 << bit).filter(|bit| bit & known == 0) {
        refused(&both, mw, 0, both.range(0, 64, bit), libc::EINVAL);
        refused(&both, mw, 0, both.range(0, 64, bit | REMOTE), libc::EINVAL);
    }
    // A type 2 window may be zero-based; all else fails its bind.
    let allowed = known | IBV_ACCESS_ZERO_BASED;
    for bit in (0..32).map(|bit| 1_u32 << bit).filter(|bit| bit & allowed == 0) {
        let (qps, mw) = (both.more(), both.pair.b.mw(IBV_MW_TYPE_2));
        post(qps.1, &mut bind2_wr(mw, 1, both.range(0, 64, bit)));
        both.pair.b.expect(IBV_WC_MW_BIND_ERR);
        assert_eq!(state(qps.1), IBV_QPS_ERR);
        end_qps(qps);
    }
}

/// Rules: T1-06
#[test]
fn a_zero_based_region_is_refused() {
    let (both, mw) = with_window(IBV_MW_TYPE_1);
    let mr = both.pair.b.reg(&both.far, ALL | IBV_ACCESS_ZERO_BASED as i32);
    refused(&both, mw, 0, Range { mr, addr: 0, length: 64, access: REMOTE }, libc::EINVAL);
}

/// There is no limit to a window's length but its region's.
/// Rules: T1-08
#[test]
fn a_window_can_be_longer_than_2_gib() {
    let pair = Pair::rc(Link::Loopback);
    let (near, far) = (Buffer::new(4096), Buffer::new((1 << 31) + 8192));
    let (ma, mr) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
    let length = far.len() as u64 - 8;
    let range = Range { mr, addr: far.addr(), length, access: REMOTE };
    let key = bind(&pair.b, pair.qb, pair.b.mw(IBV_MW_TYPE_1), range);
    far.set_word(far.len() - 16, 0x1234_5678_9abc_def0);
    let mut sges = [sge(near.addr(), 8, ma)];
    post(pair.qa, &mut op_wr(Op::Read, &mut sges, far.addr() + length - 8, key));
    pair.a.expect(IBV_WC_SUCCESS);
    assert_eq!(near.word(0), 0x1234_5678_9abc_def0);
    post(pair.qa, &mut op_wr(Op::Read, &mut sges, far.addr() + length - 7, key));
    pair.a.expect(IBV_WC_REM_ACCESS_ERR);
}

/// Rules: T1-09
#[test]
fn a_full_send_queue_takes_no_bind() {
    let (both, mw) = with_window(IBV_MW_TYPE_1);
    let (qa, qb) = both.qps();
    hold_back(qb);
    for n in 1..64 {
        assert_eq!(bind1(qb, mw, n, IBV_SEND_SIGNALED, both.range(0, n, REMOTE)), 0);
    }
    let key = rkey(mw);
    let more = both.range(64, 64, REMOTE);
    assert_eq!(bind1(qb, mw, 64, IBV_SEND_SIGNALED, more), libc::ENOMEM);
    assert_eq!(rkey(mw), key);
    release(qa, &both.pair.a);
    for n in 1..64 {
        assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).wr_id, n);
    }
    both.allowed_on((qa, qb), Op::Read, both.far.addr(), 63, key);
    // There is room again, and the window is as the last bind that was taken left it.
    let key = bind(&both.pair.b, qb, mw, more);
    both.allowed_on((qa, qb), Op::Read, both.far.addr() + 64, 64, key);
    both.pair.b.expect_nothing();
}

/// Before RTS a queue pair takes no bind; that changes nothing of it.
/// Rules: T1-11
#[test]
fn before_rts_no_bind_is_taken() {
    let (both, mw) = with_window(IBV_MW_TYPE_1);
    let (key, qp) = (rkey(mw), both.pair.b.qp(IBV_QPT_RC));
    let attr = usual_attr(qp);
    for to in [None, Some(IBV_QPS_INIT), Some(IBV_QPS_RTR)] {
        if let Some(to) = to {
            assert_eq!(modify(qp, &attr, to), 0);
        }
        let range = both.range(0, 64, REMOTE);
        assert_eq!(bind1(qp, mw, 1, IBV_SEND_SIGNALED, range), libc::EINVAL);
        assert_eq!((rkey(mw), state(qp)), (key, to.unwrap_or(IBV_QPS_RESET)));
    }
    assert_eq!(modify(qp, &attr, IBV_QPS_RTS), 0);
    assert_eq!(bind1(qp, mw, 2, IBV_SEND_SIGNALED, both.range(0, 64, REMOTE)), 0);
    assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).wr_id, 2);
    both.pair.b.expect_nothing();
    both.allowed(Op::Read, both.far.addr(), 64, rkey(mw));
}

/// In error a queue pair takes binds and flushes them; the window stays as it was.
/// Rules: T1-12
#[test]
fn in_error_a_bind_is_flushed() {
    let both = MemoryPair::pages(Link::Loopback);
    let (mw, key) = both.bound(IBV_MW_TYPE_1, both.range(0, 64, REMOTE));
    let qps = both.more();
    assert_eq!(set_state(qps.1, IBV_QPS_ERR), 0);
    for (wr_id, range) in [(8, both.range(64, 64, REMOTE)), (9, NOTHING)] {
        assert_eq!(bind1(qps.1, mw, wr_id, 0, range), 0);
        assert_eq!(both.pair.b.expect(IBV_WC_WR_FLUSH_ERR).wr_id, wr_id);
    }
    both.allowed(Op::Write, both.far.addr(), 64, key);
    both.refused(Op::Write, both.far.addr() + 64, 8, rkey(mw));
    assert_eq!(dereg(both.mb), libc::EBUSY);
}

/// A type 1 window is not bound by a work request of its own kind.
/// Rules: T1-13, T2-32
#[test]
fn a_work_request_does_not_bind_a_type_1_window() {
    let (both, mw) = with_window(IBV_MW_TYPE_1);
    let key = rkey(mw);
    let request = bind2_wr(mw, key.wrapping_add(1), both.range(0, 64, REMOTE));
    let (mut first, mut second) = (wr(IBV_WR_SEND), request);
    assert_eq!(try_post(both.pair.qb, &mut second), libc::EINVAL);
    assert_eq!(rkey(mw), key);
    // Of a list, what stands before it is taken.
    recv(both.pair.qa, 3, &mut []);
    first.next = &mut second;
    assert_eq!(try_post(both.pair.qb, &mut first), libc::EINVAL);
    assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
    both.pair.a.expect(IBV_WC_SUCCESS);
    both.pair.b.expect_nothing();
    assert_eq!((rkey(mw), state(both.pair.qb)), (key, IBV_QPS_RTS));
    both.all_refused(both.far.addr(), key.wrapping_add(1));
}

/// INLINE makes no sense with a bind and is refused; SOLICITED makes none and is ignored.
/// Rules: T1-15
#[test]
fn inline_is_refused_and_solicited_ignored() {
    let (both, mw) = with_window(IBV_MW_TYPE_1);
    refused(&both, mw, IBV_SEND_INLINE, both.range(0, 64, REMOTE), libc::EINVAL);
    let flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
    assert_eq!(bind1(both.pair.qb, mw, 4, flags, both.range(0, 64, REMOTE)), 0);
    assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).wr_id, 4);
    both.allowed(Op::Read, both.far.addr(), 64, rkey(mw));
}
