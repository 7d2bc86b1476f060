//! What a queue pair's device halves need of this process at once, and where segments go.

mod datagrams;
mod packets;

use std::cell::Cell;
use std::slice;
use std::sync::Arc;

use transom_device::execution::one_sided::{Admission, CHUNK, Initiator, KeyDomain, Stop, Target};
use transom_device::execution::{
    Bytes, Context, CopyError, Counted, Direct, Effects, Failure, Injection, LocalBuffers,
    MemoryGone, OneSided, Part, Payload, PlainSend, Process, QueueSide, Reply, Request, Requester,
    Sent, Shortcuts, Source, TakeShared, Unheard,
};
use transom_device::protection::{
    Announcer, Grant, KeyTable, Operation, Refusal, RemoteAddress, Waiter,
};
use transom_device::qp::{QpNumber, QpTable, Service};
use transom_device::queue::{Address, Body, Completion, Receive, Remote, Sge};
use transom_net::{Gather, Peer, Reach, RecordData, RingBytes, Scatter, Where};
use transom_system::Unchanged;
use transom_system::clock;
use transom_system::memory::{Copier, Destination, address_of, change_word};
use transom_wire::Psn;

use self::packets::Joined;
use super::{QpReceives, QueuePair};
use crate::device::{Answered, Direction, Interface};
use crate::objects::{Deferred, Link, Recipient, SharedReceiveQueue};

/// A segment that goes out.
#[derive(Clone, Copy)]
pub(super) struct Outgoing<'a> {
    pub(super) request: &'a Request,
    /// Its local data.
    pub(super) payload: Payload<'a>,
    /// A link within the host may leave the data in its buffers.
    pub(super) leaves_data: bool,
}

/// A queue pair at work, with its link.
pub(super) struct At<'a> {
    pub(super) qp: &'a QueuePair,
    pub(super) link: &'a Link,
    pub(super) peer: QpNumber,
    /// `sq_psn`: the target lets in directly only whom it expects with this number.
    pub(super) first: Psn,
    /// A completion of the send queue was one too many.
    overran: Cell<bool>,
}

impl Process for At<'_> {
    #[inline]
    fn keys(&self) -> KeyTable<'_> {
        self.qp.device.process().segment().keys()
    }

    fn qps(&self) -> QpTable<'_> {
        self.qp.device.process().segment().qps()
    }

    #[inline]
    fn announcer(&self) -> Announcer {
        self.qp.device.process().announcer()
    }

    #[inline]
    fn waiter(&self) -> &dyn Waiter {
        &**self.qp.device.process()
    }

    fn now(&self) -> u64 {
        clock::steady()
    }

    fn store(&self, at: &Grant<'_>, pieces: &[&[u8]]) -> Result<(), MemoryGone> {
        self.qp.device.process().store(at, pieces)
    }

    fn atomic(
        &self,
        at: &Grant<'_>,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, MemoryGone> {
        self.qp.device.process().atomic(at, update)
    }

    fn take_shared(
        &self,
        srq: Option<u32>,
        tag: Option<u64>,
        least: u64,
        receive: &mut Receive,
    ) -> TakeShared {
        match (&self.qp.config.receives, srq) {
            (QpReceives::Srq(srq), None) => TakeShared::Found(srq.take(tag, least, receive)),
            (QpReceives::Xrc(_), Some(number)) => match self.named_queue(number) {
                Some(srq) => TakeShared::Found(srq.take(None, least, receive)),
                None => TakeShared::Unknown,
            },
            _ => TakeShared::Unknown,
        }
    }

    fn shared_pd(&self, srq: u32) -> Option<u32> {
        self.named_queue(srq).map(|srq| srq.config().pd.number())
    }

    #[inline]
    fn complete(&self, completion: &Completion) {
        if let Some(feed) = &self.qp.feeds.send
            && feed.push(completion, false)
        {
            self.overran.set(true);
        }
    }

    fn note_refusal(&self, refusal: &Refusal) {
        self.qp.device.process().note_refusal(self.qp.summary(), refusal);
    }

    fn note_failure(&self, failure: &Failure) {
        self.note_failed(failure);
    }

    fn note_flushed(&self, side: QueueSide, count: u64) {
        self.qp.note_flushed(side, count);
    }

    fn note_unheard(&self, from: QpNumber, why: Unheard) {
        self.qp.note_unheard(from, why);
    }

    #[inline]
    fn count(&self, operation: Counted, bytes: Option<u64>) {
        self.qp.counters.count(operation, bytes);
    }

    fn datagram_limit(&self, to: &Address) -> u64 {
        self.qp.device.port().datagram_limit(to)
    }

    #[inline]
    fn injected(&self, request: &Request) -> Option<Injection> {
        self.qp.device.injector.answer(request)
    }
}

impl Shortcuts for At<'_> {
    #[inline(always)]
    fn try_at_once(
        &self,
        kept: &mut Option<Admission>,
        body: &Body,
        remote: &Remote,
        data: Payload<'_>,
        length: u64,
    ) -> bool {
        let (Body::Write { address, key, immediate: None }
        | Body::Read { address, key }
        | Body::FetchAdd { address, key, .. }
        | Body::CompareSwap { address, key, .. }) = *body
        else {
            return false;
        };
        let way = if length <= CHUNK { self.direct_target(remote.srq()) } else { None };
        let Some((target, place)) = way else { return false };
        let at = RemoteAddress { address, key };
        let copier = self.qp.device.process().copier();
        let local = |buffer| self.local(slice::from_ref(buffer));
        match (body, data) {
            (Body::Write { .. }, Payload::Inline(bytes)) => {
                target.try_at_once(kept, Operation::Write, at, length, |to| {
                    // A program may write over what it sends, within this process.
                    let there = address_of(to.place());
                    there.is_none_or(|it| it.abs_diff(bytes.as_ptr() as u64) >= length)
                        && copier.copy(place.destination(to.place()), bytes.into(), length).is_ok()
                })
            }
            (Body::Write { .. }, Payload::Buffers([one])) => {
                target.try_at_once(kept, Operation::Write, at, length, |to| {
                    local(one).grant_whole(Operation::LocalRead, one).is_some_and(|from| {
                        let from = Where::Here.source(from.place());
                        copier.copy(place.destination(to.place()), from, length).is_ok()
                    })
                })
            }
            (Body::Read { .. }, Payload::Buffers([one])) => {
                target.try_at_once(kept, Operation::Read, at, length, |from| {
                    local(one).grant_whole(Operation::LocalWrite, one).is_some_and(|to| {
                        let to = Where::Here.destination(to.place());
                        copier.copy(to, place.source(from.place()), length).is_ok()
                    })
                })
            }
            (atomic, Payload::Buffers([one])) if length == 8 => {
                target.try_at_once(kept, atomic.operation(), at, length, |at| {
                    local(one)
                        .grant_whole(Operation::LocalWrite, one)
                        .is_some_and(|to| self.change_at_once(body, place, at, &to))
                })
            }
            _ => false,
        }
    }

    fn carry_out_direct(&self, operation: OneSided<'_>, srq: Option<u32>, length: u64) -> Direct {
        let Some((target, place)) = self.direct_target(srq) else { return Direct::Declined };
        let part = Part::whole(length);
        let done = match operation {
            OneSided::Write { to, data } => {
                target.write(to, part, &mut self.gather(data, 0, place))
            }
            OneSided::Read { from, buffers } => {
                target.read(from, part, &mut self.scatter(buffers, 0, place))
            }
            OneSided::Atomic { at, body, buffers } => {
                target.atomic(body.operation(), at, |word| self.change(body, place, word, buffers))
            }
        };
        match done {
            Ok(()) => Direct::Done,
            Err(Stop::Near(refusal)) => Direct::Near(refusal),
            // The responder decides by itself, and says why.
            Err(Stop::Closed | Stop::Refused(_)) => Direct::Declined,
        }
    }

    fn send_at_once(&self, send: &PlainSend, data: Payload<'_>) -> bool {
        let (Link::Local(peer), device) = (self.link, &self.qp.device) else { return false };
        if device.observer().is_some() {
            return false;
        }
        let copier = device.process().copier();
        peer.send_at_once(device.process().segment(), send, |to| match data {
            Payload::Inline(bytes) => copier.copy(to, bytes.into(), send.length).is_ok(),
            Payload::Buffers([one]) => {
                let from = self.local(slice::from_ref(one)).grant_whole(Operation::LocalRead, one);
                from.is_some_and(|from| {
                    let from = Where::Here.source(from.place());
                    copier.copy(to, from, send.length).is_ok()
                })
            }
            Payload::Buffers(_) => false,
        })
    }
}

impl<'a> At<'a> {
    #[inline]
    pub(super) fn new(qp: &'a QueuePair, link: &'a Link, peer: QpNumber, first: Psn) -> Self {
        Self { qp, link, peer, first, overran: Cell::new(false) }
    }
}

impl At<'_> {
    /// What the device is called with.
    #[inline]
    pub(super) fn context<'c>(&'c self, effects: &'c mut Effects) -> Context<'c, Self> {
        let (number, summary) = (self.qp.number, self.qp.summary());
        Context { process: self, number, summary, effects }
    }

    /// Does what the send queue wants done when a call of it has ended.
    #[inline]
    pub(super) fn settle(&self, effects: &mut Effects, deferred: &mut Deferred) {
        self.qp.carry_out_all(effects, deferred);
        if self.overran.take()
            && let Some(feed) = &self.qp.feeds.send
        {
            deferred.fail_users(feed.cq().id());
        }
    }

    /// Hands the link what can be sent now. What the device wants done meanwhile is done before the next
    /// segment, for that may complete elsewhere at once.
    #[inline(never)]
    pub(super) fn advance(
        &self,
        requester: &mut Requester,
        cx: &mut Context<'_, Self>,
        deferred: &mut Deferred,
    ) {
        if let (Link::Wire(_), Some(wire)) = (self.link, self.qp.device.port().wire()) {
            requester.connection.window_share = wire.window_share();
        }
        requester.check_timeout(cx);
        let mut joined = Joined::default();
        while let Some(request) = requester.next_segment(cx) {
            self.qp.carry_out_all(cx.effects, deferred);
            let (payload, leaves_data) = (requester.payload(), requester.leaves_data());
            let outgoing = Outgoing { request: &request, payload, leaves_data };
            let outcome = self.send(outgoing, &mut joined, deferred);
            if !requester.sent(&request, outcome, cx) {
                break;
            }
        }
        if let Err(first) = self.send_joined(&mut joined) {
            requester.take_back(first);
        }
    }

    /// Hands a segment to the link. A link that carries packets sends it as a burst of them, or joins it with
    /// others, and answers nothing at once.
    fn send(&self, outgoing: Outgoing<'_>, joined: &mut Joined, deferred: &mut Deferred) -> Sent {
        let Outgoing { request, .. } = outgoing;
        match self.link {
            _ if matches!(request.remote, Remote::Datagram(_)) => {
                self.send_datagram(outgoing, deferred)
            }
            Link::None => Sent::Unreachable,
            Link::Wire(path) => self.join_or_send(path, outgoing, joined),
            _ if request.remote.process().is_some() => self.send_xrc(outgoing, deferred),
            Link::Loopback => self.send_loopback(self.peer, outgoing, deferred),
            Link::Local(peer) => self.send_to_peer(peer, outgoing),
        }
    }

    /// The target of one-sided operations, if its memory can be reached from here.
    ///
    /// On UC a request has completed when it is in the ring, so a later one must not pass it on the
    /// direct way before the peer has taken it (rule ORD-01).
    ///
    /// A shared receive queue that XRC names must be of the process that has the receiving end: what is
    /// announced to one process, another does not wait for.
    #[inline(always)]
    fn direct_target(&self, srq: Option<u32>) -> Option<(Target<'_>, Where<'_>)> {
        let (segment, place) = match self.link {
            Link::None => return None,
            Link::Loopback if !self.qp.device.by_message() => {
                (self.qp.device.process().segment(), Where::Here)
            }
            Link::Local(peer) if peer.is_reached() && !peer.is_gone() && !self.would_pass(peer) => {
                (&peer.segment, Where::Peer(&peer.memory))
            }
            Link::Loopback | Link::Local(_) | Link::Wire(_) => return None,
        };
        let domain = match srq {
            None => KeyDomain::QueuePair,
            Some(number) if number >> 16 == u32::from(self.peer.slot()) => {
                KeyDomain::Shared(segment.srq(number as u16))
            }
            Some(_) => return None,
        };
        let target = Target {
            keys: segment.keys(),
            summary: segment.qps().summary(self.peer.index())?,
            number: self.peer,
            announcer: self.announcer(),
            waiter: self.waiter(),
            initiator: Some(Initiator {
                from: self.qp.number,
                first: self.first,
                service: self.qp.config.service,
            }),
            domain,
        };
        Some((target, place))
    }

    /// Changes a word of the target's, and stores its old value.
    fn change(
        &self,
        body: &Body,
        place: Where<'_>,
        at: &Grant<'_>,
        buffers: &[Sge],
    ) -> Result<(), CopyError> {
        let old = match place.word(at) {
            Some(word) => change_word(word, |old| body.updated(old)),
            None => self.change_private(body, at, None).map_err(|_| CopyError::Far)?,
        };
        let (local, old) = (self.local(buffers), old.to_ne_bytes());
        let mut old = Bytes { bytes: &old, process: self };
        let stored = local.each(Operation::LocalWrite, 0, 8, |done, part| old.copy_to(done, part));
        stored.map_err(|error| match error {
            CopyError::Far => CopyError::Near(local.gone(Operation::LocalWrite)),
            near @ CopyError::Near(_) => near,
        })
    }

    /// Changes a word of the target's, if its old value can be stored for certain.
    #[inline]
    fn change_at_once(
        &self,
        body: &Body,
        place: Where<'_>,
        at: &Grant<'_>,
        to: &Grant<'_>,
    ) -> bool {
        let landing = Where::Here.destination(to.place()).resolved(8);
        let old = match (place.word(at), landing) {
            (Some(word), Destination::Own(_)) => change_word(word, |old| body.updated(old)),
            (Some(_), _) => return false,
            (None, Destination::Own(_)) => match self.change_private(body, at, None) {
                Ok(old) => old,
                Err(_) => return false,
            },
            (None, _) => return self.change_private(body, at, Some(to.place())).is_ok(),
        };
        let copier = self.qp.device.process().copier();
        copier.copy(landing, old.to_ne_bytes().as_slice().into(), 8).is_ok()
    }

    /// Changes a word of the target's that only the kernel reaches; the old value is stored in private memory of this
    /// process along with that, if it is to be.
    #[inline(never)]
    fn change_private(
        &self,
        body: &Body,
        at: &Grant<'_>,
        landing: Option<u64>,
    ) -> Result<u64, Unchanged> {
        let process = self.qp.device.process();
        let peer = match self.link {
            _ if !matches!(process.copier(), Copier::Kernel) => return Err(Unchanged::Gone),
            Link::Loopback => None,
            Link::Local(peer) if peer.reach == Reach::Direct => {
                Some((&peer.segment, peer.memory.pid))
            }
            _ => return Err(Unchanged::Gone),
        };
        process.change_private(peer, at.place(), landing, |old| body.updated(old))
    }

    /// Whether something that has completed here is still to be carried out there.
    #[inline]
    fn would_pass(&self, peer: &Peer) -> bool {
        self.qp.config.service == Service::Uc
            && !peer.has_carried_out_all(self.qp.device.process().segment())
    }

    fn local<'a>(&'a self, sges: &'a [Sge]) -> LocalBuffers<'a> {
        LocalBuffers {
            sges,
            keys: self.keys(),
            announcer: self.announcer(),
            waiter: self.waiter(),
            qp: self.qp.number.bits(),
            pd: self.qp.pd_number(),
        }
    }

    fn gather<'a>(&'a self, payload: Payload<'a>, skip: u64, to: Where<'a>) -> Gather<'a> {
        let sges = match payload {
            Payload::Inline(_) => &[],
            Payload::Buffers(sges) => sges,
        };
        let copier = &self.qp.device.process().copier();
        Gather { payload, local: self.local(sges), skip, copier, to, failed: None }
    }

    fn scatter<'a>(&'a self, buffers: &'a [Sge], skip: u64, from: Where<'a>) -> Scatter<'a> {
        let copier = &self.qp.device.process().copier();
        Scatter { local: self.local(buffers), skip, copier, from, failed: None }
    }

    /// The shared queue of the queue pair's XRC domain that has this number.
    fn named_queue(&self, number: u32) -> Option<Arc<SharedReceiveQueue>> {
        let QpReceives::Xrc(domain) = &self.qp.config.receives else { return None };
        let srq = self.qp.adapter.shared_queues.get(number)?;
        let same = srq.config().xrc.as_ref().is_some_and(|xrc| Arc::ptr_eq(&xrc.domain, domain));
        same.then_some(srq)
    }

    /// Sends to the process of the shared receive queue that the message names, wherever the
    /// receiving end is. If there is no such process, the receiving end's says that there is no such
    /// queue.
    fn send_xrc(&self, outgoing: Outgoing<'_>, deferred: &mut Deferred) -> Sent {
        let slot = outgoing.request.remote.process().unwrap_or(self.peer.slot());
        if slot == self.qp.number.slot() {
            return self.send_loopback(self.peer, outgoing, deferred);
        }
        let other = match self.link {
            Link::Local(peer) if peer.announcer.slot == slot => None,
            _ => self.qp.device.peer(slot),
        };
        match (other, self.link) {
            (Some(peer), _) => self.send_to_peer(&peer, outgoing),
            (None, Link::Local(peer)) => self.send_to_peer(peer, outgoing),
            (None, Link::Loopback) => self.send_loopback(self.peer, outgoing, deferred),
            (None, Link::None | Link::Wire(_)) => Sent::Unreachable,
        }
    }

    fn send_to_peer(&self, peer: &Peer, outgoing: Outgoing<'_>) -> Sent {
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
    fn send_loopback(&self, to: QpNumber, outgoing: Outgoing<'_>, deferred: &mut Deferred) -> Sent {
        let Outgoing { request, payload, .. } = outgoing;
        let (device, adapter) = (&self.qp.device, &self.qp.adapter);
        let here = to.slot() == self.qp.number.slot();
        let target = adapter.queue_pairs.get(to.index()).filter(|_| here);
        let buffers = match payload {
            Payload::Inline(_) => &[],
            Payload::Buffers(sges) => sges,
        };
        let mut gather = self.gather(payload, request.offset, Where::Here);
        let mut scatter = self.scatter(buffers, request.offset, Where::Here);
        let observer = device.observer().filter(|_| Recipient::of(request) != Recipient::Members);
        if let Some(observer) = observer {
            observer.request(Interface::Loopback, Direction::Outbound, request, &mut gather);
        }
        let reply = match target {
            Some(target) => target.execute(request, &mut gather, &mut scatter, None, deferred),
            None if here => {
                adapter.queue_pairs.note_none(self.qp.number.bits(), to.bits());
                return Sent::Unreachable;
            }
            None => adapter.foreign_targets.execute(
                adapter,
                request,
                &mut gather,
                &mut scatter,
                None,
                deferred,
            ),
        };
        if let Some(observer) = observer {
            let answer = Answered::to(request, reply, self.qp.number.slot());
            // What a READ returned has been placed already.
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
