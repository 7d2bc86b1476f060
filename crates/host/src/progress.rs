//! Who does the work: the caller's thread while it polls, else one background thread.
//!
//! The thread sleeps on a pipe, on changes of the host's addresses, on the ends of its peers and of
//! the other processes of the port, on the wire's sockets while it listens, and on the next deadline.
//! Others write to the pipe only while the process is `armed`. As long as the program polls, the
//! thread leaves the work to it and just looks every millisecond whether it still polls; once it does
//! not, the thread arms and sleeps until there is something to do. An idle process is not woken at all.

mod background;
mod packets;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use transom_device::execution::{QueueSide, Reply, Request, Sink, Source};
use transom_net::{Answer, Arrival, Arrived, Peer, Wire};
use transom_system::lock::ShortMutex;
use transom_system::{clock, say};

use crate::adapter::Adapter;
use crate::adapter::PortChange;
use crate::capture::{Answered, Direction, Interface};
use crate::objects::{Cq, QueuePair, Recipient};

/// Work that has to wait until locks are free.
pub(crate) enum Deferred {
    /// Flush this queue of a queue pair that fell into error.
    Flush(u16, QueueSide),
    /// Start the rendezvous that wait on a queue pair.
    Rendezvous(u16),
    /// A completion queue has overrun (rule CQ-05).
    Overrun(u64),
    /// A peer has ended: what was under way to it counts as lost.
    PeerLost(Arc<Peer>),
    /// What nobody thought of.
    #[cfg(test)]
    Panic,
}

/// Who makes progress: what to leave to others depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worker {
    /// A poll of the program.
    Poll,
    /// The background thread, beside a program that polls.
    Beside,
    /// The background thread, for a program that does not poll.
    Instead,
    /// Somebody who wants all done that can be done.
    All,
}

impl Worker {
    /// Whether acknowledgements of what arrives now may wait for something to go out with.
    fn may_owe(self) -> bool {
        matches!(self, Self::Poll | Self::Beside)
    }

    /// Whether those that wait are left to the program until they have waited in vain.
    fn leaves_owed(self) -> bool {
        matches!(self, Self::Beside | Self::Instead)
    }
}

/// Who waits for a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// A queue pair goes on.
    QueuePair(u16),
    /// A moderated completion queue raises the event it holds back.
    CompletionEvent(u64),
    /// A user wants the port to change.
    Port(PortChange),
}

/// The state of progress of one device.
#[derive(Default)]
pub(crate) struct Progress {
    /// Counts polls that found nothing.
    polls: AtomicU64,
    /// The program is about to sleep: the thread is to listen for it.
    sleeps: AtomicBool,
    /// The thread sleeps listening to the sockets of the wire link.
    listens: AtomicBool,
    deferred: Mutex<VecDeque<Deferred>>,
    deferred_count: AtomicUsize,
    deadlines: Mutex<BTreeSet<(u64, Due)>>,
    /// The completion queues among them.
    moderated: Mutex<HashMap<u64, Weak<Cq>>>,
    /// The earliest of `deadlines`; zero for none.
    next_deadline: AtomicU64,
    /// Held by the background thread while it works, and by a thread that forks.
    pub(crate) working: ShortMutex<()>,
}

impl Progress {
    pub(crate) fn defer(&self, work: Deferred) {
        self.deferred.lock().push_back(work);
        self.deferred_count.fetch_add(1, Release);
    }

    /// Sees to it that the queue pair is advanced at `deadline`.
    pub(crate) fn schedule(&self, adapter: &Adapter, deadline: u64, qp_index: u16) {
        self.add_deadline(adapter, deadline, Due::QueuePair(qp_index));
    }

    /// Sees to it that the completion queue's period is ended at `deadline`.
    pub(crate) fn schedule_event(&self, adapter: &Adapter, deadline: u64, cq: &Arc<Cq>) {
        self.moderated.lock().insert(cq.id(), Arc::downgrade(cq));
        self.add_deadline(adapter, deadline, Due::CompletionEvent(cq.id()));
    }

    /// Sees to it that a change of the port comes at `deadline`.
    pub(crate) fn schedule_outage(&self, adapter: &Adapter, deadline: u64, change: PortChange) {
        self.add_deadline(adapter, deadline, Due::Port(change));
    }

    fn add_deadline(&self, adapter: &Adapter, deadline: u64, due: Due) {
        let mut deadlines = self.deadlines.lock();
        deadlines.insert((deadline, due));
        let first = deadlines.first().map_or(0, |first| first.0);
        let earlier = self.next_deadline.swap(first, AcqRel) != first;
        drop(deadlines);
        if earlier {
            adapter.process().wake();
        }
    }

    fn due(&self, now: u64) -> Vec<Due> {
        let mut deadlines = self.deadlines.lock();
        let mut due = Vec::new();
        while let Some(first) = deadlines.first().copied().filter(|first| first.0 <= now) {
            deadlines.remove(&first);
            due.push(first.1);
        }
        self.next_deadline.store(deadlines.first().map_or(0, |first| first.0), Release);
        due
    }

    /// Takes a completion queue whose deadline has come; none if it is gone.
    fn take_moderated(&self, id: u64) -> Option<Arc<Cq>> {
        self.moderated.lock().remove(&id)?.upgrade()
    }
}

impl Adapter {
    /// What a poll does when it finds its queue empty.
    #[inline]
    pub fn progress_from_poll(&self) {
        // One of several pollers may be lost count of; any change tells the thread enough.
        let polls = &self.progress.polls;
        polls.store(polls.load(Relaxed).wrapping_add(1), Relaxed);
        self.progress_for(Worker::Poll);
    }

    /// Does everything that can be done now.
    pub(crate) fn progress_now(&self) {
        self.progress_for(Worker::All);
    }

    #[inline]
    fn progress_for(&self, worker: Worker) {
        if self.process().is_inherited() {
            return self.run_deferred();
        }
        self.take_inboxes();
        if let Some(wire) = self.port().wire() {
            self.progress_wire(wire, worker);
        }
        let deadline = self.progress.next_deadline.load(Acquire);
        if deadline != 0 {
            let now = clock::steady();
            if deadline <= now && self.take_what_is_in_time(worker) {
                self.progress.due(now).into_iter().for_each(|due| self.serve(due, now));
            }
        }
        self.run_deferred();
    }

    /// Takes what peers on this host have sent.
    #[inline]
    fn take_inboxes(&self) {
        let inbox = &self.process().segment().header().inbox;
        for (word, bits) in inbox.iter().enumerate() {
            if bits.load(Acquire) != 0 {
                self.take_inbox(word, bits.swap(0, SeqCst));
            }
        }
    }

    /// Whether peers have sent something that is not taken yet: just now, or they are out of reach.
    fn has_inbox(&self) -> bool {
        self.process().segment().header().inbox.iter().any(|bits| bits.load(Acquire) != 0)
    }

    /// Takes what came over the wire, and goes on with what waited for room.
    fn progress_wire(&self, wire: &Wire, worker: Worker) {
        let owes = match worker.leaves_owed() {
            true => wire.owed.take_late(clock::steady()),
            false => wire.owed.take(),
        };
        if let Some(qp) = owes.and_then(|index| self.tables.queue_pairs.get(index)) {
            qp.acknowledge();
        }
        wire.receive(self, worker.may_owe());
        wire.send_due();
        wire.stalled.each(|index| {
            if let Some(qp) = self.tables.queue_pairs.get(index) {
                qp.advance_packets();
            }
        });
    }

    /// Takes the packets that have come before a deadline has been noticed: they may lie in the socket, or
    /// another thread may be taking them, which has lost its processor. False if a poll leaves it all
    /// to that thread.
    #[cold]
    fn take_what_is_in_time(&self, worker: Worker) -> bool {
        match worker {
            Worker::Poll => self.try_take_all_packets(),
            Worker::Beside | Worker::Instead | Worker::All => {
                self.take_all_packets();
                true
            }
        }
    }

    fn serve(&self, due: Due, now: u64) {
        match due {
            Due::QueuePair(index) => {
                if let Some(qp) = self.tables.queue_pairs.get(index) {
                    qp.advance_in_time();
                }
            }
            Due::CompletionEvent(id) => {
                if let Some(cq) = self.progress.take_moderated(id) {
                    cq.end_period(now);
                }
            }
            Due::Port(change) => self.change_port(change),
        }
    }

    #[cold]
    fn take_inbox(&self, word: usize, mut bits: u64) {
        while bits != 0 {
            let slot = (word * 64) as u32 + bits.trailing_zeros();
            bits &= bits - 1;
            // First what is left of a process that has ended or made way for another.
            if let Some(peer) = self.peers.attached(slot as u8) {
                self.take_from(&peer);
                if !peer.is_gone() {
                    if self.process().registry().holds(peer.announcer) {
                        continue;
                    }
                    self.lose_peer(&peer);
                }
            }
            match self.reach(slot as u8) {
                Ok(Some(peer)) => self.take_from(&peer),
                Ok(None) => {}
                // What it has sent waits until it can be reached.
                Err(_) => {
                    self.peer(slot as u8);
                    self.process().segment().header().inbox[word]
                        .fetch_or(1 << (slot % 64), SeqCst);
                }
            }
        }
    }

    /// Takes what a peer has sent, and goes on with what waited for it.
    pub(crate) fn take_from(&self, peer: &Arc<Peer>) {
        let departed = peer.segment.header().departed.load(Acquire) == 1;
        if !self.drain_peer(peer) {
            peer.set_gone();
            return self.lose_peer(peer);
        }
        if departed {
            return self.lose_peer(peer);
        }
        self.advance_stalled(peer);
    }

    /// Takes what a peer has sent; false if it does not speak our language.
    fn drain_peer(&self, peer: &Arc<Peer>) -> bool {
        let taken = peer.receive(
            self.process().segment(),
            &self.process().copier(),
            |arrived, replying| {
                let Arrived { what, mut payload } = arrived;
                match what {
                    Arrival::Request(request) => {
                        let capture = self.capture_for(peer);
                        if let Some(capture) = capture {
                            let (link, inbound) = (Interface::Local, Direction::Inbound);
                            capture.request(link, inbound, &request, &mut payload);
                        }
                        match Recipient::of(&request) {
                            Recipient::QueuePair => {}
                            Recipient::Members => {
                                return self.deliver_to_group(&request, &mut payload);
                            }
                            Recipient::Nobody => return,
                        }
                        let honest = request.from.slot() == peer.announcer.slot;
                        replying.answer(&request, |sink, answer| {
                            if !honest {
                                return Reply::Dropped;
                            }
                            let Some(capture) = capture else {
                                return self.execute(&request, &mut payload, sink, Some(answer));
                            };
                            self.execute_captured(capture, &request, &mut payload, sink, answer)
                        });
                    }
                    Arrival::Answer(answer) => {
                        if let Some(qp) = self.tables.queue_pairs.get(answer.to.index()) {
                            if let Some(capture) = self.capture() {
                                let Answer { to: from, message, attempt, reply, .. } = answer;
                                let (by, to) = (peer.announcer.slot, qp.summary().peering().from);
                                let answered = Answered { by, from, to, message, attempt, reply };
                                let (link, inbound) = (Interface::Local, Direction::Inbound);
                                self.capture_answer(
                                    capture,
                                    link,
                                    inbound,
                                    &answered,
                                    &mut payload,
                                );
                            }
                            qp.on_reply(&answer, &mut payload);
                        }
                    }
                }
            },
        );
        if taken.is_err() {
            say(format_args!("process {} sent nonsense and is not heard any more", peer.pid));
        }
        taken.is_ok()
    }

    /// Carries out a segment at the queue pair it is for; one for a shared receive queue of this
    /// process may come for another's.
    pub(crate) fn execute(
        &self,
        request: &Request,
        source: &mut dyn Source,
        sink: &mut dyn Sink,
        answer: Option<&dyn Fn(Reply)>,
    ) -> Reply {
        let me = self.process().announcer().slot;
        if request.to.slot() == me {
            return match self.tables.queue_pairs.get(request.to.index()) {
                Some(qp) => qp.execute(request, source, sink, answer),
                None => Reply::Dropped,
            };
        }
        match request.remote.process() {
            Some(slot) if slot == me => self.execute_foreign(request, source, sink, answer),
            _ => Reply::Dropped,
        }
    }

    /// A peer has ended: what it sent before still counts, the rest of what was under way to it is
    /// lost.
    fn lose_peer(&self, peer: &Arc<Peer>) {
        if !peer.is_gone() {
            self.drain_peer(peer);
        }
        self.peers.forget(peer);
        self.end_what_was_under_way(peer);
    }

    /// Nothing more comes from this peer, and nothing goes there.
    fn end_what_was_under_way(&self, peer: &Arc<Peer>) {
        self.end_foreign_targets(peer);
        for qp in self.tables.queue_pairs.all() {
            qp.on_peer_lost(peer);
        }
        // Whoever waited for room there need not wait any more: what is sent to nobody has gone.
        self.advance_stalled(peer);
    }

    fn advance_stalled(&self, peer: &Peer) {
        peer.stalled.each(|index| {
            if let Some(qp) = self.tables.queue_pairs.get(index) {
                qp.advance();
            }
        });
    }

    /// Does what had to wait for locks. Call it with none held.
    #[inline]
    pub(crate) fn run_deferred(&self) {
        while self.progress.deferred_count.load(Acquire) != 0 {
            let Some(work) = self.progress.deferred.lock().pop_front() else { return };
            self.progress.deferred_count.fetch_sub(1, Release);
            match work {
                Deferred::Flush(index, side) => {
                    if let Some(qp) = self.tables.queue_pairs.get(index) {
                        qp.flush(side);
                    }
                }
                Deferred::Rendezvous(index) => {
                    if let Some(qp) = self.tables.queue_pairs.get(index) {
                        qp.start_rendezvous();
                    }
                }
                // What was sent to an inherited device is its parent's.
                Deferred::PeerLost(_) if self.process().is_inherited() => {}
                Deferred::PeerLost(peer) => {
                    self.drain_peer(&peer);
                    self.end_what_was_under_way(&peer);
                }
                #[cfg(test)]
                Deferred::Panic => panic!("a test wants it"),
                Deferred::Overrun(cq) => {
                    let feeds = |qp: &Arc<QueuePair>| qp.feeds(cq);
                    for qp in self.tables.queue_pairs.all().into_iter().filter(feeds) {
                        qp.fail_fatally();
                    }
                }
            }
        }
    }

    /// The program is about to sleep until it is told: have new messages wake the thread.
    pub fn expect_sleep(&self) {
        if self.process().is_inherited() {
            return;
        }
        self.process().segment().header().armed.store(1, SeqCst);
        self.progress.sleeps.store(true, SeqCst);
        if self.port().wire().is_some() && !self.progress.listens.load(SeqCst) {
            self.process().wake();
        }
        self.progress_now();
    }

    /// Takes up to `limit` completions of a queue, making progress if there are none; `None` if the
    /// queue has overrun.
    #[inline]
    pub fn poll(
        &self,
        cq: &Cq,
        limit: usize,
        mut each: impl FnMut(usize, &transom_device::queue::Completion),
    ) -> Option<usize> {
        match cq.take(limit, &mut each) {
            Some(0) if limit > 0 => {
                self.progress_from_poll();
                cq.take(limit, &mut each)
            }
            other => other,
        }
    }
}
