//! WRITEs of several queue pairs to the same memory of a peer.
//!
//! Requests of one queue pair are carried out in order. Between two queue pairs nothing orders them, until the program
//! knows that the first has ended.

use std::collections::BTreeMap;

use super::{Ledger, Posted, Thing};
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

/// WRITEs whose completions are not polled, of queue pairs that share their peer with others. Those of a queue pair that
/// has its peer alone are in its send queue, and need no look.
#[derive(Debug, Default)]
pub(super) struct Writes {
    /// The queue pairs of each peer.
    pairs: BTreeMap<Peer, Vec<usize>>,
    /// The number of WRITEs to each place, and the call that posted the first of them.
    places: BTreeMap<Place, (usize, Call)>,
    /// The length of the longest WRITE so far, in bytes.
    longest: u64,
}

impl Writes {
    /// The WRITEs of a queue pair are over, or it has an error.
    pub(super) fn forget(&mut self, pair: usize) {
        if !self.places.is_empty() {
            self.places.retain(|place, _| place.pair != pair);
        }
    }

    /// A queue pair has ended.
    pub(super) fn end(&mut self, pair: usize, peer: Option<Peer>) {
        self.forget(pair);
        let Some((peer, pairs)) = peer.and_then(|it| Some((it, self.pairs.get_mut(&it)?))) else {
            return;
        };
        pairs.retain(|it| *it != pair);
        match pairs.len() {
            0 => drop(self.pairs.remove(&peer)),
            1 => self.places.retain(|place, _| place.peer != peer),
            _ => {}
        }
    }

    /// Whether there are queue pairs to several processes.
    pub(super) fn has_several_peers(&self) -> bool {
        self.pairs.len() > 1
    }

    /// Whether several queue pairs write to a peer.
    fn is_shared(&self, peer: &Peer) -> bool {
        self.pairs.get(peer).is_some_and(|pairs| pairs.len() > 1)
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

    /// Requests of a queue pair to a peer have ended, or were refused.
    pub(super) fn ended<'a>(
        &mut self,
        pair: usize,
        peer: Option<Peer>,
        ended: impl IntoIterator<Item = &'a Posted>,
    ) {
        let Some(peer) = peer.filter(|_| !self.places.is_empty()) else { return };
        let places = ended.into_iter().filter_map(|posted| Place::of(posted, peer, pair));
        places.for_each(|place| self.take(&place));
    }
}

impl Ledger {
    /// A queue pair is connected to a peer. Once another one has this peer too, the WRITEs of both count.
    pub(super) fn writes_begin(&mut self, address: usize, peer: Peer) {
        let pairs = self.writes.pairs.entry(peer).or_default();
        pairs.push(address);
        let [alone, _] = pairs[..] else { return };
        let pair = self.pairs.get(&alone).filter(|pair| pair.writes() == Some(peer));
        for posted in pair.into_iter().flat_map(|pair| pair.sends.iter().skip(pair.ordered)) {
            if let Some(place) = Place::of(posted, peer, alone) {
                self.writes.add(place, &posted.call);
            }
        }
    }

    /// Requests are posted to a queue pair with a peer.
    pub(super) fn writes_posted<'a>(
        &mut self,
        address: usize,
        peer: Option<Peer>,
        posted: impl Iterator<Item = &'a Posted>,
    ) {
        let Some(peer) = peer.filter(|peer| self.writes.is_shared(peer)) else { return };
        let number = self.pairs.get(&address).map_or(0, |pair| pair.number);
        for posted in posted {
            let Some(place) = Place::of(posted, peer, address) else { continue };
            let other = self.writes.other(&place);
            self.writes.add(place, &posted.call);
            let Some((other, call)) = other else { continue };
            let made = [address, other].map(|pair| self.made_by(Thing::QueuePair, pair));
            let other = self.pairs.get(&other).map_or(0, |pair| pair.number);
            let says = format!(
                "A {} of queue pair {number:#x} and one of {other:#x} write to the same bytes of a peer, and nothing \
                 orders them.",
                posted.what
            );
            let mut calls = vec![posted.here(), ("the other was posted here".to_owned(), call)];
            calls.extend(made.into_iter().flatten());
            self.found(Kind::WritesUnordered, says, calls);
        }
    }
}
