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
    let ours = parent.join(format!("{PREFIX}{user}"));
    make(&ours, user)?;
    let directory = ours.join(name);
    make(&directory, user)?;
    Ok(directory)
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
