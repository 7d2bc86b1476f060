//! The responder: carries out what arrives, in order, and answers.

use transom_wire::{NakCode, Psn, RnrTimer};

use super::one_sided::{Stop, Target, gate_allows};
use super::{
    Body, CopyError, LocalBuffers, QpEvent, QueueSide, Reply, Request, Services, Sink, Source,
};
use crate::protection::{Attempt, Key, Operation, Reason, Refusal, Stamp, invalidate};
use crate::qp::{Peering, QpState, Service};
use crate::queue::{Completion, Flags, Opcode, PostError, ReceiveRequest, Status, WorkRing};

/// A posted receive.
#[derive(Clone, Copy, Default)]
struct ReceiveWqe {
    wr_id: u64,
    pieces: usize,
    length: u64,
}

/// The receive queue and what it is in the middle of.
pub struct Responder {
    service: Service,
    ring: WorkRing<ReceiveWqe>,
    /// The number of the message that comes next; RC only.
    expected: Psn,
    /// How much of the message under way has been carried out.
    progress: u64,
    /// What a requester is told to wait when no receive is posted.
    pub min_rnr_timer: RnrTimer,
}

impl Responder {
    /// A responder with room for `size` receives of `pieces` pieces each.
    pub fn new(service: Service, size: usize, pieces: usize) -> Self {
        Self {
            service,
            ring: WorkRing::new(size, pieces, 0, ReceiveWqe::default()),
            expected: Psn::default(),
            progress: 0,
            min_rnr_timer: RnrTimer::new(0).expect("zero is a timer code"),
        }
    }

    /// Begins to receive: the first message will carry `first`.
    pub fn start(&mut self, first: Psn) {
        self.expected = first;
        self.progress = 0;
    }

    /// Forgets everything posted, without completions (rule ST-10).
    pub fn reset(&mut self) {
        self.ring.clear();
        self.progress = 0;
    }

    /// Posts a receive.
    pub fn post<S: Services>(
        &mut self,
        request: &ReceiveRequest<'_>,
        services: &S,
    ) -> Result<(), PostError> {
        let state = services.summary().gate().state;
        if state == QpState::Reset {
            return Err(PostError::WrongState);
        }
        if request.sges.len() > self.ring.pieces() {
            return Err(PostError::TooManyPieces);
        }
        if self.ring.is_full() {
            return Err(PostError::Full);
        }
        let length = LocalBuffers::length(request.sges);
        let wqe = ReceiveWqe { wr_id: request.wr_id, pieces: request.sges.len(), length };
        self.ring.push(wqe, request.sges, &[]);
        if state == QpState::Error {
            self.flush(services);
        }
        Ok(())
    }

    /// Completes all posted receives as flushed.
    pub fn flush<S: Services>(&mut self, services: &S) {
        while !self.ring.is_empty() {
            let mut completion = self.completion(services, Status::Flushed, Opcode::Receive);
            completion.byte_length = 0;
            self.ring.pop();
            services.complete(QueueSide::Receive, completion, false);
        }
        self.progress = 0;
    }

    /// Carries out one segment. `source` holds the segment's bytes, `sink` takes those of a READ.
    pub fn execute<S: Services>(
        &mut self,
        request: &Request,
        source: &mut dyn Source,
        sink: &mut dyn Sink,
        services: &S,
    ) -> Reply {
        if !self.accepts(request, services) {
            return Reply::Dropped;
        }
        self.establish(services);
        match request.body {
            Body::Send { immediate, invalidate } => {
                self.send(request, immediate, invalidate, source, services)
            }
            Body::Write { address, key, immediate } => {
                self.write(request, address, key, immediate, source, services)
            }
            Body::Read { address, key } => self.read(request, address, key, sink, services),
            Body::CompareSwap { address, key, swap, compare } => {
                let update = |old| if old == compare { swap } else { old };
                self.atomic(request, address, key, update, services)
            }
            Body::FetchAdd { address, key, add } => {
                self.atomic(request, address, key, |old: u64| old.wrapping_add(add), services)
            }
        }
    }

    /// Whether the segment is for this queue pair, now, and the next in order (rules RA-01, RA-03,
    /// PSN-02, OP-32). Anything else is as if a network had lost it.
    fn accepts<S: Services>(&mut self, request: &Request, services: &S) -> bool {
        let gate = services.summary().gate();
        let addressed = gate.receives()
            && request.service == self.service
            && services.summary().peering().from == request.from;
        let numbered = self.service == Service::Uc || request.message == self.expected;
        if !addressed || !numbered || request.offset.checked_add(request.length).is_none() {
            return false;
        }
        if request.offset == 0 {
            self.progress = 0;
        }
        request.offset == self.progress && request.offset + request.length <= request.total
    }

    /// Tells the program of the first request if it has not moved to RTS yet (rule RA-05).
    fn establish<S: Services>(&self, services: &S) {
        let summary = services.summary();
        let peering = summary.peering();
        if !peering.established {
            summary.set_peering(Peering { established: true, ..peering });
            if summary.gate().state == QpState::Rtr {
                services.event(QpEvent::Established);
            }
        }
    }

    fn send<S: Services>(
        &mut self,
        request: &Request,
        immediate: Option<u32>,
        key: Option<Key>,
        source: &mut dyn Source,
        services: &S,
    ) -> Reply {
        if self.ring.is_empty() {
            return self.not_ready();
        }
        let attempt = Attempt {
            operation: Operation::Send,
            key: Key(0),
            address: 0,
            length: request.total,
            qp: services.number().bits(),
            pd: services.summary().gate().pd,
        };
        let wqe = *self.ring.at(self.ring.head());
        if request.total > wqe.length {
            let mut refusal = Refusal::without_object(Reason::ReceiveTooSmall, attempt);
            refusal.object.length = wqe.length;
            return self.fail_receive(&refusal, Status::LocalLength, services);
        }
        let buffers = LocalBuffers {
            sges: self.ring.sges_at(self.ring.head(), wqe.pieces),
            keys: services.keys(),
            announcer: services.announcer(),
            waiter: services.waiter(),
            qp: attempt.qp,
            pd: attempt.pd,
        };
        let mut origin_failed = false;
        let placed =
            buffers.each(Operation::LocalWrite, request.offset, request.length, |offset, grant| {
                match source.copy_to(offset, grant) {
                    Err(CopyError::Near(refusal)) => {
                        origin_failed = true;
                        Err(CopyError::Near(refusal))
                    }
                    other => other,
                }
            });
        match placed {
            Ok(()) => {}
            Err(CopyError::Near(_)) if origin_failed => return Reply::OriginFailed,
            Err(CopyError::Near(refusal)) => {
                return self.fail_receive(&refusal, Status::LocalProtection, services);
            }
            Err(CopyError::Far) => {
                let refusal = Refusal::without_object(
                    Reason::MemoryGone,
                    Attempt { operation: Operation::LocalWrite, ..attempt },
                );
                return self.fail_receive(&refusal, Status::LocalProtection, services);
            }
        }
        self.progress += request.length;
        if !request.is_last() {
            return Reply::Silence;
        }
        if let Some(key) = key
            && let Err(refusal) = self.invalidate(key, services)
        {
            // Class J: the program is told, the peer is not (rule INV-35).
            self.fail_receive(&refusal, Status::WindowBind, services);
            return Reply::Dropped;
        }
        let mut completion = self.completion(services, Status::Success, Opcode::Receive);
        completion.byte_length = request.total as u32;
        if let Some(immediate) = immediate {
            completion.immediate = immediate;
            completion.flags = Flags::IMMEDIATE;
        } else if let Some(key) = key {
            completion.immediate = key.0;
            completion.flags = Flags::INVALIDATED;
        }
        self.consume(completion, request.solicited, services)
    }

    fn invalidate<S: Services>(&self, key: Key, services: &S) -> Result<(), Refusal> {
        let stamp = Stamp {
            qp: services.number().bits(),
            pd: services.summary().gate().pd,
            wr_id: 0,
            now: 0,
        };
        let operation = Operation::RemoteInvalidate;
        invalidate(&services.keys(), &services.qps(), operation, key, &stamp, services.waiter())
    }

    fn write<S: Services>(
        &mut self,
        request: &Request,
        address: u64,
        key: Key,
        immediate: Option<u32>,
        source: &mut dyn Source,
        services: &S,
    ) -> Reply {
        let takes_receive = immediate.is_some() && request.is_last();
        if takes_receive && self.ring.is_empty() {
            return self.not_ready();
        }
        let target = self.target(services);
        let (offset, length, total) = (request.offset, request.length, request.total);
        match target.write(address, key, offset, length, total, source) {
            Ok(()) => {}
            Err(Stop::Closed) => return Reply::Dropped,
            Err(Stop::Near(_)) => return Reply::OriginFailed,
            Err(Stop::Refused(refusal)) if immediate.is_some() && !self.ring.is_empty() => {
                return self.spoil_receive(&refusal, services);
            }
            Err(Stop::Refused(refusal)) => return self.refuse(&refusal, services),
        }
        self.progress += request.length;
        if !request.is_last() {
            return Reply::Silence;
        }
        let Some(immediate) = immediate else { return self.done() };
        let opcode = Opcode::ReceiveWriteImmediate;
        let mut completion = self.completion(services, Status::Success, opcode);
        completion.byte_length = request.total as u32;
        completion.immediate = immediate;
        completion.flags = Flags::IMMEDIATE;
        self.consume(completion, request.solicited, services)
    }

    fn read<S: Services>(
        &mut self,
        request: &Request,
        address: u64,
        key: Key,
        sink: &mut dyn Sink,
        services: &S,
    ) -> Reply {
        let target = self.target(services);
        let (offset, length, total) = (request.offset, request.length, request.total);
        match target.read(address, key, offset, length, total, sink) {
            Ok(()) => {}
            Err(Stop::Closed) => return Reply::Dropped,
            Err(Stop::Near(_)) => return Reply::OriginFailed,
            Err(Stop::Refused(refusal)) => return self.refuse(&refusal, services),
        }
        self.progress += request.length;
        if request.is_last() {
            self.done();
        }
        Reply::Data { length: request.length }
    }

    fn atomic<S: Services>(
        &mut self,
        request: &Request,
        address: u64,
        key: Key,
        mut update: impl FnMut(u64) -> u64,
        services: &S,
    ) -> Reply {
        let gate = services.summary().gate();
        let attempt = Attempt {
            operation: Operation::Atomic,
            key,
            address,
            length: 8,
            qp: services.number().bits(),
            pd: gate.pd,
        };
        // Alignment counts before the key (rule AT-02).
        let early = gate_allows(&gate, Operation::Atomic)
            .and(if address.is_multiple_of(8) { Ok(()) } else { Err(Reason::Misaligned) })
            .and(if request.total == 8 { Ok(()) } else { Err(Reason::AtomicLength) });
        if let Err(reason) = early {
            return self.refuse(&Refusal::without_object(reason, attempt), services);
        }
        let keys = services.keys();
        let old = match keys.grant(attempt, services.announcer(), services.waiter()) {
            Err(refusal) => return self.refuse(&refusal, services),
            Ok(grant) => services.atomic(&grant, &mut update),
        };
        match old {
            Ok(old) => {
                self.done();
                Reply::Atomic(old)
            }
            Err(super::MemoryGone) => {
                let object = keys.look_up(key);
                let reason = Reason::MemoryGone;
                self.refuse(&Refusal { reason, attempt, object }, services)
            }
        }
    }

    fn target<'m, S: Services>(&self, services: &'m S) -> Target<'m> {
        Target {
            keys: services.keys(),
            summary: services.summary(),
            number: services.number(),
            announcer: services.announcer(),
            waiter: services.waiter(),
        }
    }

    /// The message is done; the next one may come.
    fn done(&mut self) -> Reply {
        self.progress = 0;
        self.expected = self.expected.plus(1);
        if self.service == Service::Rc { Reply::Ack } else { Reply::Silence }
    }

    /// The message is done and completes the receive it took.
    fn consume<S: Services>(
        &mut self,
        completion: Completion,
        solicited: bool,
        services: &S,
    ) -> Reply {
        self.ring.pop();
        let reply = self.done();
        services.acknowledge(reply);
        services.complete(QueueSide::Receive, completion, solicited);
        reply
    }

    /// No receive is posted: RC asks to try again, UC drops the message (rules RN-01, UC-03).
    fn not_ready(&mut self) -> Reply {
        self.progress = 0;
        match self.service {
            Service::Rc => Reply::NotReady(self.min_rnr_timer),
            Service::Uc => Reply::Silence,
        }
    }

    /// Refuses a request that has taken no receive: RC falls into error and raises an event
    /// (rules RA-40 to RA-47, RA-51); UC drops the message (rule RA-48).
    fn refuse<S: Services>(&mut self, refusal: &Refusal, services: &S) -> Reply {
        services.refused(refusal);
        self.progress = 0;
        if self.service == Service::Uc {
            return Reply::Silence;
        }
        let nak = refusal.reason.nak();
        services.event(match nak {
            NakCode::RemoteAccess => QpEvent::AccessError,
            _ => QpEvent::RequestError,
        });
        self.fall(services);
        Reply::Nak { code: nak, reason: refusal.reason.code() }
    }

    /// Refuses a WRITE with immediate that has a receive: the receive carries the news, so no event
    /// does (rules RA-46, AE-08).
    fn spoil_receive<S: Services>(&mut self, refusal: &Refusal, services: &S) -> Reply {
        if self.service == Service::Uc {
            return self.refuse(refusal, services);
        }
        services.refused(refusal);
        let mut completion =
            self.completion(services, Status::LocalAccess, Opcode::ReceiveWriteImmediate);
        completion.vendor_error = u32::from(refusal.reason.code());
        self.ring.pop();
        services.complete(QueueSide::Receive, completion, false);
        self.fall(services);
        Reply::Nak { code: refusal.reason.nak(), reason: refusal.reason.code() }
    }

    /// The receive itself cannot take the message (rules RA-52, RA-53, LA-02).
    fn fail_receive<S: Services>(
        &mut self,
        refusal: &Refusal,
        status: Status,
        services: &S,
    ) -> Reply {
        services.refused(refusal);
        let mut completion = self.completion(services, status, Opcode::Receive);
        completion.vendor_error = u32::from(refusal.reason.code());
        self.ring.pop();
        services.complete(QueueSide::Receive, completion, false);
        self.fall(services);
        let code = match status {
            Status::LocalLength => NakCode::InvalidRequest,
            _ => NakCode::RemoteOperational,
        };
        match self.service {
            Service::Uc => Reply::Silence,
            Service::Rc => Reply::Nak { code, reason: refusal.reason.code() },
        }
    }

    /// Falls into error and flushes both queues.
    fn fall<S: Services>(&mut self, services: &S) {
        services.summary().fall(QpState::Error);
        self.flush(services);
        services.flush_other(QueueSide::Receive);
    }

    fn completion<S: Services>(&self, services: &S, status: Status, opcode: Opcode) -> Completion {
        Completion {
            wr_id: self.ring.at(self.ring.head()).wr_id,
            status,
            opcode,
            vendor_error: 0,
            byte_length: 0,
            immediate: 0,
            qp: services.number().bits(),
            flags: Flags::empty(),
            source_qp: 0,
            time: 0,
        }
    }
}
