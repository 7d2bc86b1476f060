//! What a user has the wire link do beside its work: lose and delay packets, and write them down.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use transom_device::protection::Announcer;
use transom_system::clock;
use transom_system::registry::Registry;
use transom_wire::packet::Packet;

use super::{Path, Run};
use crate::capture::{Capture, Direction, reason_of_nak};
use crate::faults::{FaultyNetwork, Outages};
use crate::link::udp::{Port, SendError, Way};

/// The user's wishes for the packets that leave.
pub(crate) struct Instruments {
    /// Whoever answers is in this slot.
    pub(crate) me: Announcer,
    /// Where refusals are noted.
    pub(crate) registry: &'static Registry,
    /// Where packets are written down.
    pub(crate) capture: Option<Arc<Capture>>,
    /// Nothing passes while there are any.
    pub(crate) outages: Arc<Outages>,
    /// What packets pass through.
    pub(crate) network: Option<Mutex<FaultyNetwork<Datagram>>>,
    /// Wakes the background thread.
    pub(crate) wake: OwnedFd,
    /// After how many more sends one finds no room, for tests of what happens then.
    #[cfg(test)]
    pub(crate) sends_until_full: std::sync::atomic::AtomicU32,
}

/// A datagram under way.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    way: Way,
    bytes: Vec<u8>,
}

impl AsMut<[u8]> for Datagram {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Datagram {
    /// What cannot be sent is lost, as on any network.
    fn send(&self, port: &Port) {
        let _ = port.send(&self.way, &self.bytes, self.bytes.len());
    }
}

impl Instruments {
    /// How many datagrams may be sent at once, if the port takes `most`: each is on its own in a
    /// network with faults.
    pub(super) fn most_segments(&self, most: usize) -> usize {
        if self.network.is_some() { 1 } else { most }
    }

    /// Sends a run of datagrams, as far as faults let it pass.
    pub(super) fn send(&self, port: &Port, way: &Way, run: &Run<'_>) -> Result<usize, SendError> {
        if self.outages.is_down() {
            return Ok(run.bytes.len().div_ceil(run.size));
        }
        #[cfg(test)]
        if self.sends_until_full.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 0 {
            return Err(SendError::Busy);
        }
        let Some(network) = &self.network else { return port.send(way, run.bytes, run.size) };
        let mut network = network.lock();
        let before = network.deadline();
        let datagram = Datagram { way: *way, bytes: run.bytes.to_vec() };
        network.pass(clock::steady(), datagram, &mut |datagram| datagram.send(port));
        let sooner = network.deadline().is_some_and(|next| before.is_none_or(|it| next < it));
        drop(network);
        if sooner {
            self.wake();
        }
        Ok(1)
    }

    /// Wakes the background thread. A full pipe does so too.
    pub(super) fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &[0]);
    }

    /// Sends what the network has held back until now.
    pub(super) fn send_due(&self, port: &Port) {
        let Some(network) = &self.network else { return };
        network.lock().due(clock::steady(), &mut |datagram| datagram.send(port));
    }

    /// Sends all that it holds back.
    pub(super) fn send_all(&self, port: &Port) {
        let Some(network) = &self.network else { return };
        network.lock().due(u64::MAX, &mut |datagram| datagram.send(port));
    }

    /// When to call [`Instruments::send_due`] next.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.network.as_ref()?.lock().deadline()
    }

    /// Writes down a run of datagrams before it leaves.
    pub(super) fn write_down(
        &self,
        path: &Path,
        identification: impl Fn(usize) -> u16,
        run: &Run<'_>,
    ) {
        let Some(capture) = &self.capture else { return };
        for (number, datagram) in run.bytes.chunks(run.size).enumerate() {
            let nak = Packet::parse(datagram).ok();
            let reason = nak.and_then(|it| reason_of_nak(self.registry, self.me.slot, &it));
            let (outbound, comment) = (Direction::Outbound, reason.as_deref());
            capture.record(outbound, path, identification(number), datagram, comment);
        }
    }
}
