//! The receiving half of a queue pair: what packets do to it, and what it answers.

use std::cell::Cell;
use std::sync::atomic::Ordering::*;

use transom_device::execution::Responder;
use transom_device::qp::{QpNumber, Service};
use transom_device::transport::Outlet;
use transom_device::transport::congestion::Notifier;
use transom_device::transport::responder::PacketResponder;
use transom_system::clock;
use transom_system::registry::Counters;
use transom_wire::grh::Route;
use transom_wire::packet::DEFAULT_PKEY;
use transom_wire::packet::Packet;

use super::QueuePair;
use super::services::At;
use crate::objects::Link;

/// The congestion bits of a traffic class, both set by a network that is congested (rule CNP-03).
const CONGESTED: u8 = 3;

/// How often a queue pair that ends repeats its last acknowledgement: a network that loses one packet of
/// a hundred loses all three for one queue pair in a million.
const FAREWELLS: usize = 2;

/// The receiving half, and what it answers by.
pub(super) struct ReceiveHalf {
    pub(super) responder: Responder,
    /// For packets, if they come by the wire.
    pub(super) packets: PacketResponder,
    pub(super) link: Link,
    pub(super) peer: QpNumber,
    /// Tells the other end when its packets come marked.
    pub(super) notifier: Notifier,
    /// An acknowledgement that waits for something to go out with.
    pub(super) owed: Option<Packet<'static>>,
}

impl ReceiveHalf {
    /// Takes packets that came together, all requests.
    pub(super) fn take(&mut self, packets: &[Packet<'_>], route: &Route, qp: &QueuePair) {
        let reliable = qp.config.service == Service::Rc;
        let may_owe = reliable && qp.device.port().wire().is_some_and(|wire| wire.owed.may_wait());
        let before = self.owed.take();
        let owed = Cell::new(before);
        let at = At { link: &self.link, peer: self.peer, may_owe, owed, ..qp.here() };
        self.packets.receive(&mut self.responder, packets, route, &at);
        self.owed = at.owed.take();
        if self.owed != before {
            self.note_owed(qp);
        }
        self.go_on_later(qp);
        let marked = route.traffic_class & CONGESTED == CONGESTED;
        let connected = matches!(self.link, Link::Wire(_));
        if marked && connected && qp.device.options().congestion {
            let at = At { link: &self.link, peer: self.peer, ..qp.here() };
            let notice = self.notifier.notify(self.peer.bits(), DEFAULT_PKEY, clock::steady());
            if let (Some(packet), Some(wire)) = (notice, qp.device.port().wire()) {
                Counters::add(&wire.counters().notifications_sent, 1);
                at.respond(&packet);
            }
        }
    }

    /// Has others know of the acknowledgement that is kept back from now on, or that none is any more.
    fn note_owed(&self, qp: &QueuePair) {
        let Some(wire) = qp.device.port().wire() else { return };
        if self.owed.is_none() {
            wire.owed.take_of(qp.number.index());
            qp.owes.store(false, Release);
        } else {
            wire.owe(qp.number.index(), clock::steady());
        }
    }

    /// Sends the acknowledgement that was kept back.
    pub(super) fn acknowledge(&mut self, qp: &QueuePair) {
        if let Some(packet) = self.owed.take() {
            At { link: &self.link, peer: self.peer, ..qp.here() }.respond(&packet);
        }
        if qp.owes.load(Relaxed) {
            qp.owes.store(false, Release);
        }
    }

    /// Repeats the last acknowledgement, for the queue pair is about to end: if that was lost, the origin
    /// would ask again and find nobody.
    pub(super) fn bid_farewell(&mut self, qp: &QueuePair) {
        self.acknowledge(qp);
        if !matches!(self.link, Link::Wire(_)) || !qp.summary().gate().receives() {
            return;
        }
        let at = At { link: &self.link, peer: self.peer, ..qp.here() };
        if let Some(packet) = self.packets.last_word(&at) {
            (0..FAREWELLS).for_each(|_| at.respond(&packet));
        }
    }

    /// Goes on with answers that waited for room, or for company.
    pub(super) fn advance(&mut self, qp: &QueuePair) {
        let owed = Cell::new(self.owed.take());
        let at = At { link: &self.link, peer: self.peer, owed, ..qp.here() };
        self.packets.advance(&mut self.responder, &at);
        self.owed = at.owed.take();
        self.acknowledge(qp);
        self.go_on_later(qp);
    }

    /// Sees to it that answers which still wait get another turn.
    fn go_on_later(&self, qp: &QueuePair) {
        if !self.packets.is_idle()
            && let Some(wire) = qp.device.port().wire()
        {
            wire.stall(qp.number.index());
        }
    }

    /// Forgets everything, without completions.
    pub(super) fn reset(&mut self, at: &At<'_>) {
        self.responder.reset(at);
        self.packets.reset();
        self.owed = None;
        at.qp.owes.store(false, Release);
        self.link = Link::None;
    }
}
