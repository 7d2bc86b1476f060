//! How full the queues were.
//!
//! The marks have fixed room: those of queues that were made at the same place are one.

use super::{Ledger, Thing};
use crate::mark::{Level, Mark, Queue};
use crate::{Call, Kind};

/// The most places whose queues are remembered.
const PLACES: usize = 64;

/// The marks of queues that have ended.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<Mark<Call>>);

impl Marks {
    fn add(&mut self, queue: Queue, level: Level, made: Call) {
        let is_same = |it: &Mark<Call>| it.queue == queue && it.made.frames() == made.frames();
        if let Some(at) = self.0.iter().position(is_same) {
            self.0[at].join(level, 1);
        } else if self.0.len() < PLACES {
            self.0.push(Mark { queue, level, count: 1, made });
        }
    }
}

/// The most requests that a queue held. The ledger hears of requests before they are taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peak {
    most: usize,
    /// The most before the last post.
    before: usize,
}

impl Peak {
    /// The queue holds so many, if the device takes all that are being posted.
    pub(super) fn holds(&mut self, count: usize) {
        (self.most, self.before) = (self.most.max(count), self.most);
    }

    /// The device has not taken all that were posted last: the queue holds so many.
    pub(super) fn holds_only(&mut self, count: usize) {
        self.most = self.before.max(count);
    }

    pub(super) fn most(self) -> usize {
        self.most
    }
}

/// The size of a shared receive queue, and how full it was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SharedSize {
    asked: u32,
    /// The number of places that it has.
    places: usize,
    pub(super) peak: Peak,
}

impl Ledger {
    /// A shared receive queue is made or resized: the number of receives that it was asked to hold, and of places that it
    /// has.
    pub fn shared_queue_sized(&mut self, address: usize, asked: u32, places: usize) {
        let peak = Peak::default();
        self.shared_sizes.insert(address, SharedSize { asked, places, peak });
    }

    /// A shared receive queue ends, with the process perhaps.
    pub(super) fn shared_queue_ends(&mut self, address: usize) {
        let Some(SharedSize { asked, places, peak }) = self.shared_sizes.remove(&address) else {
            return;
        };
        // Of a receive that ends by a queue pair of another process the ledger may not hear.
        let most = peak.most().min(places) as u64;
        let level = Level { most, asked: asked.into() };
        self.mark(Queue::SharedReceive, (Thing::SharedReceiveQueue, address), level);
    }

    /// How full the queues were that have ended.
    pub fn marks(&self) -> &[Mark<Call>] {
        &self.marks.0
    }

    /// A queue ends, with the process perhaps. `object` has it, or is it.
    pub(super) fn mark(&mut self, queue: Queue, object: (Thing, usize), level: Level) {
        let Some(made) = self.objects.get(&object).map(|made| made.call) else { return };
        if level != Level::default() {
            self.marks.add(queue, level, made);
        }
    }

    /// Reports a queue that was full, or nearly.
    pub(super) fn tell_fullest(
        &mut self,
        queue: &str,
        held: &str,
        object: (Thing, usize),
        level: Level,
    ) {
        if !level.is_near() {
            return;
        }
        let Level { most, asked } = level;
        let was = if level.is_full() { "full" } else { "nearly full" };
        let says = format!("{queue} was {was}: it held {most} {held}, and was asked for {asked}.");
        let calls = self.made_by(object.0, object.1).into_iter().collect();
        self.found(Kind::QueueFull, says, calls);
    }
}
