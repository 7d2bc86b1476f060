//! Two network namespaces joined by a veth pair, for two processes that talk over the wire. The namespaces have no
//! names, and end with the processes.

use std::io;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use super::setup::{Mtu, Side};
use crate::failure::{Failure, Result};

/// The interface at each end.
const INTERFACE: &str = "wire0";

/// The addresses of this end and of the other.
pub(super) fn addresses(side: Side) -> [Ipv4Addr; 2] {
    let [near, far] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];
    if side == Side::Near { [near, far] } else { [far, near] }
}

/// Moves this process, which has one thread, into a network namespace of its own. For an ordinary user, the first of
/// the two also needs a user namespace.
pub(super) fn enter_own_network(is_first: bool) -> Result {
    // SAFETY: both have no arguments and cannot fail.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let own_user = is_first && user != 0;
    let flags = libc::CLONE_NEWNET | if own_user { libc::CLONE_NEWUSER } else { 0 };
    // SAFETY: it takes plain numbers.
    if unsafe { libc::unshare(flags) } != 0 {
        let error = io::Error::last_os_error();
        return Err(Failure::new(format!("a network namespace: {error}")));
    }
    if own_user {
        for (file, text) in [
            ("setgroups", "deny".to_owned()),
            ("uid_map", format!("0 {user} 1")),
            ("gid_map", format!("0 {group} 1")),
        ] {
            std::fs::write(format!("/proc/self/{file}"), text)
                .map_err(|error| Failure::new(format!("/proc/self/{file}: {error}")))?;
        }
    }
    ip("link set lo up")
}

/// Joins this namespace, the near one, to that of the other process.
pub(super) fn join(far: u32, mtu: Mtu) -> Result {
    let mtu = mtu.bytes();
    ip(&format!(
        "link add {INTERFACE} mtu {mtu} type veth peer name {INTERFACE} mtu {mtu} netns {far}"
    ))?;
    set_up(Side::Near)
}

/// Gives this end of the pair its address.
pub(super) fn set_up(side: Side) -> Result {
    let [here, _] = addresses(side);
    ip(&format!("addr add {here}/30 dev {INTERFACE}"))?;
    ip(&format!("link set {INTERFACE} addrgenmode none up"))
}

fn ip(words: &str) -> Result {
    let ip = Command::new("ip").args(words.split_whitespace()).stdin(Stdio::null()).output();
    let ip = ip.map_err(|error| Failure::new(format!("ip (Debian's iproute2): {error}")))?;
    if ip.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ip.stderr);
    Err(Failure::new(format!("ip {words}: {}", said.lines().next().unwrap_or_default())))
}
