//! The accounts of the processes, from their files.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{Ordering::SeqCst, fence};

use transom_exposure::audit::ROOM;
use transom_exposure::cell::{self, CELL};
use transom_exposure::names::{CELLS, Names};
use transom_exposure::report::Account;

/// The bytes of a cell.
const BYTES: usize = CELL * 8;

/// How many cells are read at once.
const STEP: usize = 64;

/// How often a cell is read that changes meanwhile. One try fails only if the process writes the cell during it, which
/// takes longer than a try.
const TRIES: usize = 1000;

/// The most bytes that are read of a file with names. Those of 512 call sites are far fewer.
const NAME_BYTES: u64 = 64 << 20;

/// The accounts in a directory, in the order in which the processes opened their first devices. What is open in those
/// that could not say when they ended is open until `end_of` the file with their cells.
pub(super) fn read(directory: &Path, end_of: impl Fn(&OsStr) -> u64) -> io::Result<Vec<Account>> {
    let mut accounts = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        let is_cells = path.extension().is_some_and(|extension| extension == CELLS);
        if is_cells || !entry.file_type()?.is_file() {
            continue;
        }
        let Some(names) = open(&path)? else { continue };
        let mut text = Vec::new();
        names.take(NAME_BYTES).read_to_end(&mut text)?;
        let names = Names::read(&String::from_utf8_lossy(&text));
        let path = path.with_extension(CELLS);
        let end = end_of(path.file_name().unwrap_or_default());
        // A process whose account could not begin has no cells.
        let cells = open(&path).ok().flatten().and_then(|file| cells_of(&file).ok());
        accounts.push(Account::of(names, cell::read(&cells.unwrap_or_default()), end));
    }
    accounts.sort_by_key(|it| (it.process.began, it.names.pid));
    Ok(accounts)
}

/// A file for reading. The program may put anything in its place: what is no file is not waited for.
fn open(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_CLOEXEC);
    let file = options.open(path)?;
    Ok(file.metadata()?.is_file().then_some(file))
}

/// The cells in a file, up to where none was ever written. Its process may still write there.
fn cells_of(file: &File) -> io::Result<Vec<u8>> {
    let mut cells = Vec::new();
    for first in (0..ROOM).step_by(STEP) {
        let mut step = vec![0; STEP.min(ROOM - first) * BYTES];
        read_at(file, first * BYTES, &mut step)?;
        let mut any = false;
        for (at, cell) in (first..).zip(step.chunks_exact_mut(BYTES)) {
            if cell.starts_with(&[0; 8]) {
                continue;
            }
            any = true;
            read_whole(cell, |from, into| read_at(file, at * BYTES + from, into))?;
        }
        if !any {
            break;
        }
        cells.append(&mut step);
    }
    Ok(cells)
}

/// Reads a cell, by a function that reads some bytes of it. The process writes the copies of the content in turn, and
/// the number of writes after each: while that number stays the same, so does the copy that it names.
fn read_whole(
    cell: &mut [u8],
    mut read: impl FnMut(usize, &mut [u8]) -> io::Result<()>,
) -> io::Result<()> {
    let (mut before, mut after) = ([0; 8], [0; 8]);
    for _ in 0..TRIES {
        read(0, &mut before)?;
        fence(SeqCst);
        read(0, cell)?;
        fence(SeqCst);
        read(0, &mut after)?;
        if before == after {
            break;
        }
    }
    Ok(())
}

/// The bytes from a place in a file on. Behind its end are zeros.
fn read_at(file: &File, from: usize, mut into: &mut [u8]) -> io::Result<()> {
    let mut at = from as u64;
    while !into.is_empty() {
        match file.read_at(into, at)? {
            0 => break,
            read => (at, into) = (at + read as u64, &mut into[read..]),
        }
    }
    into.fill(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use transom_exposure::cell::{WORDS, copy_after};

    use super::*;

    /// Rule: EXP-06
    #[test]
    fn pipes_in_the_place_of_files_are_not_waited_for() {
        let directory = std::env::temp_dir().join(format!("transom-pipes-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let pipe = |name: &str| {
            mknodat(CWD, directory.join(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        };
        fs::write(directory.join("7-1"), "process 7 /bin/server\nopened\n").unwrap();
        pipe("7-1.cells");
        pipe("8-1");
        let accounts = read(&directory, |_| 9);
        fs::remove_dir_all(&directory).unwrap();
        let accounts = accounts.unwrap();
        let [account] = &accounts[..] else { panic!("{accounts:?}") };
        assert_eq!((account.names.pid, account.process.began), (7, 0));
    }

    /// A cell whose words are all the number of the write that wrote them.
    struct Written([u64; CELL]);

    impl Written {
        /// The next write, of so many words: the number of writes comes last.
        fn write(&mut self, words: usize) {
            let next = self.0[0] + 1;
            let copy = &mut self.0[copy_after(next)..][..WORDS];
            copy[..words].fill(next);
            if words == WORDS {
                self.0[0] = next;
            }
        }

        fn read(&self, from: usize, into: &mut [u8]) -> io::Result<()> {
            let bytes: Vec<u8> = self.0.iter().flat_map(|word| word.to_ne_bytes()).collect();
            into.copy_from_slice(&bytes[from..from + into.len()]);
            Ok(())
        }
    }

    /// Rule: EXP-06
    #[test]
    fn a_cell_that_is_being_written_is_read_whole() {
        let (mut written, mut cell) = (Written([0; CELL]), vec![0; BYTES]);
        written.write(WORDS);
        let mut reads = 0;
        let read = read_whole(&mut cell, |from, into| {
            reads += 1;
            let (first, second) = into.split_at_mut(into.len() / 2);
            written.read(from, first)?;
            if reads == 2 || reads == 5 {
                // One write, and half of another one, into the copy that is being read.
                written.write(WORDS);
                written.write(WORDS / 2);
            }
            written.read(from + first.len(), second)
        });
        read.unwrap();
        let words: Vec<u64> =
            cell.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
        let copy = &words[copy_after(words[0])..][..WORDS];
        assert_eq!((reads, copy), (9, &[words[0]; WORDS][..]));
    }
}
