//! Programs in `tests/c/checked` under `transom check`: each mistake has a name, a wrong form and a right form.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use transom_check::Kind;
use transom_check::record::{Finding, Record, UNWANTED, read};

use crate::c_programs::compile;
use crate::processes::Scratch;
use crate::programs::{Printed, Running, library, preloaded};

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
        let source = format!("checked/{name}.c");
        let output = name.replace('/', "-");
        let scratch = Scratch::new(&format!("checked-{output}-{count}"));
        let binary = compile(&scratch, &source, &output, libraries);
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

    /// Its source.
    pub fn source(&self) -> &Path {
        &self.source
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(arguments).env("LD_LIBRARY_PATH", &self.libraries);
        command
    }

    /// Runs it without `transom check`: how it ends, and what it prints.
    pub fn end(&self, arguments: &[&str], limit: Duration) -> (ExitStatus, Printed) {
        let run = Running::start(&mut self.command(arguments)).end(limit);
        run.unwrap_or_else(|problem| panic!("{arguments:?}: {problem}"))
    }

    /// Runs the program with these arguments. Returns the findings, but for unused rights: pairs open their memory to
    /// each other, and few programs use that.
    pub fn run(&self, arguments: &[&str]) -> Vec<Finding> {
        leave_rights_out(self.run_for_all(arguments))
    }

    /// Whether the program makes one of its mistakes several times at one place.
    pub fn repeats(&self, arguments: &[&str]) -> bool {
        let directory = self.scratch.path().join("repeats").join(arguments.join("-"));
        fs::create_dir_all(&directory).expect("the scratch folder is ours");
        self.run_in(&directory, self.command(arguments), arguments);
        records_in(&directory).iter().any(|it| matches!(it, Record::Again { .. }))
    }

    /// The same with all findings.
    fn run_for_all(&self, arguments: &[&str]) -> Vec<Finding> {
        self.run_by(self.command(arguments), arguments)
    }

    /// The same, of a program that may wait for ever for something to be found.
    pub fn run_briefly(&self, arguments: &[&str]) -> Vec<Finding> {
        let mut command = self.command(arguments);
        command.env("BRIEFLY", "yes");
        leave_rights_out(self.run_by(command, arguments))
    }

    /// The same, where nobody wants to see this kind.
    pub fn run_without(&self, kind: Kind, arguments: &[&str]) -> Vec<Finding> {
        let directory = self.scratch.path().join("without").join(arguments.join("-"));
        fs::create_dir_all(&directory).expect("the scratch folder is ours");
        fs::write(directory.join(UNWANTED), kind.name()).expect("the scratch folder is ours");
        leave_rights_out(self.run_in(&directory, self.command(arguments), arguments))
    }

    fn run_by(&self, command: Command, arguments: &[&str]) -> Vec<Finding> {
        let directory = self.scratch.path().join(arguments.join("-"));
        fs::create_dir(&directory).expect("the scratch folder is ours");
        self.run_in(&directory, command, arguments)
    }

    fn run_in(&self, directory: &Path, mut command: Command, arguments: &[&str]) -> Vec<Finding> {
        command.env("TRANSOM_CHECK", directory);
        if !self.preloaded.is_empty() {
            command.env("LD_PRELOAD", &self.preloaded);
        }
        let run = Running::start(&mut command).success(LIMIT);
        run.unwrap_or_else(|problem| panic!("{arguments:?}: {problem}"));
        let found = found_in(directory);
        for finding in &found {
            assert!(
                names_creation(finding),
                "it does not say where its object was made: {finding:#?}"
            );
        }
        found
    }

    /// Runs the wrong form of this kind, which must be found, and the right form, which must have no findings. The
    /// finding must name the lines with these marks in the source. Returns it.
    pub fn shows(&self, kind: Kind, marks: &[&str]) -> Finding {
        let name = kind.name();
        let wrong = self.run_for_all(&[name, "wrong"]);
        let found = wrong.iter().find(|finding| finding.kind == kind);
        let found = found.unwrap_or_else(|| panic!("{name} is not found: {wrong:#?}")).clone();
        let lines = self.lines_of(&found);
        for mark in marks {
            let marked = self.marked(name, mark);
            assert!(
                !lines.is_disjoint(&marked),
                "no {mark:?}, {marked:?}, in {lines:?}: {found:#?}"
            );
        }
        self.is_silent_on(name, kind);
        found
    }

    /// The same of the mistake of this name, of which one finding must name all lines with this mark. Returns its
    /// findings of this kind.
    pub fn shows_all(&self, name: &str, kind: Kind, mark: &str) -> Vec<Finding> {
        let wrong = self.run_for_all(&[name, "wrong"]);
        let found: Vec<_> = wrong.iter().filter(|finding| finding.kind == kind).cloned().collect();
        assert!(!found.is_empty(), "{name}: {} is not found: {wrong:#?}", kind.name());
        let (marked, lines) =
            (self.marked(name, mark), || found.iter().map(|it| self.lines_of(it)));
        assert!(
            found.iter().any(|finding| self.names_all(finding, name, mark)),
            "{name}: not all of {marked:?} in any of {:?}: {found:#?}",
            lines().collect::<Vec<_>>()
        );
        self.is_silent_on(name, kind);
        found
    }

    /// The same of a process that ends nothing before it exits or closes its device: the wrong form has this finding,
    /// which names all lines with the mark, if there is one. The right form may have others. Returns the finding.
    pub fn shows_what_is_left(&self, name: &str, kind: Kind, mark: &str, begins: &str) -> Finding {
        let of_kind = |form| {
            let mut found = self.run(&[name, form]);
            found.retain(|finding| finding.kind == kind);
            found
        };
        let wrong = of_kind("wrong");
        let is_it = |it: &&Finding| it.says.starts_with(begins);
        let found = wrong.iter().find(is_it).unwrap_or_else(|| panic!("{name}: {wrong:#?}"));
        assert!(mark.is_empty() || self.names_all(found, name, mark), "{name}: {found:#?}");
        assert_eq!(of_kind("right"), [], "the right form of {name}");
        found.clone()
    }

    /// Whether a finding names all lines of a mistake with this mark.
    pub fn names_all(&self, finding: &Finding, name: &str, mark: &str) -> bool {
        let marked = self.marked(name, mark);
        !marked.is_empty() && self.lines_of(finding).is_superset(&marked)
    }

    /// Nothing may be found in the right form of this mistake. Where it is about another kind, the device may have
    /// refused something, and peers may have had rights that they did not use.
    pub fn is_silent_on(&self, name: &str, kind: Kind) {
        const ELSEWHERE: [Kind; 2] = [Kind::RequestRefused, Kind::RightsUnused];
        let mut found = self.run_for_all(&[name, "right"]);
        found.retain(|it| it.kind == kind || !ELSEWHERE.contains(&it.kind));
        assert_eq!(found, [], "the right form of {name}");
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

    /// The lines with a mark, in the function of this mistake.
    fn marked(&self, name: &str, mark: &str) -> BTreeSet<usize> {
        let text = fs::read_to_string(&self.source).expect("the source is there");
        let begins = format!("static void {}(", name.replace('-', "_"));
        let lines = text.lines().enumerate().skip_while(|(_, line)| !line.starts_with(&begins));
        let function = lines.take_while(|(_, line)| *line != "}");
        let marked = function.filter(|(_, line)| line.ends_with(&format!("/* {mark} */")));
        marked.map(|(at, _)| at + 1).collect()
    }

    /// The names of its mistakes, as its `main` has them.
    pub fn mistakes(&self) -> BTreeSet<String> {
        let text = fs::read_to_string(&self.source).expect("the source is there");
        let names =
            text.lines().filter_map(|line| line.trim().strip_prefix("{\"")?.split_once('"'));
        names.map(|(name, _)| name.to_owned()).collect()
    }
}

/// Whether a finding or note says where its object was made, which it must.
fn names_creation(finding: &Finding) -> bool {
    let what = match finding.kind {
        // Rights are granted by the registration or the bind.
        Kind::OpenAtEnd => "opened here",
        Kind::RightsUnused => "granted here",
        // The device is no object that the program makes.
        Kind::ParentsObjects if finding.says.contains(" with the device of its parent") => {
            return true;
        }
        _ => "made here",
    };
    finding.sites.iter().any(|site| site.what.contains(what) && !site.frames.is_empty())
}

/// The findings that checked processes have written into a directory.
pub fn found_in(directory: &Path) -> Vec<Finding> {
    let found = records_in(directory).into_iter().filter_map(|record| match record {
        Record::Finding(finding) => Some(finding),
        _ => None,
    });
    found.collect()
}

fn records_in(directory: &Path) -> Vec<Record> {
    let files = fs::read_dir(directory).expect("the directory is there").map(Result::unwrap);
    let files = files.filter(|file| file.file_name() != UNWANTED);
    let texts = files.map(|file| fs::read_to_string(file.path()).unwrap());
    texts.flat_map(|text| read(&text)).collect()
}

fn leave_rights_out(mut found: Vec<Finding>) -> Vec<Finding> {
    found.retain(|finding| finding.kind != Kind::RightsUnused);
    found
}
