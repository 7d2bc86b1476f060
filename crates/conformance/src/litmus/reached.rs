//! Which outcomes the device reaches: plainly, and in rehearsals by many seeds.
//!
//! The program `litmus` plays tests in a process of their own, because a process has one rehearsal.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use transom_rehearse::{Order, Plan, Provocation};

use super::page::{Said, Test};
use super::stage::{Board, Reached, Stage};
use crate::processes::{Scratch, fork_each};
use crate::programs::Running;

/// How long a process may play.
const LIMIT: Duration = Duration::from_secs(300);

/// What may happen in a rehearsal of a litmus test beside what changes the placement. All else changes no order.
const MOMENTS: [Provocation; 4] = [
    Provocation::LateWork,
    Provocation::HiddenCompletions,
    Provocation::SingleCompletions,
    Provocation::SlowFlush,
];

/// These show values that no table has.
const SCRIBBLED: [Provocation; 2] = [Provocation::ScribbledTargets, Provocation::ScribbledReceives];

/// Outcomes that the tables leave out: a request that was refused has an effect all the same. For its first pieces
/// landed before its key was invalidated, as the first packets of a long message would. The machine of the page knows
/// no message of several packets.
const REFUSED_HALFWAY: [(&str, [u64; 2]); 2] =
    [("invalidate-tell", [1, 1]), ("read-invalidate", [1, 1])];

/// How tests are played.
#[derive(Clone, Copy, Debug)]
pub struct Play {
    /// Decides what is provoked, how long threads hesitate, the memory, and the [`Layout`].
    pub seed: u64,
    /// In a rehearsal that keeps these promises.
    pub rehearsed: Option<Order>,
    /// How often each test is played.
    pub rounds: u64,
    /// All devices reach each other by packets only.
    pub by_packets: bool,
}

impl Play {
    /// Has a process of the program `litmus` play these tests. Returns what each reached.
    ///
    /// # Errors
    ///
    /// Says how the process failed.
    pub fn outcomes(
        self,
        litmus: &Path,
        tests: &[&str],
    ) -> Result<BTreeMap<String, Reached>, String> {
        let Self { seed, rehearsed, rounds, by_packets } = self;
        let how = rehearsed.map_or("plain", Order::name);
        let link = if by_packets { "-by-packets" } else { "" };
        let scratch = Scratch::new(&format!("litmus-{seed}-{how}{link}-{}", tests[0]));
        let mut command = Command::new(litmus);
        command.args(["--seed", &seed.to_string(), "--rounds", &rounds.to_string(), "--play"]);
        command.args(tests);
        if seed % 2 == 1 {
            command.env("TRANSOM_MEMORY", "shared");
        }
        if by_packets {
            command.env("TRANSOM_LINK", "wire");
        }
        if let Some(order) = rehearsed {
            let placement = Provocation::PLACEMENT.into_iter().filter(|it| !SCRIBBLED.contains(it));
            let all = MOMENTS.into_iter().chain(placement);
            let kinds = all.filter(|kind| order.allows(*kind)).collect();
            let plan = Plan { seed, order, kinds, ..Plan::quiet() };
            fs::write(scratch.path().join("plan"), plan.to_string())
                .map_err(|it| it.to_string())?;
            command.env("TRANSOM_REHEARSE", scratch.path());
        }
        let (status, printed) =
            Running::start(&mut command).end(LIMIT).map_err(|error| error.to_string())?;
        if !status.success() {
            return Err(format!("{tests:?}, {self:?}: {status}: {}", printed.complaints));
        }
        let mut reached: BTreeMap<String, Reached> = BTreeMap::new();
        for line in printed.output.lines() {
            let (name, outcome, times) =
                read(line).ok_or_else(|| format!("no outcome is: {line}"))?;
            reached.entry(name).or_default().insert(outcome, times);
        }
        Ok(reached)
    }

    /// Plays a test, and prints what it reached for [`Play::outcomes`]. The process has opened no device yet, unless
    /// all its plays have one layout that is not [`Layout::Processes`].
    pub fn carry_out(self, test: &Test) {
        let program = &test.program;
        match Layout::of(self.seed) {
            Layout::Processes => {
                let nodes = program.nodes().len();
                let board = Board::new(program, nodes);
                fork_each(nodes, |nth| {
                    let reached = self.rounds_on(&Stage::of_node(program, &board, nth));
                    if nth == 0 {
                        print(test, reached);
                    }
                });
            }
            layout => {
                let board = Board::new(program, 1);
                let stage = Stage::new(program, &board, layout == Layout::Device);
                print(test, self.rounds_on(&stage));
            }
        }
    }

    fn rounds_on(self, stage: &Stage<'_>) -> Reached {
        let mut reached = Reached::new();
        for round in 0..self.rounds {
            *reached.entry(stage.play(self.seed << 16 | round)).or_default() += 1;
        }
        reached
    }
}

fn print(test: &Test, reached: Reached) {
    for (outcome, times) in reached {
        println!("{} {times} {}", test.name, shown(&outcome));
    }
}

/// What the nodes of a test are. Two seeds that follow each other, of which one has shared memory, have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Each is a process with a device.
    Processes,
    /// All are one device.
    Device,
    /// Each is a device, and all are in one process.
    Devices,
}

impl Layout {
    /// That of a seed.
    pub fn of(seed: u64) -> Self {
        [Self::Processes, Self::Device, Self::Devices][(seed / 2 % 3) as usize]
    }
}

fn read(line: &str) -> Option<(String, Vec<u64>, u64)> {
    let (name, rest) = line.split_once(' ')?;
    let (times, values) = rest.split_once(' ')?;
    let values = values.split(' ').map(|value| value.parse().ok()).collect::<Option<_>>()?;
    Some((name.to_owned(), values, times.parse().ok()?))
}

fn shown(outcome: &[u64]) -> String {
    outcome.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

/// The outcomes of a test that nothing allows: not what plain `run` may do, or in a rehearsal nor what its authority
/// allows. What the model does not know is as by the specification.
pub fn wrong(test: &Test, reached: &Reached, rehearsed: Option<Order>) -> Vec<String> {
    let judged = test.judged();
    let is_halfway = |outcome: &[u64]| {
        REFUSED_HALFWAY.iter().any(|(name, it)| *name == test.name && it == outcome)
    };
    let is_right = |outcome: &Vec<u64>| match judged.get(outcome) {
        Some([_, _, "reached"]) => true,
        Some([spec, model, _]) if rehearsed == Some(Order::Model) => {
            *model == "allowed" || (*model, *spec) == ("outside", "allowed")
        }
        Some(["allowed", ..]) => rehearsed.is_some(),
        _ => rehearsed.is_some() && is_halfway(outcome),
    };
    let outcomes = reached.keys().filter(|outcome| !is_right(outcome));
    outcomes.map(|outcome| format!("{}: {}", test.name, shown(outcome))).collect()
}

/// What was reached of a test in all.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    plain: Reached,
    spec: Reached,
    model: Reached,
    /// In all plays in which each node was a process.
    apart: Reached,
    /// The first seeds of the rehearsals by the specification that reached an outcome.
    seeds: BTreeMap<Vec<u64>, Vec<u64>>,
}

/// A row of the table of everything reached.
#[derive(Clone, Debug)]
pub struct Row {
    /// The test and its outcome.
    pub name: String,
    /// What the columns of the page say.
    pub said: [Said; 3],
    /// How often it was reached: plainly, and in rehearsals by the specification and by the model.
    pub counts: [u64; 3],
    /// How often by nodes that were processes.
    pub apart: u64,
    /// The first seeds.
    pub seeds: Vec<u64>,
}

impl Row {
    /// Its line in the table.
    pub fn line(&self) -> String {
        let counts = self.counts.map(|it| it.to_string()).join(" | ");
        let first: Vec<_> = self.seeds.iter().take(3).map(u64::to_string).collect();
        let (said, first) = (self.said.join(" | "), first.join(" "));
        format!("| {} | {said} | {counts} | {} | {first} |\n", self.name, self.apart)
    }
}

impl Tally {
    /// Adds what a play reached.
    pub fn add(&mut self, play: Play, reached: &Reached) {
        let all = match play.rehearsed {
            None => &mut self.plain,
            Some(Order::Model) => &mut self.model,
            Some(_) => &mut self.spec,
        };
        for (outcome, times) in reached {
            *all.entry(outcome.clone()).or_default() += times;
            if Layout::of(play.seed) == Layout::Processes {
                *self.apart.entry(outcome.clone()).or_default() += times;
            }
            if play.rehearsed == Some(Order::Spec) {
                self.seeds.entry(outcome.clone()).or_default().push(play.seed);
            }
        }
    }

    /// The rows of a test.
    pub fn rows(&self, test: &Test) -> Vec<Row> {
        let row = |(outcome, said): (Vec<u64>, [Said; 3])| {
            let counts = [&self.plain, &self.spec, &self.model];
            let counts = counts.map(|it| it.get(&outcome).copied().unwrap_or_default());
            let apart = self.apart.get(&outcome).copied().unwrap_or_default();
            let mut seeds = self.seeds.get(&outcome).cloned().unwrap_or_default();
            seeds.sort_unstable();
            Row { name: format!("{} | {}", test.name, shown(&outcome)), said, counts, apart, seeds }
        };
        test.judged().into_iter().map(row).collect()
    }
}
