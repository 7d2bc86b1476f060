//! XRC messages for shared receive queues of this process, on connections whose receiving end belongs to another
//! process of the same XRC domain.
//!
//! The sender sends such a message to the process that has the queue. This process carries it out with the state that
//! the receiving end shows in its own process's segment: whether it receives, from whom, in which domain, and which
//! message comes next.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use transom_device::execution::{
    Context, Effect, Effects, Injection, LocalBuffers, MemoryGone, Process, Receives, Reply,
    Request, Responder, Shortcuts, Sink, Source, TakeShared,
};
use transom_device::protection::{
    Announcement, Announcer, Grant, KeyTable, Rank, Refusal, Use, Waiter, Witness,
};
use transom_device::qp::{Look, Presence, QpNumber, QpState, QpSummary, QpTable, Service};
use transom_device::queue::{Completion, Receive};
use transom_net::Peer;
use transom_system::sanitizers::{self, Half};
use transom_system::{clock, rehearsal};

use super::{Adapter, Deferred, SharedReceiveQueue};
use crate::device::{Device, Limits};

/// Other processes' receiving ends that messages came for, by number.
#[derive(Default)]
pub(crate) struct ForeignTargets(Mutex<HashMap<u32, Arc<ForeignTarget>>>);

/// A receiving end of another process.
pub(crate) struct ForeignTarget {
    number: QpNumber,
    owner: Arc<Peer>,
    half: Mutex<Share>,
}

/// The part of a receiving end that is here.
struct Share {
    /// The message that it is in the middle of.
    responder: Responder,
    /// What the device asks for.
    effects: Effects,
    /// The connection that the last message came on.
    last: Option<Look>,
}

impl ForeignTargets {
    /// Carries out a segment for a shared receive queue of this process, on another process's connection.
    pub(crate) fn execute(
        &self,
        adapter: &Adapter,
        request: &Request,
        source: &mut dyn Source,
        sink: &mut dyn Sink,
        answer: Option<&dyn Fn(Reply)>,
        deferred: &mut Deferred,
    ) -> Reply {
        let Some(target) = self.target(adapter, request.to) else { return Reply::Dropped };
        let mut half = target.half.lock();
        // Its state is read behind the announcement. So a later change waits until all of this is done.
        let _used = target.announce(adapter);
        let at = AtForeign::new(adapter, &target);
        half.end_taken(&at, deferred);
        let Share { responder, effects, last } = &mut *half;
        *last = Some(at.look);
        let (to, from) = (request.to.bits(), request.from.bits());
        let _work = sanitizers::work(to, Half::Receive, from, || true);
        let reply = responder.execute(request, source, sink, &mut at.context(effects));
        let (before, behind) = effects.around_answer();
        at.carry_out(before, deferred);
        if let Some(answer) = answer {
            answer(reply);
        }
        at.carry_out(behind, deferred);
        effects.clear();
        reply
    }

    fn target(&self, adapter: &Adapter, number: QpNumber) -> Option<Arc<ForeignTarget>> {
        let owner = adapter.device().peer(number.slot())?;
        let mut targets = self.0.lock();
        if let Some(target) = targets.get(&number.bits())
            && Arc::ptr_eq(&target.owner, &owner)
        {
            return Some(target.clone());
        }
        let max_sge = Limits::DEVICE.max_sge as usize;
        let responder = Responder::new(Service::XrcTarget, Receives::Named, max_sge).ok()?;
        let effects = responder.effects().ok()?;
        let half = Mutex::new(Share { responder, effects, last: None });
        let target = Arc::new(ForeignTarget { number, owner, half });
        targets.insert(number.bits(), target.clone());
        Some(target)
    }

    /// The process of some receiving ends has ended. The receives that they have taken come back flushed.
    pub(crate) fn end_those_of(&self, adapter: &Adapter, owner: &Peer, deferred: &mut Deferred) {
        let ended: Vec<_> = {
            let mut targets = self.0.lock();
            let of_owner = targets.extract_if(|_, target| target.is_of(owner));
            of_owner.map(|(_, target)| target).collect()
        };
        for target in ended {
            target.half.lock().flush(&AtForeign::new(adapter, &target), deferred);
        }
    }

    /// A process has ended connections of its receiving ends. The receives that their messages have taken come back.
    pub(crate) fn look_again(&self, adapter: &Adapter, owner: &Peer, deferred: &mut Deferred) {
        let of_owner = |target: &&Arc<ForeignTarget>| target.is_of(owner);
        let targets: Vec<_> = self.0.lock().values().filter(of_owner).cloned().collect();
        for target in targets {
            target.half.lock().end_taken(&AtForeign::new(adapter, &target), deferred);
        }
        // Nobody else has one that is removed, or could have it: that takes this lock.
        self.0.lock().retain(|_, target| {
            let is_gone = target.is_of(owner) && target.summary().presence() == Presence::Gone;
            !(is_gone && Arc::strong_count(target) == 1)
        });
    }

    /// Forgets receives taken from a shared queue that is gone.
    pub(crate) fn forget_shared(&self, srq: u32) {
        for target in self.0.lock().values() {
            target.half.lock().responder.forget_shared(srq);
        }
    }
}

impl Share {
    /// If the connection of the last message is over, gives back the receive that the message has taken: flushed if the
    /// receiving end is in error, and without a completion if it has been reset or destroyed.
    fn end_taken(&mut self, at: &AtForeign<'_>, deferred: &mut Deferred) {
        let Some(last) = &self.last else { return };
        if !at.summary().is_still(last) {
            self.last = None;
            self.responder.reset(&mut self.effects);
            at.carry_out(self.effects.all(), deferred);
            self.effects.clear();
        } else if at.look.gate().state == QpState::Error {
            self.flush(at, deferred);
        }
    }

    fn flush(&mut self, at: &AtForeign<'_>, deferred: &mut Deferred) {
        self.responder.flush(&mut at.context(&mut self.effects));
        at.carry_out(self.effects.all(), deferred);
        self.effects.clear();
    }
}

impl ForeignTarget {
    /// Announces to its owner that something is carried out for it here. Keys are announced in this process's own
    /// segment, where the owner does not look.
    fn announce(&self, adapter: &Adapter) -> Announcement<'_> {
        let (process, used) = (adapter.device().process(), Use::of_queue_pair(self.number.index()));
        let hazards = self.owner.segment.hazards();
        hazards.announce(process.announcer(), Rank::Remote, used, &**process)
    }

    fn is_of(&self, owner: &Peer) -> bool {
        std::ptr::eq(&*self.owner, owner)
    }

    fn summary(&self) -> &QpSummary {
        let table = self.owner.segment.qps();
        table.summary(self.number.index()).expect("the table has an entry for every u16")
    }
}

/// Another process's receiving end at work here.
struct AtForeign<'a> {
    adapter: &'a Adapter,
    target: &'a ForeignTarget,
    /// Its state when this began.
    look: Look,
}

impl<'a> AtForeign<'a> {
    fn new(adapter: &'a Adapter, target: &'a ForeignTarget) -> Self {
        Self { adapter, target, look: target.summary().look() }
    }

    /// The context for calls of the device.
    fn context<'c>(&'c self, effects: &'c mut Effects) -> Context<'c, Self> {
        let (number, summary) = (self.target.number, self.summary());
        Context { process: self, number, summary, effects }
    }

    fn device(&self) -> &Device {
        self.adapter.device()
    }

    fn summary(&self) -> &QpSummary {
        self.target.summary()
    }

    /// Carries out the device's effects. Events are left out: the program is the owner's, and it learns of an error
    /// when it asks for the state. All other effects do not concern a receiving end of XRC.
    fn carry_out(&self, effects: &[Effect], deferred: &mut Deferred) {
        for effect in effects {
            match effect {
                Effect::CompleteShared { srq, completion, solicited } => {
                    let srq = self.adapter.shared_queues.get(*srq);
                    if let Some(feed) = srq.as_ref().and_then(|srq| srq.xrc_feed())
                        && feed.complete(completion, *solicited, deferred)
                    {
                        self.summary().fall_of(&self.look, QpState::Error);
                    }
                }
                Effect::GiveUpShared { srq } => {
                    let srq = srq.and_then(|number| self.adapter.shared_queues.get(number));
                    srq.into_iter().for_each(|srq| srq.returned().add(1));
                }
                Effect::Complete { .. }
                | Effect::Event(_)
                | Effect::Flush(_)
                | Effect::ForgetUnexpected
                | Effect::Rendezvous
                | Effect::Respond(_) => {}
            }
        }
    }

    /// The shared queue of this number, if it is in the receiving end's domain. The file identifies the domain.
    fn named_queue(&self, number: u32) -> Option<Arc<SharedReceiveQueue>> {
        let domain = self.summary().xrc_domain()?;
        let srq = self.adapter.shared_queues.get(number)?;
        let same = srq.config().xrc.as_ref().is_some_and(|xrc| xrc.domain.file() == Some(domain));
        same.then_some(srq)
    }
}

/// It sends nothing.
impl Shortcuts for AtForeign<'_> {}

impl Process for AtForeign<'_> {
    fn keys(&self) -> KeyTable<'_> {
        self.device().process().segment().keys()
    }

    fn qps(&self) -> QpTable<'_> {
        self.device().process().segment().qps()
    }

    fn announcer(&self) -> Announcer {
        self.device().process().announcer()
    }

    fn waiter(&self) -> &dyn Waiter {
        &**self.device().process()
    }

    fn now(&self) -> u64 {
        clock::steady()
    }

    fn store(&self, at: &Grant<'_>, pieces: &[&[u8]]) -> Result<(), MemoryGone> {
        self.device().process().store(at, pieces)
    }

    fn atomic(
        &self,
        at: &Grant<'_>,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, MemoryGone> {
        self.device().process().atomic(at, update)
    }

    /// It sends nothing.
    fn complete(&self, _: &Completion) {}

    fn witness(&self) -> Option<&dyn Witness> {
        self.device().witness()
    }

    fn note_refusal(&self, refusal: &Refusal) {
        self.device().process().note_refusal(self.summary(), refusal);
    }

    fn take_shared(
        &self,
        srq: Option<u32>,
        tag: Option<u64>,
        least: u64,
        receive: &mut Receive,
    ) -> TakeShared {
        match srq.and_then(|number| self.named_queue(number)) {
            Some(srq) => TakeShared::Found(srq.take(tag, least, receive)),
            None => TakeShared::Unknown,
        }
    }

    fn connection(&self) -> Option<&Look> {
        Some(&self.look)
    }

    fn has_taken(&self, receive: &mut Receive, _: &Request) {
        if rehearsal::on().is_some() {
            let local = LocalBuffers {
                sges: &receive.sges,
                keys: self.keys(),
                announcer: self.announcer(),
                waiter: self.waiter(),
                qp: self.target.number.bits(),
                pd: receive.pd,
            };
            self.adapter.clean(local);
        }
    }

    fn shared_pd(&self, srq: u32) -> Option<u32> {
        self.named_queue(srq).map(|srq| srq.config().pd.number())
    }

    fn carries_out(&self, request: &Request) {
        sanitizers::work_is(request.body.operation(), request.from.bits());
    }

    fn is_asked(&self, request: &Request) {
        self.device().is_asked(request);
    }

    fn injected(&self, request: &Request) -> Option<Injection> {
        self.device().injector.answer(request)
    }
}
