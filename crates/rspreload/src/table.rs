//! The tables of descriptors: which rsocket each stands for, and which set of epoll each names.

use std::ffi::c_int;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::SeqCst};

/// The descriptors that can be names. Above it, a program gets ordinary sockets.
const MOST: usize = 1 << 16;

/// Descriptors that are names of something with a number. `dup(2)` gives it another name.
pub(crate) struct Names {
    /// By descriptor: the number of what it names plus 1, or 0.
    of: [AtomicI32; MOST],
    /// By number: how many descriptors name it.
    counts: [AtomicU32; MOST],
    /// The greatest descriptor or number there has ever been.
    greatest: AtomicI32,
}

static RSOCKETS: Names = Names::new();
/// The sets of epoll.
pub(crate) static SETS: Names = Names::new();

fn place<T>(table: &[T; MOST], at: c_int) -> Option<&T> {
    table.get(usize::try_from(at).ok()?)
}

impl Names {
    const fn new() -> Self {
        Self {
            of: [const { AtomicI32::new(0) }; MOST],
            counts: [const { AtomicU32::new(0) }; MOST],
            greatest: AtomicI32::new(-1),
        }
    }

    /// The number of what a descriptor names.
    #[inline]
    pub(crate) fn get(&self, descriptor: c_int) -> Option<c_int> {
        match place(&self.of, descriptor)?.load(SeqCst) {
            0 => None,
            more => Some(more - 1),
        }
    }

    /// Makes a descriptor a name of this number. False if it cannot be one.
    pub(crate) fn add(&self, descriptor: c_int, number: c_int) -> bool {
        let (Some(at), Some(names)) = (place(&self.of, descriptor), place(&self.counts, number))
        else {
            return false;
        };
        self.greatest.fetch_max(descriptor.max(number), SeqCst);
        names.fetch_add(1, SeqCst);
        at.store(number + 1, SeqCst);
        true
    }

    /// Makes a descriptor the name of a number that nothing else has, and returns it. `None` if it cannot be one.
    pub(crate) fn add_new(&self, descriptor: c_int) -> Option<c_int> {
        let at = place(&self.of, descriptor)?;
        // There are as many numbers as descriptors, so one is free.
        let take = |number: &c_int| {
            let taken = |names: &AtomicU32| names.compare_exchange(0, 1, SeqCst, SeqCst).is_ok();
            place(&self.counts, *number).is_some_and(taken)
        };
        let number = (descriptor..MOST as c_int).chain(0..descriptor).find(take)?;
        self.greatest.fetch_max(descriptor.max(number), SeqCst);
        at.store(number + 1, SeqCst);
        Some(number)
    }

    /// A descriptor is no name any more. Returns its number if no other descriptor names that.
    pub(crate) fn remove(&self, descriptor: c_int) -> Option<c_int> {
        let number = place(&self.of, descriptor)?.swap(0, SeqCst) - 1;
        let names = place(&self.counts, number)?;
        (names.fetch_sub(1, SeqCst) == 1).then_some(number)
    }

    /// The descriptors of a range that are names.
    pub(crate) fn within(&self, range: RangeInclusive<c_int>) -> impl Iterator<Item = c_int> {
        let last = self.greatest.load(SeqCst).min(*range.end());
        (*range.start()..=last).filter(|descriptor| self.get(*descriptor).is_some())
    }

    /// The descriptors that name this number.
    pub(crate) fn all_of(&self, number: c_int) -> impl Iterator<Item = c_int> {
        self.within(0..=c_int::MAX).filter(move |descriptor| self.get(*descriptor) == Some(number))
    }

    /// No descriptor is a name any more.
    fn clear(&self) {
        for at in 0..=self.greatest.load(SeqCst) {
            place(&self.of, at).inspect(|at| at.store(0, SeqCst));
            place(&self.counts, at).inspect(|names| names.store(0, SeqCst));
        }
    }
}

/// The rsocket that a descriptor stands for.
#[inline]
pub(crate) fn rsocket(descriptor: c_int) -> Option<c_int> {
    RSOCKETS.get(descriptor)
}

/// Whether a descriptor can stand for an rsocket.
pub(crate) fn has_place(descriptor: c_int) -> bool {
    place(&RSOCKETS.of, descriptor).is_some()
}

/// Makes a descriptor stand for an rsocket. False if it cannot.
pub(crate) fn add(descriptor: c_int, number: c_int) -> bool {
    RSOCKETS.add(descriptor, number)
}

/// A descriptor stands for no rsocket any more. Returns its rsocket if no other descriptor stands for it.
pub(crate) fn remove(descriptor: c_int) -> Option<c_int> {
    RSOCKETS.remove(descriptor)
}

/// The descriptors of a range that stand for an rsocket.
pub(crate) fn within(range: RangeInclusive<c_int>) -> impl Iterator<Item = c_int> {
    RSOCKETS.within(range)
}

/// The descriptors that stand for this rsocket.
pub(crate) fn names(number: c_int) -> impl Iterator<Item = c_int> {
    RSOCKETS.all_of(number)
}

/// No descriptor stands for an rsocket any more.
pub(crate) fn clear() {
    RSOCKETS.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_rsocket_is_free_when_its_last_name_is_and_all_are_at_once() {
        assert!(add(50_000, 60_000) && add(50_001, 60_000));
        assert_eq!((rsocket(50_000), rsocket(50_001)), (Some(60_000), Some(60_000)));
        assert_eq!(remove(50_000), None);
        assert_eq!(remove(50_001), Some(60_000));
        assert_eq!((rsocket(50_000), remove(50_001), rsocket(-1)), (None, None, None));
        assert!(!add(1 << 20, 3));

        assert!(add(7, 9) && add(12, 9) && add(13, 10));
        assert_eq!(names(9).collect::<Vec<_>>(), [7, 12]);
        assert_eq!(within(8..=c_int::MAX).collect::<Vec<_>>(), [12, 13]);
        clear();
        assert_eq!((rsocket(12), within(0..=c_int::MAX).next(), remove(13)), (None, None, None));
    }

    #[test]
    fn what_is_new_has_a_number_of_its_own_for_as_long_as_it_has_a_name() {
        static ALL: Names = Names::new();
        assert_eq!(ALL.add_new(5), Some(5));
        assert!(ALL.add(9, 5));
        assert_eq!((ALL.remove(5), ALL.get(9)), (None, Some(5)));
        assert_eq!(ALL.add_new(5), Some(6));
        assert_eq!(ALL.all_of(5).collect::<Vec<_>>(), [9]);
        assert_eq!((ALL.remove(9), ALL.add_new(9), ALL.remove(5)), (Some(5), Some(9), Some(6)));
        assert_eq!((ALL.add_new(MOST as c_int), ALL.add_new(-1)), (None, None));
    }
}
