//! One run of the program by a plan.

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use transom_rehearse::{Place, Plan, Sort};
use transom_system::rehearsal::{PLAN, PROVOKED};

use crate::check::{self, Choice, Directory, Text};
use crate::failure::{Failure, Result};
use crate::run::Program;

/// What runs have in common: the program, and the directories of its processes' files.
pub(super) struct Stage {
    program: Program,
    findings: Directory,
    plans: Directory,
    choice: Choice,
    limit: Duration,
}

/// A run that has ended.
pub(super) struct Trial {
    pub(super) outcome: Outcome,
    /// Everything that was provoked, in no order.
    pub(super) provoked: Vec<Place>,
    /// How many processes opened a device.
    pub(super) opened: usize,
    /// What the program printed.
    pub(super) output: String,
}

/// How a run has ended.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Passed,
    /// The program ended with an error, or was killed.
    Ended(ExitStatus),
    /// It was still running after this time.
    TimedOut(Duration),
    /// The program succeeded, and made mistakes.
    Found(Vec<Text>),
}

impl Outcome {
    pub(super) fn is_failure(&self) -> bool {
        !matches!(self, Self::Passed)
    }

    /// Whether it is the same failure.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ended(one), Self::Ended(other)) => one == other,
            (Self::TimedOut(_), Self::TimedOut(_)) => true,
            (Self::Found(one), Self::Found(other)) => {
                let kinds: HashSet<_> = one.iter().map(|text| text.kind).collect();
                other.iter().any(|text| kinds.contains(&text.kind))
            }
            _ => false,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => write!(f, "the program succeeds"),
            Self::Ended(status) => match (status.code(), status.signal()) {
                (Some(code), _) => write!(f, "the program exits with status {code}"),
                (None, signal) => {
                    write!(f, "the program is killed by signal {}", signal.unwrap_or(0))
                }
            },
            Self::TimedOut(limit) => {
                write!(f, "the program still runs after {} s", limit.as_secs())
            }
            Self::Found(findings) if findings.len() == 1 => write!(f, "the check has a finding"),
            Self::Found(findings) => write!(f, "the check has {} findings", findings.len()),
        }
    }
}

impl Stage {
    pub(super) fn new(
        program: Program,
        findings: Directory,
        plans: Directory,
        choice: Choice,
        limit: Duration,
    ) -> Result<Self> {
        // What the program leaves running becomes a child of this process, which ends it before the next run.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(|error| Failure::new(format_args!("cannot become a subreaper: {error}")))?;
        Ok(Self { program, findings, plans, choice, limit })
    }

    /// How long a run may take.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// Runs the program by a plan.
    pub(super) fn run(&mut self, plan: &Plan) -> Result<Trial> {
        let failure = |what: &str, error: io::Error| Failure::new(format_args!("{what}: {error}"));
        self.prepare(plan).map_err(|error| failure("cannot write a rehearsal's files", error))?;
        let output = self.plans.path().join("output");
        let file = File::create(&output).and_then(|file| Ok((file.try_clone()?, file)));
        let (out, err) =
            file.map_err(|error| failure("cannot write a rehearsal's files", error))?;
        self.program.command.stdin(Stdio::null()).stdout(out).stderr(err);
        let mut child = self.program.spawn()?;
        let status = wait(&mut child, self.limit);
        let ended = end_children();
        let status = status.map_err(|error| failure("cannot wait for the program", error))?;
        ended.map_err(|error| failure("cannot end what the program left running", error))?;
        let provoked = self.provoked();
        let found = check::texts(&self.findings, &self.choice)?;
        // After a call has failed, a program may give up in good order.
        let may_end = provoked.iter().any(|place| place.provocation.sort() == Sort::Failure);
        let outcome = match status {
            None => Outcome::TimedOut(self.limit),
            Some(status) if status.signal().is_some() => Outcome::Ended(status),
            Some(status) if !status.success() && !may_end => Outcome::Ended(status),
            Some(_) if !found.findings.is_empty() => Outcome::Found(found.findings),
            Some(_) => Outcome::Passed,
        };
        let output = String::from_utf8_lossy(&fs::read(output).unwrap_or_default()).into_owned();
        Ok(Trial { outcome, provoked, opened: found.opened, output })
    }

    /// Removes the files of the last run, and writes the plan.
    fn prepare(&self, plan: &Plan) -> io::Result<()> {
        for directory in [&self.findings, &self.plans] {
            for entry in fs::read_dir(directory.path())? {
                fs::remove_file(entry?.path())?;
            }
        }
        fs::write(self.plans.path().join(PLAN), plan.to_string())
    }

    fn provoked(&self) -> Vec<Place> {
        let entries = fs::read_dir(self.plans.path()).into_iter().flatten().flatten();
        let files = entries.filter(|it| it.file_name().to_string_lossy().starts_with(PROVOKED));
        let texts = files.filter_map(|it| fs::read_to_string(it.path()).ok());
        texts
            .flat_map(|text| text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<_>>())
            .collect()
    }
}

/// What is provoked at a place, for people.
pub(super) fn described(place: &Place) -> String {
    let Place { provocation, process, object, nth } = place;
    let (operation, of) = provocation.operation();
    let of = of.map_or(String::new(), |of| format!(" of {of} {object}"));
    format!(
        "{}: {} ({}), at {operation} {nth}{of} in process {process}",
        provocation.name(),
        provocation.what(),
        provocation.promise()
    )
}

/// Waits for a child, at most so long. None if it still runs then.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let pid = Pid::from_child(child);
    let descriptor = pidfd_open(pid, PidfdFlags::empty())?;
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        let time = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Ends all children of this process, and theirs, which become children of this process.
fn end_children() -> io::Result<()> {
    loop {
        for pid in children()? {
            // It has not been waited for, so the PID is its.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        match rustix::process::wait(rustix::process::WaitOptions::empty()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CHILD) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The children of all threads of this process.
fn children() -> io::Result<Vec<Pid>> {
    let mut all = Vec::new();
    for task in fs::read_dir("/proc/self/task")? {
        let text = fs::read_to_string(task?.path().join("children"))?;
        all.extend(text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
    }
    Ok(all)
}
