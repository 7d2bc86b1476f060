//! What wakes the program's threads, or could: other threads of it, and its timers.

use std::time::{Duration, Instant};
use std::{fs, thread};

/// How long a thread may take to begin. In a forked child none may ever.
const BEGINS: Duration = Duration::from_secs(1);

/// The name of the watcher of sleeping threads.
pub(super) const WATCHER: &str = "transom-check";

/// The names of this library's threads.
const OWN: [&str; 2] = ["transom", WATCHER];

/// Whether this process has only one thread of the program's. False if the system does not tell.
pub(super) fn is_alone() -> bool {
    let until = Instant::now() + BEGINS;
    while !transom_thread::have_names() && Instant::now() < until {
        thread::yield_now();
    }
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return false };
    let main = std::process::id().to_string();
    let is_own = |name: &str| OWN.contains(&name.trim_end());
    // A thread has the name of the one that made it, so in a program of such a name they cannot be told apart.
    let name = fs::read_to_string("/proc/self/comm");
    if name.is_ok_and(|name| is_own(&name)) {
        return false;
    }
    let of_program = threads.flatten().filter(|thread| {
        let is_main = thread.file_name().to_str() == Some(&main);
        is_main || !fs::read_to_string(thread.path().join("comm")).is_ok_and(|it| is_own(&it))
    });
    of_program.count() == 1
}

/// Whether a timer of the process runs, whose signal may end any sleep.
pub(super) fn timers_run() -> bool {
    // SAFETY: a structure of numbers, which the call fills in.
    let mut timer: libc::itimerval = unsafe { std::mem::zeroed() };
    // SAFETY: it writes to a place of this call's own.
    let answer = unsafe { libc::getitimer(libc::ITIMER_REAL, &raw mut timer) };
    let runs = timer.it_value.tv_sec != 0 || timer.it_value.tv_usec != 0;
    // The kernel need not have the list of the others.
    (answer == 0 && runs) || fs::read_to_string("/proc/self/timers").is_ok_and(|it| !it.is_empty())
}
