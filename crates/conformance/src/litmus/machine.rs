//! A machine that carries out a program in every way that an authority leaves.
//!
//! A processor has a store buffer, as x86 has: its stores and posts leave it in order, and its loads look into it first.
//! Each end of a queue pair has its requests, oldest first, and two buffers before memory: of what it wrote at its
//! target (`Queue::far`), and of what READs and atomics brought home (`Queue::near`).

mod adapter;
mod processor;

use std::collections::{BTreeSet, HashSet, VecDeque};

use super::program::{Program, Shown};
use super::rules::Authority;

/// Every outcome of a program: the values that it shows, in its order.
///
/// # Panics
///
/// If a thread can wait for ever.
pub fn outcomes(program: &Program, authority: Authority) -> BTreeSet<Vec<u64>> {
    let machine = Machine { program, authority };
    let first = machine.settled(State::new(program));
    let (mut seen, mut open) = (HashSet::from([first.clone()]), vec![first]);
    let mut outcomes = BTreeSet::new();
    while let Some(state) = open.pop() {
        let mut next = Vec::new();
        machine.processors(&state, &mut next);
        machine.adapters(&state, &mut next);
        if next.is_empty() {
            assert!(state.is_over(program), "nothing more can happen, and the program is not over");
            outcomes.insert(state.shown(program));
        }
        for state in next {
            let state = machine.settled(state);
            if seen.insert(state.clone()) {
                open.push(state);
            }
        }
    }
    outcomes
}

struct Machine<'a> {
    program: &'a Program,
    authority: Authority,
}

impl Machine<'_> {
    /// The state after all steps that nothing else can tell from the same steps taken later.
    fn settled(&self, mut state: State) -> State {
        while self.settle_processor(&mut state) || self.settle_adapter(&mut state) {}
        state
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    memory: Vec<u64>,
    /// Whether an atomic of an adapter is between its read and its write of a location.
    locked: Vec<bool>,
    /// Whether a window's key is good.
    bound: Vec<bool>,
    registers: Vec<u64>,
    told: Vec<u32>,
    threads: Vec<Thread>,
    queues: Vec<Queue>,
}

#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct Thread {
    next: usize,
    buffer: VecDeque<Buffered>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Buffered {
    Store(usize, u64),
    /// The statement that posts.
    Post(usize),
}

/// One end of a queue pair.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct Queue {
    /// Requests without a completion, oldest first.
    open: Vec<Open>,
    /// What it wrote at its target, before memory there.
    far: Vec<Written>,
    /// What it brought home, before memory here.
    near: Vec<Written>,
    /// For each completion that was not polled: whether it is an error.
    completions: VecDeque<bool>,
    /// Receives that are complete.
    received: u32,
    /// A request failed: later ones are flushed.
    broken: bool,
    posted: u32,
}

/// A request under way.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Open {
    /// The thread and its statement.
    by: (usize, usize),
    /// Its number in its queue.
    message: u32,
    /// What a WRITE read here, word by word; what a READ or atomic read there.
    values: Vec<u64>,
    /// It was carried out at its target.
    done: bool,
    /// What it read came home.
    landed: bool,
    failed: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Written {
    message: u32,
    what: What,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum What {
    Word {
        to: usize,
        value: u64,
        window: Option<usize>,
        /// The end of an atomic.
        unlocks: bool,
    },
    /// Completes a receive.
    Receive,
}

impl State {
    fn new(program: &Program) -> Self {
        Self {
            memory: program.locations.iter().map(|location| location.initial).collect(),
            locked: vec![false; program.locations.len()],
            bound: program.windows.iter().map(|window| window.1).collect(),
            registers: vec![0; program.registers],
            told: vec![0; program.channels],
            threads: vec![Thread::default(); program.threads.len()],
            queues: vec![Queue::default(); program.ends.len()],
        }
    }

    fn is_over(&self, program: &Program) -> bool {
        let is_idle =
            |queue: &Queue| queue.open.is_empty() && queue.far.is_empty() && queue.near.is_empty();
        let mut threads = self.threads.iter().zip(&program.threads);
        threads
            .all(|(thread, statements)| thread.next == statements.len() && thread.buffer.is_empty())
            && self.queues.iter().all(is_idle)
    }

    fn shown(&self, program: &Program) -> Vec<u64> {
        let value = |(_, shown): &(String, Shown)| match *shown {
            Shown::Register(register) => self.registers[register],
            Shown::Memory(location) => self.memory[location],
        };
        program.shown.iter().map(value).collect()
    }
}
