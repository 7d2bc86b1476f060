//! Instruments of a user on the wire link: they lose and delay packets, and show them.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use transom_system::clock;

use super::{Path, Run};
use crate::faults::{FaultyNetwork, Outages};
use crate::udp::{Port, SendError, Way};

/// Sees packets before they leave. Afterwards, an answer could be shown before its request. So it also sees packets for
/// which the kernel then has no room or no route, and sees them again when they are sent again.
pub trait Observer: Send + Sync {
    /// A packet is about to leave. The bytes are the part that UDP carries, from the BTH to the ICRC.
    fn sees(&self, path: &Path, identification: u16, datagram: &[u8]);
}

/// Outgoing packets pass through this, if they do not go straight to the port.
pub trait Network: Send + Sync {
    /// How many datagrams may be sent at once, if the port takes `most`.
    fn most_segments(&self, most: usize) -> usize;

    /// Sends a run of datagrams. Returns how many have gone out, as far as the sender can tell.
    ///
    /// # Errors
    ///
    /// As for [`Port::send`].
    fn send(&self, port: &Port, way: &Way, run: &Run<'_>) -> Result<usize, SendError>;

    /// Sends everything that it has held back until `now`.
    fn send_due(&self, port: &Port, now: u64);

    /// When to call [`Network::send_due`] next.
    fn deadline(&self) -> Option<u64>;
}

/// The user's wishes for the packets that leave.
pub struct Instruments {
    /// Whom packets are shown to.
    pub observer: Option<Arc<dyn Observer>>,
    /// Nothing passes while there are any.
    pub outages: Arc<Outages>,
    /// Packets pass through this.
    pub network: Option<Arc<dyn Network>>,
    /// Wakes the background thread.
    pub wake: OwnedFd,
}

/// A datagram under way.
#[derive(Clone, Debug)]
pub struct Datagram {
    way: Way,
    bytes: Vec<u8>,
}

impl AsMut<[u8]> for Datagram {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Datagram {
    /// A packet that cannot be sent is lost, as on any network.
    fn send(&self, port: &Port) {
        let _ = port.send(&self.way, &self.bytes, self.bytes.len());
    }
}

impl Network for Mutex<FaultyNetwork<Datagram>> {
    /// Each is on its own.
    fn most_segments(&self, _: usize) -> usize {
        1
    }

    fn send(&self, port: &Port, way: &Way, run: &Run<'_>) -> Result<usize, SendError> {
        let datagram = Datagram { way: *way, bytes: run.bytes.to_vec() };
        self.lock().pass(clock::steady(), datagram, &mut |datagram| datagram.send(port));
        Ok(1)
    }

    fn send_due(&self, port: &Port, now: u64) {
        self.lock().due(now, &mut |datagram| datagram.send(port));
    }

    fn deadline(&self) -> Option<u64> {
        self.lock().deadline()
    }
}

impl Instruments {
    /// How many datagrams may be sent at once, if the port takes `most`.
    pub(super) fn most_segments(&self, most: usize) -> usize {
        self.network.as_ref().map_or(most, |network| network.most_segments(most))
    }

    /// Sends a run of datagrams, as far as faults let it pass.
    pub(super) fn send(&self, port: &Port, way: &Way, run: &Run<'_>) -> Result<usize, SendError> {
        if self.outages.is_down() {
            return Ok(run.bytes.len().div_ceil(run.size));
        }
        let Some(network) = &self.network else { return port.send(way, run.bytes, run.size) };
        let before = network.deadline();
        let sent = network.send(port, way, run)?;
        if network.deadline().is_some_and(|next| before.is_none_or(|it| next < it)) {
            self.wake();
        }
        Ok(sent)
    }

    /// Wakes the background thread. A full pipe does so too.
    pub(super) fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &[0]);
    }

    /// Sends everything that the network has held back until a moment.
    pub(super) fn send_due(&self, port: &Port, now: impl FnOnce() -> u64) {
        if let Some(network) = &self.network {
            network.send_due(port, now());
        }
    }

    /// When to call [`Instruments::send_due`] next.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.network.as_ref()?.deadline()
    }

    /// Shows a run of datagrams before it leaves. None leaves while the port is down.
    pub(super) fn show(&self, path: &Path, identification: impl Fn(usize) -> u16, run: &Run<'_>) {
        let Some(observer) = &self.observer else { return };
        if self.outages.is_down() {
            return;
        }
        for (number, datagram) in run.bytes.chunks(run.size).enumerate() {
            observer.sees(path, identification(number), datagram);
        }
    }
}
