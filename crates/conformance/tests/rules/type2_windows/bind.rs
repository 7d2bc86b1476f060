//! Binding windows of type 2 by work request: posting, states, keys (rules D.2). Rights and ranges
//! are in `rights.rs`.

use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::access::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;

/// Posts a bind on a queue pair of the target and answers how it completes.
fn bind_on(scene: &Scene, qp: *mut ibv_qp, mw: *mut ibv_mw, key: u32, range: Range) -> ibv_wc {
    post(qp, &mut bind2_wr(mw, key, range));
    scene.pair.b.wait()
}

/// The bind completes with MW_BIND_ERR and the queue pair is in error.
fn bind_fails(scene: &Scene, qp: *mut ibv_qp, mw: *mut ibv_mw, key: u32, range: Range) {
    let wc = bind_on(scene, qp, mw, key, range);
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
        let scene = Scene::new(link);
        let (range, addr) = (scene.range(64, 4096, REMOTE), scene.far.addr() + 64);
        let mw = scene.pair.b.mw(IBV_MW_TYPE_2);
        let key = with_byte(mw, 0x42);
        let mut request = bind2_wr(mw, 0x42, range);
        request.wr_id = 0xfeed_0000_1234;
        post(scene.pair.qb, &mut request);
        let wc = scene.pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!((wc.opcode, wc.wr_id), (IBV_WC_BIND_MW, 0xfeed_0000_1234));
        // SAFETY: a live queue pair.
        assert_eq!(wc.qp_num, unsafe { (*scene.pair.qb).qp_num });
        for op in Op::ALL {
            scene.allowed_on(scene.qps(), op, addr, 8, key);
        }
        // Through another queue pair of the same domain.
        scene.all_refused(addr, key);
        scene.allowed_on(scene.qps(), Op::Write, addr, 4096, key);
    }

    /// UC queue pairs bind too; that UD ones do not can be seen once there are any.
    /// Rules: T2-11
    fn uc_binds(link: Link) {
        let scene = Scene::new(link);
        let (qa, qb) = scene.pair.another(IBV_QPT_UC);
        let mw = scene.pair.b.mw(IBV_MW_TYPE_2);
        let key = bind(&scene.pair.b, qb, mw, scene.range(0, 64, REMOTE));
        scene.near.write(0, b"unreliable");
        let mut sges = [sge(scene.near.addr(), 10, scene.near_mr)];
        post(qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, scene.far.addr() + 7, key));
        scene.pair.a.expect(IBV_WC_SUCCESS);
        // What comes behind it has a completion that can be waited for.
        recv(qb, 5, &mut []);
        post(qa, &mut wr(IBV_WR_SEND));
        assert_eq!(scene.pair.b.expect(IBV_WC_SUCCESS).wr_id, 5);
        assert_eq!(scene.far.read(7, 10), b"unreliable");
    }

    /// The binding is there by the time that a SEND behind an unsignaled bind arrives.
    /// Rules: T2-13, T2-14
    fn a_key_may_be_sent_right_behind_its_bind(link: Link) {
        let scene = Scene::new(link);
        let (_, qb) = scene.qps();
        let mw = scene.pair.b.mw(IBV_MW_TYPE_2);
        recv(scene.pair.qa, 6, &mut []);
        let request = bind2_wr(mw, 1, scene.range(0, 4096, REMOTE));
        post(qb, &mut ibv_send_wr { send_flags: 0, ..request });
        post(qb, &mut wr(IBV_WR_SEND));
        assert_eq!(scene.pair.a.expect(IBV_WC_SUCCESS).wr_id, 6);
        assert_eq!(scene.pair.b.expect(IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
        scene.allowed_on(scene.qps(), Op::Read, scene.far.addr(), 64, with_byte(mw, 1));
    }
}

/// A bind takes no pieces.
/// Rules: T2-12
#[test]
fn a_bind_with_pieces_is_refused() {
    let scene = Scene::new(Link::Loopback);
    let mw = scene.pair.b.mw(IBV_MW_TYPE_2);
    let fresh = rkey(mw);
    let range = scene.range(0, 64, REMOTE);
    let mut sges = [sge(scene.far.addr(), 8, scene.far_mr)];
    let mut request = with_sges(bind2_wr(mw, 3, range), &mut sges);
    assert_eq!(try_post(scene.pair.qb, &mut request), libc::EINVAL);
    assert_eq!((rkey(mw), state(scene.pair.qb)), (fresh, IBV_QPS_RTS));
    // Nothing was queued: the next one is the first, and finds the window free.
    let wc = bind_on(&scene, scene.pair.qb, mw, 4, range);
    assert_eq!(wc.status, IBV_WC_SUCCESS);
    scene.pair.b.expect_nothing();
}

/// An unsignaled bind that succeeds is not reported.
/// Rules: T2-14
#[test]
fn unsignaled_success_is_silent() {
    let scene = Scene::new(Link::Loopback);
    let (first, second) = (scene.pair.b.mw(IBV_MW_TYPE_2), scene.pair.b.mw(IBV_MW_TYPE_2));
    let range = scene.range(0, 64, REMOTE);
    let silent = bind2_wr(first, 1, range);
    post(scene.pair.qb, &mut ibv_send_wr { wr_id: 10, send_flags: 0, ..silent });
    post(scene.pair.qb, &mut ibv_send_wr { wr_id: 11, ..bind2_wr(second, 1, range) });
    assert_eq!(scene.pair.b.expect(IBV_WC_SUCCESS).wr_id, 11);
    scene.pair.b.expect_nothing();
    for mw in [first, second] {
        scene.allowed_on(scene.qps(), Op::Read, scene.far.addr(), 64, rkey(mw));
    }
}

/// An unsignaled bind that fails is reported all the same.
/// Rules: T2-15
#[test]
fn unsignaled_failure_is_reported() {
    let scene = Scene::new(Link::Loopback);
    let mw = scene.pair.b.mw(IBV_MW_TYPE_2);
    let request = bind2_wr(mw, 1, scene.range(0, 8193, REMOTE));
    post(scene.pair.qb, &mut ibv_send_wr { wr_id: 12, send_flags: 0, ..request });
    let wc = scene.pair.b.expect(IBV_WC_MW_BIND_ERR);
    assert_eq!(wc.wr_id, 12);
    scene.pair.b.expect_nothing();
}

/// A bind that fails takes its queue pair down, and leaves the window as it was: bound through
/// another queue pair, or free.
/// Rules: T2-16
#[test]
fn a_failed_bind_breaks_the_queue_pair_and_not_the_window() {
    let scene = Scene::new(Link::Loopback);
    let (range, addr) = (scene.range(0, 4096, REMOTE), scene.far.addr());
    let (mw, key) = scene.bound(IBV_MW_TYPE_2, range);
    let (qa, qb) = scene.more();
    bind_fails(&scene, qb, mw, key, scene.range(4096, 64, REMOTE));
    // Later requests flush, the peer gets no answer.
    let other = scene.pair.b.mw(IBV_MW_TYPE_2);
    let wc = bind_on(&scene, qb, other, 1, range);
    assert_eq!((wc.status, wc.wr_id), (IBV_WC_WR_FLUSH_ERR, 1));
    let mr_key = keys(scene.far_mr).1;
    give_up_soon(qa);
    let status = scene.attempt((qa, qb), Op::Read, addr, 8, mr_key);
    assert_eq!(status, IBV_WC_RETRY_EXC_ERR);
    for op in Op::ALL {
        scene.allowed_on(scene.qps(), op, addr, 8, key);
    }

    let free = scene.pair.b.mw(IBV_MW_TYPE_2);
    let (_, qb) = scene.more();
    bind_fails(&scene, qb, free, 9, scene.range(0, 8193, REMOTE));
    scene.all_refused(addr, with_byte(free, 9));
    let wc = bind_on(&scene, scene.pair.qb, free, 10, range);
    assert_eq!(wc.status, IBV_WC_SUCCESS);
}

/// A bound window cannot be bound again: not on its own queue pair nor on another, with another
/// key or the same, to another range or the same.
/// Rules: T2-20, T2-21, T2-22
#[test]
fn a_bound_window_cannot_be_bound() {
    let scene = Scene::new(Link::Loopback);
    let (range, addr) = (scene.range(0, 4096, REMOTE), scene.far.addr());
    for own in [true, false] {
        for (next_key, range2) in [
            (1, scene.range(4096, 64, REMOTE)),
            (0, scene.range(4096, 64, REMOTE)),
            (1, range),
            (0, range),
        ] {
            let owner = scene.more();
            let mw = scene.pair.b.mw(IBV_MW_TYPE_2);
            let key = bind(&scene.pair.b, owner.1, mw, range);
            let binder = if own { owner } else { scene.more() };
            bind_fails(&scene, binder.1, mw, key.wrapping_add(next_key), range2);
            if own {
                scene.reconnect(owner);
            }
            for op in Op::ALL {
                scene.allowed_on(owner, op, addr, 8, key);
            }
            assert_eq!(dealloc_mw(mw), 0);
        }
    }
}

/// After LOCAL_INV a window can be bound again, also by another queue pair, which owns it then.
/// Rules: T2-23
#[test]
fn an_invalidated_window_can_get_another_owner() {
    let scene = Scene::new(Link::Loopback);
    let addr = scene.far.addr();
    let (mw, key) = scene.bound(IBV_MW_TYPE_2, scene.range(0, 64, REMOTE));
    post(scene.pair.qb, &mut local_inv_wr(key));
    scene.pair.b.expect(IBV_WC_SUCCESS);
    let qps = scene.more();
    let wc = bind_on(&scene, qps.1, mw, key + 1, scene.range(4096, 64, REMOTE));
    assert_eq!((wc.status, wc.opcode), (IBV_WC_SUCCESS, IBV_WC_BIND_MW));
    let key = rkey(mw);
    scene.allowed_on(qps, Op::Write, addr + 4096, 64, key);
    scene.refused_on(scene.qps(), Op::Write, addr + 4096, 64, key);
    scene.refused_on(qps, Op::Write, addr, 64, key);
}

/// Length zero binds nothing and unbinds nothing: on a free window and on a bound one, with a
/// region that would do.
/// Rules: T2-24
#[test]
fn length_zero_is_refused() {
    let scene = Scene::new(Link::Loopback);
    let nothing = scene.range(0, 0, REMOTE);
    let free = scene.pair.b.mw(IBV_MW_TYPE_2);
    let (_, qb) = scene.more();
    bind_fails(&scene, qb, free, 1, nothing);
    let wc = bind_on(&scene, scene.pair.qb, free, 1, scene.range(0, 64, REMOTE));
    assert_eq!(wc.status, IBV_WC_SUCCESS);
    let key = rkey(free);
    bind_fails(&scene, scene.pair.qb, free, key, nothing);
    scene.reconnect(scene.qps());
    scene.allowed_on(scene.qps(), Op::Read, scene.far.addr(), 64, key);
}

/// A bind without a region is refused when it is posted, whatever its length.
/// Rules: T2-25
#[test]
fn no_region_is_refused_at_once() {
    let scene = Scene::new(Link::Loopback);
    let mw = scene.pair.b.mw(IBV_MW_TYPE_2);
    let fresh = rkey(mw);
    for (addr, length) in [(0, 0), (0, 64), (scene.far.addr(), 64)] {
        let range = Range { mr: null_mut(), addr, length, access: REMOTE };
        let mut request = bind2_wr(mw, fresh + 1, range);
        assert_eq!(try_post(scene.pair.qb, &mut request), libc::EINVAL);
        assert_eq!(rkey(mw), fresh);
    }
    assert_eq!(state(scene.pair.qb), IBV_QPS_RTS);
    let wc = bind_on(&scene, scene.pair.qb, mw, 1, scene.range(0, 64, REMOTE));
    assert_eq!(wc.status, IBV_WC_SUCCESS);
    scene.pair.b.expect_nothing();
}

/// Window, region and queue pair must be of one protection domain, whichever is the odd one.
/// Rules: T2-26, T2-27
#[test]
fn all_must_be_of_one_domain() {
    let scene = Scene::new(Link::Loopback);
    let b = &scene.pair.b;
    let other = b.with_pd(b.another_pd());
    let other_mr = other.reg(&scene.far, ALL);
    let range = |mr| Range { mr, addr: scene.far.addr(), length: 64, access: REMOTE };
    for (window, mr) in [(b, other_mr), (&other, scene.far_mr), (&other, other_mr)] {
        let mw = window.mw(IBV_MW_TYPE_2);
        let (_, qb) = scene.more();
        bind_fails(&scene, qb, mw, 1, range(mr));
        assert_eq!(dealloc_mw(mw), 0);
    }
    // The other domain's things go together.
    let (qa, qb) = (scene.pair.a.qp(IBV_QPT_RC), other.qp(IBV_QPT_RC));
    connect(qa, qb);
    let key = bind(&other, qb, other.mw(IBV_MW_TYPE_2), range(other_mr));
    scene.allowed_on((qa, qb), Op::Read, scene.far.addr(), 64, key);
    assert_eq!((dereg(other_mr), dereg(scene.far_mr)), (libc::EBUSY, 0));
}

/// A window of type 1 is not bound by work request.
/// Rules: T2-32
#[test]
fn a_window_of_type_1_is_refused_at_once() {
    let scene = Scene::new(Link::Loopback);
    let mw = scene.pair.b.mw(IBV_MW_TYPE_1);
    let fresh = rkey(mw);
    let range = scene.range(0, 64, REMOTE);
    assert_eq!(try_post(scene.pair.qb, &mut bind2_wr(mw, fresh + 1, range)), libc::EINVAL);
    assert_eq!((rkey(mw), state(scene.pair.qb)), (fresh, IBV_QPS_RTS));
    scene.pair.b.expect_nothing();
    bind(&scene.pair.b, scene.pair.qb, mw, range);
}

/// The program chooses the low byte of the key, any one and the same again, and nothing else; the
/// library's key is the new one as soon as the bind is posted.
/// Rules: T2-33
#[test]
fn the_program_chooses_the_low_byte() {
    let scene = Scene::new(Link::Loopback);
    let (qb, addr) = (scene.pair.qb, scene.far.addr());
    let mw = scene.pair.b.mw(IBV_MW_TYPE_2);
    let index = rkey(mw) >> 8;
    for asked in [0x00, 0xff, 0x07, 0xffff_ff07, 0x1234_5600, 0x80] {
        post(qb, &mut bind2_wr(mw, asked, scene.range(0, 64, REMOTE)));
        let key = index << 8 | asked & 0xff;
        assert_eq!(rkey(mw), key);
        scene.pair.b.expect(IBV_WC_SUCCESS);
        scene.allowed_on(scene.qps(), Op::Read, addr, 64, key);
        scene.refused(Op::Read, addr, 8, key ^ 1);
        post(qb, &mut local_inv_wr(key));
        scene.pair.b.expect(IBV_WC_SUCCESS);
    }
    // The same byte for two windows makes two keys.
    let second = scene.pair.b.mw(IBV_MW_TYPE_2);
    for mw in [mw, second] {
        post(qb, &mut bind2_wr(mw, 1024, scene.range(0, 64, REMOTE)));
        scene.pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!(rkey(mw) & 0xff, 0);
    }
    assert_ne!(rkey(mw), rkey(second));
}

/// On a queue pair in error a bind is flushed, and the window stays free.
/// Rules: T2-38
#[test]
fn a_bind_is_flushed_in_error() {
    let scene = Scene::new(Link::Loopback);
    let (_, qb) = scene.more();
    assert_eq!(set_state(qb, IBV_QPS_ERR), 0);
    let mw = scene.pair.b.mw(IBV_MW_TYPE_2);
    let range = scene.range(0, 64, REMOTE);
    let wc = bind_on(&scene, qb, mw, 1, range);
    assert_eq!((wc.status, wc.wr_id), (IBV_WC_WR_FLUSH_ERR, 1));
    scene.refused(Op::Read, scene.far.addr(), 8, rkey(mw));
    let wc = bind_on(&scene, scene.pair.qb, mw, 1, range);
    assert_eq!(wc.status, IBV_WC_SUCCESS);
    scene.allowed_on(scene.qps(), Op::Read, scene.far.addr(), 64, rkey(mw));
}
