//! A process beside the program, which speaks for the program if it is killed.
//!
//! When a program with RDMA connections ends, the kernel of a host with an adapter tells its peers. Here a program that
//! exits tells them itself. For one that is killed, another process of the host with a device does (rule CM-50). This
//! process makes sure that there is one. It sleeps until a process of the run has ended without a word, and exits with
//! the last of them.
//!
//! It must change nothing for the program, which takes the place of this command:
//!
//! * It is a child that no `wait` of the program's finds. The kernel shows a child without a signal for its end only to a
//!   `wait` for such children (`__WCLONE`, see `wait(2)`), and sends no signal.
//! * It has a session of its own, because signals from a terminal or by `kill` are for the program.
//! * It has nothing open that the program has, and no directory that then could not be unmounted.
//! * It has another name in the list of processes.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, getpid, getppid, pidfd_open};
use transom_device::protection::Announcer;
use transom_host::connections::LastWords;
use transom_system::environment::WATCHER;
use transom_system::registry::{Life, Registry, Watcher};

/// What it is called, in the list of processes too.
const NAME: &str = "transom: speaks for";

/// How often it looks whether the program still runs where the system does not tell.
const SELDOM: Duration = Duration::from_secs(1);

/// Who is to speak for the processes of a run.
pub(super) struct Watching {
    registry: &'static Registry,
    watcher: Watcher,
}

impl Watching {
    /// Has the processes of a program make themselves known. None without a registry: then the program opens no
    /// device, and says why.
    pub(super) fn prepare(command: &mut Command) -> io::Result<Option<Self>> {
        let Ok(registry) = Registry::open() else { return Ok(None) };
        let number = getrandom::u64().map_err(io::Error::other)?;
        let watcher = registry.make_watcher(number)?;
        command.env(WATCHER.name, format!("{number:x}"));
        Ok(Some(Self { registry, watcher }))
    }

    /// Begins beside the program, and comes back in the process that becomes it. The error says why nobody will speak
    /// for it.
    pub(super) fn begin_beside(self) -> io::Result<()> {
        let program =
            Program { pid: getpid(), end: pidfd_open(getpid(), PidfdFlags::empty()).ok() };
        if split()? {
            let _ = catch_unwind(AssertUnwindSafe(|| self.watch(&program)));
            drop(self);
            // SAFETY: ends this process. What this command would do at its end is not this one's to do.
            unsafe { libc::_exit(0) };
        }
        // Its name is there as long as the other process is.
        std::mem::forget(self);
        Ok(())
    }

    /// Speaks for the processes of the program until the last of them has ended.
    fn watch(&self, program: &Program) {
        if step_aside(program.pid).is_err() {
            return;
        }
        let mut vigil = Vigil::new(self);
        loop {
            // Before those are asked who make themselves known: the last is among them then.
            let is_over = program.has_ended();
            let next = vigil.look();
            if is_over && vigil.members.is_empty() && next.is_none() {
                return;
            }
            let end = program.end.as_ref().filter(|_| !is_over).map(|end| end.as_fd());
            let looks = program.end.is_none() && !is_over;
            vigil.sleep(end, next.into_iter().chain(looks.then_some(SELDOM)).min());
        }
    }
}

/// The processes that have made themselves known, and what is at hand for their ends.
pub(super) struct Vigil<'a> {
    of: &'a Watching,
    members: Vec<Life>,
    words: Option<LastWords>,
}

impl<'a> Vigil<'a> {
    pub(super) fn new(of: &'a Watching) -> Self {
        Self { of, members: Vec::new(), words: None }
    }

    /// Takes in who has come, and speaks for those that have ended; in which time there is more to be said.
    pub(super) fn look(&mut self) -> Option<Duration> {
        let Watching { registry, watcher } = self.of;
        let mut ended = Vec::new();
        while let Some(process) = watcher.next() {
            match registry.watch(process) {
                Ok(life) => self.members.push(life),
                Err(_) if registry.is_alive(process) => {}
                Err(_) => ended.push(process),
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

    /// Speaks for all that are left, which end with this process.
    pub(super) fn end(&mut self) {
        let ended: Vec<_> = self.members.drain(..).map(|life| life.process()).collect();
        self.say_for(&ended);
    }

    fn say_for(&mut self, ended: &[Announcer]) {
        if let (false, Some(words)) = (ended.is_empty(), &mut self.words) {
            let _ = words.say_for(ended);
        }
    }

    /// Sleeps until there is something to look at, or at this descriptor, or for this time.
    pub(super) fn sleep(&self, other: Option<BorrowedFd<'_>>, time: Option<Duration>) {
        let addresses = self.words.as_ref().map(|words| words.descriptor());
        let lives = self.members.iter().map(|life| life.descriptor().as_fd());
        let all = [self.of.watcher.descriptor()].into_iter().chain(addresses).chain(other);
        let all = all.chain(lives);
        let mut fds: Vec<_> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        let _ = poll(&mut fds, time.as_ref());
    }
}

/// Makes a second process of this one, which has one thread; true in the new one. That has no signal for its end.
fn split() -> io::Result<bool> {
    let none: libc::c_ulong = 0;
    // SAFETY: as `fork`, without flags and on a copy of this stack. This process has one thread, so nothing is locked.
    // What the C library keeps of a thread's number stays that of the parent, which no thread of the child has.
    match unsafe { libc::syscall(libc::SYS_clone, none, none, none, none, none) } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(pid == 0),
    }
}

/// The process that the program is.
struct Program {
    pid: Pid,
    /// Readable when it has ended; none on systems that do not tell.
    end: Option<OwnedFd>,
}

impl Program {
    fn has_ended(&self) -> bool {
        match &self.end {
            Some(end) => is_readable(end.as_fd()),
            None => getppid() != Some(self.pid),
        }
    }
}

fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Lets go of all that is the program's.
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
            // SAFETY: no handler is put anywhere; of some the system does not let it be changed.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
    }
    std::env::set_current_dir("/")?;
    close_what_is_the_programs()?;
    // It need not be told from the others of its name.
    let _ = rustix::thread::set_name(c"transom");
    rename(&format!("{NAME} {}", program.as_raw_nonzero()));
    Ok(())
}

/// Closes what a program would have open too; all else is this command's own.
pub(super) fn close_what_is_the_programs() -> io::Result<()> {
    let nothing = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let mut inherited = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        // SAFETY: asks for flags, of a number that may be no descriptor's any more.
        let is_inherited = |fd: &i32| unsafe { libc::fcntl(*fd, libc::F_GETFD) } == 0;
        inherited.extend(number.filter(is_inherited));
    }
    for fd in inherited {
        // SAFETY: nothing of ours uses it: what this command opens is closed by `exec`.
        unsafe {
            match fd {
                0..=2 => libc::dup2(nothing.as_raw_fd(), fd),
                _ => libc::close(fd),
            };
        }
    }
    Ok(())
}

/// Has this process listed by another name: over the words that it was started with, as far as there is room.
fn rename(name: &str) {
    let Some((begin, end)) = place_of_arguments() else { return };
    let room = end.saturating_sub(begin);
    // SAFETY: the kernel says that the words are there, on the first stack of this process, and nothing refers to
    // them any more: the standard library hands out copies.
    unsafe {
        let at = std::ptr::with_exposed_provenance_mut::<u8>(begin);
        at.write_bytes(0, room);
        at.copy_from_nonoverlapping(name.as_ptr(), name.len().min(room.saturating_sub(1)));
    }
}

/// Where the words lie that this process was started with.
fn place_of_arguments() -> Option<(usize, usize)> {
    let status = fs::read_to_string("/proc/self/stat").ok()?;
    // Behind the name, which is in parentheses and may have any in it, the third field comes first.
    let mut fields = status.rsplit_once(')')?.1.split_whitespace().skip(48 - 3);
    let mut number = || fields.next()?.parse::<usize>().ok().filter(|number| *number != 0);
    Some((number()?, number()?))
}
