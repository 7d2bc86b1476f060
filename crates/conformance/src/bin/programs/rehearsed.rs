//! `programs rehearsed`: programs under `transom rehearse`, each for a minute, or an hour in the long run. What fails is a
//! mistake of ours, or one of the program. Then [`list`] names it, with the reason, and a second table has the seed and
//! the command that show it. One that is not shown any more is a problem too.

mod list;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use transom_conformance::programs::{Running, installed};
use transom_rehearse::Provocation;

use self::list::{Known, Listens, PROGRAMS, Rehearsed};
use crate::extent::Extent;
use crate::installation::Installation;
use crate::meeting::free_port;
use crate::strangers::{EXCHANGE, UCX, start_over_ucx};
use crate::table::{Form, Report, Row, Style, Verdict};

static FORM: Form = Form {
    script: "rehearsed",
    title: "programs under `transom rehearse`, again and again until the time is over",
    subject: &[("program", 44)],
    figures: &[("runs", 6), ("what is left out, and why", 60)],
};

static KNOWN: Form = Form {
    script: "rehearsed-known",
    title: "what is left out there: the seed that shows it, by the command of that row with `--seed` and `--only`",
    subject: &[("program", 44), ("provocation", 18)],
    figures: &[
        ("seed", 4),
        ("the run", 24),
        ("what the program relies on", 60),
        ("where it bites", 40),
    ],
};

/// Starts a server and then its client.
const MEET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/meet.sh");
/// How long each run of a program may take.
const LIMIT: &str = "20s";
/// The same where it is expected to hang.
const SHORT_LIMIT: &str = "6s";
/// In so many runs a known failure must come.
const RUNS: &str = "60";

/// Rehearses all of them, or those whose line contains `only`.
pub(crate) fn run(
    installation: &Installation,
    style: Style,
    extent: Extent,
    only: Option<&str>,
) -> Result<Vec<Report>, String> {
    let time = Duration::from_secs(if extent.is_long() { 3600 } else { 60 });
    let chosen = || PROGRAMS.iter().filter(|it| only.is_none_or(|only| it.line().contains(only)));
    if chosen().next().is_none() {
        return Err(format!("no program is called so: {}", only.unwrap_or_default()));
    }
    let mut report = Report::begin(&FORM, style);
    for program in chosen() {
        let came = program.rehearse(installation, time);
        let runs = came.as_ref().map_or(String::new(), u64::to_string);
        let known = program.all_known().map(|it| format!("{}: {}", it.by.name(), it.relies_on));
        report.add(Row {
            subject: vec![program.line().to_owned()],
            figures: vec![runs, known.collect::<Vec<_>>().join("; ")],
            verdict: Verdict::of(came.err()),
        });
    }
    let mut shown = Report::begin(&KNOWN, style);
    for (program, known) in chosen().flat_map(|it| it.all_known().map(move |known| (it, known))) {
        let came = program.show(installation, known);
        let (seed, how) = came.as_ref().map_or(Default::default(), Clone::clone);
        shown.add(Row {
            subject: vec![program.line().to_owned(), known.by.name().to_owned()],
            figures: vec![seed, how, known.relies_on.to_owned(), known.bites.to_owned()],
            verdict: Verdict::of(came.err()),
        });
    }
    Ok(vec![report, shown])
}

/// What a rehearsal said.
struct Said {
    succeeded: bool,
    lines: Vec<Value>,
    complaints: String,
}

impl Said {
    fn of_type(&self, kind: &str) -> Option<&Value> {
        self.lines.iter().find(|line| line["type"] == kind)
    }

    /// Its failure, for people.
    fn problem(&self) -> String {
        match self.of_type("failure") {
            Some(it) => format!("{}\n{}\n{}", it["sentence"], it["output"], it["again"]),
            None => self.complaints.clone(),
        }
    }
}

impl Rehearsed {
    /// The line that names it.
    fn line(&self) -> &'static str {
        self.client.unwrap_or(self.server)
    }

    fn all_known(&self) -> impl Iterator<Item = Known> {
        self.known.iter().flat_map(|some| some.iter().copied())
    }

    /// Rehearses it for so long. Returns the number of runs.
    fn rehearse(&self, installation: &Installation, time: Duration) -> Result<u64, String> {
        let time_word = format!("{}s", time.as_secs());
        let mut options = vec!["--limit", LIMIT, "--for", &time_word];
        let known: Vec<_> = self.all_known().map(|it| it.by.name()).collect();
        let known = known.join(",");
        if !known.is_empty() {
            options.extend(["--without", &known]);
        }
        let said = self.run(installation, &options, 2 * time)?;
        match (said.succeeded, said.of_type("summary").and_then(|line| line["runs"].as_u64())) {
            (true, Some(runs)) => Ok(runs),
            _ => Err(format!("{}: {}", self.server, said.problem())),
        }
    }

    /// Has a known failure shown. Returns the seed, and what becomes of the program by it.
    fn show(&self, installation: &Installation, known: Known) -> Result<(String, String), String> {
        let names: Vec<_> =
            [known.by].into_iter().chain(known.with).map(Provocation::name).collect();
        let names = names.join(",");
        let options = ["--limit", SHORT_LIMIT, "--only", &names, "--runs", RUNS];
        let said = self.run(installation, &options, Duration::from_secs(600))?;
        match said.of_type("failure") {
            Some(failure) if failure["seed"].is_string() => {
                let [seed, outcome] = ["seed", "outcome"].map(|it| failure[it].as_str());
                let outcome = outcome.unwrap_or_default().replace('_', " ");
                Ok((seed.unwrap_or_default().to_owned(), outcome))
            }
            None if said.succeeded => {
                Err(format!("does not fail by it any more in {RUNS} runs: strike it from the list"))
            }
            _ => Err(said.problem()),
        }
    }

    /// Runs a rehearsal of it.
    fn run(
        &self,
        installation: &Installation,
        options: &[&str],
        most: Duration,
    ) -> Result<Said, String> {
        let transom = installation.transom()?;
        let mut rehearse = installation.transom()?;
        rehearse.env_remove("TRANSOM_LIB").envs(UCX).current_dir(installation.folder());
        // A pipe would be full some time.
        let told = installation.folder().join("rehearsed.json");
        rehearse.arg("rehearse").arg(format!("--json={}", told.display())).args(options);
        if let Some(line) = self.suppressed {
            let file = installation.folder().join("suppressions");
            fs::write(&file, line).map_err(|error| format!("{}: {error}", file.display()))?;
            rehearse.arg("--suppressions").arg(file);
        }
        rehearse.arg("--");
        match self.client {
            Some(client) => {
                let sockets = self.has_sockets.then(|| installation.sockets_library());
                let transom = transom.get_program().as_ref();
                self.meet(&mut rehearse, transom, client, sockets.as_deref())?;
            }
            None => ranks(&mut rehearse, installation)?,
        }
        // The last run may fail, and is then cut down.
        let limit = most + Duration::from_secs(1200);
        let (status, printed) = Running::start(&mut rehearse).end(limit)?;
        let told = fs::read_to_string(told).unwrap_or_default();
        let lines = told.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
        let complaints = format!("{status}\n{}", printed.complaints);
        Ok(Said { succeeded: status.success(), lines: lines.collect(), complaints })
    }

    /// Adds the words that start both ends.
    fn meet(
        &self,
        to: &mut Command,
        transom: &Path,
        client: &str,
        sockets: Option<&Path>,
    ) -> Result<(), String> {
        let port = match self.listens {
            Listens::At(port) => port,
            Listens::Anywhere | Listens::Nowhere => free_port()?,
        };
        let awaited = if self.listens == Listens::Nowhere { 0 } else { port };
        to.args(["sh", MEET]).args(self.stays.then_some("-k"));
        if let Some(library) = sockets {
            to.arg("-s").arg(library);
        }
        to.arg(transom).arg(awaited.to_string());
        for (separator, words) in [(None, self.server), (Some("--"), client)] {
            to.args(separator);
            for (at, word) in words.split_whitespace().enumerate() {
                if at == 0 {
                    to.arg(installed(word, self.package)?);
                } else {
                    to.arg(word.replace("PORT", &port.to_string()));
                }
            }
        }
        Ok(())
    }
}

/// Adds the words that start four ranks, which check the data they exchange.
fn ranks(to: &mut Command, installation: &Installation) -> Result<(), String> {
    let ranks = installation.folder().join("mpi_exchange");
    if !ranks.exists() {
        let mut compile = Command::new(installed("mpicc", "libopenmpi-dev")?);
        compile.args(["-O1", "-o"]).arg(&ranks).arg(EXCHANGE);
        Running::start(&mut compile).success(Duration::from_secs(60))?;
    }
    // After a rank has given up, mpirun crashes in its PMIx library. A rank may give up when a call has failed.
    to.args(["sh", "-c", "\"$@\" || exit 1", "ranks"]);
    to.arg(installed("mpirun", "openmpi-bin")?);
    start_over_ucx(to, 4);
    to.arg(ranks);
    Ok(())
}
