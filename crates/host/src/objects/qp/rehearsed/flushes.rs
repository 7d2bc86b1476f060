//! Completions of a queue pair in ERR that come late in a rehearsal: one by one and in bursts. Those of one queue keep
//! their order. The other queue goes its own way.

use std::collections::VecDeque;

use parking_lot::Mutex;
use transom_device::execution::QueueSide;
use transom_device::qp::QpState;
use transom_device::queue::{Completion, Status};
use transom_rehearse::Provocation;
use transom_system::clock;

use super::super::QueuePair;
use super::lateness;
use crate::device::Due;
use crate::events::AsyncEvent;
use crate::objects::Deferred;

/// The longest time in which all that waits comes, in nanoseconds.
const LONGEST: u64 = 102_400_000;

/// What the two queues have to tell: the send queue, and the receive queue.
#[derive(Debug, Default)]
pub(super) struct Flushes([Mutex<Late>; 2]);

impl Flushes {
    /// Forgets everything that waits (rules ST-10, ORD-29).
    pub(super) fn forget(&self) {
        self.0.iter().for_each(|late| late.lock().waiting.clear());
    }
}

/// What one queue has to tell, in order.
#[derive(Debug, Default)]
struct Late {
    waiting: VecDeque<(u64, News)>,
    /// When the first of them was to come.
    since: u64,
    /// How many there have been.
    count: u64,
}

/// One thing that comes late.
#[derive(Debug)]
enum News {
    Flushed {
        completion: Completion,
        solicited: bool,
    },
    /// No more is taken from the shared receive queue.
    LastWqe,
}

impl QueuePair {
    /// Whether a completion of a queue pair in error comes late.
    #[inline]
    pub(in super::super) fn delays(
        &self,
        side: QueueSide,
        completion: &Completion,
        solicited: bool,
    ) -> bool {
        completion.status == Status::Flushed
            && self.delays_news(side, || News::Flushed { completion: *completion, solicited })
    }

    /// Whether the event comes late that says that no more is taken from the shared receive queue.
    pub(in super::super) fn delays_last_wqe(&self) -> bool {
        self.delays_news(QueueSide::Receive, || News::LastWqe)
    }

    #[cold]
    fn delays_news(&self, side: QueueSide, news: impl FnOnce() -> News) -> bool {
        let Some(rehearsed) = self.rehearsed() else { return false };
        // From SQE a send queue goes on, and what comes then must not overtake this.
        if self.summary().gate().state != QpState::Error {
            return false;
        }
        let late = &mut *rehearsed.flushes.0[side as usize].lock();
        let nth = late.count << 1 | side as u64;
        late.count += 1;
        let number = rehearsed.provokes(Provocation::SlowFlush, nth);
        let last = late.waiting.back().map(|(time, _)| *time);
        if number.is_none() && last.is_none() {
            return false;
        }
        let now = clock::steady();
        if last.is_none() {
            late.since = now;
        }
        let time = last.unwrap_or(now).max(now) + number.map_or(0, lateness);
        let time = time.min(late.since + LONGEST);
        late.waiting.push_back((time, news()));
        if last.is_none() {
            self.device.work.deadlines.schedule(time, Due::Flushes(self.number.index()));
        }
        true
    }

    /// Lets everything come whose time has come.
    pub(crate) fn tell_flushed(&self, now: u64) {
        let Some(rehearsed) = self.rehearsed() else { return };
        let mut deferred = Deferred::default();
        for (late, feed) in rehearsed.flushes.0.iter().zip([&self.feeds.send, &self.feeds.receive])
        {
            // Locked until it is seen: what comes next must not overtake it.
            let mut late = late.lock();
            while late.waiting.front().is_some_and(|(time, _)| *time <= now)
                && let Some((_, news)) = late.waiting.pop_front()
            {
                match news {
                    News::Flushed { completion, solicited } => {
                        if let Some(feed) = feed {
                            feed.complete(&completion, solicited, &mut deferred);
                        }
                    }
                    News::LastWqe => self.events.raise(AsyncEvent::LastWqeReached),
                }
            }
            if let Some((time, _)) = late.waiting.front() {
                self.device.work.deadlines.schedule(*time, Due::Flushes(self.number.index()));
            }
        }
        deferred.run(&self.adapter);
    }
}
