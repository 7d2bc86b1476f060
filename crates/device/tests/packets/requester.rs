//! The send queue over a link that carries packets, where the test plays the network, the target
//! and the clock: what is sent, under which numbers, and what each answer does.

use transom_device::Access;
use transom_device::execution::QpEvent;
use transom_device::protection::Key;
use transom_device::qp::{QpState, Service};
use transom_device::queue::{Body, Placement, SendFlags, SendOp, Status};
use transom_wire::packet::{Operation, Packet, Reth, Transport};
use transom_wire::{Psn, RnrTimer};

use crate::origin::*;

mod loss;
mod random;
mod services;

const OK: Status = Status::Success;

/// Every packet takes a number, a READ as many as its answer has packets, and after 2^24 they begin
/// again.
/// Rules: PSN-01, PSN-02, PSN-03, PSN-05
#[test]
fn numbers_count_packets_and_wrap() {
    let mut origin = origin_of(Service::Rc, 0xff_fffa);
    origin.post_send(1, SEND, 0);
    origin.post_send(2, READ, 2 * MTU + 1);
    origin.post_send(3, ADD, 8);
    origin.post_send(4, READ, 0);
    origin.post_send(5, WRITE, 2 * MTU);
    origin.post_send(6, SEND, 1);
    let numbers = [0xff_fffa, 0xff_fffb, 0xff_fffe, 0xff_ffff, 0, 1, 2];
    assert_eq!(origin.env.sent_numbers(), numbers);
    let data = pattern(2 * MTU + 1);
    origin.take_answers(&responses(0xff_fffb, &data));
    assert_eq!(origin.env.statuses(), [(1, OK), (2, OK)]);
    assert_eq!(origin.env.bytes(LOCAL, data.len()), data);
    let old = 0x0102_0304_0506_0708;
    let atomic = Operation::AtomicAcknowledge { aeth: aeth(0x1f), old };
    origin.take_answers(&[answer(0xff_fffe, atomic)]);
    assert_eq!(origin.env.statuses(), [(3, OK)]);
    assert_eq!(origin.env.bytes(LOCAL, 8), old.to_ne_bytes());
    origin.take_answers(&responses(0xff_ffff, &[]));
    origin.acknowledge(2);
    assert_eq!(origin.env.statuses(), [(4, OK), (5, OK), (6, OK)]);
}

/// One answer acknowledges everything before it; of a message, it acknowledges a part.
/// Rules: PSN-21, ACK-05, PK-18
#[test]
fn an_answer_acknowledges_all_before_it() {
    let mut origin = origin_over_packets();
    origin.post_send(1, SEND, 3 * MTU);
    origin.post_send(2, WRITE, 20 * MTU);
    origin.post_send(3, READ, MTU);
    let asked: Vec<_> = origin.env.sent().iter().filter(|p| p.ack_request).map(|p| p.psn).collect();
    assert_eq!(asked, [102, 118, 122, 123].map(Psn::new), "one for each burst");
    origin.acknowledge(101);
    assert_eq!(origin.env.statuses(), []);
    origin.acknowledge(110);
    assert_eq!(origin.env.statuses(), [(1, OK)]);
    origin.take_answers(&responses(123, &pattern(MTU)));
    assert_eq!(origin.env.statuses(), [(2, OK), (3, OK)]);
}

/// Old, repeated and forged answers change nothing, nor do requests and packets of other services.
/// Rules: PSN-24, CNP-02
#[test]
fn answers_that_are_not_awaited_are_ignored() {
    let mut origin = origin_over_packets();
    origin.post_send(1, SEND, 0);
    origin.acknowledge(100);
    assert_eq!(origin.env.statuses(), [(1, OK)]);
    origin.post_send(2, SEND, 0);
    origin.post_send(3, READ, 2 * MTU);
    assert_eq!(origin.env.sent_numbers(), [100, 101, 102]);
    for psn in [0, 99, 100, 104, 0x80_0000, 0xff_ffff] {
        for byte in [0x1f, 0x2f, 0x60, 0x61, 0x62, 0x63, 0x40, 0xff] {
            origin.refuse(psn, byte);
        }
        let old = 1;
        origin.take_answers(&[answer(psn, Operation::AtomicAcknowledge { aeth: aeth(0x1f), old })]);
        origin.take_answers(&responses(psn, &[]));
    }
    let acknowledge = answer(101, Operation::Acknowledge(aeth(0x1f)));
    origin.take_answers(&[
        answer(101, Operation::SendOnly(transom_wire::packet::Ending::Plain)),
        answer(101, Operation::Reserved(0x15)),
        answer(0, Operation::Congestion),
        Packet { transport: Transport::Uc, ..acknowledge },
        Packet { transport: Transport::Xrc { srq: 0 }, ..acknowledge },
    ]);
    assert_eq!((origin.env.sent(), origin.env.statuses()), (vec![], vec![]));
    origin.acknowledge(101);
    origin.take_answers(&responses(102, &pattern(2 * MTU)));
    assert_eq!(origin.env.statuses(), [(2, OK), (3, OK)]);
}

/// A refusal ends the request that it names; those before it are done, those behind it flushed.
/// Rules: RA-41, RA-42, RA-50, RA-52, ACK-02
#[test]
fn a_refusal_ends_the_request_it_names() {
    for (byte, status) in [
        (0x61, Status::RemoteInvalidRequest),
        (0x62, Status::RemoteAccess),
        (0x63, Status::RemoteOperation),
        (0x64, Status::BadResponse),
        (0x40, Status::BadResponse),
        (0xff, Status::BadResponse),
    ] {
        let mut origin = origin_over_packets();
        for (wr_id, op) in (1..).zip([SEND, WRITE, READ, ADD, SEND]) {
            origin.post_send(wr_id, op, if op == ADD { 8 } else { 2 * MTU });
        }
        // The second packet of the WRITE.
        origin.refuse(103, byte);
        let flushed = Status::Flushed;
        let expected = [(1, OK), (2, status), (3, flushed), (4, flushed), (5, flushed)];
        assert_eq!(origin.env.statuses(), expected, "{byte:#x}");
        assert_eq!((origin.env.state(), origin.qp.requester.deadline()), (QpState::Error, None));
        origin.acknowledge(108);
        assert_eq!(origin.env.statuses(), []);
    }
}

/// An answer of another kind or length than the request waits for fails it.
/// Rules: PSN-30, PSN-32, WC-07
#[test]
fn an_answer_that_does_not_fit_is_a_bad_response() {
    let data = pattern(2 * MTU + 8);
    let whole = responses(100, &data);
    let short = |packet: Packet<'static>| Packet { payload: &[7; 5], ..packet };
    let full = |packet: Packet<'static>| Packet { payload: &[7; MTU as usize], ..packet };
    let old = 1;
    let atomic = answer(100, Operation::AtomicAcknowledge { aeth: aeth(0x1f), old });
    let refused = answer(100, Operation::AtomicAcknowledge { aeth: aeth(0x62), old });
    let first = answer(100, Operation::ReadResponseFirst(aeth(0x1f)));
    let only = answer(100, Operation::ReadResponseOnly(aeth(0x1f)));
    let last = answer(102, Operation::ReadResponseLast(aeth(0x1f)));
    let middle = |psn| answer(psn, Operation::ReadResponseMiddle);
    let cases: [(SendOp, u64, &[Packet<'_>]); 15] = [
        (SEND, 8, &[atomic]),
        (SEND, 8, &[short(only)]),
        (WRITE, 8, &[full(first)]),
        (ADD, 8, &[only]),
        (ADD, 8, &[refused]),
        (READ, 2 * MTU + 8, &[atomic]),
        (READ, 2 * MTU + 8, &[full(only)]),
        (READ, 2 * MTU + 8, &[short(first)]),
        (READ, 2 * MTU + 8, &[full(middle(100))]),
        (READ, 2 * MTU + 8, &[full(answer(100, Operation::ReadResponseFirst(aeth(0x62))))]),
        (READ, 2 * MTU + 8, &[whole[0], short(middle(101))]),
        (READ, 2 * MTU + 8, &[whole[0], full(answer(101, last.operation))]),
        (READ, 2 * MTU + 8, &[whole[0], whole[1], short(last)]),
        (READ, 2 * MTU + 8, &[whole[0], whole[1], full(last)]),
        (READ, 0, &[short(only)]),
    ];
    for (op, length, packets) in cases {
        let mut origin = origin_over_packets();
        origin.post_send(1, op, length);
        origin.post_send(2, SEND, 0);
        origin.take_answers(packets);
        let expected = [(1, Status::BadResponse), (2, Status::Flushed)];
        assert_eq!(origin.env.statuses(), expected, "{op:?} answered by {packets:?}");
        assert_eq!(origin.env.state(), QpState::Error);
    }
}

/// FLUSH and ATOMIC WRITE are done with an acknowledgement, or with a READ response without data. They
/// have no local data, and eight bytes of it; with other lengths nothing is sent.
/// Rules: AT-17, AT-20, FL-08, FL-11
#[test]
fn a_flush_is_done_with_either_answer() {
    let key = Key(5);
    let placement = Placement::GLOBAL;
    let flush = Body::Flush { address: 0x1000, key, length: 64, placement, whole: false };
    let write = Body::AtomicWrite { address: 0x1000, key };
    for (body, length) in [(flush, 0), (write, 8)] {
        for operation in
            [Operation::Acknowledge(aeth(0x1f)), Operation::ReadResponseOnly(aeth(0x1f))]
        {
            let mut origin = origin_over_packets();
            origin.post_send(1, SendOp::Message(body), length);
            origin.post_send_with(2, SEND, 0, SendFlags::FENCE);
            assert_eq!(origin.env.sent_numbers(), [100]);
            origin.take_answers(&[answer(100, operation)]);
            assert_eq!(origin.env.statuses(), [(1, OK)]);
            assert_eq!(origin.env.sent_numbers(), [101]);
        }
        let mut origin = origin_over_packets();
        origin.post_send(1, SendOp::Message(body), 8 - length);
        assert_eq!(origin.env.statuses(), [(1, Status::LocalLength)]);
        assert!(origin.env.sent_numbers().is_empty());
    }
}

/// No more is on its way than the window allows; it opens with what is acknowledged, and a lost
/// packet or word of congestion closes it by half.
/// Rules: PSN-07, CNP-04
#[test]
fn a_window_bounds_what_is_on_its_way() {
    let mut origin = origin_over_packets();
    for wr_id in 0..8 {
        origin.post_send(wr_id, WRITE, 512 * MTU);
    }
    let sent = origin.env.sent_numbers();
    assert_eq!(sent, (100..100 + 256).collect::<Vec<_>>());
    let (mut oldest, mut next, mut most) = (100, 356, 256);
    while oldest < 2000 {
        oldest += 16;
        origin.acknowledge(oldest - 1);
        next += origin.env.sent().len() as u32;
        assert!(next - oldest >= most, "the window does not close");
        most = next - oldest;
    }
    assert!(most > 256 && u64::from(most) * MTU <= 1 << 20);
    origin.take_answers(&[answer(0, Operation::Congestion)]);
    origin.take_answers(&[answer(0, Operation::Congestion)]);
    while origin.env.sent().is_empty() {
        oldest += 16;
        origin.acknowledge(oldest - 1);
    }
    assert!(next - oldest <= most / 2, "half the window is left");
    assert!(next - oldest > most / 4, "what one window tells counts once");
}

/// A queue pair keeps to what the others leave it of what they may send together, and never to less
/// than a few packets. It says whether it is one of those that send.
/// Rules: PSN-07
#[test]
fn queue_pairs_share_what_may_be_on_its_way() {
    let mut origin = origin_over_packets();
    origin.qp.requester.connection.window_share = 32 * MTU + 1;
    assert!(!origin.qp.requester.awaits_packets());
    origin.post_send(1, WRITE, 512 * MTU);
    assert!(origin.qp.requester.awaits_packets());
    assert_eq!(origin.env.sent_numbers(), (100..132).collect::<Vec<_>>());
    origin.qp.requester.connection.window_share = 100 * MTU;
    origin.acknowledge(115);
    let (mut next, mut oldest) = (132 + origin.env.sent().len() as u32, 116);
    assert!((180..=oldest + 100).contains(&next), "others have ended");
    origin.qp.requester.connection.window_share = 0;
    while next - oldest > 8 {
        oldest += 1;
        origin.acknowledge(oldest - 1);
        assert_eq!(origin.env.sent_numbers(), [0; 0], "others have begun");
    }
    while next < 612 {
        oldest += 8;
        origin.acknowledge(oldest - 1);
        next += origin.env.sent().len() as u32;
        assert!((1..=8).contains(&(next - oldest)));
    }
    origin.acknowledge(611);
    assert_eq!(origin.env.statuses(), [(1, OK)]);
    assert!(!origin.qp.requester.awaits_packets());
}

/// What READs will bring counts as on its way, and each part of one that is asked for by itself takes
/// one of the target's resources.
/// Rules: PSN-07, RN-11, PSN-04
#[test]
fn a_long_read_is_asked_for_in_parts() {
    let length = 600 * MTU;
    let part = 256;
    for limit in 1..=4 {
        let mut origin = origin_over_packets();
        origin.qp.requester.connection.max_rd_atomic = limit;
        origin.post_send(1, READ, length);
        origin.post_send(2, SEND, 0);
        let data = pattern(length);
        let mut next = 0;
        for (index, bytes) in data.chunks(part * MTU as usize).enumerate() {
            let expected = Reth {
                address: 0x1000 + (index * part) as u64 * MTU,
                key: 5,
                length: bytes.len() as u32,
            };
            let sent = origin.env.sent();
            assert_eq!(sent.len(), if index == 2 { 2 } else { 1 }, "a part, then the SEND");
            assert_eq!(sent[0].operation, Operation::ReadRequest(expected));
            assert_eq!(sent[0].psn.value(), 100 + next);
            next += bytes.len().div_ceil(MTU as usize) as u32;
            let answer = responses(sent[0].psn.value(), bytes);
            for burst in answer.chunks(64) {
                origin.take_answers(burst);
            }
        }
        assert_eq!(origin.env.statuses(), [(1, OK)]);
        assert_eq!(origin.env.bytes(LOCAL, length as usize), data);
        origin.acknowledge(700);
        assert_eq!(origin.env.statuses(), [(2, OK)]);
    }
}

/// A READ that waits for the target's resources is not passed by what is behind it.
/// Rules: RN-11, RN-14, PS-09
#[test]
fn reads_beyond_the_limit_are_held_back() {
    let mut origin = origin_over_packets();
    origin.qp.requester.connection.max_rd_atomic = 2;
    for (wr_id, op) in (0..).zip([READ, ADD, READ, SEND]) {
        origin.post_send(wr_id, op, 8);
    }
    origin.post_send_with(4, SEND, 8, SendFlags::FENCE);
    assert_eq!(origin.env.sent_numbers(), [100, 101]);
    origin.take_answers(&responses(100, &[1; 8]));
    assert_eq!(origin.env.sent_numbers(), [102, 103]);
    origin.take_answers(&[answer(101, Operation::AtomicAcknowledge { aeth: aeth(0x1f), old: 0 })]);
    assert_eq!(origin.env.sent_numbers(), [0_u32; 0]);
    origin.take_answers(&responses(102, &[2; 8]));
    assert_eq!(origin.env.sent_numbers(), [104]);
}

/// The data of a burst is stored in one step for each buffer, and only while the L_Key
/// allows it.
/// Rules: LA-05
#[test]
fn returned_data_is_stored_by_bursts_under_a_fresh_check() {
    let mut origin = origin_over_packets();
    let data = pattern(64 * MTU);
    origin.post_send(1, READ, 64 * MTU);
    let answer = responses(100, &data);
    origin.take_answers(&answer[..16]);
    origin.take_answers(&answer[16..48]);
    // The buffers meet at an odd place in the second burst.
    assert_eq!(origin.env.stored(), [16 * MTU, 16 * MTU + 1, 16 * MTU - 1]);
    origin.env.grant(Access::empty());
    origin.take_answers(&answer[48..]);
    assert_eq!(origin.env.statuses(), [(1, Status::LocalProtection)]);
    assert_eq!(origin.env.stored(), [0_u64; 0]);
}

/// In SQD what has begun is finished, sent again if need be, and nothing else begins.
/// Rules: ST-16, ST-17
#[test]
fn sqd_finishes_what_has_begun() {
    let mut origin = origin_over_packets();
    origin.post_send(1, SEND, 2 * MTU);
    origin.post_send(2, READ, 2 * MTU);
    origin.env.gate(|gate| gate.state = QpState::Sqd);
    origin.qp.drive(&origin.env, |requester, cx| requester.notify_drained(cx));
    origin.post_send(3, SEND, 0);
    assert_eq!(origin.env.sent_numbers(), [100, 101, 102]);
    origin.refuse(101, 0x60);
    assert_eq!(origin.env.sent_numbers(), [101, 102]);
    let data = pattern(2 * MTU);
    let both = responses(102, &data);
    origin.take_answers(&both[..1]);
    origin.pass(TIMEOUT);
    assert_eq!(origin.env.sent_numbers(), [103]);
    assert!(origin.qp.requester.is_draining());
    assert_eq!(origin.env.events(), []);
    origin
        .take_answers(&[Packet { operation: Operation::ReadResponseOnly(aeth(0x1f)), ..both[1] }]);
    assert_eq!(origin.env.statuses(), [(1, OK), (2, OK)]);
    assert_eq!(origin.env.events(), [QpEvent::SendQueueDrained]);
    assert_eq!((origin.env.sent(), origin.qp.requester.is_draining()), (vec![], false));
    origin.env.gate(|gate| gate.state = QpState::Rts);
    origin.advance();
    assert_eq!(origin.env.sent_numbers(), [104]);
}

/// A target that is not ready has everything before, is given its time, and then the rest.
/// Rules: RN-02, RN-03, RN-05, ORD-27
#[test]
fn a_target_that_is_not_ready_is_waited_for() {
    let timer = RnrTimer::new(12).expect("a code");
    let not_ready = 0x20 | timer.code();
    let mut origin = origin_over_packets();
    origin.qp.requester.retry.rnr_count = 2;
    for wr_id in 1..=3 {
        origin.post_send(wr_id, SEND, MTU + 1);
    }
    assert_eq!(origin.env.sent_numbers(), [100, 101, 102, 103, 104, 105]);
    origin.refuse(102, not_ready);
    assert_eq!(origin.env.statuses(), [(1, OK)]);
    // What was behind it arrives out of order, or is refused as well.
    origin.refuse(102, 0x60);
    origin.refuse(102, not_ready);
    origin.pass_in_silence(timer.nanoseconds());
    assert_eq!(origin.env.sent_numbers(), [102, 103, 104, 105]);
    origin.refuse(102, not_ready);
    origin.pass_in_silence(timer.nanoseconds());
    assert_eq!(origin.env.sent_numbers(), [102, 103, 104, 105]);
    // The first half of a message is progress.
    for _ in 0..2 {
        origin.refuse(103, not_ready);
        origin.pass_in_silence(timer.nanoseconds());
        assert_eq!(origin.env.sent_numbers(), [103, 104, 105]);
    }
    origin.refuse(103, not_ready);
    let expected = [(2, Status::RnrRetryExceeded), (3, Status::Flushed)];
    assert_eq!(origin.env.statuses(), expected);
    assert_eq!(origin.env.state(), QpState::Error);
}

/// Memory that goes away in the middle of a message fails it, in order: what was sent of it, and what
/// was before it, may still be acknowledged.
/// Rules: MR-40, ORD-02
#[test]
fn memory_that_goes_away_fails_its_message() {
    for (last, arrived) in [(99, 0), (100, 1), (110, 1), (116, 1)] {
        let mut origin = origin_over_packets();
        origin.post_send(1, SEND, MTU);
        // One burst of two, and then no room until the memory is gone.
        origin.env.room.set(BURST);
        origin.post_send(2, SEND, 30 * MTU);
        assert_eq!(origin.env.sent_numbers(), (100..117).collect::<Vec<_>>());
        origin.env.room.set(usize::MAX);
        origin.env.gone.set(true);
        origin.post_send(3, SEND, MTU);
        assert_eq!((origin.env.sent(), origin.env.statuses()), (vec![], vec![]));
        if arrived > 0 {
            origin.acknowledge(last);
        } else {
            origin.pass(TIMEOUT);
        }
        let failed = arrived + 1;
        let mut expected = vec![(1, OK); arrived as usize];
        expected.push((failed, Status::LocalProtection));
        expected.extend((failed + 1..=3).map(|wr_id| (wr_id, Status::Flushed)));
        assert_eq!(origin.env.statuses(), expected, "{last}");
        assert_eq!(origin.env.state(), QpState::Error);
    }
}

/// A queue pair that was reset begins anew: what was on its way is forgotten.
/// Rules: ST-10, PSN-02
#[test]
fn a_reset_forgets_what_was_on_its_way() {
    let mut origin = origin_over_packets();
    for wr_id in 0..3 {
        origin.post_send(wr_id, READ, 8);
    }
    origin.qp.requester.reset();
    assert_eq!(origin.qp.requester.deadline(), None);
    origin.qp.requester.start(Psn::new(500));
    origin.env.sent();
    origin.take_answers(&responses(100, &[1; 8]));
    origin.acknowledge(500);
    origin.post_send(7, SEND, 0);
    assert_eq!(origin.env.sent_numbers(), [500]);
    origin.take_answers(&responses(101, &[1; 8]));
    origin.acknowledge(500);
    assert_eq!(origin.env.statuses(), [(7, OK)]);
}

/// What the link has taken, to send it with more, and then has no room for goes out later, with the same
/// numbers: from the first of what was to leave together, for nobody says which of them have left.
#[test]
fn messages_that_find_no_room_together_go_again_together() {
    for room in 0..6 {
        let mut origin = origin_over_packets();
        origin.env.joins.set(BURST);
        origin.post_send(1, SEND, MTU);
        assert_eq!(origin.env.sent_numbers(), [100]);
        // One packet, three, one; a message that is too long to go with them; and one behind that.
        origin.env.room.set(0);
        let lengths = [0, 3 * MTU, 8, 2 * BURST as u64 * MTU, 0];
        for (wr_id, length) in (2..).zip(lengths) {
            origin.post_send(wr_id, WRITE, length);
        }
        assert_eq!(origin.env.sent_numbers(), []);
        origin.make_room(room);
        let partly: Vec<u32> = (101..101 + room.min(5) as u32).collect();
        assert_eq!(origin.env.sent_numbers(), partly, "{room}");
        origin.make_room(usize::MAX);
        let first = if room < 5 { 101 } else { 106 };
        assert_eq!(origin.env.sent_numbers(), (first..139).collect::<Vec<_>>(), "{room}");
        origin.acknowledge(138);
        let done = (1..=6).map(|wr_id| (wr_id, OK)).collect::<Vec<_>>();
        assert_eq!(origin.env.statuses(), done, "{room}");
    }
}

/// Nothing is waited for that has not left: what was taken back, and then not sent for long, is not missed.
#[test]
fn what_has_found_no_room_is_not_missed() {
    let mut origin = origin_over_packets();
    origin.env.joins.set(BURST);
    origin.env.room.set(0);
    origin.post_send(1, SEND, 0);
    (0..20).for_each(|_| origin.pass(TIMEOUT));
    assert_eq!((origin.env.sent_numbers(), origin.env.statuses()), (vec![], vec![]));
    origin.make_room(usize::MAX);
    assert_eq!(origin.env.sent_numbers(), [100]);
}
