//! What the process at the other end sends, and the answers to it.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering::*;

use transom_device::execution::{CopyError, PlainSend, Reply, Request, Source};
use transom_device::protection::Grant;
use transom_system::ThisProcess;
use transom_system::memory::Copier;
use transom_system::segment::{RING_BYTES, RingKind, Segment};

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

/// How much is taken from a peer at a time. It goes on sending meanwhile, and has the right to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Few records, and none if another thread takes some: for a thread that has to return soon.
    Few,
    /// Many records, and none if another thread takes some.
    ManyIfFree,
    /// Many records. Waits for a thread that takes some.
    Many,
    /// Everything that is there already. Waits for a thread that takes some.
    Present,
}

impl Extent {
    /// How many records it is.
    fn records(self) -> u32 {
        match self {
            Self::Few => 64,
            Self::ManyIfFree | Self::Many => 1024,
            Self::Present => u32::MAX,
        }
    }

    fn waits(self) -> bool {
        matches!(self, Self::Many | Self::Present)
    }
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
    /// Takes what has arrived, in the order in which the peer sent it, as far as the order can matter. Hands it to
    /// `take`; a request may return a reply. Only one thread does this at a time. False if something may be left.
    pub fn receive(
        &self,
        this: &ThisProcess,
        extent: Extent,
        mut take: impl FnMut(Arrived<'_>, &mut Replying<'_>),
    ) -> Result<bool, Garbled> {
        let (own, copier) = (this.segment(), this.copier());
        let mut arrivals = match self.rings.arrivals.try_lock() {
            Some(arrivals) => arrivals,
            None if extent.waits() => self.rings.arrivals.lock(),
            None => return Ok(false),
        };
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
        let mut records = extent.records();
        // What is in a ring at one time is gone after so many bytes.
        let is_round =
            |ring: &Consumer, start| ring.position().wrapping_sub(start) >= RING_BYTES as u64;
        let first_request = requests.position();
        let all = 'records: loop {
            let request = next(RingKind::Requests, requests)?;
            // Take the peer's earlier answers before this record. A program that gets an answer to its message relies
            // on that message having completed.
            let first_reply = replies.position();
            let all_replies = loop {
                let Some(reply) = next(RingKind::Replies, replies)? else { break true };
                if is_round(replies, first_reply) {
                    break false;
                }
                if records == 0 {
                    break 'records false;
                }
                records -= 1;
                hand_out(RingKind::Replies, replies, &reply)?;
            };
            let Some(request) = request else { break all_replies };
            if records == 0 || is_round(requests, first_request) {
                break false;
            }
            records -= 1;
            hand_out(RingKind::Requests, requests, &request)?;
        };
        match (made_room, replying.told) {
            (true, _) => self.notify(),
            (false, true) => self.notify_of_record(own),
            (false, false) => {}
        }
        Ok(all)
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

#[cfg(test)]
mod tests {
    use transom_device::qp::QpNumber;
    use transom_system::registry::Registry;
    use transom_wire::Psn;

    use super::*;
    use crate::message::PLAIN_SEND_WORDS;
    use crate::ring::record_bytes;

    fn process() -> ThisProcess {
        let registry = Registry::open().expect("a registry");
        let segment = Segment::create().expect("a segment");
        let claim = registry.claim(segment.descriptor(), 0).expect("a slot");
        ThisProcess::new(claim, segment, Copier::Kernel)
    }

    fn peer(of: &ThisProcess, other: &ThisProcess) -> Peer {
        let there = of.registry().process(other.announcer().slot).expect("it is there");
        Peer::attach(of, &there).expect("it can be attached to")
    }

    /// A poll never waits for a peer, and the thread that serves the wire and the deadlines gets back to them.
    #[test]
    fn a_peer_that_goes_on_sending_is_left_for_later() {
        let (near, far) = (process(), process());
        let (to_far, to_near) = (peer(&near, &far), peer(&far, &near));
        let number = |of: &ThisProcess| QpNumber::new(of.announcer().slot, 1);
        let (to, from) = (number(&near), number(&far));
        let send =
            PlainSend { to, from, message: Psn::new(0), attempt: 0, length: 8, solicited: false };
        let send = || {
            let sent = to_near.send_at_once(far.segment(), &send, |to| {
                far.copier().copy(to, [0; 8][..].into(), 8).is_ok()
            });
            assert!(sent, "there is room");
        };
        let record = record_bytes(PLAIN_SEND_WORDS, 8);
        for (extent, most) in [
            (Extent::Few, 64),
            (Extent::ManyIfFree, 1024),
            (Extent::Many, 1024),
            (Extent::Present, RING_BYTES as u64 / record),
        ] {
            let mut taken = 0;
            send();
            let mut take = |goes_on: bool, extent| {
                to_far.receive(&near, extent, |arrived, replying| {
                    let Arrival::Send(send_of_peer) = &arrived.what else { panic!("a SEND") };
                    assert!(replying.acknowledge(send_of_peer, |answer| {
                        answer();
                        true
                    }));
                    taken += 1;
                    if goes_on {
                        // It has its answer, and sends once more.
                        let all = to_near.receive(&far, Extent::Present, |_, _| {});
                        assert!(all.expect("it is well-formed"));
                        assert!(taken <= most, "{extent:?}");
                        send();
                        // Another thread has nothing to wait for.
                        let other = |extent| to_far.receive(&near, extent, |_, _| panic!());
                        for extent in [Extent::Few, Extent::ManyIfFree] {
                            assert!(!other(extent).expect("it is well-formed"));
                        }
                    }
                })
            };
            assert!(!take(true, extent).expect("it is well-formed"), "{extent:?}");
            assert!(take(false, extent).expect("it is well-formed"), "{extent:?}");
            assert_eq!(taken, most + 1, "{extent:?}");
            assert!(to_near.receive(&far, Extent::Present, |_, _| {}).expect("it is well-formed"));
        }
    }
}
