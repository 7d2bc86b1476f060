//! The send queue alone, over a link and a clock that the test plays: what it sends, how often,
//! when exactly, and what it makes of each answer.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use transom_device::Access;
use transom_device::execution::*;
use transom_device::protection::{Announcer, Grant, Key, KeyTable, Refusal, Waiter};
use transom_device::qp::{Gate, QpNumber, QpState, QpSummary, QpTable, Service};
use transom_device::queue::{
    Body, Completion, Receive, Remote, SendFlags, SendOp, SendRequest, Sge, Status,
};
use transom_host::{Adapter, Options};
use transom_wire::{Psn, RnrTimer};

/// Everything around a send queue: nothing happens in it but what the test does.
struct Stage {
    adapter: Arc<Adapter>,
    summary: QpSummary,
    time: Cell<u64>,
    sent: RefCell<Vec<Request>>,
    completed: RefCell<Vec<Completion>>,
}

impl Stage {
    fn new() -> Self {
        let summary = QpSummary::default();
        summary.set_gate(Gate {
            state: QpState::Rts,
            service: Service::Rc,
            access: Access::empty(),
            read_resources: 0,
            pd: 1,
        });
        Self {
            adapter: Adapter::open(Options::default()).expect("a device opens"),
            summary,
            time: Cell::new(1_000_000),
            sent: RefCell::default(),
            completed: RefCell::default(),
        }
    }

    /// The requests sent since this was last asked.
    fn sent(&self) -> Vec<Request> {
        self.sent.take()
    }

    /// The completions since this was last asked: id and status.
    fn completed(&self) -> Vec<(u64, Status)> {
        self.completed.take().iter().map(|done| (done.wr_id, done.status)).collect()
    }
}

impl Services for Stage {
    fn keys(&self) -> KeyTable<'_> {
        self.adapter.segment().keys()
    }

    fn qps(&self) -> QpTable<'_> {
        self.adapter.segment().qps()
    }

    fn announcer(&self) -> Announcer {
        self.adapter.announcer()
    }

    fn waiter(&self) -> &dyn Waiter {
        &*self.adapter
    }

    fn now(&self) -> u64 {
        self.time.get()
    }

    fn number(&self) -> QpNumber {
        QpNumber::from_bits(0x11)
    }

    fn summary(&self) -> &QpSummary {
        &self.summary
    }

    fn store(&self, _at: &Grant<'_>, _bytes: &[u8]) -> Result<(), MemoryGone> {
        Err(MemoryGone)
    }

    fn store_pieces(&self, _at: &Grant<'_>, _pieces: &[&[u8]]) -> Result<(), MemoryGone> {
        Err(MemoryGone)
    }

    fn atomic(
        &self,
        _at: &Grant<'_>,
        _update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, MemoryGone> {
        Err(MemoryGone)
    }

    fn complete(&self, side: QueueSide, completion: Completion, _solicited: bool) {
        assert_eq!(side, QueueSide::Send);
        self.completed.borrow_mut().push(completion);
    }

    fn take_shared(&self, _: Option<u32>, _: Option<u64>, _: u64, _: &mut Receive) -> TakeShared {
        TakeShared::Unknown
    }

    fn rendezvous(&self) {}

    fn forget_unexpected(&self) {}

    fn shared_pd(&self, _: u32) -> Option<u32> {
        None
    }

    fn complete_shared(&self, _: u32, _: Completion, _: bool) {}

    fn event(&self, event: QpEvent) {
        panic!("no event is due, yet {event:?}");
    }

    fn refused(&self, _refusal: &Refusal) {}

    fn flush_other(&self, _fallen: QueueSide) {}
}

impl Origin for Stage {
    fn peer(&self) -> QpNumber {
        QpNumber::from_bits(0x22)
    }

    fn write_direct(&self, _: u64, _: Key, _: Payload<'_>, _: u64) -> Direct {
        Direct::Declined
    }

    fn read_direct(&self, _: u64, _: Key, _: &[Sge], _: u64) -> Direct {
        Direct::Declined
    }

    fn path_mtu(&self) -> Option<u64> {
        None
    }

    fn segment_limit(&self) -> u64 {
        1024
    }

    fn send(&self, request: &Request, _payload: Payload<'_>) -> Sent {
        self.sent.borrow_mut().push(*request);
        Sent::Queued
    }
}

const SEND: SendOp = SendOp::Message(Body::Send);
const READ: SendOp = SendOp::Message(Body::Read { address: 0, key: Key(0) });
const ADD: SendOp = SendOp::Message(Body::FetchAdd { address: 0, key: Key(0), add: 1 });

/// A send queue on its stage.
struct Queue {
    stage: Stage,
    requester: Requester,
}

impl Queue {
    fn new() -> Self {
        let limits = RequesterLimits { size: 64, pieces: 2, inline_room: 0, signal_all: true };
        let mut requester = Requester::new(Service::Rc, &limits).expect("there is memory");
        requester.max_rd_atomic = 16;
        requester.retry.timeout = 10;
        requester.start(Psn::new(100));
        Self { stage: Stage::new(), requester }
    }

    fn post(&mut self, wr_id: u64, op: SendOp) {
        self.post_with(wr_id, op, SendFlags::empty());
    }

    fn post_with(&mut self, wr_id: u64, op: SendOp, flags: SendFlags) {
        let piece = [Sge { length: 8, ..Sge::default() }];
        let atomic = matches!(op, SendOp::Message(Body::FetchAdd { .. }));
        let sges = if atomic { &piece[..] } else { &[] };
        let request =
            SendRequest { wr_id, op, flags, sges, inline: None, remote: Remote::Connected };
        self.requester.post(&request, &self.stage).expect("it fits");
        self.requester.advance(&self.stage);
    }

    /// The target answers the request.
    fn answer(&mut self, to: &Request, reply: Reply) {
        self.requester.on_reply(to.message, to.attempt, reply, None, &self.stage);
        self.requester.advance(&self.stage);
    }

    fn pass(&mut self, nanoseconds: u64) {
        self.stage.time.set(self.stage.time.get() + nanoseconds);
        self.requester.advance(&self.stage);
    }

    /// Lets the time pass and checks that nothing is sent until the last nanosecond of it.
    fn pass_in_silence(&mut self, nanoseconds: u64) {
        self.pass(nanoseconds - 1);
        assert_eq!((self.stage.sent(), self.stage.completed()), (vec![], vec![]));
        self.pass(1);
    }

    fn state(&self) -> QpState {
        self.stage.summary.gate().state
    }
}

/// With `rnr_retry` n a request is sent n + 1 times, each after exactly the time the target said.
/// Rules: RN-02, RN-03, RN-04
#[test]
fn rnr_retries_are_counted() {
    let timer = RnrTimer::new(12).expect("a code");
    for count in 0..=7 {
        let mut queue = Queue::new();
        queue.requester.retry.rnr_count = count;
        queue.post(1, SEND);
        for _ in 0..if count == 7 { 100 } else { count } {
            let sent = queue.stage.sent();
            assert_eq!(sent.len(), 1);
            queue.answer(&sent[0], Reply::NotReady(timer));
            queue.pass_in_silence(640_000);
        }
        let sent = queue.stage.sent();
        queue.answer(&sent[0], Reply::NotReady(timer));
        if count == 7 {
            queue.pass_in_silence(640_000);
            assert_eq!((queue.stage.sent().len(), queue.state()), (1, QpState::Rts));
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
    let patience = 4_096 << 10;
    for count in 0..=7 {
        let mut queue = Queue::new();
        queue.requester.retry.count = count;
        queue.post(1, SEND);
        for _ in 0..count {
            let sent = queue.stage.sent();
            assert_eq!(sent.len(), 1);
            queue.answer(&sent[0], Reply::Dropped);
            queue.pass_in_silence(patience);
        }
        let sent = queue.stage.sent();
        queue.answer(&sent[0], Reply::Dropped);
        queue.pass_in_silence(patience);
        assert_eq!(queue.stage.sent(), []);
        assert_eq!(queue.stage.completed(), [(1, Status::RetryExceeded)]);
        assert_eq!(queue.state(), QpState::Error);
    }
    let mut queue = Queue::new();
    queue.requester.retry.timeout = 0;
    queue.post(1, SEND);
    let sent = queue.stage.sent();
    queue.answer(&sent[0], Reply::Dropped);
    queue.pass_in_silence(u64::MAX / 2);
    assert_eq!((queue.stage.sent(), queue.state()), (vec![], QpState::Rts));
}

/// Both counters begin anew with each message that is answered.
/// Rules: RN-05, RN-08
#[test]
fn progress_reloads_the_counters() {
    let timer = RnrTimer::new(1).expect("a code");
    let mut queue = Queue::new();
    (queue.requester.retry.count, queue.requester.retry.rnr_count) = (1, 2);
    for wr_id in 0..5 {
        queue.post(wr_id, SEND);
        for (reply, wait) in [
            (Reply::NotReady(timer), 10_000),
            (Reply::Dropped, 4_096 << 10),
            (Reply::NotReady(timer), 10_000),
        ] {
            let sent = queue.stage.sent();
            queue.answer(&sent[0], reply);
            queue.pass_in_silence(wait);
        }
        let sent = queue.stage.sent();
        queue.answer(&sent[0], Reply::Ack);
        assert_eq!(queue.stage.completed(), [(wr_id, Status::Success)]);
    }
    assert_eq!(queue.state(), QpState::Rts);
}

/// A retry begins with the oldest request that is not answered, under its old number, and takes
/// along what was sent behind it; answers to the first attempt do not count any more.
/// Rules: RN-09
#[test]
fn a_retry_begins_with_the_oldest_unanswered() {
    let mut queue = Queue::new();
    queue.requester.retry.count = 3;
    for wr_id in 0..4 {
        queue.post(wr_id, SEND);
    }
    let first = queue.stage.sent();
    let numbers = |sent: &[Request]| sent.iter().map(|r| r.message.value()).collect::<Vec<_>>();
    assert_eq!(numbers(&first), [100, 101, 102, 103]);
    queue.answer(&first[0], Reply::Ack);
    queue.answer(&first[1], Reply::Dropped);
    queue.answer(&first[2], Reply::Ack);
    assert_eq!(queue.stage.completed(), [(0, Status::Success)]);
    queue.pass_in_silence(4_096 << 10);
    let again = queue.stage.sent();
    assert_eq!(numbers(&again), [101, 102, 103]);
    queue.answer(&first[1], Reply::Ack);
    assert_eq!(queue.stage.completed(), [], "an answer to the abandoned attempt");
    for request in &again {
        queue.answer(request, Reply::Ack);
    }
    let done: Vec<_> = (1..4).map(|wr_id| (wr_id, Status::Success)).collect();
    assert_eq!(queue.stage.completed(), done);
    queue.post(4, SEND);
    assert_eq!(numbers(&queue.stage.sent()), [104]);
}

/// Of READs and atomics as many are under way as allowed; the next starts with each answer, and
/// nothing behind one that waits starts before it.
/// Rules: RN-11, RN-14
#[test]
fn reads_beyond_the_limit_are_held_back() {
    for limit in 1..=5 {
        let mut queue = Queue::new();
        queue.requester.max_rd_atomic = limit;
        for (wr_id, op) in (0..).zip([SEND, READ, READ, READ, READ, SEND]) {
            queue.post(wr_id, op);
        }
        let limit = usize::from(limit);
        let mut sent = queue.stage.sent();
        // The first SEND and as many as allowed; the last SEND if it is behind none that waits.
        assert_eq!(sent.len(), if limit < 4 { 1 + limit } else { 6 });
        let first = sent.remove(0);
        queue.answer(&first, Reply::Ack);
        assert_eq!(queue.stage.sent(), [], "a SEND makes no room for a READ");
        for answered in 1..=4 {
            let request = sent.remove(0);
            queue.answer(&request, Reply::Data { length: 0 });
            assert_eq!(queue.stage.completed().last().expect("done").1, Status::Success);
            let next = queue.stage.sent();
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
    let mut queue = Queue::new();
    queue.requester.max_rd_atomic = 2;
    for (wr_id, op) in (0..).zip([ADD, READ, ADD, READ]) {
        queue.post(wr_id, op);
    }
    assert_eq!(queue.stage.sent().len(), 2);
}

/// A fenced request starts once no READ or atomic before it is under way; SENDs do not count.
/// Rules: PS-09
#[test]
fn a_fenced_request_waits_for_reads() {
    let mut queue = Queue::new();
    for (wr_id, op) in (0..).zip([SEND, READ, READ]) {
        queue.post(wr_id, op);
    }
    queue.post_with(3, SEND, SendFlags::FENCE);
    queue.post(4, READ);
    let sent = queue.stage.sent();
    assert_eq!(sent.len(), 3);
    queue.answer(&sent[0], Reply::Ack);
    queue.answer(&sent[1], Reply::Data { length: 0 });
    assert_eq!(queue.stage.sent(), [], "one READ is left");
    queue.answer(&sent[2], Reply::Data { length: 0 });
    let bodies: Vec<_> = queue.stage.sent().iter().map(|request| request.body).collect();
    assert!(matches!(bodies[..], [Body::Send, Body::Read { .. }]), "{bodies:?}");
    let mut queue = Queue::new();
    queue.post(0, SEND);
    queue.post_with(1, SEND, SendFlags::FENCE);
    assert_eq!(queue.stage.sent().len(), 2);
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
        let mut queue = Queue::new();
        queue.post(1, op);
        queue.post(2, SEND);
        let sent = queue.stage.sent();
        queue.answer(&sent[0], reply);
        let expected = [(1, Status::BadResponse), (2, Status::Flushed)];
        assert_eq!(queue.stage.completed(), expected, "{op:?} answered by {reply:?}");
        assert_eq!(queue.state(), QpState::Error);
    }
}
