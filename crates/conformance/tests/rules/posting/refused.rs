//! Work requests that are malformed: refused when posted, or completed in error.

use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::queues::*;

/// Every operation with data, and whether it may be inline.
const OPERATIONS: [(ibv_wr_opcode, bool); 8] = [
    (IBV_WR_SEND, true),
    (IBV_WR_SEND_WITH_IMM, true),
    (IBV_WR_SEND_WITH_INV, true),
    (IBV_WR_RDMA_WRITE, true),
    (IBV_WR_RDMA_WRITE_WITH_IMM, true),
    (IBV_WR_RDMA_READ, false),
    (IBV_WR_ATOMIC_CMP_AND_SWP, false),
    (IBV_WR_ATOMIC_FETCH_AND_ADD, false),
];

/// A loopback pair with a region at each end, and a receive for whatever takes one.
fn pair(kind: ibv_qp_type) -> (Pair, Buffer, [*mut ibv_mr; 2]) {
    let pair = Pair::new(Link::Loopback, kind);
    let memory = Buffer::new(1 << 16);
    let mrs = [pair.a.reg(&memory, ALL), pair.b.reg(&memory, ALL)];
    (pair, memory, mrs)
}

/// Posts nothing but this: an `EINVAL`, after which the queue works and holds no trace of it.
fn expect_einval(pair: &Pair, wr: &mut ibv_send_wr) {
    assert_eq!(try_post(pair.qa, wr), libc::EINVAL, "opcode {}", wr.opcode);
    let mut small = ibv_send_wr { wr_id: 42, ..ibv_send_wr::default() };
    (small.opcode, small.send_flags) = (IBV_WR_SEND, IBV_SEND_SIGNALED);
    recv(pair.qb, 43, &mut []);
    post(pair.qa, &mut small);
    assert_eq!(pair.a.expect(IBV_WC_SUCCESS).wr_id, 42);
    assert_eq!(pair.b.expect(IBV_WC_SUCCESS).wr_id, 43);
}

/// More SGEs than the queue pair was made for are `EINVAL`, as is a count that is none.
/// Rules: PS-03
#[test]
fn too_many_pieces_are_refused() {
    let (pair, memory, [ma, _]) = pair(IBV_QPT_RC);
    let cap = query(pair.qa).cap;
    let mut sges = vec![sge(memory.addr(), 1, ma); 40];
    for count in [cap.max_send_sge as usize + 1, 33, 40] {
        for (opcode, _) in OPERATIONS {
            expect_einval(&pair, &mut with_sges(wr(opcode), &mut sges[..count]));
        }
        let mut inline = with_sges(wr(IBV_WR_SEND), &mut sges[..count]);
        inline.send_flags |= IBV_SEND_INLINE;
        expect_einval(&pair, &mut inline);
    }
    for count in [cap.max_recv_sge as usize + 1, 33, 40] {
        assert_eq!(try_recv(pair.qb, 1, &mut sges[..count]), libc::EINVAL);
    }
    for num_sge in [-1, i32::MIN] {
        let mut bad = ibv_send_wr { num_sge, ..with_sges(wr(IBV_WR_SEND), &mut sges) };
        expect_einval(&pair, &mut bad);
    }
    let mut receive = [ibv_recv_wr { num_sge: -1, ..ibv_recv_wr::default() }];
    assert_eq!(try_recv_list(pair.qb, &mut receive), Err((libc::EINVAL, 0)));
    // As many as it was made for are taken.
    let far = pair.b.reg(&memory, ALL);
    recv(pair.qb, 1, &mut [sge(memory.addr() + 4096, 10, far); 4][..cap.max_recv_sge as usize]);
    post(pair.qa, &mut with_sges(wr(IBV_WR_SEND), &mut sges[..cap.max_send_sge as usize]));
    pair.a.expect(IBV_WC_SUCCESS);
    assert_eq!(pair.b.expect(IBV_WC_SUCCESS).byte_len, cap.max_send_sge);
}

/// More inline data than the queue pair was made for is `EINVAL`, in one piece or in several.
/// Rules: PS-04
#[test]
fn too_much_inline_data_is_refused() {
    let (pair, memory, [ma, mb]) = pair(IBV_QPT_RC);
    let most = query(pair.qa).cap.max_inline_data;
    let inline = |sges: &mut [ibv_sge], opcode| {
        let mut wr = rdma_wr(opcode, sges, memory.addr(), keys(mb).1);
        wr.send_flags |= IBV_SEND_INLINE;
        wr
    };
    for (opcode, _) in OPERATIONS.into_iter().filter(|(_, may)| *may) {
        let halves = [sge(memory.addr(), most / 2, ma), sge(memory.addr(), most / 2 + 1, ma)];
        expect_einval(&pair, &mut inline(&mut halves.clone(), opcode));
        expect_einval(&pair, &mut inline(&mut [sge(memory.addr(), most + 1, ma)], opcode));
        // Memory of what is refused is not looked at.
        expect_einval(&pair, &mut inline(&mut [sge(16, u32::MAX, null_mut())], opcode));
    }
    for opcode in [IBV_WR_SEND, IBV_WR_RDMA_WRITE] {
        recv(pair.qb, 1, &mut [sge(memory.addr() + 4096, most, mb)]);
        post(pair.qa, &mut inline(&mut [sge(memory.addr(), most, ma)], opcode));
        pair.a.expect(IBV_WC_SUCCESS);
    }
}

/// What sends no data of its own cannot be inline.
/// Rules: PS-05
#[test]
fn reads_and_atomics_cannot_be_inline() {
    let (pair, memory, [ma, mb]) = pair(IBV_QPT_RC);
    for (opcode, may) in OPERATIONS {
        let mut sges = [sge(memory.addr(), 8, ma)];
        let mut wr = rdma_wr(opcode, &mut sges, memory.addr() + 64, keys(mb).1);
        if matches!(opcode, IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD) {
            wr = atomic_wr(opcode, &mut sges, memory.addr() + 64, keys(mb).1, 0, 0);
        }
        wr.send_flags |= IBV_SEND_INLINE;
        if !may {
            expect_einval(&pair, &mut wr);
        } else if opcode == IBV_WR_RDMA_WRITE {
            post(pair.qa, &mut wr);
            pair.a.expect(IBV_WC_SUCCESS);
        } else if opcode != IBV_WR_SEND_WITH_INV {
            recv(pair.qb, 1, &mut [sge(memory.addr() + 4096, 8, mb)]);
            post(pair.qa, &mut wr);
            pair.a.expect(IBV_WC_SUCCESS);
            pair.b.expect(IBV_WC_SUCCESS);
        }
    }
}

/// What a service can do is done; READs and atomics on UC complete in error, and nothing arrives.
/// Rules: PS-06, WC-02
#[test]
fn each_service_does_its_operations() {
    for kind in [IBV_QPT_RC, IBV_QPT_UC] {
        for (opcode, _) in OPERATIONS {
            let (pair, memory, [ma, mb]) = pair(kind);
            let mw = pair.b.mw(IBV_MW_TYPE_2);
            let range = Range { mr: mb, addr: memory.addr() + 8192, length: 64, access: REMOTE };
            let window = bind(&pair.b, pair.qb, mw, range);
            memory.set_word(0, 5);
            memory.set_word(64, 6);
            recv(pair.qb, 1, &mut [sge(memory.addr() + 4096, 8, mb)]);
            let mut sges = [sge(memory.addr(), 8, ma)];
            let mut wr = rdma_wr(opcode, &mut sges, memory.addr() + 64, keys(mb).1);
            if matches!(opcode, IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD) {
                wr = atomic_wr(opcode, &mut sges, memory.addr() + 64, keys(mb).1, 6, 1);
            }
            if opcode == IBV_WR_SEND_WITH_INV {
                wr.imm.invalidate_rkey = window;
            }
            if (kind, opcode) == (IBV_QPT_UC, IBV_WR_SEND_WITH_INV) {
                assert_eq!(try_post(pair.qa, &mut wr), libc::EINVAL);
                continue;
            }
            post(pair.qa, &mut wr);
            let waits = matches!(
                opcode,
                IBV_WR_RDMA_READ | IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD
            );
            if kind == IBV_QPT_UC && waits {
                pair.a.expect(IBV_WC_LOC_QP_OP_ERR);
                assert_eq!((memory.word(0), memory.word(64)), (5, 6));
                pair.b.expect_nothing();
            } else {
                pair.a.expect(IBV_WC_SUCCESS);
            }
        }
        // Local operations are for both.
        let (pair, memory, [ma, _]) = pair(kind);
        let mw = pair.a.mw(IBV_MW_TYPE_2);
        let range = Range { mr: ma, addr: memory.addr(), length: 64, access: REMOTE };
        let key = bind(&pair.a, pair.qa, mw, range);
        post(pair.qa, &mut local_inv_wr(key));
        assert_eq!(pair.a.expect(IBV_WC_SUCCESS).opcode, IBV_WC_LOCAL_INV);
        let mw = pair.a.mw(IBV_MW_TYPE_1);
        bind(&pair.a, pair.qa, mw, range);
    }
}

/// Operations that nobody knows are `EINVAL`.
/// Rules: PS-07
#[test]
fn unknown_operations_are_refused() {
    for kind in [IBV_QPT_RC, IBV_QPT_UC] {
        let (pair, memory, [ma, _]) = pair(kind);
        let others = (10..100).filter(|&opcode| opcode != IBV_WR_ATOMIC_WRITE);
        for opcode in others.chain([255, 1 << 16, u32::MAX]) {
            expect_einval(&pair, &mut wr(opcode));
            expect_einval(&pair, &mut with_sges(wr(opcode), &mut [sge(memory.addr(), 8, ma)]));
        }
    }
}

/// A message longer than the port carries is a length error, before any key is looked at; one as
/// long as it carries is judged by its keys.
/// Rules: PS-16, WC-01
#[test]
fn a_message_has_a_longest_length() {
    let end = End::new(Default::default());
    let mut port = ibv_port_attr::default();
    // SAFETY: an open context and room for the old form of the attributes.
    assert_eq!(unsafe { transom_ibverbs::ibv_query_port(end.context, 1, &mut port) }, 0);
    assert_eq!(port.max_msg_sz, 1 << 31);
    for opcode in [IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ] {
        for (over, status) in [(1, IBV_WC_LOC_LEN_ERR), (0, IBV_WC_LOC_PROT_ERR)] {
            if (opcode, over) == (IBV_WR_RDMA_READ, 0) {
                continue;
            }
            let pair = Pair::rc(Link::Loopback);
            let half = 1 << 30;
            let mut sges = [sge(0x1000, half, null_mut()), sge(0x1000, half + over, null_mut())];
            post(pair.qa, &mut rdma_wr(opcode, &mut sges, 0x1000, 0x1234));
            pair.a.expect(status);
            assert_eq!(state(pair.qa), IBV_QPS_ERR);
            pair.b.expect_nothing();
        }
    }
}
