//! The ring of a process's last events. Several threads write at the same time, and none waits for another.
//!
//! A writer takes the next number, and with it a place. The place has a word that tells which event is in it, or is
//! being written. A writer that finds its place being written, or already taken by a later event, gives its own event
//! up. So nothing is ever written by two. A reader looks at the word before and after.

use std::sync::atomic::{AtomicU64, Ordering::*, fence};

use super::event::{Event, WORDS};

/// How many events a ring holds.
pub const EVENTS: usize = 1 << 14;

/// One place of a ring.
#[derive(Debug)]
#[repr(C, align(64))]
struct Place {
    /// [`written`] of the event that is here; with [`WRITING`] while it is written. Zero before the first.
    holds: AtomicU64,
    words: [AtomicU64; WORDS],
}

const _: () = assert!(size_of::<Place>() == 64);

const WRITING: u64 = 1;

/// The word of the place of an event, once it is there.
const fn written(number: u64) -> u64 {
    // Another process may have written any number.
    number.wrapping_add(1) << 1
}

/// The ring. All zeros is an empty one.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Ring {
    /// How many events there have been.
    next: AtomicU64,
    /// Its readers do not write here, so that it does not share a line with the first place.
    _apart: [u64; 7],
    places: [Place; EVENTS],
}

/// A look at one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// This is it.
    Event(Event),
    /// It is being written, or about to be.
    NotYet,
    /// A later one is in its place, or it was given up.
    Gone,
}

impl Ring {
    /// How many events there have been, those included that are being written.
    pub fn count(&self) -> u64 {
        self.next.load(Acquire)
    }

    /// Adds an event.
    pub(crate) fn add(&self, event: &Event) {
        let number = self.next.fetch_add(1, AcqRel);
        let place = self.place(number);
        let word = written(number);
        let before = place.holds.load(Relaxed);
        // A thread that lost its processor may still write an event of the last round here.
        if before & WRITING != 0
            || before >= word
            || place.holds.compare_exchange(before, word | WRITING, Acquire, Relaxed).is_err()
        {
            return;
        }
        // A reader that sees one of the words sees that they are being written.
        fence(Release);
        for (to, word) in place.words.iter().zip(event.to_words()) {
            to.store(word, Relaxed);
        }
        place.holds.store(word, Release);
    }

    /// Looks at the event of this number.
    pub(super) fn look(&self, number: u64) -> Look {
        let (place, word) = (self.place(number), written(number));
        let before = place.holds.load(Acquire);
        if before > word | WRITING {
            return Look::Gone;
        }
        if before != word {
            return Look::NotYet;
        }
        let words = place.words.each_ref().map(|word| word.load(Relaxed));
        fence(Acquire);
        if place.holds.load(Relaxed) != word {
            return Look::Gone;
        }
        Event::from_words(&words).map_or(Look::Gone, Look::Event)
    }

    fn place(&self, number: u64) -> &Place {
        &self.places[(number % EVENTS as u64) as usize]
    }

    /// A ring of its own, for tests.
    #[cfg(test)]
    pub(super) fn empty() -> Box<Self> {
        // SAFETY: all zeros is a valid value of atomics and integers.
        unsafe { Box::<Self>::new_zeroed().assume_init() }
    }

    /// Takes a number and never writes the event, for tests.
    #[cfg(test)]
    pub(super) fn take_for_ever(&self) {
        self.next.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::What;
    use super::*;

    fn event(number: u64) -> Event {
        let odd = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Event {
            time: number,
            number: odd,
            address: !odd,
            length: odd,
            detail: !odd,
            ..Event::of(What::Sent)
        }
    }

    #[test]
    fn events_are_read_as_they_were_written_until_others_take_their_places() {
        let ring = Ring::empty();
        assert_eq!(ring.look(0), Look::NotYet);
        (0..3).for_each(|number| ring.add(&event(number)));
        assert_eq!(ring.look(2), Look::Event(event(2)));
        assert_eq!(ring.look(3), Look::NotYet);
        (3..EVENTS as u64 + 1).for_each(|number| ring.add(&event(number)));
        assert_eq!(ring.look(0), Look::Gone);
        assert_eq!(ring.look(1), Look::Event(event(1)));
        assert_eq!(ring.look(EVENTS as u64), Look::Event(event(EVENTS as u64)));
    }

    /// A writer that lost its processor comes back when the ring has gone round. It must not write over what is there.
    #[test]
    fn an_event_whose_place_is_being_written_is_given_up() {
        let ring = Ring::empty();
        ring.places[0].holds.store(written(0) | WRITING, Relaxed);
        (0..=EVENTS as u64).for_each(|number| ring.add(&event(number)));
        assert_eq!(ring.look(EVENTS as u64), Look::NotYet);
        assert_eq!(ring.look(1), Look::Event(event(1)));
        // And the other way round: the later one is there first.
        ring.places[2].holds.store(written(2 + EVENTS as u64), Relaxed);
        ring.next.store(2, Relaxed);
        ring.add(&event(2));
        assert_eq!(ring.look(2), Look::Gone);
    }

    /// Rules: SEE-41
    #[test]
    fn no_reader_sees_half_an_event_while_many_write() {
        let ring = Ring::empty();
        let each = if cfg!(miri) { 40 } else { 60_000 };
        let whole = |event: &Event| {
            (event.address, event.length, event.detail)
                == (!event.number, event.number, !event.number)
        };
        let ring = &*ring;
        let seen = std::thread::scope(|scope| {
            for writer in 0..4_u64 {
                scope.spawn(move || (0..each).for_each(|n| ring.add(&event(n * 4 + writer))));
            }
            let mut seen = 0;
            let mut last = 0;
            // Once more when all is written: this thread may have had no processor before.
            while last < 4 * each {
                last = ring.count();
                for number in last.saturating_sub(EVENTS as u64)..last {
                    if let Look::Event(event) = ring.look(number) {
                        assert!(whole(&event), "{event:?}");
                        seen += 1;
                    }
                }
            }
            seen
        });
        assert!(cfg!(miri) || seen > 0);
    }
}
