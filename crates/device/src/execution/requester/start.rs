//! Starting: the conditions for a work request to begin, and its way to the link.

use super::super::{
    Context, Direct, MAX_MESSAGE, OneSided, Payload, Process, Reply, Request, Sent, Why, one_sided,
    packets,
};
use super::wqe::{Progress, SendWqe};
use super::{Requester, Step, buffers};
use crate::operation::Data;
use crate::protection::{
    Operation, Reason, Refusal, Stamp, bind_type1, bind_type2, invalidate, unbind_type1,
};
use crate::qp::{QpNumber, Service};
use crate::queue::{Body, Datagram, LocalOp, Remote, SendFlags, SendOp, Status};

/// The smallest path MTU there is, in bytes (rule PK-11): so much gets anywhere.
const SHORTEST_MTU: u64 = 256;

impl Requester {
    /// Whether the requests on their way let the work request begin.
    pub(super) fn may_start(&self, wqe: &SendWqe) -> bool {
        let first = self.under_way.next == self.ring.head();
        let fenced = wqe.flags.contains(SendFlags::FENCE) && self.service.is_reliable();
        if fenced && self.under_way.reading > 0 {
            return false;
        }
        // Messages for the queues of different processes take different ways; one way at a time keeps
        // them in order.
        let xrc = self.service == Service::XrcInitiator;
        if xrc
            && !first
            && self.remotes.at(self.under_way.next).process() != Some(self.under_way.route)
        {
            return false;
        }
        match wqe.op {
            // Local operations are strict: all before them are done (rules ORD-12, ORD-16).
            SendOp::Local(_) | SendOp::Unsupported => first,
            SendOp::Message(body) if body.uses_read_resources() => {
                first || self.under_way.reading < u32::from(self.connection.max_rd_atomic)
            }
            SendOp::Message(_) => true,
        }
    }

    pub(super) fn local_operation<P: Process>(
        &mut self,
        cx: &mut Context<'_, P>,
        wqe: &SendWqe,
        op: LocalOp,
    ) -> Step {
        let (keys, waiter, witness) =
            (cx.process.keys(), cx.process.waiter(), cx.process.witness());
        let mut stamp =
            Stamp { qp: cx.number.bits(), pd: cx.summary.gate().pd, wr_id: wqe.wr_id, now: 0 };
        let done = match op {
            LocalOp::BindType1(bind) if bind.length == 0 => {
                unbind_type1(&keys, &bind, &stamp, waiter, witness)
            }
            LocalOp::BindType1(bind) => {
                stamp.now = cx.process.now();
                bind_type1(&keys, &bind, &stamp, waiter, witness)
            }
            LocalOp::BindType2(bind) => {
                stamp.now = cx.process.now();
                bind_type2(&keys, cx.summary, &bind, &stamp, waiter, witness)
            }
            LocalOp::Invalidate(key) => {
                let operation = Operation::Invalidate;
                invalidate(&keys, &cx.process.qps(), operation, key, &stamp, waiter, witness)
            }
        };
        match done {
            Ok(()) => {
                self.under_way.next += 1;
                self.complete_head(cx, Status::Success, 0);
                Step::Done
            }
            Err(refusal) => {
                self.refuse_head(cx, Status::WindowBind, &refusal);
                Step::Waits
            }
        }
    }

    /// Starts a message, or goes on with one that the link could not take whole.
    pub(super) fn start_message<P: Process>(
        &mut self,
        cx: &mut Context<'_, P>,
        wqe: &SendWqe,
        body: Body,
    ) -> Step {
        if wqe.progress == Progress::Waiting {
            if let Some((status, why)) = self.malformed(cx, wqe, body) {
                // In order: whatever is under way completes first.
                if self.under_way.next == self.ring.head() {
                    self.fail_head(cx, status, why);
                }
                return Step::Waits;
            }
            if self.under_way.next == self.ring.head() && body.remote().is_some() {
                let remote = self.remotes.at(self.under_way.next);
                match self.try_direct(cx, &body, &remote, self.payload(), wqe.length) {
                    Direct::Done => {
                        self.retry.reload();
                        self.under_way.next += 1;
                        self.complete_head(cx, Status::Success, wqe.length);
                        return Step::Done;
                    }
                    Direct::Near(refusal) => {
                        self.refuse_head(cx, Status::LocalProtection, &refusal);
                        return Step::Waits;
                    }
                    Direct::Declined => {}
                }
            }
            if let Err(refusal) = self.check_gather(cx, wqe, body) {
                if self.under_way.next == self.ring.head() {
                    self.refuse_head(cx, Status::LocalProtection, &refusal);
                }
                return Step::Waits;
            }
            let message = self.under_way.next_psn;
            let numbers = self.connection.link.mtu.map_or(1, |mtu| packets(wqe.length, mtu));
            self.under_way.next_psn = message.plus(numbers);
            self.under_way.route =
                self.remotes.at(self.under_way.next).process().unwrap_or(self.under_way.route);
            let started = self.ring.at_mut(self.under_way.next);
            started.message = message;
            started.progress = Progress::Started { sent: 0, answered: 0 };
        }
        self.segment(cx, body).map_or(Step::Waits, Step::Send)
    }

    /// The error in a message, before any key is checked.
    fn malformed<P: Process>(
        &self,
        cx: &mut Context<'_, P>,
        wqe: &SendWqe,
        body: Body,
    ) -> Option<(Status, Why)> {
        let (long, operation) = (Status::LocalLength, Status::LocalQpOperation);
        if let Remote::Datagram(datagram) = self.remotes.at(self.under_way.next) {
            let pd = cx.summary.gate().pd;
            if datagram.pd != pd {
                let why = Why::Unfit(Reason::OtherPd, datagram.pd.into(), pd.into());
                return Some((operation, why));
            }
            if wqe.length > SHORTEST_MTU {
                let limit = cx.process.datagram_limit(&datagram.address);
                if wqe.length > limit {
                    return Some((long, Why::Unfit(Reason::TooLong, wqe.length, limit)));
                }
            }
        }
        if wqe.length > MAX_MESSAGE {
            return Some((long, Why::Unfit(Reason::TooLong, wqe.length, MAX_MESSAGE)));
        }
        let needs = body.operation().needs();
        if !needs.services.include(self.service) {
            return Some((operation, Why::Unfit(Reason::WrongService, 0, 0)));
        }
        if needs.responder_resources && self.connection.max_rd_atomic == 0 {
            return Some((operation, Why::Unfit(Reason::NoReadsSent, 0, 1)));
        }
        let wanted = match (needs.word, needs.data) {
            (Some(_), _) => 8,
            (None, Data::None) => 0,
            (None, Data::Sent | Data::Fetched | Data::OldValue) => return None,
        };
        let why = Why::Unfit(Reason::AtomicLength, wqe.length, wanted);
        (wqe.length != wanted).then_some((long, why))
    }

    /// The direct path, for a WRITE, READ or atomic with nothing older on its way that is not done at once.
    #[inline(never)]
    pub(super) fn try_direct<P: Process>(
        &self,
        cx: &mut Context<'_, P>,
        body: &Body,
        remote: &Remote,
        payload: Payload<'_>,
        length: u64,
    ) -> Direct {
        let Some(operation) = OneSided::of(body, payload, length) else { return Direct::Declined };
        // A list that fails half-way would leave half a message behind (rule LA-06).
        if let OneSided::Write { data: Payload::Buffers(sges), .. } = operation
            && (sges.len() > 1 || length > one_sided::CHUNK)
            && let Err(refusal) = buffers(cx, sges).check(Operation::LocalRead)
        {
            return Direct::Near(refusal);
        }
        cx.process.carry_out_direct(self.under_way.next, operation, remote.srq(), length)
    }

    /// The local data of the work request of which [`Requester::next_segment`] has handed out a segment. For a READ or
    /// atomic, it is the destination of the data, if the link carries it out at once.
    pub fn payload(&self) -> Payload<'_> {
        let wqe = self.ring.at(self.under_way.next);
        if wqe.flags.contains(SendFlags::INLINE) {
            Payload::Inline(self.ring.inline_at(self.under_way.next, wqe.length as usize))
        } else {
            Payload::Buffers(self.ring.sges_at(self.under_way.next, wqe.num_sge))
        }
    }

    /// Checks the buffers of a SEND or WRITE (rule LA-19), unless the link checks them as it takes the data. READs and
    /// atomics are checked when their data is stored (rules LA-08, LA-20).
    fn check_gather<P: Process>(
        &self,
        cx: &mut Context<'_, P>,
        wqe: &SendWqe,
        body: Body,
    ) -> Result<(), Refusal> {
        if body.returns_data() || wqe.length <= self.connection.link.copied {
            return Ok(());
        }
        let sges = self.ring.sges_at(self.under_way.next, wqe.num_sge);
        buffers(cx, sges).check(Operation::LocalRead)
    }

    /// The next segment of the message at `next`, which has been started; `None` if it must wait.
    fn segment<P>(&self, cx: &Context<'_, P>, body: Body) -> Option<Request> {
        let wqe = self.ring.at(self.under_way.next);
        let Progress::Started { sent, .. } = wqe.progress else { return None };
        let length = self.segment_length(wqe, body, sent)?;
        let (to, remote) = match self.remotes.at(self.under_way.next) {
            Remote::Datagram(datagram) => {
                let qkey =
                    if datagram.qkey >> 31 == 1 { self.connection.qkey } else { datagram.qkey };
                (QpNumber::from_bits(datagram.qp), Remote::Datagram(Datagram { qkey, ..datagram }))
            }
            connected => (self.connection.peer, connected),
        };
        Some(Request {
            to,
            from: cx.number,
            service: self.service,
            remote,
            message: wqe
                .message
                .plus(self.connection.link.mtu.map_or(0, |mtu| (sent / mtu) as u32)),
            attempt: self.under_way.attempt,
            body,
            offset: sent,
            length,
            total: wqe.length,
            solicited: wqe.flags.contains(SendFlags::SOLICITED),
        })
    }

    /// The link has taken the segment that [`Requester::next_segment`] has handed out, or not. Whether
    /// there may be a next one.
    pub fn sent<P: Process>(
        &mut self,
        request: &Request,
        outcome: Sent,
        cx: &mut Context<'_, P>,
    ) -> bool {
        let wqe = *self.ring.at(self.under_way.next);
        let Progress::Started { sent, answered } = wqe.progress else { return false };
        match outcome {
            Sent::Busy => return false,
            Sent::Near(refusal) => {
                // Found as it was copied, or the region went away since it was checked. Complete in order.
                if self.under_way.next == self.ring.head() {
                    self.refuse_head(cx, Status::LocalProtection, &refusal);
                } else {
                    self.under_way.reading -= self.reads_of(self.under_way.next, self.read_unit());
                    self.under_way.begun =
                        self.under_way.begun.max(self.under_way.next + u64::from(sent > 0));
                    self.ring.at_mut(self.under_way.next).progress = Progress::Waiting;
                    self.under_way.next_psn = wqe.message;
                }
                return false;
            }
            Sent::Queued | Sent::Answered(_) | Sent::Unreachable => {}
        }
        let position = self.under_way.next;
        let reads = self.reads_of(position, self.read_unit());
        let sent = sent + request.length;
        self.ring.at_mut(position).progress = Progress::Started { sent, answered };
        if request.is_last() {
            self.under_way.next += 1;
        }
        self.under_way.reading += self.reads_of(position, self.read_unit()) - reads;
        if !self.service.is_reliable() {
            if request.is_last() {
                self.complete_unacknowledged(cx);
            }
            return true;
        }
        self.note_sent(request, cx);
        let reply = match outcome {
            Sent::Answered(reply) => reply,
            // Packets that go nowhere are missed when their time is over.
            Sent::Unreachable if self.connection.link.mtu.is_none() => Reply::Dropped,
            _ => return true,
        };
        self.on_reply(request.message, request.attempt, reply, None, cx);
        true
    }
}
