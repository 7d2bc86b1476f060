//! Objects, work and completions, as the program sees them.
//!
//! The ledger is told what the program calls and what was answered. What is wrong with that it keeps until it is
//! asked ([`Ledger::take`]). It knows objects by their addresses, as the program does.
//!
//! | module | holds |
//! |---|---|
//! | [`event`] | events that the program gets and acknowledges |
//! | [`connection`] | events of rdma_cm, and what is used once they are acknowledged |
//! | [`rights`] | what peers may do with keys, and what they do |
//! | [`sleep`] | threads that sleep for completions |
//! | [`thing`] | what objects there are, and where each was made, refused an end, and ended |
//! | [`queue`] | whether a completion queue has room for what may complete into it |
//! | [`pair`] | the work of a queue pair: posted, completed, polled |
//! | [`bind`] | the rights of peers, and binds of windows that grant them |
//! | [`buffer`] | the buffers of a work request, and what was in them |
//! | [`claim`] | memory that the program says is its own |
//! | [`fork`] | forks, and what a child does with its parent's objects |
//! | [`gone`] | memory that was given back under a region |
//! | `span` | ranges of memory |
//! | [`memory`] | regions, and the buffers that are out: sources that the device reads, targets that it writes |

pub mod bind;
pub mod buffer;
pub mod claim;
pub mod connection;
pub mod event;
pub mod fork;
pub mod gone;
pub mod memory;
pub mod pair;
pub mod queue;
pub mod rights;
pub mod sleep;
mod span;
pub mod thing;

use std::collections::{BTreeMap, VecDeque};

use crate::{Call, Kind};
pub use bind::{Bind, Rights};
pub use buffer::{Buffer, Piece, Sample};
use claim::Claims;
pub use connection::ConnectionEvent;
use connection::Connections;
use event::Unacknowledged;
pub use event::{Event, Owner};
pub use fork::parents_object;
pub use gone::Leaving;
use memory::Memory;
pub use memory::{Change, Region, UnderWay};
pub use pair::{Asked, Completed, Pair, Posted, RanDry, Unread};
use queue::Queue;
use rights::Keys;
use sleep::Watched;
pub use sleep::{Arming, How, Look, Stuck};
pub use span::How as GivenHow;
pub use thing::Thing;
use thing::{Grave, Made};

/// A mistake, with the calls that it is about, and what happened in each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// What kind of mistake.
    pub kind: Kind,
    /// What happened, to what: one sentence.
    pub says: String,
    /// The calls, the one that shows the mistake first.
    pub calls: Vec<(String, Call)>,
}

/// The places of posts that a finding names.
const SHOWN: usize = 3;

/// How many ended objects are remembered.
const GRAVES: usize = 4096;

/// All that is known of a process.
#[derive(Debug, Default)]
pub struct Ledger {
    objects: BTreeMap<(Thing, usize), Made>,
    graves: VecDeque<Grave>,
    pairs: BTreeMap<usize, Pair>,
    /// Queue pairs by the number that completions have.
    numbers: BTreeMap<u32, usize>,
    /// An error was polled, of any queue pair.
    has_errors: bool,
    /// Completion queues.
    queues: BTreeMap<usize, Queue>,
    /// Receives posted to shared receive queues.
    shared: BTreeMap<usize, VecDeque<Posted>>,
    events: Unacknowledged,
    connections: Connections,
    /// Completion queues that have a channel.
    watched: BTreeMap<usize, Watched>,
    /// How often something was done to one of those.
    moment: u64,
    /// How many sends were posted.
    sends: u64,
    memory: Memory,
    claims: Claims,
    keys: Keys,
    mistakes: Vec<Mistake>,
}

impl Ledger {
    /// What was found since this was last asked.
    pub fn take(&mut self) -> Vec<Mistake> {
        std::mem::take(&mut self.mistakes)
    }

    fn found(&mut self, kind: Kind, says: String, calls: Vec<(String, Call)>) {
        self.mistakes.push(Mistake { kind, says, calls });
    }

    /// A context closes: what was made in it and lives is left.
    pub fn context_closes(&mut self, context: usize, call: &Call) {
        let when = "the device is closed";
        self.tell_left(|made| made.context == context, when, Some(call));
        self.tell_unacknowledged(Some(context), when);
        self.memory.forget_context(context);
    }

    /// The process ends by itself.
    pub fn process_ends(&mut self) {
        let when = "the process ends";
        self.tell_left(|_| true, when, None);
        self.tell_unacknowledged(None, when);
        self.tell_unused();
    }

    /// Tells of living objects, those made at the same place together.
    fn tell_left(&mut self, is_left: impl Fn(&Made) -> bool, when: &str, call: Option<&Call>) {
        let mut groups: BTreeMap<_, Vec<Made>> = BTreeMap::new();
        for (&(thing, _), made) in self.objects.iter().filter(|(_, made)| is_left(made)) {
            let place = (thing, made.refused.is_some(), made.call.frames().to_vec());
            groups.entry(place).or_default().push(*made);
        }
        for ((thing, was_refused, _), left) in groups {
            let (Some(made), count) = (left.first(), left.len()) else { continue };
            let are = match count {
                1 => format!("{} is", thing.called(made.number)),
                _ => format!("{count} {} are", thing.plural()),
            };
            let mut calls: Vec<_> =
                call.into_iter().map(|call| ("closed here".to_owned(), *call)).collect();
            let kind = match (was_refused, call) {
                (true, _) => Kind::BusyIgnored,
                (false, Some(_)) => Kind::LeftAtClose,
                (false, None) => Kind::LeftAtExit,
            };
            let says = match kind {
                Kind::BusyIgnored => format!(
                    "{} answered EBUSY and was not called again: {are} there when {when}.",
                    thing.ended_by()
                ),
                _ => format!("{are} there when {when}."),
            };
            calls.extend(made.refused.map(|call| ("answered EBUSY here".to_owned(), call)));
            calls.push(("made here".to_owned(), made.call));
            self.found(kind, says, calls);
        }
    }
}

#[cfg(test)]
mod tests;
