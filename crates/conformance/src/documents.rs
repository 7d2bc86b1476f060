//! The documents of the repository, and their content.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Compiles and runs its programs as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
mod of_rust {}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("it is there")
}

/// A document.
#[derive(Debug)]
pub struct Document {
    /// Its path in the repository.
    pub path: PathBuf,
    /// Its content.
    pub text: String,
}

impl Document {
    /// Reads the document at this path.
    pub fn read(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let text = fs::read_to_string(root().join(&path));
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { path, text }
    }

    /// All documents.
    pub fn all() -> Vec<Self> {
        let mut paths = Vec::new();
        let root = root();
        of_folder(&root, false, &mut paths).expect("the root");
        of_folder(&root.join("fuzz"), false, &mut paths).expect("its fuzzers");
        for folder in ["docs", "spec", "crates"] {
            of_folder(&root.join(folder), true, &mut paths).expect("a folder of it");
        }
        paths.sort();
        let read = |path: &PathBuf| Self::read(path.strip_prefix(&root).expect("below the root"));
        paths.iter().map(read).collect()
    }

    /// The blocks between fences, in order.
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::<Block>::new();
        let mut is_open = false;
        for (number, line) in (1..).zip(self.text.lines()) {
            match (line.strip_prefix("```"), is_open) {
                (Some(language), false) => {
                    let (language, text) = (language.to_owned(), String::new());
                    blocks.push(Block { language, line: number, text });
                }
                (None, true) => {
                    let block = blocks.last_mut().expect("the open one");
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                (None, false) => continue,
                (Some(_), true) => {}
            }
            is_open ^= line.starts_with("```");
        }
        blocks
    }

    /// The targets of its links and pictures.
    pub fn links(&self) -> Vec<String> {
        let prose = without_code(&self.prose());
        let links = prose.split("](").skip(1);
        links.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
    }

    /// The anchors of its headings, as GitHub and mdBook make them.
    pub fn anchors(&self) -> BTreeSet<String> {
        let mut anchors = BTreeSet::new();
        for line in self.prose().lines() {
            let title = line.trim_start_matches('#');
            if !(1..=6).contains(&(line.len() - title.len())) || !title.starts_with(' ') {
                continue;
            }
            let of = |letter: char| match letter {
                ' ' => Some('-'),
                '-' | '_' => Some(letter),
                letter => letter.is_alphanumeric().then(|| letter.to_ascii_lowercase()),
            };
            let name: String = title.trim().chars().filter_map(of).collect();
            let others = (1..).map(|number| format!("{name}-{number}"));
            let mut names = [name.clone()].into_iter().chain(others);
            let name = names.find(|name| !anchors.contains(name));
            anchors.extend(name);
        }
        anchors
    }

    /// The lines outside of fences.
    fn prose(&self) -> String {
        let mut is_open = false;
        let of_prose = |line: &&str| {
            let is_fence = line.starts_with("```");
            is_open ^= is_fence;
            !is_open && !is_fence
        };
        self.text.lines().filter(of_prose).flat_map(|line| [line, "\n"]).collect()
    }
}

/// A block between fences.
#[derive(Debug)]
pub struct Block {
    /// The language after the fence.
    pub language: String,
    /// The number of the fence's line.
    pub line: u32,
    /// Its lines.
    pub text: String,
}

/// A text without the parts between backticks.
fn without_code(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| {
        let parts: Vec<&str> = paragraph.split('`').collect();
        parts.iter().step_by(2).copied().collect::<String>()
    });
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

/// The documents in a folder, and also in its subfolders if `below`.
fn of_folder(folder: &Path, below: bool, to: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && below {
            of_folder(&path, below, to)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            to.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_taken_apart() {
        let text = "\
# One `thing`, and another\nA [link](a.md#b) `[none](c)` and\n[one\nmore](d.md).\n
```sh\n# no heading\n[none](e)\n```
## Two\n```\nx\n```\n## Two\n";
        let document = Document { path: "x.md".into(), text: text.to_owned() };
        assert_eq!(document.links(), ["a.md#b", "d.md"]);
        let anchors = ["one-thing-and-another", "two", "two-1"];
        assert_eq!(document.anchors(), anchors.map(str::to_owned).into());
        let blocks = document.blocks();
        let blocks: Vec<_> = blocks.iter().map(|it| (&*it.language, it.line, &*it.text)).collect();
        assert_eq!(blocks, [("sh", 6, "# no heading\n[none](e)\n"), ("", 11, "x\n")]);
    }
}
