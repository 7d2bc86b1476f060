//! What becomes of a refused request at both ends (rules E.3).

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::stage::Stage;

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
        let stage = Stage::new(link, 300_000);
        let before = stage.bytes();
        for opcode in ONE_SIDED {
            let atomic = !matches!(opcode, IBV_WR_RDMA_WRITE | IBV_WR_RDMA_READ);
            for length in if atomic { [8, 8, 8] } else { [1, 4096, 300_000] } {
                let (qa, qb) = stage.pair.another(IBV_QPT_RC);
                // SAFETY: a live queue pair.
                let number = unsafe { (*qa).qp_num };
                let mut sges = [sge(stage.near.addr(), length, stage.ma)];
                let mut wr =
                    atomic_wr(opcode, &mut sges, stage.far.addr(), JUNK, stage.far.word(0), 0);
                if !atomic {
                    wr = rdma_wr(opcode, &mut sges, stage.far.addr(), JUNK);
                }
                wr.wr_id = 0x1_0000_0000 + u64::from(length);
                let id = wr.wr_id;
                post(qa, &mut wr);
                let wc = stage.pair.a.expect(IBV_WC_REM_ACCESS_ERR);
                assert_eq!((wc.wr_id, wc.qp_num), (id, number));
                assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_ERR));
                assert!(stage.bytes() == before, "{opcode} of {length}");
            }
        }
        stage.pair.a.expect_nothing();
    }

    /// Of five work requests the first violates: its error comes first, then the others are flushed
    /// in order, signaled or not, and so is whatever is posted later. Until all are posted they
    /// wait behind a SEND without a receive.
    /// Rules: RA-42
    fn the_rest_is_flushed_in_order(link: Link) {
        let stage = Stage::new(link, 4096);
        for opcode in ONE_SIDED {
            let (qa, qb) = stage.pair.another(IBV_QPT_RC);
            let (_, before) = stage.bytes();
            post(qa, &mut with_sges(wr(IBV_WR_SEND), &mut []));
            let mut sges = [sge(stage.near.addr(), 8, stage.ma)];
            for n in 0..5 {
                let (kind, key) =
                    if n == 0 { (opcode, JUNK) } else { (IBV_WR_RDMA_WRITE, stage.key()) };
                let mut wr = if matches!(kind, IBV_WR_RDMA_WRITE | IBV_WR_RDMA_READ) {
                    rdma_wr(kind, &mut sges, stage.far.addr(), key)
                } else {
                    atomic_wr(kind, &mut sges, stage.far.addr(), key, 1, 2)
                };
                wr.wr_id = 10 + n;
                wr.send_flags = if n % 2 == 0 { 0 } else { IBV_SEND_SIGNALED };
                post(qa, &mut wr);
            }
            recv(qb, 1, &mut []);
            assert_eq!(stage.pair.a.expect(IBV_WC_SUCCESS).wr_id, 1);
            assert_eq!(stage.pair.a.expect(IBV_WC_REM_ACCESS_ERR).wr_id, 10);
            for id in 11..15 {
                assert_eq!(stage.pair.a.expect(IBV_WC_WR_FLUSH_ERR).wr_id, id);
            }
            stage.post_op(qa, IBV_WR_RDMA_WRITE, stage.far.addr(), stage.key(), 8);
            stage.pair.a.expect(IBV_WC_WR_FLUSH_ERR);
            stage.pair.a.expect_nothing();
            assert!(stage.bytes().1 == before);
        }
    }

    /// The target is told of a violation by an event that names the queue pair, and by no
    /// completion.
    /// Rules: RA-45
    fn the_target_gets_an_event(link: Link) {
        let stage = Stage::new(link, 4096);
        for opcode in ONE_SIDED {
            let (qa, qb) = stage.pair.another(IBV_QPT_RC);
            let wc = stage.op_on(qa, opcode, stage.far.addr(), JUNK, 8);
            assert_eq!(wc.status, IBV_WC_REM_ACCESS_ERR);
            assert_eq!(stage.pair.b.event(), (IBV_EVENT_QP_ACCESS_ERR, qb.cast()));
            assert!(!stage.pair.b.has_event());
            stage.pair.b.expect_nothing();
        }
        assert!(!stage.pair.a.has_event());
    }

    /// A WRITE with immediate of one packet that violates spoils the receive it would have taken, and
    /// the others are flushed. Of several packets only the last says that there is immediate data, and
    /// the first is judged: no receive is taken, and an event tells.
    /// Rules: RA-45, RA-46, RA-47, AE-08
    fn a_violating_immediate_spoils_its_receive(link: Link) {
        let stage = Stage::new(link, 300_000);
        let before = stage.bytes();
        let path_mtu = 1024;
        for length in [1, 8, path_mtu, path_mtu + 1, 300_000] {
            let (qa, qb) = stage.pair.another(IBV_QPT_RC);
            for id in 20..24 {
                stage.recv(qb, id, 64);
            }
            let wc =
                stage.op_on(qa, IBV_WR_RDMA_WRITE_WITH_IMM, stage.far.addr(), JUNK, length);
            assert_eq!(wc.status, IBV_WC_REM_ACCESS_ERR);
            let spoils = length <= path_mtu;
            let status = if spoils { IBV_WC_LOC_ACCESS_ERR } else { IBV_WC_WR_FLUSH_ERR };
            assert_eq!(stage.pair.b.expect(status).wr_id, 20);
            for id in 21..24 {
                assert_eq!(stage.pair.b.expect(IBV_WC_WR_FLUSH_ERR).wr_id, id);
            }
            assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_ERR));
            if !spoils {
                assert_eq!(stage.pair.b.event(), (IBV_EVENT_QP_ACCESS_ERR, qb.cast()));
            }
            assert!(!stage.pair.b.has_event());
            assert!(stage.bytes() == before);
        }
        stage.pair.b.expect_nothing();
    }

    /// Receives posted at the target are flushed after any violation, and so are its own sends.
    /// Rules: RA-43, RA-47
    fn the_targets_queues_are_flushed(link: Link) {
        let stage = Stage::new(link, 4096);
        for opcode in ONE_SIDED {
            let (qa, qb) = stage.pair.another(IBV_QPT_RC);
            for id in 30..34 {
                stage.recv(qb, id, 64);
            }
            let wc = stage.op_on(qa, opcode, stage.far.addr(), JUNK, 8);
            assert_eq!(wc.status, IBV_WC_REM_ACCESS_ERR);
            for id in 30..34 {
                assert_eq!(stage.pair.b.expect(IBV_WC_WR_FLUSH_ERR).wr_id, id);
            }
            let mut sges = [sge(stage.far.addr(), 8, stage.mb)];
            post(qb, &mut with_sges(wr(IBV_WR_SEND), &mut sges));
            stage.pair.b.expect(IBV_WC_WR_FLUSH_ERR);
        }
    }

    /// On UC a violating message is dropped: its origin succeeds, nothing changes, and the queue
    /// pairs go on.
    /// Rules: RA-48
    fn uc_drops_a_violation(link: Link) {
        let stage = Stage::of(Pair::new(link, IBV_QPT_UC), 300_000);
        let (_, before) = stage.bytes();
        let end = stage.far.addr() + stage.far.len() as u64;
        stage.recv(stage.pair.qb, 1, 64);
        for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM] {
            for (address, key, length) in [
                (stage.far.addr(), JUNK, 8),
                (stage.far.addr(), JUNK, 300_000),
                (end - 4, stage.key(), 8),
                (end - 299_999, stage.key(), 300_000),
            ] {
                let wc = stage.op(opcode, address, key, length);
                assert_eq!(wc.status, IBV_WC_SUCCESS);
            }
        }
        assert_eq!(stage.op(IBV_WR_SEND, 0, 0, 64).status, IBV_WC_SUCCESS);
        let wc = stage.pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!((wc.wr_id, wc.opcode, wc.byte_len), (1, IBV_WC_RECV, 64));
        assert_eq!(stage.far.read(0, 64), stage.near.read(0, 64));
        let (_, now) = stage.bytes();
        assert!(now[64..] == before[64..]);
        assert_eq!((state(stage.pair.qa), state(stage.pair.qb)), (IBV_QPS_RTS, IBV_QPS_RTS));
        stage.pair.b.expect_nothing();
        assert!(!stage.pair.b.has_event());
    }

    /// An unsignaled work request that fails completes all the same.
    /// Rules: RA-49
    fn an_unsignaled_failure_completes(link: Link) {
        let stage = Stage::new(link, 4096);
        for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ] {
            let (qa, _) = stage.pair.another(IBV_QPT_RC);
            let mut sges = [sge(stage.near.addr(), 8, stage.ma)];
            let mut wr = rdma_wr(opcode, &mut sges, stage.far.addr(), JUNK);
            (wr.send_flags, wr.wr_id) = (0, 99);
            post(qa, &mut wr);
            assert_eq!(stage.pair.a.expect(IBV_WC_REM_ACCESS_ERR).wr_id, 99);
        }
    }

    /// An invalid request fails both ends, and the target is told by its own event.
    /// Rules: RA-50, RA-51
    fn an_invalid_request_fails_both_ends(link: Link) {
        let stage = Stage::new(link, 4096);
        let before = stage.bytes();
        for opcode in [IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP] {
            let (qa, qb) = stage.pair.another(IBV_QPT_RC);
            let wc = stage.op_on(qa, opcode, stage.far.addr() + 1, stage.key(), 8);
            assert_eq!((wc.status, wc.wr_id), (IBV_WC_REM_INV_REQ_ERR, 1));
            assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_ERR));
            assert_eq!(stage.pair.b.event(), (IBV_EVENT_QP_REQ_ERR, qb.cast()));
            assert!(!stage.pair.b.has_event());
            stage.pair.b.expect_nothing();
        }
        assert!(stage.bytes() == before);
    }

    /// A receive that may not be written fails at the target, as its own fault; the origin hears of
    /// an operational error.
    /// Rules: RA-52
    fn a_bad_receive_fails_both_ends(link: Link) {
        let stage = Stage::new(link, 4096);
        let before = stage.bytes();
        let read_only = stage.part(0, 4096, IBV_ACCESS_REMOTE_READ as i32);
        for lkey in [JUNK, keys(read_only).0] {
            let (qa, qb) = stage.pair.another(IBV_QPT_RC);
            recv(qb, 40, &mut [ibv_sge { addr: stage.far.addr(), length: 64, lkey }]);
            stage.recv(qb, 41, 64);
            let wc = stage.op_on(qa, IBV_WR_SEND, 0, 0, 64);
            assert_eq!(wc.status, IBV_WC_REM_OP_ERR);
            assert_eq!(stage.pair.b.expect(IBV_WC_LOC_PROT_ERR).wr_id, 40);
            assert_eq!(stage.pair.b.expect(IBV_WC_WR_FLUSH_ERR).wr_id, 41);
            assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_ERR));
        }
        assert!(stage.bytes() == before);
    }

    /// A SEND longer than the receive is an invalid request to the origin and a length error to the
    /// target; neither a byte within nor one behind the receive is written.
    /// Rules: RA-53
    fn a_small_receive_fails_both_ends(link: Link) {
        let stage = Stage::new(link, 300_000);
        let (before, beyond) = (stage.bytes(), stage.far.read(0, 300_000));
        for (room, length) in [(63, 64), (0, 1), (299_999, 300_000)] {
            let (qa, qb) = stage.pair.another(IBV_QPT_RC);
            stage.recv(qb, 50, room);
            stage.recv(qb, 51, 300_000);
            let wc = stage.op_on(qa, IBV_WR_SEND, 0, 0, length);
            assert_eq!(wc.status, IBV_WC_REM_INV_REQ_ERR, "{length} into {room}");
            assert_eq!(stage.pair.b.expect(IBV_WC_LOC_LEN_ERR).wr_id, 50);
            assert_eq!(stage.pair.b.expect(IBV_WC_WR_FLUSH_ERR).wr_id, 51);
            assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_ERR));
            // How long a message is that comes in packets is known when its last one has come; what
            // fits the receive is in there by then.
            let (first, rest) = (stage.bytes(), room as usize);
            assert!(link == Link::Wire || first == before);
            assert!(stage.far.read(rest, 300_000 - rest) == beyond[rest..]);
        }
    }

    /// The target answers a violation once. An origin that begins anew, with the number the target
    /// would expect next, gets no answer at all, to a violation as little as to a good request.
    /// Rules: RA-54
    fn a_violation_is_answered_once(link: Link) {
        let stage = Stage::new(link, 4096);
        let before = stage.bytes();
        let (qa, qb) = stage.pair.another(IBV_QPT_RC);
        let wc = stage.op_on(qa, IBV_WR_RDMA_WRITE, stage.far.addr(), JUNK, 8);
        assert_eq!(wc.status, IBV_WC_REM_ACCESS_ERR);
        assert_eq!(stage.pair.b.event().0, IBV_EVENT_QP_ACCESS_ERR);
        for later in [0, 1] {
            for key in [JUNK, stage.key()] {
                assert_eq!(set_state(qa, IBV_QPS_RESET), 0);
                let usual = usual_attr(qb);
                bring_up(qa, &ibv_qp_attr { sq_psn: usual.sq_psn + later, ..usual });
                give_up_soon(qa);
                let wc = stage.op_on(qa, IBV_WR_RDMA_WRITE, stage.far.addr(), key, 8);
                assert_eq!(wc.status, IBV_WC_RETRY_EXC_ERR);
            }
        }
        assert!(!stage.pair.b.has_event());
        assert!(stage.bytes() == before);
    }
}
