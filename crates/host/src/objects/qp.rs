//! Queue pairs of this process: the device's two halves, each under its lock, and their link.
//!
//! Locks are taken in this order: send queue, receive queue, completion queue. What the device wants done
//! is done under the lock of the half that wants it, but for what needs the other half ([`Deferred`]).

mod attributes;
mod explained;
mod receive;
mod services;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::Instant;

use parking_lot::Mutex;
use tracing::debug;
use transom_device::Access;
use transom_device::execution::{
    Context, Counted, Effect, Effects, PlainSend, QpEvent, QueueSide, Receives, Reply, Request,
    Requester, RequesterLimits, Responder, Segmentation, Sink, Source,
};
use transom_device::qp::{Gate, QpNumber, QpState, QpSummary, Service};
use transom_device::queue::{
    Completion, Flags, PostError, ReceiveRequest, SendRequest, SizeError, Status, TAG_MAX_SGE,
};
use transom_net::{MAX_COPIED, MAX_PAYLOAD, Peer};
use transom_system::addresses::ip;
use transom_wire::Psn;
use transom_wire::grh::Route;
use transom_wire::packet::{Operation, Packet};

use super::completion_counter::Counters;
use super::cq::Feed;
use super::{
    Adapter, AttachError, Busy, CompletionCounter, Cq, Deferred, Link, ProtectionDomain,
    RegisterError, SharedReceiveQueue, XrcDomain,
};
use crate::device::{Device, Limits};
use crate::events::{AsyncEvent, EventQueue, EventSource};

pub use attributes::{ModifyFailure, QpAttributes};
use explained::Told;
use receive::{ReceiveHalf, Receiving};
use services::At;

/// What a queue pair is created with.
#[derive(Clone)]
pub struct QpConfig {
    /// Its protection domain; the receiving end of XRC has none.
    pub pd: Option<Arc<ProtectionDomain>>,
    /// Its transport service.
    pub service: Service,
    /// Where its send queue completes, if it sends.
    pub send_cq: Option<Arc<Cq>>,
    /// Where its receives complete, unless it does not receive or each goes where its shared queue
    /// says (XRC).
    pub receive_cq: Option<Arc<Cq>>,
    /// Its send queue.
    pub send: RequesterLimits,
    /// Where its receives come from.
    pub receives: QpReceives,
    /// Where its events go.
    pub events: Arc<EventQueue<AsyncEvent>>,
    /// How events name it.
    pub id: u64,
}

/// Where the receives of a queue pair come from.
#[derive(Clone)]
pub enum QpReceives {
    /// From a queue of its own.
    Own {
        /// Work requests.
        size: usize,
        /// Most scatter/gather entries of each.
        max_sge: usize,
    },
    /// From a shared queue.
    Srq(Arc<SharedReceiveQueue>),
    /// From the shared queue of this domain that each message names.
    Xrc(Arc<XrcDomain>),
    /// It does not receive.
    Nowhere,
}

impl QpReceives {
    /// Whether they come from a shared queue that matches tags.
    fn match_tags(&self) -> bool {
        matches!(self, Self::Srq(srq) if srq.config().tag_matching.is_some())
    }
}

/// Whether a queue pair takes packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It does, whatever it makes of them.
    Yes,
    /// It is of another service, or has no packets.
    WrongService,
    /// It is connected to another address (rule NET-10).
    WrongAddress,
}

/// Whether queue pairs of a service take a packet at all (rule OP-32). Word of congestion is of no
/// service.
fn is_of(service: Service, packet: &Packet<'_>) -> bool {
    packet.operation == Operation::Congestion || service.serves(&packet.transport)
}

/// Whether packets go to this address by a link.
fn leads_to(link: &Link, address: IpAddr) -> bool {
    matches!(link, Link::Wire(path) if path.destination == address)
}

/// Whether another request is posted right after one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// The caller's list goes on.
    Follows,
    /// It does not, but where much is on its way already, more may follow soon.
    Perhaps,
    /// What has been posted is sent.
    Nothing,
}

/// Packets that a queue pair has on their way before what it posts waits for the next poll, to leave with more.
/// Few requests that a program waits for are more at a time.
const MUCH: u32 = 8;
/// Work requests that wait so at most: one burst, if they are small.
const MOST_WAITING: u64 = 32;

/// Posts one request of a batch.
pub type PostOne<'a> = &'a mut dyn FnMut(&SendRequest<'_>) -> Result<(), PostError>;

/// What a queue pair tells of.
const EVENTS: &[AsyncEvent] = &[
    AsyncEvent::QpFatal,
    AsyncEvent::QpRequestError,
    AsyncEvent::QpAccessError,
    AsyncEvent::Established,
    AsyncEvent::SendQueueDrained,
    AsyncEvent::LastWqeReached,
];

/// A queue pair. It lives until [`QueuePair::destroy`].
pub struct QueuePair {
    device: Arc<Device>,
    /// The others that it may send to in this process, and what they share.
    adapter: Arc<Adapter>,
    number: QpNumber,
    config: QpConfig,
    events: EventSource<AsyncEvent>,
    /// What a forked child sees in place of the summary: it is in error.
    inherited: QpSummary,
    send: Mutex<SendHalf>,
    receive: Receiving,
    feeds: Feeds,
    pub(super) holds: Holds,
    counters: Counters,
    told: Told,
}

/// Where its work completes, but for the receives of XRC's shared queues.
struct Feeds {
    send: Option<Feed>,
    receive: Option<Feed>,
}

impl Feeds {
    /// Those of a queue pair with these halves.
    fn new(
        config: &QpConfig,
        requester: &Requester,
        responder: &Responder,
    ) -> Result<Self, RegisterError> {
        let none = Arc::default();
        let received = match &config.receives {
            QpReceives::Own { .. } => responder.returned().unwrap_or(&none),
            QpReceives::Srq(srq) => srq.returned(),
            QpReceives::Xrc(_) | QpReceives::Nowhere => &none,
        };
        let feed = |cq: &Option<Arc<Cq>>, returned| {
            cq.as_ref().map(|cq| Feed::new(cq, returned)).transpose()
        };
        let send = feed(&config.send_cq, requester.returned())?;
        let receive = feed(&config.receive_cq, received);
        let receive = receive.inspect_err(|_| send.iter().for_each(Feed::end))?;
        Ok(Self { send, receive })
    }

    fn all(&self) -> impl Iterator<Item = &Feed> {
        self.send.iter().chain(&self.receive)
    }
}

/// What holds a queue pair: as long as something does, it does not end.
pub(super) struct Holds {
    /// How often a program has it: more than once only the receiving end of XRC.
    handles: AtomicU32,
    /// Multicast groups it is in (rule CR-10).
    pub(super) memberships: AtomicU32,
}

/// The send queue, and where it sends to.
struct SendHalf {
    /// As set, of both halves: changed with both locked.
    attributes: QpAttributes,
    requester: Requester,
    link: Link,
    /// The queue pair at the other end.
    peer: QpNumber,
    /// `sq_psn`: the target lets in directly only whom it expects with this number.
    first: Psn,
    scheduled: Scheduled,
    /// Whether the wire link counts it among those that send.
    counted: bool,
    /// What the device wants done; empty whenever the half is not locked.
    effects: Effects,
}

/// When a queue pair is to be advanced, as the device knows: the earliest deadline, and the one that was the earliest
/// before. What else the device was told is out of date.
#[derive(Debug, Default)]
struct Scheduled {
    first: Option<u64>,
    next: Option<u64>,
}

impl Scheduled {
    /// Whether the device is to be told of a deadline. One that moves away is looked at when the earlier one comes.
    fn add(&mut self, deadline: u64) -> bool {
        let is_first = self.first.is_none_or(|first| deadline < first);
        if is_first {
            self.next = self.first.replace(deadline);
        }
        is_first
    }

    /// A deadline has come: whether the queue pair is to be advanced.
    fn take(&mut self, deadline: u64) -> bool {
        let is_first = self.first == Some(deadline);
        if is_first {
            self.first = self.next.take();
        }
        is_first
    }
}

impl SendHalf {
    /// Has it send by this link.
    fn lead(&mut self, link: Link, peer: QpNumber, qp: &QueuePair) {
        self.requester.lead(qp.segmentation(&link), peer);
        (self.link, self.peer) = (link, peer);
    }

    /// Whether its packets go to this address.
    fn leads_to(&self, address: IpAddr) -> bool {
        leads_to(&self.link, address)
    }

    /// Tells the program once nothing is under way.
    fn notify_drained(&mut self, qp: &QueuePair, deferred: &mut Deferred) {
        let at = qp.here();
        self.requester.notify_drained(&mut at.context(&mut self.effects));
        at.settle(&mut self.effects, deferred);
    }

    /// Completes everything posted as flushed.
    fn flush(&mut self, qp: &QueuePair, deferred: &mut Deferred) {
        let at = qp.here();
        self.requester.flush(&mut at.context(&mut self.effects));
        at.settle(&mut self.effects, deferred);
    }

    /// Tells the wire link whether packets are on their way.
    #[inline]
    fn count(&mut self, device: &Device) {
        let sends = self.requester.awaits_packets();
        if sends != self.counted
            && let Some(wire) = device.port().wire()
        {
            self.counted = sends;
            wire.count_sender(sends);
        }
    }
}

impl Adapter {
    /// The receiving end of an XRC connection, by number, held once more
    /// (`ibv_open_qp(3)`); `None` if this process has none of that number in the domain.
    pub fn open_xrc_target(&self, number: u32, domain: &Arc<XrcDomain>) -> Option<Arc<QueuePair>> {
        let qp = self.queue_pairs.get(QpNumber::from_bits(number).index())?;
        let QpReceives::Xrc(own) = &qp.config.receives else { return None };
        if qp.number.bits() != number || !Arc::ptr_eq(own, domain) {
            return None;
        }
        let one_more = |count| (count > 0).then(|| count + 1);
        qp.holds.handles.fetch_update(AcqRel, Acquire, one_more).ok()?;
        Some(qp)
    }
}

impl QpConfig {
    /// What sends and what receives, with the memory that they need.
    fn halves(&self) -> Result<(Requester, Responder), SizeError> {
        let tagged = self.receives.match_tags();
        let requester = match tagged {
            true => Requester::with_rendezvous(self.service, &self.send),
            false => Requester::new(self.service, &self.send),
        };
        let (receives, max_sge) = match &self.receives {
            &QpReceives::Own { size, max_sge } => (Receives::Own { size, max_sge }, max_sge),
            QpReceives::Srq(srq) => {
                let max_sge = if tagged { TAG_MAX_SGE } else { 0 };
                (Receives::Shared { tagged }, max_sge.max(srq.config().max_sge))
            }
            QpReceives::Xrc(_) => (Receives::Named, Limits::DEVICE.max_sge as usize),
            QpReceives::Nowhere => (Receives::Nowhere, 0),
        };
        Ok((requester?, Responder::new(self.service, receives, max_sge)?))
    }
}

impl QueuePair {
    /// Creates a queue pair in RESET. The sizes have been checked against [`Limits`].
    pub fn create(adapter: &Arc<Adapter>, config: QpConfig) -> Result<Arc<Self>, RegisterError> {
        let device = adapter.device();
        device.check_own()?;
        let (requester, responder) = config.halves().map_err(|_| RegisterError::Exhausted)?;
        let effects = requester.effects().map_err(|_| RegisterError::Exhausted)?;
        let receive = ReceiveHalf::new(config.service, responder);
        let receive = receive.map_err(|_| RegisterError::Exhausted)?;
        let events = config.events.attach(config.id, EVENTS)?;
        if let Some(pd) = &config.pd {
            pd.adopt().map_err(|_| RegisterError::Busy)?;
        }
        let feeds = Feeds::new(&config, &requester, &receive.responder);
        let made = feeds.and_then(|feeds| match adapter.queue_pairs.take_index() {
            Some(index) => Ok((index, feeds)),
            None => {
                feeds.all().for_each(Feed::end);
                Err(RegisterError::Exhausted)
            }
        });
        let (index, feeds) = made.inspect_err(|_| {
            if let Some(pd) = &config.pd {
                pd.release();
            }
        })?;
        let number = QpNumber::new(device.process().announcer().slot, index);
        match &config.receives {
            QpReceives::Srq(srq) => srq.adopt(),
            QpReceives::Xrc(domain) => domain.adopt(),
            QpReceives::Own { .. } | QpReceives::Nowhere => {}
        }
        let inherited = QpSummary::default();
        inherited.set_gate(Gate {
            state: QpState::Error,
            service: config.service,
            access: Access::empty(),
            by_message: false,
            read_resources: 0,
            pd: config.pd.as_ref().map_or(0, |pd| pd.number()),
        });
        let qp = Arc::new(Self {
            device: device.clone(),
            adapter: adapter.clone(),
            number,
            events,
            inherited,
            send: Mutex::new(SendHalf {
                attributes: QpAttributes::reset(),
                requester,
                link: Link::None,
                peer: QpNumber::from_bits(0),
                first: Psn::default(),
                scheduled: Scheduled::default(),
                counted: false,
                effects,
            }),
            receive: Receiving::new(receive),
            feeds,
            holds: Holds { handles: AtomicU32::new(1), memberships: AtomicU32::new(0) },
            counters: Counters::default(),
            told: Told::default(),
            config,
        });
        qp.open_gate(QpState::Reset, &QpAttributes::reset());
        let domain = match &qp.config.receives {
            QpReceives::Xrc(domain) => Some(domain),
            _ => None,
        };
        qp.summary().set_xrc_domain(domain.and_then(|domain| domain.file()));
        qp.summary().set_own_domain(domain.map_or(0, |domain| domain.number()));
        let shares = matches!(qp.config.receives, QpReceives::Srq(_) | QpReceives::Xrc(_));
        qp.summary().set_shares_receives(shares);
        adapter.queue_pairs.enter(index, &qp);
        Ok(qp)
    }

    /// Its number.
    pub fn number(&self) -> QpNumber {
        self.number
    }

    /// The device it is on.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The objects that are on it.
    pub fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    /// What it was created with.
    pub fn config(&self) -> &QpConfig {
        &self.config
    }

    /// What initiators see of it.
    #[inline]
    pub fn summary(&self) -> &QpSummary {
        if self.device.process().is_inherited() {
            return &self.inherited;
        }
        let table = self.device.process().segment().qps();
        table.summary(self.number.index()).expect("the table has an entry for every u16")
    }

    /// The queue pair at work where nothing is sent.
    fn here(&self) -> At<'_> {
        At::new(self, &Link::None, self.number, Psn::default())
    }

    /// How messages go by a link.
    fn segmentation(&self, link: &Link) -> Segmentation {
        match link {
            // The shared receive queue that a message names may be another process's, or this one's, whichever
            // has the receiving end: each message goes the one way or the other.
            Link::Loopback | Link::Local(_) if self.config.service == Service::XrcInitiator => {
                Segmentation::of_messages(MAX_PAYLOAD)
            }
            Link::None | Link::Loopback => Segmentation::default(),
            Link::Local(_) => {
                Segmentation { copied: MAX_COPIED, ..Segmentation::of_messages(MAX_PAYLOAD) }
            }
            Link::Wire(path) => path.segmentation(),
        }
    }

    /// Does what the device wants done on a half whose lock is held: whoever calls that half next
    /// completes behind it. What needs the other half is left for when no lock is held.
    #[inline]
    fn carry_out_all(&self, effects: &mut Effects, deferred: &mut Deferred) {
        for effect in effects.all() {
            self.carry_out(effect, deferred);
        }
        effects.clear();
    }

    /// Does one of these things.
    #[inline]
    fn carry_out(&self, effect: &Effect, deferred: &mut Deferred) {
        let Effect::Complete { completion, solicited } = effect else {
            return self.carry_out_other(effect, deferred);
        };
        self.receive_completes(completion, *solicited, deferred);
    }

    /// Has the completion of a receive seen.
    #[inline]
    fn receive_completes(&self, completion: &Completion, solicited: bool, deferred: &mut Deferred) {
        if self.counters.any(Counted::RECV) {
            self.count_receive(completion);
        }
        if let Some(feed) = &self.feeds.receive {
            feed.complete(completion, solicited, deferred);
        }
    }

    #[cold]
    fn count_receive(&self, completion: &Completion) {
        // Of a rendezvous the data is yet to come, and with it another completion.
        let announced = completion.flags & (Flags::TAG_MATCH | Flags::TAG_DATA_VALID);
        if announced != Flags::TAG_MATCH {
            let done = completion.status == Status::Success;
            self.counters.count(Counted::RECV, done.then_some(completion.byte_length.into()));
        }
    }

    #[cold]
    fn carry_out_other(&self, effect: &Effect, deferred: &mut Deferred) {
        match effect {
            Effect::CompleteShared { srq, completion, solicited } => {
                // A queue destroyed since has nobody left to tell.
                let srq = self.adapter.shared_queues.get(*srq);
                if let Some(feed) = srq.as_ref().and_then(|srq| srq.xrc_feed()) {
                    feed.complete(completion, *solicited, deferred);
                }
            }
            Effect::GiveUpShared { srq } => match (&self.config.receives, srq) {
                (QpReceives::Srq(srq), _) => srq.returned().add(1),
                (_, Some(number)) => {
                    if let Some(srq) = self.adapter.shared_queues.get(*number) {
                        srq.returned().add(1);
                    }
                }
                _ => {}
            },
            Effect::ForgetUnexpected => {
                if let QpReceives::Srq(srq) = &self.config.receives {
                    srq.forget_unexpected();
                }
            }
            Effect::Event(event) => self.raise_for(*event),
            Effect::FlushOther(QueueSide::Send) => {
                deferred.flush(self.number.index(), QueueSide::Receive);
            }
            Effect::FlushOther(QueueSide::Receive) => {
                deferred.flush(self.number.index(), QueueSide::Send);
            }
            Effect::Rendezvous => deferred.start_rendezvous(self.number.index()),
            Effect::Complete { .. } | Effect::Respond(_) => unreachable!("done elsewhere"),
        }
    }

    /// Runs `step` on the send queue, then carries out what can be.
    #[inline]
    fn drive<T>(
        &self,
        more: More,
        step: impl FnOnce(&mut Requester, &mut Context<'_, At<'_>>) -> T,
    ) -> T {
        let mut deferred = Deferred::default();
        let result = self.drive_with(more, &mut deferred, step);
        deferred.run(&self.adapter);
        result
    }

    #[inline]
    fn drive_with<T>(
        &self,
        more: More,
        deferred: &mut Deferred,
        step: impl FnOnce(&mut Requester, &mut Context<'_, At<'_>>) -> T,
    ) -> T {
        let mut guard = self.send.lock();
        let half = &mut *guard;
        let requester = &mut half.requester;
        let at = At::new(self, &half.link, half.peer, half.first);
        let mut cx = at.context(&mut half.effects);
        let result = step(requester, &mut cx);
        // What goes by packets leaves with what follows.
        let waits = match (&half.link, more) {
            (Link::Wire(_), More::Follows) => true,
            (Link::Wire(_), More::Perhaps) => self.leaves_with_next_poll(requester),
            _ => false,
        };
        if requester.has_work() && !waits {
            at.advance(requester, &mut cx, deferred);
        }
        at.settle(cx.effects, deferred);
        half.count(&self.device);
        let deadline = half.requester.deadline().filter(|deadline| half.scheduled.add(*deadline));
        drop(guard);
        if let Some(deadline) = deadline {
            self.device.work.schedule(deadline, self.number.index());
        }
        result
    }

    /// Whether what has been posted may wait for the next poll: a program that polls as it should has much on its
    /// way, and what comes back makes it poll. Then it is seen to that the poll sends it.
    fn leaves_with_next_poll(&self, requester: &Requester) -> bool {
        let waits = requester.packets_under_way() >= MUCH
            && requester.requests_waiting() < MOST_WAITING
            && !self.device.work.listens.load(Relaxed);
        if waits && let Some(wire) = self.device.port().wire() {
            wire.stall(self.number.index());
        }
        waits
    }

    /// Has a completion counter count these operations, as long as it is in RESET or INIT and until it is
    /// destroyed; on an error none of them (rules CC-06 to CC-09).
    pub fn attach_counter(
        &self,
        counter: &Arc<CompletionCounter>,
        operations: Counted,
    ) -> Result<(), AttachError> {
        // As a modify, so that the state stays.
        let _both = (self.send.lock(), self.receive.half.lock());
        let state = self.summary().gate().state;
        let here = Arc::ptr_eq(counter.device(), &self.device);
        if operations.is_empty() || !here || !matches!(state, QpState::Reset | QpState::Init) {
            return Err(AttachError::Invalid);
        }
        if !Counted::of(self.config.service).contains(operations) {
            return Err(AttachError::Unsupported);
        }
        if self.counters.any(operations) {
            return Err(AttachError::Taken);
        }
        self.counters.attach(counter, operations)
    }

    /// Posts a send work request and carries out what can be at once. If more follows, that may be left
    /// until then; if what follows cannot be posted, [`QueuePair::advance`] is to be called instead.
    #[inline]
    pub fn post_send(&self, request: &SendRequest<'_>, more: More) -> Result<(), PostError> {
        self.drive(more, |requester, cx| requester.post(request, cx))
    }

    /// Posts `count` send work requests in one go, all or none (rule PS-14). `each` calls the function
    /// it is given for one after the other; they have been checked against what the queue pair was
    /// created for.
    pub fn post_send_batch(
        &self,
        count: usize,
        each: impl FnOnce(PostOne<'_>) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        self.drive(More::Perhaps, |requester, cx| {
            requester.check_room(count, cx.summary)?;
            each(&mut |request| requester.post(request, cx))
        })
    }

    /// Posts a receive work request.
    pub fn post_receive(&self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        let mut guard = self.receive.half.lock();
        let half = &mut *guard;
        let at = self.here();
        let result = half.responder.post(request, &mut at.context(&mut half.effects));
        // In error it is flushed at once, and the completion may be one too many.
        let mut deferred = Deferred::default();
        half.settle(self, &mut deferred);
        drop(guard);
        deferred.run(&self.adapter);
        result
    }

    /// Goes on with what waited for time or room, or for more to follow.
    pub fn advance(&self) {
        self.drive(More::Nothing, |_, _| ());
    }

    /// Goes on because a deadline has come that the device was told.
    pub(crate) fn advance_in_time(&self, deadline: u64) {
        if self.send.lock().scheduled.take(deadline) {
            self.advance();
        }
    }

    /// Goes on with everything that waited for room on the wire.
    pub(crate) fn advance_packets(&self) {
        self.advance();
        let mut deferred = Deferred::default();
        self.receive.half.lock().advance(self, &mut deferred);
        deferred.run(&self.adapter);
    }

    /// Sends the delayed acknowledgement.
    pub(crate) fn acknowledge(&self) {
        self.receive.half.lock().acknowledge(self);
    }

    /// The same at exit. Another thread may be about to keep one back, for a message whose completion
    /// the program has seen already; but it may also be one that does not go on.
    pub(crate) fn acknowledge_at_exit(&self, until: Instant) {
        if let Some(mut half) = self.receive.half.try_lock_until(until) {
            half.acknowledge(self);
        }
    }

    /// Takes packets for this queue pair, all requests or all responses, that came from one place.
    pub(crate) fn take_packets(&self, packets: &[Packet<'_>], route: &Route) -> Taken {
        let Some(first) = packets.first() else { return Taken::Yes };
        if !is_of(self.config.service, first) {
            return Taken::WrongService;
        }
        let (source, destination) = (ip(&route.source), ip(&route.destination));
        let back = |link: &Link| match link {
            Link::Wire(path) if path.is_back(source, destination) => Taken::Yes,
            Link::Wire(_) => Taken::WrongAddress,
            _ => Taken::WrongService,
        };
        let mut deferred = Deferred::default();
        let taken = if first.operation.is_for_requester() {
            let mut taken = Taken::Yes;
            self.drive_with(More::Nothing, &mut deferred, |requester, cx| {
                taken = back(cx.process.link);
                if taken == Taken::Yes {
                    requester.on_packets(packets, cx);
                }
            });
            taken
        } else {
            let mut half = self.receive.half.lock();
            // Datagrams come from anywhere.
            let taken = match self.config.service {
                Service::Ud => Taken::Yes,
                _ => back(&half.link),
            };
            if taken == Taken::Yes {
                half.take(packets, route, self, &mut deferred);
            }
            taken
        };
        deferred.run(&self.adapter);
        taken
    }

    /// Carries out a segment that arrived for it. `answer` is called before the completion of a
    /// message can be seen.
    pub(crate) fn execute(
        &self,
        request: &Request,
        source: &mut dyn Source,
        sink: &mut dyn Sink,
        answer: Option<&dyn Fn(Reply)>,
        deferred: &mut Deferred,
    ) -> Reply {
        let mut guard = self.receive.half.lock();
        let half = &mut *guard;
        let at = self.here();
        let mut cx = at.context(&mut half.effects);
        let reply = half.responder.execute(request, source, sink, &mut cx);
        half.settle_around(|| answer.into_iter().for_each(|answer| answer(reply)), self, deferred);
        reply
    }

    /// Receives a plain SEND; false if [`QueuePair::execute`] is to carry it out. `acknowledge` is called before
    /// the completion can be seen. The caller knows that the device looks at no request.
    pub(crate) fn receive_at_once(
        &self,
        send: &PlainSend,
        source: &mut impl Source,
        acknowledge: &mut dyn FnMut(),
        deferred: &mut Deferred,
    ) -> bool {
        let mut guard = self.receive.half.lock();
        let half = &mut *guard;
        let at = self.here();
        let cx = at.context(&mut half.effects);
        let received = half.responder.receive_at_once(send, source, &cx);
        let Some(completion) = received else { return false };
        acknowledge();
        self.receive_completes(&completion, send.solicited, deferred);
        true
    }

    /// Starts the rendezvous that wait, as far as there is room.
    pub(crate) fn start_rendezvous(&self, deferred: &mut Deferred) {
        self.drive_with(More::Nothing, deferred, |requester, cx| {
            while requester.has_rendezvous_room() {
                let Some(next) = self.receive.half.lock().responder.next_rendezvous() else {
                    break;
                };
                requester.rendezvous(&next, cx);
            }
        });
    }

    /// Takes a reply.
    pub(crate) fn on_reply(&self, answer: &transom_net::Answer, payload: &mut dyn Source) {
        self.drive(More::Nothing, |requester, cx| {
            let data: Option<&mut dyn Source> = match answer.reply {
                Reply::Data { .. } => Some(payload),
                _ => None,
            };
            requester.on_reply(answer.message, answer.attempt, answer.reply, data, cx);
        });
    }

    /// The process at the other end is gone: what is under way is lost.
    pub(crate) fn on_peer_lost(&self, peer: &Arc<Peer>) {
        // A queue pair of another peer may be in the middle of a revocation that waits, with its
        // lock held; the loss of this peer must not wait for that. One that is being connected just
        // now has nothing under way.
        let slot = peer.announcer.slot;
        let xrc = self.config.service == Service::XrcInitiator;
        if self.summary().peering().from.slot() != slot && !xrc {
            return;
        }
        self.drive(More::Nothing, |requester, cx| {
            let linked =
                matches!(cx.process.link, Link::Local(linked) if Arc::ptr_eq(linked, peer));
            if linked || requester.sends_to(slot) {
                requester.on_silence(cx);
            }
        });
    }

    /// Whether it waits for an answer to a packet that it has sent to this queue pair at this address.
    pub(crate) fn waits_for_answer(&self, to: IpAddr, peer: QpNumber, psn: Psn) -> bool {
        // Mostly not, which is seen without the lock.
        if self.summary().peering().from != peer {
            return false;
        }
        let half = self.send.lock();
        half.leads_to(to) && half.requester.waits_for_answer(psn)
    }

    /// Nobody is at this address any more who could answer for those queue pairs of which `is_over` says so.
    pub(crate) fn on_nobody_there(&self, to: IpAddr, is_over: impl Fn(QpNumber) -> bool) {
        if !is_over(self.summary().peering().from) {
            return;
        }
        self.drive(More::Nothing, |requester, cx| {
            if leads_to(cx.process.link, to) {
                requester.on_nobody_there(cx);
            }
        });
    }

    /// Flushes one queue of a queue pair in error.
    pub(crate) fn flush(&self, side: QueueSide, deferred: &mut Deferred) {
        match side {
            QueueSide::Send => {
                let half = &mut *self.send.lock();
                if self.summary().gate().state == QpState::Error {
                    half.flush(self, deferred);
                    half.count(&self.device);
                }
            }
            QueueSide::Receive => {
                let half = &mut *self.receive.half.lock();
                if self.summary().gate().state == QpState::Error {
                    half.flush(self, deferred);
                }
            }
        }
    }

    /// Where its sends and its receives complete, but for those of XRC's shared queues.
    pub(crate) fn own_completion_queues(&self) -> impl Iterator<Item = &Arc<Cq>> {
        self.feeds.all().map(Feed::cq)
    }

    /// Whether it completes into the queue of this id, be it where a shared queue of its XRC domain
    /// says.
    pub(crate) fn feeds(&self, cq: u64) -> bool {
        self.own_completion_queues().any(|own| own.id() == cq)
            || matches!(&self.config.receives, QpReceives::Xrc(domain)
                if self.adapter.shared_queues.any_completes_to(domain, cq))
    }

    /// Forgets a receive it has taken from this shared queue, which is gone.
    pub(crate) fn forget_shared(&self, srq: u32) {
        self.receive.half.lock().responder.forget_shared(srq);
    }

    /// Puts it in error because a completion was lost (rules CQ-05, AE-03).
    pub(crate) fn fail_fatally(&self, deferred: &mut Deferred) {
        // With both, as `modify` has them: else that might open the gate again that falls here.
        let fell = {
            let _both = (self.send.lock(), self.receive.half.lock());
            self.summary().fall(QpState::Error)
        };
        if fell {
            debug!(qp = %self.number, "queue pair in error, a completion was lost");
            self.raise(AsyncEvent::QpFatal);
        }
        self.flush(QueueSide::Send, deferred);
        self.flush(QueueSide::Receive, deferred);
    }

    fn raise(&self, event: AsyncEvent) {
        self.events.raise(event);
    }

    fn raise_for(&self, event: QpEvent) {
        self.raise(match event {
            QpEvent::Established => AsyncEvent::Established,
            QpEvent::AccessError => AsyncEvent::QpAccessError,
            QpEvent::RequestError => AsyncEvent::QpRequestError,
            QpEvent::SendQueueDrained => AsyncEvent::SendQueueDrained,
            QpEvent::LastWqeReached => AsyncEvent::LastWqeReached,
        });
    }

    /// Whether something keeps it: a window that is bound, on a device with 2A windows (rule T2-06),
    /// or its being a member of a multicast group (rule CR-10).
    pub fn check_unused(&self) -> Result<(), Busy> {
        let bound = self.device.options().windows_2a && self.summary().windows() > 0;
        if bound || self.holds.memberships.load(Acquire) > 0 { Err(Busy) } else { Ok(()) }
    }

    /// Ends the queue pair unless something keeps it. When it returns, nothing arrives through it any
    /// more and its completions are gone.
    pub fn destroy(&self) -> Result<(), Busy> {
        self.check_unused()?;
        match self.holds.handles.fetch_update(AcqRel, Acquire, |count| count.checked_sub(1)) {
            Ok(1) => {}
            // Others hold it, or it is gone already.
            Ok(_) | Err(_) => return Ok(()),
        }
        // That of a forked child's parent goes on.
        if !self.device.process().is_inherited() {
            self.close();
            self.summary().leave();
        }
        self.adapter.queue_pairs.leave(self.number.index());
        let QpConfig { pd, receives, .. } = &self.config;
        self.feeds.all().for_each(Feed::end);
        match receives {
            QpReceives::Srq(srq) => srq.release(),
            QpReceives::Xrc(domain) => domain.release(),
            QpReceives::Own { .. } | QpReceives::Nowhere => {}
        }
        if let Some(pd) = pd {
            pd.release();
        }
        self.counters.release();
        Ok(())
    }

    /// Lets nothing in any more, and waits for what is under way.
    fn close(&self) {
        let mut deferred = Deferred::default();
        {
            let mut half = self.send.lock();
            let mut receive = self.receive.half.lock();
            receive.repeat_last_acknowledgement(self);
            self.open_gate(QpState::Reset, &QpAttributes::reset());
            half.requester.reset();
            half.count(&self.device);
            half.lead(Link::None, QpNumber::from_bits(0), self);
            receive.reset(self, &mut deferred);
        }
        deferred.run(&self.adapter);
        // A program may end next, and its peer is to have the last answers.
        self.device.port().send_rest();
        let keys = self.device.process().segment().keys();
        keys.drain_queue_pair(self.number.index(), &**self.device.process());
    }

    /// Ends it with its context: what would refuse [`QueuePair::destroy`] goes first.
    pub fn leave_groups(&self) {
        self.adapter.groups.leave_all(self.device.port(), self);
    }

    /// Its protection domain's number; the receiving end of XRC has none, which is zero.
    pub(crate) fn pd_number(&self) -> u32 {
        self.config.pd.as_ref().map_or(0, |pd| pd.number())
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;

    /// A timeout, and a pause that a receiver asks for before it again and again: what was told of the timeout before
    /// does not pile up, and each deadline is kept.
    #[test]
    fn deadlines_that_are_out_of_date_come_to_nothing() {
        const TIMEOUT: u64 = 1_000_000;
        const PAUSE: u64 = 7;
        let (mut scheduled, mut told) = (Scheduled::default(), BinaryHeap::new());
        let tell = |scheduled: &mut Scheduled, told: &mut BinaryHeap<_>, deadline| {
            if scheduled.add(deadline) {
                told.push(Reverse(deadline));
            }
        };
        let (mut now, mut rounds) = (0, 0);
        tell(&mut scheduled, &mut told, TIMEOUT);
        while now < 3 * TIMEOUT {
            let wanted = now + PAUSE;
            tell(&mut scheduled, &mut told, wanted);
            loop {
                let Some(Reverse(deadline)) = told.pop() else { panic!("{wanted} is forgotten") };
                now = deadline;
                if scheduled.take(deadline) {
                    break;
                }
            }
            assert!(now <= wanted, "{now} and not {wanted}");
            if now == wanted {
                rounds += 1;
                tell(&mut scheduled, &mut told, now + TIMEOUT);
            }
            assert!(told.len() <= 2, "{told:?}");
        }
        assert!(rounds > 100_000);
    }
}
