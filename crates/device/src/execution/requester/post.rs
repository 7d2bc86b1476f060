//! Posting: which work requests are taken, and what is done with one at once.

use transom_wire::Psn;

use super::super::{
    Context, Counted, Direct, LocalBuffers, MAX_MESSAGE, Payload, PlainSend, Process,
};
use super::wqe::{Part, Progress, SendWqe};
use super::{Connection, Pause, Requester, completion};
use crate::qp::{QpState, QpSummary, Service};
use crate::queue::{Body, PostError, Remote, SendFlags, SendOp, SendRequest, Status};

impl Requester {
    /// Posts a work request; [`Requester::next_segment`] carries it out.
    #[inline]
    pub fn post<P: Process>(
        &mut self,
        request: &SendRequest<'_>,
        cx: &mut Context<'_, P>,
    ) -> Result<(), PostError> {
        self.post_by(true, request, cx)
    }

    /// The same. If it may not be carried out at once, it goes through the ring, whatever it is.
    #[inline]
    pub(super) fn post_by<P: Process>(
        &mut self,
        at_once: bool,
        request: &SendRequest<'_>,
        cx: &mut Context<'_, P>,
    ) -> Result<(), PostError> {
        let state = cx.summary.gate().state;
        if matches!(state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return Err(PostError::WrongState);
        }
        if !self.takes(request) {
            return Err(PostError::WrongService);
        }
        let (num_sge, length) = match request.inline {
            Some(inline) => (0, self.check_inline(request, inline)?),
            None if request.sges.len() > self.limits.max_sge => {
                return Err(PostError::TooManySges);
            }
            None => (request.sges.len(), LocalBuffers::length(request.sges)),
        };
        if state == QpState::Rts && at_once {
            if matches!(request.op, SendOp::Message(Body::Send)) {
                if self.send_at_once(request, length, cx) {
                    return Ok(());
                }
            } else if self.ring.is_empty() {
                match self.carry_out(request, length, cx) {
                    Direct::Done => return Ok(()),
                    Direct::Declined => {}
                    Direct::Near(refusal) => {
                        self.enqueue(request, num_sge, length, state, cx)?;
                        self.refuse_head(cx, Status::LocalProtection, &refusal);
                        return Ok(());
                    }
                }
            }
        }
        self.enqueue(request, num_sge, length, state, cx)
    }

    /// Adds a checked work request to the ring, to be started.
    #[inline(never)]
    fn enqueue<P: Process>(
        &mut self,
        request: &SendRequest<'_>,
        num_sge: usize,
        length: u64,
        state: QpState,
        cx: &mut Context<'_, P>,
    ) -> Result<(), PostError> {
        if !self.places.has_room_for(1) {
            return Err(PostError::Full);
        }
        let place = self.ring.tail();
        self.push(request, num_sge, length, Psn::default(), Progress::Waiting);
        self.remotes.set(place, request.remote);
        if matches!(state, QpState::Error | QpState::Sqe) {
            self.flush(cx);
        } else {
            cx.process.sends_wait(self.ring.len());
        }
        Ok(())
    }

    /// Adds a work request to the ring. The ring has room for it.
    #[inline]
    fn push(
        &mut self,
        request: &SendRequest<'_>,
        num_sge: usize,
        length: u64,
        message: Psn,
        progress: Progress,
    ) {
        let mut flags = request.flags;
        flags.set(SendFlags::INLINE, request.inline.is_some());
        let wqe = SendWqe {
            wr_id: request.wr_id,
            op: request.op,
            flags,
            num_sge,
            length,
            message,
            progress,
            part: Part::Program,
        };
        self.ring.push(wqe, &request.sges[..num_sge], request.inline.unwrap_or(&[]));
        self.places.take();
    }

    /// Hands a SEND to the link as it is posted, if it is plain and nothing waits before it. The result is that of
    /// [`Requester::next_segment`] and [`Requester::sent`]. False if the SEND has to be enqueued.
    #[inline]
    fn send_at_once<P: Process>(
        &mut self,
        request: &SendRequest<'_>,
        length: u64,
        cx: &mut Context<'_, P>,
    ) -> bool {
        let (num_sge, payload) = match (request.inline, request.sges) {
            (None, sges @ [_]) => (1, Payload::Buffers(sges)),
            (Some([bytes]), _) => (0, Payload::Inline(bytes)),
            _ => return false,
        };
        let Connection { link, peer, .. } = self.connection;
        let next = self.under_way.next == self.ring.tail() && self.places.has_room_for(1);
        // Such a short message is one segment, and is checked as it is copied.
        let plain = self.service == Service::Rc
            && link.mtu.is_none()
            && (1..=link.copied).contains(&length)
            && !request.flags.contains(SendFlags::FENCE);
        if !next || !plain || self.pause != Pause::No {
            return false;
        }
        let message = self.under_way.next_psn;
        let send = PlainSend {
            to: peer,
            from: cx.number,
            message,
            attempt: self.under_way.attempt,
            length,
            solicited: request.flags.contains(SendFlags::SOLICITED),
        };
        if !cx.process.send_at_once(&send, payload) {
            return false;
        }
        self.push(
            request,
            num_sge,
            length,
            message,
            Progress::Started { sent: length, answered: 0 },
        );
        self.under_way.next_psn = message.plus(1);
        self.under_way.next = self.ring.tail();
        cx.process.sends_wait(self.ring.len());
        true
    }

    /// Whether a request is of a kind that may be posted here at all (rules INV-43, INV-44, T2-11, INV-19). It must
    /// name its recipient exactly if its service leaves that open.
    #[inline]
    fn takes(&self, request: &SendRequest<'_>) -> bool {
        let invalidates = matches!(request.op, SendOp::Message(Body::SendInvalidate(_)));
        let local = matches!(request.op, SendOp::Local(_));
        match (self.service, request.remote) {
            (Service::Rc, Remote::Connected) => true,
            (Service::Uc, Remote::Connected) => !invalidates,
            (Service::Ud, Remote::Datagram(_)) => {
                matches!(request.op, SendOp::Message(Body::Send | Body::SendImmediate(_)))
            }
            // Operations that UD does not have complete in error (rule PS-06).
            (Service::Ud, Remote::Connected) => request.op == SendOp::Unsupported,
            (Service::XrcInitiator, Remote::Srq(_)) => true,
            (Service::XrcInitiator, Remote::Connected) => local,
            _ => false,
        }
    }

    /// Whether `count` work requests can be posted one after the other. All other reasons to refuse a post lie in the
    /// request itself, and the builder of a batch has checked them.
    pub fn check_room(&mut self, count: usize, summary: &QpSummary) -> Result<(), PostError> {
        if matches!(summary.gate().state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return Err(PostError::WrongState);
        }
        if self.places.has_room_for(count) { Ok(()) } else { Err(PostError::Full) }
    }

    /// Carries out a request on the direct path without putting it into the ring, if nothing is before it. If the path
    /// declines it, it is tried again from the ring.
    #[inline]
    fn carry_out<P: Process>(
        &mut self,
        request: &SendRequest<'_>,
        length: u64,
        cx: &mut Context<'_, P>,
    ) -> Direct {
        let SendOp::Message(body) = &request.op else { return Direct::Declined };
        // A request that names no memory goes as a message.
        if body.remote().is_none() {
            return Direct::Declined;
        }
        let payload = match request.inline {
            None => Payload::Buffers(request.sges),
            Some([bytes]) => Payload::Inline(bytes),
            Some(_) => return Direct::Declined,
        };
        let ready = self.places.has_room_for(1)
            && self.pause == Pause::No
            && self.service != Service::Ud
            && length <= MAX_MESSAGE
            && (self.connection.max_rd_atomic > 0 || !body.uses_read_resources());
        if !ready {
            return Direct::Declined;
        }
        if !cx.process.try_at_once(&mut self.admission, body, &request.remote, payload, length) {
            if request.inline.is_some() {
                // A request tried piece by piece could be written over meanwhile. It is tried from the ring's copy.
                return Direct::Declined;
            }
            let outcome = self.try_direct(cx, body, &request.remote, payload, length);
            if outcome != Direct::Done {
                return outcome;
            }
            cx.process.has_carried(body.operation(), length);
        }
        if let Some(counted) = Counted::of_posted(&request.op) {
            cx.process.count(counted, Some(length));
        }
        self.places.take();
        let reported = self.limits.signal_all || request.flags.contains(SendFlags::SIGNALED);
        let places = self.places.end(reported);
        if reported {
            let status = Status::Success;
            let mut completion = completion(cx, request.wr_id, &request.op, status);
            completion.byte_length = length as u32;
            completion.places = places;
            cx.process.complete(&completion);
        }
        Direct::Done
    }

    fn check_inline(&self, request: &SendRequest<'_>, inline: &[&[u8]]) -> Result<u64, PostError> {
        let allowed = matches!(request.op, SendOp::Message(body) if body.carries_data());
        if !allowed {
            return Err(PostError::InlineNotAllowed);
        }
        let length = inline.iter().map(|bytes| bytes.len()).sum::<usize>();
        if length > self.limits.inline_room {
            Err(PostError::InlineTooLong)
        } else {
            Ok(length as u64)
        }
    }
}
