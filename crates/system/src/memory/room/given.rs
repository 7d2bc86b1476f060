//! The pages of a room: given out in blocks, taken back, kept for the next block.

use offset_allocator::Allocator;

use super::super::page_size;
use super::super::shared::FILE_BYTES;
use super::MOST;
use super::table::{Bits, Block, Blocks};

/// The most blocks, and holes between them.
const MOST_BLOCKS: u32 = 1 << 16;

/// The blocks that are given out, in pages.
pub(super) struct Given {
    pub(super) allocator: Allocator<u32>,
    pub(super) blocks: Blocks,
    /// Pages that somebody has.
    pub(super) taken: Bits,
    /// Pages that may have been written to.
    pub(super) touched: Bits,
    pub(super) pages: u64,
    /// How many pages of [`Given::touched`] nobody has.
    pub(super) kept: u64,
}

impl Given {
    /// `None` if there is no memory for it.
    pub(super) fn new() -> Option<Self> {
        let pages = FILE_BYTES / page_size();
        // The allocator itself does not ask whether there is memory for its tables.
        Vec::<u8>::new().try_reserve_exact(MOST_BLOCKS as usize * ALLOCATOR_BYTES).ok()?;
        Some(Self {
            allocator: Allocator::with_max_allocs(pages as u32, MOST_BLOCKS),
            blocks: Blocks::new(pages as usize)?,
            taken: Bits::new(pages as usize)?,
            touched: Bits::new(pages as usize)?,
            pages: 0,
            kept: 0,
        })
    }

    /// Makes a block. `reach` makes it accessible up to its end. Returns its first page, and whether all of it is zero.
    pub(super) fn take(
        &mut self,
        pages: u32,
        align: u32,
        reach: impl FnOnce(u32) -> bool,
    ) -> Option<(u32, bool)> {
        if (self.pages + u64::from(pages)) * page_size() > MOST {
            return None;
        }
        // One page more than that: the one before the block, which is nobody's.
        let allocation = self.allocator.allocate(found_again(pages + align))?;
        let first = (allocation.offset + 1).next_multiple_of(align);
        if !reach(first + pages) {
            self.allocator.free(allocation);
            return None;
        }
        let touched = self.touched.set(first, pages);
        self.kept -= u64::from(touched);
        self.taken.set(first, pages);
        self.pages += u64::from(pages);
        *self.blocks.get(first) = Block::new(pages, allocation);
        Some((first, touched == 0))
    }

    /// Nobody has this block any more. Returns how many pages it had.
    pub(super) fn give(&mut self, first: u32) -> u32 {
        let (pages, allocation) = self.blocks.get(first).take();
        self.allocator.free(allocation);
        self.taken.clear(first, pages);
        self.pages -= u64::from(pages);
        self.kept += u64::from(pages);
        pages
    }

    /// These pages, which nobody has, are zero now.
    pub(super) fn forget(&mut self, first: u32, pages: u32) {
        self.kept -= u64::from(self.touched.clear(first, pages));
    }

    /// The first page of the block that has a page. It follows the nearest page that nobody has.
    pub(super) fn first_of(&self, page: u32) -> Option<u32> {
        self.taken.has(page).then(|| self.taken.start_of(page))
    }
}

/// Bytes of the allocator for each block, at most.
const ALLOCATOR_BYTES: usize = 40;

/// As many pages, or a few more: a number for which the allocator finds a hole of just that length again. It sorts
/// holes by the first four binary digits of their lengths.
fn found_again(pages: u32) -> u32 {
    let digits = u32::BITS - pages.leading_zeros();
    pages.next_multiple_of(1 << digits.saturating_sub(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_is_found_again_by_what_left_it() {
        for pages in 1..10_000 {
            let length = found_again(pages);
            assert!(length >= pages && length <= pages + pages / 8 + 1, "{pages}: {length}");
            let mut allocator = Allocator::<u32>::with_max_allocs(1 << 20, 16);
            let first = allocator.allocate(length).unwrap();
            let _wall = allocator.allocate(1).unwrap();
            let place = first.offset;
            allocator.free(first);
            assert_eq!(allocator.allocate(length).unwrap().offset, place, "{pages}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "there are no such mappings")]
    fn blocks_do_not_overlap_and_have_a_page_before_them() {
        let (mut given, mut blocks) = (Given::new().unwrap(), Vec::<(u32, u32)>::new());
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        for _ in 0..20_000 {
            if random(5) < 3 {
                let (pages, align) = (1 + random(40) as u32, 1 << random(6));
                let Some((first, _)) = given.take(pages, align, |_| true) else { continue };
                assert!(first.is_multiple_of(align));
                let end = first + pages;
                for &(other, length) in &blocks {
                    assert!(end < other || other + length < first, "{first}+{pages}");
                }
                blocks.push((first, pages));
            } else if !blocks.is_empty() {
                let (first, pages) = blocks.swap_remove(random(blocks.len() as u64) as usize);
                assert_eq!(given.first_of(first + pages - 1), Some(first));
                assert_eq!(given.give(first), pages);
                assert_eq!(given.first_of(first), None);
            }
            let total: u64 = blocks.iter().map(|(_, pages)| u64::from(*pages)).sum();
            assert_eq!(given.pages, total);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "there are no such mappings")]
    fn what_is_kept_is_counted() {
        let mut given = Given::new().unwrap();
        let (first, clean) = given.take(10, 1, |_| true).unwrap();
        assert!(clean && given.kept == 0);
        given.give(first);
        assert_eq!(given.kept, 10);
        let (again, clean) = given.take(4, 1, |_| true).unwrap();
        assert_eq!((again, clean, given.kept), (first, false, 6));
        given.give(again);
        given.forget(first, 10);
        assert_eq!(given.kept, 0);
        let (again, clean) = given.take(10, 1, |_| true).unwrap();
        assert_eq!((again, clean), (first, true));
    }
}
