//! Events that the program gets and must acknowledge.

use std::collections::{BTreeMap, VecDeque};

use super::{Ledger, Thing};
use crate::{Call, Kind};

/// A kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// An event of a completion queue, from `ibv_get_cq_event`.
    Completion,
    /// An event of a queue pair or a queue, from `ibv_get_async_event`.
    Asynchronous,
    /// An event of an id, from `rdma_get_cm_event`.
    Connection,
}

impl Event {
    /// The name of one event, and of several.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Completion => ("a completion event", "completion events"),
            Self::Asynchronous => ("an asynchronous event", "asynchronous events"),
            Self::Connection => ("a connection event", "connection events"),
        }
    }

    /// The function that acknowledges such an event.
    pub const fn acknowledged_by(self) -> &'static str {
        match self {
            Self::Completion => "ibv_ack_cq_events",
            Self::Asynchronous => "ibv_ack_async_event",
            Self::Connection => "rdma_ack_cm_event",
        }
    }

    fn called(self, count: u64) -> String {
        match (count, self.names()) {
            (1, (one, _)) => one.to_owned(),
            (count, (_, several)) => format!("{count} {several}"),
        }
    }
}

/// The kind of an event, and its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The kind of event.
    pub event: Event,
    /// The kind of object.
    pub thing: Thing,
    /// The object's address.
    pub address: usize,
}

/// The unacknowledged events of each object.
pub(super) type Unacknowledged = BTreeMap<Owner, Got>;

/// Unacknowledged events, the oldest first: each call that got some, and how many followed each other there.
#[derive(Debug, Default)]
pub(super) struct Got {
    calls: VecDeque<(Call, u64)>,
    /// Some may be of other threads than their call says.
    is_mixed: bool,
}

/// How a call waits for the acknowledgement of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Its thread is the only one of the program, so no thread can acknowledge them.
    Alone,
    /// It begins to wait, and other threads are there.
    Begins,
    /// It has waited for long, and other threads are there.
    Long,
}

/// The most calls that are kept. A program may acknowledge all events at its end.
const CALLS: usize = 64;

impl Got {
    fn add(&mut self, call: &Call) {
        let is_full = self.calls.len() >= CALLS;
        match self.calls.back_mut() {
            Some((last, count)) if is_full || is_same(last, call) => {
                self.is_mixed |= last.thread != call.thread;
                *count += 1;
            }
            _ => self.calls.push_back((*call, 1)),
        }
    }

    /// Takes the oldest of those that this thread got, and then the oldest of all. Returns how many there were.
    fn take(&mut self, count: u64, thread: u32) -> u64 {
        let mut left = count;
        for is_any in [false, true] {
            let of_thread = |it: &&mut (Call, u64)| is_any || it.0.thread == thread;
            for (_, got) in self.calls.iter_mut().filter(of_thread) {
                let taken = left.min(*got);
                (*got, left) = (*got - taken, left - taken);
            }
        }
        self.calls.retain(|(_, got)| *got > 0);
        self.is_mixed &= !self.calls.is_empty();
        count - left
    }

    /// Whether this thread got all of them.
    fn are_of(&self, thread: u32) -> bool {
        !self.is_mixed && self.calls.iter().all(|(call, _)| call.thread == thread)
    }

    /// One of those that a call got is gone.
    pub(super) fn remove(&mut self, call: &Call) {
        let is_it = |it: &(Call, u64)| is_same(&it.0, call);
        let Some(at) = self.calls.iter().position(is_it).or(self.calls.len().checked_sub(1)) else {
            return;
        };
        let (_, count) = &mut self.calls[at];
        *count -= 1;
        if *count == 0 {
            self.calls.remove(at);
        }
    }

    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.calls.len()
    }

    fn count(&self) -> u64 {
        self.calls.iter().map(|(_, count)| count).sum()
    }
}

/// Whether a thread was at the same place in both calls.
fn is_same(one: &Call, other: &Call) -> bool {
    (one.thread, one.frames()) == (other.thread, other.frames())
}

/// The most calls that a mistake names for the events that they got.
const SHOWN: usize = 3;

impl Ledger {
    /// The program gets an event.
    pub fn event_got(&mut self, owner: Owner, call: &Call) {
        self.arrived.forget();
        self.events.entry(owner).or_default().add(call);
    }

    /// The program acknowledges `count` events.
    pub fn events_acknowledged(&mut self, owner: Owner, count: u64, call: &Call) {
        let got = self.events.get_mut(&owner).map(|got| got.take(count, call.thread));
        let Some(beyond) = count.checked_sub(got.unwrap_or(0)).filter(|beyond| *beyond > 0) else {
            return;
        };
        let (of, verb) = (self.called(owner), owner.event.acknowledged_by());
        let says = match (beyond, owner.event.names()) {
            (1, (one, _)) => {
                format!("{verb} acknowledges {one} of {of} that the program did not get.")
            }
            (count, (_, events)) => {
                format!("{verb} acknowledges {count} more {events} of {of} than the program got.")
            }
        };
        let mut calls = vec![("acknowledged here".to_owned(), *call)];
        calls.extend(self.owner_made(owner));
        self.found(Kind::AckedTooMuch, says, calls);
    }

    /// A call that ends an object waits for the acknowledgement of its events. Returns whether that is reported. If it
    /// begins to wait, that is reported only if its thread got all of these events itself.
    pub fn waits_for_ack(&mut self, verb: &str, owner: Owner, waits: Waits, call: &Call) -> bool {
        let Some((mut calls, count)) = self.got(owner) else { return false };
        let are_own = self.events.get(&owner).is_some_and(|got| got.are_of(call.thread));
        calls.insert(0, ("it waits here".to_owned(), *call));
        let (of, by) = (self.called(owner), owner.event.acknowledged_by());
        let events = owner.event.called(count);
        let (kind, says) = match waits {
            Waits::Alone => {
                let says = format!(
                    "{verb} waits for {by} for {events} of {of}, and there is no other thread to call it: it waits for \
                     ever."
                );
                (Kind::OwnAck, says)
            }
            Waits::Begins if are_own => {
                let says = format!(
                    "{verb} waits for {by} for {events} of {of} that its own thread got: if no other thread calls it, it \
                     waits for ever."
                );
                (Kind::WaitsForAck, says)
            }
            Waits::Begins => return false,
            Waits::Long => {
                let says = format!("{verb} has waited for a second for {by} for {events} of {of}.");
                (Kind::WaitsForAck, says)
            }
        };
        calls.extend(self.owner_made(owner));
        self.found(kind, says, calls);
        true
    }

    /// An object ends. Its events are forgotten.
    pub(super) fn events_end(&mut self, thing: Thing, address: usize) {
        self.events.retain(|owner, _| (owner.thing, owner.address) != (thing, address));
    }

    /// Reports unacknowledged events of a context that closes, or of all contexts.
    pub(super) fn tell_unacknowledged(&mut self, context: Option<usize>, when: &str) {
        let is_in = |owner: &Owner| {
            let made = self.objects.get(&(owner.thing, owner.address));
            context.is_none() || made.map(|made| made.context) == context
        };
        let left: Vec<_> = self.events.keys().copied().filter(is_in).collect();
        // An event of a group is an event of its id too, and is reported there.
        for owner in left.into_iter().filter(|owner| owner.thing != Thing::Group) {
            let Some((mut calls, count)) = self.got(owner) else { continue };
            calls.extend(self.owner_made(owner));
            let (of, events) = (self.called(owner), owner.event.called(count));
            let (verb, were) = (owner.thing.ended_by(), if count == 1 { "was" } else { "were" });
            let says = format!(
                "When {when}, {events} of {of} {were} not acknowledged: {verb} would wait for ever."
            );
            self.found(Kind::NeverAcked, says, calls);
            self.events.remove(&owner);
        }
    }

    /// Some calls that got unacknowledged events of an object, and the number of these events.
    fn got(&self, owner: Owner) -> Option<(Vec<(String, Call)>, u64)> {
        let got = self.events.get(&owner).filter(|got| got.count() > 0)?;
        let here = |call: &Call| ("the event was got here".to_owned(), *call);
        let mut calls: Vec<(String, Call)> = Vec::new();
        for (call, _) in &got.calls {
            let known = calls.iter().any(|(_, other)| other.frames() == call.frames());
            if calls.len() < SHOWN && !known {
                calls.push(here(call));
            }
        }
        Some((calls, got.count()))
    }

    /// The call that made the object of an event. A group is joined, not made: then the call that made its id.
    fn owner_made(&self, owner: Owner) -> Option<(String, Call)> {
        match owner.thing {
            Thing::Group => self.id_of_group_made(owner.address),
            thing => self.made_by(thing, owner.address),
        }
    }

    fn called(&self, owner: Owner) -> String {
        let made = self.objects.get(&(owner.thing, owner.address));
        owner.thing.called(made.map_or(0, |made| made.number))
    }
}
