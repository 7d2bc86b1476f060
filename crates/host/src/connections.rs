//! Connections: the connection manager of this process, run on its device.
//!
//! | module | holds |
//! |---|---|
//! | `routes` | the route from an address of this host to another |
//! | `ports` | the ports of the network namespace, which its processes share |
//! | `exchange` | sends messages: to this process, another of this host, or the network |
//! | `packets` | messages as packets, kept until there is room |
//! | `neighbours` | the other processes that take messages, watched for their ends |
//! | `starting` | requests that wait, because their program may be starting |
//! | `complaints` | notes for `transom explain` about connections that did not come about |
//! | `faults` | messages that an injected fault refuses, loses or delays |
//! | `last_words` | sends the farewells of ended processes, from a process without a device |
//! | `farewells` | repeats those farewells |
//! | `rehearsed` | what a rehearsal knows of the ids |
//! | `traced` | what is recorded of the ids for `transom trace` |
//! | `gone` | connections whose peers are gone in a rehearsal |
//! | `files` | the program's side: files with ids, and the events that wait there |
//! | [`manager`] | the engine between them: every call, message and deadline |
//!
//! The manager is made when the program first needs it, or when the first message arrives. One lock guards all of it.
//! Calls take that lock, and so does a thread that brings a message or a deadline. While it is held, the table of ports
//! may be locked, and the locks that the wire link needs to send. The lock is handed to its waiters in turn: a program
//! gets to make its calls however many messages come. A thread that holds the lock of the wire link's arrivals may take
//! this one, not the reverse.

mod complaints;
mod exchange;
mod farewells;
mod faults;
mod files;
mod gone;
mod last_words;
pub mod manager;
mod neighbours;
mod packets;
mod ports;
mod rehearsed;
mod routes;
mod starting;
mod traced;

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
pub use routes::source_towards;

/// How long a call may hold up the end of the device.
const PATIENCE: Duration = Duration::from_secs(1);

/// The connection manager of a device, made at its first use.
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

    /// Makes a call, then does what the call asks for: sends messages and raises events at their files.
    ///
    /// # Errors
    ///
    /// The call's own error; `EIO` on a device that was inherited by a fork; the system's error if the connection
    /// manager cannot be made.
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

    /// The manager. Makes it if there is none.
    fn made<'a>(
        &self,
        manager: &'a mut MutexGuard<'_, Option<Box<Manager>>>,
    ) -> io::Result<&'a mut Manager> {
        if manager.is_none() {
            **manager = Some(Box::new(Manager::new(self.device.clone())?));
            self.runs.store(true, Release);
            // The background thread has to wait for messages too from now on.
            self.device.process().wake();
        }
        manager.as_deref_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Takes messages that came over the wire together, for any process of this host.
    pub(crate) fn deliver(&self, datagrams: &[ManagementDatagram]) {
        if datagrams.is_empty() {
            return;
        }
        let _ = self.call(|manager| {
            datagrams.iter().for_each(|datagram| manager.deliver(*datagram));
            Ok::<_, Refused>(())
        });
    }

    /// Processes of this host have come or gone. Those in `dead` have ended for certain, though they may hold locks for
    /// another moment. The peers of a dead process's connections have to be told: by processes that have a connection
    /// manager, or by this one if none has.
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

    /// The peers of all connections are gone, in a rehearsal. More is decided by a random number.
    pub(crate) fn lose_peers(&self, number: u64) {
        self.drive(|manager| manager.lose_peers(number));
    }

    /// A message to this address reached nobody.
    pub(crate) fn undelivered(&self, to: IpAddr, why: Obstacle, message: &[u8; MAD_BYTES]) {
        // Without a manager nothing has been sent.
        self.drive(|manager| manager.undelivered(to, why, message));
    }

    /// The descriptors that the background thread waits for.
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

    /// Tells all peers that their connections end. Call it before the process ends or the device is closed.
    pub(crate) fn end_all(&self, until: Instant) {
        if self.device.process().is_inherited() || !self.runs.load(Acquire) {
            return;
        }
        let manager = self.manager.try_lock_until(until);
        if let Some(manager) = manager.and_then(|mut manager| manager.take()) {
            manager.end();
        }
    }

    /// These addresses belong to other interfaces now, or have other hardware addresses.
    pub(crate) fn addresses_changed(&self, addresses: &[IpAddr]) {
        self.drive(|manager| manager.addresses_changed(addresses));
    }

    /// The device is of no use any more. This waits for a thread that is in a call, but not for ever: a defect of this
    /// library may be what keeps the thread there. A thread that takes longer reports the failure itself.
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
