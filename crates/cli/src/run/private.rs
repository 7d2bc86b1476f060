//! This user's private directories, for files that a started program needs.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use transom_system::trust::Trusted;

/// The prefix of its name. The user's number follows.
const PREFIX: &str = "transom-run-";

/// Directories for a private directory, if no other user decides what is there. The environment may come from another
/// user.
fn parents() -> impl Iterator<Item = PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|directory| directory.is_absolute() && directory.is_dir());
    let (temporary, usual) = (std::env::temp_dir(), PathBuf::from("/tmp"));
    let usual = (temporary != usual).then_some(usual);
    runtime.into_iter().chain([temporary]).chain(usual)
}

/// Calls `act` for each parent until one allows it. The error says why none does.
pub(crate) fn in_first<T>(mut act: impl FnMut(&Path) -> io::Result<T>) -> Result<T, String> {
    let mut problems = Vec::new();
    for parent in parents() {
        match act(&parent) {
            Ok(done) => return Ok(done),
            Err(error) => problems.push(format!("{}: {error}", parent.display())),
        }
    }
    Err(problems.join("; "))
}

/// The directory of this name in the private directory below `parent`, by its real path. Creates it if
/// needed.
pub(crate) fn directory(parent: &Path, name: &str) -> io::Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let parent = Trusted::this_user_and_root().real_path(parent)?;
    let ours = parent.join(self::name());
    make(&ours, user)?;
    let directory = ours.join(name);
    make(&directory, user)?;
    Ok(directory)
}

/// The name of this user's private directory. A user who is root of a user namespace may share /tmp with the real root.
pub(super) fn name() -> String {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let user = rustix::process::geteuid().as_raw();
    format!("{PREFIX}{}", number_outside(&map, user))
}

/// The user's number outside of this user namespace, by the lines of a `uid_map`: the first number inside, the first
/// one outside, and how many there are.
fn number_outside(map: &str, user: u32) -> u32 {
    let of_line = |line: &str| {
        let mut numbers = line.split_whitespace().map_while(|word| word.parse::<u32>().ok());
        let [inside, outside, count] = [numbers.next()?, numbers.next()?, numbers.next()?];
        let index = user.checked_sub(inside).filter(|index| *index < count)?;
        outside.checked_add(index)
    };
    map.lines().find_map(of_line).unwrap_or(user)
}

/// Whether a path, as written, leads through a private directory of any user.
pub(crate) fn is_below(path: &Path) -> bool {
    let names = path.components().filter_map(|name| name.as_os_str().to_str());
    let mut users = names.filter_map(|name| name.strip_prefix(PREFIX));
    users.any(|user| user.parse::<u32>().is_ok())
}

/// Makes a directory that nobody else can enter. Fails if others can: a user who writes there decides which code the
/// program runs.
fn make(directory: &Path, user: u32) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(directory)?;
    if found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0 {
        Ok(())
    } else {
        let name = directory.display();
        Err(io::Error::other(format!("{name} is not this user's alone (mode 0700); remove it")))
    }
}

/// Replaces a file atomically, because others may be using it. `make` gets a name beside it that nobody looks
/// for.
pub(super) fn replace(
    directory: &Path,
    path: &Path,
    make: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let fresh = directory.join(format!(".{}", std::process::id()));
    let _ = fs::remove_file(&fresh);
    make(&fresh)?;
    fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_the_same_directory_inside_of_a_user_namespace_and_outside() {
        assert_eq!(number_outside("         0          0 4294967295\n", 1000), 1000);
        assert_eq!(number_outside("         0       1000          1\n", 0), 1000);
        let of_a_container = "0 1000 1\n1 100000 65536\n";
        assert_eq!(number_outside(of_a_container, 1), 100_000);
        assert_eq!(number_outside(of_a_container, 65536), 165_535);
        for map in [of_a_container, "", "0 1", "a b c", "5 4294967290 4294967295"] {
            assert_eq!(number_outside(map, 65_537), 65_537, "{map:?}");
        }
    }
}
