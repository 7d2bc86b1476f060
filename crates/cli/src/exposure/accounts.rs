//! The accounts of the processes, from their files.

use std::fs;
use std::io;
use std::path::Path;

use transom_exposure::cell;
use transom_exposure::names::{CELLS, Names};
use transom_exposure::report::Account;

/// The accounts in a directory, in the order in which the processes opened their first devices. What is open in those
/// that could not say when they ended is open until `end`.
pub(super) fn read(directory: &Path, end: u64) -> io::Result<Vec<Account>> {
    let mut accounts = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        // The program may put anything here, and reading a pipe would never end.
        let is_file = entry.file_type()?.is_file();
        if !is_file || path.extension().is_some_and(|extension| extension == CELLS) {
            continue;
        }
        let names = Names::read(&String::from_utf8_lossy(&fs::read(&path)?));
        let cells = fs::read(path.with_extension(CELLS)).unwrap_or_default();
        accounts.push(Account::of(names, cell::read(&cells), end));
    }
    accounts.sort_by_key(|it| (it.process.began, it.names.pid));
    Ok(accounts)
}
