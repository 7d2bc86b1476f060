//! What this library tells MemorySanitizer and ThreadSanitizer.
//!
//! This library is not compiled with them. So MemorySanitizer takes what this library writes for the program as not
//! written. Both take what this library passes to the C library as the program's, and would report it: ThreadSanitizer
//! sees neither the locks here, nor what orders the threads of one end of a connection with those of the other. In a
//! process without them, each call here only looks at one word.
//!
//! The device itself orders commands and events for ThreadSanitizer (`transom_system::sanitizers`).

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;

use transom_sanitizers::{MemorySanitizer, ThreadSanitizer};

/// The sanitizers of this process.
struct Sanitizers {
    memory: Option<MemorySanitizer>,
    thread: Option<ThreadSanitizer>,
}

/// Those of this process, if it was compiled with one of them.
#[inline]
fn of_this_process() -> Option<&'static Sanitizers> {
    static FOUND: OnceLock<Option<Sanitizers>> = OnceLock::new();
    FOUND.get_or_init(Sanitizers::find).as_ref()
}

#[inline]
fn memory() -> Option<&'static MemorySanitizer> {
    of_this_process()?.memory.as_ref()
}

#[inline]
fn thread() -> Option<&'static ThreadSanitizer> {
    of_this_process()?.thread.as_ref()
}

impl Sanitizers {
    fn find() -> Option<Self> {
        let found = Self { memory: MemorySanitizer::find(), thread: ThreadSanitizer::find() };
        (found.memory.is_some() || found.thread.is_some()).then_some(found)
    }

    /// From now on the accesses of this thread are not the program's.
    fn begin_inside(&self) {
        self.memory.iter().for_each(MemorySanitizer::pause);
        self.thread.iter().for_each(ThreadSanitizer::pause);
    }

    /// Ends what [`Sanitizers::begin_inside`] has begun.
    fn end_inside(&self) {
        self.memory.iter().for_each(MemorySanitizer::resume);
        self.thread.iter().for_each(ThreadSanitizer::resume);
    }
}

thread_local! {
    /// The number of times that this thread has entered this library and not left it.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// As long as this lives, what this thread does is this library's own.
pub(crate) struct Inside(&'static Sanitizers, PhantomData<*const ()>);

/// This thread enters this library. `None` if there is no sanitizer.
#[inline]
pub(crate) fn inside() -> Option<Inside> {
    let sanitizers = of_this_process()?;
    if INSIDE.replace(INSIDE.get() + 1) == 0 {
        sanitizers.begin_inside();
    }
    Some(Inside(sanitizers, PhantomData))
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
    if let Some(msan) = memory().filter(|_| !from.is_null()) {
        msan.define(from as u64, length as u64);
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
    if let Some(msan) = memory() {
        msan.check(from as u64, length as u64);
    }
    touched(from, length, false);
}

/// The program has received these bytes.
#[inline]
pub(crate) fn bytes_received(to: *const u8, length: usize) {
    bytes_written(to, length);
    touched(to, length, true);
}

/// The program ends this object, so no other thread of it may look at it any more.
#[inline]
pub(crate) fn ended<T>(object: *const T) {
    touched(object.cast(), size_of::<T>(), true);
}

/// An access of the program itself to its memory.
#[inline]
fn touched(first: *const u8, length: usize, writes: bool) {
    if let Some(tsan) = thread() {
        touch(tsan, first as u64, length as u64, writes);
    }
}

#[cold]
fn touch(tsan: &ThreadSanitizer, address: u64, length: u64, writes: bool) {
    let is_inside = INSIDE.get() > 0;
    if is_inside {
        tsan.resume();
    }
    tsan.touch(address, length, writes);
    if is_inside {
        tsan.pause();
    }
}

/// All that this thread has done so far comes before what a thread does that is [told](is_told) later. `what` is an
/// address of this library that stands for it.
#[inline]
pub(crate) fn tells<T>(what: *const T) {
    if let Some(tsan) = thread() {
        tsan.release(what as u64);
    }
}

/// What other threads did before they [told](tells) this comes before what this thread does from now on.
#[inline]
pub(crate) fn is_told<T>(what: *const T) {
    if let Some(tsan) = thread() {
        tsan.acquire(what as u64);
    }
}
