//! `libtransom_freed.so`: tells the checker of its process what memory the program gives back.
//!
//! Only `transom check` has the loader put this before the C library. Until a checker [asks](calls) to be told, each
//! function does no more than call the next one of its name. Then it compares an address with two bounds, and tells
//! what lies between: memory that may have a region. What the C library calls itself does not come here: so a large
//! block that `free` unmaps is told as one that is freed.
//!
//! What the program says itself, by `transom.h`, goes the same way ([`said`]).
//!
//! These functions are called from anywhere: they take no lock and no memory of their own.

#![deny(clippy::print_stderr, clippy::print_stdout)]

mod calls;
mod next;
mod said;

/// Run by the loader, before the program and its threads.
extern "C" fn constructor() {
    next::find_all();
    // A C library has not all of them, but a program starts without an error.
    transom_thread::set_errno(0);
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;
