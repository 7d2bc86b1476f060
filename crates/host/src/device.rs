//! The device of this process, as far as it is under its objects: what it has of the machine, what it
//! hands out, and the work that is left to be done on it.

mod domains;
mod keys;
mod limits;
mod observer;
mod outages;
mod port_events;
mod resources;
mod work;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};

use tracing::{debug, warn};
use transom_net::faults::{Faults, Injector};
use transom_net::{DevicePort, OutOfReach, Peer, Peers};
use transom_system::ThisProcess;
use transom_system::failure::Failed;
use transom_system::registry::Run;

pub use self::limits::Limits;
pub(crate) use self::observer::{Answered, Direction, Interface, Observer};
pub use self::port_events::PortEvents;
pub(crate) use self::resources::Resources;
use self::work::Work;
pub(crate) use self::work::{Due, Moderated, PortChange};
use crate::events::AsyncEvent;

/// How bytes get from one process to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copying {
    /// By the kernel, straight from memory to memory; through rings where it forbids that. Where
    /// `kernel.yama.ptrace_scope` is 1 the process has to agree to it: it lets all processes of its
    /// user trace it (`PR_SET_PTRACER_ANY`, see `prctl(2)`).
    #[default]
    Best,
    /// Through rings always.
    Rings,
}

/// Which memory of the process peers reach by instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// None: the kernel copies.
    #[default]
    Private,
    /// What is allocated as shared memory: device memory, buffers, and what the program allocates aligned to a page.
    Shared,
}

/// How a device is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Type 2 windows are of kind 2A instead of 2B (rule MWA-07).
    pub windows_2a: bool,
    /// How bytes get from one process to another.
    pub copying: Copying,
    /// Which memory peers reach by instructions.
    pub memory: Memory,
    /// Everything goes over the wire, also within this host.
    pub wire_only: bool,
    /// Packets say that they may be marked where the network is congested, and the sender of marked
    /// ones is told (rules H.5).
    pub congestion: bool,
    /// What goes wrong on purpose.
    pub faults: Option<&'static Faults>,
    /// The run in which devices that share the seed of faults are counted. Without one their slots tell
    /// them apart, which are others each time.
    pub run: Option<Run>,
    /// Who watches this process, to speak for it should it die: the number of a watcher.
    pub watcher: Option<u64>,
    /// The file to write down what crosses the links to.
    pub capture: Option<&'static Path>,
    /// When the connection manager gives up a peer that does not answer, in milliseconds, if not when
    /// Linux would (rule CM-43).
    pub connect_timeout: Option<u64>,
}

/// A device could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the Transom device: {doing}: {cause}")]
pub struct OpenError {
    doing: String,
    #[source]
    cause: io::Error,
}

impl OpenError {
    /// What could not be done, and why.
    pub fn new(doing: impl Into<String>, cause: io::Error) -> Self {
        Self { doing: doing.into(), cause }
    }

    /// The system's error number, if it was the system that refused.
    pub fn errno(&self) -> Option<i32> {
        self.cause.raw_os_error().or(match self.cause.kind() {
            io::ErrorKind::StorageFull => Some(libc::ENOSPC),
            io::ErrorKind::FileTooLarge => Some(libc::EFBIG),
            io::ErrorKind::QuotaExceeded => Some(libc::EAGAIN),
            io::ErrorKind::ReadOnlyFilesystem => Some(libc::EROFS),
            io::ErrorKind::PermissionDenied => Some(libc::EACCES),
            io::ErrorKind::InvalidInput => Some(libc::EINVAL),
            _ => None,
        })
    }
}

impl From<Failed> for OpenError {
    fn from(Failed: Failed) -> Self {
        let cause = io::Error::from_raw_os_error(libc::EIO);
        Self::new("it has failed, and is not closed everywhere", cause)
    }
}

/// The device is of the process that this one was forked from: nothing can be made on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inherited;

/// The device of this process: one for all its contexts.
pub struct Device {
    options: Options,
    process: Arc<ThisProcess>,
    port: DevicePort,
    pub(crate) peers: Peers,
    pub(crate) resources: Resources,
    port_events: PortEvents,
    observer: Option<Arc<dyn Observer>>,
    /// Requests that are answered without being carried out.
    pub(crate) injector: Injector,
    pub(crate) work: Work,
    /// It is of no use any more, and the program has been told.
    pub(crate) failed: AtomicBool,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({:?})", self.process.announcer())
    }
}

impl Device {
    /// Puts a device together. Its segment says already that everything is to come by message if there
    /// is an observer or something to inject.
    pub(crate) fn new(
        options: Options,
        process: Arc<ThisProcess>,
        port: DevicePort,
        observer: Option<Arc<dyn Observer>>,
    ) -> Self {
        let injector = Injector::new(options.faults.map_or(&[], |faults| &faults.rules));
        Self {
            options,
            port,
            peers: Peers::new(process.clone()),
            resources: Resources::new(process.clone()),
            work: Work::new(process.clone()),
            process,
            port_events: PortEvents::default(),
            observer,
            injector,
            failed: AtomicBool::new(false),
        }
    }

    /// Tells peers that nothing comes from here any more, and the background thread to end.
    pub(crate) fn depart(&self) {
        self.process.segment().header().departed.store(1, SeqCst);
        self.peers.all().iter().for_each(|peer| peer.notify());
        self.process.wake();
    }

    /// How it was opened.
    pub fn options(&self) -> Options {
        self.options
    }

    /// The process that it is of, among the others.
    #[inline]
    pub fn process(&self) -> &Arc<ThisProcess> {
        &self.process
    }

    /// Its port.
    #[inline]
    pub fn port(&self) -> &DevicePort {
        &self.port
    }

    /// Whether it is of use: not if it has failed.
    pub fn check(&self) -> Result<(), OpenError> {
        match self.failed.load(SeqCst) {
            true => Err(Failed.into()),
            false => Ok(()),
        }
    }

    /// Refuses to make something on an inherited device.
    ///
    /// # Errors
    ///
    /// [`Inherited`] where it is.
    pub fn check_own(&self) -> Result<(), Inherited> {
        if self.process.is_inherited() { Err(Inherited) } else { Ok(()) }
    }

    /// The process in a slot, attached to if it is not yet; `None` if nobody is there, or nobody whom
    /// the local link leads to.
    pub(crate) fn reach(&self, slot: u8) -> Result<Option<Arc<Peer>>, OutOfReach> {
        // The caller may hold a queue's lock, so the queue pairs that a loss concerns are told by who next
        // looks for work.
        self.peers.reach(slot, |lost| self.work.lose(lost))
    }

    /// As [`Device::reach`], for those who can do nothing about a process that is out of reach:
    /// the program is told once.
    pub(crate) fn peer(&self, slot: u8) -> Option<Arc<Peer>> {
        self.reach(slot).unwrap_or_else(|unreachable| {
            unreachable.say_once();
            None
        })
    }

    /// Takes in what has changed of the addresses, and tells the program (rule AE-05). Those that belong to
    /// another hardware address now.
    pub(crate) fn refresh_addresses(&self) -> Vec<IpAddr> {
        // What cannot be read now is read at the next change.
        let changes = match self.port.refresh_addresses() {
            Ok(changes) => changes,
            Err(error) => {
                warn!(%error, "the addresses cannot be read");
                return Vec::new();
            }
        };
        debug!(?changes, "addresses read again");
        if !changes.added.is_empty() || !changes.removed.is_empty() {
            self.port_events.raise(AsyncEvent::GidChange);
        }
        match changes.network {
            Some(true) => self.port_events.raise(AsyncEvent::PortActive),
            Some(false) => self.port_events.raise(AsyncEvent::PortError),
            None => {}
        }
        changes.hardware
    }

    /// Who is told of events of the port and of the device.
    pub fn port_events(&self) -> &PortEvents {
        &self.port_events
    }

    /// Whether every request travels as a message, even where the direct way is open, because this
    /// process looks at each.
    #[inline]
    pub(crate) fn by_message(&self) -> bool {
        self.observer.is_some() || !self.injector.is_empty()
    }

    /// Who is shown what crosses the links, if anybody wants to know.
    #[inline]
    pub(crate) fn observer(&self) -> Option<&dyn Observer> {
        self.observer.as_deref()
    }
}
