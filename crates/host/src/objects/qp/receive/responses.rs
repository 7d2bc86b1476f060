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

/// How many answers may wait for room. More are lost, as on a network.
const MOST_UNSENT: usize = 64;

impl ReceiveHalf {
    /// Sends a packet without data. An acknowledgement may be delayed. It then stands for those before it, and leaves
    /// before any answer to a later request.
    pub(in super::super) fn respond(&mut self, packet: &Packet<'_>, qp: &QueuePair) {
        if packet.is_acknowledgement() && !self.delays_ack_after(packet.psn) {
            // The new one acknowledges everything that the waiting one does, and more.
            self.delayed_ack = None;
            if self.may_delay_ack && self.unsent.is_empty() {
                // A sender that acts on the coming completion takes the acknowledgement along.
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

    /// Sends a packet now, or queues it behind those that found no room.
    pub(in super::super) fn send(&mut self, packet: &Packet<'_>, qp: &QueuePair) {
        if let (Some(wire), Link::Wire(path)) = (qp.device.port().wire(), &self.link)
            && !(self.unsent.is_empty() && wire.send_packet(packet, path))
        {
            wire.stall(qp.number.index());
            self.keep_unsent(packet.headers());
        }
    }

    /// Keeps an answer that found no room.
    #[cold]
    fn keep_unsent(&mut self, packet: Packet<'static>) {
        // A later acknowledgement replaces the one before it, because it acknowledges more.
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

    /// Sends the answers that found no room before.
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

    /// Sends part of the answer to a READ, if there is data and room. Returns the device's reply, or [`Reply::Silence`]
    /// if there was no room.
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
                // It is longer than the path allows, so nothing of it is sent.
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

    /// Takes the delayed acknowledgement, because the answer of this number is about to leave. It stays if that answer
    /// is an older one that is repeated: the requester expects that one first.
    fn take_delayed_ack_before(&mut self, answer: Psn) -> Option<Packet<'static>> {
        if self.delays_ack_after(answer) { None } else { self.delayed_ack.take() }
    }

    /// Whether the delayed acknowledgement is for a later packet.
    fn delays_ack_after(&self, psn: Psn) -> bool {
        self.delayed_ack.is_some_and(|delayed| delayed.psn.compare(psn).is_gt())
    }
}

#[cfg(test)]
mod tests;
