//! The places of Transom's libraries. If `TRANSOM_LIB` names a directory, they are only there. If this command carries
//! libraries, it takes those. Otherwise they are beside it, as cargo builds them, or in `../lib/transom`, as packages
//! install them.

use super::library::{BUILT, CONNECTIONS, CONNECTIONS_BUILT, Library, SONAME, is_plain};
use super::{carried, private};
use crate::failure::{Failure, Result};
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use transom_system::trust::Trusted;

/// How many hexadecimal digits the name of a directory with links has.
const DIGITS: usize = 16;

/// How long one is kept that nobody takes.
const KEPT: Duration = Duration::from_secs(30 * 86_400);

/// The variable with a directory to use instead of the usual places.
const OVERRIDE: &str = transom_system::environment::LIB.name;

/// Our librdmacm. A directory that the user names may lack it.
pub(super) fn connections() -> std::result::Result<Option<Library>, String> {
    let names = [CONNECTIONS, CONNECTIONS_BUILT];
    let library = match named_directory() {
        Some(directory) => match named(&directory, &names)? {
            Some(library) => library,
            None => return Ok(None),
        },
        None => {
            if let Some(library) = carried::library(CONNECTIONS) {
                return library.map(Some);
            }
            std::env::current_exe()
                .ok()
                .and_then(|program| beside(&program, &names))
                .ok_or_else(|| format!("Transom's {CONNECTIONS} is not where this command is"))?
        }
    };
    Ok(Some(Library::in_directory(linked(&library, &names)?, CONNECTIONS)))
}

/// A library to preload, by a path that the loader takes.
pub(crate) fn preloaded(name: &str) -> std::result::Result<PathBuf, String> {
    let named = named_directory().map(|directory| named(&directory, &[name])).transpose()?;
    let named = named.flatten();
    if named.is_none()
        && let Some(library) = carried::library(name)
    {
        return library.map(|library| library.file);
    }
    let library = named.or_else(|| beside(&std::env::current_exe().ok()?, &[name]));
    let library = library.ok_or_else(|| format!("{name} is not where this command is"))?;
    if is_plain(&library) && library.file_name() == Some(name.as_ref()) {
        return Ok(library);
    }
    Ok(linked(&library, &[name])?.join(name))
}

/// Our libibverbs.
pub(crate) fn verbs() -> Result<Library> {
    if named_directory().is_none()
        && let Some(library) = carried::library(SONAME)
    {
        return library.map_err(Failure::new);
    }
    Ok(Library::in_directory(directory_of(&installed()?)?, SONAME))
}

/// The directory that the user names for the libraries.
fn named_directory() -> Option<PathBuf> {
    let directory = std::env::var_os(OVERRIDE).filter(|value| !value.is_empty())?;
    Some(std::path::absolute(&directory).unwrap_or_else(|_| directory.into()))
}

/// A library in that directory, by one of its names. A user who can replace it decides what this user runs. So only
/// this user, root and the owner of this command may be able to write it. The owner of the command decides that anyway.
fn named(directory: &Path, names: &[&str]) -> std::result::Result<Option<PathBuf>, String> {
    let files = names.iter().map(|name| directory.join(name));
    let Some(library) = files.into_iter().find(|path| path.is_file()) else { return Ok(None) };
    let command = fs::metadata("/proc/self/exe").map(|command| command.uid());
    let trusted = Trusted::this_user_and_root();
    let trusted = command.into_iter().fold(trusted, Trusted::and);
    let real = trusted.real_path(&library).map_err(|error| {
        format!(
            "{OVERRIDE} names {}, but another user might exchange it: {error}; unset {OVERRIDE}, or set it \
             to a directory that only you can change",
            library.display()
        )
    });
    real.map(Some)
}

/// Our libibverbs, installed or built.
fn installed() -> Result<PathBuf> {
    if let Some(directory) = named_directory() {
        return named(&directory, &[SONAME, BUILT]).map_err(Failure::new)?.ok_or_else(|| {
            Failure::new(format_args!(
                "{OVERRIDE} names {}, which has no {SONAME}; set it to the directory that has one, or \
                 unset it",
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
    beside(&program, &[SONAME, BUILT]).ok_or_else(|| {
        Failure::new(format_args!(
            "Transom's {SONAME} is neither beside {} nor in ../lib/transom; build it in Transom's \
             source with `cargo build --release`, and run `target/release/transom` or set \
             {OVERRIDE} to the directory of the library",
            program.display()
        ))
    })
}

/// A library of ours by one of its names, installed or built together with the command.
fn beside(program: &Path, names: &[&str]) -> Option<PathBuf> {
    let directory = program.parent()?;
    let installed = directory.parent().map(|prefix| prefix.join("lib/transom"));
    let directories = [Some(directory.to_owned()), installed, Some(directory.join("deps"))];
    let files = directories.iter().flatten();
    let files = files.flat_map(|directory| names.iter().map(|name| directory.join(name)));
    // An installed library comes before a built one.
    let mut files: Vec<_> = files.filter(|path| path.is_file()).collect();
    files.sort_by_key(|path| path.extension() == Some("so".as_ref()));
    files.into_iter().next()
}

/// A directory that has our libibverbs under the names that programs ask for.
fn directory_of(library: &Path) -> Result<PathBuf> {
    linked_or_as_it_is(library, linked(library, &[SONAME, BUILT]))
}

/// If no directory with links can be made, a directory that has it under the first of the names is enough.
fn linked_or_as_it_is(
    library: &Path,
    linked: std::result::Result<PathBuf, String>,
) -> Result<PathBuf> {
    let directory = library.parent().unwrap_or(Path::new("/"));
    let will_do = is_plain(directory) && library.file_name() == Some(SONAME.as_ref());
    match linked {
        Ok(linked) => Ok(linked),
        Err(_) if will_do => Ok(directory.to_owned()),
        Err(problem) => Err(Failure::new(format_args!(
            "{problem}; set TMPDIR to a directory that you may write to, or name the library \
             {SONAME} and set {OVERRIDE} to its directory"
        ))),
    }
}

/// A directory with this command under another name, for a search path of commands.
pub(super) fn command(name: &str) -> std::result::Result<PathBuf, String> {
    let this = std::env::current_exe();
    let this = this.map_err(|error| format!("cannot tell where this command is: {error}"))?;
    linked(&this, &[name])
}

/// A private directory with links of these names to a library.
fn linked(library: &Path, names: &[&str]) -> std::result::Result<PathBuf, String> {
    private::in_first(|parent| linked_in(parent, library, names)).map_err(|problem| {
        let library = library.display();
        format!("cannot make a private directory with a link to {library}: {problem}")
    })
}

/// Made once, and used again.
fn linked_in(parent: &Path, library: &Path, names: &[&str]) -> io::Result<PathBuf> {
    // One directory for each library, so that two builds do not replace each other's links.
    let mut hasher = DefaultHasher::new();
    library.hash(&mut hasher);
    let name = format!("{:0DIGITS$x}", hasher.finish());
    let directory = private::directory(parent, &name)?;
    if !is_plain(&directory) {
        return Err(io::Error::other("the loader does not take such a path"));
    }
    // A new one is empty. The one above it is this user's alone.
    let is_new = fs::read_dir(&directory)?.next().is_none();
    if let Some(directories) = directory.parent().filter(|_| is_new) {
        remove_orphans(directories);
    }
    for name in names {
        let link = directory.join(name);
        if !fs::read_link(&link).is_ok_and(|target| target == library) {
            private::replace(&directory, &link, |fresh| symlink(library, fresh))?;
        }
    }
    // It is in use. Where that cannot be noted, it cannot be removed.
    let _ = fs::File::open(&directory).and_then(|it| it.set_modified(SystemTime::now()));
    Ok(directory)
}

/// Removes the directories of libraries whose place is gone, as after a build folder was removed, and that nobody has
/// taken for long. The place may only be out of sight, as that of another container is.
fn remove_orphans(directories: &Path) {
    let is_one = |name: &str| name.len() == DIGITS && name.bytes().all(|it| it.is_ascii_hexdigit());
    for entry in fs::read_dir(directories).into_iter().flatten().flatten() {
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        let is_old = || age().is_some_and(|age| age > KEPT);
        if !entry.file_name().to_str().is_some_and(is_one) || !is_old() {
            continue;
        }
        let links = fs::read_dir(entry.path()).into_iter().flatten().flatten();
        let targets: Vec<_> = links.map(|link| fs::read_link(link.path()).ok()).collect();
        let is_gone = |target: &Option<PathBuf>| {
            let place = target.as_deref().and_then(Path::parent);
            place.is_some_and(|place| matches!(place.try_exists(), Ok(false)))
        };
        if !targets.is_empty() && targets.iter().all(is_gone) {
            // Another process may remove it at the same time.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::scratch::Scratch;

    #[test]
    fn the_library_is_found_where_it_is_installed_or_built() {
        let scratch = Scratch::new("places");
        let program = scratch.0.join("bin/transom");
        assert_eq!(beside(&program, &[SONAME, BUILT]), None);
        for place in ["bin/deps/libibverbs.so", "bin/libibverbs.so", "lib/transom/libibverbs.so.1"]
        {
            let library = scratch.file(place);
            assert_eq!(beside(&program, &[SONAME, BUILT]), Some(library));
        }
        let library = scratch.file("bin/libibverbs.so.1");
        assert_eq!(beside(&program, &[SONAME, BUILT]), Some(library));
    }

    #[test]
    fn a_private_directory_is_made_once_and_mended() {
        let scratch = Scratch::new("link");
        let library = scratch.file("libibverbs.so");
        let directory = linked_in(&scratch.0, &library, &[SONAME]).unwrap();
        let link = directory.join(SONAME);
        assert_eq!(fs::read_link(&link).unwrap(), library);
        assert_eq!(linked_in(&scratch.0, &library, &[SONAME]).unwrap(), directory);
        fs::remove_file(&link).unwrap();
        symlink("/nowhere", &link).unwrap();
        assert_eq!(linked_in(&scratch.0, &library, &[SONAME]).unwrap(), directory);
        assert_eq!(fs::read_link(&link).unwrap(), library);
        let other = scratch.file("other/libibverbs.so");
        assert_ne!(linked_in(&scratch.0, &other, &[SONAME]).unwrap(), directory);
    }

    #[test]
    fn links_to_a_place_that_is_gone_are_removed_if_nobody_takes_them() {
        let scratch = Scratch::new("orphans");
        let [old, young, there] = ["old", "young", "there"].map(|place| {
            let library = scratch.file(&format!("{place}/libibverbs.so"));
            let directory = linked_in(&scratch.0, &library, &[SONAME]).unwrap();
            (library, directory)
        });
        for gone in [&old, &young] {
            fs::remove_dir_all(gone.0.parent().unwrap()).unwrap();
        }
        for unused in [&old, &there] {
            let directory = fs::File::open(&unused.1).unwrap();
            directory.set_modified(SystemTime::now() - 2 * KEPT).unwrap();
        }
        let next = scratch.file("next/libibverbs.so");
        let next = linked_in(&scratch.0, &next, &[SONAME]).unwrap();
        assert!(!old.1.exists() && young.1.exists() && there.1.exists() && next.exists());
        linked_in(&scratch.0, &there.0, &[SONAME]).unwrap();
        let used = there.1.metadata().unwrap().modified().unwrap();
        assert!(used > SystemTime::now() - KEPT);
    }

    #[test]
    fn where_no_link_can_be_made_the_one_of_the_right_name_will_do() {
        let none = || Err("no place".to_owned());
        let found = |library: &str| linked_or_as_it_is(Path::new(library), none()).ok();
        assert_eq!(found("/a/libibverbs.so.1"), Some(PathBuf::from("/a")));
        assert_eq!(found("/a/libibverbs.so"), None);
        assert_eq!(found("/a:b/libibverbs.so.1"), None);
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_not_trusted() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = Scratch::new("trust");
        let library = scratch.file("libibverbs.so");
        let ours = scratch.0.join(private::name());
        fs::create_dir(&ours).unwrap();
        fs::set_permissions(&ours, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(linked_in(&scratch.0, &library, &[SONAME]).is_err());
        fs::remove_dir(&ours).unwrap();
        symlink("/", &ours).unwrap();
        assert!(linked_in(&scratch.0, &library, &[SONAME]).is_err());
        fs::remove_file(&ours).unwrap();
        // A directory above it that somebody else can write, and so replace it.
        fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o777)).unwrap();
        let below = scratch.0.join("below");
        fs::create_dir(&below).unwrap();
        assert!(linked_in(&below, &library, &[SONAME]).is_err());
        assert_eq!(fs::read_dir(&below).unwrap().count(), 0, "nothing is made there");
    }
}
