//! Requests in the order of their posts.

use std::ops::Range;

use super::Posted;

/// Requests, the oldest first. One that has ended leaves its room to a later one, with the memory that it has. So posts
/// take no memory, and nothing of a request is ever moved.
#[derive(Debug, Default)]
pub(super) struct Ring {
    rooms: Vec<Posted>,
    /// The room of the oldest one.
    first: usize,
    count: usize,
}

impl Ring {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The room of the request at a place.
    fn room(&self, at: usize) -> usize {
        let room = self.first + at;
        if room < self.rooms.len() { room } else { room - self.rooms.len() }
    }

    /// One request more. What is in its room is of an earlier one.
    pub(super) fn add(&mut self) -> &mut Posted {
        if self.count == self.rooms.len() {
            self.rooms.rotate_left(self.first);
            self.first = 0;
            self.rooms.resize_with(2 * self.count + 8, Posted::default);
        }
        let room = self.room(self.count);
        self.count += 1;
        &mut self.rooms[room]
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Posted> + DoubleEndedIterator {
        self.range(0..self.count)
    }

    pub(super) fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Posted> {
        self.range_mut(0..self.count)
    }

    /// Some of them.
    pub(super) fn range(
        &self,
        places: Range<usize>,
    ) -> impl ExactSizeIterator<Item = &Posted> + DoubleEndedIterator {
        places.map(|at| &self.rooms[self.room(at)])
    }

    pub(super) fn range_mut(
        &mut self,
        places: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = &mut Posted> {
        let (first, count) = (self.room(places.start), places.len());
        let beyond = (first + count).saturating_sub(self.rooms.len());
        let (start, rest) = self.rooms.split_at_mut(first);
        rest[..count - beyond].iter_mut().chain(&mut start[..beyond])
    }

    /// The oldest ones have ended.
    pub(super) fn end(&mut self, count: usize) {
        self.first = if count == self.count { 0 } else { self.room(count) };
        self.count -= count;
    }

    /// Takes one out.
    pub(super) fn remove(&mut self, at: usize) -> Posted {
        // Those of the shorter side move. Of a shared queue mostly the oldest goes.
        if at < self.count / 2 {
            for place in (0..at).rev() {
                let (one, next) = (self.room(place), self.room(place + 1));
                self.rooms.swap(one, next);
            }
            let room = self.room(0);
            self.end(1);
            return std::mem::take(&mut self.rooms[room]);
        }
        for place in at + 1..self.count {
            let (one, next) = (self.room(place - 1), self.room(place));
            self.rooms.swap(one, next);
        }
        self.count -= 1;
        let room = self.room(self.count);
        std::mem::take(&mut self.rooms[room])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(ring: &Ring) -> Vec<u64> {
        ring.iter().map(|it| it.wr_id).collect()
    }

    #[test]
    fn requests_stay_in_order_while_their_rooms_go_round() {
        let (mut ring, mut expected) = (Ring::default(), Vec::new());
        for nth in 0..200 {
            ring.add().wr_id = nth;
            expected.push(nth);
            if nth % 7 == 3 {
                let at = nth as usize % expected.len();
                assert_eq!(ring.remove(at).wr_id, expected.remove(at));
            }
            if nth % 10 == 9 {
                let count = 8.min(expected.len());
                ring.end(count);
                expected.drain(..count);
            }
            assert_eq!((numbers(&ring), ring.len()), (expected.clone(), expected.len()));
            let places = expected.len() / 3..expected.len();
            let some: Vec<_> = ring.range_mut(places.clone()).map(|it| it.wr_id).collect();
            assert_eq!(some, expected[places]);
        }
        let backwards: Vec<_> = ring.iter_mut().rev().map(|it| it.wr_id).collect();
        expected.reverse();
        assert_eq!(backwards, expected);
        ring.end(ring.len());
        assert!(ring.is_empty() && ring.iter_mut().next().is_none());
        assert!(ring.rooms.len() < 100, "{}", ring.rooms.len());
    }
}
