//! The timers of ids: at most one each.

use std::collections::{BTreeMap, BTreeSet};

use transom_wire::cm::CommId;

/// The timers, found by their time and by their id. Both list the same ones.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    by_time: BTreeSet<(u64, CommId)>,
    by_id: BTreeMap<CommId, u64>,
}

impl Timers {
    /// Sets an id's timer, in place of the one that it has.
    pub(crate) fn set(&mut self, id: CommId, at: u64) {
        self.cancel(id);
        self.by_id.insert(id, at);
        self.by_time.insert((at, id));
    }

    /// Takes an id's timer away.
    pub(crate) fn cancel(&mut self, id: CommId) {
        if let Some(at) = self.by_id.remove(&id) {
            self.by_time.remove(&(at, id));
        }
    }

    /// The first deadline.
    pub(crate) fn first(&self) -> Option<u64> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes a timer that has expired, and says whose it was.
    pub(crate) fn take_expired(&mut self, now: u64) -> Option<CommId> {
        let (at, id) = *self.by_time.first()?;
        if at > now {
            return None;
        }
        self.cancel(id);
        Some(id)
    }

    /// Whether no id has one.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_time.is_empty() && self.by_id.is_empty()
    }
}
