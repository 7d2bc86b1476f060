//! Marks the tree as in use, for `transom run`, which removes the trees of runs that are over.

use std::ffi::c_void;
use std::ptr::null_mut;

use crate::place::ROOM;
use crate::tree::tree;

/// A file in the tree. Every program that uses the tree locks it. `transom run` has the same name.
const FILE: &[u8] = b"/used";

/// Holds the tree's lock for as long as this program and its forked children run. The lock belongs to the open file. A
/// mapping keeps the file open too, and it has no descriptor that a program might close. The environment is not enough:
/// programs write over it, and nobody can read it of a program that may not be traced.
///
/// Only the constructor calls it.
pub(crate) fn hold() {
    let mut path = [0; ROOM + FILE.len()];
    let Some(tree) = tree().filter(|tree| tree.len() < ROOM) else { return };
    path[..tree.len()].copy_from_slice(tree);
    path[tree.len()..][..FILE.len()].copy_from_slice(FILE);
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    // SAFETY: the path ends in zero, the descriptor belongs to this function, and nobody uses the mapping.
    unsafe {
        // The C library's function would call this library again.
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
