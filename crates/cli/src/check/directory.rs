//! The directory into which the processes of a checked program write their findings.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::inotify;
use transom_check::Kind;
use transom_check::record::{self, Finding, Record, UNWANTED};

use crate::run::private;

fn read(path: &PathBuf) -> io::Result<Vec<Record>> {
    Ok(record::read(&String::from_utf8_lossy(&fs::read(path)?)))
}

/// A directory that only this user can use. It is removed with its content.
pub(crate) struct Directory(PathBuf);

impl Directory {
    /// Makes a directory with an unpredictable name. Removes those of commands that were killed.
    pub(crate) fn make() -> Result<Self, String> {
        private::in_first(Self::make_in)
    }

    fn make_in(parent: &Path) -> io::Result<Self> {
        let checks = private::directory(parent, "checks")?;
        // Processes of other PID namespaces may share the directory, and have the same PIDs.
        let space = fs::metadata("/proc/self/ns/pid")?.ino();
        let _ = remove_old(&checks, space);
        let number = getrandom::u64().map_err(io::Error::other)?;
        let own = checks.join(format!("{space}-{}-{number:016x}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&own)?;
        Ok(Self(own))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Tells the processes what nobody wants to see.
    pub(crate) fn leave_out(&self, kinds: impl Iterator<Item = Kind>) -> io::Result<()> {
        let names: String = kinds.map(|kind| format!("{}\n", kind.name())).collect();
        if names.is_empty() { Ok(()) } else { fs::write(self.0.join(UNWANTED), names) }
    }

    /// Copies the records to another directory: of the findings those that are wanted.
    pub(super) fn hand_on(
        &self,
        to: &Path,
        is_wanted: impl Fn(&Finding) -> bool,
    ) -> io::Result<()> {
        for path in self.paths()? {
            let mut records = read(&path)?;
            records.retain(|record| match record {
                Record::Finding(finding) => is_wanted(finding),
                _ => true,
            });
            let text: String = records.iter().map(Record::to_string).collect();
            fs::write(to.join(path.file_name().unwrap_or_default()), text)?;
        }
        Ok(())
    }

    /// The present content of each file, in the order of their names.
    pub(crate) fn files(&self) -> io::Result<Vec<Vec<Record>>> {
        self.paths()?.iter().map(read).collect()
    }

    fn paths(&self) -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            // The program may put anything here, and reading a pipe would never end.
            if entry.file_type()?.is_file() && entry.file_name() != UNWANTED {
                paths.push(entry.path());
            }
        }
        paths.sort();
        Ok(paths)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes the directories of commands that are gone. This process cannot judge those of another PID namespace.
fn remove_old(checks: &Path, space: u64) -> io::Result<()> {
    let space = format!("{space}-");
    for entry in fs::read_dir(checks)?.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(&space)?.split('-').next());
        let pid = pid.and_then(|pid| pid.parse::<u32>().ok());
        let gone = pid.map(|pid| Path::new(&format!("/proc/{pid}")).try_exists());
        if matches!(gone, Some(Ok(false))) {
            // Another process may remove it at the same time.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

/// Reports writes to a directory.
pub(super) struct Watch(OwnedFd);

impl Watch {
    pub(super) fn of(directory: &Directory) -> io::Result<Self> {
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        inotify::add_watch(&watch, directory.path(), inotify::WatchFlags::MODIFY)?;
        Ok(Self(watch))
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Drops the reports so far.
    pub(super) fn clear(&self) {
        let mut events = [0; 4096];
        while rustix::io::read(&self.0, &mut events).is_ok_and(|read| read > 0) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::scratch::Scratch;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn it_is_private_and_goes_with_the_command() {
        let scratch = Scratch::new("check-directory");
        let directory = Directory::make_in(&scratch.0).unwrap();
        let path = directory.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(path.join("12.x"), "process 12 /bin/a\n").unwrap();
        drop(directory);
        assert!(!path.exists());
    }

    #[test]
    fn the_directory_of_a_command_that_was_killed_is_removed_by_the_next() {
        let scratch = Scratch::new("check-old");
        let first = Directory::make_in(&scratch.0).unwrap();
        let space = fs::metadata("/proc/self/ns/pid").unwrap().ino();
        let checks = first.path().parent().unwrap();
        // No PID is this high.
        let (old, other) = (format!("{space}-4294967295-07"), "1-4294967295-07".to_owned());
        for name in [&old, &other] {
            fs::create_dir(checks.join(name)).unwrap();
        }
        let second = Directory::make_in(&scratch.0).unwrap();
        assert!(!checks.join(old).exists() && checks.join(other).exists());
        assert!(first.path().exists() && second.path().exists());
    }

    #[test]
    fn files_that_are_not_whole_or_no_text_are_read_as_far_as_they_go() {
        let scratch = Scratch::new("check-files");
        let directory = Directory::make_in(&scratch.0).unwrap();
        let name = Kind::ALL[0].name();
        let text = format!("process 7 /bin/\u{e9}\nopened\nfinding 1 {name} It is so.\n");
        fs::write(directory.path().join("7.a"), text).unwrap();
        fs::write(directory.path().join("8.a"), b"process 8 /bin/\xff\nend\n").unwrap();
        let files = directory.files().unwrap();
        let process = |pid, program: &str| Record::Process { pid, program: program.into() };
        assert_eq!(files[0], [process(7, "/bin/\u{e9}"), Record::Opened]);
        assert_eq!(files[1], [process(8, "/bin/\u{fffd}")]);
    }
}
