//! Binding windows of type 2 by work request: posting, states, keys (rules D.2). Rights and ranges
//! are in `rights.rs`.

use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::access::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;

/// Posts a bind on a queue pair of the target and answers how it completes.
fn bind_on(both: &MemoryPair, qp: *mut ibv_qp, mw: *mut ibv_mw, key: u32, range: Range) -> ibv_wc {
    post(qp, &mut bind2_wr(mw, key, range));
    both.pair.b.wait()
}

/// The bind completes with MW_BIND_ERR and the queue pair is in error.
fn bind_fails(both: &MemoryPair, qp: *mut ibv_qp, mw: *mut ibv_mw, key: u32, range: Range) {
    let wc = bind_on(both, qp, mw, key, range);
    assert_eq!((wc.status, state(qp)), (IBV_WC_MW_BIND_ERR, IBV_QPS_ERR), "{range:?}");
}

/// The key a bind with this byte gives the window.
fn with_byte(mw: *mut ibv_mw, byte: u32) -> u32 {
    rkey(mw) & !0xff | byte & 0xff
}

on_each_link! {
    /// A bind of a free window completes with its own opcode and number, and the peer of the
    /// binding queue pair, and nobody else, may do what the window grants.
    /// Rules: T2-10, T2-13, T2-35, T2-36
    fn a_bound_window_serves_the_peer(link: Link) {
        let both = MemoryPair::pages(link);
        let (range, addr) = (both.range(64, 4096, REMOTE), both.far.addr() + 64);
        let mw = both.pair.b.mw(IBV_MW_TYPE_2);
        let key = with_byte(mw, 0x42);
        let mut request = bind2_wr(mw, 0x42, range);
        request.wr_id = 0xfeed_0000_1234;
        post(both.pair.qb, &mut request);
        let wc = both.pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!((wc.opcode, wc.wr_id), (IBV_WC_BIND_MW, 0xfeed_0000_1234));
        // SAFETY: a live queue pair.
        assert_eq!(wc.qp_num, unsafe { (*both.pair.qb).qp_num });
        for op in Op::ALL {
            both.allowed_on(both.qps(), op, addr, 8, key);
        }
        // Through another queue pair of the same domain.
        both.all_refused(addr, key);
        both.allowed_on(both.qps(), Op::Write, addr, 4096, key);
    }

    /// UC queue pairs bind too; that UD ones do not is in `unreliable/datagrams.rs`.
    /// Rules: T2-11
    fn uc_binds(link: Link) {
        let both = MemoryPair::pages(link);
        let (qa, qb) = both.pair.another(IBV_QPT_UC);
        let mw = both.pair.b.mw(IBV_MW_TYPE_2);
        let key = bind(&both.pair.b, qb, mw, both.range(0, 64, REMOTE));
        both.near.write(0, b"unreliable");
        let mut sges = [sge(both.near.addr(), 10, both.ma)];
        post(qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, both.far.addr() + 7, key));
        both.pair.a.expect(IBV_WC_SUCCESS);
        // What comes behind it has a completion that can be waited for.
        recv(qb, 5, &mut []);
        post(qa, &mut wr(IBV_WR_SEND));
        assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).wr_id, 5);
        assert_eq!(both.far.read(7, 10), b"unreliable");
    }

    /// The binding is there by the time that a SEND behind an unsignaled bind arrives.
    /// Rules: T2-13, T2-14
    fn a_key_may_be_sent_right_behind_its_bind(link: Link) {
        let both = MemoryPair::pages(link);
        let (_, qb) = both.qps();
        let mw = both.pair.b.mw(IBV_MW_TYPE_2);
        recv(both.pair.qa, 6, &mut []);
        let request = bind2_wr(mw, 1, both.range(0, 4096, REMOTE));
        post(qb, &mut ibv_send_wr { send_flags: 0, ..request });
        post(qb, &mut wr(IBV_WR_SEND));
        assert_eq!(both.pair.a.expect(IBV_WC_SUCCESS).wr_id, 6);
        assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
        both.allowed_on(both.qps(), Op::Read, both.far.addr(), 64, with_byte(mw, 1));
    }
}

/// A bind takes no SGEs.
/// Rules: T2-12
#[test]
fn a_bind_with_pieces_is_refused() {
    let both = MemoryPair::pages(Link::Loopback);
    let mw = both.pair.b.mw(IBV_MW_TYPE_2);
    let fresh = rkey(mw);
    let range = both.range(0, 64, REMOTE);
    let mut sges = [sge(both.far.addr(), 8, both.mb)];
    let mut request = with_sges(bind2_wr(mw, 3, range), &mut sges);
    assert_eq!(try_post(both.pair.qb, &mut request), libc::EINVAL);
    assert_eq!((rkey(mw), state(both.pair.qb)), (fresh, IBV_QPS_RTS));
    // Nothing was queued: the next one is the first, and finds the window free.
    let wc = bind_on(&both, both.pair.qb, mw, 4, range);
    assert_eq!(wc.status, IBV_WC_SUCCESS);
    both.pair.b.expect_nothing();
}

/// An unsignaled bind that succeeds is not reported.
/// Rules: T2-14
#[test]
fn unsignaled_success_is_silent() {
    let both = MemoryPair::pages(Link::Loopback);
    let (first, second) = (both.pair.b.mw(IBV_MW_TYPE_2), both.pair.b.mw(IBV_MW_TYPE_2));
    let range = both.range(0, 64, REMOTE);
    let silent = bind2_wr(first, 1, range);
    post(both.pair.qb, &mut ibv_send_wr { wr_id: 10, send_flags: 0, ..silent });
    post(both.pair.qb, &mut ibv_send_wr { wr_id: 11, ..bind2_wr(second, 1, range) });
    assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).wr_id, 11);
    both.pair.b.expect_nothing();
    for mw in [first, second] {
        both.allowed_on(both.qps(), Op::Read, both.far.addr(), 64, rkey(mw));
    }
}

/// An unsignaled bind that fails is reported all the same.
/// Rules: T2-15
#[test]
fn unsignaled_failure_is_reported() {
    let both = MemoryPair::pages(Link::Loopback);
    let mw = both.pair.b.mw(IBV_MW_TYPE_2);
    let request = bind2_wr(mw, 1, both.range(0, 8193, REMOTE));
    post(both.pair.qb, &mut ibv_send_wr { wr_id: 12, send_flags: 0, ..request });
    let wc = both.pair.b.expect(IBV_WC_MW_BIND_ERR);
    assert_eq!(wc.wr_id, 12);
    both.pair.b.expect_nothing();
}

/// A bind that fails takes its queue pair down, and leaves the window as it was: bound through
/// another queue pair, or free.
/// Rules: T2-16
#[test]
fn a_failed_bind_breaks_the_queue_pair_and_not_the_window() {
    let both = MemoryPair::pages(Link::Loopback);
    let (range, addr) = (both.range(0, 4096, REMOTE), both.far.addr());
    let (mw, key) = both.bound(IBV_MW_TYPE_2, range);
    let (qa, qb) = both.more();
    bind_fails(&both, qb, mw, key, both.range(4096, 64, REMOTE));
    // Later requests flush, the peer gets no answer.
    let other = both.pair.b.mw(IBV_MW_TYPE_2);
    let wc = bind_on(&both, qb, other, 1, range);
    assert_eq!((wc.status, wc.wr_id), (IBV_WC_WR_FLUSH_ERR, 1));
    let mr_key = keys(both.mb).1;
    give_up_soon(qa);
    let status = both.attempt((qa, qb), Op::Read, addr, 8, mr_key);
    assert_eq!(status, IBV_WC_RETRY_EXC_ERR);
    for op in Op::ALL {
        both.allowed_on(both.qps(), op, addr, 8, key);
    }

    let free = both.pair.b.mw(IBV_MW_TYPE_2);
    let (_, qb) = both.more();
    bind_fails(&both, qb, free, 9, both.range(0, 8193, REMOTE));
    both.all_refused(addr, with_byte(free, 9));
    let wc = bind_on(&both, both.pair.qb, free, 10, range);
    assert_eq!(wc.status, IBV_WC_SUCCESS);
}

/// A bound window cannot be bound again: not on its own queue pair nor on another, with another
/// key or the same, to another range or the same.
/// Rules: T2-20, T2-21, T2-22
#[test]
fn a_bound_window_cannot_be_bound() {
    let both = MemoryPair::pages(Link::Loopback);
    let (range, addr) = (both.range(0, 4096, REMOTE), both.far.addr());
    for own in [true, false] {
        for (next_key, range2) in [
            (1, both.range(4096, 64, REMOTE)),
            (0, both.range(4096, 64, REMOTE)),
            (1, range),
            (0, range),
        ] {
            let owner = both.more();
            let mw = both.pair.b.mw(IBV_MW_TYPE_2);
            let key = bind(&both.pair.b, owner.1, mw, range);
            let binder = if own { owner } else { both.more() };
            bind_fails(&both, binder.1, mw, key.wrapping_add(next_key), range2);
            if own {
                both.reconnect(owner);
            }
            for op in Op::ALL {
                both.allowed_on(owner, op, addr, 8, key);
            }
            assert_eq!(dealloc_mw(mw), 0);
        }
    }
}

/// After LOCAL_INV a window can be bound again, also by another queue pair, which owns it then.
/// Rules: T2-23
#[test]
fn an_invalidated_window_can_get_another_owner() {
    let both = MemoryPair::pages(Link::Loopback);
    let addr = both.far.addr();
    let (mw, key) = both.bound(IBV_MW_TYPE_2, both.range(0, 64, REMOTE));
    post(both.pair.qb, &mut local_inv_wr(key));
    both.pair.b.expect(IBV_WC_SUCCESS);
    let qps = both.more();
    let wc = bind_on(&both, qps.1, mw, key + 1, both.range(4096, 64, REMOTE));
    assert_eq!((wc.status, wc.opcode), (IBV_WC_SUCCESS, IBV_WC_BIND_MW));
    let key = rkey(mw);
    both.allowed_on(qps, Op::Write, addr + 4096, 64, key);
    both.refused_on(both.qps(), Op::Write, addr + 4096, 64, key);
    both.refused_on(qps, Op::Write, addr, 64, key);
}

/// Length zero binds nothing and unbinds nothing: on a free window and on a bound one, with a
/// region that would do.
/// Rules: T2-24
#[test]
fn length_zero_is_refused() {
    let both = MemoryPair::pages(Link::Loopback);
    let nothing = both.range(0, 0, REMOTE);
    let free = both.pair.b.mw(IBV_MW_TYPE_2);
    let (_, qb) = both.more();
    bind_fails(&both, qb, free, 1, nothing);
    let wc = bind_on(&both, both.pair.qb, free, 1, both.range(0, 64, REMOTE));
    assert_eq!(wc.status, IBV_WC_SUCCESS);
    let key = rkey(free);
    bind_fails(&both, both.pair.qb, free, key, nothing);
    both.reconnect(both.qps());
    both.allowed_on(both.qps(), Op::Read, both.far.addr(), 64, key);
}

/// A bind without a region is refused when it is posted, whatever its length.
/// Rules: T2-25
#[test]
fn no_region_is_refused_at_once() {
    let both = MemoryPair::pages(Link::Loopback);
    let mw = both.pair.b.mw(IBV_MW_TYPE_2);
    let fresh = rkey(mw);
    for (addr, length) in [(0, 0), (0, 64), (both.far.addr(), 64)] {
        let range = Range { mr: null_mut(), addr, length, access: REMOTE };
        let mut request = bind2_wr(mw, fresh + 1, range);
        assert_eq!(try_post(both.pair.qb, &mut request), libc::EINVAL);
        assert_eq!(rkey(mw), fresh);
    }
    assert_eq!(state(both.pair.qb), IBV_QPS_RTS);
    let wc = bind_on(&both, both.pair.qb, mw, 1, both.range(0, 64, REMOTE));
    assert_eq!(wc.status, IBV_WC_SUCCESS);
    both.pair.b.expect_nothing();
}

/// Window, region and queue pair must be of one protection domain, whichever is the odd one.
/// Rules: T2-26, T2-27
#[test]
fn all_must_be_of_one_domain() {
    let both = MemoryPair::pages(Link::Loopback);
    let b = &both.pair.b;
    let other = b.with_pd(b.another_pd());
    let other_mr = other.reg(&both.far, ALL);
    let range = |mr| Range { mr, addr: both.far.addr(), length: 64, access: REMOTE };
    for (window, mr) in [(b, other_mr), (&other, both.mb), (&other, other_mr)] {
        let mw = window.mw(IBV_MW_TYPE_2);
        let (_, qb) = both.more();
        bind_fails(&both, qb, mw, 1, range(mr));
        assert_eq!(dealloc_mw(mw), 0);
    }
    // The other domain's things go together.
    let (qa, qb) = (both.pair.a.qp(IBV_QPT_RC), other.qp(IBV_QPT_RC));
    connect(qa, qb);
    let key = bind(&other, qb, other.mw(IBV_MW_TYPE_2), range(other_mr));
    both.allowed_on((qa, qb), Op::Read, both.far.addr(), 64, key);
    assert_eq!((dereg(other_mr), dereg(both.mb)), (libc::EBUSY, 0));
}

/// A window of type 1 is not bound by work request.
/// Rules: T2-32
#[test]
fn a_window_of_type_1_is_refused_at_once() {
    let both = MemoryPair::pages(Link::Loopback);
    let mw = both.pair.b.mw(IBV_MW_TYPE_1);
    let fresh = rkey(mw);
    let range = both.range(0, 64, REMOTE);
    assert_eq!(try_post(both.pair.qb, &mut bind2_wr(mw, fresh + 1, range)), libc::EINVAL);
    assert_eq!((rkey(mw), state(both.pair.qb)), (fresh, IBV_QPS_RTS));
    both.pair.b.expect_nothing();
    bind(&both.pair.b, both.pair.qb, mw, range);
}

/// The program chooses the low byte of the key, any one and the same again, and nothing else; the
/// library's key is the new one as soon as the bind is posted.
/// Rules: T2-33
#[test]
fn the_program_chooses_the_low_byte() {
    let both = MemoryPair::pages(Link::Loopback);
    let (qb, addr) = (both.pair.qb, both.far.addr());
    let mw = both.pair.b.mw(IBV_MW_TYPE_2);
    let index = rkey(mw) >> 8;
    for asked in [0x00, 0xff, 0x07, 0xffff_ff07, 0x1234_5600, 0x80] {
        post(qb, &mut bind2_wr(mw, asked, both.range(0, 64, REMOTE)));
        let key = index << 8 | asked & 0xff;
        assert_eq!(rkey(mw), key);
        both.pair.b.expect(IBV_WC_SUCCESS);
        both.allowed_on(both.qps(), Op::Read, addr, 64, key);
        both.refused(Op::Read, addr, 8, key ^ 1);
        post(qb, &mut local_inv_wr(key));
        both.pair.b.expect(IBV_WC_SUCCESS);
    }
    // The same byte for two windows makes two keys.
    let second = both.pair.b.mw(IBV_MW_TYPE_2);
    for mw in [mw, second] {
        post(qb, &mut bind2_wr(mw, 1024, both.range(0, 64, REMOTE)));
        both.pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!(rkey(mw) & 0xff, 0);
    }
    assert_ne!(rkey(mw), rkey(second));
}

/// On a queue pair in error a bind is flushed, and the window stays free.
/// Rules: T2-38
#[test]
fn a_bind_is_flushed_in_error() {
    let both = MemoryPair::pages(Link::Loopback);
    let (_, qb) = both.more();
    assert_eq!(set_state(qb, IBV_QPS_ERR), 0);
    let mw = both.pair.b.mw(IBV_MW_TYPE_2);
    let range = both.range(0, 64, REMOTE);
    let wc = bind_on(&both, qb, mw, 1, range);
    assert_eq!((wc.status, wc.wr_id), (IBV_WC_WR_FLUSH_ERR, 1));
    both.refused(Op::Read, both.far.addr(), 8, rkey(mw));
    let wc = bind_on(&both, both.pair.qb, mw, 1, range);
    assert_eq!(wc.status, IBV_WC_SUCCESS);
    both.allowed_on(both.qps(), Op::Read, both.far.addr(), 64, rkey(mw));
}
