//! Tells devices when their process forks or exits.
//!
//! A forked child inherits this process's objects, and its mappings of segments.
//!
//! It must not use them, but its destructors run when it exits. A destructor that ends a region would end its parent's,
//! because the key table is in the parent's segment. So a child changes no inherited segment ([`Owner::is_another`]).
//! Objects end in the child only. It can make none, and its queue pairs are in error, because a thread that revokes
//! keys in the parent would not see the child's posts. All this takes no memory, which a child may not get: copying
//! each segment could fail, and leave the child with its parent's. If anything tries to change one all the same, the
//! kernel ends the child first.
//!
//! A device that the child opens itself is its own.
//!
//! The background thread does not exist in the child. Locks that it holds at the fork would stay locked there for ever.
//! So a fork first waits until that thread has finished its current work. The wait is bounded, because the thread may
//! be waiting for a stopped process.
//!
//! Another thread of the program may be inside a verb. The locks of an object that it uses stay locked in the child,
//! which has no use for its parent's objects. But verbs also lock what the whole process has, such as the list of its
//! devices, and the child needs that for a device of its own. So a fork holds these locks too ([`hold_too`]).
//!
//! Only `fork` runs this. A bare `clone` system call does not. `vfork` and `posix_spawn` need not, because their
//! children run nothing of ours. Until it calls `exec`, a child of a bare `clone` keeps its parent's place in the
//! registry, as it keeps all its files, and the parent counts as alive.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use transom_thread::uncancelled;

use crate::failure::caught;
pub use crate::handlers::ForkHandler;
use crate::handlers::HANDLERS;
use crate::lock::{ShortMutex, SleepingMutex};
use crate::this_process::this_process;
use crate::tools;

/// What is held from before a fork until after it, in parent and child.
static FORKING: ShortMutex<Forking> =
    ShortMutex::new(Forking { handlers: Vec::new(), locks: Vec::new() });

/// The locks of [`hold_too`].
static LOCKS: ShortMutex<Vec<&'static dyn HeldOverForks>> = ShortMutex::new(Vec::new());

/// How many forks lie between this process and the one that opened the first device.
static DEPTH: AtomicU64 = AtomicU64::new(0);

/// A number that differs from process to process along a line of forks. An object that remembers it can tell without a
/// system call that it has been inherited.
#[inline]
pub fn depth() -> u64 {
    DEPTH.load(Relaxed)
}

/// The process that an object belongs to: its PID, and its place in a line of forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    process: u32,
    depth: u64,
}

impl Owner {
    /// This process.
    pub fn this() -> Self {
        Self { process: this_process(), depth: depth() }
    }

    /// Whether the owner is not this process, but one that this was forked from. It takes no system call.
    #[inline]
    pub fn is_another(self) -> bool {
        // A fork counts even if the child has its parent's PID, in a PID namespace of its own. A child made without the
        // C library has another PID.
        self.depth != depth() || self.process != this_process()
    }
}

/// How long a fork waits for each of them, and an exit for all.
const TIMEOUT: Duration = Duration::from_secs(1);

/// A lock of the whole process, which a forked child needs whatever threads its parent has.
pub trait HeldOverForks: Sync {
    /// Locks it if it is free.
    fn try_hold(&self) -> bool;

    /// Whether this thread has locked it: it forks in the handler of a signal.
    fn is_held_here(&self) -> bool;

    /// Unlocks it.
    ///
    /// # Safety
    ///
    /// `try_hold` has returned true, in this thread or in the thread that it is the copy of.
    unsafe fn release(&self);
}

impl<T: Send> HeldOverForks for SleepingMutex<T> {
    fn try_hold(&self) -> bool {
        self.try_lock().map(std::mem::forget).is_some()
    }

    fn is_held_here(&self) -> bool {
        // SAFETY: it is only looked at.
        unsafe { self.raw() }.is_held_here()
    }

    unsafe fn release(&self) {
        // SAFETY: by the contract of this function.
        unsafe { self.force_unlock() };
    }
}

/// Forks hold these locks too from now on, once [`begin`] was called.
pub fn hold_too(locks: &[&'static dyn HeldOverForks]) {
    let mut all = LOCKS.lock();
    for lock in locks {
        if !all.iter().any(|known| std::ptr::addr_eq(*known, *lock)) {
            all.push(*lock);
        }
    }
}

/// What a fork holds.
struct Forking {
    handlers: Vec<Held>,
    locks: Vec<&'static dyn HeldOverForks>,
}

/// A handler during a fork.
struct Held {
    handler: Arc<dyn ForkHandler>,
    /// It has paused its work.
    quiet: bool,
}

/// Registers a handler for this process's forks and exit, for as long as somebody else keeps it.
///
/// # Errors
///
/// That of `pthread_atfork(3)`.
pub fn watch(handler: Weak<dyn ForkHandler>) -> io::Result<()> {
    begin()?;
    let mut handlers = HANDLERS.lock();
    handlers.retain(|known| known.strong_count() > 0);
    handlers.push(handler);
    Ok(())
}

/// From now on, this hears of forks and of the exit. The handlers that copy shared memory must be registered before, so
/// that they are called after these before a fork.
///
/// # Errors
///
/// That of `pthread_atfork(3)`.
pub fn begin() -> io::Result<()> {
    // No lock, which a fork could find held.
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if !REGISTERED.swap(true, Relaxed) {
        // SAFETY: three functions that live as long as this library, which the C library forgets when
        // the library is unloaded.
        let done = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
        if done != 0 {
            REGISTERED.store(false, Relaxed);
            return Err(io::Error::from_raw_os_error(done));
        }
        // SAFETY: as above. Without it a peer would ask once more for what it was told too late.
        unsafe { libc::atexit(at_exit) };
    }
    Ok(())
}

/// A thread that exits or forks may have been cancelled (`pthread_cancel(3)`), and ends at system calls of its own.
extern "C" fn at_exit() {
    uncancelled(tell_all_of_exit);
}

/// A program may exit with its devices open, and owes its peers the last answers. It may exit in the handler of a
/// signal that has interrupted this very thread in `malloc`. So this takes no memory, gives none back, and waits for no
/// lock.
fn tell_all_of_exit() {
    let until = Instant::now() + TIMEOUT;
    let _ = caught(|| {
        let mut end = usize::MAX;
        while let Some(handler) = last_before(&mut end) {
            handler.at_exit(until);
            // The last reference to a device would free it here.
            std::mem::forget(handler);
        }
    });
}

/// The last handler before a place in the list, and its place. From last to first none is missed if some are removed
/// meanwhile. The lock is not held for longer, because a thread that finds a defect tells all handlers.
fn last_before(end: &mut usize) -> Option<Arc<dyn ForkHandler>> {
    let all = HANDLERS.try_lock()?;
    let before = all.iter().enumerate().take(*end).rev();
    let (place, found) = before.filter_map(|(at, one)| Some((at, one.upgrade()?))).next()?;
    *end = place;
    Some(found)
}

unsafe extern "C" fn before() {
    uncancelled(hold_all);
}

unsafe extern "C" fn in_parent() {
    uncancelled(release);
}

unsafe extern "C" fn in_child() {
    DEPTH.fetch_add(1, Relaxed);
    uncancelled(leave_all_to_parent);
}

/// Makes all handlers pause until [`release`], and holds all locks.
fn hold_all() {
    // Two threads may fork at once. The second finds this locked, and waits.
    let mut forking = FORKING.lock();
    // These first: a thread that holds one of them may add a handler.
    forking.locks = hold_locks();
    let (locks, handlers) = (LOCKS.lock(), HANDLERS.lock());
    let held = handlers.iter().filter_map(Weak::upgrade).map(|handler| {
        let quiet = handler.hold(Instant::now() + TIMEOUT);
        Held { handler, quiet }
    });
    forking.handlers = held.collect();
    std::mem::forget((locks, handlers, forking));
    tools::hold();
}

/// Takes the locks, and returns them. The threads that hold them may take several in any order. So this holds none
/// while it waits for another. If one is not free in time, it is left out. One that this very thread holds, in a verb
/// that a signal has interrupted, it goes on to hold in the child.
fn hold_locks() -> Vec<&'static dyn HeldOverForks> {
    let mut all = LOCKS.lock().clone();
    all.retain(|lock| !lock.is_held_here());
    let until = Instant::now() + TIMEOUT;
    loop {
        let is_over = Instant::now() > until;
        let mut held = Vec::with_capacity(all.len());
        for lock in &all {
            if lock.try_hold() {
                held.push(*lock);
            } else if !is_over {
                break;
            }
        }
        if is_over || held.len() == all.len() {
            return held;
        }
        // SAFETY: they were held above.
        held.into_iter().for_each(|lock| unsafe { lock.release() });
        std::thread::yield_now();
    }
}

/// In a forked child.
fn leave_all_to_parent() {
    // SAFETY: locked by `hold_all`, in the thread that this one is the copy of.
    for Held { handler, .. } in unsafe { &(*FORKING.data_ptr()).handlers } {
        handler.leave_to_parent();
    }
    tools::leave_to_parent();
    release();
}

/// Undoes what [`hold_all`] did.
fn release() {
    // SAFETY: held by `hold_all`, in this thread or in the one that this one is the copy of.
    unsafe { tools::release() };
    // SAFETY: locked by `hold_all`, in this thread or in the one that this one is the copy of.
    let (held, locks) = unsafe {
        let forking = &mut *FORKING.data_ptr();
        (std::mem::take(&mut forking.handlers), std::mem::take(&mut forking.locks))
    };
    for Held { handler, .. } in held.iter().filter(|held| held.quiet) {
        // SAFETY: as above; it was held.
        unsafe { handler.release() };
    }
    // SAFETY: as above.
    unsafe {
        HANDLERS.force_unlock();
        LOCKS.force_unlock();
        locks.into_iter().for_each(|lock| lock.release());
        FORKING.force_unlock();
    }
    // These may hold the last reference to a device. Nothing is locked any more.
    drop(held);
}
