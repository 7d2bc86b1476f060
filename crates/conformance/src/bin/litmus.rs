//! `litmus`: plays the litmus tests of `spec/ordering.md` on the device, plainly and in rehearsals, and counts which
//! outcomes it reaches.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::{env, fs, thread};

use clap::Parser;
use transom_conformance::documents::{Document, root};
use transom_conformance::litmus::page::{self, Test};
use transom_conformance::litmus::reached::{Play, Tally, wrong};
use transom_conformance::litmus::stage::obstacle;
use transom_system::rehearsal;

/// The table of everything reached.
const TABLE: &str = "spec/ordering-reached.md";
/// What comes before its rows.
const HEAD: &str = "| test | outcome | spec | model | run | plain | rehearsed | first seeds |\n\
                    |---|---|---|---|---|---|---|---|\n";
/// So many rehearsals have one plain play.
const REHEARSALS: u64 = 4;
/// How many processes play at a time. They mostly wait.
const PLAYERS: usize = 4;

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
        rehearsal::begin();
        let of_it = tests.iter().filter(|test| play.contains(&test.name));
        of_it.for_each(|test| Play { seed, rehearsed: false, rounds }.carry_out(test));
        return ExitCode::SUCCESS;
    }
    let can = |test: &&Test| obstacle(&test.program).is_none();
    let is_wanted = |test: &&Test| wanted.is_empty() || wanted.contains(&test.name);
    let played: Vec<_> = tests.iter().filter(can).filter(is_wanted).collect();
    let tallies = Mutex::new(BTreeMap::<&str, Tally>::new());
    let problems = Mutex::new(Vec::new());
    let plays: Vec<_> = (1..=seeds)
        .flat_map(|seed| {
            let rehearsals =
                [true, false].into_iter().filter(move |it| *it || seed % REHEARSALS == 0);
            // All memories and links.
            rehearsals.map(move |rehearsed| {
                let seed = if rehearsed { seed } else { seed / REHEARSALS };
                Play { seed, rehearsed, rounds }
            })
        })
        .flat_map(|play| played.iter().map(move |test| (play, *test)))
        .collect();
    let (next, litmus) = (AtomicUsize::new(0), env::current_exe().expect("this program"));
    thread::scope(|scope| {
        for _ in 0..PLAYERS {
            scope.spawn(|| {
                while let Some((play, test)) = plays.get(next.fetch_add(1, Relaxed)) {
                    let found = one(*play, test, &litmus, &tallies);
                    problems.lock().expect("no panic").extend(found);
                }
            });
        }
    });
    let tallies = tallies.into_inner().expect("no panic");
    let problems = problems.into_inner().expect("no panic");
    let (rows, summary) = table(&played, &tallies);
    print!("{HEAD}{rows}{summary}");
    if bless {
        let text = Document::read(TABLE).text;
        let before = text.split("## Reached").next().unwrap_or_default();
        let how = format!("By {seeds} seeds, each test {rounds} times by each.");
        let text = format!("{before}## Reached\n\n{how}\n{summary}\n{HEAD}{rows}");
        fs::write(root().join(TABLE), text).expect("the table can be written");
    }
    problems.iter().for_each(|problem| println!("wrong: {problem}"));
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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

/// The rows of all tests, and what they say together.
fn table(tests: &[&Test], tallies: &BTreeMap<&str, Tally>) -> (String, String) {
    let none = Tally::default();
    let rows = tests.iter().map(|test| tallies.get(&*test.name).unwrap_or(&none).rows(test));
    let rows: Vec<_> = rows.flatten().collect();
    let allowed = || rows.iter().filter(|(_, [spec, ..], _)| *spec == "allowed");
    let plain = allowed().filter(|(.., [plain, _])| *plain > 0).count();
    let rehearsed = allowed().filter(|(.., [_, rehearsed])| *rehearsed > 0).count();
    let beyond =
        rows.iter().filter(|(_, [_, _, run], [_, rehearsed])| *run == "never" && *rehearsed > 0);
    let not_by_model = rows.iter().filter(|(_, [spec, model, _], [_, rehearsed])| {
        *spec == "allowed" && *model == "forbidden" && *rehearsed > 0
    });
    let summary = format!(
        "{} tests have {} outcomes that the specification allows. Plain `run` reached {plain} of them, \
         rehearsals {rehearsed}: {} that plain `run` never reaches, and {} that the model forbids.\n",
        tests.len(),
        allowed().count(),
        beyond.count(),
        not_by_model.count()
    );
    (rows.into_iter().map(|(text, ..)| text + "\n").collect(), summary)
}
