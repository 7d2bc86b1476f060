//! `ibv_rereg_mr`: what it changes, what it refuses, and what a refusal leaves (rules A.3).

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering::*};

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_host::Options;

const LOCAL_WRITE: c_int = IBV_ACCESS_LOCAL_WRITE as c_int;
const REMOTE_WRITE: c_int = IBV_ACCESS_REMOTE_WRITE as c_int;
const REMOTE_READ: c_int = IBV_ACCESS_REMOTE_READ as c_int;
const ON_DEMAND: c_int = IBV_ACCESS_ON_DEMAND as c_int;
const INPUT: Result<(), (c_int, i32)> = Err((IBV_REREG_MR_ERR_INPUT, libc::EINVAL));
const NOTHING: Change = Change { range: None, pd: None, access: None };

fn end() -> End {
    End::new(Options::default())
}

/// The fields of a region that a program sees.
fn fields(mr: *mut ibv_mr) -> (*mut ibv_pd, u64, usize, u32, u32) {
    // SAFETY: a live region.
    let mr = unsafe { &*mr };
    (mr.pd, mr.addr as u64, mr.length, mr.lkey, mr.rkey)
}

/// One byte between the origin and a place in the target's buffer, by the key the region has
/// now.
fn request(it: &MemoryPair, opcode: ibv_wr_opcode, at: u64) -> ibv_wc_status {
    let mut sges = [sge(it.near.addr(), 1, it.ma)];
    let (addr, key) = (it.far.addr() + at, keys(it.mb).1);
    it.pair.request(&mut rdma_wr(opcode, &mut sges, addr, key))
}

fn read(it: &MemoryPair, at: u64) -> ibv_wc_status {
    request(it, IBV_WR_RDMA_READ, at)
}

fn write(it: &MemoryPair, at: u64) -> ibv_wc_status {
    request(it, IBV_WR_RDMA_WRITE, at)
}

/// The region is as it was made.
fn expect_unchanged(it: &MemoryPair) {
    let (pd, addr, length, ..) = fields(it.mb);
    assert_eq!((pd, addr, length), (it.pair.b.pd, it.far.addr(), it.far.len()));
    for at in [0, 16383] {
        assert_eq!(read(it, at), IBV_WC_SUCCESS);
        assert_eq!(it.near.read(0, 1), it.far.read(at as usize, 1));
        assert_eq!(write(it, at), IBV_WC_SUCCESS);
    }
}

#[test]
fn rr_01_only_a_region_can_be_changed() {
    let end = end();
    let buffer = Buffer::new(4096);
    let change = Change { access: Some(LOCAL_WRITE), ..NOTHING };
    assert_eq!(rereg(null_mut(), change), INPUT);
    let mr = end.reg(&buffer, 0);
    assert_eq!(dereg(mr), 0);
    assert_eq!(rereg(mr, change), INPUT, "deregistered");
    let mut unknown = ibv_mr { context: end.context, handle: u32::MAX, ..ibv_mr::default() };
    assert_eq!(rereg(&raw mut unknown, change), INPUT, "never registered");
}

/// A domain of another device has other keys, so a region cannot move there; it stays as it was.
/// Rules: RR-07
#[test]
fn a_domain_of_another_device_is_refused() {
    let (here, there) = (end(), End::new(Options::default()));
    let buffer = Buffer::new(4096);
    let mr = here.reg(&buffer, 0);
    let before = fields(mr);
    let (_, errno) = rereg(mr, Change { pd: Some(there.pd), ..NOTHING }).unwrap_err();
    assert_eq!(errno, libc::EINVAL);
    assert_eq!(fields(mr), before);
    assert_eq!(dereg(mr), 0);
}

on_each_link! {
    /// Arguments that make no sense are refused before anything is changed.
    /// Rules: RR-02, RR-03, RR-04, RR-07
    fn refused_arguments_change_nothing(link: Link) {
        let fixture = MemoryPair::new(link, 16384);
        let (mb, start) = (fixture.mb, fixture.far.addr());
        let before = fields(mb);
        let raw = |flags, addr, length, access| {
            rereg_raw(mb, flags, fixture.pair.b.pd, addr, length, access)
        };
        let all = IBV_REREG_MR_FLAGS_SUPPORTED;
        for unknown in [all + 1, 1 << 16, 1 << 31] {
            assert_eq!(raw(unknown, start, 4096, 0), INPUT);
            assert_eq!(raw(unknown | all, start, 4096, REMOTE_READ), INPUT);
        }
        let moves = IBV_REREG_MR_CHANGE_TRANSLATION;
        assert_eq!(raw(moves, 0, 4096, 0), INPUT);
        assert_eq!(raw(moves, start, 0, 0), INPUT);
        assert_eq!(raw(all, start, 0, REMOTE_READ), INPUT);
        for flags in [0, moves, IBV_REREG_MR_CHANGE_PD] {
            assert_eq!(raw(flags, start, 4096, REMOTE_READ), INPUT);
        }
        assert_eq!(fields(mb), before);
        expect_unchanged(&fixture);
    }

    /// A change of the range moves the region, and its fields say so.
    /// Rules: RR-08
    fn translation_changes_the_range(link: Link) {
        let fixture = MemoryPair::new(link, 16384);
        let start = fixture.far.addr();
        let to = (start + 4100, 4096);
        assert_eq!(rereg(fixture.mb, Change { range: Some(to), ..NOTHING }), Ok(()));
        let (pd, addr, length, ..) = fields(fixture.mb);
        assert_eq!((pd, addr, length), (fixture.pair.b.pd, to.0, to.1));
        for (at, status) in [
            (0, IBV_WC_REM_ACCESS_ERR),
            (4099, IBV_WC_REM_ACCESS_ERR),
            (4100, IBV_WC_SUCCESS),
            (8195, IBV_WC_SUCCESS),
            (8196, IBV_WC_REM_ACCESS_ERR),
        ] {
            assert_eq!(read(&fixture, at), status, "byte {at}");
        }
        assert_eq!(write(&fixture, 4100), IBV_WC_SUCCESS, "rights are kept");
        // To other memory altogether, and with other rights at the same time.
        let other = Buffer::filled(4096, 77);
        let range = Some((other.addr(), 4096));
        let access = Some(REMOTE_READ);
        assert_eq!(rereg(fixture.mb, Change { range, access, ..NOTHING }), Ok(()));
        let mut sges = [sge(fixture.near.addr(), 64, fixture.ma)];
        for (opcode, status) in
            [(IBV_WR_RDMA_READ, IBV_WC_SUCCESS), (IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR)]
        {
            let mut wr = rdma_wr(opcode, &mut sges, other.addr(), keys(fixture.mb).1);
            assert_eq!(fixture.pair.request(&mut wr), status);
        }
        assert_eq!(fixture.near.read(0, 64), other.read(0, 64));
    }

    /// A change of the domain: the region belongs to the new one only.
    /// Rules: RR-09
    fn domain_changes_hands(link: Link) {
        let fixture = MemoryPair::new(link, 16384);
        let (old, new) = (fixture.pair.b.another_pd(), fixture.pair.b.another_pd());
        let mr = reg(old, &fixture.far, ALL);
        assert_eq!(dealloc_pd(old), libc::EBUSY);
        assert_eq!(rereg(mr, Change { pd: Some(fixture.pair.b.pd), ..NOTHING }), Ok(()));
        assert_eq!(fields(mr).0, fixture.pair.b.pd);
        assert_eq!(dealloc_pd(old), 0, "nothing is left in it");
        // Queue pairs of the domain it has come to reach it; once it is gone again they do not.
        let mut sges = [sge(fixture.near.addr(), 8, fixture.ma)];
        let mut read = |status| {
            let mut wr = rdma_wr(IBV_WR_RDMA_READ, &mut sges, fixture.far.addr(), keys(mr).1);
            assert_eq!(fixture.pair.request(&mut wr), status);
        };
        read(IBV_WC_SUCCESS);
        assert_eq!(rereg(mr, Change { pd: Some(new), ..NOTHING }), Ok(()));
        read(IBV_WC_REM_ACCESS_ERR);
        let message = || {
            let from = sge(fixture.near.addr(), 8, fixture.ma);
            fixture.pair.message(&mut [from], &mut [sge(fixture.far.addr(), 8, mr)])
        };
        assert_eq!(message(), (IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR));
        assert_eq!(dealloc_pd(new), libc::EBUSY);
        assert_eq!(dereg(mr), 0);
        assert_eq!(dealloc_pd(new), 0);
    }

    /// A right that is taken away is gone when the verb returns; one that is given is there.
    /// Rules: RR-10
    fn rights_change_at_once(link: Link) {
        let fixture = MemoryPair::new(link, 16384);
        let set = |access| {
            assert_eq!(rereg(fixture.mb, Change { access: Some(access), ..NOTHING }), Ok(()));
        };
        for _ in 0..5 {
            set(LOCAL_WRITE | REMOTE_WRITE);
            assert_eq!(read(&fixture, 0), IBV_WC_REM_ACCESS_ERR);
            assert_eq!(write(&fixture, 0), IBV_WC_SUCCESS);
            set(REMOTE_READ);
            assert_eq!(read(&fixture, 0), IBV_WC_SUCCESS);
            assert_eq!(write(&fixture, 0), IBV_WC_REM_ACCESS_ERR);
            set(0);
            assert_eq!(read(&fixture, 0), IBV_WC_REM_ACCESS_ERR);
            assert_eq!(write(&fixture, 0), IBV_WC_REM_ACCESS_ERR);
            // Local writing counts as well.
            let from = sge(fixture.near.addr(), 8, fixture.ma);
            let to = sge(fixture.far.addr(), 8, fixture.mb);
            let done = fixture.pair.message(&mut [from], &mut [to]);
            assert_eq!(done, (IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR));
        }
    }

    /// Requests go on all the time that old and new rights allow, and old and new range, at each end. Binds do too.
    /// Rules: RR-08, RR-10, RR-12
    fn what_both_allow_goes_on_during_the_change(link: Link) {
        let both = MemoryPair::new(link, 16384);
        let (qa, qb) = both.pair.another(IBV_QPT_RC);
        let (near, far) = (both.near.addr(), both.far.addr());
        let done = AtomicBool::new(false);
        // Objects of `ibv_*` may be used by any thread.
        let regions = [(both.ma as usize, near), (both.mb as usize, far)];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let more = REMOTE_READ | LOCAL_WRITE | IBV_ACCESS_MW_BIND as c_int;
                for round in (0..).take_while(|_| !done.load(Acquire)) {
                    let access = if round % 2 == 0 { more } else { more | REMOTE_WRITE };
                    for (region, start) in regions {
                        let range = Some((start, [8192, 16384, 64][round % 3]));
                        let change = Change { range, access: Some(access), ..NOTHING };
                        match rereg(region as *mut ibv_mr, change) {
                            Ok(()) | Err((IBV_REREG_MR_ERR_CMD, libc::EBUSY)) => {}
                            refused => panic!("{refused:?}"),
                        }
                    }
                }
            });
            let _over = Over(&done);
            for _ in 0..300 {
                let mut sges = [sge(near, 64, both.ma)];
                post(qa, &mut rdma_wr(IBV_WR_RDMA_READ, &mut sges, far, keys(both.mb).1));
                both.pair.a.expect(IBV_WC_SUCCESS);
                recv(qb, 5, &mut [sge(far, 64, both.mb)]);
                post(qa, &mut with_sges(wr(IBV_WR_SEND), &mut sges));
                both.pair.a.expect(IBV_WC_SUCCESS);
                both.pair.b.expect(IBV_WC_SUCCESS);
            }
            let mw = both.pair.b.mw(IBV_MW_TYPE_1);
            for _ in 0..100 {
                let (addr, access) = (far, IBV_ACCESS_REMOTE_READ);
                bind(&both.pair.b, qb, mw, Range { mr: both.mb, addr, length: 64, access });
                bind(&both.pair.b, qb, mw, Range { mr: both.mb, addr, length: 0, access });
            }
            assert_eq!(dealloc_mw(mw), 0);
        });
    }

    /// A receive is judged when it is used: its region has moved away by then.
    /// Rules: RR-11
    fn posted_receive_sees_the_new_range(link: Link) {
        let fixture = MemoryPair::new(link, 16384);
        let (qa, qb) = fixture.pair.another(IBV_QPT_RC);
        let before = fixture.far.read(0, 4096);
        recv(qb, 5, &mut [sge(fixture.far.addr(), 64, fixture.mb)]);
        let range = Some((fixture.far.addr() + 4096, 4096));
        assert_eq!(rereg(fixture.mb, Change { range, ..NOTHING }), Ok(()));
        post(qa, &mut with_sges(wr(IBV_WR_SEND), &mut [sge(fixture.near.addr(), 64, fixture.ma)]));
        fixture.pair.a.expect(IBV_WC_REM_OP_ERR);
        assert_eq!(fixture.pair.b.expect(IBV_WC_LOC_PROT_ERR).wr_id, 5);
        assert_eq!(fixture.far.read(0, 4096), before);
    }

    /// While a window is bound nothing about its region changes; region and window stay usable.
    /// Rules: RR-12
    fn bound_window_keeps_its_region_as_it_is(link: Link) {
        let fixture = MemoryPair::new(link, 16384);
        let busy = Err((IBV_REREG_MR_ERR_CMD, libc::EBUSY));
        let before = fields(fixture.mb);
        for kind in [IBV_MW_TYPE_1, IBV_MW_TYPE_2] {
            let (qa, qb) = fixture.pair.another(IBV_QPT_RC);
            let mw = fixture.pair.b.mw(kind);
            let (addr, access) = (fixture.far.addr() + 100, REMOTE);
            let key = bind(&fixture.pair.b, qb, mw, Range { mr: fixture.mb, addr, length: 64, access });
            let pd = fixture.pair.b.another_pd();
            for change in [
                Change { range: Some((fixture.far.addr(), 4096)), ..NOTHING },
                Change { pd: Some(pd), ..NOTHING },
                Change { access: Some(ALL), ..NOTHING },
                Change { access: Some(REMOTE_READ), ..NOTHING },
            ] {
                assert_eq!(rereg(fixture.mb, change), busy, "{change:?}");
            }
            assert_eq!(dealloc_pd(pd), 0, "the refusal holds no domain");
            assert_eq!(fields(fixture.mb), before);
            expect_unchanged(&fixture);
            let mut sges = [sge(fixture.near.addr(), 64, fixture.ma)];
            for opcode in [IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE] {
                post(qa, &mut rdma_wr(opcode, &mut sges, addr, key));
                fixture.pair.a.expect(IBV_WC_SUCCESS);
            }
            assert_eq!(dealloc_mw(mw), 0);
            assert_eq!(rereg(fixture.mb, Change { access: Some(ALL), ..NOTHING }), Ok(()));
        }
    }
}

/// Rules: RR-05, RR-06
#[test]
fn what_cannot_be_registered_cannot_be_changed_to() {
    let end = end();
    let buffer = Buffer::new(4096);
    let read_only = Buffer::new(4096);
    read_only.protect(libc::PROT_READ);
    let longest = device_attr(end.context).max_mr_size as usize;
    let access = |access| Change { access: Some(access), ..NOTHING };
    let range = |addr, length| Change { range: Some((addr, length)), ..NOTHING };
    for (change, errno) in [
        (access(REMOTE_WRITE), libc::EINVAL),
        (access(IBV_ACCESS_REMOTE_ATOMIC as c_int), libc::EINVAL),
        (access(1 << 15), libc::EINVAL),
        (access(0x200), libc::EOPNOTSUPP),
        (range(4096, 4096), libc::EFAULT),
        (range(read_only.addr(), 4096), libc::EFAULT),
        (range(0_u64.wrapping_sub(4096), 8192), libc::EINVAL),
        (Change { access: Some(ON_DEMAND), ..range(4096, longest + 1) }, libc::EINVAL),
    ] {
        let mr = end.reg(&buffer, ALL);
        assert_eq!(rereg(mr, change), Err((IBV_REREG_MR_ERR_CMD, errno)), "{change:?}");
        // It is good for nothing but this.
        assert_eq!(dereg(mr), 0);
        assert_eq!(dereg(mr), libc::ENOENT);
    }
}
