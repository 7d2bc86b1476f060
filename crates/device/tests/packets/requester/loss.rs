//! Packets are lost: what is sent again, from where, how often and when.

use transom_device::qp::{QpState, Service};
use transom_device::queue::Status;
use transom_simulation::host::Host;
use transom_wire::packet::{Operation, Packet, Reth};

use super::OK;
use crate::origin::*;
use crate::target::{FIRST, target_of};

fn read(address: u64, length: u64) -> Operation {
    Operation::ReadRequest(Reth { address, key: 5, length: length as u32 })
}

/// The requester goes back to the number that the target waits for, in the middle of a message too;
/// what is before it has arrived. An answer to the first attempt still counts.
/// Rules: PSN-31, RN-09
#[test]
fn a_nak_goes_back_to_the_missing_packet() {
    let mut origin = origin_over_packets();
    origin.post_send(1, SEND, MTU);
    origin.post_send(2, WRITE, 3 * MTU);
    origin.post_send(3, SEND, 0);
    origin.post_send(4, SEND, 0);
    let sent = origin.env.sent();
    origin.refuse(102, 0x60);
    assert_eq!(origin.env.statuses(), [(1, OK)]);
    assert_eq!(origin.env.sent(), sent[2..], "the same packets");
    origin.acknowledge(104);
    assert_eq!(origin.env.statuses(), [(2, OK), (3, OK)]);
    origin.refuse(105, 0x60);
    assert_eq!(origin.env.sent(), sent[5..]);
    origin.acknowledge(105);
    origin.post_send(5, SEND, 0);
    assert_eq!(origin.env.sent_numbers(), [106]);
}

/// What arrived in the first attempt need not go out again, though it was about to: a whole message,
/// a part of one, and a READ.
/// Rules: PSN-21, RN-09
#[test]
fn a_late_answer_saves_sending_again() {
    let mut origin = origin_over_packets();
    origin.post_send(1, SEND, 2 * MTU);
    origin.post_send(2, WRITE, 40 * MTU);
    origin.post_send(3, READ, 2 * MTU);
    origin.post_send(4, SEND, 0);
    origin.env.sent();
    origin.env.room.set(0);
    origin.pass(TIMEOUT);
    origin.acknowledge(110);
    assert_eq!(origin.env.statuses(), [(1, OK)]);
    origin.env.room.set(usize::MAX);
    origin.advance();
    assert_eq!(origin.env.sent_numbers(), (111..143).chain([144]).collect::<Vec<_>>());
    origin.env.room.set(0);
    origin.pass(TIMEOUT);
    let data = pattern(2 * MTU);
    origin.take_answers(&responses(142, &data)[..1]);
    assert_eq!(origin.env.statuses(), [(2, OK)]);
    origin.env.room.set(usize::MAX);
    origin.advance();
    let sent = origin.env.sent();
    assert_eq!(sent[0].operation, read(0x1000 + MTU, MTU));
    assert_eq!((sent[0].psn.value(), sent[1].psn.value()), (143, 144));
    origin.take_answers(&responses(142, &data)[1..]);
    origin.acknowledge(144);
    assert_eq!(origin.env.statuses(), [(3, OK), (4, OK)]);
    assert_eq!(origin.env.bytes(LOCAL, data.len()), data);
}

/// Of a READ that was answered in part, the rest is asked for: address, length and number move on.
/// Rules: PSN-25, PSN-23
#[test]
fn the_rest_of_a_read_is_asked_for_again() {
    let mut origin = origin_over_packets();
    let data = pattern(5 * MTU + 1);
    origin.post_send(1, READ, 5 * MTU + 1);
    origin.post_send(2, SEND, 0);
    assert_eq!(origin.env.sent()[0].operation, read(0x1000, 5 * MTU + 1));
    let answer = responses(100, &data);
    origin.take_answers(&answer[..2]);
    // The third is lost; those behind it say so, once.
    origin.take_answers(&answer[3..4]);
    let sent = origin.env.sent();
    assert_eq!(sent[0].operation, read(0x1000 + 2 * MTU, 3 * MTU + 1));
    assert_eq!((sent[0].psn.value(), sent[1].psn.value()), (102, 106));
    origin.take_answers(&answer[4..]);
    origin.acknowledge(106);
    assert_eq!((origin.env.sent(), origin.env.statuses()), (vec![], vec![]));
    origin.take_answers(&responses(102, &data[2 * MTU as usize..]));
    origin.acknowledge(106);
    assert_eq!(origin.env.statuses(), [(1, OK), (2, OK)]);
    assert_eq!(origin.env.bytes(LOCAL, data.len()), data);
    // Only the last packet is missing, and nothing comes behind it.
    origin.post_send(3, READ, 2 * MTU + 1);
    origin.env.sent();
    origin.take_answers(&responses(107, &data[..2 * MTU as usize + 1])[..2]);
    origin.pass_in_silence(TIMEOUT);
    assert_eq!(origin.env.sent()[0].operation, read(0x1000 + 2 * MTU, 1));
    origin.take_answers(&responses(109, &data[2 * MTU as usize..2 * MTU as usize + 1]));
    assert_eq!(origin.env.statuses(), [(3, OK)]);
}

/// An answer beyond a READ or atomic says that its own was lost; so does an acknowledgement of its
/// number, which is what a target says to a repeated request before it.
/// Rules: PSN-23
#[test]
fn a_later_answer_tells_of_a_lost_one() {
    for psn in 101..=110 {
        for op in [READ, ADD] {
            let mut origin = origin_over_packets();
            // One loss is allowed, and all answers behind it count as one.
            origin.qp.requester.retry.count = 1;
            origin.post_send(0, SEND, 0);
            origin.post_send(1, op, 8);
            for wr_id in 2..=10 {
                origin.post_send(wr_id, SEND, 0);
            }
            origin.env.sent();
            for psn in psn..=110 {
                origin.acknowledge(psn);
            }
            assert_eq!(origin.env.statuses(), [(0, OK)]);
            assert_eq!(origin.env.sent_numbers(), (101..=110).collect::<Vec<_>>());
            let mut both = responses(101, &[3; 8]);
            if op == ADD {
                let operation = Operation::AtomicAcknowledge { aeth: aeth(0x1f), old: 3 };
                both[0] = answer(101, operation);
            }
            origin.take_answers(&both);
            origin.acknowledge(110);
            assert_eq!(origin.env.statuses(), (1..=10).map(|id| (id, OK)).collect::<Vec<_>>());
        }
    }
}

/// An answer is lost twice: answers to what went out after the repeat tell of the second loss, even
/// where no timeout would.
/// Rules: PSN-23
#[test]
fn an_answer_that_is_lost_again_is_noticed_again() {
    let mut origin = origin_over_packets();
    origin.qp.requester.set_timeout(0);
    origin.post_send(1, READ, 8);
    origin.post_send(2, SEND, 0);
    origin.acknowledge(101);
    assert_eq!(origin.env.sent_numbers(), [100, 101, 100, 101]);
    origin.acknowledge(101);
    origin.post_send(3, SEND, 0);
    assert_eq!(origin.env.sent_numbers(), [102]);
    origin.acknowledge(102);
    assert_eq!(origin.env.sent_numbers(), [100, 101, 102]);
}

/// An acknowledgement that was late says nothing of the repeat that has gone out meanwhile.
/// Rules: PSN-23, RN-07
#[test]
fn an_answer_from_before_a_timeout_does_not_count_as_a_loss_after_it() {
    let mut origin = origin_over_packets();
    origin.qp.requester.retry.count = 1;
    origin.post_send(1, READ, 8);
    origin.post_send(2, SEND, 0);
    assert_eq!(origin.env.sent_numbers(), [100, 101]);
    origin.pass_in_silence(TIMEOUT);
    assert_eq!(origin.env.sent_numbers(), [100, 101]);
    origin.acknowledge(101);
    assert_eq!((origin.env.sent(), origin.env.state()), (vec![], QpState::Rts));
    origin.take_answers(&responses(100, &[3; 8]));
    origin.acknowledge(101);
    assert_eq!(origin.env.statuses(), [(1, OK), (2, OK)]);
}

/// A timeout that is changed counts at once, for what is under way and for what comes.
/// Rules: RN-06, ST-16
#[test]
fn a_changed_timeout_is_heeded() {
    let mut origin = origin_over_packets();
    origin.qp.requester.set_timeout(20);
    origin.post_send(1, SEND, 0);
    origin.acknowledge(100);
    origin.qp.requester.set_timeout(10);
    assert_eq!(origin.env.statuses(), [(1, OK)]);
    origin.post_send(2, SEND, 0);
    assert_eq!(origin.env.sent_numbers(), [100, 101]);
    origin.pass_in_silence(TIMEOUT);
    assert_eq!(origin.env.sent_numbers(), [101]);
    origin.qp.requester.set_timeout(0);
    assert_eq!(origin.qp.requester.deadline(), None);
    origin.qp.requester.set_timeout(10);
    origin.pass_in_silence(2 * TIMEOUT);
    assert_eq!(origin.env.sent_numbers(), [101]);
}

/// With `retry_cnt` n a request is sent n + 1 times, and given up after another wait: one, two, and then four
/// timeouts each. With no timeout it is waited for without end.
/// Rules: RN-06, RN-07
#[test]
fn timeouts_are_counted() {
    for count in 0..=7 {
        for op in [SEND, READ] {
            let mut origin = origin_over_packets();
            origin.qp.requester.retry.count = count;
            origin.post_send(1, op, 8);
            origin.post_send(2, SEND, 0);
            for sent in 0..=count {
                assert_eq!(origin.env.sent_numbers(), [100, 101]);
                origin.pass_in_silence(TIMEOUT << sent.min(2));
            }
            assert_eq!(origin.env.sent_numbers(), [0_u32; 0]);
            let expected = [(1, Status::RetryExceeded), (2, Status::Flushed)];
            assert_eq!(origin.env.statuses(), expected);
            assert_eq!(
                (origin.env.state(), origin.qp.requester.deadline()),
                (QpState::Error, None)
            );
        }
    }
    let mut origin = origin_over_packets();
    origin.qp.requester.retry.timeout = 0;
    origin.post_send(1, SEND, 8);
    assert_eq!((origin.env.sent_numbers(), origin.qp.requester.deadline()), (vec![100], None));
    origin.pass(u64::MAX / 2);
    assert_eq!((origin.env.sent_numbers(), origin.env.state()), (vec![], QpState::Rts));
    origin.refuse(100, 0x60);
    assert_eq!(origin.env.sent_numbers(), [100], "a loss that is told counts all the same");
}

/// A loss that the target tells of counts as a retry; progress makes the count begin anew.
/// Rules: RN-07, RN-08, RN-10, PSN-31
#[test]
fn naks_are_counted_until_there_is_progress() {
    let mut origin = origin_over_packets();
    origin.qp.requester.retry.count = 2;
    origin.post_send(1, SEND, 4 * MTU);
    for psn in 100..104 {
        origin.refuse(psn, 0x60);
        origin.refuse(psn, 0x60);
        assert_eq!(origin.env.state(), QpState::Rts);
    }
    origin.refuse(103, 0x60);
    assert_eq!(origin.env.statuses(), [(1, Status::RetryExceeded)]);
}

/// The queue pair at the other end has ended with its process, which nothing brings back: what is under way is asked
/// once more, and that is all. Word that comes late, or before anything has come from there, is of no meaning; and
/// a wait without end has none.
/// Rules: RN-20
#[test]
fn nobody_is_waited_for_who_was_there_and_is_gone() {
    const WHILE: u64 = 200_000_000;
    let over_a_slow_network = |timeout| {
        let mut origin = origin_over_packets();
        origin.qp.requester.set_timeout(timeout);
        origin.post_send(1, SEND, 0);
        origin
    };
    let is_waiting = |origin: &Host| {
        assert_eq!((origin.env.sent_numbers(), origin.env.statuses()), (vec![], vec![]));
    };
    let mut origin = over_a_slow_network(20);
    assert_eq!(origin.env.sent_numbers(), [100]);
    // It may be about to begin.
    for _ in 0..5 {
        origin.nobody_there();
        origin.pass(WHILE);
        is_waiting(&origin);
    }
    origin.acknowledge(100);
    assert_eq!(origin.env.statuses(), [(1, OK)]);
    // Of something that has been answered.
    origin.nobody_there();
    origin.post_send(2, SEND, 0);
    origin.post_send(3, SEND, 0);
    assert_eq!(origin.env.sent_numbers(), [101, 102]);
    // A network that is being changed: it is there again when it is asked.
    for (wr_id, psn) in [(2, 101), (3, 102)] {
        origin.nobody_there();
        origin.nobody_there();
        origin.pass_in_silence(WHILE);
        assert_eq!(origin.env.sent_numbers(), (psn..=102).collect::<Vec<_>>());
        origin.acknowledge(psn);
        assert_eq!(origin.env.statuses(), [(wr_id, OK)]);
    }
    origin.post_send(4, SEND, 0);
    origin.post_send(5, SEND, 0);
    origin.env.sent();
    origin.nobody_there();
    origin.pass_in_silence(WHILE);
    assert_eq!(origin.env.sent_numbers(), [103, 104]);
    origin.nobody_there();
    assert_eq!(origin.env.statuses(), [(4, Status::RetryExceeded), (5, Status::Flushed)]);
    assert_eq!((origin.env.state(), origin.qp.requester.deadline()), (QpState::Error, None));

    let mut origin = over_a_slow_network(0);
    origin.acknowledge(100);
    origin.post_send(2, SEND, 0);
    assert_eq!((origin.env.sent_numbers(), origin.env.statuses()), (vec![100, 101], vec![(1, OK)]));
    for _ in 0..5 {
        origin.nobody_there();
        origin.pass(WHILE);
        is_waiting(&origin);
    }
}

/// The time for an answer begins anew with each that brings something, not with those that do not.
/// Rules: RN-06
#[test]
fn the_timer_begins_anew_with_progress() {
    let mut origin = origin_over_packets();
    for wr_id in 0..4 {
        origin.post_send(wr_id, SEND, 0);
        origin.pass(10);
    }
    assert_eq!(origin.env.sent_numbers(), [100, 101, 102, 103]);
    origin.pass_in_silence(TIMEOUT - 40);
    assert_eq!(origin.env.sent_numbers(), [100, 101, 102, 103]);
    origin.pass(TIMEOUT - 1);
    origin.acknowledge(100);
    assert_eq!(origin.env.statuses(), [(0, OK)]);
    origin.pass(10);
    origin.acknowledge(100);
    origin.pass_in_silence(TIMEOUT - 10);
    assert_eq!(origin.env.sent_numbers(), [101, 102, 103]);
    origin.acknowledge(103);
    origin.env.statuses();
    origin.pass(2 * TIMEOUT);
    assert_eq!((origin.env.sent(), origin.qp.requester.deadline()), (vec![], None));
}

/// An answer of the first attempt that comes after its request went out again is not a second loss.
/// Rules: PSN-24
#[test]
fn repeated_answers_of_a_read_are_ignored() {
    let mut origin = origin_over_packets();
    origin.post_send(1, READ, 3 * MTU);
    origin.post_send(2, READ, MTU);
    origin.env.sent();
    let data = pattern(4 * MTU);
    let (first, second) = data.split_at(3 * MTU as usize);
    let twice: Vec<Packet<'_>> =
        responses(100, first).into_iter().flat_map(|packet| [packet, packet]).collect();
    origin.take_answers(&twice);
    origin.take_answers(&responses(100, first));
    assert_eq!(origin.env.statuses(), [(1, OK)]);
    origin.take_answers(&responses(103, second));
    assert_eq!((origin.env.statuses(), origin.env.sent()), (vec![(2, OK)], vec![]));
}

/// The program was away for longer than the timeout, and the answer has come meanwhile. It is not taken yet when the
/// program posts again.
/// Rules: RN-06, RN-07
#[test]
fn an_answer_that_is_there_comes_before_the_clock() {
    let mut origin = origin_over_packets();
    origin.qp.requester.retry.count = 0;
    origin.post_send(1, SEND, 8);
    assert_eq!(origin.env.sent_numbers(), [100]);
    origin.env.time.set(origin.env.time.get() + 10 * TIMEOUT);
    origin.post_send(2, SEND, 8);
    assert_eq!((origin.env.statuses(), origin.env.sent_numbers()), (vec![], vec![101]));
    origin.acknowledge(100);
    assert_eq!(origin.env.statuses(), [(1, OK)]);
    origin.pass(0);
    assert_eq!(origin.env.statuses(), [], "it has waited for the second one from now on");
    origin.acknowledge(101);
    assert_eq!(origin.env.statuses(), [(2, OK)]);
}

/// What is to go out again may be answered before it does; then nothing is waited for any more.
/// Rules: RN-06
#[test]
fn a_late_answer_leaves_no_deadline() {
    let mut origin = origin_over_packets();
    let data = pattern(2 * MTU);
    origin.post_send(1, READ, 2 * MTU);
    let [first, second] = responses(100, &data)[..] else { panic!("two packets") };
    // They overtook each other, and came together.
    origin.take_answers(&[second, first, second]);
    assert_eq!(origin.env.statuses(), [(1, OK)]);
    while let Some(deadline) = origin.qp.requester.deadline() {
        let now = origin.env.time.get();
        assert!(deadline > now, "the host is called without end");
        origin.pass(deadline - now);
    }
    assert_eq!(origin.env.sent_numbers(), [100]);
}

/// A READ is refused in its middle, and data before that is lost: the target, in error, will not send
/// it again, so the refusal counts at once. It does not count for a READ before the refused one.
/// Rules: INV-24, RA-41, MWA-15, RA-55
#[test]
fn a_refusal_behind_lost_data_counts_for_its_own_read() {
    let data = pattern(4 * MTU);
    for lost in 0..3 {
        let mut origin = origin_over_packets();
        origin.post_send(1, READ, 4 * MTU);
        origin.post_send(2, SEND, 0);
        origin.env.sent();
        origin.take_answers(&responses(100, &data)[..lost]);
        origin.refuse(103, 0x62);
        assert_eq!(origin.env.statuses(), [(1, Status::RemoteAccess), (2, Status::Flushed)]);
        assert_eq!((origin.env.sent(), origin.env.state()), (vec![], QpState::Error));
    }
    let mut origin = origin_over_packets();
    origin.post_send(1, READ, 4 * MTU);
    origin.post_send(2, READ, 4 * MTU);
    let sent = origin.env.sent();
    origin.refuse(105, 0x62);
    assert_eq!((origin.env.statuses(), origin.env.state()), (vec![], QpState::Rts));
    assert_eq!(origin.env.sent(), sent, "what is missing is asked for again");
}

/// The refusal is lost: the target, in error, says nothing any more, and the requester gives up.
/// Rules: RA-55, RA-54
#[test]
fn a_lost_refusal_is_not_repeated() {
    let mut origin = origin_of(Service::Rc, FIRST);
    let mut target = target_of(Service::Rc);
    // The target has no such key.
    origin.post_send(1, READ, 8);
    let asked = origin.env.sent();
    let [read] = &asked[..] else { panic!("{asked:?}") };
    let refusal = target.answer_to(read.packet());
    let [lost] = &refusal[..] else { panic!("{refusal:?}") };
    assert!(matches!(lost.operation, Operation::Acknowledge(aeth) if aeth.byte == 0x62));
    assert_eq!(target.env.state(), QpState::Error);
    let mut attempts = 0;
    while let Some(deadline) = origin.qp.requester.deadline() {
        origin.pass(deadline.saturating_sub(origin.env.time.get()));
        for packet in origin.env.sent() {
            attempts += 1;
            assert_eq!(packet, *read);
            assert_eq!(target.answer_to(packet.packet()), []);
        }
    }
    assert_eq!(attempts, origin.qp.requester.retry.count);
    assert_eq!(origin.env.statuses(), [(1, Status::RetryExceeded)]);
    assert_eq!(origin.env.state(), QpState::Error);
}
