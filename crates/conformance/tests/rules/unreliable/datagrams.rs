//! UD: what a datagram brings, and when it is lost (rules G.6).

use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::access::*;
use transom_conformance::datagrams::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;
use transom_ibverbs::LOOPBACK_GID;

/// How long a datagram may be within a host, in bytes, whatever its networks carry.
const LONGEST: u32 = 4096;

on_each_link! {
    /// The first 40 bytes of the receive are not the message's; the completion counts them and says
    /// who sent.
    /// Rules: UD-01, UD-07
    fn a_datagram_comes_behind_its_header(link: Link) {
        let both = DatagramPair::new(link);
        for (wr_id, length) in [(1, 100), (2, 0), (3, 1), (4, LONGEST)] {
            both.far.fill(0);
            both.recv(wr_id, GRH as u32 + length);
            both.send(length);
            let wc = both.came(wr_id, length);
            assert_eq!(wc.wc_flags, IBV_WC_GRH);
            assert_eq!((wc.qp_num, wc.src_qp), (number(both.pair.qb), number(both.pair.qa)));
            let end = GRH + length as usize;
            assert!(both.far.read(end, 64).iter().all(|byte| *byte == 0), "nothing behind it");
        }
        // The second byte of a buffer in pieces: the header may be split as well.
        let sges = [(0, 10), (64, 33), (128, 200)];
        let mut sges: Vec<_> =
            sges.iter().map(|&(at, len)| sge(both.far.addr() + at, len, both.mb)).collect();
        recv(both.pair.qb, 9, &mut sges);
        both.send(50);
        let wc = both.pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!((wc.wr_id, wc.byte_len), (9, 90));
        assert!(both.far.read(64 + 30, 3) == both.near.read(0, 3));
        assert!(both.far.read(128, 47) == both.near.read(3, 47));
    }

    /// Immediate data, inline data and SGEs arrive as with any SEND.
    /// Rules: UD-01, PS-06
    fn immediate_and_inline_data_arrive(link: Link) {
        let both = DatagramPair::new(link);
        both.recv(1, 200);
        let mut with_imm = wr(IBV_WR_SEND_WITH_IMM);
        with_imm.imm.imm_data = 0x1234_5678_u32.to_be();
        with_imm.send_flags |= IBV_SEND_INLINE;
        both.post(with_imm, 100);
        both.near.write(100, &[0; 4]);
        both.sent();
        let wc = both.came(1, 100);
        assert_eq!(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
        // SAFETY: all variants are plain numbers.
        assert_eq!(unsafe { wc.imm.imm_data }, 0x1234_5678_u32.to_be());
        both.recv(2, 200);
        let at = both.near.addr();
        let mut sges = [sge(at, 7, both.ma), sge(at + 7, 0, both.ma), sge(at + 7, 93, both.ma)];
        let wr = with_sges(wr(IBV_WR_SEND), &mut sges);
        post(both.pair.qa, &mut addressed(wr, both.ah, number(both.pair.qb), QKEY));
        both.sent();
        both.came(2, 100);
    }

    /// This host's address is of IPv4: its header is the second half of the area, whole and right,
    /// with what the address handle says.
    /// Rules: UD-02, UD-09
    fn the_area_holds_an_ipv4_header(link: Link) {
        let mut both = DatagramPair::new(link);
        for (traffic_class, hop_limit, length) in [(0xff, 7, 100_u16), (0, 0, 101), (0x2c, 1, 0)] {
            let mut to = here();
            (to.grh.traffic_class, to.grh.hop_limit) = (traffic_class, hop_limit);
            both.ah = ah(both.pair.a.pd, &to);
            both.recv(1, 200);
            both.send(length.into());
            both.came(1, length.into());
            let header = both.far.read(20, 20);
            assert_eq!(header[0], 0x45);
            assert_eq!(header[1] & 0xfc, traffic_class & 0xfc);
            // IPv4, UDP, BTH, DETH, the payload in words, and the ICRC.
            let total = 20 + 8 + 12 + 8 + length.next_multiple_of(4) + 4;
            assert_eq!(header[2..4], total.to_be_bytes());
            assert_eq!(header[8], if hop_limit == 0 { 64 } else { hop_limit });
            assert_eq!(header[9], 17, "UDP");
            assert_eq!((&header[12..16], &header[16..20]), (&LOOPBACK_GID[12..], &LOOPBACK_GID[12..]));
            let words = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
            let sum = words.sum::<u32>();
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "the checksum");
        }
    }

    /// What is larger than any packet fails at the sender, and nothing of it is sent.
    /// Rules: UD-03
    fn a_datagram_is_no_larger_than_a_packet(link: Link) {
        let both = DatagramPair::new(link);
        for length in [LONGEST + 1, 2 * LONGEST, 3 * LONGEST] {
            both.recv(1, 3 * LONGEST);
            both.post(wr(IBV_WR_SEND), length);
            assert_eq!(both.pair.a.expect(IBV_WC_LOC_LEN_ERR).wr_id, 1);
            both.nothing_came();
            assert_eq!((state(both.pair.qa), state(both.pair.qb)), (IBV_QPS_SQE, IBV_QPS_RTS));
            assert_eq!(set_state(both.pair.qa, IBV_QPS_RTS), 0);
            both.send(LONGEST);
            both.came(1, LONGEST);
        }
    }

    /// Without a receive, or with one that has too little room, the datagram is gone, and the
    /// receive is still there for one that fits.
    /// Rules: UD-04
    fn a_datagram_without_room_is_lost(link: Link) {
        let both = DatagramPair::new(link);
        both.send(100);
        both.nothing_came();
        both.recv(1, 40 + 99);
        both.far.fill(0xee);
        for length in [100, 101, LONGEST] {
            both.send(length);
            both.nothing_came();
        }
        assert!(both.far.is_all(0xee), "nothing was written");
        both.send(99);
        both.came(1, 99);
        // Less than the area itself.
        both.recv(2, 39);
        both.send(0);
        both.nothing_came();
        assert_eq!(set_state(both.pair.qb, IBV_QPS_RESET), 0);
        bring_up_ud(both.pair.qb, QKEY);
        recv(both.pair.qb, 3, &mut []);
        both.send(0);
        both.nothing_came();
        assert_eq!((state(both.pair.qa), state(both.pair.qb)), (IBV_QPS_RTS, IBV_QPS_RTS));
    }

    /// A datagram for a number that nobody has, or with another Q_Key, is lost without a word.
    /// Rules: UD-05, RN-15
    fn a_datagram_for_nobody_is_lost(link: Link) {
        let both = DatagramPair::new(link);
        both.recv(1, 200);
        let (a, b) = (number(both.pair.qa), number(both.pair.qb));
        let gone = both.pair.b.qp(IBV_QPT_UD);
        let was = number(gone);
        assert_eq!(destroy_qp(gone), 0);
        for (qpn, qkey) in [
            (b, QKEY + 1),
            (b, 0),
            (b, !QKEY >> 1),
            (was, QKEY),
            (b ^ 0x8000, QKEY),
            (0, QKEY),
            (1, QKEY),
            (0xff_ffff, QKEY),
            (a, QKEY),
        ] {
            both.post_to(wr(IBV_WR_SEND), 8, qpn, qkey);
            both.sent();
            both.nothing_came();
        }
        both.send(8);
        both.came(1, 8);
    }

    /// A queue pair that does not receive yet, or no more, loses what comes.
    /// Rules: UD-05, ST-12
    fn a_queue_pair_that_does_not_receive_loses_datagrams(link: Link) {
        let both = DatagramPair::new(link);
        let qb = both.pair.qb;
        assert_eq!(set_state(qb, IBV_QPS_RESET), 0);
        both.send(8);
        let attr = ibv_qp_attr { qkey: QKEY, port_num: 1, ..ibv_qp_attr::default() };
        assert_eq!(modify(qb, &attr, IBV_QPS_INIT), 0);
        both.recv(1, 200);
        both.send(8);
        both.nothing_came();
        assert_eq!(modify(qb, &attr, IBV_QPS_RTR), 0);
        both.send(9);
        both.came(1, 9);
        both.recv(2, 200);
        assert_eq!(set_state(qb, IBV_QPS_ERR), 0);
        assert_eq!(both.pair.b.expect(IBV_WC_WR_FLUSH_ERR).wr_id, 2);
        both.send(8);
        both.nothing_came();
    }

    /// A Q_Key with its top bit set is not sent: the queue pair's own is.
    /// Rules: UD-06
    fn the_top_bit_stands_for_the_own_qkey(link: Link) {
        let both = DatagramPair::new(link);
        let b = number(both.pair.qb);
        both.recv(1, 200);
        for qkey in [0x8000_0001, u32::MAX, QKEY | 1 << 31] {
            both.post_to(wr(IBV_WR_SEND), 8, b, qkey);
            both.sent();
            both.came(1, 8);
            both.recv(1, 200);
        }
        // With another key of its own, the peer does not hear it.
        let other = ibv_qp_attr { qkey: 7, ..ibv_qp_attr::default() };
        assert_eq!(modify_with(both.pair.qa, &other, IBV_QP_QKEY), 0);
        both.post_to(wr(IBV_WR_SEND), 8, b, 0x8000_0000 | QKEY);
        both.sent();
        both.nothing_came();
        both.send(8);
        both.came(1, 8);
    }

    /// The Q_Key may change in RTS, for what comes and what goes.
    /// Rules: ST-26, UD-05
    fn the_qkey_can_be_changed(link: Link) {
        let both = DatagramPair::new(link);
        let b = number(both.pair.qb);
        both.recv(1, 200);
        let other = ibv_qp_attr { qkey: 7, ..ibv_qp_attr::default() };
        assert_eq!(modify_with(both.pair.qb, &other, IBV_QP_QKEY), 0);
        assert_eq!(query(both.pair.qb).qkey, 7);
        both.send(8);
        both.nothing_came();
        both.post_to(wr(IBV_WR_SEND), 8, b, 7);
        both.sent();
        both.came(1, 8);
    }

    /// Connected and datagram queue pairs do not hear each other.
    /// Rules: UD-08, RN-15
    fn other_services_are_not_heard(link: Link) {
        let both = DatagramPair::new(link);
        let (a, b) = (&both.pair.a, &both.pair.b);
        both.recv(1, 200);
        for kind in [IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_XRC_SEND] {
            let qp = a.qp(kind);
            bring_up(qp, &usual_attr(both.pair.qb));
            let status = if kind == IBV_QPT_UC { IBV_WC_SUCCESS } else { IBV_WC_RETRY_EXC_ERR };
            if kind != IBV_QPT_UC {
                give_up_soon(qp);
            }
            post(qp, &mut wr(IBV_WR_SEND));
            a.expect(status);
            both.nothing_came();
        }
        for kind in [IBV_QPT_RC, IBV_QPT_UC] {
            let qp = b.qp(kind);
            bring_up(qp, &usual_attr(both.pair.qa));
            recv(qp, 2, &mut [sge(both.far.addr(), 200, both.mb)]);
            both.post_to(wr(IBV_WR_SEND), 8, number(qp), QKEY);
            both.sent();
            both.nothing_came();
        }
        both.send(8);
        both.came(1, 8);
    }

    /// The address handle belongs to the queue pair's protection domain, or nothing is sent.
    /// Rules: PD-16
    fn the_address_handle_is_of_the_same_domain(link: Link) {
        let both = DatagramPair::new(link);
        let foreign = ah(both.pair.a.another_pd(), &here());
        both.recv(1, 200);
        let mut sges = [sge(both.near.addr(), 8, both.ma)];
        let request = with_sges(wr(IBV_WR_SEND), &mut sges);
        post(both.pair.qa, &mut addressed(request, foreign, number(both.pair.qb), QKEY));
        assert_eq!(both.pair.a.expect(IBV_WC_LOC_QP_OP_ERR).wr_id, 1);
        both.nothing_came();
        assert_eq!(state(both.pair.qa), IBV_QPS_SQE);
        assert_eq!(set_state(both.pair.qa, IBV_QPS_RTS), 0);
        both.send(8);
        both.came(1, 8);
    }

    /// What UD cannot do is taken and fails in its turn; nothing happens at the target.
    /// Rules: PS-06
    fn one_sided_operations_fail_in_their_turn(link: Link) {
        let both = DatagramPair::new(link);
        let (addr, key) = (both.far.addr(), keys(both.mb).1);
        for opcode in [
            IBV_WR_RDMA_READ,
            IBV_WR_RDMA_WRITE,
            IBV_WR_RDMA_WRITE_WITH_IMM,
            IBV_WR_ATOMIC_CMP_AND_SWP,
            IBV_WR_ATOMIC_FETCH_AND_ADD,
            IBV_WR_ATOMIC_WRITE,
        ] {
            both.recv(1, 200);
            let before = (both.near.read(0, 64), both.far.read(0, 64));
            let mut sges = [sge(both.near.addr(), 8, both.ma)];
            post(both.pair.qa, &mut rdma_wr(opcode, &mut sges, addr, key));
            let wc = both.pair.a.expect(IBV_WC_LOC_QP_OP_ERR);
            assert_eq!((wc.wr_id, state(both.pair.qa)), (1, IBV_QPS_SQE));
            both.nothing_came();
            assert!(before == (both.near.read(0, 64), both.far.read(0, 64)), "opcode {opcode}");
            assert_eq!(set_state(both.pair.qa, IBV_QPS_RTS), 0);
            both.send(8);
            both.came(1, 8);
        }
    }

    /// An error of the send queue stops sending only: later requests flush, receiving goes on, and
    /// RTS starts it anew.
    /// Rules: ST-18, ST-19
    fn a_failed_send_queue_goes_on_receiving(link: Link) {
        let both = DatagramPair::new(link);
        let (qa, a) = (both.pair.qa, &both.pair.a);
        let to = |request| addressed(request, both.ah, number(both.pair.qb), QKEY);
        both.recv(1, 200);
        let mut wrong = [sge(both.near.addr(), 8, null_mut())];
        let request = |wr_id| to(ibv_send_wr { wr_id, ..wr(IBV_WR_SEND) });
        let mut list = [with_sges(request(1), &mut wrong), request(2), request(3)];
        assert_eq!(try_post_list(qa, &mut list), Ok(()));
        assert_eq!(a.expect(IBV_WC_LOC_PROT_ERR).wr_id, 1);
        for wr_id in [2, 3] {
            assert_eq!(a.expect(IBV_WC_WR_FLUSH_ERR).wr_id, wr_id);
        }
        assert_eq!(state(qa), IBV_QPS_SQE);
        post(qa, &mut request(4));
        assert_eq!(a.expect(IBV_WC_WR_FLUSH_ERR).wr_id, 4);
        both.nothing_came();
        // The other way round there is an address handle of the peer's domain.
        let ma = a.reg(&both.far, ALL);
        recv(qa, 9, &mut [sge(both.far.addr() + 4096, 64, ma)]);
        let back = ah(both.pair.b.pd, &here());
        post(both.pair.qb, &mut addressed(wr(IBV_WR_SEND), back, number(qa), QKEY));
        both.pair.b.expect(IBV_WC_SUCCESS);
        let wc = a.expect(IBV_WC_SUCCESS);
        assert_eq!((wc.wr_id, wc.opcode, wc.byte_len), (9, IBV_WC_RECV, 40));
        assert_eq!(set_state(qa, IBV_QPS_RTS), 0);
        both.send(8);
        both.came(1, 8);
    }

    /// A receive without a key fails at its owner; the sender learns nothing.
    /// Rules: RN-15
    fn a_receive_that_fails_is_the_receivers_alone(link: Link) {
        let both = DatagramPair::new(link);
        recv(both.pair.qb, 1, &mut [sge(both.far.addr(), 200, null_mut())]);
        both.recv(2, 200);
        both.send(8);
        assert_eq!(both.pair.b.expect(IBV_WC_LOC_PROT_ERR).wr_id, 1);
        assert_eq!(both.pair.b.expect(IBV_WC_WR_FLUSH_ERR).wr_id, 2);
        assert_eq!((state(both.pair.qa), state(both.pair.qb)), (IBV_QPS_RTS, IBV_QPS_ERR));
        assert!(!both.pair.a.has_event());
    }

    /// A fence has nothing to wait for.
    /// Rules: ORD-11
    fn a_fence_means_nothing(link: Link) {
        let both = DatagramPair::new(link);
        for wr_id in 0..3 {
            both.recv(wr_id, 200);
            let mut fenced = wr(IBV_WR_SEND);
            fenced.send_flags |= IBV_SEND_FENCE;
            both.post(fenced, 8);
            both.sent();
            both.came(wr_id, 8);
        }
    }

    /// Datagrams to many, from many: each comes once, to whom it was for.
    /// Rules: UD-05, UD-07
    fn many_queue_pairs_send_to_many(link: Link) {
        let both = DatagramPair::new(link);
        let from: Vec<_> = (0..4).map(|_| ud_qp(&both.pair.a)).collect();
        let to: Vec<_> = (0..4).map(|_| ud_qp(&both.pair.b)).collect();
        for qp in &to {
            for wr_id in 0..4 {
                recv(*qp, wr_id, &mut [sge(both.far.addr(), 200, both.mb)]);
            }
        }
        for sender in &from {
            for target in &to {
                let mut sges = [sge(both.near.addr(), 8, both.ma)];
                let request = with_sges(wr(IBV_WR_SEND), &mut sges);
                post(*sender, &mut addressed(request, both.ah, number(*target), QKEY));
                both.sent();
            }
        }
        let mut pairs: Vec<_> = wait_for(both.pair.b.cq, 16)
            .iter()
            .map(|wc| {
                assert_eq!(wc.status, IBV_WC_SUCCESS);
                (wc.src_qp, wc.qp_num)
            })
            .collect();
        pairs.sort_unstable();
        pairs.dedup();
        assert_eq!(pairs.len(), 16);
        both.nothing_came();
    }
}

/// Windows are not for datagrams: neither binding nor invalidating is taken.
/// Rules: T1-10, T2-11, INV-19, INV-44, PS-06
#[test]
fn windows_are_not_for_datagrams() {
    let both = DatagramPair::new(Link::Loopback);
    let (a, qa) = (&both.pair.a, both.pair.qa);
    let range = Range { mr: both.ma, addr: both.near.addr(), length: 64, access: REMOTE };
    let (one, two) = (a.mw(IBV_MW_TYPE_1), a.mw(IBV_MW_TYPE_2));
    let (before, before_two) = (rkey(one), rkey(two));
    assert_eq!(bind1(qa, one, 1, IBV_SEND_SIGNALED, range), libc::EINVAL);
    assert_eq!(bind1(qa, one, 1, IBV_SEND_SIGNALED, NOTHING), libc::EINVAL);
    assert_eq!(try_post(qa, &mut bind2_wr(two, before_two.wrapping_add(1), range)), libc::EINVAL);
    assert_eq!((rkey(one), rkey(two)), (before, before_two));
    assert_eq!(try_post(qa, &mut local_inv_wr(before_two)), libc::EINVAL);
    let mut invalidating = wr(IBV_WR_SEND_WITH_INV);
    invalidating.imm.invalidate_rkey = before_two;
    let to = |request| addressed(request, both.ah, number(both.pair.qb), QKEY);
    assert_eq!(try_post(qa, &mut to(invalidating)), libc::EINVAL);
    for opcode in [IBV_WR_TSO, IBV_WR_DRIVER1, 12, 14, 16, u32::MAX] {
        assert_eq!(try_post(qa, &mut to(wr(opcode))), libc::EINVAL, "opcode {opcode}");
    }
    a.expect_nothing();
    assert_eq!(state(qa), IBV_QPS_RTS);
    both.recv(1, 200);
    both.send(8);
    both.came(1, 8);
}

/// A receive that a datagram took, whose sender's memory was gone, is there for the next one, and
/// only if that fits.
/// Rules: UD-04
#[test]
fn a_receive_taken_in_vain_is_there_for_one_that_fits() {
    let both = DatagramPair::new(Link::Loopback);
    let gone = Buffer::new(4096);
    let mr = both.pair.a.reg(&gone, ALL);
    both.recv(1, 60);
    gone.vanish();
    let mut sges = [sge(gone.addr(), 10, mr)];
    let request = with_sges(wr(IBV_WR_SEND), &mut sges);
    post(both.pair.qa, &mut addressed(request, both.ah, number(both.pair.qb), QKEY));
    both.pair.a.expect(IBV_WC_LOC_PROT_ERR);
    both.nothing_came();
    assert_eq!(set_state(both.pair.qa, IBV_QPS_RTS), 0);
    for length in [21, 61, 1000] {
        both.send(length);
        both.nothing_came();
        assert_eq!(state(both.pair.qb), IBV_QPS_RTS);
    }
    both.send(20);
    both.came(1, 20);
}

/// Two that send to each other, and each to itself, at the same time do not stop each other.
#[test]
fn datagrams_cross_each_other() {
    const ROUNDS: u64 = 2_000;
    let both = DatagramPair::new(Link::Loopback);
    let (a, b) = (&both.pair.a, &both.pair.b);
    let ends = [(a, both.pair.qa, both.pair.qb), (b, both.pair.qb, both.pair.qa)];
    std::thread::scope(|scope| {
        for (end, own, peer) in ends {
            let parts = Across::new((end.pd, end.cq, own, peer));
            scope.spawn(move || {
                let (pd, cq, own, peer) = parts.get();
                let ah = ah(pd, &here());
                for round in 0..ROUNDS {
                    let to = if round % 2 == 0 { own } else { peer };
                    post(own, &mut addressed(wr(IBV_WR_SEND), ah, number(to), QKEY));
                    assert_eq!(wait(cq).status, IBV_WC_SUCCESS);
                }
            });
        }
    });
}
