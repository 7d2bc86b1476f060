//! The virtual machines with rxe, and the network segment that they share with this host.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use transom_conformance::programs::Running;

/// The ends of the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// This host, with our device.
    Host,
    /// The virtual machine, with rxe.
    Guest,
    /// The second virtual machine, if there are two.
    SecondGuest,
}

impl Side {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Host => Self::Guest,
            Self::Guest | Self::SecondGuest => Self::Host,
        }
    }

    /// Its address, as the script sets it.
    pub(super) fn address(self, ipv6: bool) -> IpAddr {
        let text = match (self, ipv6) {
            (Self::Host, false) => "10.88.0.1",
            (Self::Guest, false) => "10.88.0.2",
            (Self::SecondGuest, false) => "10.88.0.3",
            (Self::Host, true) => "fd88::1",
            (Self::Guest, true) => "fd88::2",
            (Self::SecondGuest, true) => "fd88::3",
        };
        text.parse().expect("an address")
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(if *self == Self::Host { "Transom" } else { "rxe" })
    }
}

/// The running virtual machines. Dropping this stops them.
#[derive(Debug)]
pub(super) struct Guest {
    mtu: u32,
}

/// The limit for a short command, without hardware virtualisation.
const COMMAND: Duration = Duration::from_secs(60);

impl Guest {
    /// Boots it with this MTU. Builds it first if that was never done.
    pub(super) fn boot(mtu: u32) -> Result<Self, String> {
        Self::boot_all(mtu, 1)
    }

    /// The same, and boots a second one.
    pub(super) fn boot_two(mtu: u32) -> Result<Self, String> {
        Self::boot_all(mtu, 2)
    }

    fn boot_all(mtu: u32, guests: u32) -> Result<Self, String> {
        let guest = Self { mtu };
        let which = if guests == 1 { "a guest" } else { "two guests" };
        eprintln!("booting {which} with an MTU of {mtu}");
        let mut boot = script();
        boot.args(["up", &mtu.to_string(), &guests.to_string()]);
        // The guest runs on when this script has ended.
        let ended = boot.status().map_err(|error| format!("{boot:?}: {error}"))?;
        if ended.success() { Ok(guest) } else { Err(format!("the guest does not boot: {ended}")) }
    }

    pub(super) fn mtu(&self) -> u32 {
        self.mtu
    }

    /// The folder on this host that the guest sees as `/share`.
    pub(super) fn share(&self) -> PathBuf {
        let folder = std::env::var_os("TRANSOM_RXE").map(PathBuf::from).unwrap_or_else(|| {
            let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
            let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
            cache.unwrap_or_else(|| home().join(".cache")).join("transom-rxe")
        });
        folder.join("share")
    }

    /// Copies a program to a place where the guest finds it as `/share/NAME`.
    pub(super) fn give(&self, program: &Path, name: &str) -> Result<(), String> {
        let copied = std::fs::copy(program, self.share().join(name));
        copied.map(drop).map_err(|error| format!("{}: {error}", program.display()))
    }

    /// A command on one of the sides. It is killed there after `limit`.
    pub(super) fn command(&self, side: Side, line: &str, limit: Duration) -> Command {
        let line = format!("timeout -k 2 {} {line}", limit.as_secs());
        let mut command = script();
        match side {
            Side::Host => command.args(["host", "bash", "-c", &format!("exec {line}")]),
            Side::Guest => command.args(["run", &line]),
            Side::SecondGuest => command.args(["run-second", &line]),
        };
        command
    }

    /// Waits until a program listens on a TCP port of a side.
    pub(super) fn wait_until_listening(&self, side: Side, port: u16) -> Result<(), String> {
        let line = format!(
            "bash -c 'until cat /proc/net/tcp /proc/net/tcp6 | \
             grep -q \":{port:04X} [0-9A-F:]* 0A\"; do sleep 0.1; done'"
        );
        Running::start(&mut self.command(side, &line, COMMAND)).success(COMMAND).map(drop)
    }

    /// Makes the guest's kernel lose and reorder packets in both directions, or stops that.
    pub(super) fn lose(&self, lossy: bool) -> Result<(), String> {
        let line = match lossy {
            false => "bash -c 'tc qdisc del dev eth0 root; tc qdisc del dev eth0 ingress; true'",
            true => {
                "bash -ec 'modprobe ifb numifbs=1; ip link set ifb0 mtu 9000 up
                faults=\"netem limit 10000 delay 1ms loss 1% reorder 5%\"
                tc qdisc add dev eth0 root $faults; tc qdisc add dev ifb0 root $faults
                tc qdisc add dev eth0 ingress
                tc filter add dev eth0 ingress matchall action mirred egress redirect dev ifb0'"
            }
        };
        let command = &mut self.command(Side::Guest, line, COMMAND);
        Running::start(command).success(COMMAND).map(drop)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = script().arg("down").status();
    }
}

fn script() -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/rxe-guest"))
}
