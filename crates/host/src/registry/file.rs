//! The registry file: one slot for each process with a device.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use transom_device::protection::{Announcer, PROCESSES};

use super::call::CallRecord;
use super::counters::Counters;
use super::record::{RECORD_WORDS, RefusalRecord};
use crate::{environment, file_limit};

/// The directory's name carries the version of the file's layout and of the segments': change them
/// together, for programs built from different versions must not meet.
const VERSION: u32 = 6;

/// Refusals kept for each process.
const RECORDS: usize = 64;

/// Held while slots are taken or left: the kernel's locks do not tell threads of one process apart.
static SLOTS: Mutex<()> = Mutex::new(());

/// One process's place.
#[repr(C, align(4096))]
struct Slot {
    /// Generation above, PID below; zero while nobody is here.
    token: AtomicU64,
    /// The last PID here, for what it noted.
    last_pid: AtomicU32,
    /// The last generation given out here.
    generation: AtomicU32,
    /// The segment's descriptor in that process.
    descriptor: AtomicU32,
    /// The program's name, zero-padded.
    name: [AtomicU64; 4],
    /// Whom a revocation waits for: PID (zero: nobody).
    waits_for: AtomicU64,
    /// What became of its packets.
    counters: Counters,
    /// How many refusals have been noted.
    noted: AtomicU64,
    /// Each begins with its number plus one, zero while it is written.
    records: [[AtomicU64; RECORD_WORDS]; RECORDS],
}

#[repr(C)]
struct Layout {
    /// Where the next process begins to look for a slot, so that numbers are not reused soon.
    next: AtomicU64,
    /// Slots that were ever taken; the others are holes in the file and are not touched.
    used: [AtomicU64; PROCESSES / 64],
    slots: [Slot; PROCESSES],
}

/// The registry of this user in these namespaces.
pub struct Registry {
    layout: NonNull<Layout>,
    file: OwnedFd,
    directory: PathBuf,
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
    /// Its PID.
    pub pid: u32,
    /// Whether it still runs.
    pub alive: bool,
    /// Its program's name, up to 32 bytes.
    pub name: String,
    /// The PID a revocation of it waits for right now.
    pub waits_for: Option<u32>,
    /// The segment's descriptor there.
    pub(crate) descriptor: u32,
}

/// A slot held by this process until it is dropped.
pub struct Claim {
    registry: &'static Registry,
    announcer: Announcer,
    /// Where others write to wake this process.
    pub(crate) wake: OwnedFd,
}

impl Registry {
    /// The registry; opened once in a process and never closed, because closing a file drops this
    /// process's locks on it.
    pub fn open() -> io::Result<&'static Self> {
        static REGISTRY: OnceLock<Registry> = OnceLock::new();
        // Of two threads that open it at once, one would close the file again, and with it drop the
        // lock of a slot that the other has taken meanwhile.
        static OPENING: Mutex<()> = Mutex::new(());
        let _one = OPENING.lock();
        if let Some(registry) = REGISTRY.get() {
            return Ok(registry);
        }
        let opened = Self::create(&Self::place()?)?;
        Ok(REGISTRY.get_or_init(|| opened))
    }

    /// A directory for this user, network namespace and PID namespace: the same addresses and PIDs
    /// mean the same for all in it.
    fn place() -> io::Result<PathBuf> {
        let namespace = |name| {
            let link = std::fs::read_link(format!("/proc/self/ns/{name}"))?;
            Ok::<_, io::Error>(
                link.to_string_lossy().chars().filter(char::is_ascii_digit).collect::<String>(),
            )
        };
        let uid = rustix::process::geteuid().as_raw();
        let name = format!("transom-{VERSION}-{uid}-{}-{}", namespace("net")?, namespace("pid")?);
        let shared = Path::new("/dev/shm");
        let parent =
            if shared.is_dir() { shared.to_owned() } else { environment::temporary_directory() };
        Ok(parent.join(name))
    }

    fn create(directory: &Path) -> io::Result<Self> {
        let explain = |what: &str, error: io::Error| {
            io::Error::new(error.kind(), format!("{what} {}: {error}", directory.display()))
        };
        match rustix::fs::mkdir(directory, Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(explain("cannot make", error.into())),
        }
        // Somebody else's directory of this name must not be trusted.
        let stat = rustix::fs::lstat(directory)?;
        let ours =
            stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o7777 == 0o700;
        if !ours || !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
            return Err(explain(
                "cannot use",
                io::Error::other("it is not ours alone (mode 0700)"),
            ));
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(directory.join("registry"), flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| explain("cannot open the registry in", error.into()))?;
        if rustix::fs::fstat(&file)?.st_size < size_of::<Layout>() as i64 {
            file_limit::grow(|| rustix::fs::ftruncate(&file, size_of::<Layout>() as u64))
                .map_err(|error| explain("cannot make the registry in", error))?;
        }
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size_of::<AtomicU64>() as u64)
            .map_err(|error| explain("no room left for the registry in", error.into()))?;
        // SAFETY: a fresh shared mapping of the whole file, at least as long as the layout; nobody
        // shrinks it.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                size_of::<Layout>(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &file,
                0,
            )?
        };
        let layout = NonNull::new(address.cast()).expect("a mapping is never at zero");
        Ok(Self { layout, file, directory: directory.to_owned() })
    }

    /// The directory it lies in, which no other user can enter.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn layout(&self) -> &Layout {
        // SAFETY: mapped for ever, aligned to a page, valid in any bit pattern (atomics).
        unsafe { self.layout.as_ref() }
    }

    fn is_used(&self, slot: u8) -> bool {
        self.layout().used[usize::from(slot) / 64].load(Acquire) >> (slot % 64) & 1 == 1
    }

    fn slot(&self, slot: u8) -> &Slot {
        &self.layout().slots[usize::from(slot)]
    }

    /// Takes a slot for a device of this process, whose segment has `descriptor`.
    pub fn claim(&'static self, descriptor: u32) -> io::Result<Claim> {
        // Slots 0 and 255 are left out: their queue pair numbers include the reserved ones.
        const USABLE: u64 = PROCESSES as u64 - 2;
        let _alone = SLOTS.lock();
        self.sweep();
        let start = self.layout().next.fetch_add(1, Relaxed);
        for step in 0..USABLE {
            let slot = 1 + ((start + step) % USABLE) as u8;
            if let Some(announcer) = self.try_claim(slot)? {
                // Whoever comes next begins behind it, so that what was noted here stays a while.
                self.layout().next.fetch_max(start + step + 1, Relaxed);
                let wake = self.make_wake(slot)?;
                self.slot(slot).descriptor.store(descriptor, Release);
                return Ok(Claim { registry: self, announcer, wake });
            }
        }
        Err(io::Error::new(
            io::ErrorKind::QuotaExceeded,
            format!(
                "{USABLE} processes of this user run a Transom device already; end one of them"
            ),
        ))
    }

    /// Removes the pipes of processes that ended without closing their device. Their slots keep
    /// what they noted until somebody else takes them.
    fn sweep(&self) {
        for index in (0..=u8::MAX).filter(|index| self.is_used(*index)) {
            let pid = self.slot(index).token.load(SeqCst) as u32;
            let dead =
                pid != std::process::id() && self.lock(index, libc::F_WRLCK).unwrap_or(false);
            if dead {
                let _ = rustix::fs::unlink(self.wake_path(index));
                let _ = self.lock(index, libc::F_UNLCK);
            }
        }
    }

    fn try_claim(&self, index: u8) -> io::Result<Option<Announcer>> {
        if !self.lock(index, libc::F_WRLCK)? {
            return Ok(None);
        }
        self.commit(index)?;
        self.layout().used[usize::from(index) / 64].fetch_or(1 << (index % 64), Release);
        let slot = self.slot(index);
        let old = slot.token.load(SeqCst);
        // This process's own locks do not keep it out, so a slot of its own is told by its PID.
        if old as u32 == std::process::id() {
            return Ok(None);
        }
        let generation = slot.generation.fetch_add(1, SeqCst).wrapping_add(1) & 0x7f_ffff;
        let token = u64::from(generation) << 32 | u64::from(std::process::id());
        if slot.token.compare_exchange(old, token, SeqCst, Relaxed).is_err() {
            return Ok(None);
        }
        for record in &slot.records {
            record[0].store(0, Relaxed);
        }
        slot.last_pid.store(std::process::id(), Relaxed);
        slot.waits_for.store(0, Relaxed);
        slot.counters.clear();
        let name = program_name();
        for (word, bytes) in slot.name.iter().zip(name.chunks_exact(8)) {
            word.store(u64::from_ne_bytes(bytes.try_into().expect("eight bytes")), Relaxed);
        }
        Ok(Some(Announcer { slot: index, generation }))
    }

    /// Takes memory for a slot, so that noting a refusal cannot fail.
    fn commit(&self, index: u8) -> io::Result<()> {
        let offset = std::ptr::from_ref(self.slot(index)).addr() - self.layout.as_ptr().addr();
        let length = size_of::<Slot>() as u64;
        rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset as u64, length).map_err(
            |error| {
                let place = self.directory.display();
                let kind = io::Error::from(error).kind();
                io::Error::new(kind, format!("no room left for the registry in {place}: {error}"))
            },
        )
    }

    fn wake_path(&self, slot: u8) -> PathBuf {
        self.directory.join(format!("wake-{slot}"))
    }

    fn make_wake(&self, slot: u8) -> io::Result<OwnedFd> {
        let path = self.wake_path(slot);
        let _ = rustix::fs::unlink(&path);
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::open(&path, flags, Mode::empty())?)
    }

    /// What to write to, to wake the process in a slot. It is opened for reading as well: once the
    /// process has ended, a pipe without a reader would kill this one with SIGPIPE.
    pub(crate) fn wake_of(&self, slot: u8) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::open(self.wake_path(slot), flags, Mode::empty())?)
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
        Some(Process {
            announcer,
            pid: if token == 0 { slot.last_pid.load(Relaxed) } else { token as u32 },
            alive: self.is_alive(announcer),
            name: String::from_utf8_lossy(&name).into_owned(),
            waits_for: (waits_for != 0).then_some(waits_for),
            descriptor: slot.descriptor.load(Acquire),
        })
    }

    /// All processes that are or were here, by slot.
    pub fn processes(&self) -> Vec<Process> {
        (0..=u8::MAX).filter_map(|slot| self.process(slot)).collect()
    }

    /// The slots that are taken, without a look at whether their processes still run.
    pub(crate) fn taken(&self) -> impl Iterator<Item = u8> {
        let taken = |slot: &u8| self.is_used(*slot) && self.slot(*slot).token.load(SeqCst) != 0;
        (0..=u8::MAX).filter(taken)
    }

    /// Whether the slot is still in this stay's name; the process may have died without notice.
    pub fn holds(&self, process: Announcer) -> bool {
        let token = self.slot(process.slot).token.load(SeqCst);
        token != 0 && (token >> 32) as u32 == process.generation
    }

    /// Whether this stay in the slot goes on.
    pub fn is_alive(&self, process: Announcer) -> bool {
        let token = self.slot(process.slot).token.load(SeqCst);
        let pid = token as u32;
        token != 0
            && (token >> 32) as u32 == process.generation
            && (pid == std::process::id() || self.is_locked_by(process.slot, pid))
    }

    /// The refusals noted by the process that is or was in a slot, oldest first.
    pub fn refusals(&self, index: u8) -> Vec<RefusalRecord> {
        self.records(index).iter().filter_map(RefusalRecord::from_words).collect()
    }

    /// The calls that the process in a slot was last refused, oldest first.
    pub fn refused_calls(&self, index: u8) -> Vec<CallRecord> {
        self.records(index).iter().filter_map(CallRecord::from_words).collect()
    }

    fn records(&self, index: u8) -> Vec<[u64; RECORD_WORDS]> {
        if !self.is_used(index) {
            return Vec::new();
        }
        let slot = self.slot(index);
        let noted = slot.noted.load(Acquire);
        let first = noted.saturating_sub(RECORDS as u64);
        (first..noted)
            .filter_map(|number| {
                let record = &slot.records[(number % RECORDS as u64) as usize];
                let words = record.each_ref().map(|word| word.load(Acquire));
                // Not being written, and not overwritten while it was read.
                let whole = words[0] == number + 1 && record[0].load(SeqCst) == words[0];
                whole.then_some(words)
            })
            .collect()
    }

    /// What became of the packets of the process that is or was in a slot.
    pub fn counters(&self, slot: u8) -> &Counters {
        &self.slot(slot).counters
    }

    fn lock(&self, slot: u8, kind: i32) -> io::Result<bool> {
        let mut lock = byte_lock(slot, kind);
        // SAFETY: `lock` is a valid flock of this call's own.
        let done = unsafe { libc::fcntl(self.file.as_fd().as_raw_fd(), libc::F_SETLK, &mut lock) };
        match (done, io::Error::last_os_error()) {
            (0, _) => Ok(true),
            (_, error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
                Ok(false)
            }
            (_, error) => Err(error),
        }
    }

    /// Whether this process holds the slot; one that sweeps or claims may have its lock for a moment.
    fn is_locked_by(&self, slot: u8, pid: u32) -> bool {
        let mut lock = byte_lock(slot, libc::F_WRLCK);
        // SAFETY: `lock` is a valid flock of this call's own, which the kernel fills in.
        let done = unsafe { libc::fcntl(self.file.as_fd().as_raw_fd(), libc::F_GETLK, &mut lock) };
        // If the kernel cannot tell, take it for alive: exactness comes first.
        done != 0 || i32::from(lock.l_type) != libc::F_UNLCK && lock.l_pid.unsigned_abs() == pid
    }
}

fn byte_lock(slot: u8, kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: i64::from(slot),
        l_len: 1,
        l_pid: 0,
    }
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

impl Claim {
    /// The slot, and the generation of this stay.
    pub fn announcer(&self) -> Announcer {
        self.announcer
    }

    /// The registry it is in.
    pub fn registry(&self) -> &'static Registry {
        self.registry
    }

    /// Notes a refusal for whoever asks.
    pub(crate) fn note(&self, words: [u64; RECORD_WORDS]) {
        let slot = self.registry.slot(self.announcer.slot);
        let number = slot.noted.fetch_add(1, AcqRel);
        let record = &slot.records[(number % RECORDS as u64) as usize];
        record[0].store(0, SeqCst);
        for (word, value) in record.iter().zip(words).skip(1) {
            word.store(value, Release);
        }
        record[0].store(number + 1, SeqCst);
    }

    /// Notes whom a revocation waits for; zero for nobody.
    pub fn note_waiting(&self, pid: u32) {
        self.registry.slot(self.announcer.slot).waits_for.store(u64::from(pid), Relaxed);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let slot = self.registry.slot(self.announcer.slot);
        let token = u64::from(self.announcer.generation) << 32 | u64::from(std::process::id());
        let _alone = SLOTS.lock();
        // A forked child has a copy of this claim, but the slot is its parent's.
        if slot.token.load(SeqCst) == token {
            let _ = rustix::fs::unlink(self.registry.wake_path(self.announcer.slot));
            slot.token.store(0, SeqCst);
            let _ = self.registry.lock(self.announcer.slot, libc::F_UNLCK);
        }
    }
}
