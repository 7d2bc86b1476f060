//! Binds of type 1 windows that fail when they are carried out: a completion says so, the queue
//! pair goes into error, the window stays as it was (rules C.2). Rights are in
//! `remote_access/grid.rs`.

use transom_abi::*;
use transom_conformance::access::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;

/// The bind is taken and fails, on queue pairs of its own; a binding from before stands.
fn fails(both: &MemoryPair, mw: *mut ibv_mw, range: Range) {
    let qps = both.more();
    assert_eq!(bind1(qps.1, mw, 6, IBV_SEND_SIGNALED, range), 0, "{range:x?}");
    let wc = both.pair.b.expect(IBV_WC_MW_BIND_ERR);
    // SAFETY: a live queue pair.
    assert_eq!((wc.wr_id, wc.qp_num), (6, unsafe { (*qps.1).qp_num }), "{range:x?}");
    assert_eq!(state(qps.1), IBV_QPS_ERR);
    end_qps(qps);
}

/// A window lies within its region, to the byte; sums are made without wrapping. What fails leaves
/// the binding before it as it was.
/// Rules: T1-26, T1-27, T1-28, T1-29
#[test]
fn the_range_lies_within_the_region() {
    let both = MemoryPair::granting(Link::Loopback, 16 << 10, ALL);
    let b = &both.pair.b;
    let (addr, length) = (both.far.addr() + 4096, 8192_u64);
    let mr = try_reg(b.pd, addr, length as usize, ALL).expect("a region");
    let mw = b.mw(IBV_MW_TYPE_1);
    let range = |addr, length| Range { mr, addr, length, access: REMOTE };
    let saved = bind(b, both.pair.qb, mw, range(addr, length));
    for (addr, length) in [
        (addr - 1, 1),
        (addr - 1, 2),
        (addr - 1, length),
        (addr - 1, length + 2),
        (addr, length + 1),
        (addr + length - 1, 2),
        (addr + length, 1),
        (0, 1),
        (0, u64::MAX),
        (1, u64::MAX),
        (addr, u64::MAX),
        (addr, u64::MAX - addr + 1),
        (addr, u64::MAX - addr + 2),
        (u64::MAX, 1),
        (u64::MAX, 2),
        (u64::MAX, u64::MAX),
        (u64::MAX - 7, addr.wrapping_add(16)),
    ] {
        fails(&both, mw, range(addr, length));
        // SAFETY: a live window; the key before the failure is the one in force.
        unsafe { (*mw).rkey = saved };
    }
    both.allowed(Op::Write, addr, length as u32, saved);
    for (addr, length) in [(addr, length), (addr, 1), (addr + length - 1, 1)] {
        let key = bind(b, both.pair.qb, mw, range(addr, length));
        both.allowed(Op::Write, addr, length as u32, key);
        both.refused(Op::Write, addr - 1, 1, key);
        both.refused(Op::Write, addr + length, 1, key);
    }
}

/// Window and region of one domain do not suffice: the queue pair must be of it as well.
/// Rules: T1-30
#[test]
fn the_queue_pair_must_be_of_the_windows_domain() {
    let both = MemoryPair::pages(Link::Loopback);
    let b = &both.pair.b;
    let other = b.with_pd(b.another_pd());
    let (mw, mr) = (other.mw(IBV_MW_TYPE_1), other.reg(&both.far, ALL));
    fails(&both, mw, Range { mr, ..both.range(0, 64, REMOTE) });
    fails(&both, mw, NOTHING);
    assert_eq!(dereg(mr), 0);
    assert_eq!(dealloc_mw(mw), 0);
}

/// Structs are the program's, so what they say may be nonsense: handles do not count in a bind, and
/// keys that name nothing fail it.
/// Rules: T1-31, T1-37
#[test]
fn nonsense_in_the_structs_does_no_harm() {
    let both = MemoryPair::pages(Link::Loopback);
    let (b, qb) = (&both.pair.b, both.pair.qb);
    let mw = b.mw(IBV_MW_TYPE_1);
    // SAFETY: live objects of the test, plain data.
    let (mut region, mut window) = unsafe { (both.mb.read(), mw.read()) };
    for handle in [0, 1, 0xdead_beef, u32::MAX] {
        (region.handle, window.handle) = (handle, handle);
        let range = Range { mr: &mut region, ..both.range(0, 64, REMOTE) };
        // A handle that happens to be another region's might stop it at once.
        assert_eq!(bind1(qb, &mut window, 1, IBV_SEND_SIGNALED, range), 0);
        b.expect(IBV_WC_SUCCESS);
        both.allowed_on(both.qps(), Op::Read, both.far.addr(), 64, window.rkey);
    }
    for key in [0, 0xdead_beef, u32::MAX, region.lkey ^ 1, region.lkey ^ 0x80] {
        region.lkey = key;
        let range = Range { mr: &mut region, ..both.range(64, 64, REMOTE) };
        let saved = window.rkey;
        fails(&both, &mut window, range);
        window.rkey = saved;
        // SAFETY: a live region.
        region.lkey = unsafe { (*both.mb).lkey };
    }
    both.allowed(Op::Read, both.far.addr(), 64, window.rkey);
    for key in [0, 0xdead_beef, u32::MAX] {
        let good = std::mem::replace(&mut window.rkey, key);
        fails(&both, &mut window, both.range(0, 64, REMOTE));
        fails(&both, &mut window, NOTHING);
        window.rkey = good;
    }
    both.allowed(Op::Read, both.far.addr(), 64, window.rkey);
}

/// Of two binds posted with the same key on two queue pairs both are carried out, and the last one
/// is in force.
/// Rules: T1-32
#[test]
fn of_two_binds_from_one_key_the_last_wins() {
    let both = MemoryPair::pages(Link::Loopback);
    let (b, qps) = (&both.pair.b, [both.more(), both.more()]);
    let mw = b.mw(IBV_MW_TYPE_1);
    let base = rkey(mw);
    for (n, (_, qb)) in qps.into_iter().enumerate() {
        hold_back(qb);
        // SAFETY: a live window.
        unsafe { (*mw).rkey = base };
        let range = both.range(n * 64, 64, REMOTE);
        assert_eq!(bind1(qb, mw, n as u64, IBV_SEND_SIGNALED, range), 0);
    }
    for n in [1, 0] {
        release(qps[n].0, &both.pair.a);
        assert_eq!(b.expect(IBV_WC_SUCCESS).wr_id, n as u64);
        both.allowed(Op::Read, both.far.addr() + n as u64 * 64, 64, rkey(mw));
        both.refused(Op::Read, both.far.addr() + (1 - n as u64) * 64, 64, rkey(mw));
    }
    assert_eq!(dealloc_mw(mw), 0);
    assert_eq!(dereg(both.mb), 0);
}

on_each_link! {
    /// A region that has gone when the bind's turn comes fails it, and the window stays as it was.
    /// Rules: T1-31
    fn a_region_gone_meanwhile_fails_the_bind(link: Link) {
        let both = MemoryPair::pages(link);
        let (qa, qb) = both.more();
        let (mw, saved) = both.bound(IBV_MW_TYPE_1, both.range(0, 64, REMOTE));
        let mr = both.pair.b.reg(&both.far, ALL);
        hold_back(qb);
        let range = Range { mr, ..both.range(64, 64, REMOTE) };
        assert_eq!(bind1(qb, mw, 6, IBV_SEND_SIGNALED, range), 0);
        assert_eq!(dereg(mr), 0);
        release(qa, &both.pair.a);
        assert_eq!(both.pair.b.expect(IBV_WC_MW_BIND_ERR).wr_id, 6);
        assert_eq!(state(qb), IBV_QPS_ERR);
        both.allowed(Op::Read, both.far.addr(), 64, saved);
        both.all_refused(both.far.addr() + 64, rkey(mw));
    }

    /// A failed bind is reported though nobody asked for it, takes its queue pair into error, and
    /// leaves the peer without an answer.
    /// Rules: T1-33, T1-34
    fn a_failed_bind_is_reported_and_stops_the_queue_pair(link: Link) {
        let both = MemoryPair::pages(link);
        let (qa, qb) = both.qps();
        let mw = both.pair.b.mw(IBV_MW_TYPE_1);
        recv(qb, 70, &mut []);
        let beyond = both.range(1, both.far.len() as u64, 0);
        hold_back(qb);
        assert_eq!(bind1(qb, mw, 50, 0, beyond), 0);
        assert_eq!(bind1(qb, mw, 51, 0, both.range(0, 64, REMOTE)), 0);
        release(qa, &both.pair.a);
        let wc = both.pair.b.expect(IBV_WC_MW_BIND_ERR);
        // SAFETY: a live queue pair.
        assert_eq!((wc.wr_id, wc.qp_num), (50, unsafe { (*qb).qp_num }));
        let mut flushed = [0; 2].map(|_| both.pair.b.expect(IBV_WC_WR_FLUSH_ERR).wr_id);
        flushed.sort_unstable();
        assert_eq!(flushed, [51, 70]);
        assert_eq!(state(qb), IBV_QPS_ERR);
        post(qb, &mut ibv_send_wr { wr_id: 52, send_flags: 0, ..wr(IBV_WR_SEND) });
        assert_eq!(both.pair.b.expect(IBV_WC_WR_FLUSH_ERR).wr_id, 52);
        both.all_refused(both.far.addr(), rkey(mw));
        let mut sges = [sge(both.near.addr(), 8, both.ma)];
        let (addr, key) = (both.far.addr(), keys(both.mb).1);
        give_up_soon(qa);
        post(qa, &mut op_wr(Op::Read, &mut sges, addr, key));
        both.pair.a.expect(IBV_WC_RETRY_EXC_ERR);
    }
}
