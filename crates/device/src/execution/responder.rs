//! The responder: carries out what arrives, in order, and answers. Messages that take a receive are
//! in [`receive`], what tag matching makes of them in [`tag_matching`]; what only links that carry
//! packets need is in [`packets`].

mod packets;
mod receive;
mod tag_matching;

use core::mem;

use tracing::debug;
use transom_wire::{NakCode, Psn, RnrTimer};

use self::receive::NoReceive;
use self::tag_matching::TagMatching;
use super::one_sided::{Stop, Target};
use super::{Counted, Injection, QpEvent, QueueSide, Reply, Request, Services, Sink, Source};
use crate::protection::{Attempt, Operation, Reason, Refusal, RemoteAddress, admit};
use crate::qp::{Peering, QpState, QpSummary, Service};
use crate::queue::{Body, Flags, Opcode, Receive, ReceiveQueue, Remote, SizeError, Status};

/// Where the receives of a queue pair come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receives {
    /// From a queue of its own.
    Own {
        /// Work requests.
        size: usize,
        /// Pieces of each.
        pieces: usize,
    },
    /// From the shared queue it was created with.
    Shared {
        /// The queue matches tags.
        tagged: bool,
    },
    /// From the shared queue that each message names (XRC).
    Named,
    /// It takes no messages: the end of XRC that sends.
    Nowhere,
}

/// The receiving half of a queue pair, and what it is in the middle of.
pub struct Responder {
    service: Service,
    receives: Receives,
    queue: Option<ReceiveQueue>,
    /// The receive of the message under way, if `has_taken`.
    taken: Receive,
    has_taken: bool,
    /// What tag matching needs.
    matching: Option<Box<TagMatching>>,
    /// The program knows that no more is taken from the shared queue.
    told_last: bool,
    /// What the user wants done with the request that comes next, once that has been asked.
    wanted: Option<Option<Injection>>,
    /// The number of the message that comes next; RC only.
    expected: Psn,
    /// How much of the message under way has been carried out.
    progress: u64,
    /// What a requester is told to wait when no receive is posted.
    pub min_rnr_timer: RnrTimer,
    /// The Q_Key that datagrams must bring (rule UD-05).
    pub qkey: u32,
}

impl Responder {
    /// A responder whose receives have at most `pieces` pieces, wherever they come from.
    pub fn new(service: Service, receives: Receives, pieces: usize) -> Result<Self, SizeError> {
        let queue = match receives {
            Receives::Own { size, pieces } => Some(ReceiveQueue::new(size, pieces)?),
            _ => None,
        };
        let tagged = receives == Receives::Shared { tagged: true };
        Ok(Self {
            service,
            receives,
            queue,
            taken: Receive::with_room(pieces)?,
            has_taken: false,
            matching: tagged.then(|| Box::new(TagMatching::new())),
            told_last: false,
            wanted: None,
            expected: Psn::default(),
            progress: 0,
            min_rnr_timer: RnrTimer::new(0).expect("zero is a timer code"),
            qkey: 0,
        })
    }

    /// Begins to receive: the first message will carry `first`.
    pub fn start(&mut self, first: Psn, summary: &QpSummary) {
        self.expected = first;
        summary.set_reception(first, self.min_rnr_timer);
        self.progress = 0;
    }

    /// Has origins told to wait this long where no receive is posted (rule RN-01).
    pub fn set_min_rnr_timer(&mut self, timer: RnrTimer, summary: &QpSummary) {
        self.min_rnr_timer = timer;
        summary.change_reception(|next, _| (next, timer));
    }

    /// Forgets everything posted, without completions (rule ST-10).
    pub fn reset<S: Services>(&mut self, services: &S) {
        if let Some(queue) = &mut self.queue {
            queue.clear();
        }
        if let Some(matching) = &mut self.matching {
            matching.reset();
        }
        if mem::take(&mut self.has_taken) {
            self.forget_unexpected(services);
        }
        self.told_last = false;
        self.wanted = None;
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
        if let Some(injection) = self.take_wanted(request, services) {
            return self.inject(injection, request, services);
        }
        self.establish(services);
        match request.body {
            Body::Send => self.send(request, None, None, source, services),
            Body::SendImmediate(immediate) => {
                self.send(request, Some(immediate), None, source, services)
            }
            Body::SendInvalidate(key) => self.send(request, None, Some(key), source, services),
            Body::Write { address, key, immediate } => {
                let to = RemoteAddress { address, key };
                self.write(request, to, immediate, source, services)
            }
            Body::Read { address, key } => {
                self.read(request, RemoteAddress { address, key }, sink, services)
            }
            Body::CompareSwap { address, key, swap, compare } => {
                let update = |old| if old == compare { swap } else { old };
                self.atomic(request, RemoteAddress { address, key }, update, services)
            }
            Body::FetchAdd { address, key, add } => {
                let update = |old: u64| old.wrapping_add(add);
                self.atomic(request, RemoteAddress { address, key }, update, services)
            }
            Body::AtomicWrite { address, key } => {
                self.atomic_write(request, RemoteAddress { address, key }, source, services)
            }
            Body::Flush { .. } => match self.check_flush(request, services) {
                Ok(()) => self.done(services),
                Err(refusal) => self.refuse(&refusal, services),
            },
        }
    }

    /// What the user wants done with a request. It is asked once for each, when its first segment
    /// comes, for there are rules that count.
    fn wanted<S: Services>(&mut self, request: &Request, services: &S) -> Option<Injection> {
        match request.offset {
            0 => *self.wanted.get_or_insert_with(|| services.injected(request)),
            _ => None,
        }
    }

    /// The same for a request that is about to be carried out; the next is another.
    fn take_wanted<S: Services>(&mut self, request: &Request, services: &S) -> Option<Injection> {
        let wanted = self.wanted(request, services);
        self.wanted = None;
        wanted
    }

    /// Answers a request as a user wants, without carrying it out.
    fn inject<S: Services>(
        &mut self,
        injection: Injection,
        request: &Request,
        services: &S,
    ) -> Reply {
        let reason = match injection {
            Injection::RemoteAccess => Reason::InjectedAccess,
            Injection::InvalidRequest => Reason::InjectedRequest,
            Injection::RemoteOperational => Reason::InjectedOperational,
            Injection::NotReady => {
                return self.without_receive(NoReceive::NotReady, request, services);
            }
            Injection::Lost => return Reply::Dropped,
        };
        self.establish(services);
        let mut attempt = self.attempt(request.body.operation(), request.known(), services);
        if let Some(at) = request.body.remote() {
            (attempt.key, attempt.address) = (at.key, at.address);
        }
        self.refuse(&Refusal::without_object(reason, attempt), services)
    }

    /// Whether the segment is for this queue pair, now, and the next in order (rules RA-01, RA-03,
    /// PSN-02, OP-32, UD-05, UD-08). Anything else is as if a network had lost it.
    fn accepts<S: Services>(&mut self, request: &Request, services: &S) -> bool {
        let gate = services.summary().gate();
        let expected = match request.remote {
            Remote::Datagram(datagram) => datagram.qkey == self.qkey,
            _ => services.summary().peering().from == request.from,
        };
        let addressed = gate.receives() && request.service.target() == self.service && expected;
        let numbered = !self.service.is_reliable() || request.message == self.expected(services);
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
        if self.service == Service::Ud {
            return;
        }
        let summary = services.summary();
        let peering = summary.peering();
        if !peering.established {
            summary.set_peering(Peering { established: true, ..peering });
            if summary.gate().state == QpState::Rtr {
                services.event(QpEvent::Established);
            }
        }
    }

    fn write<S: Services>(
        &mut self,
        request: &Request,
        at: RemoteAddress,
        immediate: Option<u32>,
        source: &mut dyn Source,
        services: &S,
    ) -> Reply {
        // The last packet alone has the immediate data, and takes the receive before its key is
        // looked at (rule RA-01). A segment of several begins with one that has none, and is judged
        // by that (rules RA-12, RA-46).
        let receives = immediate.is_some() && request.is_last();
        let one_packet = request.length <= services.summary().peering().path_mtu();
        let checked =
            if receives && !one_packet { self.check(request, at, services) } else { Ok(()) };
        if receives
            && checked.is_ok()
            && let Err(why) = self.take(request, None, 0, services)
        {
            return self.without_receive(why, request, services);
        }
        let written = checked.and_then(|()| {
            let target = self.target(request, services).map_err(Stop::Refused)?;
            target.write(at, request.part(), source)
        });
        match written {
            Ok(()) => {}
            Err(Stop::Closed) => return Reply::Dropped,
            Err(Stop::Near(_)) => return Reply::OriginFailed,
            Err(Stop::Refused(refusal)) if receives && one_packet => {
                return self.spoil_receive(&refusal, services);
            }
            Err(Stop::Refused(refusal)) => return self.refuse(&refusal, services),
        }
        self.progress += request.length;
        if !request.is_last() {
            return Reply::Silence;
        }
        services.count(Counted::REMOTE_WRITE, Some(request.total));
        let Some(immediate) = immediate else { return self.done(services) };
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
        at: RemoteAddress,
        sink: &mut dyn Sink,
        services: &S,
    ) -> Reply {
        let reply = self.fetch(request, at, sink, services);
        if let Reply::Data { length } = reply {
            self.progress += length;
            if request.is_last() {
                services.count(Counted::REMOTE_READ, Some(request.total));
                self.done(services);
            }
        }
        reply
    }

    fn atomic<S: Services>(
        &mut self,
        request: &Request,
        at: RemoteAddress,
        update: impl FnMut(u64) -> u64,
        services: &S,
    ) -> Reply {
        match self.change_word(request, at, update, services) {
            Ok(old) => {
                self.done(services);
                Reply::Atomic(old)
            }
            Err(refusal) => self.refuse(&refusal, services),
        }
    }

    fn atomic_write<S: Services>(
        &mut self,
        request: &Request,
        at: RemoteAddress,
        source: &mut dyn Source,
        services: &S,
    ) -> Reply {
        let new = match source.word() {
            _ if request.total != 8 => 0,
            Ok(new) => new,
            Err(_) => return Reply::OriginFailed,
        };
        match self.change_word(request, at, |_| new, services) {
            Ok(_) => self.done(services),
            Err(refusal) => self.refuse(&refusal, services),
        }
    }

    /// Changes eight aligned bytes in one step; the old value.
    fn change_word<S: Services>(
        &self,
        request: &Request,
        at: RemoteAddress,
        mut update: impl FnMut(u64) -> u64,
        services: &S,
    ) -> Result<u64, Refusal> {
        let gate = services.summary().gate();
        let RemoteAddress { address, key } = at;
        let operation = request.body.operation();
        let (qp, pd) = (services.number().bits(), self.key_domain(request, services)?);
        let attempt = Attempt { operation, key, address, length: 8, qp, pd };
        admit(&gate, &attempt, request.total)
            .map_err(|reason| Refusal::without_object(reason, attempt))?;
        let keys = services.keys();
        let grant = keys.grant(attempt, services.announcer(), services.waiter())?;
        services.atomic(&grant, &mut update).map_err(|super::MemoryGone| Refusal {
            reason: Reason::MemoryGone,
            attempt,
            object: keys.look_up(key),
        })
    }

    /// Whether a FLUSH of a range, or of the whole region, is allowed. That is all there is to it:
    /// every write before it has been carried out by the kernel, where all can see it.
    fn check_flush<S: Services>(&self, request: &Request, services: &S) -> Result<(), Refusal> {
        let Body::Flush { address, key, length, placement, whole } = request.body else {
            return Ok(());
        };
        let gate = services.summary().gate();
        let keys = services.keys();
        let (address, length) = if whole {
            let object = keys.look_up(key);
            (object.base, object.length)
        } else {
            (address, u64::from(length))
        };
        let (qp, pd) = (services.number().bits(), self.key_domain(request, services)?);
        placement.operations().try_for_each(|operation| {
            let attempt = Attempt { operation, key, address, length, qp, pd };
            admit(&gate, &attempt, request.total)
                .map_err(|reason| Refusal::without_object(reason, attempt))?;
            keys.grant(attempt, services.announcer(), services.waiter()).map(drop)
        })
    }

    /// The queue pair as the target of one-sided operations.
    fn target<'m, S: Services>(
        &self,
        request: &Request,
        services: &'m S,
    ) -> Result<Target<'m>, Refusal> {
        Ok(Target {
            keys: services.keys(),
            summary: services.summary(),
            number: services.number(),
            announcer: services.announcer(),
            waiter: services.waiter(),
            initiator: None,
            pd: Some(self.key_domain(request, services)?),
        })
    }

    /// The protection domain that a message's keys belong to: the queue pair's, or with XRC that of
    /// the shared receive queue that the message names.
    fn key_domain<S: Services>(&self, request: &Request, services: &S) -> Result<u32, Refusal> {
        match request.remote {
            Remote::Srq(number) => services.shared_pd(number).ok_or_else(|| {
                let attempt = self.attempt(Operation::Send, request.known(), services);
                Refusal::without_object(Reason::UnknownSrq, attempt)
            }),
            _ => Ok(services.summary().gate().pd),
        }
    }

    /// The number of the message that comes next. Whoever carries out messages of an XRC connection
    /// finds it in the summary.
    pub(crate) fn expected<S: Services>(&self, services: &S) -> Psn {
        match self.service {
            Service::XrcTarget => services.summary().reception().0,
            _ => self.expected,
        }
    }

    /// The message is done; the next one may come.
    fn done<S: Services>(&mut self, services: &S) -> Reply {
        self.progress = 0;
        if self.service == Service::XrcTarget {
            services.summary().change_reception(|done, timer| (done.plus(1), timer));
        }
        self.expected = self.expected.plus(1);
        if self.service.is_reliable() { Reply::Ack } else { Reply::Silence }
    }

    /// Refuses a request that has taken no receive: RC falls into error and raises an event
    /// (rules RA-40 to RA-47, RA-51); UC drops the message (rule RA-48).
    fn refuse<S: Services>(&mut self, refusal: &Refusal, services: &S) -> Reply {
        self.note(refusal, services);
        self.progress = 0;
        if !self.service.is_reliable() {
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

    /// Notes that a request is refused.
    fn note<S: Services>(&self, refusal: &Refusal, services: &S) {
        services.refused(refusal);
        if let Some(counted) = Counted::of_peer(refusal.attempt.operation) {
            services.count(counted, None);
        }
    }

    /// Falls into error and flushes both queues.
    fn fall<S: Services>(&mut self, services: &S) {
        debug!(qp = %services.number(), "queue pair in error");
        services.summary().fall(QpState::Error);
        self.flush(services);
        services.flush_other(QueueSide::Receive);
    }
}
