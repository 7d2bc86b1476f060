//! The responder of a link that carries packets: order, duplicates, answers.

use transom_device::execution::{Injection, QpEvent, Segmentation};
use transom_device::protection::{Key, Reason};
use transom_device::qp::{QpState, Service};
use transom_device::queue::{Completion, Flags, Opcode, Status};
use transom_simulation::host::Host;
use transom_wire::Psn;
use transom_wire::packet::{Ending, Operation as Op, Packet, Transport};

use crate::target::*;

mod random;
mod refused;
mod repeated;
mod services;

/// Of each answer: how far behind [`FIRST`] its number is, its syndrome, its count of messages.
fn acks(sent: &[OwnedPacket]) -> Vec<(u32, u8, u32)> {
    let ahead = |psn: Psn| psn.value().wrapping_sub(FIRST) & 0xff_ffff;
    let all = sent.iter().map(|answer| match answer.operation {
        Op::Acknowledge(aeth) => (ahead(answer.psn), aeth.byte, aeth.msn),
        ref other => panic!("{other:?} is no acknowledgement"),
    });
    all.collect()
}

/// The data of READ responses, with their numbers.
fn data(sent: &[OwnedPacket]) -> (Vec<u32>, Vec<u8>) {
    let psns = sent.iter().map(|answer| answer.psn.value().wrapping_sub(FIRST) & 0xff_ffff);
    (psns.collect(), sent.iter().flat_map(|answer| answer.payload.clone()).collect())
}

fn statuses(done: &[Completion]) -> Vec<(u64, Status)> {
    done.iter().map(|done| (done.wr_id, done.status)).collect()
}

const AT: u64 = BASE + 0x2000;

/// Requests in order are carried out once each, across the end of the numbers.
/// Rules: PSN-01, PSN-10, PSN-20, ACK-01, ACK-03
#[test]
fn requests_in_order_are_carried_out() {
    let mut target = target_of(Service::Rc);
    let key = target.env.region;
    for wr_id in 0..6 {
        target.post_receive(wr_id, AT + 16 * wr_id, 16);
    }
    for ahead in 0..6_u8 {
        let sent = target.answer_to(packet(ahead.into(), SEND, &[ahead; 5]));
        assert_eq!(acks(&sent), [(ahead.into(), 0x1f, u32::from(ahead) + 1)]);
        assert_eq!(target.env.bytes(AT + 16 * u64::from(ahead), 5), [ahead; 5]);
    }
    let done = target.env.completed();
    assert_eq!(statuses(&done), (0..6).map(|id| (id, Status::Success)).collect::<Vec<_>>());
    assert!(done.iter().all(|done| (done.byte_length, done.opcode) == (5, Opcode::Receive)));
    let write = Op::WriteOnly { reth: reth(AT, key, 3), immediate: None };
    assert_eq!(acks(&target.answer_to(packet(6, write, b"abc"))), [(6, 0x1f, 7)]);
    assert_eq!(target.env.bytes(AT, 3), b"abc");
    assert_eq!(acks(&target.answer_to(unasked(7, write, b"xyz"))), []);
    assert_eq!(target.env.bytes(AT, 3), b"xyz");
}

/// The packets of a message that come together are copied in one step and acknowledged once.
#[test]
fn a_burst_is_one_copy_and_one_acknowledgement() {
    let mut target = target_of(Service::Rc);
    let key = target.env.region;
    let bytes: Vec<u8> = (0..4 * MTU - 7).map(|at| at as u8).collect();
    let parts: Vec<_> = bytes.chunks(MTU).collect();
    let write = [
        packet(0, Op::WriteFirst(reth(AT, key, bytes.len())), parts[0]),
        packet(1, Op::WriteMiddle, parts[1]),
        packet(2, Op::WriteMiddle, parts[2]),
        packet(3, Op::WriteLast { immediate: None }, parts[3]),
    ];
    target.take_requests(&write);
    assert_eq!(acks(&target.env.sent()), [(3, 0x1f, 1)]);
    assert_eq!((target.env.bytes(AT, bytes.len()), target.env.stored().len()), (bytes.clone(), 1));
    // A SEND into two buffers is two copies; here two messages come in one burst.
    target.post_receive(1, AT + 0x1000, 4 * MTU as u32);
    target.post_receive(2, AT + 0x2000, 8);
    let send = [
        unasked(4, Op::SendFirst, parts[0]),
        unasked(5, Op::SendMiddle, parts[1]),
        unasked(6, Op::SendMiddle, parts[2]),
        packet(7, Op::SendLast(Ending::Immediate(0x0102_0304)), parts[3]),
        Packet { solicited: true, ..packet(8, SEND, b"more") },
    ];
    target.take_requests(&send);
    assert_eq!(acks(&target.env.sent()), [(7, 0x1f, 2), (8, 0x1f, 3)]);
    assert_eq!(target.env.seen(), [1, 2], "each acknowledgement is out before its completion");
    assert_eq!(target.env.stored().len(), 2);
    assert_eq!(target.env.bytes(AT + 0x1000, bytes.len()), bytes);
    let done = target.env.completed();
    assert_eq!(statuses(&done), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(done[0].immediate.to_ne_bytes(), [1, 2, 3, 4]);
    assert_eq!((done[0].byte_length as usize, done[0].flags), (bytes.len(), Flags::IMMEDIATE));
}

/// Packets that come one by one make the same message.
#[test]
fn a_message_may_come_packet_by_packet() {
    let mut target = target_of(Service::Rc);
    target.post_receive(1, AT, 3 * MTU as u32);
    let full = [7; MTU];
    assert_eq!(target.answer_to(unasked(0, Op::SendFirst, &full)), []);
    assert_eq!(acks(&target.answer_to(packet(1, Op::SendMiddle, &full))), [(1, 0x1f, 0)]);
    let last = Packet { solicited: true, ..packet(2, Op::SendLast(Ending::Plain), &[8]) };
    assert_eq!(acks(&target.answer_to(last)), [(2, 0x1f, 1)]);
    assert_eq!(target.env.bytes(AT + 2 * MTU as u64 - 1, 2), [7, 8]);
    assert_eq!(target.env.solicited(), [true]);
}

/// A packet that comes too early is dropped, which is said once; the right one resumes. What came in
/// order is acknowledged before.
/// Rules: PSN-11, ACK-02
#[test]
fn a_gap_is_answered_once() {
    let mut target = target_of(Service::Rc);
    for wr_id in 0..4 {
        target.post_receive(wr_id, AT, 64);
    }
    assert_eq!(acks(&target.answer_to(packet(0, SEND, b"0"))), [(0, 0x1f, 1)]);
    assert_eq!(acks(&target.answer_to(packet(2, SEND, b"2"))), [(0, 0x1f, 1), (1, 0x60, 1)]);
    assert_eq!(target.answer_to(packet(3, SEND, b"3")), []);
    assert_eq!(target.answer_to(packet(2, SEND, b"2")), []);
    target.take_requests(&[packet(1, SEND, b"1"), packet(2, SEND, b"2"), packet(3, SEND, b"3")]);
    assert_eq!(acks(&target.env.sent()).last(), Some(&(3, 0x1f, 4)));
    assert_eq!(target.env.completed().len(), 4);
    let next_gap = acks(&target.answer_to(packet(6, SEND, b"6")));
    assert_eq!(next_gap, [(3, 0x1f, 4), (4, 0x60, 4)]);
    // A gap within a burst: what came before it counts.
    let mut target = target_of(Service::Rc);
    target.post_receive(0, AT, 64);
    target.take_requests(&[packet(0, SEND, b"0"), packet(2, SEND, b"2"), packet(3, SEND, b"3")]);
    let mut sent = acks(&target.env.sent());
    sent.dedup();
    assert_eq!(sent, [(0, 0x1f, 1), (1, 0x60, 1)]);
}

/// A sender that begins with an earlier number than was agreed is not taken for one that repeats
/// itself.
/// Rules: PSN-02
#[test]
fn what_comes_before_the_first_packet_is_dropped() {
    let mut target = target_of(Service::Rc);
    let key = target.env.region;
    let before = Psn::new(FIRST - 1);
    let write = packet(0, Op::WriteOnly { reth: reth(AT, key, 2), immediate: None }, b"ab");
    assert_eq!(target.answer_to(Packet { psn: before, ..write }), []);
    assert_eq!(acks(&target.answer_to(write)), [(0, 0x1f, 1)]);
    assert_eq!(target.answer_to(Packet { psn: before, ..write }), []);
}

/// Without a receive the origin is told to wait, and nothing else is taken until it comes back.
/// Rules: RN-01, RA-11, RA-12
#[test]
fn not_ready_consumes_nothing() {
    let mut target = target_of(Service::Rc);
    let key = target.env.region;
    assert_eq!(acks(&target.answer_to(packet(0, SEND, b"0"))), [(0, 0x2c, 0)]);
    let write = packet(1, Op::WriteOnly { reth: reth(AT, key, 1), immediate: None }, b"w");
    let before = target.env.bytes(AT, 1);
    assert_eq!(target.answer_to(write), []);
    assert_eq!(target.env.bytes(AT, 1), before);
    assert_eq!(acks(&target.answer_to(packet(0, SEND, b"0"))), [(0, 0x2c, 0)]);
    target.post_receive(1, AT + 64, 64);
    assert_eq!(acks(&target.answer_to(packet(0, SEND, b"0"))), [(0, 0x1f, 1)]);
    assert_eq!(acks(&target.answer_to(write)), [(1, 0x1f, 2)]);
    // WRITE with immediate needs its receive at the end only, and goes on from there.
    let full = [9; MTU];
    let last = packet(3, Op::WriteLast { immediate: Some(5) }, b"end");
    target.take_requests(&[unasked(2, Op::WriteFirst(reth(AT, key, MTU + 3)), &full), last]);
    assert_eq!(acks(&target.env.sent()), [(3, 0x2c, 2)]);
    assert_eq!(target.env.bytes(AT, MTU), full);
    target.post_receive(2, AT + 0x1000, 64);
    target.env.completed();
    assert_eq!(acks(&target.answer_to(last)), [(3, 0x1f, 3)]);
    assert_eq!(target.env.bytes(AT + MTU as u64, 3), b"end");
    let done = target.env.completed();
    assert_eq!(
        (done[0].byte_length as usize, done[0].opcode),
        (MTU + 3, Opcode::ReceiveWriteImmediate)
    );
}

/// The answer to a READ has the numbers of the READ, and one counts as acknowledgement of what was
/// before it.
/// Rules: PSN-03, PSN-04, ACK-05, ORD-09
#[test]
fn a_read_is_answered_in_its_numbers() {
    let mut target = target_of(Service::Rc);
    let key = target.env.region;
    let length = 2 * MTU + 5;
    let before = target.env.bytes(AT, length);
    let write = packet(0, Op::WriteOnly { reth: reth(AT, key, 3), immediate: None }, b"new");
    let read = packet(1, Op::ReadRequest(reth(AT, key, length)), &[]);
    let later = packet(4, Op::WriteOnly { reth: reth(AT, key, 5), immediate: None }, b"later");
    target.take_requests(&[write, read, later]);
    let sent = target.env.sent();
    let (psns, bytes) = data(&sent[..3]);
    assert_eq!(psns, [1, 2, 3]);
    assert_eq!((&bytes[..3], &bytes[3..]), (&b"new"[..], &before[3..]), "in order");
    assert!(matches!(sent[0].operation, Op::ReadResponseFirst(aeth) if aeth.msn == 2));
    assert_eq!(sent[1].operation, Op::ReadResponseMiddle);
    assert!(matches!(sent[2].operation, Op::ReadResponseLast(_)));
    assert_eq!(acks(&sent[3..]), [(4, 0x1f, 3)]);
    // A READ of nothing takes a number too, and looks at no key (rule RA-20).
    let nothing = packet(5, Op::ReadRequest(reth(0, Key(0xdead_beef), 0)), &[]);
    let sent = target.answer_to(nothing);
    assert_eq!(data(&sent), (vec![5], vec![]));
    assert!(matches!(sent[0].operation, Op::ReadResponseOnly(_)));
}

/// Answers wait for room on the link, in order, and what may be carried out meanwhile is.
/// Rules: ORD-08, ORD-25
#[test]
fn answers_wait_for_room_in_order() {
    let mut target = target_of(Service::Rc);
    let key = target.env.region;
    target.env.room.set(2);
    target.post_receive(1, AT + 0x1000, 64);
    target.env.put(AT, &7_u64.to_ne_bytes());
    let add = Op::FetchAdd { address: AT, key: key.0, add: 3 };
    target.take_requests(&[
        packet(0, Op::ReadRequest(reth(AT + 64, key, 3 * MTU)), &[]),
        packet(3, add, &[]),
        packet(4, Op::ReadRequest(reth(AT + 64, key, MTU)), &[]),
        packet(5, SEND, b"behind"),
    ]);
    assert_eq!(data(&target.env.sent()).0, [0, 1]);
    assert_eq!(target.env.completed().len(), 1, "the SEND does not wait");
    assert!(!target.qp.packets.is_idle());
    target.make_room(0);
    assert_eq!(target.env.sent(), []);
    target.make_room(2);
    let sent = target.env.sent();
    assert_eq!(data(&sent).0, [2, 3]);
    assert!(matches!(sent[1].operation, Op::AtomicAcknowledge { old: 7, .. }));
    target.make_room(16);
    let sent = target.env.sent();
    assert_eq!(data(&sent[..1]).0, [4]);
    assert_eq!(acks(&sent[1..]), [(5, 0x1f, 4)]);
    assert!(target.qp.packets.is_idle());
}

/// A burst of an answer that the link turns out to have no room for goes out later, and is not taken for
/// sent.
/// Rules: ORD-25
#[test]
fn an_answer_that_finds_no_room_is_made_again() {
    for full_at in 0..3 {
        let mut target = target_of(Service::Rc);
        let key = target.env.region;
        let two = 2 * MTU as u64;
        target.qp.packets.link =
            Segmentation { mtu: Some(MTU as u64), ..Segmentation::of_messages(two) };
        target.env.room.set(2 * full_at);
        let read = packet(0, Op::ReadRequest(reth(AT, key, 5 * MTU)), &[]);
        target.take_requests(&[read, packet(5, SEND, b"5")]);
        target.env.full.set(true);
        target.make_room(9);
        assert_eq!(data(&target.env.sent()).0, (0..2 * full_at as u32).collect::<Vec<_>>());
        assert!(!target.qp.packets.is_idle());
        target.make_room(9);
        let sent = target.env.sent();
        assert_eq!(data(&sent[..5 - 2 * full_at]).0, (2 * full_at as u32..5).collect::<Vec<_>>());
        assert!(target.qp.packets.is_idle());
    }
}

/// A packet that comes too early while answers wait is asked for after them: an earlier NAK would
/// call them lost. The READ is acknowledged by its data alone.
/// Rules: PSN-11, PSN-23
#[test]
fn a_gap_behind_a_waiting_read_is_answered_after_it() {
    let mut target = target_of(Service::Rc);
    let key = target.env.region;
    target.env.room.set(1);
    let read = packet(0, Op::ReadRequest(reth(AT, key, 2 * MTU)), &[]);
    target.take_requests(&[read, packet(3, SEND, b"3")]);
    assert_eq!(data(&target.env.sent()).0, [0]);
    target.make_room(5);
    let sent = target.env.sent();
    assert_eq!(data(&sent[..1]).0, [1]);
    assert_eq!(acks(&sent[1..]), [(2, 0x60, 1)]);
}

/// A request that will be refused waits for the answers to READs before it: its refusal would have the
/// origin take them for lost, from a target that says nothing any more.
/// Rules: RA-40, RA-50, PSN-23
#[test]
fn a_refusal_comes_after_the_answers_before_it() {
    let bad = Key(0x1234_5678);
    let key = target_of(Service::Rc).env.region.0;
    for (refused, syndrome) in [
        (packet(2, Op::WriteOnly { reth: reth(AT, bad, 1), immediate: None }, b"1"), 0x62),
        (packet(2, Op::ReadRequest(reth(AT, bad, 1)), &[]), 0x62),
        (packet(2, Op::FetchAdd { address: AT, key: bad.0, add: 1 }, &[]), 0x62),
        (packet(2, Op::FetchAdd { address: AT + 1, key, add: 1 }, &[]), 0x61),
        (packet(2, Op::SendMiddle, &[0; MTU]), 0x61),
    ] {
        is_refused_after_a_read(target_of(Service::Rc), refused, syndrome);
    }
}

/// The same for a SEND whose receive cannot take it; its receive is the same when it comes again.
/// Rules: RA-52, RA-53, PSN-23
#[test]
fn a_message_that_its_receive_cannot_take_is_refused_after_the_answers_before_it() {
    let send = packet(2, SEND, b"12345678");
    let mut small = target_of(Service::Rc);
    small.post_receive(1, AT, 4);
    let key = small.env.region;
    is_refused_after_a_read(small, send, 0x61);
    let mut elsewhere = target_of(Service::Rc);
    elsewhere.post_receive_with(1, AT, 8, Key(0x1234_5678));
    is_refused_after_a_read(elsewhere, send, 0x63);
    // Of a queue that is not there.
    let unknown = Transport::Xrc { srq: 77 };
    let write = Op::WriteOnly { reth: reth(AT, key, 1), immediate: Some(5) };
    for (operation, payload) in [(SEND, &b"12345678"[..]), (write, b"1")] {
        let refused = Packet { transport: unknown, ..packet(2, operation, payload) };
        is_refused_after_a_read(target_of(Service::XrcTarget), refused, 0x61);
    }
}

/// The same for what a user wants to be refused; a rule that counts does not count it twice.
/// Rules: RA-40, PSN-23
#[test]
fn a_refusal_that_a_user_wants_comes_after_the_answers_before_it() {
    let key = target_of(Service::Rc).env.region;
    for refused in [
        packet(2, Op::ReadRequest(reth(AT, key, 1)), &[]),
        packet(2, Op::WriteOnly { reth: reth(AT, key, 1), immediate: None }, b"1"),
        packet(2, SEND, b"1"),
    ] {
        let target = target_of(Service::Rc);
        let wanted = [None, Some(Injection::RemoteAccess)];
        target.env.injections.borrow_mut().extend(wanted);
        is_refused_after_a_read(target, refused, 0x62);
    }
}

/// A READ of two packets before a request that will be refused, with room for one.
fn is_refused_after_a_read(mut target: Host, refused: Packet<'_>, syndrome: u8) {
    target.env.room.set(1);
    let read = Op::ReadRequest(reth(AT, target.env.region, 2 * MTU));
    let transport = match refused.transport {
        Transport::Xrc { .. } => Transport::Xrc { srq: SRQ },
        other => other,
    };
    let read = Packet { transport, ..packet(0, read, &[]) };
    target.take_requests(&[read, refused]);
    assert_eq!(data(&target.env.sent()).0, [0]);
    assert_eq!(target.env.state(), QpState::Rts, "{refused:?}");
    target.make_room(9);
    let sent = target.env.sent();
    assert_eq!(data(&sent[..1]).0, [1]);
    assert_eq!(acks(&sent[1..]), [(2, 0x60, 1)], "{refused:?}");
    assert_eq!(acks(&target.answer_to(refused)), [(2, syndrome, 1)], "{refused:?}");
    assert_eq!(target.env.state(), QpState::Error);
}

/// A READ whose key is taken away while its answer goes out ends in a NAK with the number of the
/// first response that is missing.
/// Rules: INV-23, INV-24, ACK-02
#[test]
fn a_read_ends_with_its_key() {
    let mut target = target_of(Service::Rc);
    let key = target.env.window(AT..AT + 0x1000, transom_device::Access::REMOTE_READ);
    target.env.room.set(2);
    let read = packet(0, Op::ReadRequest(reth(AT, key, 5 * MTU)), &[]);
    assert_eq!(target.answer_to(read).len(), 2);
    target.env.invalidate(key).expect("it is bound");
    target.make_room(9);
    assert_eq!(acks(&target.env.sent()), [(2, 0x62, 1)]);
    assert_eq!(target.env.state(), QpState::Error);
    assert!(target.qp.packets.is_idle());
}

/// An invalidation waits for the READs before it.
/// Rules: ORD-18, ORD-19, ORD-20
#[test]
fn an_invalidation_waits_for_earlier_reads() {
    let mut target = target_of(Service::Rc);
    let key = target.env.window(AT..AT + 0x1000, transom_device::Access::REMOTE_READ);
    target.post_receive(1, AT + 0x1000, 8);
    target.env.room.set(1);
    let read = packet(0, Op::ReadRequest(reth(AT, key, 2 * MTU)), &[]);
    let send = packet(2, Op::SendOnly(Ending::Invalidate(key.0)), b"done");
    target.take_requests(&[read, send]);
    assert_eq!((data(&target.env.sent()).0, target.env.completed()), (vec![0], vec![]));
    target.make_room(9);
    let sent = target.env.sent();
    assert_eq!(data(&sent[..1]).0, [1]);
    assert_eq!(acks(&sent[1..]), [(2, 0x60, 1)]);
    assert_eq!(acks(&target.answer_to(send)), [(2, 0x1f, 2)]);
    let done = target.env.completed();
    assert_eq!((done[0].flags, done[0].immediate), (Flags::INVALIDATED, key.0));
    let again = packet(3, Op::ReadRequest(reth(AT, key, 1)), &[]);
    assert_eq!(acks(&target.answer_to(again)), [(3, 0x62, 2)]);
}

/// A violation is answered with the number of its packet, once; then the queue pair is silent.
/// Rules: RA-40, RA-43, RA-44, RA-54, RA-56, ACK-02, RA-35
#[test]
fn a_refused_request_is_answered_once() {
    let mut target = target_of(Service::Rc);
    let key = target.env.region;
    let full = [0xee; MTU];
    let at = REGION.end - MTU as u64;
    let before = target.env.bytes(BASE, MEMORY);
    // Only the last byte of the third packet is outside.
    let first = Op::WriteFirst(reth(at - MTU as u64, key, 2 * MTU + 1));
    let write = [
        packet(0, first, &full),
        packet(1, Op::WriteMiddle, &full),
        packet(2, Op::WriteLast { immediate: None }, &full[..1]),
    ];
    target.take_requests(&write);
    assert_eq!(acks(&target.env.sent()), [(0, 0x62, 0)]);
    assert_eq!(target.env.bytes(BASE, MEMORY), before);
    assert_eq!(target.env.events(), [QpEvent::AccessError]);
    assert_eq!((target.env.state(), target.env.reasons()), (QpState::Error, vec![Reason::PastEnd]));
    assert_eq!(target.answer_to(write[0]), []);
    let mut target = target_of(Service::Rc);
    let read = packet(0, Op::ReadRequest(reth(REGION.end - 7, key, 8)), &[]);
    assert_eq!(acks(&target.answer_to(read)), [(0, 0x62, 0)]);
    assert_eq!(target.answer_to(read), []);
}
