//! Responses as packets: acknowledgements, which may be delayed, and the data of READs.

use std::sync::atomic::Ordering::*;

use transom_device::execution::{Context, Reply, Responder};
use transom_device::qp::Service;
use transom_device::transport::{ReadAnswer, ResponseBurst};
use transom_net::Filling;
use transom_wire::Psn;
use transom_wire::packet::{Packet, Transport};

use super::ReceiveHalf;
use crate::objects::Link;
use crate::objects::qp::QueuePair;
use crate::objects::qp::services::At;

/// Most answers that wait for room: where there is none for so many, the rest is lost, as on a network.
const MOST_UNSENT: usize = 64;

impl ReceiveHalf {
    /// Sends a packet without data. An acknowledgement may be delayed: it stands for those before it, and
    /// leaves before any answer to what came after what it acknowledges.
    pub(in super::super) fn respond(&mut self, packet: &Packet<'_>, qp: &QueuePair) {
        if packet.is_acknowledgement() && !self.delays_ack_after(packet.psn) {
            // It says what the one that waits would say, and more.
            self.delayed_ack = None;
            if self.may_delay_ack && self.unsent.is_empty() {
                // Whoever sends something because of a completion that is yet to come takes it along.
                qp.receive.delays_ack.store(true, Release);
                self.delayed_ack = Some(packet.headers());
                return;
            }
        }
        if let Some(delayed) = self.take_delayed_ack_before(packet.psn) {
            self.send(&delayed, qp);
        }
        self.send(packet, qp);
    }

    /// Sends a packet now, or behind those that have found no room.
    pub(in super::super) fn send(&mut self, packet: &Packet<'_>, qp: &QueuePair) {
        if let (Some(wire), Link::Wire(path)) = (qp.device.port().wire(), &self.link)
            && !(self.unsent.is_empty() && wire.send_packet(packet, path))
        {
            wire.stall(qp.number.index());
            self.keep_unsent(packet.headers());
        }
    }

    /// Keeps an answer that has found no room.
    #[cold]
    fn keep_unsent(&mut self, packet: Packet<'static>) {
        // An acknowledgement says what the one before it would say, and more.
        let replaces = |last: &&mut Packet<'_>| {
            last.is_acknowledgement()
                && packet.is_acknowledgement()
                && packet.psn.compare(last.psn).is_ge()
        };
        let has_room = self.unsent.len() < MOST_UNSENT;
        match self.unsent.back_mut().filter(replaces) {
            Some(last) => *last = packet,
            None if has_room => self.unsent.push_back(packet),
            None => {}
        }
    }

    /// Sends the answers that have found no room before.
    pub(in super::super) fn send_unsent(&mut self, qp: &QueuePair) {
        while let Some(packet) = self.unsent.front() {
            if let (Some(wire), Link::Wire(path)) = (qp.device.port().wire(), &self.link)
                && !wire.send_packet(packet, path)
            {
                return wire.stall(qp.number.index());
            }
            self.unsent.pop_front();
        }
    }

    /// Sends part of the answer to a READ, if there is data and room. Answers what the device did, or
    /// [`Reply::Silence`] if there was no room.
    pub(in super::super) fn send_answer(&mut self, answer: &ReadAnswer, qp: &QueuePair) -> Reply {
        self.send_data(&answer.burst, qp, |responder, sink, cx| answer.fetch(responder, sink, cx))
    }

    fn send_data(
        &mut self,
        burst: &ResponseBurst,
        qp: &QueuePair,
        fetch: impl FnOnce(&mut Responder, &mut Filling<'_>, &mut Context<'_, At<'_>>) -> Reply,
    ) -> Reply {
        let Some(wire) = qp.device.port().wire() else { return Reply::Dropped };
        if let Some(delayed) = self.take_delayed_ack_before(burst.psn) {
            self.send(&delayed, qp);
        }
        if !self.unsent.is_empty() {
            // It comes behind them.
            self.room = 0;
            return Reply::Silence;
        }
        let Link::Wire(path) = &self.link else { return Reply::Dropped };
        let mut buffer = wire.take_buffer();
        let transport = match qp.config.service {
            Service::XrcTarget => Transport::Xrc { srq: 0 },
            _ => Transport::Rc,
        };
        let mut packets = burst.packets(transport, self.peer.bits(), path.mtu);
        while let Some((packet, length)) = packets.next() {
            if !buffer.add(&packet, length) || !buffer.repeat(packets.repeats(), packet.psn.plus(1))
            {
                // Longer than the path allows: nothing of it is sent.
                wire.give_back(buffer);
                return Reply::Dropped;
            }
        }
        let at = qp.here();
        let mut sink = Filling { burst: &mut buffer, copier: qp.device.process().copier() };
        let mut cx = at.context(&mut self.effects);
        let mut reply = fetch(&mut self.responder, &mut sink, &mut cx);
        if matches!(reply, Reply::Data { .. }) {
            if wire.send(&mut buffer, path) {
                self.room = self.room.saturating_sub(buffer.packets());
            } else {
                self.room = 0;
                reply = Reply::Silence;
            }
        }
        wire.give_back(buffer);
        reply
    }

    /// The acknowledgement that waits, for the answer of this number is about to leave: unless that is an
    /// older one, said again, which an origin expects before it.
    fn take_delayed_ack_before(&mut self, answer: Psn) -> Option<Packet<'static>> {
        if self.delays_ack_after(answer) { None } else { self.delayed_ack.take() }
    }

    /// Whether an acknowledgement waits that is of something later.
    fn delays_ack_after(&self, psn: Psn) -> bool {
        self.delayed_ack.is_some_and(|delayed| delayed.psn.compare(psn).is_gt())
    }
}

#[cfg(test)]
mod tests;
