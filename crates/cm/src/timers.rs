//! The timers of ids. Each id has at most one.

use std::collections::{BTreeMap, BTreeSet};

use transom_wire::cm::CommId;

/// The timers, by time and by id. Both tables have the same timers.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    by_time: BTreeSet<(u64, CommId)>,
    by_id: BTreeMap<CommId, u64>,
}

impl Timers {
    /// Sets an id's timer, and replaces the one that it has.
    pub(crate) fn set(&mut self, id: CommId, at: u64) {
        self.cancel(id);
        self.by_id.insert(id, at);
        self.by_time.insert((at, id));
    }

    /// Removes an id's timer.
    pub(crate) fn cancel(&mut self, id: CommId) {
        if let Some(at) = self.by_id.remove(&id) {
            self.by_time.remove(&(at, id));
        }
    }

    /// The first deadline.
    pub(crate) fn first(&self) -> Option<u64> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Removes an expired timer, and returns its id.
    pub(crate) fn take_expired(&mut self, now: u64) -> Option<CommId> {
        let (at, id) = *self.by_time.first()?;
        if at > now {
            return None;
        }
        self.cancel(id);
        Some(id)
    }

    /// Whether no id has a timer.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_time.is_empty() && self.by_id.is_empty()
    }
}
