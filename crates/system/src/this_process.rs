//! The PID of this process, kept so that copying within the process need not ask for it each time: `getpid(2)` takes a
//! fifth of the time of a copy of eight bytes.
//!
//! In ordinary memory, a forked child would find its parent's PID, and would copy from and to its parent's memory. So
//! it is kept in a page that the kernel empties in every child with memory of its own, however that was made.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::thread::gettid;

/// The place of the PID. `None` if the kernel does not empty pages (before Linux 4.14).
static KEPT: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();

/// The number of this process.
#[inline]
pub(crate) fn this_process() -> u32 {
    let Some(kept) = KEPT.get_or_init(keep) else { return std::process::id() };
    match kept.load(Relaxed) {
        0 => keep_in_child(kept),
        number => number,
    }
}

/// Makes a system call that finds this process by its number. Once the program's first thread has ended, no memory is
/// found by the PID, and the kernel answers ESRCH. The number of any thread that lives does as well.
#[inline]
pub(crate) fn by_number(call: impl Fn(u32) -> libc::c_long) -> libc::c_long {
    let done = call(this_process());
    if done < 0 && Errno::from_io_error(&io::Error::last_os_error()) == Some(Errno::SRCH) {
        return call(gettid().as_raw_pid().unsigned_abs());
    }
    done
}

/// A forked child has found the page empty.
#[cold]
fn keep_in_child(kept: &AtomicU32) -> u32 {
    let number = std::process::id();
    kept.store(number, Relaxed);
    number
}

/// A page with the number in it, which stays until the process ends.
fn keep() -> Option<&'static AtomicU32> {
    let (length, access) = (size_of::<AtomicU32>(), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a new mapping, wherever the kernel finds room, that nobody else knows.
    let page = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, access, MapFlags::PRIVATE).ok()?
    };
    // SAFETY: it is this function's own, and nothing is in it yet.
    unsafe { rustix::mm::madvise(page, length, Advice::LinuxWipeOnFork).ok()? };
    // SAFETY: the page is mapped for ever, aligned, and zero, which is a valid `AtomicU32`.
    let kept = unsafe { &*page.cast::<AtomicU32>() };
    kept.store(std::process::id(), Relaxed);
    Some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_a_number_of_its_own() {
        assert_eq!(this_process(), std::process::id());
        // SAFETY: the child, which has one thread, makes system calls only. It is made without the C
        // library, whose handlers around a fork see nothing of it.
        let child = unsafe {
            let child = libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t;
            if child == 0 {
                let right = this_process() == libc::syscall(libc::SYS_getpid) as u32;
                libc::_exit(if right { 7 } else { 1 });
            }
            child
        };
        assert!(child > 0);
        let mut status = 0;
        // SAFETY: the status is this test's own.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(libc::WEXITSTATUS(status), 7);
        assert_eq!(this_process(), std::process::id());
    }
}
