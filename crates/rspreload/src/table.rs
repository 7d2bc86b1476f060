//! The table of descriptors that stand for rsockets.

use std::ffi::c_int;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::SeqCst};

/// The descriptors that can stand for one. Above it, a program gets ordinary sockets.
const MOST: usize = 1 << 16;

/// By descriptor: the rsocket's number plus 1, or 0.
static RSOCKETS: [AtomicI32; MOST] = [const { AtomicI32::new(0) }; MOST];
/// By number of an rsocket: how many descriptors stand for it.
static NAMES: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];
/// The greatest descriptor that has ever stood for an rsocket, or number of an rsocket.
static GREATEST: AtomicI32 = AtomicI32::new(-1);

fn place<T>(table: &'static [T; MOST], at: c_int) -> Option<&'static T> {
    table.get(usize::try_from(at).ok()?)
}

/// The rsocket that a descriptor stands for.
#[inline]
pub(crate) fn rsocket(descriptor: c_int) -> Option<c_int> {
    match place(&RSOCKETS, descriptor)?.load(SeqCst) {
        0 => None,
        more => Some(more - 1),
    }
}

/// Whether a descriptor can stand for an rsocket.
pub(crate) fn has_place(descriptor: c_int) -> bool {
    place(&RSOCKETS, descriptor).is_some()
}

/// Makes a descriptor stand for an rsocket. False if it cannot.
pub(crate) fn add(descriptor: c_int, number: c_int) -> bool {
    let (Some(at), Some(names)) = (place(&RSOCKETS, descriptor), place(&NAMES, number)) else {
        return false;
    };
    GREATEST.fetch_max(descriptor.max(number), SeqCst);
    names.fetch_add(1, SeqCst);
    at.store(number + 1, SeqCst);
    true
}

/// A descriptor stands for no rsocket any more. Returns its rsocket if no other descriptor stands for it.
pub(crate) fn remove(descriptor: c_int) -> Option<c_int> {
    let number = place(&RSOCKETS, descriptor)?.swap(0, SeqCst) - 1;
    let names = place(&NAMES, number)?;
    (names.fetch_sub(1, SeqCst) == 1).then_some(number)
}

/// The descriptors of a range that stand for an rsocket.
pub(crate) fn within(range: RangeInclusive<c_int>) -> impl Iterator<Item = c_int> {
    let last = GREATEST.load(SeqCst).min(*range.end());
    (*range.start()..=last).filter(|descriptor| rsocket(*descriptor).is_some())
}

/// The descriptors that stand for this rsocket.
pub(crate) fn names(number: c_int) -> impl Iterator<Item = c_int> {
    within(0..=c_int::MAX).filter(move |descriptor| rsocket(*descriptor) == Some(number))
}

/// No descriptor stands for an rsocket any more.
pub(crate) fn clear() {
    for at in 0..=GREATEST.load(SeqCst) {
        place(&RSOCKETS, at).inspect(|at| at.store(0, SeqCst));
        place(&NAMES, at).inspect(|names| names.store(0, SeqCst));
    }
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
}
