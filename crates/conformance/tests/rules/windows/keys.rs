//! The keys of memory windows (rules B.2).

use transom_abi::*;
use transom_conformance::access::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_host::Options;

const TYPES: [ibv_mw_type; 2] = [IBV_MW_TYPE_1, IBV_MW_TYPE_2];

/// What the inline `ibv_inc_rkey` of `verbs.h` computes.
fn inc_rkey(key: u32) -> u32 {
    key & !0xff | (key + 1) & 0xff
}

/// Every bind of a type 1 window, and every unbind, counts the low byte on, through the wrap, and
/// leaves the index: the new key is there when the post returns.
/// Rules: KEY-01, KEY-02, KEY-04, KEY-05, KEY-06
#[test]
fn type_1_keys_count_in_the_low_byte() {
    let both = MemoryPair::pages(Link::Loopback);
    let (qa, qb) = both.qps();
    let mw = both.pair.b.mw(IBV_MW_TYPE_1);
    let mut wrapped = 0;
    // Held back, so what changes the key is the post and not the bind.
    hold_back(qb);
    for n in 0..60 {
        let (old, range) = (rkey(mw), if n % 3 == 2 { NOTHING } else { both.range(n, 8, REMOTE) });
        assert_eq!(bind1(qb, mw, 1, 0, range), 0);
        assert_eq!(rkey(mw), inc_rkey(old));
    }
    release(qa, &both.pair.a);
    for n in 60..600 {
        let old = rkey(mw);
        let new = bind(&both.pair.b, qb, mw, both.range(n, 8, REMOTE));
        assert_eq!(new, inc_rkey(old));
        wrapped += u32::from(new & 0xff == 0);
        if n % 20 == 0 {
            both.allowed_on((qa, qb), Op::Read, both.far.addr() + n as u64, 8, new);
        }
    }
    assert!(wrapped >= 2);
}

/// The program chooses the low byte of a type 2 key and nothing else; the window's struct tells the
/// key in force.
/// Rules: KEY-03, KEY-09, KEY-10, KEY-17, T2-33
#[test]
fn type_2_keys_have_the_low_byte_of_the_request() {
    let both = MemoryPair::pages(Link::Loopback);
    let b = &both.pair.b;
    for wanted in [1024, 0, 0xff, 0xffff_ff07, 0xdead_be42, 7] {
        let (one, two) = (b.mw(IBV_MW_TYPE_2), b.mw(IBV_MW_TYPE_2));
        let (first, second) = (rkey(one), rkey(two));
        for (mw, before, at) in [(one, first, 0), (two, second, 512)] {
            hold_back(both.pair.qb);
            post(both.pair.qb, &mut bind2_wr(mw, wanted, both.range(at, 64, REMOTE)));
            let key = before & !0xff | wanted & 0xff;
            assert_eq!(rkey(mw), key, "at the post already");
            release(both.pair.qa, &both.pair.a);
            b.expect(IBV_WC_SUCCESS);
            both.allowed_on(both.qps(), Op::Write, both.far.addr() + at as u64, 64, key);
        }
        assert_ne!(rkey(one), rkey(two));
        assert_eq!((dealloc_mw(one), dealloc_mw(two)), (0, 0));
    }
}

/// The same low byte may be chosen again, even for the same window.
/// Rules: KEY-11, INV-22
#[test]
fn a_type_2_key_can_be_used_again() {
    let both = MemoryPair::pages(Link::Loopback);
    let mw = both.pair.b.mw(IBV_MW_TYPE_2);
    for at in [0, 64, 128] {
        post(both.pair.qb, &mut bind2_wr(mw, 0x55, both.range(at, 64, REMOTE)));
        both.pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!(rkey(mw) & 0xff, 0x55);
        both.allowed_on(both.qps(), Op::Read, both.far.addr() + at as u64, 64, rkey(mw));
        post(both.pair.qb, &mut local_inv_wr(rkey(mw)));
        both.pair.b.expect(IBV_WC_SUCCESS);
    }
}

/// A bind refused at once has not changed the key.
/// Rules: KEY-07
#[test]
fn a_bind_refused_at_once_leaves_the_key() {
    let both = MemoryPair::pages(Link::Loopback);
    let mw = alloc_mw(both.pair.b.another_pd(), IBV_MW_TYPE_1).expect("a window");
    let key = rkey(mw);
    assert_eq!(bind1(both.pair.qb, mw, 1, 0, both.range(0, 8, REMOTE)), libc::EPERM);
    assert_eq!(rkey(mw), key);
    assert_eq!(state(both.pair.qb), IBV_QPS_RTS);
}

/// Two devices do not begin with the same key bytes.
/// Rules: KEY-15
#[test]
fn the_first_low_bytes_are_random() {
    let bytes = || {
        let end = End::new(Options::default());
        (0..32).map(|_| rkey(end.mw(IBV_MW_TYPE_1)) as u8).collect::<Vec<_>>()
    };
    assert_ne!(bytes(), bytes());
}

/// A key stands for one object of one kind: a region's for no window, a window's for no region, and
/// neither type of window for the other.
/// Rules: KEY-14
#[test]
fn keys_do_not_cross_kinds() {
    let both = MemoryPair::pages(Link::Loopback);
    let b = &both.pair.b;
    let range = both.range(0, 64, REMOTE);
    let windows = TYPES.map(|kind| b.mw(kind));
    let spare = b.reg(&both.far, ALL);
    // SAFETY: a live region, plain data, copied to be forged.
    let mut region = unsafe { spare.read() };
    let forged = windows.map(rkey);
    let window = |kind, rkey| ibv_mw {
        context: b.context,
        pd: b.pd,
        rkey,
        type_: kind,
        ..ibv_mw::default()
    };
    // A window that is none, or of the other type.
    for (kind, rkey) in [
        (IBV_MW_TYPE_1, region.rkey),
        (IBV_MW_TYPE_2, region.rkey),
        (IBV_MW_TYPE_1, forged[1]),
        (IBV_MW_TYPE_2, forged[0]),
    ] {
        let (mut mw, qps) = (window(kind, rkey), both.more());
        if kind == IBV_MW_TYPE_1 {
            assert_eq!(bind1(qps.1, &mut mw, 1, 0, range), 0);
        } else {
            post(qps.1, &mut bind2_wr(&mut mw, rkey, range));
        }
        b.expect(IBV_WC_MW_BIND_ERR);
        end_qps(qps);
    }
    // A region that is none.
    for (kind, lkey) in [(0, forged[0]), (0, forged[1]), (1, forged[0]), (1, forged[1])] {
        region.lkey = lkey;
        let (mw, qps) = (windows[kind], both.more());
        let range = Range { mr: &mut region, ..range };
        if kind == 0 {
            assert_eq!(bind1(qps.1, mw, 1, 0, range), 0);
        } else {
            post(qps.1, &mut bind2_wr(mw, rkey(mw), range));
        }
        b.expect(IBV_WC_MW_BIND_ERR);
        end_qps(qps);
    }
    // Nothing has been bound, held or lost by all this.
    both.all_refused(both.far.addr(), forged[0]);
    both.allowed_on(both.qps(), Op::Write, both.far.addr() + 100, 64, keys(spare).1);
    assert_eq!(dereg(spare), 0);
    let key = bind(b, both.pair.qb, windows[0], range);
    both.allowed_on(both.qps(), Op::Write, both.far.addr(), 64, key);
    both.refused_on(both.qps(), Op::Write, both.far.addr() + 100, 64, key);
}

on_each_link! {
    /// The key of a type 1 window dies with its binding, whether it is bound anew or unbound.
    /// Rules: KEY-12
    fn the_old_key_dies_with_the_binding(link: Link) {
        let both = MemoryPair::pages(link);
        let (mw, first) = both.bound(IBV_MW_TYPE_1, both.range(0, 4096, REMOTE));
        let second = bind(&both.pair.b, both.pair.qb, mw, both.range(0, 4096, REMOTE));
        both.all_refused(both.far.addr(), first);
        both.allowed(Op::Write, both.far.addr(), 4096, second);
        bind(&both.pair.b, both.pair.qb, mw, NOTHING);
        both.all_refused(both.far.addr(), first);
        both.all_refused(both.far.addr(), second);
    }

    /// Of the 256 keys of a bound window's index only one is good.
    /// Rules: KEY-13, RA-24
    fn only_the_right_low_byte_will_do(link: Link) {
        let both = MemoryPair::pages(link);
        for kind in TYPES {
            for step in [1, 2, 0x7f, 0x80, 0xff] {
                let qps = both.more();
                let mw = both.pair.b.mw(kind);
                let key = bind(&both.pair.b, qps.1, mw, both.range(0, 64, REMOTE));
                both.allowed_on(qps, Op::Read, both.far.addr(), 64, key);
                let wrong = key & !0xff | key.wrapping_add(step) & 0xff;
                both.refused_on(qps, Op::Read, both.far.addr(), 64, wrong);
                assert_eq!(dealloc_mw(mw), 0);
                end_qps(qps);
            }
        }
    }

    /// After a failed bind the struct has a key that never came into force; the one before it is
    /// still good.
    /// Rules: KEY-08, T1-35, T1-36
    fn after_a_failed_bind_the_saved_key_is_the_right_one(link: Link) {
        let both = MemoryPair::pages(link);
        let (qa, qb) = both.more();
        let (mw, saved) = both.bound(IBV_MW_TYPE_1, both.range(64, 64, REMOTE));
        let beyond = both.range(0, both.far.len() as u64 + 1, REMOTE);
        assert_eq!(bind1(qb, mw, 1, 0, beyond), 0);
        both.pair.b.expect(IBV_WC_MW_BIND_ERR);
        let stale = rkey(mw);
        assert_eq!(stale, inc_rkey(saved));
        for op in Op::ALL {
            both.allowed(op, both.far.addr() + 64, 8, saved);
        }
        both.refused(Op::Read, both.far.addr(), 8, saved);
        both.all_refused(both.far.addr() + 64, stale);
        assert_eq!(dereg(both.mb), libc::EBUSY);
        // The program restores the key and goes on.
        // SAFETY: a live window.
        unsafe { (*mw).rkey = saved };
        let key = bind(&both.pair.b, both.pair.qb, mw, both.range(0, 64, REMOTE));
        both.allowed(Op::Write, both.far.addr(), 64, key);
        both.refused(Op::Write, both.far.addr() + 64, 8, saved);
        assert_eq!(dealloc_mw(mw), 0);
        assert_eq!(dereg(both.mb), 0);
        assert_eq!((state(qa), state(qb)), (IBV_QPS_RTS, IBV_QPS_ERR));
    }
}
