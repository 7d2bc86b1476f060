//! Programs of known traffic, and the accounts of what they opened to peers.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use std::{fs, ops::RangeInclusive};

use transom_exposure::cell;
use transom_exposure::names::{CELLS, Names};
use transom_exposure::report::Account;
use transom_system::clock;

use crate::c_programs::compile;
use crate::processes::Scratch;
use crate::programs::{Running, library};

/// How long one of them may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The program `tests/c/exposed.c`.
pub struct Exposed {
    scratch: Scratch,
    binary: PathBuf,
    libraries: PathBuf,
}

/// What it did: the accounts of its processes, and when each step was.
pub struct Ran {
    /// The accounts, in the order in which the processes opened their devices.
    pub accounts: Vec<Account>,
    steps: HashMap<String, (u64, u64)>,
}

impl Exposed {
    /// Compiles the program. `tmp` is the test's `CARGO_TARGET_TMPDIR`.
    pub fn new(tmp: &str) -> Self {
        // Several tests of one process have it.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let scratch = Scratch::new(&format!("exposed-{}", COUNT.fetch_add(1, Relaxed)));
        let binary = compile(&scratch, "exposed.c", "exposed", &["-libverbs"]);
        Self { scratch, binary, libraries: library(tmp).to_owned() }
    }

    /// The program.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// A directory of its own.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Runs one of its cases.
    pub fn run(&self, case: &str) -> Ran {
        self.run_over(case, "")
    }

    /// The same over a link, as `TRANSOM_LINK` names it.
    pub fn run_over(&self, case: &str, link: &str) -> Ran {
        let directory = self.scratch.path().join(format!("{case}{link}"));
        fs::create_dir(&directory).expect("the scratch folder is ours");
        let mut command = Command::new(&self.binary);
        command.arg(case).env("LD_LIBRARY_PATH", &self.libraries);
        command.env("TRANSOM_EXPOSURE", &directory);
        if !link.is_empty() {
            command.env("TRANSOM_LINK", link);
        }
        let (status, printed) = Running::start(&mut command).end(LIMIT).expect("it ends");
        let is_killed = case == "killed";
        assert!(status.success() || is_killed, "{case}: {status}, {printed:?}");
        let steps = printed.output.lines().map(|line| {
            let mut words = line.rsplitn(3, ' ');
            let mut number = || words.next().unwrap().parse().unwrap();
            let (after, before) = (number(), number());
            (words.next().unwrap().to_owned(), (before, after))
        });
        Ran { steps: steps.collect(), accounts: accounts_in(&directory) }
    }
}

impl Ran {
    /// The moments of a step, from before it to after it.
    pub fn step(&self, name: &str) -> RangeInclusive<u64> {
        let (before, after) = self.steps.get(name).unwrap_or_else(|| panic!("no step {name}"));
        *before..=*after
    }

    /// The nanoseconds from one step to another, at least and at most.
    pub fn between(&self, one: &str, other: &str) -> RangeInclusive<u64> {
        let (one, other) = (self.step(one), self.step(other));
        other.start() - one.end()..=other.end() - one.start()
    }
}

/// The accounts in a directory. What is open in them ends now.
pub fn accounts_in(directory: &Path) -> Vec<Account> {
    let files = fs::read_dir(directory).expect("the directory is there");
    let files = files.map(|file| file.unwrap().path()).filter(|it| it.extension().is_none());
    let account = |path: PathBuf| {
        let names = Names::read(&fs::read_to_string(&path).unwrap());
        let cells = fs::read(path.with_extension(CELLS)).unwrap();
        Account::of(names, cell::read(&cells), clock::steady())
    };
    let mut accounts: Vec<_> = files.map(account).collect();
    accounts.sort_by_key(|account| account.process.began);
    accounts
}
