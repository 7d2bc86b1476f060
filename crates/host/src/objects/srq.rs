//! Shared receive queues (rules SQ-01 to SQ-09) and the XRC domains that group them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use transom_device::execution::LocalBuffers;
use transom_device::queue::{
    Completion, PostError, Receive, ReceiveQueue, ReceiveRequest, Returned, Sge, SizeError, Status,
    TagList, TagPart, TagRequest, Take,
};
use transom_system::catalog::{Listed, Number, SharedKind};
use transom_system::object_counts::ObjectKind;
use transom_system::registry::{Fate, Work};
use transom_system::rehearsal::{self, Rehearsal};
use transom_system::tools;
use transom_system::trace::{Event, What};

use super::cq::Feed;
use super::scribbled::Receives;
use super::{Adapter, Busy, Cq, Deferred, ProtectionDomain, RegisterError, XrcDomain};
use crate::device::{Device, Limits};
use crate::events::{AsyncEvent, EventQueue, EventSource};

/// The attributes that make a shared receive queue one for XRC.
#[derive(Clone)]
pub struct XrcConfig {
    /// Its domain. Only queue pairs of the same domain reach it.
    pub domain: Arc<XrcDomain>,
    /// Where its receives complete.
    pub cq: Arc<Cq>,
}

/// The attributes that make a shared receive queue match tags.
#[derive(Clone)]
pub struct TagMatchingConfig {
    /// Tagged buffers.
    pub tags: usize,
    /// The completion queue of list operations and all receives.
    pub cq: Arc<Cq>,
}

/// The attributes to create a shared receive queue with.
#[derive(Clone)]
pub struct SrqConfig {
    /// Its protection domain. Receives are checked against it (rule PD-13).
    pub pd: Arc<ProtectionDomain>,
    /// Work requests.
    pub size: usize,
    /// SGEs of each.
    pub max_sge: usize,
    /// For XRC.
    pub xrc: Option<XrcConfig>,
    /// For tag matching.
    pub tag_matching: Option<TagMatchingConfig>,
    /// Where its events go.
    pub events: Arc<EventQueue<AsyncEvent>>,
    /// How events name it.
    pub id: u64,
}

impl SrqConfig {
    /// Whether all that it names belongs to this device.
    fn is_of(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(self.pd.device(), device)
            && self.xrc.as_ref().is_none_or(|xrc| xrc.domain.is_of(device))
            && self.completion_queue().is_none_or(|cq| cq.is_of(device))
    }

    /// The completion queue of its receives if it is for XRC, or of its list operations if it matches tags.
    fn completion_queue(&self) -> Option<&Arc<Cq>> {
        let xrc = self.xrc.as_ref().map(|xrc| &xrc.cq);
        xrc.or(self.tag_matching.as_ref().map(|matching| &matching.cq))
    }

    /// How others see it.
    fn listed(&self, index: u16) -> Listed {
        let kind = match (&self.xrc, &self.tag_matching) {
            (Some(_), _) => SharedKind::Xrc,
            (None, Some(_)) => SharedKind::TagMatching,
            (None, None) => SharedKind::Basic,
        };
        let completes_to = self.completion_queue().and_then(|cq| cq.listed());
        Listed::SharedReceiveQueue { index, kind, domain: self.pd.number(), completes_to }
    }
}

/// A shared receive queue. It lives until [`SharedReceiveQueue::destroy`].
pub struct SharedReceiveQueue {
    adapter: Arc<Adapter>,
    number: u32,
    /// By which others see it.
    listed: Option<Number>,
    config: SrqConfig,
    /// The tagged buffers, if tags are matched. Lock order: this lock comes before that of `queue`.
    tags: Option<Mutex<TagList>>,
    queue: Mutex<ReceiveQueue>,
    /// Polls give back the places of its receives here.
    returned: Arc<Returned>,
    /// To its configuration's completion queue.
    feed: Option<Feed>,
    events: EventSource<AsyncEvent>,
    users: AtomicU32,
    /// It has been noted that there was no room for a receive.
    told_full: AtomicBool,
    /// Its receives, as a rehearsal counts them.
    receives: Receives,
}

/// The attributes that a program can ask for (`ibv_query_srq(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqAttributes {
    /// Work requests.
    pub size: usize,
    /// SGEs of each.
    pub max_sge: usize,
    /// The armed limit, or zero.
    pub limit: usize,
}

/// The shared receive queues of a device, by number.
#[derive(Default)]
pub(crate) struct SharedQueues {
    by_index: RwLock<HashMap<u16, Weak<SharedReceiveQueue>>>,
    next: AtomicU32,
}

impl SharedQueues {
    /// Where those of XRC complete.
    pub(crate) fn completion_queues(&self) -> Vec<Arc<Cq>> {
        // Drop them with nothing locked: one of them may be the last reference.
        let all: Vec<_> = self.by_index.read().values().filter_map(Weak::upgrade).collect();
        all.iter().filter_map(|srq| Some(srq.config.xrc.as_ref()?.cq.clone())).collect()
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<SharedReceiveQueue>> {
        self.by_index.read().values().filter_map(Weak::upgrade).collect()
    }

    /// The queue of this number.
    pub(crate) fn get(&self, number: u32) -> Option<Arc<SharedReceiveQueue>> {
        let found = self.by_index.read().get(&(number as u16))?.upgrade()?;
        (found.number == number).then_some(found)
    }

    /// Whether a queue of this XRC domain completes into the completion queue of this id.
    pub(crate) fn any_completes_to(&self, domain: &Arc<XrcDomain>, cq: u64) -> bool {
        self.by_index.read().values().filter_map(Weak::upgrade).any(|srq| {
            let xrc = srq.config.xrc.as_ref();
            xrc.is_some_and(|xrc| Arc::ptr_eq(&xrc.domain, domain) && xrc.cq.id() == cq)
        })
    }
}

impl SharedReceiveQueue {
    /// Creates a queue. The sizes have been checked against [`Limits`].
    pub fn create(adapter: &Arc<Adapter>, config: SrqConfig) -> Result<Arc<Self>, RegisterError> {
        adapter.device().check_own()?;
        if !config.is_of(adapter.device()) {
            return Err(RegisterError::OtherDevice);
        }
        let queue = ReceiveQueue::shared(config.size, config.max_sge);
        let queue = queue.map_err(|_| RegisterError::Exhausted)?;
        let events = config.events.attach(config.id, &[AsyncEvent::SrqLimitReached])?;
        let tags = config.tag_matching.as_ref().map(|matching| TagList::new(matching.tags));
        let tags = tags.transpose().map_err(|_| RegisterError::Exhausted)?;
        config.pd.adopt().map_err(|_| RegisterError::Busy)?;
        let queues = &adapter.shared_queues;
        let mut by_index = queues.by_index.write();
        let limit = Limits::here().shared_receive_queues as usize;
        let free = (0..=u16::MAX)
            .map(|_| queues.next.fetch_add(1, Relaxed) as u16)
            .find(|index| !by_index.contains_key(index))
            .filter(|_| by_index.len() < limit && by_index.try_reserve(1).is_ok());
        // Other processes look only at those of XRC.
        let segment = adapter.device().process().segment();
        let open = |index: &u16| config.xrc.is_none() || segment.open_srq(*index).is_ok();
        let made = free.filter(open).ok_or(RegisterError::Exhausted).and_then(|index| {
            let cq = config.completion_queue();
            Ok((index, cq.map(|cq| Feed::new(cq, queue.returned())).transpose()?))
        });
        let (index, feed) = made.inspect_err(|_| config.pd.release())?;
        if let Some(xrc) = &config.xrc {
            xrc.domain.adopt();
        }
        let srq = Arc::new(Self {
            adapter: adapter.clone(),
            number: u32::from(adapter.device().process().announcer().slot) << 16 | u32::from(index),
            listed: adapter.device().process().list(config.listed(index)),
            tags: tags.map(Mutex::new),
            returned: queue.returned().clone(),
            queue: Mutex::new(queue),
            feed,
            events,
            users: AtomicU32::new(0),
            told_full: AtomicBool::new(false),
            receives: Receives::new(),
            config,
        });
        by_index.insert(index, Arc::downgrade(&srq));
        if let Some(xrc) = &srq.config.xrc {
            segment.srq(index).set(srq.config.pd.number(), xrc.domain.number());
        }
        adapter.device().process().objects().add(ObjectKind::SharedReceiveQueue);
        Ok(srq)
    }

    /// Its number. XRC messages name it.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The device it is on.
    pub fn device(&self) -> &Arc<Device> {
        self.adapter.device()
    }

    /// The objects that are beside it.
    pub(super) fn adapter(&self) -> &Adapter {
        &self.adapter
    }

    /// For a queue that has no room: how many places it has, and how many of them hold receives that wait. It answers
    /// once.
    #[cold]
    pub fn why_full(&self) -> Option<(usize, usize)> {
        let queue = self.queue.lock();
        let first = !self.told_full.swap(true, Relaxed);
        first.then(|| (queue.size(), queue.len()))
    }

    /// The attributes it was created with.
    pub fn config(&self) -> &SrqConfig {
        &self.config
    }

    /// Posts a receive.
    pub fn post(&self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        let mut queue = self.queue.lock();
        queue.post(request)?;
        if tools::any() {
            self.trace_posted(request);
            if let Some(rehearsal) = rehearsal::on() {
                self.scribble(rehearsal, request.sges);
            }
        }
        Ok(())
    }

    #[cold]
    fn trace_posted(&self, request: &ReceiveRequest<'_>) {
        self.device().process().record(Event {
            key: self.number,
            number: request.wr_id,
            length: LocalBuffers::length(request.sges),
            ..Event::of(What::ReceivePosted)
        });
    }

    /// A receive has been posted, and the queue is still locked.
    #[cold]
    fn scribble(&self, rehearsal: &Rehearsal, sges: &[Sge]) {
        let process = self.device().process();
        let local = LocalBuffers {
            sges,
            keys: process.segment().keys(),
            announcer: process.announcer(),
            waiter: &**process,
            qp: 0,
            pd: self.config.pd.number(),
        };
        // Software may have a receive with a tag.
        if self.tags.is_none() {
            self.adapter.scribbled.scribble(rehearsal, &self.receives, local, process);
        }
    }

    /// A WRITE with immediate has taken a receive, in a rehearsal.
    pub(super) fn note_write(&self) {
        self.receives.note_write();
    }

    /// Whether a rehearsal refuses an element of a list that the program posts.
    pub fn refuses_receive(&self) -> bool {
        rehearsal::on().is_some_and(|rehearsal| self.receives.refuse(rehearsal))
    }

    /// Carries out a list operation of tag matching. Returns the handle of a buffer that was added.
    pub fn post_list_operation(&self, request: &TagRequest<'_>) -> Result<Option<u32>, PostError> {
        let (Some(tags), Some(feed)) = (&self.tags, &self.feed) else {
            return Err(PostError::WrongService);
        };
        let mut tags = tags.lock();
        let done = tags.apply(request)?;
        // Under the lock: no message may match a buffer before the completion of its addition is visible.
        let overrun = done.completion.is_some_and(|done| feed.push(&done, false));
        drop(tags);
        if let Some(Completion { wr_id, opcode, status: status @ Status::TagMatching, .. }) =
            done.completion
        {
            let work = Work { wr_id, opcode, status };
            self.device().process().note_work(0, 0, Some(work), Fate::NoTag);
        }
        if overrun {
            let mut deferred = Deferred::default();
            deferred.fail_users(feed.cq().id());
            deferred.run(&self.adapter);
        }
        Ok(done.handle)
    }

    /// How many receives wait in it. `None` if another thread is at it.
    pub(super) fn waiting(&self) -> Option<usize> {
        self.queue.try_lock().map(|queue| queue.len())
    }

    /// Polls give back the places of its receives here.
    pub(super) fn returned(&self) -> &Arc<Returned> {
        &self.returned
    }

    /// The completion queue of its receives, if it is for XRC.
    pub(super) fn xrc_feed(&self) -> Option<&Feed> {
        self.feed.as_ref().filter(|_| self.config.xrc.is_some())
    }

    /// How many messages that came into it nobody has polled, if it is for XRC. They are lost when it ends. A completion
    /// queue that is busy for so long is left out.
    pub fn unpolled_messages(&self, patience: Duration) -> usize {
        self.xrc_feed().and_then(|feed| feed.messages(patience)).unwrap_or(0)
    }

    /// Takes a receive for a message: the tagged buffer that waits for its tag, else the oldest ordinary one, if that
    /// has room for `least` bytes.
    pub(crate) fn take(&self, tag: Option<u64>, least: u64, receive: &mut Receive) -> Take {
        let Some(tags) = &self.tags else { return self.take_ordinary(least, receive) };
        let Some(tag) = tag else {
            receive.part = TagPart::NoTag;
            return self.take_ordinary(least, receive);
        };
        let mut tags = tags.lock();
        if tags.take(tag, receive) {
            receive.pd = self.config.pd.number();
            return Take::Taken;
        }
        let found = self.take_ordinary(least, receive);
        if found == Take::Taken {
            receive.part = tags.note_unexpected();
        }
        found
    }

    /// An unexpected message has failed.
    pub(crate) fn forget_unexpected(&self) {
        if let Some(tags) = &self.tags {
            tags.lock().forget_unexpected();
        }
    }

    /// Takes the oldest receive if it has room for `least` bytes, and reports when the limit is reached.
    fn take_ordinary(&self, least: u64, receive: &mut Receive) -> Take {
        let mut queue = self.queue.lock();
        let found = queue.take(least, receive);
        let reached = found == Take::Taken && queue.reached_limit();
        drop(queue);
        receive.pd = self.config.pd.number();
        receive.srq = self.config.xrc.as_ref().map(|_| self.number);
        if reached {
            self.raise_limit();
        }
        found
    }

    fn raise_limit(&self) {
        self.events.raise(AsyncEvent::SrqLimitReached);
    }

    /// Its current attributes.
    pub fn query(&self) -> SrqAttributes {
        let queue = self.queue.lock();
        SrqAttributes { size: queue.size(), max_sge: queue.max_sge(), limit: queue.limit() }
    }

    /// Changes the size, arms the limit, or both or neither (rules SQ-03 to SQ-05).
    pub fn modify(&self, size: Option<usize>, limit: Option<usize>) -> Result<(), SizeError> {
        let mut queue = self.queue.lock();
        let (new_size, new_limit) = (size.unwrap_or(queue.size()), limit.unwrap_or(queue.limit()));
        if new_limit > new_size {
            return Err(SizeError::TooSmall { least: new_limit });
        }
        if let Some(size) = size {
            queue.resize(size)?;
        }
        if let Some(limit) = limit {
            queue.arm(limit)?;
        }
        let reached = queue.reached_limit();
        drop(queue);
        if reached {
            self.raise_limit();
        }
        Ok(())
    }

    pub(crate) fn adopt(&self) {
        self.users.fetch_add(1, AcqRel);
    }

    pub(crate) fn release(&self) {
        self.users.fetch_sub(1, AcqRel);
    }

    /// Checks that no queue pair was created with it.
    pub fn check_unused(&self) -> Result<(), Busy> {
        if self.users.load(Acquire) == 0 { Ok(()) } else { Err(Busy) }
    }

    /// Ends the queue, unless a queue pair was created with it (rule CR-17). When it returns, no data is placed into
    /// its receives any more.
    pub fn destroy(&self) -> Result<(), Busy> {
        let mut by_index = self.adapter.shared_queues.by_index.write();
        self.check_unused()?;
        if by_index.remove(&(self.number as u16)).is_some() {
            self.device().process().unlist(self.listed);
            self.device().process().objects().remove(ObjectKind::SharedReceiveQueue);
        }
        // In a forked child it is the parent's, and goes on.
        let process = self.device().process();
        if self.config.xrc.is_some() && !process.is_inherited() {
            process.segment().srq(self.number as u16).clear();
        }
        drop(by_index);
        if rehearsal::on().is_some() {
            self.adapter.scribbled.forget(&self.receives);
        }
        if let Some(xrc) = &self.config.xrc {
            // A message may be on its way into one of its receives.
            for qp in self.adapter.queue_pairs.all() {
                qp.forget_shared(self.number);
            }
            self.adapter.foreign_targets.forget_shared(self.number);
            xrc.domain.release();
        }
        if let Some(feed) = &self.feed {
            feed.end();
        }
        self.config.pd.release();
        Ok(())
    }
}
