//! The namespaces of a process, as far as they decide which processes can reach it, and how.

use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use super::presence;

/// The namespaces in which the local link works. Processes of one PID namespace name each other by PID. Processes of
/// one user namespace may open each other's segment and copy from and to each other's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Namespaces {
    /// The number of the PID namespace.
    pids: u64,
    /// The number of the user namespace. Zero on a kernel without them.
    users: u64,
    /// [`OPEN`], [`PACKETS_ONLY`].
    flags: u64,
}

/// Others may open the process's files by its PID, and it theirs.
const OPEN: u64 = 1;
/// The device takes packets only, even from those that may.
const PACKETS_ONLY: u64 = 2;

impl Namespaces {
    /// Those of this process.
    pub(super) fn current() -> io::Result<Self> {
        let users = match number("user") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            number => number?,
        };
        let open = proc_shows_own_pids() && is_dumpable();
        Ok(Self { pids: number("pid")?, users, flags: if open { OPEN } else { 0 } })
    }

    /// Encodes them for the registry.
    pub(super) fn to_words(self) -> [u64; 3] {
        [self.pids, self.users, self.flags]
    }

    /// The same for a device that takes packets only.
    pub(super) fn by_packets(self) -> Self {
        Self { flags: self.flags | PACKETS_ONLY, ..self }
    }

    /// As they were kept there.
    pub(super) fn from_words([pids, users, flags]: [u64; 3]) -> Self {
        Self { pids, users, flags }
    }

    /// Whether a PID means the same in both.
    pub(super) fn share_pids(self, other: Self) -> bool {
        self.pids == other.pids
    }

    /// Whether processes in these may open files of processes in the others.
    pub(super) fn may_open(self, other: Self) -> bool {
        self.are_near(Self { flags: other.flags & !PACKETS_ONLY, ..other })
    }

    /// Whether processes in these and in the others reach each other by the local link.
    pub(super) fn are_near(self, other: Self) -> bool {
        self == other && self.flags == OPEN
    }
}

/// The number of this process's network namespace: its cookie, which no other namespace has until the machine restarts.
/// Linux before 5.14 has no cookies. There it is the number in `/proc`, which a later namespace may have again.
pub(super) fn network() -> io::Result<u64> {
    let Ok(socket) = presence::socket() else { return number("net") };
    let (mut cookie, mut length) = (0_u64, size_of::<u64>() as libc::socklen_t);
    // SAFETY: the kernel writes at most `length` bytes to the cookie, and both outlive the call.
    let found = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if found == 0 && length as usize == size_of::<u64>() { Ok(cookie) } else { number("net") }
}

/// `socket(7)`, since Linux 5.14.
const SO_NETNS_COOKIE: i32 = 71;

/// The number of this process's namespace of a kind. No two that exist at the same time have the same.
fn number(kind: &str) -> io::Result<u64> {
    let link = std::fs::read_link(Path::new("/proc/thread-self/ns").join(kind))?;
    let name = link.to_string_lossy();
    let digits: String = name.chars().filter(char::is_ascii_digit).collect();
    digits.parse().map_err(io::Error::other)
}

/// Whether `/proc` shows this process's PID namespace and not one around it. Under `unshare --fork --pid` without
/// `--mount-proc` it shows the one around it.
fn proc_shows_own_pids() -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    // One PID for each namespace, from that of `/proc` down to this process's own.
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    pids.is_none_or(|pids| pids.split_whitespace().count() == 1)
}

/// Whether the process has not closed itself to others of its user (`PR_SET_DUMPABLE(2const)`).
fn is_dumpable() -> bool {
    // SAFETY: this prctl takes plain numbers.
    unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) == 1 }
}
