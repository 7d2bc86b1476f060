//! The manifests: what crates.io gets of this workspace, and which programs and libraries have tests.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::{env, fs};

use serde::Deserialize;

#[derive(Deserialize)]
struct Workspace {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    manifest_path: String,
    /// The registries that may have it: none, or any.
    publish: Option<Vec<String>>,
    description: Option<String>,
    license: Option<String>,
    rust_version: Option<String>,
    readme: Option<String>,
    keywords: Vec<String>,
    categories: Vec<String>,
    dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
    src_path: PathBuf,
    /// Whether `cargo test` compiles its tests, and runs the examples of its documentation.
    test: bool,
    doctest: bool,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    req: String,
    kind: Option<String>,
    optional: bool,
    /// Where it is, if it is in this workspace.
    path: Option<String>,
}

static PACKAGES: LazyLock<Vec<Package>> = LazyLock::new(|| {
    let said = cargo(&["metadata", "--no-deps", "--format-version=1", "--locked"]);
    let workspace: Workspace = serde_json::from_str(&said).expect("what cargo says");
    workspace.packages
});

static PUBLISHED: LazyLock<Vec<&Package>> =
    LazyLock::new(|| PACKAGES.iter().filter(|package| package.publish.is_none()).collect());

/// What a command of cargo's says.
fn cargo(arguments: &[&str]) -> String {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let done = Command::new(cargo)
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("text")
}

#[test]
fn the_api_and_the_command_are_published_with_all_that_they_need() {
    let names: BTreeSet<_> = PUBLISHED.iter().map(|package| package.name.as_str()).collect();
    assert!(names.contains("transom") && names.contains("transom-cli"), "{names:?}");
    for package in &*PUBLISHED {
        for dependency in package.dependencies.iter().filter(|other| other.path.is_some()) {
            let (name, needed) = (&package.name, &dependency.name);
            if dependency.kind.as_deref() == Some("dev") && !names.contains(needed.as_str()) {
                assert_eq!(
                    dependency.req, "*",
                    "{name}: with a version {needed} must be published"
                );
            } else {
                assert!(names.contains(needed.as_str()), "{name} needs {needed}");
                // They are made for each other: no other release will do.
                assert_eq!(dependency.req, format!("={}", package.version), "{name}: {needed}");
            }
        }
    }
}

#[test]
fn what_is_published_says_what_it_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &Path| fs::read(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    for package in &*PUBLISHED {
        let name = &package.name;
        assert!(package.description.is_some() && package.rust_version.is_some(), "{name}");
        assert_eq!(package.license.as_deref(), Some("MIT OR Apache-2.0"), "{name}");
        assert!(!package.keywords.is_empty() && !package.categories.is_empty(), "{name}");
        assert!(package.readme.is_some(), "{name} has no README.md");
        let folder = Path::new(&package.manifest_path).with_file_name("");
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            assert_eq!(read(&folder.join(licence)), read(&root.join(licence)), "{name}: {licence}");
        }
    }
}

/// A program for adapters leaves the feature `software` out, and links nothing of ours but the C types.
#[test]
fn without_the_software_device_nothing_of_it_is_needed() {
    let needed = |features: &[&str]| {
        let tree = ["tree", "--package=transom", "--edges=normal", "--prefix=none", "--locked"];
        let said = cargo(&[&tree, features].concat());
        let names = said.lines().filter_map(|line| line.split(' ').next());
        let ours = names.filter(|name| name.starts_with("transom")).map(str::to_owned);
        ours.collect::<BTreeSet<_>>()
    };
    assert_eq!(
        needed(&["--no-default-features"]),
        ["transom", "transom-abi", "transom-thread"].map(Into::into).into()
    );
    assert!(needed(&[]).contains("transom-device"));
}

/// A program or library without tests says so in its manifest, and none is compiled for it. So it may get no test, and
/// no example in its documentation, before that line goes.
#[test]
fn what_is_not_tested_has_no_tests() {
    let mut looked_at = 0;
    for target in PACKAGES.iter().flat_map(|package| &package.targets) {
        let is_library = target.kind.iter().any(|kind| kind.ends_with("lib"));
        if !is_library && !target.kind.iter().any(|kind| kind == "bin") {
            continue;
        }
        for file in sources(target) {
            looked_at += 1;
            let text = fs::read_to_string(&file).expect("a source");
            let mut lines = text.lines().map(str::trim_start);
            let tests =
                lines.any(|line| ["#[test]", "proptest!"].iter().any(|it| line.starts_with(it)));
            // Of a pair, the first says the language. None is Rust.
            let fences = text.lines().filter_map(|line| {
                let comment = line.trim_start();
                let comment = comment.strip_prefix("///").or_else(|| comment.strip_prefix("//!"));
                comment?.trim_start().strip_prefix("```")
            });
            let examples = fences.step_by(2).any(|language| language != "text");
            let (name, file) = (&target.name, file.display());
            assert!(target.test || !tests, "{name} has test = false, and a test in {file}");
            assert!(
                !is_library || target.doctest || !examples,
                "{name} has doctest = false, and an example in {file}"
            );
        }
    }
    assert!(looked_at > 300, "{looked_at} sources");
}

/// The files of a program or library. Beside a library, a program is one file.
fn sources(target: &Target) -> Vec<PathBuf> {
    let main = &target.src_path;
    let name = main.file_name().and_then(|name| name.to_str());
    let is_all = match name {
        Some("lib.rs") => true,
        Some("main.rs") => !main.with_file_name("lib.rs").exists(),
        _ => false,
    };
    if !is_all {
        return vec![main.clone()];
    }
    let mut folders = vec![main.with_file_name("")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            match path.is_dir() {
                true if path.ends_with("src/bin") => {}
                true => folders.push(path),
                false => files.extend((path.extension() == Some("rs".as_ref())).then_some(path)),
            }
        }
    }
    files
}

/// The fuzzer is a workspace of its own, with a lock file of its own, and only a long run compiles it.
#[test]
fn the_lock_file_of_the_fuzzer_has_what_our_crates_depend_on() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/Cargo.lock");
    let text = fs::read_to_string(file).expect("it is there");
    let mut found = 0;
    for locked in text.split("[[package]]") {
        let mut words = locked.split('"').skip(1).step_by(2);
        let Some(package) = PACKAGES.iter().find(|it| words.clone().next() == Some(&it.name))
        else {
            continue;
        };
        let words: BTreeSet<_> = words.by_ref().map(|it| it.split(' ').next().unwrap()).collect();
        let needed = package.dependencies.iter().filter(|it| it.kind.is_none() && !it.optional);
        let missing: Vec<_> =
            needed.map(|it| it.name.as_str()).filter(|it| !words.contains(it)).collect();
        let mend = "cargo metadata --manifest-path fuzz/Cargo.toml";
        assert!(missing.is_empty(), "{}: {missing:?} is missing. `{mend}` adds it", package.name);
        found += 1;
    }
    assert!(found > 10, "{found}");
}
