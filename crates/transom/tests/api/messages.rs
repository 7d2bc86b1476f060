//! Sends, writes, reads and related requests.

use crate::common::{Departure, Pair, TIMEOUT, bytes_of, departs, failure};
use std::time::Duration;
use transom::{
    Access, Error, Grant, MemoryRegion, Operation, QueuePair, RemoteSlice, Request, Rights,
    Service, Status, WorkError,
};

/// A region the peer may use without a window.
fn open_region(pair: &Pair, bytes: &[u8]) -> MemoryRegion<Vec<u8>> {
    let access =
        Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    MemoryRegion::register(&pair.owner.pd, bytes.to_vec(), access).unwrap()
}

/// Rules: LA-25
#[test]
fn a_message_is_gathered_and_scattered_in_order() {
    let Pair { owner, peer } = Pair::new();
    let (from, into) = (peer.local(32), owner.local(32));
    from.write_at(0, b"over the transom").unwrap();
    let part = |region: &MemoryRegion<_>, range| region.slice(range).unwrap();

    let slices = [part(&into, 20..23), part(&into, 9..9), part(&into, 0..8)];
    let received = owner.qp.receive(&slices).unwrap();
    let slices = [part(&from, 9..16), part(&from, 5..5), part(&from, 0..4)];
    let sent = peer.qp.send(&slices).unwrap().wait().unwrap();
    assert_eq!(sent.operation(), Operation::Send);
    assert_eq!(sent.queue_pair(), peer.qp.number());

    let received = received.wait().unwrap();
    assert_eq!((received.operation(), received.length()), (Operation::Receive, 11));
    assert_eq!((received.immediate(), received.invalidated_rkey()), (None, None));
    assert_eq!(received.queue_pair(), owner.qp.number());
    assert_eq!((received.source(), received.timestamp()), (None, None));
    let bytes = bytes_of(&into);
    assert_eq!((&bytes[20..23], &bytes[..8]), (&b"tra"[..], &b"nsomover"[..]));
}

/// Rules: LA-21, ORD-26
#[test]
fn plain_bytes_are_copied_while_posting() {
    let Pair { owner, peer } = Pair::new();
    let into = owner.local(8);
    let received = owner.qp.receive(&[into.all()]).unwrap();
    let mut bytes = *b"inline";
    let sent = peer.qp.send(&bytes).unwrap();
    bytes.fill(b'!');
    received.wait().unwrap();
    sent.wait().unwrap();
    assert_eq!(&bytes_of(&into), b"inline\0\0");
}

/// The error for too many inline bytes names their number and the option for the room.
/// Rules: LA-21, PS-04
#[test]
fn too_many_bytes_to_copy_are_told_with_their_number_and_what_limits_it() {
    let pair = Pair::new();
    let region = open_region(&pair, &[0; 4096]);
    let Pair { owner: _owner, peer } = pair;
    let long = [1; 4096];
    let errors = [
        ("a send", peer.qp.send(&long).map(drop)),
        ("a write", peer.qp.write(&long, region.grant()).map(drop)),
    ];
    for (name, error) in errors {
        let told = error.unwrap_err().to_string();
        let words =
            format!("posting {name} of 4096 bytes inline (at most the queue pair's max_inline) to");
        assert!(told.contains(&words), "{told}");
    }
    assert_eq!(bytes_of(&region), [0; 4096]);
}

/// Rules: LA-16
#[test]
fn an_empty_message_arrives() {
    let Pair { owner, peer } = Pair::new();
    let received = owner.qp.receive(&[]).unwrap();
    peer.qp.send(b"").unwrap().wait().unwrap();
    assert_eq!(received.wait().unwrap().length(), 0);
}

#[test]
fn immediate_data_arrives_as_it_was_sent() {
    let pair = Pair::new();
    let region = open_region(&pair, &[0; 8]);
    let Pair { owner, peer } = pair;

    let received = owner.qp.receive(&[]).unwrap();
    peer.qp.send_immediate(b"", 0x1234_5678).unwrap().wait().unwrap();
    assert_eq!(received.wait().unwrap().immediate(), Some(0x1234_5678));

    let received = owner.qp.receive(&[]).unwrap();
    peer.qp.write_immediate(b"eight by", region.grant(), 7).unwrap().wait().unwrap();
    let completion = received.wait().unwrap();
    assert_eq!(completion.operation(), Operation::ReceiveWrite);
    assert_eq!((completion.immediate(), completion.length()), (Some(7), 8));
    assert_eq!(bytes_of(&region), b"eight by");
}

#[test]
fn reads_and_writes_of_every_size_arrive() {
    let pair = Pair::new();
    let size = 1 << 20;
    let region = open_region(&pair, &vec![0; size]);
    let Pair { owner: _owner, peer } = pair;
    let pattern: Vec<u8> = (0..size).map(|i| (i * 7 + i / 251) as u8).collect();
    let (from, into) = (peer.local(size), peer.local(size));
    from.write_at(0, &pattern).unwrap();
    for length in [1, 7, 8, 4095, 4096, 4097, 65_536, size] {
        let at = RemoteSlice { length: length as u64, ..region.grant().into() };
        let from = from.slice(size - length..size).unwrap();
        peer.qp.write(&[from], at).unwrap().wait().unwrap();
        let local = into.slice(0..length).unwrap();
        let read = peer.qp.read(&[local], at).unwrap().wait().unwrap();
        assert_eq!(read.length(), length);
        assert!(bytes_of(&into)[..length] == pattern[size - length..], "{length} bytes");
    }
}

/// Rules: ORD-10
#[test]
fn a_fenced_send_waits_for_the_read_before_it() {
    let pair = Pair::new();
    let region = open_region(&pair, b"fetched!");
    let Pair { owner, peer } = pair;
    let (between, into) = (peer.local(8), owner.local(8));
    let received = owner.qp.receive(&[into.all()]).unwrap();
    let read = peer.qp.read(&[between.all()], region.grant()).unwrap();
    let forward = [between.all()];
    let sent = peer.qp.post(Request::send(&forward).fence()).unwrap();
    received.wait().unwrap();
    assert_eq!(bytes_of(&into), b"fetched!");
    read.wait().unwrap();
    sent.wait().unwrap();
}

#[test]
fn a_request_that_exceeds_the_grant_is_not_posted() {
    let Pair { owner: _owner, peer } = Pair::new();
    let local = peer.local(16);
    let grant = Grant { addr: 0x1000, rkey: 1, length: 8, rights: Rights::all() };
    let refused = [
        peer.qp.write(b"nine byte", grant),
        peer.qp.write(&[local.all()], grant),
        peer.qp.read(&[local.all()], grant),
        peer.qp.fetch_add(&local.slice(0..8).unwrap(), grant.slice(4..8).unwrap(), 1),
        peer.qp.fetch_add(&local.slice(0..4).unwrap(), grant, 1),
    ];
    for posted in refused {
        assert!(matches!(posted.unwrap_err(), Error::OutOfRange { .. }));
    }
    assert!(!peer.qp.has_failed().unwrap());
}

/// Rules: RA-23, RA-42
#[test]
fn after_a_refusal_the_later_requests_are_flushed() {
    let Pair { owner: _owner, peer } = Pair::new();
    let local = peer.local(8);
    let nowhere = RemoteSlice { addr: 0x1000, rkey: 0xdead_beef, length: 8 };
    let first = peer.qp.read(&[local.all()], nowhere).unwrap();
    let later: Vec<_> = (0..4).map(|_| peer.qp.send(b"more").unwrap()).collect();
    let Err(Error::Work(error)) = first.wait() else { panic!("the read cannot succeed") };
    let WorkError { operation, status, queue_pair, .. } = error;
    assert_eq!((operation, status), (Operation::Read, Status::RemoteAccess));
    assert_eq!(queue_pair, peer.qp.number());
    for posted in later {
        assert_eq!(failure(Ok(posted)), Status::Flushed);
    }
}

/// Rules: LA-02
#[test]
fn a_receive_into_read_only_memory_fails_at_both_ends() {
    let Pair { owner, peer } = Pair::new();
    let access = Access::REMOTE_READ;
    let region = MemoryRegion::register(&owner.pd, vec![0; 8], access).unwrap();
    let received = owner.qp.receive(&[region.all()]).unwrap();
    assert_eq!(failure(peer.qp.send(b"message")), Status::RemoteOperation);
    let expected = match departs(&owner.context, Departure::OtherStatus) {
        true => Status::LocalQueuePair,
        false => Status::LocalProtection,
    };
    assert_eq!(failure(Ok(received)), expected);
}

#[test]
fn a_queue_pair_told_to_fail_flushes_its_receives() {
    let Pair { owner, peer: _peer } = Pair::new();
    let region = owner.local(8);
    let received: Vec<_> = (0..60).map(|_| owner.qp.receive(&[region.all()]).unwrap()).collect();
    owner.qp.fail().unwrap();
    for posted in received {
        assert_eq!(failure(Ok(posted)), Status::Flushed);
    }
    assert!(owner.qp.has_failed().unwrap());
    if !departs(&owner.context, Departure::PostedInErrorStays) {
        assert_eq!(failure(owner.qp.receive(&[])), Status::Flushed);
    }
}

/// Rules: ST-19, ST-22
#[test]
fn a_queue_pair_that_refuses_a_peer_flushes_its_receives() {
    let Pair { owner, peer } = Pair::new();
    let region = owner.local(8);
    let received: Vec<_> = (0..60).map(|_| owner.qp.receive(&[region.all()]).unwrap()).collect();
    let nowhere = RemoteSlice { addr: 0x1000, rkey: 0xdead_beef, length: 8 };
    assert_eq!(failure(peer.qp.write(b"anything", nowhere)), Status::RemoteAccess);
    for posted in received {
        assert_eq!(failure(Ok(posted)), Status::Flushed);
    }
}

/// Rules: RA-48
#[test]
fn an_unreliable_connection_drops_what_is_refused() {
    let pair = Pair::with_service(Service::UnreliableConnection);
    let region = open_region(&pair, &[0; 8]);
    let Pair { owner, peer } = pair;
    let into = owner.local(4);
    let mut received = owner.qp.receive(&[into.all()]).unwrap();
    let wrong = RemoteSlice { rkey: region.grant().rkey ^ 1, ..region.grant().into() };
    peer.qp.write(b"refused", wrong).unwrap().wait().unwrap();
    peer.qp.write(b"written", region.grant()).unwrap().wait().unwrap();
    peer.qp.send(b"sent").unwrap().wait().unwrap();
    received.wait_timeout(TIMEOUT).unwrap().expect("the message");
    assert_eq!(bytes_of(&into), b"sent");
    assert_eq!(bytes_of(&region), b"written\0");
}

#[test]
fn a_message_that_nobody_receives_fails_after_the_repetitions_that_were_asked_for() {
    let Pair { owner, peer } = Pair::new();
    let builder = QueuePair::builder(&owner.pd, &owner.cq).receiver_not_ready_retries(1);
    let (a, b) = (builder.build().unwrap(), builder.build().unwrap());
    let (at_a, at_b) = (a.endpoint(), b.endpoint());
    let (a, _b) = (a.connect(&at_b).unwrap(), b.connect(&at_a).unwrap());
    assert_eq!(failure(a.send(b"nobody")), Status::ReceiverNotReady);
    assert!(a.has_failed().unwrap());

    // By default it waits for a receive.
    let mut sent = peer.qp.send(b"somebody").unwrap();
    assert!(sent.wait_timeout(Duration::from_millis(20)).unwrap().is_none());
    let received = owner.qp.receive(&[owner.local(8).all()]).unwrap();
    sent.wait().unwrap();
    received.wait().unwrap();
}
