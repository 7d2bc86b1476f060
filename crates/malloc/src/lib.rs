//! `libtransom_malloc.so`: has what a program allocates aligned to a page come from the shared memory of its device.
//!
//! `transom run` has the loader put this before the C library. Until the process opens a device, and always where the
//! program's allocator is not the C library's or a sanitizer watches it, each function does no more than call the next
//! one of its name. Then the device [offers](servers) its shared memory:
//!
//! * what is aligned to a page or more, but less than to a huge page, is taken from there, if there is room;
//! * all other allocations are the C library's, and never share a page with it;
//! * what is freed or enlarged goes to whom it is from, which its address tells: one of the device's begins at a page,
//!   and hardly any other does, so nobody else's pays for that;
//! * `madvise(2)` empties such memory as it empties any other;
//! * what the program protects of such memory the device is told ([`protection`]);
//! * around a fork the device is told before all others ([`forks`]).
//!
//! These functions are called from anywhere: they take no lock and no memory of their own.

#![deny(clippy::print_stderr, clippy::print_stdout)]

mod advice;
mod allocations;
mod forks;
mod names;
mod next;
mod protection;
mod servers;

/// Run by the loader, before the program and its threads.
extern "C" fn constructor() {
    next::find_all();
    forks::watch();
    // A C library has not all of them, but a program starts without an error.
    transom_thread::set_errno(0);
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;
