//! `libtransom_freed.so` tells the checker of its process which memory the program gives back.
//!
//! Only `transom check` preloads it. Until a checker [asks](calls), each function only calls the next one of its name.
//! Then it compares an address with two bounds, and tells the checker of memory between them, which may have a region.
//! Calls inside the C library do not come here. So a large block that `free` unmaps comes as a freed one.
//!
//! The functions of `transom.h` tell the checker in the same way ([`said`]).
//!
//! Programs call these functions from anywhere, so they take no lock and allocate nothing.

#![deny(clippy::print_stderr, clippy::print_stdout)]

mod calls;
mod next;
mod said;

/// The loader runs this before the program and its threads.
extern "C" fn constructor() {
    next::find_all();
    // A C library may lack some of them. That is no error when a program starts.
    transom_thread::set_errno(0);
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;
