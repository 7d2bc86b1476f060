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

use std::arch::asm;
use std::ffi::{CStr, c_int, c_void};
use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
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
/// panic.
///
/// # Errors
///
/// `EPERM` if the system does not let this process be traced, or somebody traces it; `ETIMEDOUT` if a thread did
/// not stop, `EAGAIN` if there are too many, and what the system says of a new process. It must not be tried
/// [under valgrind](is_under_valgrind).
pub(crate) fn with_threads_stopped<T, F: FnOnce() -> T>(act: F) -> io::Result<T> {
    debug_assert!(!is_under_valgrind(), "it is asked for before");
    // Two at once would wait for each other in vain.
    static STOPPING: Mutex<()> = Mutex::new(());
    let _one = STOPPING.lock();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let list = rustix::fs::open("/proc/self/task", flags, Mode::empty())?;
    let stack = Stack::new()?;
    // SAFETY: takes nothing and cannot fail.
    let maker = unsafe { libc::gettid() };
    let (process, done) = (std::process::id(), Err(Errno::CHILD));
    let mut work = Work { process, list, maker, act: Some(act), done };
    let status = with_signals_held(|| {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | libc::CLONE_FS;
        // SAFETY: the stack is the child's alone. This thread stands still until the child has ended, so the
        // child may use what is this thread's: its variables, and `work`.
        let child = unsafe { libc::clone(run::<T, F>, stack.top(), flags, (&raw mut work).cast()) };
        if child < 0 { Err(io::Error::last_os_error()) } else { Ok(wait_for(child)) }
    })?;
    if status.is_some_and(|status| !libc::WIFEXITED(status)) {
        // It has left nothing half done unless it was killed by itself, which takes a debugger or a mistake here.
        assert!(work.act.is_some(), "the process that stops threads was killed");
        // Before it did anything: it may be killed for that it traces (`seccomp(2)`).
        return Err(Errno::PERM.into());
    }
    Ok(work.done?)
}

/// What the child does, and what came of it.
struct Work<T, F> {
    process: u32,
    /// Its threads.
    list: OwnedFd,
    /// The one that stands still anyway.
    maker: i32,
    act: Option<F>,
    done: Result<T, Errno>,
}

extern "C" fn run<T, F: FnOnce() -> T>(work: *mut c_void) -> c_int {
    // SAFETY: what `with_threads_stopped` has handed over, which does not touch it meanwhile.
    let work = unsafe { &mut *work.cast::<Work<T, F>>() };
    // A thread that becomes another program waits until all others have ended, whose tracer is to say so, and who
    // begins to trace one of them waits for that program. Then the thread that stands still has ended too.
    // SAFETY: takes plain numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
    let traced = [Traced::default(); MOST];
    let mut threads = Threads { process: work.process, traced, count: 0, stopped: 0 };
    work.done = threads.stop(&work.list, work.maker).and_then(|()| {
        let act = work.act.take().ok_or(Errno::CHILD)?;
        Ok(act())
    });
    threads.let_go();
    0
}

/// What the child, which is at its end, ended with; none if a thread of the program has waited for it, as one does that
/// waits for any child (`__WALL`).
fn wait_for(child: i32) -> Option<c_int> {
    let mut status = 0;
    loop {
        // SAFETY: the status is this function's own.
        match unsafe { libc::waitpid(child, &mut status, libc::__WALL) } {
            -1 if last_error() == Errno::INTR => {}
            -1 => return None,
            _ => return Some(status),
        }
    }
}

/// Does what may fail because threads could not be stopped in time again, until a time.
pub(crate) fn retried<T>(until: Instant, mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        let done = act();
        let is_late = done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut);
        if !is_late || Instant::now() >= until {
            return done;
        }
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
    process: u32,
    traced: [Traced; MOST],
    count: usize,
    /// So many of them, from the first on, have stopped or ended.
    stopped: usize,
}

impl Threads {
    /// Stops all but one, and those that they make before they stop.
    fn stop(&mut self, list: &OwnedFd, but: i32) -> Result<(), Errno> {
        let until = Instant::now() + TIMEOUT;
        loop {
            let listed = self.seize_new(list, but)?;
            // The list leaves some out if others end while it is read.
            if self.stopped == self.count && listed == count(list)? {
                return Ok(());
            }
            for traced in &mut self.traced[self.stopped..self.count] {
                traced.signal = wait_until_stopped(traced.thread, until)?;
                self.stopped += 1;
            }
            if Instant::now() >= until {
                return Err(Errno::TIMEDOUT);
            }
        }
    }

    /// Begins to trace the threads that are not traced yet, and has them stop; how many the list has in all.
    fn seize_new(&mut self, list: &OwnedFd, but: i32) -> Result<u64, Errno> {
        rustix::fs::seek(list, SeekFrom::Start(0))?;
        let mut room = [MaybeUninit::uninit(); 4096];
        let (mut entries, mut listed) = (RawDir::new(list, &mut room), 0);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let thread = entry.file_name().to_str().ok().and_then(|name| name.parse::<i32>().ok());
            listed += u64::from(thread.is_some());
            let known = |thread| self.traced[..self.count].iter().any(|it| it.thread == thread);
            let Some(thread) = thread.filter(|it| *it != but && !known(*it)) else { continue };
            if self.count == MOST {
                return Err(Errno::AGAIN);
            }
            match self.seize(thread) {
                Ok(()) => {}
                Err(Errno::SRCH | Errno::PERM) if has_ended(list, entry.file_name()) => continue,
                Err(error) => return Err(error),
            }
            self.traced[self.count] = Traced { thread, signal: 0 };
            self.count += 1;
        }
        Ok(listed)
    }

    /// Where `/proc` is that of another PID namespace it has other numbers, which may be those of other
    /// processes here.
    fn seize(&self, thread: i32) -> Result<(), Errno> {
        // SAFETY: no signal is sent; it is only asked whether the thread is one of this process.
        if unsafe { libc::syscall(libc::SYS_tgkill, self.process, thread, 0) } == -1 {
            return Err(last_error());
        }
        trace(libc::PTRACE_SEIZE, thread, 0)?;
        trace(libc::PTRACE_INTERRUPT, thread, 0)
    }

    /// Lets those go on that have stopped, with the signals they stopped with. The others, of whose signals nothing is
    /// known, the kernel lets go of when this process ends.
    fn let_go(&self) {
        for Traced { thread, signal } in &self.traced[..self.stopped] {
            let _ = trace(libc::PTRACE_DETACH, *thread, *signal);
        }
    }
}

/// How many threads there are: the list says so as a directory does that has so many others in it.
fn count(list: &OwnedFd) -> Result<u64, Errno> {
    Ok((rustix::fs::fstat(list)?.st_nlink as u64).saturating_sub(2))
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
    const BY_TRACER: c_int = 128;
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
    let mut text = [0; 64];
    let read = rustix::fs::openat(list, path, flags, Mode::empty())
        .and_then(|stat| rustix::io::read(&stat, &mut text));
    let length = match read {
        Ok(length) => length,
        // Otherwise it is not known.
        Err(error) => return matches!(error, Errno::NOENT | Errno::SRCH),
    };
    // The state stands behind the name, which has at most 15 bytes and may have any.
    let state =
        text[..length].windows(2).rposition(|two| two == b") ").and_then(|at| text.get(at + 2));
    matches!(state, Some(b'Z' | b'X'))
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Whether valgrind runs this process, where threads cannot be stopped: it makes a process with memory of its own,
/// which then goes on forever. It answers to instructions that do nothing elsewhere (`valgrind.h`, which it wants to be
/// asked by).
pub(crate) fn is_under_valgrind() -> bool {
    // `VG_USERREQ__RUNNING_ON_VALGRIND`, and five arguments that it does not have.
    let request: [u64; 6] = [0x1001, 0, 0, 0, 0, 0];
    let mut answer: u64 = 0;
    // SAFETY: a register is rotated by its own length, and one exchanged with itself.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(),
            inout("rdx") answer,
        );
    }
    // SAFETY: as above.
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    unsafe {
        asm!(
            "ror x12, x12, 3",
            "ror x12, x12, 13",
            "ror x12, x12, 51",
            "ror x12, x12, 61",
            "orr x10, x10, x10",
            in("x4") request.as_ptr(),
            inout("x3") answer,
        );
    }
    answer != 0
}

/// Memory for the child's calls, with a page below it that nobody can touch.
struct Stack(*mut c_void);

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

    fn top(&self) -> *mut c_void {
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
#[expect(clippy::print_stdout, reason = "tests say what they skip")]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
    use std::thread;

    use super::*;

    /// Has threads end, also when a test has failed.
    pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Release);
        }
    }

    /// Until when a test tries to stop threads, which may not stop in time on a busy machine.
    pub(crate) fn in_a_minute() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    /// Whether the system lets it be done at all; says so if it does not.
    fn is_allowed() -> bool {
        match retried(in_a_minute(), || with_threads_stopped(|| ())) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                println!("skipped: a process may not stop its threads here: {error}");
                false
            }
            other => other.map(|()| true).expect("its threads stop"),
        }
    }

    /// Threads come and go, and send each other signals, while all are stopped over and over: each signal arrives.
    #[test]
    fn no_signal_is_lost() {
        static TAKEN: AtomicU64 = AtomicU64::new(0);
        extern "C" fn take(_: c_int) {
            TAKEN.fetch_add(1, SeqCst);
        }
        if !is_allowed() {
            return;
        }
        // A signal of this test's own, which waits in a queue of its own for each time that it is sent.
        let signal = libc::SIGRTMIN() + 3;
        // SAFETY: a handler that does what handlers may.
        unsafe { libc::signal(signal, take as extern "C" fn(c_int) as libc::sighandler_t) };
        let (sent, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Acquire) {
                        // SAFETY: it takes nothing, and this thread is there.
                        let raised = unsafe { libc::raise(signal) };
                        assert_eq!(raised, 0);
                        sent.fetch_add(1, SeqCst);
                    }
                });
            }
            scope.spawn(|| {
                while !stop.load(Acquire) {
                    thread::scope(|scope| {
                        (0..4).for_each(|_| drop(scope.spawn(thread::yield_now)));
                    });
                }
            });
            let _over = Over(&stop);
            let (mut stops, until) = (0, Instant::now() + Duration::from_secs(20));
            while stops < 30 && Instant::now() < until {
                // Too many come and go at times.
                stops += u32::from(with_threads_stopped(|| ()).is_ok());
            }
            assert!(stops > 0);
        });
        assert_eq!(TAKEN.load(SeqCst), sent.into_inner());
    }

    /// A program may wait for whatever children it has. What has been done counts as done all the same.
    #[test]
    fn whoever_else_waits_for_children_takes_nothing_away() {
        if !is_allowed() {
            return;
        }
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Acquire) {
                    // SAFETY: no status is wanted. Children that other tests start are none of those that it waits for.
                    unsafe { libc::waitpid(-1, null_mut(), libc::__WCLONE | libc::WNOHANG) };
                }
            });
            let _over = Over(&stop);
            for number in 0..500 {
                let done = retried(in_a_minute(), || with_threads_stopped(|| number));
                assert_eq!(done.unwrap(), number);
            }
        });
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
            let _over = Over(&stop);
            let seen = || counts.each_ref().map(|count| count.load(SeqCst));
            for _ in 0..200 {
                let before = seen();
                let look = || {
                    let first = seen();
                    let until = Instant::now() + Duration::from_micros(50);
                    while Instant::now() < until {}
                    (first, seen())
                };
                let ran = retried(in_a_minute(), || with_threads_stopped(look));
                let (first, last) = ran.unwrap();
                assert_eq!(first, last);
                while seen().into_iter().zip(before).any(|(now, before)| now == before) {
                    thread::yield_now();
                }
            }
        });
    }

    /// Of a process that a test started for itself, says so.
    const ALONE: &str = "TRANSOM_TEST_ALONE";

    /// A thread becomes another program while one of the others stops all: it does become that.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test's own variable")]
    fn a_thread_may_become_another_program_meanwhile() {
        const TEST: &str = "stopped_threads::tests::a_thread_may_become_another_program_meanwhile";
        if let Some(number) = std::env::var_os(ALONE) {
            return become_another_program(number.to_str().unwrap().parse().unwrap());
        }
        if !is_allowed() {
            return;
        }
        let this = std::env::current_exe().unwrap();
        for number in 0..100_u32 {
            let mut command = std::process::Command::new(&this);
            command.args(["--exact", TEST]).env(ALONE, number.to_string());
            let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
            let until = Instant::now() + Duration::from_secs(30);
            let status = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break Some(status);
                }
                if Instant::now() >= until {
                    break None;
                }
                thread::yield_now();
            };
            if status.is_none() {
                child.kill().unwrap();
                child.wait().unwrap();
            }
            let status = status.unwrap_or_else(|| panic!("{number}: it is neither of the two"));
            assert!(status.success(), "{number}: {status}");
        }
    }

    fn become_another_program(number: u32) {
        let stops = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..100 {
                scope.spawn(thread::park);
            }
            scope.spawn(|| {
                loop {
                    stops.fetch_add(u64::from(with_threads_stopped(|| ()).is_ok()), Release);
                }
            });
            while stops.load(Acquire) == 0 {
                thread::yield_now();
            }
            (0..number * 37).for_each(|_| std::hint::spin_loop());
            let (path, end) = (c"/bin/true".as_ptr(), std::ptr::null());
            // SAFETY: a path, and a list with nothing but its end.
            unsafe { libc::execv(path, [path, end].as_ptr()) };
            panic!("{}", io::Error::last_os_error());
        });
    }

    /// A list of system calls that a process may make, as services have one: whoever makes another is killed. Nothing
    /// has been done then.
    #[test]
    fn who_may_not_trace_on_pain_of_death_does_nothing() {
        let statement =
            |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
        let mut program = [
            // The number of the call is what the kernel's description of it begins with.
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
            libc::sock_filter {
                jf: 1,
                ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_ptrace as u32)
            },
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS),
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        ];
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        let filter = &raw const filter as usize;
        let done = AtomicBool::new(false);
        let ended = thread::scope(|scope| {
            let try_it = || {
                // SAFETY: numbers, and a list that outlives this thread, for which alone it holds.
                unsafe {
                    assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
                    let mode = libc::SECCOMP_MODE_FILTER;
                    assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, filter, 0, 0), 0);
                }
                with_threads_stopped(|| done.store(true, Release))
            };
            scope.spawn(try_it).join()
        });
        let error = ended.expect("it is an error").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        assert!(!done.into_inner());
    }
}
