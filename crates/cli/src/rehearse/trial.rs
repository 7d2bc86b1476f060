//! One run of the program by a plan.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open, waitpid};
use transom_check::{Gravity, Kind};
use transom_rehearse::{Place, Plan, Sort};
use transom_system::rehearsal::{PLAN, provoked};

use super::ends::{Ends, died_by};
use super::outcome::Outcome;
use crate::check::{self, Choice, Directory, Text};
use crate::failure::{Failure, Result};
use crate::layout;
use crate::run::Program;
use crate::signals::Signals;

/// The processes of a run that opened a device.
#[derive(Clone, Debug, Default)]
pub(super) struct Programs {
    /// Their programs by their numbers.
    pub(super) names: BTreeMap<u32, String>,
    /// The verbs in which something was provoked, where it is in one.
    pub(super) verbs: BTreeMap<Place, String>,
}

/// What runs have in common: the program, and the directories of its processes' files.
pub(super) struct Stage {
    program: Program,
    findings: Directory,
    plans: Directory,
    choice: Choice,
    limit: Duration,
    signals: Signals,
    /// Readable when one of the signals has come.
    signalled: OwnedFd,
    /// The signal that ends this command.
    stopped: Option<i32>,
    /// The processes that die when nothing is provoked either, while the program succeeds: a test may want that. `None`
    /// before the first run without provocation.
    usual: Option<HashSet<(String, i32)>>,
    /// The children that this process had before the first run. None is of the program. One may speak for it
    /// (`run::watcher`).
    others: Vec<Pid>,
    /// The user was told of a process that cannot be ended.
    has_told: bool,
    /// How long the longest run took that passed.
    longest: Duration,
}

/// A run that has ended.
pub(super) struct Trial {
    pub(super) outcome: Outcome,
    /// What the check found, however the run has ended.
    pub(super) findings: Vec<Text>,
    /// Everything that was provoked, in no order.
    pub(super) provoked: Vec<Place>,
    /// The processes that opened a device.
    pub(super) programs: Programs,
    /// What the program printed.
    pub(super) output: String,
}

/// How the wait for a program has ended.
enum Waited {
    Ended(ExitStatus),
    TimedOut,
    /// By a signal to this command.
    Stopped(i32),
}

impl Stage {
    pub(super) fn new(
        mut program: Program,
        [findings, plans]: [Directory; 2],
        choice: Choice,
        limit: Duration,
        signals: Signals,
    ) -> Result<Self> {
        // What the program leaves running becomes a child of this process, which ends it before the next run.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(|error| Failure::new(format_args!("cannot become a subreaper: {error}")))?;
        signals.leave_to(&mut program.command);
        let signalled = signals.descriptor()?;
        let others = children()
            .map_err(|error| Failure::new(format_args!("cannot list its processes: {error}")))?;
        Ok(Self {
            program,
            findings,
            plans,
            choice,
            limit,
            signals,
            signalled,
            stopped: None,
            usual: None,
            others,
            has_told: false,
            longest: Duration::ZERO,
        })
    }

    /// How long a run may take.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// How long the longest run took that passed.
    pub(super) fn longest(&self) -> Duration {
        self.longest
    }

    /// The signal that ends this command, if one has come.
    pub(super) fn stopped(&self) -> Option<i32> {
        self.stopped
    }

    /// Runs the program by a plan. None if a signal ends this command.
    pub(super) fn run(&mut self, plan: &Plan) -> Result<Option<Trial>> {
        self.run_within(plan, self.limit)
    }

    /// The same with another limit.
    pub(super) fn run_within(&mut self, plan: &Plan, limit: Duration) -> Result<Option<Trial>> {
        let failure = |what: &str, error: io::Error| Failure::new(format_args!("{what}: {error}"));
        let unwritten = |error| failure("cannot write a rehearsal's files", error);
        self.stopped = self.stopped.or_else(|| self.signals.next_within(Duration::ZERO));
        if self.stopped.is_some() {
            return Ok(None);
        }
        self.prepare(plan).map_err(unwritten)?;
        // Without it the command does not know how those end that others wait for.
        let mut ends = Ends::listen(self.plans.path()).ok();
        let output = self.plans.path().join("output");
        let file = File::create(&output).and_then(|file| Ok((file.try_clone()?, file)));
        let (out, err) = file.map_err(unwritten)?;
        self.program.command.stdin(Stdio::null()).stdout(out).stderr(err);
        let began = Instant::now();
        let mut child = self.program.spawn()?;
        let waited = self.wait(&mut child, began + limit, ends.as_mut());
        let took = began.elapsed();
        let ended = self.end_children();
        let waited = waited.map_err(|error| failure("cannot wait for the program", error))?;
        ended.map_err(|error| failure("cannot end what the program left running", error))?;
        if let Waited::Stopped(signal) = waited {
            self.stopped = Some(signal);
            return Ok(None);
        }
        let records = provoked::of_run(self.plans.path());
        let records = records.map_err(|error| failure("cannot read what was provoked", error))?;
        let findings = check::texts(&self.findings, &self.choice)?;
        let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let programs = Programs {
            names: records.iter().map(|it| (it.process, name(&it.program))).collect(),
            verbs: records.iter().flat_map(|it| it.verbs.iter().cloned()).collect(),
        };
        let provoked: Vec<_> = records.into_iter().flat_map(|it| it.places).collect();
        let died = ends.map_or_else(Vec::new, Ends::died).into_iter();
        let died = died.filter_map(|(number, by)| Some((programs.names.get(&number)?.clone(), by)));
        let died: Vec<_> = died.collect();
        let output = String::from_utf8_lossy(&fs::read(output).unwrap_or_default()).into_owned();
        let mut outcome = self.judge(plan, &waited, limit, &died, &provoked, &findings);
        if matches!(outcome, Outcome::Died { .. }) && self.usual.is_none() {
            // No run has shown yet who is meant to die.
            if self.run(&Plan::quiet())?.is_none() {
                return Ok(None);
            }
            outcome = self.judge(plan, &waited, limit, &died, &provoked, &findings);
        }
        if !outcome.is_failure() {
            self.longest = self.longest.max(took);
        }
        Ok(Some(Trial { outcome, findings, provoked, programs, output }))
    }

    fn judge(
        &mut self,
        plan: &Plan,
        waited: &Waited,
        limit: Duration,
        died: &[(String, i32)],
        provoked: &[Place],
        findings: &[Text],
    ) -> Outcome {
        // Later runs without provocation are to show whether the program fails by itself.
        let is_quiet = plan.kinds.is_empty() && plan.profile.is_none();
        if is_quiet && self.usual.is_none() {
            let succeeds = matches!(waited, Waited::Ended(status) if status.success());
            self.usual = Some(died.iter().filter(|_| succeeds).cloned().collect());
        }
        if let Waited::Ended(status) = waited
            && status.signal().is_some()
        {
            return Outcome::Ended(*status);
        }
        // After a call has failed, a program may give up in good order.
        let may_end = provoked.iter().any(|place| place.provocation.sort() == Sort::Failure);
        let is_usual =
            |it: &(String, i32)| self.usual.as_ref().is_some_and(|usual| usual.contains(it));
        if let Some((program, signal)) = died.iter().find(|it| !is_usual(it)).cloned() {
            return Outcome::Died { program, signal };
        }
        match waited {
            Waited::Ended(status)
                if !status.success() && (!may_end || died_by(*status).is_some()) =>
            {
                Outcome::Ended(*status)
            }
            Waited::Ended(_) if findings.is_empty() => Outcome::Passed,
            Waited::Ended(_) => Outcome::Found(findings.iter().map(|it| it.kind).collect()),
            Waited::TimedOut | Waited::Stopped(_) => Outcome::TimedOut(limit),
        }
    }

    /// Ends what the program has left running.
    fn end_children(&mut self) -> io::Result<()> {
        let of_program =
            || Ok(children()?.into_iter().filter(|it| !self.others.contains(it)).collect());
        let kill = |pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        let left = end_all(of_program, kill)?;
        if let (Some(pid), false) = (left.first(), self.has_told) {
            self.has_told = true;
            layout::warn(format_args!(
                "the program has left a process running that this command may not end, with PID {}",
                pid.as_raw_nonzero()
            ));
        }
        Ok(())
    }

    /// Removes the files of the last run, and writes the plan.
    fn prepare(&self, plan: &Plan) -> io::Result<()> {
        for directory in [&self.findings, &self.plans] {
            for entry in fs::read_dir(directory.path())? {
                fs::remove_file(entry?.path())?;
            }
        }
        // Only findings count here. What costs much for a note is not looked for.
        let notes = Kind::ALL.iter().copied().filter(|kind| kind.gravity() == Gravity::Note);
        self.findings.leave_out(notes)?;
        fs::write(self.plans.path().join(PLAN), plan.to_string())
    }

    /// Waits for a child, at most until then.
    fn wait(
        &self,
        child: &mut Child,
        end: Instant,
        mut ends: Option<&mut Ends>,
    ) -> io::Result<Waited> {
        let pid = Pid::from_child(child);
        let descriptor = pidfd_open(pid, PidfdFlags::empty())?;
        loop {
            // First, because a terminal sends it to the program too.
            if let Some(signal) = self.signals.next_within(Duration::ZERO) {
                return Ok(Waited::Stopped(signal));
            }
            ends.iter_mut().for_each(|ends| ends.take_in());
            if let Some(status) = child.try_wait()? {
                return Ok(Waited::Ended(status));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Waited::TimedOut);
            }
            let time =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let ours = [descriptor.as_fd(), self.signalled.as_fd()].into_iter();
            let all = ours.chain(ends.as_deref().map(Ends::descriptor));
            let mut all: Vec<_> =
                all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            match poll(&mut all, Some(&time)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// What is provoked at a place, for people.
pub(super) fn described(place: &Place, programs: &Programs) -> String {
    let Place { provocation, process, object, nth } = place;
    let (operation, of) = provocation.operation();
    let of = of.map_or(String::new(), |of| format!(" of {of} {object}"));
    let program = programs.names.get(process).map_or(String::new(), |name| format!(" ({name})"));
    let verb =
        programs.verbs.get(place).map_or(String::new(), |verb| format!(", in {}", called(verb)));
    format!(
        "{}: {} ({}), at {operation} {nth}{of} in process {process}{program}{verb}",
        provocation.name(),
        provocation.what(),
        provocation.promise()
    )
}

/// A verb as a program calls it: `ibv_reg_mr` is a macro.
fn called(verb: &str) -> &str {
    if verb == "ibv_reg_mr_iova2" { "ibv_reg_mr" } else { verb }
}

/// Ends all these children of this process, and theirs, which become children of this process. Returns those that it may
/// not end: they have another user.
fn end_all(
    all: impl Fn() -> io::Result<Vec<Pid>>,
    kill: impl Fn(Pid) -> rustix::io::Result<()>,
) -> io::Result<Vec<Pid>> {
    let mut left = Vec::new();
    loop {
        let mut found = all()?;
        found.retain(|pid| !left.contains(pid));
        if found.is_empty() {
            return Ok(left);
        }
        // None has been waited for, so the PIDs are theirs.
        let killed: Vec<_> = found.into_iter().map(|pid| (pid, kill(pid))).collect();
        for (pid, killed) in killed {
            let has_ended = match killed {
                Err(rustix::io::Errno::PERM) => wait_for(pid, WaitOptions::NOHANG)?,
                _ => wait_for(pid, WaitOptions::empty())?,
            };
            if !has_ended {
                left.push(pid);
            }
        }
    }
}

/// Waits for a child. Whether it has ended.
fn wait_for(pid: Pid, how: WaitOptions) -> io::Result<bool> {
    loop {
        match waitpid(Some(pid), how) {
            Ok(status) => return Ok(status.is_some()),
            Err(rustix::io::Errno::CHILD) => return Ok(true),
            Err(rustix::io::Errno::INTR) => {}
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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[expect(clippy::zombie_processes, reason = "`end_all` waits for it")]
    fn sleeps() -> Pid {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        Pid::from_child(&child)
    }

    fn is_there(pid: Pid) -> bool {
        std::path::Path::new(&format!("/proc/{}", pid.as_raw_nonzero())).exists()
    }

    /// Rule: REH-43
    #[test]
    fn a_process_that_may_not_be_ended_is_left_and_the_others_are_ended() {
        let [mine, other] = [sleeps(), sleeps()];
        let all = || Ok([other, mine].into_iter().filter(|pid| is_there(*pid)).collect());
        let kill = |pid| match pid == other {
            true => Err(rustix::io::Errno::PERM),
            false => rustix::process::kill_process(pid, rustix::process::Signal::KILL),
        };
        assert_eq!(end_all(all, kill).unwrap(), [other]);
        assert!(!is_there(mine) && is_there(other));
        let kill = |pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        assert_eq!(end_all(all, kill).unwrap(), []);
    }
}
