//! The report of a rehearsal as lines of JSON.

use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt as _;

use anstream::adapter::strip_str;
use serde::Serialize;
use transom_rehearse::{Place, Plan, Sort};

use super::cut::{Cut, Least};
use super::outcome::Outcome;
use super::people::last_lines;
use super::tally::Tally;
use super::trial::{Programs, Trial};
use crate::lines::{Exact, print};

pub(super) const FIELDS: &str = "\
With --json, each line is an object. Numbers are integers, and seed is a text of decimal digits. A field without a value is
null.
Each run has a line with these fields:
  type           run
  seed           its seed; null for a run without provocations
  as             the adapter that the device stands for
  outcome        passed, exited (with an error), killed, died (a process of a program that goes on), timed_out, or
                 found (by the check)
  exit_status    the exit status of a program that exited
  signal         the signal that killed it
  provoked       how often something was provoked
  opened         how many processes opened a device

A run that failed has a second line, when it has been cut down:
  type           failure
  seed, as, outcome, exit_status, signal
                 as in the line of the run
  sentence       how the run failed
  findings       the findings of the check, however the run ended, each with these fields:
    kind         what kind of mistake, such as work-lost
    text         the finding as people read it
  output         the last lines that the program printed
  cut            what is left: places, kinds, profile (no provocation: the limits of the adapter), unprovoked (it
                 fails without any provocation too), not_again (it did not fail again), or given (by --at)
  complete       whether each part of it was found to be needed; false if the time for that was over
  provocations   the provocations that make it fail
  places         the places that make it fail, each with these fields:
    place        its name for --at
    provocation  what is provoked there
    process_number  the number of the process, from 0
    process         the name of its program
    object_number   the number of the object in it, from 0
    nth             the number of the operation on the object, from 0
    verb            the verb that failed or was slow
  again          the command that shows it again

Each provocation that was asked for has a line at the end:
  type           provocation
  provocation    its name
  rule           its rule, such as REH-10
  kind           moment, mercy or failure
  count          how often it was exercised, in all runs
  runs           in how many runs

The last line has these fields:
  type           summary
  runs           how many runs there were, without the one that provokes nothing
  failed         how many failed
  never          the provocations that were never exercised
  missed         the places of --at at which nothing was provoked
  signal         the signal that ended the command

";

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    Run {
        #[serde(flatten)]
        by: By,
        #[serde(flatten)]
        ended: Ended,
        provoked: usize,
        opened: usize,
    },
    Failure {
        #[serde(flatten)]
        by: By,
        #[serde(flatten)]
        ended: Ended,
        sentence: String,
        findings: Vec<Finding<'a>>,
        output: Vec<&'a str>,
        cut: &'a str,
        complete: bool,
        provocations: Vec<&'a str>,
        places: Vec<At<'a>>,
        again: &'a str,
    },
    Provocation {
        #[serde(rename = "provocation")]
        name: &'a str,
        rule: &'a str,
        kind: &'a str,
        count: usize,
        runs: usize,
    },
    Summary {
        runs: usize,
        failed: usize,
        never: Vec<&'a str>,
        missed: Vec<String>,
        signal: Option<i32>,
    },
}

/// The plan of a run.
#[derive(Serialize)]
struct By {
    seed: Option<Exact>,
    #[serde(rename = "as")]
    profile: Option<&'static str>,
}

impl By {
    fn of(plan: &Plan) -> Self {
        let seed = (!plan.kinds.is_empty()).then_some(Exact(plan.seed));
        Self { seed, profile: plan.profile.map(|it| it.name) }
    }
}

/// How a run has ended.
#[derive(Serialize)]
struct Ended {
    outcome: &'static str,
    exit_status: Option<i32>,
    signal: Option<i32>,
}

#[derive(Serialize)]
struct Finding<'a> {
    kind: &'a str,
    text: String,
}

#[derive(Serialize)]
struct At<'a> {
    place: String,
    provocation: &'static str,
    process_number: u32,
    process: Option<&'a str>,
    object_number: u32,
    nth: u64,
    verb: Option<&'a str>,
}

/// A run. One that provokes nothing has no seed.
pub(super) fn run(out: &mut dyn Write, plan: &Plan, trial: &Trial) -> io::Result<()> {
    let (provoked, opened) = (trial.provoked.len(), trial.programs.names.len());
    print(out, &Line::Run { by: By::of(plan), ended: ended(&trial.outcome), provoked, opened })
}

/// A run that failed, and what is left of it. Without `cut` the places were given.
pub(super) fn failure(
    out: &mut dyn Write,
    plan: &Plan,
    trial: &Trial,
    cut: Option<&Cut>,
    again: &str,
) -> io::Result<()> {
    let mut given: Vec<Place>;
    let (complete, programs) =
        cut.map_or((true, &trial.programs), |cut| (cut.is_complete, &cut.programs));
    let (cut, places, mut provocations) = match cut.map(|cut| &cut.least) {
        Some(Least::Profile(_)) => ("profile", &[][..], Vec::new()),
        Some(Least::Unprovoked { .. }) => ("unprovoked", &[][..], Vec::new()),
        Some(Least::NotAgain(_)) => ("not_again", &[][..], Vec::new()),
        Some(Least::Kinds(kinds)) => ("kinds", &[][..], kinds.clone()),
        Some(Least::Places(places)) => ("places", &places[..], Vec::new()),
        None => {
            given = plan.places.iter().flatten().copied().collect();
            given.sort();
            ("given", &given[..], Vec::new())
        }
    };
    provocations.extend(places.iter().map(|place| place.provocation));
    provocations.dedup();
    let line = Line::Failure {
        by: By::of(plan),
        ended: ended(&trial.outcome),
        sentence: trial.outcome.to_string(),
        findings: findings(trial),
        output: last_lines(trial).0,
        cut,
        complete,
        provocations: provocations.iter().map(|it| it.name()).collect(),
        places: places.iter().map(|place| at(place, programs)).collect(),
        again,
    };
    print(out, &line)
}

/// The provocations, and the last line.
pub(super) fn end(
    out: &mut dyn Write,
    tally: &Tally,
    plan: &Plan,
    failed: bool,
    signal: Option<i32>,
) -> io::Result<()> {
    for it in &plan.kinds {
        let kind = match it.sort() {
            Sort::Moment => "moment",
            Sort::Mercy => "mercy",
            Sort::Failure => "failure",
        };
        let (count, runs) = tally.of(*it);
        print(out, &Line::Provocation { name: it.name(), rule: it.rule(), kind, count, runs })?;
    }
    let never = tally.never(plan).map(|it| it.name()).collect();
    let missed = tally.missed(plan).iter().map(ToString::to_string).collect();
    print(out, &Line::Summary { runs: tally.runs(), failed: failed.into(), never, missed, signal })
}

fn ended(outcome: &Outcome) -> Ended {
    let (outcome, exit_status, signal) = match outcome {
        Outcome::Passed => ("passed", None, None),
        Outcome::Ended(status) => match status.signal() {
            None => ("exited", status.code(), None),
            signal => ("killed", None, signal),
        },
        Outcome::Died { signal, .. } => ("died", None, Some(*signal)),
        Outcome::TimedOut(_) => ("timed_out", None, None),
        Outcome::Found(_) => ("found", None, None),
    };
    Ended { outcome, exit_status, signal }
}

fn findings(trial: &Trial) -> Vec<Finding<'_>> {
    let finding = |it: &crate::check::Text| {
        let text = strip_str(it.text.trim_end()).to_string();
        Finding { kind: it.kind.name(), text }
    };
    trial.findings.iter().map(finding).collect()
}

fn at<'a>(place: &Place, programs: &'a Programs) -> At<'a> {
    let &Place { provocation, process, object, nth } = place;
    At {
        place: place.to_string(),
        provocation: provocation.name(),
        process_number: process,
        process: programs.names.get(&process).map(String::as_str),
        object_number: object,
        nth,
        verb: programs.verbs.get(place).map(String::as_str),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::field_names;
    use serde_json::{Value, json};
    use std::process::ExitStatus;
    use std::time::Duration;
    use transom_check::Kind;
    use transom_rehearse::Provocation;

    use crate::check::Text;

    const AT: Place =
        Place { provocation: Provocation::SingleCompletions, process: 0, object: 1, nth: 2 };

    fn trial(outcome: Outcome) -> Trial {
        let programs = Programs { names: [(0, "server".into())].into(), ..Programs::default() };
        let findings = vec![];
        Trial { outcome, findings, provoked: vec![AT], programs, output: "first\nlast\n".into() }
    }

    fn plan() -> Plan {
        let kinds = [Provocation::LateWork, Provocation::SingleCompletions].into();
        Plan { seed: 7, kinds, ..Plan::quiet() }
    }

    fn lines(print: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Vec<Value> {
        let mut out = Vec::new();
        print(&mut out).unwrap();
        out.split_inclusive(|it| *it == b'\n')
            .map(|it| serde_json::from_slice(it).unwrap())
            .collect()
    }

    fn failed(outcome: Outcome, least: Option<Least>) -> Value {
        of_trial(&trial(outcome), least)
    }

    fn of_trial(trial: &Trial, least: Option<Least>) -> Value {
        let programs = trial.programs.clone();
        let cut = least.map(|least| Cut { least, is_complete: true, programs });
        let mut lines = lines(|out| failure(out, &plan(), trial, cut.as_ref(), "transom rehearse"));
        lines.pop().unwrap()
    }

    fn exited(status: i32) -> Outcome {
        Outcome::Ended(ExitStatus::from_raw(status << 8))
    }

    #[test]
    fn a_failure_has_its_outcome_and_what_is_left_of_it() {
        let expected = json!({
            "type": "failure", "seed": "7", "as": null, "outcome": "exited", "exit_status": 3, "signal": null,
            "sentence": "the program exits with status 3", "findings": [], "output": ["first", "last"],
            "cut": "places", "complete": true, "provocations": ["single-completions"],
            "places": [{ "place": "single-completions:0.1.2", "provocation": "single-completions",
                         "process_number": 0, "process": "server", "object_number": 1, "nth": 2,
                         "verb": null }],
            "again": "transom rehearse",
        });
        assert_eq!(failed(exited(3), Some(Least::Places(vec![AT]))), expected);
        let kinds = failed(exited(3), Some(Least::Kinds(vec![Provocation::LateWork])));
        assert_eq!((&kinds["cut"], &kinds["places"]), (&json!("kinds"), &json!([])));
        assert_eq!(kinds["provocations"], json!(["late-work"]));
        assert_eq!(failed(exited(3), Some(Least::NotAgain(3)))["cut"], "not_again");
        let unprovoked = Least::Unprovoked { failed: 1, runs: 4 };
        assert_eq!(failed(exited(3), Some(unprovoked))["cut"], "unprovoked");
        assert_eq!(failed(exited(3), None)["cut"], "given");
    }

    /// Rule: REH-44
    #[test]
    fn places_that_were_given_and_their_provocations_have_one_order() {
        let places: [Place; 4] =
            ["late-work:0.0.0", "single-completions:0.0.1", "late-work:0.1.0", "late-work:0.2.0"]
                .map(|place| place.parse().unwrap());
        // Each set has another order.
        for _ in 0..20 {
            let plan = Plan { places: Some(places.into()), ..plan() };
            let line = lines(|out| failure(out, &plan, &trial(exited(3)), None, "")).pop().unwrap();
            assert_eq!(line["provocations"].as_array().unwrap().len(), 2, "{line}");
            let mut sorted = places;
            sorted.sort();
            let told = line["places"].as_array().unwrap().iter().map(|it| it["place"].as_str());
            let told: Vec<_> = told.flatten().map(|it| it.parse::<Place>().unwrap()).collect();
            assert_eq!(told, sorted);
        }
    }

    #[test]
    fn each_outcome_has_its_name() {
        let of = |outcome| {
            let line = lines(|out| run(out, &plan(), &trial(outcome))).pop().unwrap();
            (line["outcome"].clone(), line["exit_status"].clone(), line["signal"].clone())
        };
        assert_eq!(of(Outcome::Passed), (json!("passed"), json!(null), json!(null)));
        let killed = Outcome::Ended(ExitStatus::from_raw(9));
        assert_eq!(of(killed), (json!("killed"), json!(null), json!(9)));
        assert_eq!(of(Outcome::TimedOut(Duration::ZERO)).0, "timed_out");
        let finding = Text { kind: Kind::ALL[0], text: "\u{1b}[1mlost\u{1b}[0m\n".into() };
        let trial = |outcome| Trial { findings: vec![finding.clone()], ..trial(outcome) };
        let line = of_trial(&trial(Outcome::Found(vec![Kind::ALL[0]])), None);
        let findings = json!([{ "kind": Kind::ALL[0].name(), "text": "lost" }]);
        assert_eq!((&line["outcome"], &line["findings"]), (&json!("found"), &findings));
        // What was found is told of a program that has died too.
        let died = Outcome::Died { program: "server".into(), signal: 11 };
        let line = of_trial(&trial(died), None);
        assert_eq!((&line["outcome"], &line["findings"]), (&json!("died"), &findings));
        assert_eq!(line["signal"], 11);
    }

    /// Rule: REH-44
    #[test]
    fn the_end_counts_every_provocation_and_names_those_that_never_were() {
        let mut tally = Tally::default();
        tally.add(&trial(Outcome::Passed), &plan());
        let lines = lines(|out| end(out, &tally, &plan(), false, None));
        let counts: Vec<_> =
            lines[..2].iter().map(|it| (&it["provocation"], &it["count"])).collect();
        let expected = [(json!("late-work"), json!(0)), (json!("single-completions"), json!(1))];
        assert_eq!(counts, expected.iter().map(|(name, it)| (name, it)).collect::<Vec<_>>());
        let last = json!({
            "type": "summary", "runs": 1, "failed": 0, "never": ["late-work"], "missed": [],
            "signal": null
        });
        assert_eq!(lines[2..], [last]);
    }

    #[test]
    fn a_place_that_no_run_comes_to_is_named() {
        let far = Place { object: 99, ..AT };
        let plan = Plan { places: Some([AT, far].into()), ..plan() };
        let mut tally = Tally::default();
        tally.add(&trial(Outcome::Passed), &plan);
        let summary = lines(|out| end(out, &tally, &plan, false, None)).pop().unwrap();
        assert_eq!(summary["missed"], json!(["single-completions:0.99.2"]));
        let mut page = crate::layout::Page::new(Vec::new(), 80);
        tally.print(&mut page, &plan).unwrap();
        let told = String::from_utf8(page.to).unwrap();
        assert!(told.contains("Nothing was provoked at single-completions:0.99.2: "), "{told}");
        assert!(!told.contains("single-completions:0.1.2"), "{told}");
        assert!(!told.contains("Never exercised"), "{told}");
    }

    #[test]
    fn the_help_lists_every_field() {
        let words: Vec<_> = FIELDS.split([' ', '\n', ',', ';', ':']).collect();
        let mut fields = Vec::new();
        let finding = Text { kind: Kind::ALL[0], text: String::new() };
        let trial_with = Trial { findings: vec![finding], ..trial(Outcome::Passed) };
        let failed = of_trial(&trial_with, Some(Least::Places(vec![AT])));
        let run = lines(|out| run(out, &Plan::quiet(), &trial(Outcome::Passed)));
        let end = lines(|out| end(out, &Tally::default(), &plan(), false, None));
        [failed].iter().chain(&run).chain(&end).for_each(|line| field_names(line, &mut fields));
        assert!(fields.len() > 30);
        for field in fields {
            assert!(words.contains(&field.as_str()), "{field}");
        }
    }
}
