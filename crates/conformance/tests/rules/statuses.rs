//! Each status a work completion can have, by what brings it about. Those that never occur have no
//! value in the device (its own test sees to that).

use std::ffi::CStr;
use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_ibverbs::ibv_wc_status_str;

/// A SEND of so many bytes.
fn send(it: &MemoryPair, length: u32) {
    let mut sges = [sge(it.near.addr(), length, it.ma)];
    post(it.pair.qa, &mut with_sges(wr(IBV_WR_SEND), &mut sges));
}

/// The origin's next completion has this status, and it has failed.
fn origin_fails(it: &MemoryPair, status: ibv_wc_status) {
    let wc = it.pair.a.expect(status);
    assert_eq!(wc.wr_id, 1);
    assert_eq!(state(it.pair.qa), IBV_QPS_ERR);
}

/// The target's next completion is of its receive 7 and has this status; it has failed.
fn target_fails(it: &MemoryPair, status: ibv_wc_status) {
    assert_eq!(it.pair.b.expect(status).wr_id, 7);
    assert_eq!(state(it.pair.qb), IBV_QPS_ERR);
}

on_each_link! {
    /// A receive too small for its message, and an atomic whose result is not of eight bytes.
    /// Rules: WC-01, WC-09
    fn local_length_error(link: Link) {
        let it = MemoryPair::new(link, 8192);
        recv(it.pair.qb, 7, &mut [sge(it.far.addr(), 99, it.mb)]);
        send(&it, 100);
        origin_fails(&it, IBV_WC_REM_INV_REQ_ERR);
        target_fails(&it, IBV_WC_LOC_LEN_ERR);
        for length in [0, 4, 7, 9, 16] {
            let it = MemoryPair::new(link, 8192);
            let mut sges = [sge(it.near.addr(), length, it.ma)];
            let (add, key) = (IBV_WR_ATOMIC_FETCH_AND_ADD, keys(it.mb).1);
            let before = it.far.word(0);
            post(it.pair.qa, &mut atomic_wr(add, &mut sges, it.far.addr(), key, 1, 0));
            origin_fails(&it, IBV_WC_LOC_LEN_ERR);
            assert_eq!((it.far.word(0), state(it.pair.qb)), (before, IBV_QPS_RTS));
        }
    }

    /// Local memory that its key does not cover, of each operation.
    /// Rules: WC-04
    fn local_protection_error(link: Link) {
        for opcode in [
            IBV_WR_SEND,
            IBV_WR_SEND_WITH_IMM,
            IBV_WR_RDMA_WRITE,
            IBV_WR_RDMA_WRITE_WITH_IMM,
            IBV_WR_RDMA_READ,
            IBV_WR_ATOMIC_CMP_AND_SWP,
            IBV_WR_ATOMIC_FETCH_AND_ADD,
        ] {
            let it = MemoryPair::new(link, 8192);
            let beyond = it.near.addr() + it.near.len() as u64 - 4;
            let key = keys(it.mb).1;
            let mut sges = [sge(beyond, 8, it.ma)];
            let mut wr = rdma_wr(opcode, &mut sges, it.far.addr(), key);
            if matches!(opcode, IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD) {
                wr = atomic_wr(opcode, &mut sges, it.far.addr(), key, 1, 2);
            }
            recv(it.pair.qb, 7, &mut [sge(it.far.addr(), 100, it.mb)]);
            post(it.pair.qa, &mut wr);
            origin_fails(&it, IBV_WC_LOC_PROT_ERR);
            it.pair.b.expect_nothing();
        }
    }

    /// Work that a failed queue pair still had, or got later.
    /// Rules: WC-05
    fn flushed(link: Link) {
        let it = MemoryPair::new(link, 8192);
        recv(it.pair.qa, 7, &mut []);
        let mut bad = [sge(0x1000, 8, null_mut())];
        post(it.pair.qa, &mut with_sges(wr(IBV_WR_SEND), &mut bad));
        origin_fails(&it, IBV_WC_LOC_PROT_ERR);
        assert_eq!(it.pair.a.expect(IBV_WC_WR_FLUSH_ERR).wr_id, 7);
        send(&it, 8);
        origin_fails(&it, IBV_WC_WR_FLUSH_ERR);
    }

    /// Binds and invalidations that are refused, here and by the peer's SEND.
    /// Rules: WC-06, WC-12
    fn window_bind_error(link: Link) {
        let it = MemoryPair::new(link, 8192);
        let beyond = it.near.addr() + it.near.len() as u64;
        let range = Range { mr: it.ma, addr: beyond, length: 8, access: REMOTE };
        post(it.pair.qa, &mut bind2_wr(it.pair.a.mw(IBV_MW_TYPE_2), 5, range));
        origin_fails(&it, IBV_WC_MW_BIND_ERR);

        let it = MemoryPair::new(link, 8192);
        assert_eq!(bind1(it.pair.qa, it.pair.a.mw(IBV_MW_TYPE_1), 1, 0, Range { mr: it.ma, ..range }), 0);
        origin_fails(&it, IBV_WC_MW_BIND_ERR);

        let it = MemoryPair::new(link, 8192);
        post(it.pair.qa, &mut local_inv_wr(keys(it.ma).1));
        origin_fails(&it, IBV_WC_MW_BIND_ERR);

        let it = MemoryPair::new(link, 8192);
        recv(it.pair.qb, 7, &mut []);
        let mut wr = wr(IBV_WR_SEND_WITH_INV);
        wr.imm.invalidate_rkey = keys(it.mb).1;
        give_up_soon(it.pair.qa);
        post(it.pair.qa, &mut wr);
        origin_fails(&it, IBV_WC_RETRY_EXC_ERR);
        target_fails(&it, IBV_WC_MW_BIND_ERR);
    }

    /// A receive that a WRITE with immediate data has taken, and spoiled by its bad key.
    /// Rules: WC-08, WC-10
    fn local_access_error(link: Link) {
        let it = MemoryPair::new(link, 8192);
        recv(it.pair.qb, 7, &mut []);
        recv(it.pair.qb, 8, &mut []);
        let mut sges = [sge(it.near.addr(), 8, it.ma)];
        let key = keys(it.mb).1 ^ 1;
        let opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        post(it.pair.qa, &mut rdma_wr(opcode, &mut sges, it.far.addr(), key));
        origin_fails(&it, IBV_WC_REM_ACCESS_ERR);
        target_fails(&it, IBV_WC_LOC_ACCESS_ERR);
        assert_eq!(it.pair.b.expect(IBV_WC_WR_FLUSH_ERR).wr_id, 8);
    }

    /// Requests that the target calls invalid.
    /// Rules: WC-09
    fn remote_invalid_request(link: Link) {
        let it = MemoryPair::new(link, 8192);
        let mut sges = [sge(it.near.addr(), 8, it.ma)];
        let (swap, key) = (IBV_WR_ATOMIC_CMP_AND_SWP, keys(it.mb).1);
        post(it.pair.qa, &mut atomic_wr(swap, &mut sges, it.far.addr() + 1, key, 1, 2));
        origin_fails(&it, IBV_WC_REM_INV_REQ_ERR);
        assert_eq!(state(it.pair.qb), IBV_QPS_ERR);
    }

    /// Remote memory that the key does not cover, of each operation that names some.
    /// Rules: WC-10
    fn remote_access_error(link: Link) {
        for opcode in [
            IBV_WR_RDMA_WRITE,
            IBV_WR_RDMA_READ,
            IBV_WR_ATOMIC_CMP_AND_SWP,
            IBV_WR_ATOMIC_FETCH_AND_ADD,
        ] {
            let it = MemoryPair::new(link, 8192);
            let beyond = it.far.addr() + it.far.len() as u64;
            let key = keys(it.mb).1;
            let mut sges = [sge(it.near.addr(), 8, it.ma)];
            let mut wr = rdma_wr(opcode, &mut sges, beyond, key);
            if matches!(opcode, IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD) {
                wr = atomic_wr(opcode, &mut sges, beyond, key, 1, 2);
            }
            post(it.pair.qa, &mut wr);
            origin_fails(&it, IBV_WC_REM_ACCESS_ERR);
            assert_eq!(state(it.pair.qb), IBV_QPS_ERR);
        }
    }

    /// A receive whose own memory is not covered: the target's fault, and it says so.
    /// Rules: WC-11, WC-04
    fn remote_operation_error(link: Link) {
        let it = MemoryPair::new(link, 8192);
        recv(it.pair.qb, 7, &mut [sge(it.far.addr(), 8, null_mut())]);
        send(&it, 8);
        origin_fails(&it, IBV_WC_REM_OP_ERR);
        target_fails(&it, IBV_WC_LOC_PROT_ERR);
    }
}

/// The statuses have the numbers of the table, and each has words of its own.
/// Rules: WC-00
#[test]
fn statuses_are_numbered_and_named() {
    let table = [
        IBV_WC_SUCCESS,
        IBV_WC_LOC_LEN_ERR,
        IBV_WC_LOC_QP_OP_ERR,
        IBV_WC_LOC_EEC_OP_ERR,
        IBV_WC_LOC_PROT_ERR,
        IBV_WC_WR_FLUSH_ERR,
        IBV_WC_MW_BIND_ERR,
        IBV_WC_BAD_RESP_ERR,
        IBV_WC_LOC_ACCESS_ERR,
        IBV_WC_REM_INV_REQ_ERR,
        IBV_WC_REM_ACCESS_ERR,
        IBV_WC_REM_OP_ERR,
        IBV_WC_RETRY_EXC_ERR,
        IBV_WC_RNR_RETRY_EXC_ERR,
        IBV_WC_LOC_RDD_VIOL_ERR,
        IBV_WC_REM_INV_RD_REQ_ERR,
        IBV_WC_REM_ABORT_ERR,
        IBV_WC_INV_EECN_ERR,
        IBV_WC_INV_EEC_STATE_ERR,
        IBV_WC_FATAL_ERR,
        IBV_WC_RESP_TIMEOUT_ERR,
        IBV_WC_GENERAL_ERR,
        IBV_WC_TM_ERR,
        IBV_WC_TM_RNDV_INCOMPLETE,
    ];
    // SAFETY: static strings that end in a zero.
    let words = |status| unsafe { CStr::from_ptr(ibv_wc_status_str(status)) };
    let mut seen = std::collections::HashSet::from([words(24)]);
    for (status, number) in table.into_iter().zip(0..) {
        assert_eq!(status, number);
        assert!(seen.insert(words(status)), "{number}: {:?} is taken", words(status));
    }
}
