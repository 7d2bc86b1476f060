//! Tables of the pages of a room. They take memory only for pages that are used, and none of the C library's.

use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use offset_allocator::Allocation;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags};

/// A block, at its first page.
#[repr(C)]
pub(super) struct Block {
    /// Zero if no block begins here.
    pub(super) pages: u32,
    /// Regions that have some of it.
    pub(super) pins: u32,
    /// The program has freed it, and a region still has it.
    pub(super) freed: bool,
    /// Initialised if a block begins here.
    allocation: MaybeUninit<Allocation<u32>>,
}

impl Block {
    pub(super) fn new(pages: u32, allocation: Allocation<u32>) -> Self {
        Self { pages, pins: 0, freed: false, allocation: MaybeUninit::new(allocation) }
    }

    /// Takes the block out of the table. Returns its pages, and its entry with the allocator.
    pub(super) fn take(&mut self) -> (u32, Allocation<u32>) {
        assert!(self.pages > 0, "no block begins here");
        // SAFETY: a block begins here, so it is initialised.
        (std::mem::take(&mut self.pages), unsafe { self.allocation.assume_init() })
    }
}

/// The blocks by their first pages.
pub(super) struct Blocks(Zeros<Block>);

impl Blocks {
    pub(super) fn new(pages: usize) -> Option<Self> {
        Zeros::new(pages).map(Self)
    }

    /// The block that begins at a page.
    pub(super) fn at(&self, page: u32) -> Option<&Block> {
        self.0.all().get(page as usize).filter(|block| block.pages > 0)
    }

    /// The entry of a page.
    pub(super) fn get(&mut self, page: u32) -> &mut Block {
        &mut self.0.all_mut()[page as usize]
    }
}

/// A bit for each page.
pub(super) struct Bits(Zeros<u64>);

impl Bits {
    pub(super) fn new(pages: usize) -> Option<Self> {
        Zeros::new(pages.div_ceil(64)).map(Self)
    }

    pub(super) fn has(&self, page: u32) -> bool {
        self.0.all().get(page as usize / 64).is_some_and(|word| word >> (page % 64) & 1 == 1)
    }

    /// Sets the bits of some pages. Returns how many of them were set before.
    pub(super) fn set(&mut self, first: u32, pages: u32) -> u32 {
        let mut were = 0;
        for (word, bits) in words(first, pages) {
            let word = &mut self.0.all_mut()[word];
            were += (*word & bits).count_ones();
            *word |= bits;
        }
        were
    }

    /// Clears them. Returns how many of them were set before.
    pub(super) fn clear(&mut self, first: u32, pages: u32) -> u32 {
        let mut were = 0;
        for (word, bits) in words(first, pages) {
            let word = &mut self.0.all_mut()[word];
            were += (*word & bits).count_ones();
            *word &= !bits;
        }
        were
    }

    /// The first page of the run of set bits that ends at `page` or goes on behind it. The bit of `page` is set.
    pub(super) fn start_of(&self, page: u32) -> u32 {
        let (mut word, mut below) = (page as usize / 64, u64::MAX >> (63 - page % 64));
        loop {
            let clear = !self.0.all()[word] & below;
            if clear != 0 {
                return word as u32 * 64 + u64::BITS - clear.leading_zeros();
            }
            if word == 0 {
                return 0;
            }
            (word, below) = (word - 1, u64::MAX);
        }
    }

    /// The beginning and end of the first run of set bits from a page on.
    pub(super) fn next_run(&self, from: u32) -> Option<(u32, u32)> {
        let start = self.next(from, |word| word)?;
        Some((start, self.next(start, |word| !word).unwrap_or(self.0.all().len() as u32 * 64)))
    }

    fn next(&self, from: u32, of: impl Fn(u64) -> u64) -> Option<u32> {
        let first = from as usize / 64;
        let words = self.0.all().get(first..)?.iter().map(|word| of(*word));
        let mut found = words.enumerate().map(|(at, word)| match at {
            0 => (at, word & u64::MAX << (from % 64)),
            _ => (at, word),
        });
        let (at, word) = found.find(|(_, word)| *word != 0)?;
        Some((first + at) as u32 * 64 + word.trailing_zeros())
    }
}

/// A mark on each page that any thread may make at any time: it takes no lock.
pub(super) struct Marks(Zeros<AtomicU64>);

impl Marks {
    pub(super) fn new(pages: usize) -> Option<Self> {
        Zeros::new(pages.div_ceil(64)).map(Self)
    }

    pub(super) fn make(&self, first: u32, pages: u32) {
        for (word, bits) in words(first, pages) {
            self.0.all()[word].fetch_or(bits, Relaxed);
        }
    }

    /// Takes the marks off some pages. Returns whether there were any.
    pub(super) fn take(&self, first: u32, pages: u32) -> bool {
        let mut any = false;
        for (word, bits) in words(first, pages) {
            let word = &self.0.all()[word];
            if word.load(Relaxed) & bits != 0 {
                word.fetch_and(!bits, Relaxed);
                any = true;
            }
        }
        any
    }
}

/// The words with the bits of some pages, and those bits.
fn words(first: u32, pages: u32) -> impl Iterator<Item = (usize, u64)> {
    let end = first + pages;
    (first / 64..end.div_ceil(64)).map(move |word| {
        let from = first.saturating_sub(word * 64);
        let to = (end - word * 64).min(64);
        (word as usize, u64::MAX << from & u64::MAX >> (64 - to))
    })
}

/// An array of values, for which all zeros are valid, in a mapping of its own.
struct Zeros<T> {
    first: NonNull<T>,
    count: usize,
}

// SAFETY: this value owns the memory, as a box would.
unsafe impl<T: Send> Send for Zeros<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Zeros<T> {}

impl<T> Zeros<T> {
    /// Most of it is never used. As for the file (`shared.rs`), one page is unlocked and grows.
    fn new(count: usize) -> Option<Self> {
        let (rights, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        let (page, length) = (rustix::param::page_size(), count * size_of::<T>());
        // SAFETY: a fresh mapping, which goes where the kernel finds room.
        let first = unsafe {
            let first = rustix::mm::mmap_anonymous(null_mut(), page, rights, flags).ok()?;
            let _ = rustix::mm::munlock(first, page);
            let grown = rustix::mm::mremap(first, page, length, MremapFlags::MAYMOVE);
            if grown.is_err() {
                let _ = rustix::mm::munmap(first, page);
            }
            grown.ok()?
        };
        NonNull::new(first.cast()).map(|first| Self { first, count })
    }

    fn all(&self) -> &[T] {
        // SAFETY: mapped until drop, aligned to a page, and zeros at first, which are a valid `T` here.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }

    fn all_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.count) }
    }
}

impl<T> Drop for Zeros<T> {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length.
        let unmapped =
            unsafe { rustix::mm::munmap(self.first.as_ptr().cast(), self.count * size_of::<T>()) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "there are no such mappings")]
    fn marks_are_taken_off_once() {
        let marks = Marks::new(300).unwrap();
        marks.make(60, 10);
        assert!(!marks.take(0, 60) && !marks.take(70, 230));
        assert!(marks.take(69, 5) && !marks.take(69, 5));
        assert!(marks.take(0, 300) && !marks.take(0, 300));
    }

    #[test]
    #[cfg_attr(miri, ignore = "there are no such mappings")]
    fn bits_agree_with_a_list() {
        const PAGES: u32 = 300;
        let (mut bits, mut list) = (Bits::new(PAGES as usize).unwrap(), [false; PAGES as usize]);
        let mut seed = 1_u64;
        let mut random = |below: u32| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as u32 % below
        };
        for _ in 0..5_000 {
            let first = random(PAGES);
            let pages = random(PAGES - first + 1);
            let set = random(2) == 0;
            let part = &mut list[first as usize..(first + pages) as usize];
            let were = part.iter().filter(|bit| **bit).count() as u32;
            part.fill(set);
            let found = if set { bits.set(first, pages) } else { bits.clear(first, pages) };
            assert_eq!(found, were);
            let page = random(PAGES) as usize;
            assert_eq!(bits.has(page as u32), list[page]);
            if list[page] {
                let start = list[..page].iter().rposition(|bit| !bit).map_or(0, |at| at + 1);
                assert_eq!(bits.start_of(page as u32), start as u32);
            }
            let next = list[page..].iter().position(|bit| *bit).map(|at| {
                let start = page + at;
                let end = list[start..].iter().position(|bit| !bit);
                (start as u32, end.map_or(PAGES, |at| (start + at) as u32))
            });
            let found = bits.next_run(page as u32).map(|(start, end)| (start, end.min(PAGES)));
            assert_eq!(found, next);
        }
    }
}
