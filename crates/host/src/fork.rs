//! What happens to devices when a process forks or exits.
//!
//! Forked children inherit this process's objects, and its mappings of shared memory.
//!
//! A child is not to use them, but its destructors run when it exits, and a destructor that ends a
//! region would end its parent's: the key table is shared memory. So whatever would change shared
//! memory is not done in a child ([`Adapter::is_inherited`]): objects end there, and nowhere else; none
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

use crate::adapter::Adapter;
use crate::failure::{caught, has_failed};
use crate::lock::ShortMutex;

/// The devices of this process, and of those it was forked from.
static DEVICES: ShortMutex<Vec<Weak<Adapter>>> = ShortMutex::new(Vec::new());

/// What is held from before a fork until after it, in parent and child.
static FORKING: ShortMutex<Vec<Held>> = ShortMutex::new(Vec::new());

/// How many forks lie between this process and the one that opened the first device.
static DEPTH: AtomicU64 = AtomicU64::new(0);

/// A number that differs from process to process along a line of forks: what remembers it can tell that
/// it has been inherited, without a system call.
pub(crate) fn depth() -> u64 {
    DEPTH.load(Relaxed)
}

/// How long a fork waits for the background thread, and an exit for whoever has a queue pair's lock.
const PATIENCE: Duration = Duration::from_secs(1);

/// A device during a fork.
struct Held {
    device: Arc<Adapter>,
    /// Its background thread is not in the middle of something.
    quiet: bool,
}

/// The devices that this process knows.
pub(crate) fn devices() -> Vec<Arc<Adapter>> {
    DEVICES.lock().iter().filter_map(Weak::upgrade).collect()
}

/// Sees to it that a fork leaves this device to this process.
pub(crate) fn watch(device: &Arc<Adapter>) -> io::Result<()> {
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
    let mut devices = DEVICES.lock();
    devices.retain(|known| known.strong_count() > 0);
    devices.push(Arc::downgrade(device));
    Ok(())
}

/// A program may exit with its devices open, and owes its peers the last answers.
extern "C" fn at_exit() {
    let Some(devices) = DEVICES.try_lock() else { return };
    let devices: Vec<_> = devices.iter().filter_map(Weak::upgrade).collect();
    let until = Instant::now() + PATIENCE;
    let last = |device: &Arc<Adapter>| {
        device.acknowledge_all(until);
        device.send_rest();
    };
    if !has_failed() {
        let _ = caught(|| devices.iter().for_each(last));
    }
}

unsafe extern "C" fn before() {
    let devices = DEVICES.lock();
    let held = devices.iter().filter_map(Weak::upgrade).map(|device| {
        let until = Instant::now() + PATIENCE;
        let working = &device.progress.working;
        let quiet = loop {
            if let Some(guard) = working.try_lock() {
                std::mem::forget(guard);
                break true;
            }
            if Instant::now() > until {
                break false;
            }
            std::thread::yield_now();
        };
        Held { device, quiet }
    });
    let held = held.collect();
    // Two threads may fork at once; the second finds the list taken, and waits.
    let mut forking = FORKING.lock();
    *forking = held;
    std::mem::forget((devices, forking));
}

unsafe extern "C" fn in_parent() {
    release();
}

unsafe extern "C" fn in_child() {
    DEPTH.fetch_add(1, Relaxed);
    // SAFETY: locked by `before`, in the thread that this one is the copy of.
    for Held { device, .. } in unsafe { &*FORKING.data_ptr() } {
        device.protect_segments();
        device.claim.leave_to_parent();
        device.leave_port();
    }
    release();
}

/// Undoes what [`before`] did.
fn release() {
    // SAFETY: locked by `before`, in this thread or in the one that this one is the copy of.
    let held = unsafe { std::mem::take(&mut *FORKING.data_ptr()) };
    for Held { device, .. } in held.iter().filter(|held| held.quiet) {
        // SAFETY: as above.
        unsafe { device.progress.working.force_unlock() };
    }
    // SAFETY: as above.
    unsafe {
        FORKING.force_unlock();
        DEVICES.force_unlock();
    }
    // The last reference to a device may be among these; nothing is locked any more.
    drop(held);
}
