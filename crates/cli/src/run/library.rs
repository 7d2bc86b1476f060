//! Where Transom's libibverbs is, and how the loader is to find it.

use crate::failure::{Failure, Result};
use std::collections::hash_map::DefaultHasher;
use std::fs::{self, DirBuilder};
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// What programs ask the loader for.
const SONAME: &str = "libibverbs.so.1";
/// What cargo calls it.
const BUILT: &str = "libibverbs.so";
/// Where to look instead of the usual places.
const OVERRIDE: &str = "TRANSOM_LIB";

/// A directory that has our libibverbs under the name the loader looks for.
pub(super) fn directory() -> Result<PathBuf> {
    directory_of(&library()?)
}

/// Our libibverbs.
fn library() -> Result<PathBuf> {
    if let Some(directory) = std::env::var_os(OVERRIDE).filter(|value| !value.is_empty()) {
        let directory = std::path::absolute(&directory).unwrap_or_else(|_| directory.into());
        return [SONAME, BUILT]
            .map(|name| directory.join(name))
            .into_iter()
            .find(|path| path.is_file())
            .ok_or_else(|| {
                Failure::new(format_args!(
                    "there is no {SONAME} in {}, which {OVERRIDE} names; set it to the directory \
                     that has it, or unset it",
                    directory.display()
                ))
            });
    }
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(format_args!(
            "cannot tell where this command is installed: {error}; set {OVERRIDE} to the directory \
             of Transom's {SONAME}"
        ))
    })?;
    beside(&program).ok_or_else(|| {
        Failure::new(format_args!(
            "Transom's {SONAME} is neither beside {} nor in ../lib/transom; build it in Transom's \
             source with `cargo build --release`, and run `target/release/transom` or set \
             {OVERRIDE} to the directory of the library",
            program.display()
        ))
    })
}

/// Our libibverbs, where it is installed or built together with the command.
fn beside(program: &Path) -> Option<PathBuf> {
    let directory = program.parent()?;
    let installed = directory.parent().map(|prefix| prefix.join("lib/transom").join(SONAME));
    let places = [
        Some(directory.join(SONAME)),
        installed,
        Some(directory.join(BUILT)),
        Some(directory.join("deps").join(BUILT)),
    ];
    places.into_iter().flatten().find(|path| path.is_file())
}

/// A directory that has the library under the name the loader looks for.
fn directory_of(library: &Path) -> Result<PathBuf> {
    let directory = library.parent().unwrap_or(Path::new("/"));
    // The loader takes these for the end of a directory's name, and `$` for a token.
    let plain = !directory.as_os_str().as_bytes().iter().any(|byte| b":;$".contains(byte));
    if plain && library.file_name() == Some(SONAME.as_ref()) {
        return Ok(directory.to_owned());
    }
    let mut problem = None;
    for parent in private_parents() {
        match linked_in(&parent, library) {
            Ok(directory) => return Ok(directory),
            Err(error) => problem = Some(format!("{}: {error}", parent.display())),
        }
    }
    Err(Failure::new(format_args!(
        "cannot make a private directory with a link to {}: {}; set TMPDIR to a directory that \
         this user may write to, or name the library {SONAME} and set {OVERRIDE} to its directory",
        library.display(),
        problem.unwrap_or_default()
    )))
}

/// Where the private directory may be.
fn private_parents() -> impl Iterator<Item = PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|directory| directory.is_absolute() && directory.is_dir());
    runtime.into_iter().chain([std::env::temp_dir()])
}

/// Sees to it that there is a directory of this user's own with a link to this library; made once,
/// and used again.
fn linked_in(parent: &Path, library: &Path) -> io::Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let ours = parent.join(format!("transom-run-{user}"));
    make_private(&ours, user)?;
    // One for each library, so that two builds do not take it from each other.
    let mut hasher = DefaultHasher::new();
    library.hash(&mut hasher);
    let directory = ours.join(format!("{:016x}", hasher.finish()));
    make_private(&directory, user)?;
    let link = directory.join(SONAME);
    if fs::read_link(&link).is_ok_and(|target| target == library) {
        return Ok(directory);
    }
    // Others may be using it: replace it in one step.
    let fresh = directory.join(format!(".{}", std::process::id()));
    let _ = fs::remove_file(&fresh);
    symlink(library, &fresh)?;
    fs::rename(&fresh, &link)?;
    Ok(directory)
}

/// Makes a directory that nobody else can write to, and does not trust one that somebody can:
/// whoever writes there decides which code the program runs.
fn make_private(directory: &Path, user: u32) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that is removed with what is in it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("transom-unit-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn file(&self, path: &str) -> PathBuf {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            path
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_library_is_found_where_it_is_installed_or_built() {
        let scratch = Scratch::new("places");
        let program = scratch.0.join("bin/transom");
        assert_eq!(beside(&program), None);
        for place in ["bin/deps/libibverbs.so", "bin/libibverbs.so", "lib/transom/libibverbs.so.1"]
        {
            let library = scratch.file(place);
            assert_eq!(beside(&program), Some(library));
        }
        let library = scratch.file("bin/libibverbs.so.1");
        assert_eq!(beside(&program), Some(library.clone()));
        assert_eq!(directory_of(&library).unwrap(), scratch.0.join("bin"));
    }

    #[test]
    fn a_private_directory_is_made_once_and_mended() {
        let scratch = Scratch::new("link");
        let library = scratch.file("libibverbs.so");
        let directory = linked_in(&scratch.0, &library).unwrap();
        let link = directory.join(SONAME);
        assert_eq!(fs::read_link(&link).unwrap(), library);
        assert_eq!(linked_in(&scratch.0, &library).unwrap(), directory);
        fs::remove_file(&link).unwrap();
        symlink("/nowhere", &link).unwrap();
        assert_eq!(linked_in(&scratch.0, &library).unwrap(), directory);
        assert_eq!(fs::read_link(&link).unwrap(), library);
        let other = scratch.file("other/libibverbs.so");
        assert_ne!(linked_in(&scratch.0, &other).unwrap(), directory);
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_not_trusted() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = Scratch::new("trust");
        let library = scratch.file("libibverbs.so");
        let user = rustix::process::geteuid().as_raw();
        let ours = scratch.0.join(format!("transom-run-{user}"));
        fs::create_dir(&ours).unwrap();
        fs::set_permissions(&ours, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(linked_in(&scratch.0, &library).is_err());
        fs::remove_dir(&ours).unwrap();
        symlink("/", &ours).unwrap();
        assert!(linked_in(&scratch.0, &library).is_err());
    }
}
