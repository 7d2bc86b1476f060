//! WRITEs of several queue pairs to the same memory of a peer.
//!
//! Requests of one queue pair are carried out in order. Between two queue pairs nothing orders them, until the program
//! knows that the first has ended.

use std::collections::BTreeMap;

use super::{Ledger, Posted};
use crate::{Call, Kind};

/// A peer whose keys are all of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// Its GID.
    pub gid: [u8; 16],
    /// Its process: the top byte of its queue pairs' numbers.
    pub slot: u8,
}

/// The memory that a queue pair writes to. Places sort by their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    peer: Peer,
    key: u32,
    start: u64,
    end: u64,
    pair: usize,
}

impl Place {
    fn of(posted: &Posted, peer: Peer, pair: usize) -> Option<Self> {
        let is_write = !posted.is_target && posted.bytes > 0;
        let (key, start) = posted.remote.filter(|_| is_write)?;
        Some(Self { peer, key, start, end: start.saturating_add(posted.bytes), pair })
    }
}

/// WRITEs whose completions are not polled.
#[derive(Debug, Default)]
pub(super) struct Writes {
    /// The number of WRITEs to each place, and the call that posted the first of them.
    places: BTreeMap<Place, (usize, Call)>,
    /// The length of the longest WRITE so far, in bytes.
    longest: u64,
}

impl Writes {
    /// The WRITEs of a queue pair are over, or it has an error.
    pub(super) fn forget(&mut self, pair: usize) {
        self.places.retain(|place, _| place.pair != pair);
    }

    fn add(&mut self, place: Place, call: &Call) {
        self.longest = self.longest.max(place.end - place.start);
        self.places.entry(place).or_insert((0, *call)).0 += 1;
    }

    fn take(&mut self, place: &Place) {
        if let Some((count, _)) = self.places.get_mut(place) {
            *count -= 1;
            if *count == 0 {
                self.places.remove(place);
            }
        }
    }

    /// Another queue pair that writes to some of these bytes, and the call that posted that.
    fn other(&self, place: &Place) -> Option<(usize, Call)> {
        let first =
            Place { start: place.start.saturating_sub(self.longest), end: 0, pair: 0, ..*place };
        let last = Place { start: place.end, end: 0, pair: 0, ..*place };
        let mut near = self.places.range(first..last);
        let other = near.find(|(it, _)| it.pair != place.pair && it.end > place.start);
        other.map(|(it, (_, call))| (it.pair, *call))
    }
}

impl Ledger {
    /// Requests are posted to a queue pair.
    pub(super) fn writes_posted(&mut self, address: usize, posted: &[Posted]) {
        let Some(pair) = self.pairs.get(&address).filter(|pair| !pair.has_error()) else { return };
        let (Some(peer), number) = (pair.peer, pair.number) else { return };
        for posted in posted {
            let Some(place) = Place::of(posted, peer, address) else { continue };
            let other = self.writes.other(&place);
            self.writes.add(place, &posted.call);
            let Some((other, call)) = other else { continue };
            let other = self.pairs.get(&other).map_or(0, |pair| pair.number);
            let says = format!(
                "A {} of queue pair {number:#x} and one of {other:#x} write to the same bytes of a peer, and nothing \
                 orders them.",
                posted.what
            );
            let calls = vec![posted.here(), ("the other was posted here".to_owned(), call)];
            self.found(Kind::WritesUnordered, says, calls);
        }
    }

    /// Requests of a queue pair have ended, or were refused.
    pub(super) fn writes_ended(&mut self, address: usize, ended: &[Posted]) {
        let Some(peer) = self.pairs.get(&address).and_then(|pair| pair.peer) else { return };
        let places = ended.iter().filter_map(|posted| Place::of(posted, peer, address));
        places.for_each(|place| self.writes.take(&place));
    }
}
