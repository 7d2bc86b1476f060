//! The listeners for a process's fork, exit, or own defect.

use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::lock::ShortMutex;

/// An object of this process, a device, that hears of the process's fork, exit or failure.
pub trait ForkHandler: Send + Sync {
    /// The process is about to fork: waits until all work of this object has paused, at most until `until`, and keeps
    /// it paused. False if it did not pause in time.
    fn hold(&self, until: Instant) -> bool;

    /// Ends [`ForkHandler::hold`].
    ///
    /// # Safety
    ///
    /// `hold` has returned true, in this thread or in the thread that it is the copy of.
    unsafe fn release(&self);

    /// This is a forked child, and shared things stay its parent's. It is called before [`ForkHandler::release`], with
    /// no other thread in the process.
    fn leave_to_parent(&self);

    /// The program exits, perhaps in the handler of a signal: this takes no lock and no memory, and gives none back.
    /// Waits end at `until`.
    fn at_exit(&self, until: Instant);

    /// The process has found a defect in this library, or the device was removed. Nothing of this object is used any
    /// more. It is called again when no device is left.
    fn fail(&self);

    /// The number of this device. `None` if it is none of this process's own, but an inherited one or no device. A
    /// failed device must be closed before another is opened.
    fn own_device(&self) -> Option<u8>;
}

/// The listeners, of this process and of those it was forked from.
pub(crate) static HANDLERS: ShortMutex<Vec<Weak<dyn ForkHandler>>> = ShortMutex::new(Vec::new());

/// The listeners that still exist.
pub(crate) fn handlers() -> Vec<Arc<dyn ForkHandler>> {
    HANDLERS.lock().iter().filter_map(Weak::upgrade).collect()
}
