//! `ibv_dereg_mr`: what keeps a region, what does not, and what is left of it (rules A.3).

use std::collections::HashMap;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_host::Options;

/// Binds a window of the target's through one of its queue pairs to a region over the buffer.
fn bind_to(it: &MemoryPair, qb: *mut ibv_qp, mw: *mut ibv_mw, mr: *mut ibv_mr) -> u32 {
    let range = Range { mr, addr: it.far.addr(), length: 4096, access: REMOTE };
    bind(&it.pair.b, qb, mw, range)
}

/// Reads the target's buffer through a queue pair of the origin.
fn read_on(it: &MemoryPair, qa: *mut ibv_qp, key: u32) -> ibv_wc_status {
    let mut sges = [sge(it.near.addr(), 4096, it.ma)];
    post(qa, &mut rdma_wr(IBV_WR_RDMA_READ, &mut sges, it.far.addr(), key));
    it.pair.a.wait().status
}

fn read(it: &MemoryPair, key: u32) -> ibv_wc_status {
    read_on(it, it.pair.another(IBV_QPT_RC).0, key)
}

/// A bind of no bytes, which unbinds a type 1 window.
const NOTHING: Range = Range { mr: std::ptr::null_mut(), addr: 0, length: 0, access: 0 };

on_each_link! {
    /// A free region ends, and its keys with it, at both ends.
    /// Rules: DR-01
    fn keys_die_with_their_region(link: Link) {
        let fixture = MemoryPair::new(link, 4096);
        let MemoryPair { pair, near, ma, far, mb } = &fixture;
        let rkey = keys(*mb).1;
        let (from, to) = (sge(near.addr(), 8, *ma), sge(far.addr(), 8, *mb));
        assert_eq!(read(&fixture, rkey), IBV_WC_SUCCESS);
        assert_eq!(dereg(*mb), 0);
        assert_eq!(read(&fixture, rkey), IBV_WC_REM_ACCESS_ERR);
        assert_eq!(pair.message(&mut [from], &mut [to]), (IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR));
        assert_eq!(dereg(*ma), 0);
        for opcode in [IBV_WR_SEND, IBV_WR_RDMA_WRITE] {
            let status = pair.request(&mut rdma_wr(opcode, &mut [from], far.addr(), rkey));
            assert_eq!(status, IBV_WC_LOC_PROT_ERR);
        }
    }

    /// A bound window of either type keeps its region; the refusal changes nothing.
    /// Rules: DR-03, DR-04, DR-05
    fn bound_window_holds_its_region(link: Link) {
        let fixture = MemoryPair::new(link, 4096);
        for kind in [IBV_MW_TYPE_1, IBV_MW_TYPE_2] {
            let (qa, qb) = fixture.pair.another(IBV_QPT_RC);
            let mw = fixture.pair.b.mw(kind);
            let key = bind_to(&fixture, qb, mw, fixture.mb);
            for _ in 0..3 {
                assert_eq!(dereg(fixture.mb), libc::EBUSY);
                fixture.near.fill(0);
                assert_eq!(read_on(&fixture, qa, key), IBV_WC_SUCCESS);
                assert_eq!(fixture.near.read(0, 4096), fixture.far.read(0, 4096));
                assert_eq!(read(&fixture, keys(fixture.mb).1), IBV_WC_SUCCESS);
            }
            assert_eq!(dealloc_mw(mw), 0);
        }
        assert_eq!(dereg(fixture.mb), 0);
    }

    /// A receive that waits does not keep its region: nothing completes by the end of the region,
    /// and the message that takes the receive fails.
    /// Rules: DR-11, DR-12
    fn posted_receive_does_not_hold_its_region(link: Link) {
        let fixture = MemoryPair::new(link, 4096);
        let MemoryPair { pair, near, ma, far, mb } = &fixture;
        let from = sge(near.addr(), 8, *ma);
        recv(pair.qb, 5, &mut [sge(far.addr(), 64, *mb)]);
        let before = far.read(0, 64);
        assert_eq!(dereg(*mb), 0);
        // A message elsewhere completes; had the receive completed, that would come first.
        let other = Buffer::new(4096);
        let to = sge(other.addr(), 8, pair.b.reg(&other, ALL));
        let (qa, qb) = pair.another(IBV_QPT_RC);
        recv(qb, 6, &mut [to]);
        post(qa, &mut with_sges(wr(IBV_WR_SEND), &mut [from]));
        pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(pair.b.expect(IBV_WC_SUCCESS).wr_id, 6);
        assert_eq!(state(pair.qb), IBV_QPS_RTS);
        post(pair.qa, &mut with_sges(wr(IBV_WR_SEND), &mut [from]));
        pair.a.expect(IBV_WC_REM_OP_ERR);
        assert_eq!(pair.b.expect(IBV_WC_LOC_PROT_ERR).wr_id, 5);
        assert_eq!((state(pair.qa), state(pair.qb)), (IBV_QPS_ERR, IBV_QPS_ERR));
        assert_eq!(far.read(0, 64), before);
    }

    /// Keys come back late, and never the same for the next region of an index: a stale key finds
    /// nothing, or a region that does not know it.
    /// Rules: DR-16
    fn stale_keys_do_not_fit_their_successors(link: Link) {
        let fixture = MemoryPair::new(link, 4096);
        let stale = keys(fixture.mb).1;
        assert_eq!(dereg(fixture.mb), 0);
        assert_eq!(read(&fixture, stale), IBV_WC_REM_ACCESS_ERR);
        let mut last = HashMap::from([(stale >> 8, stale)]);
        let mut reused = 0;
        for _ in 0..6000 {
            let mr = try_reg(fixture.pair.b.pd, fixture.far.addr(), 0, ALL).expect("a region");
            let (lkey, key) = keys(mr);
            if let Some(before) = last.insert(key >> 8, key) {
                assert!(before != key && before != lkey, "{key:#x} again");
                reused += 1;
            }
            assert_eq!(dereg(mr), 0);
        }
        assert!(reused > 3000, "only {reused} indexes were used again");
        // Live successors over the same memory: their keys work, those before them do not.
        for _ in 0..20 {
            let mr = fixture.pair.b.reg(&fixture.far, ALL);
            let key = keys(mr).1;
            let before = last.insert(key >> 8, key).expect("an index used before");
            assert_eq!(read(&fixture, before), IBV_WC_REM_ACCESS_ERR, "{before:#x} for {key:#x}");
            assert_eq!(read(&fixture, key), IBV_WC_SUCCESS);
            assert_eq!(dereg(mr), 0);
        }
    }
}

#[test]
fn dr_02_a_region_ends_once() {
    let end = End::new(Options::default());
    let buffer = Buffer::new(4096);
    let mr = end.reg(&buffer, ALL);
    assert_eq!(dereg(mr), 0);
    assert_eq!(dereg(mr), libc::ENOENT);
    let other = end.reg(&buffer, ALL);
    assert_eq!(dereg(mr), libc::ENOENT, "still, with another region there");
    let mut unknown = ibv_mr { context: end.context, handle: u32::MAX, ..ibv_mr::default() };
    assert_eq!(dereg(&raw mut unknown), libc::ENOENT);
    assert_eq!(dereg(other), 0);
}

#[test]
fn dr_06_an_invalidated_window_holds_nothing() {
    let fixture = MemoryPair::new(Link::Loopback, 4096);
    let qb = fixture.pair.qb;
    let mw = fixture.pair.b.mw(IBV_MW_TYPE_2);
    let key = bind_to(&fixture, qb, mw, fixture.mb);
    assert_eq!(dereg(fixture.mb), libc::EBUSY);
    post(qb, &mut local_inv_wr(key));
    fixture.pair.b.expect(IBV_WC_SUCCESS);
    assert_eq!(dereg(fixture.mb), 0);
    assert_eq!(dealloc_mw(mw), 0);
}

/// Rules: DR-06
#[test]
fn a_remotely_invalidated_window_holds_nothing() {
    let fixture = MemoryPair::new(Link::Loopback, 4096);
    let mw = fixture.pair.b.mw(IBV_MW_TYPE_2);
    let key = bind_to(&fixture, fixture.pair.qb, mw, fixture.mb);
    recv(fixture.pair.qb, 1, &mut []);
    let mut wr = wr(IBV_WR_SEND_WITH_INV);
    wr.imm.invalidate_rkey = key;
    post(fixture.pair.qa, &mut wr);
    fixture.pair.a.expect(IBV_WC_SUCCESS);
    fixture.pair.b.expect(IBV_WC_SUCCESS);
    assert_eq!(dereg(fixture.mb), 0);
}

#[test]
fn dr_07_a_window_unbound_by_a_bind_of_nothing_holds_nothing() {
    let fixture = MemoryPair::new(Link::Loopback, 4096);
    let mw = fixture.pair.b.mw(IBV_MW_TYPE_1);
    for naming_the_region in [false, true] {
        let mr = fixture.pair.b.reg(&fixture.far, ALL);
        bind_to(&fixture, fixture.pair.qb, mw, mr);
        assert_eq!(dereg(mr), libc::EBUSY);
        let range = if naming_the_region { Range { mr, ..NOTHING } } else { NOTHING };
        bind(&fixture.pair.b, fixture.pair.qb, mw, range);
        assert_eq!(dereg(mr), 0);
    }
}

#[test]
fn dr_08_a_deallocated_window_holds_nothing() {
    let fixture = MemoryPair::new(Link::Loopback, 4096);
    for kind in [IBV_MW_TYPE_1, IBV_MW_TYPE_2] {
        let mr = fixture.pair.b.reg(&fixture.far, ALL);
        let mw = fixture.pair.b.mw(kind);
        bind_to(&fixture, fixture.pair.qb, mw, mr);
        assert_eq!(dereg(mr), libc::EBUSY);
        assert_eq!(dealloc_mw(mw), 0);
        assert_eq!(dereg(mr), 0);
    }
}

#[test]
fn dr_09_a_rebound_window_holds_its_new_region_only() {
    let fixture = MemoryPair::new(Link::Loopback, 4096);
    let mw = fixture.pair.b.mw(IBV_MW_TYPE_1);
    let regions = [(); 4].map(|()| fixture.pair.b.reg(&fixture.far, ALL));
    bind_to(&fixture, fixture.pair.qb, mw, regions[0]);
    for step in regions.windows(2) {
        let (old, new) = (step[0], step[1]);
        assert_eq!(dereg(old), libc::EBUSY);
        // Twice to the same region still holds it once.
        bind_to(&fixture, fixture.pair.qb, mw, old);
        bind_to(&fixture, fixture.pair.qb, mw, new);
        assert_eq!(dereg(old), 0);
        assert_eq!(dereg(new), libc::EBUSY);
    }
    assert_eq!(dealloc_mw(mw), 0);
    assert_eq!(dereg(regions[3]), 0);
}

#[test]
fn dr_10_all_windows_must_be_gone() {
    let fixture = MemoryPair::new(Link::Loopback, 4096);
    let windows: Vec<_> = (0..20)
        .map(|index| {
            let kind = if index % 2 == 0 { IBV_MW_TYPE_1 } else { IBV_MW_TYPE_2 };
            let mw = fixture.pair.b.mw(kind);
            bind_to(&fixture, fixture.pair.qb, mw, fixture.mb);
            mw
        })
        .collect();
    for mw in windows {
        assert_eq!(dereg(fixture.mb), libc::EBUSY);
        assert_eq!(dealloc_mw(mw), 0);
    }
    assert_eq!(dereg(fixture.mb), 0);
}
