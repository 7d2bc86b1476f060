//! Sends segments, each by the link to its recipient.

use std::borrow::Cow;

use transom_device::execution::{Context, Payload, Reply, Requester, Sent, Tally};
use transom_device::queue::Remote;
use transom_net::{Peer, RecordData, RingBytes, Where};
use transom_system::traffic::Way;
use transom_system::{clock, tools};

use super::packets::Joined;
use super::{At, Outgoing};
use crate::device::{Answered, Direction, Interface};
use crate::objects::{Deferred, Link, Recipient};

impl At<'_> {
    /// Hands the link everything that can be sent now. The device's effects are carried out before the next segment,
    /// because that may complete elsewhere at once.
    #[inline(never)]
    pub(in super::super) fn advance(
        &self,
        requester: &mut Requester,
        cx: &mut Context<'_, Self>,
        deferred: &mut Deferred,
    ) {
        if let (Link::Wire(_), Some(wire)) = (self.link, self.qp.device.port().wire()) {
            requester.connection.window_share = wire.window_share();
        }
        let mut joined = Joined::default();
        let watched = tools::any();
        while let Some(request) = requester.next_segment(cx) {
            self.qp.carry_out_all(cx.effects, deferred);
            let (payload, leaves_data) = (requester.payload(), requester.leaves_data());
            let whole = request.length == request.total;
            let torn = match whole && watched {
                true => self.qp.take_torn(self, requester.next(), payload),
                false => None,
            };
            let leaves_data = leaves_data && torn.is_none();
            let payload = torn.as_deref().map_or(payload, Payload::Inline);
            let outgoing = Outgoing { request: &request, payload, leaves_data };
            let outcome = match watched {
                true => self.send_watched(outgoing, &mut joined, deferred, requester.next()),
                false => self.send(outgoing, &mut joined, deferred),
            };
            if !requester.sent(&request, outcome, cx) {
                break;
            }
        }
        if let Err(first) = self.send_joined(&mut joined) {
            requester.take_back(first);
        }
        if watched {
            self.trace_waits(requester, cx);
        }
    }

    /// Hands a segment of the request at a position to its link while a tool is on.
    #[cold]
    fn send_watched(
        &self,
        outgoing: Outgoing<'_>,
        joined: &mut Joined,
        deferred: &mut Deferred,
        position: u64,
    ) -> Sent {
        let begun = clock::steady();
        let outcome = match self.qp.loses(outgoing.request) {
            true => Sent::Unreachable,
            false => self.send(outgoing, joined, deferred),
        };
        self.trace_sent(outgoing.request, position, begun, &outcome);
        outcome
    }

    /// Hands a segment to the link to its recipient. A link with packets sends it as a burst of packets or joins it
    /// with others, and has no answer at once.
    fn send(&self, outgoing: Outgoing<'_>, joined: &mut Joined, deferred: &mut Deferred) -> Sent {
        let link = match &outgoing.request.remote {
            Remote::Connected => Cow::Borrowed(self.link),
            Remote::Srq(number) => self.link_to_queue(*number),
            Remote::Datagram(datagram) => match Recipient::of(outgoing.request) {
                Recipient::QueuePair => {
                    Cow::Owned(self.link_of_datagram(&datagram.address, outgoing.request.to))
                }
                Recipient::Members => {
                    self.way.set(Way::Host);
                    let sent = self.send_to_group(&datagram.address, outgoing, deferred);
                    self.qp.tally(Tally::GroupSent, (sent == Sent::Queued).into());
                    return sent;
                }
                // Every recipient would drop it.
                Recipient::Nobody => return Sent::Unreachable,
            },
        };
        self.way.set(link.way());
        match &*link {
            Link::None => Sent::Unreachable,
            Link::Loopback => self.send_loopback(outgoing, deferred),
            Link::Local(peer) => self.send_to_peer(peer, outgoing),
            Link::Wire(path) => self.join_or_send(path, outgoing, joined),
        }
    }

    /// The link to the process of the shared receive queue that an XRC message names, wherever the receiving end is. If
    /// there is no such process, the receiving end's process reports that there is no such queue.
    fn link_to_queue(&self, number: u32) -> Cow<'_, Link> {
        let slot = (number >> 16) as u8;
        match self.link {
            Link::None | Link::Wire(_) => Cow::Borrowed(self.link),
            _ if slot == self.qp.number.slot() => Cow::Owned(Link::Loopback),
            Link::Local(peer) if peer.announcer.slot == slot => Cow::Borrowed(self.link),
            Link::Loopback | Link::Local(_) => match self.qp.device.peer(slot) {
                Some(peer) => Cow::Owned(Link::Local(peer)),
                None => Cow::Borrowed(self.link),
            },
        }
    }

    /// Puts a segment into the ring to another process.
    pub(super) fn send_to_peer(&self, peer: &Peer, outgoing: Outgoing<'_>) -> Sent {
        let Outgoing { request, payload, leaves_data } = outgoing;
        let mut gather = self.gather(payload, request.offset, Where::Here);
        let left = if leaves_data { peer.reference(request, &gather) } else { None };
        let data = match (request.body.carries_data(), left) {
            (false, _) => RecordData::None,
            (true, None) => RecordData::Copied(&mut gather),
            (true, Some(reference)) => RecordData::Left(reference),
        };
        let device = &self.qp.device;
        let observer = device.observer().filter(|_| Recipient::of(request) != Recipient::Members);
        let tap = observer.map(|observer| {
            move |bytes| {
                let copier = device.process().copier();
                // SAFETY: the room in the ring that `Peer::send` shows, of the request's length.
                let mut data = unsafe { RingBytes::new(bytes, request.length, copier) };
                observer.request(Interface::Local, Direction::Outbound, request, &mut data);
            }
        });
        let tap = tap.as_ref().map(|tap| tap as _);
        peer.send(device.process().segment(), request, data, self.qp.number.index(), tap)
    }

    /// Executes a segment at a queue pair of this process, on the caller's thread.
    fn send_loopback(&self, outgoing: Outgoing<'_>, deferred: &mut Deferred) -> Sent {
        let Outgoing { request, payload, .. } = outgoing;
        let buffers = match payload {
            Payload::Inline(_) => &[],
            Payload::Buffers(sges) => sges,
        };
        let mut gather = self.gather(payload, request.offset, Where::Here);
        let mut scatter = self.scatter(buffers, request.offset, Where::Here);
        let observer = self.qp.device.observer();
        if let Some(observer) = observer {
            observer.request(Interface::Loopback, Direction::Outbound, request, &mut gather);
        }
        let adapter = &self.qp.adapter;
        let reply = adapter.execute(request, &mut gather, &mut scatter, None, deferred);
        let Some(reply) = reply else { return Sent::Unreachable };
        if let Some(observer) = observer {
            let answer = Answered::to(request, reply, self.qp.number.slot());
            // The data of a READ has been placed already.
            let mut placed = self.gather(payload, request.offset, Where::Here);
            let link = Interface::Loopback;
            observer.answer(link, Direction::Inbound, &answer, &mut placed);
        }
        match reply {
            Reply::OriginFailed => {
                let failed = gather.failed.or(scatter.failed);
                failed.map_or(Sent::Answered(Reply::OriginFailed), Sent::Near)
            }
            reply => Sent::Answered(reply),
        }
    }
}
