//! What `libtransom_freed.so` and the checker of its process tell each other: the one stands before the functions of the
//! C library that give memory back, the other knows what memory has regions.

use std::ffi::{CStr, c_void};
use std::sync::atomic::AtomicUsize;

/// The number of this layout: both ends are to have the same.
pub const VERSION: usize = 1;

/// The name of the function, a [`Watch`], by which a checker asks to be told.
pub const WATCH: &CStr = c"transom_freed_watch";

/// How a checker asks to be told. All that it names stays until the process ends. False if another one was first.
pub type Watch = unsafe extern "C" fn(&'static Watcher) -> bool;

/// A checker.
#[derive(Debug)]
#[repr(C)]
pub struct Watcher {
    /// [`VERSION`].
    pub version: usize,
    /// Where the memory begins and ends that is looked at: nothing beyond is told.
    pub bounds: &'static [AtomicUsize; 2],
    /// A call is about to give some bytes back. Null if that is of no account.
    pub before: unsafe extern "C" fn(*const c_void, usize) -> *mut c_void,
    /// The call is over, of which `before` has answered that.
    pub after: unsafe extern "C" fn(*mut c_void, Given),
    /// The program says something of some bytes, or of a completion channel.
    pub says: unsafe extern "C" fn(Said, *mut c_void, usize),
}

/// What a program says, by the functions of `transom.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Said {
    /// These bytes are its own: the device must not touch them.
    Claims,
    /// The device may have them.
    Releases,
    /// This thread waits for an event of this channel, and for nothing else.
    Waits,
    /// It waits no more.
    Woke,
}

/// How memory was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Given {
    /// It was not: the call failed.
    Not,
    /// It is mapped no more.
    Unmapped,
    /// Its pages were dropped. When it is touched again, it has others.
    Emptied,
    /// It went back to the allocator.
    Freed,
}
