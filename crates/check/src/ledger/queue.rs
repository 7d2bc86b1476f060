//! Whether a completion queue has room for all requests that may complete into it.

use super::{Asked, Ledger, Thing};
use crate::Kind;

/// A completion queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// The number of completions that the program asked it to hold.
    asked: u64,
    /// The most outstanding requests that its queue pairs can have in it.
    may_complete: u64,
    is_told: bool,
}

impl Ledger {
    /// A completion queue is made or resized.
    pub fn queue_sized(&mut self, address: usize, asked: u32) {
        let new = Queue { asked: asked.into(), may_complete: 0, is_told: false };
        self.queues.entry(address).or_insert(new).asked = asked.into();
    }

    /// A queue pair with these completion queues is made.
    pub(super) fn completes_into(&mut self, asked: &Asked) {
        for (address, count) in asked.completions() {
            let Some(queue) = self.queues.get_mut(&address) else { continue };
            queue.may_complete += count;
            let Queue { asked, may_complete, is_told } = *queue;
            if may_complete <= asked || is_told {
                continue;
            }
            queue.is_told = true;
            let says = format!(
                "A completion queue for {asked} completions can overrun: {may_complete} requests may complete into it."
            );
            let calls = self.made_by(Thing::CompletionQueue, address).into_iter().collect();
            self.found(Kind::QueueCouldOverrun, says, calls);
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
}
