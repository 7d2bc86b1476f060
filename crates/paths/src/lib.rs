//! `libtransom_paths.so`: the C library's functions that take a path, for programs that look for an
//! RDMA device in the file system before they open it.
//!
//! `transom run` has the loader put this before the C library. A path in a place where programs
//! look is led to the same path in a tree of this user's; every other path goes to the C
//! library as it is. So nothing changes for anybody but the program.
//!
//! These functions may be called by signal handlers, by other libraries' constructors, and from
//! inside an allocator: they allocate nothing, take no lock and keep no state but what the
//! constructor here has found out.

#![deny(clippy::print_stderr, clippy::print_stdout)]

mod calls;
mod place;
mod tree;
mod used;

/// Run by the loader, before the program and its threads.
extern "C" fn constructor() {
    tree::remember();
    used::hold();
    calls::find_all();
    // A C library has not all of them, but a program starts without an error.
    transom_thread::set_errno(0);
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;
