//! Variables for the loader. They make the program find our libraries before others.

use super::library::Library;
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

/// Directories that the loader searches before the usual ones.
const SEARCH: &str = "LD_LIBRARY_PATH";
/// Libraries that the loader puts before the program's own.
const PRELOAD: &str = "LD_PRELOAD";

/// Options of GCC's and Clang's address sanitizer. By default it refuses to work if it is not the first library. It
/// does work behind ours, which hand the program's allocations on to it.
const SANITIZER: &str = "ASAN_OPTIONS";
const ANY_ORDER: &str = "verify_asan_link_order=0";

/// Makes the loader find our libibverbs. A program that asks for it by its name finds it on the search path. A program
/// that brings a copy of its own under another name still finds our functions first, because ours is loaded before.
pub(super) fn lead(verbs: &Library, command: &mut Command) {
    if let Some(directory) = &verbs.directory {
        command.env(SEARCH, before(directory.as_os_str(), SEARCH));
    }
    // The user's options come later, and take precedence.
    command.env(SANITIZER, before(OsStr::new(ANY_ORDER), SANITIZER));
    preload(&[&verbs.file], command);
}

/// Makes the loader find our librdmacm too. It comes after our libibverbs, because it uses its functions.
pub(super) fn lead_connections(connections: &Library, command: &mut Command) {
    if let Some(directory) = &connections.directory {
        let path = match command.get_envs().find(|(name, _)| *name == SEARCH) {
            Some((_, Some(path))) if env::split_paths(path).any(|other| other == *directory) => {
                path.to_owned()
            }
            Some((_, Some(path))) => {
                let mut path = path.to_owned();
                path.push(":");
                path.push(directory);
                path
            }
            _ => before(directory.as_os_str(), SEARCH),
        };
        command.env(SEARCH, path);
    }
    preload(&[&connections.file], command);
}

/// Makes the loader put these of our libraries before those of the program.
pub(super) fn preload(libraries: &[&Path], command: &mut Command) {
    let before = command.get_envs().find(|(name, _)| *name == PRELOAD);
    let before =
        before.map_or_else(|| env::var_os(PRELOAD), |(_, value)| value.map(OsStr::to_owned));
    let before = before.unwrap_or_default();
    let names = libraries.iter().filter_map(|library| library.file_name());
    let names: Vec<_> = names.map(OsStr::as_bytes).collect();
    // The same library of another build would come before ours.
    let is_other = |path: &&[u8]| {
        !path.is_empty()
            && !names.contains(&path.rsplit(|byte| *byte == b'/').next().unwrap_or_default())
    };
    let others = before.as_bytes().split(|byte| b": ".contains(byte)).filter(is_other);
    // Ours come after the others, because some insist on being first.
    let ours = libraries.iter().map(|library| library.as_os_str().as_bytes());
    let all: Vec<_> = others.chain(ours).collect();
    command.env(PRELOAD, OsStr::from_bytes(&all.join(&b':')));
}

/// The colon-separated list in a variable, with one more entry at its front.
fn before(first: &OsStr, variable: &str) -> OsString {
    let mut list = first.to_owned();
    if let Some(others) = env::var_os(variable).filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
}
