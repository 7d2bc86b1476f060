//! Counting what a thread of another process does, by `ptrace(2)`: between two marks, the system calls it
//! makes, or the instructions of its own program, one by one.
//!
//! Of all ways this needs least: no counter of the processor, which virtual machines seldom have, no
//! privilege and no other program (under valgrind a process has no shared memory). What is in shared libraries is not
//! counted, for the C library picks its copying by the processor. While a thread is counted the others of its process
//! are held, so that what it does depends on nobody's pace.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_long, c_void};
use std::fs;
use std::io;
use std::ops::Range;
use std::ptr::null_mut;
use std::time::Duration;

use libc::pid_t;

/// A mark in a traced process: its tracer is told, and the process waits for it.
#[inline(never)]
pub(crate) fn mark() {
    // SAFETY: traps to the tracer, and changes nothing.
    unsafe { std::arch::asm!("int3", options(nomem, nostack)) }
}

/// A process all of whose threads this thread traces.
pub(crate) struct Tracee {
    pid: pid_t,
    threads: BTreeSet<pid_t>,
    /// The instructions of its program.
    program: Range<u64>,
}

/// Why a thread does not run.
enum Stop {
    /// It has ended.
    Ended,
    /// It has carried out a single instruction, or met a mark.
    Trap,
    /// It begins or ends a system call.
    SystemCall,
    /// It is held.
    Held,
    /// It has started another.
    Cloned,
    /// A signal is to be delivered to it.
    Signal(c_int),
}

impl Tracee {
    /// Traces a process that starts no thread meanwhile; the error says why the system does not let it.
    pub(crate) fn begin(pid: u32) -> io::Result<Self> {
        let pid = pid as pid_t;
        let mut threads = BTreeSet::new();
        let options =
            libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            let name = thread?.file_name();
            let thread = name.to_string_lossy().parse().expect("a thread's number");
            request(libc::PTRACE_SEIZE, thread, options as usize)?;
            threads.insert(thread);
        }
        share_processor(&threads);
        Ok(Self { pid, threads, program: program(pid)? })
    }

    /// Waits until a thread meets a mark; the thread.
    pub(crate) fn run_to_mark(&mut self) -> pid_t {
        loop {
            let (thread, stop) = self.wait(-1);
            match stop {
                Stop::Trap => return thread,
                Stop::Ended => assert!(!self.threads.is_empty(), "the process has ended"),
                Stop::Signal(signal) => tell(libc::PTRACE_CONT, thread, signal),
                Stop::SystemCall | Stop::Held | Stop::Cloned => {
                    tell(libc::PTRACE_CONT, thread, 0);
                }
            }
        }
    }

    /// Holds all threads but one, asleep: none of them has a lock that the one may want.
    pub(crate) fn hold_all_but(&mut self, one: pid_t) {
        loop {
            let mut awaited = self.threads.clone();
            awaited.remove(&one);
            for thread in &awaited {
                tell(libc::PTRACE_INTERRUPT, *thread, 0);
            }
            while !awaited.is_empty() {
                let (thread, stop) = self.wait(-1);
                assert_ne!(thread, one, "the thread that is counted has ended");
                match stop {
                    Stop::Held | Stop::Ended => drop(awaited.remove(&thread)),
                    Stop::Signal(signal) => tell(libc::PTRACE_CONT, thread, signal),
                    Stop::Trap | Stop::SystemCall | Stop::Cloned => {
                        awaited.insert(thread);
                        tell(libc::PTRACE_CONT, thread, 0);
                    }
                }
            }
            let others = self.threads.iter().filter(|thread| **thread != one);
            if others.clone().all(|thread| is_asleep(*thread)) {
                return;
            }
            others.for_each(|thread| tell(libc::PTRACE_CONT, *thread, 0));
            // They go back to sleep.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The numbers of the system calls that a thread which has met a mark makes until the next, in their
    /// order.
    pub(crate) fn system_calls(&mut self, thread: pid_t) -> Vec<c_long> {
        let (mut calls, mut inside) = (Vec::new(), false);
        self.run_by(libc::PTRACE_SYSCALL, thread, |stop| {
            if let Stop::SystemCall = stop {
                inside = !inside;
                calls.extend(inside.then(|| registers(thread).orig_rax as c_long));
            }
            matches!(stop, Stop::Trap)
        });
        calls
    }

    /// How many instructions of its own program such a thread carries out until the next mark.
    pub(crate) fn instructions(&mut self, thread: pid_t) -> u64 {
        let (mark, program) = (instruction(thread), self.program.clone());
        let mut count = 0;
        self.run_by(libc::PTRACE_SINGLESTEP, thread, |stop| {
            let at = instruction(thread);
            count += u64::from(program.contains(&at));
            matches!(stop, Stop::Trap) && at == mark
        });
        count
    }

    /// Lets a thread run in this way, from stop to stop, until there is an end.
    fn run_by(&mut self, how: libc::c_uint, thread: pid_t, mut is_end: impl FnMut(&Stop) -> bool) {
        let mut signal = 0;
        loop {
            tell(how, thread, signal);
            let stop = self.wait(thread).1;
            assert!(!matches!(stop, Stop::Ended), "the thread that is counted has ended");
            signal = if let Stop::Signal(signal) = stop { signal } else { 0 };
            if is_end(&stop) {
                return;
            }
        }
    }

    /// Lets all run on that are held.
    pub(crate) fn release(&self) {
        self.threads.iter().for_each(|thread| tell(libc::PTRACE_CONT, *thread, 0));
    }

    /// Lets all go that are held, and traces them no more.
    pub(crate) fn end(mut self) {
        self.threads.iter().for_each(|thread| tell(libc::PTRACE_DETACH, *thread, 0));
        self.threads.clear();
    }

    /// Waits for a stop of a thread, or of any (-1). Threads of this process that trace others are not
    /// disturbed.
    fn wait(&mut self, which: pid_t) -> (pid_t, Stop) {
        let mut status = 0;
        // SAFETY: the status is this call's own.
        let thread = unsafe { libc::waitpid(which, &mut status, libc::__WALL | libc::__WNOTHREAD) };
        assert!(thread > 0, "{}: {}", self.pid, io::Error::last_os_error());
        if !libc::WIFSTOPPED(status) {
            self.threads.remove(&thread);
            return (thread, Stop::Ended);
        }
        self.threads.insert(thread);
        let stop = match (libc::WSTOPSIG(status), status >> 16) {
            (_, libc::PTRACE_EVENT_STOP) => Stop::Held,
            (_, libc::PTRACE_EVENT_CLONE) => Stop::Cloned,
            (libc::SIGTRAP, _) => Stop::Trap,
            (signal, _) if signal == libc::SIGTRAP | 0x80 => Stop::SystemCall,
            (signal, _) => Stop::Signal(signal),
        };
        (thread, stop)
    }
}

impl Drop for Tracee {
    /// Ends a process that is still traced, after a failure. A wait for the process lasts until its tracer has seen all
    /// its threads end.
    fn drop(&mut self) {
        self.threads.remove(&self.pid);
        for thread in std::mem::take(&mut self.threads) {
            // SAFETY: plain numbers, and a status of this call's own.
            unsafe {
                libc::kill(self.pid, libc::SIGKILL);
                let mut status = 0;
                while libc::waitpid(thread, &mut status, libc::__WALL) == thread
                    && libc::WIFSTOPPED(status)
                {}
            }
        }
    }
}

/// Has the threads run where this one does: each stop is a switch from one to the other, which takes several
/// times as long between two processors.
fn share_processor(threads: &BTreeSet<pid_t>) {
    // SAFETY: a set of bits, all zero, of this call's own.
    unsafe {
        let mut here: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut here);
        for thread in threads.iter().chain(&[0]) {
            // It is slower without.
            libc::sched_setaffinity(*thread, size_of_val(&here), &here);
        }
    }
}

/// Where the instructions of a process's program lie.
fn program(pid: pid_t) -> io::Result<Range<u64>> {
    let path = fs::read_link(format!("/proc/{pid}/exe"))?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let line = maps
        .lines()
        .find(|line| line.contains(" r-xp ") && line.ends_with(&*path.to_string_lossy()));
    let (from, rest) = line.and_then(|line| line.split_once('-')).expect("a program is mapped");
    let (to, _) = rest.split_once(' ').expect("a range and its rights");
    let number = |text| u64::from_str_radix(text, 16).expect("an address");
    Ok(number(from)..number(to))
}

/// Whether a thread that is held waits in the kernel: it was interrupted in a system call, which begins
/// anew when it goes on.
fn is_asleep(thread: pid_t) -> bool {
    /// From `ERESTARTSYS` to `ERESTART_RESTARTBLOCK`, which only tracers see.
    const BEGINS_ANEW: Range<i64> = -516..-511;
    BEGINS_ANEW.contains(&(registers(thread).rax as i64))
}

/// Where a stopped thread goes on.
fn instruction(thread: pid_t) -> u64 {
    let at = std::mem::offset_of!(libc::user_regs_struct, rip);
    // SAFETY: the thread is stopped, and this is the place of the register.
    unsafe { libc::ptrace(libc::PTRACE_PEEKUSER, thread, at, null_mut::<c_void>()) as u64 }
}

fn registers(thread: pid_t) -> libc::user_regs_struct {
    // SAFETY: plain numbers.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    // SAFETY: the thread is stopped, and the room is of the size that the kernel fills.
    let done = unsafe {
        libc::ptrace(libc::PTRACE_GETREGS, thread, null_mut::<c_void>(), &raw mut registers)
    };
    assert_eq!(done, 0, "a thread that is stopped has registers");
    registers
}

/// Tells a thread to run on in this way, with a signal delivered to it, or to stop.
fn tell(how: libc::c_uint, thread: pid_t, signal: c_int) {
    // One that was killed meanwhile is met as ended.
    let _ = request(how, thread, signal as usize);
}

fn request(what: libc::c_uint, thread: pid_t, data: usize) -> io::Result<()> {
    // SAFETY: these requests take plain numbers.
    let done = unsafe { libc::ptrace(what, thread, null_mut::<c_void>(), data as *mut c_void) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
