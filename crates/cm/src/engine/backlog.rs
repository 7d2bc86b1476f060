//! The requests that wait at a listener until its program fetches them, up to a limit (rule CM-22).
//!
//! If there is no room left, peers get equal shares of it. A peer that sends many requests does not keep others out
//! (rule CM-66).

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use transom_wire::cm::CommId;

/// The requests that wait at a listener.
#[derive(Debug)]
pub(super) struct Backlog {
    room: usize,
    count: usize,
    /// By source, the oldest first. No list is empty.
    waiting: BTreeMap<IpAddr, VecDeque<CommId>>,
}

impl Backlog {
    /// An empty backlog with this much room.
    pub(super) fn new(room: usize) -> Self {
        Self { room, count: 0, waiting: BTreeMap::new() }
    }

    /// How many may wait.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Whether it takes one more request from this source.
    pub(super) fn takes(&self, source: IpAddr) -> bool {
        self.count < self.room || self.greediest_beside(source).is_some()
    }

    /// Adds a request for which [`takes`](Self::takes) was true. Returns the request that it has displaced, if any.
    pub(super) fn add(&mut self, source: IpAddr, id: CommId) -> Option<CommId> {
        let displaced = (self.count >= self.room)
            .then(|| self.greediest_beside(source))
            .flatten()
            .and_then(|other| self.waiting.get_mut(&other)?.pop_back());
        self.count = self.count + 1 - usize::from(displaced.is_some());
        self.waiting.entry(source).or_default().push_back(id);
        displaced
    }

    /// Removes a request of this source.
    pub(super) fn remove(&mut self, source: IpAddr, id: CommId) {
        let Some(ids) = self.waiting.get_mut(&source) else { return };
        // Programs fetch the oldest request first, so the search is short.
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

    /// The source with the most requests, if it still has at least as many as `source` after it has given one to it.
    fn greediest_beside(&self, source: IpAddr) -> Option<IpAddr> {
        // Each source has one request, so nobody gives one up, not even for a new source.
        if self.waiting.len() == self.count {
            return None;
        }
        let mine = self.waiting.get(&source).map_or(0, VecDeque::len);
        let (other, most) = self.waiting.iter().max_by_key(|(_, ids)| ids.len())?;
        (most.len() > mine + 1).then_some(*other)
    }
}
