//! What becomes of a refused request at both ends (rules E.3).

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;

/// A key nobody has.
const JUNK: u32 = 0xdead_beef;

/// The one-sided operations, which take no receive.
const ONE_SIDED: [ibv_wr_opcode; 4] =
    [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP];

on_each_link! {
    /// The origin's completion names the work request and its queue pair; both queue pairs are in
    /// error; no byte has changed at either end.
    /// Rules: RA-41, RA-43, RA-44, RA-56
    fn a_violation_fails_both_ends(link: Link) {
        let both = MemoryPair::new(link, 300_000);
        let before = both.bytes();
        for opcode in ONE_SIDED {
            let atomic = !matches!(opcode, IBV_WR_RDMA_WRITE | IBV_WR_RDMA_READ);
            for length in if atomic { [8, 8, 8] } else { [1, 4096, 300_000] } {
                let (qa, qb) = both.pair.another(IBV_QPT_RC);
                // SAFETY: a live queue pair.
                let number = unsafe { (*qa).qp_num };
                let mut sges = [sge(both.near.addr(), length, both.ma)];
                let mut wr =
                    atomic_wr(opcode, &mut sges, both.far.addr(), JUNK, both.far.word(0), 0);
                if !atomic {
                    wr = rdma_wr(opcode, &mut sges, both.far.addr(), JUNK);
                }
                wr.wr_id = 0x1_0000_0000 + u64::from(length);
                let id = wr.wr_id;
                post(qa, &mut wr);
                let wc = both.pair.a.expect(IBV_WC_REM_ACCESS_ERR);
                assert_eq!((wc.wr_id, wc.qp_num), (id, number));
                assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_ERR));
                assert!(both.bytes() == before, "{opcode} of {length}");
            }
        }
        both.pair.a.expect_nothing();
    }

    /// Of five work requests the first violates: its error comes first, then the others are flushed
    /// in order, signaled or not, and so is whatever is posted later. Until all are posted they
    /// wait behind a SEND without a receive.
    /// Rules: RA-42
    fn the_rest_is_flushed_in_order(link: Link) {
        let both = MemoryPair::new(link, 4096);
        for opcode in ONE_SIDED {
            let (qa, qb) = both.pair.another(IBV_QPT_RC);
            let (_, before) = both.bytes();
            post(qa, &mut with_sges(wr(IBV_WR_SEND), &mut []));
            let mut sges = [sge(both.near.addr(), 8, both.ma)];
            for n in 0..5 {
                let (kind, key) =
                    if n == 0 { (opcode, JUNK) } else { (IBV_WR_RDMA_WRITE, both.key()) };
                let mut wr = if matches!(kind, IBV_WR_RDMA_WRITE | IBV_WR_RDMA_READ) {
                    rdma_wr(kind, &mut sges, both.far.addr(), key)
                } else {
                    atomic_wr(kind, &mut sges, both.far.addr(), key, 1, 2)
                };
                wr.wr_id = 10 + n;
                wr.send_flags = if n % 2 == 0 { 0 } else { IBV_SEND_SIGNALED };
                post(qa, &mut wr);
            }
            recv(qb, 1, &mut []);
            assert_eq!(both.pair.a.expect(IBV_WC_SUCCESS).wr_id, 1);
            assert_eq!(both.pair.a.expect(IBV_WC_REM_ACCESS_ERR).wr_id, 10);
            for id in 11..15 {
                assert_eq!(both.pair.a.expect(IBV_WC_WR_FLUSH_ERR).wr_id, id);
            }
            both.post_op(qa, IBV_WR_RDMA_WRITE, both.far.addr(), both.key(), 8);
            both.pair.a.expect(IBV_WC_WR_FLUSH_ERR);
            both.pair.a.expect_nothing();
            assert!(both.bytes().1 == before);
        }
    }

    /// The target is told of a violation by an event that names the queue pair, and by no
    /// completion.
    /// Rules: RA-45
    fn the_target_gets_an_event(link: Link) {
        let both = MemoryPair::new(link, 4096);
        for opcode in ONE_SIDED {
            let (qa, qb) = both.pair.another(IBV_QPT_RC);
            let wc = both.op_on(qa, opcode, both.far.addr(), JUNK, 8);
            assert_eq!(wc.status, IBV_WC_REM_ACCESS_ERR);
            assert_eq!(both.pair.b.event(), (IBV_EVENT_QP_ACCESS_ERR, qb.cast()));
            assert!(!both.pair.b.has_event());
            both.pair.b.expect_nothing();
        }
        assert!(!both.pair.a.has_event());
    }

    /// A WRITE with immediate of one packet that violates spoils the receive it would have taken, and
    /// the others are flushed. Of several packets only the last says that there is immediate data, and
    /// the first is judged: no receive is taken, and an event tells.
    /// Rules: RA-45, RA-46, RA-47, AE-08
    fn a_violating_immediate_spoils_its_receive(link: Link) {
        let both = MemoryPair::new(link, 300_000);
        let before = both.bytes();
        let path_mtu = 1024;
        for length in [1, 8, path_mtu, path_mtu + 1, 300_000] {
            let (qa, qb) = both.pair.another(IBV_QPT_RC);
            for id in 20..24 {
                both.recv(qb, id, 64);
            }
            let wc =
                both.op_on(qa, IBV_WR_RDMA_WRITE_WITH_IMM, both.far.addr(), JUNK, length);
            assert_eq!(wc.status, IBV_WC_REM_ACCESS_ERR);
            let spoils = length <= path_mtu;
            let status = if spoils { IBV_WC_LOC_ACCESS_ERR } else { IBV_WC_WR_FLUSH_ERR };
            assert_eq!(both.pair.b.expect(status).wr_id, 20);
            for id in 21..24 {
                assert_eq!(both.pair.b.expect(IBV_WC_WR_FLUSH_ERR).wr_id, id);
            }
            assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_ERR));
            if !spoils {
                assert_eq!(both.pair.b.event(), (IBV_EVENT_QP_ACCESS_ERR, qb.cast()));
            }
            assert!(!both.pair.b.has_event());
            assert!(both.bytes() == before);
        }
        both.pair.b.expect_nothing();
    }

    /// Receives posted at the target are flushed after any violation, and so are its own sends.
    /// Rules: RA-43, RA-47
    fn the_targets_queues_are_flushed(link: Link) {
        let both = MemoryPair::new(link, 4096);
        for opcode in ONE_SIDED {
            let (qa, qb) = both.pair.another(IBV_QPT_RC);
            for id in 30..34 {
                both.recv(qb, id, 64);
            }
            let wc = both.op_on(qa, opcode, both.far.addr(), JUNK, 8);
            assert_eq!(wc.status, IBV_WC_REM_ACCESS_ERR);
            for id in 30..34 {
                assert_eq!(both.pair.b.expect(IBV_WC_WR_FLUSH_ERR).wr_id, id);
            }
            let mut sges = [sge(both.far.addr(), 8, both.mb)];
            post(qb, &mut with_sges(wr(IBV_WR_SEND), &mut sges));
            both.pair.b.expect(IBV_WC_WR_FLUSH_ERR);
        }
    }

    /// On UC a violating message is dropped: its origin succeeds, nothing changes, and the queue
    /// pairs go on.
    /// Rules: RA-48
    fn uc_drops_a_violation(link: Link) {
        let both = MemoryPair::of(Pair::new(link, IBV_QPT_UC), 300_000);
        let (_, before) = both.bytes();
        let end = both.far.addr() + both.far.len() as u64;
        both.recv(both.pair.qb, 1, 64);
        for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM] {
            for (address, key, length) in [
                (both.far.addr(), JUNK, 8),
                (both.far.addr(), JUNK, 300_000),
                (end - 4, both.key(), 8),
                (end - 299_999, both.key(), 300_000),
            ] {
                let wc = both.op(opcode, address, key, length);
                assert_eq!(wc.status, IBV_WC_SUCCESS);
            }
        }
        assert_eq!(both.op(IBV_WR_SEND, 0, 0, 64).status, IBV_WC_SUCCESS);
        let wc = both.pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!((wc.wr_id, wc.opcode, wc.byte_len), (1, IBV_WC_RECV, 64));
        assert_eq!(both.far.read(0, 64), both.near.read(0, 64));
        let (_, now) = both.bytes();
        assert!(now[64..] == before[64..]);
        assert_eq!((state(both.pair.qa), state(both.pair.qb)), (IBV_QPS_RTS, IBV_QPS_RTS));
        both.pair.b.expect_nothing();
        assert!(!both.pair.b.has_event());
    }

    /// An unsignaled work request that fails completes all the same.
    /// Rules: RA-49
    fn an_unsignaled_failure_completes(link: Link) {
        let both = MemoryPair::new(link, 4096);
        for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ] {
            let (qa, _) = both.pair.another(IBV_QPT_RC);
            let mut sges = [sge(both.near.addr(), 8, both.ma)];
            let mut wr = rdma_wr(opcode, &mut sges, both.far.addr(), JUNK);
            (wr.send_flags, wr.wr_id) = (0, 99);
            post(qa, &mut wr);
            assert_eq!(both.pair.a.expect(IBV_WC_REM_ACCESS_ERR).wr_id, 99);
        }
    }

    /// An invalid request fails both ends, and the target is told by its own event.
    /// Rules: RA-50, RA-51
    fn an_invalid_request_fails_both_ends(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let before = both.bytes();
        for opcode in [IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP] {
            let (qa, qb) = both.pair.another(IBV_QPT_RC);
            let wc = both.op_on(qa, opcode, both.far.addr() + 1, both.key(), 8);
            assert_eq!((wc.status, wc.wr_id), (IBV_WC_REM_INV_REQ_ERR, 1));
            assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_ERR));
            assert_eq!(both.pair.b.event(), (IBV_EVENT_QP_REQ_ERR, qb.cast()));
            assert!(!both.pair.b.has_event());
            both.pair.b.expect_nothing();
        }
        assert!(both.bytes() == before);
    }

    /// A receive that may not be written fails at the target, as its own fault; the origin hears of
    /// an operational error.
    /// Rules: RA-52
    fn a_bad_receive_fails_both_ends(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let before = both.bytes();
        let read_only = both.part(0, 4096, IBV_ACCESS_REMOTE_READ as i32);
        for lkey in [JUNK, keys(read_only).0] {
            let (qa, qb) = both.pair.another(IBV_QPT_RC);
            recv(qb, 40, &mut [ibv_sge { addr: both.far.addr(), length: 64, lkey }]);
            both.recv(qb, 41, 64);
            let wc = both.op_on(qa, IBV_WR_SEND, 0, 0, 64);
            assert_eq!(wc.status, IBV_WC_REM_OP_ERR);
            assert_eq!(both.pair.b.expect(IBV_WC_LOC_PROT_ERR).wr_id, 40);
            assert_eq!(both.pair.b.expect(IBV_WC_WR_FLUSH_ERR).wr_id, 41);
            assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_ERR));
        }
        assert!(both.bytes() == before);
    }

    /// A SEND longer than the receive is an invalid request to the origin and a length error to the
    /// target; neither a byte within nor one behind the receive is written.
    /// Rules: RA-53
    fn a_small_receive_fails_both_ends(link: Link) {
        let both = MemoryPair::new(link, 300_000);
        let (before, beyond) = (both.bytes(), both.far.read(0, 300_000));
        for (room, length) in [(63, 64), (0, 1), (299_999, 300_000)] {
            let (qa, qb) = both.pair.another(IBV_QPT_RC);
            both.recv(qb, 50, room);
            both.recv(qb, 51, 300_000);
            let wc = both.op_on(qa, IBV_WR_SEND, 0, 0, length);
            assert_eq!(wc.status, IBV_WC_REM_INV_REQ_ERR, "{length} into {room}");
            assert_eq!(both.pair.b.expect(IBV_WC_LOC_LEN_ERR).wr_id, 50);
            assert_eq!(both.pair.b.expect(IBV_WC_WR_FLUSH_ERR).wr_id, 51);
            assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_ERR));
            // How long a message is that comes in packets is known when its last one has come; what
            // fits the receive is in there by then.
            let (first, rest) = (both.bytes(), room as usize);
            assert!(link == Link::Wire || first == before);
            assert!(both.far.read(rest, 300_000 - rest) == beyond[rest..]);
        }
    }

    /// An origin that begins anew with a number that the target does not expect is not heard, whatever was let in
    /// before.
    /// Rules: PSN-02
    fn who_begins_anew_with_another_number_is_not_heard(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let (qa, qb) = both.pair.another(IBV_QPT_RC);
        let write = || both.op_on(qa, IBV_WR_RDMA_WRITE, both.far.addr(), both.key(), 8).status;
        for _ in 0..3 {
            assert_eq!(write(), IBV_WC_SUCCESS);
        }
        let before = both.far.read(0, 8);
        both.near.write(0, &[0xee; 8]);
        assert_eq!(set_state(qa, IBV_QPS_RESET), 0);
        let usual = usual_attr(qb);
        bring_up(qa, &ibv_qp_attr { sq_psn: usual.sq_psn + 1000, ..usual });
        give_up_soon(qa);
        assert_eq!(write(), IBV_WC_RETRY_EXC_ERR);
        assert_eq!(both.far.read(0, 8), before);
    }

    /// The target answers a violation once. An origin that begins anew, with the number the target
    /// would expect next, gets no answer at all, to a violation as little as to a good request.
    /// Rules: RA-54
    fn a_violation_is_answered_once(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let before = both.bytes();
        let (qa, qb) = both.pair.another(IBV_QPT_RC);
        let wc = both.op_on(qa, IBV_WR_RDMA_WRITE, both.far.addr(), JUNK, 8);
        assert_eq!(wc.status, IBV_WC_REM_ACCESS_ERR);
        assert_eq!(both.pair.b.event().0, IBV_EVENT_QP_ACCESS_ERR);
        for later in [0, 1] {
            for key in [JUNK, both.key()] {
                assert_eq!(set_state(qa, IBV_QPS_RESET), 0);
                let usual = usual_attr(qb);
                bring_up(qa, &ibv_qp_attr { sq_psn: usual.sq_psn + later, ..usual });
                give_up_soon(qa);
                let wc = both.op_on(qa, IBV_WR_RDMA_WRITE, both.far.addr(), key, 8);
                assert_eq!(wc.status, IBV_WC_RETRY_EXC_ERR);
            }
        }
        assert!(!both.pair.b.has_event());
        assert!(both.bytes() == before);
    }
}
