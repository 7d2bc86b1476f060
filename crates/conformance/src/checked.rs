//! Programs in `tests/c/checked` under `transom check`: each mistake has a name, a wrong form and a right form.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use transom_check::Kind;
use transom_check::record::{Finding, Record, read};

use crate::c_programs::compile;
use crate::processes::Scratch;
use crate::programs::{Running, library, preloaded};

/// How long one of them may take.
const LIMIT: Duration = Duration::from_secs(60);

/// A C program with several mistakes to choose from.
pub struct Checked {
    scratch: Scratch,
    source: PathBuf,
    binary: PathBuf,
    libraries: PathBuf,
    preloaded: String,
}

impl Checked {
    /// Compiles the program of this name. `tmp` is the test's `CARGO_TARGET_TMPDIR`.
    pub fn new(name: &str, tmp: &str, libraries: &[&str]) -> Self {
        // Several tests of one process may have the same program.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Relaxed);
        let scratch = Scratch::new(&format!("checked-{name}-{count}"));
        let source = format!("checked/{name}.c");
        let binary = compile(&scratch, &source, name, libraries);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
        let (libraries, preloaded) = (library(tmp).to_owned(), String::new());
        Self { scratch, source, binary, libraries, preloaded }
    }

    /// The same, with what `transom check` preloads.
    pub fn preloading(self) -> Self {
        Self { preloaded: preloaded(), ..self }
    }

    /// The program.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Runs the program with these arguments. Returns the findings.
    pub fn run(&self, arguments: &[&str]) -> Vec<Finding> {
        let directory = self.scratch.path().join(arguments.join("-"));
        fs::create_dir(&directory).expect("the scratch folder is ours");
        let mut command = Command::new(&self.binary);
        command.args(arguments).env("LD_LIBRARY_PATH", &self.libraries);
        command.env("TRANSOM_CHECK", &directory);
        if !self.preloaded.is_empty() {
            command.env("LD_PRELOAD", &self.preloaded);
        }
        let run = Running::start(&mut command).success(LIMIT);
        run.unwrap_or_else(|problem| panic!("{arguments:?}: {problem}"));
        let files = fs::read_dir(&directory).expect("it was made above");
        let texts = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
        let records = texts.flat_map(|text| read(&text));
        let found = records.filter_map(|record| match record {
            Record::Finding(finding) => Some(finding),
            _ => None,
        });
        found.collect()
    }

    /// Runs the wrong form of this kind, which must be found, and the right form, which must have no findings. The
    /// finding must name the lines with these marks in the source.
    pub fn shows(&self, kind: Kind, marks: &[&str]) {
        let wrong = self.run(&[kind.name(), "wrong"]);
        let found = wrong.iter().find(|finding| finding.kind == kind);
        let found = found.unwrap_or_else(|| panic!("{} is not found: {wrong:#?}", kind.name()));
        let lines = self.lines_of(found);
        for mark in marks {
            let marked = self.marked(kind, mark);
            assert!(
                !lines.is_disjoint(&marked),
                "no {mark:?}, {marked:?}, in {lines:?}: {found:#?}"
            );
        }
        let right = self.run(&[kind.name(), "right"]);
        assert_eq!(right, [], "the right form of {}", kind.name());
    }

    /// The lines of the source in a finding's calls.
    fn lines_of(&self, finding: &Finding) -> BTreeSet<usize> {
        let own = |module: &str| Path::new(module) == self.binary;
        let frames = finding.sites.iter().flat_map(|site| &site.frames);
        let offsets = frames.filter(|frame| own(&frame.module));
        let mut command = Command::new("addr2line");
        command.arg("-ie").arg(&self.binary);
        command.args(offsets.map(|frame| format!("{:x}", frame.offset - 1)));
        let printed = Running::start(&mut command).finish(LIMIT);
        let source = self.source.to_str().expect("a path in UTF-8");
        let lines = printed.lines().filter_map(|line| line.strip_prefix(source)?.strip_prefix(':'));
        lines.filter_map(|line| line.split(' ').next()?.parse().ok()).collect()
    }

    /// The lines with a mark, in the function of the mistake.
    fn marked(&self, kind: Kind, mark: &str) -> BTreeSet<usize> {
        let text = fs::read_to_string(&self.source).expect("the source is there");
        let begins = format!("static void {}(", kind.name().replace('-', "_"));
        let lines = text.lines().enumerate().skip_while(|(_, line)| !line.starts_with(&begins));
        let function = lines.take_while(|(_, line)| *line != "}");
        let marked = function.filter(|(_, line)| line.ends_with(&format!("/* {mark} */")));
        marked.map(|(at, _)| at + 1).collect()
    }
}
