//! Shared receive queues.

use crate::common::{Departure, TIMEOUT, context, departs, status};
use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;
use transom::{
    Access, AddressHandle, AsyncEvent, AsyncEventKind, CompletionQueue, Context, Destination,
    Error, MemoryRegion, Pages, Posted, ProtectionDomain, QueuePair, Service, SharedReceiveQueue,
    Status,
};

/// A server with a shared receive queue, and its other objects.
struct Server {
    shared: SharedReceiveQueue,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    context: Context,
}

impl Server {
    fn new(receives: u32) -> Self {
        let context = context();
        let pd = ProtectionDomain::new(&context).unwrap();
        let cq = CompletionQueue::new(&context, 256).unwrap();
        let shared = SharedReceiveQueue::new(&pd, &cq, receives, 2).unwrap();
        Self { shared, cq, pd, context }
    }

    /// A client and the server's end of its connection.
    fn accept(&self) -> (QueuePair, QueuePair) {
        let (_, client, end) = self.accept_from();
        (client, end)
    }

    /// A client with a context and a domain of its own, and the server's end of its connection.
    fn accept_from(&self) -> (ProtectionDomain, QueuePair, QueuePair) {
        let context = context();
        let pd = ProtectionDomain::new(&context).unwrap();
        let cq = CompletionQueue::new(&context, 64).unwrap();
        let client = QueuePair::builder(&pd, &cq).build().unwrap();
        // Sends complete into another queue.
        let sends = CompletionQueue::new(&self.context, 16).unwrap();
        let server = QueuePair::builder(&self.pd, &sends).shared_receives(&self.shared);
        let server = server.build().unwrap();
        let (at_client, at_server) = (client.endpoint(), server.endpoint());
        (pd, client.connect(&at_server).unwrap(), server.connect(&at_client).unwrap())
    }

    fn local(&self, length: usize) -> MemoryRegion<Vec<u8>> {
        MemoryRegion::register(&self.pd, vec![0; length], Access::LOCAL_WRITE).unwrap()
    }

    /// Posts receives of 8 bytes each, one after the other in the region.
    fn post(&self, region: &MemoryRegion<Vec<u8>>, count: usize) -> Vec<Posted> {
        let slice = |index| region.slice(index * 8..index * 8 + 8).unwrap();
        (0..count).map(|index| self.shared.receive(&[slice(index)]).unwrap()).collect()
    }
}

/// Rules: SQ-07, SQ-08
#[test]
fn a_receive_comes_back_by_whichever_queue_pair_takes_it() {
    let server = Server::new(16);
    let clients: Vec<_> = (0..3).map(|_| server.accept()).collect();
    let region = server.local(9 * 8);
    let received = server.post(&region, 9);
    for round in 0..3 {
        for (index, (client, _)) in clients.iter().enumerate() {
            let text = [b'0' + round, b'a' + index as u8];
            client.send(&text).unwrap().wait().unwrap();
        }
    }
    for (index, posted) in received.into_iter().enumerate() {
        let completion = posted.wait().unwrap();
        let (_, end) = &clients[index % 3];
        assert_eq!((completion.queue_pair(), completion.length()), (end.number(), 2));
        let mut bytes = [0; 2];
        region.read_at(index * 8, &mut bytes).unwrap();
        assert_eq!(bytes, [b'0' + (index / 3) as u8, b'a' + (index % 3) as u8]);
    }
    region.deregister().unwrap();
}

#[test]
fn a_long_message_is_scattered() {
    let server = Server::new(4);
    let (pd, client, _end) = server.accept_from();
    let size = 100_000;
    let region = server.local(size);
    let parts = [region.slice(size / 2..size).unwrap(), region.slice(0..size / 2).unwrap()];
    let received = server.shared.receive(&parts).unwrap();
    let bytes: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
    let sent = MemoryRegion::register(&pd, bytes.clone(), Access::empty()).unwrap();
    client.send(&[sent.all()]).unwrap().wait().unwrap();
    assert_eq!(received.wait().unwrap().length(), size);
    let mut into = vec![0; size / 2];
    parts[0].read_at(0, &mut into).unwrap();
    assert_eq!(into, bytes[..size / 2]);
    parts[1].read_at(0, &mut into).unwrap();
    assert_eq!(into, bytes[size / 2..]);
}

/// Rules: SQ-01, SQ-02, SQ-04
#[test]
fn the_limit_raises_one_event() {
    let server = Server::new(8);
    let (client, end) = server.accept();
    let region = server.local(64);
    let received = server.post(&region, 4);
    let capacity = server.shared.capacity().unwrap();
    let error = server.shared.arm_limit(capacity + 1).unwrap_err();
    assert!(matches!(error, Error::Verb { verb: "ibv_modify_srq", .. }), "{error}");
    assert_eq!(server.shared.limit().unwrap(), 0);

    server.shared.arm_limit(3).unwrap();
    assert_eq!(server.shared.limit().unwrap(), 3);
    let low = |server: &Server| loop {
        // The connection may raise an event of its own.
        match server.context.async_event(std::time::Duration::ZERO).unwrap() {
            Some(AsyncEvent { kind: AsyncEventKind::CommunicationEstablished, .. }) => {}
            other => return other,
        }
    };
    client.send(b"leaves 3").unwrap().wait().unwrap();
    assert_eq!(low(&server), None);
    client.send(b"leaves 2").unwrap().wait().unwrap();
    let event = server.context.async_event(TIMEOUT).unwrap();
    let expected = AsyncEvent {
        kind: AsyncEventKind::ReceivesRunLow,
        queue_pair: None,
        shared_receive_queue: Some(server.shared.handle()),
    };
    assert_eq!(event, Some(expected));
    assert_eq!(server.shared.limit().unwrap(), 0);
    client.send(b"leaves 1").unwrap().wait().unwrap();
    assert_eq!(low(&server), None);

    drop((received, end));
    // All other handles are gone. The event was acknowledged, so nothing waits for it.
    drop(server);
}

/// Rules: PS-12
#[test]
fn it_holds_as_many_as_it_says_and_can_grow() {
    let server = Server::new(4);
    let region = server.local(8);
    let capacity = server.shared.capacity().unwrap() as usize;
    assert!(capacity >= 4);
    let post = || server.shared.receive(&[region.all()]);
    let mut received: Vec<_> = (0..capacity).map(|_| post().unwrap()).collect();
    let error = post().unwrap_err();
    assert_eq!(error.errno(), Some(rustix::io::Errno::NOMEM.raw_os_error()), "{error}");
    assert!(error.to_string().contains("ibv_post_srq_recv"), "{error}");

    server.shared.resize(capacity as u32 + 4).unwrap();
    assert!(server.shared.capacity().unwrap() as usize >= capacity + 4);
    received.extend((0..4).map(|_| post().unwrap()));
    if !departs(&server.context, Departure::RefusedResizeKills) {
        assert!(server.shared.resize(1).is_err(), "more are posted");
    }
    let (client, _end) = server.accept();
    for posted in received {
        client.send(b"one").unwrap().wait().unwrap();
        assert_eq!(posted.wait().unwrap().length(), 3);
    }
}

#[test]
fn no_more_can_be_posted_than_complete() {
    let context = context();
    let pd = ProtectionDomain::new(&context).unwrap();
    let cq = CompletionQueue::new(&context, 2).unwrap();
    let shared = SharedReceiveQueue::new(&pd, &cq, 512, 1).unwrap();
    let entries = cq.entries();
    let received: Vec<_> = (0..entries).map(|_| shared.receive(&[]).unwrap()).collect();
    assert_eq!(shared.receive(&[]).unwrap_err(), Error::CompletionQueueFull { entries });
    drop((shared, received));
    // Dropping it releases the memory that it held.
    let shared = SharedReceiveQueue::new(&pd, &cq, 512, 1).unwrap();
    drop(shared.receive(&[]).unwrap());
}

#[test]
fn a_queue_pair_with_a_shared_queue_has_no_receives_of_its_own() {
    let server = Server::new(4);
    let (_client, end) = server.accept();
    assert_eq!(end.receive(&[]).unwrap_err(), Error::SharedReceives);
}

/// Rules: SQ-09
#[test]
fn a_queue_pair_that_fails_or_goes_leaves_the_receives_to_others() {
    let server = Server::new(8);
    let region = server.local(24);
    let mut received = server.post(&region, 3);
    let ((_first, failing), (_second, going), (client, _end)) =
        (server.accept(), server.accept(), server.accept());
    failing.fail().unwrap();
    drop(going);
    for posted in &mut received {
        assert!(posted.try_wait().unwrap().is_none());
    }
    for posted in received {
        client.send(b"for you").unwrap().wait().unwrap();
        assert_eq!(posted.wait().unwrap().length(), 7);
    }
}

/// A receive that is too short for a message ends with an error at both ends, once.
#[test]
fn a_receive_that_fails_comes_back_too() {
    let server = Server::new(8);
    let region = server.local(16);
    let mut received = server.post(&region, 2);
    let ((client, end), (other, _other_end)) = (server.accept(), server.accept());
    let (at_client, at_server) = match departs(&server.context, Departure::OtherStatus) {
        true => (Status::RemoteOperation, Status::LocalQueuePair),
        false => (Status::RemoteInvalidRequest, Status::LocalLength),
    };
    let error = client.send(b"more than eight").unwrap().wait().unwrap_err();
    assert_eq!(status(error), at_client);
    let second = received.pop().unwrap();
    let error = received.pop().unwrap().wait().unwrap_err();
    assert_eq!(status(error), at_server);
    assert!(end.has_failed().unwrap());
    drop((client, end));
    other.send(b"fits").unwrap().wait().unwrap();
    assert_eq!(second.wait().unwrap().length(), 4);
}

#[test]
fn the_largest_queue_that_the_device_tells_of_can_be_had() {
    let server = Server::new(1);
    let most = server.context.attributes().unwrap();
    let (receives, slices) = (most.max_shared_receives, most.max_shared_slices);
    assert!(most.max_shared_receive_queues > 0 && receives > 0 && slices > 0);
    let create =
        |receives, slices| SharedReceiveQueue::new(&server.pd, &server.cq, receives, slices);
    assert!(create(receives, slices).unwrap().capacity().unwrap() >= receives);
    assert!(create(receives + 1, 1).is_err());
    assert!(create(1, slices + 1).is_err());
    server.shared.resize(receives).unwrap();
    if !departs(&server.context, Departure::RefusedResizeKills) {
        assert!(server.shared.resize(receives + 1).is_err());
    }
}

/// Rules: CR-07
#[test]
fn what_cannot_share_is_refused() {
    let (server, other) = (Server::new(4), Server::new(4));
    let builder = QueuePair::builder(&server.pd, &server.cq);
    let unreliable = builder.clone().service(Service::UnreliableConnection);
    if !departs(&server.context, Departure::SharedByUnreliable) {
        let error = unreliable.shared_receives(&server.shared).build().unwrap_err();
        assert_eq!(error.errno(), Some(rustix::io::Errno::INVAL.raw_os_error()), "{error}");
    }
    let error = builder.shared_receives(&other.shared).build().unwrap_err();
    assert_eq!(error, Error::OtherContext { what: "shared receive queue" });
    let error = SharedReceiveQueue::new(&server.pd, &other.cq, 4, 1).unwrap_err();
    assert_eq!(error, Error::OtherContext { what: "completion queue" });
    for receives in [0, u32::MAX] {
        let error = SharedReceiveQueue::new(&server.pd, &server.cq, receives, 1).unwrap_err();
        assert!(matches!(error, Error::Verb { verb: "ibv_create_srq", .. }), "{error}");
    }
}

/// In any order of the handles' drops, a posted buffer stays registered until the shared queue and its queue pairs are
/// gone. Then it is released.
#[test]
fn a_posted_buffer_stays_in_every_order_of_drops() {
    for first in 0..6 {
        for second in 0..6 {
            let server = Server::new(4);
            let (client, end) = server.accept();
            let pages = Arc::new(Pages::new(4096).unwrap());
            let access = Access::LOCAL_WRITE;
            let region = MemoryRegion::register(&server.pd, pages.clone(), access).unwrap();
            // A receive that nobody waits for, and one with a waiter.
            drop(server.shared.receive(&[region.all()]).unwrap());
            let ticket = server.shared.receive(&[region.all()]).unwrap();
            let Server { shared, cq, pd, .. } = server;
            // Each with whether it holds the buffer.
            let mut handles: Vec<(bool, Box<dyn Any>)> = vec![
                (true, Box::new(shared)),
                (false, Box::new(cq)),
                (false, Box::new(pd)),
                (true, Box::new(region)),
                (true, Box::new((client, end))),
                (true, Box::new(ticket)),
            ];
            handles.swap(0, first);
            handles.swap(1, second);
            while let Some(handle) = handles.pop() {
                drop(handle);
                let held = handles.iter().any(|(holds, _)| *holds);
                assert_eq!(Arc::strong_count(&pages) == 2, held, "{first}, {second}");
            }
        }
    }
}

/// Rules: UD-01, SQ-07
#[test]
fn datagrams_share_receives_too() {
    let context = context();
    let pd = ProtectionDomain::new(&context).unwrap();
    let cq = CompletionQueue::new(&context, 64).unwrap();
    let shared = SharedReceiveQueue::datagram(&pd, &cq, 8).unwrap();
    let builder = QueuePair::datagram(&pd, &cq).qkey(7);
    let server = builder.clone().shared_receives(&shared);
    let (x, y, client) =
        (server.build().unwrap(), server.build().unwrap(), builder.build().unwrap());
    let region = MemoryRegion::register(&pd, vec![0; 200], Access::LOCAL_WRITE).unwrap();
    let error = shared.receive(&region.slice(0..39).unwrap()).unwrap_err();
    assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
    assert_eq!(x.receive(&region.all()).unwrap_err(), Error::SharedReceives);

    let receive = |start| shared.receive(&region.slice(start..start + 50).unwrap()).unwrap();
    let received = [receive(0), receive(50)];
    let back = client.receive(&region.slice(100..150).unwrap()).unwrap();
    let address = AddressHandle::new(&pd, x.endpoint()).unwrap();
    for (qp, text) in [(&y, b"to y"), (&x, b"to x")] {
        let to = Destination { address: address.clone(), queue_pair: qp.number(), qkey: 7 };
        client.send(&to, text).unwrap().wait().unwrap();
    }
    let received = received.map(|receiving| receiving.wait().unwrap());
    let taken_by: HashSet<_> =
        received.iter().map(|datagram| datagram.completion().queue_pair()).collect();
    assert_eq!(taken_by, HashSet::from([x.number(), y.number()]));
    assert_eq!((received[0].to_vec(), received[1].to_vec()), (b"to y".into(), b"to x".into()));
    x.send(&received[1].sender(&x, 7).unwrap(), b"back").unwrap().wait().unwrap();
    assert_eq!(back.wait().unwrap().to_vec(), b"back");
}
