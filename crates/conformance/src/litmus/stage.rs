//! Carries out a program on the device: a node is a device of this process, and a thread of the program a thread.

use std::collections::BTreeMap;
use std::hint::spin_loop;
use std::ptr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*, fence};
use std::thread;
use std::time::Duration;

use transom_abi::*;
use transom_host::Options;
use transom_ibverbs::{ibv_create_cq, ibv_dereg_mr, ibv_destroy_cq, ibv_destroy_qp};
use transom_system::rehearsal;

use super::program::{Program, Request, Shown, Statement, Verb};
use crate::harness::*;
use crate::random::Random;

/// How often each outcome was reached.
pub type Reached = BTreeMap<Vec<u64>, u64>;

/// How many receives wait at each end.
const RECEIVES: u64 = 4;

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

/// Nodes with memory, for many rounds of a program.
pub struct Stage<'a> {
    program: &'a Program,
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
    pub fn new(program: &'a Program, on_one_device: bool) -> Self {
        let adapter = open_adapter(Options::default());
        let remote = rights_of_peers(program);
        let mut nodes = BTreeMap::new();
        for location in &program.locations {
            nodes.entry(&*location.node).or_insert_with(|| {
                let is_relaxed =
                    program.locations.iter().any(|it| it.relaxed && it.node == location.node);
                let end = match on_one_device {
                    true => End::of_device(adapter.clone()),
                    false => End::new(Options::default()),
                };
                let memory = Buffer::new(4096);
                let relaxed = if is_relaxed { IBV_ACCESS_RELAXED_ORDERING } else { 0 };
                let rights = IBV_ACCESS_LOCAL_WRITE | remote | IBV_ACCESS_MW_BIND | relaxed;
                let region = end.reg(&memory, rights as i32);
                Node { end, memory, region }
            });
        }
        Self { program, nodes }
    }

    /// Carries the program out once. `seed` decides how long its threads hesitate.
    pub fn play(&self, seed: u64) -> Vec<u64> {
        for (at, location) in self.program.locations.iter().enumerate() {
            self.word(at).store(location.initial, SeqCst);
        }
        let round = Round::new(self);
        let start = Barrier::new(self.program.threads.len());
        thread::scope(|scope| {
            for (number, statements) in self.program.threads.iter().enumerate() {
                let (round, start) = (&round, &start);
                let mut random = Random::new(seed << 8 | number as u64);
                scope.spawn(move || {
                    start.wait();
                    for statement in statements {
                        hesitate(&mut random);
                        round.carry_out(statement);
                    }
                });
            }
        });
        round.end();
        let show = |(_, shown): &(String, Shown)| match *shown {
            Shown::Register(register) => round.registers[register].load(SeqCst),
            Shown::Memory(location) => self.word(location).load(SeqCst),
        };
        self.program.shown.iter().map(show).collect()
    }

    fn node(&self, name: &str) -> &Node {
        &self.nodes[name]
    }

    /// The address of a location. Those of a node lie one behind the other.
    fn address(&self, location: usize) -> u64 {
        self.node(&self.program.locations[location].node).memory.addr() + 8 * location as u64
    }

    fn word(&self, location: usize) -> &AtomicU64 {
        // SAFETY: a word of a node's memory, which lives as long as this. Everybody uses it as one.
        unsafe { AtomicU64::from_ptr(self.address(location) as *mut u64) }
    }

    fn region(&self, location: usize) -> *mut ibv_mr {
        self.node(&self.program.locations[location].node).region
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        for node in self.nodes.values() {
            // SAFETY: a live region, of which no window is left.
            assert_eq!(unsafe { ibv_dereg_mr(node.region) }, 0);
        }
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

/// The queue pairs and windows of one round.
struct Round<'a> {
    stage: &'a Stage<'a>,
    ends: Vec<Queues>,
    windows: Vec<(*mut ibv_mw, u32)>,
    registers: Vec<AtomicU64>,
    told: Vec<AtomicU32>,
}

/// One end of a queue pair.
struct Queues {
    qp: *mut ibv_qp,
    sent: *mut ibv_cq,
    received: *mut ibv_cq,
    /// How many requests have no completion yet.
    open: AtomicU32,
}

// SAFETY: pointers to verbs objects, which any thread may use at any time.
unsafe impl Sync for Round<'_> {}

impl<'a> Round<'a> {
    fn new(stage: &'a Stage<'a>) -> Self {
        let program = stage.program;
        let ends: Vec<_> =
            program.ends.iter().map(|it| Queues::new(stage.node(&it.node))).collect();
        for (one, end) in program.ends.iter().enumerate().filter(|(one, end)| *one < end.peer) {
            connect(ends[one].qp, ends[end.peer].qp);
        }
        for end in &ends {
            (0..RECEIVES).for_each(|_| recv(end.qp, 2, &mut []));
        }
        let windows = program.windows.iter().map(|(location, _)| {
            let window = stage.node(&program.locations[*location].node).end.mw(IBV_MW_TYPE_2);
            (window, rkey(window) & !0xff | rkey(window).wrapping_add(1) & 0xff)
        });
        let windows = windows.collect();
        let registers = (0..program.registers).map(|_| AtomicU64::new(0)).collect();
        let told = (0..program.channels).map(|_| AtomicU32::new(0)).collect();
        let round = Self { stage, ends, windows, registers, told };
        for window in (0..program.windows.len()).filter(|it| program.windows[*it].1) {
            let mut posts = program.threads.iter().flatten().filter_map(posted);
            let user = posts.find(|(_, request)| request.window == Some(window));
            let (user, _) = user.expect("somebody uses the window");
            let end = program.ends[user].peer;
            round.post(end, &Request { verb: Verb::Bind(window), fence: false, window: None });
            assert_eq!(round.poll(end), IBV_WC_SUCCESS);
        }
        round
    }

    fn carry_out(&self, statement: &Statement) {
        let word = |location: &usize| self.stage.word(*location);
        match statement {
            Statement::Store(to, value) => word(to).store(*value, Relaxed),
            Statement::Load(register, from) => {
                self.registers[*register].store(word(from).load(Relaxed), Relaxed);
            }
            Statement::Await(at, value) => {
                until("a value", || (word(at).load(Relaxed) == *value).then_some(()));
            }
            Statement::Add(to, value) => {
                word(to).fetch_add(*value, SeqCst);
            }
            Statement::Fence => fence(SeqCst),
            Statement::Post(end, request) => self.post(*end, request),
            Statement::Poll(end, register) => {
                let failed = self.poll(*end) != IBV_WC_SUCCESS;
                if let Some(register) = register {
                    self.registers[*register].store(failed.into(), Relaxed);
                }
            }
            Statement::Receive(end) => {
                wait(self.ends[*end].received);
            }
            Statement::Tell(channel) => {
                self.told[*channel].fetch_add(1, SeqCst);
            }
            Statement::Hear(channel) => {
                let told = &self.told[*channel];
                until("word of another thread", || (told.load(SeqCst) > 0).then_some(()));
                told.fetch_sub(1, SeqCst);
            }
            Statement::Revoke(window) => assert_eq!(dealloc_mw(self.windows[*window].0), 0),
        }
    }

    /// The status of the next completion of an end's requests.
    fn poll(&self, end: usize) -> ibv_wc_status {
        let end = &self.ends[end];
        let status = wait(end.sent).status;
        end.open.fetch_sub(1, SeqCst);
        status
    }

    fn post(&self, end: usize, request: &Request) {
        let key = |location: usize| match request.window {
            Some(window) => self.windows[window].1,
            // SAFETY: a live region.
            None => unsafe { (*self.stage.region(location)).rkey },
        };
        let address = |location: usize| self.stage.address(location);
        let near = |location: &usize| sge(address(*location), 8, self.stage.region(*location));
        let mut sges: Vec<_> = match &request.verb {
            Verb::Put(words) => words.iter().map(|(_, from)| near(from)).collect(),
            Verb::PutImmediate(_, local)
            | Verb::Get(local, _)
            | Verb::FetchAdd(local, ..)
            | Verb::CompareSwap(local, ..) => vec![near(local)],
            Verb::Flush | Verb::Send(_) | Verb::Bind(_) | Verb::Invalidate(_) => Vec::new(),
        };
        let sges = &mut sges[..];
        let mut wr = match request.verb {
            Verb::Put(ref words) => {
                let (to, _) = words[0];
                rdma_wr(IBV_WR_RDMA_WRITE, sges, address(to), key(to))
            }
            Verb::PutImmediate(to, _) => {
                rdma_wr(IBV_WR_RDMA_WRITE_WITH_IMM, sges, address(to), key(to))
            }
            Verb::Get(_, from) => rdma_wr(IBV_WR_RDMA_READ, sges, address(from), key(from)),
            Verb::FetchAdd(_, at, value) => {
                atomic_wr(IBV_WR_ATOMIC_FETCH_AND_ADD, sges, address(at), key(at), value, 0)
            }
            Verb::CompareSwap(_, at, old, new) => {
                atomic_wr(IBV_WR_ATOMIC_CMP_AND_SWP, sges, address(at), key(at), old, new)
            }
            Verb::Flush => unreachable!("an obstacle"),
            Verb::Send(None) => wr(IBV_WR_SEND),
            Verb::Send(Some(window)) => {
                let mut send = wr(IBV_WR_SEND_WITH_INV);
                send.imm.invalidate_rkey = self.windows[window].1;
                send
            }
            Verb::Bind(window) => {
                let (mw, key) = self.windows[window];
                let location = self.stage.program.windows[window].0;
                let (mr, addr) = (self.stage.region(location), address(location));
                bind2_wr(
                    mw,
                    key,
                    Range { mr, addr, length: 8, access: rights_of_peers(self.stage.program) },
                )
            }
            Verb::Invalidate(window) => local_inv_wr(self.windows[window].1),
        };
        if request.fence {
            wr.send_flags |= IBV_SEND_FENCE;
        }
        let end = &self.ends[end];
        end.open.fetch_add(1, SeqCst);
        post(end.qp, &mut wr);
    }

    /// Waits until nothing is under way, and destroys everything.
    fn end(&self) {
        for end in 0..self.ends.len() {
            while self.ends[end].open.load(SeqCst) > 0 {
                self.poll(end);
            }
        }
        for end in &self.ends {
            // SAFETY: live objects, which nobody uses any more.
            unsafe {
                assert_eq!(ibv_destroy_qp(end.qp), 0);
                assert_eq!((ibv_destroy_cq(end.sent), ibv_destroy_cq(end.received)), (0, 0));
            }
        }
        let revoked = |window: usize| {
            let mut all = self.stage.program.threads.iter().flatten();
            all.any(|it| matches!(it, Statement::Revoke(of) if *of == window))
        };
        for (number, (window, _)) in self.windows.iter().enumerate() {
            assert!(revoked(number) || dealloc_mw(*window) == 0);
        }
    }
}

impl Queues {
    fn new(node: &Node) -> Self {
        let queue = || {
            // SAFETY: the context is open.
            let cq =
                unsafe { ibv_create_cq(node.end.context, 16, ptr::null_mut(), ptr::null_mut(), 0) };
            assert!(!cq.is_null());
            cq
        };
        let (sent, received) = (queue(), queue());
        let init = node.end.init(IBV_QPT_RC);
        let qp =
            node.end.qp_with(&mut ibv_qp_init_attr { send_cq: sent, recv_cq: received, ..init });
        Self { qp, sent, received, open: AtomicU32::new(0) }
    }
}
