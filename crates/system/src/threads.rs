//! What the kernel says of threads: their state, and the time for which they have had a processor.

use std::fmt;

use transom_thread::uncancelled;

use crate::clock;

/// The letter for the state of a thread, as `/proc` has it. The process is a PID or `self`.
pub(crate) fn state(process: impl fmt::Display, thread: u32) -> Option<u8> {
    let text = std::fs::read(format!("/proc/{process}/task/{thread}/stat")).ok()?;
    // Search behind the name of the program, which may contain anything.
    let end = text.iter().rposition(|byte| *byte == b')')?;
    text.get(end + 2).copied()
}

/// Whether a process's first thread has ended (`pthread_exit(3)` in `main`), while others go on. Then the kernel finds no
/// memory by the PID.
pub fn first_has_ended(pid: u32) -> bool {
    state(pid, pid) == Some(b'Z')
}

/// A moment in the life of a thread of this process.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    thread: u32,
    clock: libc::clockid_t,
    /// How long it had had a processor, in nanoseconds.
    time: u64,
}

impl Moment {
    /// Now, in the life of this thread. None if the kernel does not say.
    pub fn now() -> Option<Self> {
        let mut clock = 0;
        // SAFETY: this thread lives, and the clock is written to a variable.
        let answer = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        let time = (answer == 0).then(|| clock::of_thread(clock)).flatten()?;
        Some(Self { thread: rustix::thread::gettid().as_raw_pid().unsigned_abs(), clock, time })
    }

    /// How many nanoseconds the thread still needs a processor, to have had one for so long since then. None if it has,
    /// or does not want one: it sleeps, is stopped, or has ended.
    pub fn lacks(&self, wanted: u64) -> Option<u64> {
        let had = clock::of_thread(self.clock)?.saturating_sub(self.time);
        let lacks = wanted.checked_sub(had).filter(|lacks| *lacks > 0)?;
        // A post or poll asks, at which no thread is cancelled.
        (uncancelled(|| state("self", self.thread)) == Some(b'R')).then_some(lacks)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Far more than a test takes.
    const HOUR: u64 = 3_600_000_000_000;

    /// Rule: REH-06
    #[test]
    fn a_thread_that_runs_lacks_what_it_has_not_had_yet() {
        let moment = Moment::now().unwrap();
        let before = moment.lacks(HOUR).unwrap();
        while moment.lacks(1_000_000).is_some() {}
        let after = moment.lacks(HOUR).unwrap();
        assert!(before < HOUR && after <= HOUR - 1_000_000, "{before} {after}");
    }

    /// Rule: REH-06
    #[test]
    fn a_thread_that_sleeps_or_has_ended_lacks_nothing() {
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let sleeper = thread::spawn(move || {
            tell.send(Moment::now().unwrap()).unwrap();
            let _ = ended.recv();
        });
        let moment = told.recv().unwrap();
        // It sleeps soon, and for good.
        while moment.lacks(HOUR).is_some() {}
        drop(end);
        sleeper.join().unwrap();
        // The kernel ends it a moment later.
        while moment.lacks(HOUR).is_some() {}
    }
}
