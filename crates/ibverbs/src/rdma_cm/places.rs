//! Where ids are that have moved to another device.
//!
//! Such an id has a number at each device that it has been at. The program goes on naming it by the first. Each device
//! keeps its number until the id ends, or until the file gives up its part there: events from there may still wait, and
//! no other id may get it.

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

/// An id that has moved.
#[derive(Clone, Default)]
pub(super) struct Moved {
    /// Where it is, and behind that where it has been, and who stands in for it.
    pub(super) places: Vec<Place>,
    /// How many of its events were taken where it is not known any more.
    pub(super) taken: u32,
}

/// The ids of a file that have moved.
#[derive(Default)]
pub(super) struct Places {
    /// By the program's names for them.
    moved: HashMap<u32, Moved>,
    /// The program's names for numbers.
    names: HashMap<CommId, u32>,
}

impl Places {
    /// Where an id is, if it has moved.
    pub(super) fn now(&self, named: u32) -> Option<Place> {
        self.moved.get(&named)?.places.first().cloned()
    }

    /// Where an id is and has been, if it has moved.
    pub(super) fn all(&self, named: u32) -> Vec<Place> {
        self.moved.get(&named).map_or_else(Vec::new, |it| it.places.clone())
    }

    /// An id is at the first of these places now, and has been at the others. Without any, it has not moved.
    pub(super) fn set(&mut self, named: u32, places: Vec<Place>) {
        let Moved { taken, .. } = self.forget(named);
        self.names.extend(places.iter().map(|place| (place.id, named)));
        if !places.is_empty() || taken > 0 {
            self.moved.insert(named, Moved { places, taken });
        }
    }

    /// An id goes on at this one of its places.
    pub(super) fn go_on_at(&mut self, named: u32, id: CommId) {
        let Some(Moved { places, .. }) = self.moved.get_mut(&named) else { return };
        if let Some(at) = places.iter().position(|place| place.id == id) {
            places.swap(0, at);
        }
    }

    /// So many of an id's events were taken where it is not known any more.
    pub(super) fn add_taken(&mut self, named: u32, taken: u32) {
        if taken > 0 {
            let moved = self.moved.entry(named).or_default();
            moved.taken = moved.taken.wrapping_add(taken);
        }
    }

    /// How many of an id's events were taken where it is not known any more.
    pub(super) fn taken(&self, named: u32) -> u32 {
        self.moved.get(&named).map_or(0, |it| it.taken)
    }

    /// A number of an id ends. `end` says how many of its events were taken there.
    pub(super) fn end_number(&mut self, id: CommId, end: impl FnOnce() -> u32) {
        let Some(named) = self.names.remove(&id) else { return };
        let Some(moved) = self.moved.get_mut(&named) else { return };
        moved.places.retain(|place| place.id != id);
        moved.taken = moved.taken.wrapping_add(end());
    }

    /// An id has ended, or is another file's.
    pub(super) fn forget(&mut self, named: u32) -> Moved {
        let moved = self.moved.remove(&named).unwrap_or_default();
        for place in &moved.places {
            self.names.remove(&place.id);
        }
        moved
    }

    /// The program's name for a number.
    pub(super) fn name_of(&self, id: CommId) -> u32 {
        self.names.get(&id).copied().unwrap_or(id.0)
    }
}
