//! What links that carry packets ask of a responder beside carrying out segments: READs whose data
//! goes out bit by bit, while later requests are carried out, and packets that are wrong themselves.

use super::super::one_sided::Stop;
use super::super::{Reply, Request, Services, Sink};
use super::Responder;
use crate::protection::{Operation, Reason, Refusal, RemoteAddress};
use crate::queue::{Body, Status};

impl Responder {
    /// Takes a READ, all of which is checked; [`Responder::fetch`] gets its data later. The answer is
    /// [`Reply::Ack`] if it may go on.
    pub(crate) fn accept_read<S: Services>(
        &mut self,
        request: &Request,
        from: RemoteAddress,
        services: &S,
    ) -> Reply {
        if !self.accepts(request, services) {
            return Reply::Dropped;
        }
        if let Some(injection) = self.take_wanted(request, services) {
            return self.inject(injection, request, services);
        }
        self.establish(services);
        match self.check(request, from, services) {
            Ok(()) => self.done(services),
            Err(Stop::Refused(refusal)) => self.refuse(&refusal, services),
            Err(Stop::Closed | Stop::Near(_)) => Reply::Dropped,
        }
    }

    /// Whether a request would be refused if it were carried out now. It takes the receive that the
    /// request is to have, and touches nothing else.
    pub(crate) fn would_refuse<S: Services>(&mut self, request: &Request, services: &S) -> bool {
        if self.wanted(request, services).is_some() {
            return true;
        }
        match request.body {
            Body::Flush { .. } => self.check_flush(request, services).is_err(),
            Body::Send
            | Body::SendImmediate(_)
            | Body::SendInvalidate(_)
            | Body::Write { .. }
            | Body::Read { .. }
            | Body::CompareSwap { .. }
            | Body::FetchAdd { .. }
            | Body::AtomicWrite { .. } => match request.body.remote() {
                Some(at) => matches!(self.check(request, at, services), Err(Stop::Refused(_))),
                None => self.would_fail_receive(request, services),
            },
        }
    }

    /// Whether what a request asks is allowed now, for all of its bytes; touches nothing.
    pub(super) fn check<S: Services>(
        &self,
        request: &Request,
        at: RemoteAddress,
        services: &S,
    ) -> Result<(), Stop> {
        let target = self.target(request, services).map_err(Stop::Refused)?;
        target.check(request.body.operation(), at, request.total)
    }

    /// Copies part of a READ's data to the sink, after the rest of it has been checked anew
    /// (rules INV-24, PSN-13).
    pub(crate) fn fetch<S: Services>(
        &mut self,
        request: &Request,
        from: RemoteAddress,
        sink: &mut dyn Sink,
        services: &S,
    ) -> Reply {
        let target = match self.target(request, services) {
            Ok(target) => target,
            Err(refusal) => return self.refuse(&refusal, services),
        };
        match target.read(from, request.part(), sink) {
            Ok(()) => Reply::Data { length: request.length },
            Err(Stop::Closed) => Reply::Dropped,
            Err(Stop::Near(_)) => Reply::OriginFailed,
            Err(Stop::Refused(refusal)) => self.refuse(&refusal, services),
        }
    }

    /// Refuses a request for what its packet is, an operation in the wrong place or of a wrong length.
    /// That a receive is there counts before its length (rule RA-01); the receive then carries the
    /// news, so no event does (rule AE-08).
    pub(crate) fn reject<S: Services>(
        &mut self,
        request: &Request,
        operation: Operation,
        reason: Reason,
        services: &S,
    ) -> Reply {
        let attempt = self.attempt(operation, request.length, services);
        let refusal = Refusal::without_object(reason, attempt);
        let write = matches!(request.body, Body::Write { immediate: Some(_), .. });
        let receives = write || operation == Operation::Send;
        if reason != Reason::PacketLength || !receives {
            return self.refuse(&refusal, services);
        }
        if let Err(why) = self.take(request, None, 0, services) {
            return self.without_receive(why, request, services);
        }
        if write {
            return self.spoil_receive(&refusal, services);
        }
        self.fail_receive(&refusal, Status::LocalLength, services)
    }
}
