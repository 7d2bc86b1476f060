//! When a process forks or exits, its devices are told.
//!
//! Forked children inherit this process's objects, and its mappings of segments.
//!
//! A child is not to use them, but its destructors run when it exits, and a destructor that ends a
//! region would end its parent's: the key table is in its segment. So whatever would change a
//! segment is not done in a child ([`Owner::is_another`]): objects end there, and nowhere else; none
//! can be made, and queue pairs are in error, for what it posted would not be seen by those who revoke
//! keys from its parent. That takes no memory, of which a child may get none: a copy of each segment
//! could fail, and leave the child with its parent's. Should anything try to change one all the same, the
//! kernel ends the child before that.
//!
//! A device that it opens itself is its own like any other process's.
//!
//! The background thread does not exist in the child, and would leave the locks that it holds at
//! the fork locked there for ever. So whoever forks first waits until it is done with what it is at,
//! though not for ever: it may be waiting for a stopped process. Other threads of the program must
//! see to it themselves that a fork does not find them inside a verb.
//!
//! Only `fork` runs this. A bare `clone` system call does not; neither need `vfork` and
//! `posix_spawn`, whose children run nothing of ours. Until it calls `exec`, a child made by a bare
//! `clone` keeps its parent's place in the registry, as it keeps all its files, and the parent counts as
//! alive.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use transom_thread::uncancelled;

use crate::failure::{caught, has_failed};
pub use crate::handlers::ForkHandler;
use crate::handlers::HANDLERS;
use crate::lock::ShortMutex;
use crate::this_process::this_process;

/// What is held from before a fork until after it, in parent and child.
static FORKING: ShortMutex<Vec<Held>> = ShortMutex::new(Vec::new());

/// How many forks lie between this process and the one that opened the first device.
static DEPTH: AtomicU64 = AtomicU64::new(0);

/// A number that differs from process to process along a line of forks: what remembers it can tell that
/// it has been inherited, without a system call.
#[inline]
pub fn depth() -> u64 {
    DEPTH.load(Relaxed)
}

/// The process that something belongs to: its number, and its place in a line of forks.
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

    /// Whether it is not this process, but one that this was forked from. It takes no system call.
    #[inline]
    pub fn is_another(self) -> bool {
        // A fork counts even if the child has its parent's number, in a namespace of its own; and a
        // child that was made without the C library has another number.
        self.depth != depth() || self.process != this_process()
    }
}

/// How long a fork waits for each of them, and an exit for all.
const TIMEOUT: Duration = Duration::from_secs(1);

/// A handler during a fork.
struct Held {
    handler: Arc<dyn ForkHandler>,
    /// It is not in the middle of something.
    quiet: bool,
}

/// Has a handler told what becomes of this process, for as long as somebody else has it.
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

/// The thread that exits or forks may have been cancelled (`pthread_cancel(3)`), and ends at calls of its own.
extern "C" fn at_exit() {
    uncancelled(tell_all_of_exit);
}

/// A program may exit with its devices open, and owes its peers the last answers.
fn tell_all_of_exit() {
    // Not locked any longer than that: who finds a mistake tells all of them.
    let handlers = HANDLERS.try_lock().map(|all| all.iter().filter_map(Weak::upgrade).collect());
    let Some(handlers): Option<Vec<_>> = handlers else { return };
    let until = Instant::now() + TIMEOUT;
    if !has_failed() {
        let _ = caught(|| handlers.iter().for_each(|handler| handler.at_exit(until)));
    }
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

/// Has all handlers be quiet until [`release`].
fn hold_all() {
    let handlers = HANDLERS.lock();
    let held = handlers.iter().filter_map(Weak::upgrade).map(|handler| {
        let quiet = handler.hold(Instant::now() + TIMEOUT);
        Held { handler, quiet }
    });
    let held = held.collect();
    // Two threads may fork at once; the second finds the list taken, and waits.
    let mut forking = FORKING.lock();
    *forking = held;
    std::mem::forget((handlers, forking));
}

/// In a forked child.
fn leave_all_to_parent() {
    // SAFETY: locked by `hold_all`, in the thread that this one is the copy of.
    for Held { handler, .. } in unsafe { &*FORKING.data_ptr() } {
        handler.leave_to_parent();
    }
    release();
}

/// Undoes what [`hold_all`] did.
fn release() {
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
    // The last reference to a device may be among these; nothing is locked any more.
    drop(held);
}
