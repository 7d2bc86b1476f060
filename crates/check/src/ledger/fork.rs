//! Forks.

use super::{Ledger, Mistake, Thing};
use crate::{Call, Kind};

/// A forked child calls a verb with its parent's object, or with the device alone. `known` has the object's number
/// and the call that made it, if the child knows them.
pub fn parents_object(
    verb: &str,
    thing: Option<Thing>,
    known: Option<(u32, Call)>,
    forked: Option<Call>,
    call: &Call,
) -> Mistake {
    let with = match thing {
        Some(thing) => thing.called(known.map_or(0, |(number, _)| number)),
        None => "the device".to_owned(),
    };
    let says = format!("{verb} is called in a forked child with {with} of its parent.");
    let mut calls = vec![("used here".to_owned(), *call)];
    calls.extend(forked.map(|forked| ("the child was made here".to_owned(), forked)));
    calls.extend(known.map(|(_, made)| ("made here, by the parent".to_owned(), made)));
    Mistake { kind: Kind::ParentsObjects, says, calls }
}

impl Ledger {
    /// The number of a living object, and the call that made it.
    pub fn made_at(&self, thing: Thing, address: usize) -> Option<(u32, Call)> {
        self.objects.get(&(thing, address)).map(|made| (made.number, made.call))
    }

    /// The process forks. `is_prepared` says that the program has called `ibv_fork_init`.
    pub fn forks(&mut self, page: u64, is_prepared: bool, call: &Call) {
        let shares = self.memory.sharing_pages(page);
        let Some(&(key, object)) = shares.first() else { return };
        let of = Thing::Region.called(key);
        let share = match shares.len() {
            1 => format!("{of} shares"),
            count => format!("{count} regions, {of} among them, share"),
        };
        let lacks = match is_prepared {
            true => ", which the child lacks on Linux before 5.12",
            false => "",
        };
        let says = format!("A child is made while {share} a page with other data{lacks}.");
        let mut calls = vec![("the child is made here".to_owned(), *call)];
        calls.extend(self.made_by(Thing::Region, object));
        self.found(Kind::ForkSharesPage, says, calls);
    }
}
