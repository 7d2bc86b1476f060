//! Connections: the connection manager of this process, run on its device.
//!
//! | module | holds |
//! |---|---|
//! | `routes` | the way from an address of this host to another |
//! | `ports` | the ports of the network namespace, which its processes share |
//! | `exchange` | where messages go: to this process, another one of this host, or the network |
//! | `starting` | requests that wait, for the program may be starting that is to take them |
//! | `complaints` | what `transom explain` tells of connections that did not come about |
//! | `faults` | messages that a user wants to be refused, lost or late |
//! | `last_words` | what one says for processes that have ended, and has no device itself |
//! | `farewells` | what was said for them, again |
//! | `files` | what programs have of it: files with ids, and the events that wait there |
//! | [`manager`] | the engine among them: every call, message and deadline |
//!
//! It is made when a program first wants it, or when the first message arrives. All of it is under one
//! lock: calls take that, and whoever brings a message or a deadline. Under it the table of ports is
//! locked, and what the wire link locks to send. It goes in turn to those who wait for it: however many
//! messages come, a program gets to make its calls. Whoever has the lock of the wire link's arrivals may
//! take it, not the reverse.

mod complaints;
mod exchange;
mod farewells;
mod faults;
mod files;
mod last_words;
pub mod manager;
mod ports;
mod routes;
mod starting;

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tracing::warn;
use transom_cm::Refused;
use transom_cm::refused::Errno;
use transom_device::protection::Announcer;
use transom_net::management::ManagementDatagram;
use transom_net::udp::Obstacle;
use transom_system::{clock, registry};
use transom_wire::cm::MAD_BYTES;

use crate::device::Device;
pub use files::Delivered;
pub use last_words::LastWords;
use manager::Manager;

/// How long a call may hold up the end of the device.
const PATIENCE: Duration = Duration::from_secs(1);

/// The connection manager of a device, once somebody wants it.
pub struct Connections {
    device: Arc<Device>,
    manager: Mutex<Option<Box<Manager>>>,
    /// There is one.
    runs: AtomicBool,
}

impl Connections {
    /// Nobody wants it yet.
    pub(crate) fn new(device: Arc<Device>) -> Self {
        Self { device, manager: Mutex::new(None), runs: AtomicBool::new(false) }
    }

    /// Makes a call, and does what follows from it: messages go out, events to their files.
    ///
    /// # Errors
    ///
    /// That of the call; `EIO` where the device is the process's that this one was forked from; what the
    /// system says if the connection manager cannot be had.
    pub fn call<T, E: From<Refused>>(
        &self,
        call: impl FnOnce(&mut Manager) -> Result<T, E>,
    ) -> Result<T, E> {
        if self.device.process().is_inherited() {
            return Err(Refused::Inherited.into());
        }
        let mut manager = self.manager.lock();
        let made = self.made(&mut manager).map_err(|error| {
            warn!(%error, "no connection manager");
            Refused::NoManager(Errno(error.raw_os_error().unwrap_or(libc::ENOMEM)))
        })?;
        let answer = call(made);
        made.settle();
        self.tell_of_failure(made);
        MutexGuard::unlock_fair(manager);
        answer
    }

    /// The manager, made if there is none.
    fn made<'a>(
        &self,
        manager: &'a mut MutexGuard<'_, Option<Box<Manager>>>,
    ) -> io::Result<&'a mut Manager> {
        if manager.is_none() {
            **manager = Some(Box::new(Manager::new(self.device.clone())?));
            self.runs.store(true, Release);
            // The background thread is to wait for messages too.
            self.device.process().wake();
        }
        manager.as_deref_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Takes messages that have come over the wire together, for whichever processes of this host.
    pub(crate) fn deliver(&self, datagrams: &[ManagementDatagram]) {
        if datagrams.is_empty() {
            return;
        }
        let _ = self.call(|manager| {
            datagrams.iter().for_each(|datagram| manager.deliver(*datagram));
            Ok::<_, Refused>(())
        });
    }

    /// Processes of this host have come or gone; of these it is known that they have ended, though they may hold
    /// locks for another moment. What dead ones have left of connections their peers are told by those that have a
    /// connection manager; where none has, by this one.
    pub(crate) fn processes_changed(&self, dead: &[Announcer]) {
        // It watches by itself.
        if self.runs.load(Acquire) {
            return;
        }
        let table = registry::connections::Connections::look(self.device.process().registry());
        let Ok(Some(table)) = table else { return };
        if table.lock().is_ok_and(|table| table.has_connections_left(dead)) {
            let _ = self.call(|manager| {
                manager.reap(dead);
                Ok::<_, Refused>(())
            });
        }
    }

    /// A message to this address has come to nobody.
    pub(crate) fn undelivered(&self, to: IpAddr, why: Obstacle, message: &[u8; MAD_BYTES]) {
        // Where there is no manager nothing has been sent.
        self.drive(|manager| manager.undelivered(to, why, message));
    }

    /// What the background thread waits for.
    pub(crate) fn descriptors(&self) -> Vec<Arc<OwnedFd>> {
        if !self.runs.load(Acquire) {
            return Vec::new();
        }
        self.manager.lock().as_ref().map_or_else(Vec::new, |manager| manager.descriptors())
    }

    /// One of [`Connections::descriptors`] is readable.
    pub(crate) fn look(&self) {
        self.drive(Manager::look);
    }

    /// The deadline has come.
    pub(crate) fn on_deadline(&self) {
        self.drive(|manager| manager.on_deadline(clock::steady()));
    }

    fn drive(&self, step: impl FnOnce(&mut Manager)) {
        if self.device.process().is_inherited() {
            return;
        }
        let mut manager = self.manager.lock();
        if let Some(manager) = manager.as_deref_mut() {
            step(manager);
            manager.settle();
            self.tell_of_failure(manager);
        }
        MutexGuard::unlock_fair(manager);
    }

    /// Tells all peers that their connections end, before the process does or the device is closed.
    pub(crate) fn end_all(&self, until: Instant) {
        if self.device.process().is_inherited() || !self.runs.load(Acquire) {
            return;
        }
        let manager = self.manager.try_lock_until(until);
        if let Some(manager) = manager.and_then(|mut manager| manager.take()) {
            manager.end();
        }
    }

    /// These addresses are other interfaces', or have other hardware addresses.
    pub(crate) fn addresses_changed(&self, addresses: &[IpAddr]) {
        self.drive(|manager| manager.addresses_changed(addresses));
    }

    /// The device is of no use any more. Whoever is in a call is waited for, but not for ever: a mistake of
    /// this library may be why. Who takes longer tells of it himself.
    pub(crate) fn fail(&self) {
        if let Some(mut manager) = self.manager.try_lock_for(PATIENCE)
            && let Some(manager) = manager.as_deref_mut()
        {
            manager.device_removed();
        }
    }

    fn tell_of_failure(&self, manager: &mut Manager) {
        if self.device.check().is_err() {
            manager.device_removed();
        }
    }
}
