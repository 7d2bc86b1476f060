//! A process beside the program that speaks for the program if it is killed.
//!
//! When a program with RDMA connections ends, the kernel of a host with an adapter tells its peers. Here a program that
//! exits tells them itself. For a killed program, another process of the host with a device tells them (rule CM-50).
//! This process makes sure that there is one. It sleeps until a process of the run has ended without telling its peers,
//! and exits with the last process of the run.
//!
//! It must change nothing for the program, which takes the place of this command:
//!
//! * It is no child of the program. A program may wait until it has no child left (`strace` does), and this process
//!   waits for the program. So the process between the two ends at once, and this one is an orphan. Where an orphan would
//!   be the program's child after all, it is a child that `wait` does not find: the kernel shows a child without an exit
//!   signal only to a `wait` for such children (`__WALL`, see `wait(2)`), and sends no signal.
//! * It has a session of its own, because signals from a terminal or by `kill` are for the program.
//! * It has no files of the program open, and its directory does not keep a file system mounted.
//! * It has another name in the list of processes.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::time::Duration;

use super::live::{Live, LiveFiles};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, PidfdFlags, getpid, getppid, pidfd_open};
use transom_device::protection::Announcer;
use transom_host::connections::LastWords;
use transom_system::environment::WATCHER;
use transom_system::registry::{Announced, Life, Registry, Watcher};

/// Its name in the list of processes.
const NAME: &str = "transom: speaks for";

/// How often it checks whether the program still runs, if the system does not report the end.
const SELDOM: Duration = Duration::from_secs(1);

/// The watcher of a run's processes.
pub(super) struct Watching {
    registry: &'static Registry,
    watcher: Watcher,
    /// The files that it keeps up to date.
    files: Option<LiveFiles>,
}

impl Watching {
    /// Makes the processes of a program register with the watcher. `None` without a registry: then the program opens no
    /// device, and says why.
    pub(super) fn prepare(command: &mut Command) -> io::Result<Option<Self>> {
        let Ok(registry) = Registry::open() else { return Ok(None) };
        let number = getrandom::u64().map_err(io::Error::other)?;
        let watcher = registry.make_watcher(number)?;
        command.env(WATCHER.name, format!("{number:x}"));
        Ok(Some(Self { registry, watcher, files: None }))
    }

    /// The same, which keeps these files up to date too.
    pub(super) fn keeping(self, files: Option<LiveFiles>) -> Self {
        Self { files, ..self }
    }

    /// Starts beside the program, and returns in the process that becomes the program. The error says why nobody will
    /// speak for it.
    pub(super) fn begin_beside(mut self) -> io::Result<()> {
        let program =
            Program { pid: getpid(), end: pidfd_open(getpid(), PidfdFlags::empty()).ok() };
        let (begun, begins) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        if program.split()? {
            drop(begun);
            let _ = catch_unwind(AssertUnwindSafe(|| self.watch(&program, begins)));
            drop(self);
            // SAFETY: ends this process. It skips the exit handlers of this command, which are not this
            // process's.
            unsafe { libc::_exit(0) };
        }
        // If the other process is killed, nobody is to wait for its files.
        drop(self.files.take());
        // Its name exists as long as the other process does.
        std::mem::forget(self);
        drop(begins);
        // The program finds live files from its first instruction on. If the other process fails, this ends too.
        let _ = rustix::io::read(&begun, &mut [0]);
        Ok(())
    }

    /// Speaks for the processes of the program until the last of them has ended. Closes `begins` once it watches.
    fn watch(&mut self, program: &Program, begins: OwnedFd) {
        if step_aside(program.pid).is_err() {
            return;
        }
        let mut vigil = Vigil::new(self);
        drop(begins);
        loop {
            // Checked before `look` asks for new processes, so that the last one is among them.
            let is_over = program.has_ended();
            let next = vigil.look();
            if is_over && vigil.is_idle() {
                return;
            }
            let end = program.end.as_ref().filter(|_| !is_over).map(|end| end.as_fd());
            let looks = program.end.is_none() && !is_over;
            vigil.sleep(end, next.into_iter().chain(looks.then_some(SELDOM)).min());
        }
    }
}

/// The processes that have registered, and the means to speak for them.
pub(super) struct Vigil<'a> {
    of: &'a Watching,
    members: Vec<Life>,
    words: Option<LastWords>,
    has_more_to_say: bool,
    live: Option<Live>,
}

impl<'a> Vigil<'a> {
    pub(super) fn new(of: &'a mut Watching) -> Self {
        let live = of.files.take().and_then(|files| Live::begin(files).ok());
        Self { of, members: Vec::new(), words: None, has_more_to_say: false, live }
    }

    /// Takes in new processes, speaks for those that have ended, and writes the files that somebody opens. Returns when it
    /// must look again.
    pub(super) fn look(&mut self) -> Option<Duration> {
        let registry = self.of.registry;
        // First, because somebody waits for them.
        let files = self.live.as_mut().and_then(|live| live.look(registry));
        let again = self.look_after_processes();
        self.has_more_to_say = again.is_some();
        again.into_iter().chain(files).min()
    }

    /// This process stops for a while.
    pub(super) fn let_go(&mut self) {
        self.live.iter_mut().for_each(Live::let_go);
    }

    /// The process that becomes the program keeps none of the files.
    pub(super) fn forget(mut self) {
        drop(self.live.take());
        std::mem::forget(self);
    }

    fn look_after_processes(&mut self) -> Option<Duration> {
        let Watching { registry, watcher, .. } = self.of;
        let mut ended = Vec::new();
        while let Some(Announced { process, .. }) = watcher.next() {
            match registry.watch(process) {
                Ok(Some(life)) => self.members.push(life),
                Ok(None) => ended.push(process),
                // Nobody speaks for it, as if there were no watcher.
                Err(_) => {}
            }
            if self.words.is_none() {
                self.words = LastWords::new(registry).ok();
            }
        }
        let members = self.members.extract_if(.., |life| life.has_ended());
        ended.extend(members.map(|life| life.process()));
        self.say_for(&ended);
        if let Some(words) = &mut self.words
            && is_readable(words.descriptor())
        {
            words.refresh();
        }
        self.words.as_mut().and_then(LastWords::say_again)
    }

    /// Whether all that it speaks for is over.
    fn is_idle(&self) -> bool {
        self.members.is_empty() && !self.has_more_to_say
    }

    /// Speaks for all remaining processes, which end with this process.
    pub(super) fn end(&mut self) {
        let ended: Vec<_> = self.members.drain(..).map(|life| life.process()).collect();
        self.say_for(&ended);
    }

    fn say_for(&mut self, ended: &[Announcer]) {
        if let (false, Some(words)) = (ended.is_empty(), &mut self.words) {
            let _ = words.say_for(ended);
        }
    }

    /// Sleeps until a process ends or registers, this descriptor is readable, or this time is up.
    pub(super) fn sleep(&self, other: Option<BorrowedFd<'_>>, time: Option<Duration>) {
        let addresses = self.words.as_ref().map(|words| words.descriptor());
        let lives = self.members.iter().map(|life| life.descriptor().as_fd());
        let all = [self.of.watcher.descriptor()].into_iter().chain(addresses).chain(other);
        let files = self.live.iter().flat_map(Live::descriptors);
        let all = all.chain(lives).chain(files);
        let mut fds: Vec<_> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        let _ = poll(&mut fds, time.as_ref());
    }
}

/// Forks this process, which has one thread. Returns the child's number, and zero in the child. The child sends no signal
/// when it ends.
fn fork() -> io::Result<libc::pid_t> {
    let none: libc::c_ulong = 0;
    // SAFETY: as `fork`, without flags and on a copy of this stack. This process has one thread, so nothing is locked.
    // The C library's copy of the thread's number stays the parent's. No thread of the child has that number.
    match unsafe { libc::syscall(libc::SYS_clone, none, none, none, none, none) } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(pid as libc::pid_t),
    }
}

/// The same, but the new process is an orphan. Returns true in it.
fn fork_orphan() -> io::Result<bool> {
    let between = fork()?;
    if between == 0 {
        let ended = match fork() {
            Ok(0) => return Ok(true),
            Ok(_) => 0,
            Err(error) => error.raw_os_error().unwrap_or(libc::EAGAIN),
        };
        // SAFETY: ends this process, without the exit handlers of this command.
        unsafe { libc::_exit(ended) };
    }
    let mut status = 0;
    // SAFETY: the status is this call's own.
    while unsafe { libc::waitpid(between, &mut status, libc::__WALL) } == -1 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    match libc::WEXITSTATUS(status) {
        0 if libc::WIFEXITED(status) => Ok(false),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// The process that is the program.
struct Program {
    pid: Pid,
    /// Readable when it has ended. `None` on systems without such descriptors.
    end: Option<OwnedFd>,
}

impl Program {
    /// Makes the other process. Returns true in it.
    fn split(&self) -> io::Result<bool> {
        // A child hears of the program's end in any case.
        match self.end.is_some() && !gets_orphans() {
            true => fork_orphan(),
            false => Ok(fork()? == 0),
        }
    }

    fn has_ended(&self) -> bool {
        match &self.end {
            Some(end) => is_readable(end.as_fd()),
            None => getppid() != Some(self.pid),
        }
    }
}

/// Whether orphans below this process become its children.
fn gets_orphans() -> bool {
    let is_subreaper = rustix::process::child_subreaper().is_ok_and(|it| it.is_some());
    getpid() == Pid::INIT || is_subreaper
}

fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Releases everything that belongs to the program.
fn step_aside(program: Pid) -> io::Result<()> {
    rustix::process::setsid()?;
    for signal in 1..=libc::SIGRTMAX() {
        let is_mistake = matches!(
            signal,
            libc::SIGSEGV
                | libc::SIGBUS
                | libc::SIGILL
                | libc::SIGFPE
                | libc::SIGABRT
                | libc::SIGTRAP
        );
        if !is_mistake {
            // SAFETY: it installs no handler. The system does not allow a change for some signals.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
    }
    std::env::set_current_dir("/")?;
    close_what_is_the_programs()?;
    // If the name cannot be set, that does no harm.
    let _ = rustix::thread::set_name(c"transom");
    rename(&format!("{NAME} {}", program.as_raw_nonzero()));
    Ok(())
}

/// Closes the descriptors that the program inherits too. This command opened all others.
pub(super) fn close_what_is_the_programs() -> io::Result<()> {
    let nothing = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let mut inherited = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        // SAFETY: it asks for flags, of a number that may not be a descriptor any more.
        let is_inherited = |fd: &i32| unsafe { libc::fcntl(*fd, libc::F_GETFD) } == 0;
        inherited.extend(number.filter(is_inherited));
    }
    for fd in inherited {
        // SAFETY: nothing of ours uses it: `exec` closes all descriptors that this command opens.
        unsafe {
            match fd {
                0..=2 => libc::dup2(nothing.as_raw_fd(), fd),
                _ => libc::close(fd),
            };
        }
    }
    Ok(())
}

/// Lists this process under another name. Overwrites its arguments, as far as there is room.
fn rename(name: &str) {
    let Some((begin, end)) = place_of_arguments() else { return };
    let room = end.saturating_sub(begin);
    // SAFETY: the kernel says that the arguments are there, on the first stack of this process. Nothing refers to them
    // any more, because the standard library hands out copies.
    unsafe {
        let at = std::ptr::with_exposed_provenance_mut::<u8>(begin);
        at.write_bytes(0, room);
        at.copy_from_nonoverlapping(name.as_ptr(), name.len().min(room.saturating_sub(1)));
    }
}

/// The addresses of this process's arguments.
fn place_of_arguments() -> Option<(usize, usize)> {
    let status = fs::read_to_string("/proc/self/stat").ok()?;
    // The third field follows the name. The name is in parentheses and may contain parentheses.
    let mut fields = status.rsplit_once(')')?.1.split_whitespace().skip(48 - 3);
    let mut number = || fields.next()?.parse::<usize>().ok().filter(|number| *number != 0);
    Some((number()?, number()?))
}
