//! What this library tells MemorySanitizer and ThreadSanitizer.
//!
//! This library is not compiled with them. So MemorySanitizer takes what this library writes for the program as not
//! written. Both take what this library passes to the C library as the program's, and would report it: ThreadSanitizer
//! sees neither the locks here, nor what orders the threads of one end of a connection with those of the other. In a
//! process without them, each call here only looks at one word.
//!
//! The device itself orders commands and events for ThreadSanitizer (`transom_system::sanitizers`).

mod runtimes;

use std::cell::Cell;
use std::ffi::c_void;
use std::marker::PhantomData;

use runtimes::{Runtimes, of_this_process};

thread_local! {
    /// The number of times that this thread has entered this library and not left it.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// As long as this lives, what this thread does is this library's own.
pub(crate) struct Inside(&'static Runtimes, PhantomData<*const ()>);

/// This thread enters this library. `None` if there is no sanitizer.
#[inline]
pub(crate) fn inside() -> Option<Inside> {
    let runtimes = of_this_process()?;
    if INSIDE.replace(INSIDE.get() + 1) == 0 {
        runtimes.begin_inside();
    }
    Some(Inside(runtimes, PhantomData))
}

impl Drop for Inside {
    fn drop(&mut self) {
        if INSIDE.replace(INSIDE.get() - 1) == 1 {
            self.0.end_inside();
        }
    }
}

/// This library has written a value that the program reads.
#[inline]
pub(crate) fn written<T>(value: *const T) {
    bytes_written(value.cast(), size_of::<T>());
}

/// The same of these bytes.
#[inline]
pub(crate) fn bytes_written(from: *const u8, length: usize) {
    if let Some(runtimes) = of_this_process().filter(|_| !from.is_null()) {
        runtimes.define(from.cast(), length);
    }
}

/// Writes a value to where the program wants it.
///
/// # Safety
///
/// `to` is writable.
pub(crate) unsafe fn give<T>(to: *mut T, value: T) {
    // SAFETY: by the contract of this function.
    unsafe { *to = value };
    written(to);
}

/// The program sends these bytes to a peer. Those that it has not written are reported, and those that another thread
/// changes meanwhile.
#[inline]
pub(crate) fn bytes_sent(from: *const u8, length: usize) {
    if let Some(runtimes) = of_this_process() {
        runtimes.check(from.cast(), length);
        touched(runtimes, from.cast(), length, false);
    }
}

/// The program has received these bytes.
#[inline]
pub(crate) fn bytes_received(to: *const u8, length: usize) {
    bytes_written(to, length);
    if let Some(runtimes) = of_this_process() {
        touched(runtimes, to.cast(), length, true);
    }
}

/// The program ends this object, so no other thread of it may look at it any more.
#[inline]
pub(crate) fn ended<T>(object: *const T) {
    if let Some(runtimes) = of_this_process() {
        touched(runtimes, object.cast(), size_of::<T>(), true);
    }
}

/// An access of the program itself to its memory.
#[cold]
fn touched(runtimes: &Runtimes, first: *const c_void, length: usize, writes: bool) {
    let is_inside = INSIDE.get() > 0;
    if is_inside {
        runtimes.end_inside();
    }
    runtimes.touch(first, length, writes);
    if is_inside {
        runtimes.begin_inside();
    }
}

/// All that this thread has done so far comes before what a thread does that is [told](is_told) later. `what` is an
/// address of this library that stands for it.
#[inline]
pub(crate) fn tells<T>(what: *const T) {
    if let Some(runtimes) = of_this_process() {
        runtimes.release(what.cast());
    }
}

/// What other threads did before they [told](tells) this comes before what this thread does from now on.
#[inline]
pub(crate) fn is_told<T>(what: *const T) {
    if let Some(runtimes) = of_this_process() {
        runtimes.acquire(what.cast());
    }
}
