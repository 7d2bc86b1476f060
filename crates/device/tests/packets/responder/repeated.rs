//! Requests that come again.

use transom_device::execution::{Counted, QpEvent};
use transom_device::protection::Key;
use transom_device::qp::{QpState, Service};
use transom_device::queue::Status;
use transom_simulation::host::Host;
use transom_wire::Psn;
use transom_wire::packet::{Ending, Operation as Op, Packet};

use super::{AT, acks, data, statuses};
use crate::target::*;

/// What comes again is acknowledged and not carried out.
/// Rules: PSN-12
#[test]
fn a_repeated_write_or_send_is_only_acknowledged() {
    let mut target = target_of(Service::Rc);
    let key = target.env.region;
    target.post_receive(1, AT + 64, 64);
    let write = packet(0, Op::WriteOnly { reth: reth(AT, key, 2), immediate: None }, b"ab");
    let send = packet(1, SEND, b"cd");
    target.take_requests(&[write, send]);
    target.env.sent();
    assert_eq!(target.env.completed().len(), 1);
    target.env.put(AT, b"xy");
    assert_eq!(acks(&target.answer_to(write)), [(1, 0x1f, 2)], "as far as it has come");
    target.take_requests(&[write, send]);
    assert_eq!(acks(&target.env.sent()), [(1, 0x1f, 2)]);
    assert_eq!(target.env.bytes(AT, 2), b"xy");
    assert_eq!(target.env.completed(), []);
}

/// However many answers have waited for room, each takes its turn.
/// Rules: ACK-05, AT-10
#[test]
fn all_answers_that_waited_for_room_leave_in_order() {
    const ATOMICS: u32 = 40;
    let mut target = target_with(Service::Rc, 1, 64);
    let key = target.env.region.0;
    target.make_room(0);
    let add = Op::FetchAdd { address: AT, key, add: 1 };
    let adds: Vec<_> = (0..ATOMICS).map(|ahead| packet(ahead, add, &[])).collect();
    target.take_requests(&adds);
    assert_eq!(target.env.sent(), []);
    target.make_room(usize::MAX);
    let sent: Vec<_> = target.env.sent();
    assert!(sent.iter().all(|it| matches!(it.operation, Op::AtomicAcknowledge { .. })));
    let psns = (0..ATOMICS).map(|ahead| Psn::new(FIRST).plus(ahead));
    assert!(sent.iter().map(|it| it.psn).eq(psns), "{sent:?}");
}

/// A READ that comes again is carried out again, whole or from where the origin misses something.
/// Rules: PSN-13, PSN-14, PSN-16, PSN-22, PSN-25
#[test]
fn a_repeated_read_is_carried_out_again() {
    let mut target = target_of(Service::Rc);
    let key = target.env.region;
    let length = 3 * MTU;
    for read in 0..4 {
        let ask = packet(3 * read, Op::ReadRequest(reth(AT, key, length)), &[]);
        assert_eq!(target.answer_to(ask).len(), 3);
    }
    for read in 0..4 {
        let ask = packet(3 * read, Op::ReadRequest(reth(AT, key, length)), &[]);
        target.env.put(AT, &[read as u8]);
        let (psns, bytes) = data(&target.answer_to(ask));
        assert_eq!(psns, [3 * read, 3 * read + 1, 3 * read + 2]);
        assert_eq!(bytes[0], read as u8, "read anew");
    }
    // The middle third, and from there to the end.
    let middle = reth(AT + MTU as u64, key, MTU);
    let sent = target.answer_to(packet(4, Op::ReadRequest(middle), &[]));
    assert_eq!(data(&sent), (vec![4], target.env.bytes(AT + MTU as u64, MTU)));
    assert!(matches!(sent[0].operation, Op::ReadResponseOnly(aeth) if aeth.msn == 2));
    let rest = reth(AT + MTU as u64, key, 2 * MTU);
    let sent = target.answer_to(packet(4, Op::ReadRequest(rest), &[]));
    assert_eq!(data(&sent).0, [4, 5]);
    assert!(matches!(sent[0].operation, Op::ReadResponseFirst(_)));
    // What is no part of a kept READ is dropped.
    for (ahead, forged) in [
        (4, reth(AT, key, MTU)),
        (4, reth(AT + MTU as u64, key, 3 * MTU)),
        (4, reth(AT + MTU as u64, Key(key.0 ^ 1), MTU)),
        (3, reth(AT, key, 4 * MTU)),
        (0xff_fff0, reth(AT, key, MTU)),
    ] {
        assert_eq!(target.answer_to(packet(ahead, Op::ReadRequest(forged), &[])), [], "{forged:?}");
    }
    let forged = Op::FetchAdd { address: AT, key: key.0, add: 1 };
    assert_eq!(target.answer_to(packet(3, forged, &[])), [], "an atomic with a READ's number");
    assert_eq!(target.env.state(), QpState::Rts);
    // The fifth pushes the oldest out.
    target.answer_to(packet(12, Op::ReadRequest(reth(AT, key, 1)), &[]));
    assert_eq!(target.answer_to(packet(0, Op::ReadRequest(reth(AT, key, length)), &[])), []);
    assert_eq!(target.answer_to(packet(3, Op::ReadRequest(reth(AT, key, length)), &[])).len(), 3);
}

/// The key of a repeated READ is looked at anew. That it is refused now is no reason to end the
/// connection: its origin may have the data, and what comes next is served.
/// Rules: PSN-13, PSN-22, INV-24
#[test]
fn a_repeated_read_needs_its_key_still() {
    let mut target = target_of(Service::Rc);
    let access = transom_device::Access::REMOTE_READ | transom_device::Access::ZERO_BASED;
    let key = target.env.window(AT..AT + 0x1000, access);
    let read = packet(0, Op::ReadRequest(reth(16, key, MTU)), &[]);
    assert_eq!(target.answer_to(read).len(), 1);
    assert_eq!(
        data(&target.answer_to(read)).1,
        target.env.bytes(AT + 16, MTU),
        "by its own address"
    );
    target.env.invalidate(key).expect("it is bound");
    assert_eq!(acks(&target.answer_to(read)), [(0, 0x62, 1)]);
    assert_eq!((target.env.state(), target.env.events()), (QpState::Rts, vec![]));
    assert_eq!(target.env.reasons(), [transom_device::protection::Reason::FreeWindow]);
    assert!(target.qp.packets.is_idle());
    let region = target.env.region;
    let next = packet(1, Op::ReadRequest(reth(AT, region, MTU)), &[]);
    assert_eq!(data(&target.answer_to(next)).0, [1]);
    // What comes behind a repeat is answered, and the first time a READ is refused ends it all.
    target.take_requests(&[read, next]);
    let sent = target.env.sent();
    assert_eq!((acks(&sent[..1]), data(&sent[1..]).0), (vec![(0, 0x62, 2)], vec![1]));
    let new = packet(2, Op::ReadRequest(reth(16, key, MTU)), &[]);
    assert_eq!(acks(&target.answer_to(new)), [(2, 0x62, 2)]);
    assert_eq!(
        (target.env.state(), target.env.events()),
        (QpState::Error, vec![QpEvent::AccessError])
    );
}

/// However often the network repeats a READ, and whatever comes of it then, it counts once.
/// Rules: CC-11, PSN-13
#[test]
fn a_repeated_read_is_counted_once() {
    let mut target = target_of(Service::Rc);
    let key = target.env.window(AT..AT + 0x1000, transom_device::Access::REMOTE_READ);
    let length = MTU + 1;
    let read = packet(0, Op::ReadRequest(reth(AT, key, length)), &[]);
    target.answer_to(read);
    assert_eq!(target.env.counted(), [(Counted::REMOTE_READ, Some(length as u64))]);
    target.answer_to(read);
    assert_eq!(target.env.counted(), []);
    target.env.invalidate(key).expect("it is bound");
    assert_eq!(acks(&target.answer_to(read)), [(0, 0x62, 1)]);
    assert_eq!((target.env.counted(), target.env.reasons().len()), (vec![], 1));
    target.answer_to(packet(2, Op::ReadRequest(reth(AT, key, length)), &[]));
    assert_eq!(target.env.counted(), [(Counted::REMOTE_READ, None)]);
}

/// Atomics, ATOMIC WRITE and FLUSH are done once; when they come again their answer does.
/// Rules: AT-10, AT-20, PSN-05, PSN-15, FL-11
#[test]
fn a_repeated_atomic_is_answered_from_memory() {
    let mut target = target_of(Service::Rc);
    let key = target.env.region.0;
    target.env.put(AT, &5_u64.to_ne_bytes());
    let add = packet(0, Op::FetchAdd { address: AT, key, add: 2 }, &[]);
    let swap = packet(1, Op::CompareSwap { address: AT, key, swap: 9, compare: 7 }, &[]);
    let bytes = 1_u64.to_ne_bytes();
    let write = packet(2, Op::AtomicWrite(reth(AT, Key(key), 8)), &bytes);
    let flush = Op::Flush { placement: 1, selectivity: 0, reth: reth(AT, Key(key), 8) };
    let flush = packet(3, flush, &[]);
    let word = |target: &Host| u64::from_ne_bytes(target.env.bytes(AT, 8).try_into().unwrap());
    let mut first = Vec::new();
    for (ask, after) in [(add, 7), (swap, 9), (write, 1), (flush, 1)] {
        first.push(target.answer_to(ask));
        assert_eq!((first.last().unwrap().len(), word(&target)), (1, after));
    }
    assert!(matches!(first[0][0].operation, Op::AtomicAcknowledge { old: 5, .. }));
    assert!(matches!(first[1][0].operation, Op::AtomicAcknowledge { old: 7, .. }));
    assert!(matches!(first[2][0].operation, Op::ReadResponseOnly(aeth) if aeth.msn == 3));
    assert!(matches!(first[3][0].operation, Op::ReadResponseOnly(_)));
    target.env.put(AT, &100_u64.to_ne_bytes());
    for _ in 0..2 {
        for (ask, answer) in [add, swap, write, flush].iter().zip(&first) {
            assert_eq!(target.answer_to(*ask), *answer);
        }
    }
    target.take_requests(&[add, swap, write, flush]);
    assert_eq!(target.env.sent(), first.concat());
    assert_eq!(word(&target), 100);
    // Forgotten, once four more have come.
    for ahead in 4..8 {
        assert_eq!(target.answer_to(Packet { psn: Psn::new(FIRST).plus(ahead), ..add }).len(), 1);
    }
    assert_eq!((target.answer_to(add), word(&target)), (vec![], 108));
}

/// A SEND that comes again is acknowledged only as far as no READ or atomic lies between, whose answer
/// the origin still needs.
/// Rules: PSN-12, PSN-23
#[test]
fn a_repeated_send_acknowledges_no_atomic() {
    let mut target = target_of(Service::Rc);
    let key = target.env.region.0;
    target.post_receive(1, AT + 64, 8);
    target.post_receive(2, AT + 64, 8);
    let add = packet(1, Op::FetchAdd { address: AT, key, add: 2 }, &[]);
    target.take_requests(&[packet(0, SEND, b"0"), add, packet(2, SEND, b"2")]);
    target.env.sent();
    assert_eq!(acks(&target.answer_to(packet(0, SEND, b"0"))), [(0, 0x1f, 3)]);
    assert_eq!(acks(&target.answer_to(packet(2, SEND, b"2"))), [(2, 0x1f, 3)]);
    target.take_requests(&[packet(0, SEND, b"0"), add, packet(2, SEND, b"2")]);
    let sent = target.env.sent();
    assert!(matches!(sent[0].operation, Op::AtomicAcknowledge { .. }));
    assert_eq!(acks(&sent[1..]), [(2, 0x1f, 3)]);
}

/// A repeated atomic holds nothing back for which the link has room: a message behind it without a
/// receive is told so, and an invalidation is carried out.
/// Rules: RN-01, PSN-15
#[test]
fn a_repeated_atomic_holds_nothing_back() {
    let mut target = target_of(Service::Rc);
    let window = target.env.window(AT..AT + 0x1000, transom_device::Access::REMOTE_READ);
    let add = Op::FetchAdd { address: AT, key: target.env.region.0, add: 2 };
    let add = packet(0, add, &[]);
    target.answer_to(add);
    let send = packet(1, Op::SendOnly(Ending::Invalidate(window.0)), b"done");
    target.take_requests(&[add, send]);
    let sent = target.env.sent();
    assert!(matches!(sent[0].operation, Op::AtomicAcknowledge { .. }));
    assert_eq!(acks(&sent[1..]), [(1, 0x2c, 1)]);
    target.post_receive(1, AT + 0x1000, 8);
    target.take_requests(&[add, send]);
    let sent = target.env.sent();
    assert!(matches!(sent[0].operation, Op::AtomicAcknowledge { .. }));
    assert_eq!(acks(&sent[1..]), [(1, 0x1f, 2)]);
}

/// A SEND that invalidates and comes again, its acknowledgement being lost, invalidates nothing again:
/// neither a free window nor one that has been bound with the same key since.
/// Rules: INV-46, PSN-12
#[test]
fn a_repeated_invalidation_is_only_acknowledged() {
    let mut target = target_of(Service::Rc);
    let (range, access) = (AT..AT + 0x1000, transom_device::Access::REMOTE_READ);
    let key = target.env.window(range.clone(), access);
    target.post_receive(1, AT + 0x2000, 8);
    target.post_receive(2, AT + 0x2000, 8);
    let send = packet(0, Op::SendOnly(Ending::Invalidate(key.0)), b"done");
    assert_eq!(acks(&target.answer_to(send)), [(0, 0x1f, 1)]);
    assert_eq!(statuses(&target.env.completed()), [(1, Status::Success)]);
    assert_eq!(acks(&target.answer_to(send)), [(0, 0x1f, 1)]);
    target.env.bind(key, range, access);
    assert_eq!(acks(&target.answer_to(send)), [(0, 0x1f, 1)]);
    assert_eq!((target.env.completed(), target.env.state()), (vec![], QpState::Rts));
    assert_eq!((target.env.events(), target.env.reasons()), (vec![], vec![]));
    let read = packet(1, Op::ReadRequest(reth(AT, key, 5)), &[]);
    assert_eq!(
        data(&target.answer_to(read)).1,
        target.env.bytes(AT, 5),
        "the window is bound still"
    );
}
