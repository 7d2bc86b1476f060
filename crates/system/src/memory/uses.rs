//! How often the kernel had to copy from or to memory of a process, by where: what it copies again and again is
//! worth to be moved to the address-space file, and what it copies once is not.
//!
//! The counts lie in that file, for most who copy are other processes. They are hints: two who count at once may
//! count one, and of two parts of memory that fall on the same place each makes the other begin anew.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// What is counted, and moved, together.
pub(super) const CHUNK_BITS: u32 = 22;
/// As many chunks, one after the other, are counted apart from each other.
const PLACES: usize = 4096;
/// Copies by the kernel before a chunk is to be moved: about what moving it takes, for a small one.
const FIRST: u64 = 128;
/// A long copy counts as so many more as it has this many bytes, twice.
const LONG_BITS: u32 = 14;
/// Each time that it could not be moved it takes so many times as many copies until that is tried again.
const FACTOR_BITS: u32 = 3;
const MOST_ATTEMPTS: u64 = 6;

/// In a place: the number of the chunk, how often it could not be moved, and how many copies are left until that is
/// tried. Zero for no chunk.
const ATTEMPTS_SHIFT: u32 = 28;
const CHUNK_SHIFT: u32 = 32;
const LEFT: u64 = (1 << ATTEMPTS_SHIFT) - 1;

/// The counts of one process.
#[repr(C)]
pub(super) struct Uses {
    /// How many times a chunk became worth to be moved.
    asked: AtomicU64,
    places: [AtomicU64; PLACES],
}

fn pack(chunk: u64, attempts: u64) -> u64 {
    let left = FIRST << (FACTOR_BITS as u64 * attempts);
    chunk << CHUNK_SHIFT | attempts << ATTEMPTS_SHIFT | left
}

impl Uses {
    fn place(&self, chunk: u64) -> &AtomicU64 {
        &self.places[chunk as usize % PLACES]
    }

    /// Counts a copy; whether what it copied has become worth to be moved.
    pub(super) fn count(&self, address: u64, length: u64) -> bool {
        let (first, last) = (address, address.saturating_add(length.saturating_sub(1)));
        let weight = 1 + (length >> LONG_BITS);
        let first_asks = self.count_chunk(first >> CHUNK_BITS, weight);
        let is_in_two = first >> CHUNK_BITS != last >> CHUNK_BITS;
        let last_asks = is_in_two && self.count_chunk(last >> CHUNK_BITS, weight);
        first_asks || last_asks
    }

    fn count_chunk(&self, chunk: u64, weight: u64) -> bool {
        let place = self.place(chunk);
        let word = place.load(Relaxed);
        if word >> CHUNK_SHIFT != chunk {
            place.store(pack(chunk, 0), Relaxed);
            return false;
        }
        let left = word & LEFT;
        if left == 0 {
            return false;
        }
        place.store(word - weight.min(left), Relaxed);
        let asks = left <= weight;
        if asks {
            self.asked.fetch_add(1, Release);
        }
        asks
    }

    /// Takes the chunks that are worth to be moved.
    pub(super) fn take_asked(&self) -> impl Iterator<Item = u64> {
        let any = self.asked.load(Relaxed) != 0 && self.asked.swap(0, Acquire) != 0;
        let places = self.places.iter().take(if any { PLACES } else { 0 });
        let words = places.map(|place| place.load(Relaxed));
        words.filter(|word| *word != 0 && word & LEFT == 0).map(|word| word >> CHUNK_SHIFT)
    }

    /// A chunk could not be moved: it takes longer until that is tried again.
    pub(super) fn put_off(&self, chunk: u64) {
        let word = self.place(chunk).load(Relaxed);
        if word >> CHUNK_SHIFT == chunk {
            let attempts = (word & (LEFT ^ u64::from(u32::MAX))) >> ATTEMPTS_SHIFT;
            self.begin(chunk, attempts + 1);
        }
    }

    /// Counts a chunk anew, as one that could not be moved so often.
    pub(super) fn begin(&self, chunk: u64, attempts: u64) {
        self.place(chunk).store(pack(chunk, attempts.min(MOST_ATTEMPTS)), Relaxed);
    }

    /// What was counted for some memory begins anew.
    pub(super) fn forget(&self, addresses: Range<u64>) {
        let first = addresses.start >> CHUNK_BITS;
        let last = addresses.end.saturating_sub(1) >> CHUNK_BITS;
        // All places come up within so many.
        for chunk in first..=last.min(first + PLACES as u64 - 1) {
            let place = self.place(chunk);
            let of = place.load(Relaxed) >> CHUNK_SHIFT;
            if (first..=last).contains(&of) {
                place.store(0, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses() -> Uses {
        Uses { asked: AtomicU64::new(0), places: [const { AtomicU64::new(0) }; PLACES] }
    }

    const CHUNK: u64 = 1 << CHUNK_BITS;

    /// Copies until something is worth to be moved.
    fn copies(uses: &Uses, address: u64, length: u64) -> u64 {
        (1..1 << 30).find(|_| uses.count(address, length)).expect("it is so at some time")
    }

    #[test]
    fn what_is_copied_again_and_again_is_worth_to_be_moved_once() {
        let uses = uses();
        assert_eq!(copies(&uses, 5 * CHUNK, 8), FIRST + 1);
        assert!(!uses.count(5 * CHUNK + 8, 8), "it has been said");
        assert_eq!(uses.take_asked().collect::<Vec<_>>(), [5]);
        assert_eq!(uses.take_asked().count(), 0);
        uses.forget(5 * CHUNK..6 * CHUNK);
        assert_eq!(copies(&uses, 6 * CHUNK - 1, 1), FIRST + 1);
    }

    #[test]
    fn long_copies_count_for_more() {
        let uses = uses();
        assert!(copies(&uses, CHUNK, 1 << 20) < 5);
    }

    #[test]
    fn a_copy_across_chunks_counts_for_both() {
        let uses = uses();
        copies(&uses, 3 * CHUNK - 4, 8);
        assert_eq!(uses.take_asked().collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn what_cannot_be_moved_is_tried_less_and_less_often() {
        let uses = uses();
        let mut before = copies(&uses, CHUNK, 8);
        for attempt in 1..4 {
            assert_eq!(uses.take_asked().collect::<Vec<_>>(), [1]);
            uses.put_off(1);
            let again = copies(&uses, CHUNK, 8);
            assert!(again >= before << (FACTOR_BITS - 1), "attempt {attempt}: {again}");
            before = again;
        }
        for _ in 0..20 {
            uses.put_off(1);
        }
        assert!(!uses.count(CHUNK, 8));
    }

    #[test]
    fn what_is_forgotten_is_only_what_was_named() {
        let uses = uses();
        for chunk in [1, 2, 3] {
            (0..FIRST).for_each(|_| assert!(!uses.count(chunk * CHUNK, 8)));
        }
        uses.forget(2 * CHUNK..3 * CHUNK);
        assert!(uses.count(CHUNK, 8) && !uses.count(2 * CHUNK, 8) && uses.count(3 * CHUNK, 8));
        uses.forget(0..u64::MAX);
        assert!(!uses.count(3 * CHUNK, 8));
    }
}
