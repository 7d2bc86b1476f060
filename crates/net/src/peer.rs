//! Another process of this user: its segment, and the rings to and from it.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::*};

use parking_lot::Mutex;
use transom_device::execution::{CopyError, PlainSend, Reply, Request, Sent, Source};
use transom_device::protection::{Announcer, Grant};
use transom_system::ThisProcess;
use transom_system::memory::{
    Copier, Destination, PeerMemory, Writable, attach_shared, may_copy_with,
};
use transom_system::registry::{Life, Process};
use transom_system::segment::{RING_BYTES, RingKind, RingPositions, Segment, Wakeup};

use super::message::{
    ANSWER_WORDS, Answer, Arrival, PLAIN_SEND_RESERVES, PLAIN_SEND_WORDS, answer_data,
    encode_acknowledgement, encode_answer, encode_plain_send, encode_request, reservation,
};
use super::ring::{self, Consumer, Garbled, HEADER_WORDS, Producer, Record, Room};
use super::stalled::Stalled;
use super::{Gather, Reference, RingBytes, SenderBuffer, sender_buffer};

/// How much of the peer's reply ring the requests under way may claim, in bytes: half, because fillers take room too.
const REPLY_BUDGET: u64 = RING_BYTES as u64 / 2;

/// A process at the other end of local links.
pub struct Peer {
    /// Its slot and stay.
    pub announcer: Announcer,
    /// Its memory.
    pub memory: PeerMemory,
    /// Its segment.
    pub segment: Segment,
    /// How its memory is reached.
    pub reach: Reach,
    /// This process. It issues the barrier between putting a record into a ring and checking whether the other end
    /// needs a signal.
    me: Announcer,
    life: Life,
    gone: AtomicBool,
    rings: Rings,
    /// Queue pairs that wait for room towards this peer.
    pub stalled: Stalled,
}

/// How this process reaches a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// WRITE and READ act directly on it.
    Direct,
    /// Everything goes through rings, except shared memory.
    Rings,
    /// The same, because the kernel does not let us copy.
    Forbidden,
}

/// The rings to a peer, and those from it.
struct Rings {
    requests: Mutex<Requests>,
    arrivals: Mutex<Arrivals>,
}

impl Rings {
    fn new() -> Self {
        let arrivals = Arrivals {
            requests: Consumer::new(),
            replies: Consumer::new(),
            answers: Producer::new(),
        };
        Self {
            requests: Mutex::new(Requests { producer: Producer::new(), reserved: 0 }),
            arrivals: Mutex::new(arrivals),
        }
    }
}

/// The writing end of our requests.
struct Requests {
    producer: Producer,
    /// How many bytes of the reply ring requests under way may need.
    reserved: u64,
}

impl Requests {
    /// Finds room for a request, and in the other direction for its reply.
    #[inline]
    fn find(
        &mut self,
        positions: &RingPositions,
        bytes: *mut u8,
        Need { words, payload, reserved }: Need,
    ) -> Option<Room> {
        let answerable = self.reserved + reserved <= REPLY_BUDGET;
        answerable.then(|| self.producer.room(positions, bytes, words, payload)).flatten()
    }
}

/// The room that a request needs.
#[derive(Clone, Copy)]
struct Need {
    /// Of its header.
    words: usize,
    /// Bytes of data behind that.
    payload: u64,
    /// Bytes in the reply ring.
    reserved: u64,
}

/// The reading ends of the peer's rings, and the writing end for the answers.
struct Arrivals {
    requests: Consumer,
    replies: Consumer,
    answers: Producer,
}

/// A record in place, with its data.
pub struct Arrived<'a> {
    /// Its content.
    pub what: Arrival,
    /// Its data.
    pub data: MessageData<'a>,
}

/// The data of a segment that is sent.
pub enum RecordData<'a, 'b> {
    /// It has none.
    None,
    /// It is copied into the record.
    Copied(&'a mut Gather<'b>),
    /// The peer takes it from there.
    Left(Reference),
}

/// The data of a record.
pub enum MessageData<'a> {
    /// It is in the record.
    Record(RingBytes<'a>),
    /// It is in its sender's buffer.
    Buffer(SenderBuffer<'a>),
}

impl Source for MessageData<'_> {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), CopyError> {
        match self {
            Self::Record(data) => data.read(offset, bytes),
            Self::Buffer(data) => data.read(offset, bytes),
        }
    }

    fn copy_to(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError> {
        match self {
            Self::Record(data) => data.copy_to(offset, at),
            Self::Buffer(data) => data.copy_to(offset, at),
        }
    }
}

impl Peer {
    /// Attaches to a process of the registry.
    ///
    /// # Errors
    ///
    /// The system's error if it is gone or out of reach.
    pub(crate) fn attach(this: &ThisProcess, process: &Process) -> io::Result<Self> {
        let (registry, me, own, copier) =
            (this.registry(), this.announcer(), this.segment(), this.copier());
        let Announcer { slot, generation } = process.announcer;
        let segment = Segment::attach(process.pid, process.descriptor, generation)?;
        let wake = registry.wake_of(slot)?;
        // The process was opened by PID. Its files are held now, so this check makes sure that the PID was still its
        // own.
        let life = registry.watch(process.announcer)?;
        let Some(life) = life.filter(|_| segment.header().departed.load(Acquire) == 0) else {
            return Err(io::Error::other("the process has ended or closed its device"));
        };
        segment.hazards().attach(me);
        let probe = segment.header().probe.load(Relaxed);
        let copies = matches!(copier, Copier::Kernel);
        let by_message = [own, &segment].iter().any(|it| it.header().by_message.load(Relaxed) == 1);
        let descriptor = segment.header().shared_memory.load(Relaxed).checked_sub(1);
        let shared = descriptor.filter(|_| !by_message).map(|it| attach_shared(process.pid, it));
        // Keys name places in it that the kernel does not know. Without it there is no direct access.
        let is_missing = matches!(shared, Some(Err(_)));
        let reach = match copies && may_copy_with(process.pid, probe) {
            true if !by_message && !is_missing => Reach::Direct,
            false if copies => Reach::Forbidden,
            _ => Reach::Rings,
        };
        for kind in [RingKind::Requests, RingKind::Replies] {
            own.open_ring(kind, slot)?;
            let (positions, bytes) = own.ring(kind, slot);
            positions.consumer.store(u32::MAX, SeqCst);
            positions.direct.store(u32::from(reach == Reach::Direct), SeqCst);
            positions.full.store(0, SeqCst);
            positions.watched.store(0, SeqCst);
            ring::clear(positions, bytes);
            positions.consumer.store(generation, SeqCst);
        }
        let shared = shared.and_then(Result::ok);
        Ok(Self {
            announcer: process.announcer,
            memory: PeerMemory { pid: process.pid, shared, wake },
            reach,
            segment,
            me,
            life,
            gone: AtomicBool::new(false),
            rings: Rings::new(),
            stalled: Stalled::default(),
        })
    }

    /// Whether WRITE and READ may act directly on its memory. If that turns out to be impossible, they use rings.
    #[inline]
    pub fn is_reached(&self) -> bool {
        self.reach == Reach::Direct || self.memory.shared.is_some()
    }

    /// Tells when the process ends.
    pub fn life(&self) -> &Life {
        &self.life
    }

    /// Whether the process has ended or closed its device.
    pub fn is_gone(&self) -> bool {
        self.gone.load(SeqCst)
    }

    /// Notes that the process is gone. True the first time.
    pub fn set_gone(&self) -> bool {
        !self.gone.swap(true, SeqCst)
    }

    /// Whether queue pairs of the process are in multicast groups.
    pub fn has_groups(&self) -> bool {
        self.segment.header().groups.load(Acquire) > 0
    }

    /// Signals the peer that there is something for it. Wakes it if it asked for that.
    pub fn notify(&self) {
        let header = self.segment.header();
        let woken = match header.tell(self.me.slot.into()) {
            None => true,
            Some(Wakeup::Sleeper) => header.wake_sleepers(1) > 0,
            Some(Wakeup::Pipe) => false,
        };
        if !woken {
            // A full pipe wakes it as well.
            let _ = rustix::io::write(&self.memory.wake, &[0]);
        }
    }

    /// The same, for a record in a ring. The peer may be watching the ring itself.
    fn notify_of_record(&self, own: &Segment) {
        let (positions, _) = own.ring(RingKind::Requests, self.announcer.slot);
        // A peer that ends its watch looks for records after a fence, so one of the two sees the other.
        if positions.watched.load(SeqCst) == 0 {
            self.notify();
        }
    }

    /// Tells the peer that this process watches its rings from now on. False if that is impossible.
    pub(crate) fn watch(&self) -> bool {
        let (positions, _) = self.segment.ring(RingKind::Requests, self.me.slot);
        let can = positions.consumer.load(SeqCst) == self.me.generation;
        if can {
            positions.watched.store(1, SeqCst);
        }
        can
    }

    /// Ends [`Peer::watch`]. After a fence, you see everything the peer put there without a signal.
    pub(crate) fn unwatch(&self) {
        let (positions, _) = self.segment.ring(RingKind::Requests, self.me.slot);
        positions.watched.store(0, SeqCst);
    }

    /// Whether its rings hold something that this process has not taken.
    #[inline]
    pub(crate) fn has_sent(&self) -> bool {
        [RingKind::Requests, RingKind::Replies].into_iter().any(|kind| {
            let (positions, bytes) = self.segment.ring(kind, self.me.slot);
            ring::has_record(positions, bytes)
        })
    }

    /// Sends a segment of a request. Its data is copied into the ring, where `show` sees it before the peer does. Or
    /// the peer takes it from its place.
    pub fn send(
        &self,
        own: &Segment,
        request: &Request,
        data: RecordData<'_, '_>,
        qp_index: u16,
        show: Option<&dyn Fn(*mut u8)>,
    ) -> Sent {
        if self.is_gone() {
            return Sent::Unreachable;
        }
        let (payload, left) = match &data {
            RecordData::None => (0, None),
            RecordData::Copied(_) => (request.length, None),
            RecordData::Left(reference) => (0, Some(*reference)),
        };
        let reserved = reservation(request);
        let mut requests = self.rings.requests.lock();
        let header = encode_request(request, left);
        let need = Need { words: ring::words_of(&header), payload, reserved };
        let room = self.room(own, &mut requests, need, qp_index);
        let Some(room) = room else {
            // It may have ended before this process noted that it waits.
            return if self.is_gone() { Sent::Unreachable } else { Sent::Busy };
        };
        if let RecordData::Copied(data) = data {
            // SAFETY: the room found for this record, which is the producer's alone until it is published.
            let to = unsafe { Writable::shared(room.payload(), payload) };
            match data.copy_out(0, payload, Destination::Own(to)) {
                Ok(()) => {}
                Err(CopyError::Near(refusal)) => return Sent::Near(refusal),
                Err(CopyError::Far) => return Sent::Unreachable,
            }
        }
        if let Some(show) = show {
            show(room.payload());
        }
        requests.reserved += reserved;
        let (_, bytes) = own.ring(RingKind::Requests, self.announcer.slot);
        requests.producer.publish(bytes, &room, &header, payload);
        drop(requests);
        self.notify_of_record(own);
        Sent::Queued
    }

    /// Sends a plain SEND, whose data `copy` writes to the place it gets. False if it is to be sent by
    /// [`Peer::send`]: there is no room, the peer is gone, or `copy` has failed.
    pub fn send_at_once(
        &self,
        own: &Segment,
        send: &PlainSend,
        copy: impl FnOnce(Destination<'_>) -> bool,
    ) -> bool {
        if self.is_gone() {
            return false;
        }
        let mut requests = self.rings.requests.lock();
        let (positions, bytes) = own.ring(RingKind::Requests, self.announcer.slot);
        let (words, reserved) = (PLAIN_SEND_WORDS, PLAIN_SEND_RESERVES);
        let need = Need { words, payload: send.length, reserved };
        let Some(room) = requests.find(positions, bytes, need) else { return false };
        // SAFETY: the room found for this record, which is the producer's alone until it is published.
        let to = unsafe { Writable::shared(room.payload(), send.length) };
        if !copy(Destination::Own(to)) {
            return false;
        }
        requests.reserved += reserved;
        requests.producer.publish(bytes, &room, &encode_plain_send(send), send.length);
        drop(requests);
        self.notify_of_record(own);
        true
    }

    /// The place from which the peer takes the data of a segment, if it can and that is faster.
    pub fn reference(&self, request: &Request, data: &Gather<'_>) -> Option<Reference> {
        let fit = request.service.is_reliable()
            && request.length >= sender_buffer::LEAST
            && self.reach == Reach::Direct
            && self.reaches_us();
        if fit { data.reference(request.length) } else { None }
    }

    /// Whether the peer has found that it can copy from this process.
    fn reaches_us(&self) -> bool {
        let (positions, _) = self.segment.ring(RingKind::Requests, self.me.slot);
        positions.consumer.load(SeqCst) == self.me.generation && positions.direct.load(Relaxed) == 1
    }

    /// Whether the peer has carried out every request sent to it.
    pub fn has_carried_out_all(&self, own: &Segment) -> bool {
        let (positions, _) = own.ring(RingKind::Requests, self.announcer.slot);
        self.rings.requests.lock().producer.is_drained(positions)
    }

    /// Whether the peer has room for a datagram of `length` bytes now. If not, the queue pair is advanced when there is
    /// room.
    pub fn takes_datagram(&self, own: &Segment, length: u64, qp_index: u16) -> bool {
        let mut requests = self.rings.requests.lock();
        let need = Need { words: HEADER_WORDS, payload: length, reserved: 0 };
        let takes = self.is_gone() || self.room(own, &mut requests, need, qp_index).is_some();
        // It may have ended before this process noted that it waits.
        takes || self.is_gone()
    }

    /// Room for a request, and in the other direction for its reply. If there is none, notes that the queue pair waits
    /// for it.
    fn room(
        &self,
        own: &Segment,
        requests: &mut Requests,
        need: Need,
        qp_index: u16,
    ) -> Option<Room> {
        let (positions, bytes) = own.ring(RingKind::Requests, self.announcer.slot);
        let mut find = || requests.find(positions, bytes, need);
        find().or_else(|| {
            // In this order: the process that makes room clears the flag, and then looks for queue pairs that wait. So
            // look once more, because the room may have come before the flag was set.
            self.stalled.add(qp_index);
            positions.full.store(1, SeqCst);
            find()
        })
    }

    /// Takes everything that has arrived, in the order in which the peer sent it, as far as the order can matter. Hands
    /// it to `take`; a request may return a reply. Only one thread may do this at a time.
    pub fn receive(
        &self,
        this: &ThisProcess,
        mut take: impl FnMut(Arrived<'_>, &mut Replying<'_>),
    ) -> Result<(), Garbled> {
        let (own, copier) = (this.segment(), this.copier());
        let mut arrivals = self.rings.arrivals.lock();
        let Arrivals { requests, replies, answers } = &mut *arrivals;
        let mut replying = Replying { peer: self, own, copier, answers, told: false };
        let mut made_room = false;
        let next = |kind, consumer: &mut Consumer| {
            let (positions, bytes) = self.segment.ring(kind, self.me.slot);
            // The ring may still belong to our predecessor in the slot.
            let ours = positions.consumer.load(SeqCst) == self.me.generation;
            if ours { consumer.next(positions, bytes) } else { Ok(None) }
        };
        let mut hand_out = |kind, consumer: &mut Consumer, record: &Record| {
            let what = Arrival::parse(kind, &record.header, record.room)?;
            if let Arrival::Answer(answer) = &what {
                let mut requests = self.rings.requests.lock();
                requests.reserved = requests.reserved.saturating_sub(answer.reserved);
            }
            // SAFETY: the record lies in the peer's segment, which stays mapped; its header says how long
            // its payload is, and that was held against its room when it was parsed.
            let bytes =
                unsafe { RingBytes::new(record.payload.cast_mut(), what.payload(), copier) };
            let data = match &what {
                Arrival::Request(Request { from, to, length, .. }, Some(reference)) => {
                    let (from, to, length, reference) = (*from, *to, *length, *reference);
                    MessageData::Buffer(SenderBuffer {
                        sender: self.announcer,
                        segment: &self.segment,
                        memory: &self.memory,
                        this,
                        from,
                        to,
                        reference,
                        length,
                    })
                }
                _ => MessageData::Record(bytes),
            };
            take(Arrived { what, data }, &mut replying);
            let (positions, _) = self.segment.ring(kind, self.me.slot);
            made_room |= consumer.release(positions, record);
            Ok(())
        };
        loop {
            let request = next(RingKind::Requests, requests)?;
            // Take the peer's earlier answers before this record. A program that gets an answer to its message relies
            // on that message having completed.
            while let Some(reply) = next(RingKind::Replies, replies)? {
                hand_out(RingKind::Replies, replies, &reply)?;
            }
            let Some(request) = request else { break };
            hand_out(RingKind::Requests, requests, &request)?;
        }
        match (made_room, replying.told) {
            (true, _) => self.notify(),
            (false, true) => self.notify_of_record(own),
            (false, false) => {}
        }
        Ok(())
    }
}

/// Answers the peer's requests while they are taken.
pub struct Replying<'a> {
    peer: &'a Peer,
    own: &'a Segment,
    copier: &'a Copier,
    answers: &'a mut Producer,
    told: bool,
}

impl Replying<'_> {
    /// Lets a function receive a plain SEND. That function acknowledges it with the function it gets, at most once.
    /// False if it did not receive it. The requester keeps room for the acknowledgement; without that room nothing is
    /// done.
    #[inline]
    pub fn acknowledge(
        &mut self,
        send: &PlainSend,
        receive: impl FnOnce(&mut dyn FnMut()) -> bool,
    ) -> bool {
        let (positions, bytes) = self.own.ring(RingKind::Replies, self.peer.announcer.slot);
        let Some(room) = self.answers.room(positions, bytes, ANSWER_WORDS, 0) else { return false };
        let mut room = Some(room);
        receive(&mut || {
            if let Some(room) = room.take() {
                self.answers.publish(bytes, &room, &encode_acknowledgement(send), 0);
                self.told = true;
            }
        })
    }

    /// Answers with the result of `make`, or calls the function it is given with it. A READ writes its data to the
    /// sink.
    pub fn answer(
        &mut self,
        request: &Request,
        make: impl FnOnce(&mut RingBytes<'_>, &dyn Fn(Reply)) -> Reply,
    ) {
        let producer = RefCell::new(&mut *self.answers);
        let (positions, bytes) = self.own.ring(RingKind::Replies, self.peer.announcer.slot);
        let data = answer_data(request);
        let room = producer.borrow_mut().room(positions, bytes, ANSWER_WORDS, data);
        let payload = room.as_ref().map_or(std::ptr::null_mut(), |room| room.payload());
        let length = if room.is_some() { data } else { 0 };
        // SAFETY: the room found for the answer, which is the producer's alone until it is published.
        let mut sink = unsafe { RingBytes::new(payload, length, self.copier) };
        let answered = Cell::new(false);
        let publish = |reply| {
            // The requester keeps room for its replies. Without that room it gets none.
            let Some(room) = &room else { return };
            if !request.service.is_reliable() || answered.replace(true) {
                return;
            }
            let answer = Answer {
                to: request.from,
                message: request.message,
                attempt: request.attempt,
                reserved: reservation(request),
                reply,
            };
            let data = if let Reply::Data { length } = reply { length } else { 0 };
            producer.borrow_mut().publish(bytes, room, &encode_answer(&answer), data);
        };
        publish(make(&mut sink, &publish));
        self.told |= answered.get();
    }
}
