//! `programs checked`: the programs of other scripts, and this project's examples, under `transom check`. A finding is a
//! mistake of the program, and [`KNOWN`] gives the reason, or it is a mistake of the check.

mod examples;

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use transom_check::Kind;
use transom_check::kind::Gravity;
use transom_check::record::{Record, read};
use transom_conformance::processes::Scratch;
use transom_conformance::programs::Running;

use crate::extent::Extent;
use crate::installation::Installation;
use crate::table::{Form, Report, Row, Style, Verdict};

static FORM: Form = Form {
    script: "checked",
    title: "what `transom check` finds in the programs of other scripts and in this project's \
            examples",
    subject: &[("program", 20)],
    figures: &[("processes", 9), ("findings", 34), ("notes", 60), ("reason", 60)],
};

/// The scripts whose programs are checked, and whether a quick run has them.
const SCRIPTS: [(&str, bool); 5] = [
    ("utils", true),
    ("pyverbs", true),
    ("perftest", true),
    ("connections", true),
    ("strangers", false),
];

/// How long one script may take: `connections` waits for messages that were lost.
const LIMIT: Duration = Duration::from_secs(3600);

/// The findings that are true: the program, the kind, and what the program does.
const KNOWN: [(&str, Kind, &str); 5] = [
    (
        "ibv_srq_pingpong",
        Kind::WorkLost,
        "ends when enough messages have come and gone in all, not when each queue pair is done",
    ),
    (
        "rping",
        Kind::SourceChanged,
        "writes its next message when the answer has come, which says nothing of its own send",
    ),
    ("fio", Kind::AckedTooMuch, "acknowledges as many events as it has polled completions"),
    (
        "ib_send_bw",
        Kind::LeftAtClose,
        "in one direction its client leaves the queue for receives; mended there in November 2022",
    ),
    (
        "python3",
        Kind::ParentsObjects,
        "rdma-core's tests of forks: the child frees its parent's objects when Python ends",
    ),
];

/// What a program's processes did.
#[derive(Debug, Default)]
struct Found {
    processes: usize,
    kinds: BTreeMap<Kind, usize>,
    says: BTreeMap<Kind, String>,
    /// Where the check itself was at fault.
    stopped: Vec<String>,
}

/// Runs the scripts in processes of their own, then the examples, and collects what was found.
pub(crate) fn run(
    installation: &Installation,
    style: Style,
    extent: Extent,
) -> Result<Report, String> {
    let this = env::current_exe().map_err(|error| format!("where am I: {error}"))?;
    let scratch = Scratch::new("checked-programs");
    let everyone = Permissions::from_mode(0o1777);
    fs::set_permissions(scratch.path(), everyone).map_err(|error| error.to_string())?;
    let mut report = Report::begin(&FORM, style);
    // As `transom check` does.
    let check = |command: &mut Command| {
        command.env(transom_system::environment::CHECK.name, scratch.path());
        command.env("LD_PRELOAD", installation.freed_library());
    };
    for (script, is_quick) in SCRIPTS {
        if extent == Extent::Quick && !is_quick {
            continue;
        }
        let mut command = Command::new(&this);
        command.arg(script).args((extent == Extent::Quick).then_some("--quick"));
        check(&mut command);
        // The check must not make a program fail.
        if let Err(problem) = Running::start(&mut command).success(LIMIT) {
            report.remarks.push(problem);
        }
    }
    report.remarks.extend(examples::run(installation, check).err());
    for (program, found) in found(scratch.path())? {
        report.add(found.row(&program));
    }
    Ok(report)
}

/// What was found, by program.
fn found(directory: &Path) -> Result<BTreeMap<String, Found>, String> {
    let mut programs = BTreeMap::<String, Found>::new();
    let files = fs::read_dir(directory).map_err(|error| error.to_string())?;
    for file in files {
        let path = file.map_err(|error| error.to_string())?.path();
        let Ok(text) = fs::read(&path) else { continue };
        let mut program = None;
        for record in read(&String::from_utf8_lossy(&text)) {
            match record {
                Record::Process { program: path, .. } => {
                    let found = programs.entry(name_of(&path)).or_default();
                    found.processes += 1;
                    program = Some(found);
                }
                Record::Finding(finding) => {
                    let Some(found) = &mut program else { continue };
                    *found.kinds.entry(finding.kind).or_default() += 1;
                    found.says.entry(finding.kind).or_insert(finding.says);
                }
                Record::Stopped { says } => {
                    program.iter_mut().for_each(|found| found.stopped.push(says.clone()));
                }
                Record::Opened | Record::Again { .. } | Record::Mark(_) => {}
            }
        }
    }
    Ok(programs)
}

/// A program's name: python3.11 is python3.
fn name_of(path: &str) -> String {
    let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

impl Found {
    fn row(&self, program: &str) -> Row {
        let of = |gravity: Gravity| {
            let kinds = self.kinds.iter().filter(move |(kind, _)| kind.gravity() == gravity);
            let told: Vec<String> =
                kinds.map(|(kind, count)| format!("{} {count}", kind.name())).collect();
            told.join(", ")
        };
        let findings = self.kinds.keys().filter(|kind| kind.gravity() == Gravity::Finding);
        let (mut reasons, mut problems) = (Vec::new(), self.stopped.clone());
        for kind in findings {
            let known = KNOWN.iter().find(|(name, known, _)| *name == program && known == kind);
            match known {
                Some((_, _, reason)) => reasons.push(*reason),
                None => problems.push(format!("{}: {}", kind.name(), self.says[kind])),
            }
        }
        let problem = (!problems.is_empty()).then(|| problems.join("\n"));
        Row {
            subject: vec![program.to_owned()],
            figures: vec![
                self.processes.to_string(),
                of(Gravity::Finding),
                of(Gravity::Note),
                reasons.join("; "),
            ],
            verdict: Verdict::of(problem),
        }
    }
}
