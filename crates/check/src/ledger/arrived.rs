//! WRITEs of several peers to the same memory of this process.
//!
//! This process sees the WRITEs of its peers in the order in which they are carried out. It does not see what the peers
//! tell each other. But one of them often hears of another's WRITE by something that this process does or sees: a
//! request that the program posts, a message that it polls, an atomic or a READ that a peer asks for. After each of
//! these, all earlier WRITEs count as known to everybody.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::{Ledger, Peer, Thing};
use crate::{Call, Kind};

/// The most ranges that are remembered.
const MOST: usize = 4096;

/// What an address is an address of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Space {
    /// The program's memory.
    Program,
    /// The memory of a window, by device and key. Its addresses may begin with zero.
    Window(usize, u32),
}

/// Who has written to a range, and where the range ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    end: u64,
    peer: Peer,
    /// The number of the queue pair here.
    number: u32,
}

/// What peers have written, and others cannot know yet.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    /// By the start of each range. No two of them overlap.
    places: BTreeMap<(Space, u64), Written>,
    /// The peers of which it was told.
    told: BTreeSet<(Peer, Peer)>,
    /// A peer has written here.
    any: bool,
    /// The devices whose queue pairs tell of each write.
    devices: Vec<usize>,
    /// Nobody wants to know.
    is_unwanted: bool,
}

impl Arrived {
    pub(super) fn leave_out(&mut self, is_unwanted: bool) {
        self.is_unwanted = is_unwanted;
    }

    /// Something has happened by which peers may know of all that was written so far.
    pub(super) fn forget(&mut self) {
        if !self.places.is_empty() {
            self.places.clear();
        }
    }

    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.places.len()
    }

    /// A range that begins before this address, the last of them.
    fn before(&self, space: Space, address: u64) -> Option<(u64, Written)> {
        let (&(of, start), written) = self.places.range(..(space, address)).next_back()?;
        (of == space).then_some((start, *written))
    }

    /// Adds a range. Returns who else has written to some of it.
    fn add(&mut self, space: Space, range: &Range<u64>, new: Written) -> Option<Written> {
        let mut other = None;
        while let Some((start, old)) =
            self.before(space, range.end).filter(|(_, old)| old.end > range.start)
        {
            self.places.remove(&(space, start));
            if start < range.start {
                self.places.insert((space, start), Written { end: range.start, ..old });
            }
            if old.end > range.end {
                self.places.insert((space, range.end), old);
            }
            other = other.or((old.peer != new.peer).then_some(old));
        }
        if self.places.len() >= MOST {
            self.places.clear();
        }
        let goes_on =
            |(_, old): &(u64, Written)| old.end == range.start && old.number == new.number;
        let start = self.before(space, range.start).filter(goes_on).map_or(range.start, |it| it.0);
        self.places.insert((space, start), new);
        other
    }
}

impl Ledger {
    /// A peer asks for a write to memory of a device. If several processes may write here, the order of their WRITEs
    /// counts from now on. Returns the queue pairs that must tell of each write, and do not do so yet.
    pub fn peer_writes(&mut self, device: usize) -> Vec<u32> {
        self.arrived.any = !self.arrived.is_unwanted;
        if !self.peers_write() || self.arrived.devices.contains(&device) {
            return Vec::new();
        }
        self.arrived.devices.push(device);
        let of_device = self.pairs.values().filter(|pair| pair.asked.device == device);
        of_device.map(|pair| pair.number).collect()
    }

    /// Whether several processes may write here, and one has.
    pub(super) fn peers_write(&self) -> bool {
        self.arrived.any && self.writes.has_several_peers()
    }

    /// A peer has written to these bytes, by the queue pair of this number.
    pub(super) fn arrived(
        &mut self,
        number: u32,
        space: Space,
        range: &Range<u64>,
        made: Option<(String, Call)>,
    ) {
        let peer = self.numbers.get(&number).and_then(|address| self.pairs.get(address)?.peer);
        let Some(peer) = peer.filter(|_| !range.is_empty() && self.writes.has_several_peers())
        else {
            return;
        };
        let new = Written { end: range.end, peer, number };
        let Some(other) = self.arrived.add(space, range, new) else { return };
        let both = (peer.min(other.peer), peer.max(other.peer));
        if !self.arrived.told.insert(both) {
            return;
        }
        let says = format!(
            "Two peers wrote to the same bytes, by queue pairs {:#x} and {number:#x}, and nothing that this process saw \
             orders them.",
            other.number
        );
        let mut calls: Vec<_> = made
            .into_iter()
            .map(|(_, call)| ("the memory region was made here".to_owned(), call))
            .collect();
        for number in [other.number, number] {
            let pair = self.numbers.get(&number).copied();
            let pair = pair.and_then(|address| self.made_by(Thing::QueuePair, address));
            calls.extend(
                pair.map(|(_, call)| (format!("queue pair {number:#x} was made here"), call)),
            );
        }
        self.found(Kind::WritesUnordered, says, calls);
    }
}
