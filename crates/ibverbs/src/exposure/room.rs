//! The memory for the cells of a process: a file that the command reads, even if the process was killed.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering::*, fence};

use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};
use transom_exposure::audit::ROOM;
use transom_exposure::cell::{CELL, WORDS, copy_after};
use transom_system::file_limit;

/// The words of the file.
const ALL: usize = ROOM * CELL;

/// How many cells get memory at once.
const STEP: usize = 64;

/// The cells. They stay until the process ends.
pub(super) struct Room {
    words: &'static [AtomicU64],
    /// How many of them have memory. A write to memory for which the disk has no room would kill the program.
    cells: usize,
    /// There is no more.
    is_full: bool,
}

impl Room {
    /// Makes the file, with memory for the first cells. Its last user is the mapping: when the kernel closes it, the
    /// process has ended, or has become another program.
    pub(super) fn make(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        options.custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW);
        let mut file = options.open(path)?;
        file_limit::grow(|| file.set_len(ALL as u64 * 8))?;
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the system chooses the address, so it is nobody's memory. It is as long as the file, aligned to a
        // page, and is never unmapped. Any bytes are numbers, and all of this process use them as atomics.
        let words = unsafe {
            let first = mmap(null_mut(), ALL * 8, rights, flags, &file, 0)?;
            // A forked child has no use for the account of its parent ([`super::Place`]).
            madvise(first, ALL * 8, Advice::LinuxDontFork)?;
            std::slice::from_raw_parts(first.cast::<AtomicU64>(), ALL)
        };
        let mut room = Self { words, cells: 0, is_full: false };
        match room.populate() {
            Ok(()) => {}
            // Before Linux 5.14 the kernel does not give memory to a part, or say that there is none.
            Err(Errno::INVAL) => {
                let zeros = vec![0; CELL * 8];
                file_limit::grow(|| (0..ROOM).try_for_each(|_| file.write_all(&zeros)))?;
                room.cells = ROOM;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(room)
    }

    /// How many cells may be written.
    pub(super) fn cells(&self) -> usize {
        self.cells
    }

    /// Gets memory for more cells. Whether there is some.
    pub(super) fn grow(&mut self) -> bool {
        if !self.is_full {
            self.is_full = self.cells == ROOM || self.populate().is_err();
        }
        !self.is_full
    }

    fn populate(&mut self) -> rustix::io::Result<()> {
        let end = (self.cells + STEP).min(ROOM);
        // From the first page on, because a part begins with a page. What has memory is passed over.
        let bytes = &self.words[..end * CELL];
        let populate = || {
            let first = bytes.as_ptr().cast_mut().cast();
            // SAFETY: within the mapping, which stays. No content changes.
            unsafe { madvise(first, size_of_val(bytes), Advice::LinuxPopulateWrite) }
        };
        retry_on_intr(populate).map_err(|error| match error {
            // What a write there would end with.
            Errno::FAULT => Errno::NOSPC,
            other => other,
        })?;
        self.cells = end;
        Ok(())
    }

    /// Writes a cell that has memory. If the process is killed meanwhile, the cell still has its old content.
    pub(super) fn write(&self, at: usize, words: &[u64; WORDS]) {
        let cell = self.words[..self.cells * CELL].get(at * CELL..(at + 1) * CELL);
        let Some(cell) = cell else { return };
        let writes = cell[0].load(Relaxed).wrapping_add(1);
        // The command may be reading this copy. It sees that before it sees what is written into it.
        fence(Release);
        let copy = &cell[copy_after(writes)..][..WORDS];
        copy.iter().zip(words).for_each(|(place, word)| place.store(*word, Relaxed));
        cell[0].store(writes, Release);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// The path of a file that is not there.
    fn path(name: &str) -> std::path::PathBuf {
        let path = Path::new("/tmp").join(format!("transom-{name}-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        path
    }

    /// Rule: EXP-05
    #[test]
    fn the_account_takes_as_much_of_the_disk_as_it_needs() {
        let path = path("room");
        let mut room = Room::make(&path).unwrap();
        let used = || fs::metadata(&path).unwrap().blocks() * 512;
        let (first, whole) = (used(), ALL as u64 * 8);
        // SAFETY: the first byte of the mapping, which stays.
        let is_there = unsafe {
            let first = room.words.as_ptr().cast_mut().cast();
            madvise(first, 1, Advice::LinuxPopulateWrite)
        };
        // An older kernel gives all at once.
        assert!(first * 16 < whole || is_there == Err(Errno::INVAL), "{first} of {whole}");
        while room.grow() {
            let cells = room.cells();
            room.write(cells - 1, &[cells as u64; WORDS]);
        }
        assert_eq!((room.cells(), fs::metadata(&path).unwrap().len()), (ROOM, whole));
        assert!(used() >= whole);
        fs::remove_file(path).unwrap();
    }

    /// Rules: EXP-05, EXP-10
    #[test]
    fn a_disk_without_room_ends_no_program() {
        let path = path("no-room");
        let mut room = Room::make(&path).unwrap();
        if room.cells() < ROOM {
            // A write behind its end fails as one for which the disk has no room.
            let length = (room.cells() * CELL * 8) as u64;
            File::options().write(true).open(&path).unwrap().set_len(length).unwrap();
            let cells = room.cells();
            assert!(!room.grow() && !room.grow());
            assert_eq!(room.cells(), cells);
            room.write(cells, &[1; WORDS]);
            room.write(cells - 1, &[1; WORDS]);
        }
        fs::remove_file(path).unwrap();
    }
}
