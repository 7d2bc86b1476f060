//! The responder: carries out arriving requests in order, and answers.
//!
//! | module | holds |
//! |---|---|
//! | [`held_back`] | WRITEs of which a rehearsal decides when they are seen |
//! | [`one_sided`] | WRITE, READ, atomics, FLUSH |
//! | [`receive`], [`receives`] | messages that take a receive, and where it comes from |
//! | [`tag_matching`] | messages to a shared receive queue that matches tags |
//! | [`packets`] | what only links with packets ask for |

mod held_back;
mod one_sided;
mod packets;
mod placement;
mod receive;
mod receives;
mod tag_matching;

use core::mem;
use std::sync::Arc;

use tracing::debug;
use transom_wire::{NakCode, Psn, RnrTimer};

use self::receive::NoReceive;
use self::receives::ReceiveSource;
pub use self::receives::Receives;
use super::rendezvous::MAX_RENDEZVOUS;
use super::{
    Context, Counted, Effect, Effects, Injection, Process, QpEvent, QueueSide, Reply, Request,
    Sink, Source, Tally, Unheard,
};
use crate::operation::Operation;
use crate::protection::{Reason, Refusal, RemoteAddress};
use crate::qp::{Look, QpState, QpSummary, Service};
use crate::queue::{Body, Receive, ReceiveQueue, Remote, Returned, SizeError};

/// The receiving half of a queue pair, and the message that it is in the middle of.
pub struct Responder {
    service: Service,
    receives: ReceiveSource,
    message: MessageUnderWay,
    /// The injected answer to the next request, once that has been asked for.
    wanted: Option<Option<Injection>>,
    /// The number of the next message. For XRC the summary has it, because another process may have carried out the one
    /// before; this is its value when this end last looked.
    expected_psn: Psn,
    /// How long a requester must wait when no receive is posted.
    pub min_rnr_timer: RnrTimer,
    /// The Q_Key that datagrams must bring (rule UD-05).
    pub qkey: u32,
    ran_dry: RanDry,
}

/// Messages that found no receive, and were asked to come again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RanDry {
    /// How often.
    pub times: u64,
    /// How long their senders were asked to wait in all, in nanoseconds.
    pub waits: u64,
}

/// How many receives one call flushes at most. Only a shared queue has rendezvous; then they can all be flushed, and the
/// receive that is taken.
const FLUSHED_AT_ONCE: usize = MAX_RENDEZVOUS + 1;

/// The message that a responder is in the middle of.
struct MessageUnderWay {
    /// Its receive, if `has_taken`.
    taken: Receive,
    has_taken: bool,
    /// How much of it has been carried out.
    progress: u64,
}

impl Responder {
    /// A responder whose receives have at most `max_sge` scatter/gather entries, wherever they come
    /// from.
    pub fn new(service: Service, receives: Receives, max_sge: usize) -> Result<Self, SizeError> {
        Ok(Self {
            service,
            receives: ReceiveSource::new(receives)?,
            message: MessageUnderWay {
                taken: Receive::with_room(max_sge)?,
                has_taken: false,
                progress: 0,
            },
            wanted: None,
            expected_psn: Psn::default(),
            min_rnr_timer: RnrTimer::new(0).expect("zero is a timer code"),
            qkey: 0,
            ran_dry: RanDry::default(),
        })
    }

    /// Polls give back the places of its own receive queue here.
    pub fn returned(&self) -> Option<&Arc<Returned>> {
        self.receives.own().map(ReceiveQueue::returned)
    }

    /// How many places its own queue has in all, and how many of them hold receives that wait; for explanations.
    pub fn occupancy(&self) -> (usize, usize) {
        self.receives.own().map_or((0, 0), |queue| (queue.size(), queue.len()))
    }

    /// How often, and for how long, senders were asked to wait for a receive.
    pub fn ran_dry(&self) -> RanDry {
        self.ran_dry
    }

    /// Asks a sender to come again.
    fn not_ready<P: Process>(&mut self, timer: RnrTimer, cx: &Context<'_, P>) -> Reply {
        cx.process.tally(Tally::NoReceive, 1);
        self.ran_dry.times += 1;
        self.ran_dry.waits = self.ran_dry.waits.saturating_add(timer.nanoseconds());
        Reply::NotReady(timer)
    }

    /// A buffer for what any one call wants done.
    pub fn effects(&self) -> Result<Effects, SizeError> {
        Effects::with_room_for(FLUSHED_AT_ONCE)
    }

    /// Begins to receive: the first message will carry `first`.
    pub fn start(&mut self, first: Psn, summary: &QpSummary) {
        self.expected_psn = first;
        summary.set_reception(first, self.min_rnr_timer);
        self.message.progress = 0;
    }

    /// Sets how long origins must wait when no receive is posted (rule RN-01).
    pub fn set_min_rnr_timer(&mut self, timer: RnrTimer, summary: &QpSummary) {
        self.min_rnr_timer = timer;
        summary.change_reception(|next, _| (next, timer));
    }

    /// Forgets everything posted, without completions (rule ST-10). Nothing of it waits to be polled.
    pub fn reset(&mut self, effects: &mut Effects) {
        self.receives.reset();
        if mem::take(&mut self.message.has_taken) {
            self.forget_unexpected(effects);
            self.give_up_shared(effects);
        }
        self.wanted = None;
        self.message.progress = 0;
    }

    /// Carries out one segment if it is the next in order (rules RA-01, PSN-02). Any other segment counts as lost in a
    /// network. `source` holds the segment's bytes, `sink` takes those of a READ. The answer goes out among the effects
    /// ([`Effects::around_answer`]).
    pub fn execute<P: Process>(
        &mut self,
        request: &Request,
        source: &mut dyn Source,
        sink: &mut dyn Sink,
        cx: &mut Context<'_, P>,
    ) -> Reply {
        let next = self.is_for_here(request, cx.summary) && self.is_next(request, cx.summary);
        // The values that were read one by one must belong to one connection.
        if next && cx.process.connection().is_none_or(|look| cx.summary.is_still(look)) {
            self.carry_out(request, source, sink, cx)
        } else {
            self.note_unheard(request, cx);
            Reply::Dropped
        }
    }

    /// The same for a segment of packets, whose order is that of their numbers: transport has seen to it.
    pub(crate) fn execute_in_order<P: Process>(
        &mut self,
        request: &Request,
        source: &mut dyn Source,
        sink: &mut dyn Sink,
        cx: &mut Context<'_, P>,
    ) -> Reply {
        if self.is_for_here(request, cx.summary) {
            self.carry_out(request, source, sink, cx)
        } else {
            self.note_unheard(request, cx);
            Reply::Dropped
        }
    }

    fn carry_out<P: Process>(
        &mut self,
        request: &Request,
        source: &mut dyn Source,
        sink: &mut dyn Sink,
        cx: &mut Context<'_, P>,
    ) -> Reply {
        if let Some(injection) = self.take_wanted(request, cx) {
            return self.inject(injection, request, cx);
        }
        self.establish(cx);
        cx.process.carries_out(request);
        match request.body {
            Body::Send => self.send(request, None, None, source, cx),
            Body::SendImmediate(immediate) => self.send(request, Some(immediate), None, source, cx),
            Body::SendInvalidate(key) => self.send(request, None, Some(key), source, cx),
            Body::Write { address, key, immediate } => {
                let to = RemoteAddress { address, key };
                self.write(request, to, immediate, source, cx)
            }
            Body::Read { .. } => self.read(request, sink, cx),
            Body::CompareSwap { address, key, .. } | Body::FetchAdd { address, key, .. } => {
                self.atomic(request, RemoteAddress { address, key }, cx)
            }
            Body::AtomicWrite { address, key } => {
                self.atomic_write(request, RemoteAddress { address, key }, source, cx)
            }
            Body::Flush { .. } => match self.check_flush(request, cx) {
                Ok(()) => {
                    cx.process.has_served(Operation::Flush, 0);
                    self.done(cx)
                }
                Err(refusal) => self.refuse(&refusal, cx),
            },
        }
    }

    /// The injected answer to a request. It is asked for once for each request, when its first segment comes, because
    /// some rules count.
    fn wanted<P: Process>(
        &mut self,
        request: &Request,
        cx: &mut Context<'_, P>,
    ) -> Option<Injection> {
        match request.offset {
            0 => *self.wanted.get_or_insert_with(|| cx.process.injected(request)),
            _ => None,
        }
    }

    /// The same for a request that is about to be carried out; the next is another.
    fn take_wanted<P: Process>(
        &mut self,
        request: &Request,
        cx: &mut Context<'_, P>,
    ) -> Option<Injection> {
        let wanted = self.wanted(request, cx);
        self.wanted = None;
        wanted
    }

    /// Answers a request as a user wants, without carrying it out.
    fn inject<P: Process>(
        &mut self,
        injection: Injection,
        request: &Request,
        cx: &mut Context<'_, P>,
    ) -> Reply {
        let reason = match injection {
            Injection::RemoteAccess => Reason::InjectedAccess,
            Injection::InvalidRequest => Reason::InjectedRequest,
            Injection::RemoteOperational => Reason::InjectedOperational,
            Injection::NotReady => {
                return self.without_receive(NoReceive::NotReady, request, cx);
            }
            Injection::Lost => return Reply::Dropped,
        };
        self.establish(cx);
        let mut attempt = self.attempt(request.body.operation(), request.known(), cx);
        if let Some(at) = request.body.remote() {
            (attempt.key, attempt.address) = (at.key, at.address);
        }
        self.refuse(&Refusal::without_object(reason, attempt), cx)
    }

    /// Whether a segment is for this queue pair, now (rules RA-03, OP-32, UD-05, UD-08).
    fn is_for_here(&self, request: &Request, summary: &QpSummary) -> bool {
        let addressed = match request.remote {
            Remote::Datagram(datagram) => datagram.qkey == self.qkey,
            _ => summary.peering().from == request.from,
        };
        summary.gate().receives() && request.service.target() == self.service && addressed
    }

    /// Notes why a segment is not for this queue pair now, unless it only is not the next.
    #[cold]
    fn note_unheard<P: Process>(&self, request: &Request, cx: &Context<'_, P>) {
        let (gate, peering) = (cx.summary.gate(), cx.summary.peering());
        let why = match request.remote {
            _ if !gate.receives() => Unheard::Deaf(gate.state),
            _ if request.service.target() != self.service => Unheard::OtherService,
            Remote::Datagram(datagram) if datagram.qkey != self.qkey => {
                Unheard::OtherQkey { own: self.qkey, came: datagram.qkey }
            }
            Remote::Datagram(_) => return,
            _ if peering.from != request.from => Unheard::OtherPeer(peering.from),
            _ => return,
        };
        cx.process.note_unheard(request.from, why);
    }

    /// Whether a segment is the next in the order of messages, and of the parts of each.
    fn is_next(&mut self, request: &Request, summary: &QpSummary) -> bool {
        if self.service == Service::XrcTarget {
            self.expected_psn = summary.reception().0;
        }
        let numbered = !self.service.is_reliable() || request.message == self.expected_psn;
        let Some(end) = request.offset.checked_add(request.length).filter(|_| numbered) else {
            return false;
        };
        if request.offset == 0 {
            self.message.progress = 0;
        }
        request.offset == self.message.progress && end <= request.total
    }

    /// Tells the program of the first request if it has not moved to RTS yet (rule RA-05).
    fn establish<P: Process>(&self, cx: &mut Context<'_, P>) {
        if self.service == Service::Ud {
            return;
        }
        let summary = cx.summary;
        let peering = cx.process.connection().map_or_else(|| summary.peering(), Look::peering);
        if !peering.established
            && summary.establish(peering)
            && summary.gate().state == QpState::Rtr
        {
            cx.effects.event(QpEvent::Established);
        }
    }

    /// The message is done; the next one may come.
    fn done<P: Process>(&mut self, cx: &mut Context<'_, P>) -> Reply {
        self.message.progress = 0;
        if self.service == Service::XrcTarget {
            cx.summary.count_message(self.expected_psn, cx.process.connection());
        }
        self.expected_psn = self.expected_psn.plus(1);
        if self.service.is_reliable() { Reply::Ack } else { Reply::Silence }
    }

    /// Refuses a request that has taken no receive: RC falls into error and raises an event
    /// (rules RA-40 to RA-47, RA-51); UC drops the message (rule RA-48).
    fn refuse<P: Process>(&mut self, refusal: &Refusal, cx: &mut Context<'_, P>) -> Reply {
        self.note(refusal, cx);
        self.message.progress = 0;
        if !self.service.is_reliable() {
            return Reply::Dropped;
        }
        let nak = refusal.reason.nak();
        cx.effects.event(match nak {
            NakCode::RemoteAccess => QpEvent::AccessError,
            _ => QpEvent::RequestError,
        });
        self.fall(cx);
        Reply::Nak { code: nak, reason: refusal.reason.code() }
    }

    /// Notes that a request is refused.
    pub(super) fn note<P: Process>(&self, refusal: &Refusal, cx: &mut Context<'_, P>) {
        cx.process.note_refusal(refusal);
        if let Some(kind) = Tally::of_refusal(refusal.reason.nak()) {
            cx.process.tally(kind, 1);
        }
        if let Some(counted) = Counted::of_peer(refusal.attempt.operation) {
            cx.process.count(counted, None);
        }
    }

    /// Falls into error and flushes both queues.
    fn fall<P: Process>(&mut self, cx: &mut Context<'_, P>) {
        debug!(qp = %cx.number, "queue pair in error");
        match cx.process.connection() {
            Some(look) => cx.summary.fall_of(look, QpState::Error),
            None => cx.summary.fall(QpState::Error),
        };
        if self.receives.matching().is_some() {
            // The rendezvous under way end first, for a program looks for no receive behind the event of the last.
            cx.effects.push(Effect::Flush(QueueSide::Send));
            return cx.effects.push(Effect::Flush(QueueSide::Receive));
        }
        self.flush(cx);
        cx.effects.push(Effect::Flush(QueueSide::Send));
    }
}
