//! Places of a work queue. A work request has its place from the post until the program has polled its completion, or
//! that of a later one of the same send queue (rules ORD-06, PS-12, SQ-10). So a program that posts until the queue is
//! full, and then polls, never has more completions than places.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::*};

/// The places of a work queue, as its posting thread counts them.
#[derive(Debug)]
pub struct Places {
    size: usize,
    /// Places ever taken, modulo 2^32.
    taken: u32,
    /// How many of them had been given back at the last look.
    seen: u32,
    /// Places of work that has ended without a completion: they come back with the next one that has.
    unreported: u32,
    returned: Arc<Returned>,
}

/// The places that polls have given back, ever, modulo 2^32.
#[derive(Debug, Default)]
pub struct Returned {
    count: AtomicU32,
    /// Completions of one work queue go to several completion queues.
    is_shared: bool,
}

impl Places {
    /// The places of a queue for `size` work requests. If it `is_shared`, it completes to several completion
    /// queues.
    pub fn new(size: usize, is_shared: bool) -> Self {
        let returned = Arc::new(Returned { count: AtomicU32::new(0), is_shared });
        Self { size, taken: 0, seen: 0, unreported: 0, returned }
    }

    /// Where polls give them back.
    pub fn returned(&self) -> &Arc<Returned> {
        &self.returned
    }

    /// How many there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// How many of the last ones belong to work that has ended without a completion.
    pub fn unreported(&self) -> u32 {
        self.unreported
    }

    /// There are so many from now on.
    pub fn resize(&mut self, size: usize) {
        self.size = size;
    }

    /// Whether so many are free.
    #[inline]
    pub fn has_room_for(&mut self, count: usize) -> bool {
        let has_room = |places: &Self| {
            let used = places.taken.wrapping_sub(places.seen) as usize;
            used.checked_add(count).is_some_and(|all| all <= places.size)
        };
        // The polling thread may run on another processor. Its count is read only if it matters.
        has_room(self) || {
            self.seen = self.returned.count.load(Relaxed);
            has_room(self)
        }
    }

    /// Takes one, which is free.
    #[inline]
    pub fn take(&mut self) {
        self.taken = self.taken.wrapping_add(1);
    }

    /// The oldest work has ended. Returns how many places its completion gives back, zero if it has none.
    #[inline]
    pub fn end(&mut self, has_completion: bool) -> u32 {
        self.unreported += 1;
        if has_completion { std::mem::take(&mut self.unreported) } else { 0 }
    }

    /// All are free. Nothing of the queue waits to be polled any more.
    pub fn clear(&mut self) {
        self.seen = self.returned.count.load(Relaxed);
        self.taken = self.seen;
        self.unreported = 0;
    }
}

impl Returned {
    /// How many so far.
    pub fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// So many places are free again: what held them has been polled, or nobody can poll it any more. Of a queue
    /// that completes to one completion queue, call it with that locked.
    #[inline]
    pub fn add(&self, count: u32) {
        if self.is_shared {
            self.count.fetch_add(count, Relaxed);
        } else {
            self.count.store(self.count.load(Relaxed).wrapping_add(count), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules: ORD-06
    #[test]
    fn a_completion_gives_back_what_ended_before_it() {
        let mut places = Places::new(3, false);
        (0..3).for_each(|_| places.take());
        assert!(!places.has_room_for(1) && places.has_room_for(0));
        assert_eq!([places.end(false), places.end(false), places.end(true)], [0, 0, 3]);
        assert!(!places.has_room_for(1), "nobody has polled");
        places.returned().add(3);
        assert!(places.has_room_for(3) && !places.has_room_for(4));
    }

    #[test]
    fn counts_come_round() {
        for is_shared in [false, true] {
            let mut places = Places::new(2, is_shared);
            (places.taken, places.seen) = (u32::MAX, u32::MAX);
            places.returned().add(u32::MAX);
            for _ in 0..3 {
                (0..2).for_each(|_| places.take());
                assert!(!places.has_room_for(1));
                places.returned().add(1);
                assert!(places.has_room_for(1) && !places.has_room_for(2));
                places.returned().add(1);
                assert!(places.has_room_for(2));
            }
        }
    }

    #[test]
    fn a_cleared_queue_has_all_its_places() {
        let mut places = Places::new(2, false);
        (0..2).for_each(|_| places.take());
        places.end(false);
        places.clear();
        assert!(places.has_room_for(2));
        places.take();
        assert_eq!(places.end(true), 1, "and what ended before gives back nothing");
    }

    #[test]
    fn a_smaller_queue_is_full_until_enough_has_come_back() {
        let mut places = Places::new(3, false);
        (0..3).for_each(|_| places.take());
        places.resize(1);
        places.returned().add(2);
        assert!(!places.has_room_for(1));
        places.returned().add(1);
        assert!(places.has_room_for(1) && !places.has_room_for(usize::MAX));
    }
}
