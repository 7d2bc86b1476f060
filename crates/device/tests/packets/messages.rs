//! The send queue alone, over a link of messages and a clock that the test plays: what it sends, how
//! often, when exactly, and what it makes of each answer.

use transom_device::execution::{Reply, Request};
use transom_device::qp::QpState;
use transom_device::queue::{Body, SendFlags, SendOp, Status};
use transom_wire::RnrTimer;

use crate::origin::{ADD, READ, SEND, origin_over_messages};

/// How many bytes an operation is posted with: none where that can be.
fn bytes_of(op: SendOp) -> u64 {
    if op == ADD { 8 } else { 0 }
}

/// With `rnr_retry` n a request is sent n + 1 times, each after exactly the time the target said.
/// Rules: RN-02, RN-03, RN-04
#[test]
fn rnr_retries_are_counted() {
    let timer = RnrTimer::new(12).expect("a code");
    for count in 0..=7 {
        let mut origin = origin_over_messages();
        origin.qp.requester.retry.rnr_count = count;
        origin.post_send(1, SEND, 0);
        for _ in 0..if count == 7 { 100 } else { count } {
            let sent = origin.env.messages();
            assert_eq!(sent.len(), 1);
            origin.reply(&sent[0], Reply::NotReady(timer));
            origin.pass_in_silence(640_000);
        }
        let sent = origin.env.messages();
        origin.reply(&sent[0], Reply::NotReady(timer));
        if count == 7 {
            origin.pass_in_silence(640_000);
            assert_eq!((origin.env.messages().len(), origin.env.state()), (1, QpState::Rts));
        } else {
            assert_eq!(origin.env.statuses(), [(1, Status::RnrRetryExceeded)]);
            assert_eq!(origin.env.state(), QpState::Error);
        }
    }
}

/// Rule: REH-06
#[test]
fn a_queue_that_begins_late_waits_on_as_long_as_its_process_says() {
    for waits_on in [false, true] {
        let mut origin = origin_over_messages();
        let end = origin.env.time.get() + 5_000;
        origin.qp.requester.hold(end);
        origin.env.waits_on.set(waits_on.then_some(end + 300));
        origin.post_send(1, SEND, 0);
        origin.pass_in_silence(5_000);
        if waits_on {
            origin.pass_in_silence(300);
        }
        assert_eq!(origin.env.messages().len(), 1);
    }
}

/// With `retry_cnt` n a request is sent n + 1 times, and given up after another wait: one, two, and then four
/// timeouts each.
/// Rules: RN-06, RN-07
#[test]
fn timeouts_are_counted() {
    let timeout = 4_096 << 10;
    for count in 0..=7 {
        let mut origin = origin_over_messages();
        origin.qp.requester.retry.count = count;
        origin.post_send(1, SEND, 0);
        for attempt in 0..=count {
            let sent = origin.env.messages();
            assert_eq!(sent.len(), 1);
            origin.reply(&sent[0], Reply::Dropped);
            origin.pass_in_silence(timeout << attempt.min(2));
        }
        assert_eq!(origin.env.messages(), []);
        assert_eq!(origin.env.statuses(), [(1, Status::RetryExceeded)]);
        assert_eq!(origin.env.state(), QpState::Error);
    }
    let mut origin = origin_over_messages();
    origin.qp.requester.retry.timeout = 0;
    origin.post_send(1, SEND, 0);
    let sent = origin.env.messages();
    origin.reply(&sent[0], Reply::Dropped);
    assert_eq!(origin.qp.requester.deadline(), None);
    origin.pass(u64::MAX / 2);
    assert_eq!((origin.env.messages(), origin.env.state()), (vec![], QpState::Rts));
}

/// Both counters begin anew with each message that is answered.
/// Rules: RN-05, RN-08
#[test]
fn progress_reloads_the_counters() {
    let timer = RnrTimer::new(1).expect("a code");
    let mut origin = origin_over_messages();
    (origin.qp.requester.retry.count, origin.qp.requester.retry.rnr_count) = (1, 2);
    for wr_id in 0..5 {
        origin.post_send(wr_id, SEND, 0);
        for (reply, wait) in [
            (Reply::NotReady(timer), 10_000),
            (Reply::Dropped, 4_096 << 10),
            (Reply::NotReady(timer), 10_000),
        ] {
            let sent = origin.env.messages();
            origin.reply(&sent[0], reply);
            origin.pass_in_silence(wait);
        }
        let sent = origin.env.messages();
        origin.reply(&sent[0], Reply::Ack);
        assert_eq!(origin.env.statuses(), [(wr_id, Status::Success)]);
    }
    assert_eq!(origin.env.state(), QpState::Rts);
}

/// A retry begins with the oldest request that is not answered, under its old number, and takes
/// along what was sent behind it; answers to the first attempt do not count any more.
/// Rules: RN-09
#[test]
fn a_retry_begins_with_the_oldest_unanswered() {
    let mut origin = origin_over_messages();
    origin.qp.requester.retry.count = 3;
    for wr_id in 0..4 {
        origin.post_send(wr_id, SEND, 0);
    }
    let first = origin.env.messages();
    let numbers = |sent: &[Request]| sent.iter().map(|r| r.message.value()).collect::<Vec<_>>();
    assert_eq!(numbers(&first), [100, 101, 102, 103]);
    origin.reply(&first[0], Reply::Ack);
    origin.reply(&first[1], Reply::Dropped);
    origin.reply(&first[2], Reply::Ack);
    assert_eq!(origin.env.statuses(), [(0, Status::Success)]);
    origin.pass_in_silence(4_096 << 10);
    let again = origin.env.messages();
    assert_eq!(numbers(&again), [101, 102, 103]);
    origin.reply(&first[1], Reply::Ack);
    assert_eq!(origin.env.statuses(), [], "an answer to the abandoned attempt");
    for request in &again {
        origin.reply(request, Reply::Ack);
    }
    let done: Vec<_> = (1..4).map(|wr_id| (wr_id, Status::Success)).collect();
    assert_eq!(origin.env.statuses(), done);
    origin.post_send(4, SEND, 0);
    assert_eq!(numbers(&origin.env.messages()), [104]);
}

/// Of READs and atomics as many are under way as allowed; the next starts with each answer, and
/// nothing behind one that waits starts before it.
/// Rules: RN-11, RN-14
#[test]
fn reads_beyond_the_limit_are_held_back() {
    for limit in 1..=5 {
        let mut origin = origin_over_messages();
        origin.qp.requester.connection.max_rd_atomic = limit;
        for (wr_id, op) in (0..).zip([SEND, READ, READ, READ, READ, SEND]) {
            origin.post_send(wr_id, op, bytes_of(op));
        }
        let limit = usize::from(limit);
        let mut sent = origin.env.messages();
        // The first SEND and as many as allowed; the last SEND if it is behind none that waits.
        assert_eq!(sent.len(), if limit < 4 { 1 + limit } else { 6 });
        let first = sent.remove(0);
        origin.reply(&first, Reply::Ack);
        assert_eq!(origin.env.messages(), [], "a SEND makes no room for a READ");
        for answered in 1..=4 {
            let request = sent.remove(0);
            origin.reply(&request, Reply::Data { length: 0 });
            assert_eq!(origin.env.statuses().last().expect("done").1, Status::Success);
            let next = origin.env.messages();
            // The last READ to start brings the SEND behind it along.
            let expected = match limit + answered {
                ..4 => 1,
                4 => 2,
                _ => 0,
            };
            assert_eq!(next.len(), expected, "limit {limit}, {answered} answered");
            sent.extend(next);
        }
    }
    // Atomics count with the READs.
    let mut origin = origin_over_messages();
    origin.qp.requester.connection.max_rd_atomic = 2;
    for (wr_id, op) in (0..).zip([ADD, READ, ADD, READ]) {
        origin.post_send(wr_id, op, bytes_of(op));
    }
    assert_eq!(origin.env.messages().len(), 2);
}

/// A fenced request starts once no READ or atomic before it is under way; SENDs do not count.
/// Rules: PS-09
#[test]
fn a_fenced_request_waits_for_reads() {
    let mut origin = origin_over_messages();
    for (wr_id, op) in (0..).zip([SEND, READ, READ]) {
        origin.post_send(wr_id, op, bytes_of(op));
    }
    origin.post_send_with(3, SEND, 0, SendFlags::FENCE);
    origin.post_send(4, READ, 0);
    let sent = origin.env.messages();
    assert_eq!(sent.len(), 3);
    origin.reply(&sent[0], Reply::Ack);
    origin.reply(&sent[1], Reply::Data { length: 0 });
    assert_eq!(origin.env.messages(), [], "one READ is left");
    origin.reply(&sent[2], Reply::Data { length: 0 });
    let bodies: Vec<_> = origin.env.messages().iter().map(|request| request.body).collect();
    assert!(matches!(bodies[..], [Body::Send, Body::Read { .. }]), "{bodies:?}");
    let mut origin = origin_over_messages();
    origin.post_send(0, SEND, 0);
    origin.post_send_with(1, SEND, 0, SendFlags::FENCE);
    assert_eq!(origin.env.messages().len(), 2);
}

/// An answer of another kind or length than the oldest request waits for is a bad response.
/// Rules: WC-07
#[test]
fn an_answer_that_does_not_fit_is_a_bad_response() {
    let data = |length| Reply::Data { length };
    for (op, reply) in [
        (SEND, Reply::Atomic(1)),
        (SEND, data(0)),
        (SEND, data(8)),
        (READ, Reply::Ack),
        (READ, Reply::Atomic(1)),
        (READ, data(8)),
        (ADD, Reply::Ack),
        (ADD, data(8)),
    ] {
        let mut origin = origin_over_messages();
        origin.post_send(1, op, bytes_of(op));
        origin.post_send(2, SEND, 0);
        let sent = origin.env.messages();
        origin.reply(&sent[0], reply);
        let expected = [(1, Status::BadResponse), (2, Status::Flushed)];
        assert_eq!(origin.env.statuses(), expected, "{op:?} answered by {reply:?}");
        assert_eq!(origin.env.state(), QpState::Error);
    }
}
