//! The kernel's own protocols on the same wire.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use transom_conformance::programs::{Running, installed};
use transom_conformance::spaces::Side;

use crate::installation::Installation;
use crate::place::Wire;

const LIMIT: Duration = Duration::from_secs(30);
/// The port that servers listen on. Nobody else is in the namespaces.
const PORT: u16 = 18700;
const MIB: f64 = 1024.0 * 1024.0;

/// MiB/s over one TCP connection.
pub(super) fn iperf3(wire: &Wire) -> Result<f64, String> {
    let command = |side, arguments: &str| -> Result<Command, String> {
        let mut command = Command::new(installed("iperf3", "iperf3")?);
        wire.pair.space(side).enter(&mut command);
        command.args(["-p", &PORT.to_string()]).args(arguments.split_whitespace());
        Ok(command)
    };
    let mut server = Running::start(&mut command(Side::Far, "-s -1")?);
    server.wait_until_it_listens(PORT)?;
    let address = wire.pair.address(Side::Far, wire.family);
    let client = Running::start(&mut command(Side::Near, &format!("-c {address} -t 1 -J"))?);
    let printed = client.success(LIMIT)?.output;
    server.success(LIMIT)?;
    let result: Value = serde_json::from_str(&printed).map_err(|e| format!("iperf3: {e}"))?;
    let bits = result["end"]["sum_received"]["bits_per_second"].as_f64();
    bits.map(|bits| bits / 8.0 / MIB).ok_or_else(|| format!("no result in\n{printed}"))
}

/// A UDP datagram that goes to and fro.
#[derive(Clone, Copy)]
pub(super) struct Echo {
    /// Its name in a table.
    pub(super) name: &'static str,
    /// Both ends poll their socket, and do not sleep in the kernel.
    pub(super) spins: bool,
    /// The length in bytes of a datagram, and of another that goes with it.
    pub(super) sizes: [usize; 2],
}

/// Its time one way in microseconds.
pub(super) fn echo(
    installation: &Installation,
    wire: &Wire,
    Echo { spins, sizes: [size, behind], .. }: Echo,
) -> Result<f64, String> {
    let address = wire.pair.address(Side::Far, wire.family);
    let place = std::net::SocketAddr::new(address, PORT).to_string();
    let command = |side| -> Result<Command, String> {
        let mut command = installation.own("echo")?;
        wire.pair.space(side).enter(&mut command);
        command.arg(&place).args(spins.then_some("--spin"));
        command.args(["--size", &size.to_string(), "--behind", &behind.to_string()]);
        Ok(command)
    };
    let mut server = Running::start(command(Side::Far)?.arg("--serve"));
    server.line(LIMIT)?;
    let printed = Running::start(&mut command(Side::Near)?).success(LIMIT)?.output;
    printed.trim().parse().map_err(|_| format!("echo printed {printed:?}"))
}
