//! Where ids are that have moved to another device.
//!
//! Such an id has a number at each device that it has been at. The program goes on naming it by the first, and each
//! device keeps its number until the id ends: events from there may still wait, and no other id may get it.

use std::collections::HashMap;
use std::sync::Arc;

use transom_wire::cm::CommId;

use super::parts::Part;

/// Where an id is, and its number there.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) part: Arc<Part>,
    pub(super) id: CommId,
}

/// The ids of a file that have moved.
#[derive(Default)]
pub(super) struct Places {
    /// By the program's names for them: where each is, and behind that where it has been.
    moved: HashMap<u32, Vec<Place>>,
    /// The program's names for numbers.
    names: HashMap<CommId, u32>,
}

impl Places {
    /// Where an id is, if it has moved.
    pub(super) fn now(&self, named: u32) -> Option<Place> {
        self.moved.get(&named)?.first().cloned()
    }

    /// Where an id is and has been, if it has moved.
    pub(super) fn all(&self, named: u32) -> Vec<Place> {
        self.moved.get(&named).cloned().unwrap_or_default()
    }

    /// An id is at the first of these places now, and has been at the others. Without any, it has not moved.
    pub(super) fn set(&mut self, named: u32, places: Vec<Place>) {
        self.forget(named);
        if !places.is_empty() {
            self.names.extend(places.iter().map(|place| (place.id, named)));
            self.moved.insert(named, places);
        }
    }

    /// An id has ended, or is another file's.
    pub(super) fn forget(&mut self, named: u32) {
        for place in self.moved.remove(&named).unwrap_or_default() {
            self.names.remove(&place.id);
        }
    }

    /// The program's name for a number.
    pub(super) fn name_of(&self, id: CommId) -> u32 {
        self.names.get(&id).copied().unwrap_or(id.0)
    }
}
