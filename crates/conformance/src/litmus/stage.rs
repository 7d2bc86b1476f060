//! Carries out a program on the device: a node is a device of this process or of another one, and a thread of the program
//! a thread there.

mod board;
mod round;

use std::collections::BTreeMap;
use std::env;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use transom_abi::*;
use transom_host::Options;
use transom_ibverbs::ibv_dereg_mr;
use transom_system::rehearsal;

use super::program::{Location, Program, Request, Shown, Statement, Verb};
use crate::harness::*;
use crate::random::Random;

pub use self::board::Board;
use self::board::Kind;
use self::round::Round;

/// How devices are opened.
fn options() -> Options {
    let wire_only = env::var_os("TRANSOM_LINK").is_some_and(|link| link == "wire");
    Options { wire_only, ..Options::default() }
}

/// How often each outcome was reached.
pub type Reached = BTreeMap<Vec<u64>, u64>;

/// Why a program cannot be carried out here.
pub fn obstacle(program: &Program) -> Option<&'static str> {
    let posts = || program.threads.iter().flatten().filter_map(posted);
    if posts().any(|(_, request)| matches!(request.verb, Verb::Flush)) {
        return Some("no FLUSH is posted");
    }
    let is_elsewhere = |window: usize| {
        let is_of = |request: &Request| matches!(request.verb, Verb::Bind(it) | Verb::Invalidate(it) if it == window);
        let owners = posts().filter(|(_, request)| is_of(request)).map(|(end, _)| end);
        let users = posts().filter(|(_, request)| request.window == Some(window));
        let targets: Vec<_> = users.map(|(end, _)| program.ends[end].peer).collect();
        owners.into_iter().any(|owner| targets.iter().any(|target| *target != owner))
    };
    let elsewhere = (0..program.windows.len()).any(is_elsewhere);
    elsewhere.then_some("a window of type 2B has one queue pair")
}

fn posted(statement: &Statement) -> Option<(usize, &Request)> {
    match statement {
        Statement::Post(end, request) => Some((*end, request)),
        _ => None,
    }
}

/// The rights that peers need. Memory is not open to atomics that nobody uses.
fn rights_of_peers(program: &Program) -> u32 {
    let mut posts = program.threads.iter().flatten().filter_map(posted);
    let is_atomic = |(_, request): (usize, &Request)| {
        matches!(request.verb, Verb::FetchAdd(..) | Verb::CompareSwap(..))
    };
    if posts.any(is_atomic) { REMOTE } else { REMOTE & !IBV_ACCESS_REMOTE_ATOMIC }
}

/// The nodes of this process with their memory, for many rounds of a program.
pub struct Stage<'a> {
    program: &'a Program,
    board: &'a Board,
    /// By name.
    nodes: BTreeMap<&'a str, Node>,
}

struct Node {
    end: End,
    memory: Buffer,
    region: *mut ibv_mr,
}

impl<'a> Stage<'a> {
    /// Opens a device for each node, or one for all of them.
    pub fn new(program: &'a Program, board: &'a Board, on_one_device: bool) -> Self {
        let adapter = open_adapter(options());
        let end = || match on_one_device {
            true => End::of_device(adapter.clone()),
            false => End::new(options()),
        };
        let node = |name| (name, Node::new(program, name, end()));
        Self { program, board, nodes: program.nodes().into_iter().map(node).collect() }
    }

    /// Opens a device for one node. Each other one has a process of its own. The devices are opened in the order of the
    /// nodes, so that the processes of a rehearsal have the same numbers each time.
    pub fn of_node(program: &'a Program, board: &'a Board, nth: usize) -> Self {
        let name = program.nodes()[nth];
        let node = board.in_turn(nth, || Node::new(program, name, End::new(options())));
        Self { program, board, nodes: [(name, node)].into() }
    }

    /// Carries the program out once, with the other processes. `seed` decides how long its threads hesitate.
    pub fn play(&self, seed: u64) -> Vec<u64> {
        let Self { program, board, .. } = *self;
        for (at, location) in self.locations() {
            self.word(at).store(location.initial, SeqCst);
        }
        let round = Round::new(self);
        thread::scope(|scope| {
            for (number, thread) in program.threads.iter().enumerate() {
                if !self.nodes.contains_key(&*program.thread_nodes[number]) {
                    continue;
                }
                let round = &round;
                let mut random = Random::new(seed << 8 | number as u64);
                scope.spawn(move || {
                    board.start();
                    for statement in thread {
                        hesitate(&mut random);
                        round.carry_out(statement);
                    }
                });
            }
        });
        round.end();
        self.show()
    }

    /// The outcome, when nothing is under way any more.
    fn show(&self) -> Vec<u64> {
        let Self { program, board, .. } = *self;
        let here: Vec<_> = self.locations().map(|(at, _)| at).collect();
        for (nth, (_, shown)) in program.shown.iter().enumerate() {
            if let Shown::Memory(location) = shown
                && here.contains(location)
            {
                board.at(Kind::Shown, nth).store(self.word(*location).load(SeqCst), SeqCst);
            }
        }
        board.meet();
        let value = |(nth, (_, shown)): (usize, &(String, Shown))| match *shown {
            Shown::Register(register) => board.at(Kind::Register, register).load(SeqCst),
            Shown::Memory(_) => board.at(Kind::Shown, nth).load(SeqCst),
        };
        program.shown.iter().enumerate().map(value).collect()
    }

    /// The locations of this process.
    fn locations(&self) -> impl Iterator<Item = (usize, &'a Location)> {
        let all = self.program.locations.iter().enumerate();
        all.filter(|(_, location)| self.nodes.contains_key(&*location.node))
    }

    fn node(&self, location: usize) -> &Node {
        &self.nodes[&*self.program.locations[location].node]
    }

    fn word(&self, location: usize) -> &AtomicU64 {
        let address = self.node(location).address(location);
        // SAFETY: a word of a node's memory, which lives as long as this. Everybody uses it as one.
        unsafe { AtomicU64::from_ptr(address as *mut u64) }
    }
}

impl Node {
    fn new(program: &Program, name: &str, end: End) -> Self {
        let is_relaxed = program.locations.iter().any(|it| it.relaxed && it.node == name);
        let memory = Buffer::new(4096);
        let relaxed = if is_relaxed { IBV_ACCESS_RELAXED_ORDERING } else { 0 };
        let remote = rights_of_peers(program);
        let rights = IBV_ACCESS_LOCAL_WRITE | remote | IBV_ACCESS_MW_BIND | relaxed;
        let region = end.reg(&memory, rights as i32);
        Self { end, memory, region }
    }

    /// The address of a location. Those of a node lie one behind the other.
    fn address(&self, location: usize) -> u64 {
        self.memory.addr() + 8 * location as u64
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // SAFETY: a live region, of which no window is left.
        assert_eq!(unsafe { ibv_dereg_mr(self.region) }, 0);
    }
}

/// Waits as long as a program may that has something else to do: not at all, or up to as long as a rehearsal holds a
/// request back.
fn hesitate(random: &mut Random) {
    match random.below(4) {
        0 => {}
        1 => (0..random.below(400)).for_each(|_| spin_loop()),
        2 => (0..random.below(20_000)).for_each(|_| spin_loop()),
        _ if rehearsal::on().is_none() => {}
        _ => thread::sleep(Duration::from_micros(1 << random.below(15))),
    }
}
