//! Starting: what a work request needs before it may begin, and its way to the link.

use super::super::{
    Direct, MAX_MESSAGE, Origin, Payload, Reply, Request, Sent, one_sided, packets,
};
use super::wqe::{Progress, SendWqe};
use super::{Requester, buffers};
use crate::operation::Data;
use crate::protection::{
    Operation, Reason, Refusal, RemoteAddress, Stamp, bind_type1, bind_type2, invalidate,
    unbind_type1,
};
use crate::qp::{QpNumber, Service};
use crate::queue::{Body, Datagram, LocalOp, Remote, SendFlags, SendOp, Status};

/// The smallest path MTU there is, in bytes (rule PK-11): so much gets anywhere.
const SHORTEST_MTU: u64 = 256;

impl Requester {
    /// Whether what is under way lets the work request begin.
    pub(super) fn may_start(&self, wqe: &SendWqe) -> bool {
        let first = self.next == self.ring.head();
        let fenced = wqe.flags.contains(SendFlags::FENCE) && self.service.is_reliable();
        if fenced && self.reading > 0 {
            return false;
        }
        // Messages for the queues of different processes take different ways; one way at a time keeps
        // them in order.
        let xrc = self.service == Service::XrcInitiator;
        if xrc && !first && self.remote_at(self.next).process() != Some(self.route) {
            return false;
        }
        match wqe.op {
            // Local operations are strict: all before them are done (rules ORD-12, ORD-16).
            SendOp::Local(_) | SendOp::Unsupported => first,
            SendOp::Message(body) if body.uses_read_resources() => {
                first || self.reading < u32::from(self.max_rd_atomic)
            }
            SendOp::Message(_) => true,
        }
    }

    pub(super) fn local_operation<O: Origin>(
        &mut self,
        origin: &O,
        wqe: &SendWqe,
        op: LocalOp,
    ) -> bool {
        let (keys, waiter) = (origin.keys(), origin.waiter());
        let mut stamp = Stamp {
            qp: origin.number().bits(),
            pd: origin.summary().gate().pd,
            wr_id: wqe.wr_id,
            now: 0,
        };
        let done = match op {
            LocalOp::BindType1(bind) if bind.length == 0 => {
                unbind_type1(&keys, &bind, &stamp, waiter)
            }
            LocalOp::BindType1(bind) => {
                stamp.now = origin.now();
                bind_type1(&keys, &bind, &stamp, waiter)
            }
            LocalOp::BindType2(bind) => {
                stamp.now = origin.now();
                bind_type2(&keys, origin.summary(), &bind, &stamp, waiter)
            }
            LocalOp::Invalidate(key) => {
                let operation = Operation::Invalidate;
                invalidate(&keys, &origin.qps(), operation, key, &stamp, waiter)
            }
        };
        match done {
            Ok(()) => {
                self.next += 1;
                self.complete_head(origin, Status::Success, 0);
                true
            }
            Err(refusal) => self.refuse_head(origin, Status::WindowBind, &refusal),
        }
    }

    /// Starts a message, or goes on with one that the link could not take whole.
    pub(super) fn start_message<O: Origin>(
        &mut self,
        origin: &O,
        wqe: &SendWqe,
        body: Body,
    ) -> bool {
        if wqe.progress == Progress::Waiting {
            if let Some((status, reason)) = self.malformed(origin, wqe, body) {
                // In order: whatever is under way completes first.
                if self.next == self.ring.head() {
                    self.fail_head(origin, status, reason.code());
                }
                return false;
            }
            if self.next == self.ring.head() {
                match self.try_direct(origin, &body, self.payload(wqe), wqe.length) {
                    Direct::Done => {
                        self.next += 1;
                        self.complete_head(origin, Status::Success, wqe.length);
                        return true;
                    }
                    Direct::Near(refusal) => {
                        return self.refuse_head(origin, Status::LocalProtection, &refusal);
                    }
                    Direct::Declined => {}
                }
            }
            if let Err(refusal) = self.check_gather(origin, wqe, body) {
                if self.next == self.ring.head() {
                    self.refuse_head(origin, Status::LocalProtection, &refusal);
                }
                return false;
            }
            let message = self.message;
            let numbers = origin.path_mtu().map_or(1, |mtu| packets(wqe.length, mtu));
            self.message = message.plus(numbers);
            self.route = self.remote_at(self.next).process().unwrap_or(self.route);
            let started = self.ring.at_mut(self.next);
            started.message = message;
            started.progress = Progress::Started { sent: 0, answered: 0 };
        }
        self.send_segment(origin, body)
    }

    /// What is wrong with a message before any key is looked at.
    fn malformed<O: Origin>(
        &self,
        origin: &O,
        wqe: &SendWqe,
        body: Body,
    ) -> Option<(Status, Reason)> {
        if let Remote::Datagram(datagram) = self.remote_at(self.next) {
            if datagram.pd != origin.summary().gate().pd {
                return Some((Status::LocalQpOperation, Reason::OtherPd));
            }
            let short = wqe.length <= SHORTEST_MTU;
            if !short && wqe.length > origin.datagram_limit(&datagram.address) {
                return Some((Status::LocalLength, Reason::TooLong));
            }
        }
        if wqe.length > MAX_MESSAGE {
            return Some((Status::LocalLength, Reason::TooLong));
        }
        let needs = body.operation().needs();
        let unserved = needs.responder_resources && self.max_rd_atomic == 0;
        if unserved || !needs.services.include(self.service) {
            return Some((Status::LocalQpOperation, Reason::WrongService));
        }
        let wrong = match (needs.word, needs.data) {
            (Some(_), _) => wqe.length != 8,
            (None, Data::None) => wqe.length != 0,
            (None, Data::Sent | Data::Fetched | Data::OldValue) => false,
        };
        if wrong {
            return Some((Status::LocalLength, Reason::AtomicLength));
        }
        None
    }

    /// The direct way, for a WRITE or READ with nothing older under way.
    #[inline]
    pub(super) fn try_direct<O: Origin>(
        &self,
        origin: &O,
        body: &Body,
        payload: Payload<'_>,
        length: u64,
    ) -> Direct {
        match (body, payload) {
            (&Body::Write { address, key, immediate: None }, _) => {
                // A list that fails half-way would leave half a message behind (rule LA-06).
                if let Payload::Buffers(sges) = payload
                    && (sges.len() > 1 || length > one_sided::CHUNK)
                    && let Err(refusal) = buffers(origin, sges).check(Operation::LocalRead)
                {
                    return Direct::Near(refusal);
                }
                origin.write_direct(RemoteAddress { address, key }, payload, length)
            }
            (&Body::Read { address, key }, Payload::Buffers(sges)) => {
                origin.read_direct(RemoteAddress { address, key }, sges, length)
            }
            _ => Direct::Declined,
        }
    }

    fn payload(&self, wqe: &SendWqe) -> Payload<'_> {
        if wqe.flags.contains(SendFlags::INLINE) {
            Payload::Inline(self.ring.inline_at(self.next, wqe.length as usize))
        } else {
            Payload::Buffers(self.ring.sges_at(self.next, wqe.pieces))
        }
    }

    /// Checks what a SEND or WRITE will gather (rule LA-19). READs and atomics are judged when
    /// their data is stored (rules LA-08, LA-20).
    fn check_gather<O: Origin>(
        &self,
        origin: &O,
        wqe: &SendWqe,
        body: Body,
    ) -> Result<(), Refusal> {
        if body.returns_data() {
            return Ok(());
        }
        let sges = self.ring.sges_at(self.next, wqe.pieces);
        buffers(origin, sges).check(Operation::LocalRead)
    }

    /// Hands the next segment of the message at `next` to the link.
    fn send_segment<O: Origin>(&mut self, origin: &O, body: Body) -> bool {
        let wqe = *self.ring.at(self.next);
        let Progress::Started { sent, answered } = wqe.progress else {
            unreachable!("only a started message is sent");
        };
        let Some(length) = self.segment_length(origin, &wqe, body, sent) else { return false };
        let (to, remote) = match self.remote_at(self.next) {
            Remote::Datagram(datagram) => {
                let qkey = if datagram.qkey >> 31 == 1 { self.qkey } else { datagram.qkey };
                (QpNumber::from_bits(datagram.qp), Remote::Datagram(Datagram { qkey, ..datagram }))
            }
            connected => (origin.peer(), connected),
        };
        let request = Request {
            to,
            from: origin.number(),
            service: self.service,
            remote,
            message: wqe.message.plus(origin.path_mtu().map_or(0, |mtu| (sent / mtu) as u32)),
            attempt: self.attempt,
            body,
            offset: sent,
            length,
            total: wqe.length,
            solicited: wqe.flags.contains(SendFlags::SOLICITED),
        };
        let outcome = origin.send(&request, self.payload(&wqe));
        match outcome {
            Sent::Busy => return false,
            Sent::Near(refusal) => {
                // Checked before, so the region went away meanwhile. Complete in order.
                if self.next == self.ring.head() {
                    self.refuse_head(origin, Status::LocalProtection, &refusal);
                } else {
                    self.reading -= self.reads_of(self.next, self.read_unit(origin));
                    self.begun = self.begun.max(self.next + u64::from(sent > 0));
                    self.ring.at_mut(self.next).progress = Progress::Waiting;
                    self.message = wqe.message;
                }
                return false;
            }
            Sent::Queued | Sent::Answered(_) | Sent::Unreachable => {}
        }
        let position = self.next;
        let reads = self.reads_of(position, self.read_unit(origin));
        let sent = sent + length;
        self.ring.at_mut(position).progress = Progress::Started { sent, answered };
        if request.is_last() {
            self.next += 1;
        }
        self.reading += self.reads_of(position, self.read_unit(origin)) - reads;
        if !self.service.is_reliable() {
            if request.is_last() {
                self.complete_unacknowledged(origin);
            }
            return true;
        }
        self.note_sent(request.message, length, origin);
        let reply = match outcome {
            Sent::Answered(reply) => reply,
            // Packets that go nowhere are missed when their time is over.
            Sent::Unreachable if origin.path_mtu().is_none() => Reply::Dropped,
            _ => return true,
        };
        self.on_reply(request.message, request.attempt, reply, None, origin);
        true
    }
}
