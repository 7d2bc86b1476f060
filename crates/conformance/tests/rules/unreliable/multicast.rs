//! Multicast: every member of a group gets one copy, wherever it is.

use std::ffi::c_int;
use std::net::Ipv4Addr;
use std::ptr::null;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use transom_abi::*;
use transom_conformance::datagrams::*;
use transom_conformance::forger::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::path_of;
use transom_conformance::processes::{Way, alone, ip};
use transom_conformance::queues::*;
use transom_host::Limits;
use transom_ibverbs::*;
use transom_system::addresses::{Addresses, gid};
use transom_system::registry::Dropped;
use transom_wire::Psn;
use transom_wire::packet::{Ending, Operation, Packet, Transport};

/// The number that stands for all members.
const EVERYBODY: u32 = 0xff_ffff;

/// A group that no other test is in, in this process or another, and that does not leave this host.
fn group() -> [u8; 16] {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut gid = [0; 16];
    (gid[0], gid[1]) = (0xff, 0x01);
    gid[8..12].copy_from_slice(&std::process::id().to_be_bytes());
    gid[12..].copy_from_slice(&NEXT.fetch_add(1, Relaxed).to_be_bytes());
    gid
}

/// Joins a group; zero or an errno.
fn join(qp: *mut ibv_qp, raw: [u8; 16]) -> c_int {
    // SAFETY: a queue pair of this test; its struct stays readable.
    unsafe { ibv_attach_mcast(qp, &ibv_gid { raw }, 0) }
}

/// Leaves a group; zero or an errno.
fn leave(qp: *mut ibv_qp, raw: [u8; 16]) -> c_int {
    // SAFETY: as above.
    unsafe { ibv_detach_mcast(qp, &ibv_gid { raw }, 0) }
}

/// A UD queue pair in a group, with so many receives of 200 bytes.
fn member(
    end: &End,
    gid: [u8; 16],
    buffer: &Buffer,
    mr: *mut ibv_mr,
    receives: u64,
) -> *mut ibv_qp {
    let qp = ud_qp(end);
    assert_eq!(join(qp, gid), 0);
    for wr_id in 0..receives {
        recv(qp, wr_id, &mut [sge(buffer.addr(), 200, mr)]);
    }
    qp
}

/// Who received, in order of their numbers.
fn receivers(end: &End, count: usize) -> Vec<u32> {
    let mut numbers: Vec<_> = wait_for(end.cq, count)
        .iter()
        .map(|wc| {
            assert_eq!((wc.status, wc.opcode), (IBV_WC_SUCCESS, IBV_WC_RECV), "{wc:?}");
            wc.qp_num
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

fn sorted(qps: &[*mut ibv_qp]) -> Vec<u32> {
    let mut numbers: Vec<_> = qps.iter().map(|qp| number(*qp)).collect();
    numbers.sort_unstable();
    numbers
}

on_each_link! {
    /// Members at both ends get one copy each, with the sender's number and the group's address; the
    /// sender gets none, nor does anybody who is in no group or in another.
    /// Rules: UD-02, UD-07
    fn every_member_gets_one_copy(link: Link) {
        let mut both = DatagramPair::new(link);
        let gid = group();
        let (a, b) = (&both.pair.a, &both.pair.b);
        let own = a.reg(&both.far, ALL);
        let at_a: Vec<_> = (0..2).map(|_| member(a, gid, &both.far, own, 2)).collect();
        let at_b: Vec<_> = (0..3).map(|_| member(b, gid, &both.far, both.mb, 2)).collect();
        member(b, group(), &both.far, both.mb, 1);
        both.recv(9, 200);
        assert_eq!(join(both.pair.qa, gid), 0);
        recv(both.pair.qa, 9, &mut [sge(both.far.addr(), 200, own)]);
        both.ah = ah(a.pd, &to_gid(gid));
        let mut expected = vec![number(both.pair.qa)];
        expected.extend(sorted(&at_a));
        expected.sort_unstable();
        for round in 0..2 {
            both.post_to(wr(IBV_WR_SEND), 100, EVERYBODY, QKEY);
            // The SEND and the receives complete on the same queue.
            let all = wait_for(both.pair.a.cq, 3);
            let mut numbers: Vec<_> = all.iter().map(|wc| wc.qp_num).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, expected, "round {round}");
            for wc in all {
                let sent = wc.qp_num == number(both.pair.qa);
                assert_eq!(wc.opcode, if sent { IBV_WC_SEND } else { IBV_WC_RECV });
                assert_eq!(wc.status, IBV_WC_SUCCESS);
            }
            assert_eq!(receivers(&both.pair.b, 3), sorted(&at_b), "round {round}");
            both.nothing_came();
            both.pair.a.expect_nothing();
            assert!(both.far.read(GRH, 100) == both.near.read(0, 100));
            // To an address that is not of IPv4: the header has all 40 bytes.
            let header = both.far.read(0, GRH);
            assert_eq!((header[0] >> 4, header[6]), (6, 17));
            let from: [u8; 16] = header[8..24].try_into().unwrap();
            assert!(Addresses::read().unwrap().index_of(&from).is_some(), "an address of ours");
            assert_eq!(header[24..40], gid);
        }
    }

    /// A member can answer the sender of a datagram to a group, by an address that it makes itself: a group's is no GID
    /// of the port, from which a verb could answer.
    /// Rules: UD-07
    fn a_datagram_to_a_group_can_be_answered(link: Link) {
        let mut both = DatagramPair::new(link);
        let gid = group();
        let far = member(&both.pair.b, gid, &both.far, both.mb, 1);
        both.ah = ah(both.pair.a.pd, &to_gid(gid));
        both.post_to(wr(IBV_WR_SEND), 8, EVERYBODY, QKEY);
        both.sent();
        let (a, b) = (&both.pair.a, &both.pair.b);
        let mut wc = b.expect(IBV_WC_SUCCESS);
        let area = both.far.addr() as *mut ibv_grh;
        // SAFETY: a live domain, and the receive's first bytes.
        let back = unsafe { ibv_create_ah_from_wc(b.pd, &mut wc, area, 1) };
        assert_eq!((back.is_null(), errno()), (true, libc::EINVAL));
        let mut attr = ibv_ah_attr::default();
        // SAFETY: an open context, and the receive's first bytes.
        let filled = unsafe { ibv_init_ah_from_wc(b.context, 1, &mut wc, area, &mut attr) };
        assert_eq!((filled, errno(), attr.is_global), (-1, libc::EINVAL, 0));
        let sender: [u8; 16] = both.far.read(8, 16).try_into().expect("16 bytes");
        let back = ah(b.pd, &to_gid(sender));
        let own = a.reg(&both.near, ALL);
        recv(both.pair.qa, 5, &mut [sge(both.near.addr(), 64, own)]);
        post(far, &mut addressed(wr(IBV_WR_SEND), back, wc.src_qp, QKEY));
        b.expect(IBV_WC_SUCCESS);
        let wc = a.expect(IBV_WC_SUCCESS);
        assert_eq!((wc.wr_id, wc.opcode, wc.src_qp), (5, IBV_WC_RECV, number(far)));
        assert_eq!(destroy_ah(back), 0);
    }

    /// A member without room, or with another Q_Key, goes without; the others do not.
    /// Rules: UD-04, UD-05
    fn members_lose_their_own_copy_only(link: Link) {
        let mut both = DatagramPair::new(link);
        let gid = group();
        let b = &both.pair.b;
        let (ready, busy) = (
            member(b, gid, &both.far, both.mb, 1),
            member(b, gid, &both.far, both.mb, 0),
        );
        let deaf = b.qp(IBV_QPT_UD);
        bring_up_ud(deaf, QKEY + 1);
        assert_eq!(join(deaf, gid), 0);
        recv(deaf, 1, &mut [sge(both.far.addr(), 200, both.mb)]);
        both.ah = ah(both.pair.a.pd, &to_gid(gid));
        both.post_to(wr(IBV_WR_SEND), 100, EVERYBODY, QKEY);
        both.sent();
        assert_eq!(receivers(b, 1), [number(ready)]);
        both.nothing_came();
        for qp in [ready, busy, deaf] {
            assert_eq!(state(qp), IBV_QPS_RTS);
        }
    }

    /// A queue pair that has left gets nothing any more. One that joins twice is a member once.
    fn leaving_ends_it(link: Link) {
        let mut both = DatagramPair::new(link);
        let gid = group();
        let b = &both.pair.b;
        let stays = member(b, gid, &both.far, both.mb, 2);
        let goes = member(b, gid, &both.far, both.mb, 2);
        assert_eq!(join(goes, gid), 0);
        both.ah = ah(both.pair.a.pd, &to_gid(gid));
        both.post_to(wr(IBV_WR_SEND), 8, EVERYBODY, QKEY);
        both.sent();
        assert_eq!(receivers(b, 2), sorted(&[stays, goes]));
        both.nothing_came();
        assert_eq!(leave(goes, gid), 0);
        assert_eq!(leave(goes, gid), libc::EINVAL);
        both.post_to(wr(IBV_WR_SEND), 8, EVERYBODY, QKEY);
        both.sent();
        assert_eq!(receivers(b, 1), [number(stays)]);
        both.nothing_came();
        assert_eq!((leave(stays, gid), leave(stays, gid)), (0, libc::EINVAL));
        both.post_to(wr(IBV_WR_SEND), 8, EVERYBODY, QKEY);
        both.sent();
        both.nothing_came();
    }

    /// A sender that is no member reaches the members; so does one whose group has none here.
    fn a_sender_need_not_be_a_member(link: Link) {
        let mut both = DatagramPair::new(link);
        let gid = group();
        both.ah = ah(both.pair.a.pd, &to_gid(gid));
        both.post_to(wr(IBV_WR_SEND), 8, EVERYBODY, QKEY);
        both.sent();
        both.nothing_came();
        let far = member(&both.pair.b, gid, &both.far, both.mb, 1);
        both.post_to(wr(IBV_WR_SEND), 8, EVERYBODY, QKEY);
        both.sent();
        assert_eq!(receivers(&both.pair.b, 1), [number(far)]);
    }

    /// A group's address with the number of one queue pair reaches nobody, and so does the number of all
    /// members with the address of one host: a datagram to one queue pair that follows each arrives.
    /// Rules: NET-17
    fn the_number_of_all_members_belongs_to_a_group(link: Link) {
        let mut both = DatagramPair::new(link);
        let gid = group();
        let b = &both.pair.b;
        assert_eq!(join(both.pair.qb, gid), 0);
        let other = member(b, gid, &both.far, both.mb, 4);
        (0..4).for_each(|wr_id| both.recv(wr_id, 200));
        let host = both.ah;
        let to_group = ah(both.pair.a.pd, &to_gid(gid));
        let one = number(both.pair.qb);
        for (wr_id, (to, qpn)) in [(to_group, one), (host, EVERYBODY)].into_iter().enumerate() {
            both.ah = to;
            both.post_to(wr(IBV_WR_SEND), 100, qpn, QKEY);
            both.sent();
            both.nothing_came();
            both.ah = host;
            both.send(50);
            both.came(wr_id as u64, 50);
        }
        for qp in [both.pair.qa, both.pair.qb, other] {
            assert_eq!(state(qp), IBV_QPS_RTS);
        }
    }

    /// Data that cannot be read fails at the sender, and no member gets any.
    /// Rules: ST-18
    fn a_bad_key_fails_at_the_sender(link: Link) {
        let mut both = DatagramPair::new(link);
        let gid = group();
        let far = member(&both.pair.b, gid, &both.far, both.mb, 1);
        both.ah = ah(both.pair.a.pd, &to_gid(gid));
        let mut sges = [sge(both.near.addr(), 8, std::ptr::null_mut())];
        let request = with_sges(wr(IBV_WR_SEND), &mut sges);
        post(both.pair.qa, &mut addressed(request, both.ah, EVERYBODY, QKEY));
        both.pair.a.expect(IBV_WC_LOC_PROT_ERR);
        both.nothing_came();
        assert_eq!((state(both.pair.qa), state(far)), (IBV_QPS_SQE, IBV_QPS_RTS));
    }
}

/// A stranger's datagram that comes by a group's address is for the group's members, not for a queue
/// pair that it names, and one that comes by this host's address is not for members: each process of
/// the port drops its copy, counts it, and hands it to nobody. What is right about them arrives.
/// Rules: NET-17, NET-12
#[test]
fn a_group_and_a_queue_pair_are_not_reached_by_each_others_address() {
    let test = path_of!("a_group_and_a_queue_pair_are_not_reached_by_each_others_address");
    alone(test, Way::Namespace, datagrams_with_the_others_address);
}

fn datagrams_with_the_others_address() {
    // Groups are joined on networks.
    ip("link add near type veth peer name far");
    ip("address add 10.9.0.1/24 dev near");
    ["lo", "near", "far"].iter().for_each(|name| ip(&format!("link set {name} up")));
    let both = DatagramPair::new(Link::Wire);
    let group = Ipv4Addr::new(239, 77, 0, 1);
    let to_group = Forger::at(Ipv4Addr::new(10, 9, 0, 1)).to_group(group);
    let to_one = Forger::at(PEER);
    let (qa, qb) = (both.pair.qa, both.pair.qb);
    let transport = Transport::Ud { qkey: QKEY, source: number(qa) };
    let operation = Operation::SendOnly(Ending::Plain);
    let datagram = |to| Packet {
        payload: &[FORGED; LENGTH],
        ..Packet::new(transport, operation, to, Psn::new(0))
    };
    let (one, all) = (datagram(number(qb)), datagram(EVERYBODY));
    assert_eq!([qa, qb].map(|qp| join(qp, gid(group.into()))), [0; 2]);
    (0..2).for_each(|wr_id| both.recv(wr_id, 200));
    let dropped = |qp| counters(qp).dropped(Dropped::WrongDestination);
    // The one comes to both processes, the other to either.
    let at_both = || dropped(qa).min(dropped(qb));
    to_group.send_until_counted(&[to_group.seal(&one)], at_both);
    both.nothing_came();
    to_one.send_until_counted(&[to_one.seal(&all)], || dropped(qa) + dropped(qb));
    both.nothing_came();
    let right = [(&to_group, to_group.seal(&all)), (&to_one, to_one.seal(&one))];
    for (wr_id, (forger, datagram)) in right.into_iter().enumerate() {
        let received = counters(qb).received.load(Relaxed);
        forger.send(&datagram);
        let came = both.pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!((came.wr_id, came.byte_len), (wr_id as u64, (GRH + LENGTH) as u32));
        assert!(both.far.read(GRH, LENGTH).iter().all(|byte| *byte == FORGED));
        until("it is counted", || (counters(qb).received.load(Relaxed) > received).then_some(()));
        both.nothing_came();
    }
    assert_eq!([qa, qb].map(|qp| leave(qp, gid(group.into()))), [0; 2]);
}

/// A member is not destroyed before it has left all its groups.
/// Rules: CR-10
#[test]
fn a_member_is_not_destroyed() {
    let end = End::new(Default::default());
    let (one, two) = (group(), group());
    let qp = ud_qp(&end);
    assert_eq!((join(qp, one), join(qp, two)), (0, 0));
    assert_eq!(destroy_qp(qp), libc::EBUSY);
    assert_eq!(state(qp), IBV_QPS_RTS);
    assert_eq!(leave(qp, one), 0);
    assert_eq!(destroy_qp(qp), libc::EBUSY);
    assert_eq!(leave(qp, two), 0);
    assert_eq!(destroy_qp(qp), 0);
    assert_eq!((join(qp, one), leave(qp, one)), (libc::ENOENT, libc::ENOENT));
    // That is said at once, though an event is not acknowledged.
    let qp = ud_qp(&end);
    assert_eq!(join(qp, one), 0);
    let drain = ibv_qp_attr { qp_state: IBV_QPS_SQD, en_sqd_async_notify: 1, ..usual_attr(qp) };
    assert_eq!(modify_with(qp, &drain, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    let mut event = ibv_async_event::default();
    // SAFETY: an open context, and a place for the event.
    assert_eq!(unsafe { ibv_get_async_event(end.context, &mut event) }, 0);
    assert_eq!(event.event_type, IBV_EVENT_SQ_DRAINED);
    assert_eq!((destroy_qp(qp), leave(qp, one)), (libc::EBUSY, 0));
    // SAFETY: an event that was taken.
    unsafe { ibv_ack_async_event(&mut event) };
    assert_eq!(destroy_qp(qp), 0);
}

/// A context takes its members along when it is closed, and its groups do not remember them.
#[test]
fn a_context_takes_its_members_along() {
    let mut both = DatagramPair::new(Link::Loopback);
    let gid = group();
    let far = member(&both.pair.b, gid, &both.far, both.mb, 1);
    both.pair.b.close();
    assert_eq!(destroy_qp(far), libc::ENOENT);
    both.ah = ah(both.pair.a.pd, &to_gid(gid));
    both.post_to(wr(IBV_WR_SEND), 8, EVERYBODY, QKEY);
    both.sent();
}

/// Only UD queue pairs join, only GIDs of groups are joined, and nothing is no group.
#[test]
fn only_datagrams_and_groups() {
    let end = End::new(Default::default());
    for kind in [IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_XRC_SEND] {
        let qp = end.qp(kind);
        assert_eq!((join(qp, group()), leave(qp, group())), (libc::EINVAL, libc::EINVAL));
        assert_eq!(destroy_qp(qp), 0);
    }
    let qp = ud_qp(&end);
    for raw in [[0; 16], LOOPBACK_GID, [0xfe; 16]] {
        assert_eq!((join(qp, raw), leave(qp, raw)), (libc::EINVAL, libc::EINVAL));
    }
    assert_eq!(leave(qp, group()), libc::EINVAL);
    // SAFETY: nulls, which are refused.
    unsafe {
        assert_eq!(ibv_attach_mcast(qp, null(), 0), libc::EINVAL);
        assert_eq!(ibv_detach_mcast(qp, null(), 0), libc::EINVAL);
        let gid = ibv_gid { raw: group() };
        assert_ne!(ibv_attach_mcast(std::ptr::null_mut(), &gid, 0), 0);
        assert_ne!(ibv_detach_mcast(std::ptr::null_mut(), &gid, 0), 0);
    }
    assert_eq!(destroy_qp(qp), 0);
}

/// A group takes as many members as the device says, and the next is `ENOMEM`.
#[test]
fn a_group_is_full_at_its_limit() {
    let end = End::new(Default::default());
    let most = Limits::DEVICE.multicast_members as usize;
    let gid = group();
    let small = |_| {
        let mut init = end.init(IBV_QPT_UD);
        (init.cap.max_send_wr, init.cap.max_recv_wr) = (1, 1);
        end.qp_with(&mut init)
    };
    let members: Vec<_> = (0..most).map(small).collect();
    for qp in &members {
        assert_eq!(join(*qp, gid), 0);
    }
    let late = small(0);
    assert_eq!(join(late, gid), libc::ENOMEM);
    assert_eq!(leave(members[0], gid), 0);
    assert_eq!(join(late, gid), 0);
    assert_eq!((destroy_qp(late), destroy_qp(members[0])), (libc::EBUSY, 0));
}
