//! Who does the work: the thread that polls, else one background thread.
//!
//! The thread sleeps on a pipe, on changes of the host's addresses, on the ends of its peers and of the other processes
//! of the port, on reports of packets that reached nobody, on the wire's sockets while it listens, and on the next
//! deadline. Others write to the pipe only while the process is `armed`. As long as the program polls, the thread
//! leaves the work to it, and only checks every millisecond whether it still polls. Once it does not, the thread arms
//! and sleeps until there is work. A thread of the program that sleeps for a completion event is woken in its place,
//! and does the work that peers have sent ([`asleep`]). Nothing wakes an idle process.

mod asleep;
mod background;
mod observed;
mod packets;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use transom_device::execution::{PlainSend, Reply, Request};
use transom_device::queue::Completion;
use transom_net::faults::IncidentKind;
use transom_net::{Answer, Arrival, Arrived, Extent, MessageData, Peer, Reception, Replying, Wire};
use transom_system::segment::Wakeup;
use transom_system::{clock, say};

use crate::device::{Answered, Device, Direction, Due, Interface};
use crate::objects::{Adapter, Cq, Deferred, Driver, Recipient};

/// Who makes progress. It decides which work can be left to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worker {
    /// A poll of the program.
    Poll,
    /// The background thread, beside a program that polls.
    Beside,
    /// The background thread, for a program that does not poll.
    Instead,
    /// A caller who wants everything done that can be done.
    All,
}

impl Worker {
    /// How much it takes from each peer. A poll never waits for one that goes on sending, nor do the wire and the
    /// deadlines that the background thread serves.
    fn extent(self) -> Extent {
        match self {
            Self::Poll => Extent::Few,
            Self::Beside => Extent::ManyIfFree,
            Self::Instead => Extent::Many,
            Self::All => Extent::Present,
        }
    }

    /// Whether acknowledgements of the packets that arrive now may be delayed.
    fn may_delay(self) -> bool {
        matches!(self, Self::Poll | Self::Beside)
    }

    /// Whether delayed acknowledgements are left to the program until they have waited in vain.
    fn leaves_delayed(self) -> bool {
        matches!(self, Self::Beside | Self::Instead)
    }
}

/// Drives devices by the threads that call them, and one background thread for each.
pub(crate) struct Threads;

impl Driver for Threads {
    fn take_all(&self, adapter: &Adapter, from: Option<&Arc<Peer>>) {
        let dispatch = Dispatch { adapter };
        dispatch.take_all_packets();
        if let Some(peer) = from {
            dispatch.take_from(peer, Extent::Present);
        }
    }
}

impl Adapter {
    /// Takes up to `limit` completions of a queue. Makes progress if there are none. `None` if the queue has overrun.
    #[inline]
    pub fn poll(
        &self,
        cq: &Cq,
        limit: usize,
        mut each: impl FnMut(usize, &Completion),
    ) -> Option<usize> {
        self.device().work.polling.note();
        match cq.take(limit, &mut each) {
            Some(0) if limit > 0 => self.progress_and_take(cq, limit, &mut each),
            other => other,
        }
    }

    /// Kept out of line, so that a poll that finds something stays short.
    #[inline(never)]
    fn progress_and_take(
        &self,
        cq: &Cq,
        limit: usize,
        each: &mut impl FnMut(usize, &Completion),
    ) -> Option<usize> {
        Dispatch { adapter: self }.progress_from_poll();
        cq.take(limit, each)
    }

    /// The work of a poll that finds its queue empty. Call it for a program that waits for results in another way, as
    /// long as it waits.
    pub fn progress(&self) {
        self.device().work.polling.note();
        Dispatch { adapter: self }.progress_from_poll();
    }

    /// The program is about to sleep until it is told. Makes new messages wake the thread.
    pub fn expect_sleep(&self) {
        Dispatch { adapter: self }.expect_sleep();
    }
}

/// Brings arrivals to their queue pairs, and carries out the work that those have left.
#[derive(Clone, Copy)]
struct Dispatch<'a> {
    adapter: &'a Adapter,
}

impl<'a> Dispatch<'a> {
    #[inline]
    fn device(self) -> &'a Device {
        self.adapter.device()
    }

    /// The work of a poll that finds its queue empty.
    fn progress_from_poll(self) {
        self.device().work.polling.note_in_vain();
        self.progress_for(Worker::Poll);
    }

    /// Does everything that can be done now.
    fn progress_now(self) {
        self.progress_for(Worker::All);
    }

    #[inline]
    fn progress_for(self, worker: Worker) {
        if self.device().process().is_inherited() {
            return self.end_lost_peers();
        }
        let extent = worker.extent();
        let told = self.take_inboxes(extent);
        let senders = self.device().peers.watched.senders();
        senders.iter().for_each(|peer| self.take_from(peer, extent));
        if let Some(wire) = self.device().port().wire() {
            if told || !senders.is_empty() {
                wire.expect_little();
            }
            self.progress_wire(wire, worker);
        }
        let deadlines = &self.device().work.deadlines;
        if let Some(deadline) = deadlines.next() {
            let now = clock::steady();
            if deadline <= now && self.take_what_is_in_time(worker) {
                let due = deadlines.take_due(now);
                due.into_iter().for_each(|(deadline, due)| self.serve(due, deadline, now));
            }
        }
        self.end_lost_peers();
    }

    /// Takes messages from peers on this host. Returns whether peers have signalled.
    #[inline]
    fn take_inboxes(self, extent: Extent) -> bool {
        let mut told = false;
        let header = self.device().process().segment().header();
        for word in 0..header.inbox.len() {
            let bits = header.take_told(word);
            if bits != 0 {
                self.take_inbox(word, bits, extent);
                told = true;
            }
        }
        told
    }

    /// Makes peers signal everything they send again, and takes messages they sent without a signal.
    fn end_watching(self, extent: Extent) {
        let polls = self.device().work.polling.in_vain();
        let watched = self.device().peers.watched.end(polls);
        watched.iter().for_each(|peer| self.take_from(peer, extent));
    }

    /// Whether peers have sent something that is not taken yet: just now, or while they were out of reach.
    fn has_inbox(self) -> bool {
        self.device().process().segment().header().inbox.iter().any(|bits| bits.load(Acquire) != 0)
    }

    /// Takes packets from the wire, and goes on with work that waited for room.
    fn progress_wire(self, wire: &Wire, worker: Worker) {
        let delaying = match worker.leaves_delayed() {
            true => wire.delayed_ack.take_late(clock::steady()),
            false => wire.delayed_ack.take(),
        };
        if let Some(qp) = delaying.and_then(|index| self.adapter.queue_pairs.get(index)) {
            qp.acknowledge();
        }
        if worker != Worker::Poll || wire.is_looked_at_by_this_poll() {
            let reception = Reception {
                acks_may_wait: worker.may_delay(),
                comes_again: worker == Worker::Poll,
            };
            wire.receive(&self, reception);
        }
        wire.send_due();
        wire.stalled.each(|index| {
            if let Some(qp) = self.adapter.queue_pairs.get(index) {
                qp.advance_packets();
            }
        });
    }

    /// Takes the packets that came before a deadline was noticed. They may lie in the socket, or another thread may be
    /// taking them and have lost its processor. False if a poll leaves all of it to that thread.
    #[cold]
    fn take_what_is_in_time(self, worker: Worker) -> bool {
        match worker {
            Worker::Poll => self.try_take_all_packets(),
            Worker::Beside | Worker::Instead | Worker::All => {
                self.take_all_packets();
                true
            }
        }
    }

    fn serve(self, due: Due, deadline: u64, now: u64) {
        match due {
            Due::QueuePair(index) => {
                if let Some(qp) = self.adapter.queue_pairs.get(index) {
                    qp.advance_in_time(deadline);
                }
            }
            Due::Flushes(index) => {
                if let Some(qp) = self.adapter.queue_pairs.get(index) {
                    qp.tell_flushed(now);
                }
            }
            Due::Writes => {
                let held_back = self.device().process().held_back();
                held_back.into_iter().for_each(|all| all.land(|held| held.time <= now));
            }
            Due::Events(number) => {
                if let Some(holder) = self.device().work.deadlines.take_holder(number) {
                    holder.end_period(now);
                }
            }
            Due::Port(change) => self.device().change_port(change),
            Due::Incident(kind) => self.cause(kind),
            Due::Connections => self.adapter.connections().on_deadline(),
        }
    }

    /// Makes an injected incident happen to the device now.
    #[cold]
    fn cause(self, kind: IncidentKind) {
        match kind {
            IncidentKind::DeviceRemoval => self.device().remove(),
            IncidentKind::AddressChange => {
                let addresses = self.device().port().addresses();
                let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
                let of_table = addresses.iter().map(|(_, address)| address.ip());
                let all: Vec<_> = of_table.chain(loopback).collect();
                drop(addresses);
                self.adapter.connections().addresses_changed(&all);
            }
        }
    }

    #[cold]
    fn take_inbox(self, word: usize, mut bits: u64, extent: Extent) {
        while bits != 0 {
            let slot = (word * 64) as u32 + bits.trailing_zeros();
            bits &= bits - 1;
            // First handle the rest of a process that has ended or made way for another.
            if let Some(peer) = self.device().peers.attached(slot as u8) {
                self.take_from(&peer, extent);
                if !peer.is_gone() {
                    if peer.has_ended_targets() {
                        let mut deferred = Deferred::default();
                        self.adapter.foreign_targets.look_again(self.adapter, &peer, &mut deferred);
                        deferred.run(self.adapter);
                    }
                    if self.device().process().registry().holds(peer.announcer) {
                        let polls = self.device().work.polling.in_vain();
                        self.device().peers.watched.add(&peer, polls);
                        continue;
                    }
                    self.lose_peer(&peer);
                }
            }
            match self.device().reach(slot as u8) {
                Ok(Some(peer)) => self.take_from(&peer, extent),
                Ok(None) => {}
                // Its messages wait until it can be reached.
                Err(_) => {
                    self.device().peer(slot as u8);
                    self.device().process().segment().header().note(slot as usize);
                }
            }
        }
    }

    /// Takes messages from a peer, and goes on with work that waited for it.
    fn take_from(self, peer: &Arc<Peer>, extent: Extent) {
        let departed = peer.segment.header().departed.load(Acquire) == 1;
        let Some(all) = self.drain_peer(peer, extent) else {
            peer.set_gone();
            return self.lose_peer(peer);
        };
        if departed {
            return self.lose_peer(peer);
        }
        if !all {
            self.device().work.leave(peer);
        }
        self.advance_stalled(peer);
    }

    /// Takes messages from a peer. False if some may be left, `None` if they are malformed.
    fn drain_peer(self, peer: &Arc<Peer>, extent: Extent) -> Option<bool> {
        let taken = peer.receive(self.device().process(), extent, |arrived, replying| {
            let Arrived { what, mut data } = arrived;
            match what {
                Arrival::Send(send) => {
                    if !self.receive_at_once(peer, &send, &mut data, replying) {
                        self.take_request(peer, &send.request(), &mut data, replying);
                    }
                }
                Arrival::Request(request, _) => {
                    self.take_request(peer, &request, &mut data, replying);
                }
                Arrival::Answer(answer) => self.take_answer(peer, &answer, &mut data),
            }
        });
        if taken.is_err() {
            say(format_args!(
                "process {} sent nonsense and is not heard any more",
                peer.memory.pid
            ));
        }
        taken.ok()
    }

    /// Receives a plain SEND. False if it has to be taken like any other request.
    #[inline]
    fn receive_at_once(
        self,
        peer: &Peer,
        send: &PlainSend,
        data: &mut MessageData<'_>,
        replying: &mut Replying<'_>,
    ) -> bool {
        let me = self.device().process().announcer().slot;
        let honest = send.from.slot() == peer.announcer.slot;
        if !honest || send.to.slot() != me || self.device().by_message() {
            return false;
        }
        let Some(qp) = self.adapter.queue_pairs.get(send.to.index()) else { return false };
        let mut deferred = Deferred::default();
        let received = replying.acknowledge(send, |acknowledge| {
            qp.receive_at_once(send, data, acknowledge, &mut deferred)
        });
        deferred.run(self.adapter);
        received
    }

    /// Takes a segment of a request.
    fn take_request(
        self,
        peer: &Peer,
        request: &Request,
        data: &mut MessageData<'_>,
        replying: &mut Replying<'_>,
    ) {
        let observer = self.observer_for(peer);
        if let Some(observer) = observer {
            observer.request(Interface::Local, Direction::Inbound, request, data);
        }
        let mut deferred = Deferred::default();
        match Recipient::of(request) {
            Recipient::QueuePair => {
                let honest = request.from.slot() == peer.announcer.slot;
                replying.answer(request, |sink, answer| {
                    if !honest {
                        return Reply::Dropped;
                    }
                    let deferred = &mut deferred;
                    let Some(observer) = observer else {
                        let reply =
                            self.adapter.execute(request, data, sink, Some(answer), deferred);
                        return reply.unwrap_or(Reply::Dropped);
                    };
                    self.execute_observed(observer, request, data, sink, answer, deferred)
                });
            }
            Recipient::Members => self.adapter.deliver_to_group(request, data, &mut deferred),
            Recipient::Nobody => {}
        }
        deferred.run(self.adapter);
    }

    /// Takes the answer to a request of this process.
    fn take_answer(self, peer: &Peer, answer: &Answer, data: &mut MessageData<'_>) {
        let Some(qp) = self.adapter.queue_pairs.get(answer.to.index()) else { return };
        if let Some(observer) = self.device().observer() {
            let Answer { to: from, message, attempt, reply, .. } = *answer;
            let (by, to) = (peer.announcer.slot, qp.summary().peering().from);
            let answered = Answered { by, from, to, message, attempt, reply };
            observer.answer(Interface::Local, Direction::Inbound, &answered, data);
        }
        qp.on_reply(answer, data);
    }

    /// A peer has ended. Messages that it sent before still count; the rest of the traffic with it is lost.
    fn lose_peer(self, peer: &Arc<Peer>) {
        if !peer.is_gone() {
            self.drain_peer(peer, Extent::Present);
        }
        if peer.life().has_ended() {
            // If it was killed, nobody else may have its counters.
            self.device().process().registry().settle(&peer.segment);
        }
        self.device().peers.forget(peer);
        self.end_what_was_under_way(peer);
    }

    /// Nothing more comes from this peer, and nothing goes there.
    fn end_what_was_under_way(self, peer: &Arc<Peer>) {
        let mut deferred = Deferred::default();
        self.adapter.foreign_targets.end_those_of(self.adapter, peer, &mut deferred);
        deferred.run(self.adapter);
        for qp in self.adapter.queue_pairs.all() {
            qp.on_peer_lost(peer);
        }
        // Work that waited for room there need not wait any more: messages to nobody count as gone.
        self.advance_stalled(peer);
    }

    fn advance_stalled(self, peer: &Peer) {
        peer.stalled.each(|index| {
            if let Some(qp) = self.adapter.queue_pairs.get(index) {
                qp.advance();
            }
        });
    }

    /// Tells queue pairs of peers that a thread found to have ended while it held locks. Nothing is locked here.
    #[inline]
    fn end_lost_peers(self) {
        #[cfg(test)]
        assert!(!self.device().work.panics.load(Acquire), "a test wants it");
        while let Some(peer) = self.device().work.take_lost() {
            // Messages to an inherited device are for its parent.
            if !self.device().process().is_inherited() {
                self.drain_peer(&peer, Extent::Present);
                self.end_what_was_under_way(&peer);
            }
        }
    }

    /// Makes peers wake this process in this way from now on, and takes messages that they sent before.
    fn arm(self, wakeup: Wakeup) {
        self.device().process().segment().header().arm(wakeup);
        // Messages sent before they saw that brought no wake-up.
        self.end_watching(Extent::Many);
        self.take_inboxes(Extent::Many);
        self.end_lost_peers();
        self.device().work.wake_for_left();
    }

    /// The program is about to sleep until it is told. Makes new messages wake the thread.
    fn expect_sleep(self) {
        if self.device().process().is_inherited() {
            return;
        }
        self.device().process().segment().header().arm(Wakeup::Pipe);
        self.device().work.polling.expect_sleep();
        self.end_watching(Extent::Many);
        if self.device().port().wire().is_some() && self.device().work.polling.needs_wake() {
            self.device().process().wake();
        }
        self.progress_now();
        self.device().work.wake_for_left();
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use transom_device::queue::{CompletionOptions, Feeder, Opcode, Status};
    use transom_system::registry::Dropped;
    use transom_wire::packet::PORT;

    use super::*;
    use crate::events::EventQueue;
    use crate::objects::CqConfig;
    use crate::testing::OnTheWire;

    /// A poll finds the thread's completions: a program that the thread serves polls all the same.
    #[test]
    fn a_program_that_looks_for_completions_counts_as_one_that_polls() {
        let adapter = OnTheWire::open();
        let work = &adapter.device().work;
        // The background thread waits meanwhile.
        let _held = work.working.lock();
        let events = Arc::new(EventQueue::new().expect("a queue of events"));
        let options = CompletionOptions::default();
        let config = CqConfig {
            capacity: 1,
            asked: 1,
            options,
            channel: None,
            events,
            id: 0,
            context: None,
        };
        let cq = Arc::new(Cq::new(adapter.device(), config).expect("a completion queue"));
        let polling = &work.polling;
        polling.has_polled(true);
        assert!(!polling.has_polled(false));
        cq.push(Feeder::default(), &Completion::new(1, Status::Success, Opcode::Send, 1), false);
        assert_eq!(adapter.poll(&cq, 1, |_, completion| assert_eq!(completion.wr_id, 1)), Some(1));
        assert!(polling.has_polled(true));
        assert!(!polling.has_polled(false));
        // A program that waits for a completion counter looks there.
        adapter.progress();
        assert!(polling.has_polled(false));
    }

    /// Looking for packets is a system call, and messages of a peer would have to wait for it.
    #[test]
    fn few_polls_look_for_packets_while_messages_come_without_them() {
        let adapter = OnTheWire::open();
        let device = adapter.device();
        let wire = device.port().wire().expect("it is open");
        let counters = wire.counters();
        // The background thread waits meanwhile.
        let _held = device.work.working.lock();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        // A packet for no queue pair of this process, with a wrong ICRC.
        let mut packet = [0; 20];
        packet[5] = device.process().announcer().slot;
        let polls_until_it_is_seen = || {
            let seen = || counters.dropped(Dropped::WrongIcrc);
            let before = seen();
            socket.send_to(&packet, (Ipv4Addr::LOCALHOST, PORT)).expect("it is sent");
            while !wire.has_arrivals() {
                std::thread::yield_now();
            }
            let polls = 1..1000;
            polls.into_iter().find(|_| {
                adapter.progress();
                seen() > before
            })
        };
        assert_eq!(polls_until_it_is_seen(), Some(1));
        let nobody = device.process().segment().header().inbox.last().expect("there are some");
        nobody.store(1 << 63, SeqCst);
        adapter.progress();
        let polls = polls_until_it_is_seen().expect("it is seen");
        assert!((2..20).contains(&polls), "{polls}");
        // Now packets come.
        assert_eq!(polls_until_it_is_seen(), Some(1));
    }
}
