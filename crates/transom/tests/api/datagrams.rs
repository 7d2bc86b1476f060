//! Datagrams: sent to any peer, received from any peer, also in groups.

use crate::common::{Departure, TIMEOUT, block_on, context, departs, failure};
use std::net::{Ipv6Addr, UdpSocket};
use std::sync::Arc;
use transom::{
    Access, Address, AddressHandle, CompletionQueue, Context, Datagram, Destination, Error, Gid,
    MemoryRegion, Pages, ProtectionDomain, QueuePair, Status,
};

const QKEY: u32 = 0x1111_1111;
const HEADER: usize = 40;

/// A queue pair for datagrams, with its own context, domain and queue.
struct Party {
    qp: QueuePair<Datagram>,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    context: Context,
}

impl Party {
    fn new() -> Self {
        let context = context();
        let pd = ProtectionDomain::new(&context).unwrap();
        let cq = CompletionQueue::new(&context, 64).unwrap();
        let qp = QueuePair::datagram(&pd, &cq).qkey(QKEY).build().unwrap();
        Self { qp, cq, pd, context }
    }

    /// The other one as a destination for this one.
    fn to(&self, other: &Self) -> Destination {
        let address = AddressHandle::new(&self.pd, other.qp.endpoint()).unwrap();
        Destination { address, queue_pair: other.qp.number(), qkey: QKEY }
    }

    fn local(&self, length: usize) -> MemoryRegion<Vec<u8>> {
        MemoryRegion::register(&self.pd, vec![0; length], Access::LOCAL_WRITE).unwrap()
    }
}

/// Rules: UD-01, UD-02, UD-07
#[test]
fn a_datagram_arrives_behind_its_header_and_can_be_answered() {
    let (a, b) = (Party::new(), Party::new());
    let (at_a, at_b, from) = (a.local(256), b.local(256), a.local(100));
    from.write_at(0, &[0xab; 100]).unwrap();
    let ping = b.qp.receive(&at_b.all()).unwrap();
    let pong = a.qp.receive(&at_a.all()).unwrap();

    let sent = a.qp.send(&a.to(&b), &[from.all()]).unwrap().wait().unwrap();
    assert_eq!(sent.source(), None);
    let ping = ping.wait().unwrap();
    assert_eq!(ping.completion().length(), HEADER + 100);
    assert_eq!(ping.completion().queue_pair(), b.qp.number());
    assert_eq!((ping.len(), ping.to_vec()), (100, vec![0xab; 100]));
    assert_eq!(ping.source().queue_pair, a.qp.number());
    let header = ping.header().expect("there is one on RoCE");
    assert_eq!(origin(header).0, a.qp.endpoint().gid);
    let mut bytes = vec![0; 256];
    at_b.read_at(0, &mut bytes).unwrap();
    assert_eq!((&bytes[HEADER..140], &bytes[140..]), (&[0xab; 100][..], &[0; 116][..]));

    let sender = ping.sender(&b.qp, QKEY).unwrap();
    assert_eq!(sender.queue_pair, a.qp.number());
    b.qp.send_immediate(&sender, b"pong", 0x1234_5678).unwrap().wait().unwrap();
    let pong = block_on(pong).unwrap();
    assert_eq!(pong.to_vec(), b"pong");
    assert_eq!(pong.completion().immediate(), Some(0x1234_5678));
    assert_eq!(pong.source().queue_pair, b.qp.number());
    // You can post the buffer again.
    let again = a.qp.receive(&pong.into_buffer()).unwrap();
    b.qp.send(&sender, b"").unwrap().wait().unwrap();
    assert!(again.wait().unwrap().is_empty());
}

/// Rules: UD-03, ST-18
#[test]
fn after_a_datagram_that_is_too_long_it_resumes() {
    let (a, b) = (Party::new(), Party::new());
    // Within a host, whatever MTU its networks have.
    let mtu = usize::from(a.context.port(1).unwrap().max_mtu);
    let (from, at_b) = (a.local(mtu + 1), b.local(mtu + HEADER));
    let received = b.qp.receive(&at_b.all()).unwrap();
    let to_b = a.to(&b);
    if departs(&a.context, Departure::LongDatagramSucceeds) {
        a.qp.send(&to_b, &[from.all()]).unwrap().wait().unwrap();
        return;
    }
    assert_eq!(failure(a.qp.send(&to_b, &[from.all()])), Status::LocalLength);
    assert_eq!(failure(a.qp.send(&to_b, b"stuck")), Status::Flushed);
    assert!(!a.qp.has_failed().unwrap());
    a.qp.resume().unwrap();
    a.qp.resume().unwrap();
    a.qp.send(&to_b, &[from.slice(0..mtu).unwrap()]).unwrap().wait().unwrap();
    assert_eq!(received.wait().unwrap().len(), mtu);
    a.qp.fail().unwrap();
    assert!(a.qp.resume().is_err());
}

/// Rules: UD-04, UD-05, UD-06
#[test]
fn what_nobody_takes_is_dropped_and_nobody_is_told() {
    let (a, b) = (Party::new(), Party::new());
    let at_b = b.local(HEADER + 4);
    let to_b = a.to(&b);
    a.qp.send(&to_b, b"none").unwrap().wait().unwrap();
    let mut received = b.qp.receive(&at_b.all()).unwrap();
    let wrong = [
        Destination { qkey: QKEY ^ 1, ..to_b.clone() },
        Destination { queue_pair: to_b.queue_pair ^ 0x8000, ..to_b.clone() },
    ];
    for destination in wrong {
        a.qp.send(&destination, b"lost").unwrap().wait().unwrap();
    }
    if !departs(&b.context, Departure::LongDatagramTakesReceive) {
        a.qp.send(&to_b, b"too long").unwrap().wait().unwrap();
    }
    assert!(received.try_wait().unwrap().is_none());
    let own_key = match departs(&a.context, Departure::OwnKeyNotUsed) {
        true => to_b,
        false => Destination { qkey: 0x8000_0001, ..to_b },
    };
    a.qp.send(&own_key, b"fits").unwrap().wait().unwrap();
    assert_eq!(received.wait_timeout(TIMEOUT).unwrap().expect("it").to_vec(), b"fits");
}

#[test]
fn a_buffer_needs_room_for_the_header() {
    let (a, b) = (Party::new(), Party::new());
    let buffer = b.local(HEADER);
    let error = b.qp.receive(&buffer.slice(0..HEADER - 1).unwrap()).unwrap_err();
    assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
    let received = b.qp.receive(&buffer.all()).unwrap();
    a.qp.send(&a.to(&b), b"").unwrap().wait().unwrap();
    assert!(received.wait().unwrap().is_empty());
}

/// Rules: UD-09
#[test]
fn the_traffic_class_of_the_address_is_in_the_header() {
    let (a, b) = (Party::new(), Party::new());
    let at_b = b.local(64);
    let received = b.qp.receive(&at_b.all()).unwrap();
    let to = Address { traffic_class: 0x5c, ..b.qp.endpoint().into() };
    let address = AddressHandle::new(&a.pd, to).unwrap();
    a.qp.send(&Destination { address, ..a.to(&b) }, b"").unwrap().wait().unwrap();
    let header = received.wait().unwrap().header().unwrap();
    assert_eq!(origin(header).1, 0x5c);
}

/// The source address of a header, and its traffic class. An IPv4 header is at the end of the place for IPv6's.
fn origin(header: [u8; HEADER]) -> (Gid, u8) {
    let mut gid = [0; 16];
    if header[0] >> 4 == 6 {
        gid.copy_from_slice(&header[8..24]);
        return (Gid(gid), header[0] << 4 | header[1] >> 4);
    }
    assert_eq!(header[20], 0x45, "an IPv4 header without options");
    gid[10..12].fill(0xff);
    gid[12..].copy_from_slice(&header[32..36]);
    (Gid(gid), header[21])
}

#[test]
fn an_address_that_cannot_be_used_here_is_refused() {
    let (a, b) = (Party::new(), Party::new());
    let here = Address::from(a.qp.endpoint());
    for wrong in [Address { port: 0, ..here }, Address { port: 77, ..here }] {
        let error = AddressHandle::new(&a.pd, wrong).unwrap_err();
        assert!(matches!(error, Error::Verb { verb: "ibv_create_ah", .. }), "{error}");
    }
    // An address handle of another opened device.
    let error = a.qp.send(&b.to(&a), b"").unwrap_err();
    assert_eq!(error, Error::OtherContext { what: "address handle" });
    // An address handle of another domain.
    let other = ProtectionDomain::new(&a.context).unwrap();
    let address = AddressHandle::new(&other, b.qp.endpoint()).unwrap();
    let to = Destination { address, ..a.to(&b) };
    match a.qp.send(&to, b"") {
        Ok(posted) => drop(posted.wait().unwrap_err()),
        Err(error) => assert!(matches!(error, Error::Verb { .. }), "{error}"),
    }
}

#[test]
fn a_posted_datagram_keeps_its_address_and_a_receive_its_buffer() {
    let (a, b) = (Party::new(), Party::new());
    let pages = Arc::new(Pages::new(4096).unwrap());
    let region = MemoryRegion::register(&b.pd, pages.clone(), Access::LOCAL_WRITE).unwrap();
    drop(b.qp.receive(&region.all()).unwrap());
    let later = b.qp.receive(&region.all()).unwrap();
    drop(region);
    let to_b = a.to(&b);
    let sent: Vec<_> = (0..8).map(|_| a.qp.send(&to_b, b"kept").unwrap()).collect();
    drop((to_b, a.pd));
    for posted in sent {
        posted.wait().unwrap();
    }
    // The first receive, whose ticket is gone, has taken the first datagram.
    let received = later.wait().unwrap();
    assert_eq!(received.to_vec(), b"kept");
    assert_eq!(Arc::strong_count(&pages), 2);
    drop(received);
    assert_eq!(Arc::strong_count(&pages), 1);
}

/// In any order of its handles' drops, a posted buffer stays until the queue pair is gone.
#[test]
fn a_posted_buffer_outlives_its_queue_pair() {
    let Party { qp, cq, pd, context } = Party::new();
    let pages = Arc::new(Pages::new(4096).unwrap());
    let region = MemoryRegion::register(&pd, pages.clone(), Access::LOCAL_WRITE).unwrap();
    let receiving = qp.receive(&region.all()).unwrap();
    let region = region.deregister().unwrap_err().returned;
    drop((region, cq, pd, context, qp));
    assert_eq!(Arc::strong_count(&pages), 2, "the ticket holds the queue pair");
    drop(receiving);
    assert_eq!(Arc::strong_count(&pages), 1);
}

fn group(last: u8) -> Gid {
    let mut gid = [0; 16];
    (gid[0], gid[1], gid[15]) = (0xff, 0x01, last);
    // A group of this host and this process alone, because tests run side by side.
    gid[8..12].copy_from_slice(&std::process::id().to_be_bytes());
    Gid(gid)
}

/// The host joins a group for as long as the socket lives. A kernel RoCE device gets group datagrams only if the host
/// has joined.
fn host_joins(group: Gid) -> Option<UdpSocket> {
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).ok()?;
    socket.join_multicast_v6(&group.0.into(), 0).ok()?;
    Some(socket)
}

impl Party {
    fn to_group(&self, group: Gid) -> Destination {
        let address = AddressHandle::new(&self.pd, group).unwrap();
        Destination { address, queue_pair: Destination::GROUP, qkey: QKEY }
    }
}

#[test]
fn every_member_of_a_group_receives_what_is_sent_to_it() {
    let (a, b, c) = (Party::new(), Party::new(), Party::new());
    let (at_b, at_c) = (b.local(128), c.local(128));
    let in_b = b.qp.receive(&at_b.all()).unwrap();
    let in_c = c.qp.receive(&at_c.all()).unwrap();
    let _host = host_joins(group(1));
    let memberships = [b.qp.join(group(1)).unwrap(), c.qp.join(group(1)).unwrap()];
    assert_eq!(memberships[0].group(), group(1));
    a.qp.send(&a.to_group(group(1)), b"all of you").unwrap().wait().unwrap();
    for received in [in_b.wait().unwrap(), in_c.wait().unwrap()] {
        assert_eq!(received.to_vec(), b"all of you");
        assert_eq!(received.source().queue_pair, a.qp.number());
    }
}

#[test]
fn a_membership_ends_with_its_last_guard() {
    let (a, b) = (Party::new(), Party::new());
    let at_b = b.local(128);
    let _host = host_joins(group(2));
    let (first, second) = (b.qp.join(group(2)).unwrap(), b.qp.join(group(2)).unwrap());
    drop(first);
    let received = b.qp.receive(&at_b.all()).unwrap();
    let to = a.to_group(group(2));
    a.qp.send(&to, b"still").unwrap().wait().unwrap();
    assert_eq!(received.wait().unwrap().to_vec(), b"still");
    drop(second);
    let received = b.qp.receive(&at_b.all()).unwrap();
    a.qp.send(&to, b"gone").unwrap().wait().unwrap();
    a.qp.send(&a.to(&b), b"to you").unwrap().wait().unwrap();
    assert_eq!(received.wait().unwrap().to_vec(), b"to you");
}

#[test]
fn a_member_stays_until_it_has_left() {
    let (a, b) = (Party::new(), Party::new());
    let at_b = b.local(128);
    let received = b.qp.receive(&at_b.all()).unwrap();
    let _host = host_joins(group(3));
    let membership = b.qp.join(group(3)).unwrap();
    drop(b);
    a.qp.send(&a.to_group(group(3)), b"here").unwrap().wait().unwrap();
    assert_eq!(received.wait().unwrap().to_vec(), b"here");
    drop(at_b);
    drop(membership);
}

#[test]
fn only_a_multicast_gid_can_be_joined() {
    let party = Party::new();
    let error = party.qp.join(party.qp.endpoint().gid).unwrap_err();
    assert!(matches!(error, Error::Verb { verb: "ibv_attach_mcast", .. }), "{error}");
}
