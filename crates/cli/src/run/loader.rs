//! Variables for the loader: with them the program finds our libraries before others.

use super::library::Library;
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

/// Where the loader looks before the usual places.
const SEARCH: &str = "LD_LIBRARY_PATH";
/// What the loader puts before the program's own libraries.
const PRELOAD: &str = "LD_PRELOAD";

/// What the address sanitizer of GCC and Clang is told. It refuses to work where it is not the first
/// library, though it does behind ours, which hand on to it what the program allocates.
const SANITIZER: &str = "ASAN_OPTIONS";
const ANY_ORDER: &str = "verify_asan_link_order=0";

/// Makes the loader find our libibverbs. A program that asks for it by its name finds it on the search path. A program
/// that brings one of its own under another name finds our functions first, because this one is loaded before.
pub(super) fn lead(verbs: &Library, command: &mut Command) {
    if let Some(directory) = &verbs.directory {
        command.env(SEARCH, before(directory.as_os_str(), SEARCH));
    }
    // What the user says there comes later, and counts.
    command.env(SANITIZER, before(OsStr::new(ANY_ORDER), SANITIZER));
    preload(&[&verbs.file], command);
}

/// Has the loader find our librdmacm too. It comes behind our libibverbs, whose functions it uses.
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

/// Has the loader put these of our libraries before those of the program.
pub(super) fn preload(libraries: &[&Path], command: &mut Command) {
    let before = command.get_envs().find(|(name, _)| *name == PRELOAD);
    let before =
        before.map_or_else(|| env::var_os(PRELOAD), |(_, value)| value.map(OsStr::to_owned));
    let before = before.unwrap_or_default();
    let names = libraries.iter().filter_map(|library| library.file_name());
    let names: Vec<_> = names.map(OsStr::as_bytes).collect();
    // One of these from another build would come before.
    let is_other = |path: &&[u8]| {
        !path.is_empty()
            && !names.contains(&path.rsplit(|byte| *byte == b'/').next().unwrap_or_default())
    };
    let others = before.as_bytes().split(|byte| b": ".contains(byte)).filter(is_other);
    // Behind the others: some insist on being the first.
    let ours = libraries.iter().map(|library| library.as_os_str().as_bytes());
    let all: Vec<_> = others.chain(ours).collect();
    command.env(PRELOAD, OsStr::from_bytes(&all.join(&b':')));
}

/// The list in a variable, whose parts colons divide, with one more at its front.
fn before(first: &OsStr, variable: &str) -> OsString {
    let mut list = first.to_owned();
    if let Some(others) = env::var_os(variable).filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
}
