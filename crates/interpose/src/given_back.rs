//! The interface between `libtransom_freed.so` and the checker of its process. The library sees calls of the functions
//! that give memory back. The checker knows which memory has regions.

use std::ffi::{CStr, c_void};
use std::sync::atomic::AtomicUsize;

/// The number of this layout. Both ends must have the same.
pub const VERSION: usize = 1;

/// The name of the function, a [`Watch`], with which a checker asks to be told.
pub const WATCH: &CStr = c"transom_freed_watch";

/// Asks to be told. Everything that the watcher names stays until the process ends. Returns false if another checker
/// was first.
pub type Watch = unsafe extern "C" fn(&'static Watcher) -> bool;

/// A checker.
#[derive(Debug)]
#[repr(C)]
pub struct Watcher {
    /// [`VERSION`].
    pub version: usize,
    /// The bounds of the memory that the checker wants to hear of.
    pub bounds: &'static [AtomicUsize; 2],
    /// A call is about to give some bytes back. Returns null if no region has them.
    pub before: unsafe extern "C" fn(*const c_void, usize) -> *mut c_void,
    /// The call is over. The pointer is the one that `before` returned.
    pub after: unsafe extern "C" fn(*mut c_void, Given),
    /// The program has called a function of `transom.h`, with some bytes or a completion channel.
    pub says: unsafe extern "C" fn(Said, *mut c_void, usize),
}

/// The functions of `transom.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Said {
    /// These bytes are the program's own: the device must not touch them.
    Claims,
    /// The device may have these bytes.
    Releases,
    /// This thread waits for an event of this channel, and for nothing else.
    Waits,
    /// This thread no longer waits.
    Woke,
}

/// How memory was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Given {
    /// It was not: the call failed.
    Not,
    /// It was unmapped.
    Unmapped,
    /// Its pages were dropped. The next access to it gets new pages.
    Emptied,
    /// It went back to the allocator.
    Freed,
}
