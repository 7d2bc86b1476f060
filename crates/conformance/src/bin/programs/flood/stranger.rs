//! A third namespace, whose packets seem to come from one end of a wire.

use std::time::{Duration, Instant};

use transom_conformance::programs::Running;
use transom_conformance::spaces::{Family, Side, Space, VethPair, join};

use super::Flood;

const LIMIT: Duration = Duration::from_secs(20);
/// The interface between the stranger and the far end.
const INTERFACE: &str = "side0";
/// The addresses of the stranger and of the far end there.
const V4: [&str; 2] = ["10.78.0.1", "10.78.0.2"];
const V6: [&str; 2] = ["fd78::1", "fd78::2"];

/// The target of packets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Aim {
    /// The device.
    Device,
    /// An unused UDP port.
    Elsewhere,
}

/// A stranger that has a path to the far end of a wire, and uses the near end's address.
#[derive(Debug)]
pub(super) struct Stranger(Space);

impl Stranger {
    /// A stranger beside the far end of this pair.
    pub(super) fn new(pair: &VethPair) -> Result<Self, String> {
        let (stranger, far) = (Space::new()?, pair.space(Side::Far));
        join((&stranger, INTERFACE), (far, INTERFACE), pair.mtu())?;
        for (space, index) in [(&stranger, 0), (far, 1)] {
            space.ip(&format!("addr add {}/30 dev {INTERFACE}", V4[index]))?;
            space.ip(&format!("addr add {}/64 dev {INTERFACE} nodad", V6[index]))?;
        }
        for (family, bits, way) in [(Family::V4, 32, V4[1]), (Family::V6, 128, V6[1])] {
            let [near, far] = [Side::Near, Side::Far].map(|side| pair.address(side, family));
            stranger.ip(&format!("addr add {near}/{bits} dev lo"))?;
            stranger.ip(&format!("route add {far} via {way}"))?;
        }
        // By default the far end drops packets that do not come by the way back.
        for interface in ["all", INTERFACE] {
            far.set(&format!("ipv4/conf/{interface}/rp_filter"), "0")?;
        }
        Ok(Self(stranger))
    }

    /// Sends packets, as if to this queue pair, until told to end.
    pub(super) fn start(&self, flood: &Flood, aim: Aim, qp: u32) -> Result<Forger, String> {
        let family = flood.wire.family;
        let [near, far] = [Side::Near, Side::Far].map(|s| flood.wire.pair.address(s, family));
        let own = if family == Family::V4 { V4[0] } else { V6[0] };
        let mut forge = flood.installation.own("forge")?;
        forge.args([&far.to_string(), "--peer", &near.to_string(), "--own", own]);
        forge.args(["--qp", &qp.to_string()]);
        if let Aim::Elsewhere = aim {
            forge.args(["--port", "4790"]);
        }
        let mut running = Running::start_until_told(self.0.enter(&mut forge));
        running.line(LIMIT)?;
        Ok(Forger { running, start: Instant::now() })
    }
}

/// The stranger at work.
pub(super) struct Forger {
    running: Running,
    start: Instant,
}

impl Forger {
    /// Stops it. Returns how many packets it has sent each second.
    pub(super) fn end(mut self) -> Result<f64, String> {
        self.running.end_input();
        let took = self.start.elapsed().as_secs_f64();
        let printed = self.running.success(LIMIT)?.output;
        let count = printed.trim().strip_suffix(" packets").and_then(|count| count.parse().ok());
        let count: f64 = count.ok_or_else(|| format!("forge printed {printed:?}"))?;
        Ok(count / took)
    }
}
