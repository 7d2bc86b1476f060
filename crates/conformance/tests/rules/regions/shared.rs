//! Regions of shared memory: where their memory is was decided when they were registered.

use std::ffi::c_void;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::*;
use transom_ibverbs::Allocation;
use transom_system::memory::is_shared;
use transom_system::registered::RegisteredMemory;
use transom_system::registry::Registry;
use transom_system::segment::Segment;

const PAGE: usize = 4096;

/// A process with shared memory, and two connected ends.
fn in_shared_memory(test: &str, body: fn()) {
    alone(test, Way::Shared, body);
}

/// Has other memory, of zeros, in place of pages of a buffer.
fn replace(buffer: &Buffer, at: usize, length: usize) {
    let first = (buffer.addr() + at as u64) as *mut c_void;
    let (rights, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: pages of the buffer, which is this test's alone.
    let mapped = unsafe { libc::mmap(first, length, rights, kind | libc::MAP_FIXED, -1, 0) };
    assert_eq!(mapped, first);
}

/// A region keeps the pages that it was registered with, as an adapter that has pinned them; a region of what the
/// program has there afterwards is of that.
///
/// Rules: MR-40
#[test]
fn a_region_keeps_its_pages_whatever_is_mapped_there_later() {
    in_shared_memory(path_of!("a_region_keeps_its_pages_whatever_is_mapped_there_later"), || {
        let pair = Pair::rc(Link::Shared);
        let (near, far) = (Buffer::filled(PAGE, 3), Buffer::filled(2 * PAGE, 9));
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        assert!(is_shared(far.addr(), far.len() as u64));
        replace(&far, PAGE, PAGE);
        let write = |key: u32| {
            let mut sges = [sge(near.addr(), 64, ma)];
            let to = far.addr() + PAGE as u64;
            pair.request(&mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, to, key))
        };
        let read = |key: u32| {
            let mut sges = [sge(near.addr() + 2048, 64, ma)];
            let from = far.addr() + PAGE as u64;
            pair.request(&mut rdma_wr(IBV_WR_RDMA_READ, &mut sges, from, key))
        };
        assert_eq!(write(keys(mb).1), IBV_WC_SUCCESS);
        assert_eq!(far.read(PAGE, 64), [0; 64], "the program has other memory there");
        assert_eq!(read(keys(mb).1), IBV_WC_SUCCESS);
        assert_eq!(near.read(2048, 64), near.read(0, 64));
        // Part of it is other memory now, so all of it is reached where the program has it.
        let other = pair.b.reg(&far, ALL);
        assert_eq!(write(keys(other).1), IBV_WC_SUCCESS);
        assert_eq!(far.read(PAGE, 64), near.read(0, 64));
        assert_eq!(dereg(mb), 0);
        assert_eq!(dereg(other), 0);
    });
}

/// A window of such a region is of the same pages.
#[test]
fn a_window_keeps_the_pages_of_its_region() {
    in_shared_memory(path_of!("a_window_keeps_the_pages_of_its_region"), || {
        let pair = Pair::rc(Link::Shared);
        let (near, far) = (Buffer::filled(PAGE, 3), Buffer::new(PAGE));
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        let mw = pair.b.mw(IBV_MW_TYPE_1);
        replace(&far, 0, PAGE);
        let (addr, access) = (far.addr() + 64, IBV_ACCESS_REMOTE_WRITE);
        let key = bind(&pair.b, pair.qb, mw, Range { mr: mb, addr, length: 64, access });
        let mut sges = [sge(near.addr(), 64, ma)];
        post(pair.qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, far.addr() + 64, key));
        pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(far.read(64, 64), [0; 64], "the program has other memory there");
    });
}

/// Memory that the program has given back stays with its region, and nobody else gets it before that ends.
#[test]
fn what_is_given_back_under_a_region_is_nobody_elses() {
    in_shared_memory(path_of!("what_is_given_back_under_a_region_is_nobody_elses"), || {
        let pair = Pair::rc(Link::Shared);
        let near = Buffer::filled(PAGE, 3);
        let ma = pair.a.reg(&near, ALL);
        let block = Allocation::new(PAGE).expect("there is memory");
        let at = block.first().as_ptr() as u64;
        let mb = try_reg(pair.b.pd, at, PAGE, ALL).expect("a region");
        drop(block);
        let others: Vec<_> = (0..64).map(|_| Allocation::new(PAGE).expect("memory")).collect();
        assert!(others.iter().all(|other| other.first().as_ptr() as u64 != at));
        let mut sges = [sge(near.addr(), 64, ma)];
        let status = pair.request(&mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, at, keys(mb).1));
        assert_eq!(status, IBV_WC_SUCCESS);
        assert_eq!(dereg(mb), 0);
        let again = Allocation::new(PAGE).expect("there is memory");
        assert_eq!(again.first().as_ptr() as u64, at, "it is kept for the next");
        // SAFETY: a page of this test's.
        let bytes = unsafe { std::slice::from_raw_parts(again.first().as_ptr(), PAGE) };
        assert!(bytes.iter().all(|byte| *byte == 0), "what was written there is gone");
    });
}

/// How much is registered, and what of it is shared, is told in the segment, also when a region changes.
#[test]
fn what_is_registered_is_counted() {
    in_shared_memory(path_of!("what_is_registered_is_counted"), || {
        let end = open();
        let registry = Registry::open().expect("a registry");
        let registered = || {
            let mut all = registry.processes().into_iter();
            let this = all.find(|it| it.alive && it.pid == std::process::id()).expect("it is open");
            let RegisteredMemory { shared, private, .. } =
                Segment::registered_by(&this).expect("it can be looked into");
            (shared, private)
        };
        let (shared, private) = (Buffer::new(2 * PAGE), Buffer::private(PAGE));
        assert_eq!(registered(), (0, 0));
        let (ms, mp) =
            (end.reg(&shared, ALL), try_reg(end.pd, private.addr(), 100, ALL).expect("one"));
        assert_eq!(registered(), (2 * PAGE as u64, 100));
        assert_eq!(rereg(mp, shared.addr(), PAGE), 0);
        assert_eq!(registered(), (3 * PAGE as u64, 0));
        assert_eq!(dereg(ms), 0);
        assert_eq!(dereg(mp), 0);
        assert_eq!(registered(), (0, 0));
    });
}

/// Has a region be of other memory of this process.
fn rereg(mr: *mut ibv_mr, address: u64, length: usize) -> i32 {
    let flags = IBV_REREG_MR_CHANGE_TRANSLATION as i32;
    let at = address as *mut c_void;
    // SAFETY: a live region, and memory that outlives it.
    unsafe { transom_ibverbs::ibv_rereg_mr(mr, flags, std::ptr::null_mut(), at, length, 0) }
}
