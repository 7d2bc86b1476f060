//! The effects that a queue pair asks for, as values. It calls nobody, so it needs to know nothing of its caller's
//! locks.

use transom_wire::packet::Packet;

use super::{QpEvent, QueueSide};
use crate::queue::{Completion, SizeError, room_for};

/// One thing to be done.
#[derive(Clone, Copy, Debug)]
pub enum Effect {
    /// A completion appears in the completion queue of the receive queue.
    Complete {
        /// The completion.
        completion: Completion,
        /// It was solicited.
        solicited: bool,
    },
    /// The same in the completion queue of an XRC shared receive queue.
    CompleteShared {
        /// The number of the shared queue.
        srq: u32,
        /// The completion.
        completion: Completion,
        /// It was solicited.
        solicited: bool,
    },
    /// A message that was noted as unexpected, by [`Process::take_shared`](super::Process::take_shared),
    /// has failed.
    ForgetUnexpected,
    /// A receive that was taken from a shared queue ends without a completion. The queue is the one that the queue pair
    /// was created with or, for XRC, the one of this number.
    GiveUpShared {
        /// The number of the shared queue.
        srq: Option<u32>,
    },
    /// An asynchronous event is raised.
    Event(QpEvent),
    /// A packet without data goes back to the origin: an acknowledgement, a NAK, an atomic's answer. If there is no
    /// room for it, it leaves later, before those that come after it.
    Respond(Packet<'static>),
    /// This queue of the queue pair has to be flushed: the queue pair fell into error from the other side, or more
    /// receives are posted than one call flushes.
    Flush(QueueSide),
    /// A rendezvous waits in [`Responder::next_rendezvous`](super::Responder::next_rendezvous), or there is room for
    /// another in [`Requester::rendezvous`](super::Requester::rendezvous). The caller has to bring them together when
    /// both are free.
    Rendezvous,
}

impl Effect {
    /// Whether it makes a completion appear.
    fn completes(&self) -> bool {
        matches!(self, Self::Complete { .. } | Self::CompleteShared { .. })
    }
}

/// The most effects of a call beside those for what ends: three events (the first request, a refused one, the last
/// receive), an answer, an unexpected message to forget, the rest of a flush or work for the other half. An idle queue
/// pair has room for them too.
const BESIDE: usize = 6;

/// The effects in order: completions of receives appear in the order in which they come here, and an answer leaves
/// before the completion behind it. So the caller of the device carries all of them out before anybody else may call
/// the same half. The exceptions are [`Effect::Flush`] and [`Effect::Rendezvous`], which need the lock of a half anew.
///
/// The buffer is kept from call to call. It has room for everything that one call may bring about, so no call takes
/// memory.
#[derive(Debug, Default)]
pub struct Effects(Vec<Effect>);

impl Effects {
    /// A buffer for a half of which one call may end so many receives, and for the effects beside that.
    pub(super) fn with_room_for(receives: usize) -> Result<Self, SizeError> {
        room_for(receives + BESIDE).map(Self)
    }

    /// The effects, in order.
    #[inline]
    pub fn all(&self) -> &[Effect] {
        &self.0
    }

    /// The effects to carry out before an answer that the call returned leaves, and those after it. A completion comes
    /// after it, because then the program may end.
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
    pub(super) fn complete(&mut self, completion: Completion, solicited: bool) {
        self.push(Effect::Complete { completion, solicited });
    }

    pub(super) fn event(&mut self, event: QpEvent) {
        self.push(Effect::Event(event));
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
