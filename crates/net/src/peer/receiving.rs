//! What the process at the other end sends, and the answers to it.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering::*;

use transom_device::execution::{CopyError, PlainSend, Reply, Request, Source};
use transom_device::protection::Grant;
use transom_system::ThisProcess;
use transom_system::memory::Copier;
use transom_system::segment::{RingKind, Segment};

use super::Peer;
use crate::message::{
    ANSWER_WORDS, Answer, Arrival, answer_data, encode_acknowledgement, encode_answer, reservation,
};
use crate::ring::{Consumer, Garbled, Producer, Record};
use crate::{RingBytes, SenderBuffer};

/// The reading ends of the peer's rings, and the writing end for the answers.
pub(super) struct Arrivals {
    pub(super) requests: Consumer,
    pub(super) replies: Consumer,
    pub(super) answers: Producer,
}

/// A record in place, with its data.
pub struct Arrived<'a> {
    /// Its content.
    pub what: Arrival,
    /// Its data.
    pub data: MessageData<'a>,
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
