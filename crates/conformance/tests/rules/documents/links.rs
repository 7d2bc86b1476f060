//! Where the documents lead to: what they say is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use transom_conformance::documents::{Document, root};

/// What the site is made of, in order.
const SUMMARY: &str = "docs/SUMMARY.md";

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let root = root();
    let documents = Document::all();
    let anchors: BTreeMap<&Path, _> =
        documents.iter().map(|document| (&*document.path, document.anchors())).collect();
    let leads_somewhere = |from: &Path, link: &str| {
        let (to, anchor) = target(from, link);
        // A folder is nothing on the site.
        root.join(&to).is_file()
            && (anchor.is_empty()
                || anchors.get(&*to).is_some_and(|anchors| anchors.contains(anchor)))
    };
    let mut nowhere = Vec::new();
    for document in &documents {
        let links = document.links().into_iter().filter(|link| !is_elsewhere(link));
        let links = links.filter(|link| !leads_somewhere(&document.path, link));
        nowhere.extend(links.map(|link| format!("{}: {link}", document.path.display())));
    }
    assert!(nowhere.is_empty(), "links that lead nowhere:\n  {}", nowhere.join("\n  "));
}

/// Those of the root, of `docs` and its folders, of `spec`, and all that one of the site links to.
#[test]
fn the_site_has_every_document() {
    let documents = Document::all();
    let links_of = |document: &Document| -> BTreeSet<PathBuf> {
        let links = document.links().into_iter().filter(|link| !is_elsewhere(link));
        links.map(|link| target(&document.path, &link).0).collect()
    };
    let (summary, others): (Vec<_>, Vec<_>) =
        documents.iter().partition(|document| document.path == Path::new(SUMMARY));
    let listed = links_of(summary[0]);
    let linked: BTreeSet<_> = others
        .iter()
        .filter(|document| listed.contains(&document.path))
        .flat_map(|document| links_of(document))
        .collect();
    let belongs = |document: &&&Document| {
        let folder = document.path.parent().expect("a file is in a folder");
        ["", "docs", "docs/contributing", "docs/design", "spec"]
            .iter()
            .any(|it| folder == Path::new(it))
            || linked.contains(&document.path)
    };
    let missing: Vec<_> = others
        .iter()
        .filter(belongs)
        .map(|document| &document.path)
        .filter(|path| !listed.contains(*path))
        .collect();
    assert!(missing.is_empty(), "not in {SUMMARY}: {missing:?}");
}

/// The program is the crate's own, which every build compiles.
#[test]
fn the_readme_shows_an_example_as_it_is() {
    let shown: Vec<_> = Document::read("README.md").blocks();
    let shown: Vec<_> = shown.iter().filter(|block| block.language == "rust").collect();
    let example = fs::read_to_string(root().join("crates/transom/examples/revoke.rs"));
    assert!(shown.len() == 1 && shown[0].text == example.expect("it is there"));
}

/// The first by the test above, the others as doctests.
#[test]
fn every_program_of_rust_is_compiled() {
    let with_programs: Vec<PathBuf> = Document::all()
        .into_iter()
        .filter(|document| document.blocks().iter().any(|block| block.language == "rust"))
        .map(|document| document.path)
        .collect();
    let compiled = ["README.md", "crates/transom/README.md", "docs/rust.md"].map(PathBuf::from);
    assert_eq!(with_programs, compiled);
    for (file, text) in [
        ("crates/transom/src/lib.rs", "#![doc = include_str!(\"../README.md\")]"),
        ("crates/conformance/src/documents.rs", "#[doc = include_str!(\"../../../docs/rust.md\")]"),
    ] {
        let source = fs::read_to_string(root().join(file)).expect("it is there");
        assert!(source.contains(text), "{file}");
    }
}

fn is_elsewhere(link: &str) -> bool {
    link.starts_with("https://")
}

/// The file that a link in a document leads to, and the heading there.
fn target<'a>(from: &Path, link: &'a str) -> (PathBuf, &'a str) {
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    if file.is_empty() {
        return (from.to_owned(), anchor);
    }
    let mut to = PathBuf::new();
    let folder = from.parent().expect("a file is in a folder");
    for component in folder.join(file).components() {
        match component {
            Component::ParentDir => assert!(to.pop(), "{}: {link}", from.display()),
            other => to.push(other),
        }
    }
    (to, anchor)
}
