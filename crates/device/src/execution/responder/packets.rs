//! The services of a responder for links with packets, beside carrying out segments: READs whose data goes out bit by
//! bit while later requests are carried out, and packets that are wrong themselves.

use super::super::copy::Told;
use super::super::one_sided::Stop;
use super::super::{Context, Process, Reply, Request, Sink};
use super::Responder;
use super::held_back::Seen;
use crate::protection::{Operation, Reason, Refusal, RemoteAddress};
use crate::queue::{Body, Status};

impl Responder {
    /// Takes a READ after checking all of it. [`Responder::fetch`] gets its data later. The answer is [`Reply::Ack`] if
    /// it may go on.
    pub(crate) fn accept_read<P: Process>(
        &mut self,
        request: &Request,
        cx: &mut Context<'_, P>,
    ) -> Reply {
        let Some(from) = request.body.remote().filter(|_| self.is_for_here(request, cx.summary))
        else {
            return Reply::Dropped;
        };
        if let Some(injection) = self.take_wanted(request, cx) {
            return self.inject(injection, request, cx);
        }
        self.establish(cx);
        match self.check(request, from, cx) {
            Ok(()) => self.done(cx),
            Err(Stop::Refused(refusal)) => self.refuse(&refusal, cx),
            Err(Stop::Closed | Stop::Near(_)) => Reply::Dropped,
        }
    }

    /// Whether a request would be refused if it were carried out now. It takes the request's receive, and touches
    /// nothing else.
    pub(crate) fn would_refuse<P: Process>(
        &mut self,
        request: &Request,
        cx: &mut Context<'_, P>,
    ) -> bool {
        if self.wanted(request, cx).is_some() {
            return true;
        }
        match request.body {
            Body::Flush { .. } => self.check_flush(request, cx).is_err(),
            Body::Send
            | Body::SendImmediate(_)
            | Body::SendInvalidate(_)
            | Body::Write { .. }
            | Body::Read { .. }
            | Body::CompareSwap { .. }
            | Body::FetchAdd { .. }
            | Body::AtomicWrite { .. } => match request.body.remote() {
                Some(at) => matches!(self.check(request, at, cx), Err(Stop::Refused(_))),
                None => self.would_fail_receive(request, cx),
            },
        }
    }

    /// Whether a request is allowed now, for all of its bytes. Touches nothing.
    pub(super) fn check<P: Process>(
        &self,
        request: &Request,
        at: RemoteAddress,
        cx: &mut Context<'_, P>,
    ) -> Result<(), Stop> {
        let target = self.target(request, cx).map_err(Stop::Refused)?;
        target.check(request.body.operation(), at, request.total)
    }

    /// Copies part of a READ's data to the sink, after checking the rest of it again (rules INV-24, PSN-13).
    pub(crate) fn fetch<P: Process>(
        &mut self,
        request: &Request,
        sink: &mut dyn Sink,
        cx: &mut Context<'_, P>,
    ) -> Reply {
        self.try_fetch(request, sink, false, cx).unwrap_or_else(|refusal| self.refuse(&refusal, cx))
    }

    /// The same for a repeated READ. Its origin may have the data already, and a repeat by the network or a late clock
    /// is no reason to end a connection. So a refusal leaves the queue pair as it is (rule PSN-13). The READ has been
    /// counted (rule CC-11).
    pub(crate) fn fetch_again<P: Process>(
        &mut self,
        request: &Request,
        sink: &mut dyn Sink,
        cx: &mut Context<'_, P>,
    ) -> Reply {
        self.try_fetch(request, sink, true, cx).unwrap_or_else(|refusal| {
            cx.process.note_refusal(&refusal);
            Reply::Nak { code: refusal.reason.nak(), reason: refusal.reason.code() }
        })
    }

    fn try_fetch<P: Process>(
        &self,
        request: &Request,
        sink: &mut dyn Sink,
        again: bool,
        cx: &mut Context<'_, P>,
    ) -> Result<Reply, Refusal> {
        let Some(from) = request.body.remote() else { return Ok(Reply::Dropped) };
        let mut seen = Seen { process: cx.process, sink };
        let sink: &mut dyn Sink = if seen.process.decides_when() { &mut seen } else { seen.sink };
        let (target, part) = (self.target(request, cx)?, request.part());
        let mut told;
        let sink: &mut dyn Sink = match cx.process.witness() {
            Some(witness) => {
                let attempt = target.attempt(request.body.operation(), from, part.length);
                told = Told { data: sink, witness, attempt, offset: part.offset, again };
                &mut told
            }
            None => sink,
        };
        match target.read(from, part, sink) {
            Ok(()) => Ok(Reply::Data { length: request.length }),
            Err(Stop::Closed) => Ok(Reply::Dropped),
            Err(Stop::Near(_)) => Ok(Reply::OriginFailed),
            Err(Stop::Refused(refusal)) => Err(refusal),
        }
    }

    /// Refuses a request for what its packet is, an operation in the wrong place or of a wrong length.
    /// That a receive is there counts before its length (rule RA-01); the receive then carries the
    /// news, so no event does (rule AE-08).
    pub(crate) fn reject<P: Process>(
        &mut self,
        request: &Request,
        operation: Operation,
        reason: Reason,
        cx: &mut Context<'_, P>,
    ) -> Reply {
        let attempt = self.attempt(operation, request.length, cx);
        let refusal = Refusal::without_object(reason, attempt);
        let write = matches!(request.body, Body::Write { immediate: Some(_), .. });
        let receives = write || operation == Operation::Send;
        if reason != Reason::PacketLength || !receives {
            return self.refuse(&refusal, cx);
        }
        if let Err(why) = self.take(request, None, 0, cx) {
            return self.without_receive(why, request, cx);
        }
        if write {
            return self.spoil_receive(&refusal, cx);
        }
        self.fail_receive(&refusal, Status::LocalLength, cx)
    }
}
