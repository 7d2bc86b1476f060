//! The ping-pongs of Debian's ibverbs-utils at both ends, unmodified: with our `libibverbs.so.1` here, and with the
//! guest's own there.

use std::net::IpAddr;
use std::time::Duration;

use transom_conformance::programs::{Running, installed};

use super::guest::{Guest, Side};
use super::{Outcome, Setting};
use crate::installation::{DEVICE, Installation};
use crate::meeting::end_well;

/// How long one of them may take, without hardware virtualisation.
const LIMIT: Duration = Duration::from_secs(60);
/// A little more than `LIMIT`, so that it ends by itself and prints its output.
const KILLED: Duration = Duration::from_secs(70);
/// The port that the serving end listens on.
const PORT: u16 = 18_516;

/// Each tool with its largest message.
const TOOLS: [(&str, u32); 4] = [
    ("ibv_rc_pingpong", 1 << 16),
    ("ibv_uc_pingpong", 1 << 14),
    ("ibv_ud_pingpong", 1000),
    ("ibv_srq_pingpong", 1 << 14),
];

/// Runs them with the client at one side.
pub(super) fn run(
    installation: &Installation,
    guest: &Guest,
    setting: Setting,
    requester: Side,
) -> Result<Vec<Outcome>, String> {
    let rows = TOOLS.into_iter().map(|(tool, size)| {
        let problem = meet(installation, guest, setting, requester, tool, size).err();
        Outcome { operation: tool.to_owned(), requester, problem }
    });
    Ok(rows.collect())
}

fn meet(
    installation: &Installation,
    guest: &Guest,
    setting: Setting,
    client: Side,
    tool: &str,
    size: u32,
) -> Result<(), String> {
    let path = installed(tool, "ibverbs-utils")?;
    let mtu = if setting.mtu < 4200 { 1024 } else { 4096 };
    // Datagrams have no path MTU. The tool for shared receives does not check datagrams.
    let mtu = if tool == "ibv_ud_pingpong" { String::new() } else { format!("-m {mtu}") };
    let command = |side: Side, to: &str| -> Result<_, String> {
        let library = format!("env LD_LIBRARY_PATH={}", installation.folder().display());
        let (program, device) = match side {
            Side::Host => (format!("{library} {}", path.display()), DEVICE),
            Side::Guest | Side::SecondGuest => (tool.to_owned(), "rxe0"),
        };
        let gid = gid_index(installation, guest, setting.address(side), side)?;
        // Line by line, so that its output is there even if it is killed.
        let program = format!("stdbuf -oL {program}");
        let line =
            format!("{program} -d {device} -g {gid} -p {PORT} -n 100 -c -s {size} {mtu} {to}");
        Ok(guest.command(side, &line, LIMIT))
    };
    let server = client.other();
    let mut command_of_server = command(server, "")?;
    // The tools meet over IPv4, whatever the queue pairs use.
    let mut command_of_client = command(client, &server.address(false).to_string())?;
    let serving = Running::start(&mut command_of_server);
    guest.wait_until_listening(server, PORT)?;
    let talking = Running::start(&mut command_of_client);
    for end in end_well(vec![talking, serving], KILLED)? {
        let all = format!("{}{}", end.output, end.complaints);
        if all.contains("invalid data") || !all.contains("100 iters in") {
            return Err(all);
        }
    }
    Ok(())
}

/// The index of the device's GID with this address of the side.
pub(super) fn gid_index(
    installation: &Installation,
    guest: &Guest,
    address: IpAddr,
    side: Side,
) -> Result<String, String> {
    let tool = "ibv_devinfo";
    let path = installed(tool, "ibverbs-utils")?;
    let line = match side {
        Side::Host => {
            let library = installation.folder().display();
            format!("env LD_LIBRARY_PATH={library} {} -v", path.display())
        }
        Side::Guest | Side::SecondGuest => format!("{tool} -v"),
    };
    let printed = Running::start(&mut guest.command(side, &line, LIMIT)).success(LIMIT)?.output;
    let wanted = if address.is_ipv6() { format!("\t{address},") } else { format!(":{address},") };
    let entry = printed.lines().find(|line| line.contains("GID[") && line.contains(&wanted));
    let index = entry.and_then(|line| line.split(['[', ']']).nth(1));
    let index = index.ok_or_else(|| format!("no GID {address} in\n{printed}"))?;
    Ok(index.trim().to_owned())
}
