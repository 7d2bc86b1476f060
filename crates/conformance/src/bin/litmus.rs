//! `litmus`: plays the litmus tests of `spec/ordering.md` on the device, plainly and in rehearsals, and counts which
//! outcomes it reaches.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::{env, fs, thread};

use clap::Parser;
use transom_conformance::documents::{Document, root};
use transom_conformance::litmus::page::{self, Test};
use transom_conformance::litmus::reached::{Play, Row, Tally, wrong};
use transom_conformance::litmus::stage::obstacle;
use transom_rehearse::Order;

/// The table of everything reached.
const TABLE: &str = "spec/ordering-reached.md";
/// What comes before its rows.
const HEAD: &str = "| test | outcome | spec | model | run | plain | by spec | by model | by processes | first seeds |\n\
                    |---|---|---|---|---|---|---|---|---|---|\n";
/// So many rehearsals have one plain play.
const REHEARSALS: u64 = 4;
/// How many processes play at a time. They mostly wait.
const PLAYERS: usize = 4;
/// So many times the seeds are for tests with an outcome that was not reached, and nothing stands against it.
const LONGER: u64 = 4;

/// Play the litmus tests of spec/ordering.md on the device.
#[derive(Parser)]
#[command(name = "litmus")]
struct Arguments {
    /// Play only these tests.
    #[arg(long, num_args = 1..)]
    test: Vec<String>,
    /// Rehearse by so many seeds.
    #[arg(long, default_value_t = 32)]
    seeds: u64,
    /// Play each test so often in each process.
    #[arg(long, default_value_t = 8)]
    rounds: u64,
    /// Write spec/ordering-reached.md.
    #[arg(long)]
    bless: bool,
    /// Play these tests in this process.
    #[arg(long, num_args = 1.., hide = true)]
    play: Vec<String>,
    /// The seed of this process.
    #[arg(long, default_value_t = 1, hide = true)]
    seed: u64,
}

fn main() -> ExitCode {
    let Arguments { test: wanted, seeds, rounds, bless, play, seed } = Arguments::parse();
    let tests = page::parse(&Document::read("spec/ordering.md").text).expect("the page is right");
    if !play.is_empty() {
        let of_it = tests.iter().filter(|test| play.contains(&test.name));
        of_it.for_each(|test| {
            Play { seed, rehearsed: None, rounds, by_packets: false }.carry_out(test)
        });
        return ExitCode::SUCCESS;
    }
    let can = |test: &&Test| obstacle(&test.program).is_none();
    let is_wanted = |test: &&Test| wanted.is_empty() || wanted.contains(&test.name);
    let played: Vec<_> = tests.iter().filter(can).filter(is_wanted).collect();
    let tallies = Mutex::new(BTreeMap::<&str, Tally>::new());
    let problems = Mutex::new(Vec::new());
    let play = |tests: &[_], seeds| {
        let found = play_all(tests, seeds, rounds, &tallies);
        problems.lock().expect("no panic").extend(found);
    };
    play(&played, 1..=seeds);
    let is_open = |test: &&Test| {
        let tallies = tallies.lock().expect("no panic");
        rows(&[*test], &tallies).iter().any(|row| is_unreached(row) && reason(row).is_none())
    };
    let open: Vec<_> = played.iter().copied().filter(is_open).collect();
    play(&open, seeds + 1..=LONGER * seeds);
    let tallies = tallies.into_inner().expect("no panic");
    let problems = problems.into_inner().expect("no panic");
    let rows = rows(&played, &tallies);
    let table: String = rows.iter().map(Row::line).collect();
    let (summary, unreached) = (summary(&played, &rows), unreached(&rows));
    print!("{HEAD}{table}{summary}\n{unreached}");
    if bless {
        let text = Document::read(TABLE).text;
        let before = text.split("## Reached").next().unwrap_or_default();
        let how = format!(
            "By {seeds} seeds, each test {rounds} times by each. Tests with an outcome that was not reached then, \
             and nothing stands against it: by {} seeds.",
            LONGER * seeds
        );
        let unreached = format!("## Not reached, and why\n\n{unreached}");
        let text = format!("{before}## Reached\n\n{how}\n{summary}\n{HEAD}{table}\n{unreached}");
        fs::write(root().join(TABLE), text).expect("the table can be written");
    }
    problems.iter().for_each(|problem| println!("wrong: {problem}"));
    let unexplained: Vec<_> =
        rows.iter().filter(|row| is_unreached(row) && reason(row).is_none()).collect();
    let told = unexplained.iter().map(|row| row.line());
    told.for_each(|line| print!("allowed, not reached, and nothing says why: {line}"));
    if problems.is_empty() && unexplained.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Plays tests by seeds, and returns what is wrong.
fn play_all<'a>(
    tests: &[&'a Test],
    seeds: RangeInclusive<u64>,
    rounds: u64,
    tallies: &Mutex<BTreeMap<&'a str, Tally>>,
) -> Vec<String> {
    let plays: Vec<_> = seeds
        .flat_map(|seed| {
            let rehearsals = [Some(Order::Spec), Some(Order::Model), None];
            let rehearsals =
                rehearsals.into_iter().filter(move |it| it.is_some() || seed % REHEARSALS == 0);
            // All memories and layouts.
            rehearsals.map(move |rehearsed| {
                let seed = if rehearsed.is_some() { seed } else { seed / REHEARSALS };
                Play { seed, rehearsed, rounds, by_packets: false }
            })
        })
        .flat_map(|play| tests.iter().map(move |test| (play, *test)))
        .collect();
    let (next, litmus) = (AtomicUsize::new(0), env::current_exe().expect("this program"));
    let problems = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..PLAYERS {
            scope.spawn(|| {
                while let Some((play, test)) = plays.get(next.fetch_add(1, Relaxed)) {
                    let found = one(*play, test, &litmus, tallies);
                    problems.lock().expect("no panic").extend(found);
                }
            });
        }
    });
    problems.into_inner().expect("no panic")
}

/// Plays one test, and returns what is wrong.
fn one<'a>(
    play: Play,
    test: &'a Test,
    litmus: &Path,
    tallies: &Mutex<BTreeMap<&'a str, Tally>>,
) -> Vec<String> {
    let reached = match play.outcomes(litmus, &[&test.name]) {
        Ok(mut reached) => reached.remove(&test.name).unwrap_or_default(),
        Err(problem) => return vec![problem],
    };
    tallies.lock().expect("no panic").entry(&test.name).or_default().add(play, &reached);
    let found = wrong(test, &reached, play.rehearsed);
    found.into_iter().map(|outcome| format!("{outcome} ({play:?})")).collect()
}

/// The rows of all tests.
fn rows(tests: &[&Test], tallies: &BTreeMap<&str, Tally>) -> Vec<Row> {
    let none = Tally::default();
    tests.iter().flat_map(|test| tallies.get(&*test.name).unwrap_or(&none).rows(test)).collect()
}

/// What they say together.
fn summary(tests: &[&Test], rows: &[Row]) -> String {
    let count = |is_it: &dyn Fn(&Row) -> bool| rows.iter().filter(|row| is_it(row)).count();
    let by_spec = |row: &Row| row.said[0] == "allowed";
    let by_model = |row: &Row| row.said[1] == "allowed";
    format!(
        "{} tests have {} outcomes that the specification allows. Plain `run` reached {} of them, rehearsals by \
         the specification {}. {} of these plain `run` never reaches, and {} the model forbids.\n\n\
         The model allows {} outcomes. Rehearsals by the model reached {} of them, and {} that it forbids.\n\n\
         {} outcomes were reached at all, {} of them by nodes that were processes.\n",
        tests.len(),
        count(&by_spec),
        count(&|row| by_spec(row) && row.counts[0] > 0),
        count(&|row| by_spec(row) && row.counts[1] > 0),
        count(&|row| row.said[2] == "never" && row.counts[1] > 0),
        count(&|row| row.said[1] == "forbidden" && by_spec(row) && row.counts[1] > 0),
        count(&by_model),
        count(&|row| by_model(row) && row.counts[2] > 0),
        count(&|row| row.said[1] == "forbidden" && row.counts[2] > 0),
        count(&|row| row.counts.iter().sum::<u64>() > 0),
        count(&|row| row.apart > 0),
    )
}

/// Why some outcomes are never reached that an authority allows.
const REASONS: &[(&str, &[&str])] = &[
    (
        "a READ lands as a whole when it is carried out, and READs are carried out in order. The completion of the \
         first one would have to wait for its data",
        &["reads-land-backwards | 1 0"],
    ),
    (
        "what a READ reads is in memory by then, also for processors. Only the specification has buffers that \
         requests see and processors do not",
        &["store-buffering-reads | 0 0", "write-read-poll-tell | 0"],
    ),
    ("an atomic is done when it is in memory", &["faa-poll-tell | 0"]),
    (
        "messages of a queue pair are numbered as they leave, and a READ that is passed by one would have a number \
         behind it. Only what goes straight to memory passes a READ",
        &["read-send | 2", "read-sendinv | 1 0"],
    ),
    ("READs are carried out in order, as the specification asks for", &["read-read | 1 0"]),
    (
        "the manual page forbids a WRITE between the two steps of an atomic. In private memory that comes about by \
         chance",
        &["faa-write-on-two | 1 0"],
    ),
];

/// Whether an authority allows an outcome that was not reached in its rehearsals.
fn is_unreached(row: &Row) -> bool {
    let [_, spec, model] = row.counts;
    let by_spec = row.said[0] == "allowed" && spec == 0;
    let by_model = row.said[1] == "allowed" && model == 0;
    by_spec || by_model
}

/// Why an outcome is never reached.
fn reason(row: &Row) -> Option<&'static str> {
    let (reason, _) = REASONS.iter().find(|(_, of)| of.contains(&&*row.name))?;
    Some(reason)
}

/// The outcomes that were not reached although an authority allows them, each with the reason.
fn unreached(rows: &[Row]) -> String {
    let line = |row: &Row| {
        let reason = reason(row).unwrap_or("by chance: nothing stands against it");
        let by = match (row.said[0] == "allowed" && row.counts[1] == 0, row.said[1]) {
            (true, "allowed") if row.counts[2] == 0 => "both",
            (true, _) => "spec",
            (false, _) => "model",
        };
        format!("| {} | {by} | {reason} |\n", row.name)
    };
    let rows: String = rows.iter().filter(|row| is_unreached(row)).map(line).collect();
    format!("| test | outcome | not by | why |\n|---|---|---|---|\n{rows}")
}
