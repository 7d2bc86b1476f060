//! The offer of this process's shared memory to `libtransom_malloc.so`, if `transom run` has put that before the C
//! library.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::OnceLock;

use rustix::io::Errno;
use tracing::info;
use transom_interpose::shared_memory::{Given, SERVE, Serve, Served, Server, VERSION};

use super::{bytes_of, copy, give, take};

static SERVER: Server = {
    unsafe extern "C" fn take_block(align: usize, size: usize) -> *mut c_void {
        take(align as u64, size as u64).map_or(null_mut(), |block| block.as_ptr().cast())
    }
    unsafe extern "C" fn give_block(block: *mut c_void) -> Given {
        match give(block.addr() as u64) {
            Some(held) => Given { is_ours: true, held: held as usize },
            None => Given::default(),
        }
    }
    unsafe extern "C" fn bytes_of_block(block: *const c_void) -> usize {
        bytes_of(block.addr() as u64).unwrap_or(0) as usize
    }
    unsafe extern "C" fn is_shared(first: *const c_void, length: usize) -> bool {
        super::is_shared(first.addr() as u64, length as u64)
    }
    unsafe extern "C" fn empty_pages(first: *mut c_void, length: usize) -> c_int {
        super::empty(first.addr() as u64, length as u64).map_or_else(Errno::raw_os_error, |()| 0)
    }
    unsafe extern "C" fn protected(first: *const c_void, length: usize) {
        super::note_change(first.addr() as u64, length as u64);
    }
    unsafe extern "C" fn before_fork() {
        copy::before_fork();
    }
    unsafe extern "C" fn in_parent() {
        copy::in_parent();
    }
    unsafe extern "C" fn in_child() {
        copy::in_child();
    }
    Server {
        version: VERSION,
        take: take_block,
        give: give_block,
        bytes_of: bytes_of_block,
        is_shared,
        empty: empty_pages,
        protected,
        before_fork,
        in_parent,
        in_child,
    }
};

/// The answer to the offer, which is made once. `None` if that library is not there.
pub(super) fn offered() -> Option<Served> {
    static OFFERED: OnceLock<Option<Served>> = OnceLock::new();
    *OFFERED.get_or_init(|| {
        // SAFETY: a name that ends in zero, of a function that is as `Serve` says, or of none.
        let serve: Option<Serve> =
            unsafe { std::mem::transmute(libc::dlsym(libc::RTLD_DEFAULT, SERVE.as_ptr())) };
        let serve = serve?;
        stay_loaded();
        // SAFETY: the functions of `SERVER` stay.
        let offered = unsafe { serve(&SERVER) };
        info!(?offered, "shared memory offered to the program's allocations");
        Some(offered)
    })
}

/// Whether that library calls the handlers around forks, and tells of changes of rights.
pub(super) fn watches() -> bool {
    offered().is_some_and(|offered| offered != Served::Nothing)
}

/// Makes the loader keep this library until the process ends, because the program has memory of it.
fn stay_loaded() {
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: an address in this library, and a place for the answer; then the library's own name, which is not loaded
    // again.
    unsafe {
        if libc::dladdr((&raw const SERVER).cast(), found.as_mut_ptr()) != 0 {
            let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
            libc::dlopen(found.assume_init().dli_fname, flags);
        }
    }
}
