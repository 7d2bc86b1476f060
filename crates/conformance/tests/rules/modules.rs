//! The modules of a crate, and of each folder in it, import each other in no circle, and no lower layer imports a
//! higher one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::{env, fs};

use transom_conformance::modules::Modules;

/// Crates whose modules may import each other in circles, and why.
const KNOTS: [(&str, &str); 1] =
    [("abi", "the structs of verbs.h name each other by pointers, and lie in files by subject")];

/// The layers of a crate, lowest first: what is in one may import its neighbours and what is below.
const LAYERS: [(&str, &[&[&str]]); 2] = [
    (
        "device",
        &[
            &["access", "numbered", "sync"],
            &["qp"],
            &["operation"],
            &["protection"],
            &["queue"],
            &["execution"],
            &["transport"],
        ],
    ),
    (
        "host",
        &[
            &["events"],
            &["device"],
            &["connections"],
            &["objects"],
            &["capture", "process", "progress"],
            &["opening"],
        ],
    ),
];

/// All crates of the workspace, and the programs beside their libraries.
static CRATES: LazyLock<BTreeMap<String, Modules>> = LazyLock::new(|| {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = BTreeMap::new();
    for krate in folders(&crates).filter(|path| path.join("Cargo.toml").is_file()) {
        let name = name_of(&krate);
        let programs =
            folders(&krate.join("src/bin")).filter(|path| path.join("main.rs").is_file());
        for program in programs {
            all.insert(format!("{name}'s {}", name_of(&program)), read(&program));
        }
        all.insert(name, read(&krate.join("src")));
    }
    all
});

fn read(src: &Path) -> Modules {
    Modules::read(src).unwrap_or_else(|error| panic!("{}: {error}", src.display()))
}

/// The folders in one; none if that is not there.
fn folders(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_dir())
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[test]
fn modules_import_each_other_in_no_circle() {
    let knot = |name: &str| KNOTS.iter().any(|(knot, _)| *knot == name);
    let mut found = Vec::new();
    for (name, modules) in CRATES.iter().filter(|(name, _)| !knot(name)) {
        found.extend(modules.circles().into_iter().map(|circle| format!("{name}: {circle}")));
    }
    assert!(found.is_empty(), "circles of imports ({}):\n  {}", found.len(), found.join("\n  "));
}

#[test]
fn no_layer_imports_one_above_it() {
    let mut found = Vec::new();
    for (name, layers) in LAYERS {
        let upward = CRATES[name].upward(layers).into_iter();
        found.extend(upward.map(|what| format!("{name}: {what}")));
    }
    assert!(found.is_empty(), "against the layers ({}):\n  {}", found.len(), found.join("\n  "));
}

#[test]
fn no_excuse_for_circles_has_outlived_them() {
    for (name, why) in KNOTS {
        assert!(!CRATES[name].circles().is_empty(), "{name} has no circle any more: {why}");
    }
}
