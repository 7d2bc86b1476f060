//! Notes of a queue pair for `transom explain`, beside refusals: work that came to nothing, and the visible state of
//! the other end.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

use transom_device::execution::{Failure, QueueSide, RanDry, Unheard, Why};
use transom_device::protection::Reason;
use transom_device::qp::{Presence, QpNumber, QpSummary, SharedQueue};
use transom_device::queue::Status;
use transom_net::TooLong;
use transom_system::registry::{Fate, Found, Work};

use super::QueuePair;
use super::services::At;
use crate::objects::cq::Feed;
use crate::objects::seldom::Seldom;
use crate::objects::{Cq, Link};

/// The notes that were made, so that none is repeated again and again.
#[derive(Default)]
pub(super) struct Told {
    /// Whether it was noted that sends, and that receives, were flushed in this life of the queue pair.
    flushed: [AtomicBool; 2],
    /// The program itself moved it to ERR.
    by_program: AtomicBool,
    /// Whether it was noted that the send queue, and that the receive queue, was full in this life of the queue pair.
    full: [AtomicBool; 2],
    /// Messages that were dropped, by why.
    unheard: [Seldom; Unheard::KINDS],
}

impl Told {
    /// The program moves the queue pair to ERR. Notes whether it was in another state before.
    pub(super) fn moved_by_program(&self, was_elsewhere: bool) {
        if was_elsewhere {
            self.by_program.store(true, Relaxed);
        }
    }

    /// The queue pair goes to RESET.
    pub(super) fn begin_anew(&self) {
        let once = self.flushed.iter().chain(&self.full);
        once.for_each(|told| told.store(false, Relaxed));
        self.by_program.store(false, Relaxed);
    }
}

/// What nobody has polled of a queue pair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unpolled {
    /// Its errors, other than flushes: the program's number of the work, and the status.
    pub errors: Vec<(u64, Status)>,
    /// How many messages it has received well.
    pub messages: usize,
    /// How many completions there are in the queue of its sends, and in that of its receives, of others too.
    pub completions: [usize; 2],
}

impl QueuePair {
    /// Notes that work requests are flushed, once for each queue.
    #[cold]
    pub(super) fn note_flushed(&self, side: QueueSide, count: u64) {
        let receives = side == QueueSide::Receive;
        if receives {
            self.forget_scribbled();
        }
        if self.told.flushed[usize::from(receives)].swap(true, Relaxed) {
            return;
        }
        let by_program = self.told.by_program.load(Relaxed);
        self.note(0, None, Fate::Flushed { count, by_program, receives });
    }

    /// For a queue that has no room: how many places it has, and how many of them hold work that is not carried out
    /// yet. It answers once, because a program may post until there is no room, again and again.
    #[cold]
    pub fn why_full(&self, side: QueueSide) -> Option<(usize, usize)> {
        let receives = side == QueueSide::Receive;
        if self.told.full[usize::from(receives)].swap(true, Relaxed) {
            return None;
        }
        Some(match side {
            QueueSide::Send => self.send.lock().requester.occupancy(),
            QueueSide::Receive => self.receive.half.lock().responder.occupancy(),
        })
    }

    /// How often, and for how long, its peer was asked to wait for a receive. `None` if it is busy for so long.
    pub fn ran_dry(&self, patience: Duration) -> Option<RanDry> {
        Some(self.receive.half.try_lock_for(patience)?.responder.ran_dry())
    }

    /// What nobody has polled of it. A completion queue that is busy for so long is left out.
    pub fn unpolled(&self, patience: Duration) -> Unpolled {
        let number = self.number().bits();
        let mut all = Unpolled::default();
        let mut seen: Option<&Arc<Cq>> = None;
        for (feed, count) in [&self.feeds.send, &self.feeds.receive].into_iter().zip(0..) {
            let Some(queue) = feed.as_ref().map(Feed::cq) else { continue };
            let Some(waiting) = queue.waiting_of(number, patience) else { continue };
            all.completions[count] = waiting.count;
            if seen.replace(queue).is_none_or(|seen| !Arc::ptr_eq(seen, queue)) {
                all.errors.extend(waiting.errors);
                all.messages += waiting.messages;
            }
        }
        all
    }

    /// How many requests of the send queue are not carried out yet.
    pub fn sends_under_way(&self) -> usize {
        self.send.lock().requester.occupancy().1
    }

    /// How many requests of the program its send queue has room for.
    pub fn send_places(&self) -> usize {
        self.send.lock().requester.occupancy().0
    }

    /// Notes that a message was dropped. Of many, only some are noted.
    #[cold]
    pub(super) fn note_unheard(&self, from: QpNumber, why: Unheard) {
        self.note_dropped(from.bits(), why);
    }

    /// Notes that packets were dropped because they came from an address that it is not connected to, or because they
    /// are of another service. Of many, only some are noted.
    #[cold]
    pub(crate) fn note_dropped(&self, from: u32, why: Unheard) {
        if self.told.unheard.get(usize::from(why.kind())).is_some_and(Seldom::is_due) {
            self.note(from, None, Fate::Dropped(why));
        }
    }

    /// Notes that packets were dropped because they are not of its service, or because it is not connected by packets
    /// yet.
    #[cold]
    pub(crate) fn note_strange(&self) {
        let gate = self.summary().gate();
        self.note_dropped(
            0,
            match gate.receives() {
                true => Unheard::OtherService,
                false => Unheard::Deaf(gate.state),
            },
        );
    }

    pub(super) fn note(&self, peer: u32, work: Option<Work>, fate: Fate) {
        self.device.process().note_work(self.number.bits(), peer, work, fate);
    }
}

impl At<'_> {
    /// Notes why a work request of the send queue failed.
    #[cold]
    pub(super) fn note_failed(&self, failure: &Failure) {
        let &Failure { wr_id, opcode, status, why, retry } = failure;
        let fate = match why {
            // The peer has noted the reason, and `transom explain` shows that too.
            Why::Refused(1..) => return,
            Why::Refused(0) => Fate::RefusedThere,
            Why::Unanswered if self.qp.has_lost_peer() => Fate::Rehearsed,
            Why::Unanswered | Why::Deserted => Fate::Unanswered {
                found: match (why, self.link) {
                    (Why::Deserted, Link::Wire(path)) => Found::Deserted(path.destination),
                    _ => self.found(),
                },
                retries: retry.count,
                timeout: retry.timeout,
            },
            Why::NotReady => {
                let shared = self.peer_summary().map(|it| it.shared_queue() != SharedQueue::None);
                Fate::NotReady { retries: retry.rnr_count, shared }
            }
            Why::BadResponse => Fate::BadResponse,
            Why::Unfit(reason, value, limit) => Fate::Unfit { reason, value, limit },
            Why::Meant => Fate::Rehearsed,
        };
        let local = matches!(why, Why::Unfit(Reason::OtherPd | Reason::TooLong, ..));
        let peer = if local { 0 } else { self.peer.bits() };
        self.qp.note(peer, Some(Work { wr_id, opcode, status }), fate);
    }

    /// The visible state of the queue pair at the other end, which has not answered.
    fn found(&self) -> Found {
        let summary = match self.link {
            Link::None => return Found::NoProcess,
            Link::Wire(path) => return self.found_far(path.destination),
            Link::Local(peer) if peer.is_gone() => return Found::Ended,
            Link::Loopback | Link::Local(_) => self.peer_summary(),
        };
        let Some(summary) = summary else { return Found::NoQueuePair };
        let (gate, peering) = (summary.gate(), summary.peering());
        match summary.presence() {
            Presence::Never => Found::NoQueuePair,
            Presence::Gone => Found::Destroyed,
            Presence::Here if gate.service != self.qp.config.service.target() => {
                Found::OtherService(gate.service)
            }
            Presence::Here if !gate.receives() => Found::Deaf(gate.state),
            Presence::Here if peering.from != self.qp.number => {
                Found::OtherPeer(peering.from.bits())
            }
            Presence::Here if peering.first != self.first => {
                Found::OtherPsn { awaited: peering.first.value(), sent: self.first.value() }
            }
            Presence::Here => Found::Ready,
        }
    }

    /// The same where packets have gone.
    fn found_far(&self, destination: IpAddr) -> Found {
        let wire = self.qp.device.port().wire();
        if wire.is_some_and(|wire| wire.is_down()) {
            return Found::PortDown;
        }
        match wire.and_then(|wire| wire.too_long_for(destination)) {
            Some(TooLong { packet, carried, .. }) => Found::TooLong { packet, carried },
            None => Found::Far(destination),
        }
    }

    /// The summary of the queue pair at the other end, if it is on this host.
    fn peer_summary(&self) -> Option<&QpSummary> {
        let index = self.peer.index();
        match self.link {
            Link::None | Link::Wire(_) => None,
            Link::Loopback => self.qp.device.process().segment().qps().summary(index),
            Link::Local(peer) => peer.segment.qps().summary(index),
        }
    }
}
