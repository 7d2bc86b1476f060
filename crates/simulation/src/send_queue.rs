//! Everything around a send queue, over packets or messages: nothing happens in it but what the test
//! does.

use std::cell::{Cell, RefCell};
use std::sync::atomic::AtomicU32;

use transom_device::Access;
use transom_device::execution::*;
use transom_device::protection::{
    self, Announcer, Attempt, Grant, Hazards, Key, KeyEntry, KeyTable, Place, Reason, Refusal,
    Region, Scramble, Waiter,
};
use transom_device::qp::{Gate, QpNumber, QpState, QpSummary, QpTable, Service};
use transom_device::queue::{
    Address, Body, Completion, Receive, Remote, SendFlags, SendOp, SendRequest, Sge, Status,
};
use transom_device::transport::burst::Burst;
use transom_wire::Psn;
use transom_wire::packet::{Aeth, Operation, Packet};

use crate::packet_stage::unasked;

/// The path MTU.
pub const MTU: u64 = 1024;
/// Longest segment.
pub const BURST: u64 = 16 * MTU;
/// Bytes of the local region.
pub const MEMORY: u64 = 1 << 20;
/// How long an answer may take, with the timeout that [`Queue::of`] sets.
pub const TIMEOUT: u64 = 4_096 << 10;

/// A packet that was sent.
pub type Packed = Packet<'static>;

struct Nobody;

impl Waiter for Nobody {
    fn pause(&self, _: u32, _: Option<Announcer>) {
        unreachable!("nobody is waited for");
    }

    fn resumed(&self) {}

    fn is_gone(&self, _: Announcer) -> bool {
        false
    }
}

const ANNOUNCER: Announcer = Announcer { slot: 0, generation: 1 };

/// What a send queue sees: its memory, its link, its clock.
pub struct Stage {
    service: Service,
    entries: [KeyEntry; 1],
    open: AtomicU32,
    scramble: Box<Scramble>,
    hazards: Hazards,
    summary: QpSummary,
    /// The path MTU, if the link carries packets and not messages.
    pub mtu: Option<u64>,
    /// The clock, in nanoseconds.
    pub time: Cell<u64>,
    /// How many more segments the link takes.
    pub room: Cell<usize>,
    /// The memory that is sent is gone, though its key still grants it.
    pub gone: Cell<bool>,
    /// What other queue pairs leave of the window.
    pub share: Cell<u64>,
    /// The local region.
    pub memory: RefCell<Vec<u8>>,
    sent: RefCell<Vec<Packed>>,
    requests: RefCell<Vec<Request>>,
    /// How many bytes each call stored, for each buffer.
    pub stored: RefCell<Vec<u64>>,
    completed: RefCell<Vec<Completion>>,
    /// The events that were raised.
    pub events: RefCell<Vec<QpEvent>>,
}

impl Stage {
    fn new(service: Service) -> Self {
        let stage = Self {
            service,
            entries: Default::default(),
            open: AtomicU32::new(1),
            scramble: Scramble::for_simulation(1),
            hazards: Hazards::default(),
            summary: QpSummary::default(),
            mtu: Some(MTU),
            time: Cell::new(1_000_000),
            room: Cell::new(usize::MAX),
            gone: Cell::new(false),
            share: Cell::new(u64::MAX),
            memory: RefCell::new(vec![0; MEMORY as usize]),
            sent: RefCell::default(),
            requests: RefCell::default(),
            stored: RefCell::default(),
            completed: RefCell::default(),
            events: RefCell::default(),
        };
        stage.hazards.attach(ANNOUNCER);
        stage.grant(Access::LOCAL_WRITE);
        stage.set_state(QpState::Rts);
        stage
    }

    /// The local region is registered with these rights.
    pub fn grant(&self, access: Access) {
        let place = Place::Memory(0);
        let region = Region { pd: 1, access, base: 0, length: MEMORY, place };
        region.register(&self.keys(), 0, self.key(), 0);
    }

    fn key(&self) -> Key {
        self.keys().key_of(0, 1)
    }

    /// The queue pair is in this state.
    pub fn set_state(&self, state: QpState) {
        let access = Access::empty();
        let gate = Gate {
            state,
            service: self.service,
            access,
            read_resources: 0,
            pd: 1,
            by_message: false,
        };
        self.summary.set_gate(gate);
    }

    /// The packets sent since this was last asked.
    pub fn sent(&self) -> Vec<Packed> {
        self.sent.take()
    }

    /// The requests sent as messages since this was last asked.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.take()
    }

    /// The numbers of the packets sent since this was last asked.
    pub fn sent_numbers(&self) -> Vec<u32> {
        self.sent().iter().map(|packet| packet.psn.value()).collect()
    }

    /// The completions since this was last asked: id and status.
    pub fn completed(&self) -> Vec<(u64, Status)> {
        self.completed.take().iter().map(|done| (done.wr_id, done.status)).collect()
    }

    fn write(&self, at: &Grant<'_>, pieces: &[&[u8]]) {
        let mut start = at.address() as usize;
        for piece in pieces {
            self.memory.borrow_mut()[start..start + piece.len()].copy_from_slice(piece);
            start += piece.len();
        }
        assert_eq!(start as u64, at.address() + at.length());
        self.stored.borrow_mut().push(at.length());
    }
}

impl Process for Stage {
    fn keys(&self) -> KeyTable<'_> {
        KeyTable::new(&self.entries, &self.open, &self.scramble, &self.hazards)
    }

    fn qps(&self) -> QpTable<'_> {
        QpTable::new(&[])
    }

    fn announcer(&self) -> Announcer {
        ANNOUNCER
    }

    fn waiter(&self) -> &dyn Waiter {
        &Nobody
    }

    fn now(&self) -> u64 {
        self.time.get()
    }

    fn store(&self, at: &Grant<'_>, pieces: &[&[u8]]) -> Result<(), MemoryGone> {
        self.write(at, pieces);
        Ok(())
    }

    fn atomic(&self, _: &Grant<'_>, _: &mut dyn FnMut(u64) -> u64) -> Result<u64, MemoryGone> {
        Err(MemoryGone)
    }

    fn take_shared(&self, _: Option<u32>, _: Option<u64>, _: u64, _: &mut Receive) -> TakeShared {
        TakeShared::Unknown
    }

    fn shared_pd(&self, _: u32) -> Option<u32> {
        None
    }

    fn datagram_limit(&self, _: &Address) -> u64 {
        MTU
    }
}

impl Stage {
    /// Notes what the send queue wants done.
    fn settle(&self, effects: &mut Effects) {
        for effect in effects.all() {
            match effect {
                Effect::Complete { side, completion, .. } => {
                    assert_eq!(*side, QueueSide::Send);
                    self.completed.borrow_mut().push(*completion);
                }
                Effect::Event(event) => self.events.borrow_mut().push(*event),
                Effect::Count { .. } | Effect::Refused(_) | Effect::FlushOther(_) => {}
                other => panic!("no send queue wants {other:?}"),
            }
        }
        effects.clear();
    }

    fn send(&self, request: &Request) -> Sent {
        let Some(room) = self.room.get().checked_sub(1) else { return Sent::Busy };
        if self.gone.get() {
            let (operation, address, length) = (protection::Operation::LocalRead, 0, 1);
            let attempt = Attempt { operation, key: self.key(), address, length, qp: 0x11, pd: 1 };
            return Sent::Near(Refusal::without_object(Reason::MemoryGone, attempt));
        }
        self.room.set(room);
        match self.mtu {
            Some(mtu) => {
                self.sent.borrow_mut().extend(Burst::new(request, mtu).map(|burst| burst.packet));
            }
            None => self.requests.borrow_mut().push(*request),
        }
        Sent::Queued
    }
}

/// A SEND.
pub const SEND: SendOp = SendOp::Message(Body::Send);
/// A WRITE.
pub const WRITE: SendOp =
    SendOp::Message(Body::Write { address: 0x1000, key: Key(5), immediate: None });
/// A READ.
pub const READ: SendOp = SendOp::Message(Body::Read { address: 0x1000, key: Key(5) });
/// A fetch-and-add.
pub const ADD: SendOp = SendOp::Message(Body::FetchAdd { address: 0x1000, key: Key(5), add: 1 });

/// A send queue on its stage.
pub struct Queue {
    /// Around it.
    pub stage: Stage,
    /// It.
    pub requester: Requester,
    effects: Effects,
}

impl Queue {
    /// A queue over packets, the first of which has number 100.
    pub fn of_packets() -> Self {
        Self::of(Service::Rc, 100)
    }

    /// A queue over messages, the first of which has number 100.
    pub fn of_messages() -> Self {
        let mut queue = Self::of_packets();
        queue.stage.mtu = None;
        queue
    }

    /// A queue of a service whose first packet has this number.
    pub fn of(service: Service, first: u32) -> Self {
        let limits = RequesterLimits { size: 64, max_sge: 2, inline_room: 0, signal_all: true };
        let mut requester = Requester::new(service, &limits).expect("there is memory");
        requester.max_rd_atomic = 16;
        requester.window_limit = 1 << 20;
        requester.retry.timeout = 10;
        requester.retry.count = 7;
        requester.retry.rnr_count = 7;
        requester.peer = QpNumber::from_bits(0x22);
        requester.link = Segmentation { mtu: Some(MTU), whole: BURST, part: BURST };
        requester.start(Psn::new(first));
        let effects = requester.effects().expect("there is memory");
        Self { stage: Stage::new(service), requester, effects }
    }

    /// The send queue does something, and then what it can.
    pub fn drive<T>(
        &mut self,
        step: impl FnOnce(&mut Requester, &mut Context<'_, Stage>) -> T,
    ) -> T {
        let Self { stage, requester, effects } = self;
        let (number, summary) = (QpNumber::from_bits(0x11), &stage.summary);
        let counted = Counted::empty();
        let mut cx = Context { process: &*stage, number, summary, counted, effects };
        requester.link.mtu = stage.mtu;
        requester.window_share = stage.share.get();
        let result = step(requester, &mut cx);
        requester.check_timeout(&mut cx);
        while let Some(request) = requester.next_segment(&mut cx) {
            stage.settle(cx.effects);
            let outcome = stage.send(&request);
            if !requester.sent(&request, outcome, &mut cx) {
                break;
            }
        }
        stage.settle(cx.effects);
        result
    }

    /// The send queue does what it can.
    pub fn advance(&mut self) {
        self.drive(|_, _| ());
    }

    /// Posts a request of `length` bytes.
    pub fn post(&mut self, wr_id: u64, op: SendOp, length: u64) {
        self.post_with(wr_id, op, length, SendFlags::empty());
    }

    /// The same, with flags.
    pub fn post_with(&mut self, wr_id: u64, op: SendOp, length: u64, flags: SendFlags) {
        self.post_to(wr_id, op, length, flags, Remote::Connected);
    }

    /// The same, to somebody.
    pub fn post_to(
        &mut self,
        wr_id: u64,
        op: SendOp,
        length: u64,
        flags: SendFlags,
        remote: Remote,
    ) {
        // Of odd length where it can be, so that buffers and packets end in different places.
        let first = (length / 2) | 1;
        let key = self.stage.key().0;
        let sges = match length {
            0 => vec![],
            1..16 => vec![Sge { address: 0, length: length as u32, key }],
            _ => vec![
                Sge { address: 0, length: first as u32, key },
                Sge { address: first, length: (length - first) as u32, key },
            ],
        };
        let request = SendRequest { wr_id, op, flags, sges: &sges, inline: None, remote };
        self.drive(|requester, cx| requester.post(&request, cx)).expect("it fits");
    }

    /// These packets arrive together.
    pub fn take(&mut self, packets: &[Packet<'_>]) {
        self.drive(|requester, cx| requester.on_packets(packets, cx));
    }

    /// The target acknowledges everything up to this number.
    pub fn acknowledge(&mut self, psn: u32) {
        self.take(&[answer(psn, Operation::Acknowledge(aeth(0x1f)))]);
    }

    /// The target answers this number with a syndrome.
    pub fn refuse(&mut self, psn: u32, byte: u8) {
        self.take(&[answer(psn, Operation::Acknowledge(aeth(byte)))]);
    }

    /// The target replies to a message.
    pub fn reply(&mut self, to: &Request, reply: Reply) {
        self.drive(|requester, cx| {
            requester.on_reply(to.message, to.attempt, reply, None, cx);
        });
    }

    /// Lets the time pass.
    pub fn pass(&mut self, nanoseconds: u64) {
        self.stage.time.set(self.stage.time.get() + nanoseconds);
        self.advance();
    }

    /// Lets the time pass and checks that nothing is sent until the last nanosecond of it, and that
    /// the host has been asked to come then or before.
    pub fn pass_in_silence(&mut self, nanoseconds: u64) {
        let end = self.stage.time.get() + nanoseconds;
        while let Some(deadline) = self.requester.deadline().filter(|at| *at < end) {
            assert!(deadline > self.stage.time.get(), "the host is called without end");
            self.pass(deadline - self.stage.time.get());
            self.is_silent();
        }
        assert_eq!(self.requester.deadline(), Some(end));
        self.pass(end - 1 - self.stage.time.get());
        self.is_silent();
        self.pass(1);
    }

    fn is_silent(&self) {
        assert_eq!((self.stage.sent(), self.stage.requests()), (vec![], vec![]));
        assert_eq!(self.stage.completed(), []);
    }

    /// The state of the queue pair.
    pub fn state(&self) -> QpState {
        self.stage.summary.gate().state
    }
}

/// An answer to the queue pair of a [`Stage`].
pub fn answer(psn: u32, operation: Operation) -> Packet<'static> {
    Packet { to: 0x11, psn: Psn::new(psn), ..unasked(0, operation, &[]) }
}

/// An AETH that says how far messages have come not at all.
pub fn aeth(byte: u8) -> Aeth {
    Aeth { byte, msn: 0 }
}

/// The answer to a READ that begins with this number.
pub fn responses(first: u32, data: &[u8]) -> Vec<Packet<'_>> {
    let count = data.len().div_ceil(MTU as usize).max(1);
    (0..count)
        .map(|number| {
            let acknowledged = aeth(0x1f);
            let operation = match (number == 0, number + 1 == count) {
                (true, true) => Operation::ReadResponseOnly(acknowledged),
                (true, false) => Operation::ReadResponseFirst(acknowledged),
                (false, true) => Operation::ReadResponseLast(acknowledged),
                (false, false) => Operation::ReadResponseMiddle,
            };
            let payload = data.chunks(MTU as usize).nth(number).unwrap_or_default();
            Packet { payload, ..answer(first.wrapping_add(number as u32), operation) }
        })
        .collect()
}

/// Bytes that differ from place to place.
pub fn pattern(length: u64) -> Vec<u8> {
    (0..length).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}
