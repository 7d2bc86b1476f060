//! The sockets of the process, by number.

use std::os::fd::RawFd;
use std::sync::Arc;

use crate::wrong::Wrong;
use parking_lot::RwLock;

/// No socket has this number.
const NO_SOCKET: Wrong = Wrong::new(
    libc::EBADF,
    "socket is not of this library: make it with rsocket, not with socket(2)",
);

/// The socket of this number was made before this process was forked.
const PARENTS: Wrong = Wrong::new(
    libc::EBADF,
    "socket is the parent's: a forked child can only close it, and has to make its own",
);

/// Values, by their descriptors.
#[derive(Debug)]
pub(crate) struct Table<T>(RwLock<Vec<Place<T>>>);

/// The entry of a number.
#[derive(Debug)]
enum Place<T> {
    Nothing,
    Here(Arc<T>),
    /// The value belongs to the parent process.
    Parents,
}

impl<T> Table<T> {
    pub(crate) const fn new() -> Self {
        Self(RwLock::new(Vec::new()))
    }

    /// The value of a number.
    pub(crate) fn get(&self, number: RawFd) -> Result<Arc<T>, Wrong> {
        self.find(number).ok_or_else(|| if self.is_parents(number) { PARENTS } else { NO_SOCKET })
    }

    /// The value of a number, if there is one.
    pub(crate) fn find(&self, number: RawFd) -> Option<Arc<T>> {
        let at = usize::try_from(number).ok()?;
        match self.0.read().get(at)? {
            Place::Here(value) => Some(value.clone()),
            Place::Nothing | Place::Parents => None,
        }
    }

    #[cold]
    fn is_parents(&self, number: RawFd) -> bool {
        let at = usize::try_from(number).ok();
        at.is_some_and(|at| matches!(self.0.read().get(at), Some(Place::Parents)))
    }

    /// Adds the value of a number.
    pub(crate) fn add(&self, number: RawFd, value: Arc<T>) -> Result<(), Wrong> {
        let at = usize::try_from(number).map_err(|_| NO_SOCKET)?;
        let mut all = self.0.write();
        if all.len() <= at {
            let more = at + 1 - all.len();
            all.try_reserve(more).map_err(|_| Wrong::no_memory())?;
            all.resize_with(at + 1, || Place::Nothing);
        }
        all[at] = Place::Here(value);
        Ok(())
    }

    /// Takes the value of a number out. `None` if it belongs to the parent process.
    pub(crate) fn remove(&self, number: RawFd) -> Result<Option<Arc<T>>, Wrong> {
        let at = usize::try_from(number).map_err(|_| NO_SOCKET)?;
        let mut all = self.0.write();
        let place = all.get_mut(at).ok_or(NO_SOCKET)?;
        match std::mem::replace(place, Place::Nothing) {
            Place::Here(value) => Ok(Some(value)),
            Place::Parents => Ok(None),
            Place::Nothing => Err(NO_SOCKET),
        }
    }

    /// All values.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        let here = |place: &Place<T>| match place {
            Place::Here(value) => Some(value.clone()),
            Place::Nothing | Place::Parents => None,
        };
        self.0.read().iter().filter_map(here).collect()
    }

    /// Locks it until it is released or left to the parent.
    pub(crate) fn hold(&self) {
        std::mem::forget(self.0.write());
    }

    /// Undoes [`hold`](Self::hold).
    ///
    /// # Safety
    /// This thread has locked it.
    pub(crate) unsafe fn release(&self) {
        // SAFETY: by the contract of this function.
        unsafe { self.0.force_unlock_write() };
    }

    /// In a forked child, marks all values as the parent's. They are not dropped, because a drop would end them in the
    /// parent too.
    ///
    /// # Safety
    /// This thread has locked it, or is the copy of the one that has.
    pub(crate) unsafe fn leave_to_parent(&self) {
        // SAFETY: by the contract of this function.
        let all = unsafe { &mut *self.0.data_ptr() };
        for place in all.iter_mut().filter(|place| matches!(place, Place::Here(_))) {
            std::mem::forget(std::mem::replace(place, Place::Parents));
        }
        // SAFETY: by the contract of this function.
        unsafe { self.release() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_can_close_its_parents_and_no_more() {
        let table = Table::new();
        let value = Arc::new("a");
        table.add(3, value.clone()).unwrap();
        table.hold();
        // SAFETY: it was locked above.
        unsafe { table.leave_to_parent() };
        assert_eq!((table.find(3), table.all()), (None, Vec::new()));
        assert_eq!((table.get(3), table.get(4)), (Err(PARENTS), Err(NO_SOCKET)));
        assert_eq!((table.remove(3), table.remove(3)), (Ok(None), Err(NO_SOCKET)));
        assert_eq!(Arc::strong_count(&value), 2);

        table.add(3, value).unwrap();
        table.hold();
        // SAFETY: it was locked above.
        unsafe { table.release() };
        assert_eq!(table.remove(3), Ok(Some(Arc::new("a"))));
    }
}
