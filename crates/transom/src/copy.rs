//! Copying to and from memory that the device, and through it the peer, may write meanwhile.
//!
//! Such memory changes while this process reads it. For Rust that is a data race unless both
//! sides are atomic. What this process does is atomic: every access below is a relaxed atomic one,
//! of a whole word where eight bytes are aligned and of a byte elsewhere. What the device does is
//! not Rust: an adapter's DMA, a kernel's copy between processes, or the software device behind
//! the C ABI. It stands on the same ground as memory shared with another process, where atomic
//! (or volatile) accesses are what the language offers; a reader sees old or new bytes, torn at
//! worst at word boundaries, and nothing else goes wrong.

use crate::{Error, Result};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Initialised memory that several sides read and write.
#[derive(Debug)]
pub(crate) struct Extent {
    address: *mut u8,
    length: usize,
    /// What it is called in errors.
    name: &'static str,
}

// SAFETY: all access to the bytes is atomic.
unsafe impl Send for Extent {}
// SAFETY: as for `Send`.
unsafe impl Sync for Extent {}

impl Extent {
    /// # Safety
    /// As long as this value is used, the bytes are mapped, initialised and writable, and nobody
    /// holds a reference to them.
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
        self.check(offset, bytes.len())?;
        let mut address = self.address.wrapping_add(offset);
        let (head, words) = bytes.split_at_mut(to_word(address).min(bytes.len()));
        let (words, tail) = words.as_chunks_mut::<8>();
        for byte in head {
            // SAFETY: within the extent, by the check.
            *byte = unsafe { AtomicU8::from_ptr(address) }.load(Relaxed);
            address = address.wrapping_add(1);
        }
        for word in words {
            // SAFETY: within the extent, and aligned, since the head ended at a word.
            let value = unsafe { AtomicU64::from_ptr(address.cast()) }.load(Relaxed);
            *word = value.to_ne_bytes();
            address = address.wrapping_add(8);
        }
        for byte in tail {
            // SAFETY: within the extent, by the check.
            *byte = unsafe { AtomicU8::from_ptr(address) }.load(Relaxed);
            address = address.wrapping_add(1);
        }
        Ok(())
    }

    /// Copies bytes in.
    pub(crate) fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len())?;
        let mut address = self.address.wrapping_add(offset);
        let (head, words) = bytes.split_at(to_word(address).min(bytes.len()));
        let (words, tail) = words.as_chunks::<8>();
        for byte in head {
            // SAFETY: within the extent, by the check.
            unsafe { AtomicU8::from_ptr(address) }.store(*byte, Relaxed);
            address = address.wrapping_add(1);
        }
        for word in words {
            // SAFETY: within the extent, and aligned, since the head ended at a word.
            unsafe { AtomicU64::from_ptr(address.cast()) }
                .store(u64::from_ne_bytes(*word), Relaxed);
            address = address.wrapping_add(8);
        }
        for byte in tail {
            // SAFETY: within the extent, by the check.
            unsafe { AtomicU8::from_ptr(address) }.store(*byte, Relaxed);
            address = address.wrapping_add(1);
        }
        Ok(())
    }

    fn check(&self, offset: usize, length: usize) -> Result<()> {
        let range = offset as u64..(offset as u64).saturating_add(length as u64);
        check_range(self.name, range, self.length as u64)
    }
}

/// Whether a range lies within `available` bytes.
pub(crate) fn check_range(of: &'static str, range: Range<u64>, available: u64) -> Result<()> {
    if range.start <= range.end && range.end <= available {
        Ok(())
    } else {
        Err(Error::OutOfRange { of, range, available })
    }
}

/// How many bytes lie before the next whole word.
fn to_word(address: *mut u8) -> usize {
    address.addr().wrapping_neg() % 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_agree_with_slices_at_every_alignment() {
        let mut memory: Vec<u8> = (0..64).collect();
        // SAFETY: the vector outlives the extent, and is not touched but through it.
        let extent = unsafe { Extent::new(memory.as_mut_ptr(), 64, "it") };
        for offset in 0..=32 {
            for length in 0..=32 {
                let mut out = vec![0; length];
                extent.read_at(offset, &mut out).unwrap();
                let expected: Vec<u8> = (offset..offset + length).map(|i| i as u8).collect();
                assert_eq!(out, expected);
                extent.write_at(offset, &vec![0xff; length]).unwrap();
                let mut all = vec![0; 64];
                extent.read_at(0, &mut all).unwrap();
                for (index, byte) in all.iter().enumerate() {
                    let written = (offset..offset + length).contains(&index);
                    assert_eq!(*byte, if written { 0xff } else { index as u8 });
                }
                extent.write_at(offset, &expected).unwrap();
            }
        }
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
