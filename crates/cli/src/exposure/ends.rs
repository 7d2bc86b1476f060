//! When processes ended. One that was killed, or called `_exit` or `exec`, could not say so itself. But then the kernel
//! closes its cells, which only its memory keeps open, and says so to whoever watches their directory.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::inotify;
use transom_system::clock;

use crate::check::Directory;

/// The ends, by the names of the files with cells.
pub(super) struct Ends {
    watch: OwnedFd,
    ends: HashMap<OsString, u64>,
}

impl Ends {
    /// Watches a directory in which there is nothing yet.
    pub(super) fn of(directory: &Directory) -> io::Result<Self> {
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        inotify::add_watch(&watch, directory.path(), inotify::WatchFlags::CLOSE_WRITE)?;
        Ok(Self { watch, ends: HashMap::new() })
    }

    /// Notes when processes end, while somebody waits for the end of the program: by calling a function each time the
    /// descriptor is readable.
    pub(super) fn during<T>(
        &mut self,
        wait: impl FnOnce(BorrowedFd<'_>, &mut dyn FnMut()) -> T,
    ) -> T {
        let (watch, ends) = (&self.watch, &mut self.ends);
        let mut look = || note(watch, ends);
        let waited = wait(watch.as_fd(), &mut look);
        look();
        waited
    }

    /// When the process with cells of this name ended, if it has.
    pub(super) fn of_cells(&self, name: &OsStr) -> Option<u64> {
        self.ends.get(name).copied()
    }
}

/// Notes the time for those that have ended.
fn note(watch: &OwnedFd, ends: &mut HashMap<OsString, u64>) {
    let mut room = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(watch, &mut room);
    while let Ok(event) = events.next() {
        let Some(name) = event.file_name() else { continue };
        let name = OsStr::from_bytes(name.to_bytes());
        // The program may write there later.
        ends.entry(name.to_owned()).or_insert_with(clock::steady);
    }
}
