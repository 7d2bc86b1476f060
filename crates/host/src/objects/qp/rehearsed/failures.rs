//! Requests and receives that end in error in a rehearsal, with all the consequences of an error.

use transom_device::execution::{Context, Ending, LocalBuffers, Request, Requester};
use transom_device::operation::Opcode;
use transom_device::qp::{QpState, Service};
use transom_device::queue::{Body, PostError, Receive, SendOp, SendRequest, Status, TagPart};
use transom_rehearse::Provocation;
use transom_system::clock;
use transom_system::registry::{Fate, Work};

use super::super::services::At;
use super::super::{More, QueuePair};
use super::{Before, Rehearsed, lateness};

/// A way for a request to fail.
enum Way {
    /// Its send queue ends it so.
    Ends(Ending),
    /// It goes out otherwise, and its target refuses it with this status.
    Refused(Body, Status),
}

impl QueuePair {
    /// Posts a request in a rehearsal.
    #[cold]
    pub(in super::super) fn post_send_rehearsed(
        &self,
        rehearsed: &Rehearsed,
        request: &SendRequest<'_>,
        more: More,
    ) -> Result<(), PostError> {
        self.lose_peers(rehearsed);
        self.drive(more, |requester, cx| {
            self.hold(rehearsed, requester);
            self.traced(requester, request, cx, |requester, cx| {
                self.post_rehearsed(rehearsed, requester, request, cx)
            })
        })
    }

    /// The same for one that may have begun late already. It may have to fail.
    #[cold]
    pub(in super::super) fn post_rehearsed(
        &self,
        rehearsed: &Rehearsed,
        requester: &mut Requester,
        request: &SendRequest<'_>,
        cx: &mut Context<'_, At<'_>>,
    ) -> Result<(), PostError> {
        rehearsed.forget_begun(requester);
        // How often a program tries to post to a full queue depends on time. So only what is taken counts.
        if requester.check_room(1, cx.summary).is_err() {
            return requester.post(request, cx);
        }
        let before = &rehearsed.requests.count(request);
        self.scribble(rehearsed, requester, request, before, cx);
        let Some((way, number)) = self.fails(rehearsed, requester, request, before, cx) else {
            if self.passes(rehearsed, requester, request, before, cx) {
                return requester.post_done(request, cx);
            }
            self.tear(rehearsed, requester, request, before, cx);
            self.land_early(rehearsed, requester, request, before, cx);
            self.expose(requester);
            return requester.post(request, cx);
        };
        rehearsed.pass_no_more();
        match way {
            Way::Ends(ending) => {
                // Its retries take their time.
                if matches!(ending.status, Status::RetryExceeded | Status::RnrRetryExceeded) {
                    requester.hold(clock::steady() + lateness(number));
                }
                requester.post_to_fail(request, ending, cx)
            }
            Way::Refused(body, status) => {
                let opcode = body.operation().needs().completion.unwrap_or(Opcode::Write);
                let work = Work { wr_id: request.wr_id, opcode, status };
                self.note(cx.process.peer.bits(), Some(work), Fate::Rehearsed);
                requester.post(&SendRequest { op: SendOp::Message(body), ..*request }, cx)
            }
        }
    }

    /// Whether a request fails that there is room for, and that would be begun, and how; with a random number.
    fn fails(
        &self,
        rehearsed: &Rehearsed,
        requester: &mut Requester,
        request: &SendRequest<'_>,
        before: &Before,
        cx: &Context<'_, At<'_>>,
    ) -> Option<(Way, u64)> {
        if cx.summary.gate().state != QpState::Rts || requester.is_meant_to_fail() {
            return None;
        }
        if matches!(request.op, SendOp::Unsupported) {
            return None;
        }
        let number = rehearsed.provokes(Provocation::FailedRequests, before.all)?;
        let mut ways = ways(self.config.service, request, requester);
        let way = ways.swap_remove((number % ways.len() as u64) as usize);
        Some((way, number >> 8))
    }

    /// Has a receive fail, perhaps, which was taken for a message.
    #[cold]
    pub(in super::super) fn spoil(
        &self,
        rehearsed: &Rehearsed,
        receive: &mut Receive,
        request: &Request,
    ) {
        let is_datagram = self.config.service == Service::Ud;
        // Without bytes its buffers are not looked at. A datagram brings its header.
        let brings_bytes =
            !matches!(request.body, Body::Write { .. }) && (request.total > 0 || is_datagram);
        if receive.part != TagPart::None || receive.length == 0 || !brings_bytes {
            return;
        }
        let nth = rehearsed.count(|it| &it.received);
        let Some(number) = rehearsed.provokes(Provocation::FailedReceives, nth) else { return };
        // A datagram for which there is no room is lost, and its receive stays.
        if number % 2 == 0 && !is_datagram {
            receive.sges.clear();
            receive.length = 0;
        }
        // No region belongs to this domain. By it `transom explain` knows who made the receive fail.
        receive.pd = u32::MAX;
    }
}

/// The ways in which a request may fail: one at least, if it is supported.
fn ways(service: Service, request: &SendRequest<'_>, requester: &Requester) -> Vec<Way> {
    let ends = |status| Way::Ends(Ending { status, is_carried_out: false });
    let body = match request.op {
        SendOp::Message(body) => body,
        // A failed bind leaves the window as it was.
        SendOp::Local(_) => return vec![ends(Status::WindowBind)],
        SendOp::Unsupported => return Vec::new(),
    };
    let carried_out = |status| Way::Ends(Ending { status, is_carried_out: true });
    let inline = request.inline.map(|parts| parts.iter().map(|part| part.len() as u64).sum());
    let length = inline.unwrap_or_else(|| LocalBuffers::length(request.sges));
    let mut ways = Vec::new();
    if inline.is_none() && length > 0 {
        ways.push(ends(Status::LocalProtection));
    }
    ways.push(ends(Status::LocalQpOperation));
    if !service.is_reliable() {
        return ways;
    }
    // The answer is garbled: to this request, or to nothing that was carried out.
    ways.extend([ends(Status::BadResponse), carried_out(Status::BadResponse)]);
    // Zero is no timeout, and 7 for ever (rules RN-06, RN-04).
    if requester.retry.timeout != 0 {
        ways.extend([ends(Status::RetryExceeded), carried_out(Status::RetryExceeded)]);
    }
    if body.takes_receive() && requester.retry.rnr_count < 7 {
        ways.push(ends(Status::RnrRetryExceeded));
    }
    if length > 0
        && let Some(body) = with_another_key(body)
    {
        ways.push(Way::Refused(body, Status::RemoteAccess));
    }
    ways.extend(misplaced(body).map(|body| Way::Refused(body, Status::RemoteInvalidRequest)));
    ways
}

/// An atomic at an address that is no multiple of 8. `None` for what may be anywhere.
fn misplaced(mut body: Body) -> Option<Body> {
    match &mut body {
        Body::CompareSwap { address, .. }
        | Body::FetchAdd { address, .. }
        | Body::AtomicWrite { address, .. } => *address ^= 4,
        _ => return None,
    }
    Some(body)
}

/// The same with a key that no object has: that of its own with another byte. `None` if the operation has no key.
fn with_another_key(mut body: Body) -> Option<Body> {
    match &mut body {
        Body::Send | Body::SendImmediate(_) | Body::SendInvalidate(_) => return None,
        Body::Write { key, .. }
        | Body::Read { key, .. }
        | Body::CompareSwap { key, .. }
        | Body::FetchAdd { key, .. }
        | Body::AtomicWrite { key, .. }
        | Body::Flush { key, .. } => *key = key.with_byte(key.byte() ^ 0x80),
    }
    Some(body)
}
