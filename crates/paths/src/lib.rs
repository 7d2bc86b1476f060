//! `libtransom_paths.so`: the C library's functions that take a path, for programs that look for an RDMA device in the
//! file system before they open it.
//!
//! `transom run` makes the loader put this library before the C library. A path in a directory where programs look for
//! devices is replaced by the same path in a tree of this user's. Every other path goes to the C library unchanged. So
//! nothing changes for other programs.
//!
//! Signal handlers, constructors of other libraries and allocators may call these functions. So they allocate nothing
//! and take no lock. They keep no state except the values that the constructor here has found.

#![deny(clippy::print_stderr, clippy::print_stdout)]

mod calls;
mod place;
mod tree;
mod used;

/// The loader runs it, before the program and its threads.
extern "C" fn constructor() {
    tree::remember();
    used::hold();
    calls::find_all();
    // A C library may lack some of them and set errno; a program must start with errno zero.
    transom_thread::set_errno(0);
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;
