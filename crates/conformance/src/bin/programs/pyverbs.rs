//! `programs pyverbs`: the Python tests of rdma-core, except those of single vendors.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use transom_conformance::programs::{Printed, Running, installed};
use transom_conformance::spaces::Side;

use crate::installation::{DEVICE, Installation};
use crate::place::{Place, Wire};
use crate::skips;
use crate::table::{Form, Report, Row, Style, Verdict};

static FORM: Form = Form {
    script: "pyverbs",
    title: "the Python tests of rdma-core for any device. Three of the skipped tests run if the \
            system has huge pages (sysctl vm.nr_hugepages=16)",
    subject: &[("module", 24)],
    figures: &[
        ("tests", 5),
        ("pass", 5),
        ("skip", 5),
        ("fail", 5),
        ("error", 5),
        ("rxe of Linux 6.1", 16),
    ],
};

/// The folder of the tests in `python3-pyverbs`.
const SOURCE: &str = "/usr/share/doc/rdma-core/tests";
/// Debian's interpreter. Only this one has pyverbs.
pub(crate) const PYTHON: &str = "/usr/bin/python3";
/// Runs them one by one.
const RUNNER: &str = include_str!("../../../programs/run_tests.py");
/// The tests that rxe passes.
const RXE: &str = include_str!("../../../programs/rxe-pyverbs.txt");
/// Tests that need a certain adapter.
const VENDORS: [&str; 3] = ["tests.test_mlx5", "tests.test_efa", "tests.test_cuda"];
/// How many tests must pass.
const LEAST: usize = 130;
/// How long one test may take.
const SECONDS: u64 = 20;

/// Runs them, a process for each module.
pub(crate) fn run(installation: &Installation, style: Style) -> Result<Report, String> {
    let suite = Suite::unpack(installation, Place::Here, Release::debian())?;
    let modules = suite.modules()?;
    let mut report = Report::begin(&FORM, style);
    let (mut passed, mut all) = (0, 0);
    for (module, tests) in &modules {
        let outcomes = suite.run(tests)?;
        let count = |kind| outcomes.iter().filter(|outcome| outcome.kind == kind).count();
        let counts = [outcomes.len(), count("pass"), count("skip"), count("fail"), count("error")];
        passed += count("pass");
        all += outcomes.len();
        let problems: Vec<String> = outcomes.iter().filter_map(Outcome::problem).collect();
        report.add(Row {
            subject: vec![module.clone()],
            figures: counts.iter().map(usize::to_string).chain([passed_by_rxe(module)]).collect(),
            verdict: Verdict::of((!problems.is_empty()).then(|| problems.join("\n"))),
        });
    }
    if style == Style::Table {
        println!("\n  {passed} of {all} pass");
    }
    if passed < LEAST {
        report.remarks.push(format!("{passed} of {all} pass; at least {LEAST} should"));
    }
    let gone = |test: &&str| !modules.values().flatten().any(|known| known == test);
    for test in skips::list().map(|(test, _)| test).filter(gone) {
        report.remarks.push(format!("{test} is in the list of skips, but there is no such test"));
    }
    Ok(report)
}

/// Runs them all at the near end of a wire, with its GID, except those that a bad wire breaks. Returns how many passed.
pub(crate) fn run_at(installation: &Installation, wire: &Wire) -> Result<String, String> {
    let suite = Suite::unpack(installation, Place::Across(wire), Release::debian())?;
    let mut outcomes = Vec::new();
    for mut tests in suite.modules()?.into_values() {
        tests.retain(|test| wire.faults.is_none() || bears_loss(test));
        outcomes.extend(suite.run(&tests)?);
    }
    let count = |kind| outcomes.iter().filter(|outcome| outcome.kind == kind).count();
    let problems: Vec<String> = outcomes.iter().filter_map(Outcome::problem).collect();
    if problems.is_empty() {
        Ok(format!("{} pass, {} skipped", count("pass"), count("skip")))
    } else {
        Err(problems.join("\n"))
    }
}

/// Runs the tests of another release than Debian's, with its bindings. Skipped tests do not count. `bind` makes a
/// command run on the right processors.
pub(crate) fn run_newer(
    installation: &Installation,
    bindings: &Path,
    tests: &Path,
    bind: &dyn Fn(&mut Command),
) -> Result<(), String> {
    let release = Release {
        name: "pyverbs-newer",
        bindings: Some(bindings.to_owned()),
        tests: tests.to_owned(),
        bind,
    };
    let suite = Suite::unpack(installation, Place::Here, release)?;
    let mut outcomes = Vec::new();
    for tests in suite.modules()?.into_values() {
        outcomes.extend(suite.run(&tests)?);
    }
    let wrong = |outcome: &&Outcome| !["pass", "skip"].contains(&outcome.kind.as_str());
    let problems: Vec<_> = outcomes.iter().filter(wrong).filter_map(Outcome::problem).collect();
    let passed = outcomes.iter().filter(|outcome| outcome.kind == "pass").count();
    if !problems.is_empty() {
        Err(problems.join("\n"))
    } else if passed < LEAST {
        Err(format!("{passed} of {} pass; at least {LEAST} should", outcomes.len()))
    } else {
        Ok(())
    }
}

/// Whether a test passes on a bad wire. Some tests need datagrams, which nobody resends. Some need a SEND to complete
/// before its answer arrives, and it does not if its acknowledgement is lost. Some need the one NAK that says why a
/// request was refused (rules RA-54, RA-55).
fn bears_loss(test: &str) -> bool {
    const ANSWERED_FIRST: [&str; 1] = ["test_tm_rndv"];
    const REFUSED: [&str; 8] = [
        "test_invalidate_mw_type1",
        "test_mr_rereg_access_bad_flow",
        "test_mr_rereg_addr",
        "test_mr_rereg_pd",
        "test_mw_type2_invalidate_dealloc",
        "test_mw_type2_invalidate_local",
        "test_mw_type2_invalidate_remote",
        "test_qp_ex_rc_bind_mw",
    ];
    let name = test.rsplit('.').next().unwrap_or(test);
    let datagrams = name.split('_').any(|word| ["ud", "udp", "multicast"].contains(&word));
    !datagrams && !ANSWERED_FIRST.contains(&name) && !REFUSED.contains(&name)
}

/// How many tests of a module rxe passes.
fn passed_by_rxe(module: &str) -> String {
    let mut lines = RXE.lines().filter_map(|line| line.split_once(' '));
    let counts = lines.find(|(name, _)| *name == module).map(|(_, counts)| counts);
    counts.and_then(|counts| counts.split(' ').next()).unwrap_or("").to_owned()
}

/// The result of a test.
#[derive(Clone, Debug)]
struct Outcome {
    test: String,
    /// `pass`, `skip`, `fail` or `error`; `begun` if it ended its process.
    kind: String,
    why: String,
}

impl Outcome {
    fn parse(line: &str) -> Option<Self> {
        let line: Value = serde_json::from_str(line).ok()?;
        let text = |name: &str| Some(line[name].as_str()?.to_owned());
        Some(Self { test: text("test")?, kind: text("outcome")?, why: text("why")? })
    }

    fn problem(&self) -> Option<String> {
        let Self { test, kind, why } = self;
        let why = why.trim_end();
        match (kind.as_str(), skips::expected(test)) {
            ("pass", Some(reason)) if !reason.machine => {
                Some(format!("{test} passes now: take it off programs/expected-skips.txt"))
            }
            ("pass", _) => None,
            ("skip", Some(reason)) if reason.explains(why) => None,
            ("skip", Some(_)) => Some(format!("{test} is skipped for another reason: {why}")),
            ("skip", None) => Some(format!("{test} is skipped: {why}")),
            _ => Some(format!("{test}: {kind}: {why}")),
        }
    }
}

/// Python's bindings, and the tests that came with them.
struct Release<'a> {
    /// The folder of the copy.
    name: &'static str,
    /// The folder of the bindings, if it is not the one that Python knows.
    bindings: Option<PathBuf>,
    tests: PathBuf,
    /// Makes a command run on the right processors.
    bind: &'a dyn Fn(&mut Command),
}

impl Release<'_> {
    fn debian() -> Self {
        Self { name: "pyverbs", bindings: None, tests: SOURCE.into(), bind: &|_| {} }
    }
}

/// A copy of the tests, and the results of the present run.
struct Suite<'a> {
    installation: &'a Installation,
    place: Place<'a>,
    release: Release<'a>,
    folder: PathBuf,
}

impl<'a> Suite<'a> {
    /// Copies the tests, because some are packed.
    fn unpack(
        installation: &'a Installation,
        place: Place<'a>,
        release: Release<'a>,
    ) -> Result<Self, String> {
        let source = release.tests.clone();
        let missing =
            |error| format!("{}: {error}; apt-get install python3-pyverbs", source.display());
        let failed = |error| format!("copying the tests: {error}");
        let folder = installation.folder().join(release.name);
        let suite = Self { installation, place, release, folder: folder.clone() };
        let tests = folder.join("tests");
        if tests.is_dir() {
            return Ok(suite);
        }
        fs::create_dir_all(&tests).map_err(failed)?;
        let mut packed = Vec::new();
        for file in fs::read_dir(&source).map_err(missing)? {
            let file = file.map_err(failed)?;
            let copy = tests.join(file.file_name());
            fs::copy(file.path(), &copy).map_err(failed)?;
            if copy.extension().is_some_and(|extension| extension == "gz") {
                packed.push(copy);
            }
        }
        if !packed.is_empty() {
            let mut unpack = Command::new(installed("gzip", "gzip")?);
            Running::start(unpack.arg("-d").args(packed)).success(Duration::from_secs(20))?;
        }
        fs::write(folder.join("run_tests.py"), RUNNER).map_err(failed)?;
        Ok(suite)
    }

    fn python(&self) -> Result<Command, String> {
        // The tests of connections read the device's files, or call `rdma`, to find its network.
        let mut command = self.installation.transom_run()?;
        command.arg(PYTHON);
        command.envs(self.release.bindings.iter().map(|bindings| ("PYTHONPATH", bindings)));
        (self.release.bind)(&mut command);
        command.arg(self.folder.join("run_tests.py")).arg(&self.folder);
        match self.place {
            Place::Here => command.arg(DEVICE),
            Place::Across(wire) => {
                command.arg(format!("{DEVICE}:{}", wire.gid(Side::Near)));
                // Both ends are on this host, where packets are not needed otherwise.
                command.env("TRANSOM_LINK", "wire");
                command.envs(wire.faults.map(|faults| ("TRANSOM_FAULT", faults)));
                wire.pair.space(Side::Near).enter(&mut command)
            }
        };
        Ok(command)
    }

    /// The tests that are for any device.
    fn list(&self) -> Result<Vec<String>, String> {
        let printed =
            Running::start(self.python()?.arg("list")).success(Duration::from_secs(60))?;
        let any = |test: &&str| !VENDORS.iter().any(|vendor| test.starts_with(vendor));
        let tests = printed.output.lines().filter(|line| line.starts_with("tests."));
        Ok(tests.filter(any).map(str::to_owned).collect())
    }

    /// The same, by module.
    fn modules(&self) -> Result<BTreeMap<String, Vec<String>>, String> {
        let mut modules = BTreeMap::<String, Vec<String>>::new();
        for test in self.list()? {
            let module = test.split('.').nth(1).unwrap_or(&test).to_owned();
            modules.entry(module).or_default().push(test);
        }
        Ok(modules)
    }

    /// Runs tests in one process. After a test that ends the process or hangs, the rest run in another.
    fn run(&self, tests: &[String]) -> Result<Vec<Outcome>, String> {
        let mut outcomes = Vec::new();
        while outcomes.len() < tests.len() {
            let left = &tests[outcomes.len()..];
            let before = outcomes.len();
            outcomes.extend(self.run_until_it_ends(left)?);
            if outcomes.len() == before {
                return Err(format!("{} does not run", left[0]));
            }
        }
        Ok(outcomes)
    }

    /// Runs the first of these tests, and the others unless the process ends before.
    fn run_until_it_ends(&self, tests: &[String]) -> Result<Vec<Outcome>, String> {
        let (results, log) = (self.folder.join("results"), self.folder.join("results.log"));
        let _ = (fs::remove_file(&results), fs::remove_file(&log));
        let mut command = self.python()?;
        command.arg(&results).arg(SECONDS.to_string()).args(tests);
        let limit = Duration::from_secs(SECONDS * tests.len() as u64 + 60);
        let (status, Printed { output, complaints }) = Running::start(&mut command).end(limit)?;
        let mut outcomes = Vec::<Outcome>::new();
        for line in read(&results).lines().filter_map(Outcome::parse) {
            match outcomes.last_mut() {
                Some(last) if last.test == line.test => *last = line,
                _ => outcomes.push(line),
            }
        }
        match outcomes.last_mut() {
            Some(last) if last.kind == "begun" => {
                last.kind = "error".to_owned();
                last.why = match status.signal() {
                    Some(libc::SIGALRM) => format!("not done after {SECONDS} s"),
                    _ => format!("the process ended: {status}\n{}", read(&log)),
                };
            }
            Some(_) => {}
            None => return Err(format!("{PYTHON} ended: {status}\n{output}{complaints}")),
        }
        Ok(outcomes)
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
