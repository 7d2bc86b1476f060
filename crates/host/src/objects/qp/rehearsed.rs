//! A queue pair in a rehearsal: its requests may begin late, and what means nothing holds rubbish. [`failures`]: work
//! ends in error. [`late`]: requests begin late. [`flushes`]: what is flushed comes late. [`lost`]: the peers are gone, or hear nothing for a long
//! time. [`placement`]: bytes of a message land in two turns. [`losses`]: messages of UC and UD are lost. [`unseen`]:
//! the data of WRITEs that are complete comes later. [`passing`]: READs are passed. [`torn`]: sources are read in two
//! moments. [`atomics`]: atomics are two steps.

mod atomics;
mod failures;
mod flushes;
mod late;
mod losses;
mod lost;
mod passing;
mod placement;
mod torn;
mod unseen;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use transom_device::execution::{Bytes, Context, LocalBuffers, Requester, Source as _};
use transom_device::protection::Operation;
use transom_device::qp::{QpNumber, QpState, Service};
use transom_device::queue::{Body, SendOp, SendRequest};
use transom_rehearse::Provocation;
use transom_system::clock;
use transom_system::rehearsal::{self, Rehearsal};

use super::QueuePair;
use super::services::At;
use crate::objects::Adapter;
use crate::objects::cq::Feed;
use crate::objects::scribbled::{Receives, SCRIBBLED};
use flushes::Flushes;
use late::Late;
use losses::Losses;
use placement::Placement;
use torn::Torn;
use unseen::Unseen;

/// The shortest time that a request is late, in nanoseconds. It may be doubled [`DOUBLINGS`] times.
const SHORTEST: u64 = 100_000;
const DOUBLINGS: u64 = 8;
/// The same of an outage of the port.
const OUTAGE: u64 = 400_000;

/// What a rehearsal counts of a queue pair.
#[derive(Debug)]
pub(super) struct Rehearsed {
    rehearsal: &'static Rehearsal,
    /// The number of the queue pair in this process, in the order of their creation. Its number in packets would not
    /// do: that differs from run to run.
    object: u32,
    /// How many times requests were handed to the send queue.
    sends: AtomicU64,
    /// How many elements of lists the program has posted.
    posts: AtomicU64,
    /// Its receives. Those of a shared queue are not among them.
    receives: Receives,
    /// How many times the program has queried it.
    queries: AtomicU64,
    /// How many datagrams came to it by IPv4.
    datagrams: AtomicU64,
    requests: Requests,
    late: Late,
    /// How many messages took a receive that could have failed.
    received: AtomicU64,
    flushes: Flushes,
    placement: Placement,
    /// Its peer is gone.
    has_lost_peer: AtomicBool,
    /// Its send queue was stuck once.
    was_stuck: AtomicBool,
    losses: Losses,
    unseen: Unseen,
    /// A READ or atomic waits, and what is posted next may pass it.
    lets_pass: AtomicBool,
    torn: Torn,
    /// How many atomics have arrived.
    atomics: AtomicU64,
    /// It cannot be made ready to receive, the next time.
    is_kept_back: AtomicBool,
}

/// The requests that the program has posted, by what could happen to them.
#[derive(Debug, Default)]
struct Requests {
    all: AtomicU64,
    reads: AtomicU64,
    /// READs and atomics.
    passed: AtomicU64,
    /// Those with data in buffers.
    torn: AtomicU64,
    /// Those whose bytes may land early.
    placed: AtomicU64,
}

/// How many requests came before one, of each kind that it is one of. They count whatever happens to them, so that a
/// place means the same request in each run.
struct Before {
    all: u64,
    reads: Option<u64>,
    passed: Option<u64>,
    torn: Option<u64>,
    placed: Option<u64>,
}

impl Requests {
    /// Counts one.
    fn count(&self, request: &SendRequest<'_>) -> Before {
        let count = |which: &AtomicU64, is_one: bool| is_one.then(|| which.fetch_add(1, Relaxed));
        Before {
            all: self.all.fetch_add(1, Relaxed),
            reads: count(&self.reads, is_read(request)),
            passed: count(&self.passed, is_read(request) || is_atomic(request)),
            torn: count(&self.torn, torn::length_of(request).is_some()),
            placed: count(&self.placed, placement::one_sided(request).is_some()),
        }
    }
}

fn is_read(request: &SendRequest<'_>) -> bool {
    matches!(request.op, SendOp::Message(Body::Read { .. }))
}

fn is_atomic(request: &SendRequest<'_>) -> bool {
    matches!(request.op, SendOp::Message(Body::FetchAdd { .. } | Body::CompareSwap { .. }))
}

/// How late something is, in nanoseconds, by a random number.
fn lateness(number: u64) -> u64 {
    SHORTEST << (number % (DOUBLINGS + 1))
}

impl Rehearsed {
    /// For a new queue pair. None if there is no rehearsal.
    pub(super) fn new(service: Service) -> Option<Box<Self>> {
        let rehearsal = rehearsal::on()?;
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let object = NEXT.fetch_add(1, Relaxed);
        let [sends, posts, queries, datagrams, received, atomics] =
            [const { AtomicU64::new(0) }; 6];
        let (flushes, placement) = (Flushes::default(), Placement::default());
        let (has_lost_peer, was_stuck, is_kept_back) = Default::default();
        Some(Box::new(Self {
            rehearsal,
            object,
            sends,
            posts,
            receives: Receives::new(),
            queries,
            datagrams,
            requests: Requests::default(),
            late: Late::default(),
            received,
            flushes,
            placement,
            has_lost_peer,
            was_stuck,
            losses: Losses::default(),
            unseen: Unseen::new(rehearsal, service, object),
            lets_pass: AtomicBool::new(false),
            torn: Torn::default(),
            atomics,
            is_kept_back,
        }))
    }

    /// Counts an operation. Returns how many came before.
    fn count(&self, which: impl FnOnce(&Self) -> &AtomicU64) -> u64 {
        which(self).fetch_add(1, Relaxed)
    }

    /// Whether something is provoked at the n-th operation: then a random number, for what is left to choose.
    fn provokes(&self, provocation: Provocation, nth: u64) -> Option<u64> {
        self.rehearsal.provokes(provocation, self.object, nth)
    }
}

impl Adapter {
    /// An id of rdma_cm connects the queue pair of this number.
    pub fn note_connecting(&self, number: u32) {
        if rehearsal::on().is_some() {
            self.queue_pairs.let_rest(QpNumber::from_bits(number).index());
        }
    }

    /// The queue pair of this number cannot be made ready to receive, when its peer has accepted. False if it is not of
    /// this process, or has got so far already.
    pub fn keep_back(&self, number: u32) -> bool {
        let number = QpNumber::from_bits(number);
        let pair = self.queue_pairs.get(number.index()).filter(|pair| pair.number == number);
        pair.is_some_and(|pair| {
            let waits = matches!(pair.summary().gate().state, QpState::Reset | QpState::Init);
            let rehearsed = pair.rehearsed().filter(|_| waits);
            rehearsed.inspect(|it| it.is_kept_back.store(true, Relaxed)).is_some()
        })
    }

    /// A receive with these buffers is taken for a message.
    pub(in super::super) fn clean(&self, local: LocalBuffers<'_>) {
        self.scribbled.clean(local, self.device.process());
    }
}

impl QueuePair {
    /// What a rehearsal counts of it, if there is one.
    #[inline]
    pub(super) fn rehearsed(&self) -> Option<&Rehearsed> {
        self.rehearsed.as_deref()
    }

    /// Requests are posted. The queue may have to begin them late.
    #[cold]
    pub(super) fn hold(&self, rehearsed: &Rehearsed, requester: &mut Requester) {
        let nth = rehearsed.count(|it| &it.sends);
        if requester.is_held() {
            return;
        }
        let late = || rehearsed.provokes(Provocation::LateWork, nth).map(lateness);
        if let Some(wait) = rehearsed.is_stuck(nth) {
            requester.hold(clock::steady() + wait);
        } else if let Some(wait) = late() {
            rehearsed.late.begin(requester, wait);
        }
    }

    /// A request is about to be posted, which there is room for. If it is a READ, its target belongs to the device from
    /// now on, and may be scribbled on. That is done only if the request will be begun, and nothing is outstanding that
    /// may still use the same memory.
    #[cold]
    fn scribble(
        &self,
        rehearsed: &Rehearsed,
        requester: &mut Requester,
        request: &SendRequest<'_>,
        before: &Before,
        cx: &Context<'_, At<'_>>,
    ) {
        let Some(nth) = before.reads else { return };
        let is_taken = matches!(self.config.service, Service::Rc | Service::XrcInitiator)
            && request.sges.len() <= self.config.send.max_sge;
        let is_idle = requester.occupancy().1 == 0 && cx.summary.gate().state == QpState::Rts;
        if !is_taken || !is_idle {
            return;
        }
        let target = cx.process.local(request.sges);
        if target.check(Operation::LocalWrite).is_err() {
            return;
        }
        if let Some(number) = rehearsed.provokes(Provocation::ScribbledTargets, nth) {
            let length = LocalBuffers::length(request.sges).min(SCRIBBLED as u64);
            let bytes = &[number as u8 | 1; SCRIBBLED];
            let mut rubbish = Bytes { bytes, process: cx.process };
            // If its memory is gone, the READ says so.
            let _ = target
                .each(Operation::LocalWrite, 0, length, |at, grant| rubbish.copy_to(at, grant));
        }
    }

    /// A receive has been posted, and the receiving half is still locked.
    #[cold]
    pub(super) fn scribble_receive(&self, rehearsed: &Rehearsed, local: LocalBuffers<'_>) {
        // In error it has been flushed.
        if self.summary().gate().state != QpState::Error {
            let Rehearsed { rehearsal, receives, .. } = rehearsed;
            self.adapter.scribbled.scribble(rehearsal, receives, local, self.device.process());
        }
    }

    /// A WRITE with immediate has taken one of its receives.
    pub(super) fn note_write(&self) {
        self.rehearsed().inspect(|it| it.receives.note_write());
    }

    /// Its receives end without a message.
    pub(super) fn forget_scribbled(&self) {
        if let Some(rehearsed) = self.rehearsed() {
            self.adapter.scribbled.forget(&rehearsed.receives);
        }
    }

    /// Fills bytes before the header of a datagram, which mean nothing, with rubbish. They never look like the version
    /// of an IPv6 header.
    #[inline]
    pub(super) fn fill_undefined(&self, bytes: &mut [u8]) {
        let Some(rehearsed) = self.rehearsed() else { return };
        let nth = rehearsed.count(|it| &it.datagrams);
        if let Some(rubbish) = rehearsed.provokes(Provocation::PoisonedHeaders, nth) {
            bytes.fill(0x80 | rubbish as u8 & 0x1f);
        }
    }

    /// The program posts a request, the n-th. The port may go down for a while, once in the life of the process. Or the
    /// device goes.
    fn meet_trouble(&self, rehearsed: &Rehearsed, nth: u64) {
        static WAS_DOWN: AtomicBool = AtomicBool::new(false);
        if !WAS_DOWN.load(Relaxed)
            && let Some(number) = rehearsed.provokes(Provocation::PortOutages, nth)
            && !WAS_DOWN.swap(true, Relaxed)
        {
            self.device.take_port_down(OUTAGE << (number % (DOUBLINGS + 1)));
        }
        if self.device.check().is_ok()
            && rehearsed.provokes(Provocation::RemovedDevices, nth).is_some()
        {
            self.device.remove();
        }
    }

    /// The queue pair begins anew, or ends. Nothing of its last life is left.
    pub(super) fn rehearse_anew(&self) {
        if let Some(rehearsed) = self.rehearsed() {
            rehearsed.flushes.forget();
            self.forget_scribbled();
            rehearsed.torn.forget();
            rehearsed.has_lost_peer.store(false, Relaxed);
            rehearsed.is_kept_back.store(false, Relaxed);
        }
    }

    /// Whether the completions stay that nobody has polled when it ends. Its number rests then: one of a new queue pair
    /// could not be told from them, not by the check of this process either.
    pub(super) fn leaves_completions(&self) -> bool {
        let leaves = self.rehearsed().is_some_and(|rehearsed| {
            self.feeds.all().any(Feed::is_unpolled)
                && rehearsed.provokes(Provocation::KeptCompletions, 0).is_some()
        });
        if leaves {
            self.adapter.queue_pairs.let_rest(self.number.index());
        }
        leaves
    }

    /// Whether the device refuses an element of a list that the program posts. It may also take the port down before, or
    /// go.
    pub fn refuses_post(&self) -> bool {
        self.rehearsed().is_some_and(|rehearsed| {
            let nth = rehearsed.count(|it| &it.posts);
            self.meet_trouble(rehearsed, nth);
            rehearsed.provokes(Provocation::RefusedPosts, nth).is_some()
        })
    }

    /// Whether it cannot be made ready to receive.
    pub fn is_kept_back(&self) -> bool {
        self.rehearsed().is_some_and(|it| it.is_kept_back.swap(false, Relaxed))
    }

    /// The same of an element of a list of receives.
    pub fn refuses_receive(&self) -> bool {
        self.rehearsed().is_some_and(|it| it.receives.refuse(it.rehearsal))
    }

    /// Whether what the program has not asked for holds rubbish in a query of the attributes: then a random number.
    pub fn poisons_query(&self) -> Option<u64> {
        let rehearsed = self.rehearsed()?;
        rehearsed.provokes(Provocation::PoisonedAttributes, rehearsed.count(|it| &it.queries))
    }
}
