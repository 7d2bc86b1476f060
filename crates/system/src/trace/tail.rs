//! A reader's place in a ring.

use super::event::Event;
use super::ring::{EVENTS, Look, Ring};

/// How long an event may be being written before a reader goes on without it, in nanoseconds: a writer may lose its
/// processor.
const PATIENCE: u64 = 50_000_000;

/// How far the writers have to have come, in places, before the reader that they have passed begins again. Close behind
/// them it would be passed again.
const MARGIN: u64 = EVENTS as u64 / 8;

/// Where a reader is, and what it has missed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tail {
    next: u64,
    missed: u64,
    /// Since when it has waited for the next event.
    waits_since: Option<u64>,
}

impl Tail {
    /// Begins with the events from now on.
    pub fn from_now(ring: &Ring) -> Self {
        Self { next: ring.count(), ..Self::default() }
    }

    /// How many events it has missed so far: they were written over before it came, or given up.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Reads what has come since the last time, at most as many events as a ring holds. `now` is the time, as in
    /// events.
    pub fn read(&mut self, ring: &Ring, now: u64, each: impl FnMut(Event)) {
        self.read_until(ring, Some(now), each);
    }

    /// Reads everything that is left. An event that is still being written counts as missed: its writer may have been
    /// killed.
    pub fn read_last(&mut self, ring: &Ring, each: impl FnMut(Event)) {
        self.read_until(ring, None, each);
    }

    /// With a time it waits for events that are being written.
    fn read_until(&mut self, ring: &Ring, now: Option<u64>, mut each: impl FnMut(Event)) {
        let end = ring.count();
        // Another process may have written anything there.
        if end < self.next || end - self.next > EVENTS as u64 {
            let next = end.saturating_sub(EVENTS as u64 - MARGIN);
            self.missed = self.missed.saturating_add(next.saturating_sub(self.next));
            self.next = next;
        }
        while self.next < end {
            match ring.look(self.next) {
                Look::Event(event) => each(event),
                Look::Gone => self.missed = self.missed.saturating_add(1),
                Look::NotYet => {
                    if let Some(now) = now {
                        let since = *self.waits_since.get_or_insert(now);
                        if now.saturating_sub(since) < PATIENCE {
                            return;
                        }
                    }
                    self.missed = self.missed.saturating_add(1);
                }
            }
            self.waits_since = None;
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::What;
    use super::*;

    fn event(number: u64) -> Event {
        Event { number, ..Event::of(What::Sent) }
    }

    fn read(tail: &mut Tail, ring: &Ring, now: u64) -> Vec<u64> {
        let mut seen = Vec::new();
        tail.read(ring, now, |event| seen.push(event.number));
        seen
    }

    /// Rules: SEE-41
    #[test]
    fn what_was_written_over_is_counted_as_missed() {
        let (ring, events) = (Ring::empty(), EVENTS as u64);
        let mut tail = Tail::from_now(&ring);
        (0..3).for_each(|number| ring.add(&event(number)));
        assert_eq!(read(&mut tail, &ring, 0), [0, 1, 2]);
        assert_eq!(read(&mut tail, &ring, 0), []);
        (3..3 + events).for_each(|number| ring.add(&event(number)));
        assert_eq!(read(&mut tail, &ring, 0).len() as u64, events);
        assert_eq!(tail.missed(), 0);
        (0..events + 1).for_each(|number| ring.add(&event(number)));
        let seen = read(&mut tail, &ring, 0);
        assert_eq!(seen.last(), Some(&events));
        assert_eq!(seen.len() as u64 + tail.missed(), events + 1);
        assert_eq!(tail.missed(), MARGIN + 1);
    }

    #[test]
    fn an_event_that_is_never_written_is_waited_for_only_a_moment() {
        let ring = Ring::empty();
        let mut tail = Tail::from_now(&ring);
        ring.take_for_ever();
        ring.add(&event(1));
        assert_eq!(read(&mut tail, &ring, 5), []);
        assert_eq!(read(&mut tail, &ring, 4 + PATIENCE), []);
        assert_eq!(read(&mut tail, &ring, 5 + PATIENCE), [1]);
        assert_eq!(tail.missed(), 1);
        ring.take_for_ever();
        ring.add(&event(3));
        let mut last = Vec::new();
        tail.read_last(&ring, |event| last.push(event.number));
        assert_eq!((last, tail.missed()), (vec![3], 2));
    }
}
