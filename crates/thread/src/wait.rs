//! Waiting for descriptors, however few the process may have.
//!
//! `poll(2)` refuses to look at more descriptors than the process may open at the moment (`RLIMIT_NOFILE`). A
//! program may lower that at any time, and sandboxes make it zero; what is open stays open, and threads that go on
//! waiting for it must not find each wait over at once. `select(2)` does not ask for that limit.

use std::ffi::{c_int, c_long};
use std::ptr::null_mut;

use crate::errno;

/// Bits of a word of a set.
const BITS: usize = u64::BITS as usize;

/// As `ppoll(2)` without a mask of signals, for descriptors that can be read or written. The thread cannot be
/// cancelled in it.
pub fn poll(fds: &mut [libc::pollfd], timeout: Option<libc::timespec>) -> c_int {
    // The kernel writes to it.
    let mut left = timeout;
    let left = left.as_mut().map_or(null_mut(), std::ptr::from_mut);
    let (list, count, mask) = (fds.as_mut_ptr(), fds.len(), null_mut::<libc::sigset_t>());
    // SAFETY: a list of so many, a time or none, and no mask.
    let ready = unsafe { libc::syscall(libc::SYS_ppoll, list, count, left, mask, 0usize) };
    match ready {
        -1 if errno() == libc::EINVAL => select(fds, timeout),
        ready => answered(ready),
    }
}

fn select(fds: &mut [libc::pollfd], timeout: Option<libc::timespec>) -> c_int {
    let count = fds.iter().map(|it| it.fd.max(-1) + 1).max().unwrap_or(0);
    let words = count as usize / BITS + 1;
    let [mut reads, mut writes] = [libc::POLLIN, libc::POLLOUT].map(|event| {
        let mut set = vec![0_u64; words];
        for it in fds.iter().filter(|it| it.fd >= 0 && it.events & event != 0) {
            set[it.fd as usize / BITS] |= 1 << (it.fd as usize % BITS);
        }
        set
    });
    let mut left = timeout;
    let left = left.as_mut().map_or(null_mut(), std::ptr::from_mut);
    let nothing = null_mut::<u64>();
    // SAFETY: both sets have a bit for each number below the count; there is none of exceptions, and no mask.
    let ready = unsafe {
        let (reads, writes) = (reads.as_mut_ptr(), writes.as_mut_ptr());
        libc::syscall(libc::SYS_pselect6, count, reads, writes, nothing, left, nothing)
    };
    if ready < 0 {
        return answered(ready);
    }
    for it in fds.iter_mut() {
        let has = |set: &[u64]| {
            it.fd >= 0 && set[it.fd as usize / BITS] >> (it.fd as usize % BITS) & 1 == 1
        };
        let told = [(libc::POLLIN, &reads), (libc::POLLOUT, &writes)];
        let told = told.into_iter().filter(|(event, set)| it.events & event != 0 && has(set));
        it.revents = told.fold(0, |all, (event, _)| all | event);
    }
    fds.iter().filter(|it| it.revents != 0).count() as c_int
}

/// What a system call has answered: a count, or -1.
fn answered(answer: c_long) -> c_int {
    answer.try_into().unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::time::{Duration, Instant};

    use super::*;

    fn pipe() -> (File, File) {
        let mut ends = [0; 2];
        // SAFETY: room for both ends, which are owned by nobody else.
        unsafe {
            assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
            (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
        }
    }

    fn waits(file: &File, events: i16) -> libc::pollfd {
        libc::pollfd { fd: file.as_raw_fd(), events, revents: -1 }
    }

    /// A process that may open no descriptor waits in the same way, and wakes as soon.
    #[test]
    fn a_wait_does_not_end_because_descriptors_are_forbidden() {
        let pipes = [(); 100].map(|()| pipe());
        let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: room for the limit.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut before) }, 0);
        for allowed in [before.rlim_cur, 0] {
            let limit = libc::rlimit { rlim_cur: allowed, ..before };
            // SAFETY: a limit that this process may have.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
            let mut all: Vec<_> = pipes.iter().map(|(end, _)| waits(end, libc::POLLIN)).collect();
            let soon = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            let begin = Instant::now();
            assert_eq!(poll(&mut all, Some(soon)), 0, "{allowed}");
            assert!(begin.elapsed() >= Duration::from_millis(1), "it has waited: {allowed}");
            (&pipes[70].1).write_all(b"x").expect("the pipe is empty");
            all.push(waits(&pipes[3].1, libc::POLLOUT));
            assert_eq!(poll(&mut all, None), 2, "{allowed}");
            let told = all.iter().filter(|it| it.revents != 0).map(|it| (it.fd, it.revents));
            let expected = [(&pipes[70].0, libc::POLLIN), (&pipes[3].1, libc::POLLOUT)];
            let expected = expected.map(|(file, event)| (file.as_raw_fd(), event));
            assert_eq!(told.collect::<Vec<_>>(), expected, "{allowed}");
            (&pipes[70].0).read_exact(&mut [0]).expect("it is there");
        }
        // SAFETY: the limit that there was.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &before) }, 0);
    }
}
