//! What has ended and stays in memory for a while.
//!
//! There is no lock, which a forked child could find held by a thread that it does not have.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};

/// The last `N` of them.
#[derive(Debug)]
pub(crate) struct Last<T, const N: usize> {
    places: [AtomicPtr<T>; N],
    next: AtomicUsize,
}

impl<T: Send, const N: usize> Last<T, N> {
    pub(crate) const fn new() -> Self {
        Self { places: [const { AtomicPtr::new(null_mut()) }; N], next: AtomicUsize::new(0) }
    }

    /// Keeps one. Returns the one in whose place it is, which was kept longest.
    pub(crate) fn keep(&self, one: Box<T>) -> Option<Box<T>> {
        let place = &self.places[self.next.fetch_add(1, Relaxed) % N];
        let before = place.swap(Box::into_raw(one), AcqRel);
        // SAFETY: it was put there as above, and nobody else has taken it out.
        (!before.is_null()).then(|| unsafe { Box::from_raw(before) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept() {
        static LAST: Last<u32, 3> = Last::new();
        let gone = (0..5).map(|one| LAST.keep(Box::new(one)).map(|gone| *gone));
        assert_eq!(gone.collect::<Vec<_>>(), [None, None, None, Some(0), Some(1)]);
    }
}
