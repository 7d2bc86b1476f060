//! Network namespaces joined by Ethernet, for programs that talk over a wire.
//!
//! They have no names and no processes of their own. A [`Space`] holds a descriptor, and everything in the namespace
//! goes with it. So nothing remains, however the process ends that made them.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use strum::{EnumCount, VariantArray};

use crate::processes::is_root;
use crate::programs::{Running, installed};

/// A network namespace, with nothing in it but the loopback interface.
#[derive(Debug)]
pub struct Space(File);

impl Space {
    /// A new network namespace.
    pub fn new() -> Result<Self, String> {
        // A separate thread enters it, so that this thread stays in its own.
        let made = std::thread::spawn(|| {
            // SAFETY: it takes a plain number.
            match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
                0 => File::open("/proc/thread-self/ns/net"),
                _ => Err(io::Error::last_os_error()),
            }
        });
        let made = made.join().map_err(|_| "the thread that makes a namespace panics")?;
        let space = Self(made.map_err(|error| format!("a network namespace: {error}"))?);
        space.ip("link set lo up")?;
        Ok(space)
    }

    /// Makes a command run in it.
    pub fn enter<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let space = self.0.try_clone().expect("one more descriptor");
        // SAFETY: between fork and exec this makes one system call, and allocates nothing.
        unsafe {
            command.pre_exec(move || match libc::setns(space.as_raw_fd(), libc::CLONE_NEWNET) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            })
        }
    }

    /// Runs `ip` in it.
    pub fn ip(&self, arguments: &str) -> Result<(), String> {
        let mut ip = Command::new(installed("ip", "iproute2")?);
        self.run(ip.args(arguments.split_whitespace()))
    }

    /// Changes one of its kernel parameters.
    pub fn set(&self, parameter: &str, value: &str) -> Result<(), String> {
        let mut shell = Command::new("/bin/sh");
        self.run(shell.args(["-c", &format!("echo {value} >/proc/sys/net/{parameter}")]))
    }

    fn run(&self, command: &mut Command) -> Result<(), String> {
        Running::start(self.enter(command)).success(Duration::from_secs(20)).map(drop)
    }

    /// The path by which another process finds it.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// The address family that two programs use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumCount, VariantArray)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; Self::COUNT] =
        *Self::VARIANTS.first_chunk().expect("as many as there are");

    /// A multicast group that leaves its host.
    pub fn group(self) -> IpAddr {
        match self {
            Self::V4 => [239, 77, 0, 1].into(),
            Self::V6 => [0xff0e, 0, 0, 0, 0, 0, 0, 0x77].into(),
        }
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// An end of a [`VethPair`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where clients run.
    Near,
    /// Where servers run.
    Far,
}

/// The interface that each end of a [`VethPair`] has.
pub const INTERFACE: &str = "wire0";

/// Two hosts, if this one can make them.
pub fn two_hosts() -> Option<VethPair> {
    let why = match VethPair::new(1500) {
        Ok(pair) if is_root() => return Some(pair),
        Ok(_) => "only root enters the namespaces by nsenter".to_owned(),
        Err(why) => why,
    };
    eprintln!("skipped: {why}");
    None
}

/// Two namespaces joined by a veth pair, each with one address of each family.
#[derive(Debug)]
pub struct VethPair {
    near: Space,
    far: Space,
    mtu: u32,
}

impl VethPair {
    /// A pair whose interfaces carry packets of this size.
    pub fn new(mtu: u32) -> Result<Self, String> {
        let pair = Self { near: Space::new()?, far: Space::new()?, mtu };
        join((&pair.near, INTERFACE), (&pair.far, INTERFACE), mtu)?;
        for side in [Side::Near, Side::Far] {
            for (family, length) in [(Family::V4, "30"), (Family::V6, "64 nodad")] {
                let address = pair.address(side, family);
                pair.space(side).ip(&format!("addr add {address}/{length} dev {INTERFACE}"))?;
            }
        }
        Ok(pair)
    }

    /// The length of the largest IP packet, in bytes.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// The data in the largest RDMA packet, in bytes.
    pub fn path_mtu(&self) -> u32 {
        // The largest of the allowed sizes that leaves room for all headers.
        [4096, 2048, 1024, 512].into_iter().find(|size| size + 100 <= self.mtu).unwrap_or(256)
    }

    /// The namespace of this end.
    pub fn space(&self, side: Side) -> &Space {
        match side {
            Side::Near => &self.near,
            Side::Far => &self.far,
        }
    }

    /// What stands before a program that runs on both: it is on the far one, and finds the near one by the path in
    /// `OTHER_HOST`. Each time it runs, its processes are the first on their hosts.
    pub fn before_a_program(&self) -> Vec<String> {
        const ANEW: &str = "mount -t tmpfs tmpfs /dev/shm && exec \"$0\" \"$@\"";
        let [near, far] = [Side::Near, Side::Far].map(|side| self.space(side).path());
        let (far, near) = (format!("--net={far}"), format!("OTHER_HOST={near}"));
        let words = ["unshare", "--mount", "sh", "-c", ANEW, "nsenter", &far, "env", &near];
        words.map(str::to_owned).to_vec()
    }

    /// The address of this end.
    pub fn address(&self, side: Side, family: Family) -> IpAddr {
        let last = if side == Side::Near { 1 } else { 2 };
        match family {
            Family::V4 => Ipv4Addr::new(10, 77, 0, last).into(),
            Family::V6 => Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, last.into()).into(),
        }
    }
}

/// Joins two namespaces by a pair of interfaces with these names, and no addresses.
pub fn join(one: (&Space, &str), other: (&Space, &str), mtu: u32) -> Result<(), String> {
    let (path, name) = (other.0.path(), other.1);
    one.0.ip(&format!(
        "link add {} mtu {mtu} type veth peer name {name} mtu {mtu} netns {path}",
        one.1
    ))?;
    for (space, name) in [one, other] {
        // Without link-local addresses the device has only the addresses that a test gives.
        space.ip(&format!("link set {name} addrgenmode none up"))?;
    }
    Ok(())
}

/// Makes sure that this process may make namespaces. An ordinary user becomes root of a user namespace of its own, if
/// the kernel allows it. The error says why nothing can run here. Call this while this process has no other thread.
pub fn may_make_spaces() -> Result<(), String> {
    if is_root() {
        return Space::new().map(drop);
    }
    // SAFETY: both have no arguments and cannot fail.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    // SAFETY: it takes a plain number.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER) } != 0 {
        let error = io::Error::last_os_error();
        return Err(format!("not root, and no user namespace: {error}"));
    }
    let maps = [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("0 {user} 1")),
        ("gid_map", format!("0 {group} 1")),
    ];
    for (file, text) in maps {
        std::fs::write(format!("/proc/self/{file}"), text)
            .map_err(|error| format!("not root, and /proc/self/{file}: {error}"))?;
    }
    Space::new().map(drop)
}
