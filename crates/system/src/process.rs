//! This process among the others of its user: its slot in the registry, the memory that it shares, and its means to
//! copy.

use std::io;
use std::ops::Deref;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tracing::debug;
use transom_device::execution::MemoryGone;
use transom_device::protection::{Announcer, Attempt, Grant, Refusal, Waiter};
use transom_device::qp::{Bypass, QpNumber, QpSummary};

use crate::catalog::{FreeEntries, Listed, Number};
use crate::clock;
use crate::fork::Owner;
use crate::held_back::{HeldBack, HeldBackHere};
use crate::memory::{self, Copier, Destination, Maps, Source, Whose, change_word, shared_word};
use crate::object_counts::ObjectCounts;
use crate::one_step::{Holder, Others, Write, Written};
use crate::probes;
use crate::registry::{
    CallRecord, CallRefusal, Claim, ConnectionRecord, Fate, Meant, Record, RefusalRecord, Registry,
    Work, WorkRecord,
};
use crate::rehearsal;
use crate::say;
use crate::segment::Segment;
use crate::tools::{self, Tool};
use crate::trace::{Event, What};
use crate::traffic::Traffic;

/// Who wants to know of each refusal.
static REFUSALS: OnceLock<fn(&Refusal)> = OnceLock::new();

/// Who wants to know of each write by a peer.
static WRITES: OnceLock<fn(&Attempt)> = OnceLock::new();

/// Somebody wants to know of each at once.
static AT_ONCE: AtomicBool = AtomicBool::new(false);

/// Has a function told of each write by a peer that this process carries out, as [`watch_refusals`]. It hears of those
/// that peers carry out only by the [log](Segment::access_log). What queue pairs may let their peers do from now on is
/// [`watched_bypass`].
pub fn watch_writes(watch: fn(&Attempt)) {
    let _ = WRITES.set(watch);
}

/// The same, with each told at once.
pub fn watch_writes_at_once(watch: fn(&Attempt)) {
    AT_ONCE.store(true, SeqCst);
    watch_writes(watch);
}

/// What a queue pair of this segment may let its peers do, so that whoever wants to know of each write does.
pub fn watched_bypass(segment: &Segment) -> Bypass {
    if AT_ONCE.load(SeqCst) {
        Bypass::Forbidden
    } else if segment.logs_accesses() {
        Bypass::Logged
    } else {
        Bypass::Free
    }
}

/// A peer has written to memory of this process.
#[inline]
pub fn note_write(write: &Attempt) {
    if let Some(watch) = WRITES.get() {
        watch(write);
    }
}

/// Has a function told of each refusal of this process from now on. It may be called by any thread, with a queue pair
/// locked.
pub fn watch_refusals(watch: fn(&Refusal)) {
    let _ = REFUSALS.set(watch);
}

/// Why a word of private memory is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unchanged {
    /// It is not there any more.
    Gone,
    /// The old value cannot be stored in its place.
    NotLanded,
}

/// This process. In a forked child, the one that it was forked from.
pub struct ThisProcess {
    owner: Owner,
    claim: Claim,
    segment: Segment,
    copier: Copier,
    /// How many turns were tried for. One thread at a time has the turn of an atomic on private memory, here or at a
    /// peer.
    turns: Mutex<u64>,
    maps: Maps,
    held_back: HeldBack,
    unlisted: FreeEntries,
}

impl ThisProcess {
    /// Lets the others into a segment, under its claimed slot.
    pub fn new(claim: Claim, segment: Segment, copier: Copier) -> Self {
        segment.hazards().attach(claim.announcer());
        segment.publish(claim.announcer().generation);
        let (owner, turns, maps) = (Owner::this(), Mutex::new(0), Maps::default());
        let (held_back, unlisted) = Default::default();
        Self { owner, claim, segment, copier, turns, maps, held_back, unlisted }
    }

    /// Its slot in the registry, and the generation of its stay.
    #[inline]
    pub fn announcer(&self) -> Announcer {
        self.claim.announcer()
    }

    /// The registry it is in.
    #[inline]
    pub fn registry(&self) -> &'static Registry {
        self.claim.registry()
    }

    /// The memory it shares.
    #[inline]
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// How it copies.
    #[inline]
    pub fn copier(&self) -> &Copier {
        &self.copier
    }

    /// Its mappings.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// The WRITEs whose data a rehearsal holds back, unless they are those of the process that this one was forked
    /// from.
    pub fn held_back(&self) -> Option<HeldBackHere<'_>> {
        let here = HeldBackHere { all: &self.held_back, copier: &self.copier };
        (!self.is_inherited()).then_some(here)
    }

    /// Whether it is the process that this one was forked from. Then nothing that it shares may be changed. It takes no
    /// system call.
    #[inline]
    pub fn is_inherited(&self) -> bool {
        self.owner.is_another()
    }

    /// How many objects programs have made. If a forked child ends some, they are its parent's, and stay counted there.
    pub fn objects(&self) -> &ObjectCounts {
        static OF_NOBODY: ObjectCounts = ObjectCounts::new();
        if self.is_inherited() { &OF_NOBODY } else { &self.segment.header().objects }
    }

    /// Shows others an object that has been made. `None` if there is no room for it.
    pub fn list(&self, object: Listed) -> Option<Number> {
        if self.is_inherited() {
            return None;
        }
        let commit = |entries: &[_]| self.segment.open_catalog(entries);
        self.unlisted.list(self.segment.catalog(), object, commit)
    }

    /// It has ended. If a forked child ends it, it is its parent's, and stays.
    pub fn unlist(&self, number: Option<Number>) {
        if !self.is_inherited() {
            self.unlisted.remove(self.segment.catalog(), number);
        }
    }

    /// Writes pieces of ours, one after the other, to granted memory.
    ///
    /// # Errors
    ///
    /// [`MemoryGone`] if the memory is not mapped any more.
    pub fn store(&self, at: &Grant<'_>, pieces: &[&[u8]]) -> Result<(), MemoryGone> {
        let stored = match pieces {
            [piece] => {
                let to = Destination::Program(at.place());
                self.copier.copy(to, (*piece).into(), piece.len() as u64)
            }
            pieces => self.copier.copy_pieces(at.place(), pieces),
        };
        stored.map_err(|_| MemoryGone)
    }

    /// Changes eight bytes in one step among all atomics (rule AT-09).
    ///
    /// # Errors
    ///
    /// As [`ThisProcess::store`].
    pub fn atomic(
        &self,
        at: &Grant<'_>,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, MemoryGone> {
        if let Some(word) = shared_word(at.place()) {
            return Ok(change_word(word, update));
        }
        let read = || {
            let (mut old, from) = ([0; 8], Source::Program(at.place()));
            self.copier.copy((&mut old[..]).into(), from, 8).map_err(|_| MemoryGone)?;
            Ok(u64::from_ne_bytes(old))
        };
        let write = |write: &Write| {
            self.copier.store_word(at.place(), write.value()).map_err(|_| MemoryGone)?;
            Ok(Written::All)
        };
        let turns = &mut *self.turns.lock();
        let holder = Holder { process: self.announcer(), is_revocable: false, turns };
        self.segment.one_step().change(holder, self, read, update, write)
    }

    /// Makes the kernel change eight bytes of private memory in one step among all atomics of its device (rule AT-09):
    /// of this process, in one store for whoever looks, or of a peer by its segment and PID. The old value is also
    /// stored at the address `landing` of this process, if there is one.
    ///
    /// # Errors
    ///
    /// Why the word is unchanged.
    pub fn change_private(
        &self,
        peer: Option<(&Segment, u32)>,
        address: u64,
        landing: Option<u64>,
        update: impl FnMut(u64) -> u64,
    ) -> Result<u64, Unchanged> {
        let (segment, whose) = match peer {
            Some((segment, pid)) => (segment, Whose::Peer(pid)),
            None => (&self.segment, Whose::This),
        };
        let read = || {
            let (old, has_landed) =
                memory::read_word(whose, address, landing).ok_or(Unchanged::Gone)?;
            if landing.is_none() || has_landed { Ok(old) } else { Err(Unchanged::NotLanded) }
        };
        let write = |write: &Write| match whose {
            Whose::This => match self.copier.store_word(address, write.value()) {
                Ok(()) => Ok(Written::All),
                Err(_) => Err(Unchanged::Gone),
            },
            Whose::Peer(pid) => memory::write_word(pid, address, write).ok_or(Unchanged::Gone),
        };
        let turns = &mut *self.turns.lock();
        let holder = Holder { process: self.announcer(), is_revocable: peer.is_some(), turns };
        segment.one_step().change(holder, self, read, update, write)
    }

    /// Records an event, if somebody wants them. Ask before whether any tool is on.
    #[cold]
    pub fn record(&self, event: Event) {
        if tools::is_probed() {
            probes::pass(&event);
        }
        let wanted = tools::is_on(Tool::Events) && !self.is_inherited();
        if wanted && self.segment.header().records_events() {
            let time = if event.time == 0 { clock::steady() } else { event.time };
            self.segment.events().add(&Event { time, ..event });
        }
    }

    /// Notes a refusal for `transom explain`.
    #[cold]
    pub fn note_refusal(&self, summary: &QpSummary, refusal: &Refusal) {
        let Attempt { operation, key, address, length, qp, .. } = refusal.attempt;
        self.record(Event {
            code: refusal.reason.code(),
            more: operation.code().into(),
            qp,
            peer: summary.peering().from.bits(),
            key: key.0,
            address,
            length,
            ..Event::of(What::Refused)
        });
        debug!(qp = %QpNumber::from_bits(refusal.attempt.qp), %refusal, "access refused");
        if !self.is_inherited() {
            self.segment.process_traffic().note_refusal(refusal.reason);
        }
        if let Some(watch) = REFUSALS.get() {
            watch(refusal);
        }
        self.note(&Record::Access(RefusalRecord {
            time: clock::wall(),
            refusal: *refusal,
            age: match refusal.object.since {
                0 => 0,
                since => clock::steady().saturating_sub(since),
            },
            peer: summary.peering().from.bits(),
            qp_access: summary.gate().access,
            meant: Meant::by(self.segment.keys(), refusal),
        }));
    }

    /// Notes that a verb was refused at once, for `transom explain`.
    #[cold]
    pub fn note_refused_call(&self, call: &CallRefusal) {
        debug!(%call, "call refused");
        self.note(&Record::Call(CallRecord { time: clock::wall(), call: *call }));
    }

    /// Notes a connection that did not come about, for `transom explain`.
    #[cold]
    pub fn note_unconnected(&self, record: &ConnectionRecord) {
        debug!(%record, "not connected");
        self.note(&Record::Connection(*record));
    }

    /// Notes work that came to nothing, for `transom explain`. It belongs to a queue pair here, and perhaps to one at
    /// the other end.
    #[cold]
    pub fn note_work(&self, qp: u32, peer: u32, work: Option<Work>, fate: Fate) {
        let record = WorkRecord { time: clock::wall(), qp, peer, work, fate };
        debug!(%record, "work came to nothing");
        self.note(&Record::Work(record));
    }

    /// A forked child notes nothing: the records are its parent's.
    fn note(&self, record: &Record) {
        if self.is_inherited() {
            return;
        }
        self.claim.note(record);
        if !record.is_ordinary() {
            say::hint();
        }
    }

    /// Wakes everybody who waits by [`ThisProcess::wake_descriptor`].
    pub fn wake(&self) {
        if !self.is_inherited() {
            let _ = rustix::io::write(&self.claim.wake, &[0]);
        }
    }

    /// Another descriptor of the pipe that others write to, to wake this process.
    ///
    /// # Errors
    ///
    /// `EMFILE` if no descriptor is left.
    pub fn wake_descriptor(&self) -> io::Result<OwnedFd> {
        self.claim.wake.try_clone()
    }

    /// A descriptor that names this process's device. [`ThisProcess::is_named_by`] recognizes it.
    ///
    /// # Errors
    ///
    /// `EMFILE` if no descriptor is left.
    pub fn command_descriptor(&self) -> io::Result<OwnedFd> {
        self.segment.duplicate_descriptor()
    }

    /// Whether a descriptor, however it was duplicated, is [`ThisProcess::command_descriptor`], and the
    /// process this one.
    pub fn is_named_by(&self, descriptor: BorrowedFd<'_>) -> bool {
        !self.is_inherited() && self.segment.is_behind(descriptor)
    }

    /// Puts what it has carried into the sums of the registry, because it ends.
    pub fn settle(&self) {
        if !self.is_inherited() {
            self.registry().settle(&self.segment);
        }
    }

    /// A place for a queue pair to count in.
    pub fn place(self: &Arc<Self>, number: u32) -> Place {
        Place { number, traffic: self.segment.traffic(number).into(), _process: self.clone() }
    }

    /// In a forked child, leaves all of it to the parent.
    pub fn leave_to_parent(&self) {
        self.segment.protect();
        self.claim.leave_to_parent();
    }
}

/// The place where a queue pair counts. It is looked up once, because every request counts.
pub struct Place {
    number: u32,
    traffic: NonNull<Traffic>,
    /// Its segment.
    _process: Arc<ThisProcess>,
}

// SAFETY: what it points to is made of atomics, and mapped as long as the process's segment.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    /// Its number in the segment.
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Deref for Place {
    type Target = Traffic;

    #[inline]
    fn deref(&self) -> &Traffic {
        // SAFETY: as above.
        unsafe { self.traffic.as_ref() }
    }
}

impl Drop for ThisProcess {
    fn drop(&mut self) {
        self.settle();
    }
}

impl Others for ThisProcess {
    fn is_stopped(&self, process: Announcer, thread: u32) -> bool {
        let found = self.registry().process(process.slot);
        found.is_some_and(|found| found.is_near && found.is_stopped(thread))
    }
}

/// Waiting: spin briefly, then yield. A longer wait is noted for `transom explain`, with the process waited for.
impl Waiter for ThisProcess {
    fn pause(&self, round: u32, on: Option<Announcer>) {
        match round {
            0..64 => std::hint::spin_loop(),
            // Each yield may take as long as the turns of all who want the processor.
            64..320 => std::thread::yield_now(),
            // A thread of this process, which is about to be done with a copy. A sleep would take longer.
            320..20_000 if on.is_none() => std::thread::yield_now(),
            _ => {
                if let Some(process) = on.and_then(|on| self.registry().process(on.slot)) {
                    self.claim.note_waiting(process.pid);
                }
                // The other side is stopped or starved. Ask again a few thousand times a second.
                std::thread::sleep(Duration::from_micros(200));
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
        !self.registry().has_memory(process)
    }

    fn drained(&self) {
        if rehearsal::on().is_some() {
            self.held_back().into_iter().for_each(|all| all.land(|_| true));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each device of a process has a segment of its own.
    #[test]
    fn peers_log_what_they_do_to_a_device_with_a_log_and_to_no_other() {
        watch_writes(|_| ());
        let [logged, other] = [(); 2].map(|()| Segment::create().expect("memory"));
        logged.open_access_log().expect("memory");
        assert_eq!([&logged, &other].map(watched_bypass), [Bypass::Logged, Bypass::Free]);
    }
}
