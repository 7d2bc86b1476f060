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
//! be waiting for a stopped process. You must make sure yourself that a fork does not find another thread of the
//! program inside a verb.
//!
//! Only `fork` runs this. A bare `clone` system call does not. `vfork` and `posix_spawn` need not, because their
//! children run nothing of ours. Until it calls `exec`, a child of a bare `clone` keeps its parent's place in the
//! registry, as it keeps all its files, and the parent counts as alive.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use transom_thread::uncancelled;

use crate::failure::caught;
pub use crate::handlers::ForkHandler;
use crate::handlers::HANDLERS;
use crate::lock::ShortMutex;
use crate::this_process::this_process;
use crate::tools;

/// The locks held from before a fork until after it, in parent and child.
static FORKING: ShortMutex<Vec<Held>> = ShortMutex::new(Vec::new());

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
    static REGISTERED: ShortMutex<bool> = ShortMutex::new(false);
    let mut registered = REGISTERED.lock();
    if !*registered {
        // SAFETY: three functions that live as long as this library, which the C library forgets when
        // the library is unloaded.
        let done = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
        if done != 0 {
            return Err(io::Error::from_raw_os_error(done));
        }
        // SAFETY: as above. Without it a peer would ask once more for what it was told too late.
        unsafe { libc::atexit(at_exit) };
        *registered = true;
    }
    let mut handlers = HANDLERS.lock();
    handlers.retain(|known| known.strong_count() > 0);
    handlers.push(handler);
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

/// Makes all handlers pause until [`release`].
fn hold_all() {
    let handlers = HANDLERS.lock();
    let held = handlers.iter().filter_map(Weak::upgrade).map(|handler| {
        let quiet = handler.hold(Instant::now() + TIMEOUT);
        Held { handler, quiet }
    });
    let held = held.collect();
    // Two threads may fork at once. The second finds the list locked, and waits.
    let mut forking = FORKING.lock();
    *forking = held;
    std::mem::forget((handlers, forking));
    tools::hold();
}

/// In a forked child.
fn leave_all_to_parent() {
    // SAFETY: locked by `hold_all`, in the thread that this one is the copy of.
    for Held { handler, .. } in unsafe { &*FORKING.data_ptr() } {
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
    let held = unsafe { std::mem::take(&mut *FORKING.data_ptr()) };
    for Held { handler, .. } in held.iter().filter(|held| held.quiet) {
        // SAFETY: as above; it was held.
        unsafe { handler.release() };
    }
    // SAFETY: as above.
    unsafe {
        FORKING.force_unlock();
        HANDLERS.force_unlock();
    }
    // These may hold the last reference to a device. Nothing is locked any more.
    drop(held);
}
