//! Requests to the process at the other end.

use std::sync::atomic::Ordering::*;

use transom_device::execution::{CopyError, PlainSend, Request, Sent};
use transom_system::memory::{Destination, Writable};
use transom_system::segment::{RING_BYTES, RingKind, RingPositions, Segment};

use super::{Peer, Reach};
use crate::message::{
    PLAIN_SEND_RESERVES, PLAIN_SEND_WORDS, encode_plain_send, encode_request, reservation,
};
use crate::ring::{self, HEADER_WORDS, Producer, Room};
use crate::{Gather, Reference, sender_buffer};

/// How much of the peer's reply ring the requests under way may claim, in bytes: half, because fillers take room too.
const REPLY_BUDGET: u64 = RING_BYTES as u64 / 2;

/// The writing end of our requests.
pub(super) struct Requests {
    pub(super) producer: Producer,
    /// How many bytes of the reply ring requests under way may need.
    pub(super) reserved: u64,
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

/// The data of a segment that is sent.
pub enum RecordData<'a, 'b> {
    /// It has none.
    None,
    /// It is copied into the record.
    Copied(&'a mut Gather<'b>),
    /// The peer takes it from there.
    Left(Reference),
}

impl Peer {
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
}
