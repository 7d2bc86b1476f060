//! The memory that a process shares with the others of its user: its key table, its queue pairs' summaries, the hazard
//! cells, the turn of atomics, and the rings of its outgoing messages.
//!
//! It is an anonymous file (`memfd`) that others open through `/proc`, so it goes with its last user and needs no room
//! in `/dev/shm`. It is mostly holes: a page costs memory only once it is used.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::thread::futex;
use transom_device::execution::AccessLog;
use transom_device::protection::{Hazards, KeyEntry, KeyTable, PROCESSES, RecentSlots, Scramble};
use transom_device::qp::{QpSummary, QpTable, SrqSummary};

use crate::catalog::{Catalog, Entry};
use crate::descriptor;
use crate::descriptor::Identity;
use crate::file_limit;
use crate::latency::Latencies;
use crate::object_counts::ObjectCounts;
use crate::one_step::OneStep;
use crate::registered::{Registered, RegisteredMemory};
use crate::registry::Process;
use crate::rehearsal;
use crate::shared_mapping::map_shared;
use crate::trace::Ring as EventRing;
use crate::traffic::{ProcessTraffic, Traffic};
use crate::wanted::Wanted;

/// Slots of a key table: enough for the advertised regions and windows together.
pub const KEY_SLOTS: u32 = 2 << 20;
/// Queue pair indexes of a process.
pub const QP_SLOTS: usize = 1 << 16;
/// Indexes of shared receive queues of a process.
const SRQ_SLOTS: usize = 1 << 16;
/// Bytes of one ring.
pub const RING_BYTES: usize = 256 << 10;

/// The bits of a [`Wakeup`].
const WAKEUP: u64 = 3;

const MAGIC: u64 = u64::from_le_bytes(*b"transom1");

/// The first page of a segment.
#[repr(C, align(4096))]
pub struct Header {
    /// [`MAGIC`] once everything below is ready.
    magic: AtomicU64,
    /// The process.
    pub pid: AtomicU32,
    /// Its stay in its registry slot.
    pub generation: AtomicU32,
    /// Its device is closed. The process may go on.
    pub departed: AtomicU32,
    /// The process has exited in an orderly way: it called `exit`, or returned from `main`.
    pub exited: AtomicU32,
    /// How the process wants to be woken for new messages, as a [`Wakeup`], in the low bits. Zero for not at all. Above
    /// them, how often it has asked.
    armed: AtomicU64,
    /// How often the threads that sleep on this word have been woken; see [`Header::wake_sleepers`].
    wake_ups: AtomicU32,
    /// An address that is readable in the process while it lives: its own address of this header.
    pub probe: AtomicU64,
    /// How many key slots have memory.
    pub open_keys: AtomicU32,
    /// How many multicast groups have members in this process.
    pub groups: AtomicU32,
    /// Set if every request must come as a message, because the process looks at each.
    pub by_message: AtomicU32,
    /// The offset of AddressSanitizer's notes in the process. Zero if peers need not look at any.
    pub shadow: AtomicU64,
    /// The process's descriptor of the file of its shared memory, plus one. Zero for none.
    pub shared_memory: AtomicU32,
    /// The number of the device among those of its program, as in the registry.
    pub device: AtomicU32,
    /// Identifies the file of the process's capture. Zero for none.
    pub capture: AtomicU64,
    /// Bit s: the process in slot s has put something into a ring for this one, or made room.
    pub inbox: [AtomicU64; PROCESSES / 64],
    /// How many objects the process has.
    pub objects: ObjectCounts,
    /// How much memory it has registered.
    pub registered: Registered,
    /// By which bits its L_Keys differ from its keys.
    pub l_keys: AtomicU32,
    /// What others want to see of it.
    pub wanted: Wanted,
    /// Its events have memory.
    events: AtomicU32,
    /// Its latencies have memory.
    has_latencies: AtomicU32,
    /// How often a receiving end of XRC has lost its connection.
    pub ended_targets: AtomicU32,
    /// The log of accesses has memory.
    has_access_log: AtomicU32,
}

/// How a process is woken for new messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Wakeup {
    /// By its pipe, at which its background thread sleeps.
    Pipe = 1,
    /// One of its other threads sleeps until there is something, and takes it itself.
    Sleeper = 2,
}

impl Header {
    /// Whether the process can record events.
    pub fn records_events(&self) -> bool {
        self.events.load(Acquire) == 1
    }

    /// Makes others wake the process in this way for everything that comes from now on.
    pub fn arm(&self, wakeup: Wakeup) {
        let next = |armed: u64| Some((armed & !WAKEUP).wrapping_add(WAKEUP + 1) | wakeup as u64);
        let _ = self.armed.fetch_update(SeqCst, SeqCst, next);
    }

    /// Signals that the process in `slot` has something for this one, and wakes it by `wake` if it asked for that. An
    /// unknown value there counts as the pipe.
    ///
    /// This is in one order with [`Header::arm`] and [`Header::take_told`]: one of the two sides sees the other.
    ///
    /// Until it has been woken, everybody with something for it wakes it. So nobody depends on a process that is
    /// stopped or killed in here.
    #[inline]
    pub fn tell(&self, slot: usize, wake: impl FnOnce(Wakeup)) {
        self.note(slot);
        let armed = self.armed.load(SeqCst);
        if armed & WAKEUP != 0 {
            wake(match armed & WAKEUP == Wakeup::Sleeper as u64 {
                true => Wakeup::Sleeper,
                false => Wakeup::Pipe,
            });
            // Each time that it asks it writes another value. So this does not take back what it asked meanwhile.
            let _ = self.armed.compare_exchange(armed, armed & !WAKEUP, SeqCst, Relaxed);
        }
    }

    /// Notes that the process in `slot` has something for this one.
    #[inline]
    pub fn note(&self, slot: usize) {
        self.inbox[slot / 64].fetch_or(1 << (slot % 64), SeqCst);
    }

    /// Takes a word out of `inbox`. After [`Header::arm`], either this sees the new message, or its sender sees that it
    /// has to wake the process.
    #[inline]
    pub fn take_told(&self, word: usize) -> u64 {
        let bits = &self.inbox[word];
        if bits.load(SeqCst) == 0 { 0 } else { bits.swap(0, SeqCst) }
    }

    /// The argument for [`Header::sleep`]. Read it before you check whether there is something already.
    pub fn wake_ups(&self) -> u32 {
        self.wake_ups.load(SeqCst)
    }

    /// Sleeps until somebody calls [`Header::wake_sleepers`]. Returns at once if somebody did since `wake_ups` was
    /// read.
    ///
    /// # Errors
    ///
    /// `EINTR` after a signal whose handler does not restart system calls (`sigaction(2)`).
    pub fn sleep(&self, wake_ups: u32) -> rustix::io::Result<()> {
        match futex::wait(&self.wake_ups, futex::Flags::empty(), wake_ups, None) {
            Err(rustix::io::Errno::AGAIN) => Ok(()),
            other => other,
        }
    }

    /// Wakes up to so many sleeping threads of the process. Returns their number.
    pub fn wake_sleepers(&self, most: u32) -> usize {
        self.wake_ups.fetch_add(1, SeqCst);
        futex::wake(&self.wake_ups, futex::Flags::empty(), most).unwrap_or(0)
    }
}

/// The signals between the ends of a ring, beside its records.
#[repr(C, align(128))]
pub struct RingPositions {
    /// The stay of the consumer's slot that the ring is for.
    pub consumer: AtomicU32,
    /// The producer can copy from and to the consumer's memory.
    pub direct: AtomicU32,
    /// The producer waits for room.
    pub full: AtomicU32,
    /// The consumer watches both rings, so the producer need not signal. Only the one of the request ring is used.
    pub watched: AtomicU32,
    /// Both ends read the fields above for each record, so the fields written for each record are kept away from them.
    _apart: [u8; 112],
    /// The consumer's position, in bytes, counting up for ever. The consumer writes it.
    pub head: AtomicU64,
}

#[repr(C)]
struct Ring {
    positions: RingPositions,
    bytes: [u8; RING_BYTES],
}

/// The whole layout. Everything in it is atomic or, in rings, bytes that are reached only by pointers.
#[repr(C)]
struct Layout {
    header: Header,
    hazards: Hazards,
    one_step: OneStep,
    scramble: Scramble,
    traffic: ProcessTraffic,
    summaries: [QpSummary; QP_SLOTS],
    shared_queues: [SrqSummary; SRQ_SLOTS],
    places: [Traffic; QP_SLOTS],
    latencies: Latencies,
    access_log: AccessLog,
    catalog: Catalog,
    events: EventRing,
    requests: [Ring; PROCESSES],
    replies: [Ring; PROCESSES],
    keys: [KeyEntry; KEY_SLOTS as usize],
}

/// A mapping of a process's segment: its own, or a peer's.
pub struct Segment {
    layout: NonNull<Layout>,
    file: OwnedFd,
    /// The recent slots of its keys, which have one permutation as long as it lives.
    recent: RecentSlots,
}

// SAFETY: the mapping stays until drop, and all of it is reached through atomics or, for the bytes of
// rings, through raw pointers whose users synchronise by the ring's positions.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

/// The two rings towards a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingKind {
    /// Requests of the segment's owner.
    Requests,
    /// Replies of the segment's owner to requests of the other process.
    Replies,
}

impl Segment {
    /// What changes with the layout.
    #[cfg(test)]
    pub(crate) const LAYOUT: [usize; 3] = [
        size_of::<Layout>(),
        std::mem::offset_of!(Header, has_access_log),
        std::mem::offset_of!(Layout, catalog),
    ];

    /// Makes this process's segment. [`Segment::publish`] ends its preparation.
    pub fn create() -> io::Result<Self> {
        let file = descriptor::high(rustix::fs::memfd_create("transom", MemfdFlags::CLOEXEC)?);
        file_limit::grow(|| rustix::fs::ftruncate(&file, size_of::<Layout>() as u64))?;
        let mut segment = Self::map(file)?;
        let l_keys = rehearsal::choose_l_keys();
        segment.recent = RecentSlots::differing(l_keys);
        segment.header().l_keys.store(l_keys, Relaxed);
        Ok(segment)
    }

    /// Lets others in. `generation` is this process's stay in its slot.
    pub fn publish(&self, generation: u32) {
        let header = self.header();
        header.pid.store(std::process::id(), Relaxed);
        header.generation.store(generation, Relaxed);
        header.probe.store(std::ptr::from_ref(header) as u64, Relaxed);
        header.magic.store(MAGIC, Release);
    }

    /// Maps the segment of another process, by its PID and the descriptor it has there.
    pub fn attach(pid: u32, descriptor: u32, generation: u32) -> io::Result<Self> {
        let file = descriptor::of_process(pid, descriptor)?;
        let size = rustix::fs::fstat(&file)?.st_size;
        if usize::try_from(size) != Ok(size_of::<Layout>()) {
            return Err(io::Error::other(
                "the segment has another size: another version runs there",
            ));
        }
        let segment = Self::map(file)?;
        let header = segment.header();
        if header.magic.load(Acquire) != MAGIC || header.generation.load(Relaxed) != generation {
            return Err(io::Error::other("the process has not finished opening its device"));
        }
        Ok(segment)
    }

    /// The segment of a process in the registry. `None` if it cannot be read.
    pub fn of(process: &Process) -> Option<Self> {
        let generation = process.announcer.generation;
        let open = process.is_open;
        open.then(|| Self::attach(process.pid, process.descriptor, generation).ok())?
    }

    /// The object counts of a process in the registry. `None` if its segment cannot be read.
    pub fn objects_of(process: &Process) -> Option<ObjectCounts> {
        Some(Self::of(process)?.header().objects.copy())
    }

    /// The registered memory of a process in the registry. `None` if its segment cannot be read.
    pub fn registered_by(process: &Process) -> Option<RegisteredMemory> {
        Some(Self::of(process)?.header().registered.get())
    }

    fn map(file: OwnedFd) -> io::Result<Self> {
        // The file is at least as long (checked or set by the callers), and nobody of this user's Transom
        // processes shrinks it.
        let layout = map_shared(&file, 0, size_of::<Layout>())?.cast();
        Ok(Self { layout, file, recent: RecentSlots::default() })
    }

    /// The descriptor by which other processes find the segment.
    pub fn descriptor(&self) -> u32 {
        self.file.as_fd().as_raw_fd().unsigned_abs()
    }

    /// Another descriptor of the segment, closed on `exec`.
    pub fn duplicate_descriptor(&self) -> io::Result<OwnedFd> {
        self.file.try_clone()
    }

    /// Whether a descriptor is one of this segment.
    pub fn is_behind(&self, descriptor: BorrowedFd<'_>) -> bool {
        Identity::of(&self.file).is_ok_and(|ours| ours.is_behind(descriptor))
    }

    /// In a forked child, makes the kernel forbid all changes from here. It only makes a system call, because locks of
    /// the parent's other threads may be held for ever here. The call takes no memory: it is one mapping before and
    /// after.
    pub fn protect(&self) {
        // SAFETY: the mapping is this value's own, and in a forked child nothing writes to it. Where the
        // kernel refuses, nothing is lost for that reason.
        unsafe {
            libc::mprotect(self.layout.as_ptr().cast(), size_of::<Layout>(), libc::PROT_READ)
        };
    }

    /// Bytes of memory that the segment takes now; its holes take none.
    pub fn memory_used(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.file)?.st_blocks as u64 * 512)
    }

    /// Takes memory for a part of the segment now, so that using it later cannot fail.
    fn commit(&self, address: usize, length: usize) -> io::Result<()> {
        let offset = address - self.layout.as_ptr().addr();
        rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset as u64, length as u64)?;
        Ok(())
    }

    /// The first page.
    #[inline]
    pub fn header(&self) -> &Header {
        // SAFETY: mapped for the life of `self`, aligned to a page, valid in any bit pattern (atomics).
        unsafe { &(*self.layout.as_ptr()).header }
    }

    /// The hazard cells for this segment's keys.
    #[inline]
    pub fn hazards(&self) -> &Hazards {
        // SAFETY: as in `header`.
        unsafe { &(*self.layout.as_ptr()).hazards }
    }

    /// The turn to change a word of the process's private memory.
    #[inline]
    pub fn one_step(&self) -> &OneStep {
        // SAFETY: as in `header`.
        unsafe { &(*self.layout.as_ptr()).one_step }
    }

    /// The permutation of this segment's indexes.
    #[inline]
    pub fn scramble(&self) -> &Scramble {
        // SAFETY: as in `header`.
        unsafe { &(*self.layout.as_ptr()).scramble }
    }

    /// The key table.
    #[inline]
    pub fn keys(&self) -> KeyTable<'_> {
        // SAFETY: as in `header`.
        let entries = unsafe { &(*self.layout.as_ptr()).keys };
        KeyTable::new(
            entries,
            &self.header().open_keys,
            self.scramble(),
            &self.recent,
            self.hazards(),
        )
    }

    /// The summaries of the queue pairs.
    #[inline]
    pub fn qps(&self) -> QpTable<'_> {
        // SAFETY: as in `header`.
        QpTable::new(unsafe { &(*self.layout.as_ptr()).summaries })
    }

    /// Puts memory behind the first `open` key slots.
    pub fn open_keys(&self, open: u32) -> io::Result<()> {
        // SAFETY: as in `header`.
        let entries = unsafe { &(*self.layout.as_ptr()).keys };
        self.commit(entries.as_ptr().addr(), open as usize * size_of::<KeyEntry>())?;
        self.header().open_keys.store(open, Release);
        Ok(())
    }

    /// Puts memory behind the summary of a queue pair.
    pub fn open_qp(&self, index: u16) -> io::Result<()> {
        let summary = self.qps().summary(index).expect("the table has an entry for every u16");
        self.commit(std::ptr::from_ref(summary).addr(), size_of::<QpSummary>())
    }

    /// What the process counts that belongs to no queue pair that is there.
    #[inline]
    pub fn process_traffic(&self) -> &ProcessTraffic {
        // SAFETY: as in `header`.
        unsafe { &(*self.layout.as_ptr()).traffic }
    }

    /// Where a queue pair counts what it carries, by the number of the place. A number that no place has names another
    /// one.
    #[inline]
    pub fn traffic(&self, place: u32) -> &Traffic {
        // SAFETY: as in `header`.
        unsafe { &(&(*self.layout.as_ptr()).places)[place as usize % QP_SLOTS] }
    }

    /// The last events of the process.
    #[inline]
    pub fn events(&self) -> &EventRing {
        // SAFETY: as in `header`.
        unsafe { &(*self.layout.as_ptr()).events }
    }

    /// Puts memory behind them.
    pub fn open_events(&self) -> io::Result<()> {
        if !self.header().records_events() {
            self.commit(std::ptr::from_ref(self.events()).addr(), size_of::<EventRing>())?;
            self.header().events.store(1, Release);
        }
        Ok(())
    }

    /// Puts memory behind such a place, for a queue pair of this process.
    pub fn open_place(&self, place: u32) -> io::Result<()> {
        self.commit(std::ptr::from_ref(self.traffic(place)).addr(), size_of::<Traffic>())?;
        self.process_traffic().open(place + 1);
        Ok(())
    }

    /// How long requests of the process took. `None` if nobody has ever wanted to know.
    pub fn latencies(&self) -> Option<&Latencies> {
        let is_open = self.header().has_latencies.load(Acquire) != 0;
        // SAFETY: as in `header`.
        is_open.then(|| unsafe { &(*self.layout.as_ptr()).latencies })
    }

    /// Puts memory behind them.
    pub fn open_latencies(&self) -> io::Result<()> {
        if self.latencies().is_none() {
            // SAFETY: as in `header`; it is only pointed at.
            let latencies = unsafe { &raw const (*self.layout.as_ptr()).latencies };
            self.commit(latencies.addr(), size_of::<Latencies>())?;
            self.header().has_latencies.store(1, Release);
        }
        Ok(())
    }

    /// The log of accesses that go around the responder. It has memory before any queue pair asks for it.
    #[inline]
    pub fn access_log(&self) -> &AccessLog {
        // SAFETY: as in `header`.
        unsafe { &(*self.layout.as_ptr()).access_log }
    }

    /// Whether it has memory.
    pub fn logs_accesses(&self) -> bool {
        self.header().has_access_log.load(Acquire) != 0
    }

    /// Puts memory behind it.
    pub fn open_access_log(&self) -> io::Result<()> {
        if !self.logs_accesses() {
            let log = std::ptr::from_ref(self.access_log());
            self.commit(log.addr(), size_of::<AccessLog>())?;
            self.header().has_access_log.store(1, Release);
        }
        Ok(())
    }

    /// The objects of the process that its keys and queue pairs do not show.
    pub fn catalog(&self) -> &Catalog {
        // SAFETY: as in `header`.
        unsafe { &(*self.layout.as_ptr()).catalog }
    }

    /// Puts memory behind a part of the catalog, and behind its beginning.
    pub(crate) fn open_catalog(&self, entries: &[Entry]) -> io::Result<()> {
        let begin = std::ptr::from_ref(self.catalog()).addr();
        let end = entries.as_ptr_range().end.addr();
        self.commit(begin, end - begin)
    }

    /// The summary of the shared receive queue of XRC at an index.
    #[inline]
    pub fn srq(&self, index: u16) -> &SrqSummary {
        // SAFETY: as in `header`.
        unsafe { &(&(*self.layout.as_ptr()).shared_queues)[usize::from(index)] }
    }

    /// Puts memory behind it.
    pub fn open_srq(&self, index: u16) -> io::Result<()> {
        self.commit(std::ptr::from_ref(self.srq(index)).addr(), size_of::<SrqSummary>())
    }

    /// A ring towards the process in `slot`: its positions, and its first byte.
    pub fn ring(&self, kind: RingKind, slot: u8) -> (&RingPositions, *mut u8) {
        // SAFETY: as in `header`; the bytes are only pointed at.
        unsafe {
            let layout = self.layout.as_ptr();
            let ring = match kind {
                RingKind::Requests => &raw mut (*layout).requests[usize::from(slot)],
                RingKind::Replies => &raw mut (*layout).replies[usize::from(slot)],
            };
            (&(*ring).positions, (&raw mut (*ring).bytes).cast())
        }
    }

    /// Puts memory behind a ring.
    pub fn open_ring(&self, kind: RingKind, slot: u8) -> io::Result<()> {
        let (positions, _) = self.ring(kind, slot);
        self.commit(std::ptr::from_ref(positions).addr(), size_of::<Ring>())
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this size, and every reference into it borrowed `self`.
        let unmapped =
            unsafe { rustix::mm::munmap(self.layout.as_ptr().cast(), size_of::<Layout>()) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A signal sent just before a process sleeps is not left lying: the process is woken, or has seen it.
    #[test]
    fn who_tells_and_who_is_about_to_sleep_do_not_miss_each_other() {
        let rounds = if cfg!(miri) { 40 } else { 2_000 };
        // SAFETY: all zeros is a valid value of atomics.
        let mut header: Box<Header> = Box::new(unsafe { std::mem::zeroed() });
        for round in 0..rounds {
            let slot = round % PROCESSES;
            let tell = || {
                let mut wakes = false;
                header.tell(slot, |by| wakes = by == Wakeup::Pipe);
                wakes
            };
            let sleep = || {
                header.arm(Wakeup::Pipe);
                header.take_told(slot / 64) == 1 << (slot % 64)
            };
            let seen = std::thread::scope(|scope| {
                // Each of the two begins first in turn.
                let both = match round % 2 {
                    0 => [scope.spawn(tell), scope.spawn(sleep)],
                    _ => [scope.spawn(sleep), scope.spawn(tell)],
                };
                both.map(|it| it.join().expect("it ends"))
            });
            assert!(seen.contains(&true), "round {round}");
            header.inbox[slot / 64] = AtomicU64::new(0);
            header.armed = AtomicU64::new(0);
        }
    }

    /// A process that is stopped, or dies, before it has woken another does not keep the next one from it. It also
    /// takes nothing back that the other has asked since.
    #[test]
    fn whoever_is_stopped_while_it_wakes_keeps_nobody_else_from_it() {
        // SAFETY: all zeros is a valid value of atomics.
        let header: Box<Header> = Box::new(unsafe { std::mem::zeroed() });
        let wakes = |then: &dyn Fn()| {
            let mut woken = None;
            header.tell(1, |by| {
                then();
                woken = Some(by);
            });
            woken
        };
        assert_eq!(wakes(&|| ()), None);
        for wakeup in [Wakeup::Pipe, Wakeup::Sleeper] {
            header.arm(wakeup);
            assert_eq!(wakes(&|| assert_eq!(wakes(&|| ()), Some(wakeup))), Some(wakeup));
            assert_eq!(wakes(&|| ()), None, "it is awake");
            header.arm(wakeup);
            wakes(&|| header.arm(wakeup));
            assert_eq!(wakes(&|| ()), Some(wakeup), "it has asked anew");
        }
    }
}
