//! A panic becomes an error of the device, and does not end a stranger's program.
//!
//! A panic is a defect of this library that nobody knew of. It may happen in a verb or on the background thread. It is
//! caught before it reaches the program ([`caught`]). It releases its locks on the way, but may leave their data half
//! changed. So all devices of this process fail, because they share code and tables: peers see them depart, their queue
//! pairs are in error, each context gets an `IBV_EVENT_DEVICE_FATAL`, and verbs return `EIO` except those that end
//! something. When the last of these devices is closed, a new one can be opened.
//!
//! A device that is removed ([`remove`]) goes alone.

use std::any::Any;
use std::cell::Cell;
use std::ops::BitOr;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering::*};

use crate::handlers::handlers;
use crate::registry;
use crate::say::write_line;

/// What has failed of this process, and is not closed yet: a bit for each device that was removed, by its number, or
/// [`EVERYTHING`].
static FAILED: AtomicU32 = AtomicU32::new(0);

/// All devices have failed.
const EVERYTHING: u32 = 1 << 31;

const _: () = assert!(registry::DEVICES < 31);

/// The devices of this process have failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the devices of this process have failed")]
pub struct Failed;

/// Reports panics on standard error, as far as it accepts them. Rust's own report may end a program whose standard
/// error is gone. The report uses no `tracing` subscriber, because that may be what panicked. This is for a library
/// that has its Rust to itself: a Rust program decides for everything in it.
pub fn say_panics() {
    std::panic::set_hook(Box::new(|panic: &PanicHookInfo<'_>| {
        let message = panic.payload_as_str().unwrap_or("no message");
        let ended =
            if IS_ASIDE.get() { "this process is not checked" } else { "the device has failed" };
        let at = panic.location().map(|at| format!(" ({at})")).unwrap_or_default();
        write_line(format_args!(
            "transom: a mistake in Transom, so {ended}. Please report it: {message}{at}"
        ));
    }));
}

thread_local! {
    /// This thread makes a call of [`caught_aside`].
    static IS_ASIDE: Cell<bool> = const { Cell::new(false) };
}

/// Makes a call that only watches what the devices do. If it panics, they go on.
///
/// # Errors
///
/// The message of the panic.
pub fn caught_aside<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    let was_aside = IS_ASIDE.replace(true);
    let result = catch_unwind(AssertUnwindSafe(call));
    IS_ASIDE.set(was_aside);
    result.map_err(|panic| {
        let message = message_of(&*panic);
        // Dropping the payload of a panic may panic again.
        std::mem::forget(panic);
        message
    })
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or(panic.downcast_ref().map(String::as_str)).unwrap_or("no message").to_owned()
}

/// Whether the devices of this process have failed, and are not closed yet.
#[inline]
pub fn has_failed() -> bool {
    FAILED.load(Relaxed) & EVERYTHING != 0
}

/// Whether any device of this process has failed or was removed, and is not closed yet.
#[inline]
pub fn any_has_failed() -> bool {
    FAILED.load(Relaxed) != 0
}

/// Makes a call. If it panics, the devices of this process fail.
///
/// Do not use it around a wait that `pthread_cancel(3)` may end: that unwinds as well, and cannot be caught.
#[inline]
pub fn caught<T>(call: impl FnOnce() -> T) -> Result<T, Failed> {
    // Nobody sees data that a panic left half changed, because the devices are not used any more.
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        // Dropping the payload of a panic may panic again.
        std::mem::forget(panic);
        fail();
        Failed
    })
}

/// Fails the devices of this process, because of a defect, or because a user wants to see what a program does when its
/// device goes.
#[cold]
pub fn fail() {
    FAILED.fetch_or(EVERYTHING, SeqCst);
    for handler in handlers() {
        let told = catch_unwind(AssertUnwindSafe(|| handler.fail()));
        // The event may be missing then, but the errors are not.
        std::mem::forget(told);
    }
}

/// Whether any device of a program that has so many beside one of them was not removed, or was closed since.
pub fn any_is_left(others: u8) -> bool {
    let failed = FAILED.load(SeqCst);
    failed & EVERYTHING == 0 && failed.count_ones() <= others.into()
}

/// Removes the device of this number, as if it were unplugged. The others of this process, so many, go on. If all of
/// them were removed before, they hear that none is left.
#[cold]
pub fn remove(device: u8, others: u8) {
    FAILED.fetch_or(bit(device), SeqCst);
    let hears = |own| own == device || !any_is_left(others);
    for handler in handlers().iter().filter(|handler| handler.own_device().is_some_and(hears)) {
        if catch_unwind(AssertUnwindSafe(|| handler.fail())).is_err() {
            fail();
        }
    }
}

/// A device was closed: those that were removed, and of which none is left, are not remembered any more.
pub fn forget_removed() {
    // Seldom is there any.
    if any_has_failed() {
        let _ = FAILED.fetch_update(SeqCst, SeqCst, |failed| Some(failed & (left() | EVERYTHING)));
    }
}

/// Resets a process whose failed devices are all closed.
///
/// # Errors
///
/// [`Failed`] if one is left.
pub fn begin_anew() -> Result<(), Failed> {
    // A forked child has been reset along with the devices that it inherits.
    forget_removed();
    if has_failed() {
        if left() != 0 {
            return Err(Failed);
        }
        FAILED.store(0, SeqCst);
    }
    Ok(())
}

/// The devices of this process's own, as bits of [`FAILED`].
fn left() -> u32 {
    handlers().iter().filter_map(|handler| handler.own_device()).map(bit).fold(0, BitOr::bitor)
}

fn bit(device: u8) -> u32 {
    1_u32.checked_shl(device.into()).unwrap_or(0) & !EVERYTHING
}
