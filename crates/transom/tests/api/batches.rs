//! Requests posted at once, all or none.

use crate::common::{Departure, Pair, Party, bytes_of, context, departs, need, status};
use std::thread;
use transom::{
    Access, AddressHandle, CompletionQueue, Destination, Error, MemoryRegion, Operation,
    ProtectionDomain, QueuePair, Request, Service, Status,
};

const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC);

/// A party that builds batches, and its peer, which does not.
fn pair(service: Service, sends: u32) -> (Party, Party) {
    let party = |batches: bool| {
        let context = context();
        let pd = ProtectionDomain::new(&context).unwrap();
        let cq = CompletionQueue::new(&context, 64).unwrap();
        let builder = QueuePair::builder(&pd, &cq).max_sends(sends);
        let builder = if batches { builder.batches() } else { builder };
        let qp = builder.service(service).build().unwrap();
        (qp, cq, pd, context)
    };
    connect(party(true), party(false))
}

type Unconnected =
    (QueuePair<transom::Initialized>, CompletionQueue, ProtectionDomain, transom::Context);

fn connect(a: Unconnected, b: Unconnected) -> (Party, Party) {
    let (at_a, at_b) = (a.0.endpoint(), b.0.endpoint());
    let party = |(qp, cq, pd, context): Unconnected, at| Party {
        qp: qp.connect(at).unwrap(),
        cq,
        pd,
        context,
    };
    (party(a, &at_b), party(b, &at_a))
}

fn open(party: &Party, bytes: &[u8]) -> MemoryRegion<Vec<u8>> {
    MemoryRegion::register(&party.pd, bytes.to_vec(), ALL).unwrap()
}

/// Rules: PS-14
#[test]
fn a_batch_has_every_operation_and_keeps_their_order() {
    let (a, b) = pair(Service::ReliableConnection, 64);
    let (remote, local) = (open(&b, &[0; 48]), a.local(40));
    local.write_at(0, b"gathered").unwrap();
    let part = |range| local.slice(range).unwrap();
    let at = |range| remote.grant().slice(range).unwrap();
    let window = transom::Window::<transom::Type2>::alloc(&b.pd).unwrap();
    let bindable = b.bindable(&[0; 8]);
    let window = window.bind(&b.qp, &bindable.all(), transom::Rights::READ).unwrap();
    let window = window.wait().unwrap();

    let into = b.local(32);
    let received: Vec<_> =
        (0..4).map(|i| b.qp.receive(&[into.slice(i * 8..i * 8 + 8).unwrap()]).unwrap()).collect();
    let (gather, read) = ([part(4..8), part(0..4)], [part(8..16)]);
    let (added, swapped) = (part(16..24), part(24..32));
    let posted =
        a.qp.batch()
            .push(Request::write(&gather, at(0..8)))
            .push(Request::write_immediate(b"inline", at(8..16), 1))
            .push(Request::write(&1u64.to_ne_bytes(), at(16..24)))
            .push(Request::fetch_add(&added, at(16..24), 6))
            .push(Request::compare_swap(&swapped, at(16..24), 7, 99))
            .push(Request::read(&read, at(16..24)).fence())
            .push(Request::send(&gather))
            .push(Request::send_immediate(b"told", 2))
            .push(Request::send_invalidate(b"", window.grant().rkey))
            .post()
            .unwrap();
    let operations: Vec<_> =
        posted.into_iter().map(|request| request.wait().unwrap().operation()).collect();
    use Operation::*;
    assert_eq!(operations, [Write, Write, Write, FetchAdd, CompareSwap, Read, Send, Send, Send]);

    let received: Vec<_> = received.into_iter().map(|posted| posted.wait().unwrap()).collect();
    assert_eq!((received[0].operation(), received[0].immediate()), (ReceiveWrite, Some(1)));
    assert_eq!((received[1].length(), received[2].immediate()), (8, Some(2)));
    if !departs(&b.context, Departure::InvalidatedKeyUnnamed) {
        window.revoked_by(&received[3]).unwrap();
    }
    assert_eq!(&bytes_of(&into)[8..20], b"eredgathtold");
    let bytes = bytes_of(&remote);
    assert_eq!(&bytes[..16], b"eredgathinline\0\0");
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
    let local = bytes_of(&local);
    assert_eq!((word(&local[16..24]), word(&local[24..32])), (1, 7));
    assert_eq!((word(&local[8..16]), word(&bytes[16..24])), (99, 99));
}

/// Rules: PS-14
#[test]
fn a_batch_that_cannot_be_posted_leaves_nothing_behind() {
    let (a, b) = pair(Service::ReliableConnection, 4);
    let remote = open(&b, &[0; 8]);
    let good = || Request::write(b"written!", remote.grant());
    let long = [1; 4096];
    let room = a.qp.max_sends().unwrap();
    let mut refused = vec![
        // Too many inline bytes, too many requests, or more than the grant.
        a.qp.batch().push(good()).push(Request::send(&long)),
        (0..=room).fold(a.qp.batch(), |batch, _| batch.push(good())),
        a.qp.batch().push(good()).push(Request::write(b"nine byte", remote.grant())),
    ];
    if a.context.attributes().unwrap().atomic_writes {
        // Not requested when the queue pair was built.
        let batch = a.qp.batch().push(good());
        refused.push(batch.push(Request::atomic_write(b"8 bytes!", remote.grant())));
    }
    for batch in refused {
        let count = batch.len();
        let error = batch.post().unwrap_err();
        assert!(matches!(error, Error::Verb { .. } | Error::OutOfRange { .. }), "{error}");
        println!("{count} requests: {error}");
    }
    drop(a.qp.batch().push(good()));
    assert!(a.qp.batch().is_empty());
    assert!(a.qp.batch().post().unwrap().is_empty());
    assert_eq!(bytes_of(&remote), [0; 8]);
    // All room is free again.
    let full = (0..room).fold(a.qp.batch(), |batch, _| batch.push(good()));
    for request in full.post().unwrap() {
        request.wait().unwrap();
    }
    assert_eq!(bytes_of(&remote), b"written!");
}

#[test]
fn a_batch_does_not_overrun_the_completion_queue() {
    let context = context();
    let pd = ProtectionDomain::new(&context).unwrap();
    let cq = CompletionQueue::new(&context, 2).unwrap();
    let builder = QueuePair::builder(&pd, &cq).max_sends(512).batches();
    let party =
        |cq: &CompletionQueue| (builder.build().unwrap(), cq.clone(), pd.clone(), context.clone());
    let (a, _b) = connect(party(&cq), party(&cq));
    let entries = cq.entries();
    let sends = |count| (0..count).fold(a.qp.batch(), |batch, _| batch.push(Request::send(b"")));
    let error = sends(entries + 1).post().unwrap_err();
    assert_eq!(error, Error::CompletionQueueFull { entries });
    let posted = sends(entries).post().unwrap();
    assert_eq!(sends(1).post().unwrap_err(), Error::CompletionQueueFull { entries });
    a.qp.fail().unwrap();
    for request in posted {
        assert_eq!(status(request.wait().unwrap_err()), Status::Flushed);
    }
}

#[test]
fn a_device_is_asked_only_for_what_the_service_has() {
    let (party, _peer) = pair(Service::ReliableConnection, 4);
    let builder = QueuePair::builder(&party.pd, &party.cq).atomic_writes();
    let error = builder.service(Service::UnreliableConnection).build().unwrap_err();
    assert!(matches!(error, Error::Verb { verb: "ibv_create_qp_ex", .. }), "{error}");
    assert_eq!(error.errno(), Some(rustix::io::Errno::OPNOTSUPP.raw_os_error()), "{error}");
}

#[test]
fn batches_must_be_asked_for() {
    let Pair { owner, peer: _peer } = Pair::new();
    let error = owner.qp.batch().push(Request::send(b"")).post().unwrap_err();
    assert_eq!(error, Error::NotForBatches);
}

/// Threads that post to one queue pair wait for each other, and keep their batches whole.
#[test]
fn batches_of_several_threads_do_not_mix() {
    let (a, b) = pair(Service::ReliableConnection, 64);
    let remote = open(&b, &[0; 8]);
    let into = b.local(8 * 4 * 8);
    let receive = |index: usize| b.qp.receive(&[into.slice(index * 8..index * 8 + 8).unwrap()]);
    let received: Vec<_> = (0..32).map(|index| receive(index).unwrap()).collect();
    thread::scope(|scope| {
        for thread in 0..8u8 {
            let (qp, grant) = (&a.qp, remote.grant());
            scope.spawn(move || {
                let message = [thread; 8];
                let batch = (0..4).fold(qp.batch(), |batch, _| batch.push(Request::send(&message)));
                let posted = batch.push(Request::write(&message, grant)).post().unwrap();
                qp.write(b"one more", grant).unwrap().wait().unwrap();
                for request in posted {
                    request.wait().unwrap();
                }
            });
        }
    });
    for posted in received {
        posted.wait().unwrap();
    }
    for batch in bytes_of(&into).chunks(32) {
        assert!(batch.iter().all(|byte| *byte == batch[0]), "{batch:?}");
    }
}

#[test]
fn an_unreliable_connection_has_batches_of_its_operations() {
    let (a, b) = pair(Service::UnreliableConnection, 64);
    let (remote, local) = (open(&b, &[0; 8]), a.local(8));
    let read = [local.all()];
    let batch = a.qp.batch().push(Request::read(&read, remote.grant()));
    let error = batch.post().unwrap_err();
    assert!(matches!(error, Error::Verb { .. }), "{error}");
    let received = b.qp.receive(&[]).unwrap();
    let batch = a.qp.batch().push(Request::write(b"written!", remote.grant()));
    for request in batch.push(Request::send(b"")).post().unwrap() {
        request.wait().unwrap();
    }
    received.wait().unwrap();
    assert_eq!(bytes_of(&remote), b"written!");
}

#[test]
fn datagrams_to_several_peers_go_in_one_batch() {
    let context = context();
    let pd = ProtectionDomain::new(&context).unwrap();
    let cq = CompletionQueue::new(&context, 64).unwrap();
    let builder = QueuePair::datagram(&pd, &cq).qkey(5);
    let (x, y) = (builder.build().unwrap(), builder.build().unwrap());
    let a = builder.batches().build().unwrap();
    let region = MemoryRegion::register(&pd, vec![0; 128], Access::LOCAL_WRITE).unwrap();
    let at_x = x.receive(&region.slice(0..64).unwrap()).unwrap();
    let at_y = y.receive(&region.slice(64..128).unwrap()).unwrap();
    let to = |qp: &QueuePair<transom::Datagram>| Destination {
        address: AddressHandle::new(&pd, qp.endpoint()).unwrap(),
        queue_pair: qp.number(),
        qkey: 5,
    };
    let batch = a.batch().send(&to(&x), b"to x").send_immediate(&to(&y), b"to y", 3);
    for request in batch.post().unwrap() {
        request.wait().unwrap();
    }
    assert_eq!(at_x.wait().unwrap().to_vec(), b"to x");
    let at_y = at_y.wait().unwrap();
    assert_eq!((at_y.to_vec(), at_y.completion().immediate()), (b"to y".into(), Some(3)));
}

#[test]
fn an_atomic_write_is_posted_alone_or_in_a_batch() {
    let context = context();
    need!(context.attributes().unwrap().atomic_writes, "the device has no atomic writes");
    let pd = ProtectionDomain::new(&context).unwrap();
    let cq = CompletionQueue::new(&context, 64).unwrap();
    let party = || {
        let qp = QueuePair::builder(&pd, &cq).atomic_writes().build().unwrap();
        (qp, cq.clone(), pd.clone(), context.clone())
    };
    let (a, b) = connect(party(), party());
    let remote = open(&b, &[0; 24]);
    let at = |range| remote.grant().slice(range).unwrap();
    let completion = a.qp.atomic_write(b"plainly!", at(0..8)).unwrap().wait().unwrap();
    assert_eq!(completion.operation(), Operation::AtomicWrite);
    let batch = a.qp.batch().push(Request::atomic_write(b"together", at(8..16)));
    for request in batch.push(Request::write(b"withthis", at(16..24))).post().unwrap() {
        request.wait().unwrap();
    }
    assert_eq!(bytes_of(&remote), b"plainly!togetherwiththis");
    assert!(matches!(a.qp.atomic_write(b"too much", at(0..7)), Err(Error::OutOfRange { .. })));
    // Not aligned.
    let posted = a.qp.atomic_write(b"refused!", at(4..12)).unwrap();
    assert_eq!(status(posted.wait().unwrap_err()), Status::RemoteInvalidRequest);
    assert_eq!(bytes_of(&remote), b"plainly!togetherwiththis");
}
