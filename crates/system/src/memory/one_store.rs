//! One store of eight bytes to memory of this process that may not be mapped any more (rules AT-18, MR-40).
//!
//! The kernel's copies are no single store. On many processors each is a `rep movsb`, and that goes byte by byte if the
//! processor has to mark a page as used on its way: after the kernel or a hypervisor has looked which pages are in use.
//! So somebody who looks meanwhile sees a half of the old word and a half of the new one.
//!
//! The kernel stores a whole word where it answers `PR_GET_TID_ADDRESS`: the address that it clears when the thread
//! ends, which may be any number. So for the time of one call it is the new word. If the process is killed just then,
//! the kernel takes that for an address, and clears four bytes there unless nothing is mapped: of memory that the dying
//! process may share with others. Small numbers are no addresses.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::*, fence};

use rustix::io::Errno;

use super::Fault;

/// Stores a word. `None` if the kernel cannot do this (it is built without `CHECKPOINT_RESTORE`) or a filter of system
/// calls forbids it: the word is unchanged then.
pub(super) fn store_word(address: u64, word: u64) -> Option<Result<(), Fault>> {
    static IS_REFUSED: AtomicBool = AtomicBool::new(false);
    if IS_REFUSED.load(Relaxed) {
        return None;
    }
    // What was copied before is seen by who sees the word.
    fence(Release);
    let stored = store(address, word);
    match stored {
        Ok(()) => Some(Ok(())),
        Err(Errno::FAULT) => Some(Err(Fault::Destination)),
        Err(_) => {
            IS_REFUSED.store(true, Relaxed);
            None
        }
    }
}

fn store(address: u64, word: u64) -> Result<(), Errno> {
    // Asked each time: the program may set another one. A filter may have the call succeed without doing anything, and
    // no thread has a number at an odd address.
    const NOT_TOLD: u64 = 1;
    let mut before = NOT_TOLD;
    tell_tid_address(&raw mut before as u64)?;
    if before == NOT_TOLD {
        return Err(Errno::NOSYS);
    }
    let _back = Back(before);
    set_tid_address(word)?;
    tell_tid_address(address)
}

/// Gives the thread its address back.
struct Back(u64);

impl Drop for Back {
    fn drop(&mut self) {
        let _ = set_tid_address(self.0);
    }
}

/// Has the kernel store the thread's address at another one.
fn tell_tid_address(to: u64) -> Result<(), Errno> {
    // SAFETY: the kernel checks where it stores, and answers EFAULT. It is this function's caller's own, or program
    // memory that a grant names. By number, because sanitizers would take a call by name for the program's own.
    done(unsafe { libc::syscall(libc::SYS_prctl, libc::PR_GET_TID_ADDRESS, to, 0, 0, 0) })
}

/// Sets the address that the kernel clears when this thread ends.
fn set_tid_address(address: u64) -> Result<(), Errno> {
    // SAFETY: the kernel only keeps the number, and `Back` puts the old one in place before this thread can end by
    // itself. It answers the number of the thread.
    match unsafe { libc::syscall(libc::SYS_set_tid_address, address) } {
        0 => Err(Errno::NOSYS),
        answer => done(answer),
    }
}

fn done(answer: libc::c_long) -> Result<(), Errno> {
    if answer >= 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::NOSYS))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::thread;

    use rustix::mm::{MapFlags, ProtFlags};

    use super::*;

    fn tid_address() -> u64 {
        let mut address = 0;
        tell_tid_address(&raw mut address as u64).unwrap();
        address
    }

    /// Rules: AT-18
    #[test]
    fn any_word_is_stored_and_the_thread_keeps_its_address() {
        let (word, before) = (AtomicU64::new(1), tid_address());
        for new in [0, 1, u64::MAX, u64::MAX - 4094, 1 << 63, 0x0123_4567_89ab_cdef] {
            assert_eq!(store_word(word.as_ptr() as u64, new), Some(Ok(())));
            assert_eq!((word.load(Relaxed), tid_address()), (new, before));
        }
    }

    /// A thread that has stored words ends as others do: who joins it is woken by the address it had.
    #[test]
    fn a_thread_that_has_stored_can_be_joined() {
        let word = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| store_word(word.as_ptr() as u64, 7));
        });
        assert_eq!(word.load(Relaxed), 7);
    }

    /// Rules: MR-40
    #[test]
    fn memory_that_is_gone_or_cannot_be_written_is_an_error() {
        let before = tid_address();
        let flags = MapFlags::PRIVATE;
        let none = std::ptr::null_mut();
        // SAFETY: a new mapping, wherever there is room.
        let page = unsafe { rustix::mm::mmap_anonymous(none, 4096, ProtFlags::READ, flags) };
        let page = page.unwrap();
        assert_eq!(store_word(page as u64, 1), Some(Err(Fault::Destination)));
        // SAFETY: it is this test's own, and nobody refers to it.
        unsafe { rustix::mm::munmap(page, 4096) }.unwrap();
        for gone in [page as u64, 4096, !7] {
            assert_eq!(store_word(gone, 1), Some(Err(Fault::Destination)));
        }
        assert_eq!(tid_address(), before);
    }
}
