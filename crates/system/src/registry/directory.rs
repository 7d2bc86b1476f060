//! The place of the registry's directory, and the removal of directories that nobody uses any more.
//!
//! All processes of a user must find the same directory, so nothing in their environment decides. It lies in the first
//! of a few places where a directory of this user's own exists or can be made. Other users may write to some of these
//! places too, so its name ends in a random number. Otherwise another user could make it first, and keep this user from
//! ever having it. A directory is recognized by its owner.
//!
//! Several processes may be about to make it at once. A directory is *settled* once the registry file is in it. A
//! process settles its directory only after it has looked for others of this user, and it removes those that are not
//! settled. If two make one at once, at least one sees the other's. In a removed directory, the file cannot be made.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;

use super::lock::{self, Part, With};
use crate::descriptor;
use crate::trust::Trusted;

/// The beginning of every directory's name.
const PREFIX: &str = "transom-";

/// The file in it.
const FILE: &str = "registry";

/// How long an unused directory is kept, so that you can still ask why something was refused.
const KEPT: Duration = Duration::from_secs(3600);

/// How many hexadecimal digits the number at the end of its name has.
const NUMBER_DIGITS: usize = 16;

/// How long to wait for a process that is just making or removing the directory.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The places for the directory of the user with this UID, the best first.
pub(super) fn parents(user: u32) -> Vec<PathBuf> {
    // In memory; then the user's own, where nobody else removes names; then on disk.
    ["/dev/shm".into(), format!("/run/user/{user}"), "/tmp".into()].map(PathBuf::from).into()
}

/// The beginning of the name of a registry with the layout `version`, for a user and a network namespace.
pub(super) fn name(version: u32, user: u32, network: u64) -> String {
    format!("{PREFIX}{version}-{user}-{network}")
}

/// The directory of this name, and the registry file in it. Makes both if necessary, in the first parent that allows
/// it. It is not removed while the file is open.
pub(super) fn open(parents: &[PathBuf], name: &str) -> io::Result<(PathBuf, OwnedFd)> {
    let mut kind = None;
    let mut why = Vec::new();
    for parent in parents {
        match open_in(parent, name) {
            Ok(opened) => return Ok(opened),
            Err(error) => match error.kind() {
                // These are the same for all processes of the user.
                ErrorKind::NotFound
                | ErrorKind::NotADirectory
                | ErrorKind::PermissionDenied
                | ErrorKind::ReadOnlyFilesystem => {
                    why.push(format!("{}: {error}", parent.display()));
                    // A forbidden place says more than a missing one.
                    if kind.is_none_or(|kind| kind == ErrorKind::NotFound) {
                        kind = Some(error.kind());
                    }
                }
                // Next time there may be room, and others may have chosen this place.
                kind @ (ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
                    let text = format!("no room left for the registry in {}", parent.display());
                    return Err(io::Error::new(kind, format!("{text}: {error}")));
                }
                // As when no descriptor is left.
                _ => return Err(error),
            },
        }
    }
    let why = why.join("; ");
    let text = format!(
        "{why}: this user must be able to write in one of these, which all its processes share"
    );
    Err(io::Error::new(kind.unwrap_or(ErrorKind::NotFound), text))
}

fn open_in(parent: &Path, name: &str) -> io::Result<(PathBuf, OwnedFd)> {
    let parent = Trusted::this_user_and_root().real_path(parent)?;
    let until = Instant::now() + TIMEOUT;
    loop {
        // If it is just being removed, make a new one under another name.
        let directory = match settled(&parent, name)? {
            Some(directory) => Some(directory),
            None => make(&parent, name)?,
        };
        if let Some(directory) = directory {
            match own(&directory).and_then(|()| file_in(&directory)) {
                Ok(Some(file)) => return Ok((directory, file)),
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    let path = directory.display();
                    return Err(io::Error::new(error.kind(), format!("{path}: {error}")));
                }
            }
        }
        if Instant::now() > until {
            return Err(io::Error::other("another process is removing it and does not go on"));
        }
        std::thread::yield_now();
    }
}

/// This user's directories of this name in `parent`. Directories of this name that others own do not count.
fn of_this_user(parent: &Path, name: &str) -> io::Result<Vec<PathBuf>> {
    let user = rustix::process::geteuid().as_raw();
    let is_called_so = |entry: &fs::DirEntry| {
        let number = entry
            .file_name()
            .to_str()
            .and_then(|it| it.strip_prefix(name)?.strip_prefix('-').map(str::len));
        number == Some(NUMBER_DIGITS)
    };
    let is_ours = |found: &fs::Metadata| found.is_dir() && found.uid() == user;
    let entries = fs::read_dir(parent)?.flatten().filter(is_called_so).map(|entry| entry.path());
    let mut ours: Vec<_> =
        entries.filter(|path| fs::symlink_metadata(path).is_ok_and(|it| is_ours(&it))).collect();
    ours.sort();
    Ok(ours)
}

fn is_settled(directory: &Path) -> bool {
    fs::symlink_metadata(directory.join(FILE)).is_ok()
}

/// The one with a registry file.
fn settled(parent: &Path, name: &str) -> io::Result<Option<PathBuf>> {
    Ok(of_this_user(parent, name)?.into_iter().find(|directory| is_settled(directory)))
}

/// Makes one. `None` if another process makes one at the same time, and has removed this one or was first.
fn make(parent: &Path, name: &str) -> io::Result<Option<PathBuf>> {
    let random = getrandom::u64().map_err(io::Error::other)?;
    let made = parent.join(format!("{name}-{random:0NUMBER_DIGITS$x}"));
    DirBuilder::new().mode(0o700).create(&made)?;
    for other in of_this_user(parent, name)?.into_iter().filter(|other| *other != made) {
        match fs::remove_dir(&other) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
                let _ = fs::remove_dir(&made);
                return Ok(None);
            }
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    match own(&made).and_then(|()| private_file(&made.join(FILE))) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        file => file.map(|_| Some(made)),
    }
}

/// The registry file of a settled directory. `None` if it is just being removed.
fn file_in(directory: &Path) -> io::Result<Option<OwnedFd>> {
    let file = existing_file(&directory.join(FILE))?;
    let has_come_in_time = lock::try_lock(&file, Part::Users, With::Others)? && is_linked(&file)?;
    if has_come_in_time {
        note_use(&file, 0);
    }
    Ok(has_come_in_time.then_some(file))
}

/// Makes sure that a directory is this user's alone: another user's of the same name must not be trusted. If the umask
/// left one of this user's without a right, it gets the right.
fn own(directory: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(directory)?;
    let refuse = |why: String| Err(io::Error::new(ErrorKind::PermissionDenied, why));
    if found.uid() != rustix::process::geteuid().as_raw() {
        return refuse(format!("it belongs to user {}", found.uid()));
    }
    if !found.is_dir() {
        return refuse("it is not a directory".into());
    }
    // Others may have put something into it.
    if found.mode() & 0o077 != 0 {
        return refuse(format!("others may enter it (mode {:04o})", found.mode() & 0o7777));
    }
    if found.mode() & 0o700 != 0o700 {
        // Nobody else can replace it, neither here nor in a directory with the sticky bit.
        rustix::fs::chmod(directory, Mode::RWXU)?;
    }
    Ok(())
}

/// A file that only this user may read and write, whatever the umask. Makes it if necessary. Its directory is this
/// user's alone.
pub fn private_file(path: &Path) -> io::Result<OwnedFd> {
    open_file(path, OFlags::CREATE)
}

/// The same, if it is there.
fn existing_file(path: &Path) -> io::Result<OwnedFd> {
    open_file(path, OFlags::empty())
}

/// The registry file of a directory that this process has found before.
pub(super) fn open_again(directory: &Path) -> io::Result<OwnedFd> {
    existing_file(&directory.join(FILE))
}

fn open_file(path: &Path, how: OFlags) -> io::Result<OwnedFd> {
    let flags = how | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = match rustix::fs::open(path, flags, mode) {
        // The process that just made it under such a umask has yet to set its mode, or was killed before.
        Err(Errno::ACCESS) => {
            rustix::fs::chmod(path, mode)?;
            rustix::fs::open(path, flags, mode)?
        }
        opened => opened?,
    };
    let file = descriptor::high(file);
    if Mode::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != mode {
        rustix::fs::fchmod(&file, mode)?;
    }
    Ok(file)
}

fn is_linked(file: &OwnedFd) -> io::Result<bool> {
    Ok(rustix::fs::fstat(file)?.st_nlink > 0)
}

/// The time of last modification tells since when nobody has been seen using the registry. Zero means that it is in
/// use.
fn note_use(file: &OwnedFd, since: i64) {
    let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let tv_nsec = if since == 0 { 0 } else { UTIME_NOW };
    let last_modification = Timespec { tv_sec: 0, tv_nsec };
    // If this cannot be noted, the registry is removed a little earlier or later.
    let _ = rustix::fs::futimens(file, &Timestamps { last_access: omit, last_modification });
}

/// Removes the directories of this user, of any namespace and layout, that nobody has used for [`KEPT`]. If one cannot
/// be removed, it stays.
pub(super) fn remove_unused(parents: &[PathBuf], user: u32) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    for entry in parents.iter().filter_map(|parent| fs::read_dir(parent).ok()).flatten().flatten() {
        let of_user = |name: &str| {
            let mut parts = name.strip_prefix(PREFIX)?.split('-');
            let version = parts.next()?.parse::<u32>();
            Some(version.is_ok() && parts.next()?.parse() == Ok(user))
        };
        if entry.file_name().to_str().and_then(of_user) == Some(true) {
            let _ = remove_if_unused(&entry.path(), now.as_secs() as i64, KEPT);
        }
    }
}

fn remove_if_unused(directory: &Path, now: i64, kept: Duration) -> io::Result<()> {
    own(directory)?;
    let path = directory.join(FILE);
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = match rustix::fs::open(&path, flags, Mode::empty()) {
        Ok(file) => file,
        // A process that was removing it has been killed.
        Err(Errno::NOENT) => return fs::remove_dir(directory),
        Err(error) => return Err(error.into()),
    };
    if !lock::try_lock(&file, Part::All, With::Nobody)? || !is_linked(&file)? {
        return Ok(());
    }
    let since = rustix::fs::fstat(&file)?.st_mtime;
    if since == 0 || since > now {
        note_use(&file, now);
        return Ok(());
    }
    if ((now - since) as u64) < kept.as_secs() {
        return Ok(());
    }
    for entry in fs::read_dir(directory)?.flatten().filter(|entry| entry.file_name() != FILE) {
        fs::remove_file(entry.path())?;
    }
    // Do this last: a process that opens it meanwhile finds it locked, and nobody who uses it is disturbed.
    fs::remove_file(&path)?;
    fs::remove_dir(directory)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;

    /// A directory of the test's own. Dropping this value removes it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("transom-registry-{}-{name}", std::process::id());
            let path = Path::new("/tmp").join(name);
            fs::create_dir(&path).expect("nobody has it");
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// As if a year had passed since somebody noticed that it is unused.
    fn remove(directory: &Path) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let in_a_year = now as i64 + 365 * 86_400;
        // Once to notice, once to remove.
        for now in [now as i64, in_a_year] {
            let _ = remove_if_unused(directory, now, KEPT);
        }
    }

    #[test]
    fn who_has_it_open_keeps_it() {
        let scratch = Scratch::new("kept");
        let parents = [scratch.0.clone()];
        let (directory, first) = open(&parents, "transom-0-0-0").expect("a directory");
        let (_, second) = open(&parents, "transom-0-0-0").expect("the same");
        for file in [first, second] {
            remove(&directory);
            assert!(is_linked(&file).expect("it is open"));
            drop(file);
        }
        assert!(directory.exists(), "as long as nobody looks");
        let now =
            SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as i64;
        for soon in [now, now + 60] {
            remove_if_unused(&directory, soon, KEPT).expect("nobody has it");
            assert!(directory.exists(), "for a question after the program has ended");
        }
        remove(&directory);
        assert!(!directory.exists());
    }

    /// A process that comes while it is being removed gets it whole, or another one, and so do all others.
    #[test]
    fn nobody_is_left_in_one_that_is_gone() {
        let scratch = Scratch::new("race");
        let parents = [scratch.0.clone()];
        let done = AtomicBool::new(false);
        // A process that finds it being removed for a second gives up. This happens on a machine that is that busy.
        let open_at_last = || {
            let until = Instant::now() + Duration::from_secs(60);
            loop {
                match open(&parents, "transom-0-0-0") {
                    Err(late) if late.kind() == ErrorKind::Other && Instant::now() < until => {}
                    opened => return opened.expect("a directory"),
                }
            }
        };
        std::thread::scope(|scope| {
            let removers = [(); 2].map(|()| {
                scope.spawn(|| {
                    while !done.load(Relaxed) {
                        let there = of_this_user(&parents[0], "transom-0-0-0");
                        there.expect("our own").iter().for_each(|directory| remove(directory));
                    }
                })
            });
            let users = [(); 2].map(|()| {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let (directory, file) = open_at_last();
                        fs::write(directory.join("steering"), "x").expect("it is not removed");
                        let here = rustix::fs::fstat(&file).expect("it is open");
                        let there = rustix::fs::stat(directory.join(FILE)).expect("it is there");
                        assert_eq!(here.st_ino, there.st_ino);
                    }
                })
            });
            let ended = users.map(|user| user.join());
            done.store(true, Relaxed);
            assert!(ended.iter().all(Result::is_ok));
            drop(removers);
        });
    }

    /// If several make it at once, all end up with the same one.
    #[test]
    fn all_come_to_the_same_who_come_at_once() {
        let scratch = Scratch::new("at-once");
        for _ in 0..50 {
            let parents = [scratch.0.clone()];
            let opened = std::thread::scope(|scope| {
                let users = [(); 16].map(|()| scope.spawn(|| open(&parents, "transom-0-0-0")));
                users.map(|user| user.join().expect("it ends").expect("a directory"))
            });
            let directories = opened.each_ref().map(|(directory, _)| directory);
            assert!(directories.iter().all(|it| *it == directories[0]), "{directories:?}");
            fs::remove_dir_all(directories[0]).expect("our own");
        }
    }

    /// One that a killed process was making does not get in the way.
    #[test]
    fn one_that_is_not_settled_is_replaced() {
        let scratch = Scratch::new("begun");
        let begun = scratch.0.join("transom-0-0-0-0000000000000000");
        fs::create_dir(&begun).expect("nobody has it");
        let (directory, _) =
            open(std::slice::from_ref(&scratch.0), "transom-0-0-0").expect("another");
        assert!(directory != begun && !begun.exists());
    }

    /// Nobody knows which name to take, and another user's directory with such a name does not count.
    #[test]
    fn what_others_call_so_is_in_nobodys_way() {
        let scratch = Scratch::new("others");
        let number = "0123456789abcdef";
        for taken in ["transom-0-0-0".to_owned(), format!("transom-0-0-0-{number}")] {
            fs::write(scratch.0.join(taken), "").expect("a file");
        }
        let theirs = scratch.0.join("transom-0-0-0-fedcba9876543210");
        fs::create_dir(&theirs).expect("nobody has it");
        let root = rustix::process::geteuid().is_root();
        if root {
            fs::write(theirs.join(FILE), "").expect("a file");
            std::os::unix::fs::chown(&theirs, Some(2002), Some(2002)).expect("root may");
        }
        let (directory, _) =
            open(std::slice::from_ref(&scratch.0), "transom-0-0-0").expect("it is made");
        assert!(directory != theirs && theirs.exists() == root);
    }

    #[test]
    fn a_place_that_is_of_no_use_is_passed_over_with_its_reason() {
        use std::os::unix::fs::PermissionsExt;
        let [open_to_all, good] = [Scratch::new("open"), Scratch::new("good")];
        let set_mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("our own");
        };
        set_mode(&open_to_all.0, 0o777);
        let missing = open_to_all.0.join("missing");
        let parents = [missing, open_to_all.0.clone(), good.0.clone()];
        let (directory, _) = open(&parents, "transom-0-0-0").expect("the third");
        assert_eq!(directory.parent(), Some(&*good.0));
        let refused = open(&parents[..2], "transom-0-0-0").expect_err("neither");
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "not only that one is missing");
        for part in ["missing: No such file", "can be written to by others (mode 0777)"] {
            assert!(refused.to_string().contains(part), "{refused}");
        }
        set_mode(&directory, 0o750);
        let refused = open(&parents, "transom-0-0-0").expect_err("others may enter").to_string();
        assert!(refused.contains("others may enter it (mode 0750)"), "{refused}");
    }
}
