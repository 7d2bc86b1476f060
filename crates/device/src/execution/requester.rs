//! The requester: takes posted work, [`start`]s it in order, and ends it in order ([`completer`]).

mod completer;
mod flight;
mod flow;
mod rendezvous;
mod start;
mod wqe;

pub(crate) use completer::status_of;
pub(crate) use wqe::SendWqe;

use std::sync::Arc;

use transom_wire::Psn;

use super::one_sided::Admission;
use super::retry::Retry;
use super::{
    Context, Counted, Direct, Effects, LocalBuffers, MAX_MESSAGE, Payload, PlainSend, Process,
    Request, Segmentation, Why,
};
use crate::protection::Reason;
use crate::qp::{QpNumber, QpState, QpSummary, Service};
use crate::queue::{
    Body, Completion, Places, PostError, Remote, Returned, SendFlags, SendOp, SendRequest, Sge,
    SizeError, Status, TAG_MAX_SGE, WorkRing, filled,
};
use flight::Flight;
use rendezvous::RendezvousWork;
use wqe::{Part, Progress, opcode};

/// The limits that a send queue was created with.
#[derive(Clone, Copy, Debug)]
pub struct RequesterLimits {
    /// Work requests.
    pub size: usize,
    /// Most scatter/gather entries of each.
    pub max_sge: usize,
    /// Inline bytes of each.
    pub inline_room: usize,
    /// Every work request is reported, signaled or not.
    pub signal_all: bool,
}

/// The send queue: posted requests, requests on their way, and the time of the next attempt.
pub struct Requester {
    service: Service,
    limits: RequesterLimits,
    /// The posted requests, and those that rendezvous add.
    ring: WorkRing<SendWqe>,
    /// The places of the program's requests.
    places: Places,
    /// Whom each reaches, if the service leaves that to each (UD, XRC): beside the ring, so that
    /// the work requests of others stay small. A power of two of them, or none.
    remotes: Box<[Remote]>,
    rendezvous: RendezvousWork,
    under_way: UnderWay,
    /// State that only a link with packets needs.
    flight: Flight,
    /// Where it sends to.
    pub connection: Connection,
    /// The queue pair's last admission on the direct path. `None` since it was connected.
    admission: Option<Admission>,
    /// Retry counters.
    pub retry: Retry,
    pause: Pause,
}

/// How much of the posted work has been handed to the link.
#[derive(Default)]
struct UnderWay {
    /// Position of the first work request that is not fully handed to the link.
    next: u64,
    /// Work requests before this position have been started, even if they go out again.
    begun: u64,
    /// The number the next message gets.
    next_psn: Psn,
    attempt: u64,
    /// XRC: the process of the shared receive queues that messages under way are for.
    route: u8,
    /// How many of the target's READ resources the requests on their way take.
    reading: u32,
    /// The oldest message takes its data along, which the target could not take from its buffers.
    takes_data_along: bool,
    /// The program waits for the drained event (rule ST-16).
    drain_notice: bool,
}

/// The destination of a requester, and how much it sends at once.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    /// The queue pair at the other end.
    pub peer: QpNumber,
    /// How much the link takes at once.
    pub link: Segmentation,
    /// `max_rd_atomic`.
    pub max_rd_atomic: u8,
    /// The Q_Key that stands in for one with its top bit set (rule UD-06).
    pub qkey: u32,
    /// The most bytes on their way over a link with packets, from the next [`Requester::start`] on: as much as the
    /// buffers at both ends hold.
    pub window_limit: u64,
    /// How many bytes may be on their way in packets now, in view of the other queue pairs: everything that those of
    /// one device send together must find room at the other end.
    pub window_share: u64,
}

/// Why a requester cannot go on.
#[derive(Default)]
struct Pause {
    not_before: Option<u64>,
    /// Then the oldest request has failed.
    giving_up: bool,
    /// A request is lost and the timeout is off: nothing moves until the queue pair is reset.
    stuck: bool,
}

impl Requester {
    /// A requester for a queue pair of this service.
    pub fn new(service: Service, limits: &RequesterLimits) -> Result<Self, SizeError> {
        let RequesterLimits { size, max_sge, inline_room, .. } = *limits;
        let ring = WorkRing::new(size, max_sge, inline_room)?;
        Self::with_ring(service, limits, ring)
    }

    /// A requester for a queue pair whose shared receive queue matches tags.
    pub fn with_rendezvous(service: Service, limits: &RequesterLimits) -> Result<Self, SizeError> {
        let size = limits.size + rendezvous::ROOM;
        let max_sge = limits.max_sge.max(TAG_MAX_SGE);
        let inline_room = limits.inline_room.max(rendezvous::INLINE);
        let ring = WorkRing::new(size, max_sge, inline_room)?;
        Self::with_ring(service, limits, ring)
    }

    /// The part of the ring beyond the limits is for rendezvous.
    fn with_ring(
        service: Service,
        limits: &RequesterLimits,
        ring: WorkRing<SendWqe>,
    ) -> Result<Self, SizeError> {
        let addressed = matches!(service, Service::Ud | Service::XrcInitiator);
        let remotes = if addressed { limits.size.next_power_of_two() } else { 0 };
        Ok(Self {
            remotes: filled(Remote::default(), remotes)?,
            service,
            limits: *limits,
            places: Places::new(limits.size, false),
            rendezvous: RendezvousWork::with_room(ring.size() - limits.size),
            ring,
            under_way: UnderWay::default(),
            flight: Flight::new(Psn::default(), 0),
            connection: Connection {
                peer: QpNumber::from_bits(0),
                link: Segmentation::default(),
                max_rd_atomic: 0,
                qkey: 0,
                window_limit: 0,
                window_share: u64::MAX,
            },
            admission: None,
            retry: Retry::default(),
            pause: Pause::default(),
        })
    }

    /// Polls give back the places of its work here.
    pub fn returned(&self) -> &Arc<Returned> {
        self.places.returned()
    }

    /// A buffer for what any one call wants done.
    pub fn effects(&self) -> Result<Effects, SizeError> {
        Effects::with_room_for(self.rendezvous.most_effects())
    }

    /// Makes it send to this queue pair, by a link that takes so much at once.
    pub fn lead(&mut self, link: Segmentation, peer: QpNumber) {
        (self.connection.link, self.connection.peer) = (link, peer);
        self.admission = None;
    }

    /// Begins to send; the first message carries `first`.
    pub fn start(&mut self, first: Psn) {
        self.under_way.next_psn = first;
        self.admission = None;
        self.flight = Flight::new(first, self.connection.window_limit);
        self.retry.reload();
    }

    /// Forgets everything posted, without completions (rule ST-10). Nothing of it waits to be polled.
    pub fn reset(&mut self) {
        self.ring.clear();
        self.places.clear();
        self.rendezvous.clear();
        self.under_way.next = self.ring.tail();
        self.under_way.attempt += 1;
        self.under_way.reading = 0;
        self.under_way.takes_data_along = false;
        self.flight.stop_clock();
        self.pause = Pause::default();
        self.under_way.drain_notice = false;
    }

    /// When to call [`Requester::check_timeout`] and [`Requester::next_segment`] again at the latest, in the host's nanoseconds.
    pub fn deadline(&self) -> Option<u64> {
        // Requests that were to go out again may have been answered meanwhile.
        let waits = self.under_way.next != self.ring.tail();
        match (self.pause.not_before.filter(|_| waits), self.flight.alarm()) {
            (Some(time), Some(alarm)) => Some(time.min(alarm)),
            (time, alarm) => time.or(alarm),
        }
    }

    /// Whether something is started and unfinished, under way or waiting to go out again
    /// (rule ST-17).
    pub fn is_draining(&self) -> bool {
        self.is_under_way() || self.ring.head() < self.under_way.begun
    }

    /// Whether something is started and unanswered.
    fn is_under_way(&self) -> bool {
        self.under_way.next != self.ring.head()
            || (!self.ring.is_empty()
                && self.ring.at(self.under_way.next).progress != Progress::Waiting)
    }

    /// Whether the link may leave the data of a long message in its buffers, for the target to copy it from there.
    pub fn leaves_data(&self) -> bool {
        !self.under_way.takes_data_along
    }

    /// How many places the program has in all, and how many of them hold work that is not carried out yet; for
    /// explanations.
    pub fn occupancy(&self) -> (usize, usize) {
        (self.limits.size, self.ring.len() - self.rendezvous.work)
    }

    /// Its transport service.
    pub(crate) fn service(&self) -> Service {
        self.service
    }

    /// Whether nothing is posted that has not ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// The oldest work request that has not ended; there is one.
    pub(crate) fn head(&self) -> &SendWqe {
        self.ring.at(self.ring.head())
    }

    /// Whether packets are on their way for which an answer is awaited.
    #[inline]
    pub fn awaits_packets(&self) -> bool {
        self.flight.is_under_way()
    }

    /// Whether something is under way to the shared receive queues of the process in this slot.
    pub fn sends_to(&self, slot: u8) -> bool {
        self.service == Service::XrcInitiator && self.under_way.route == slot && self.is_under_way()
    }

    /// Asks for [`QpEvent::SendQueueDrained`](super::QpEvent::SendQueueDrained) once nothing is under way.
    pub fn notify_drained<P: Process>(&mut self, cx: &mut Context<'_, P>) {
        self.under_way.drain_notice = true;
        self.note_drained(cx);
    }

    /// Posts a work request; [`Requester::next_segment`] carries it out.
    #[inline]
    pub fn post<P: Process>(
        &mut self,
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
        if state == QpState::Rts {
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
        if let Some(remote) = self.remote_mut(place) {
            *remote = request.remote;
        }
        if matches!(state, QpState::Error | QpState::Sqe) {
            self.flush(cx);
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
        if !next || !plain || self.pause.not_before.is_some() || self.pause.stuck {
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
        true
    }

    fn remote_mut(&mut self, position: u64) -> Option<&mut Remote> {
        let mask = self.remotes.len().wrapping_sub(1);
        self.remotes.get_mut(position as usize & mask)
    }

    /// Whom the work request at a position reaches.
    fn remote_at(&self, position: u64) -> Remote {
        let mask = self.remotes.len().wrapping_sub(1);
        self.remotes.get(position as usize & mask).copied().unwrap_or_default()
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

    /// Whether [`Requester::check_timeout`] or [`Requester::next_segment`] may find something to do.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.under_way.next != self.ring.tail() || self.flight.alarm().is_some()
    }

    /// How many work requests have not been handed to the link whole.
    pub fn requests_waiting(&self) -> u64 {
        self.ring.tail() - self.under_way.next
    }

    /// Makes requests that have been unanswered for too long go out again. Call it before you ask for the next
    /// segments.
    pub fn check_timeout<P: Process>(&mut self, cx: &mut Context<'_, P>) {
        if self.flight.alarm().is_some() {
            self.look_at_clock(cx);
        }
    }

    /// The next segment for the link, if one may go now. Requests before it that need no link are carried out. The
    /// caller hands the segment and its [`Requester::payload`] to the link, and reports the result with
    /// [`Requester::sent`], before it calls anything else here.
    pub fn next_segment<P: Process>(&mut self, cx: &mut Context<'_, P>) -> Option<Request> {
        while self.under_way.next != self.ring.tail() {
            match self.step(cx) {
                Step::Done => {}
                Step::Waits => return None,
                Step::Send(request) => return Some(request),
            }
        }
        None
    }

    /// One work request or segment further.
    fn step<P: Process>(&mut self, cx: &mut Context<'_, P>) -> Step {
        if self.pause.stuck {
            return Step::Waits;
        }
        if let Some(time) = self.pause.not_before {
            if cx.process.now() < time {
                return Step::Waits;
            }
            self.pause.not_before = None;
            if core::mem::take(&mut self.pause.giving_up) {
                self.fail_head(cx, Status::RetryExceeded, Why::Unanswered);
                return Step::Waits;
            }
        }
        let wqe = *self.ring.at(self.under_way.next);
        match cx.summary.gate().state {
            QpState::Rts => {}
            QpState::Sqd
                if wqe.progress != Progress::Waiting
                    || self.under_way.next < self.under_way.begun => {}
            _ => return Step::Waits,
        }
        if wqe.progress == Progress::Waiting && !self.may_start(&wqe) {
            return Step::Waits;
        }
        match wqe.op {
            SendOp::Message(body) => self.start_message(cx, &wqe, body),
            SendOp::Local(op) => self.local_operation(cx, &wqe, op),
            SendOp::Unsupported => {
                let why = Why::Unfit(Reason::WrongService, 0, 0);
                self.fail_head(cx, Status::LocalQpOperation, why);
                Step::Waits
            }
        }
    }
}

/// The result of a look at the next work request.
enum Step {
    /// It is carried out.
    Done,
    /// It waits, for an answer, a time or another state, or is flushed.
    Waits,
    /// A segment of it may go.
    Send(Request),
}

fn buffers<'a, P: Process>(cx: &Context<'a, P>, sges: &'a [Sge]) -> LocalBuffers<'a> {
    LocalBuffers {
        sges,
        keys: cx.process.keys(),
        announcer: cx.process.announcer(),
        waiter: cx.process.waiter(),
        qp: cx.number.bits(),
        pd: cx.summary.gate().pd,
    }
}

fn completion<P>(cx: &Context<'_, P>, wr_id: u64, op: &SendOp, status: Status) -> Completion {
    Completion::new(wr_id, status, opcode(op), cx.number.bits())
}
