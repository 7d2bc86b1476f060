//! What a panic becomes: an error of the device, not the end of a stranger's program.
//!
//! A panic is a mistake of this library that nobody knew of. Whatever thread it happens on, that of a
//! verb or the background thread, it is caught before it reaches the program ([`caught`]). It has let
//! go of its locks on the way, but what they guard may be half done; so the devices of this process
//! have failed, all of them, for they share code and tables: peers see them depart, their queue pairs
//! are in error, each context has an `IBV_EVENT_DEVICE_FATAL`, and verbs answer `EIO` but for those
//! that end something. When the last of these devices is closed, a new one can be opened.

use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::*};

use crate::handlers::handlers;
use crate::say::write_line;

static FAILED: AtomicBool = AtomicBool::new(false);

/// The devices of this process have failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the devices of this process have failed")]
pub struct Failed;

/// Has panics said as far as standard error takes that: what Rust does by itself may end a program whose
/// standard error is gone. They go by no subscriber, for it may be what panicked. For a library that
/// has its Rust to itself; a Rust program has decided for all that is in it.
pub fn say_panics() {
    std::panic::set_hook(Box::new(|panic: &PanicHookInfo<'_>| {
        let message = panic.payload_as_str().unwrap_or("no message");
        match panic.location() {
            Some(at) => write_line(format_args!("transom: {MISTAKE}: {message} ({at})")),
            None => write_line(format_args!("transom: {MISTAKE}: {message}")),
        }
    }));
}

/// What a person can do about it.
const MISTAKE: &str = "a mistake in Transom, which whoever maintains it wants to hear of; the device \
                       has failed";

/// Whether the devices of this process have failed, and are not closed yet.
#[inline]
pub fn has_failed() -> bool {
    FAILED.load(Relaxed)
}

/// Makes a call, and has the devices of this process fail if it panics.
///
/// Do not use it around a wait that `pthread_cancel(3)` may end: that unwinds as well, and cannot be
/// caught.
#[inline]
pub fn caught<T>(call: impl FnOnce() -> T) -> Result<T, Failed> {
    // Nobody sees what a panic has left half done: after it the devices are not used any more.
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        // What a panic carries may panic when it is dropped.
        std::mem::forget(panic);
        fail();
        Failed
    })
}

/// Has the devices of this process fail: of a mistake, or because a user wants to see what a program does
/// when its device goes.
#[cold]
pub fn fail() {
    FAILED.store(true, SeqCst);
    for handler in handlers() {
        let told = catch_unwind(AssertUnwindSafe(|| handler.fail()));
        // The event may be missing then, but not the errors.
        std::mem::forget(told);
    }
}

/// Lets a process begin anew whose failed devices are all closed.
///
/// # Errors
///
/// [`Failed`] if one is left.
pub fn begin_anew() -> Result<(), Failed> {
    if has_failed() {
        // A forked child has begun anew with those that it inherits.
        if handlers().iter().any(|handler| handler.is_own_device()) {
            return Err(Failed);
        }
        FAILED.store(false, SeqCst);
    }
    Ok(())
}
