//! What is recorded of the work of a queue pair, for those who want its events. Each of these is called only while a
//! tool is on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use transom_device::Access;
use transom_device::execution::{
    Awaited, Context, Ended, LocalBuffers, Posted, Request, Requester, Sent, Tally,
};
use transom_device::operation::Operation;
use transom_device::protection::{Attempt, RemoteAddress, Snapshot, Witness};
use transom_device::qp::QpState;
use transom_device::queue::{
    Body, Completion, LocalOp, PostError, ReceiveRequest, SendOp, SendRequest, Status,
};
use transom_system::tools::{self, Tool};
use transom_system::trace::{Event, Handed, What};
use transom_system::{clock, probes};

use super::services::At;
use super::{QpReceives, QueuePair};
use crate::objects::Link;

/// What is known between two events.
#[derive(Debug, Default)]
pub(super) struct Traced {
    /// The message of the peer's that is being carried out, and where its segment begins. The receive half is locked.
    message: AtomicU64,
    offset: AtomicU64,
    /// What the send queue waits for: the position of the request, and the code. Zero for nothing.
    waits: AtomicU64,
    /// A request is being posted. If it is carried out at once, one event says all of it.
    posts: AtomicBool,
}

impl QueuePair {
    fn event(&self, what: What) -> Event {
        Event { qp: self.number.bits(), ..Event::of(what) }
    }

    /// Posts a request, and has what becomes of it recorded.
    #[cold]
    pub(super) fn post_traced(
        &self,
        requester: &mut Requester,
        request: &SendRequest<'_>,
        cx: &mut Context<'_, At<'_>>,
    ) -> Result<(), PostError> {
        self.traced(requester, request, cx, |requester, cx| requester.post(request, cx))
    }

    /// Has what becomes of a request recorded that `post` posts.
    pub(super) fn traced(
        &self,
        requester: &mut Requester,
        request: &SendRequest<'_>,
        cx: &mut Context<'_, At<'_>>,
        post: impl FnOnce(&mut Requester, &mut Context<'_, At<'_>>) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        if tools::is_on(Tool::Latencies) {
            return self.timed(requester, request, cx, |requester, cx| {
                self.recorded(requester, request, cx, post)
            });
        }
        self.recorded(requester, request, cx, post)
    }

    fn recorded(
        &self,
        requester: &mut Requester,
        request: &SendRequest<'_>,
        cx: &mut Context<'_, At<'_>>,
        post: impl FnOnce(&mut Requester, &mut Context<'_, At<'_>>) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        if !tools::is_on(Tool::Events) && !tools::is_probed() {
            return post(requester, cx);
        }
        if tools::is_probed() {
            probes::post(&self.posted(request, cx.process));
        }
        let (begun, position) = (clock::steady(), requester.tail());
        let state = cx.summary.gate().state;
        self.traced.posts.store(true, Relaxed);
        let result = post(requester, cx);
        self.traced.posts.store(false, Relaxed);
        result?;
        let posted = self.posted(request, cx.process);
        let process = self.device.process();
        if requester.tail() == position {
            process.record(Event { what: What::CarriedOut, detail: begun, ..posted });
            return Ok(());
        }
        process.record(Event { time: begun, detail: position, ..posted });
        match requester.watch(position) {
            Posted::Waits => {}
            Posted::Sent(message) => process.record(Event {
                time: begun,
                what: What::Sent,
                number: position,
                address: 0,
                detail: Event::message(message.value(), 0),
                ..posted
            }),
            Posted::Ended => {
                let flushed = matches!(state, QpState::Error | QpState::Sqe);
                let status = if flushed { Status::Flushed } else { Status::LocalProtection };
                process.record(Event {
                    what: What::Ended,
                    more: status.code().into(),
                    length: 0,
                    detail: position,
                    ..posted
                });
            }
        }
        Ok(())
    }

    fn posted(&self, request: &SendRequest<'_>, at: &At<'_>) -> Event {
        let length = match request.inline {
            Some(pieces) => pieces.iter().map(|bytes| bytes.len() as u64).sum(),
            None => LocalBuffers::length(request.sges),
        };
        let (key, address, length) = match request.op {
            SendOp::Message(body) => {
                let remote = body.remote().map_or((0, 0), |at| (at.key.0, at.address));
                (remote.0, remote.1, length)
            }
            SendOp::Local(LocalOp::BindType1(bind) | LocalOp::BindType2(bind)) => {
                (bind.window.0, bind.address, bind.length)
            }
            SendOp::Local(LocalOp::Invalidate(key)) => (key.0, 0, 0),
            SendOp::Unsupported => (0, 0, length),
        };
        Event {
            code: request.op.operation().map_or(0, Operation::code),
            peer: match request.op {
                SendOp::Message(_) | SendOp::Unsupported => at.peer.bits(),
                SendOp::Local(_) => 0,
            },
            key,
            number: request.wr_id,
            address,
            length,
            ..self.event(What::Posted)
        }
    }

    /// A receive has been posted.
    #[cold]
    pub(super) fn trace_receive_posted(&self, request: &ReceiveRequest<'_>) {
        self.device.process().record(Event {
            number: request.wr_id,
            length: LocalBuffers::length(request.sges),
            ..self.event(What::ReceivePosted)
        });
    }

    /// A receive completes. With XRC `shared` is the shared queue that the message named.
    #[cold]
    pub(super) fn trace_received(&self, completion: &Completion, shared: Option<u32>) {
        let shared = match &self.config.receives {
            QpReceives::Srq(srq) => Some(srq.number()),
            _ => shared,
        };
        self.device.process().record(Event {
            key: shared.unwrap_or(0),
            code: completion.opcode.code(),
            more: completion.status.code().into(),
            peer: self.summary().peering().from.bits(),
            number: completion.wr_id,
            length: completion.byte_length.into(),
            ..self.event(What::Received)
        });
    }

    /// Something is counted. How work ends, and what is refused, is told otherwise.
    pub(super) fn trace_counted(&self, tally: Tally, count: u64) {
        let is_told = matches!(
            tally,
            Tally::NotReady
                | Tally::NotReadyTime
                | Tally::NotReadyExceeded
                | Tally::Timeout
                | Tally::RetryExceeded
                | Tally::SequenceError
                | Tally::ImpliedSequenceError
                | Tally::NoReceive
                | Tally::Duplicate
                | Tally::OutOfSequence
                | Tally::InvalidatedByPeer
        );
        if !is_told {
            return;
        }
        self.device.process().record(Event {
            code: tally.code(),
            peer: self.summary().peering().from.bits(),
            length: count,
            ..self.event(What::Counted)
        });
    }
}

impl At<'_> {
    /// A request that was posted while events were recorded has ended.
    #[cold]
    pub(super) fn trace_ended(&self, ended: &Ended) {
        self.qp.device.process().record(Event {
            code: ended.operation.map_or(0, Operation::code),
            more: ended.status.code().into(),
            peer: self.peer.bits(),
            number: ended.wr_id,
            length: ended.length,
            detail: ended.position,
            ..self.qp.event(What::Ended)
        });
    }

    /// A segment was handed to its link.
    #[cold]
    pub(super) fn trace_sent(&self, request: &Request, position: u64, begun: u64, outcome: &Sent) {
        let handed = match outcome {
            Sent::Queued | Sent::Answered(_) => Handed::Sent,
            Sent::Busy => Handed::Busy,
            Sent::Unreachable => Handed::Unreachable,
            Sent::Near(_) => Handed::Failed,
        };
        if matches!(handed, Handed::Busy) {
            return self.trace_awaited(Awaited::Room, position);
        }
        self.qp.traced.waits.store(0, Relaxed);
        let packets = match self.link {
            Link::Wire(path) => request.length.div_ceil(path.mtu.max(1)).max(1),
            Link::None | Link::Loopback | Link::Local(_) => 0,
        };
        self.qp.device.process().record(Event {
            time: begun,
            code: request.body.operation().code(),
            more: handed as u16,
            peer: request.to.bits(),
            key: packets as u32,
            number: position,
            address: request.offset,
            length: request.length,
            detail: Event::message(request.message.value(), request.attempt),
            ..self.qp.event(What::Sent)
        });
    }

    /// Nothing more can be sent now.
    #[cold]
    pub(super) fn trace_waits(&self, requester: &Requester, cx: &Context<'_, Self>) {
        match requester.next_awaits(cx.summary) {
            // Said already, where it was handed to the link.
            Some(Awaited::Window) if self.qp.traced.is_for_room(requester.next()) => {}
            Some(awaited) => self.trace_awaited(awaited, requester.next()),
            None => self.qp.traced.waits.store(0, Relaxed),
        }
    }

    fn trace_awaited(&self, awaited: Awaited, position: u64) {
        let waits = position << 8 | u64::from(awaited.code());
        if self.qp.traced.waits.swap(waits, Relaxed) != waits {
            self.qp.device.process().record(Event {
                code: awaited.code(),
                peer: self.peer.bits(),
                number: position,
                ..self.qp.event(What::Waits)
            });
        }
    }

    /// A request of the queue was carried out in the memory of its target.
    #[cold]
    pub(super) fn trace_reached(
        &self,
        operation: Operation,
        at: RemoteAddress,
        position: u64,
        length: u64,
    ) {
        if self.qp.traced.posts.load(Relaxed) {
            return;
        }
        self.qp.device.process().record(Event {
            code: operation.code(),
            peer: self.peer.bits(),
            key: at.key.0,
            address: at.address,
            length,
            detail: position,
            ..self.qp.event(What::Reached)
        });
    }

    /// A segment has come and is about to be carried out.
    #[cold]
    pub(super) fn trace_came(&self, request: &Request) {
        let message = Event::message(request.message.value(), request.attempt);
        self.qp.traced.message.store(message, Relaxed);
        self.qp.traced.offset.store(request.offset, Relaxed);
        let remote = request.body.remote();
        self.qp.device.process().record(Event {
            code: request.body.operation().code(),
            peer: request.from.bits(),
            key: remote.map_or(0, |at| at.key.0),
            number: request.offset,
            address: remote.map_or(0, |at| at.address.wrapping_add(request.offset)),
            length: match request.body {
                Body::FetchAdd { .. } | Body::CompareSwap { .. } => 8,
                _ => request.length,
            },
            detail: message,
            ..self.qp.event(What::Came)
        });
    }
}

impl At<'_> {
    /// A peer asks for memory. A READ over the wire is carried out as its answer is sent, and is told of here only.
    #[cold]
    pub(super) fn trace_asked(&self, request: &Request) {
        let traced = &self.qp.traced;
        let message = Event::message(request.message.value(), request.attempt);
        let known = (traced.message.load(Relaxed), traced.offset.load(Relaxed));
        // Its right is looked at before, without a range.
        if known != (message, request.offset) && request.length > 0 {
            self.trace_came(request);
        }
    }
}

impl Traced {
    fn is_for_room(&self, position: u64) -> bool {
        self.waits.load(Relaxed) == position << 8 | u64::from(Awaited::Room.code())
    }
}

impl Witness for At<'_> {
    fn bound(&self, slot: u32, region: u32, window: &Snapshot) -> Access {
        self.qp.device.bound(slot, region, window)
    }

    fn unbound(&self, slot: u32, by: Operation) {
        let peer = match by {
            Operation::RemoteInvalidate => self.qp.summary().peering().from.bits(),
            _ => 0,
        };
        let event = Event { more: by.code().into(), peer, ..self.qp.event(What::Closed) };
        self.qp.device.has_closed(slot, event);
    }

    fn touched(&self, attempt: &Attempt, begins: bool) {
        let traced = &self.qp.traced;
        self.qp.device.process().record(Event {
            code: attempt.operation.code(),
            peer: self.qp.summary().peering().from.bits(),
            key: attempt.key.0,
            number: traced.offset.load(Relaxed),
            address: attempt.address,
            length: attempt.length,
            detail: traced.message.load(Relaxed),
            ..self.qp.event(What::Touched)
        });
        self.qp.device.touched(attempt, begins);
    }
}
