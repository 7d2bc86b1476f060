//! The contenders: pairs of our own processes, each started when it is first needed, UCX, and perftest.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use super::perftest::{self, Perftest};
use super::processors;
use super::setup::{Connected, Mtu, Role, Setup};
use super::start::start;
use super::tasks::{Job, Task};
use super::ucx::{self, Ucx};
use crate::failure::{Failure, Result};
use crate::talk::{hear, tell};

/// A pair of our own processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pair {
    /// On one host, with private memory.
    Private,
    /// On one host, with shared memory.
    Shared,
    /// The same, started as under `transom run`.
    Run,
    /// In two network namespaces, with private memory.
    Wire(Mtu),
    /// The same with shared memory.
    SharedWire(Mtu),
    /// As [`Pair::Private`], and one has this many windows.
    Windows(usize),
    /// As [`Pair::Private`], with this many connected queue pairs.
    QueuePairs(usize),
    /// Two of this many processes that are all connected to each other, with private memory.
    Processes(usize),
}

/// A contender.
#[derive(Clone, Copy, Debug)]
pub(super) enum Who {
    Ours(Pair, Task),
    Ucx(Ucx),
    Perftest(Perftest),
}

/// Two running processes.
pub(super) struct Team {
    near: Child,
    answers: BufReader<ChildStdout>,
    pub(super) connected: Connected,
}

/// All pairs. A pair that did not start is not tried again.
#[derive(Default)]
pub(super) struct Teams(BTreeMap<Pair, std::result::Result<Team, String>>);

impl Teams {
    /// The nanoseconds of each operation. The inner error says why this machine gives none.
    pub(super) fn sample(
        &mut self,
        who: Who,
        count: usize,
    ) -> Result<std::result::Result<f64, String>> {
        match who {
            Who::Ucx(what) => ucx::measure(what, count),
            Who::Perftest(what) => perftest::measure(what, count),
            Who::Ours(pair, task) => self.measure(pair, task, count),
        }
    }

    /// The result of a workload that two of our processes do this often. The inner error says why this
    /// machine gives none.
    pub(super) fn measure(
        &mut self,
        pair: Pair,
        task: Task,
        count: usize,
    ) -> Result<std::result::Result<f64, String>> {
        let team = match self.team(pair) {
            Ok(team) => team,
            Err(why) => return Ok(Err(why.clone())),
        };
        let measured = team.measure(task, count)?;
        if measured.is_err() {
            // The processes end with the failed workload. Other pairs can do other workloads.
            self.dismiss(pair);
        }
        Ok(measured)
    }

    /// Replaces all pairs that start quickly. The physical pages of two processes change the time of a long copy by a
    /// tenth, or double it and more, and stay the same while the processes live. With the same two in each round, that
    /// would look like the result.
    pub(super) fn renew(&mut self) {
        self.0.retain(|pair, team| team.is_err() || !matches!(pair, Pair::Private | Pair::Shared));
    }

    /// Makes a pair, which may be new, do the workload as often as in the measurement. Other contenders warm
    /// up themselves.
    pub(super) fn warm_up(&mut self, who: Who, count: usize) -> Result {
        if let Who::Ours(..) = who {
            // If there is no result, the measurement reports it.
            let _ = self.sample(who, count)?;
        }
        Ok(())
    }

    /// The number of operations that take about as long as this budget.
    pub(super) fn calibrate(
        &mut self,
        who: Who,
        budget: Duration,
    ) -> Result<std::result::Result<usize, String>> {
        let budget = match who {
            Who::Ours(..) => budget,
            // This starts two programs, and warms them up.
            Who::Ucx(_) | Who::Perftest(_) => budget * 5,
        };
        let budget = budget.as_nanos() as f64;
        let mut count = 8;
        loop {
            // The better of two, because others may have had the processor.
            let each = match (self.sample(who, count)?, self.sample(who, count)?) {
                (Ok(one), Ok(other)) => one.min(other).max(1.0),
                (Err(why), _) | (_, Err(why)) => return Ok(Err(why)),
            };
            let wanted = (budget / each) as usize;
            if count >= wanted / 4 {
                return Ok(Ok(wanted.max(8)));
            }
            count = wanted.min(count * 16);
        }
    }

    /// The processes of this pair. The error says why there are none.
    pub(super) fn team(&mut self, pair: Pair) -> &mut std::result::Result<Team, String> {
        self.0.entry(pair).or_insert_with(|| Team::start(pair).map_err(|why| why.to_string()))
    }

    /// Ends this pair.
    pub(super) fn dismiss(&mut self, pair: Pair) {
        self.0.remove(&pair);
    }
}

impl Team {
    fn start(pair: Pair) -> Result<Self> {
        let setup = Setup {
            shared: matches!(pair, Pair::Shared | Pair::SharedWire(_) | Pair::Run),
            run: pair == Pair::Run,
            wire: match pair {
                Pair::Wire(mtu) | Pair::SharedWire(mtu) => Some(mtu),
                _ => None,
            },
            queue_pairs: match pair {
                Pair::QueuePairs(count) => count,
                _ => 16,
            },
            bystanders: match pair {
                Pair::Processes(count) => count.saturating_sub(2),
                _ => 0,
            },
            processors: processors::two(),
        };
        let mut command = start(setup, Role::Near)?;
        let near = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut near = near.map_err(|error| Failure::new(format!("a process: {error}")))?;
        let mut answers = BufReader::new(near.stdout.take().expect("it is piped"));
        let Some(connected) = hear::<Connected>(&mut answers)? else {
            let _ = near.wait();
            return Err(Failure::new("two processes could not be connected"));
        };
        let mut team = Self { near, answers, connected };
        if setup.shared && !connected.is_shared {
            return Err(Failure::new("there is no shared memory here"));
        }
        if let Pair::Windows(live) = pair {
            team.measure(Task::Windows { live }, 1)?.map_err(Failure::new)?;
        }
        Ok(team)
    }

    /// The result of a workload, done this often. The inner error says why it is not possible. Then both
    /// processes end.
    fn measure(&mut self, task: Task, count: usize) -> Result<std::result::Result<f64, String>> {
        tell(self.near.stdin.as_mut().expect("it is piped"), &Job { task, count })?;
        let done: Option<std::result::Result<f64, String>> = hear(&mut self.answers)?;
        done.ok_or_else(|| Failure::new(format!("{task:?}: a process that measures has ended")))
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        // The process ends when its input does, and the other with it.
        drop(self.near.stdin.take());
        let _ = self.near.wait();
    }
}
