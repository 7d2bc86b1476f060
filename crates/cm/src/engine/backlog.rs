//! The requests that wait at a listener for its program to fetch them, as many as there is room for (rule
//! CM-22).
//!
//! If there is no room left, peers get equal shares of it: a peer that sends many requests does not keep others out
//! (rule CM-60).

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use transom_wire::cm::CommId;

/// What waits at a listener.
#[derive(Debug)]
pub(super) struct Backlog {
    room: usize,
    count: usize,
    /// By where they came from, the oldest first. No list is empty.
    waiting: BTreeMap<IpAddr, VecDeque<CommId>>,
}

impl Backlog {
    /// Room for so many, all of it free.
    pub(super) fn new(room: usize) -> Self {
        Self { room, count: 0, waiting: BTreeMap::new() }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Whether one more from this source is taken.
    pub(super) fn takes(&self, source: IpAddr) -> bool {
        self.count < self.room || self.greediest_beside(source).is_some()
    }

    /// Takes one more that it has said it takes: what makes room for it and waits no longer, if that must be.
    pub(super) fn add(&mut self, source: IpAddr, id: CommId) -> Option<CommId> {
        let displaced = (self.count >= self.room)
            .then(|| self.greediest_beside(source))
            .flatten()
            .and_then(|other| self.waiting.get_mut(&other)?.pop_back());
        self.count = self.count + 1 - usize::from(displaced.is_some());
        self.waiting.entry(source).or_default().push_back(id);
        displaced
    }

    /// One from this source waits no longer.
    pub(super) fn remove(&mut self, source: IpAddr, id: CommId) {
        let Some(ids) = self.waiting.get_mut(&source) else { return };
        // Programs fetch the oldest first.
        let Some(at) = ids.iter().position(|other| *other == id) else { return };
        ids.remove(at);
        self.count -= 1;
        if ids.is_empty() {
            self.waiting.remove(&source);
        }
    }

    /// All that wait.
    pub(super) fn into_ids(self) -> impl Iterator<Item = CommId> {
        self.waiting.into_values().flatten()
    }

    /// The source that most come from, if it would still have no fewer than this one with one more.
    fn greediest_beside(&self, source: IpAddr) -> Option<IpAddr> {
        // Each has one: not even a new one gets a place.
        if self.waiting.len() == self.count {
            return None;
        }
        let mine = self.waiting.get(&source).map_or(0, VecDeque::len);
        let (other, most) = self.waiting.iter().max_by_key(|(_, ids)| ids.len())?;
        (most.len() > mine + 1).then_some(*other)
    }
}
