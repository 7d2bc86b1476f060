//! The memory for the cells of a process: a file that the command reads, even if the process was killed.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering::*};

use rustix::mm::{MapFlags, ProtFlags, mmap};
use transom_exposure::audit::ROOM;
use transom_exposure::cell::{CELL, WORDS, copy_after};
use transom_system::file_limit;

/// The words of the file.
const ALL: usize = ROOM * CELL;

/// The cells. They stay until the process ends.
pub(super) struct Room(&'static [AtomicU64]);

impl Room {
    /// Makes the file, all of it: a write to memory for which the disk has no room would kill the program.
    pub(super) fn make(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        options.custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW);
        let mut file = options.open(path)?;
        let zeros = vec![0; CELL * 8];
        file_limit::grow(|| (0..ROOM).try_for_each(|_| file.write_all(&zeros)))?;
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the system chooses the address, so it is nobody's memory. It is as long as the file, aligned to a
        // page, and is never unmapped. Any bytes are numbers, and all of this process use them as atomics.
        let words = unsafe {
            let first = mmap(null_mut(), ALL * 8, rights, flags, &file, 0)?;
            std::slice::from_raw_parts(first.cast::<AtomicU64>(), ALL)
        };
        Ok(Self(words))
    }

    /// Writes a cell. If the process is killed meanwhile, the cell still has its old content.
    pub(super) fn write(&self, at: usize, words: &[u64; WORDS]) {
        let Some(cell) = self.0.get(at * CELL..(at + 1) * CELL) else { return };
        let writes = cell[0].load(Relaxed).wrapping_add(1);
        let copy = &cell[copy_after(writes)..][..WORDS];
        copy.iter().zip(words).for_each(|(place, word)| place.store(*word, Relaxed));
        cell[0].store(writes, Release);
    }
}
