//! The registry file: one slot for each process with a device.

use std::collections::BTreeSet;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

use rustix::fs::{FallocateFlags, Mode, OFlags};
use transom_device::protection::{Announcer, PROCESSES};

use super::call::CallRecord;
use super::counters::Counters;
use super::directory;
use super::life::Life;
use super::lock::{self, Part, With};
use super::namespaces::Namespaces;
use super::network_namespace;
use super::noted::{Noted, Record};
use super::presence::{self, NameOwner, Presence};
use super::record::RefusalRecord;
use super::runs::{Run, Runs};
use super::unconnected::ConnectionRecord;
use super::work::WorkRecord;
use crate::clock;
use crate::descriptor::{self, Identity};
use crate::file_limit;
use crate::shared_mapping::map_shared;

/// The directory's name carries the version of the layouts of the file and the segments. Change it with them: programs
/// built from different versions must not meet.
const VERSION: u32 = 22;

/// How long the owner of a slot that no process of this user has is remembered, in nanoseconds.
const REMEMBERED: u64 = 1_000_000_000;

/// One process's slot.
#[repr(C, align(4096))]
struct Slot {
    /// Generation above, PID below. Zero while the slot is free.
    token: AtomicU64,
    /// The PID of the last process here, for its notes.
    last_pid: AtomicU32,
    /// The last generation given out here.
    generation: AtomicU32,
    /// The segment's descriptor in that process.
    descriptor: AtomicU32,
    /// The process's [`Namespaces`].
    namespaces: [AtomicU64; 3],
    /// The program's name, zero-padded.
    name: [AtomicU64; 4],
    /// The process that a revocation waits for, by PID. Zero for none.
    waits_for: AtomicU64,
    /// The fate of its packets.
    counters: Counters,
    /// Its notes for `transom explain`.
    noted: Noted,
}

impl Slot {
    fn namespaces(&self) -> Namespaces {
        Namespaces::from_words(self.namespaces.each_ref().map(|word| word.load(Relaxed)))
    }
}

/// Some of the slots.
#[repr(C)]
struct Slots([AtomicU64; PROCESSES / 64]);

impl Slots {
    fn has(&self, slot: u8) -> bool {
        self.0[usize::from(slot) / 64].load(Acquire) >> (slot % 64) & 1 == 1
    }

    fn add(&self, slot: u8) {
        self.0[usize::from(slot) / 64].fetch_or(1 << (slot % 64), Release);
    }

    fn remove(&self, slot: u8) {
        self.0[usize::from(slot) / 64].fetch_and(!(1 << (slot % 64)), Release);
    }
}

#[repr(C)]
struct Layout {
    /// Where the next process begins to look for a slot, so that numbers are not soon reused.
    next: AtomicU64,
    /// Slots that were ever taken. The others are holes in the file and are not touched.
    used: Slots,
    /// Those that may have left names in the directory.
    named: Slots,
    /// When a process last began to take a slot, by the steady clock.
    opened: AtomicU64,
    runs: Runs,
    slots: [Slot; PROCESSES],
}

/// The registry of this user in this network namespace.
pub struct Registry {
    layout: NonNull<Layout>,
    /// Holds [`Part::Users`], and asks which parts are locked. It takes no slot, because a forked child has it too.
    file: OwnedFd,
    identity: Identity,
    directory: PathBuf,
    /// Those of this process.
    namespaces: Namespaces,
    /// When each slot was last seen in use by another user.
    seen_of_others: [AtomicU64; PROCESSES],
}

// SAFETY: the mapping is never undone, and all of it is atomics.
unsafe impl Send for Registry {}
// SAFETY: as above.
unsafe impl Sync for Registry {}

/// A process found in the registry.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its slot and stay.
    pub announcer: Announcer,
    /// Its PID, in its own PID namespace.
    pub pid: u32,
    /// Whether it still has its device.
    pub alive: bool,
    /// It has closed its device, and may still run. If it is neither alive nor closed, it has ended or called `exec`.
    pub closed: bool,
    /// Whether it lives in the PID namespace of this process, so that its PID is valid here.
    pub shares_pids: bool,
    /// Whether the local link leads to it. Only packets reach the others.
    pub is_near: bool,
    /// Its program's name, up to 32 bytes, printable characters only.
    pub name: String,
    /// The PID that a revocation of it waits for right now.
    pub waits_for: Option<u32>,
    /// The segment's descriptor there.
    pub descriptor: u32,
}

/// Which slots a process takes.
#[derive(Clone, Copy, Debug)]
enum Names {
    /// Those that nobody has named in this network namespace.
    Free,
    /// Those too whose name another user has. So another user who takes all names cannot keep this one out.
    OfOthers,
}

/// A slot that this process holds until the claim is dropped.
pub struct Claim {
    registry: &'static Registry,
    announcer: Announcer,
    presence: Presence,
    /// The process that took it. A child made without `fork` differs from it.
    pid: u32,
    /// This process was forked from the one that took it.
    is_inherited: AtomicBool,
    /// Others write here to wake this process.
    pub wake: OwnedFd,
}

impl Registry {
    /// How many processes it has room for. Slots 0 and 255 are left out: their queue pair numbers include the
    /// reserved ones.
    pub const PROCESSES: usize = PROCESSES - 2;

    /// The registry. A process opens it once and never closes it, so that it is not removed.
    pub fn open() -> io::Result<&'static Self> {
        static REGISTRY: OnceLock<Registry> = OnceLock::new();
        if let Some(registry) = REGISTRY.get() {
            return Ok(registry);
        }
        let opened = Self::find()?;
        Ok(REGISTRY.get_or_init(|| opened))
    }

    /// Opens the registry of this user and network namespace: all processes in it share addresses and port. Removes
    /// registries that nobody uses any more.
    fn find() -> io::Result<Self> {
        let user = rustix::process::geteuid().as_raw();
        let parents = directory::parents(user);
        let name = directory::name(VERSION, user, network_namespace()?);
        let (directory, file) = directory::open(&parents, &name)?;
        let registry = Self::map(directory, file)?;
        directory::remove_unused(&parents, user);
        Ok(registry)
    }

    fn map(directory: PathBuf, file: OwnedFd) -> io::Result<Self> {
        if rustix::fs::fstat(&file)?.st_size < size_of::<Layout>() as i64 {
            file_limit::grow(|| rustix::fs::ftruncate(&file, size_of::<Layout>() as u64)).map_err(
                |error| {
                    let (path, kind) = (directory.display(), error.kind());
                    let text = format!("cannot make the registry in {path}: {error}");
                    io::Error::new(kind, text)
                },
            )?;
        }
        take_room(&file, &directory, 0, offset_of!(Layout, slots))?;
        // The file is at least as long as the layout; nobody shrinks it.
        let layout = map_shared(&file, 0, size_of::<Layout>())?.cast();
        let identity = Identity::of(&file)?;
        let (namespaces, seen_of_others) =
            (Namespaces::current()?, [const { AtomicU64::new(0) }; PROCESSES]);
        Ok(Self { layout, file, identity, directory, namespaces, seen_of_others })
    }

    /// Its directory. No other user can enter it.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn layout(&self) -> &Layout {
        // SAFETY: mapped for ever, aligned to a page, valid in any bit pattern (atomics).
        unsafe { self.layout.as_ref() }
    }

    fn is_used(&self, slot: u8) -> bool {
        self.layout().used.has(slot)
    }

    fn slot(&self, slot: u8) -> &Slot {
        &self.layout().slots[usize::from(slot)]
    }

    /// Takes a slot for a device of this process, whose segment has `descriptor`.
    pub fn claim(&'static self, descriptor: u32) -> io::Result<Claim> {
        const USABLE: u64 = Registry::PROCESSES as u64;
        // Under an open file description of its own, which belongs to this claim if it succeeds.
        self.layout().opened.store(clock::steady(), Relaxed);
        let mut file = self.reopen()?;
        self.sweep(&file)?;
        let start = self.layout().next.fetch_add(1, Relaxed);
        for names in [Names::Free, Names::OfOthers] {
            for step in 0..USABLE {
                let slot = 1 + ((start + step) % USABLE) as u8;
                match self.try_claim(slot, names, file, descriptor)? {
                    Ok(claim) => {
                        // The next process begins its search behind it, so that the notes here stay for a while.
                        self.layout().next.fetch_max(start + step + 1, Relaxed);
                        return Ok(claim);
                    }
                    Err(unused) => file = unused,
                }
            }
        }
        Err(io::Error::new(
            io::ErrorKind::QuotaExceeded,
            format!(
                "{USABLE} processes of this user run a Transom device already; end one of them"
            ),
        ))
    }

    /// The same file under a new open file description.
    fn reopen(&self) -> io::Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        Ok(descriptor::high(file))
    }

    /// Removes what ended processes left in the directory because they did not close their device. Their slots keep
    /// their notes until another process takes them.
    fn sweep(&self, file: &OwnedFd) -> io::Result<()> {
        for slot in (0..=u8::MAX).filter(|slot| self.layout().named.has(*slot)) {
            // Most of them are there.
            if !lock::is_locked(file, Part::Stay(slot))? && self.begin_change(file, slot)? {
                self.remove_names(slot);
                lock::unlock(file, Part::Change(slot));
            }
        }
        Ok(())
    }

    /// Locks a free slot for a change of its content. False if a process has it or is changing it.
    fn begin_change(&self, file: &OwnedFd, slot: u8) -> io::Result<bool> {
        if !lock::try_lock(file, Part::Change(slot), With::Nobody)? {
            return Ok(false);
        }
        let vacant = !lock::is_locked(file, Part::Stay(slot))?;
        if !vacant {
            lock::unlock(file, Part::Change(slot));
        }
        Ok(vacant)
    }

    /// Takes a slot if it is free. Otherwise gives the file back.
    fn try_claim(
        &'static self,
        slot: u8,
        names: Names,
        file: OwnedFd,
        descriptor: u32,
    ) -> io::Result<Result<Claim, OwnedFd>> {
        if !self.begin_change(&file, slot)? {
            return Ok(Err(file));
        }
        // If another registry has a process in this slot, the name is that one's.
        let name = match (presence::bind_name(slot)?, names) {
            (Ok(name), _) => name,
            (Err(NameOwner::Another(_)), Names::OfOthers) => presence::no_name()?,
            (Err(_), _) => {
                lock::unlock(&file, Part::Change(slot));
                return Ok(Err(file));
            }
        };
        self.commit(slot)?;
        self.layout().used.add(slot);
        self.layout().named.add(slot);
        // Do this before taking the lock, which would make the previous process look alive.
        let it = self.slot(slot);
        it.token.store(0, SeqCst);
        lock::try_lock(&file, Part::Stay(slot), With::Nobody)?;
        let life = presence::make_pipe(&self.life_path(slot))?;
        let wake = presence::make_pipe(&self.wake_path(slot))?;
        let generation = it.generation.fetch_add(1, SeqCst).wrapping_add(1) & 0x7f_ffff;
        it.noted.clear();
        let pid = std::process::id();
        it.last_pid.store(pid, Relaxed);
        it.waits_for.store(0, Relaxed);
        it.counters.clear();
        it.descriptor.store(descriptor, Relaxed);
        for (word, value) in it.namespaces.iter().zip(self.namespaces.to_words()) {
            word.store(value, Relaxed);
        }
        let program = program_name();
        for (word, bytes) in it.name.iter().zip(program.chunks_exact(8)) {
            word.store(u64::from_ne_bytes(bytes.try_into().expect("eight bytes")), Relaxed);
        }
        it.token.store(u64::from(generation) << 32 | u64::from(pid), SeqCst);
        lock::unlock(&file, Part::Change(slot));
        Ok(Ok(Claim {
            registry: self,
            announcer: Announcer { slot, generation },
            presence: Presence { lock: file, life, name },
            pid,
            is_inherited: AtomicBool::new(false),
            wake,
        }))
    }

    /// Takes memory for a slot, so that noting a refusal cannot fail.
    fn commit(&self, index: u8) -> io::Result<()> {
        let offset = std::ptr::from_ref(self.slot(index)).addr() - self.layout.as_ptr().addr();
        take_room(&self.file, &self.directory, offset, size_of::<Slot>())
    }

    fn wake_path(&self, slot: u8) -> PathBuf {
        self.directory.join(format!("wake-{slot}"))
    }

    fn life_path(&self, slot: u8) -> PathBuf {
        self.directory.join(format!("life-{slot}"))
    }

    /// The socket at which a process gets packets that others hand on to it.
    pub fn socket_path(&self, slot: u8) -> PathBuf {
        self.directory.join(format!("udp-{slot}"))
    }

    fn management_path(&self, slot: u8) -> PathBuf {
        self.directory.join(format!("management-{slot}"))
    }

    /// Removes the names that a process has, or had, in the directory.
    fn remove_names(&self, slot: u8) {
        let names = [Self::wake_path, Self::life_path, Self::socket_path, Self::management_path];
        for path in names {
            let _ = rustix::fs::unlink(path(self, slot));
        }
        self.layout().named.remove(slot);
    }

    /// Makes the pipe at which the process in a slot gets management datagrams from the others. That process reads it.
    /// Its name goes when the slot is left.
    pub fn make_management_pipe(&self, slot: u8) -> io::Result<OwnedFd> {
        presence::make_pipe(&self.management_path(slot))
    }

    /// A descriptor to write management datagrams to the process in a slot. An error if it takes none. It is opened for
    /// reading as well, as in [`Registry::wake_of`].
    pub fn management_pipe_of(&self, slot: u8) -> io::Result<OwnedFd> {
        let path = self.management_path(slot);
        // This fails where nobody reads.
        let _reader = presence::open_pipe(&path, OFlags::WRONLY)?;
        presence::open_pipe(&path, OFlags::RDWR)
    }

    /// A descriptor to write to, to wake the process in a slot. It is opened for reading as well: once the process has
    /// ended, writing to a pipe without a reader would kill this one with SIGPIPE.
    pub fn wake_of(&self, slot: u8) -> io::Result<OwnedFd> {
        presence::open_pipe(&self.wake_path(slot), OFlags::RDWR)
    }

    /// Tells when this stay ends: its process ends, calls `exec`, or closes its device. An error if it has ended
    /// already.
    pub fn watch(&'static self, process: Announcer) -> io::Result<Life> {
        let pipe = presence::watch(&self.life_path(process.slot))?;
        // The pipe was there before the stay began. So it belongs to this stay if the stay goes on.
        match self.is_alive(process) {
            true => Life::new(process, pipe, self),
            false => Err(io::Error::other("the process has ended or closed its device")),
        }
    }

    /// Whether only packets reach the process in a slot, because it lives in other namespaces. For a free slot it does
    /// not matter who had it.
    #[inline]
    pub fn needs_packets(&self, slot: u8) -> bool {
        let taken = self.is_used(slot) && self.slot(slot).token.load(SeqCst) != 0;
        taken && !self.namespaces.are_near(self.slot(slot).namespaces())
    }

    /// Whether a process of this user that is not in this registry has a slot of this number in this network namespace.
    pub fn is_in_other_registry(&self, slot: u8) -> bool {
        self.process(slot).is_none_or(|process| !process.alive)
            && presence::name_owner(slot) == Some(NameOwner::ThisUser)
    }

    /// Whether a slot that is free here belongs to another user, as far as this process can tell.
    pub fn is_of_another_user(&self, slot: u8) -> bool {
        // If it has ended, its number may be another's by now.
        if self.process(slot).is_some_and(|it| it.alive) {
            return false;
        }
        let (seen, now) = (&self.seen_of_others[usize::from(slot)], clock::steady());
        let is_known = || {
            let last = seen.load(Relaxed);
            last != 0 && now.saturating_sub(last) < REMEMBERED
        };
        let is_anothers =
            is_known() || matches!(presence::name_owner(slot), Some(NameOwner::Another(_)));
        if is_anothers && !is_known() {
            seen.store(now, Relaxed);
        }
        is_anothers
    }

    /// The other users who have named numbers of processes in this network namespace, and how many of the existing ones
    /// they have. Without users who cannot be asked.
    pub fn names_of_others(&self) -> (BTreeSet<u32>, usize) {
        let owners = (1..u8::MAX).filter_map(presence::name_owner);
        let others = owners.filter_map(|owner| match owner {
            NameOwner::ThisUser => None,
            NameOwner::Another(user) => Some(user),
        });
        let others: Vec<_> = others.collect();
        (others.iter().copied().flatten().collect(), others.len())
    }

    /// The process in a slot, if there is or was one.
    pub fn process(&self, index: u8) -> Option<Process> {
        if !self.is_used(index) {
            return None;
        }
        let slot = self.slot(index);
        let token = slot.token.load(SeqCst);
        let generation = match token {
            0 => slot.generation.load(Relaxed),
            _ => (token >> 32) as u32,
        };
        let announcer = Announcer { slot: index, generation };
        let name: Vec<u8> = slot
            .name
            .iter()
            .flat_map(|word| word.load(Relaxed).to_ne_bytes())
            .take_while(|byte| *byte != 0)
            .collect();
        let waits_for = slot.waits_for.load(Relaxed) as u32;
        let alive = self.is_alive(announcer);
        Some(Process {
            announcer,
            pid: if token == 0 { slot.last_pid.load(Relaxed) } else { token as u32 },
            alive,
            closed: !alive && slot.token.load(SeqCst) == 0,
            shares_pids: self.namespaces.share_pids(slot.namespaces()),
            is_near: self.namespaces.are_near(slot.namespaces()),
            name: printable(&name),
            waits_for: (waits_for != 0).then_some(waits_for),
            descriptor: slot.descriptor.load(Acquire),
        })
    }

    /// All processes that are or were here, by slot.
    pub fn processes(&self) -> Vec<Process> {
        (0..=u8::MAX).filter_map(|slot| self.process(slot)).collect()
    }

    /// When a process last began to open a device, by the steady clock.
    pub fn last_opened(&self) -> u64 {
        self.layout().opened.load(Relaxed)
    }

    /// The taken slots. Does not check whether their processes still run.
    pub fn taken(&self) -> impl Iterator<Item = u8> {
        let taken = |slot: &u8| self.is_used(*slot) && self.slot(*slot).token.load(SeqCst) != 0;
        (0..=u8::MAX).filter(taken)
    }

    /// Whether the slot is still in this stay's name. The process may have died unnoticed.
    pub fn holds(&self, process: Announcer) -> bool {
        let token = self.slot(process.slot).token.load(SeqCst);
        token != 0 && (token >> 32) as u32 == process.generation
    }

    /// Whether this stay in the slot goes on.
    pub fn is_alive(&self, process: Announcer) -> bool {
        // A successor writes its name there after it has cleared the other's and then taken the lock. If the kernel
        // cannot tell, or tells of another file, count it as alive: exactness comes first.
        let is_locked = || {
            lock::is_locked(&self.file, Part::Stay(process.slot)).unwrap_or(true)
                || !self.identity.is_behind(&self.file)
        };
        self.holds(process) && is_locked() && self.holds(process)
    }

    /// The notes of the process that is or was in a slot, the oldest first.
    pub fn records(&self, index: u8) -> Vec<Record> {
        if self.is_used(index) { self.slot(index).noted.all() } else { Vec::new() }
    }

    /// How many records of that process are no longer kept.
    pub fn lost(&self, index: u8) -> u64 {
        if self.is_used(index) { self.slot(index).noted.lost() } else { 0 }
    }

    /// The accesses that were refused.
    pub fn refusals(&self, index: u8) -> Vec<RefusalRecord> {
        let refusal = |record| if let Record::Access(it) = record { Some(it) } else { None };
        self.records(index).into_iter().filter_map(refusal).collect()
    }

    /// The calls that were refused.
    pub fn refused_calls(&self, index: u8) -> Vec<CallRecord> {
        let call = |record| if let Record::Call(it) = record { Some(it) } else { None };
        self.records(index).into_iter().filter_map(call).collect()
    }

    /// The connections that did not come about.
    pub fn unconnected(&self, index: u8) -> Vec<ConnectionRecord> {
        let connection = |record| if let Record::Connection(it) = record { Some(it) } else { None };
        self.records(index).into_iter().filter_map(connection).collect()
    }

    /// The work that came to nothing.
    pub fn work(&self, index: u8) -> Vec<WorkRecord> {
        let work = |record| if let Record::Work(it) = record { Some(it) } else { None };
        self.records(index).into_iter().filter_map(work).collect()
    }

    /// Begins a run of a program. Its devices are counted from now on. The mark is any number that other runs are
    /// unlikely to have.
    pub fn begin_run(&self, mark: u32) -> Run {
        self.layout().runs.begin(mark)
    }

    /// How many devices a run has opened before this one, in this registry.
    pub fn count_device(&self, run: Run) -> u32 {
        self.layout().runs.count_device(run)
    }

    /// The fate of the packets of the process that is or was in a slot.
    pub fn counters(&self, slot: u8) -> &Counters {
        &self.slot(slot).counters
    }
}

/// Takes memory for a part of the file.
fn take_room(file: &OwnedFd, directory: &Path, offset: usize, length: usize) -> io::Result<()> {
    rustix::fs::fallocate(file, FallocateFlags::empty(), offset as u64, length as u64).map_err(
        |error| {
            let (path, kind) = (directory.display(), io::Error::from(error).kind());
            io::Error::new(kind, format!("no room left for the registry in {path}: {error}"))
        },
    )
}

/// The name of this program, zero-padded to 32 bytes.
fn program_name() -> [u8; 32] {
    let mut name = [0; 32];
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(Path::file_name).unwrap_or_default();
    let bytes = program.as_encoded_bytes();
    let length = bytes.len().min(name.len());
    name[..length].copy_from_slice(&bytes[..length]);
    name
}

/// A program's name for display, perhaps on a terminal. A file may have any name, and another process may have written
/// anything.
fn printable(name: &[u8]) -> String {
    let printable = |letter: char| if letter.is_control() { '\u{fffd}' } else { letter };
    String::from_utf8_lossy(name).chars().map(printable).collect()
}

impl Claim {
    /// The slot, and the generation of this stay.
    pub fn announcer(&self) -> Announcer {
        self.announcer
    }

    /// The registry it is in.
    pub fn registry(&self) -> &'static Registry {
        self.registry
    }

    /// Notes something for `transom explain`.
    pub fn note(&self, record: &Record) {
        self.registry.slot(self.announcer.slot).noted.add(record);
    }

    /// Notes the process that a revocation waits for. Zero for none.
    pub fn note_waiting(&self, pid: u32) {
        self.registry.slot(self.announcer.slot).waits_for.store(u64::from(pid), Relaxed);
    }

    /// In a forked child, leaves it to the parent: the slot becomes free when the parent ends.
    pub fn leave_to_parent(&self) {
        self.is_inherited.store(true, Relaxed);
        self.presence.leave_to_parent(&self.registry.file);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // A child has a copy of this claim, but the slot is its parent's.
        if self.is_inherited.load(Relaxed) || self.pid != std::process::id() {
            return;
        }
        let slot = self.announcer.slot;
        self.registry.remove_names(slot);
        self.registry.slot(slot).token.store(0, SeqCst);
        self.presence.end(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_does_nothing_to_a_terminal() {
        for (name, told) in [
            (&b"ib_write_bw"[..], "ib_write_bw"),
            ("d\u{e9}j\u{e0}".as_bytes(), "d\u{e9}j\u{e0}"),
            (b"a\x1b[31mb\nc\x7f", "a\u{fffd}[31mb\u{fffd}c\u{fffd}"),
            (b"\xc2\x9b\xff", "\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(printable(name), told);
        }
    }
}
