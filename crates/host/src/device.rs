//! The device of this process, below its objects: its share of the machine, the resources it hands out, and the work
//! that is left to do on it.

mod deadlines;
mod domains;
mod exit;
mod keys;
mod limits;
mod listener;
mod observer;
mod outages;
mod polling;
mod port_events;
mod resources;
mod traced;
mod work;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tracing::{debug, warn};
use transom_net::faults::{Faults, Injector};
use transom_net::{DevicePort, OutOfReach, Peer, Peers};
use transom_system::ThisProcess;
use transom_system::failure::{self, Failed};
use transom_system::registry::Run;
use transom_system::sanitizers;

pub(crate) use self::deadlines::{Due, PortChange};
pub use self::limits::Limits;
pub(crate) use self::listener::hears_all;
pub use self::listener::{Door, Listener, listen};
pub(crate) use self::observer::{Answered, Direction, Interface, Observer};
pub use self::port_events::PortEvents;
pub(crate) use self::resources::Resources;
use self::work::Work;
use crate::events::{Alarm, AsyncEvent, CompletionEvent, EventQueue, HoldsEvents};

/// How bytes are copied from one process to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copying {
    /// The kernel copies directly from memory to memory. Where the kernel forbids that, rings are used. If
    /// `kernel.yama.ptrace_scope` is 1 the process has to agree to direct copies: it lets all processes of its user
    /// trace it (`PR_SET_PTRACER_ANY`, see `prctl(2)`).
    #[default]
    Best,
    /// Through rings always.
    Rings,
}

/// The memory of the process that peers reach with plain loads and stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// None: the kernel copies.
    #[default]
    Private,
    /// Memory that is allocated as shared memory: device memory, buffers, and the program's page-aligned allocations.
    Shared,
}

/// How a device is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Its number among the devices of the program.
    pub number: u8,
    /// How many others the program has, which it may not have opened.
    pub others: u8,
    /// Its port is down for ever.
    pub port_is_down: bool,
    /// The network interface whose addresses it has, if not those of all.
    pub interface: Option<&'static str>,
    /// Type 2 windows are of kind 2A instead of 2B (rule MWA-07).
    pub windows_2a: bool,
    /// How bytes get from one process to another.
    pub copying: Copying,
    /// Which memory peers reach by instructions.
    pub memory: Memory,
    /// Everything goes over the wire, even within this host.
    pub wire_only: bool,
    /// A congested network may mark packets, and the sender of marked packets is told (rules H.5).
    pub congestion: bool,
    /// The faults to inject.
    pub faults: Option<&'static Faults>,
    /// The run that counts the devices that share the seed of faults. Without a run they are told apart by their slots,
    /// which differ each time.
    pub run: Option<Run>,
    /// The watcher that speaks for this process if it dies, by its number.
    pub watcher: Option<u64>,
    /// The watcher that wants the events of this process from the beginning, by its number.
    pub tracer: Option<u64>,
    /// The watcher that tells the user what this process was refused, by its number.
    pub explainer: Option<u64>,
    /// The file that gets a record of the links' traffic.
    pub capture: Option<&'static Path>,
    /// How long the connection manager waits for a peer that does not answer, in milliseconds. If unset: as long as
    /// Linux (rule CM-43).
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
    /// An error: what was being done, and why it failed.
    pub fn new(doing: impl Into<String>, cause: io::Error) -> Self {
        Self { doing: doing.into(), cause }
    }

    /// The system's error number, if the system refused.
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

/// The device belongs to the process that this one was forked from. You can make nothing on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inherited;

/// The device of this process. All its contexts share it.
pub struct Device {
    options: Options,
    process: Arc<ThisProcess>,
    port: DevicePort,
    pub(crate) peers: Peers,
    pub(crate) resources: Resources,
    port_events: PortEvents,
    /// The completion channels.
    channels: Mutex<Vec<Weak<EventQueue<CompletionEvent>>>>,
    observer: Option<Arc<dyn Observer>>,
    /// Answers requests without carrying them out.
    pub(crate) injector: Injector,
    pub(crate) work: Work,
    /// What comes to this process's own queue pairs, and goes between them, travels as a message.
    by_message: bool,
    /// It is of no use any more, and the program has been told.
    pub(crate) failed: AtomicBool,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({:?})", self.process.announcer())
    }
}

impl Alarm for Device {
    fn set(&self, time: u64, queue: Weak<dyn HoldsEvents>) -> bool {
        self.work.deadlines.schedule_events(time, queue);
        // A failure takes those that came before it.
        !self.failed.load(SeqCst)
    }
}

impl Device {
    /// Assembles a device. If there is an observer or something to inject, its segment says from the start that every
    /// request must come as a message.
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
            resources: Resources::new(process.clone(), options.number),
            work: Work::new(process.clone()),
            by_message: process.segment().header().by_message.load(Relaxed) == 1
                || sanitizers::are_told(),
            process,
            port_events: PortEvents::default(),
            channels: Mutex::default(),
            observer,
            injector,
            failed: AtomicBool::new(false),
        }
    }

    /// Makes the queue of a context's asynchronous events.
    ///
    /// # Errors
    ///
    /// Without a descriptor for it.
    pub fn async_events(self: &Arc<Self>) -> io::Result<Arc<EventQueue<AsyncEvent>>> {
        Ok(Arc::new(EventQueue::new()?.with_alarm(self)))
    }

    /// Makes the queue of a completion channel's events.
    ///
    /// # Errors
    ///
    /// Without a descriptor for it.
    pub fn completion_events(self: &Arc<Self>) -> io::Result<Arc<EventQueue<CompletionEvent>>> {
        let events = Arc::new(EventQueue::of(&self.process)?.with_alarm(self));
        let mut channels = self.channels.lock();
        channels.retain(|channel| channel.strong_count() > 0);
        channels.push(Arc::downgrade(&events));
        drop(channels);
        // A failure closes those that came before it.
        if self.failed.load(SeqCst) {
            events.close();
        }
        Ok(events)
    }

    /// It has failed: no more events come to a completion channel.
    pub(crate) fn close_channels(&self) {
        self.channels.lock().iter().filter_map(Weak::upgrade).for_each(|events| events.close());
    }

    /// Removes the device, as if it were unplugged. A program that has no other has none any more.
    pub(crate) fn remove(&self) {
        match self.options.others {
            0 => failure::fail(),
            others => failure::remove(self.options.number, others),
        }
    }

    /// Tells peers that nothing more comes from here, and tells the background thread to end.
    pub(crate) fn depart(&self) {
        self.process.segment().header().departed.store(1, SeqCst);
        self.peers.all().iter().for_each(|peer| peer.notify());
        self.process.wake();
    }

    /// How it was opened.
    pub fn options(&self) -> Options {
        self.options
    }

    /// The process that the device belongs to, as the others see it.
    #[inline]
    pub fn process(&self) -> &Arc<ThisProcess> {
        &self.process
    }

    /// Its port.
    #[inline]
    pub fn port(&self) -> &DevicePort {
        &self.port
    }

    /// Checks that it is usable: it has not failed.
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

    /// The process in a slot. Attaches to it if necessary. `None` if nobody is there, or if the local link does not
    /// lead to that process.
    pub(crate) fn reach(&self, slot: u8) -> Result<Option<Arc<Peer>>, OutOfReach> {
        // The caller may hold a queue's lock, so the next thread that looks for work tells the queue pairs of a loss.
        self.peers.reach(slot, |lost| self.work.lose(lost))
    }

    /// As [`Device::reach`], for callers that can do nothing about a process out of reach. The program is told once.
    pub(crate) fn peer(&self, slot: u8) -> Option<Arc<Peer>> {
        self.reach(slot).unwrap_or_else(|unreachable| {
            unreachable.say_once();
            None
        })
    }

    /// Takes in the changes of the addresses, and tells the program (rule AE-05). Returns the addresses that belong to
    /// another hardware address now.
    pub(crate) fn refresh_addresses(&self) -> Vec<IpAddr> {
        // If they cannot be read now, the next change reads them.
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

    /// The listeners for events of the port and of the device.
    pub fn port_events(&self) -> &PortEvents {
        &self.port_events
    }

    /// Whether what comes to this process's own queue pairs, and goes between them, travels as a message, even where the
    /// direct path is open, because this process looks at each request, or a sanitizer at its memory.
    #[inline]
    pub(crate) fn by_message(&self) -> bool {
        self.by_message
    }

    /// The observer of the links' traffic, if there is one.
    #[inline]
    pub(crate) fn observer(&self) -> Option<&dyn Observer> {
        self.observer.as_deref()
    }
}
