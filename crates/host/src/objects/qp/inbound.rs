//! Everything that arrives for a queue pair: requests and replies over a link within the host, packets from the wire,
//! and reports that nobody is at the other end.

use std::net::IpAddr;
use std::sync::Arc;

use transom_device::execution::{PlainSend, Reply, Request, Sink, Source};
use transom_device::qp::{QpNumber, Service};
use transom_net::{Answer, Peer};
use transom_system::addresses::ip;
use transom_system::sanitizers::{self, Half};
use transom_system::tools;
use transom_wire::Psn;
use transom_wire::grh::Route;
use transom_wire::packet::{Operation, Packet};

use super::{More, QueuePair};
use crate::objects::{Adapter, Deferred, Link};

impl Adapter {
    /// Carries out a segment at its queue pair in this process. A segment for a shared receive queue of this process
    /// may come on another process's connection. `None` if nothing here can take it.
    pub(crate) fn execute(
        &self,
        request: &Request,
        source: &mut dyn Source,
        sink: &mut dyn Sink,
        answer: Option<&dyn Fn(Reply)>,
        deferred: &mut Deferred,
    ) -> Option<Reply> {
        let me = self.device().process().announcer().slot;
        if request.to.slot() == me {
            let qp = self.queue_pairs.get(request.to.index());
            if qp.is_none() {
                self.queue_pairs.note_none(request.from.bits(), request.to.bits());
            }
            return qp.map(|qp| qp.execute(request, source, sink, answer, deferred));
        }
        let targets = (request.remote.process() == Some(me)).then_some(&self.foreign_targets);
        targets.map(|targets| targets.execute(self, request, source, sink, answer, deferred))
    }
}

/// Whether a queue pair takes packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It does, whatever it then makes of them.
    Yes,
    /// It is of another service, or does not use packets.
    WrongService,
    /// It is connected to another address (rule NET-10).
    WrongAddress,
}

/// Whether queue pairs of a service take such a packet at all (rule OP-32). Congestion notifications belong to no
/// service.
fn is_of(service: Service, packet: &Packet<'_>) -> bool {
    packet.operation == Operation::Congestion || service.serves(&packet.transport)
}

impl QueuePair {
    /// Carries out a segment that arrived for it. `answer` is called before anybody can see the completion of a
    /// message.
    pub(crate) fn execute(
        &self,
        request: &Request,
        source: &mut dyn Source,
        sink: &mut dyn Sink,
        answer: Option<&dyn Fn(Reply)>,
        deferred: &mut Deferred,
    ) -> Reply {
        let mut guard = self.receive.half.lock();
        let half = &mut *guard;
        // What comes by packets does not come this way.
        let _work =
            sanitizers::work(self.number.bits(), Half::Receive, request.from.bits(), || true);
        let at = self.receiving();
        let mut cx = at.context(&mut half.effects);
        let reply = half.responder.execute(request, source, sink, &mut cx);
        half.settle_around(|| answer.into_iter().for_each(|answer| answer(reply)), self, deferred);
        reply
    }

    /// Receives a plain SEND. False if [`QueuePair::execute`] has to carry it out. `acknowledge` is called before
    /// anybody can see the completion. The caller knows that the device looks at no request.
    pub(crate) fn receive_at_once(
        &self,
        send: &PlainSend,
        source: &mut impl Source,
        acknowledge: &mut dyn FnMut(),
        deferred: &mut Deferred,
    ) -> bool {
        // There a receive may have to fail, or bytes to land in pieces, or something to be recorded.
        if tools::any() {
            return false;
        }
        let mut guard = self.receive.half.lock();
        let half = &mut *guard;
        let at = self.receiving();
        let cx = at.context(&mut half.effects);
        let received = half.responder.receive_at_once(send, source, &cx);
        let Some(completion) = received else { return false };
        acknowledge();
        self.receive_completes(&completion, send.solicited, deferred);
        true
    }

    /// Takes a reply.
    pub(crate) fn on_reply(&self, answer: &Answer, payload: &mut dyn Source) {
        self.drive(More::Nothing, |requester, cx| {
            let data: Option<&mut dyn Source> = match answer.reply {
                Reply::Data { .. } => Some(payload),
                _ => None,
            };
            requester.on_reply(answer.message, answer.attempt, answer.reply, data, cx);
        });
    }

    /// The process at the other end is gone, so everything on its way there is lost.
    pub(crate) fn on_peer_lost(&self, peer: &Arc<Peer>) {
        // A queue pair of another peer may hold its lock in a revocation that waits. The loss of this peer must not
        // wait for that. A queue pair that is just being connected has nothing on its way.
        let slot = peer.announcer.slot;
        let xrc = self.config.service == Service::XrcInitiator;
        if self.summary().peering().from.slot() != slot && !xrc {
            return;
        }
        self.drive(More::Nothing, |requester, cx| {
            let linked =
                matches!(cx.process.link, Link::Local(linked) if Arc::ptr_eq(linked, peer));
            if linked || requester.sends_to(slot) {
                requester.on_silence(cx);
            }
        });
    }

    /// Whether congestion notifications make it slow down. Without answers it does not know what is on its way.
    pub(crate) fn slows_down(&self) -> bool {
        self.config.service.is_reliable()
    }

    /// Whether it waits for an answer to a packet that it sent to this queue pair at this address.
    pub(crate) fn waits_for_answer(&self, to: IpAddr, peer: QpNumber, psn: Psn) -> bool {
        // Mostly it does not, and this shows without the lock.
        if self.summary().peering().from != peer {
            return false;
        }
        let half = self.send.lock();
        half.link.leads_to(to) && half.requester.waits_for_answer(psn)
    }

    /// Nobody is left at this address to answer for the queue pairs for which `is_over` is true.
    pub(crate) fn on_nobody_there(&self, to: IpAddr, is_over: impl Fn(QpNumber) -> bool) {
        if !is_over(self.summary().peering().from) {
            return;
        }
        self.drive(More::Nothing, |requester, cx| {
            if cx.process.link.leads_to(to) {
                requester.on_nobody_there(cx);
            }
        });
    }

    /// Takes packets for this queue pair. All come from one place, and all are requests or all are responses. The
    /// interface may be zero, as for [`Receiver::deliver`](transom_net::Receiver::deliver).
    pub(crate) fn take_packets(
        &self,
        packets: &[Packet<'_>],
        route: &Route,
        interface: u32,
    ) -> Taken {
        let Some(first) = packets.first() else { return Taken::Yes };
        if !is_of(self.config.service, first) {
            return Taken::WrongService;
        }
        let (source, destination) = (ip(&route.source), ip(&route.destination));
        let back = |link: &Link| match link {
            Link::Wire(path) if path.is_back(source, destination, interface) => Taken::Yes,
            Link::Wire(_) => Taken::WrongAddress,
            _ => Taken::WrongService,
        };
        let mut deferred = Deferred::default();
        let taken = if first.operation.is_for_requester() {
            let mut taken = Taken::Yes;
            self.drive_with(More::Nothing, &mut deferred, |requester, cx| {
                taken = back(cx.process.link);
                if taken == Taken::Yes {
                    requester.on_packets(packets, cx);
                }
            });
            taken
        } else {
            let mut half = self.receive.half.lock();
            // Datagrams come from anywhere.
            let taken = match self.config.service {
                Service::Ud => Taken::Yes,
                _ => back(&half.link),
            };
            if taken == Taken::Yes {
                half.take(packets, route, self, &mut deferred);
            }
            taken
        };
        deferred.run(&self.adapter);
        taken
    }
}
