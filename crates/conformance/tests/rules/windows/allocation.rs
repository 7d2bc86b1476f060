//! Allocation and deallocation of memory windows (rules B.1).

use std::collections::HashSet;
use std::mem::MaybeUninit;

use transom_abi::*;
use transom_conformance::access::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::path_of;
use transom_conformance::processes::{Way, alone};
use transom_host::Options;
use transom_ibverbs::{ibv_dealloc_pd, ibv_query_device};

const TYPES: [ibv_mw_type; 2] = [IBV_MW_TYPE_1, IBV_MW_TYPE_2];

fn device_attr(end: &End) -> ibv_device_attr {
    let mut attr = MaybeUninit::uninit();
    // SAFETY: the context is open, and all is written if the answer is zero.
    unsafe {
        assert_eq!(ibv_query_device(end.context, attr.as_mut_ptr()), 0);
        attr.assume_init()
    }
}

fn dealloc_pd(pd: *mut ibv_pd) -> i32 {
    // SAFETY: a domain of this test; its struct stays readable.
    unsafe { ibv_dealloc_pd(pd) }
}

/// A window has the domain and type asked for, and a key from the start.
/// Rules: MWA-01, MWA-02, MWA-10
#[test]
fn allocation_yields_a_window_of_the_type_asked_for() {
    let end = End::new(Options::default());
    for kind in TYPES {
        let mw = alloc_mw(end.pd, kind).expect("a window");
        // SAFETY: a live window.
        let window = unsafe { &*mw };
        assert_eq!((window.context, window.pd, window.type_), (end.context, end.pd, kind));
        assert_ne!(window.rkey, 0);
        assert_eq!(dealloc_mw(mw), 0);
    }
}

/// Any other type is refused and leaves nothing behind in the domain.
/// Rules: MWA-03
#[test]
fn there_are_two_types_only() {
    let end = End::new(Options::default());
    let pd = end.another_pd();
    for kind in [0, 3, 4, 0x101, u32::MAX] {
        assert_eq!(alloc_mw(pd, kind), Err(libc::EINVAL), "type {kind}");
    }
    assert_eq!(dealloc_pd(pd), 0);
}

/// The capabilities say which types there are: type 1, and one kind of type 2, by default 2B.
/// Rules: MWA-05, MWA-06, MWA-07
#[test]
fn capabilities_tell_the_types() {
    let (bit_17, bit_23, bit_24) = (1 << 17, 1 << 23, 1 << 24);
    for windows_2a in [false, true] {
        let end = End::new(Options { windows_2a, ..Options::default() });
        let flags = device_attr(&end).device_cap_flags;
        let expected = bit_17 | if windows_2a { bit_23 } else { bit_24 };
        assert_eq!(flags & (bit_17 | bit_23 | bit_24), expected);
        assert_eq!(alloc_mw(end.pd, IBV_MW_TYPE_1).is_ok(), flags & bit_17 != 0);
        assert_eq!(alloc_mw(end.pd, IBV_MW_TYPE_2).is_ok(), flags & (bit_23 | bit_24) != 0);
    }
}

/// No two objects that live at once share an index.
/// Rules: MWA-10
#[test]
fn keys_are_unique() {
    let end = End::new(Options::default());
    let buffer = Buffer::new(4096);
    let mut indices = HashSet::new();
    for n in 0..6000 {
        let key = match n % 3 {
            0 => keys(end.reg(&buffer, ALL)).1,
            kind => rkey(end.mw(kind)),
        };
        assert_ne!(key, 0);
        assert!(indices.insert(key >> 8), "the index of {key:#x} is taken");
    }
}

/// A window that is not bound can be freed; once, and only if it is one.
/// Rules: MWA-12, MWA-16, MWA-17
#[test]
fn deallocation_takes_each_window_once() {
    let end = End::new(Options::default());
    for kind in TYPES {
        let (mw, other) = (end.mw(kind), end.mw(kind));
        assert_eq!(dealloc_mw(mw), 0);
        assert_eq!(dealloc_mw(mw), libc::ENOENT);
        let mut stranger =
            ibv_mw { context: end.context, pd: end.pd, type_: kind, ..ibv_mw::default() };
        for handle in [0, 0xdead_beef, u32::MAX] {
            stranger.handle = handle;
            assert_eq!(dealloc_mw(&mut stranger), libc::ENOENT);
        }
        assert_eq!(dealloc_mw(mw), libc::ENOENT);
        assert_eq!(dealloc_mw(other), 0);
    }
    let pd = end.another_pd();
    let mw = alloc_mw(pd, IBV_MW_TYPE_1).expect("a window");
    assert_eq!(dealloc_pd(pd), libc::EBUSY);
    assert_eq!((dealloc_mw(mw), dealloc_mw(mw)), (0, libc::ENOENT));
    assert_eq!(dealloc_pd(pd), 0, "the second time has not counted");
}

/// As many as the device says, at least, and one more once one is freed.
/// Rules: MWA-19
#[test]
fn max_mw_windows_can_be_allocated() {
    alone(path_of!("max_mw_windows_can_be_allocated"), Way::Direct, || {
        let end = End::new(Options::default());
        let max = device_attr(&end).max_mw;
        assert!(max >= 1 << 20);
        let windows: Vec<_> = (0..max).map(|n| end.mw(TYPES[n as usize % 2])).collect();
        assert_eq!(alloc_mw(end.pd, IBV_MW_TYPE_1), Err(libc::ENOMEM));
        assert_eq!(dealloc_mw(windows[windows.len() / 2]), 0);
        assert_eq!(dealloc_mw(end.mw(IBV_MW_TYPE_2)), 0);
        // The last of them works as any other.
        let last = windows.last().copied().expect("many");
        let (buffer, qps) = (Buffer::new(4096), (end.qp(IBV_QPT_RC), end.qp(IBV_QPT_RC)));
        connect(qps.0, qps.1);
        let range =
            Range { mr: end.reg(&buffer, ALL), addr: buffer.addr(), length: 1, access: REMOTE };
        bind(&end, qps.0, last, range);
    });
}

/// Any number of windows can be bound to one region, each with its own place, and each holds it.
/// Rules: MWA-21
#[test]
fn a_region_carries_4096_windows() {
    let both = MemoryPair::pages(Link::Loopback);
    let bound: Vec<_> = (0..4096)
        .map(|n| both.bound(TYPES[n % 2], both.range(n, 8, IBV_ACCESS_REMOTE_READ)))
        .collect();
    for (n, (_, key)) in bound.iter().enumerate().step_by(97) {
        both.allowed_on(both.qps(), Op::Read, both.far.addr() + n as u64, 8, *key);
        if n.is_multiple_of(2) {
            both.refused(Op::Read, both.far.addr() + n as u64, 9, *key);
        }
    }
    for (mw, _) in bound {
        assert_eq!(dereg(both.mb), libc::EBUSY);
        assert_eq!(dealloc_mw(mw), 0);
    }
    assert_eq!(dereg(both.mb), 0);
}

on_each_link! {
    /// The key of a window never bound lets nothing through but what has no bytes.
    /// Rules: MWA-08, MWA-09
    fn a_new_window_is_not_bound(link: Link) {
        let both = MemoryPair::pages(link);
        for kind in TYPES {
            let key = rkey(both.pair.b.mw(kind));
            let qps = both.more();
            for op in [Op::Read, Op::Write] {
                let status = both.attempt(qps, op, both.far.addr(), 0, key);
                assert_eq!(status, IBV_WC_SUCCESS);
            }
            both.refused(Op::Read, both.far.addr(), 1, key);
            both.refused(Op::Write, 0, 1, key);
            both.all_refused(both.far.addr(), key);
        }
    }

    /// A window's key does not name local memory, whatever the window grants to peers.
    /// Rules: MWA-11
    fn a_window_has_no_lkey(link: Link) {
        let both = MemoryPair::pages(link);
        let b = &both.pair.b;
        for kind in TYPES {
            for opcode in [IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ] {
                let qps = both.more();
                let mw = b.mw(kind);
                let lkey = bind(b, qps.1, mw, both.range(0, 4096, REMOTE));
                let mut sges = [ibv_sge { addr: both.far.addr(), length: 64, lkey }];
                let (addr, key) = (both.near.addr(), keys(both.ma).1);
                post(qps.1, &mut rdma_wr(opcode, &mut sges, addr, key));
                b.expect(IBV_WC_LOC_PROT_ERR);
                assert_eq!(dealloc_mw(mw), 0);
            }
        }
        assert!(both.near.read(0, 64).iter().all(|byte| *byte == 0));
        assert_eq!(both.far.read(0, 64), Buffer::filled(64, 7).read(0, 64));
    }

    /// Freeing a bound window ends the binding: its key is dead and its region free.
    /// Rules: MWA-13
    fn freeing_a_bound_window_unbinds_it(link: Link) {
        let both = MemoryPair::pages(link);
        for kind in TYPES {
            let (mw, key) = both.bound(kind, both.range(0, 4096, REMOTE));
            both.allowed_on(both.qps(), Op::Write, both.far.addr(), 100, key);
            assert_eq!(dereg(both.mb), libc::EBUSY);
            assert_eq!(dealloc_mw(mw), 0);
            if kind == IBV_MW_TYPE_1 {
                both.all_refused(both.far.addr(), key);
            } else {
                // Through its own queue pair, or it would be refused for that.
                both.refused_on(both.qps(), Op::Read, both.far.addr(), 8, key);
            }
        }
        assert_eq!(dereg(both.mb), 0);
    }

    /// A bind that is still queued when its window is freed fails, and holds nothing.
    /// Rules: MWA-18
    fn a_queued_bind_of_a_freed_window_fails(link: Link) {
        let both = MemoryPair::pages(link);
        for kind in TYPES {
            let (qa, qb) = both.more();
            let mw = both.pair.b.mw(kind);
            hold_back(qb);
            let range = both.range(0, 64, REMOTE);
            if kind == IBV_MW_TYPE_1 {
                assert_eq!(bind1(qb, mw, 5, IBV_SEND_SIGNALED, range), 0);
            } else {
                post(qb, &mut ibv_send_wr { wr_id: 5, ..bind2_wr(mw, 9, range) });
            }
            let key = rkey(mw);
            both.pair.b.expect_nothing();
            assert_eq!(dealloc_mw(mw), 0);
            release(qa, &both.pair.a);
            assert_eq!(both.pair.b.expect(IBV_WC_MW_BIND_ERR).wr_id, 5);
            assert_eq!(state(qb), IBV_QPS_ERR);
            both.all_refused(both.far.addr(), key);
        }
        assert_eq!(dereg(both.mb), 0);
    }

    /// Two windows on the same bytes have rights and lives of their own.
    /// Rules: MWA-20
    fn windows_may_overlap(link: Link) {
        let both = MemoryPair::pages(link);
        let addr = both.far.addr();
        let all = both.range(0, 4096, IBV_ACCESS_REMOTE_READ);
        let (reads, read_key) = both.bound(IBV_MW_TYPE_1, all);
        let half = both.range(2048, 4096, IBV_ACCESS_REMOTE_WRITE);
        let (writes, write_key) = both.bound(IBV_MW_TYPE_1, half);
        let (_, third_key) = both.bound(IBV_MW_TYPE_2, both.range(0, 4096, REMOTE));
        both.allowed(Op::Read, addr + 2048, 8, read_key);
        both.refused(Op::Write, addr + 2048, 8, read_key);
        both.allowed(Op::Write, addr + 2048, 8, write_key);
        both.refused(Op::Read, addr + 2048, 8, write_key);
        both.refused(Op::Write, addr, 8, write_key);
        both.allowed_on(both.qps(), Op::Add, addr + 2048, 8, third_key);
        assert_eq!(dealloc_mw(reads), 0);
        both.refused(Op::Read, addr + 2048, 8, read_key);
        both.allowed(Op::Write, addr + 2048, 8, write_key);
        both.allowed_on(both.qps(), Op::Read, addr + 2048, 8, third_key);
        assert_eq!(dealloc_mw(writes), 0);
        both.refused(Op::Write, addr + 2048, 8, write_key);
        both.allowed_on(both.qps(), Op::Read, addr + 2048, 8, third_key);
    }
}
