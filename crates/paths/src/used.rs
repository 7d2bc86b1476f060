//! Says that the tree is in use, to `transom run`, which removes those of runs that are over.

use std::ffi::c_void;
use std::ptr::null_mut;

use crate::place::ROOM;
use crate::tree::tree;

/// A file in the tree, locked by whoever uses it. `transom run` has the same.
const FILE: &[u8] = b"/used";

/// Holds the tree's lock for as long as this program runs, and what it forks. A lock is of the open file, and that is
/// kept by a mapping too, which has no descriptor that a program might close. The environment
/// says less: programs write over it, and of those that may not be traced nobody sees it.
///
/// The constructor calls it, and nobody else.
pub(crate) fn hold() {
    let mut path = [0; ROOM + FILE.len()];
    let Some(tree) = tree().filter(|tree| tree.len() < ROOM) else { return };
    path[..tree.len()].copy_from_slice(tree);
    path[tree.len()..][..FILE.len()].copy_from_slice(FILE);
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    // SAFETY: the path ends in zero, the descriptor is this function's, and nobody uses what is mapped.
    unsafe {
        // The C library's function would come back to this library.
        let file = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags);
        let Ok(file @ 0..) = i32::try_from(file) else { return };
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = libc::F_RDLCK as _;
        if libc::fcntl(file, libc::F_OFD_SETLK, &raw const lock) == 0 {
            let _: *mut c_void =
                libc::mmap(null_mut(), 1, libc::PROT_NONE, libc::MAP_PRIVATE, file, 0);
        }
        libc::close(file);
    }
}
