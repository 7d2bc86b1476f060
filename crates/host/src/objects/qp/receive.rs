//! The receiving half of a queue pair: what packets do to it, and its answers.

mod responses;

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Instant;

use parking_lot::Mutex;
use transom_device::execution::{Effect, Effects, Responder};
use transom_device::qp::{QpNumber, Service};
use transom_device::queue::{PostError, ReceiveRequest, SizeError};
use transom_device::transport::NextAnswer;
use transom_device::transport::congestion::Notifier;
use transom_device::transport::responder::PacketResponder;
use transom_system::clock;
use transom_system::registry::Counters;
use transom_system::sanitizers::{self, Half};
use transom_system::tools;
use transom_wire::grh::Route;
use transom_wire::packet::DEFAULT_PKEY;
use transom_wire::packet::Packet;

use super::QueuePair;
use super::services::At;
use crate::objects::{Deferred, Link};

/// The congestion bits of a traffic class. A congested network sets both (rule CNP-03).
const CONGESTED: u8 = 3;

/// How often a queue pair that ends repeats its last acknowledgement. A network that loses one packet in a hundred
/// loses all three for one queue pair in a million.
const LAST_ACKS: usize = 2;

/// How many packets of READ responses a queue pair sends in one turn. Others wait meanwhile, and the requester must be
/// able to keep up.
const TURN: usize = 1024;

/// The receiving half, and the state of it that the sending half reads without its lock.
pub(super) struct Receiving {
    pub(super) half: Mutex<ReceiveHalf>,
    /// Whether an acknowledgement is delayed. Until it has left, nothing is sent without it. It is written with the
    /// half locked, and set before anybody can see the message's completion.
    pub(super) delays_ack: AtomicBool,
}

impl Receiving {
    pub(super) fn new(half: ReceiveHalf) -> Self {
        Self { half: Mutex::new(half), delays_ack: AtomicBool::new(false) }
    }
}

/// The receiving half, and the means to answer.
pub(super) struct ReceiveHalf {
    pub(super) responder: Responder,
    /// The responder for packets, if they come over the wire.
    pub(super) packets: PacketResponder,
    pub(super) link: Link,
    pub(super) peer: QpNumber,
    /// Tells the other end when its packets arrive marked.
    pub(super) notifier: Notifier,
    /// Whether an acknowledgement may wait now for something to go out with.
    pub(super) may_delay_ack: bool,
    /// An acknowledgement that does.
    pub(super) delayed_ack: Option<Packet<'static>>,
    /// Answers that found no room, in order. Later answers queue behind them.
    pub(super) unsent: VecDeque<Packet<'static>>,
    /// How many more packets of READ responses it may send before others get their turn.
    pub(super) room: usize,
    /// The effects that the device asks for. Empty whenever the half is not locked.
    pub(super) effects: Effects,
}

impl ReceiveHalf {
    /// A half that receives nothing yet.
    pub(super) fn new(service: Service, responder: Responder) -> Result<Self, SizeError> {
        Ok(Self {
            effects: responder.effects()?,
            responder,
            packets: PacketResponder::new(service),
            link: Link::None,
            peer: QpNumber::from_bits(0),
            notifier: Notifier::default(),
            may_delay_ack: false,
            delayed_ack: None,
            unsent: VecDeque::new(),
            room: 0,
        })
    }

    /// Takes packets that came together. All are requests.
    pub(super) fn take(
        &mut self,
        packets: &[Packet<'_>],
        route: &Route,
        qp: &QueuePair,
        deferred: &mut Deferred,
    ) {
        let reliable = qp.config.service == Service::Rc;
        self.may_delay_ack =
            reliable && qp.device.port().wire().is_some_and(|wire| wire.delayed_ack.may_wait());
        let before = self.delayed_ack;
        let is_of_this_host = || qp.device.port().is_here(&route.source);
        let (number, peer) = (qp.number.bits(), self.peer.bits());
        let _work = sanitizers::work(number, Half::Receive, peer, is_of_this_host);
        self.send_unsent(qp);
        let mut rest = packets;
        self.room = TURN;
        while !rest.is_empty() {
            // Answers that wait go first: a refusal of these packets would have to wait for them.
            self.answer(qp, deferred);
            let at = qp.here();
            let mut cx = at.context(&mut self.effects);
            let taken = self.packets.take(&mut self.responder, rest, route, &mut cx);
            self.settle(qp, deferred);
            rest = rest.get(taken..).unwrap_or_default();
        }
        self.answer(qp, deferred);
        self.say_what_is_due(qp, deferred);
        self.may_delay_ack = false;
        if self.delayed_ack != before {
            self.note_delayed_ack(qp);
        }
        self.go_on_later(qp);
        let marked = route.traffic_class & CONGESTED == CONGESTED;
        let connected = matches!(self.link, Link::Wire(_));
        let tells = marked && connected && qp.device.options().congestion;
        if let Some(wire) = qp.device.port().wire().filter(|_| tells) {
            Counters::add(&wire.counters().marked, packets.len());
            let notice = self.notifier.notify(self.peer.bits(), DEFAULT_PKEY, clock::steady());
            if let Some(packet) = notice {
                Counters::add(&wire.counters().notifications_sent, 1);
                self.send(&packet, qp);
            }
        }
    }

    /// Shows the other half that an acknowledgement is delayed from now on, or that none is any more.
    fn note_delayed_ack(&self, qp: &QueuePair) {
        let Some(wire) = qp.device.port().wire() else { return };
        if self.delayed_ack.is_none() {
            wire.delayed_ack.take_of(qp.number.index());
            qp.receive.delays_ack.store(false, Release);
        } else {
            wire.delay_ack(qp.number.index(), clock::steady());
        }
    }

    /// Sends the delayed acknowledgement.
    pub(super) fn acknowledge(&mut self, qp: &QueuePair) {
        if let Some(packet) = self.delayed_ack.take() {
            self.respond(&packet, qp);
        }
        if qp.receive.delays_ack.load(Relaxed) {
            qp.receive.delays_ack.store(false, Release);
        }
    }

    /// Repeats the last acknowledgement, because the queue pair is about to end. If it was lost, the requester would
    /// ask again and find nobody.
    pub(super) fn repeat_last_acknowledgement(&mut self, qp: &QueuePair) {
        self.acknowledge(qp);
        if !matches!(self.link, Link::Wire(_)) || !qp.summary().gate().receives() {
            return;
        }
        let at = qp.here();
        if let Some(packet) = self.packets.last_acknowledgement(&at.context(&mut self.effects)) {
            (0..LAST_ACKS).for_each(|_| self.respond(&packet, qp));
        }
    }

    /// Goes on with answers that waited for room, or for a packet to leave with.
    pub(super) fn advance(&mut self, qp: &QueuePair, deferred: &mut Deferred) {
        self.room = TURN;
        let is_of_this_host = || self.link.is_within_host(qp.device.port());
        let (number, peer) = (qp.number.bits(), self.peer.bits());
        let _work = sanitizers::work(number, Half::Receive, peer, is_of_this_host);
        self.send_unsent(qp);
        self.answer(qp, deferred);
        self.say_what_is_due(qp, deferred);
        self.acknowledge(qp);
        self.go_on_later(qp);
    }

    /// Answers READs, atomics and similar requests, as far as there is room.
    fn answer(&mut self, qp: &QueuePair, deferred: &mut Deferred) {
        let at = qp.here();
        while !self.packets.is_idle() {
            let next = self.packets.next_answer(self.room, &mut at.context(&mut self.effects));
            self.settle(qp, deferred);
            let answer = match next {
                NextAnswer::Nothing => return,
                NextAnswer::Packet => {
                    self.room -= 1;
                    continue;
                }
                NextAnswer::Data(answer) => answer,
            };
            let reply = self.send_answer(&answer, qp);
            let more = self.packets.sent(&answer, reply, &mut at.context(&mut self.effects));
            self.settle(qp, deferred);
            if !more {
                return;
            }
        }
    }

    /// Completes the queue pair's own receives as flushed.
    pub(super) fn flush(&mut self, qp: &QueuePair, deferred: &mut Deferred) {
        let at = qp.here();
        self.responder.flush(&mut at.context(&mut self.effects));
        self.settle(qp, deferred);
    }

    /// Sends everything that is due after the answers.
    fn say_what_is_due(&mut self, qp: &QueuePair, deferred: &mut Deferred) {
        let at = qp.here();
        self.packets.acknowledge(&mut at.context(&mut self.effects));
        self.settle(qp, deferred);
    }

    /// Carries out the device's effects before anybody else calls this half.
    pub(super) fn settle(&mut self, qp: &QueuePair, deferred: &mut Deferred) {
        let mut effects = mem::take(&mut self.effects);
        for effect in effects.all() {
            match effect {
                Effect::Respond(packet) => self.respond(packet, qp),
                other => qp.carry_out(other, deferred),
            }
        }
        effects.clear();
        self.effects = effects;
    }

    /// The same, for answers that do not go as packets.
    pub(super) fn settle_around(
        &mut self,
        answer: impl FnOnce(),
        qp: &QueuePair,
        deferred: &mut Deferred,
    ) {
        let (before, behind) = self.effects.around_answer();
        before.iter().for_each(|effect| qp.carry_out(effect, deferred));
        answer();
        behind.iter().for_each(|effect| qp.carry_out(effect, deferred));
        self.effects.clear();
    }

    /// Schedules another turn for answers that still wait.
    fn go_on_later(&self, qp: &QueuePair) {
        if !self.packets.is_idle()
            && let Some(wire) = qp.device.port().wire()
        {
            wire.stall(qp.number.index());
        }
    }

    /// Forgets everything, without completions.
    pub(super) fn reset(&mut self, qp: &QueuePair, deferred: &mut Deferred) {
        self.responder.reset(&mut self.effects);
        self.settle(qp, deferred);
        self.packets.reset();
        self.delayed_ack = None;
        self.unsent.clear();
        qp.receive.delays_ack.store(false, Release);
        self.lead(Link::None, QpNumber::from_bits(0), qp);
    }

    /// Has it answer by this link.
    pub(super) fn lead(&mut self, link: Link, peer: QpNumber, qp: &QueuePair) {
        self.packets.link = link.segmentation(qp.config.service);
        (self.link, self.peer) = (link, peer);
    }
}

impl QueuePair {
    /// Posts a receive work request.
    pub fn post_receive(&self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        let mut guard = self.receive.half.lock();
        let half = &mut *guard;
        let at = self.here();
        let result = half.responder.post(request, &mut at.context(&mut half.effects));
        if result.is_ok() && tools::any() {
            self.tools_see_receive(request, &at);
        }
        // In error the receive is flushed at once, and its completion may overrun the queue.
        let mut deferred = Deferred::default();
        half.settle(self, &mut deferred);
        drop(guard);
        deferred.run(&self.adapter);
        result
    }

    /// A receive is posted, and a tool is on. Out of line, so that other posts do not pay for it.
    #[cold]
    #[inline(never)]
    fn tools_see_receive(&self, request: &ReceiveRequest<'_>, at: &At<'_>) {
        self.trace_receive_posted(request);
        if let Some(rehearsed) = self.rehearsed() {
            self.scribble_receive(rehearsed, at.local(request.sges));
        }
    }

    /// Sends the delayed acknowledgement.
    pub(crate) fn acknowledge(&self) {
        self.receive.half.lock().acknowledge(self);
    }

    /// The same at exit. Another thread may be about to delay an acknowledgement, for a message whose completion the
    /// program has seen already. But that thread may also never run again.
    pub(crate) fn acknowledge_at_exit(&self, until: Instant) {
        if let Some(mut half) = self.receive.half.try_lock_until(until) {
            half.acknowledge(self);
        }
    }

    /// Forgets a receive that it has taken from this shared queue, because the queue is gone.
    pub(crate) fn forget_shared(&self, srq: u32) {
        self.receive.half.lock().responder.forget_shared(srq);
    }
}
