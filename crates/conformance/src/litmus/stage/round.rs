//! One round of a program.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering::*, fence};

use transom_abi::*;
use transom_ibverbs::{ibv_create_cq, ibv_destroy_cq, ibv_destroy_qp};

use super::board::Kind;
use super::{Node, Stage, posted, rights_of_peers};
use crate::harness::*;
use crate::litmus::program::{End, Request, Statement, Verb};
use crate::processes::{attr_to, number};

/// How many receives wait at each end.
const RECEIVES: u64 = 4;

/// The queue pairs and windows of one round: those of this process.
pub(super) struct Round<'a> {
    stage: &'a Stage<'a>,
    ends: BTreeMap<usize, Queues>,
    windows: BTreeMap<usize, *mut ibv_mw>,
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
    /// Makes them, and connects them with those of the other processes.
    pub(super) fn new(stage: &'a Stage<'a>) -> Self {
        let Stage { program, board, nodes } = stage;
        let queues = |(end, it): (usize, &End)| Some((end, Queues::new(nodes.get(&*it.node)?)));
        let ends = program.ends.iter().enumerate().filter_map(queues).collect();
        let window = |(number, (location, _)): (usize, &(usize, bool))| {
            let node = nodes.get(&*program.locations[*location].node)?;
            Some((number, node.end.mw(IBV_MW_TYPE_2)))
        };
        let windows = program.windows.iter().enumerate().filter_map(window).collect();
        let round = Self { stage, ends, windows };
        round.say();
        board.meet();
        if nodes.contains_key(program.nodes()[0]) {
            board.clear();
        }
        for (end, queues) in &round.ends {
            let peer = board.at(Kind::QueuePair, program.ends[*end].peer).load(SeqCst);
            bring_up(queues.qp, &attr_to(peer));
            (0..RECEIVES).for_each(|_| recv(queues.qp, 2, &mut []));
        }
        board.meet();
        for window in round.windows.keys().copied().filter(|it| program.windows[*it].1) {
            let mut posts = program.threads.iter().flatten().filter_map(posted);
            let user = posts.find(|(_, request)| request.window == Some(window));
            let (user, _) = user.expect("somebody uses the window");
            let end = program.ends[user].peer;
            round.post(end, &Request { verb: Verb::Bind(window), fence: false, window: None });
            assert_eq!(round.poll(end), IBV_WC_SUCCESS);
        }
        board.meet();
        round
    }

    /// Tells the other processes what they have to know.
    fn say(&self) {
        let Self { stage, ends, windows } = self;
        let say = |kind, nth, number| stage.board.at(kind, nth).store(number, SeqCst);
        for (location, _) in stage.locations() {
            let node = stage.node(location);
            say(Kind::Address, location, node.address(location));
            // SAFETY: a live region.
            say(Kind::Key, location, unsafe { (*node.region).rkey }.into());
        }
        ends.iter().for_each(|(end, queues)| say(Kind::QueuePair, *end, number(queues.qp)));
        for (number, window) in windows {
            let key = rkey(*window);
            say(Kind::Window, *number, (key & !0xff | key.wrapping_add(1) & 0xff).into());
        }
    }

    /// What a process has said.
    fn said(&self, kind: Kind, nth: usize) -> u64 {
        self.stage.board.at(kind, nth).load(SeqCst)
    }

    fn set(&self, register: usize, value: u64) {
        self.stage.board.at(Kind::Register, register).store(value, Relaxed);
    }

    pub(super) fn carry_out(&self, statement: &Statement) {
        let word = |location: &usize| self.stage.word(*location);
        match statement {
            Statement::Store(to, value) => word(to).store(*value, Relaxed),
            Statement::Load(register, from) => {
                self.set(*register, word(from).load(Relaxed));
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
                    self.set(*register, failed.into());
                }
            }
            Statement::Receive(end) => {
                wait(self.ends[end].received);
            }
            Statement::Tell(channel) => {
                self.stage.board.at(Kind::Told, *channel).fetch_add(1, SeqCst);
            }
            Statement::Hear(channel) => {
                let told = self.stage.board.at(Kind::Told, *channel);
                until("word of another thread", || (told.load(SeqCst) > 0).then_some(()));
                told.fetch_sub(1, SeqCst);
            }
            Statement::Revoke(window) => assert_eq!(dealloc_mw(self.windows[window]), 0),
        }
    }

    /// The status of the next completion of an end's requests.
    fn poll(&self, end: usize) -> ibv_wc_status {
        let end = &self.ends[&end];
        let status = wait(end.sent).status;
        end.open.fetch_sub(1, SeqCst);
        status
    }

    fn post(&self, end: usize, request: &Request) {
        let window_key = |window: usize| self.said(Kind::Window, window) as u32;
        let key = |location: usize| match request.window {
            Some(window) => window_key(window),
            None => self.said(Kind::Key, location) as u32,
        };
        let address = |location: usize| self.said(Kind::Address, location);
        let near = |location: &usize| sge(address(*location), 8, self.stage.node(*location).region);
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
                send.imm.invalidate_rkey = window_key(window);
                send
            }
            Verb::Bind(window) => {
                let (location, _) = self.stage.program.windows[window];
                let (mr, addr) = (self.stage.node(location).region, address(location));
                let access = rights_of_peers(self.stage.program);
                let range = Range { mr, addr, length: 8, access };
                bind2_wr(self.windows[&window], window_key(window), range)
            }
            Verb::Invalidate(window) => local_inv_wr(window_key(window)),
        };
        if request.fence {
            wr.send_flags |= IBV_SEND_FENCE;
        }
        let end = &self.ends[&end];
        end.open.fetch_add(1, SeqCst);
        post(end.qp, &mut wr);
    }

    /// Waits until nothing is under way in any process, and destroys everything.
    pub(super) fn end(&self) {
        for (number, end) in &self.ends {
            while end.open.load(SeqCst) > 0 {
                self.poll(*number);
            }
        }
        self.stage.board.meet();
        for end in self.ends.values() {
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
        for (number, window) in &self.windows {
            assert!(revoked(*number) || dealloc_mw(*window) == 0);
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
