//! Null regions: zeros come out, and what goes in is gone.

use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::memory::*;
use transom_conformance::on_each_link;
use transom_host::Options;

const MIB: usize = 1 << 20;

on_each_link! {
    /// A gather from a null region gives zeros, between SGEs of memory and at any address.
    /// Rules: MR-36
    fn gathers_give_zeros(link: Link) {
        let pair = Pair::rc(link);
        let null = try_null_mr(pair.a.pd).expect("a null region");
        let (near, far) = (Buffer::new(4096), Buffer::new(MIB));
        near.fill(7);
        let (ma, mb) = (pair.a.reg(&near, 0), pair.b.reg(&far, ALL));
        let sges = || {
            [sge(near.addr(), 100, ma), sge(0xdead_beef, 300_000, null), sge(near.addr(), 50, ma)]
        };
        let as_expected = |at: usize| {
            assert_eq!(far.read(at, 100), [7; 100]);
            assert!(far.read(at + 100, 300_000).iter().all(|byte| *byte == 0));
            assert_eq!(far.read(at + 300_100, 50), [7; 50]);
            assert_eq!(far.read(at + 300_150, 1), [9], "and not one byte more");
            far.fill(9);
        };
        far.fill(9);
        let mut sges = sges();
        post(pair.qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, far.addr(), keys(mb).1));
        pair.a.expect(IBV_WC_SUCCESS);
        as_expected(0);
        recv(pair.qb, 2, &mut [sge(far.addr() + 5, MIB as u32 - 5, mb)]);
        post(pair.qa, &mut with_sges(wr(IBV_WR_SEND), &mut sges));
        pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(pair.b.expect(IBV_WC_SUCCESS).byte_len, 300_150);
        as_expected(5);
    }

    /// What is scattered to a null region is discarded, and counted.
    /// Rules: MR-36
    fn scatters_are_discarded_and_counted(link: Link) {
        let pair = Pair::rc(link);
        let (null_a, null_b) = (try_null_mr(pair.a.pd), try_null_mr(pair.b.pd));
        let (null_a, null_b) = (null_a.expect("a null region"), null_b.expect("a null region"));
        let (near, far) = (Buffer::filled(300_000, 5), Buffer::new(MIB));
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        // A message: the middle of it is lost.
        let length = near.len();
        let mut to = [
            sge(far.addr(), 1000, mb),
            sge(u64::MAX - MIB as u64, 200_000, null_b),
            sge(far.addr() + 1000, MIB as u32 / 2, mb),
        ];
        recv(pair.qb, 2, &mut to);
        let mut from = [sge(near.addr(), length as u32, ma)];
        post(pair.qa, &mut with_sges(wr(IBV_WR_SEND), &mut from));
        pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(pair.b.expect(IBV_WC_SUCCESS).byte_len as usize, length);
        assert_eq!(far.read(0, 1000), near.read(0, 1000));
        assert_eq!(far.read(1000, length - 201_000), near.read(201_000, length - 201_000));
        // A READ: only its end is wanted.
        let end = Buffer::new(4096);
        let me = pair.a.reg(&end, ALL);
        let mut into = [sge(0, 700, null_a), sge(end.addr(), 300, me)];
        post(pair.qa, &mut rdma_wr(IBV_WR_RDMA_READ, &mut into, far.addr(), keys(mb).1));
        assert_eq!(pair.a.expect(IBV_WC_SUCCESS).opcode, IBV_WC_RDMA_READ);
        assert_eq!(end.read(0, 300), far.read(700, 300));
        // An atomic whose result nobody wants, and a message whose bytes nobody does.
        far.set_word(0, 40);
        let mut nowhere = [sge(0, 8, null_a)];
        let (at, key) = (far.addr(), keys(mb).1);
        let opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        post(pair.qa, &mut atomic_wr(opcode, &mut nowhere, at, key, 2, 0));
        pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(far.word(0), 42);
        recv(pair.qb, 3, &mut [sge(0, 64, null_b)]);
        post(pair.qa, &mut with_sges(wr(IBV_WR_SEND), &mut [sge(0, 64, null_a)]));
        pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(pair.b.expect(IBV_WC_SUCCESS).byte_len, 64);
    }

    /// A peer that is given the local key writes nothing with it and reads zeros; there is no other key.
    /// Rules: MR-36, MR-45
    fn peers_write_nothing_and_read_zeros(link: Link) {
        let pair = Pair::rc(link);
        let null = try_null_mr(pair.b.pd).expect("a null region");
        let near = Buffer::filled(300_000, 7);
        let ma = pair.a.reg(&near, ALL);
        let (lkey, rkey) = keys(null);
        assert_eq!(rkey, 0);
        let far = 0x1000;
        for (opcode, at) in [(IBV_WR_RDMA_WRITE, far), (IBV_WR_RDMA_READ, u64::MAX - 300_000)] {
            for length in [0, 64, 5000, 300_000] {
                let before = near.read(0, near.len());
                let mut sges = [sge(near.addr(), length / 2, ma), sge(near.addr(), length / 2, ma)];
                let status = pair.request(&mut rdma_wr(opcode, &mut sges, at, lkey));
                assert_eq!(status, IBV_WC_SUCCESS, "{opcode} {length}");
                let read = if opcode == IBV_WR_RDMA_READ { length as usize / 2 } else { 0 };
                let mut expected = before;
                expected[..read].fill(0);
                assert!(near.read(0, near.len()) == expected, "{opcode} {length}");
            }
            let mut sges = [sge(near.addr(), 64, ma)];
            let status = pair.request(&mut rdma_wr(opcode, &mut sges, far, rkey));
            assert_eq!(status, IBV_WC_REM_ACCESS_ERR);
            let stranger = keys(try_null_mr(pair.b.another_pd()).expect("a null region")).0;
            let status = pair.request(&mut rdma_wr(opcode, &mut sges, far, stranger));
            assert_eq!(status, IBV_WC_REM_ACCESS_ERR);
            // What is discarded or replaced is still this side's to give.
            sges[0].lkey ^= 0x5500;
            let status = pair.request(&mut rdma_wr(opcode, &mut sges, far, lkey));
            assert_eq!(status, IBV_WC_LOC_PROT_ERR);
        }
        // An ATOMIC WRITE is a WRITE too; an atomic wants to know what was there.
        let mut sges = [sge(near.addr(), 8, ma)];
        for at in [far, u64::MAX - 15] {
            let status = pair.request(&mut rdma_wr(IBV_WR_ATOMIC_WRITE, &mut sges, at, lkey));
            assert_eq!(status, IBV_WC_SUCCESS, "{at:#x}");
        }
        let opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        let status = pair.request(&mut atomic_wr(opcode, &mut sges, 0x1000, lkey, 1, 0));
        assert_eq!(status, IBV_WC_REM_ACCESS_ERR);
    }
}

/// Binding and rereg are not for null regions.
/// Rules: MR-36, T1-07
#[test]
fn it_is_bound_to_no_window_and_not_changed() {
    let pair = Pair::rc(Link::Loopback);
    let null = try_null_mr(pair.a.pd).expect("a null region");
    let range = Range { mr: null, addr: 0, length: 64, access: REMOTE };
    let mw = pair.a.mw(IBV_MW_TYPE_1);
    let key = rkey(mw);
    assert_eq!(bind1(pair.qa, mw, 1, IBV_SEND_SIGNALED, range), libc::ENOTSUP);
    assert_eq!(rkey(mw), key);
    pair.a.expect_nothing();
    let buffer = Buffer::new(4096);
    for change in [
        Change { access: Some(ALL), ..Change::default() },
        Change { range: Some((buffer.addr(), 4096)), ..Change::default() },
        Change { pd: Some(pair.a.another_pd()), ..Change::default() },
    ] {
        assert_eq!(rereg(null, change), Err((IBV_REREG_MR_ERR_INPUT, libc::EINVAL)), "{change:?}");
    }
    assert_eq!(
        rereg_raw(null, 0, null_mut(), 0, 0, 0),
        Err((IBV_REREG_MR_ERR_INPUT, libc::EINVAL))
    );
    // It is as it was.
    recv(pair.qb, 2, &mut [sge(0, 64, try_null_mr(pair.b.pd).expect("another"))]);
    post(pair.qa, &mut with_sges(wr(IBV_WR_SEND), &mut [sge(0, 64, null)]));
    pair.a.expect(IBV_WC_SUCCESS);
    pair.b.expect(IBV_WC_SUCCESS);
    // A type 2 bind fails when it is carried out.
    post(pair.qa, &mut bind2_wr(pair.a.mw(IBV_MW_TYPE_2), 1, range));
    pair.a.expect(IBV_WC_MW_BIND_ERR);
}

/// It does not keep its domain, and ends as other regions do.
///
/// Rules: PD-02, DR-02
#[test]
fn it_may_outlive_its_domain() {
    let end = End::new(Options::default());
    let pd = end.another_pd();
    let null = try_null_mr(pd).expect("a null region");
    // SAFETY: a live region.
    let mr = unsafe { &*null };
    assert_eq!((mr.context, mr.pd, mr.addr), (end.context, pd, null_mut()));
    assert_ne!(mr.lkey, 0);
    let buffer = Buffer::new(64);
    let plain = reg(pd, &buffer, 0);
    assert_eq!(dealloc_pd(pd), libc::EBUSY);
    assert_eq!(dereg(plain), 0);
    assert_eq!(dealloc_pd(pd), 0);
    assert_eq!(dereg(null), 0);
    assert_eq!(dereg(null), libc::ENOENT);
    let refused = try_null_mr(pd);
    assert!(matches!(refused, Err(libc::ENOENT | libc::EINVAL)), "{refused:?}");
}

/// A stranger's null region is refused like any stranger's region.
/// Rules: LA-12
#[test]
fn it_belongs_to_its_domain() {
    let pair = Pair::rc(Link::Loopback);
    let theirs = try_null_mr(pair.a.another_pd()).expect("a null region");
    recv(pair.qb, 2, &mut []);
    post(pair.qa, &mut with_sges(wr(IBV_WR_SEND), &mut [sge(0, 64, theirs)]));
    pair.a.expect(IBV_WC_LOC_PROT_ERR);
}
