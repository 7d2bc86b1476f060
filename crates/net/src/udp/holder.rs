//! Who has the port, by the kernel's list, and the sentence for the user if somebody else has it.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use transom_wire::packet::PORT;

/// The port could not be opened.
#[derive(Debug)]
pub struct PortError {
    cause: io::Error,
    /// Whose socket is in the way, as far as the kernel tells.
    owner: Option<Owner>,
}

/// Who has the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The kernel itself: the rxe driver.
    Kernel,
    /// A user's program.
    User(u32),
    /// A program of this user that shares the port, but not the registry.
    Unknown,
}

impl PortError {
    /// The system's error. If the port is taken, this finds out who has it.
    pub fn new(cause: impl Into<io::Error>) -> Self {
        let cause = cause.into();
        let taken = cause.kind() == io::ErrorKind::AddrInUse;
        Self { owner: taken.then(owner_of_port).flatten(), cause }
    }

    /// The port is shared with a program whose packets cannot be told from ours.
    pub(super) fn shared() -> Self {
        Self { cause: Errno::ADDRINUSE.into(), owner: Some(Owner::Unknown) }
    }

    /// The other user who has the port.
    pub fn user(&self) -> Option<u32> {
        match self.owner? {
            Owner::User(user) if user != rustix::process::geteuid().as_raw() => Some(user),
            _ => None,
        }
    }

    /// The system's error number.
    pub fn errno(&self) -> i32 {
        self.cause.raw_os_error().unwrap_or(libc::EIO)
    }
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cause.kind() != io::ErrorKind::AddrInUse {
            return write!(f, "cannot open UDP port {PORT}: {}", self.cause);
        }
        write!(f, "UDP port {PORT}, the only one that RoCEv2 has, is taken by ")?;
        match self.owner {
            Some(Owner::Kernel) => {
                write!(f, "the kernel, most likely its rxe driver: unload it (`rmmod rdma_rxe`)")?
            }
            Some(Owner::User(uid)) => {
                write!(f, "a program of user {uid} (`ss -ulpn sport = :{PORT}` names it): end it")?;
            }
            Some(Owner::Unknown) => write!(
                f,
                "a program of this user that does not have the same /dev/shm, has another version \
                 of Transom, or is none of Transom's (`ss -ulpn sport = :{PORT}` lists all): end it"
            )?,
            None => write!(f, "another program (`ss -ulpn sport = :{PORT}` names it): end it")?,
        }
        write!(f, ", or run this program in a network namespace of its own")
    }
}

impl std::error::Error for PortError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// A socket on the port, by the kernel's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Listed {
    uid: u32,
    /// Zero for a socket of the kernel's own.
    inode: u64,
}

/// The sockets that have the port in this network namespace.
fn on_port() -> Vec<Listed> {
    // A thread may be in a namespace of its own.
    let lists = ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"];
    let texts = lists.iter().filter_map(|list| std::fs::read_to_string(list).ok());
    texts.flat_map(|text| listed(&text)).collect()
}

/// One line for each socket: number, local address, remote address, state, queues, timer,
/// retransmissions, UID, timeout, inode.
fn listed(text: &str) -> Vec<Listed> {
    let port = format!(":{PORT:04X}");
    let entry = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (uid, inode) = (fields.get(7)?.parse().ok()?, fields.get(9)?.parse().ok()?);
        fields.get(1)?.ends_with(&port).then_some(Listed { uid, inode })
    };
    text.lines().skip(1).filter_map(entry).collect()
}

fn owner_of_port() -> Option<Owner> {
    let first = on_port().first().copied()?;
    Some(if first.inode == 0 { Owner::Kernel } else { Owner::User(first.uid) })
}

/// Who keeps this user from having the port: the owner of a socket that `is_known` does not know. It opens no socket to
/// find out.
pub(super) fn taken_by_others(is_known: impl Fn(u64) -> bool) -> Option<PortError> {
    let user = rustix::process::geteuid().as_raw();
    let other = on_port().into_iter().find(|listed| !is_known(listed.inode))?;
    let owner = match other {
        Listed { inode: 0, .. } => Owner::Kernel,
        Listed { uid, .. } if uid == user => Owner::Unknown,
        Listed { uid, .. } => Owner::User(uid),
    };
    Some(PortError { cause: Errno::ADDRINUSE.into(), owner: Some(owner) })
}

/// Whether the port is shared with a socket that `is_known` does not know.
pub(super) fn is_shared(is_known: impl Fn(u64) -> bool) -> bool {
    on_port().iter().any(|listed| !is_known(listed.inode))
}

/// Whether a socket is in the kernel's list.
pub(super) fn is_listed(inode: u64) -> bool {
    on_port().iter().any(|listed| listed.inode == inode)
}

/// The number that a socket has in the kernel's list.
pub(super) fn inode(socket: &OwnedFd) -> io::Result<u64> {
    Ok(rustix::fs::fstat(socket)?.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_sockets_says_who_has_the_port() {
        let head = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt\n";
        let line = |port: &str, uid, inode| {
            format!(
                " 9: 00000000:{port} 00000000:0000 07 00000000:00000000 00:00000000 00000000 \
                 {uid} 0 {inode} 2 0000000000000000 0\n"
            )
        };
        let list = |lines: &[String]| listed(&format!("{head}{}", lines.concat()));
        assert_eq!(list(&[line("0044", 0, 5)]), []);
        let one = Listed { uid: 1000, inode: 6 };
        assert_eq!(list(&[line("0044", 0, 5), line("12B7", 1000, 6)]), [one]);
        assert_eq!(list(&[line("12B7", 0, 0)]), [Listed { uid: 0, inode: 0 }]);
        assert_eq!(listed("nonsense\n1 2\n"), []);
    }
}
