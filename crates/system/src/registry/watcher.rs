//! The watcher of a run's processes, which speaks for those that die, and how processes announce themselves to it.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::OFlags;
use transom_device::protection::Announcer;

use super::file::Registry;
use super::presence;

/// What the name of a watcher's pipe begins with. Its number follows.
const PREFIX: &str = "watcher-";

/// How long a watcher may take from making its pipe to opening it.
const SETTLED: Duration = Duration::from_secs(60);

/// A process's announcement: its slot, the generation of its stay, and the watcher that wants an answer, or zero.
const BYTES: usize = 16;

/// A watcher: the pipe at which processes announce themselves. Dropping this value removes its name.
pub struct Watcher {
    pipe: OwnedFd,
    path: PathBuf,
    number: u64,
    /// That of a run around it, by its number, which may be told of a process too.
    around: Option<(&'static Registry, u64)>,
}

/// A process that has announced itself, or has been passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Its slot and stay.
    pub process: Announcer,
    /// The watcher that has passed it on. It waits for an [answer](Registry::tell_watcher).
    pub from: Option<u64>,
}

impl Registry {
    /// Makes the watcher of this number. The number is any that others are unlikely to have.
    pub fn make_watcher(&self, number: u64) -> io::Result<Watcher> {
        // What cannot be removed now, the next one removes.
        let _ = self.remove_killed_watchers();
        let path = self.watcher_path(number);
        Ok(Watcher { pipe: presence::make_pipe(&path)?, path, number, around: None })
    }

    /// The same for a run that may be within another one, whose watcher has the number `around`. Processes announce
    /// themselves to the inner one, which [passes that on](Watcher::pass_on).
    pub fn make_watcher_within(
        &'static self,
        number: u64,
        around: Option<u64>,
    ) -> io::Result<Watcher> {
        let mut watcher = self.make_watcher(number)?;
        watcher.around = around.map(|around| (self, around));
        Ok(watcher)
    }

    /// Announces a process to the watcher of this number, if there is one in this registry. Whether there is.
    pub fn tell_watcher(&self, number: u64, process: Announcer) -> bool {
        self.tell_from(number, process, 0)
    }

    fn tell_from(&self, number: u64, process: Announcer, from: u64) -> bool {
        let path = self.watcher_path(number);
        // This fails if nobody reads. It is opened for reading as well, as in `Registry::wake_of`.
        let Ok(_reader) = presence::open_pipe(&path, OFlags::WRONLY) else { return false };
        let Ok(pipe) = presence::open_pipe(&path, OFlags::RDWR) else { return false };
        let mut bytes = [0; BYTES];
        bytes[0] = process.slot;
        bytes[4..8].copy_from_slice(&process.generation.to_ne_bytes());
        bytes[8..].copy_from_slice(&from.to_ne_bytes());
        // Without it nobody speaks for the process, as if there were no watcher.
        rustix::io::write(&pipe, &bytes).is_ok()
    }

    /// Removes the pipes of watchers that were killed, as all processes of a container are at its end. A younger pipe may
    /// be one that its watcher is about to open.
    fn remove_killed_watchers(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.directory())?.flatten() {
            let path = entry.path();
            let is_pipe = entry.file_name().to_string_lossy().starts_with(PREFIX);
            let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
            let is_settled = || age().is_some_and(|age| age >= SETTLED);
            // Its watcher has it open for reading as long as it lives.
            let is_left = || {
                let opened = presence::open_pipe(&path, OFlags::WRONLY);
                opened.is_err_and(|error| error.raw_os_error() == Some(libc::ENXIO))
            };
            if is_pipe && is_settled() && is_left() {
                let _ = fs::remove_file(&path);
            }
        }
        Ok(())
    }

    fn watcher_path(&self, number: u64) -> PathBuf {
        self.directory().join(format!("{PREFIX}{number:x}"))
    }
}

impl Watcher {
    /// Readable when a process has announced itself.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// The next process that has.
    pub fn next(&self) -> Option<Announced> {
        let mut bytes = [0; BYTES];
        // Written in one piece, and so read.
        let read = rustix::io::read(&self.pipe, &mut bytes).ok()?;
        let [slot, _, _, _, generation @ .., _, _, _, _, _, _, _, _] = bytes;
        let process = Announcer { slot, generation: u32::from_ne_bytes(generation) };
        let from = u64::from_ne_bytes(*bytes.last_chunk()?);
        let announced = Announced { process, from: Some(from).filter(|from| *from != 0) };
        Some(announced).filter(|_| read == BYTES)
    }

    /// Announces a process to the watcher of the run around this one, and asks for an answer. Whether there is one.
    pub fn pass_on(&self, process: Announcer) -> bool {
        let tell =
            |(registry, around): (&Registry, u64)| registry.tell_from(around, process, self.number);
        self.around.is_some_and(tell)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = rustix::fs::unlink(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

    use super::*;

    #[test]
    fn processes_make_themselves_known_to_their_watcher_alone() {
        let registry = Registry::open().expect("a registry");
        let number = u64::from(std::process::id()) << 32;
        let watchers = [number, number + 1].map(|it| registry.make_watcher(it).expect("one"));
        let known =
            [(3, 7), (200, 0x7f_ffff)].map(|(slot, generation)| Announcer { slot, generation });
        for process in known {
            assert!(registry.tell_watcher(number, process));
        }
        let announced = known.map(|process| Some(Announced { process, from: None }));
        assert_eq!(watchers.each_ref().map(|it| it.next()), [announced[0], None]);
        assert_eq!(watchers[0].next(), announced[1]);
        assert_eq!(watchers[0].next(), None);
        drop(watchers);
        registry.tell_watcher(number, known[0]);
        assert!(!registry.watcher_path(number).exists());
    }

    #[test]
    fn who_is_watched_within_another_run_is_known_to_both_watchers() {
        let registry = Registry::open().expect("a registry");
        let number = (u64::from(std::process::id()) << 32) + 4;
        let outer = registry.make_watcher(number).expect("one");
        let inner = registry.make_watcher_within(number + 1, Some(number)).expect("one");
        let process = Announcer { slot: 3, generation: 7 };
        assert!(registry.tell_watcher(number + 1, process));
        assert_eq!([inner.next(), inner.next()], [Some(Announced { process, from: None }), None]);
        assert!(inner.pass_on(process) && !outer.pass_on(process));
        let from = Some(number + 1);
        assert_eq!([outer.next(), outer.next()], [Some(Announced { process, from }), None]);
    }

    /// Rule CM-50
    #[test]
    fn of_a_watcher_that_was_killed_nothing_is_left() {
        let registry = Registry::open().expect("a registry");
        let number = (u64::from(std::process::id()) << 32) + 2;
        let lives = registry.make_watcher(number).expect("one");
        let killed = registry.make_watcher(number + 1).expect("one");
        let path = killed.path.clone();
        // A watcher that is killed closes the pipe, and leaves its name.
        let Watcher { pipe, .. } = &killed;
        // SAFETY: the descriptor is open, and stays so as another file.
        unsafe { libc::dup3(registry.file.as_raw_fd(), pipe.as_raw_fd(), libc::O_CLOEXEC) };
        registry.remove_killed_watchers().expect("the directory is there");
        assert!(path.exists(), "it may be about to be opened");
        for path in [&path, &lives.path] {
            let long_ago = Timespec { tv_sec: 1, tv_nsec: 0 };
            let times = Timestamps { last_access: long_ago, last_modification: long_ago };
            rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()).expect("its time is set");
        }
        registry.remove_killed_watchers().expect("the directory is there");
        assert!(!path.exists() && lives.path.exists());
    }
}
