//! Whoever watches the processes of a run, to speak for those that die, and how they make themselves known.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::OFlags;
use transom_device::protection::Announcer;

use super::file::Registry;
use super::presence;

/// What a process says of itself: its slot and the generation of its stay.
const BYTES: usize = 8;

/// A watcher: the pipe by which processes make themselves known. Its name goes with this value.
pub struct Watcher {
    pipe: OwnedFd,
    path: PathBuf,
}

impl Registry {
    /// Makes the watcher of this number, which is any that others are not likely to have.
    pub fn make_watcher(&self, number: u64) -> io::Result<Watcher> {
        let path = self.watcher_path(number);
        Ok(Watcher { pipe: presence::make_pipe(&path)?, path })
    }

    /// Makes a process known to the watcher of this number, if there is one in this registry.
    pub fn tell_watcher(&self, number: u64, process: Announcer) {
        let path = self.watcher_path(number);
        // This fails where nobody reads. It is opened for reading as well, as `Registry::wake_of`.
        let Ok(_reader) = presence::open_pipe(&path, OFlags::WRONLY) else { return };
        let Ok(pipe) = presence::open_pipe(&path, OFlags::RDWR) else { return };
        let mut bytes = [0; BYTES];
        bytes[0] = process.slot;
        bytes[4..].copy_from_slice(&process.generation.to_ne_bytes());
        // Without it a process is not spoken for, as where nobody watches.
        let _ = rustix::io::write(&pipe, &bytes);
    }

    fn watcher_path(&self, number: u64) -> PathBuf {
        self.directory().join(format!("watcher-{number:x}"))
    }
}

impl Watcher {
    /// Readable when a process has made itself known.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// The next process that has.
    pub fn next(&self) -> Option<Announcer> {
        let mut bytes = [0; BYTES];
        // Written in one piece, and so read.
        let read = rustix::io::read(&self.pipe, &mut bytes).ok()?;
        let (slot, generation) = (bytes[0], *bytes.last_chunk()?);
        (read == BYTES).then(|| Announcer { slot, generation: u32::from_ne_bytes(generation) })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = rustix::fs::unlink(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_make_themselves_known_to_their_watcher_alone() {
        let registry = Registry::open().expect("a registry");
        let number = u64::from(std::process::id()) << 32;
        let watchers = [number, number + 1].map(|it| registry.make_watcher(it).expect("one"));
        let known =
            [(3, 7), (200, 0x7f_ffff)].map(|(slot, generation)| Announcer { slot, generation });
        known.iter().for_each(|process| registry.tell_watcher(number, *process));
        assert_eq!(watchers.each_ref().map(|it| it.next()), [Some(known[0]), None]);
        assert_eq!(watchers[0].next(), Some(known[1]));
        assert_eq!(watchers[0].next(), None);
        drop(watchers);
        registry.tell_watcher(number, known[0]);
        assert!(!registry.watcher_path(number).exists());
    }
}
