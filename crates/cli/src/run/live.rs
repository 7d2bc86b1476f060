//! Keeps the counters in the files of a run live: a file gets its value when somebody opens it.
//!
//! The process beside the program holds a lease on each of them (`F_SETLEASE`, see `fcntl(2)`). Whoever opens one waits
//! until that process has written the value of now and has given up the lease. It takes the lease again when the file
//! is closed. So nothing runs while nobody looks, and every program sees it, whatever it calls to open a file. If the
//! system knows no leases, the files keep the values from the beginning of the run.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use rustix::fs::inotify;
use transom_system::port_counters::{COUNTERS, HW_COUNTERS};
use transom_system::registry::Registry;
use transom_system::sums::Sums;

/// So many descriptors a process keeps for other things than these files.
const OTHER_DESCRIPTORS: u64 = 256;
/// A file that has just been closed is free a moment later.
const MOMENT: Duration = Duration::from_millis(1);
/// Who waits for a file opens it within this time, or never.
const PATIENCE: Duration = Duration::from_millis(50);
/// A file that is open for longer is looked at again when it is closed.
const LONGEST: Duration = Duration::from_millis(400);

/// The files, open, in the process that writes them.
pub(super) struct LiveFiles {
    /// The names of the devices, by number.
    devices: Vec<String>,
    files: Vec<LiveFile>,
    /// So many there may be.
    most: usize,
    /// Tells when one is closed.
    closed: OwnedFd,
    by_watch: HashMap<i32, usize>,
}

struct LiveFile {
    file: File,
    /// The number of its device.
    device: u8,
    value: fn(&Sums) -> u64,
    state: State,
}

enum State {
    /// Whoever opens it has to wait.
    Leased,
    /// Somebody may have it open. Its lease is asked for again at this time, and later after longer pauses.
    Open { again: Instant, pause: Duration },
    /// Somebody has it open, and its end will be told.
    LongOpen,
}

impl LiveFiles {
    /// None yet, of these devices. `None` where there can be none.
    pub(super) fn new(devices: &[String]) -> Option<Self> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let limit = limit.current.unwrap_or(u64::MAX);
        let most = usize::try_from(limit.saturating_sub(OTHER_DESCRIPTORS)).unwrap_or(usize::MAX);
        if most == 0 {
            return None;
        }
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let closed = inotify::init(flags).ok()?;
        let devices = devices.to_vec();
        Some(Self { devices, files: Vec::new(), most, closed, by_watch: HashMap::new() })
    }

    /// Takes a file in, if it is that of a counter. It is open for writing.
    pub(super) fn add(&mut self, path: &Path, file: File) {
        let Some(value) = counter_at(path).filter(|_| self.files.len() < self.most) else { return };
        let Some(device) = self.device_at(path) else { return };
        let ends = inotify::WatchFlags::CLOSE_NOWRITE | inotify::WatchFlags::CLOSE_WRITE;
        let Ok(watch) = inotify::add_watch(&self.closed, path, ends) else { return };
        self.by_watch.insert(watch, self.files.len());
        let state = State::Open { again: Instant::now(), pause: MOMENT };
        self.files.push(LiveFile { file, device, value, state });
    }

    /// The number of the device that a counter belongs to: `NAME/ports/1/DIRECTORY/COUNTER`.
    fn device_at(&self, path: &Path) -> Option<u8> {
        let name = path.ancestors().nth(4)?.file_name()?.to_str()?;
        let place = self.devices.iter().position(|device| device == name)?;
        u8::try_from(place).ok()
    }
}

/// The value in a file, by its place.
fn counter_at(path: &Path) -> Option<fn(&Sums) -> u64> {
    let counters = match path.parent()?.file_name()?.to_str()? {
        "counters" => &COUNTERS[..],
        "hw_counters" => &HW_COUNTERS,
        _ => return None,
    };
    let name = path.file_name()?.to_str()?;
    counters.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// The same in the process that keeps them live.
pub(super) struct Live {
    of: LiveFiles,
    /// Readable when somebody waits for a file.
    waited_for: OwnedFd,
}

impl Live {
    /// From now on whoever opens a file finds the value of then.
    pub(super) fn begin(of: LiveFiles) -> io::Result<Self> {
        let mut live = Self { of, waited_for: signals()? };
        let now = Instant::now();
        live.of.files.iter_mut().for_each(|file| file.lease_if_due(now));
        Ok(live)
    }

    /// What to wake up for.
    pub(super) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.of.closed.as_fd(), self.waited_for.as_fd()]
    }

    /// Writes the values that somebody waits for. Returns when it must look again.
    pub(super) fn look(&mut self, registry: &Registry) -> Option<Duration> {
        drain(&self.waited_for);
        self.note_closed();
        let now = Instant::now();
        let mut sums = HashMap::new();
        for file in &mut self.of.files {
            if matches!(file.state, State::Leased) && file.is_waited_for() {
                let device = file.device;
                file.write(sums.entry(device).or_insert_with(|| registry.sums(device)));
                // The lease goes whether or not it could be written: nobody is to wait for ever.
                let _ = lease(&file.file, libc::F_UNLCK);
                file.state = State::Open { again: now + PATIENCE, pause: PATIENCE };
            }
            file.lease_if_due(now);
        }
        let due = self.of.files.iter().filter_map(|file| match file.state {
            State::Open { again, .. } => Some(again),
            State::Leased | State::LongOpen => None,
        });
        due.min().map(|due| due.saturating_duration_since(now))
    }

    /// This process stops for a while. Nobody is to wait for it.
    pub(super) fn let_go(&mut self) {
        let again = Instant::now();
        for file in self.of.files.iter_mut().filter(|file| matches!(file.state, State::Leased)) {
            let _ = lease(&file.file, libc::F_UNLCK);
            file.state = State::Open { again, pause: MOMENT };
        }
    }

    fn note_closed(&mut self) {
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.of.closed, &mut room);
        while let Ok(event) = events.next() {
            let Some(index) = self.of.by_watch.get(&event.wd()) else { continue };
            let file = &mut self.of.files[*index];
            if !matches!(file.state, State::Leased) {
                file.state = State::Open { again: Instant::now(), pause: MOMENT };
            }
        }
    }
}

impl LiveFile {
    fn is_waited_for(&self) -> bool {
        // SAFETY: it asks about a descriptor that is open.
        unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_GETLEASE) != libc::F_WRLCK }
    }

    /// Nobody has it open: those who want to, wait.
    fn write(&self, sums: &Sums) {
        let text = format!("{}\n", (self.value)(sums));
        if self.file.write_all_at(text.as_bytes(), 0).is_ok() {
            let _ = self.file.set_len(text.len() as u64);
        }
    }

    fn lease_if_due(&mut self, now: Instant) {
        let State::Open { again, pause } = self.state else { return };
        if again > now {
            return;
        }
        self.state = match lease(&self.file, libc::F_WRLCK) {
            Ok(()) => State::Leased,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && pause < LONGEST => {
                State::Open { again: now + pause, pause: pause * 2 }
            }
            Err(_) => State::LongOpen,
        };
    }
}

fn lease(file: &File, kind: i32) -> io::Result<()> {
    // SAFETY: it changes nothing but the lease of a file that is open.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Readable when the kernel says that somebody waits for a lease.
fn signals() -> io::Result<OwnedFd> {
    let mut only = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is this call's own, and written before it is read. Nobody else has the new descriptor.
    unsafe {
        libc::sigemptyset(only.as_mut_ptr());
        libc::sigaddset(only.as_mut_ptr(), libc::SIGIO);
        if libc::sigprocmask(libc::SIG_BLOCK, only.as_ptr(), null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        match libc::signalfd(-1, only.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

fn drain(signals: &OwnedFd) {
    let mut room = [0_u8; size_of::<libc::signalfd_siginfo>()];
    while rustix::io::read(signals, &mut room).is_ok_and(|read| read > 0) {}
}
