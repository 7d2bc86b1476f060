//! The send queue alone, over a link of messages and a clock that the test plays: what it sends, how
//! often, when exactly, and what it makes of each answer.

use transom_device::execution::{Reply, Request};
use transom_device::qp::QpState;
use transom_device::queue::{Body, SendFlags, SendOp, Status};
use transom_simulation::send_queue::{ADD, Queue, READ, SEND};
use transom_wire::RnrTimer;

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
        let mut queue = Queue::of_messages();
        queue.requester.retry.rnr_count = count;
        queue.post(1, SEND, 0);
        for _ in 0..if count == 7 { 100 } else { count } {
            let sent = queue.stage.requests();
            assert_eq!(sent.len(), 1);
            queue.reply(&sent[0], Reply::NotReady(timer));
            queue.pass_in_silence(640_000);
        }
        let sent = queue.stage.requests();
        queue.reply(&sent[0], Reply::NotReady(timer));
        if count == 7 {
            queue.pass_in_silence(640_000);
            assert_eq!((queue.stage.requests().len(), queue.state()), (1, QpState::Rts));
        } else {
            assert_eq!(queue.stage.completed(), [(1, Status::RnrRetryExceeded)]);
            assert_eq!(queue.state(), QpState::Error);
        }
    }
}

/// With `retry_cnt` n a request is sent n + 1 times, a timeout apart, and given up after another.
/// Rules: RN-06, RN-07
#[test]
fn timeouts_are_counted() {
    let timeout = 4_096 << 10;
    for count in 0..=7 {
        let mut queue = Queue::of_messages();
        queue.requester.retry.count = count;
        queue.post(1, SEND, 0);
        for _ in 0..count {
            let sent = queue.stage.requests();
            assert_eq!(sent.len(), 1);
            queue.reply(&sent[0], Reply::Dropped);
            queue.pass_in_silence(timeout);
        }
        let sent = queue.stage.requests();
        queue.reply(&sent[0], Reply::Dropped);
        queue.pass_in_silence(timeout);
        assert_eq!(queue.stage.requests(), []);
        assert_eq!(queue.stage.completed(), [(1, Status::RetryExceeded)]);
        assert_eq!(queue.state(), QpState::Error);
    }
    let mut queue = Queue::of_messages();
    queue.requester.retry.timeout = 0;
    queue.post(1, SEND, 0);
    let sent = queue.stage.requests();
    queue.reply(&sent[0], Reply::Dropped);
    assert_eq!(queue.requester.deadline(), None);
    queue.pass(u64::MAX / 2);
    assert_eq!((queue.stage.requests(), queue.state()), (vec![], QpState::Rts));
}

/// Both counters begin anew with each message that is answered.
/// Rules: RN-05, RN-08
#[test]
fn progress_reloads_the_counters() {
    let timer = RnrTimer::new(1).expect("a code");
    let mut queue = Queue::of_messages();
    (queue.requester.retry.count, queue.requester.retry.rnr_count) = (1, 2);
    for wr_id in 0..5 {
        queue.post(wr_id, SEND, 0);
        for (reply, wait) in [
            (Reply::NotReady(timer), 10_000),
            (Reply::Dropped, 4_096 << 10),
            (Reply::NotReady(timer), 10_000),
        ] {
            let sent = queue.stage.requests();
            queue.reply(&sent[0], reply);
            queue.pass_in_silence(wait);
        }
        let sent = queue.stage.requests();
        queue.reply(&sent[0], Reply::Ack);
        assert_eq!(queue.stage.completed(), [(wr_id, Status::Success)]);
    }
    assert_eq!(queue.state(), QpState::Rts);
}

/// A retry begins with the oldest request that is not answered, under its old number, and takes
/// along what was sent behind it; answers to the first attempt do not count any more.
/// Rules: RN-09
#[test]
fn a_retry_begins_with_the_oldest_unanswered() {
    let mut queue = Queue::of_messages();
    queue.requester.retry.count = 3;
    for wr_id in 0..4 {
        queue.post(wr_id, SEND, 0);
    }
    let first = queue.stage.requests();
    let numbers = |sent: &[Request]| sent.iter().map(|r| r.message.value()).collect::<Vec<_>>();
    assert_eq!(numbers(&first), [100, 101, 102, 103]);
    queue.reply(&first[0], Reply::Ack);
    queue.reply(&first[1], Reply::Dropped);
    queue.reply(&first[2], Reply::Ack);
    assert_eq!(queue.stage.completed(), [(0, Status::Success)]);
    queue.pass_in_silence(4_096 << 10);
    let again = queue.stage.requests();
    assert_eq!(numbers(&again), [101, 102, 103]);
    queue.reply(&first[1], Reply::Ack);
    assert_eq!(queue.stage.completed(), [], "an answer to the abandoned attempt");
    for request in &again {
        queue.reply(request, Reply::Ack);
    }
    let done: Vec<_> = (1..4).map(|wr_id| (wr_id, Status::Success)).collect();
    assert_eq!(queue.stage.completed(), done);
    queue.post(4, SEND, 0);
    assert_eq!(numbers(&queue.stage.requests()), [104]);
}

/// Of READs and atomics as many are under way as allowed; the next starts with each answer, and
/// nothing behind one that waits starts before it.
/// Rules: RN-11, RN-14
#[test]
fn reads_beyond_the_limit_are_held_back() {
    for limit in 1..=5 {
        let mut queue = Queue::of_messages();
        queue.requester.max_rd_atomic = limit;
        for (wr_id, op) in (0..).zip([SEND, READ, READ, READ, READ, SEND]) {
            queue.post(wr_id, op, bytes_of(op));
        }
        let limit = usize::from(limit);
        let mut sent = queue.stage.requests();
        // The first SEND and as many as allowed; the last SEND if it is behind none that waits.
        assert_eq!(sent.len(), if limit < 4 { 1 + limit } else { 6 });
        let first = sent.remove(0);
        queue.reply(&first, Reply::Ack);
        assert_eq!(queue.stage.requests(), [], "a SEND makes no room for a READ");
        for answered in 1..=4 {
            let request = sent.remove(0);
            queue.reply(&request, Reply::Data { length: 0 });
            assert_eq!(queue.stage.completed().last().expect("done").1, Status::Success);
            let next = queue.stage.requests();
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
    let mut queue = Queue::of_messages();
    queue.requester.max_rd_atomic = 2;
    for (wr_id, op) in (0..).zip([ADD, READ, ADD, READ]) {
        queue.post(wr_id, op, bytes_of(op));
    }
    assert_eq!(queue.stage.requests().len(), 2);
}

/// A fenced request starts once no READ or atomic before it is under way; SENDs do not count.
/// Rules: PS-09
#[test]
fn a_fenced_request_waits_for_reads() {
    let mut queue = Queue::of_messages();
    for (wr_id, op) in (0..).zip([SEND, READ, READ]) {
        queue.post(wr_id, op, bytes_of(op));
    }
    queue.post_with(3, SEND, 0, SendFlags::FENCE);
    queue.post(4, READ, 0);
    let sent = queue.stage.requests();
    assert_eq!(sent.len(), 3);
    queue.reply(&sent[0], Reply::Ack);
    queue.reply(&sent[1], Reply::Data { length: 0 });
    assert_eq!(queue.stage.requests(), [], "one READ is left");
    queue.reply(&sent[2], Reply::Data { length: 0 });
    let bodies: Vec<_> = queue.stage.requests().iter().map(|request| request.body).collect();
    assert!(matches!(bodies[..], [Body::Send, Body::Read { .. }]), "{bodies:?}");
    let mut queue = Queue::of_messages();
    queue.post(0, SEND, 0);
    queue.post_with(1, SEND, 0, SendFlags::FENCE);
    assert_eq!(queue.stage.requests().len(), 2);
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
        let mut queue = Queue::of_messages();
        queue.post(1, op, bytes_of(op));
        queue.post(2, SEND, 0);
        let sent = queue.stage.requests();
        queue.reply(&sent[0], reply);
        let expected = [(1, Status::BadResponse), (2, Status::Flushed)];
        assert_eq!(queue.stage.completed(), expected, "{op:?} answered by {reply:?}");
        assert_eq!(queue.state(), QpState::Error);
    }
}
