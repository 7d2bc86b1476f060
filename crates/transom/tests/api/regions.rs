//! Registering memory and getting it back.

use crate::common::{Pair, TIMEOUT, bytes_of, context, failure};
use std::sync::Arc;
use transom::{
    Access, AddressHandle, Destination, Error, MemoryRegion, Pages, ProtectionDomain, QueuePair,
    Request, Rights, SharedReceiveQueue, Status,
};

#[test]
fn a_region_gives_its_buffer_back() {
    let pd = ProtectionDomain::new(&context()).unwrap();
    let vector = MemoryRegion::register(&pd, b"a vector".to_vec(), Access::empty()).unwrap();
    assert_eq!(vector.deregister().unwrap(), b"a vector");
    let boxed: Box<[u8]> = b"a box".as_slice().into();
    let boxed = MemoryRegion::register(&pd, boxed, Access::LOCAL_WRITE).unwrap();
    boxed.write_at(2, b"fox").unwrap();
    assert_eq!(*boxed.deregister().unwrap(), *b"a fox");
    let pages = Pages::new(10).unwrap();
    let pages = MemoryRegion::register(&pd, pages, Access::LOCAL_WRITE).unwrap();
    pages.write_at(0, b"ten pages!").unwrap();
    assert_eq!(pages.deregister().unwrap().as_mut_slice(), b"ten pages!");
}

/// Rules: MR-04, MR-05
#[test]
fn a_refused_registration_gives_the_buffer_back() {
    let pd = ProtectionDomain::new(&context()).unwrap();
    for access in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
        let refused = MemoryRegion::register(&pd, vec![7; 3], access).unwrap_err();
        assert_eq!(refused.error.errno(), Some(rustix::io::Errno::INVAL.raw_os_error()));
        assert_eq!(refused.returned, [7; 3]);
    }
}

/// Rules: MR-17
#[test]
fn an_empty_region_is_one() {
    let pd = ProtectionDomain::new(&context()).unwrap();
    let region = MemoryRegion::register(&pd, Vec::new(), Access::empty()).unwrap();
    assert!(region.is_empty() && region.all().is_empty());
    assert!(region.deregister().unwrap().is_empty());
}

#[test]
fn nothing_outside_a_region_can_be_named() {
    let pd = ProtectionDomain::new(&context()).unwrap();
    let region = MemoryRegion::register(&pd, vec![0; 8], Access::LOCAL_WRITE).unwrap();
    assert_eq!(region.slice(3..8).unwrap().len(), 5);
    assert!(region.slice(8..8).unwrap().is_empty());
    for range in [0..9, 9..9, usize::MAX - 1..usize::MAX] {
        assert!(matches!(region.slice(range), Err(Error::OutOfRange { .. })));
    }
    assert!(region.read_at(7, &mut [0; 2]).is_err());
    assert!(region.write_at(usize::MAX, &[0; 2]).is_err());
}

#[test]
fn a_region_in_use_is_not_deregistered() {
    let pd = ProtectionDomain::new(&context()).unwrap();
    let region = MemoryRegion::register(&pd, vec![1], Access::empty()).unwrap();
    let (clone, slice) = (region.clone(), region.all());
    let refused = region.deregister().unwrap_err();
    assert_eq!(refused.error, Error::InUse { users: 2 });
    drop(slice);
    drop(refused.returned);
    assert_eq!(clone.deregister().unwrap(), [1]);
}

#[test]
fn an_outstanding_request_keeps_its_region() {
    let Pair { owner, peer } = Pair::new();
    let region = owner.local(4);
    let received = owner.qp.receive(&[region.all()]).unwrap();
    let region = region.deregister().unwrap_err().returned;
    // Even when nobody waits for it.
    drop(received);
    let region = region.deregister().unwrap_err().returned;
    peer.qp.send(b"here").unwrap().wait().unwrap();
    while owner.cq.wait(TIMEOUT).unwrap() == 0 {}
    assert_eq!(region.deregister().unwrap(), b"here");
}

#[test]
fn a_destroyed_queue_pair_lets_go_of_what_it_had_outstanding() {
    let Pair { owner, peer: _peer } = Pair::new();
    let region = owner.local(4);
    drop(owner.qp.receive(&[region.all()]).unwrap());
    let forgotten = owner.local(4);
    std::mem::forget(owner.qp.receive(&[forgotten.all()]).unwrap());
    let region = region.deregister().unwrap_err().returned;
    // The forgotten ticket still holds the queue pair, so everything stays.
    drop(owner.qp);
    region.deregister().unwrap_err();
    assert!(forgotten.deregister().is_err());

    let Pair { owner, peer: _peer } = Pair::new();
    let region = owner.local(4);
    drop(owner.qp.receive(&[region.all()]).unwrap());
    drop(owner.qp);
    region.deregister().unwrap();
}

#[test]
fn memory_of_another_opened_device_is_refused() {
    let Pair { owner, peer } = Pair::new();
    let foreign = [peer.local(64).all()];
    let remote = transom::RemoteSlice { addr: 0, rkey: 0, length: 64 };
    let shared = SharedReceiveQueue::new(&owner.pd, &owner.cq, 4, 1).unwrap();
    let datagrams = QueuePair::datagram(&owner.pd, &owner.cq).build().unwrap();
    let to = AddressHandle::new(&owner.pd, datagrams.endpoint()).unwrap();
    let to = Destination { address: to, queue_pair: datagrams.number(), qkey: 0 };
    let batches = QueuePair::builder(&owner.pd, &owner.cq).batches().build().unwrap();
    let batches = batches.connect(&peer.qp.endpoint()).unwrap();
    let refusals = [
        owner.qp.receive(&foreign).map(drop),
        owner.qp.send(&foreign).map(drop),
        owner.qp.write(&foreign, remote).map(drop),
        owner.qp.read(&foreign, remote).map(drop),
        owner.qp.fetch_add(&foreign[0], remote, 1).map(drop),
        shared.receive(&foreign).map(drop),
        datagrams.receive(&foreign[0]).map(drop),
        datagrams.send(&to, &foreign).map(drop),
        batches.batch().push(Request::send(&foreign)).post().map(drop),
    ];
    for refused in refusals {
        assert_eq!(refused.unwrap_err(), Error::OtherContext { what: "memory region" });
    }
    // The queue pair was not even asked.
    assert!(!owner.qp.has_failed().unwrap());
}

/// Rules: MR-25, RA-28
#[test]
fn pages_can_be_registered_twice_with_different_rights() {
    let Pair { owner, peer } = Pair::new();
    let pages = Arc::new(Pages::new(4096).unwrap());
    let readable = MemoryRegion::register(&owner.pd, pages.clone(), Access::REMOTE_READ).unwrap();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let writable = MemoryRegion::register(&owner.pd, pages.clone(), access).unwrap();
    assert_eq!(readable.grant().rights, Rights::READ);
    assert_eq!(writable.grant().rights, Rights::WRITE);

    peer.qp.write(b"shared", writable.grant()).unwrap().wait().unwrap();
    let local = peer.local(6);
    peer.qp.read(&[local.all()], readable.grant()).unwrap().wait().unwrap();
    assert_eq!(bytes_of(&local), b"shared");
    assert_eq!(failure(peer.qp.write(b"locked", readable.grant())), Status::RemoteAccess);
    let mut bytes = [0; 6];
    pages.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"shared");
}
