//! Locks on bytes of the registry file.
//!
//! They are locks of open file descriptions (`F_OFD_SETLK`, `fcntl_locking(2)`). The kernel releases one when the last
//! descriptor and the last mapping of its description are gone, however the process ends, and when it calls `exec`. So
//! a lock itself tells whether its holder lives. A PID would not: it means nothing in another PID namespace, and may be
//! that of a process that has ended.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use transom_device::protection::PROCESSES;

/// The part that is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A slot, for as long as a process has it. Only the holder of [`Part::Change`] of the slot may take it.
    Stay(u8),
    /// A slot, for as long as the memory of its process is there. Taken with [`Part::Stay`].
    Memory(u8),
    /// A slot, while a process takes it or tidies up after a process that has ended.
    Change(u8),
    /// All processes that have the registry open share it.
    Users,
    /// The whole file.
    All,
}

/// Whether others may hold the lock too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum With {
    /// With nobody.
    Nobody,
    /// Others may share it.
    Others,
}

impl Part {
    fn of_kind(self, kind: i32) -> libc::flock {
        let slots = PROCESSES as i64;
        let (l_start, l_len) = match self {
            Self::Stay(slot) => (i64::from(slot), 1),
            Self::Change(slot) => (slots + i64::from(slot), 1),
            Self::Users => (2 * slots, 1),
            Self::Memory(slot) => (2 * slots + 1 + i64::from(slot), 1),
            // To the end of the file, whatever its length.
            Self::All => (0, 0),
        };
        let l_whence = libc::SEEK_SET as i16;
        libc::flock { l_type: kind as i16, l_whence, l_start, l_len, l_pid: 0 }
    }
}

/// Locks a part by the open file description of `file`, if no other description's lock is in the way.
pub(super) fn try_lock(file: &OwnedFd, part: Part, with: With) -> io::Result<bool> {
    let kind = if with == With::Nobody { libc::F_WRLCK } else { libc::F_RDLCK };
    match control(file, libc::F_OFD_SETLK, &mut part.of_kind(kind)) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Locks a part. Waits for other holders.
pub(super) fn wait_for(file: &OwnedFd, part: Part) -> io::Result<()> {
    loop {
        match control(file, libc::F_OFD_SETLKW, &mut part.of_kind(libc::F_WRLCK)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            locked => return locked,
        }
    }
}

/// Unlocks a part, even if a forked child still has the description.
pub(super) fn unlock(file: &OwnedFd, part: Part) {
    // A locked part can always be unlocked.
    let _ = control(file, libc::F_OFD_SETLK, &mut part.of_kind(libc::F_UNLCK));
}

/// Whether another open file description than that of `file` has locked a part.
pub(super) fn is_locked(file: &OwnedFd, part: Part) -> io::Result<bool> {
    let mut lock = part.of_kind(libc::F_WRLCK);
    control(file, libc::F_OFD_GETLK, &mut lock)?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

fn control(file: &OwnedFd, command: i32, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: `lock` is valid for the call, in which the kernel reads it and fills it in.
    let done = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, lock) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
