//! What a rehearsal (`transom rehearse`) knows of the ids of a program.

use std::collections::BTreeMap;

use transom_rehearse::Provocation;
use transom_system::rehearsal;
use transom_wire::cm::CommId;

/// The ids of the program. Empty in a process without a rehearsal.
#[derive(Debug, Default)]
pub(super) struct Rehearsed {
    ids: BTreeMap<CommId, Id>,
    /// How many ids the program has got.
    given: u32,
}

#[derive(Debug)]
struct Id {
    /// Its number, in the order in which the program gets its ids. Its number in messages would not do: that differs
    /// from run to run.
    number: u32,
    /// How many of its calls could come to nothing.
    calls: u64,
}

impl Rehearsed {
    /// The program gets an id: a new one, or that of a request.
    pub(super) fn give(&mut self, id: CommId) {
        if rehearsal::on().is_some() {
            self.ids.insert(id, Id { number: self.given, calls: 0 });
            self.given += 1;
        }
    }

    /// An id ends.
    pub(super) fn forget(&mut self, id: CommId) {
        self.ids.remove(&id);
    }

    /// Whether this call of an id comes to nothing. If so, the answer is a random number.
    pub(super) fn refuses(&mut self, id: CommId) -> Option<u64> {
        let rehearsal = rehearsal::on()?;
        let id = self.ids.get_mut(&id)?;
        let nth = id.calls;
        id.calls += 1;
        rehearsal.provokes(Provocation::RefusedConnections, id.number, nth)
    }
}
