//! Makes the site of the documents with mdBook, and checks its links.

use crate::commands::{Result, cargo, run};
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// The version to install if there is none.
const MDBOOK: &str = "0.5.4";

/// Makes it in target/site/html, and fails if a link in it is broken.
pub(crate) fn site() -> Result {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let mdbook = mdbook(&root)?;
    let site = built(&root).join("site");
    let _ = fs::remove_dir_all(&site);
    fs::create_dir_all(site.join("source"))?;
    lay_out(&root, &site.join("source"))?;
    fs::copy(root.join("docs/book.toml"), site.join("book.toml"))?;
    let summary = fs::read_to_string(root.join("docs/SUMMARY.md"))?;
    fs::write(site.join("source/SUMMARY.md"), from_the_root(&summary))?;
    run(Command::new(mdbook).arg("build").arg(&site))?;
    let html = site.join("html");
    let pages = pages(&html)?;
    let nowhere = nowhere(&html, &pages);
    if !nowhere.is_empty() {
        return Err(format!("links that lead nowhere:\n  {}", nowhere.join("\n  ")).into());
    }
    println!("{} pages: {}", pages.len(), html.join("index.html").display());
    Ok(())
}

/// The mdBook in PATH, or one of this workspace's own. That one is compiled the first time, without optimization,
/// because optimizing takes three times as long and mdBook runs for a second or two. It is not a dependency: its
/// features would change those of our crates, and its licence (MPL-2.0) differs.
fn mdbook(root: &Path) -> Result<PathBuf> {
    let folders = env::var_os("PATH").unwrap_or_default();
    let mut places = env::split_paths(&folders).map(|folder| folder.join("mdbook"));
    if let Some(found) = places.find(|place| place.is_file()) {
        return Ok(found);
    }
    let own = built(root).join("mdbook");
    let command = own.join("bin/mdbook");
    if !command.is_file() {
        run(Command::new(cargo())
            .args(["install", "--quiet", "--locked", "--debug", "mdbook", "--version", MDBOOK])
            .args(["--no-default-features", "--root"])
            .arg(own)
            .env("CARGO_PROFILE_DEV_DEBUG", "0"))?;
    }
    Ok(command)
}

/// Copies the files of the repository into the source folder, because documents link to sources too. mdBook takes all
/// files it finds, so build output is left out.
fn lay_out(root: &Path, source: &Path) -> Result {
    let built = fs::read_to_string(root.join(".gitignore"))?;
    let built: Vec<_> = built.lines().map(|line| root.join(line.trim_start_matches('/'))).collect();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let path = entry.path();
            if entry.file_name().as_encoded_bytes().starts_with(b".") || built.contains(&path) {
                continue;
            }
            let to = source.join(path.strip_prefix(root)?);
            if path.is_dir() {
                fs::create_dir_all(to)?;
                folders.push(path);
            } else {
                fs::copy(path, to)?;
            }
        }
    }
    Ok(())
}

/// The folder of cargo's output.
fn built(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// The table of contents with links from the root instead of from `docs`, as mdBook takes them here.
fn from_the_root(summary: &str) -> String {
    let mut parts = summary.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let (link, rest) = part.split_once(')').unwrap_or((part, ""));
        let link = resolve(&Path::new("docs").join(link));
        format!("{text}]({}){rest}", link.display())
    })
}

/// The ids and links of a page.
#[derive(Default)]
struct Page {
    ids: BTreeSet<String>,
    links: BTreeSet<String>,
}

/// The pages of a site, by their paths in it.
fn pages(html: &Path) -> Result<BTreeMap<PathBuf, Page>> {
    let mut pages = BTreeMap::new();
    let mut folders = vec![html.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "html") {
                let page = read(&fs::read_to_string(&path)?);
                pages.insert(path.strip_prefix(html)?.to_owned(), page);
            }
        }
    }
    Ok(pages)
}

/// The attribute values of a page's elements. A page's text has its angle brackets escaped.
fn read(text: &str) -> Page {
    let mut page = Page::default();
    for element in text.split('<').skip(1).filter_map(|rest| Some(rest.split_once('>')?.0)) {
        let values = |name: &str| {
            let begin = format!(" {name}=\"");
            let (_, rest) = element.split_once(&begin)?;
            Some(rest.split_once('"')?.0.replace("&amp;", "&"))
        };
        page.ids.extend(values("id"));
        page.links.extend(values("href").into_iter().chain(values("src")));
    }
    page
}

/// The links within the site to files or places that do not exist.
fn nowhere(html: &Path, pages: &BTreeMap<PathBuf, Page>) -> Vec<String> {
    let mut nowhere = Vec::new();
    for (path, page) in pages {
        let folder = path.parent().unwrap_or(Path::new(""));
        for link in page.links.iter().filter(|link| !link.contains(':')) {
            let (file, place) = link.split_once('#').unwrap_or((link, ""));
            let to = if file.is_empty() { path.clone() } else { resolve(&folder.join(file)) };
            let is_there = match pages.get(&to) {
                Some(page) => place.is_empty() || page.ids.contains(place),
                None => html.join(&to).is_file(),
            };
            if !is_there {
                nowhere.push(format!("{}: {link}", path.display()));
            }
        }
    }
    nowhere
}

/// A path without `.` and `..`.
fn resolve(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(resolved.pop()),
            Component::Normal(name) => resolved.push(name),
            _ => {}
        }
    }
    resolved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contents_are_told_from_the_root() {
        let summary = "# Summary\n\n[Transom](../README.md)\n\n- [Run](run.md)\n";
        let expected = "# Summary\n\n[Transom](README.md)\n\n- [Run](docs/run.md)\n";
        assert_eq!(from_the_root(summary), expected);
    }

    #[test]
    fn links_lead_to_pages_and_places_in_them() {
        let page = |text: &str| read(text);
        let pages = BTreeMap::from([
            (
                "index.html".into(),
                page(
                    "<a href=\"docs/run.html#ask-why\">a</a> <a href=\"docs/gone.html\">\
                     <a href='#x'> <a href=\"https://example.org/\">",
                ),
            ),
            (
                "docs/run.html".into(),
                page("<h2 id=\"ask-why\">&lt;a href=\"x\"&gt;</h2> <img src=\"../index.html#no\">"),
            ),
        ]);
        let expected = ["docs/run.html: ../index.html#no", "index.html: docs/gone.html"];
        assert_eq!(nowhere(Path::new("/nonexistent"), &pages), expected);
    }
}
