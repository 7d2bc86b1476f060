//! Copying to and from memory that the device, and through it the peer, may write meanwhile.
//!
//! Such memory changes while this process reads it. For Rust that is a data race unless both sides are atomic. This
//! process's side is atomic: every access below is a relaxed atomic one. Two accesses that overlap must have the same
//! size, so the place decides the size: the aligned 8-byte words are read and written only as words, and the few bytes
//! before the first word and after the last only as bytes. To write a part of a word, an exchange replaces the word and
//! keeps its other bytes. The device's side is not Rust: an adapter's DMA, a kernel's copy between processes, or the
//! software device behind the C ABI. It is like memory shared with another process, for which the language offers
//! atomic (or volatile) accesses. A reader sees old or new bytes, torn only at word boundaries, and nothing else goes
//! wrong.

use crate::{Error, Result};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// The size of a word in bytes.
const WORD: usize = size_of::<u64>();

/// Initialised memory that several sides read and write.
#[derive(Debug)]
pub(crate) struct Extent {
    address: *mut u8,
    length: usize,
    /// Its name in errors.
    name: &'static str,
}

// SAFETY: all access to the bytes is atomic.
unsafe impl Send for Extent {}
// SAFETY: as for `Send`.
unsafe impl Sync for Extent {}

impl Extent {
    /// # Safety
    /// While this value is used, the bytes are mapped, initialised and writable, and nobody holds a reference
    /// to them.
    pub(crate) unsafe fn new(address: *mut u8, length: usize, name: &'static str) -> Self {
        Self { address, length, name }
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.address
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Copies bytes out.
    pub(crate) fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let parts = self.split(offset, bytes.len())?;
        let (before, bytes) = bytes.split_at_mut(parts.before);
        let (first, bytes) = bytes.split_at_mut(parts.first);
        let (whole, bytes) = bytes.split_at_mut(parts.whole);
        let (last, after) = bytes.split_at_mut(parts.last);
        let mut at = offset;
        for byte in before {
            *byte = self.byte(at).load(Relaxed);
            at += 1;
        }
        at += self.read_part(at, first);
        for word in whole.as_chunks_mut().0 {
            *word = self.word(at).load(Relaxed).to_ne_bytes();
            at += WORD;
        }
        at += self.read_part(at, last);
        for byte in after {
            *byte = self.byte(at).load(Relaxed);
            at += 1;
        }
        Ok(())
    }

    /// Copies bytes in.
    pub(crate) fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let parts = self.split(offset, bytes.len())?;
        let (before, bytes) = bytes.split_at(parts.before);
        let (first, bytes) = bytes.split_at(parts.first);
        let (whole, bytes) = bytes.split_at(parts.whole);
        let (last, after) = bytes.split_at(parts.last);
        let mut at = offset;
        for byte in before {
            self.byte(at).store(*byte, Relaxed);
            at += 1;
        }
        at += self.write_part(at, first);
        for word in whole.as_chunks().0 {
            self.word(at).store(u64::from_ne_bytes(*word), Relaxed);
            at += WORD;
        }
        at += self.write_part(at, last);
        for byte in after {
            self.byte(at).store(*byte, Relaxed);
            at += 1;
        }
        Ok(())
    }

    /// Copies bytes out of one word. Returns how many.
    fn read_part(&self, at: usize, bytes: &mut [u8]) -> usize {
        if !bytes.is_empty() {
            let skip = self.within_word(at);
            let word = self.word(at - skip).load(Relaxed).to_ne_bytes();
            bytes.copy_from_slice(&word[skip..][..bytes.len()]);
        }
        bytes.len()
    }

    /// Copies bytes into one word. Returns how many.
    fn write_part(&self, at: usize, bytes: &[u8]) -> usize {
        if !bytes.is_empty() {
            let skip = self.within_word(at);
            let change = |word: u64| {
                let mut word = word.to_ne_bytes();
                word[skip..][..bytes.len()].copy_from_slice(bytes);
                Some(u64::from_ne_bytes(word))
            };
            let changed = self.word(at - skip).fetch_update(Relaxed, Relaxed, change);
            changed.expect("each word is changed");
        }
        bytes.len()
    }

    /// The offsets of the aligned words.
    fn words(&self) -> Range<usize> {
        let start = (self.address.addr().wrapping_neg() % WORD).min(self.length);
        start..start + (self.length - start) / WORD * WORD
    }

    /// The position of a byte in its word.
    fn within_word(&self, at: usize) -> usize {
        (at - self.words().start) % WORD
    }

    /// Divides a range by the kind of access for its bytes.
    fn split(&self, offset: usize, length: usize) -> Result<Parts> {
        self.check(offset, length)?;
        let words = self.words();
        let before = words.start.saturating_sub(offset).min(length);
        let at = offset + before;
        let in_words = words.end.saturating_sub(at).min(length - before);
        let to_boundary = words.start.wrapping_sub(at) % WORD;
        let first = to_boundary.min(in_words);
        let whole = (in_words - first) / WORD * WORD;
        Ok(Parts { before, first, whole, last: in_words - first - whole })
    }

    /// A byte outside of the words.
    fn byte(&self, at: usize) -> &AtomicU8 {
        debug_assert!(at < self.length && !self.words().contains(&at));
        // SAFETY: within the extent, as the caller has checked; all access to it is atomic.
        unsafe { AtomicU8::from_ptr(self.address.wrapping_add(at)) }
    }

    /// The word that begins there.
    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(self.words().contains(&at) && self.within_word(at) == 0);
        // SAFETY: within the extent, as the caller has checked, and aligned, because it is one of the words; all access
        // to it is atomic.
        unsafe { AtomicU64::from_ptr(self.address.wrapping_add(at).cast()) }
    }

    fn check(&self, offset: usize, length: usize) -> Result<()> {
        let range = offset as u64..(offset as u64).saturating_add(length as u64);
        check_range(self.name, range, self.length as u64)
    }
}

/// How many bytes of a range need which access, in order. The rest of the range is single bytes again.
struct Parts {
    /// Single bytes before the words.
    before: usize,
    /// The end of a word.
    first: usize,
    /// Whole words.
    whole: usize,
    /// The beginning of a word.
    last: usize,
}

/// Whether a range lies within `available` bytes.
pub(crate) fn check_range(of: &'static str, range: Range<u64>, available: u64) -> Result<()> {
    if range.start <= range.end && range.end <= available {
        Ok(())
    } else {
        Err(Error::OutOfRange { of, range, available })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_agree_with_slices_at_every_alignment() {
        let places = [(4, 9), (1, 6), (0, 0), (3, 26), (0, 40), (1, 40), (7, 40)];
        // Miri is slow.
        for &(begin, size) in &places[..if cfg!(miri) { 3 } else { places.len() }] {
            let mut memory: Vec<u64> = vec![0; 8];
            let address = memory.as_mut_ptr().cast::<u8>().wrapping_add(begin);
            // SAFETY: the vector outlives the extent, and is not touched but through it.
            let extent = unsafe { Extent::new(address, size, "it") };
            let original: Vec<u8> = (1..=size as u8).collect();
            extent.write_at(0, &original).unwrap();
            for offset in 0..=size {
                for length in 0..=size - offset {
                    let mut out = vec![0; length];
                    extent.read_at(offset, &mut out).unwrap();
                    assert_eq!(out, original[offset..][..length]);
                    extent.write_at(offset, &vec![0xff; length]).unwrap();
                    let mut all = vec![0; size];
                    extent.read_at(0, &mut all).unwrap();
                    let mut expected = original.clone();
                    expected[offset..][..length].fill(0xff);
                    assert_eq!(all, expected);
                    extent.write_at(offset, &out).unwrap();
                }
            }
            assert!(extent.read_at(size, &mut [0]).is_err());
        }
    }

    /// Overlapping copies access their common bytes in the same sizes. Miri fails otherwise.
    #[test]
    fn two_threads_copy_the_same_bytes_at_once() {
        let mut memory: Vec<u64> = vec![0; 8];
        let address = memory.as_mut_ptr().cast::<u8>().wrapping_add(3);
        // SAFETY: the vector outlives the extent, and is not touched but through it.
        let extent = unsafe { Extent::new(address, 40, "it") };
        std::thread::scope(|scope| {
            for (offset, length) in [(0, 40), (2, 3), (6, 9), (8, 8), (39, 1), (11, 29)] {
                let extent = &extent;
                scope.spawn(move || {
                    let mut bytes = vec![0; length];
                    extent.read_at(offset, &mut bytes).unwrap();
                    extent.write_at(offset, &vec![1; length]).unwrap();
                });
            }
        });
        let mut bytes = [0; 40];
        extent.read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, [1; 40]);
    }

    /// Threads that write beside each other in one word take nothing away from each other.
    #[test]
    fn a_part_of_a_word_is_written_without_its_neighbours() {
        let mut memory: Vec<u64> = vec![0; 2];
        // SAFETY: the vector outlives the extent, and is not touched but through it.
        let extent = unsafe { Extent::new(memory.as_mut_ptr().cast(), 16, "it") };
        let rounds = if cfg!(miri) { 10 } else { 10_000 };
        std::thread::scope(|scope| {
            for (offset, length) in [(0, 3), (3, 5), (8, 7), (15, 1)] {
                let extent = &extent;
                scope.spawn(move || {
                    for round in 0..rounds {
                        let wanted = vec![round as u8; length];
                        extent.write_at(offset, &wanted).unwrap();
                        let mut found = vec![0; length];
                        extent.read_at(offset, &mut found).unwrap();
                        assert_eq!(found, wanted);
                    }
                });
            }
        });
    }

    #[test]
    fn only_ranges_within_are_allowed() {
        assert!(check_range("it", 0..8, 8).is_ok());
        assert!(check_range("it", 8..8, 8).is_ok());
        assert!(check_range("it", 1..9, 8).is_err());
        assert!(check_range("it", 9..9, 8).is_err());
        #[expect(clippy::reversed_empty_ranges)]
        let backwards = 3..2;
        assert!(check_range("it", backwards, 8).is_err());
    }

    #[test]
    fn an_offset_that_wraps_is_refused() {
        // SAFETY: nothing is accessed.
        let extent = unsafe { Extent::new(std::ptr::dangling_mut(), 8, "it") };
        assert!(extent.read_at(usize::MAX, &mut [0; 2]).is_err());
        assert!(extent.write_at(usize::MAX - 7, &[0; 8]).is_err());
    }
}
