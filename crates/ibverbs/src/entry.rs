//! The entry of every call from C, and its answer.
//!
//! A verb is a closure that returns a value or an errno, and has a name. Here, a panic becomes a failure of the device
//! and `EIO` (`transom_system::failure`). Once all devices have failed, control verbs do not begin. Once one was removed, they
//! do not find its objects. Posts and polls trust their pointers, so each asks about its device itself
//! ([`check_device`]).
//! An errno is noted for `transom explain`, unless the verb has noted more itself ([`told`]). It is also written to
//! `errno`, whatever the verb returns by its convention.
//!
//! | convention | function | also after the device has failed |
//! |---|---|---|
//! | zero, or an errno | [`errno_of`] | [`errno_always`] |
//! | a pointer, or null | [`pointer_of`] | [`pointer_always`] |
//! | a number, or -1 | [`number_of`] | [`number_always`] |
//! | nothing | | [`effect_always`] |
//! | any, where every nanosecond counts | [`guarded`] | [`guarded_always`] |
//!
//! Verbs that end something always run; otherwise a program could not end. Functions that only read fields of their
//! arguments, or return a constant, do not need this module.

use std::ffi::c_int;
use std::ptr::null_mut;

use transom_host::device::Device;
use transom_system::failure::{Failed, any_has_failed, caught, has_failed};
use transom_system::sanitizers;
use transom_thread::{set_errno, uncancelled};

use crate::{sanitized, told};

/// Runs a verb, unless all devices have failed. An error is in `errno` afterwards.
#[inline]
pub(crate) fn guarded<T>(
    name: &'static str,
    verb: impl FnOnce() -> Result<T, c_int>,
) -> Result<T, c_int> {
    if any_has_failed() && has_failed() {
        return refused(name, libc::EIO);
    }
    guarded_always(name, verb)
}

/// `EIO` if this device has failed. It is asked for only once any has.
#[inline]
pub(crate) fn check_device<'a>(device: impl FnOnce() -> &'a Device) -> Result<(), c_int> {
    /// Far from those for whom every nanosecond counts.
    #[cold]
    fn check(device: &Device) -> Result<(), c_int> {
        if has_failed() || device.check().is_err() { Err(libc::EIO) } else { Ok(()) }
    }
    if any_has_failed() { check(device()) } else { Ok(()) }
}

/// Runs a control verb, unless its device has failed, which it finds out when it looks for its objects.
fn guarded_found<T>(
    name: &'static str,
    verb: impl FnOnce() -> Result<T, c_int>,
) -> Result<T, c_int> {
    guarded(name, || told::while_barred(|| controlled(name, verb)))
}

/// Runs a verb. An error is in `errno` afterwards.
#[inline]
pub(crate) fn guarded_always<T>(
    name: &'static str,
    verb: impl FnOnce() -> Result<T, c_int>,
) -> Result<T, c_int> {
    let _inside = sanitizers::inside();
    let verb = || {
        #[cfg(test)]
        tests::panic_if_wanted();
        verb()
    };
    match caught(verb) {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(errno)) => refused(name, errno),
        Err(Failed) => refused(name, libc::EIO),
    }
}

/// Notes that the verb is refused, unless it has done so itself, and sets `errno`.
#[cold]
fn refused<T>(name: &'static str, errno: c_int) -> Result<T, c_int> {
    told::answered(name, errno);
    set_errno(errno);
    Err(errno)
}

/// Runs a control verb. It cannot be cancelled, and its object's device is recorded. A verb on the fast path does not
/// pay for this.
fn controlled<T>(name: &'static str, verb: impl FnOnce() -> Result<T, c_int>) -> Result<T, c_int> {
    told::begin(name);
    let _watched = sanitized::verb(name);
    uncancelled(verb)
}

/// Zero, or an errno.
#[inline]
pub(crate) fn zero_or(result: Result<(), c_int>) -> c_int {
    result.err().unwrap_or(0)
}

/// Zero, or an errno.
pub(crate) fn errno_of(name: &'static str, verb: impl FnOnce() -> Result<(), c_int>) -> c_int {
    zero_or(guarded_found(name, verb))
}

/// Zero, or an errno. It runs also after the device has failed.
pub(crate) fn errno_always(name: &'static str, verb: impl FnOnce() -> Result<(), c_int>) -> c_int {
    zero_or(guarded_always(name, || controlled(name, verb)))
}

/// A pointer, or null.
pub(crate) fn pointer_of<T>(
    name: &'static str,
    verb: impl FnOnce() -> Result<*mut T, c_int>,
) -> *mut T {
    guarded_found(name, verb).unwrap_or(null_mut())
}

/// A pointer, or null. It runs also after the device has failed.
pub(crate) fn pointer_always<T>(
    name: &'static str,
    verb: impl FnOnce() -> Result<*mut T, c_int>,
) -> *mut T {
    guarded_always(name, || controlled(name, verb)).unwrap_or(null_mut())
}

/// A number, or -1.
pub(crate) fn number_of(name: &'static str, verb: impl FnOnce() -> Result<c_int, c_int>) -> c_int {
    guarded_found(name, verb).unwrap_or(-1)
}

/// A number, or -1. It runs also after the device has failed.
pub(crate) fn number_always(
    name: &'static str,
    verb: impl FnOnce() -> Result<c_int, c_int>,
) -> c_int {
    guarded_always(name, || controlled(name, verb)).unwrap_or(-1)
}

/// Nothing. It runs also after the device has failed.
pub(crate) fn effect_always(verb: impl FnOnce()) {
    let effect = || {
        verb();
        Ok(())
    };
    let _ = guarded_always("", || uncancelled(effect));
}

#[cfg(test)]
mod tests;
