//! The places of a call that people see, and their form. It leaves out places in our own libraries, and those in which
//! every program begins.

use std::path::{Path, PathBuf};

use super::found::Call;
use super::symbols::{Place, Source};

/// At most this many of each call. `--json` has all.
const SHOWN: usize = 4;

/// Headers whose inlined functions stand for the verb that the program calls.
const HEADERS: [&str; 3] = ["infiniband/verbs.h", "rdma/rdma_verbs.h", "rdma/rdma_cma.h"];

/// Functions in which a thread or program begins.
const BEGINNINGS: [&str; 8] = [
    "_start",
    "__libc_start_main",
    "__libc_start_main_impl",
    "__libc_start_call_main",
    "start_thread",
    "clone",
    "clone3",
    "__clone3",
];

/// The places that show where a call is in the program, innermost first. If the program called a function of librdmacm,
/// that function comes first.
pub(crate) fn places(call: &Call) -> Vec<&Place> {
    // Before the beginning there is only code that begins. In a program without symbols it has no names.
    let within = call.places.iter().take_while(|place| !is_beginning(place)).count();
    let all: Vec<&Place> = call.places.iter().take(within.max(1)).collect();
    let first = first(&all);
    all[first..].iter().copied().take(SHOWN).collect()
}

/// The verb that the program called there, as the place inside the first of these has it.
pub(crate) fn verb(call: &Call) -> Option<&str> {
    let all: Vec<&Place> = call.places.iter().collect();
    all[..first(&all)].last()?.function.as_deref()
}

/// The index of the first place that is shown.
fn first(all: &[&Place]) -> usize {
    let of_verbs = all.iter().take_while(|place| is_of_verbs(place)).count();
    let after = &all[of_verbs..];
    let of_connections = after.iter().take_while(|place| is_of_connections(place)).count();
    // Its outermost function is the one that the program called.
    let skipped = of_verbs + of_connections.saturating_sub(1);
    let skipped = skipped.min(all.len().saturating_sub(1));
    // The C library calls back when the program forks or exits.
    let own = all.iter().skip(skipped).position(|place| !is_of_libc(place));
    skipped + own.unwrap_or(0)
}

fn is_of_libc(place: &Place) -> bool {
    place.module_name().starts_with("libc.so")
}

/// The first of these places that has a line in a file.
pub(crate) fn source(call: &Call) -> Option<(&Place, &Source)> {
    places(call).into_iter().find_map(|place| Some((place, place.source.as_ref()?)))
}

fn is_beginning(place: &Place) -> bool {
    place.function.as_deref().is_some_and(|name| BEGINNINGS.contains(&name))
}

/// Whether it is in the device, or in a header function for the device.
fn is_of_verbs(place: &Place) -> bool {
    let module = place.module_name();
    let is_ours = module.starts_with("libibverbs.so") || module.starts_with("libtransom_");
    // A program may have the device linked in.
    let is_linked = place.function.as_deref().is_some_and(|name| name.starts_with("transom_"));
    let is_in_header = |source: &Source| HEADERS.iter().any(|it| source.file.ends_with(it));
    is_ours || is_linked || place.source.as_ref().is_some_and(is_in_header)
}

fn is_of_connections(place: &Place) -> bool {
    place.module_name().starts_with("librdmacm.so")
}

/// Whether its source file helps the user: it is not our own library's.
pub(crate) fn has_user_source(place: &Place) -> bool {
    place.source.is_some() && !is_of_connections(place)
}

/// The program or library of a call that shows no line of source code, though the user could have it show one.
pub(crate) fn without_lines(calls: &[Call]) -> Option<&str> {
    let shown = || calls.iter().flat_map(places);
    let module = shown().next()?.module_name();
    let has_lines = shown().any(has_user_source);
    (!has_lines && !module.is_empty()).then_some(module)
}

/// A place in words: `server.c:83 in finish`.
pub(crate) fn place(place: &Place, from: &Path) -> String {
    let function = place.function.as_deref();
    match (&place.source, function) {
        (Some(source), function) if has_user_source(place) => {
            let function = function.map_or(String::new(), |name| format!(" in {name}"));
            format!("{}:{}{function}", relative(&source.file, from).display(), source.line)
        }
        (_, Some(function)) if is_of_connections(place) => format!("{function}, of librdmacm"),
        (_, Some(function)) => format!("{function} ({})", raw(place)),
        (_, None) => raw(place),
    }
}

/// A place without a function name.
fn raw(place: &Place) -> String {
    let Place { offset, .. } = place;
    match place.module_name() {
        "" => format!("code in no file, at {offset:#x}"),
        module => format!("{module}+{offset:#x}"),
    }
}

/// A file's name relative to a directory, if it is below that directory.
pub(crate) fn relative(file: &Path, from: &Path) -> PathBuf {
    file.strip_prefix(from).unwrap_or(file).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(module: &str, function: &str, file: &str) -> Place {
        let source = Source { file: file.into(), line: 3, column: None };
        Place {
            module: module.into(),
            offset: 0x40,
            function: Some(function.into()),
            source: (!file.is_empty()).then_some(source),
            inlined: false,
        }
    }

    fn shown(places: Vec<Place>) -> Vec<String> {
        let call = Call { what: "here".into(), thread: 1, places };
        super::places(&call).into_iter().map(|it| place(it, Path::new("/src"))).collect()
    }

    #[test]
    fn a_call_begins_where_the_program_calls() {
        let verbs = || at("/lib/libibverbs.so.1", "ibv_destroy_qp", "/transom/qp.rs");
        let header = at("/bin/server", "ibv_post_send", "/usr/include/infiniband/verbs.h");
        let own = || at("/bin/server", "finish", "/src/server.c");
        let main = at("/bin/server", "main", "/src/server.c");
        let libc = || at("/lib/libc.so.6", "__libc_start_call_main", "");
        let start = at("/bin/server", "_start", "");
        let expected = ["server.c:3 in finish", "server.c:3 in main"];
        assert_eq!(shown(vec![verbs(), verbs(), own(), main.clone(), libc(), start]), expected);
        assert_eq!(shown(vec![header, own(), main]), expected);
        let cm = |name| at("/lib/librdmacm.so.1.3.56", name, "/transom/id.rs");
        let by_cm = shown(vec![verbs(), cm("destroy"), cm("rdma_destroy_qp"), own()]);
        assert_eq!(by_cm, ["rdma_destroy_qp, of librdmacm", "server.c:3 in finish"]);
        let stripped = |offset| Place { offset, ..at("/bin/server", "", "") };
        let stripped = |offset| Place { function: None, ..stripped(offset) };
        assert_eq!(shown(vec![stripped(0x50), libc(), stripped(0x60)]), ["server+0x50"]);
        let fork = |name| at("/lib/libc.so.6", name, "/glibc/fork.c");
        let forks = vec![verbs(), fork("__run_prefork_handlers"), fork("fork"), own()];
        assert_eq!(shown(forks), ["server.c:3 in finish"]);
        assert_eq!(shown(vec![verbs(), fork("fork")]), ["/glibc/fork.c:3 in fork"]);
        // There is always at least one place.
        assert_eq!(
            shown(vec![verbs()]),
            ["qp.rs:3 in ibv_destroy_qp".replace("qp.rs", "/transom/qp.rs")]
        );
        assert_eq!(shown(vec![libc()]), ["__libc_start_call_main (libc.so.6+0x40)"]);
        assert!(shown(vec![]).is_empty());
    }

    #[test]
    fn not_more_than_some_places_are_shown() {
        let own = |_| at("/bin/server", "again", "/src/server.c");
        assert_eq!(shown((0..12).map(own).collect()).len(), SHOWN);
    }

    #[test]
    fn a_place_without_names_has_its_module_or_its_address() {
        let place =
            |module: &str| Place { module: module.into(), offset: 0x1a40, ..Place::default() };
        assert_eq!(shown(vec![place("/bin/server")]), ["server+0x1a40"]);
        assert_eq!(shown(vec![place("")]), ["code in no file, at 0x1a40"]);
    }
}
