//! Where the links without packets are listened to.

use std::cell::Cell;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::Ordering::Relaxed;

use transom_device::execution::{Reply, Request, Source};
use transom_device::protection::Reason;
use transom_device::qp::QpNumber;
use transom_device::queue::{Address, Remote};
use transom_wire::Psn;
use transom_wire::grh::mapped_ipv4;

use super::{Capture, Carrier, Direction, Interface};
use crate::adapter::{Adapter, GID, GIDS};
use crate::link::{Peer, RingBytes};

/// Hop limit of connections.
const HOP_LIMIT: u8 = 64;

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
    pub(crate) attempt: u16,
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
        self.capture.as_ref()
    }

    /// Where to write down what a peer asks of this process: nowhere if the peer writes to the same
    /// file.
    pub(crate) fn capture_for(&self, peer: &Peer) -> Option<&Capture> {
        self.capture().filter(|own| peer.segment.header().capture.load(Relaxed) != own.identity())
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
                let answer = Answered::to(request, reply, self.announcer().slot);
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

    /// The words for a refusal by the process in a slot, as `transom explain` has them.
    fn explain(&self, slot: u8, by: QpNumber, reason: u8) -> String {
        let records = self.claim.registry().refusals(slot);
        let found = records.iter().rev().find(|record| {
            let refusal = &record.refusal;
            (refusal.attempt.qp, refusal.reason.code()) == (by.bits(), reason)
        });
        match (found, Reason::from_code(reason)) {
            (Some(record), _) => record.to_string(),
            // Others have pushed it out since.
            (None, Some(reason)) => format!("refused: {reason:?}"),
            (None, None) => "refused".to_owned(),
        }
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
            bytes.resize(length as usize, 0);
            if data.read(0, &mut bytes).is_err() {
                return;
            }
        }
        let comment = match answer.reply {
            Reply::Nak { reason, .. } => Some(self.explain(answer.by, answer.to, reason)),
            _ => None,
        };
        let carrier = Carrier { port: port_of(answer.to), ..connected() };
        let comment = comment.as_deref();
        capture.record_packets(interface, direction, &carrier, comment, |streams, each| {
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
        let mut bytes = Vec::new();
        if request.body.carries_data() {
            bytes.resize(request.length as usize, 0);
            // What cannot be read is not sent either.
            if source.read(0, &mut bytes).is_err() {
                return;
            }
        }
        let carrier = match &request.remote {
            Remote::Datagram(datagram) => to(&datagram.address),
            _ => connected(),
        };
        let carrier = Carrier { port: port_of(request.from), ..carrier };
        self.record_packets(interface, direction, &carrier, None, |streams, each| {
            streams.request(request, &bytes, each);
        });
    }
}

/// The source port of a queue pair: one for each, as far as there are ports (rule NET-01).
fn port_of(qp: QpNumber) -> u16 {
    0xc000 | (qp.bits() & 0x3fff) as u16
}

fn ip(gid: &[u8; 16]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(*gid)).to_canonical()
}

/// Connections on this host go from its first address to its first address.
fn connected() -> Carrier {
    Carrier {
        source: ip(&GID),
        destination: ip(&GID),
        port: 0,
        traffic_class: 0,
        hop_limit: HOP_LIMIT,
        flow_label: 0,
        identification: 0,
    }
}

fn to(address: &Address) -> Carrier {
    let [ipv4, ipv6] = GIDS;
    let source = if mapped_ipv4(&address.gid).is_some() { ipv4 } else { ipv6 };
    Carrier {
        source: ip(&source),
        destination: ip(&address.gid),
        traffic_class: address.traffic_class,
        hop_limit: address.hop_limit,
        flow_label: address.flow_label,
        ..connected()
    }
}
