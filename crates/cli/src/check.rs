//! `transom check`: runs a program, and reports its mistakes.
//!
//! The processes of the program write their findings into files of a private directory (`transom_check::record`). This
//! command waits for the program as its parent, reads the files, looks up the names, and reports.
//!
//! | module | holds |
//! |---|---|
//! | `choice` | the findings that the user wants to see |
//! | `directory` | the private directory |
//! | `found` | the findings of all processes, equal ones once |
//! | `symbols` | function, file and line of an address |
//! | `shown` | the places of a call that people want to see |
//! | `verb` | where a line names the verb that it calls |
//! | `people`, `json`, `junit`, `github` | the reports |
//! | `page` | the page about a kind of mistake |

mod choice;
mod directory;
pub(crate) mod found;
mod github;
pub(crate) mod json;
mod junit;
mod page;
mod people;
pub(crate) mod shown;
pub(crate) mod symbols;
mod verb;

use std::collections::HashSet;
use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anstream::adapter::strip_str;
use transom_check::record::Record;
use transom_check::{Gravity, Kind};
use transom_system::environment::{CHECK, EXPLAIN};

use crate::explain::OfProgram;
use crate::failure::{Failure, Result};
use crate::layout::{self, Page};
use crate::lines::{JsonArgs, Lines, cannot_write, create};
use crate::run::{Ended, Program, ProgramArgs, conclude, tell_of_freed_memory};
use crate::wanted;
use choice::ChoiceArgs;
pub(crate) use choice::{Choice, SuppressionsArgs};
pub(crate) use directory::Directory;
use directory::Watch;
use found::{Findings, Found};
use people::Reporter;
use symbols::Symbols;

/// The failure of `--require`.
const UNOPENED: &str = "no process opened a device, so nothing was checked. Does the program find a \
                        device? `transom run -- ibv_devices` lists it. Was a test skipped?";

/// The most columns of a report, in a file or on a terminal.
const COLUMNS: usize = 80;

const EXAMPLES: &str = "\
A finding is certainly a mistake: a correct program has none. Findings decide the exit status. A note is
about something that works here, and costs, hides or fails elsewhere. Notes are a summary at the end.

The report goes to standard error, when the program has ended. So does a finding of a process that was
killed. Compile the program with -g to see files and lines. The program runs as with `transom run`, whose
help has the faults and variables.

Suppressions:
A line of the file is a kind, a space, and the name of a function, program or library. Both may be `*`, and
`*` in a name stands for any text. A finding is suppressed if any caller in it has that name. The summary
counts the findings that were suppressed.
    # the library of a supplier
    work-lost  libsupplier.so*
    *          close_all

Exit status:
  66   something was found, and the program itself succeeded; --error-exitcode changes it
  1    --require, and no process opened a device; or a report could not be written
  2    the command line, a suppression or a variable is wrong
  126  the program exists, but cannot be run
  127  there is no such program
  Otherwise the exit status is the program's own. A program that fails keeps its status.

Examples:
  transom check -- ./server
  transom check --require --junit rdma.xml -- make check
  transom check --json=findings.json --error-exitcode 0 -- mpirun -n 4 ./solver
  transom check --follow -- sh -c './server & ./client localhost'
  transom check --explain work-lost";

const FIELDS: &str = "\
With --json, each line is an object. Give it a FILE if the program prints: standard output is the program's
too. Numbers are integers, and offset is a text of decimal digits. A field without a value is null. A
finding or a note has these fields:
  type           finding or note
  kind           what kind of mistake, such as work-lost
  rule           its rule, such as CHK-01
  man            the man page that says so
  title          what the kind is
  sentence       what happened, to what
  fix            what to do instead
  count          how often it happened, in all processes; with --follow, so far
  processes      where it happened: pid, process (its name) and program (its path) of each
  calls          the calls that it is about, the one that shows the mistake first:
    what         what happened there
    thread       the thread, as the system numbers it
    callers      the functions that were under way, the innermost first:
      function   the name of the function
      file       the source file
      line       the line in it
      column     the column in the line
      inlined    whether the compiler put the function into its caller
      module     the path of the program or library
      offset     the return address, as the tables of the module count

The last line has these fields:
  type           summary
  opened         how many processes opened a device
  found          how many findings there are
  noted          how many notes there are
  suppressed     how many findings and notes were suppressed
  stopped        how many processes were not checked to their end, because of a mistake in Transom
  marks          how full the queues were of processes that ended by themselves. Those that were made at the same
                 place are one, at most 64 in each process:
    queue        send, receive, shared_receive or completion
    most         the most requests or completions that the fullest of them held at a time
    asked        how many that one was asked to hold
    count        how many queues there are
    processes    where they are, as above
    calls        the call that made the first of them, as above

";

/// All kinds, each with what it is.
fn kinds_help() -> String {
    let longest = Kind::ALL.iter().map(|it| it.name().len()).max().unwrap_or(0);
    let row = |it: &Kind| format!("  {:<longest$}  {}\n", it.name(), it.title());
    let of = |gravity| Kind::ALL.iter().filter(move |it| it.gravity() == gravity).map(row);
    let (findings, notes) = (of(Gravity::Finding), of(Gravity::Note));
    format!("Findings:\n{}\nNotes:\n{}\n", findings.collect::<String>(), notes.collect::<String>())
}

/// Run a program, and report what it does wrong with RDMA
///
/// It looks for mistakes that work here once, and fail in production, on another adapter, or once in a thousand runs.
/// `transom check --help` lists all kinds.
#[derive(clap::Args)]
#[command(
    after_help = EXAMPLES,
    after_long_help = format!("{}{FIELDS}{EXAMPLES}", kinds_help()),
    override_usage = "transom check [OPTIONS] [--] PROGRAM [ARGUMENTS]...\n       \
                      transom check --explain KIND"
)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    choice: ChoiceArgs,
    #[command(flatten)]
    json: JsonArgs,
    /// Write a report of tests for your CI: each finding is a test that failed
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    junit: Option<PathBuf>,
    /// Report each finding as it happens, not at the end
    #[arg(long)]
    follow: bool,
    /// Exit with N if something was found; 0 reports only
    #[arg(long, value_name = "N", default_value_t = 66)]
    error_exitcode: u8,
    /// Fail if no process opened a device: a skipped test must not look like a passed one
    #[arg(long)]
    require: bool,
    /// Print a page on a kind: why it is a mistake, a wrong and a right piece of code
    #[arg(
        long,
        value_name = "KIND",
        exclusive = true,
        value_parser = wanted::parser::<Kind>(),
        hide_possible_values = true
    )]
    explain: Option<Kind>,
}

pub(crate) fn run(args: &CheckArgs) -> Result {
    if let Some(kind) = args.explain {
        page::print(&mut layout::stdout(), kind)?;
        return Ok(());
    }
    let mut reports = Reports::begin(args)?;
    let mut program = Program::prepare(&args.program)?;
    let directory = Directory::make().map_err(|problem| {
        Failure::new(format_args!("there is no place for what the program does wrong: {problem}"))
    })?;
    if let Err(error) = directory.leave_out(reports.choice.unwanted()) {
        layout::warn(format_args!("what you do not want to see is looked for too: {error}"));
    }
    program.command.env(CHECK.name, directory.path());
    if let Err(problem) = tell_of_freed_memory(&mut program.command) {
        layout::warn(format_args!(
            "memory that the program gives back is not looked at: {problem}"
        ));
    }
    // Within another check, or a rehearsal, that command counts the findings too. It may end this one at any time.
    let outer = CHECK.text();
    let watches = args.follow || outer.is_some();
    let watch = watches.then(|| Watch::of(&directory)).transpose().unwrap_or_else(|error| {
        layout::warn(format_args!("findings are shown when the program has ended: {error}"));
        None
    });
    let hand_on = |findings: &Findings| {
        let Some(outer) = &outer else { return Ok(()) };
        let hands_on = args.error_exitcode != 0;
        directory.hand_on(Path::new(outer), |it| hands_on && findings.has(it))
    };
    let mut look = || {
        let Some(watch) = &watch else { return };
        watch.clear();
        // An error here occurs again at the end, and is reported then.
        let found = if args.follow { reports.follow(&directory) } else { reports.read(&directory) };
        let _ = found.map(|findings| hand_on(&findings));
    };
    // Within `transom run --explain` it is that command that tells what was refused.
    let tells = EXPLAIN.text().is_none();
    let mut explained = tells.then(|| OfProgram::prepare(&mut program.command).ok()).flatten();
    let status = match &mut explained {
        Some(explained) => explained.during(|comes, every, take_in| {
            let mut look = || {
                take_in();
                look();
            };
            let watched = watch.as_ref().map_or(comes, Watch::descriptor);
            program.wait(Some(watched), Some(every), &mut look)
        })?,
        None => program.wait(watch.as_ref().map(Watch::descriptor), None, &mut look)?,
    };
    let reported = reports.end(&directory, status.success());
    if let Ok(findings) = &reported
        && let Err(error) = hand_on(findings)
    {
        layout::warn(format_args!("the command around this one hears of no finding: {error}"));
    }
    if let (true, Some(explained)) = (args.json.leaves_a_report(), &explained) {
        let name = program.name.display();
        let told = match status.success() {
            true => explained.print_accesses(format_args!("transom check: {name} succeeded")),
            false => explained.print_reasons(format_args!("\ntransom: {name} {}.", Ended(status))),
        };
        if let Err(failure) = told {
            let _ = failure.report();
        }
    }
    drop((directory, explained));
    conclude(status, reported, reports.written(), |findings| {
        let count = findings.with(Gravity::Finding).count();
        match own_status(count, findings.opened, args) {
            Some((status, message)) => Err(Failure::with_status(status, message)),
            None => Ok(()),
        }
    })
}

/// A finding as people read it.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

/// The findings in a directory that the user wants to see, for `transom rehearse`.
pub(crate) fn texts(directory: &Directory, choice: &Choice) -> Result<Vec<Text>> {
    let files = directory
        .files()
        .map_err(|error| Failure::new(format_args!("cannot read what was found: {error}")))?;
    // Looking up names takes longer than most runs. Notes are not wanted.
    let is_finding = |record: &Record| matches!(record, Record::Finding(it) if it.kind.gravity() == Gravity::Finding);
    if !files.iter().flatten().any(is_finding) {
        return Ok(Vec::new());
    }
    let found = Findings::of(files, choice, &mut Symbols::default());
    let columns = COLUMNS.min(layout::columns(io::stderr()));
    let mut people = Reporter::new();
    let mut text = |found: &Found| {
        let mut page = Page::new(Vec::new(), columns);
        let _ = people.finding(&mut page, found);
        let text = String::from_utf8_lossy(&page.to).into_owned();
        Text { kind: found.kind, text }
    };
    Ok(found.with(Gravity::Finding).map(&mut text).collect())
}

/// How this command fails although the program has succeeded.
fn own_status(findings: usize, opened: usize, args: &CheckArgs) -> Option<(u8, &'static str)> {
    if findings > 0 && args.error_exitcode != 0 {
        // The report has said everything.
        Some((args.error_exitcode, ""))
    } else if args.require && opened == 0 {
        Some((1, UNOPENED))
    } else {
        None
    }
}

/// The reports for the user, and their outputs.
struct Reports<'a> {
    args: &'a CheckArgs,
    choice: Choice,
    symbols: Symbols,
    people: Reporter,
    /// The output for lines of JSON, if the user wants them.
    json: Option<Lines>,
    /// The identities of findings that were reported while the program runs.
    told: HashSet<String>,
}

impl<'a> Reports<'a> {
    /// Opens the files, so that a file that cannot be written is reported before the program runs.
    fn begin(args: &'a CheckArgs) -> Result<Self> {
        let json = args.json.begin()?;
        if let Some(file) = &args.junit {
            create(file)?;
        }
        Ok(Self {
            args,
            choice: Choice::of(&args.choice)?,
            symbols: Symbols::default(),
            people: Reporter::new(),
            json,
            told: HashSet::new(),
        })
    }

    /// Reports the findings since the last time.
    fn follow(&mut self, directory: &Directory) -> Result<Findings> {
        let findings = self.read(directory)?;
        self.tell_new(&findings);
        Ok(findings)
    }

    fn read(&mut self, directory: &Directory) -> Result<Findings> {
        let files = directory.files().map_err(|error| {
            let path = directory.path().display();
            Failure::new(format_args!("cannot read what was found, in {path}: {error}"))
        })?;
        Ok(Findings::of(files, &self.choice, &mut self.symbols))
    }

    fn tell_new(&mut self, findings: &Findings) {
        for found in &findings.all {
            if self.told.insert(found.identity().to_owned()) {
                self.tell(found);
            }
        }
    }

    fn tell(&mut self, found: &Found) {
        if let Some(out) = &mut self.json {
            out.write_on(|out| json::print(out, found));
        }
        // If standard error cannot be written, there is no other place to report it.
        if self.args.json.leaves_a_report() && found.gravity == Gravity::Finding {
            let _ = self.people.finding(&mut layout::stderr_within(COLUMNS), found);
        }
        if github::is_here() {
            let annotation = github::annotation(found, &github::workspace());
            let _ = writeln!(io::stderr(), "{annotation}");
        }
    }

    /// Reports the remaining findings when the program has ended, well or not.
    fn end(&mut self, directory: &Directory, well: bool) -> Result<Findings> {
        let findings = self.read(directory)?;
        if self.args.json.leaves_a_report() && !self.args.follow && !findings.all.is_empty() {
            // The program's output comes before.
            let _ = writeln!(layout::stderr().to);
        }
        self.tell_new(&findings);
        if let Some(out) = &mut self.json {
            let symbols = &mut self.symbols;
            out.write_on(|out| json::print_summary(out, &findings, symbols));
        }
        if self.args.json.leaves_a_report() {
            let mut out = layout::stderr_within(COLUMNS);
            let _ = self.people.notes(&mut out, &findings, well);
            for (process, says) in &findings.stopped {
                let _ = out.text(format_args!("transom check: {}", people::stopped(process, says)));
            }
            let summary = people::summary(&findings);
            let _ = out.text(format_args!("transom check: {summary}"));
        }
        if let Some(file) = &self.args.junit {
            self.write_junit(file, &findings)?;
        }
        Ok(findings)
    }

    /// Whether the lines for programs could be written.
    fn written(self) -> Result {
        self.json.map_or(Ok(()), Lines::written)
    }

    fn write_junit(&mut self, path: &Path, findings: &Findings) -> Result {
        let people = &mut self.people;
        let text = |found: &Found| {
            let mut page = Page::new(Vec::new(), COLUMNS);
            let _ = people.finding(&mut page, found);
            strip_str(&String::from_utf8_lossy(&page.to)).to_string()
        };
        let kinds = self.choice.kinds_of_findings();
        let unopened = (self.args.require && findings.opened == 0).then_some(UNOPENED);
        let from = env::current_dir().unwrap_or_default();
        let report = junit::report(findings, kinds, unopened, &from, text);
        let mut file = create(path)?;
        file.write_all(report.as_bytes()).map_err(|error| cannot_write(path, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::found::Call;
    use super::symbols::{Place, Source};
    use super::*;
    use clap::Parser;
    use transom_check::record::{Finding, Frame, Site};

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: CheckArgs,
    }

    fn args(words: &[&str]) -> CheckArgs {
        Line::parse_from(["check"].iter().chain(words)).args
    }

    fn place(function: &str, line: u32, column: u32) -> Place {
        let source = Source { file: "/src/server.c".into(), line, column: Some(column) };
        Place {
            module: "/opt/server".into(),
            offset: 0x1234,
            function: Some(function.into()),
            source: Some(source),
            inlined: false,
        }
    }

    /// A finding with two calls, three times in one process.
    pub(super) fn found() -> Found {
        let call = |what: &str, places| Call { what: what.into(), thread: 4711, places };
        let finding = Finding {
            number: 1,
            kind: Kind::WorkLost,
            says: "queue pair 0x12 is destroyed with 1 request under way".into(),
            sites: vec![],
        };
        let records = vec![
            Record::Process { pid: 4711, program: "/opt/server".into() },
            Record::Opened,
            Record::Finding(finding),
            Record::Again { number: 1, count: 3 },
        ];
        let of = Findings::of(vec![records], &Choice::default(), &mut Symbols::default());
        let mut found = of.all.into_iter().next().unwrap();
        found.calls = vec![
            call("destroyed here", vec![place("finish", 83, 5), place("main", 91, 5)]),
            call("posted here", vec![place("post_reply", 71, 9), place("serve", 44, 9)]),
        ];
        found
    }

    /// The files of processes with the same finding, except for its numbers.
    fn files(processes: u32) -> Vec<Vec<Record>> {
        let file = |pid| {
            let frame = Frame { module: "/opt/server".into(), offset: 0x1234 };
            let site = Site { what: "destroyed here".into(), thread: pid, frames: vec![frame] };
            let says = format!("queue pair {pid:#x} is destroyed with {pid} requests under way");
            let finding = Finding { number: 1, kind: Kind::WorkLost, says, sites: vec![site] };
            vec![
                Record::Process { pid, program: "/opt/server".into() },
                Record::Opened,
                Record::Finding(finding),
            ]
        };
        (1..=processes).map(file).collect()
    }

    fn findings(files: Vec<Vec<Record>>) -> Findings {
        Findings::of(files, &Choice::default(), &mut Symbols::default())
    }

    #[test]
    fn the_same_finding_of_several_processes_is_told_once() {
        let findings = findings(files(6));
        assert_eq!(findings.opened, 6);
        let [found] = &findings.all[..] else { panic!("{findings:?}") };
        assert_eq!((found.count, found.processes.len()), (6, 6));
        assert_eq!(people::summary(&findings), "1 finding of 1 kind in 6 processes.");
    }

    #[test]
    fn findings_at_other_places_or_of_other_kinds_are_told_apart() {
        let mut files = files(4);
        let Record::Finding(finding) = &mut files[1][2] else { panic!() };
        finding.sites[0].frames[0].offset += 1;
        let Record::Finding(finding) = &mut files[2][2] else { panic!() };
        finding.kind = Kind::UsedAfterDestroy;
        let Record::Finding(finding) = &mut files[3][2] else { panic!() };
        finding.says = "queue pair 0x1 is destroyed, and its owner is gone".into();
        let findings = findings(files);
        assert_eq!(findings.all.len(), 4);
        assert!(findings.all.is_sorted_by_key(|found| found.kind));
        assert_eq!(people::summary(&findings), "4 findings of 2 kinds in 4 processes.");
    }

    /// Rule: CHK-95
    #[test]
    fn a_process_that_is_not_checked_to_its_end_is_named() {
        let mut files = files(2);
        files[1].push(Record::Stopped { says: "there is no such object".into() });
        let findings = findings(files);
        let [(process, says)] = &findings.stopped[..] else { panic!("{findings:?}") };
        let told = people::stopped(process, says);
        assert!(told.starts_with("server (process 2) was not checked to its end"), "{told}");
        assert!(told.contains("there is no such object"), "{told}");
    }

    #[test]
    fn the_summary_tells_nothing_found_from_nothing_checked() {
        let with = |opened| Findings { opened, suppressed: 1, ..Findings::default() };
        let nothing = "No finding in 2 processes that opened a device; 1 suppressed.";
        assert_eq!(people::summary(&with(2)), nothing);
        assert!(people::summary(&with(0)).starts_with("No process opened a device"));
    }

    /// Rules: CHK-90, CHK-92
    #[test]
    fn findings_and_required_devices_decide_the_exit_status() {
        let status = |words: &[&str], findings, opened| {
            let words: Vec<_> = words.iter().copied().chain(["true"]).collect();
            own_status(findings, opened, &args(&words)).map(|(status, _)| status)
        };
        assert_eq!(status(&[], 0, 1), None);
        assert_eq!(status(&[], 2, 1), Some(66));
        assert_eq!(status(&["--error-exitcode", "7"], 2, 1), Some(7));
        assert_eq!(status(&["--error-exitcode", "0"], 2, 1), None);
        assert_eq!(status(&[], 0, 0), None);
        assert_eq!(status(&["--require"], 0, 0), Some(1));
        assert_eq!(status(&["--require", "--error-exitcode", "0"], 0, 0), Some(1));
        assert_eq!(status(&["--require"], 0, 1), None);
    }

    #[test]
    fn the_command_line_takes_a_program_or_a_kind_to_explain() {
        let parse = |words: &[&str]| Line::try_parse_from(["check"].iter().chain(words));
        assert!(
            parse(&["--json", "prog", "--json=x"]).is_ok_and(|it| !it.args.json.leaves_a_report())
        );
        assert!(parse(&["--json=file", "--", "prog"]).is_ok());
        assert!(parse(&["--kinds", "work-lost,used-after-destroy", "prog"]).is_ok());
        assert!(parse(&["--explain", "work-lost"]).is_ok());
        assert!(parse(&[]).is_err());
        let error = parse(&["--explain", "work-lots"]).err().unwrap().to_string();
        assert!(error.contains("similar value exists: 'work-lost'"), "{error}");
    }
}
