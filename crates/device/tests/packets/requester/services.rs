//! Services other than RC.

use transom_device::protection::Key;
use transom_device::qp::{QpState, Service};
use transom_device::queue::{Address, Body, Datagram, Remote, SendFlags, SendOp, Status};
use transom_wire::packet::{Ending, Operation, Packet, Transport};

use super::OK;
use crate::origin::*;

/// UC waits for nobody: a request is done when its last packet has left, and ends nothing else.
/// Rules: UC-02, RN-15
#[test]
fn uc_is_done_when_it_has_left() {
    let mut origin = origin_of(Service::Uc, 100);
    origin.env.room.set(0);
    origin.post_send(1, SEND, 300 * MTU);
    assert_eq!(origin.env.statuses(), []);
    origin.env.room.set(usize::MAX);
    origin.post_send(2, WRITE, 8);
    let sent = origin.env.sent();
    assert!(sent.iter().all(|p| p.transport == Transport::Uc && !p.ack_request));
    let numbers: Vec<_> = sent.iter().map(|packet| packet.psn.value()).collect();
    assert_eq!(numbers, (100..401).collect::<Vec<_>>());
    assert_eq!(origin.env.statuses(), [(1, OK), (2, OK)]);
    assert_eq!(origin.qp.requester.deadline(), None);
    origin.refuse(400, 0x62);
    assert_eq!((origin.env.statuses(), origin.env.state()), (vec![], QpState::Rts));
}

/// A datagram is one packet, and no longer than one.
/// Rules: UD-03, UD-06
#[test]
fn a_datagram_is_one_packet() {
    let mut origin = origin_of(Service::Ud, 100);
    origin.qp.requester.connection.qkey = 0x1111;
    let address =
        Address { gid: [0; 16], source: [0; 16], traffic_class: 0, hop_limit: 1, flow_label: 0 };
    for (wr_id, qkey) in (1..).zip([5, 0x8000_0001]) {
        let remote = Remote::Datagram(Datagram { pd: PD, address, qp: 0x33, qkey });
        origin.post_send_to(wr_id, SEND, MTU, SendFlags::empty(), remote);
    }
    let sent = origin.env.sent();
    let headers: Vec<_> = sent.iter().map(|p| (p.psn.value(), p.to, p.transport)).collect();
    let ud = |qkey| Transport::Ud { qkey, source: NUMBER };
    assert_eq!(headers, [(100, 0x33, ud(5)), (101, 0x33, ud(0x1111))]);
    assert_eq!(origin.env.statuses(), [(1, OK), (2, OK)]);
    let remote = Remote::Datagram(Datagram { pd: PD, address, qp: 0x33, qkey: 5 });
    origin.post_send_to(3, SEND, MTU + 1, SendFlags::empty(), remote);
    assert_eq!(origin.env.statuses(), [(3, Status::LocalLength)]);
    assert_eq!((origin.env.sent(), origin.env.state()), (vec![], QpState::Sqe));
}

/// XRC requests name a shared receive queue; its answers are of XRC too.
/// Rules: OP-32
#[test]
fn xrc_is_answered_by_xrc() {
    let mut origin = origin_of(Service::XrcInitiator, 100);
    origin.post_send_to(1, SEND, MTU + 1, SendFlags::empty(), Remote::Srq(0x33));
    origin.post_send_to(2, READ, 2 * MTU, SendFlags::empty(), Remote::Srq(0x34));
    let srqs: Vec<_> = origin.env.sent().iter().map(|packet| packet.transport).collect();
    assert_eq!(srqs, [0x33, 0x33, 0x34].map(|srq| Transport::Xrc { srq }));
    let acknowledge = answer(101, Operation::Acknowledge(aeth(0x1f)));
    origin.take_answers(&[acknowledge]);
    assert_eq!(origin.env.statuses(), []);
    let transport = Transport::Xrc { srq: 0 };
    origin.take_answers(&[Packet { transport, ..acknowledge }]);
    let data = pattern(2 * MTU);
    let mut both = responses(102, &data);
    both[1].transport = transport;
    both[0].transport = transport;
    origin.take_answers(&both);
    assert_eq!(origin.env.statuses(), [(1, OK), (2, OK)]);
}

/// The key to invalidate is in the last packet of a SEND or its only one.
/// Rules: INV-41, KEY-16
#[test]
fn the_key_to_invalidate_is_in_the_last_packet() {
    const KEY: u32 = 0x0102_0304;
    let last = Ending::Invalidate(KEY);
    for (service, class) in [(Service::Rc, 0), (Service::XrcInitiator, 0xa0)] {
        let mut origin = origin_of(service, 100);
        let remote = if service == Service::Rc { Remote::Connected } else { Remote::Srq(0x33) };
        let send = SendOp::Message(Body::SendInvalidate(Key(KEY)));
        for (wr_id, length) in (1..).zip([0, 3 * MTU]) {
            origin.post_send_to(wr_id, send, length, SendFlags::empty(), remote);
        }
        let sent = origin.env.sent();
        let operations: Vec<_> = sent.iter().map(|packet| packet.operation).collect();
        let [only, first, middle, end] = operations[..] else { panic!("{operations:?}") };
        assert_eq!((only, end), (Operation::SendOnly(last), Operation::SendLast(last)));
        assert_eq!((first, middle), (Operation::SendFirst, Operation::SendMiddle));
        let opcodes: Vec<_> = sent.iter().map(|packet| packet.opcode()).collect();
        assert_eq!(opcodes, [0x17, 0, 1, 0x16].map(|code| class + code));
        for (packet, has_key) in sent.iter().zip([true, false, false, true]) {
            let mut bytes = [0; 64];
            let end = packet.write(&mut bytes);
            assert_eq!(bytes[..end].ends_with(&[1, 2, 3, 4]), has_key, "big-endian");
        }
    }
}

/// Every request says that its queue pair has not migrated, as hardware does; what an answer says of
/// that, of congestion on its way or of credits changes nothing.
/// Rules: PK-16, NET-14, ACK-04
#[test]
fn credits_and_bits_of_an_answer_are_not_looked_at() {
    let mut origin = origin_over_packets();
    for credits in 0..32 {
        origin.post_send(1, SEND, 2 * MTU);
        origin.post_send(2, READ, 1);
        origin.post_send(3, WRITE, 1);
        let sent = origin.env.sent();
        assert_eq!(sent.len(), 4, "with {credits} credits");
        assert!(sent.iter().all(|packet| packet.migrated && !packet.fecn && !packet.becn));
        let [_, send, read, write] = [0, 1, 2, 3].map(|at: usize| sent[at].psn.value());
        let data = responses(read, &[7]);
        let said = aeth(credits);
        for (number, plain) in [
            answer(send, Operation::Acknowledge(said)),
            Packet { operation: Operation::ReadResponseOnly(said), ..data[0] },
            answer(write, Operation::Acknowledge(said)),
        ]
        .into_iter()
        .enumerate()
        {
            let bit = |mask: u8| credits & mask != 0;
            origin.take_answers(&[Packet {
                migrated: bit(1),
                fecn: bit(2),
                becn: bit(4),
                ..plain
            }]);
            assert_eq!(origin.env.statuses(), [(number as u64 + 1, OK)]);
        }
    }
}
