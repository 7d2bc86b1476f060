//! Whether a completion queue has room for all requests that may complete into it.

use super::{Asked, Ledger, Thing};
use crate::Kind;
use crate::mark::{self, Level};

/// A completion queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// The number of completions that the program asked it to hold.
    asked: u64,
    /// The most outstanding requests that its queue pairs can have in it.
    may_complete: u64,
    /// The most that there could be, where it was asked for fewer.
    too_many: Option<TooMany>,
    /// The most completions that it held since it has this size.
    most: u64,
}

#[derive(Clone, Copy, Debug)]
struct TooMany {
    asked: u64,
    may_complete: u64,
}

impl Queue {
    fn compare(&mut self) {
        let Self { asked, may_complete, too_many, .. } = *self;
        let is_more = too_many.is_none_or(|it| it.may_complete < may_complete);
        if may_complete > asked && is_more {
            self.too_many = Some(TooMany { asked, may_complete });
        }
    }
}

impl Ledger {
    /// A completion queue is made or resized.
    pub fn queue_sized(&mut self, address: usize, asked: u32) {
        let new = Queue { asked: asked.into(), may_complete: 0, too_many: None, most: 0 };
        let queue = self.queues.entry(address).or_insert(new);
        (queue.asked, queue.most) = (asked.into(), 0);
        if queue.may_complete <= queue.asked {
            queue.too_many = None;
        }
        queue.compare();
    }

    /// A completion queue holds so many completions.
    pub fn queue_holds(&mut self, address: usize, count: usize) {
        if let Some(queue) = self.queues.get_mut(&address) {
            queue.most = queue.most.max(count as u64);
        }
    }

    /// The completion queues of a queue pair's sends and of its receives hold so many.
    pub fn queues_hold(&mut self, pair: usize, counts: [usize; 2]) {
        let Some(asked) = self.pairs.get(&pair).map(|pair| pair.asked) else { return };
        for ((address, _), count) in asked.completions().into_iter().zip(counts) {
            self.queue_holds(address, count);
        }
    }

    /// A queue pair with these completion queues is made.
    pub(super) fn completes_into(&mut self, asked: &Asked) {
        for (address, count) in asked.completions() {
            let Some(queue) = self.queues.get_mut(&address) else { continue };
            queue.may_complete += count;
            queue.compare();
        }
    }

    /// A queue pair with these completion queues ends.
    pub(super) fn completes_no_more(&mut self, asked: &Asked) {
        for (address, count) in asked.completions() {
            if let Some(queue) = self.queues.get_mut(&address) {
                queue.may_complete = queue.may_complete.saturating_sub(count);
            }
        }
    }

    /// A completion queue ends, with the process perhaps. Reports it if it was full, or could have overrun.
    pub(super) fn queue_ends(&mut self, address: usize) {
        let Some(queue) = self.queues.remove(&address) else { return };
        let object = (Thing::CompletionQueue, address);
        let level = Level { most: queue.most, asked: queue.asked };
        self.mark(mark::Queue::Completion, object, level);
        let number = self.objects.get(&object).map_or(0, |made| made.number);
        let called = capitalized(&Thing::CompletionQueue.called(number));
        self.tell_fullest(&called, "completions", object, level);
        let Some(TooMany { asked, may_complete }) = queue.too_many else { return };
        let s = if asked == 1 { "" } else { "s" };
        let says = format!(
            "A completion queue for {asked} completion{s} can overrun: {may_complete} requests may complete into it."
        );
        let calls = self.made_by(Thing::CompletionQueue, address).into_iter().collect();
        self.found(Kind::QueueCouldOverrun, says, calls);
    }
}

/// A text that begins a sentence.
pub(super) fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}
