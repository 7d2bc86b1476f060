//! Tracks beside each other, for things that overlap: what is on one track must begin and end in turn.

use super::packets::{Packets, Track};

/// Tracks of one name.
#[derive(Debug)]
pub(super) struct Lanes {
    parent: Track,
    name: &'static str,
    rank: u32,
    /// Each, and whether something is on it.
    tracks: Vec<(Track, bool)>,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lane(usize);

impl Lanes {
    pub(super) fn new(parent: Track, name: &'static str, rank: u32) -> Self {
        Self { parent, name, rank, tracks: Vec::new() }
    }

    /// Takes one that is free.
    pub(super) fn take(&mut self, packets: &mut Packets) -> (Lane, Track) {
        let free = self.tracks.iter().position(|(_, taken)| !taken);
        let index = free.unwrap_or_else(|| {
            self.tracks.push((packets.below(self.parent, self.name, self.rank), false));
            self.tracks.len() - 1
        });
        self.tracks[index].1 = true;
        (Lane(index), self.tracks[index].0)
    }

    pub(super) fn give_back(&mut self, lane: Lane) {
        self.tracks[lane.0].1 = false;
    }
}
