//! What is around a queue pair for which a test plays the peer, the network and the clock: a process,
//! and a link that keeps what it is given.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use transom_device::Access;
use transom_device::execution::{
    Counted, Effect, Injection, MemoryGone, Payload, PlainSend, Process, QpEvent, QueueSide,
    Request, Shortcuts, TakeShared,
};
use transom_device::protection::{
    Announcer, Bind, Grant, Key, KeyTable, Kind, Operation, Place, Reason, Refusal, Region,
    Scramble, Stamp, Waiter, WindowKind, bind_type2, invalidate,
};
use transom_device::qp::{Gate, Look, QpNumber, QpState, QpSummary, QpTable};
use transom_device::queue::{Address, Completion, Receive, ReceiveQueue, Status};
use transom_wire::packet::Packet;

use crate::device::{Alone, Device, SELF};
use crate::endpoint::{Attributes, Io};
use crate::packet::OwnedPacket;

/// The address of the first byte of memory.
pub const BASE: u64 = 0x10_0000;
/// How much of memory is in front of the region, and how much behind it; nobody may write there.
pub const MARGINS: [u64; 2] = [0x1000, 0x2000];
/// The number of the shared receive queue of XRC.
pub const SRQ: u32 = 0x1_0042;

/// The same for all: it takes long to make.
static SCRAMBLE: LazyLock<Arc<Scramble>> = LazyLock::new(|| Arc::from(Scramble::for_simulation(5)));

/// The process around a queue pair, and its link.
pub struct Environment {
    device: Device,
    number: QpNumber,
    peer: QpNumber,
    pd: u32,
    mtu: u64,
    end: u64,
    pub(crate) shared: RefCell<ReceiveQueue>,
    sent: RefCell<Vec<OwnedPacket>>,
    messages: RefCell<Vec<Request>>,
    ended: RefCell<Vec<(QueueSide, Completion, bool)>>,
    events: RefCell<Vec<QpEvent>>,
    refusals: RefCell<Vec<Refusal>>,
    given_back: [Cell<u32>; 2],
    counted: RefCell<Vec<(Counted, Option<u64>)>>,
    stored: RefCell<Vec<u64>>,
    seen: RefCell<Vec<usize>>,
    /// The clock, in nanoseconds.
    pub time: Cell<u64>,
    /// How many packets the link takes.
    pub room: Cell<usize>,
    /// How many packets of requests the link has leave together.
    pub joins: Cell<usize>,
    /// The link has no room for the next burst of data after all.
    pub full: Cell<bool>,
    /// The link takes plain SENDs as they are posted.
    pub at_once: Cell<bool>,
    /// A queue whose wait is over waits on until then.
    pub waits_on: Cell<Option<u64>>,
    /// The memory that is sent is gone, though its key still grants it.
    pub gone: Cell<bool>,
    /// The queue pair is another process's, as which it was looked at.
    pub looked: OnceCell<Look>,
    /// What the user wants done with the requests that come, in order; it is asked once for each.
    pub injections: RefCell<VecDeque<Option<Injection>>>,
    /// The region, with all rights.
    pub region: Key,
}

impl Environment {
    /// The environment of a queue pair, with so many bytes of memory.
    pub fn new(attributes: &Attributes, memory: usize) -> Self {
        // Bytes that differ from place to place.
        let mut bytes = (0..251).collect::<Vec<u8>>().repeat(memory.div_ceil(251));
        bytes.truncate(memory);
        let environment = Self {
            device: Device::new(BASE, bytes, Arc::clone(&SCRAMBLE), 8, 8),
            number: attributes.qp_num,
            peer: attributes.dest_qp_num,
            pd: attributes.pd,
            mtu: attributes.path_mtu,
            end: BASE + memory as u64,
            shared: RefCell::new(ReceiveQueue::shared(16, 2).expect("there is memory")),
            sent: RefCell::default(),
            messages: RefCell::default(),
            ended: RefCell::default(),
            events: RefCell::default(),
            refusals: RefCell::default(),
            given_back: Default::default(),
            counted: RefCell::default(),
            stored: RefCell::default(),
            seen: RefCell::default(),
            time: Cell::new(1_000_000),
            room: Cell::new(usize::MAX),
            joins: Cell::new(0),
            full: Cell::new(false),
            at_once: Cell::new(false),
            waits_on: Cell::new(None),
            gone: Cell::new(false),
            looked: OnceCell::new(),
            injections: RefCell::default(),
            region: Key(0),
        };
        let (slot, region) = environment.take_key(Kind::Region);
        environment.register(slot, region, Access::all() - Access::ZERO_BASED);
        Self { region, ..environment }
    }

    fn take_key(&self, kind: Kind) -> (u32, Key) {
        self.device.owner.borrow_mut().take(&self.keys(), kind, 3).expect("a slot")
    }

    fn register(&self, slot: u32, key: Key, access: Access) {
        let Range { start: base, end } = self.range();
        let (pd, length, place) = (self.pd, end - base, Place::Memory(base));
        Region { pd, access, base, length, place }.register(&self.keys(), slot, key, 0);
    }

    /// The addresses of the region.
    pub fn range(&self) -> Range<u64> {
        BASE + MARGINS[0]..self.end - MARGINS[1]
    }

    /// The region has these rights from now on.
    pub fn grant(&self, access: Access) {
        let slot = self.keys().slot_of(self.region).expect("the region's");
        self.register(slot, self.region, access);
    }

    /// A window of type 2 over part of the region, bound through this queue pair.
    pub fn window(&self, range: Range<u64>, access: Access) -> Key {
        let (slot, key) = self.take_key(Kind::Window2B);
        WindowKind::Type2B.allocate(&self.keys(), slot, key, self.pd);
        let window = key.next();
        self.bind(window, range, access);
        window
    }

    /// Binds a window, which is free, so that it has this key.
    pub fn bind(&self, window: Key, range: Range<u64>, access: Access) {
        let (address, length) = (range.start, range.end - range.start);
        let bind = Bind { window, region: self.region, address, length, access };
        bind_type2(&self.keys(), self.summary(), &bind, &self.stamp(), &Alone, None)
            .expect("it is bound");
    }

    /// LOCAL_INV of a window.
    pub fn invalidate(&self, key: Key) -> Result<(), Refusal> {
        let operation = Operation::Invalidate;
        invalidate(&self.keys(), &self.qps(), operation, key, &self.stamp(), &Alone, None)
    }

    fn stamp(&self) -> Stamp {
        Stamp { qp: self.number.bits(), pd: self.pd, wr_id: 0, now: 0 }
    }

    /// Changes what the queue pair lets in.
    pub fn gate(&self, change: impl FnOnce(&mut Gate)) {
        let mut gate = self.summary().gate();
        change(&mut gate);
        self.summary().set_gate(gate);
    }

    /// The state of the queue pair.
    pub fn state(&self) -> QpState {
        self.summary().gate().state
    }

    /// Bytes of memory as they are.
    pub fn bytes(&self, address: u64, length: usize) -> Vec<u8> {
        self.device.load(address, length as u64).expect("memory is there")
    }

    /// Puts bytes into memory, as a program does.
    pub fn put(&self, address: u64, bytes: &[u8]) {
        self.device.store(address, bytes).expect("memory is there");
    }

    /// All of memory.
    pub fn memory(&self) -> Vec<u8> {
        self.bytes(BASE, (self.end - BASE) as usize)
    }

    /// The memory that no key grants, in front of the region and behind it.
    pub fn outside(&self) -> [Vec<u8>; 2] {
        let Range { start, end } = self.range();
        [self.bytes(BASE, (start - BASE) as usize), self.bytes(end, (self.end - end) as usize)]
    }

    /// The packets sent since this was last asked.
    pub fn sent(&self) -> Vec<OwnedPacket> {
        self.sent.take()
    }

    /// The numbers of the packets sent since this was last asked.
    pub fn sent_numbers(&self) -> Vec<u32> {
        self.sent().iter().map(|packet| packet.psn.value()).collect()
    }

    /// The requests sent as messages since this was last asked.
    pub fn messages(&self) -> Vec<Request> {
        self.messages.take()
    }

    /// What has completed since this was last asked: in which queue, how, and whether it was solicited.
    pub fn ended(&self) -> Vec<(QueueSide, Completion, bool)> {
        self.ended.take()
    }

    /// The completions of both queues since this was last asked.
    pub fn completed(&self) -> Vec<Completion> {
        self.ended().into_iter().map(|(_, done, _)| done).collect()
    }

    /// Their ids and statuses.
    pub fn statuses(&self) -> Vec<(u64, Status)> {
        self.completed().iter().map(|done| (done.wr_id, done.status)).collect()
    }

    /// Which of them were solicited.
    pub fn solicited(&self) -> Vec<bool> {
        self.ended().into_iter().map(|(_, _, solicited)| solicited).collect()
    }

    /// The events since this was last asked.
    pub fn events(&self) -> Vec<QpEvent> {
        self.events.take()
    }

    /// Why requests were refused, since this was last asked.
    pub fn reasons(&self) -> Vec<Reason> {
        self.refusals().iter().map(|refusal| refusal.reason).collect()
    }

    /// What was refused since this was last asked.
    pub fn refusals(&self) -> Vec<Refusal> {
        self.refusals.take()
    }

    /// What completion counters were told since this was last asked.
    pub fn counted(&self) -> Vec<(Counted, Option<u64>)> {
        self.counted.take()
    }

    /// How many bytes each copy to memory stored, since this was last asked.
    pub fn stored(&self) -> Vec<u64> {
        self.stored.take()
    }

    /// How many packets had gone out when each completion was seen.
    pub fn seen(&self) -> Vec<usize> {
        self.seen.take()
    }

    /// Forgets what nobody has asked for, so that it does not pile up.
    pub fn forget(&self) {
        self.events();
        self.refusals();
        self.counted();
        self.stored();
        self.seen();
    }

    fn see(&self, side: QueueSide, completion: &Completion, solicited: bool) {
        self.seen.borrow_mut().push(self.sent.borrow().len());
        self.ended.borrow_mut().push((side, *completion, solicited));
    }

    fn transmit(&self, packets: &[Packet<'_>]) {
        self.room.set(self.room.get().saturating_sub(packets.len()));
        self.sent.borrow_mut().extend(packets.iter().map(OwnedPacket::from));
    }
}

impl Shortcuts for Environment {
    fn send_at_once(&self, send: &PlainSend, _data: Payload<'_>) -> bool {
        let takes = self.at_once.get() && self.room.get() > 0;
        if takes {
            self.send_message(&send.request());
        }
        takes
    }
}

impl Process for Environment {
    fn keys(&self) -> KeyTable<'_> {
        self.device.keys()
    }

    fn qps(&self) -> QpTable<'_> {
        self.device.table()
    }

    fn announcer(&self) -> Announcer {
        SELF
    }

    fn waiter(&self) -> &dyn Waiter {
        &Alone
    }

    fn now(&self) -> u64 {
        self.time.get()
    }

    fn waits_on(&self) -> Option<u64> {
        self.waits_on.take()
    }

    fn store(&self, at: &Grant<'_>, pieces: &[&[u8]]) -> Result<(), MemoryGone> {
        let bytes = pieces.concat();
        assert_eq!(bytes.len() as u64, at.length(), "a store fills its grant");
        self.stored.borrow_mut().push(at.length());
        self.device.store(at.place(), &bytes).ok_or(MemoryGone)
    }

    fn atomic(
        &self,
        at: &Grant<'_>,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, MemoryGone> {
        let old = self.device.word(at).ok_or(MemoryGone)?;
        self.device.store(at.place(), &update(old).to_ne_bytes()).ok_or(MemoryGone)?;
        Ok(old)
    }

    fn take_shared(
        &self,
        srq: Option<u32>,
        _tag: Option<u64>,
        least: u64,
        receive: &mut Receive,
    ) -> TakeShared {
        if srq != Some(SRQ) {
            return TakeShared::Unknown;
        }
        (receive.srq, receive.pd) = (srq, self.pd);
        TakeShared::Found(self.shared.borrow_mut().take(least, receive))
    }

    fn shared_pd(&self, srq: u32) -> Option<u32> {
        (srq == SRQ).then_some(self.pd)
    }

    fn complete(&self, completion: &Completion) {
        let [sent, _] = &self.given_back;
        sent.update(|places| places + completion.places);
        self.see(QueueSide::Send, completion, false);
    }

    fn connection(&self) -> Option<&Look> {
        self.looked.get()
    }

    fn note_refusal(&self, refusal: &Refusal) {
        self.refusals.borrow_mut().push(*refusal);
    }

    fn count(&self, operation: Counted, bytes: Option<u64>) {
        self.counted.borrow_mut().push((operation, bytes));
    }

    fn injected(&self, _request: &Request) -> Option<Injection> {
        self.injections.borrow_mut().pop_front().flatten()
    }

    fn datagram_limit(&self, _: &Address) -> u64 {
        self.mtu
    }
}

impl Io for Environment {
    fn summary(&self) -> &QpSummary {
        self.device.summary(self.number)
    }

    fn happened(&self, effect: &Effect) {
        match effect {
            Effect::Complete { completion, solicited } => {
                let [_, received] = &self.given_back;
                received.update(|places| places + completion.places);
                self.see(QueueSide::Receive, completion, *solicited);
            }
            Effect::CompleteShared { srq, completion, solicited } => {
                assert_eq!(*srq, SRQ);
                self.shared.borrow().returned().add(completion.places);
                self.see(QueueSide::Receive, completion, *solicited);
            }
            Effect::Event(event) => self.events.borrow_mut().push(*event),
            Effect::Respond(packet) => {
                assert_eq!(packet.to, self.peer.bits());
                self.transmit(&[*packet]);
            }
            other => panic!("no queue pair here wants {other:?}"),
        }
    }

    fn given_back(&self) -> &[Cell<u32>; 2] {
        &self.given_back
    }

    fn load(&self, at: &Grant<'_>) -> Option<Vec<u8>> {
        self.device.granted(at).filter(|_| !self.gone.get())
    }

    fn room(&self) -> usize {
        self.room.get()
    }

    fn send(&self, packets: &[Packet<'_>]) {
        self.transmit(packets);
    }

    fn joins(&self) -> usize {
        self.joins.get()
    }

    fn send_joined(&self, packets: &[Packet<'_>]) -> bool {
        let room = self.room.get().min(packets.len());
        self.transmit(&packets[..room]);
        room == packets.len()
    }

    fn send_answer(&self, packets: &[Packet<'_>]) -> bool {
        if self.full.replace(false) {
            self.room.set(0);
            return false;
        }
        assert!(packets.len() <= self.room.get(), "{} packets", packets.len());
        assert!(packets.iter().all(|packet| packet.to == self.peer.bits()));
        self.transmit(packets);
        true
    }

    fn send_message(&self, request: &Request) {
        self.room.set(self.room.get().saturating_sub(1));
        self.messages.borrow_mut().push(*request);
    }
}
