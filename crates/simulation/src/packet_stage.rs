//! A queue pair that receives packets, with memory, a key table and a link that the test plays: no
//! process, no network, no clock of its own.

mod pair;
mod target;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::LazyLock;
use std::sync::atomic::AtomicU32;

use transom_device::Access;
use transom_device::execution::*;
use transom_device::protection::*;
use transom_device::qp::{Gate, Peering, QpNumber, QpState, QpSummary, QpTable, Service};
use transom_device::queue::{Address, Completion, Receive, ReceiveQueue};
use transom_device::transport::ReadAnswer;
use transom_wire::Psn;
use transom_wire::packet::{Operation as Op, Packet, Transport};

use pair::Carried;
pub use pair::feed;
pub use target::*;

/// Bytes of memory, in which everything lies.
pub const MEMORY: usize = 1 << 16;
/// The address of the first of them.
pub const BASE: u64 = 0x10_0000;
/// The part that the region with all rights covers; on both sides of it nobody may write.
pub const REGION: std::ops::Range<u64> = BASE + 0x1000..BASE + 0xe000;
/// The path MTU.
pub const MTU: usize = 256;
/// The number of the first packet, close to where numbers wrap.
pub const FIRST: u32 = 0xff_fffc;
/// The queue pair that receives, and the one that sends.
pub const HERE: u32 = 0x1_0003;
const THERE: u32 = 0x2_0007;
const PD: u32 = 7;
/// The Q_Key of datagrams.
pub const QKEY: u32 = 0x1111_1111;
/// The number of the shared receive queue of XRC.
pub const SRQ: u32 = 0x1_0042;
const ME: Announcer = Announcer { slot: 1, generation: 1 };

/// The same for all stages: it takes long to make.
static SCRAMBLE: LazyLock<Box<Scramble>> = LazyLock::new(|| Scramble::for_simulation(5));
/// What memory holds at first.
static PATTERN: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..MEMORY).map(|at| (at % 251) as u8).collect());

/// An answer that went out: a packet, and the data it carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Operation, with its headers.
    pub operation: Op,
    /// Number.
    pub psn: Psn,
    /// Data of a READ.
    pub payload: Vec<u8>,
}

/// Waits for nobody: there is one thread.
struct Alone;

impl Waiter for Alone {
    fn pause(&self, round: u32, _on: Option<Announcer>) {
        assert!(round < 1_000, "there is nobody to wait for");
    }

    fn resumed(&self) {}

    fn is_gone(&self, _process: Announcer) -> bool {
        true
    }
}

/// The process around the queue pair, and the link's way back.
pub struct Stage {
    entries: Vec<KeyEntry>,
    open: AtomicU32,
    hazards: Hazards,
    qps: Vec<QpSummary>,
    memory: RefCell<Vec<u8>>,
    owner: RefCell<KeyOwner>,
    shared: RefCell<ReceiveQueue>,
    sent: RefCell<Vec<Answered>>,
    completed: RefCell<Vec<(Completion, bool)>>,
    events: RefCell<Vec<QpEvent>>,
    refusals: RefCell<Vec<Refusal>>,
    /// Completions of the send queue.
    done: RefCell<Vec<Completion>>,
    /// Requests that the send queue has sent.
    requests: RefCell<Vec<Carried>>,
    time: Cell<u64>,
    /// How many packets the link takes.
    pub room: Cell<usize>,
    /// The link has no room for the next burst of data after all.
    pub full: Cell<bool>,
    /// Most packets of a burst.
    pub burst: Cell<u64>,
    /// How many copies to memory there were.
    pub copies: Cell<usize>,
    /// How many packets had gone out when each completion was seen.
    seen: RefCell<Vec<usize>>,
    /// What the user wants done with the requests that come, in order; it is asked once for each.
    pub injections: RefCell<VecDeque<Option<Injection>>>,
    /// The region over [`REGION`], with all rights.
    pub region: Key,
}

impl Stage {
    fn new(service: Service) -> Self {
        let mut stage = Self {
            entries: (0..8).map(|_| KeyEntry::default()).collect(),
            open: AtomicU32::new(8),
            hazards: Hazards::default(),
            qps: (0..8).map(|_| QpSummary::default()).collect(),
            memory: RefCell::new(PATTERN.clone()),
            owner: RefCell::new(KeyOwner::new(8, 8)),
            shared: RefCell::new(ReceiveQueue::new(16, 2).expect("there is memory")),
            sent: RefCell::default(),
            completed: RefCell::default(),
            events: RefCell::default(),
            refusals: RefCell::default(),
            done: RefCell::default(),
            requests: RefCell::default(),
            time: Cell::new(0),
            room: Cell::new(usize::MAX),
            full: Cell::new(false),
            burst: Cell::new(64),
            copies: Cell::new(0),
            seen: RefCell::default(),
            injections: RefCell::default(),
            region: Key(0),
        };
        stage.hazards.attach(ME);
        stage.region = stage.register(Access::all() - Access::ZERO_BASED, REGION);
        stage.summary().set_gate(Gate {
            state: QpState::Rts,
            service,
            access: Access::REMOTE | Access::FLUSH_GLOBAL,
            read_resources: 4,
            pd: PD,
            by_message: false,
        });
        stage.summary().set_peering(Peering {
            from: QpNumber::from_bits(THERE),
            first: Psn::new(FIRST),
            mtu_code: (MTU / 128).ilog2() as u8,
            established: false,
        });
        stage
    }

    fn register(&self, access: Access, range: std::ops::Range<u64>) -> Key {
        let table = self.keys();
        let (slot, key) = self.owner.borrow_mut().take(&table, Kind::Region, 3).expect("a slot");
        let (base, length) = (range.start, range.end - range.start);
        Region { pd: PD, access, base, length, place: Place::Memory(base) }
            .register(&table, slot, key, 0);
        key
    }

    /// A window of type 2 over part of the region, bound through this queue pair.
    pub fn window(&self, range: std::ops::Range<u64>, access: Access) -> Key {
        let table = self.keys();
        let (slot, key) = self.owner.borrow_mut().take(&table, Kind::Window2B, 3).expect("a slot");
        WindowKind::Type2B.allocate(&table, slot, key, PD);
        let window = key.next();
        self.bind(window, range, access);
        window
    }

    /// Binds a window, which is free, so that it has this key.
    pub fn bind(&self, window: Key, range: std::ops::Range<u64>, access: Access) {
        let (address, length) = (range.start, range.end - range.start);
        let bind = Bind { window, region: self.region, address, length, access };
        bind_type2(&self.keys(), self.summary(), &bind, &self.stamp(), &Alone)
            .expect("it is bound");
    }

    /// LOCAL_INV of a window.
    pub fn invalidate(&self, key: Key) -> Result<(), Refusal> {
        let operation = Operation::Invalidate;
        invalidate(&self.keys(), &self.qps(), operation, key, &self.stamp(), &Alone)
    }

    fn stamp(&self) -> Stamp {
        Stamp { qp: HERE, pd: PD, wr_id: 0, now: 0 }
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
        let start = (address - BASE) as usize;
        self.memory.borrow()[start..start + length].to_vec()
    }

    /// Puts bytes into memory, as a program does.
    pub fn put(&self, address: u64, bytes: &[u8]) {
        let start = (address - BASE) as usize;
        self.memory.borrow_mut()[start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// The answers since this was last asked.
    pub fn sent(&self) -> Vec<Answered> {
        self.sent.take()
    }

    /// The completions since this was last asked.
    pub fn completed(&self) -> Vec<Completion> {
        self.completed.take().into_iter().map(|(done, _)| done).collect()
    }

    /// The completions that were solicited, of those since this was last asked.
    pub fn solicited(&self) -> Vec<bool> {
        self.completed.take().into_iter().map(|(_, solicited)| solicited).collect()
    }

    /// The events since this was last asked.
    pub fn events(&self) -> Vec<QpEvent> {
        self.events.take()
    }

    /// Why requests were refused, since this was last asked.
    pub fn reasons(&self) -> Vec<Reason> {
        self.refusals().iter().map(|refusal| refusal.reason).collect()
    }

    /// What was refused since the last look.
    pub fn refusals(&self) -> Vec<Refusal> {
        self.refusals.take()
    }

    /// How many packets had gone out when each completion was seen.
    pub fn seen(&self) -> Vec<usize> {
        self.seen.take()
    }

    /// Forgets what nobody has asked for.
    fn forget(&self) {
        self.events.take();
        self.refusals.take();
        self.seen.take();
    }

    fn note(&self, completion: Completion, solicited: bool) {
        self.seen.borrow_mut().push(self.sent.borrow().len());
        self.completed.borrow_mut().push((completion, solicited));
    }

    fn range(&self, at: &Grant<'_>) -> std::ops::Range<usize> {
        let start = (at.address() - BASE) as usize;
        start..start + at.length() as usize
    }
}

impl Process for Stage {
    fn keys(&self) -> KeyTable<'_> {
        KeyTable::new(&self.entries, &self.open, &SCRAMBLE, &self.hazards)
    }

    fn qps(&self) -> QpTable<'_> {
        QpTable::new(&self.qps)
    }

    fn announcer(&self) -> Announcer {
        ME
    }

    fn waiter(&self) -> &dyn Waiter {
        &Alone
    }

    fn now(&self) -> u64 {
        self.time.get()
    }

    fn store(&self, at: &Grant<'_>, pieces: &[&[u8]]) -> Result<(), MemoryGone> {
        self.copies.set(self.copies.get() + 1);
        let bytes = pieces.concat();
        let mut memory = self.memory.borrow_mut();
        memory.get_mut(self.range(at)).ok_or(MemoryGone)?.copy_from_slice(&bytes);
        Ok(())
    }

    fn atomic(
        &self,
        at: &Grant<'_>,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, MemoryGone> {
        let mut memory = self.memory.borrow_mut();
        let word = memory.get_mut(self.range(at)).ok_or(MemoryGone)?;
        let old = u64::from_ne_bytes((*word).try_into().expect("eight bytes"));
        word.copy_from_slice(&update(old).to_ne_bytes());
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
        (receive.srq, receive.pd) = (srq, PD);
        TakeShared::Found(self.shared.borrow_mut().take(least, receive))
    }

    fn shared_pd(&self, srq: u32) -> Option<u32> {
        (srq == SRQ).then_some(PD)
    }

    fn injected(&self, _request: &Request) -> Option<Injection> {
        self.injections.borrow_mut().pop_front().flatten()
    }

    fn datagram_limit(&self, _: &Address) -> u64 {
        MTU as u64
    }
}

/// Where the data of a READ goes.
struct Collected<'a> {
    stage: &'a Stage,
    bytes: Vec<u8>,
}

impl Sink for Collected<'_> {
    fn copy_from(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError> {
        let memory = self.stage.memory.borrow();
        let bytes = memory.get(self.stage.range(at)).ok_or(CopyError::Far)?;
        let start = offset as usize;
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

impl Stage {
    /// What the device is called with.
    pub fn context<'a>(&'a self, effects: &'a mut Effects) -> Context<'a, Self> {
        let number = QpNumber::from_bits(HERE);
        let (summary, counted) = (self.summary(), Counted::empty());
        Context { process: self, number, summary, counted, effects }
    }

    /// The summary of the queue pair.
    pub fn summary(&self) -> &QpSummary {
        &self.qps[QpNumber::from_bits(HERE).index() as usize]
    }

    /// Does what the device wants done.
    fn settle(&self, effects: &mut Effects) {
        for effect in effects.all() {
            match effect {
                Effect::Complete { side: QueueSide::Receive, completion, solicited } => {
                    self.note(*completion, *solicited);
                }
                Effect::Complete { side: QueueSide::Send, completion, .. } => {
                    self.done.borrow_mut().push(*completion);
                }
                Effect::CompleteShared { srq, completion, solicited } => {
                    assert_eq!(*srq, SRQ);
                    self.note(*completion, *solicited);
                }
                Effect::Event(event) => self.events.borrow_mut().push(*event),
                Effect::Refused(refusal) => self.refusals.borrow_mut().push(*refusal),
                Effect::Respond(packet) => self.respond(packet),
                Effect::Count { .. }
                | Effect::FlushOther(_)
                | Effect::ForgetUnexpected
                | Effect::Rendezvous => {}
            }
        }
        effects.clear();
    }

    fn respond(&self, packet: &Packet<'_>) {
        assert_eq!(packet.to, THERE);
        self.room.set(self.room.get().saturating_sub(1));
        let Packet { operation, psn, .. } = *packet;
        self.sent.borrow_mut().push(Answered { operation, psn, payload: packet.payload.to_vec() });
    }

    /// Sends part of the answer to a READ.
    fn send_answer(
        &self,
        answer: &ReadAnswer,
        responder: &mut Responder,
        effects: &mut Effects,
    ) -> Reply {
        let burst = answer.burst;
        let mut collected = Collected { stage: self, bytes: vec![0; burst.length as usize] };
        let reply = answer.fetch(responder, &mut collected, &mut self.context(effects));
        let Reply::Data { length } = reply else { return reply };
        if self.full.replace(false) {
            self.room.set(0);
            return Reply::Silence;
        }
        assert_eq!(length, burst.length);
        let count = packets(length, MTU as u64) as usize;
        assert!(count <= self.room.get() && count as u64 <= self.burst.get(), "{count} packets");
        let mut rest = &collected.bytes[..];
        for (packet, length) in burst.packets(Transport::Rc, THERE, MTU as u64) {
            let (payload, later) = rest.split_at(length as usize);
            rest = later;
            self.respond(&Packet { payload, ..packet });
        }
        assert!(rest.is_empty());
        reply
    }
}
