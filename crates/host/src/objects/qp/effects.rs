//! The effects that the device asks for on a queue pair. They are carried out at once, under the lock of the half that
//! asks; later, if they need the other half.

use tracing::debug;
use transom_device::execution::{Counted, Effect, Effects, QpEvent, QueueSide};
use transom_device::qp::QpState;
use transom_device::queue::{Completion, Flags, Status};
use transom_system::tools;

use super::{More, QpReceives, QueuePair};
use crate::events::AsyncEvent;
use crate::objects::Deferred;

impl QueuePair {
    /// Carries out the effects of a half whose lock is held: the next caller of that half completes behind them.
    /// Effects that need the other half are left until no lock is held.
    #[inline]
    pub(super) fn carry_out_all(&self, effects: &mut Effects, deferred: &mut Deferred) {
        for effect in effects.all() {
            self.carry_out(effect, deferred);
        }
        effects.clear();
    }

    /// Makes the completion of a receive visible.
    #[inline]
    pub(super) fn carry_out(&self, effect: &Effect, deferred: &mut Deferred) {
        let Effect::Complete { completion, solicited } = effect else {
            return self.carry_out_other(effect, deferred);
        };
        self.receive_completes(completion, *solicited, deferred);
    }

    /// Has the completion of a receive seen.
    #[inline]
    pub(super) fn receive_completes(
        &self,
        completion: &Completion,
        solicited: bool,
        deferred: &mut Deferred,
    ) {
        if self.counters.any(Counted::RECV) {
            self.count_receive(completion);
        }
        if tools::any() {
            self.trace_received(completion, None);
        }
        if let Some(feed) = &self.feeds.receive
            && !self.delays(QueueSide::Receive, completion, solicited)
        {
            feed.complete(completion, solicited, deferred);
        }
    }

    #[cold]
    fn count_receive(&self, completion: &Completion) {
        // The data of a rendezvous comes later, with another completion.
        let announced = completion.flags & (Flags::TAG_MATCH | Flags::TAG_DATA_VALID);
        if announced != Flags::TAG_MATCH {
            let done = completion.status == Status::Success;
            self.counters.count(Counted::RECV, done.then_some(completion.byte_length.into()));
        }
    }

    #[cold]
    fn carry_out_other(&self, effect: &Effect, deferred: &mut Deferred) {
        match effect {
            Effect::CompleteShared { srq, completion, solicited } => {
                // If the queue was destroyed since, there is nobody to tell.
                let queue = self.adapter.shared_queues.get(*srq);
                if let Some(feed) = queue.as_ref().and_then(|queue| queue.xrc_feed()) {
                    if tools::any() {
                        self.trace_received(completion, Some(*srq));
                    }
                    feed.complete(completion, *solicited, deferred);
                }
            }
            Effect::GiveUpShared { srq } => match (&self.config.receives, srq) {
                (QpReceives::Srq(srq), _) => srq.returned().add(1),
                (_, Some(number)) => {
                    if let Some(srq) = self.adapter.shared_queues.get(*number) {
                        srq.returned().add(1);
                    }
                }
                _ => {}
            },
            Effect::ForgetUnexpected => {
                if let QpReceives::Srq(srq) = &self.config.receives {
                    srq.forget_unexpected();
                }
            }
            Effect::Event(QpEvent::LastWqeReached) if self.delays_last_wqe() => {}
            Effect::Event(event) => self.raise_for(*event),
            Effect::Flush(side) => {
                self.tell_door(None);
                deferred.flush(self.number.index(), *side);
            }
            Effect::Rendezvous => deferred.start_rendezvous(self.number.index()),
            Effect::Complete { .. } | Effect::Respond(_) => unreachable!("done elsewhere"),
        }
    }

    fn raise_for(&self, event: QpEvent) {
        self.events.raise(match event {
            QpEvent::Established => AsyncEvent::Established,
            QpEvent::AccessError => AsyncEvent::QpAccessError,
            QpEvent::RequestError => AsyncEvent::QpRequestError,
            QpEvent::SendQueueDrained => AsyncEvent::SendQueueDrained,
            QpEvent::LastWqeReached => AsyncEvent::LastWqeReached,
        });
    }

    /// Starts the rendezvous that wait, as far as there is room.
    pub(crate) fn start_rendezvous(&self, deferred: &mut Deferred) {
        self.drive_with(More::Nothing, deferred, |requester, cx| {
            while requester.has_rendezvous_room() {
                let Some(next) = self.receive.half.lock().responder.next_rendezvous() else {
                    break;
                };
                requester.rendezvous(&next, cx);
            }
        });
    }

    /// Flushes one queue of a queue pair in error.
    pub(crate) fn flush(&self, side: QueueSide, deferred: &mut Deferred) {
        match side {
            QueueSide::Send => {
                let half = &mut *self.send.lock();
                if self.summary().gate().state == QpState::Error {
                    half.flush(self, deferred);
                    half.count(&self.device);
                }
            }
            QueueSide::Receive => {
                let half = &mut *self.receive.half.lock();
                if self.summary().gate().state == QpState::Error {
                    half.flush(self, deferred);
                }
            }
        }
    }

    /// Puts it in error because a completion was lost (rules CQ-05, AE-03).
    pub(crate) fn fail_fatally(&self, deferred: &mut Deferred) {
        // With both locks, as `modify` has them. Otherwise a modify might open the gate again that closes here.
        let fell = {
            let _both = (self.send.lock(), self.receive.half.lock());
            self.summary().fall(QpState::Error)
        };
        if fell {
            self.tell_door(None);
            debug!(qp = %self.number, "queue pair in error, a completion was lost");
            self.events.raise(AsyncEvent::QpFatal);
        }
        self.flush(QueueSide::Send, deferred);
        self.flush(QueueSide::Receive, deferred);
    }
}
