//! Does something while all other threads of this process are stopped, as a debugger stops them.
//!
//! None of them is in a system call then: one that was waiting in a call begins it anew afterwards, or goes on
//! with what it got so far. The calls of which `signal(7)` says that they end with `EINTR` after a process
//! was stopped and continued (`epoll_wait(2)` among them) do so here too.
//!
//! A process cannot trace its own threads, so a second process does that which shares this one's memory, as
//! `vfork(2)` makes one: it runs in place of the calling thread, on a stack of its own, until it ends. It needs no
//! right beyond that to trace other processes of the same user; who has none, or is traced already, gets an
//! error, and nothing has happened.

use std::ffi::CStr;
use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use crate::signals::with_signals_held;

/// More threads are not stopped.
const MOST: usize = 1024;
/// How long they have to come to a stop. One that waits for the disk, or for a child of `vfork(2)`, does not.
const TIMEOUT: Duration = Duration::from_millis(50);
/// For so many looks at a thread its tracer only gives way; then it sleeps between them.
const EAGER: u32 = 64;
const NAP: Duration = Duration::from_micros(50);
/// Room for the tracer's calls, of which some have kilobytes of their own.
const STACK: usize = 256 << 10;

/// Does something while no other thread of this process runs, and none is in a system call.
///
/// It must not take memory or a lock that another thread might have: who has it does not go on. It must not
/// panic. One at a time: two of them would wait for each other in vain.
///
/// # Errors
///
/// `EPERM` if the system does not let this process be traced, or somebody traces it; `ETIMEDOUT` if a thread did
/// not stop, `EAGAIN` if there are too many, and what the system says of a new process.
pub(crate) fn with_threads_stopped<T, F: FnOnce() -> T>(act: F) -> io::Result<T> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let list = rustix::fs::open("/proc/self/task", flags, Mode::empty())?;
    let stack = Stack::new()?;
    // SAFETY: takes nothing and cannot fail.
    let maker = unsafe { libc::gettid() };
    let mut work = Work { list, maker, act: Some(act), done: Err(Errno::CHILD) };
    let status = with_signals_held(|| {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | libc::CLONE_FS;
        // SAFETY: the stack is the child's alone. This thread stands still until the child has ended, so the
        // child may use what is this thread's: its variables, and `work`.
        let child = unsafe {
            libc::clone(
                run::<T, F>,
                stack.top(),
                flags | libc::CLONE_UNTRACED,
                (&raw mut work).cast(),
            )
        };
        if child < 0 { Err(io::Error::last_os_error()) } else { wait_for(child) }
    })?;
    // It has left nothing half done unless it was killed by itself, which takes a debugger or a mistake here.
    assert!(libc::WIFEXITED(status), "the process that stops threads was killed");
    Ok(work.done?)
}

/// What the child does, and what came of it.
struct Work<T, F> {
    /// The threads of the process.
    list: OwnedFd,
    /// The one that stands still anyway.
    maker: i32,
    act: Option<F>,
    done: Result<T, Errno>,
}

extern "C" fn run<T, F: FnOnce() -> T>(work: *mut libc::c_void) -> libc::c_int {
    // SAFETY: what `with_threads_stopped` has handed over, which does not touch it meanwhile.
    let work = unsafe { &mut *work.cast::<Work<T, F>>() };
    let mut threads = Threads { traced: [Traced::default(); MOST], count: 0 };
    work.done = threads.stop(&work.list, work.maker).and_then(|()| {
        let act = work.act.take().ok_or(Errno::CHILD)?;
        Ok(act())
    });
    threads.let_go();
    0
}

fn wait_for(child: i32) -> io::Result<libc::c_int> {
    let mut status = 0;
    // SAFETY: the status is this function's own.
    match unsafe { libc::waitpid(child, &mut status, libc::__WALL) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(status),
    }
}

/// A thread that is traced.
#[derive(Clone, Copy, Default)]
struct Traced {
    thread: i32,
    /// The signal that was on its way to it when it stopped; zero for none.
    signal: i32,
}

/// All that are traced. Whoever traces lets go of them when it ends, at the latest.
struct Threads {
    traced: [Traced; MOST],
    count: usize,
}

impl Threads {
    /// Stops all but one, and those that they make before they stop.
    fn stop(&mut self, list: &OwnedFd, but: i32) -> Result<(), Errno> {
        let until = Instant::now() + TIMEOUT;
        loop {
            let known = self.count;
            self.seize_new(list, but)?;
            if self.count == known {
                return Ok(());
            }
            for traced in &mut self.traced[known..self.count] {
                traced.signal = wait_until_stopped(traced.thread, until)?;
            }
        }
    }

    /// Begins to trace the threads that are not traced yet, and has them stop.
    fn seize_new(&mut self, list: &OwnedFd, but: i32) -> Result<(), Errno> {
        rustix::fs::seek(list, SeekFrom::Start(0))?;
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut entries = RawDir::new(list, &mut room);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let thread = entry.file_name().to_str().ok().and_then(|name| name.parse::<i32>().ok());
            let known = |thread| self.traced[..self.count].iter().any(|it| it.thread == thread);
            let Some(thread) = thread.filter(|it| *it != but && !known(*it)) else { continue };
            if self.count == MOST {
                return Err(Errno::AGAIN);
            }
            match trace(libc::PTRACE_SEIZE, thread, 0)
                .and_then(|()| trace(libc::PTRACE_INTERRUPT, thread, 0))
            {
                Ok(()) => {}
                // It has ended.
                Err(Errno::SRCH) => continue,
                Err(Errno::PERM) if has_ended(list, entry.file_name()) => continue,
                Err(error) => return Err(error),
            }
            self.traced[self.count] = Traced { thread, signal: 0 };
            self.count += 1;
        }
        Ok(())
    }

    fn let_go(&self) {
        for Traced { thread, signal } in &self.traced[..self.count] {
            // One that has not stopped is let go of when this process ends.
            let _ = trace(libc::PTRACE_DETACH, *thread, *signal);
        }
    }
}

/// A request of `ptrace(2)` that takes no address.
fn trace(request: libc::c_uint, thread: i32, data: i32) -> Result<(), Errno> {
    // SAFETY: none of the requests made here reads or writes memory by what it is given.
    let done = unsafe { libc::ptrace(request, thread, 0_usize, data as usize) };
    if done == -1 { Err(last_error()) } else { Ok(()) }
}

/// Waits until a thread has stopped or ended; the signal that it stopped with.
fn wait_until_stopped(thread: i32, until: Instant) -> Result<i32, Errno> {
    // `PTRACE_EVENT_STOP`: it was stopped here, or with the whole process by a signal.
    const BY_TRACER: libc::c_int = 128;
    let mut looks = 0;
    loop {
        let mut status = 0;
        // SAFETY: the status is this function's own.
        match unsafe { libc::waitpid(thread, &mut status, libc::__WALL | libc::WNOHANG) } {
            0 => {}
            -1 => return Err(last_error()),
            _ if libc::WIFSTOPPED(status) => {
                let by_tracer = status >> 16 == BY_TRACER;
                return Ok(if by_tracer { 0 } else { libc::WSTOPSIG(status) });
            }
            _ => return Ok(0),
        }
        if Instant::now() >= until {
            return Err(Errno::TIMEDOUT);
        }
        if looks < EAGER {
            std::thread::yield_now();
        } else {
            std::thread::sleep(NAP);
        }
        looks += 1;
    }
}

/// Whether a thread of the list runs no more: the first one stays there when it ends before the others.
fn has_ended(list: &OwnedFd, thread: &CStr) -> bool {
    let mut path = [0; 32];
    let mut left = &mut path[..];
    let written = left.write_all(thread.to_bytes()).and_then(|()| left.write_all(b"/stat\0"));
    let Some(path) = written.ok().and_then(|()| CStr::from_bytes_until_nul(&path).ok()) else {
        return false;
    };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let Ok(stat) = rustix::fs::openat(list, path, flags, Mode::empty()) else { return true };
    let mut text = [0; 64];
    let Ok(length) = rustix::io::read(&stat, &mut text) else { return true };
    // The state stands behind the name, which has at most 15 bytes and may have any.
    let state =
        text[..length].windows(2).rposition(|two| two == b") ").and_then(|at| text.get(at + 2));
    matches!(state, Some(b'Z' | b'X'))
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Memory for the child's calls, with a page below it that nobody can touch.
struct Stack(*mut libc::c_void);

impl Stack {
    fn new() -> io::Result<Self> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address that the kernel chooses, and its first page.
        unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::STACK | MapFlags::NORESERVE;
            let made = Self(rustix::mm::mmap_anonymous(null_mut(), STACK, rights, flags)?);
            rustix::mm::mprotect(made.0, rustix::param::page_size(), MprotectFlags::empty())?;
            Ok(made)
        }
    }

    fn top(&self) -> *mut libc::c_void {
        self.0.wrapping_byte_add(STACK)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and the child has ended.
        let unmapped = unsafe { rustix::mm::munmap(self.0, STACK) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
    use std::thread;

    use super::*;

    /// Whether the system lets it be done at all.
    fn is_allowed() -> bool {
        match with_threads_stopped(|| ()) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                println!("skipped: this process may not be traced");
                false
            }
            other => other.map(|()| true).expect("its threads stop"),
        }
    }

    #[test]
    fn no_thread_runs_meanwhile() {
        if !is_allowed() {
            return;
        }
        let (counts, stop) = ([const { AtomicU64::new(0) }; 3], AtomicBool::new(false));
        thread::scope(|scope| {
            for count in &counts {
                scope.spawn(|| {
                    while !stop.load(Acquire) {
                        count.fetch_add(1, Relaxed);
                    }
                });
            }
            let seen = || counts.each_ref().map(|count| count.load(SeqCst));
            let start = Instant::now();
            for _ in 0..200 {
                let before = seen();
                let ran = with_threads_stopped(|| {
                    let first = seen();
                    let until = Instant::now() + Duration::from_micros(50);
                    while Instant::now() < until {}
                    (first, seen())
                });
                let (first, last) = ran.unwrap();
                assert_eq!(first, last);
                while seen().into_iter().zip(before).any(|(now, before)| now == before) {
                    thread::yield_now();
                }
            }
            println!("{:?} each", start.elapsed() / 200);
            stop.store(true, Release);
        });
    }
}
