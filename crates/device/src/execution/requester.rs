//! The requester: takes posted work ([`post`]), [`start`]s it in order, and ends it in order ([`completer`]).

mod completer;
mod done_early;
mod flight;
mod flow;
mod meant_to_fail;
mod post;
mod rendezvous;
mod start;
mod watched;
mod wqe;

pub(crate) use completer::status_of;
pub use meant_to_fail::Ending;
pub(crate) use wqe::SendWqe;

use std::collections::VecDeque;
use std::sync::Arc;

use transom_wire::Psn;

use super::one_sided::Admission;
use super::retry::Retry;
use super::{Context, Effects, LocalBuffers, Process, Request, Segmentation, Why};
use crate::protection::Reason;
use crate::qp::{QpNumber, QpState, Service};
use crate::queue::{
    Completion, Places, Remote, Returned, SendOp, Sge, SizeError, Status, TAG_MAX_SGE, WorkRing,
    filled,
};
use flight::Flight;
use meant_to_fail::MeantToFail;
use rendezvous::RendezvousWork;
use wqe::{Progress, opcode};

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
    /// Whom each reaches.
    remotes: Remotes,
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
    /// A rehearsal has chosen it.
    meant_to_fail: Option<MeantToFail>,
    /// The positions of those that a rehearsal has carried out before their turn.
    done_early: VecDeque<u64>,
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

/// Whether a requester waits before it goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Pause {
    #[default]
    No,
    /// It waits until this time.
    Until(u64),
    /// It waits until this time. Then the oldest request has failed.
    GivingUpAt(u64),
    /// A request is lost and the timeout is off: nothing moves until the queue pair is reset.
    ForEver,
}

impl Pause {
    /// When it ends, if it does.
    fn end(self) -> Option<u64> {
        match self {
            Self::Until(time) | Self::GivingUpAt(time) => Some(time),
            Self::No | Self::ForEver => None,
        }
    }
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
        Ok(Self {
            remotes: Remotes::new(service, limits.size)?,
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
            meant_to_fail: None,
            done_early: VecDeque::new(),
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
        self.meant_to_fail = None;
        self.done_early.clear();
        self.under_way.drain_notice = false;
    }

    /// Begins no request before a time, in the host's nanoseconds, unless it waits already.
    pub fn hold(&mut self, until: u64) {
        if self.pause == Pause::No {
            self.pause = Pause::Until(until);
        }
    }

    /// Whether it waits for a time before it goes on.
    pub fn is_held(&self) -> bool {
        self.pause != Pause::No
    }

    /// When to call [`Requester::check_timeout`] and [`Requester::next_segment`] again at the latest, in the host's nanoseconds.
    pub fn deadline(&self) -> Option<u64> {
        // Requests that were to go out again may have been answered meanwhile.
        let waits = self.under_way.next != self.ring.tail();
        match (self.pause.end().filter(|_| waits), self.flight.alarm()) {
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

    /// How many work requests have ended without a completion since the last one that had one; for explanations.
    pub fn unreported(&self) -> u32 {
        self.places.unreported()
    }

    /// Its transport service.
    pub(crate) fn service(&self) -> Service {
        self.service
    }

    /// The position of the work request that begins next, or goes on.
    pub fn next(&self) -> u64 {
        self.under_way.next
    }

    /// The position of the work request that is posted next.
    pub fn tail(&self) -> u64 {
        self.ring.tail()
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

    /// Whether [`Requester::next_segment`] may find something to do.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.under_way.next != self.ring.tail()
    }

    /// How many work requests have not been handed to the link whole.
    pub fn requests_waiting(&self) -> u64 {
        self.ring.tail() - self.under_way.next
    }

    /// Makes requests that have been unanswered for too long go out again, with the next segments that you ask for. Call
    /// it when [`Requester::deadline`] has come and all that came before is taken. Otherwise a request counts as
    /// unanswered though its answer is there.
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

    /// It pauses. Whether that ends now, and it goes on.
    #[cold]
    fn goes_on<P: Process>(&mut self, cx: &mut Context<'_, P>) -> bool {
        if self.pause.end().is_none_or(|end| cx.process.now() < end) {
            return false;
        }
        match core::mem::take(&mut self.pause) {
            Pause::Until(_) => match cx.process.waits_on() {
                Some(end) => self.pause = Pause::Until(end),
                None => return true,
            },
            Pause::GivingUpAt(_) => self.fail_head(cx, Status::RetryExceeded, Why::Unanswered),
            Pause::No | Pause::ForEver => {}
        }
        false
    }

    /// One work request or segment further.
    fn step<P: Process>(&mut self, cx: &mut Context<'_, P>) -> Step {
        if self.pause != Pause::No && !self.goes_on(cx) {
            return Step::Waits;
        }
        let wqe = *self.ring.at(self.under_way.next);
        match cx.summary.gate().state {
            QpState::Rts => {}
            QpState::Sqd
                if wqe.progress != Progress::Waiting
                    || self.under_way.next < self.under_way.begun => {}
            _ => return Step::Waits,
        }
        if self.meant_to_fail.is_some()
            && let Some(step) = self.fail_in_turn(cx)
        {
            return step;
        }
        if !self.done_early.is_empty()
            && let Some(step) = self.complete_early(cx)
        {
            return step;
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

/// Whom each work request reaches, if the service leaves that to each (UD, XRC): beside the ring, so that the work
/// requests of others stay small. There are a power of two of them, or none.
struct Remotes(Box<[Remote]>);

impl Remotes {
    fn new(service: Service, size: usize) -> Result<Self, SizeError> {
        let addressed = matches!(service, Service::Ud | Service::XrcInitiator);
        let count = if addressed { size.next_power_of_two() } else { 0 };
        filled(Remote::default(), count).map(Self)
    }

    fn index(&self, position: u64) -> usize {
        position as usize & self.0.len().wrapping_sub(1)
    }

    fn set(&mut self, position: u64, remote: Remote) {
        let index = self.index(position);
        if let Some(it) = self.0.get_mut(index) {
            *it = remote;
        }
    }

    fn at(&self, position: u64) -> Remote {
        self.0.get(self.index(position)).copied().unwrap_or_default()
    }
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
