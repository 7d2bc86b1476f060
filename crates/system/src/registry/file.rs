//! The registry file: one slot for each process with a device.

use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use rustix::fs::{FallocateFlags, OFlags};
use transom_device::protection::PROCESSES;

use super::call::CallRecord;
use super::counters::Counters;
use super::directory;
use super::left::Left;
use super::namespaces::Namespaces;
use super::network_namespace;
use super::noted::{Noted, Record};
use super::presence;
use super::record::RefusalRecord;
use super::runs::{Run, Runs};
use super::unconnected::ConnectionRecord;
use super::work::WorkRecord;
use crate::clock;
use crate::descriptor::Identity;
use crate::file_limit;
use crate::shared_mapping::map_shared;

/// The directory's name carries the version of the layouts of the file and the segments. Change it with them: programs
/// built from different versions must not meet.
const VERSION: u32 = 39;

/// One process's slot.
#[repr(C, align(4096))]
pub(super) struct Slot {
    /// Generation above, PID below. Zero while the slot is free.
    pub(super) token: AtomicU64,
    /// The PID of the last process here, for its notes.
    pub(super) last_pid: AtomicU32,
    /// The last generation given out here.
    pub(super) generation: AtomicU32,
    /// The segment's descriptor in that process.
    pub(super) descriptor: AtomicU32,
    /// The number of the device among those of its program.
    pub(super) device: AtomicU32,
    /// The process's [`Namespaces`].
    pub(super) namespaces: [AtomicU64; 3],
    /// The program's name, zero-padded.
    pub(super) name: [AtomicU64; 4],
    /// The process that a revocation waits for, by PID. Zero for none.
    pub(super) waits_for: AtomicU64,
    /// The fate of its packets.
    pub(super) counters: Counters,
    /// Its notes for `transom explain`.
    pub(super) noted: Noted,
}

impl Slot {
    pub(super) fn namespaces(&self) -> Namespaces {
        Namespaces::from_words(self.namespaces.each_ref().map(|word| word.load(Relaxed)))
    }
}

/// Some of the slots.
#[repr(C)]
pub(super) struct Slots([AtomicU64; PROCESSES / 64]);

impl Slots {
    pub(super) fn has(&self, slot: u8) -> bool {
        self.0[usize::from(slot) / 64].load(Acquire) >> (slot % 64) & 1 == 1
    }

    pub(super) fn add(&self, slot: u8) {
        self.0[usize::from(slot) / 64].fetch_or(1 << (slot % 64), Release);
    }

    pub(super) fn remove(&self, slot: u8) {
        self.0[usize::from(slot) / 64].fetch_and(!(1 << (slot % 64)), Release);
    }
}

#[repr(C)]
pub(super) struct Layout {
    /// Where the next process begins to look for a slot, so that numbers are not soon reused.
    pub(super) next: AtomicU64,
    /// Slots that were ever taken. The others are holes in the file and are not touched.
    pub(super) used: Slots,
    /// Those that may have left names in the directory.
    pub(super) named: Slots,
    /// When a process last began to take a slot, by the steady clock.
    pub(super) opened: AtomicU64,
    /// When a process last looked for registries that nobody uses, by the steady clock. Zero for never.
    tidied: AtomicU64,
    runs: Runs,
    /// By the number of the device.
    left: [Left; DEVICES],
    slots: [Slot; PROCESSES],
}

/// How long nobody looks again for registries that nobody uses, in nanoseconds. Where namespaces come and go there are
/// hundreds, and each takes five system calls.
const TIDY_FOR: u64 = 60_000_000_000;

/// The most devices of a program. Each that it opens takes a slot.
pub const DEVICES: usize = 16;

/// The registry of this user in this network namespace.
pub struct Registry {
    layout: NonNull<Layout>,
    /// Holds [`Part::Users`](super::lock::Part::Users), and asks which parts are locked. It takes no slot, because a
    /// forked child has it too.
    pub(super) file: OwnedFd,
    pub(super) identity: Identity,
    directory: PathBuf,
    /// Those of this process.
    pub(super) namespaces: Namespaces,
    /// When each slot was last seen in use by another user.
    pub(super) seen_of_others: [AtomicU64; PROCESSES],
    /// When each slot was last seen not to be another user's.
    pub(super) seen_of_nobody: [AtomicU64; PROCESSES],
}

// SAFETY: the mapping is never undone, and all of it is atomics.
unsafe impl Send for Registry {}
// SAFETY: as above.
unsafe impl Sync for Registry {}

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

    /// Opens the registry of this user and network namespace: all processes in it share addresses and port. Now and then
    /// it removes those that nobody uses any more.
    fn find() -> io::Result<Self> {
        let user = rustix::process::geteuid().as_raw();
        let parents = directory::parents(user);
        let name = directory::name(VERSION, user, network_namespace()?);
        let (directory, file) = directory::open(&parents, &name)?;
        let registry = Self::map(directory, file)?;
        if registry.is_to_tidy(clock::steady()) {
            directory::remove_unused(&parents, user);
        }
        Ok(registry)
    }

    /// Whether this process is to look for registries that nobody uses. Of several at once it is one.
    fn is_to_tidy(&self, now: u64) -> bool {
        let tidied = &self.layout().tidied;
        let before = tidied.load(Relaxed);
        // The clock of another boot may have been ahead.
        let is_due = before == 0 || now.abs_diff(before) >= TIDY_FOR;
        is_due && tidied.compare_exchange(before, now, Relaxed, Relaxed).is_ok()
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
        let namespaces = Namespaces::current()?;
        let [seen_of_others, seen_of_nobody] =
            [const { [const { AtomicU64::new(0) }; PROCESSES] }; 2];
        Ok(Self { layout, file, identity, directory, namespaces, seen_of_others, seen_of_nobody })
    }

    /// Its directory. No other user can enter it.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn layout(&self) -> &Layout {
        // SAFETY: mapped for ever, aligned to a page, valid in any bit pattern (atomics).
        unsafe { self.layout.as_ref() }
    }

    /// What ended processes have counted at the devices of a number. Another process may have written the number.
    pub(crate) fn left(&self, device: u8) -> &Left {
        &self.layout().left[usize::from(device) % DEVICES]
    }

    pub(super) fn is_used(&self, slot: u8) -> bool {
        self.layout().used.has(slot)
    }

    pub(super) fn slot(&self, slot: u8) -> &Slot {
        &self.layout().slots[usize::from(slot)]
    }

    /// Takes memory for a slot, so that noting a refusal cannot fail.
    pub(super) fn commit(&self, index: u8) -> io::Result<()> {
        let offset = std::ptr::from_ref(self.slot(index)).addr() - self.layout.as_ptr().addr();
        take_room(&self.file, &self.directory, offset, size_of::<Slot>())
    }

    pub(super) fn wake_path(&self, slot: u8) -> PathBuf {
        self.directory.join(format!("wake-{slot}"))
    }

    pub(super) fn life_path(&self, slot: u8) -> PathBuf {
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
    pub(super) fn remove_names(&self, slot: u8) {
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

    /// The notes of the process that is or was in a slot, the oldest first.
    pub fn records(&self, index: u8) -> Vec<Record> {
        if self.is_used(index) { self.slot(index).noted.all() } else { Vec::new() }
    }

    /// How many records of that process are no longer kept.
    pub fn lost(&self, index: u8) -> u64 {
        if self.is_used(index) { self.slot(index).noted.lost() } else { 0 }
    }

    /// How many records of that process there have been of what correct programs do not meet, kept or not.
    pub fn errors(&self, index: u8) -> u64 {
        if self.is_used(index) { self.slot(index).noted.errors() } else { 0 }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Segment;

    #[test]
    fn a_version_has_its_layouts() {
        let layouts = [size_of::<Layout>(), size_of::<Slot>(), offset_of!(Slot, noted)];
        let told = [layouts.as_slice(), &Segment::LAYOUT].concat();
        assert_eq!(
            told,
            [7_368_704, 28_672, 320, 333_205_504, 468, 59_391_448],
            "change VERSION with the layouts"
        );
        assert_eq!(VERSION, 39, "the layouts above are those of another version");
    }

    #[test]
    fn one_process_a_minute_looks_for_registries_that_nobody_uses() {
        let scratch = PathBuf::from(format!("/tmp/transom-registry-{}-tidied", std::process::id()));
        std::fs::create_dir(&scratch).expect("nobody has it");
        let opened = directory::open(std::slice::from_ref(&scratch), "transom-0-0-0");
        let (directory, file) = opened.expect("a directory");
        let registry = Registry::map(directory, file).expect("a registry");
        let (first, later) = (7, 7 + TIDY_FOR);
        for (now, is_to) in [(first, true), (later - 1, false), (later, true), (later, false)] {
            assert_eq!(registry.is_to_tidy(now), is_to, "{now}");
        }
        // As at a clock that began again.
        registry.layout().tidied.store(9 * TIDY_FOR, Relaxed);
        assert!(registry.is_to_tidy(later) && !registry.is_to_tidy(later));
        std::fs::remove_dir_all(scratch).expect("our own");
    }
}
