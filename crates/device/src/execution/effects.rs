//! What a queue pair wants done, as values: it calls nobody, so it knows nothing of its caller's locks.

use transom_wire::packet::Packet;

use super::{Counted, QpEvent, QueueSide};
use crate::protection::Refusal;
use crate::queue::{Completion, SizeError, room_for};

/// One thing to be done.
#[derive(Clone, Copy, Debug)]
pub enum Effect {
    /// An operation that completion counters may count has ended.
    Count {
        /// Which.
        operation: Counted,
        /// How many bytes it had; `None` if it failed.
        bytes: Option<u64>,
    },
    /// A completion is to be seen in the completion queue of one of the queue pair's queues.
    Complete {
        /// Of which.
        side: QueueSide,
        /// What is seen.
        completion: Completion,
        /// It was solicited.
        solicited: bool,
    },
    /// The same in the completion queue of an XRC shared receive queue.
    CompleteShared {
        /// The number of the shared queue.
        srq: u32,
        /// What is seen.
        completion: Completion,
        /// It was solicited.
        solicited: bool,
    },
    /// A message that was noted as unexpected, by [`Process::take_shared`](super::Process::take_shared),
    /// has failed.
    ForgetUnexpected,
    /// An asynchronous event is raised.
    Event(QpEvent),
    /// Something is refused; it is noted for whoever asks why.
    Refused(Refusal),
    /// A packet without data goes back to the origin: an acknowledgement, a NAK, an atomic's answer. It
    /// waits for nothing: if there is no room, it is lost, as on a network.
    Respond(Packet<'static>),
    /// The queue pair fell into error from this side: the queue of the other is to be flushed.
    FlushOther(QueueSide),
    /// A rendezvous waits in [`Responder::next_rendezvous`](super::Responder::next_rendezvous), or there is
    /// room for another in [`Requester::rendezvous`](super::Requester::rendezvous): they are to be brought
    /// together, for which both must be free.
    Rendezvous,
}

impl Effect {
    /// Whether a completion is to be seen.
    fn completes(&self) -> bool {
        matches!(self, Self::Complete { .. } | Self::CompleteShared { .. })
    }
}

/// Most that one work request or receive brings about: it is counted, and seen to be complete.
const OF_ONE: usize = 2;
/// Most that a call brings about beside what ends: a refusal, its count, an answer, an event, an unexpected
/// message to be forgotten, work for the other half. An idle queue pair has room for it too.
const BESIDE: usize = 6;

/// What is to be done, in order: completions of one queue are seen in the order in which they come here,
/// and an answer leaves before the completion behind it. So whoever calls the device does it all before
/// anybody else may call the same half, but for [`Effect::FlushOther`] and [`Effect::Rendezvous`], which
/// need the other half.
///
/// The buffer is kept from call to call and has room for whatever a call may bring about, be it the end of
/// all that is posted: no call takes memory.
#[derive(Debug, Default)]
pub struct Effects(Vec<Effect>);

impl Effects {
    /// A buffer for a half of which one call ends so many work requests or receives at most.
    pub(super) fn with_room_for(most: usize) -> Result<Self, SizeError> {
        let room = most.checked_mul(OF_ONE).and_then(|room| room.checked_add(BESIDE));
        room_for(room.ok_or(SizeError::NoMemory)?).map(Self)
    }

    /// What is to be done, in order.
    #[inline]
    pub fn all(&self) -> &[Effect] {
        &self.0
    }

    /// What is to be done before an answer that the call returned leaves, and what behind it. A refusal is
    /// noted before, for whoever gets the answer may ask why; a completion is seen behind it, for then the
    /// program may end.
    pub fn around_answer(&self) -> (&[Effect], &[Effect]) {
        let first = self.0.iter().position(Effect::completes).unwrap_or(self.0.len());
        self.0.split_at(first)
    }

    /// It has been done.
    #[inline]
    pub fn clear(&mut self) {
        self.0.clear();
    }

    #[inline]
    pub(super) fn push(&mut self, effect: Effect) {
        debug_assert!(self.0.len() < self.0.capacity(), "more than a call can bring about");
        self.0.push(effect);
    }

    #[inline]
    pub(super) fn complete(&mut self, side: QueueSide, completion: Completion, solicited: bool) {
        self.push(Effect::Complete { side, completion, solicited });
    }

    pub(super) fn event(&mut self, event: QpEvent) {
        self.push(Effect::Event(event));
    }

    pub(super) fn refused(&mut self, refusal: &Refusal) {
        self.push(Effect::Refused(*refusal));
    }

    pub(crate) fn respond(&mut self, packet: Packet<'static>) {
        self.push(Effect::Respond(packet));
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether a completion is among them, behind the first `count`.
    pub(crate) fn completes_after(&self, count: usize) -> bool {
        self.0.iter().skip(count).any(Effect::completes)
    }

    /// A packet leaves before all of them but the first `count`.
    pub(crate) fn respond_before(&mut self, count: usize, packet: Packet<'static>) {
        self.0.insert(count, Effect::Respond(packet));
    }
}
