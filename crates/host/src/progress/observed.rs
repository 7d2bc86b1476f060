//! Shows the traffic of the links to the observer.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

use transom_device::execution::{Reply, Request, Source};
use transom_device::qp::QpNumber;
use transom_net::{Path, Peer, RingBytes};
use transom_system::addresses::gid;
use transom_wire::packet::{Packet, Transport};

use super::Dispatch;
use crate::device::{Answered, Direction, Interface, Observer};
use crate::objects::Deferred;

impl<'a> Dispatch<'a> {
    /// The observer to show a peer's requests to. `None` if the peer writes to the same file.
    pub(super) fn observer_for(self, peer: &Peer) -> Option<&'a dyn Observer> {
        self.device().observer().filter(|_| !self.shares(peer))
    }

    /// Whether a peer writes to the same file.
    fn shares(self, peer: &Peer) -> bool {
        let own = &self.device().process().segment().header().capture;
        peer.segment.header().capture.load(Relaxed) == own.load(Relaxed)
    }

    /// Shows a datagram that came over the wire, unless its sender did. `dropped` says why it goes no further.
    pub(super) fn show_arrival(
        self,
        path: &Path,
        identification: u16,
        datagram: &[u8],
        dropped: Option<&str>,
    ) {
        let Some(observer) = self.device().observer() else { return };
        let packet = Packet::parse(datagram).ok().filter(|_| dropped.is_none());
        if !packet.is_some_and(|packet| self.has_written(path, &packet)) {
            observer.arrives(path, identification, datagram, dropped);
        }
    }

    /// Whether the sender of a packet writes to the same file.
    fn has_written(self, path: &Path, packet: &Packet<'_>) -> bool {
        let device = self.device();
        if !device.port().is_here(&gid(path.source)) {
            return false;
        }
        let slot = match packet.transport {
            Transport::Ud { source, .. } => QpNumber::from_bits(source).slot(),
            _ => match self.adapter.queue_pairs.get(QpNumber::from_bits(packet.to).index()) {
                Some(qp) => qp.summary().peering().from.slot(),
                None => return false,
            },
        };
        slot == device.process().announcer().slot
            || device.peer(slot).is_some_and(|peer| self.shares(&peer))
    }

    /// Carries out a segment from a peer that does not record its requests, and shows the answer before the peer can
    /// see it.
    pub(super) fn execute_observed(
        self,
        observer: &dyn Observer,
        request: &Request,
        source: &mut dyn Source,
        sink: &mut RingBytes<'_>,
        answer: &dyn Fn(Reply),
        deferred: &mut Deferred,
    ) -> Reply {
        let data = *sink;
        let shown = Cell::new(false);
        let show = |reply| {
            if request.service.is_reliable() && !shown.replace(true) {
                let slot = self.device().process().announcer().slot;
                let answered = Answered::to(request, reply, slot);
                let mut data = data;
                observer.answer(Interface::Local, Direction::Outbound, &answered, &mut data);
            }
            answer(reply);
        };
        let reply = self.adapter.execute(request, source, sink, Some(&show), deferred);
        let reply = reply.unwrap_or(Reply::Dropped);
        show(reply);
        reply
    }
}
