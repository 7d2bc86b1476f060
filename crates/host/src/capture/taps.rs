//! Where the links without packets are listened to.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use transom_device::execution::one_sided::CHUNK;
use transom_device::execution::{Reply, Request, Source};
use transom_device::protection::Reason;
use transom_device::qp::QpNumber;
use transom_net::{Observer, Path, Peer, RingBytes};
use transom_system::addresses::gid;
use transom_system::registry::Registry;
use transom_wire::packet::{Operation, Packet, Transport};
use transom_wire::{NakCode, Psn, Syndrome};

use super::{Capture, Direction, Interface};
use crate::adapter::Adapter;

/// An answer, and to what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    /// The registry slot of the process that gave it.
    pub(crate) by: u8,
    /// The requester.
    pub(crate) from: QpNumber,
    /// The responder.
    pub(crate) to: QpNumber,
    /// The number of the message.
    pub(crate) message: Psn,
    /// The attempt.
    pub(crate) attempt: u64,
    /// The answer.
    pub(crate) reply: Reply,
}

impl Answered {
    /// The answer that the process in a slot gives to a segment.
    pub(crate) fn to(request: &Request, reply: Reply, by: u8) -> Self {
        let &Request { from, to, message, attempt, .. } = request;
        Self { by, from, to, message, attempt, reply }
    }
}

impl Adapter {
    /// Where to write down what crosses the links, if anybody wants to know.
    #[inline]
    pub(crate) fn capture(&self) -> Option<&Capture> {
        self.capture.as_deref()
    }

    /// Where to write down what a peer asks of this process: nowhere if the peer writes to the same
    /// file.
    pub(crate) fn capture_for(&self, peer: &Peer) -> Option<&Capture> {
        self.capture().filter(|own| !shares(peer, own))
    }

    /// Writes down a datagram that came over the wire, unless its sender has done so. `dropped` says
    /// why it goes no further.
    pub(crate) fn capture_arrival(
        &self,
        path: &Path,
        identification: u16,
        datagram: &[u8],
        dropped: Option<&str>,
    ) {
        let Some(capture) = self.capture() else { return };
        let packet = Packet::parse(datagram).ok().filter(|_| dropped.is_none());
        if !packet.is_some_and(|packet| self.has_written(capture, path, &packet)) {
            capture.record(Direction::Inbound, path, identification, datagram, dropped);
        }
    }

    /// Whether the sender of a packet writes to the same file.
    fn has_written(&self, capture: &Capture, path: &Path, packet: &Packet<'_>) -> bool {
        if !self.port().is_here(&gid(path.source)) {
            return false;
        }
        let slot = match packet.transport {
            Transport::Ud { source, .. } => QpNumber::from_bits(source).slot(),
            _ => match self.tables.queue_pairs.get(QpNumber::from_bits(packet.to).index()) {
                Some(qp) => qp.summary().peering().from.slot(),
                None => return false,
            },
        };
        slot == self.process().announcer().slot
            || self.peer(slot).is_some_and(|peer| shares(&peer, capture))
    }

    /// Carries out a segment from a peer that does not write down what it sends, and writes down the
    /// answer before the peer can see it.
    pub(crate) fn execute_captured(
        &self,
        capture: &Capture,
        request: &Request,
        source: &mut dyn Source,
        sink: &mut RingBytes<'_>,
        answer: &dyn Fn(Reply),
    ) -> Reply {
        let mut data = RingBytes { ..*sink };
        let written = Cell::new(false);
        let write = |reply, data: &mut RingBytes<'_>| {
            if request.service.is_reliable() && !written.replace(true) {
                let answer = Answered::to(request, reply, self.process().announcer().slot);
                let (link, outbound) = (Interface::Local, Direction::Outbound);
                self.capture_answer(capture, link, outbound, &answer, data);
            }
        };
        let early = |reply| {
            write(reply, &mut data.empty());
            answer(reply);
        };
        let reply = self.execute(request, source, sink, Some(&early));
        write(reply, &mut data);
        reply
    }

    /// Writes down an answer; `data` has the bytes of a READ.
    pub(crate) fn capture_answer(
        &self,
        capture: &Capture,
        interface: Interface,
        direction: Direction,
        answer: &Answered,
        data: &mut dyn Source,
    ) {
        let mut bytes = Vec::new();
        if let Reply::Data { length } = answer.reply {
            if length > CHUNK {
                return;
            }
            bytes.resize(length as usize, 0);
            if data.read(0, &mut bytes).is_err() {
                return;
            }
        }
        let comment = match answer.reply {
            Reply::Nak { reason, .. } => {
                Some(explain(self.process().registry(), answer.by, reason, answer.from))
            }
            _ => None,
        };
        let comment = comment.as_deref();
        capture.record_packets(interface, direction, comment, |streams, each| {
            streams.answer(answer, &bytes, each);
        });
    }
}

impl Capture {
    /// Writes down a segment, whose bytes are in `source`.
    pub(crate) fn request(
        &self,
        interface: Interface,
        direction: Direction,
        request: &Request,
        source: &mut dyn Source,
    ) {
        // Another process may say anything; no segment is longer.
        if request.length > CHUNK {
            return;
        }
        let mut bytes = Vec::new();
        if request.body.carries_data() {
            bytes.resize(request.length as usize, 0);
            // What cannot be read is not sent either.
            if source.read(0, &mut bytes).is_err() {
                return;
            }
        }
        self.record_packets(interface, direction, None, |streams, each| {
            streams.request(request, &bytes, each);
        });
    }
}

/// Writes down the packets that leave over the wire.
pub(crate) struct Departures {
    /// Where to.
    pub(crate) capture: Arc<Capture>,
    /// Where refusals are noted.
    pub(crate) registry: &'static Registry,
    /// Whoever answers is in this slot.
    pub(crate) slot: u8,
}

impl Observer for Departures {
    fn sees(&self, path: &Path, identification: u16, datagram: &[u8]) {
        let nak = Packet::parse(datagram).ok();
        let reason = nak.and_then(|it| reason_of_nak(self.registry, self.slot, &it));
        let (outbound, comment) = (Direction::Outbound, reason.as_deref());
        self.capture.record(outbound, path, identification, datagram, comment);
    }
}

/// Whether a peer writes to the same file.
fn shares(peer: &Peer, capture: &Capture) -> bool {
    peer.segment.header().capture.load(Relaxed) == capture.identity()
}

/// The words for a refusal by the process in a slot, as `transom explain` has them.
fn explain(registry: &Registry, slot: u8, reason: u8, of: QpNumber) -> String {
    let records = registry.refusals(slot);
    let found = records
        .iter()
        .rev()
        .find(|record| (record.peer, record.refusal.reason.code()) == (of.bits(), reason));
    match (found, Reason::from_code(reason)) {
        (Some(record), _) => record.to_string(),
        // Others have pushed it out since.
        (None, Some(reason)) => format!("refused: {reason:?}"),
        (None, None) => "refused".to_owned(),
    }
}

/// The words for the refusal that a packet tells, if it is one by the process in a slot.
fn reason_of_nak(registry: &Registry, slot: u8, packet: &Packet<'_>) -> Option<String> {
    let Operation::Acknowledge(aeth) = packet.operation else { return None };
    match aeth.syndrome()? {
        Syndrome::Nak(code) if code != NakCode::SequenceError => {}
        _ => return None,
    }
    let records = registry.refusals(slot);
    let record = records.iter().rev().find(|record| record.peer == packet.to)?;
    Some(record.to_string())
}
