//! How long the requests of a queue pair take, from post to completion, for those who want to know. Each of these is
//! called only while that tool is on, with the send half locked.

use std::collections::VecDeque;

use parking_lot::Mutex;
use transom_device::execution::{Context, Ended, LocalBuffers, Posted, Requester};
use transom_device::operation::Operation;
use transom_device::queue::{Body, PostError, SendOp, SendRequest, Status};
use transom_system::clock;
use transom_system::latency::Timed;

use super::QueuePair;
use super::services::At;

/// The requests that have begun and not ended: the position of each, and when it was posted.
#[derive(Debug, Default)]
pub(super) struct Begun(Mutex<VecDeque<(u64, u64)>>);

impl QueuePair {
    /// Notes when a request begins that `post` posts. If it is carried out at once, records how long that took.
    #[cold]
    pub(super) fn timed(
        &self,
        requester: &mut Requester,
        request: &SendRequest<'_>,
        cx: &mut Context<'_, At<'_>>,
        post: impl FnOnce(&mut Requester, &mut Context<'_, At<'_>>) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        let (begun, position) = (clock::steady(), requester.tail());
        post(requester, cx)?;
        if requester.tail() == position {
            self.record_time(request.op.operation(), length(request), begun);
        } else if requester.watch(position) != Posted::Ended {
            self.begun.0.lock().push_back((position, begun));
        }
        Ok(())
    }

    /// A request has ended that was posted while this or another tool was on.
    pub(super) fn time_ended(&self, ended: &Ended) {
        let mut begun = self.begun.0.lock();
        // Those before it have gone without an end: the queue pair was reset.
        while begun.front().is_some_and(|(position, _)| *position < ended.position) {
            begun.pop_front();
        }
        let is_it = |(position, _): &(u64, u64)| *position == ended.position;
        if !begun.front().is_some_and(is_it) {
            return;
        }
        let Some((_, time)) = begun.pop_front() else { return };
        drop(begun);
        if ended.status == Status::Success {
            self.record_time(ended.operation, ended.length, time);
        }
    }

    fn record_time(&self, operation: Option<Operation>, bytes: u64, begun: u64) {
        let process = self.device.process();
        let kind = operation.and_then(Timed::by).filter(|_| !process.is_inherited());
        if let (Some(kind), Some(latencies)) = (kind, process.segment().latencies()) {
            latencies.record(kind, bytes, clock::steady().saturating_sub(begun));
        }
    }
}

/// The bytes that a request moves.
fn length(request: &SendRequest<'_>) -> u64 {
    match (request.op, request.inline) {
        (SendOp::Message(Body::FetchAdd { .. } | Body::CompareSwap { .. }), _) => 8,
        (SendOp::Message(_), Some(pieces)) => pieces.iter().map(|it| it.len() as u64).sum(),
        (SendOp::Message(_), None) => LocalBuffers::length(request.sges),
        (SendOp::Local(_) | SendOp::Unsupported, _) => 0,
    }
}
