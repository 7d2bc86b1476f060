//! Programs that meet: one listens on a port, and the others connect to it.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use transom_conformance::programs::{Printed, Running};
use transom_conformance::spaces::Side;

use crate::installation::Installation;
use crate::place::Place;

/// How long a program may go on after the program at the other end has failed.
const GRACE: Duration = Duration::from_secs(2);

/// Runs a server and its clients, which meet over TCP, until all have succeeded. Each gets `-p PORT`, and the clients
/// also get `address`. Returns their output, the clients' first.
pub(crate) fn meet(
    mut server: Command,
    clients: Vec<Command>,
    address: &str,
    limit: Duration,
) -> Result<Vec<Printed>, String> {
    let port = free_port()?.to_string();
    let mut server = Running::start(server.args(["-p", &port]));
    server.wait_until_it_listens(port.parse().expect("a port is a number"))?;
    if server.has_ended() {
        return match server.success(limit) {
            Ok(printed) => {
                Err(format!("the server ends before a client comes\n{}", printed.output))
            }
            Err(problem) => Err(problem),
        };
    }
    let mut ends: Vec<Running> = Vec::new();
    for mut client in clients {
        ends.push(Running::start(client.args(["-p", &port, address])));
    }
    ends.push(server);
    end_well(ends, limit)
}

/// Waits until all of them have succeeded. Returns their output, or the problem of each that has failed.
pub(crate) fn end_well(ends: Vec<Running>, limit: Duration) -> Result<Vec<Printed>, String> {
    let (mut printed, mut problems) = (Vec::new(), Vec::new());
    for end in ends {
        match end.success(if problems.is_empty() { limit } else { GRACE }) {
            Ok(words) => printed.push(words),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(printed) } else { Err(problems.join("\n")) }
}

/// A port that was free a moment ago on all addresses. The kernel hands out other ports before it comes to this one
/// again.
pub(crate) fn free_port() -> Result<u16, String> {
    let probe = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"));
    let address = probe.and_then(|probe| probe.local_addr());
    address.map(|address| address.port()).map_err(|error| format!("no free port: {error}"))
}

/// Waits until a server listens on a port of rdma_cm, according to `transom devices`, or has ended.
pub(crate) fn wait_for_listener(
    server: &mut Running,
    installation: &Installation,
    place: Place<'_>,
    port: u16,
) -> Result<(), String> {
    let wanted = format!(":{port}\"");
    let mut devices = installation.transom()?;
    devices.args(["devices", "--json"]);
    if let Place::Across(wire) = place {
        wire.pair.space(Side::Far).enter(&mut devices);
    }
    server.wait_until("listens", || {
        let printed = Running::start(&mut devices).success(Duration::from_secs(60));
        printed.is_ok_and(|printed| printed.output.contains(&wanted))
    })
}
