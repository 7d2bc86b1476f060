//! Packets that may not be, at a responder: in the wrong place, of the wrong length, for others.

use transom_device::Access;
use transom_device::execution::QpEvent;
use transom_device::protection::{Key, Reason};
use transom_device::qp::{QpState, Service};
use transom_device::queue::Status;
use transom_simulation::host::Host;
use transom_wire::Psn;
use transom_wire::packet::{Aeth, Ending, Operation as Op, Packet, Reth, Transport};

use crate::target::*;

const AT: u64 = BASE + 0x2000;
const FULL: [u8; MTU] = [0xee; MTU];
const LAST: Op = Op::SendLast(Ending::Plain);

/// The only answer: how far behind [`FIRST`] its number is, and its syndrome.
fn syndrome(sent: &[OwnedPacket]) -> (u32, u8) {
    let [answer] = sent else { panic!("{sent:?} is not one answer") };
    let Op::Acknowledge(aeth) = answer.operation else { panic!("{answer:?} acknowledges nothing") };
    (answer.psn.value().wrapping_sub(FIRST) & 0xff_ffff, aeth.byte)
}

/// A queue pair with a receive posted that a message would go to, and the packets before the wrong
/// one carried out.
fn target_after(packets: &[Packet<'_>]) -> Host {
    let mut target = target_of(Service::Rc);
    target.post_receive(1, AT + 0x4000, 4 * MTU as u32);
    target.take_requests(packets);
    target.env.sent();
    target
}

/// Checks that the packet is refused as invalid, with its number, and nothing is written.
#[track_caller]
fn refused(before: &[Packet<'_>], wrong: Op, payload: &[u8], reason: Reason) -> Host {
    let mut target = target_after(before);
    let memory = target.env.bytes(BASE, MEMORY);
    let ahead = before.len() as u32;
    assert_eq!(
        syndrome(&target.answer_to(packet(ahead, wrong, payload))),
        (ahead, 0x61),
        "{wrong:?}"
    );
    assert_eq!(target.env.bytes(BASE, MEMORY), memory);
    assert_eq!((target.env.state(), target.env.reasons()), (QpState::Error, vec![reason]));
    assert_eq!(target.answer_to(packet(ahead, wrong, payload)), [], "once");
    target
}

/// Packets that cannot follow the one before them.
/// Rules: OP-30, RA-50, RA-51
#[test]
fn a_packet_out_of_sequence_is_an_invalid_request() {
    let range = reth(AT, target_of(Service::Rc).env.region, 4 * MTU);
    let Reth { address, key, .. } = range;
    let only = reth(AT, Key(key), 1);
    let begins = [
        (Op::SendFirst, &FULL[..]),
        (SEND, b"s"),
        (Op::WriteFirst(range), &FULL),
        (Op::WriteOnly { reth: only, immediate: None }, b"w"),
        (Op::ReadRequest(only), b""),
        (Op::FetchAdd { address, key, add: 1 }, b""),
        (Op::CompareSwap { address, key, swap: 1, compare: 1 }, b""),
        (Op::AtomicWrite(reth(AT, Key(key), 8)), &[0; 8]),
        (Op::Flush { placement: 1, selectivity: 0, reth: only }, b""),
    ];
    let order = Reason::PacketOrder;
    for (wrong, payload) in [
        (Op::SendMiddle, &FULL[..]),
        (LAST, b"s"),
        (Op::WriteMiddle, &FULL),
        (Op::WriteLast { immediate: None }, b"w"),
    ] {
        let target = refused(&[], wrong, payload, order);
        assert_eq!(target.env.events(), [QpEvent::RequestError]);
        assert_eq!(target.env.completed()[0].status, Status::Flushed);
    }
    let send = [unasked(0, Op::SendFirst, &FULL)];
    let write = [unasked(0, Op::WriteFirst(range), &FULL)];
    for (wrong, payload) in begins {
        refused(&send, wrong, payload, order);
        refused(&write, wrong, payload, order);
    }
    for (wrong, payload) in [(Op::SendMiddle, &FULL[..]), (LAST, b"s")] {
        refused(&write, wrong, payload, order);
    }
    for (wrong, payload) in
        [(Op::WriteMiddle, &FULL[..]), (Op::WriteLast { immediate: None }, b"w")]
    {
        refused(&send, wrong, payload, order);
    }
}

/// Opcodes that mean nothing.
/// Rules: OP-21, OP-33
#[test]
fn an_unknown_opcode_is_an_invalid_request() {
    for code in [0x15, 0x18, 0x1f] {
        refused(&[], Op::Reserved(code), b"", Reason::PacketOrder);
    }
    // That its number is right counts before.
    let mut target = target_of(Service::Rc);
    assert_eq!(syndrome(&target.answer_to(packet(1, Op::Reserved(0x15), b""))), (0, 0x60));
    assert_eq!(target.answer_to(packet(0xff_ffff, Op::Reserved(0x15), b"")), []);
    assert_eq!(target.env.state(), QpState::Rts);
}

/// Packets in the middle of a message are full, the last has a byte at least, and all of a WRITE's
/// together are what it said.
/// Rules: PK-09, PK-10, PK-12
#[test]
fn a_packet_of_a_wrong_length_is_an_invalid_request() {
    let key = target_of(Service::Rc).env.region;
    let (long, short) = ([1; MTU + 1], &FULL[..MTU - 1]);
    let length = Reason::PacketLength;
    let send = [unasked(0, Op::SendFirst, &FULL)];
    let sends = [
        (0, Op::SendFirst, short),
        (0, Op::SendFirst, &long),
        (0, SEND, &long),
        (1, Op::SendMiddle, short),
        (1, Op::SendMiddle, &long),
        (1, LAST, &long),
        (1, LAST, &[]),
    ];
    for (before, wrong, payload) in sends {
        let target = refused(&send[..before], wrong, payload, length);
        // The receive it would have taken says so, instead of an event.
        assert_eq!(target.env.completed()[0].status, Status::LocalLength);
        assert!(!target.env.events().contains(&QpEvent::RequestError));
    }
    let first = |length| Op::WriteFirst(reth(AT, key, length));
    let write = [unasked(0, first(2 * MTU + 3), &FULL), unasked(1, Op::WriteMiddle, &FULL)];
    let only = |length, immediate| Op::WriteOnly { reth: reth(AT, key, length), immediate };
    let plain = Op::WriteLast { immediate: None };
    let writes = [
        (0, first(2 * MTU), short),
        (0, first(MTU), &FULL),
        (0, first(MTU - 1), &FULL),
        (0, only(3, None), b"two".split_at(2).0),
        (0, only(3, None), b"four"),
        (0, only(MTU + 1, None), &long),
        (1, plain, &FULL),
        (1, plain, b"abc"),
        (2, plain, b""),
        (2, plain, b"ab"),
        (2, plain, b"abcd"),
        (2, Op::WriteMiddle, &FULL),
    ];
    for (before, wrong, payload) in writes {
        let target = refused(&write[..before], wrong, payload, length);
        assert!(target.env.events().contains(&QpEvent::RequestError));
    }
    let target = refused(&[], only(3, Some(1)), b"ab", length);
    assert_eq!(target.env.completed()[0].status, Status::LocalAccess);
    let Reth { address, key, .. } = reth(AT, key, 8);
    for (wrong, payload) in [
        (Op::ReadRequest(reth(AT, Key(key), 8)), &b"x"[..]),
        (Op::FetchAdd { address, key, add: 1 }, b"x"),
        (Op::AtomicWrite(reth(AT, Key(key), 8)), b"seven.."),
        (Op::AtomicWrite(reth(AT, Key(key), 7)), b"seven.."),
        (Op::AtomicWrite(reth(AT, Key(key), 8)), b""),
    ] {
        refused(&[], wrong, payload, length);
    }
}

/// More than 2^31 bytes are no message.
/// Rules: RA-39
#[test]
fn too_long_a_range_is_an_invalid_request() {
    let key = target_of(Service::Rc).env.region;
    let long = Reth { length: (1 << 31) + 1, ..reth(AT, key, 0) };
    refused(&[], Op::ReadRequest(long), b"", Reason::TooLong);
    refused(&[], Op::WriteFirst(long), &FULL, Reason::TooLong);
}

/// A message that is longer than its receive fails where it does not fit any more.
/// Rules: RA-53
#[test]
fn a_receive_that_is_too_small_fails_both_ends() {
    let mut target = target_of(Service::Rc);
    target.post_receive(1, AT, MTU as u32 + 1);
    assert_eq!(target.answer_to(unasked(0, Op::SendFirst, &FULL)), []);
    assert_eq!(syndrome(&target.answer_to(packet(1, LAST, b"ab"))), (1, 0x61));
    let done = target.env.completed();
    assert_eq!((done[0].wr_id, done[0].status), (1, Status::LocalLength));
    assert_eq!(target.env.state(), QpState::Error);
    assert!(!target.env.events().contains(&QpEvent::RequestError));
    let mut target = target_of(Service::Rc);
    target.post_receive_with(1, AT, 8, Key(0xdead_beef));
    assert_eq!(syndrome(&target.answer_to(packet(0, SEND, b"a"))), (0, 0x63), "rule RA-52");
    assert_eq!(target.env.completed()[0].status, Status::LocalProtection);
}

/// What the queue pair does not allow its peer.
/// Rules: RA-06, RA-08, RA-09, AT-11, AT-15, AT-19, FL-03, FL-09
#[test]
fn the_queue_pair_decides_before_the_key() {
    let junk = Key(0xdead_beef);
    let Reth { address, key, .. } = reth(AT, junk, 8);
    for operation in [
        Op::ReadRequest(reth(AT, junk, 8)),
        Op::FetchAdd { address, key, add: 1 },
        Op::Flush { placement: 1, selectivity: 0, reth: reth(AT, junk, 8) },
        Op::Flush { placement: 2, selectivity: 0, reth: reth(AT, junk, 8) },
        Op::AtomicWrite(reth(AT, junk, 8)),
        Op::WriteOnly { reth: reth(AT, junk, 8), immediate: None },
    ] {
        let carries = matches!(operation, Op::WriteOnly { .. } | Op::AtomicWrite(_));
        let bytes = if carries { &[0; 8][..] } else { &[] };
        let mut target = target_of(Service::Rc);
        target.env.gate(|gate| gate.access = Access::empty());
        assert_eq!(syndrome(&target.answer_to(packet(0, operation, bytes))), (0, 0x61));
        assert_eq!(target.env.reasons(), [Reason::QpRightMissing]);
        if !matches!(operation, Op::WriteOnly { .. }) {
            let mut target = target_of(Service::Rc);
            target.env.gate(|gate| gate.read_resources = 0);
            assert_eq!(syndrome(&target.answer_to(packet(0, operation, bytes))), (0, 0x61));
            assert_eq!(target.env.reasons(), [Reason::NoReadResources]);
        }
    }
    let mut target = target_of(Service::Rc);
    target.post_receive(1, AT, 8);
    target.env.gate(|gate| gate.access = Access::empty());
    assert_eq!(syndrome(&target.answer_to(packet(0, SEND, b"x"))), (0, 0x1f));
}

/// A FLUSH is told the right that it lacks, by the rule that asks for it, though region and queue pair
/// have all rights there are: of those to flush, a window has none, and nothing has that to persistence.
/// Rules: FL-01, FL-02, FL-06
#[test]
fn a_flush_is_told_the_right_it_lacks() {
    const GLOBAL: u8 = 1;
    const PERSISTENT: u8 = 2;
    let flush = |window: bool, placement, selectivity| {
        let mut target = target_of(Service::Rc);
        target.env.gate(|gate| gate.access = Access::all());
        let key = match window {
            true => target.env.window(AT..AT + 64, Access::REMOTE),
            false => target.env.region,
        };
        let operation = Op::Flush { placement, selectivity, reth: reth(AT, key, 64) };
        let sent = target.answer_to(packet(0, operation, b""));
        let refusals = target.env.refusals();
        let told = refusals.first().map(|refusal| {
            assert_eq!((syndrome(&sent), refusal.reason), ((0, 0x62), Reason::RightMissing));
            (refusal.attempt.operation.rights(), refusal.rule(), refusal.object.access)
        });
        assert_eq!(told.is_none(), target.env.state() == QpState::Rts);
        told.map(|(right, rule, granted)| {
            assert!(!granted.contains(right), "{granted} grants {right}");
            (right, rule)
        })
    };
    let global = Some((Access::FLUSH_GLOBAL, "FL-01"));
    let persistent = Some((Access::FLUSH_PERSISTENT, "FL-02"));
    for selectivity in [0, 1] {
        assert_eq!(flush(false, GLOBAL, selectivity), None);
        assert_eq!(flush(false, PERSISTENT, selectivity), persistent);
        assert_eq!(flush(false, GLOBAL | PERSISTENT, selectivity), persistent);
        assert_eq!(flush(true, GLOBAL, selectivity), global);
        assert_eq!(flush(true, PERSISTENT, selectivity), persistent);
        assert_eq!(flush(true, GLOBAL | PERSISTENT, selectivity), global);
    }
}

/// More READs and atomics than the queue pair said it takes.
/// Rules: RA-10, RN-13
#[test]
fn reads_beyond_the_limit_are_an_invalid_request() {
    let mut target = target_of(Service::Rc);
    let key = target.env.region;
    target.env.room.set(0);
    let read = |ahead| packet(ahead, Op::ReadRequest(reth(AT, key, 1)), &[]);
    let add = packet(3, Op::FetchAdd { address: AT, key: key.0, add: 1 }, &[]);
    target.take_requests(&[read(0), read(1), read(2), add]);
    // One that comes again while its answer waits is none more.
    target.take_requests(&[read(1), add]);
    target.make_room(9);
    assert_eq!(target.env.sent().len(), 4);
    target.env.room.set(0);
    target.take_requests(&[read(4), read(5), read(6), read(7)]);
    assert_eq!(target.env.state(), QpState::Rts);
    // The answer to an old one that is sent again takes no room of a new one.
    target.env.room.set(9);
    target.take_requests(&[]);
    target.env.sent();
    target.env.room.set(0);
    target.take_requests(&[read(6), read(8)]);
    assert_eq!(target.env.state(), QpState::Rts);
    target.take_requests(&[read(9), read(10), read(11)]);
    assert_eq!(target.env.sent(), []);
    assert_eq!(syndrome(&target.answer_to(read(12))), (12, 0x61));
    assert_eq!(target.env.reasons(), [Reason::NoReadResources]);
    assert_eq!(target.env.state(), QpState::Error);
}

/// The checks of an atomic's address and key.
/// Rules: AT-01, AT-02, AT-04, AT-12, AT-13
#[test]
fn atomics_are_checked() {
    let key = target_of(Service::Rc).env.region.0;
    for (address, key, code) in [(AT + 1, key, 0x61), (AT + 4, 5, 0x61), (AT, 5, 0x62)] {
        let mut target = target_of(Service::Rc);
        let add = packet(0, Op::FetchAdd { address, key, add: 1 }, &[]);
        assert_eq!(syndrome(&target.answer_to(add)), (0, code));
    }
    let mut target = target_of(Service::Rc);
    let zero = Access::REMOTE_ATOMIC | Access::ZERO_BASED;
    let window = target.env.window(AT + 4..AT + 64, zero);
    let add = packet(0, Op::FetchAdd { address: 0, key: window.0, add: 1 }, &[]);
    assert_eq!(syndrome(&target.answer_to(add)), (0, 0x61));
}

/// What is not for this queue pair leaves no trace, whatever else is wrong with it.
/// Rules: RA-01, RA-02, RA-03, OP-32, PK-14, NET-16, CNP-02, UD-08, NET-14, PK-16
#[test]
fn what_is_not_for_the_queue_pair_leaves_no_trace() {
    let mut target = target_of(Service::Rc);
    let key = target.env.region;
    let write = packet(0, Op::WriteOnly { reth: reth(AT, key, 1), immediate: None }, b"w");
    let aeth = Aeth { byte: 0x62, msn: 1 };
    let others = [
        Packet { transport: Transport::Uc, ..write },
        Packet { transport: Transport::Ud { qkey: QKEY, source: 5 }, ..write },
        Packet { transport: Transport::Xrc { srq: SRQ }, ..write },
        Packet { pkey: 0x1234, ..write },
        Packet { pkey: 0x8001, operation: Op::Reserved(0x15), ..write },
        Packet { operation: Op::Acknowledge(aeth), payload: &[], ..write },
        Packet { operation: Op::ReadResponseOnly(aeth), ..write },
        Packet { operation: Op::Congestion, payload: &[], ..write },
    ];
    let before = target.env.bytes(BASE, MEMORY);
    for other in others {
        assert_eq!(target.answer_to(other), [], "{other:?}");
        let late = Packet { psn: Psn::new(FIRST).plus(5), ..other };
        assert_eq!(target.answer_to(late), [], "{other:?}");
    }
    for state in [QpState::Reset, QpState::Init, QpState::Error] {
        target.env.gate(|gate| gate.state = state);
        assert_eq!(target.answer_to(write), []);
        assert_eq!(target.answer_to(packet(3, SEND, b"")), []);
    }
    assert_eq!(target.env.bytes(BASE, MEMORY), before);
    assert_eq!((target.env.events(), target.env.reasons()), (vec![], vec![]));
    // A limited member of the partition is let in, and marks are not looked at.
    let marked = Packet { pkey: 0x7fff, fecn: true, becn: true, migrated: false, ..write };
    for (at, state) in (0..).zip([QpState::Rtr, QpState::Rts, QpState::Sqd]) {
        target.env.gate(|gate| gate.state = state);
        let next = Packet { psn: Psn::new(FIRST).plus(at), ..marked };
        assert_eq!(syndrome(&target.answer_to(next)), (at, 0x1f), "{state:?}");
    }
}

/// Of several things that are wrong, the one that is looked at first decides.
/// Rules: RA-01
#[test]
fn the_earlier_check_decides() {
    let junk = Key(0xdead_beef);
    let Reth { address, key, .. } = reth(AT + 1, junk, 8);
    // Number before opcode.
    let mut target = target_of(Service::Rc);
    assert_eq!(syndrome(&target.answer_to(packet(1, Op::SendMiddle, b""))), (0, 0x60));
    // Sequence before length and key.
    refused(&[], Op::SendMiddle, b"", Reason::PacketOrder);
    let first = [unasked(0, Op::SendFirst, &FULL)];
    refused(&first, Op::FetchAdd { address, key, add: 1 }, b"", Reason::PacketOrder);
    // A receive before the length.
    let mut target = target_of(Service::Rc);
    assert_eq!(syndrome(&target.answer_to(packet(0, Op::SendFirst, b"short"))), (0, 0x2c));
    let wrong = Op::WriteOnly { reth: reth(AT, junk, 8), immediate: Some(1) };
    assert_eq!(syndrome(&target.answer_to(packet(0, wrong, b"short"))), (0, 0x2c));
    // The length before the key.
    let wrong = Op::WriteOnly { reth: reth(AT, junk, 8), immediate: None };
    refused(&[], wrong, b"short", Reason::PacketLength);
    assert_eq!(target.env.state(), QpState::Rts);
}

/// The key of a WRITE is looked at with each packet that comes by itself.
/// Rules: INV-23, RA-36
#[test]
fn a_write_ends_with_its_key() {
    let mut target = target_of(Service::Rc);
    let key = target.env.window(AT..AT + 0x1000, Access::REMOTE_WRITE);
    let first = Op::WriteFirst(reth(AT, key, 3 * MTU));
    assert_eq!(target.answer_to(unasked(0, first, &FULL)), []);
    target.env.invalidate(key).expect("it is bound");
    let rest =
        [packet(1, Op::WriteMiddle, &FULL), packet(2, Op::WriteLast { immediate: None }, &FULL)];
    let before = target.env.bytes(BASE, MEMORY);
    target.take_requests(&rest);
    assert_eq!(syndrome(&target.env.sent()), (1, 0x62));
    assert_eq!(target.env.bytes(BASE, MEMORY), before);
}

/// An invalidation that fails takes the connection down without a word.
/// Rules: INV-35
#[test]
fn a_failed_invalidation_is_answered_by_silence() {
    let mut target = target_of(Service::Rc);
    target.post_receive(1, AT, 8);
    let send = packet(0, Op::SendOnly(Ending::Invalidate(0xdead_beef)), b"x");
    assert_eq!(target.answer_to(send), []);
    assert_eq!(target.env.completed()[0].status, Status::WindowBind);
    assert_eq!(target.env.state(), QpState::Error);
    assert_eq!(target.answer_to(send), []);
}
