//! The services of this process that a queue pair's device halves call.

mod datagrams;
mod direct;
mod outbound;
mod packets;
mod pieces;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use transom_device::execution::{
    Context, CopyError, Counted, Effects, Ended, Failure, Injection, LocalBuffers, MemoryGone,
    Payload, Pieces, Process, QueueSide, Request, Source, TakeShared, Tally, Unheard,
};
use transom_device::operation::Operation;
use transom_device::protection::{Announcer, Attempt, Grant, KeyTable, Refusal, Waiter, Witness};
use transom_device::qp::{QpNumber, QpTable};
use transom_device::queue::{Address, Body, Completion, Datagram, Receive, Sge, Status};
use transom_net::{Gather, Scatter, Where};
use transom_system::addresses::is_multicast;
use transom_system::traffic::Way;
use transom_system::{clock, rehearsal, sanitizers, tools};
use transom_wire::Psn;

use super::{QpReceives, QueuePair};
use crate::objects::{Deferred, Link, SharedReceiveQueue};

/// A queue pair at work, with its link.
pub(super) struct At<'a> {
    pub(super) qp: &'a QueuePair,
    pub(super) link: &'a Link,
    pub(super) peer: QpNumber,
    /// `sq_psn`: the target lets in directly only a peer that it expects with this number.
    pub(super) first: Psn,
    /// How its messages go: the last one, if each has a way of its own.
    pub(super) way: Cell<Way>,
    /// The path MTU is two to the power of this.
    pub(super) mtu_shift: u8,
    /// A completion of the send queue has overrun its completion queue.
    overran: Cell<bool>,
}

/// A segment that goes out.
#[derive(Clone, Copy)]
struct Outgoing<'a> {
    request: &'a Request,
    /// Its local data.
    payload: Payload<'a>,
    /// A link within the host may leave the data in its buffers.
    leaves_data: bool,
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

    fn waits_on(&self) -> Option<u64> {
        self.qp.rehearsed()?.waits_on()
    }

    #[inline]
    fn fill_undefined(&self, bytes: &mut [u8]) {
        self.qp.fill_undefined(bytes);
    }

    #[inline]
    fn has_taken(&self, receive: &mut Receive, request: &Request) {
        if tools::any()
            && let Some(rehearsed) = self.qp.rehearsed()
        {
            let local = LocalBuffers { sges: &receive.sges, pd: receive.pd, ..self.local(&[]) };
            self.qp.adapter.clean(local);
            if matches!(request.body, Body::Write { .. }) {
                self.note_write_taken(request);
            }
            self.qp.spoil(rehearsed, receive, request);
        }
    }

    #[inline]
    fn lands_in_pieces(&self, request: &Request, length: u64) -> Option<Pieces> {
        self.qp.lands_in_pieces(request, length, |request| self.message_meets_atomics(request))
    }

    fn wait_between_pieces(&self) {
        self.qp.wait_between_pieces();
    }

    #[inline]
    fn decides_when(&self) -> bool {
        self.qp.sees_all()
    }

    fn place(
        &self,
        request: &Request,
        at: &Grant<'_>,
        offset: u64,
        source: &mut dyn Source,
    ) -> Result<(), CopyError> {
        self.qp.place(request, at, offset, source)
    }

    fn reads(&self, at: &Grant<'_>) {
        self.qp.reads(at);
    }

    fn store(&self, at: &Grant<'_>, pieces: &[&[u8]]) -> Result<(), MemoryGone> {
        self.qp.device.process().store(at, pieces)
    }

    fn atomic(
        &self,
        at: &Grant<'_>,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, MemoryGone> {
        match self.qp.rehearsed() {
            None => self.qp.device.process().atomic(at, update),
            Some(rehearsed) => self.qp.atomic(rehearsed, at, update),
        }
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
        if completion.status == Status::Flushed {
            self.complete_flushed(completion);
        } else {
            self.complete_now(completion);
        }
    }

    fn note_refusal(&self, refusal: &Refusal) {
        self.qp.device.process().note_refusal(self.qp.summary(), refusal);
    }

    fn note_write(&self, write: &Attempt) {
        transom_system::note_write(write);
    }

    #[inline]
    fn witness(&self) -> Option<&dyn Witness> {
        tools::any().then_some(self as &dyn Witness)
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

    #[inline]
    fn has_carried(&self, operation: Operation, bytes: u64) {
        self.count_carried(operation, bytes);
    }

    fn has_ended(&self, ended: &Ended) {
        self.qp.time_ended(ended);
        self.trace_ended(ended);
    }

    #[inline]
    fn has_served(&self, operation: Operation, bytes: u64) {
        self.count_served(operation, bytes);
    }

    fn has_delivered(&self, datagram: &Datagram) {
        // On the wire the packet counts, and not each copy.
        if self.way.get() == Way::Host && is_multicast(&datagram.address.gid) {
            self.qp.tally(Tally::GroupReceived, 1);
        }
    }

    #[inline]
    fn sends_wait(&self, count: usize) {
        self.qp.traffic.sends_wait(count);
    }

    #[inline]
    fn receives_wait(&self, count: usize) {
        self.qp.traffic.receives_wait(count);
    }

    fn tally(&self, tally: Tally, count: u64) {
        self.qp.tally(tally, count);
    }

    fn datagram_limit(&self, to: &Address) -> u64 {
        rehearsal::small_mtu().inspect(|it| it.note());
        self.qp.device.port().datagram_limit(to)
    }

    #[inline]
    fn carries_out(&self, request: &Request) {
        sanitizers::work_is(request.body.operation(), request.from.bits());
        if tools::any() {
            self.trace_came(request);
        }
        self.qp.comes_behind(request);
    }

    #[inline]
    fn is_asked(&self, request: &Request) {
        if tools::any() {
            self.trace_asked(request);
            self.qp.device.is_asked(request);
        }
    }

    #[inline]
    fn injected(&self, request: &Request) -> Option<Injection> {
        self.qp.device.injector.answer(request)
    }
}

impl<'a> At<'a> {
    #[inline]
    pub(super) fn new(
        qp: &'a QueuePair,
        link: &'a Link,
        peer: QpNumber,
        first: Psn,
        way: Way,
    ) -> Self {
        let mtu_shift = qp.mtu_shift.load(Relaxed);
        Self { qp, link, peer, first, way: Cell::new(way), mtu_shift, overran: Cell::new(false) }
    }
}

impl At<'_> {
    /// The context for calls of the device.
    #[inline]
    pub(super) fn context<'c>(&'c self, effects: &'c mut Effects) -> Context<'c, Self> {
        let (number, summary) = (self.qp.number, self.qp.summary());
        Context { process: self, number, summary, effects }
    }

    #[inline]
    fn complete_now(&self, completion: &Completion) {
        if let Some(feed) = &self.qp.feeds.send
            && feed.push(completion, false)
        {
            self.overran.set(true);
        }
    }

    /// A rehearsal may let it come late.
    #[cold]
    fn complete_flushed(&self, completion: &Completion) {
        if !self.qp.delays(QueueSide::Send, completion, false) {
            self.complete_now(completion);
        }
    }

    /// Carries out the send queue's effects when a call of it has ended. Most calls have none.
    #[inline]
    pub(super) fn settle(&self, effects: &mut Effects, deferred: &mut Deferred) {
        if !effects.all().is_empty() || self.overran.get() {
            self.settle_all(effects, deferred);
        }
    }

    #[inline(never)]
    fn settle_all(&self, effects: &mut Effects, deferred: &mut Deferred) {
        self.qp.carry_out_all(effects, deferred);
        if self.overran.take()
            && let Some(feed) = &self.qp.feeds.send
        {
            deferred.fail_users(feed.cq().id());
        }
    }

    pub(super) fn local<'a>(&'a self, sges: &'a [Sge]) -> LocalBuffers<'a> {
        LocalBuffers {
            sges,
            keys: self.keys(),
            announcer: self.announcer(),
            waiter: self.waiter(),
            qp: self.qp.number.bits(),
            pd: self.qp.pd_number(),
        }
    }

    pub(super) fn gather<'a>(
        &'a self,
        payload: Payload<'a>,
        skip: u64,
        to: Where<'a>,
    ) -> Gather<'a> {
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

    /// A WRITE with immediate has taken a receive, in a rehearsal.
    fn note_write_taken(&self, request: &Request) {
        match (&self.qp.config.receives, request.remote.srq()) {
            (QpReceives::Srq(srq), _) => srq.note_write(),
            (_, Some(number)) => {
                self.named_queue(number).into_iter().for_each(|srq| srq.note_write());
            }
            _ => self.qp.note_write(),
        }
    }

    /// The shared queue of the queue pair's XRC domain that has this number.
    fn named_queue(&self, number: u32) -> Option<Arc<SharedReceiveQueue>> {
        let QpReceives::Xrc(domain) = &self.qp.config.receives else { return None };
        let srq = self.qp.adapter.shared_queues.get(number)?;
        let same = srq.config().xrc.as_ref().is_some_and(|xrc| Arc::ptr_eq(&xrc.domain, domain));
        same.then_some(srq)
    }
}
