//! Waits for descriptors, even if the process may have only few: [`transom_thread::poll`] in the types of `rustix`.

use rustix::event::{PollFd, Timespec};
use rustix::io::Errno;

// Both are C's.
const _: () = assert!(size_of::<PollFd<'_>>() == size_of::<libc::pollfd>());
const _: () = assert!(align_of::<PollFd<'_>>() == align_of::<libc::pollfd>());

/// As [`rustix::event::poll`], for descriptors that can be read or written. It works even if the process's limit of
/// descriptors is below their number.
pub fn poll(fds: &mut [PollFd<'_>], timeout: Option<&Timespec>) -> rustix::io::Result<usize> {
    let timeout =
        timeout.map(|it| libc::timespec { tv_sec: it.tv_sec, tv_nsec: it.tv_nsec as libc::c_long });
    // SAFETY: a `PollFd` is C's `struct pollfd`, with a descriptor that stays open; what comes back are bits that
    // `poll(2)` gives as well.
    let list = unsafe { std::slice::from_raw_parts_mut(fds.as_mut_ptr().cast(), fds.len()) };
    match transom_thread::poll(list, timeout) {
        -1 => Err(Errno::from_raw_os_error(transom_thread::errno())),
        ready => Ok(ready as usize),
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::PollFlags;

    use super::*;

    #[test]
    fn it_is_told_where_rustix_looks() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let mut fds = [PollFd::new(&reader, PollFlags::IN), PollFd::new(&writer, PollFlags::OUT)];
        assert_eq!(poll(&mut fds, None), Ok(1));
        assert_eq!(fds.each_ref().map(PollFd::revents), [PollFlags::empty(), PollFlags::OUT]);
    }
}
