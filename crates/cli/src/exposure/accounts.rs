//! The accounts of the processes, from their files.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use transom_exposure::audit::ROOM;
use transom_exposure::cell::{self, CELL};
use transom_exposure::names::{CELLS, Names};
use transom_exposure::report::Account;

/// The bytes of a file with cells.
const CELL_BYTES: u64 = (ROOM * CELL * 8) as u64;

/// The most bytes that are read of a file with names. Those of 512 call sites are far fewer.
const NAME_BYTES: u64 = 64 << 20;

/// The accounts in a directory, in the order in which the processes opened their first devices. What is open in those
/// that could not say when they ended is open until `end`.
pub(super) fn read(directory: &Path, end: u64) -> io::Result<Vec<Account>> {
    let mut accounts = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        let is_cells = path.extension().is_some_and(|extension| extension == CELLS);
        if is_cells || !entry.file_type()?.is_file() {
            continue;
        }
        let Some(names) = bytes_of(&path, NAME_BYTES)? else { continue };
        let names = Names::read(&String::from_utf8_lossy(&names));
        // A process whose account could not begin has none.
        let cells = bytes_of(&path.with_extension(CELLS), CELL_BYTES).ok().flatten();
        accounts.push(Account::of(names, cell::read(&cells.unwrap_or_default()), end));
    }
    accounts.sort_by_key(|it| (it.process.began, it.names.pid));
    Ok(accounts)
}

/// The first bytes of a file. The program may put anything in its place: what is no file has none, and is not waited
/// for.
fn bytes_of(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_CLOEXEC);
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

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
        let accounts = read(&directory, 9);
        fs::remove_dir_all(&directory).unwrap();
        let accounts = accounts.unwrap();
        let [account] = &accounts[..] else { panic!("{accounts:?}") };
        assert_eq!((account.names.pid, account.process.began), (7, 0));
    }
}
