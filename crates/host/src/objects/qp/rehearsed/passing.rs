//! READs and atomics that wait in a rehearsal, and are passed by what is posted behind them without a fence.

use std::sync::atomic::Ordering::Relaxed;

use transom_device::execution::{
    Context, Direct, LocalBuffers, MAX_MESSAGE, OneSided, Payload, Requester,
};
use transom_device::protection::Operation;
use transom_device::qp::{QpState, Service};
use transom_device::queue::{SendFlags, SendOp, SendRequest};
use transom_rehearse::{Order, Provocation};

use super::super::QueuePair;
use super::super::services::At;
use super::{Before, Rehearsed, is_atomic, is_read, lateness};

impl Rehearsed {
    /// A request is posted that nothing behind it passes.
    pub(super) fn pass_no_more(&self) {
        self.lets_pass.store(false, Relaxed);
    }
}

impl QueuePair {
    /// A request is about to be posted. If it is a READ or atomic that nothing is outstanding before, the queue may wait
    /// for a while, so that later requests pass it. If it is one of these, it may be carried out now: the answer says
    /// so.
    ///
    /// After a READ only another READ comes in order, and after an atomic too. The model orders all behind an atomic.
    pub(super) fn passes(
        &self,
        rehearsed: &Rehearsed,
        requester: &mut Requester,
        request: &SendRequest<'_>,
        before: &Before,
        cx: &Context<'_, At<'_>>,
    ) -> bool {
        let is_idle = requester.occupancy().1 == 0;
        let lets_pass = &rehearsed.lets_pass;
        if is_idle || !requester.is_held() {
            lets_pass.store(false, Relaxed);
        }
        let (SendOp::Message(body), None) = (&request.op, request.inline) else {
            lets_pass.store(false, Relaxed);
            return false;
        };
        let length = LocalBuffers::length(request.sges);
        let (is_read, is_atomic) = (is_read(request), is_atomic(request));
        let begins = self.config.service == Service::Rc
            && cx.summary.gate().state == QpState::Rts
            && request.sges.len() == 1
            && requester.connection.max_rd_atomic > 0
            && length <= MAX_MESSAGE;
        if let Some(nth) = before.passed {
            let is_passed = is_read || rehearsed.rehearsal.order() != Order::Model;
            if is_idle
                && begins
                && is_passed
                && let Some(number) = rehearsed.provokes(Provocation::PassedReads, nth)
            {
                rehearsed.late.begin(requester, lateness(number));
                lets_pass.store(true, Relaxed);
                return false;
            }
        }
        if is_read || !lets_pass.load(Relaxed) {
            return false;
        }
        // What comes behind a request that does not pass, does not pass either.
        let passes = begins
            && !request.flags.contains(SendFlags::FENCE)
            && OneSided::of(body, Payload::Buffers(request.sges), length).is_some_and(|it| {
                let may_land = !is_atomic
                    || cx.process.local(request.sges).check(Operation::LocalWrite).is_ok();
                may_land
                    && cx.process.carry_out_now(it, request.remote.srq(), length) == Direct::Done
            });
        lets_pass.store(passes, Relaxed);
        passes
    }
}
