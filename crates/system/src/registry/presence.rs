//! Tells others that a process has a slot, and when it has it no longer.
//!
//! This goes with the process's descriptors, however it ends, and when it calls `exec`:
//!
//! * a lock, which tells whether it is there;
//! * the writing end of a named pipe (`fifo(7)`), which tells when it goes. A process that has the reading end open
//!   sees a hang-up, in another PID namespace too;
//! * a socket with a name in the network namespace, which keeps the slot's number from processes of another registry:
//!   one in a container that does not share `/dev/shm`, one of another version, or one of another user. Any user can
//!   take such names. So if no other number is left, a process uses one that only other users have named.
//!
//! A program may close descriptors that it does not know (`close_range(2)`), and go on. For its peers it is gone. But
//! its threads may be in the middle of a copy, so one more lock goes with its memory ([`Hold`]). Revocations ask for
//! that one, and nobody takes the slot before it is gone.

use std::ffi::c_void;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::ptr::{NonNull, null_mut};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::lock::{self, Part, With};
use crate::descriptor;

/// How many may ask for the owner of a name. None of them is answered.
const QUESTIONS: i32 = 4096;

/// The descriptors of one stay.
pub(super) struct Presence {
    /// The registry file under an open file description of its own, with [`Part::Stay`] locked.
    pub(super) lock: OwnedFd,
    /// Tells when none of its threads can copy any more.
    pub(super) hold: Hold,
    /// See [`watch`].
    pub(super) life: OwnedFd,
    /// See [`bind_name`].
    pub(super) name: OwnedFd,
}

impl Presence {
    /// In a forked child, leaves it to the parent: it ends when the parent's does. This makes system calls only, and
    /// needs no more descriptors: each becomes one of `other`, a file that tells nothing.
    pub(super) fn leave_to_parent(&self, other: &OwnedFd) {
        for inherited in [&self.lock, &self.life, &self.name] {
            // SAFETY: both are open, and `inherited` stays so, as another file.
            unsafe { libc::dup3(other.as_raw_fd(), inherited.as_raw_fd(), libc::O_CLOEXEC) };
        }
    }

    /// Ends it, even if a child made without `fork` still has the descriptors.
    pub(super) fn end(&self, slot: u8) {
        lock::unlock(&self.lock, Part::Stay(slot));
        self.hold.release();
    }
}

/// The lock of a process's memory, [`Part::Memory`]. A mapping keeps an open file description as a descriptor does, and
/// this description has no descriptor. So the lock goes with the memory: when none of the threads can copy any more.
///
/// On overlayfs a mapping keeps another description, and the lock is gone at once.
pub(super) struct Hold(NonNull<c_void>);

// SAFETY: nobody reads or writes the page.
unsafe impl Send for Hold {}
// SAFETY: as above.
unsafe impl Sync for Hold {}

impl Hold {
    /// Locks it by the description of `file`, which is nobody else's. A child does not inherit it, however it is made,
    /// unless it shares this process's memory. So it has no destructor, which would run there.
    pub(super) fn take(file: OwnedFd, slot: u8) -> io::Result<Self> {
        lock::try_lock(&file, Part::Memory(slot), With::Nobody)?;
        let length = rustix::param::page_size();
        // SAFETY: a new mapping, wherever the kernel finds room. Nobody else knows it, and it lets nobody in.
        let page = unsafe {
            rustix::mm::mmap(null_mut(), length, ProtFlags::empty(), MapFlags::SHARED, &file, 0)?
        };
        let hold = Self(NonNull::new(page).expect("a mapping is never at zero"));
        // SAFETY: this value's own mapping.
        let done = unsafe { rustix::mm::madvise(page, length, Advice::LinuxDontFork) };
        done.inspect_err(|_| hold.release())?;
        Ok(hold)
    }

    /// Releases it, in the process that has taken it.
    fn release(&self) {
        // SAFETY: this value's own mapping. Nobody looks at the page.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr(), rustix::param::page_size()) };
    }
}

/// Makes a new named pipe for this user only, and opens both its ends.
pub(super) fn make_pipe(path: &Path) -> io::Result<OwnedFd> {
    let _ = rustix::fs::unlink(path);
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0)?;
    // The umask may have removed all rights.
    rustix::fs::chmod(path, mode)?;
    open_pipe(path, OFlags::RDWR)
}

/// A descriptor that becomes readable when the last writer of the pipe has gone.
pub(super) fn watch(path: &Path) -> io::Result<OwnedFd> {
    open_pipe(path, OFlags::RDONLY)
}

/// Whether a process has the writing end of a pipe that nothing is ever written to. A descriptor that was opened after
/// the last writer had gone shows no hang-up, so this reads: the end of the file means that there is no writer.
pub(super) fn has_writer(pipe: &OwnedFd) -> bool {
    rustix::io::read(pipe, &mut [0; 1]) != Ok(0)
}

/// Opens a named pipe without waiting for the other end.
pub(super) fn open_pipe(path: &Path, how: OFlags) -> io::Result<OwnedFd> {
    let flags = how | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(descriptor::high(rustix::fs::open(path, flags, Mode::empty())?))
}

pub(super) fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok(descriptor::high(socket))
}

/// It is abstract, so it belongs to the network namespace and to no file system. It does not contain the user or the
/// version of the layout: numbers must be unique across all of them.
fn address(slot: u8) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(format!("transom-slot-{slot}").as_bytes())?)
}

/// The owner of a slot's name in this network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameOwner {
    /// A process of this user.
    ThisUser,
    /// A process of another user, or of a user who cannot be asked. Any user can take every name.
    Another(Option<u32>),
}

/// Takes the name of a slot in this network namespace, or returns its owner.
pub(super) fn bind_name(slot: u8) -> io::Result<Result<OwnedFd, NameOwner>> {
    let own = socket()?;
    match rustix::net::bind(&own, &address(slot)?) {
        // If it is free by now, the next process gets it.
        Err(Errno::ADDRINUSE) => {
            return Ok(Err(name_owner(slot).unwrap_or(NameOwner::Another(None))));
        }
        bound => bound?,
    }
    rustix::net::listen(&own, QUESTIONS)?;
    Ok(Ok(own))
}

/// Stands for the name of a slot that another user has.
pub(super) fn no_name() -> io::Result<OwnedFd> {
    socket()
}

/// The owner of a slot's name in this network namespace, if there is one.
pub(super) fn name_owner(slot: u8) -> Option<NameOwner> {
    let (socket, address) = (socket().ok()?, address(slot).ok()?);
    match rustix::net::connect(&socket, &address).map_err(io::Error::from) {
        Ok(()) => {
            let user = user_of(&socket).ok()?;
            let ours = user == rustix::process::geteuid().as_raw();
            Some(if ours { NameOwner::ThisUser } else { NameOwner::Another(Some(user)) })
        }
        // It exists: its queue of questions is full.
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(NameOwner::Another(None)),
        Err(_) => None,
    }
}

/// The user of the process at the other end of a socket. Its PID may be invalid here, so `rustix` cannot tell.
pub fn user_of(socket: &OwnedFd) -> io::Result<u32> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as u32;
    // SAFETY: the kernel writes no more than `length` bytes, which `found` has.
    let done = unsafe {
        let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        let owner = (&raw mut found).cast();
        libc::getsockopt(socket.as_raw_fd(), level, option, owner, &mut length)
    };
    if done == 0 { Ok(found.uid) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use crate::registry::Registry;

    /// Its program has closed descriptors that it does not know, and its threads go on.
    /// Rules: DR-15
    #[test]
    fn a_process_without_descriptors_keeps_its_slot_as_long_as_it_has_its_memory() {
        let registry = Registry::open().expect("a registry");
        let claim = registry.claim(0, 0).expect("a slot");
        let process = claim.announcer();
        claim.presence.leave_to_parent(&registry.file);
        assert!(!registry.is_alive(process), "it is gone for its peers");
        assert!(registry.has_memory(process));
        let is_vacant = || {
            let own = registry.reopen().expect("it is there");
            registry.begin_change(&own, process.slot).expect("it can be locked")
        };
        assert!(!is_vacant());
        drop(claim);
        assert!(!registry.has_memory(process));
        // Another process may have taken it.
        let is_anothers =
            || registry.process(process.slot).is_some_and(|it| it.announcer != process);
        assert!(is_vacant() || is_anothers());
    }
}
