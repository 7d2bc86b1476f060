//! `libtransom_malloc.so`: takes a program's page-aligned allocations from the shared memory of its device.
//!
//! `transom run` makes the loader put this library before the C library. Each function only calls the next one of its
//! name until the process opens a device. It does so for ever if the program's allocator is not the C library's, or if
//! a sanitizer watches it. Otherwise the device [offers](servers) its shared memory, and from then on:
//!
//! * allocations aligned to a page or more, but to less than a huge page, come from there while there is room;
//! * all other allocations come from the C library, and never share a page with these;
//! * `free` and `realloc` go to the block's owner. Its address tells: a block of the device begins at a page, and
//!   hardly any other block does, so other blocks pay nothing;
//! * `madvise(2)` empties this memory as it empties any other;
//! * the device is told which of this memory the program protects ([`protection`]);
//! * the device's fork handlers run closest to the fork ([`forks`]).
//!
//! Programs call these functions from anywhere. So this library has no lock and takes no memory of its own. The device
//! has a lock for its blocks, as the C library has for its own. `mprotect` and `madvise`, which handlers of signals may
//! call, take none.

#![deny(clippy::print_stderr, clippy::print_stdout)]

mod advice;
mod allocations;
mod forks;
mod names;
mod next;
mod protection;
mod servers;

/// The loader runs it, before the program and its threads.
extern "C" fn constructor() {
    next::find_all();
    forks::watch();
    // A C library may lack some of them and set errno; a program must start with errno zero.
    transom_thread::set_errno(0);
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;
