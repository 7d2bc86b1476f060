//! What a target checks before it lets a request touch memory, and in which order: the state of
//! the queue pair, its rights, receives, and the key (rules E.1, E.2).

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;

/// All that can be asked of a target, but for immediate data.
const ALL_KINDS: [ibv_wr_opcode; 5] = [
    IBV_WR_SEND,
    IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_READ,
    IBV_WR_ATOMIC_FETCH_AND_ADD,
    IBV_WR_ATOMIC_CMP_AND_SWP,
];

/// The operations that need a right, with the right.
const BY_RIGHT: [(ibv_wr_opcode, u32); 4] = [
    (IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE),
    (IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ),
    (IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC),
    (IBV_WR_ATOMIC_CMP_AND_SWP, IBV_ACCESS_REMOTE_ATOMIC),
];

/// A key nobody has.
const JUNK: u32 = 0xdead_beef;

on_each_link! {
    /// A bad key is found only after everything that is checked before keys: each case is wrong
    /// twice, and the earlier check decides what the origin hears.
    /// Rules: RA-01
    fn the_earlier_check_decides(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let before = both.bytes();
        let far = both.far.addr();

        // The state, before the key.
        let (qa, qb) = both.connected(|_| (), |_| ());
        assert_eq!(set_state(qb, IBV_QPS_ERR), 0);
        give_up_soon(qa);
        let wc = both.op_on(qa, IBV_WR_RDMA_WRITE, far, JUNK, 8);
        assert_eq!(wc.status, IBV_WC_RETRY_EXC_ERR);

        // The source: the target listens to somebody else. Then the PSN.
        // SAFETY: the queue pair is live.
        let other = unsafe { (*both.pair.qa).qp_num };
        // A packet names no queue pair that it comes from: the key is looked at, and somebody else hears
        // of it.
        let of_source = if link == Link::Wire { IBV_QPS_ERR } else { IBV_QPS_RTS };
        for (change, after) in [
            (
                (&|attr: &mut ibv_qp_attr| attr.dest_qp_num = other) as &dyn Fn(&mut ibv_qp_attr),
                of_source,
            ),
            (&|attr: &mut ibv_qp_attr| attr.rq_psn += 1, IBV_QPS_RTS),
        ] {
            let (qa, qb) = both.connected(|_| (), change);
            give_up_soon(qa);
            let wc = both.op_on(qa, IBV_WR_RDMA_WRITE, far, JUNK, 8);
            assert_eq!((wc.status, state(qb)), (IBV_WC_RETRY_EXC_ERR, after));
        }

        // What the queue pair allows, then its READ resources.
        for change in [
            (&|attr: &mut ibv_qp_attr| attr.qp_access_flags = 0) as &dyn Fn(&mut ibv_qp_attr),
            &|attr: &mut ibv_qp_attr| attr.max_dest_rd_atomic = 0,
        ] {
            let (qa, _) = both.connected(|_| (), change);
            let wc = both.op_on(qa, IBV_WR_RDMA_READ, far, JUNK, 8);
            assert_eq!(wc.status, IBV_WC_REM_INV_REQ_ERR);
        }

        // A receive, before the key.
        let (qa, qb) = both.connected(|attr| attr.rnr_retry = 0, |_| ());
        let wc = both.op_on(qa, IBV_WR_RDMA_WRITE_WITH_IMM, far, JUNK, 8);
        assert_eq!((wc.status, state(qb)), (IBV_WC_RNR_RETRY_EXC_ERR, IBV_QPS_RTS));

        // The length of a receive, before its key.
        let (qa, qb) = both.connected(|_| (), |_| ());
        recv(qb, 5, &mut [ibv_sge { addr: far, length: 4, lkey: JUNK }]);
        let wc = both.op_on(qa, IBV_WR_SEND, 0, 0, 8);
        assert_eq!(wc.status, IBV_WC_REM_INV_REQ_ERR);
        both.pair.b.expect(IBV_WC_LOC_LEN_ERR);
        assert!(both.bytes() == before);
    }

    /// A queue pair in RESET, INIT or ERR answers nothing: the origin runs out of retries.
    /// Rules: RA-03
    fn a_closed_queue_pair_is_silent(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let before = both.bytes();
        for closed in [IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_ERR] {
            for opcode in ALL_KINDS {
                let (qa, qb) = (both.pair.a.qp(IBV_QPT_RC), both.pair.b.qp(IBV_QPT_RC));
                bring_up(qa, &usual_attr(qb));
                give_up_soon(qa);
                match closed {
                    IBV_QPS_INIT => assert_eq!(modify(qb, &usual_attr(qa), IBV_QPS_INIT), 0),
                    IBV_QPS_ERR => {
                        bring_up(qb, &usual_attr(qa));
                        assert_eq!(set_state(qb, IBV_QPS_ERR), 0);
                    }
                    _ => {}
                }
                if closed == IBV_QPS_INIT {
                    both.recv(qb, 1, 64);
                }
                let wc = both.op_on(qa, opcode, both.far.addr(), both.key(), 8);
                assert_eq!(wc.status, IBV_WC_RETRY_EXC_ERR, "{opcode} in {closed}");
                assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, closed));
            }
        }
        both.pair.b.expect_nothing();
        assert!(both.bytes() == before);
        assert!(!both.pair.b.has_event());
    }

    /// RTR, RTS and SQD all serve SEND, WRITE, READ and both atomics.
    /// Rules: RA-04
    fn a_ready_queue_pair_serves(link: Link) {
        let both = MemoryPair::new(link, 4096);
        for open in [IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD] {
            let (qa, qb) = (both.pair.a.qp(IBV_QPT_RC), both.pair.b.qp(IBV_QPT_RC));
            bring_up(qa, &usual_attr(qb));
            let attr = usual_attr(qa);
            for step in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD] {
                assert_eq!(modify(qb, &attr, step), 0);
                if step == open {
                    break;
                }
            }
            both.recv(qb, 6, 64);
            for opcode in ALL_KINDS {
                let wc = both.op_on(qa, opcode, both.far.addr(), both.key(), 8);
                assert_eq!(wc.status, IBV_WC_SUCCESS, "{opcode} in {open}");
            }
            assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).wr_id, 6);
            assert_eq!(state(qb), open);
        }
    }

    /// The first request that arrives in RTR raises one event, whatever kind it is; in RTS none
    /// does.
    /// Rules: RA-05
    fn the_first_request_in_rtr_is_told(link: Link) {
        let both = MemoryPair::new(link, 4096);
        for first in ALL_KINDS {
            let (qa, qb) = (both.pair.a.qp(IBV_QPT_RC), both.pair.b.qp(IBV_QPT_RC));
            bring_up(qa, &usual_attr(qb));
            for step in [IBV_QPS_INIT, IBV_QPS_RTR] {
                assert_eq!(modify(qb, &usual_attr(qa), step), 0);
            }
            for opcode in [first].into_iter().chain(ALL_KINDS) {
                both.recv(qb, 1, 64);
                let wc = both.op_on(qa, opcode, both.far.addr(), both.key(), 8);
                assert_eq!(wc.status, IBV_WC_SUCCESS);
            }
            assert_eq!(both.pair.b.event(), (IBV_EVENT_COMM_EST, qb.cast()));
            assert!(!both.pair.b.has_event());
        }
        let wc = both.op(IBV_WR_RDMA_WRITE, both.far.addr(), both.key(), 8);
        assert_eq!(wc.status, IBV_WC_SUCCESS);
        assert!(!both.pair.b.has_event());
    }

    /// The queue pair must have the operation's right itself, however good the key; the one right
    /// is enough.
    /// Rules: RA-06, AT-11
    fn the_queue_pair_needs_the_right(link: Link) {
        let both = MemoryPair::new(link, 4096);
        for (opcode, right) in BY_RIGHT {
            let before = both.bytes();
            let (qa, qb) = both.connected(|_| (), |attr| attr.qp_access_flags = REMOTE & !right);
            let wc = both.op_on(qa, opcode, both.far.addr(), both.key(), 8);
            assert_eq!(wc.status, IBV_WC_REM_INV_REQ_ERR, "{opcode}");
            assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_ERR));
            assert!(both.bytes() == before);
            assert_eq!(both.pair.b.event(), (IBV_EVENT_QP_REQ_ERR, qb.cast()));

            let (qa, _) = both.connected(|_| (), |attr| attr.qp_access_flags = right);
            let wc = both.op_on(qa, opcode, both.far.addr(), both.key(), 8);
            assert_eq!(wc.status, IBV_WC_SUCCESS, "{opcode}");
        }
    }

    /// A UC queue pair without the right drops the message: nothing is written, nobody is told,
    /// and the next SEND arrives.
    /// Rules: RA-07
    fn uc_without_the_right_drops_silently(link: Link) {
        let pair = Pair::unconnected(link, IBV_QPT_UC);
        bring_up(pair.qa, &usual_attr(pair.qb));
        bring_up(pair.qb, &ibv_qp_attr { qp_access_flags: 0, ..usual_attr(pair.qa) });
        let both = MemoryPair::of(pair, 4096);
        let (_, before) = both.bytes();
        both.recv(both.pair.qb, 4, 64);
        for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM] {
            let wc = both.op(opcode, both.far.addr() + 64, both.key(), 64);
            assert_eq!(wc.status, IBV_WC_SUCCESS);
        }
        assert_eq!(both.op(IBV_WR_SEND, 0, 0, 5).status, IBV_WC_SUCCESS);
        let wc = both.pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!((wc.wr_id, wc.opcode, wc.byte_len), (4, IBV_WC_RECV, 5));
        assert!(both.far.read(64, 4032) == before[64..4096]);
        assert_eq!((state(both.pair.qa), state(both.pair.qb)), (IBV_QPS_RTS, IBV_QPS_RTS));
        both.pair.b.expect_nothing();
        assert!(!both.pair.b.has_event());
    }

    /// SEND needs no right of the queue pair.
    /// Rules: RA-08
    fn send_needs_no_right(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let (qa, qb) = both.connected(|_| (), |attr| attr.qp_access_flags = 0);
        both.recv(qb, 3, 64);
        assert_eq!(both.op_on(qa, IBV_WR_SEND, 0, 0, 64).status, IBV_WC_SUCCESS);
        assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).wr_id, 3);
        assert_eq!(both.far.read(0, 64), both.near.read(0, 64));
    }

    /// Without READ resources at the target, READ and atomics are invalid; WRITE and SEND are not.
    /// Rules: RA-09
    fn no_read_resources_no_reads(link: Link) {
        let both = MemoryPair::new(link, 4096);
        for opcode in ALL_KINDS {
            let (qa, qb) = both.connected(|_| (), |attr| attr.max_dest_rd_atomic = 0);
            both.recv(qb, 1, 64);
            let before = both.bytes();
            let wc = both.op_on(qa, opcode, both.far.addr(), both.key(), 8);
            if matches!(opcode, IBV_WR_SEND | IBV_WR_RDMA_WRITE) {
                assert_eq!(wc.status, IBV_WC_SUCCESS, "{opcode}");
            } else {
                assert_eq!(wc.status, IBV_WC_REM_INV_REQ_ERR, "{opcode}");
                assert_eq!(state(qb), IBV_QPS_ERR);
                assert!(both.bytes() == before);
            }
        }
    }

    /// Without a receive, a SEND or a WRITE with immediate waits and changes nothing; once one is
    /// posted, it arrives.
    /// Rules: RA-11
    fn a_message_waits_for_its_receive(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let before = both.bytes();
        for opcode in [IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM] {
            let (qa, qb) = both.connected(|attr| attr.rnr_retry = 2, |_| ());
            let wc = both.op_on(qa, opcode, both.far.addr(), both.key(), 64);
            assert_eq!(wc.status, IBV_WC_RNR_RETRY_EXC_ERR, "{opcode}");
            assert_eq!(state(qb), IBV_QPS_RTS);
            assert!(both.bytes() == before, "{opcode}");
        }
        for opcode in [IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM] {
            let (qa, qb) = both.connected(|_| (), |_| ());
            both.far.write(0, &[0; 64]);
            both.post_op(qa, opcode, both.far.addr(), both.key(), 64);
            assert_eq!(both.far.read(0, 64), [0; 64]);
            both.recv(qb, 8, 64);
            assert_eq!(both.pair.a.expect(IBV_WC_SUCCESS).wr_id, 1);
            let wc = both.pair.b.expect(IBV_WC_SUCCESS);
            assert_eq!((wc.wr_id, wc.byte_len), (8, 64));
            assert_eq!(both.far.read(0, 64), both.near.read(0, 64));
        }
    }

    /// A long WRITE with immediate needs its receive at the last packet only: what came before it
    /// is written already, the last packet's bytes are not.
    /// Rules: RA-11, RA-12
    fn a_long_write_needs_its_receive_last(link: Link) {
        const LENGTH: u32 = 1 << 20;
        let both = MemoryPair::new(link, LENGTH as usize);
        let before = both.bytes();
        let (qa, qb) = both.connected(|attr| attr.rnr_retry = 0, |_| ());
        let far = both.far.addr();
        let wc = both.op_on(qa, IBV_WR_RDMA_WRITE_WITH_IMM, far, both.key(), LENGTH);
        assert_eq!((wc.status, state(qb)), (IBV_WC_RNR_RETRY_EXC_ERR, IBV_QPS_RTS));
        let (near, now) = both.bytes();
        let end = LENGTH as usize;
        assert!(now[..1024] == near[..1024]);
        assert!(now[end - 1024..] == before.1[end - 1024..]);

        let (qa, qb) = both.connected(|_| (), |_| ());
        both.post_op(qa, IBV_WR_RDMA_WRITE_WITH_IMM, far, both.key(), LENGTH);
        recv(qb, 8, &mut []);
        both.pair.a.expect(IBV_WC_SUCCESS);
        let wc = both.pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!((wc.opcode, wc.byte_len), (IBV_WC_RECV_RDMA_WITH_IMM, LENGTH));
        assert!(both.bytes() == (near.clone(), near));
    }

    /// Of a READ or WRITE of no bytes nothing but the queue pair is looked at: not the key, its
    /// rights or domain, nor the address.
    /// Rules: RA-20
    fn zero_length_examines_no_key(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let before = both.bytes();
        let foreign = keys(reg(both.pair.b.another_pd(), &both.far, ALL)).1;
        let powerless = keys(both.part(0, 4096, 0)).1;
        let free = rkey(both.pair.b.mw(IBV_MW_TYPE_2));
        for opcode in [IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE] {
            for key in [JUNK, 0, foreign, powerless, free, both.key() ^ 1] {
                for address in [0, both.far.addr(), u64::MAX] {
                    let wc = both.op(opcode, address, key, 0);
                    assert_eq!(wc.status, IBV_WC_SUCCESS, "{opcode} {key:#x} {address:#x}");
                }
            }
        }
        assert!(both.bytes() == before);
        assert_eq!((state(both.pair.qa), state(both.pair.qb)), (IBV_QPS_RTS, IBV_QPS_RTS));
    }

    /// A WRITE with immediate of no bytes delivers its immediate, whatever the key.
    /// Rules: RA-22
    fn zero_length_immediate_examines_no_key(link: Link) {
        let both = MemoryPair::new(link, 4096);
        both.recv(both.pair.qb, 11, 64);
        let mut wr = rdma_wr(IBV_WR_RDMA_WRITE_WITH_IMM, &mut [], 7, JUNK);
        wr.imm.imm_data = 0x0102_0304;
        post(both.pair.qa, &mut wr);
        both.pair.a.expect(IBV_WC_SUCCESS);
        let wc = both.pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!((wc.wr_id, wc.opcode, wc.byte_len), (11, IBV_WC_RECV_RDMA_WITH_IMM, 0));
        assert_eq!(wc.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
        // SAFETY: both variants are plain numbers.
        assert_eq!(unsafe { wc.imm.imm_data }, 0x0102_0304);
    }

    /// A key must name an object that is live, with the right low byte.
    /// Rules: RA-23, RA-24
    fn a_key_must_name_something(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let gone = both.part(0, 4096, ALL);
        let gone_key = keys(gone).1;
        assert_eq!(dereg(gone), 0);
        let mw = both.pair.b.mw(IBV_MW_TYPE_1);
        let range =
            Range { mr: both.mb, addr: both.far.addr(), length: 4096, access: REMOTE };
        let old = bind(&both.pair.b, both.pair.qb, mw, range);
        let new = bind(&both.pair.b, both.pair.qb, mw, range);
        assert_ne!(old, new);
        let stale = both.key() & !0xff | (both.key().wrapping_add(1) & 0xff);
        for key in [JUNK, 0, u32::MAX, gone_key, stale, old] {
            refused_to_all(&both, key);
        }
        let wc = both.op(IBV_WR_RDMA_READ, both.far.addr(), new, 8);
        assert_eq!(wc.status, IBV_WC_SUCCESS);
    }

    /// Regions and windows serve the queue pairs of their own domain only.
    /// Rules: RA-25, RA-26
    fn a_key_serves_its_own_domain(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let b = &both.pair.b;
        let foreign = b.with_pd(b.another_pd());
        let mr = foreign.reg(&both.far, ALL);
        refused_to_all(&both, keys(mr).1);

        // A window needs a queue pair of its own domain to be bound.
        let (qa, qb) = (both.pair.a.qp(IBV_QPT_RC), foreign.qp(IBV_QPT_RC));
        connect(qa, qb);
        let range = Range { mr, addr: both.far.addr(), length: 4096, access: REMOTE };
        let mw = foreign.mw(IBV_MW_TYPE_1);
        let unbound = rkey(mw);
        refused_to_all(&both, unbound);
        let key = bind(&foreign, qb, mw, range);
        refused_to_all(&both, key);
        for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD] {
            let wc = both.op_on(qa, opcode, both.far.addr(), key, 8);
            assert_eq!(wc.status, IBV_WC_SUCCESS);
        }
        // Unbound again, it grants nothing to its own domain either.
        let empty = Range { length: 0, ..range };
        let key = bind(&foreign, qb, mw, empty);
        let wc = both.op_on(qa, IBV_WR_RDMA_READ, both.far.addr(), key, 8);
        assert_eq!(wc.status, IBV_WC_REM_ACCESS_ERR);
    }

    /// A type 2 window serves the queue pair that bound it, while it is bound.
    /// Rules: RA-27
    fn a_type_2_window_serves_its_owner(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let (b, qb) = (&both.pair.b, both.pair.qb);
        let mw = b.mw(IBV_MW_TYPE_2);
        refused_to_all(&both, rkey(mw));
        let range =
            Range { mr: both.mb, addr: both.far.addr(), length: 4096, access: REMOTE };
        let key = bind(b, qb, mw, range);
        refused_to_all(&both, key);
        for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD] {
            let wc = both.op(opcode, both.far.addr(), key, 8);
            assert_eq!(wc.status, IBV_WC_SUCCESS);
        }
        post(qb, &mut local_inv_wr(key));
        b.expect(IBV_WC_SUCCESS);
        let wc = both.op(IBV_WR_RDMA_READ, both.far.addr(), key, 8);
        assert_eq!(wc.status, IBV_WC_REM_ACCESS_ERR);
    }

    /// For every set of rights of a region or window, exactly the operations whose right is in it
    /// work: all needed bits must be there, and no other is needed.
    /// Rules: RA-28, RA-29, RA-30, RA-31
    fn the_key_needs_the_right(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let b = &both.pair.b;
        for rights in (0..8).map(|bits| bits << 1) {
            assert_eq!(rights & !REMOTE, 0);
            for (opcode, right) in BY_RIGHT {
                for kind in [None, Some(IBV_MW_TYPE_1), Some(IBV_MW_TYPE_2)] {
                    let (qa, qb) = both.pair.another(IBV_QPT_RC);
                    let addr = both.far.addr();
                    let key = match kind {
                        None => {
                            let access = (rights | IBV_ACCESS_LOCAL_WRITE) as i32;
                            keys(both.part(0, 4096, access)).1
                        }
                        Some(kind) => {
                            let range = Range { mr: both.mb, addr, length: 4096, access: rights };
                            bind(b, qb, b.mw(kind), range)
                        }
                    };
                    let before = both.bytes();
                    let wc = both.op_on(qa, opcode, addr, key, 8);
                    if rights & right != 0 {
                        assert_eq!(wc.status, IBV_WC_SUCCESS, "{opcode} {rights} {kind:?}");
                    } else {
                        assert_eq!(wc.status, IBV_WC_REM_ACCESS_ERR, "{opcode} {rights} {kind:?}");
                        assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_ERR));
                        assert!(both.bytes() == before);
                    }
                }
            }
        }
    }

    /// A key serves the addresses of its own region, not others that are mapped or were once
    /// registered.
    /// Rules: RA-38
    fn a_key_serves_its_own_addresses(link: Link) {
        let both = MemoryPair::new(link, 8192);
        let (half, never) = (both.part(0, 4096, ALL), Buffer::filled(4096, 7));
        let rest = both.part(4096, 4096, ALL);
        assert_eq!(dereg(rest), 0);
        for address in [never.addr(), both.far.addr() + 4096] {
            for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD] {
                let (qa, qb) = both.pair.another(IBV_QPT_RC);
                let before = (both.bytes(), never.read(0, 4096));
                let wc = both.op_on(qa, opcode, address, keys(half).1, 8);
                assert_eq!((wc.status, state(qb)), (IBV_WC_REM_ACCESS_ERR, IBV_QPS_ERR));
                assert!((both.bytes(), never.read(0, 4096)) == before);
            }
        }
    }
}

/// No operation gets anywhere with this key on a queue pair of the usual domain.
fn refused_to_all(both: &MemoryPair, key: u32) {
    for (opcode, _) in BY_RIGHT {
        let (qa, qb) = both.pair.another(IBV_QPT_RC);
        let before = both.bytes();
        let wc = both.op_on(qa, opcode, both.far.addr(), key, 8);
        assert_eq!(wc.status, IBV_WC_REM_ACCESS_ERR, "{opcode} with {key:#x}");
        assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_ERR));
        assert!(both.bytes() == before, "{opcode} with {key:#x}");
    }
}
