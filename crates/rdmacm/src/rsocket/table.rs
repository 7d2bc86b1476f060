//! The sockets of the process, by their numbers.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::Arc;

use parking_lot::RwLock;

/// Values by the descriptors that they have.
#[derive(Debug)]
pub(crate) struct Table<T>(RwLock<Vec<Option<Arc<T>>>>);

impl<T> Table<T> {
    pub(crate) const fn new() -> Self {
        Self(RwLock::new(Vec::new()))
    }

    /// What has this number.
    pub(crate) fn get(&self, number: RawFd) -> Result<Arc<T>, c_int> {
        self.find(number).ok_or(libc::EBADF)
    }

    /// What has this number, if anything.
    pub(crate) fn find(&self, number: RawFd) -> Option<Arc<T>> {
        let at = usize::try_from(number).ok()?;
        self.0.read().get(at)?.clone()
    }

    /// Adds what has this number.
    pub(crate) fn add(&self, number: RawFd, value: Arc<T>) -> Result<(), c_int> {
        let at = usize::try_from(number).map_err(|_| libc::EBADF)?;
        let mut all = self.0.write();
        if all.len() <= at {
            all.try_reserve(at + 1).map_err(|_| libc::ENOMEM)?;
            all.resize_with(at + 1, || None);
        }
        all[at] = Some(value);
        Ok(())
    }

    /// Takes out what has this number.
    pub(crate) fn remove(&self, number: RawFd) -> Result<Arc<T>, c_int> {
        let at = usize::try_from(number).map_err(|_| libc::EBADF)?;
        self.0.write().get_mut(at).and_then(Option::take).ok_or(libc::EBADF)
    }

    /// All there are.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.0.read().iter().flatten().cloned().collect()
    }
}
