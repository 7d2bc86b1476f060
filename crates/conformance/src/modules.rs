//! Finds which modules of a crate import which modules beside them, in each folder.
//!
//! It reads the sources as text ([`Modules::read`]): every `use` with all its braces, and all paths that begin with
//! `crate`, `super`, `self` or the name of a child module. If a module gives another module's item a name of its own
//! (`use`, `pub use`), an import by that name counts as one from the module that has the item. For its neighbours, a
//! module and everything in it are one, and may use each other. Unit tests do not count: they may use anything.
//!
//! If modules import each other in a circle, you cannot understand, test or change one without the others.
//! [`Modules::circles`] finds such circles. [`Modules::upward`] finds imports that a list of layers, lowest
//! first, forbids.

mod read;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::{fs, io};

use self::read::Sources;

/// The name of a crate's root among its modules.
const ROOT: &str = "the root";

/// The modules of a crate, and what each imports from its neighbours.
#[derive(Debug)]
pub struct Modules {
    /// The modules directly below the root.
    top_level: BTreeSet<String>,
    /// For each importing and imported module, one of the imports: file and path.
    imports: BTreeMap<String, BTreeMap<String, String>>,
}

impl Modules {
    /// Reads the sources of a crate in a folder: `lib.rs`, or `main.rs` if there is none, and everything
    /// beside and below it.
    pub fn read(src: &Path) -> io::Result<Self> {
        let root = if src.join("lib.rs").is_file() { "lib.rs" } else { "main.rs" };
        let mut files = Vec::new();
        list(src, src, &mut files)?;
        // A binary beside the library is another crate.
        files.retain(|(name, _)| {
            let (is_root, is_binary) =
                (name == root, name == "main.rs" || name.starts_with("bin/"));
            is_root || !is_binary
        });
        Ok(Self::of(root, &files))
    }

    /// The same for sources in memory, by their names below `src`.
    fn of(root: &str, files: &[(String, String)]) -> Self {
        let sources = Sources::new(root, files);
        let mut imports: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for import in sources.imports() {
            let place = format!("{}: {}", import.file, import.path);
            imports.entry(import.from).or_default().entry(import.to).or_insert(place);
        }
        Self { top_level: sources.top_level(), imports }
    }

    /// The circles of imports, written out: a shortest one for each group of modules in a circle.
    pub fn circles(&self) -> Vec<String> {
        let mut left: BTreeSet<&str> = self.imports.keys().map(String::as_str).collect();
        let mut circles = Vec::new();
        loop {
            let shortest = left.iter().filter_map(|from| self.circle(from, &left));
            let Some(circle) = shortest.min_by_key(Vec::len) else { return circles };
            let arrows = circle.iter().zip(circle.iter().cycle().skip(1));
            circles
                .push(arrows.map(|(from, to)| self.arrow(from, to)).collect::<Vec<_>>().join("; "));
            left.retain(|module| !circle.contains(module));
        }
    }

    /// The shortest path from a module back to itself through the modules that are left.
    fn circle<'a>(&'a self, from: &'a str, left: &BTreeSet<&str>) -> Option<Vec<&'a str>> {
        let mut came_from = BTreeMap::new();
        let mut next = VecDeque::from([from]);
        while let Some(module) = next.pop_front() {
            for to in self.imports.get(module)?.keys().map(String::as_str) {
                if to == from {
                    let mut way = vec![module];
                    while way[0] != from {
                        way.insert(0, came_from[way[0]]);
                    }
                    return Some(way);
                }
                if left.contains(to) && !came_from.contains_key(to) {
                    came_from.insert(to, module);
                    next.push_back(to);
                }
            }
        }
        None
    }

    /// The violations of a list of layers, lowest first: imports from a higher layer, modules in no layer, and names
    /// that are not modules.
    pub fn upward(&self, layers: &[&[&str]]) -> Vec<String> {
        let layer = |module: &str| layers.iter().position(|layer| layer.contains(&module));
        let listed = layers.iter().copied().flatten();
        let gone = listed.filter(|name| !self.top_level.contains(**name));
        let mut wrong: Vec<_> = gone.map(|name| format!("{name} is no module")).collect();
        let new = self.top_level.iter().filter(|name| layer(name).is_none());
        wrong.extend(new.map(|name| format!("{name} is in no layer")));
        for (from, to) in
            self.imports.iter().flat_map(|(from, to)| to.keys().map(move |to| (from, to)))
        {
            if let (Some(low), Some(high)) = (layer(from), layer(to))
                && low < high
            {
                wrong.push(self.arrow(from, to));
            }
        }
        wrong
    }

    fn arrow(&self, from: &str, to: &str) -> String {
        format!("{from} imports {to} ({})", self.imports[from][to])
    }
}

/// The Rust files below a folder, by their names below `src`.
fn list(src: &Path, folder: &Path, to: &mut Vec<(String, String)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(src, &path, to)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(src).unwrap_or(&path).to_string_lossy().into_owned();
            to.push((name, fs::read_to_string(&path)?));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
