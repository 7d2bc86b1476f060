//! The device of this process.

mod domains;
mod keys;
mod limits;
mod outages;
mod peers;
mod process;
mod queue_pairs;
mod wire;

use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Once, OnceLock, Weak};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use transom_device::execution::MemoryGone;
use transom_device::protection::{Announcer, Grant, PROCESSES, Refusal, Scramble, Waiter};
use transom_device::qp::QpSummary;
use transom_device::queue::Completion;
use transom_net::faults::{Faults, Injector, Outages};
use transom_net::{Peer, Wire};
use transom_system::addresses::Addresses;
use transom_system::fork::Owner;
use transom_system::memory::Copier;
use transom_system::object_counts::ObjectCounts;
use transom_system::registry::{CallRecord, CallRefusal, Claim, RefusalRecord, Registry};
use transom_system::segment::Segment;
use transom_system::{clock, failure, say};

use self::domains::Domains;
use self::keys::Keys;
pub use self::limits::Limits;
pub(crate) use self::outages::PortChange;
use self::queue_pairs::QueuePairs;
use crate::capture::Capture;
use crate::objects::{
    AsyncEvent, Cq, EventQueue, EventSource, ForeignTargets, Groups, RegisterError, SharedQueues,
    XrcDomains,
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
    /// The process that opened it.
    owner: Owner,
    pub(crate) claim: Claim,
    segment: Segment,
    addresses: RwLock<Addresses>,
    /// Who is told of events of the port.
    listeners: Mutex<Vec<Weak<EventSource<AsyncEvent>>>>,
    pub(crate) copier: Copier,
    by_message: bool,
    pub(crate) capture: Option<Arc<Capture>>,
    /// Requests that are answered without being carried out.
    pub(crate) injector: Injector,
    /// The wire link, from when something first goes over it.
    wire: OnceLock<Arc<Wire>>,
    opening_wire: Mutex<()>,
    /// What packets pass through instead of what was asked for.
    #[cfg(test)]
    pub(crate) network: OnceLock<Arc<dyn transom_net::Network>>,
    /// A queue pair has been made ready to receive datagrams from other hosts.
    expects_datagrams: AtomicBool,
    keys: Keys,
    domains: Mutex<Domains>,
    pub(crate) completion_counters: AtomicU32,
    /// Bytes of device memory handed out.
    pub(crate) device_memory: AtomicU64,
    queue_pairs: RwLock<QueuePairs>,
    pub(crate) shared_queues: SharedQueues,
    pub(crate) xrc_domains: XrcDomains,
    pub(crate) groups: Groups,
    pub(crate) foreign_targets: ForeignTargets,
    peers: RwLock<Box<[Option<Arc<Peer>>; PROCESSES]>>,
    pub(crate) progress: Progress,
    pub(crate) outages: Arc<Outages>,
    /// It is of no use any more, and the program has been told.
    pub(crate) failed: AtomicBool,
    /// Makes atomics one step (rule AT-09).
    pub(crate) atomics: Mutex<()>,
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Adapter({:?})", self.claim.announcer())
    }
}

impl Adapter {
    /// Opens a device for this process and starts its background thread, which ends with the last
    /// reference to the device.
    pub fn open(options: Options) -> Result<Arc<Self>, OpenError> {
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
        let addresses = Addresses::read().map_err(step("asking the kernel for its addresses"))?;
        let copier = match options.copying {
            Copying::Best => Copier::best(),
            Copying::SharedMemory => Copier::pipes(),
        };
        let copier = copier.map_err(step("finding a way to copy memory"))?;
        if options.copying == Copying::Best && !matches!(copier, Copier::Kernel) {
            say_slow("the kernel does not let this process use process_vm_readv (seccomp)");
        }
        if matches!(copier, Copier::Kernel) && transom_system::memory::needs_consent() {
            consent();
        }
        let registry = Registry::open().map_err(step("opening the registry of processes"))?;
        let claim =
            registry.claim(segment.descriptor()).map_err(step("taking a place in the registry"))?;
        segment.hazards().attach(claim.announcer());
        segment.publish(claim.announcer().generation);
        let adapter = Arc::new(Self {
            options,
            owner: Owner::this(),
            claim,
            segment,
            addresses: RwLock::new(addresses),
            listeners: Mutex::default(),
            copier,
            by_message,
            capture,
            injector,
            wire: OnceLock::new(),
            opening_wire: Mutex::new(()),
            #[cfg(test)]
            network: OnceLock::new(),
            expects_datagrams: AtomicBool::new(false),
            keys: Keys::default(),
            domains: Mutex::default(),
            completion_counters: AtomicU32::new(0),
            device_memory: AtomicU64::new(0),
            queue_pairs: RwLock::new(QueuePairs::starting_at(first_qp)),
            shared_queues: SharedQueues::default(),
            xrc_domains: XrcDomains::default(),
            groups: Groups::default(),
            foreign_targets: ForeignTargets::default(),
            peers: RwLock::new(Box::new(std::array::from_fn(|_| None))),
            progress: Progress::default(),
            outages: Arc::default(),
            failed: AtomicBool::new(false),
            atomics: Mutex::new(()),
        });
        let handler: Weak<Self> = Arc::downgrade(&adapter);
        transom_system::fork::watch(handler).map_err(step("asking to be told of forks"))?;
        Progress::start(&adapter).map_err(step("starting its background thread"))?;
        adapter.schedule_outages();
        Ok(adapter)
    }

    /// Tells peers that nothing comes from here any more, and the background thread to end.
    pub(crate) fn depart(&self) {
        self.segment.header().departed.store(1, SeqCst);
        for peer in self.peers.read().iter().flatten() {
            peer.notify();
        }
        self.progress.wake(self);
    }

    /// How it was opened.
    pub fn options(&self) -> Options {
        self.options
    }

    /// Its slot in the registry, and the generation of its stay.
    pub fn announcer(&self) -> Announcer {
        self.claim.announcer()
    }

    /// Its addresses: the GID table.
    pub fn addresses(&self) -> RwLockReadGuard<'_, Addresses> {
        self.addresses.read()
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
        let Ok(changes) = self.addresses.write().refresh() else { return };
        if !changes.added.is_empty() || changes.moved {
            self.expect_at_new_address();
        }
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

    /// A descriptor that names this device, and by which [`Adapter::is_named_by`] knows it again.
    pub fn command_descriptor(&self) -> io::Result<OwnedFd> {
        self.segment.duplicate_descriptor()
    }

    /// Whether a descriptor, however it was duplicated, is one of this device, and the device one of
    /// this process.
    pub fn is_named_by(&self, descriptor: BorrowedFd<'_>) -> bool {
        !self.is_inherited() && self.segment.is_behind(descriptor)
    }

    /// Whether it was opened by the process that this one was forked from, and nothing may be done to
    /// what it shares. It takes no system call.
    #[inline]
    pub fn is_inherited(&self) -> bool {
        self.owner.is_another()
    }

    /// Refuses to make something on an inherited device.
    pub(crate) fn check_own(&self) -> Result<(), RegisterError> {
        if self.is_inherited() { Err(RegisterError::Inherited) } else { Ok(()) }
    }

    /// The memory it shares.
    #[inline]
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// How many objects programs have made on it. Those that a forked child ends are its parent's, and
    /// stay counted there.
    pub fn objects(&self) -> &ObjectCounts {
        static OF_NOBODY: ObjectCounts = ObjectCounts::new();
        if self.is_inherited() { &OF_NOBODY } else { &self.segment.header().objects }
    }

    /// Whether every request travels as a message, even where the direct way is open, because this
    /// process looks at each.
    #[inline]
    pub(crate) fn by_message(&self) -> bool {
        self.by_message
    }

    /// Writes bytes of ours to granted memory of this process.
    pub(crate) fn store(&self, at: &Grant<'_>, bytes: &[u8]) -> Result<(), MemoryGone> {
        let (to, from) = (at.address(), bytes.as_ptr() as u64);
        self.copier.copy(to, from, bytes.len() as u64).map_err(|_| MemoryGone)
    }

    /// Writes pieces of ours, one after the other, to granted memory of this process.
    pub(crate) fn store_pieces(&self, at: &Grant<'_>, pieces: &[&[u8]]) -> Result<(), MemoryGone> {
        self.copier.copy_pieces(at.address(), pieces).map_err(|_| MemoryGone)
    }

    /// Changes eight bytes of this process in one step among all atomics (rule AT-09).
    pub(crate) fn atomic(
        &self,
        at: &Grant<'_>,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, MemoryGone> {
        let _one_step = self.atomics.lock();
        let mut old = 0_u64;
        self.copier.copy(&raw mut old as u64, at.address(), 8).map_err(|_| MemoryGone)?;
        let new = update(old);
        if new != old {
            self.copier.copy(at.address(), &raw const new as u64, 8).map_err(|_| MemoryGone)?;
        }
        Ok(old)
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

    /// Notes a refusal for `transom explain`.
    pub(crate) fn note_refusal(&self, summary: &QpSummary, refusal: &Refusal) {
        let record = RefusalRecord {
            time: clock::wall(),
            refusal: *refusal,
            age: match refusal.object.since {
                0 => 0,
                since => clock::steady().saturating_sub(since),
            },
            peer: summary.peering().from.bits(),
            qp_access: summary.gate().access,
        };
        self.claim.note_refusal(&record);
    }

    /// Notes that a verb was refused at once, for `transom explain`. What a forked child is refused is
    /// not noted: the records are its parent's.
    pub fn note_refused_call(&self, call: &CallRefusal) {
        if !self.is_inherited() {
            let record = CallRecord { time: clock::wall(), call: *call };
            self.claim.note_refused_call(&record);
        }
    }
}

/// Says once that data takes the slow way, what that costs, and what to do about it.
fn say_slow(why: &str) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        say(format_args!(
            "{why}; data goes through shared memory instead, and a WRITE or READ waits for the \
             process that it is for: microseconds while that process polls or sleeps, milliseconds \
             a message if it looks at its memory on a busy processor. Copying directly needs \
             kernel.yama.ptrace_scope to be 0 or 1, or CAP_SYS_PTRACE at both ends, and a seccomp \
             profile that allows process_vm_readv and process_vm_writev"
        ));
    });
}

/// Lets the other processes of this user copy from and to this one. Yama asks for it where
/// `kernel.yama.ptrace_scope` is 1, and it lets them trace this process as well, as they may everywhere
/// else.
fn consent() {
    // SAFETY: this prctl takes plain numbers.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
}

/// Waiting: spin briefly, then give way. Who is waited for longer is noted for `transom explain`.
impl Waiter for Adapter {
    fn pause(&self, round: u32, on: Option<Announcer>) {
        match round {
            0..64 => std::hint::spin_loop(),
            // Each may take as long as all who want the processor have their turns.
            64..320 => std::thread::yield_now(),
            _ => {
                if let Some(process) = on.and_then(|on| self.claim.registry().process(on.slot)) {
                    self.claim.note_waiting(process.pid);
                }
                // The other side is stopped or starved: ask again a few thousand times a second.
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        }
    }

    fn resumed(&self) {
        self.claim.note_waiting(0);
    }

    fn is_gone(&self, process: Announcer) -> bool {
        let me = self.announcer();
        if process.slot == me.slot {
            return process.generation != me.generation;
        }
        !self.claim.registry().is_alive(process)
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        if self.is_inherited() {
            return;
        }
        self.depart();
        self.send_rest();
    }
}
