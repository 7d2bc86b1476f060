//! Packets are lost: what is sent again, from where, how often and when.

use transom_device::qp::{QpState, Service};
use transom_device::queue::Status;
use transom_simulation::packet_stage::{FIRST, Target};
use transom_simulation::send_queue::*;
use transom_wire::packet::{Operation, Packet, Reth};

use super::OK;

fn read(address: u64, length: u64) -> Operation {
    Operation::ReadRequest(Reth { address, key: 5, length: length as u32 })
}

/// The requester goes back to the number that the target waits for, in the middle of a message too;
/// what is before it has arrived. An answer to the first attempt still counts.
/// Rules: PSN-31, RN-09
#[test]
fn a_nak_goes_back_to_the_missing_packet() {
    let mut queue = Queue::of_packets();
    queue.post(1, SEND, MTU);
    queue.post(2, WRITE, 3 * MTU);
    queue.post(3, SEND, 0);
    queue.post(4, SEND, 0);
    let sent = queue.stage.sent();
    queue.refuse(102, 0x60);
    assert_eq!(queue.stage.completed(), [(1, OK)]);
    assert_eq!(queue.stage.sent(), sent[2..], "the same packets");
    queue.acknowledge(104);
    assert_eq!(queue.stage.completed(), [(2, OK), (3, OK)]);
    queue.refuse(105, 0x60);
    assert_eq!(queue.stage.sent(), sent[5..]);
    queue.acknowledge(105);
    queue.post(5, SEND, 0);
    assert_eq!(queue.stage.sent_numbers(), [106]);
}

/// What arrived in the first attempt need not go out again, though it was about to: a whole message,
/// a part of one, and a READ.
/// Rules: PSN-21, RN-09
#[test]
fn a_late_answer_saves_sending_again() {
    let mut queue = Queue::of_packets();
    queue.post(1, SEND, 2 * MTU);
    queue.post(2, WRITE, 40 * MTU);
    queue.post(3, READ, 2 * MTU);
    queue.post(4, SEND, 0);
    queue.stage.sent();
    queue.stage.room.set(0);
    queue.pass(TIMEOUT);
    queue.acknowledge(110);
    assert_eq!(queue.stage.completed(), [(1, OK)]);
    queue.stage.room.set(usize::MAX);
    queue.advance();
    assert_eq!(queue.stage.sent_numbers(), (111..143).chain([144]).collect::<Vec<_>>());
    queue.stage.room.set(0);
    queue.pass(TIMEOUT);
    let data = pattern(2 * MTU);
    queue.take(&responses(142, &data)[..1]);
    assert_eq!(queue.stage.completed(), [(2, OK)]);
    queue.stage.room.set(usize::MAX);
    queue.advance();
    let sent = queue.stage.sent();
    assert_eq!(sent[0].operation, read(0x1000 + MTU, MTU));
    assert_eq!((sent[0].psn.value(), sent[1].psn.value()), (143, 144));
    queue.take(&responses(142, &data)[1..]);
    queue.acknowledge(144);
    assert_eq!(queue.stage.completed(), [(3, OK), (4, OK)]);
    assert_eq!(queue.stage.memory.borrow()[..data.len()], data);
}

/// Of a READ that was answered in part, the rest is asked for: address, length and number move on.
/// Rules: PSN-25, PSN-23
#[test]
fn the_rest_of_a_read_is_asked_for_again() {
    let mut queue = Queue::of_packets();
    let data = pattern(5 * MTU + 1);
    queue.post(1, READ, 5 * MTU + 1);
    queue.post(2, SEND, 0);
    assert_eq!(queue.stage.sent()[0].operation, read(0x1000, 5 * MTU + 1));
    let answer = responses(100, &data);
    queue.take(&answer[..2]);
    // The third is lost; those behind it say so, once.
    queue.take(&answer[3..4]);
    let sent = queue.stage.sent();
    assert_eq!(sent[0].operation, read(0x1000 + 2 * MTU, 3 * MTU + 1));
    assert_eq!((sent[0].psn.value(), sent[1].psn.value()), (102, 106));
    queue.take(&answer[4..]);
    queue.acknowledge(106);
    assert_eq!((queue.stage.sent(), queue.stage.completed()), (vec![], vec![]));
    queue.take(&responses(102, &data[2 * MTU as usize..]));
    queue.acknowledge(106);
    assert_eq!(queue.stage.completed(), [(1, OK), (2, OK)]);
    assert_eq!(queue.stage.memory.borrow()[..data.len()], data);
    // Only the last packet is missing, and nothing comes behind it.
    queue.post(3, READ, 2 * MTU + 1);
    queue.stage.sent();
    queue.take(&responses(107, &data[..2 * MTU as usize + 1])[..2]);
    queue.pass_in_silence(TIMEOUT);
    assert_eq!(queue.stage.sent()[0].operation, read(0x1000 + 2 * MTU, 1));
    queue.take(&responses(109, &data[2 * MTU as usize..2 * MTU as usize + 1]));
    assert_eq!(queue.stage.completed(), [(3, OK)]);
}

/// An answer beyond a READ or atomic says that its own was lost; so does an acknowledgement of its
/// number, which is what a target says to a repeated request before it.
/// Rules: PSN-23
#[test]
fn a_later_answer_tells_of_a_lost_one() {
    for psn in 101..=110 {
        for op in [READ, ADD] {
            let mut queue = Queue::of_packets();
            // One loss is allowed, and all answers behind it count as one.
            queue.requester.retry.count = 1;
            queue.post(0, SEND, 0);
            queue.post(1, op, 8);
            for wr_id in 2..=10 {
                queue.post(wr_id, SEND, 0);
            }
            queue.stage.sent();
            for psn in psn..=110 {
                queue.acknowledge(psn);
            }
            assert_eq!(queue.stage.completed(), [(0, OK)]);
            assert_eq!(queue.stage.sent_numbers(), (101..=110).collect::<Vec<_>>());
            let mut both = responses(101, &[3; 8]);
            if op == ADD {
                let operation = Operation::AtomicAcknowledge { aeth: aeth(0x1f), old: 3 };
                both[0] = answer(101, operation);
            }
            queue.take(&both);
            queue.acknowledge(110);
            assert_eq!(queue.stage.completed(), (1..=10).map(|id| (id, OK)).collect::<Vec<_>>());
        }
    }
}

/// An answer is lost twice: answers to what went out after the repeat tell of the second loss, even
/// where no timeout would.
/// Rules: PSN-23
#[test]
fn an_answer_that_is_lost_again_is_noticed_again() {
    let mut queue = Queue::of_packets();
    queue.requester.set_timeout(0);
    queue.post(1, READ, 8);
    queue.post(2, SEND, 0);
    queue.acknowledge(101);
    assert_eq!(queue.stage.sent_numbers(), [100, 101, 100, 101]);
    queue.acknowledge(101);
    queue.post(3, SEND, 0);
    assert_eq!(queue.stage.sent_numbers(), [102]);
    queue.acknowledge(102);
    assert_eq!(queue.stage.sent_numbers(), [100, 101, 102]);
}

/// An acknowledgement that was late says nothing of the repeat that has gone out meanwhile.
/// Rules: PSN-23, RN-07
#[test]
fn an_answer_from_before_a_timeout_does_not_count_as_a_loss_after_it() {
    let mut queue = Queue::of_packets();
    queue.requester.retry.count = 1;
    queue.post(1, READ, 8);
    queue.post(2, SEND, 0);
    assert_eq!(queue.stage.sent_numbers(), [100, 101]);
    queue.pass_in_silence(TIMEOUT);
    assert_eq!(queue.stage.sent_numbers(), [100, 101]);
    queue.acknowledge(101);
    assert_eq!((queue.stage.sent(), queue.state()), (vec![], QpState::Rts));
    queue.take(&responses(100, &[3; 8]));
    queue.acknowledge(101);
    assert_eq!(queue.stage.completed(), [(1, OK), (2, OK)]);
}

/// A timeout that is changed counts at once, for what is under way and for what comes.
/// Rules: RN-06, ST-16
#[test]
fn a_changed_timeout_is_heeded() {
    let mut queue = Queue::of_packets();
    queue.requester.set_timeout(20);
    queue.post(1, SEND, 0);
    queue.acknowledge(100);
    queue.requester.set_timeout(10);
    assert_eq!(queue.stage.completed(), [(1, OK)]);
    queue.post(2, SEND, 0);
    assert_eq!(queue.stage.sent_numbers(), [100, 101]);
    queue.pass_in_silence(TIMEOUT);
    assert_eq!(queue.stage.sent_numbers(), [101]);
    queue.requester.set_timeout(0);
    assert_eq!(queue.requester.deadline(), None);
    queue.requester.set_timeout(10);
    queue.pass_in_silence(TIMEOUT);
    assert_eq!(queue.stage.sent_numbers(), [101]);
}

/// With `retry_cnt` n a request is sent n + 1 times, a timeout apart, and given up after another.
/// With no timeout it is waited for without end.
/// Rules: RN-06, RN-07
#[test]
fn timeouts_are_counted() {
    for count in 0..=7 {
        for op in [SEND, READ] {
            let mut queue = Queue::of_packets();
            queue.requester.retry.count = count;
            queue.post(1, op, 8);
            queue.post(2, SEND, 0);
            for _ in 0..count {
                assert_eq!(queue.stage.sent_numbers(), [100, 101]);
                queue.pass_in_silence(TIMEOUT);
            }
            assert_eq!(queue.stage.sent_numbers(), [100, 101]);
            queue.pass_in_silence(TIMEOUT);
            assert_eq!(queue.stage.sent_numbers(), [0_u32; 0]);
            let expected = [(1, Status::RetryExceeded), (2, Status::Flushed)];
            assert_eq!(queue.stage.completed(), expected);
            assert_eq!((queue.state(), queue.requester.deadline()), (QpState::Error, None));
        }
    }
    let mut queue = Queue::of_packets();
    queue.requester.retry.timeout = 0;
    queue.post(1, SEND, 8);
    assert_eq!((queue.stage.sent_numbers(), queue.requester.deadline()), (vec![100], None));
    queue.pass(u64::MAX / 2);
    assert_eq!((queue.stage.sent_numbers(), queue.state()), (vec![], QpState::Rts));
    queue.refuse(100, 0x60);
    assert_eq!(queue.stage.sent_numbers(), [100], "a loss that is told counts all the same");
}

/// A loss that the target tells of counts as a retry; progress makes the count begin anew.
/// Rules: RN-07, RN-08, RN-10, PSN-31
#[test]
fn naks_are_counted_until_there_is_progress() {
    let mut queue = Queue::of_packets();
    queue.requester.retry.count = 2;
    queue.post(1, SEND, 4 * MTU);
    for psn in 100..104 {
        queue.refuse(psn, 0x60);
        queue.refuse(psn, 0x60);
        assert_eq!(queue.state(), QpState::Rts);
    }
    queue.refuse(103, 0x60);
    assert_eq!(queue.stage.completed(), [(1, Status::RetryExceeded)]);
}

/// The time for an answer begins anew with each that brings something, not with those that do not.
/// Rules: RN-06
#[test]
fn the_timer_begins_anew_with_progress() {
    let mut queue = Queue::of_packets();
    for wr_id in 0..4 {
        queue.post(wr_id, SEND, 0);
        queue.pass(10);
    }
    assert_eq!(queue.stage.sent_numbers(), [100, 101, 102, 103]);
    queue.pass_in_silence(TIMEOUT - 40);
    assert_eq!(queue.stage.sent_numbers(), [100, 101, 102, 103]);
    queue.pass(TIMEOUT - 1);
    queue.acknowledge(100);
    assert_eq!(queue.stage.completed(), [(0, OK)]);
    queue.pass(10);
    queue.acknowledge(100);
    queue.pass_in_silence(TIMEOUT - 10);
    assert_eq!(queue.stage.sent_numbers(), [101, 102, 103]);
    queue.acknowledge(103);
    queue.stage.completed();
    queue.pass(TIMEOUT);
    assert_eq!((queue.stage.sent(), queue.requester.deadline()), (vec![], None));
}

/// An answer of the first attempt that comes after its request went out again is not a second loss.
/// Rules: PSN-24
#[test]
fn repeated_answers_of_a_read_are_ignored() {
    let mut queue = Queue::of_packets();
    queue.post(1, READ, 3 * MTU);
    queue.post(2, READ, MTU);
    queue.stage.sent();
    let data = pattern(4 * MTU);
    let (first, second) = data.split_at(3 * MTU as usize);
    let twice: Vec<Packet<'_>> =
        responses(100, first).into_iter().flat_map(|packet| [packet, packet]).collect();
    queue.take(&twice);
    queue.take(&responses(100, first));
    assert_eq!(queue.stage.completed(), [(1, OK)]);
    queue.take(&responses(103, second));
    assert_eq!((queue.stage.completed(), queue.stage.sent()), (vec![(2, OK)], vec![]));
}

/// What is to go out again may be answered before it does; then nothing is waited for any more.
/// Rules: RN-06
#[test]
fn a_late_answer_leaves_no_deadline() {
    let mut queue = Queue::of_packets();
    let data = pattern(2 * MTU);
    queue.post(1, READ, 2 * MTU);
    let [first, second] = responses(100, &data)[..] else { panic!("two packets") };
    // They overtook each other, and came together.
    queue.take(&[second, first, second]);
    assert_eq!(queue.stage.completed(), [(1, OK)]);
    while let Some(deadline) = queue.requester.deadline() {
        let now = queue.stage.time.get();
        assert!(deadline > now, "the host is called without end");
        queue.pass(deadline - now);
    }
    assert_eq!(queue.stage.sent_numbers(), [100]);
}

/// The refusal is lost: the target, in error, says nothing any more, and the requester gives up.
/// Rules: RA-55, RA-54
#[test]
fn a_lost_refusal_is_not_repeated() {
    let mut queue = Queue::of(Service::Rc, FIRST);
    let mut target = Target::new(Service::Rc);
    // The target has no such key.
    queue.post(1, READ, 8);
    let asked = queue.stage.sent();
    target.receive(&asked);
    let refusal = target.stage.sent();
    let [lost] = &refusal[..] else { panic!("{refusal:?}") };
    assert!(matches!(lost.operation, Operation::Acknowledge(aeth) if aeth.byte == 0x62));
    assert_eq!(target.stage.state(), QpState::Error);
    let mut attempts = 0;
    while let Some(deadline) = queue.requester.deadline() {
        queue.pass(deadline.saturating_sub(queue.stage.time.get()));
        for packet in queue.stage.sent() {
            attempts += 1;
            assert_eq!(packet, asked[0]);
            assert_eq!(target.take(packet), []);
        }
    }
    assert_eq!(attempts, queue.requester.retry.count);
    assert_eq!(queue.stage.completed(), [(1, Status::RetryExceeded)]);
    assert_eq!(queue.state(), QpState::Error);
}
