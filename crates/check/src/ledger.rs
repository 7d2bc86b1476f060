//! Objects, work and completions, as the program sees them.
//!
//! The ledger gets the program's calls and their results. It keeps the mistakes that it finds until
//! [`Ledger::take`] fetches them. It knows objects by their addresses, as the program does.
//!
//! | module | holds |
//! |---|---|
//! | [`event`] | events that the program gets and acknowledges |
//! | [`connection`] | events of rdma_cm, and uses of them after their acknowledgement |
//! | [`rights`] | what peers may do with keys, and what they do |
//! | [`sleep`] | threads that sleep for completions |
//! | [`thing`] | the objects, and the calls that made, ended or failed to end each of them |
//! | [`queue`] | whether a completion queue has room for all requests that may complete into it |
//! | [`pair`] | the work of a queue pair: posted, completed, polled |
//! | [`bind`] | the rights of peers, and binds of windows that grant them |
//! | [`buffer`] | the buffers of a work request, and their content while only the device may change it |
//! | [`content`] | the program's memory, as the ledger asks for it |
//! | [`claim`] | memory that the program claims for itself |
//! | [`posting`] | requests that are posted, taken or refused |
//! | `ring` | requests in the order of their posts |
//! | [`fork`] | forks, and a child's uses of its parent's objects |
//! | [`gone`] | memory that was given back while a region had it |
//! | `span` | ranges of memory |
//! | `mark` | how full the queues were |
//! | [`memory`] | regions, and buffers in use: sources that the device reads, targets that it writes |
//! | `tagged` | tagged buffers of shared receive queues |
//! | [`work`] | requests and completions, as the program sees them |
//! | [`writes`] | WRITEs to one place of a peer that nothing orders |
//! | `arrived` | the same of WRITEs of peers to memory of this process |

mod arrived;
pub mod bind;
pub mod buffer;
pub mod claim;
pub mod connection;
pub mod content;
pub mod event;
pub mod fork;
pub mod gone;
mod mark;
pub mod memory;
pub mod pair;
pub mod posting;
pub mod queue;
pub mod rights;
mod ring;
pub mod sleep;
mod span;
mod tagged;
pub mod thing;
pub mod work;
pub mod writes;

use std::collections::{BTreeMap, VecDeque};

use crate::{Call, Kind};
use arrived::Arrived;
pub use bind::{Bind, Rights};
pub use buffer::{Buffer, Buffers, Piece, Sample, WATCHED};
use claim::Claims;
pub use connection::ConnectionEvent;
use connection::Connections;
pub use content::ProgramMemory;
use event::Unacknowledged;
pub use event::{Event, Owner, Waits};
pub use fork::parents_object;
pub use gone::Leaving;
use mark::{Marks, SharedSize};
use memory::Memory;
pub use memory::{Change, Region, UnderWay};
pub use pair::{Ends, Pair};
use queue::Queue;
use rights::Keys;
use ring::Ring;
use sleep::Watched;
pub use sleep::{Arming, How, Look, Stuck};
pub use span::How as GivenHow;
use tagged::Tagged;
pub use thing::Thing;
use thing::{Grave, Made};
pub use work::{Asked, Completed, Ended, Posted, RanDry, Unread};
pub use writes::Peer;
use writes::Writes;

/// A mistake, with its calls and what happened in each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The kind of mistake.
    pub kind: Kind,
    /// What happened, to what: one sentence.
    pub says: String,
    /// The calls, the one that shows the mistake first.
    pub calls: Vec<(String, Call)>,
}

/// The most posts that a finding names.
const SHOWN: usize = 3;

/// The most ended objects that are remembered.
const GRAVES: usize = 4096;

/// Everything that is known about a process.
#[derive(Debug, Default)]
pub struct Ledger {
    objects: BTreeMap<(Thing, usize), Made>,
    graves: VecDeque<Grave>,
    pairs: BTreeMap<usize, Pair>,
    /// The addresses of queue pairs, by the number in completions.
    numbers: BTreeMap<u32, usize>,
    /// The program has polled an error of some queue pair.
    has_errors: bool,
    queues: BTreeMap<usize, Queue>,
    /// The completion queues of shared receive queues of XRC.
    shared_queues: BTreeMap<usize, usize>,
    /// Receives posted to shared receive queues.
    shared: BTreeMap<usize, Ring>,
    shared_sizes: BTreeMap<usize, SharedSize>,
    tagged: Tagged,
    events: Unacknowledged,
    connections: Connections,
    /// Completion queues that have a channel.
    watched: BTreeMap<usize, Watched>,
    /// Counts the calls on completion queues that have a channel.
    moment: u64,
    /// The number of sends that were posted to all queue pairs.
    sends: u64,
    memory: Memory,
    claims: Claims,
    keys: Keys,
    writes: Writes,
    marks: Marks,
    arrived: Arrived,
    mistakes: Vec<Mistake>,
    /// The process has ended by itself. What its other threads still do meanwhile is cut short by that.
    is_over: bool,
}

impl Ledger {
    /// One that leaves out what costs much, if nobody wants it.
    pub fn looking_for(wants: impl Fn(Kind) -> bool) -> Self {
        let mut ledger = Self::default();
        ledger.arrived.leave_out(!wants(Kind::WritesUnordered));
        ledger
    }

    /// Takes the mistakes that were found since the last call.
    pub fn take(&mut self) -> Vec<Mistake> {
        std::mem::take(&mut self.mistakes)
    }

    fn found(&mut self, kind: Kind, says: String, calls: Vec<(String, Call)>) {
        if !self.is_over {
            self.mistakes.push(Mistake { kind, says, calls });
        }
    }

    /// A context closes. Its living objects are left.
    pub fn context_closes(&mut self, context: usize, call: &Call) {
        let when = "the device is closed";
        self.tell_left(|made| made.context == context, when, Some(call));
        self.tell_unacknowledged(Some(context), when);
        self.memory.forget_context(context);
    }

    /// The process exits by itself.
    pub fn process_ends(&mut self) {
        let when = "the process ends";
        self.pairs_at_end();
        let queues: Vec<_> = self.queues.keys().copied().collect();
        queues.into_iter().for_each(|address| self.queue_ends(address));
        let shared: Vec<_> = self.shared_sizes.keys().copied().collect();
        shared.into_iter().for_each(|address| self.shared_queue_ends(address));
        self.tell_left(|_| true, when, None);
        self.tell_unacknowledged(None, when);
        self.tell_unused();
        self.is_over = true;
    }

    /// Reports living objects. Objects that were made at the same place are one mistake.
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
                (true, Some(_)) => Kind::BusyIgnored,
                (false, Some(_)) => Kind::LeftAtClose,
                (_, None) => Kind::LeftAtExit,
            };
            let says = match was_refused {
                true => format!(
                    "{} answered EBUSY and was not called again: {are} there when {when}.",
                    thing.ended_by()
                ),
                false => format!("{are} there when {when}."),
            };
            calls.extend(made.refused.map(|call| ("answered EBUSY here".to_owned(), call)));
            calls.push(("made here".to_owned(), made.call));
            self.found(kind, says, calls);
        }
    }
}

#[cfg(test)]
mod tests;
