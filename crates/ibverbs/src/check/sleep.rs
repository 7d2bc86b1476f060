//! Threads that sleep while completions wait.
//!
//! A thread tells the checker when it is about to sleep in `ibv_get_cq_event`. A thread of this library, the watcher,
//! looks at the sleeping threads. Only a state that lasts counts, because a program may be between two steps. About
//! threads in `poll`, `select` and `epoll_wait` the watcher asks the system, and only if completions wait and no event
//! can come for them.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Once, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use transom_check::Call;
use transom_check::ledger::{Arming, How, Look, Stuck};
use transom_host::events::{CompletionEvent, EventQueue};
use transom_host::objects::Cq;

use super::waits::Wait;
use super::{Checker, on, site};

/// The name of the watcher.
pub(super) const WATCHER: &str = "transom-check";
/// The time between two looks.
const TICK: Duration = Duration::from_millis(100);
/// A thread that has slept for this long, with nothing changed, is reported.
const LONG: Duration = Duration::from_millis(500);

type Channel = EventQueue<CompletionEvent>;

/// The sleeping threads, and the queues that they may sleep for.
pub(super) struct Sleepers {
    queues: Mutex<BTreeMap<usize, Waited>>,
    asleep: Mutex<Vec<Asleep>>,
    changed: Condvar,
    watches: Once,
    has_channels: AtomicBool,
}

impl Sleepers {
    pub(super) const fn new() -> Self {
        Self {
            queues: Mutex::new(BTreeMap::new()),
            asleep: Mutex::new(Vec::new()),
            changed: Condvar::new(),
            watches: Once::new(),
            has_channels: AtomicBool::new(false),
        }
    }

    /// Whether the program has ever made a completion queue with a channel.
    pub(super) fn has_channels(&self) -> bool {
        self.has_channels.load(Relaxed)
    }

    /// The channels of completion queues.
    fn channels(&self) -> Vec<Descriptor> {
        let queues = self.queues.lock();
        let channels: BTreeMap<_, _> = queues.values().map(|it| (it.channel, it)).collect();
        let each = channels.into_iter().filter_map(|(address, it)| {
            let (descriptor, events) = (it.descriptor, it.events.upgrade()?);
            Some(Descriptor { address, descriptor, events })
        });
        each.collect()
    }

    /// Whether the watcher has nothing to look at.
    fn is_idle(&self, asleep: &[Asleep]) -> bool {
        let mut queues = self.queues.lock();
        queues.retain(|_, waited| waited.queue.strong_count() > 0);
        asleep.is_empty() && queues.is_empty()
    }
}

/// A completion queue with a channel.
struct Waited {
    channel: usize,
    /// The channel's descriptor.
    descriptor: i32,
    events: Weak<Channel>,
    queue: Weak<Cq>,
}

/// A sleeping thread.
struct Asleep {
    call: Call,
    channel: usize,
    events: Weak<Channel>,
    /// The text for a report, such as "sleeps in ibv_get_cq_event".
    does: &'static str,
    /// Why nothing can wake it, and since when.
    stuck: Option<(Stuck, Instant)>,
    is_told: bool,
}

/// Threads that may sleep in `poll` and its like, by the channel that each serves.
#[derive(Default)]
struct Waits(BTreeMap<usize, Waiting>);

struct Waiting {
    thread: u32,
    stuck: Stuck,
    /// Its call, and since when it sleeps there. None if it sleeps in no such call.
    wait: Option<(Wait, Instant)>,
    is_told: bool,
}

/// A channel, with its descriptor.
struct Descriptor {
    address: usize,
    descriptor: i32,
    events: Arc<Channel>,
}

/// Wakes this thread in the checker's books when it ends. It may be cancelled in its sleep.
struct Cancelled;

thread_local! {
    static CANCELLED: Cancelled = const { Cancelled };
}

impl Drop for Cancelled {
    fn drop(&mut self) {
        if let Some(checker) = on() {
            checker.is_awake();
        }
    }
}

impl Checker {
    /// A completion queue with a channel is made.
    pub(crate) fn queue_watched(
        &'static self,
        address: usize,
        channel: usize,
        events: &Arc<Channel>,
        queue: &Arc<Cq>,
    ) {
        let call = site::thread_only();
        self.tell(|ledger| ledger.queue_watched(address, channel, &call));
        let descriptor = events.descriptor().as_raw_fd();
        let (events, queue) = (Arc::downgrade(events), Arc::downgrade(queue));
        let waited = Waited { channel, descriptor, events, queue };
        self.sleepers.queues.lock().insert(address, waited);
        self.sleepers.has_channels.store(true, Relaxed);
        self.begin_to_watch();
    }

    /// There is something for the watcher to look at.
    fn begin_to_watch(&'static self) {
        self.sleepers.watches.call_once(|| {
            // If the thread cannot be made, nobody looks.
            let _ = thread::Builder::new().name(WATCHER.to_owned()).spawn(|| self.watch());
        });
        // With the lock taken once, a watcher that has just found nothing waits, and hears the notification.
        drop(self.sleepers.asleep.lock());
        self.sleepers.changed.notify_one();
    }

    /// The program asks a completion queue for an event.
    pub(crate) fn arms(
        &self,
        address: usize,
        queue: &Cq,
        solicited_only: c_int,
        arm: impl FnOnce() -> bool,
    ) {
        let before = queue.outlook();
        let raised = arm();
        let arming = Arming {
            is_plain: solicited_only == 0 && !before.is_moderated,
            held: before.completions,
            has_receive: before.has_receive,
            raised,
        };
        let call = site::call();
        self.tell(|ledger| ledger.queue_armed(address, arming, &call));
    }

    /// This thread is about to wait for an event of a channel in `ibv_get_cq_event`.
    pub(crate) fn may_sleep(&'static self, channel: usize, events: &Arc<Channel>) {
        if !events.blocks() {
            return;
        }
        let call = site::call();
        let stuck = self.stuck(channel, call.thread, events);
        if !events.waiting().is_empty() {
            // It would sleep on an adapter that raises no event for earlier completions.
            let how = How::for_events("calls ibv_get_cq_event, which need not return,");
            stuck.iter().for_each(|stuck| self.tell(|ledger| ledger.sleeps(stuck, how, &call)));
            return;
        }
        self.sleeps(call, channel, events, "sleeps in ibv_get_cq_event");
    }

    /// This thread waits for an event of a channel: the program has called `transom_wait`.
    pub(super) fn waits_for(&'static self, channel: usize) {
        self.is_awake();
        let channels = self.sleepers.channels();
        if let Some(it) = channels.into_iter().find(|it| it.address == channel) {
            self.sleeps(site::call(), channel, &it.events, "waits");
        }
    }

    fn sleeps(
        &'static self,
        call: Call,
        channel: usize,
        events: &Arc<Channel>,
        does: &'static str,
    ) {
        let events = Arc::downgrade(events);
        let _ = CANCELLED.try_with(|_| ());
        let asleep = Asleep { call, channel, events, does, stuck: None, is_told: false };
        self.sleepers.asleep.lock().push(asleep);
        self.begin_to_watch();
    }

    /// This thread no longer waits.
    pub(crate) fn is_awake(&self) {
        let thread = site::thread_only().thread;
        self.sleepers.asleep.lock().retain(|asleep| asleep.call.thread != thread);
    }

    /// Why nothing can wake a thread that waits for a channel. None if something can.
    fn stuck(&self, channel: usize, thread: u32, events: &Channel) -> Option<Stuck> {
        let queues: Vec<_> = {
            let queues = self.sleepers.queues.lock();
            let of_channel = queues.iter().filter(|(_, waited)| waited.channel == channel);
            of_channel.filter_map(|(at, it)| Some((*at, it.queue.upgrade()?))).collect()
        };
        let look = |(queue, cq): &(usize, Arc<Cq>)| {
            let outlook = cq.outlook();
            Look { queue: *queue, is_armed: outlook.is_armed, holds: outlook.completions }
        };
        let looks: Vec<_> = queues.iter().map(look).collect();
        // After the look at the queues, so that no event is missed that was raised before it.
        let waiting = events.waiting().len();
        self.tell(|ledger| ledger.stuck(channel, thread, waiting, &looks))
    }

    /// The watcher's loop.
    fn watch(&self) {
        block_signals();
        let mut waits = Waits::default();
        loop {
            let mut asleep = self.sleepers.asleep.lock();
            while self.sleepers.is_idle(&asleep) {
                self.sleepers.changed.wait(&mut asleep);
            }
            for thread in asleep.iter_mut().filter(|thread| !thread.is_told) {
                let Some(events) = thread.events.upgrade() else { continue };
                let now = self.stuck(thread.channel, thread.call.thread, &events);
                thread.stuck = match (thread.stuck, now) {
                    (Some((before, since)), Some(now)) if before == now => Some((now, since)),
                    (_, now) => now.map(|now| (now, Instant::now())),
                };
                let lasting = thread.stuck.filter(|(_, since)| since.elapsed() >= LONG);
                if let Some((stuck, _)) = lasting {
                    thread.is_told = true;
                    let (how, call) = (How::for_events(thread.does), thread.call);
                    self.tell(|ledger| ledger.sleeps(&stuck, how, &call));
                }
            }
            let in_verbs: Vec<_> = asleep.iter().map(|thread| thread.call.thread).collect();
            drop(asleep);
            self.look_at_waits(&mut waits, &in_verbs);
            thread::sleep(TICK);
        }
    }

    /// Looks at the threads that serve channels, except those that sleep in `ibv_get_cq_event`.
    fn look_at_waits(&self, waits: &mut Waits, in_verbs: &[u32]) {
        let channels = self.sleepers.channels();
        waits.0.retain(|address, _| channels.iter().any(|it| it.address == *address));
        for channel in &channels {
            let keeper = self.tell(|ledger| ledger.keeper(channel.address));
            let stuck = keeper
                .filter(|thread| !in_verbs.contains(thread))
                .and_then(|thread| Some((thread, self.misses(channel, thread)?)));
            let Some((thread, stuck)) = stuck else {
                waits.0.remove(&channel.address);
                continue;
            };
            let before = waits.0.remove(&channel.address);
            let before = before.filter(|it| (it.thread, it.stuck) == (thread, stuck));
            // Completions often wait for a moment. The thread is only looked at if they still wait at the next look.
            let wait = before.as_ref().and_then(|_| self.wait_of(thread));
            let mut now = Waiting { thread, stuck, wait: None, is_told: false };
            if let (Some(wait), Some(before)) = (wait, before) {
                let same = before.wait.filter(|(before, _)| *before == wait);
                now.is_told = before.is_told && same.is_some();
                let since = same.map_or_else(Instant::now, |(_, since)| since);
                if since.elapsed() >= LONG && !now.is_told {
                    now.is_told = true;
                    self.tell_wait(&now, &wait, channel, &channels);
                }
                now.wait = Some((wait, since));
            }
            waits.0.insert(channel.address, now);
        }
    }

    /// Why the channel cannot wake the thread. None if it can, or if an event waits in it.
    fn misses(&self, channel: &Descriptor, thread: u32) -> Option<Stuck> {
        let stuck = self.stuck(channel.address, thread, &channel.events)?;
        Some(stuck).filter(|_| channel.events.waiting().is_empty())
    }

    fn tell_wait(&self, it: &Waiting, wait: &Wait, channel: &Descriptor, channels: &[Descriptor]) {
        if !wait.readable.contains(&channel.descriptor) {
            return;
        }
        // Another descriptor may wake it, except the descriptor of a channel that cannot wake it either.
        let is_vain = |descriptor: &i32| {
            let channel = channels.iter().find(|channel| channel.descriptor == *descriptor);
            channel.is_some_and(|channel| self.misses(channel, it.thread).is_some())
        };
        let may_wake = wait.has_others || !wait.readable.iter().all(is_vain);
        let does = format!("sleeps in {}", wait.function);
        let how = How { does: &does, may_wake };
        self.tell(|ledger| ledger.sleeps(&it.stuck, how, &Call::by(it.thread)));
    }
}

/// Blocks all signals in this thread: they are for the program's own threads.
fn block_signals() {
    // SAFETY: a signal set of this call's own, filled and then given to this thread only.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}
