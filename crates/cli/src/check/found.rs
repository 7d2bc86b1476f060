//! The findings of all processes: equal mistakes once, with a count.

use transom_check::mark::Mark;
use transom_check::record::{Finding, Record, Site};
use transom_check::{Gravity, Kind};

use super::choice::Choice;
use super::symbols::{Place, Symbols};
use crate::sentence::without_numbers;

/// A process that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// The path of its program.
    pub(super) program: String,
}

impl Process {
    /// The name of its program.
    pub(super) fn name(&self) -> &str {
        self.program.rsplit('/').next().unwrap_or_default()
    }
}

/// A mistake, or a note.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) kind: Kind,
    /// The gravity that the user gives it.
    pub(super) gravity: Gravity,
    /// What happened, to what: one sentence.
    pub(super) says: String,
    /// How often, in all processes.
    pub(super) count: u64,
    pub(super) processes: Vec<Process>,
    pub(super) calls: Vec<Call>,
    /// The text that equal findings share.
    identity: String,
}

/// A call that a finding is about.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// What happened there, such as "destroyed here".
    pub(crate) what: String,
    pub(crate) thread: u32,
    /// The callers, the innermost first.
    pub(crate) places: Vec<Place>,
}

impl Call {
    /// A call of a process, with the names of its callers.
    pub(crate) fn of(site: &Site, symbols: &mut Symbols) -> Self {
        let places = site.frames.iter().flat_map(|frame| symbols.places(frame)).collect();
        Self { what: site.what.clone(), thread: site.thread, places }
    }
}

impl Found {
    /// Its name while the program runs.
    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// The callers in all its calls.
    pub(super) fn places(&self) -> impl Iterator<Item = &Place> + Clone {
        self.calls.iter().flat_map(|call| &call.places)
    }
}

/// How full the queues were that were made at one place.
#[derive(Clone, Debug)]
pub(super) struct Marked {
    pub(super) mark: Mark<Site>,
    pub(super) processes: Vec<Process>,
}

/// All findings of the processes.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The gravest first.
    pub(super) all: Vec<Found>,
    /// How many others the user has suppressed.
    pub(super) suppressed: usize,
    /// The processes that opened a device.
    pub(super) opened: usize,
    /// The processes whose check ended early because of a mistake in it, and what it says.
    pub(super) stopped: Vec<(Process, String)>,
    /// How full the queues were.
    pub(super) marks: Vec<Marked>,
}

impl Findings {
    /// The findings in the processes' files, as far as the user wants to see them.
    pub(super) fn of(files: Vec<Vec<Record>>, choice: &Choice, symbols: &mut Symbols) -> Self {
        let opened = files.iter().filter(|records| records.contains(&Record::Opened)).count();
        let mut all: Vec<Found> = Vec::new();
        let stopped = files.iter().filter_map(|records| stopped(records)).collect();
        let mut marks = Vec::new();
        for records in files {
            join_marks(&mut marks, &records);
            for (process, finding, count) in findings_of(records) {
                if choice.wants(finding.kind) {
                    join(&mut all, process, finding, count, choice, symbols);
                }
            }
        }
        let before = all.len();
        all.retain(|found| !choice.suppresses(found.kind, found.places()));
        let suppressed = before - all.len();
        // Within one kind, the first to come stays first.
        all.sort_by_key(|found| (found.gravity, found.kind));
        Self { all, suppressed, opened, stopped, marks }
    }

    /// Whether something that a process found is one of the findings.
    pub(super) fn has(&self, finding: &Finding) -> bool {
        let identity = identity(finding);
        self.with(Gravity::Finding).any(|found| found.identity == identity)
    }

    pub(super) fn with(&self, gravity: Gravity) -> impl Iterator<Item = &Found> {
        self.all.iter().filter(move |found| found.gravity == gravity)
    }
}

/// The process whose records these are.
fn process_of(records: &[Record]) -> Option<Process> {
    records.iter().find_map(|record| match record {
        Record::Process { pid, program } => Some(Process { pid: *pid, program: program.clone() }),
        _ => None,
    })
}

/// Adds the marks in a process's file to those of other processes.
fn join_marks(all: &mut Vec<Marked>, records: &[Record]) {
    let Some(process) = process_of(records) else { return };
    for record in records {
        let Record::Mark(mark) = record else { continue };
        let is_same = |it: &&mut Marked| {
            it.mark.queue == mark.queue && it.mark.made.frames == mark.made.frames
        };
        match all.iter_mut().find(is_same) {
            Some(known) => {
                known.mark.join(mark.level, mark.count);
                if !known.processes.contains(&process) {
                    known.processes.push(process.clone());
                }
            }
            None => all.push(Marked { mark: mark.clone(), processes: vec![process.clone()] }),
        }
    }
}

/// A process whose check ended early, and what that says.
fn stopped(records: &[Record]) -> Option<(Process, String)> {
    let process = process_of(records);
    let says = records.iter().find_map(|record| match record {
        Record::Stopped { says } => Some(says.clone()),
        _ => None,
    });
    process.zip(says)
}

/// The findings in a process's file, each with its count.
fn findings_of(records: Vec<Record>) -> Vec<(Process, Finding, u64)> {
    let mut process = Process { pid: 0, program: String::new() };
    let mut findings: Vec<(Process, Finding, u64)> = Vec::new();
    for record in records {
        match record {
            Record::Process { pid, program } => process = Process { pid, program },
            Record::Opened | Record::Stopped { .. } | Record::Mark(_) => {}
            Record::Finding(finding) => findings.push((process.clone(), finding, 1)),
            Record::Again { number, count } => {
                let newest = findings.iter_mut().rev().find(|(_, it, _)| it.number == number);
                if let Some((_, _, known)) = newest {
                    *known = count.max(*known);
                }
            }
        }
    }
    findings
}

/// Adds a finding to the known ones, or to an equal one.
fn join(
    all: &mut Vec<Found>,
    process: Process,
    finding: Finding,
    count: u64,
    choice: &Choice,
    symbols: &mut Symbols,
) {
    let identity = identity(&finding);
    if let Some(found) = all.iter_mut().find(|found| found.identity == identity) {
        found.count = found.count.saturating_add(count);
        if !found.processes.contains(&process) {
            found.processes.push(process);
        }
        return;
    }
    let Finding { kind, says, sites, .. } = finding;
    let calls = sites.iter().map(|site| Call::of(site, symbols)).collect();
    let gravity = choice.gravity(kind);
    all.push(Found { kind, gravity, says, count, processes: vec![process], calls, identity });
}

/// The text that equal findings share. Numbers in it and threads may differ.
fn identity(finding: &Finding) -> String {
    let sites = finding.sites.iter();
    let sites: Vec<_> = sites.map(|it| (without_numbers(&it.what), &it.frames)).collect();
    format!("{} {} {sites:?}", finding.kind.name(), without_numbers(&finding.says))
}

/// The kinds of these findings, gravest first, with the number of each.
pub(super) fn kinds<'a>(found: impl Iterator<Item = &'a Found>) -> Vec<(Kind, usize)> {
    let mut kinds: Vec<(Kind, usize)> = Vec::new();
    for found in found {
        match kinds.iter_mut().find(|(kind, _)| *kind == found.kind) {
            Some((_, count)) => *count += 1,
            None => kinds.push((found.kind, 1)),
        }
    }
    kinds.sort();
    kinds
}
