//! The device of this process.

mod domains;
mod keys;
mod limits;
mod outages;
mod process;
mod queue_pairs;
mod tables;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use transom_device::protection::Scramble;
use transom_device::queue::Completion;
use transom_net::faults::{Faults, FaultyNetwork, Injector};
use transom_net::{DevicePort, Network, OutOfReach, Peer, Peers, PortOptions};
use transom_system::memory::{Copier, consent, needs_consent, say_slow};
use transom_system::registry::Registry;
use transom_system::segment::Segment;
use transom_system::{ThisProcess, failure, fork};

pub use self::limits::Limits;
pub(crate) use self::outages::PortChange;
pub(crate) use self::tables::Tables;
use crate::capture::{Capture, Departures};
use crate::objects::{
    AsyncEvent, Busy, Cq, EventQueue, EventSource, ProtectionDomain, RegisterError,
};
use crate::progress::{Deferred, Progress};

/// How bytes get from one process to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copying {
    /// By the kernel, straight from memory to memory; by shared memory where it forbids that. Where
    /// `kernel.yama.ptrace_scope` is 1 the process has to agree to it: it lets all processes of its
    /// user trace it (`PR_SET_PTRACER_ANY`, see `prctl(2)`).
    #[default]
    Best,
    /// By shared memory always.
    SharedMemory,
}

/// How a device is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Type 2 windows are of kind 2A instead of 2B (rule MWA-07).
    pub windows_2a: bool,
    /// How bytes get from one process to another.
    pub copying: Copying,
    /// Everything goes over the wire, also within this host.
    pub wire_only: bool,
    /// Packets say that they may be marked where the network is congested, and the sender of marked
    /// ones is told (rules H.5).
    pub congestion: bool,
    /// What goes wrong on purpose.
    pub faults: Option<&'static Faults>,
    /// The file to write down what crosses the links to.
    pub capture: Option<&'static Path>,
}

/// A device could not be opened.
#[derive(Debug)]
pub struct OpenError {
    doing: String,
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

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot open the Transom device: {}: {}", self.doing, self.cause)
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// The device of this process: one for all its contexts.
pub struct Adapter {
    options: Options,
    process: Arc<ThisProcess>,
    port: DevicePort,
    pub(crate) peers: Peers,
    pub(crate) tables: Tables,
    /// Who is told of events of the port.
    listeners: Mutex<Vec<Weak<EventSource<AsyncEvent>>>>,
    pub(crate) capture: Option<Arc<Capture>>,
    /// Requests that are answered without being carried out.
    pub(crate) injector: Injector,
    by_message: bool,
    pub(crate) progress: Progress,
    /// It is of no use any more, and the program has been told.
    pub(crate) failed: AtomicBool,
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Adapter({:?})", self.process.announcer())
    }
}

impl Adapter {
    /// Opens a device for this process and starts its background thread, which ends with the last
    /// reference to the device.
    pub fn open(options: Options) -> Result<Arc<Self>, OpenError> {
        let faults = options.faults.and_then(|faults| faults.network);
        Self::open_on(options, |slot| {
            let network = Mutex::new(FaultyNetwork::new(&faults?, slot));
            Some(Arc::new(network))
        })
    }

    /// Opens a device whose packets pass through a network, which is made for its slot.
    pub(crate) fn open_on(
        options: Options,
        network: impl FnOnce(u8) -> Option<Arc<dyn Network>>,
    ) -> Result<Arc<Self>, OpenError> {
        let step = |doing: &'static str| move |cause| OpenError::new(doing, cause);
        failure::begin_anew()?;
        let segment = Segment::create().map_err(step("making its shared memory"))?;
        let mut seed = vec![0; Scramble::SEED_BYTES + 2];
        getrandom::fill(&mut seed)
            .map_err(io::Error::other)
            .map_err(step("asking the system for random numbers"))?;
        let (seed, first_qp) = seed.split_at(Scramble::SEED_BYTES);
        let first_qp = u16::from_le_bytes([first_qp[0], first_qp[1]]);
        segment.scramble().seed(seed.try_into().expect("split at its length"));
        let injector = Injector::new(options.faults.map_or(&[], |faults| &faults.rules));
        let capture = options.capture.map(|path| {
            let doing = || format!("opening the capture file {}", path.display());
            Capture::open(path).map_err(|cause| OpenError::new(doing(), cause))
        });
        let capture = capture.transpose()?.map(Arc::new);
        let identity = capture.as_ref().map_or(0, |capture| capture.identity());
        segment.header().capture.store(identity, Relaxed);
        let by_message = !injector.is_empty() || capture.is_some();
        segment.header().by_message.store(u32::from(by_message), Relaxed);
        let copier = match options.copying {
            Copying::Best => Copier::best(),
            Copying::SharedMemory => Copier::pipes(),
        };
        let copier = copier.map_err(step("finding a way to copy memory"))?;
        if options.copying == Copying::Best && !matches!(copier, Copier::Kernel) {
            say_slow("the kernel does not let this process use process_vm_readv (seccomp)");
        }
        if matches!(copier, Copier::Kernel) && needs_consent() {
            consent();
        }
        let registry = Registry::open().map_err(step("opening the registry of processes"))?;
        let claim =
            registry.claim(segment.descriptor()).map_err(step("taking a place in the registry"))?;
        let slot = claim.announcer().slot;
        let process = Arc::new(ThisProcess::new(claim, segment, copier));
        let observer = capture.clone().map(|capture| {
            let departures: Arc<dyn transom_net::Observer> =
                Arc::new(Departures { capture, registry, slot });
            departures
        });
        let wire_only = options.wire_only;
        let port_options = PortOptions { wire_only, observer, network: network(slot) };
        let port = DevicePort::new(process.clone(), port_options)
            .map_err(step("asking the kernel for its addresses"))?;
        let adapter = Arc::new(Self {
            options,
            port,
            peers: Peers::new(process.clone()),
            tables: Tables::new(process.clone(), first_qp),
            process,
            listeners: Mutex::default(),
            capture,
            injector,
            by_message,
            progress: Progress::default(),
            failed: AtomicBool::new(false),
        });
        let handler: Weak<Self> = Arc::downgrade(&adapter);
        fork::watch(handler).map_err(step("asking to be told of forks"))?;
        Progress::start(&adapter).map_err(step("starting its background thread"))?;
        adapter.schedule_outages();
        Ok(adapter)
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

    /// The process in a slot, attached to if it is not yet; `None` if nobody is there, or nobody whom
    /// the local link leads to.
    pub(crate) fn reach(&self, slot: u8) -> Result<Option<Arc<Peer>>, OutOfReach> {
        // The caller may hold a queue's lock, so the queue pairs that a loss concerns are told later.
        self.peers.reach(slot, |lost| self.progress.defer(Deferred::PeerLost(lost)))
    }

    /// As [`Adapter::reach`], for those who can do nothing about a process that is out of reach:
    /// the program is told once.
    pub(crate) fn peer(&self, slot: u8) -> Option<Arc<Peer>> {
        self.reach(slot).unwrap_or_else(|unreachable| {
            unreachable.say_once();
            None
        })
    }

    /// Sends all acknowledgements that were kept back, for the program exits. In a forked child they are
    /// the parent's.
    pub(crate) fn acknowledge_all(&self, until: Instant) {
        if self.port.wire().is_some() && !self.process.is_inherited() {
            self.tables.queue_pairs.all().iter().for_each(|qp| qp.acknowledge_at_exit(until));
        }
    }

    /// Has events of the port and of the device told to `events` too, for as long as the caller keeps what it gets.
    pub fn tell_port_events(
        &self,
        events: &Arc<EventQueue<AsyncEvent>>,
    ) -> Result<Arc<EventSource<AsyncEvent>>, RegisterError> {
        const PORT: u64 = 1;
        const KINDS: &[AsyncEvent] = &[
            AsyncEvent::PortActive,
            AsyncEvent::PortError,
            AsyncEvent::GidChange,
            AsyncEvent::DeviceFatal,
        ];
        let source = Arc::new(events.attach(PORT, KINDS)?);
        let mut listeners = self.listeners.lock();
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(&source));
        Ok(source)
    }

    /// Takes in what has changed of the addresses, and tells the program (rule AE-05).
    pub(crate) fn refresh_addresses(&self) {
        // What cannot be read now is read at the next change.
        let Ok(changes) = self.port.refresh_addresses() else { return };
        if !changes.added.is_empty() || !changes.removed.is_empty() {
            self.raise_port_event(AsyncEvent::GidChange);
        }
        match changes.network {
            Some(true) => self.raise_port_event(AsyncEvent::PortActive),
            Some(false) => self.raise_port_event(AsyncEvent::PortError),
            None => {}
        }
    }

    /// Tells the program of an event of the port or the device.
    pub(crate) fn raise_port_event(&self, event: AsyncEvent) {
        for listener in self.listeners.lock().iter().filter_map(Weak::upgrade) {
            listener.raise(event);
        }
    }

    /// A new protection domain; `None` at the limit (rule PD-11), or without memory.
    pub fn allocate_domain(&self) -> Option<Arc<ProtectionDomain>> {
        self.tables.domains.allocate()
    }

    /// Ends a protection domain that nothing belongs to.
    ///
    /// # Errors
    ///
    /// [`Busy`] if something does.
    pub fn free_domain(&self, domain: &ProtectionDomain) -> Result<(), Busy> {
        self.tables.domains.free(domain)
    }

    /// Refuses to make something on an inherited device.
    pub(crate) fn check_own(&self) -> Result<(), RegisterError> {
        if self.process.is_inherited() { Err(RegisterError::Inherited) } else { Ok(()) }
    }

    /// Whether every request travels as a message, even where the direct way is open, because this
    /// process looks at each.
    #[inline]
    pub(crate) fn by_message(&self) -> bool {
        self.by_message
    }

    /// Hands a completion to its queue; true if the queue has just overrun, which its queue pairs
    /// learn soon.
    #[inline]
    pub(crate) fn complete_to(
        &self,
        cq: &Arc<Cq>,
        completion: Completion,
        solicited: bool,
    ) -> bool {
        let overrun = cq.push(&completion, solicited);
        if overrun {
            self.progress.defer(Deferred::Overrun(cq.id()));
        }
        overrun
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        if self.process.is_inherited() {
            return;
        }
        self.depart();
        self.port.send_rest();
    }
}
