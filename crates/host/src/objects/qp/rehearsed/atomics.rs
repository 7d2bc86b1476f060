//! Atomics that are no single step for a processor, in a rehearsal.

use std::sync::OnceLock;

use transom_device::execution::MemoryGone;
use transom_device::protection::Grant;
use transom_rehearse::Provocation;
use transom_system::rehearsal;

use super::super::QueuePair;
use super::Rehearsed;
use super::placement::pause;

/// Whether an atomic of this process may be two steps. Then all requests come as messages, to each of its queue pairs,
/// so that what is atomic for adapters stays so.
fn may_be_two_steps() -> bool {
    static MAY_BE: OnceLock<bool> = OnceLock::new();
    rehearsal::on().is_some_and(|it| {
        *MAY_BE.get_or_init(|| it.may_provoke_at(Provocation::SplitAtomics, None))
    })
}

impl QueuePair {
    /// Whether all requests come here as messages, because a rehearsal decides when they change memory.
    #[inline]
    pub(in super::super) fn sees_all(&self) -> bool {
        self.rehearsed().is_some() && (self.may_hold_back() || may_be_two_steps())
    }

    /// Changes a word for a peer.
    #[cold]
    pub(in super::super) fn atomic(
        &self,
        rehearsed: &Rehearsed,
        at: &Grant<'_>,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, MemoryGone> {
        let process = self.device.process();
        // What another process carries out by XRC does not know of the two steps, and would come between them.
        let may_split = may_be_two_steps() && !self.adapter.xrc_domains.were_made();
        let Some(here) = self.held_back().filter(|_| may_split) else {
            return process.atomic(at, update);
        };
        let nth = rehearsed.count(|it| &it.atomics);
        match rehearsed.provokes(Provocation::SplitAtomics, nth) {
            Some(number) => here.atomic_in_two_steps(at, update, pause(number)),
            None => here.alone(|| process.atomic(at, update)),
        }
    }
}
