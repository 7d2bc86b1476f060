//! The sending half of a queue pair: the requests posted to it, and the steps that move it on.

use transom_device::execution::{Context, Effects, Requester};
use transom_device::qp::QpNumber;
use transom_device::queue::{PostError, SendRequest, SizeError};
use transom_system::sanitizers::{self, Half};
use transom_system::tools;
use transom_wire::Psn;

use super::services::At;
use super::{QpAttributes, QueuePair};
use crate::device::{Device, Due};
use crate::objects::{Deferred, Link};

/// Whether another request is posted right after this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// The caller's list goes on.
    Follows,
    /// None does now. But where many packets are on their way already, more requests may follow soon.
    Perhaps,
    /// Nothing follows: send everything that has been posted.
    Nothing,
}

/// If a queue pair has so many packets on their way, newly posted requests wait for the next poll and leave together.
/// Few programs that wait for their requests have so many at a time.
const MUCH: u32 = 8;
/// How many work requests may wait so: one burst, if they are small.
const MOST_WAITING: u64 = 32;

/// Posts one request of a batch.
pub type PostOne<'a> = &'a mut dyn FnMut(&SendRequest<'_>) -> Result<(), PostError>;

/// The send queue, and its destination.
pub(super) struct SendHalf {
    /// The attributes of both halves. They change only with both locked.
    pub(super) attributes: QpAttributes,
    pub(super) requester: Requester,
    pub(super) link: Link,
    /// The queue pair at the other end.
    pub(super) peer: QpNumber,
    /// `sq_psn`: the target lets in directly only a peer that it expects with this number.
    pub(super) first: Psn,
    scheduled: Scheduled,
    /// Whether the wire link counts it among those that send.
    counted: bool,
    /// The effects that the device asks for. Empty whenever the half is not locked.
    effects: Effects,
}

impl SendHalf {
    /// A half that sends nowhere yet.
    pub(super) fn new(requester: Requester) -> Result<Self, SizeError> {
        Ok(Self {
            attributes: QpAttributes::reset(),
            effects: requester.effects()?,
            requester,
            link: Link::None,
            peer: QpNumber::from_bits(0),
            first: Psn::default(),
            scheduled: Scheduled::default(),
            counted: false,
        })
    }

    /// Has it send by this link.
    pub(super) fn lead(&mut self, link: Link, peer: QpNumber, qp: &QueuePair) {
        self.requester.lead(link.segmentation(qp.config.service), peer);
        (self.link, self.peer) = (link, peer);
    }

    /// Tells the program once nothing is on its way any more.
    pub(super) fn notify_drained(&mut self, qp: &QueuePair, deferred: &mut Deferred) {
        let at = qp.here();
        self.requester.notify_drained(&mut at.context(&mut self.effects));
        at.settle(&mut self.effects, deferred);
    }

    /// Completes everything posted as flushed.
    pub(super) fn flush(&mut self, qp: &QueuePair, deferred: &mut Deferred) {
        let at = qp.here();
        self.requester.flush(&mut at.context(&mut self.effects));
        at.settle(&mut self.effects, deferred);
    }

    /// Tells the wire link whether packets are on their way.
    #[inline]
    pub(super) fn count(&mut self, device: &Device) {
        let sends = self.requester.awaits_packets();
        if sends != self.counted
            && let Some(wire) = device.port().wire()
        {
            self.counted = sends;
            wire.count_sender(sends);
        }
    }
}

impl QueuePair {
    /// Posts a send work request, and carries out as much as possible at once. If more follows, that may wait until
    /// then. If the following request cannot be posted, call [`QueuePair::advance`] instead.
    #[inline]
    pub fn post_send(&self, request: &SendRequest<'_>, more: More) -> Result<(), PostError> {
        if tools::any() {
            return self.post_send_watched(request, more);
        }
        self.drive(more, |requester, cx| requester.post(request, cx))
    }

    /// The same, while a tool is on.
    #[cold]
    fn post_send_watched(&self, request: &SendRequest<'_>, more: More) -> Result<(), PostError> {
        match self.rehearsed() {
            None => self.drive(more, |requester, cx| self.post_traced(requester, request, cx)),
            Some(rehearsed) => self.post_send_rehearsed(rehearsed, request, more),
        }
    }

    /// Posts `count` send work requests together, all or none (rule PS-14). `each` calls the function that it gets for
    /// one after the other. They have been checked against the attributes that the queue pair was created with.
    pub fn post_send_batch(
        &self,
        count: usize,
        each: impl FnOnce(PostOne<'_>) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        let rehearsed = self.rehearsed();
        rehearsed.inspect(|rehearsed| self.lose_peers(rehearsed));
        self.drive(More::Perhaps, |requester, cx| {
            requester.check_room(count, cx.summary)?;
            if let Some(rehearsed) = rehearsed {
                self.hold(rehearsed, requester);
            }
            each(&mut |request| match rehearsed {
                None if tools::any() => self.post_traced(requester, request, cx),
                None => requester.post(request, cx),
                Some(rehearsed) => self.traced(requester, request, cx, |requester, cx| {
                    self.post_rehearsed(rehearsed, requester, request, cx)
                }),
            })
        })
    }

    /// Goes on with requests that waited for time, for room, or for more to follow.
    pub fn advance(&self) {
        self.drive(More::Nothing, |_, _| ());
    }

    /// Goes on because a deadline has come that the device was told of. What has come until then must have been taken:
    /// the answer that is waited for may be among it. So nothing else looks at the clock.
    pub(crate) fn advance_in_time(&self, deadline: u64) {
        if self.send.lock().scheduled.take(deadline) {
            self.drive(More::Nothing, |requester, cx| requester.check_timeout(cx));
        }
    }

    /// Runs `step` on the send queue, then carries out as much as possible.
    #[inline]
    pub(super) fn drive<T>(
        &self,
        more: More,
        step: impl FnOnce(&mut Requester, &mut Context<'_, At<'_>>) -> T,
    ) -> T {
        let mut deferred = Deferred::default();
        let result = self.drive_with(more, &mut deferred, step);
        deferred.run(&self.adapter);
        result
    }

    #[inline]
    pub(super) fn drive_with<T>(
        &self,
        more: More,
        deferred: &mut Deferred,
        step: impl FnOnce(&mut Requester, &mut Context<'_, At<'_>>) -> T,
    ) -> T {
        let mut guard = self.send.lock();
        let half = &mut *guard;
        let is_of_this_host = || half.link.is_within_host(self.device.port());
        let (number, peer) = (self.number.bits(), half.peer.bits());
        let _work = sanitizers::work(number, Half::Send, peer, is_of_this_host);
        let requester = &mut half.requester;
        let at = At::new(self, &half.link, half.peer, half.first, half.link.way());
        let mut cx = at.context(&mut half.effects);
        let result = step(requester, &mut cx);
        // Packets wait, to leave together with those of the next request.
        let waits = match (&half.link, more) {
            (Link::Wire(_), More::Follows) => true,
            (Link::Wire(_), More::Perhaps) => self.leaves_with_next_poll(requester),
            _ => false,
        };
        if requester.has_work() && !waits {
            at.advance(requester, &mut cx, deferred);
        }
        at.settle(cx.effects, deferred);
        half.count(&self.device);
        let deadline = half.requester.deadline().filter(|deadline| half.scheduled.add(*deadline));
        drop(guard);
        if let Some(deadline) = deadline {
            self.device.work.deadlines.schedule(deadline, Due::QueuePair(self.number.index()));
        }
        result
    }

    /// Whether posted requests may wait for the next poll. A program that polls regularly has many on their way, and
    /// the answers make it poll. If they wait, this makes sure that the poll sends them.
    fn leaves_with_next_poll(&self, requester: &Requester) -> bool {
        let waits = requester.packets_under_way() >= MUCH
            && requester.requests_waiting() < MOST_WAITING
            && !self.device.work.polling.thread_listens();
        if waits && let Some(wire) = self.device.port().wire() {
            wire.stall(self.number.index());
        }
        waits
    }
}

/// When a queue pair has to be advanced, as the device was told: the earliest deadline, and the one that was the
/// earliest before. All other deadlines that the device was told of are out of date.
#[derive(Debug, Default)]
struct Scheduled {
    first: Option<u64>,
    next: Option<u64>,
}

impl Scheduled {
    /// Whether the device has to be told of a deadline. A deadline that moves to a later time is looked at when the
    /// earlier one comes.
    fn add(&mut self, deadline: u64) -> bool {
        let is_first = self.first.is_none_or(|first| deadline < first);
        if is_first {
            self.next = self.first.replace(deadline);
        }
        is_first
    }

    /// A deadline has come. Whether the queue pair has to be advanced.
    fn take(&mut self, deadline: u64) -> bool {
        let is_first = self.first == Some(deadline);
        if is_first {
            self.first = self.next.take();
        } else {
            // An earlier one was added after this one had come. Nobody comes for it again.
            self.next = self.next.filter(|next| *next != deadline);
        }
        is_first
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;

    /// One thread has taken a deadline that has come, and not told the queue pair yet. Another one, which has read the
    /// clock before, adds an earlier one.
    #[test]
    fn a_deadline_that_has_come_is_not_waited_for() {
        let mut scheduled = Scheduled::default();
        assert!(scheduled.add(100) && scheduled.add(90));
        assert!(!scheduled.take(100) && scheduled.take(90));
        assert!(scheduled.add(200), "nobody would come");
    }

    /// A timeout runs, and again and again a receiver asks for a pause before it. Old deadlines of the timeout do not
    /// pile up, and each deadline is kept.
    #[test]
    fn deadlines_that_are_out_of_date_come_to_nothing() {
        const TIMEOUT: u64 = 1_000_000;
        const PAUSE: u64 = 7;
        let (mut scheduled, mut told) = (Scheduled::default(), BinaryHeap::new());
        let tell = |scheduled: &mut Scheduled, told: &mut BinaryHeap<_>, deadline| {
            if scheduled.add(deadline) {
                told.push(Reverse(deadline));
            }
        };
        let (mut now, mut rounds) = (0, 0);
        tell(&mut scheduled, &mut told, TIMEOUT);
        while now < 3 * TIMEOUT {
            let wanted = now + PAUSE;
            tell(&mut scheduled, &mut told, wanted);
            loop {
                let Some(Reverse(deadline)) = told.pop() else { panic!("{wanted} is forgotten") };
                now = deadline;
                if scheduled.take(deadline) {
                    break;
                }
            }
            assert!(now <= wanted, "{now} and not {wanted}");
            if now == wanted {
                rounds += 1;
                tell(&mut scheduled, &mut told, now + TIMEOUT);
            }
            assert!(told.len() <= 2, "{told:?}");
        }
        assert!(rounds > 100_000);
    }
}
