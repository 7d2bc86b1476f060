//! The device of this process.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Once, Weak};

use parking_lot::{Mutex, RwLock};
use transom_device::execution::MemoryGone;
use transom_device::protection::{
    Announcer, Exhausted, Grant, Key, KeyOwner, Kind, PROCESSES, Refusal, Scramble, Waiter,
};
use transom_device::qp::QpSummary;
use transom_device::queue::Completion;
use transom_wire::grh::map_ipv4;

use crate::link::Peer;
use crate::memory::Copier;
use crate::objects::{
    Cq, ForeignTargets, Groups, ProtectionDomain, QueuePair, SharedQueues, XrcDomains,
};
use crate::progress::{Deferred, Progress};
use crate::registry::{Claim, RefusalRecord, Registry};
use crate::segment::{KEY_SLOTS, Segment};

/// The device's first address: the RoCE v2 form of 127.0.0.1 (rule NET-08).
pub const GID: [u8; 16] = map_ipv4([127, 0, 0, 1]);

/// All addresses of the device, in the order of the GID table: those of the loopback interface.
pub const GIDS: [[u8; 16]; 2] = [GID, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]];

/// How bytes get from one process to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copying {
    /// By the kernel, straight from memory to memory; by shared memory where it forbids that.
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
}

/// What a device has of each; reported to programs, and enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory regions.
    pub regions: u32,
    /// Memory windows.
    pub windows: u32,
    /// Protection domains.
    pub domains: u32,
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Completion queues.
    pub completion_queues: u32,
    /// Work requests of a queue.
    pub work_requests: u32,
    /// Pieces of a work request.
    pub pieces: u32,
    /// Inline bytes of a work request.
    pub inline: u32,
    /// Completions of a queue.
    pub completions: u32,
    /// Outstanding READs and atomics of a queue pair, each way.
    pub read_resources: u8,
    /// Shared receive queues.
    pub shared_receive_queues: u32,
    /// Tagged buffers of a shared receive queue.
    pub tags: u32,
    /// Outstanding list operations of a shared receive queue with tag matching.
    pub tag_operations: u32,
    /// Address handles.
    pub address_handles: u32,
    /// Multicast groups with members in this process.
    pub multicast_groups: u32,
    /// Queue pairs of one multicast group.
    pub multicast_members: u32,
    /// Bytes of device memory of all `ibv_alloc_dm` together.
    pub device_memory: u64,
}

impl Limits {
    /// The limits of every Transom device.
    pub const DEVICE: Self = Self {
        regions: 1 << 20,
        windows: 1 << 20,
        domains: 1 << 16,
        queue_pairs: 60_000,
        completion_queues: 1 << 16,
        work_requests: 1 << 15,
        pieces: 32,
        inline: 1024,
        completions: 1 << 22,
        read_resources: 128,
        shared_receive_queues: 1 << 16,
        tags: 1 << 10,
        tag_operations: 1 << 15,
        address_handles: 1 << 20,
        multicast_groups: 1 << 12,
        multicast_members: 1 << 8,
        device_memory: 64 << 20,
    };
}

/// A device could not be opened.
#[derive(Debug)]
pub struct OpenError {
    doing: &'static str,
    cause: io::Error,
}

impl OpenError {
    /// The system's error number, if it was the system that refused.
    pub fn errno(&self) -> Option<i32> {
        self.cause.raw_os_error().or(match self.cause.kind() {
            io::ErrorKind::StorageFull => Some(libc::ENOSPC),
            io::ErrorKind::QuotaExceeded => Some(libc::EAGAIN),
            io::ErrorKind::ReadOnlyFilesystem => Some(libc::EROFS),
            io::ErrorKind::PermissionDenied => Some(libc::EACCES),
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
    pub(crate) claim: Claim,
    segment: Segment,
    pub(crate) copier: Copier,
    keys: Mutex<KeyOwner>,
    regions: AtomicU32,
    windows: AtomicU32,
    domains: AtomicU32,
    pub(crate) completion_queues: AtomicU32,
    /// Bytes of device memory handed out.
    pub(crate) device_memory: AtomicU64,
    next_domain: AtomicU32,
    queue_pairs: RwLock<QueuePairs>,
    pub(crate) shared_queues: SharedQueues,
    pub(crate) xrc_domains: XrcDomains,
    pub(crate) groups: Groups,
    pub(crate) foreign_targets: ForeignTargets,
    peers: RwLock<Box<[Option<Arc<Peer>>; PROCESSES]>>,
    pub(crate) progress: Progress,
    /// Makes atomics one step (rule AT-09).
    pub(crate) atomics: Mutex<()>,
}

struct QueuePairs {
    by_index: HashMap<u16, Weak<QueuePair>>,
    next: u16,
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
        let step = |doing| move |cause| OpenError { doing, cause };
        let segment = Segment::create().map_err(step("making its shared memory"))?;
        let mut seed = vec![0; Scramble::SEED_BYTES + 2];
        getrandom::fill(&mut seed)
            .map_err(io::Error::other)
            .map_err(step("asking the system for random numbers"))?;
        let (seed, first_qp) = seed.split_at(Scramble::SEED_BYTES);
        segment.scramble().seed(seed.try_into().expect("split at its length"));
        let copier = match options.copying {
            Copying::Best => Copier::best(),
            Copying::SharedMemory => Copier::pipes(),
        };
        let copier = copier.map_err(step("finding a way to copy memory"))?;
        if options.copying == Copying::Best && !matches!(copier, Copier::Kernel) {
            say_slow("this process may not use process_vm_readv");
        }
        // Yama lets a process be reached by others of its user only if it says so; elsewhere this
        // does nothing.
        // SAFETY: this prctl takes plain numbers.
        unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
        let registry = Registry::open().map_err(step("opening the registry of processes"))?;
        let claim =
            registry.claim(segment.descriptor()).map_err(step("taking a place in the registry"))?;
        segment.hazards().attach(claim.announcer());
        segment.publish(claim.announcer().generation);
        let adapter = Arc::new(Self {
            options,
            claim,
            segment,
            copier,
            keys: Mutex::new(KeyOwner::new(KEY_SLOTS, 0)),
            regions: AtomicU32::new(0),
            windows: AtomicU32::new(0),
            domains: AtomicU32::new(0),
            completion_queues: AtomicU32::new(0),
            device_memory: AtomicU64::new(0),
            next_domain: AtomicU32::new(1),
            queue_pairs: RwLock::new(QueuePairs {
                by_index: HashMap::new(),
                next: u16::from_le_bytes([first_qp[0], first_qp[1]]),
            }),
            shared_queues: SharedQueues::default(),
            xrc_domains: XrcDomains::default(),
            groups: Groups::default(),
            foreign_targets: ForeignTargets::default(),
            peers: RwLock::new(Box::new(std::array::from_fn(|_| None))),
            progress: Progress::default(),
            atomics: Mutex::new(()),
        });
        crate::fork::watch(&adapter);
        Progress::start(&adapter).map_err(step("starting its background thread"))?;
        Ok(adapter)
    }

    /// How it was opened.
    pub fn options(&self) -> Options {
        self.options
    }

    /// Its slot in the registry, and the generation of its stay.
    pub fn announcer(&self) -> Announcer {
        self.claim.announcer()
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

    /// Whether it was opened by the process that this one was forked from.
    pub fn is_inherited(&self) -> bool {
        self.segment.header().pid.load(Relaxed) != std::process::id()
    }

    /// The memory it shares.
    #[inline]
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// A new protection domain; `None` at the limit (rule PD-11).
    pub fn allocate_domain(&self) -> Option<Arc<ProtectionDomain>> {
        let one_more = |count| (count < Limits::DEVICE.domains).then(|| count + 1);
        self.domains.fetch_update(AcqRel, Relaxed, one_more).ok()?;
        Some(Arc::new(ProtectionDomain::new(self.next_domain.fetch_add(1, Relaxed))))
    }

    /// Ends a protection domain that nothing belongs to.
    pub fn free_domain(&self, domain: &ProtectionDomain) -> Result<(), crate::objects::Busy> {
        domain.close()?;
        // A parent domain stands for one that is counted already.
        if !domain.is_parent_domain() {
            self.domains.fetch_sub(1, AcqRel);
        }
        Ok(())
    }

    /// Takes a slot and key for an object; windows of all kinds count as one.
    pub(crate) fn take_key(&self, kind: Kind) -> Result<(u32, Key), Exhausted> {
        let (count, limit) = self.count(kind);
        let one_more = |count| (count < limit).then(|| count + 1);
        count.fetch_update(AcqRel, Relaxed, one_more).map_err(|_| Exhausted::Full)?;
        self.take_slot(kind).inspect_err(|_| {
            count.fetch_sub(1, AcqRel);
        })
    }

    fn take_slot(&self, kind: Kind) -> Result<(u32, Key), Exhausted> {
        let mut random = [0];
        getrandom::fill(&mut random).map_err(|_| Exhausted::Full)?;
        let mut keys = self.keys.lock();
        loop {
            match keys.take(&self.segment.keys(), kind, random[0]) {
                Err(Exhausted::NeedsMemory { open }) => {
                    // A quarter of a megabyte at a time: little is taken that nobody uses.
                    let open = (open + 4096).min(KEY_SLOTS);
                    self.segment.open_keys(open).map_err(|_| Exhausted::Full)?;
                    keys.opened(open);
                }
                other => return other,
            }
        }
    }

    pub(crate) fn give_back_key(&self, kind: Kind, slot: u32) {
        self.keys.lock().give_back(slot);
        self.count(kind).0.fetch_sub(1, AcqRel);
    }

    fn count(&self, kind: Kind) -> (&AtomicU32, u32) {
        match kind {
            Kind::Region | Kind::Null => (&self.regions, Limits::DEVICE.regions),
            _ => (&self.windows, Limits::DEVICE.windows),
        }
    }

    /// Takes an index for a queue pair: the longest unused, and none that a bound window still
    /// names (rules CR-20, T2-04).
    pub(crate) fn take_qp_index(&self) -> Option<u16> {
        let mut pairs = self.queue_pairs.write();
        if pairs.by_index.len() >= Limits::DEVICE.queue_pairs as usize {
            return None;
        }
        for _ in 0..=u16::MAX {
            let index = pairs.next;
            pairs.next = pairs.next.wrapping_add(1);
            let free = !pairs.by_index.contains_key(&index)
                && self.segment.qps().summary(index).is_some_and(|qp| qp.windows() == 0);
            if free {
                self.segment.open_qp(index).ok()?;
                pairs.by_index.insert(index, Weak::new());
                return Some(index);
            }
        }
        None
    }

    pub(crate) fn enter_qp(&self, index: u16, qp: &Arc<QueuePair>) {
        self.queue_pairs.write().by_index.insert(index, Arc::downgrade(qp));
    }

    pub(crate) fn leave_qp(&self, index: u16) {
        self.queue_pairs.write().by_index.remove(&index);
    }

    /// The queue pair at an index.
    pub(crate) fn qp(&self, index: u16) -> Option<Arc<QueuePair>> {
        self.queue_pairs.read().by_index.get(&index)?.upgrade()
    }

    pub(crate) fn all_qps(&self) -> Vec<Arc<QueuePair>> {
        self.queue_pairs.read().by_index.values().filter_map(Weak::upgrade).collect()
    }

    /// The process attached to in a slot, ended or not.
    pub(crate) fn attached(&self, slot: u8) -> Option<Arc<Peer>> {
        self.peers.read()[usize::from(slot)].clone()
    }

    /// The process in a slot, attached to if it is not yet; `None` if nobody is there.
    pub(crate) fn peer(&self, slot: u8) -> Option<Arc<Peer>> {
        let registry = self.claim.registry();
        let present = |peer: &Arc<Peer>| !peer.is_gone() && registry.holds(peer.announcer);
        if let Some(peer) = self.attached(slot).filter(present) {
            return Some(peer);
        }
        let mut peers = self.peers.write();
        match peers[usize::from(slot)].take() {
            Some(peer) if present(&peer) => {
                peers[usize::from(slot)] = Some(peer.clone());
                return Some(peer);
            }
            // The slot has changed hands before the old one's end was noticed. The caller may hold
            // a queue's lock, so the queue pairs that it concerns are told later.
            Some(old) => {
                old.set_gone();
                self.segment.hazards().detach(old.announcer);
                self.progress.defer(Deferred::PeerLost(old));
            }
            None => {}
        }
        let process = registry.process(slot).filter(|process| process.alive)?;
        let me = self.announcer();
        let peer = Peer::attach(registry, &process, me, &self.segment, &self.copier).ok()?;
        let wanted = matches!(self.copier, Copier::Kernel);
        if !peer.direct && wanted {
            say_slow(&format!("process {} may not be copied from (ptrace rules)", peer.pid));
        }
        let peer = Arc::new(peer);
        peers[usize::from(slot)] = Some(peer.clone());
        drop(peers);
        self.progress.wake(self);
        Some(peer)
    }

    /// The attached processes.
    pub(crate) fn peers(&self) -> Vec<Arc<Peer>> {
        self.peers.read().iter().flatten().cloned().collect()
    }

    /// Lets go of a peer that has ended.
    pub(crate) fn forget_peer(&self, peer: &Peer) {
        peer.set_gone();
        self.segment.hazards().detach(peer.announcer);
        let mut peers = self.peers.write();
        let slot = &mut peers[usize::from(peer.announcer.slot)];
        if slot.as_ref().is_some_and(|held| held.announcer == peer.announcer) {
            *slot = None;
        }
    }

    /// Writes bytes of ours to granted memory of this process.
    pub(crate) fn store(&self, at: &Grant<'_>, bytes: &[u8]) -> Result<(), MemoryGone> {
        let (to, from) = (at.address(), bytes.as_ptr() as u64);
        self.copier.copy(to, from, bytes.len() as u64).map_err(|_| MemoryGone)
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
        let overrun = cq.push(completion, solicited);
        if overrun {
            self.progress.defer(Deferred::Overrun(cq.id()));
        }
        overrun
    }

    /// Notes a refusal for `transom explain`.
    pub(crate) fn note_refusal(&self, summary: &QpSummary, refusal: &Refusal) {
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        self.claim.note(&RefusalRecord {
            time: time.map_or(0, |time| time.as_nanos() as u64),
            refusal: *refusal,
            age: match refusal.object.since {
                0 => 0,
                since => self.now().saturating_sub(since),
            },
            peer: summary.peering().from.bits(),
            qp_access: summary.gate().access,
        });
    }
}

/// Says once that data takes the slow way.
fn say_slow(why: &str) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        eprintln!("transom: {why}; data goes through shared memory instead, which is slower");
    });
}

/// Waiting: spin briefly, then give way. Who is waited for longer is noted for `transom explain`.
impl Waiter for Adapter {
    fn pause(&self, round: u32, on: Option<Announcer>) {
        match round {
            0..64 => std::hint::spin_loop(),
            64..4096 => std::thread::yield_now(),
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
        // A forked child waits for nobody: what it revokes is its own copy.
        if self.is_inherited() {
            return true;
        }
        let me = self.announcer();
        if process.slot == me.slot {
            return process.generation != me.generation;
        }
        !self.claim.registry().is_alive(process)
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        self.segment.header().departed.store(1, SeqCst);
        for peer in self.peers.read().iter().flatten() {
            peer.notify();
        }
        self.progress.wake(self);
    }
}
