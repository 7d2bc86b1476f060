//! Who is told what becomes of a process: it forks, it exits, or it finds a mistake of its own.

use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::lock::ShortMutex;

/// Something of this process's, a device, that is told what becomes of the process.
pub trait ForkHandler: Send + Sync {
    /// The process is about to fork: waits until nothing of this is in the middle of something, though
    /// no longer than until `until`, and has it stay so. False if that was in vain.
    fn hold(&self, until: Instant) -> bool;

    /// Ends [`ForkHandler::hold`].
    ///
    /// # Safety
    ///
    /// That has returned true, in this thread or in the one that it is the copy of.
    unsafe fn release(&self);

    /// This is a forked child, and what is shared stays its parent's. It is called before
    /// [`ForkHandler::release`], with no other thread in the process.
    fn leave_to_parent(&self);

    /// The program exits. Nobody waits longer than until `until`.
    fn at_exit(&self, until: Instant);

    /// The process has found a mistake in this library: nothing of this is used any more.
    fn fail(&self);

    /// Whether it is a device of this process's own, which it has not inherited: one that has failed is to be
    /// closed before another is opened.
    fn is_own_device(&self) -> bool;
}

/// Those who are told, of this process and of those it was forked from.
pub(crate) static HANDLERS: ShortMutex<Vec<Weak<dyn ForkHandler>>> = ShortMutex::new(Vec::new());

/// Those who are told, as far as they are there.
pub(crate) fn handlers() -> Vec<Arc<dyn ForkHandler>> {
    HANDLERS.lock().iter().filter_map(Weak::upgrade).collect()
}
