//! The shared objects that this command carries, if it was built that way. Then one file is all of Transom.
//!
//! They are unpacked into the user's cache directory, or else into a private directory, and compared each time before
//! use. If neither directory is usable, they are in memory.

use super::library::{self, BUILT, CONNECTIONS, CONNECTIONS_BUILT, Library, SONAME};
use super::private;
use rustix::fs::{
    AtFlags, CWD, FileType, MemfdFlags, Mode, OFlags, SealFlags, StatVfsMountFlags,
    fcntl_add_seals, fstat, fstatvfs, memfd_create, mkdirat, openat, readlinkat, renameat,
    symlinkat, unlinkat,
};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::geteuid;
use std::env;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use transom_system::trust::Trusted;

include!(concat!(env!("OUT_DIR"), "/carried.rs"));

/// Other names by which programs ask for these files, and the file behind each.
const OTHER_NAMES: [(&str, &str); 2] = [(BUILT, SONAME), (CONNECTIONS_BUILT, CONNECTIONS)];

/// The variable of the user's cache directory, and its default below the home directory.
const CACHE: &str = "XDG_CACHE_HOME";
const CACHE_OF_HOME: &str = ".cache";
/// Its name among the private directories.
const PRIVATE_CACHE: &str = "cache";

/// Lower numbers are those that scripts name, and those that programs get first after they have closed all.
const FIRST_DESCRIPTOR: i32 = 700;

/// One of the libraries, if this command carries them.
pub(super) fn library(name: &str) -> Option<Result<Library, String>> {
    let bytes = LIBRARIES.iter().find(|(carried, _)| *carried == name)?.1;
    if let Some(directory) = directory() {
        let file = directory.join(name);
        return Some(Ok(Library { file, directory: Some(directory.to_owned()) }));
    }
    let file = in_memory(name, bytes);
    let file = file.map_err(|error| format!("cannot hold {name} in memory: {error}"));
    Some(file.map(|file| Library { file, directory: None }))
}

/// The directory with all carried libraries. `None` if there can be none.
fn directory() -> Option<&'static Path> {
    static DIRECTORY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let in_cache = || unpack(&cache()?, LIBRARIES).ok();
    let privately = || {
        let unpack = |parent: &Path| unpack(&private::directory(parent, PRIVATE_CACHE)?, LIBRARIES);
        private::in_first(unpack).ok()
    };
    DIRECTORY.get_or_init(|| in_cache().or_else(privately)).as_deref()
}

fn cache() -> Option<PathBuf> {
    let named = env::var_os(CACHE).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || Some(PathBuf::from(env::var_os("HOME")?)).filter(|path| path.is_absolute());
    named.or_else(|| Some(home()?.join(CACHE_OF_HOME)))
}

/// Unpacks the libraries below `cache`, into a directory that only this user can write. There is one directory for each
/// version and build.
fn unpack(cache: &Path, libraries: &[(&str, &[u8])]) -> io::Result<PathBuf> {
    // A user who may rename files in there, or a directory above, decides which code the program runs.
    let cache = Trusted::this_user_and_root().directory(cache)?;
    if !library::is_plain(&cache) {
        return Err(io::Error::other(format!("the loader does not take {}", cache.display())));
    }
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(CWD, &cache, directory, Mode::empty())?;
    if fstatvfs(&opened)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err(io::Error::other(format!("{} is mounted noexec", cache.display())));
    }
    let build = format!("{}-{DIGEST}", env!("CARGO_PKG_VERSION"));
    let ours = private_directory(&opened, "transom")?;
    let directory = private_directory(&ours, &build)?;
    for (name, bytes) in libraries {
        if !has(&directory, name, bytes).unwrap_or(false) {
            put(&directory, name, |fresh| write(&directory, fresh, bytes))?;
        }
    }
    for (name, target) in OTHER_NAMES {
        let found = readlinkat(&directory, name, Vec::new());
        if !found.is_ok_and(|found| found.as_bytes() == target.as_bytes()) {
            put(&directory, name, |fresh| Ok(symlinkat(target, &directory, fresh)?))?;
        }
    }
    Ok(cache.join("transom").join(build))
}

/// Opens a directory that nobody else can write to. Fails if others can.
fn private_directory(parent: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    match mkdirat(parent, name, Mode::RWXU) {
        Err(Errno::EXIST) | Ok(()) => {}
        Err(error) => return Err(error.into()),
    }
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = openat(parent, name, directory, Mode::empty())?;
    let found = fstat(&directory)?;
    if is_ours(found.st_uid) && !is_shared(found.st_mode) {
        Ok(directory)
    } else {
        Err(io::Error::other(format!("{name} is not this user's alone")))
    }
}

/// Whether a file of this name has exactly these bytes, and nobody else can write to it.
fn has(directory: &OwnedFd, name: &str, bytes: &[u8]) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::empty())?;
    let found = fstat(&file)?;
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    let is_as_long = u64::try_from(found.st_size) == Ok(bytes.len() as u64);
    if !is_file || !is_as_long || !is_ours(found.st_uid) || is_shared(found.st_mode) {
        return Ok(false);
    }
    let mut there = Vec::with_capacity(bytes.len());
    File::from(file).read_to_end(&mut there)?;
    Ok(there == bytes)
}

/// Creates a file atomically: others may use the old one or do the same, in other containers too. `make` gets a name
/// that nobody looks for.
fn put(
    directory: &OwnedFd,
    name: &str,
    make: impl FnOnce(&str) -> io::Result<()>,
) -> io::Result<()> {
    let fresh = format!(".{:016x}", getrandom::u64().map_err(io::Error::other)?);
    let placed = make(&fresh).and_then(|()| Ok(renameat(directory, &*fresh, directory, name)?));
    if placed.is_err() {
        let _ = unlinkat(directory, &*fresh, AtFlags::empty());
    }
    placed
}

fn write(directory: &OwnedFd, name: &str, bytes: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?;
    File::from(file).write_all(bytes)
}

fn is_ours(owner: u32) -> bool {
    owner == geteuid().as_raw()
}

/// Whether others may write there.
fn is_shared(mode: u32) -> bool {
    Mode::from_raw_mode(mode).intersects(Mode::WGRP | Mode::WOTH)
}

/// Makes a library a file without a name. This process, and the program that it becomes, has it open.
fn in_memory(name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(file);
    file.write_all(bytes)?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK)?;
    let kept = fcntl_dupfd_cloexec(&file, FIRST_DESCRIPTOR)?;
    fcntl_setfd(&kept, FdFlags::empty())?;
    let kept = kept.into_raw_fd();
    // A path with a PID would also work in children that have closed the descriptor. But after this process has ended,
    // it would find the file of any process that reuses the PID.
    Ok(PathBuf::from(format!("/proc/self/fd/{kept}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::scratch::Scratch;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    const MADE_UP: &[(&str, &[u8])] = &[(SONAME, b"verbs"), (CONNECTIONS, b"connections")];

    #[test]
    fn what_is_carried_is_unpacked_once_under_all_names() {
        let scratch = Scratch::new("unpack");
        let cache = scratch.0.join("below/cache");
        let directory = unpack(&cache, MADE_UP).unwrap();
        assert!(directory.starts_with(cache.join("transom")));
        for (name, bytes) in
            [(SONAME, "verbs"), (BUILT, "verbs"), (CONNECTIONS_BUILT, "connections")]
        {
            assert_eq!(fs::read_to_string(directory.join(name)).unwrap(), bytes);
        }
        let before = fs::metadata(directory.join(SONAME)).unwrap().ino();
        assert_eq!(unpack(&cache, MADE_UP).unwrap(), directory);
        assert_eq!(fs::metadata(directory.join(SONAME)).unwrap().ino(), before);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 4);
        assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn what_is_not_what_was_unpacked_is_replaced() {
        let scratch = Scratch::new("mend");
        let directory = unpack(&scratch.0, MADE_UP).unwrap();
        let file = directory.join(SONAME);
        let is_mended = || {
            unpack(&scratch.0, MADE_UP).unwrap();
            let found = fs::symlink_metadata(&file).unwrap();
            found.is_file()
                && found.mode() & 0o022 == 0
                && fs::read(&file).unwrap() == b"verbs"
                && fs::read_link(directory.join(BUILT)).unwrap() == Path::new(SONAME)
        };
        fs::write(&file, "VERBS").unwrap();
        assert!(is_mended());
        fs::write(&file, "verb").unwrap();
        assert!(is_mended());
        fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        assert!(is_mended());
        let elsewhere = scratch.file("elsewhere");
        fs::write(&elsewhere, "verbs").unwrap();
        fs::remove_file(&file).unwrap();
        symlink(&elsewhere, &file).unwrap();
        assert!(is_mended());
        fs::remove_file(directory.join(BUILT)).unwrap();
        symlink("/nowhere", directory.join(BUILT)).unwrap();
        assert!(is_mended());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 4);
    }

    #[test]
    fn nothing_is_unpacked_where_others_can_write() {
        let scratch = Scratch::new("others");
        fs::set_permissions(&scratch.0, Permissions::from_mode(0o777)).unwrap();
        assert!(unpack(&scratch.0, MADE_UP).is_err());
        // Nor below, because somebody can replace the directory above.
        let below = scratch.0.join("home/.cache");
        assert!(unpack(&below, MADE_UP).is_err());
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0, "nothing is made there");
        // In a sticky directory, such as /tmp, nobody else can rename our directories.
        fs::set_permissions(&scratch.0, Permissions::from_mode(0o1777)).unwrap();
        let directory = unpack(&scratch.0, MADE_UP).unwrap();
        fs::set_permissions(&directory, Permissions::from_mode(0o770)).unwrap();
        assert!(unpack(&scratch.0, MADE_UP).is_err());
        let ours = scratch.0.join("transom");
        fs::remove_dir_all(&ours).unwrap();
        fs::create_dir(scratch.0.join("theirs")).unwrap();
        symlink(scratch.0.join("theirs"), &ours).unwrap();
        assert!(unpack(&scratch.0, MADE_UP).is_err());
    }

    #[test]
    fn many_unpack_at_once() {
        let scratch = Scratch::new("many");
        let large = vec![7; 1 << 20];
        let libraries: &[(&str, &[u8])] = &[(SONAME, &large)];
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let directory = unpack(&scratch.0, libraries).unwrap();
                    assert!(fs::read(directory.join(SONAME)).unwrap() == large);
                });
            }
        });
    }

    #[test]
    fn a_library_in_memory_is_read_by_its_path() {
        let path = in_memory(SONAME, b"verbs").unwrap();
        assert!(path.starts_with("/proc/self"), "not what another process has: {}", path.display());
        assert_eq!(fs::read(&path).unwrap(), b"verbs");
        assert!(
            fs::OpenOptions::new()
                .write(true)
                .open(&path)
                .and_then(|mut file| file.write_all(b"x"))
                .is_err()
        );
    }
}
