//! Directories of this user's own, for what a program that is started needs.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use transom_system::trust::Trusted;

/// What its name begins with; the user's number follows.
const PREFIX: &str = "transom-run-";

/// Where a private directory may be, if nobody else decides what is there: the environment may be that of
/// another user.
fn parents() -> impl Iterator<Item = PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|directory| directory.is_absolute() && directory.is_dir());
    let (temporary, usual) = (std::env::temp_dir(), PathBuf::from("/tmp"));
    let usual = (temporary != usual).then_some(usual);
    runtime.into_iter().chain([temporary]).chain(usual)
}

/// Does something in the first of them that allows it; else why none does.
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

/// The directory of this name in the private directory below `parent`, by its real path; made if need be.
pub(crate) fn directory(parent: &Path, name: &str) -> io::Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let parent = Trusted::this_user_and_root().real_path(parent)?;
    let ours = parent.join(format!("{PREFIX}{user}"));
    make(&ours, user)?;
    let directory = ours.join(name);
    make(&directory, user)?;
    Ok(directory)
}

/// Whether a path, as it is written, leads through a private directory of some user's.
pub(crate) fn is_below(path: &Path) -> bool {
    let names = path.components().filter_map(|name| name.as_os_str().to_str());
    let mut users = names.filter_map(|name| name.strip_prefix(PREFIX));
    users.any(|user| user.parse::<u32>().is_ok())
}

/// Makes a directory that nobody else can enter, and does not trust one that others can: a user who writes there
/// decides which code the program runs.
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

/// Puts something there in one step: others may be using what is there. `make` is given a name next
/// to nothing that anybody looks for.
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
