//! Services other than RC.

use transom_device::qp::{QpState, Service};
use transom_device::queue::{Address, Datagram, Remote, SendFlags, Status};
use transom_wire::packet::{Operation, Packet, Transport};

use super::OK;
use super::stage::*;

/// UC waits for nobody: a request is done when its last packet has left, and ends nothing else.
/// Rules: UC-02, RN-15
#[test]
fn uc_is_done_when_it_has_left() {
    let mut queue = Queue::of(Service::Uc, 100);
    queue.stage.room.set(0);
    queue.post(1, SEND, 300 * MTU);
    assert_eq!(queue.stage.completed(), []);
    queue.stage.room.set(usize::MAX);
    queue.post(2, WRITE, 8);
    let sent = queue.stage.sent();
    assert!(sent.iter().all(|p| p.transport == Transport::Uc && !p.ack_request));
    let numbers: Vec<_> = sent.iter().map(|packet| packet.psn.value()).collect();
    assert_eq!(numbers, (100..401).collect::<Vec<_>>());
    assert_eq!(queue.stage.completed(), [(1, OK), (2, OK)]);
    assert_eq!(queue.requester.deadline(), None);
    queue.refuse(400, 0x62);
    assert_eq!((queue.stage.completed(), queue.state()), (vec![], QpState::Rts));
}

/// A datagram is one packet, and no longer than one.
/// Rules: UD-03, UD-06
#[test]
fn a_datagram_is_one_packet() {
    let mut queue = Queue::of(Service::Ud, 100);
    queue.requester.qkey = 0x1111;
    let address =
        Address { gid: [0; 16], source: [0; 16], traffic_class: 0, hop_limit: 1, flow_label: 0 };
    for (wr_id, qkey) in (1..).zip([5, 0x8000_0001]) {
        let remote = Remote::Datagram(Datagram { pd: 1, address, qp: 0x33, qkey });
        queue.post_to(wr_id, SEND, MTU, SendFlags::empty(), remote);
    }
    let sent = queue.stage.sent();
    let headers: Vec<_> = sent.iter().map(|p| (p.psn.value(), p.to, p.transport)).collect();
    let ud = |qkey| Transport::Ud { qkey, source: 0x11 };
    assert_eq!(headers, [(100, 0x33, ud(5)), (101, 0x33, ud(0x1111))]);
    assert_eq!(queue.stage.completed(), [(1, OK), (2, OK)]);
    let remote = Remote::Datagram(Datagram { pd: 1, address, qp: 0x33, qkey: 5 });
    queue.post_to(3, SEND, MTU + 1, SendFlags::empty(), remote);
    assert_eq!(queue.stage.completed(), [(3, Status::LocalLength)]);
    assert_eq!((queue.stage.sent(), queue.state()), (vec![], QpState::Sqe));
}

/// XRC requests name a shared receive queue; its answers are of XRC too.
/// Rules: OP-32
#[test]
fn xrc_is_answered_by_xrc() {
    let mut queue = Queue::of(Service::XrcInitiator, 100);
    queue.post_to(1, SEND, MTU + 1, SendFlags::empty(), Remote::Srq(0x33));
    queue.post_to(2, READ, 2 * MTU, SendFlags::empty(), Remote::Srq(0x34));
    let srqs: Vec<_> = queue.stage.sent().iter().map(|packet| packet.transport).collect();
    assert_eq!(srqs, [0x33, 0x33, 0x34].map(|srq| Transport::Xrc { srq }));
    let acknowledge = answer(101, Operation::Acknowledge(aeth(0x1f)));
    queue.take(&[acknowledge]);
    assert_eq!(queue.stage.completed(), []);
    let transport = Transport::Xrc { srq: 0 };
    queue.take(&[Packet { transport, ..acknowledge }]);
    let data = pattern(2 * MTU);
    let mut both = responses(102, &data);
    both[1].transport = transport;
    both[0].transport = transport;
    queue.take(&both);
    assert_eq!(queue.stage.completed(), [(1, OK), (2, OK)]);
}
