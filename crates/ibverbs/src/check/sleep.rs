//! Threads that sleep while completions wait.
//!
//! A thread tells the checker when it is about to sleep in `ibv_get_cq_event`. A thread of this library, the watcher,
//! looks at the sleeping threads. Only a state that lasts counts, because a program may be between two steps. About
//! threads in `poll`, `select` and `epoll_wait` the watcher asks the system, and only if completions wait and no event
//! can come for them.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Once, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use transom_check::Call;
use transom_check::ledger::{Arming, How, Look, Stuck};
use transom_host::events::{CompletionEvent, EventQueue};
use transom_host::objects::Cq;
use transom_thread::uncancelled;

use super::threads::{WATCHER, is_alone, timers_run};
use super::waits::Wait;
use super::{Checker, on};
use crate::site;

/// The time between two looks.
const TICK: Duration = Duration::from_millis(100);
/// A thread that has slept for this long, with nothing changed, is reported.
const LONG: Duration = Duration::from_millis(500);

/// An event is held for this long at most. A thread that does not call `ibv_get_cq_event` by then sees that it came.
const HOLD: Duration = Duration::from_millis(10);

type Channel = EventQueue<CompletionEvent>;

/// The sleeping threads, and the queues that they may sleep for.
pub(super) struct Sleepers {
    queues: Mutex<BTreeMap<usize, Waited>>,
    asleep: Mutex<Vec<Asleep>>,
    changed: Condvar,
    held: Mutex<Vec<Held>>,
    holds: Condvar,
    watches: Once,
    /// There is a watcher. It raises held events in time.
    has_watcher: AtomicBool,
    has_channels: AtomicBool,
}

impl Sleepers {
    pub(super) const fn new() -> Self {
        Self {
            queues: Mutex::new(BTreeMap::new()),
            asleep: Mutex::new(Vec::new()),
            changed: Condvar::new(),
            held: Mutex::new(Vec::new()),
            holds: Condvar::new(),
            watches: Once::new(),
            has_watcher: AtomicBool::new(false),
            has_channels: AtomicBool::new(false),
        }
    }

    /// Whether the program has ever made a completion queue with a channel.
    pub(super) fn has_channels(&self) -> bool {
        self.has_channels.load(Relaxed)
    }

    /// Holds an event, or raises it at once if there is no watcher.
    fn hold(&self, event: Held) {
        let mut held = self.held.lock();
        if self.has_watcher.load(Acquire) {
            held.push(event);
            self.holds.notify_one();
        } else {
            drop(held);
            event.raise();
        }
    }

    /// These events are held no longer.
    fn let_go(&self, is_meant: impl Fn(&Held) -> bool) -> Vec<Held> {
        let mut held = self.held.lock();
        let (meant, others) = std::mem::take(&mut *held).into_iter().partition(is_meant);
        *held = others;
        meant
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

/// An event for completions that a queue held before it was armed. While it is held, the channel's descriptor is not
/// readable. So a thread that asks for it would sleep on an adapter that raises no such event.
struct Held {
    channel: usize,
    /// The address of the `ibv_cq`.
    address: usize,
    queue: Weak<Cq>,
    until: Instant,
}

impl Held {
    fn raise(self) {
        self.queue.upgrade().iter().for_each(|queue| queue.raise());
    }
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

impl Asleep {
    /// The program has called `transom_wait`, which says that nothing else wakes the thread.
    const SAID: &str = "waits";
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
            self.sleepers.has_watcher.store(true, Release);
            // If the thread cannot be made, nobody looks.
            if transom_thread::start(WATCHER, || self.watch()).is_err() {
                self.watches_no_more();
            }
        });
        // With the lock taken once, a watcher that has just found nothing waits, and hears the notification.
        drop(self.sleepers.asleep.lock());
        self.sleepers.changed.notify_one();
    }

    /// The program asks a completion queue for an event. `arm` does that, and returns whether an event comes at once. If
    /// its argument is true, it holds this event.
    pub(crate) fn arms(
        &self,
        address: usize,
        queue: &Arc<Cq>,
        solicited_only: c_int,
        arm: impl FnOnce(bool) -> bool,
    ) {
        let before = queue.outlook();
        let (is_plain, has_receive) =
            (solicited_only == 0 && !before.is_moderated, before.has_receive);
        let holds = is_plain && has_receive && self.sleepers.has_watcher.load(Acquire);
        let is_held = arm(holds) && holds;
        let channel = self.attempt(|| {
            let arming = Arming { is_plain, held: before.completions, has_receive, is_held };
            let call = self.call();
            self.tell(|ledger| ledger.queue_armed(address, arming, &call));
            self.sleepers.queues.lock().get(&address).map(|it| it.channel)
        });
        if is_held {
            let (queue, until) = (Arc::downgrade(queue), Instant::now() + HOLD);
            match channel {
                Some(channel) => self.sleepers.hold(Held { channel, address, queue, until }),
                None => queue.upgrade().iter().for_each(|queue| queue.raise()),
            }
        }
    }

    /// This thread is about to wait for an event of a channel in `ibv_get_cq_event`.
    pub(crate) fn may_sleep(&'static self, channel: usize, events: &Arc<Channel>) {
        let held = self.sleepers.let_go(|it| it.channel == channel);
        let is_held = !held.is_empty();
        let waits = self.attempt(|| {
            let call = events.blocks().then(|| self.call())?;
            Some((call, self.stuck(channel, call.thread, events)))
        });
        held.into_iter().for_each(Held::raise);
        let Some((call, stuck)) = waits else { return };
        self.attempt(|| {
            if events.waiting().is_empty() {
                return self.sleeps(call, channel, events, "sleeps in ibv_get_cq_event");
            }
            // It would sleep on an adapter that raises no event for earlier completions.
            let stuck = stuck.filter(|_| is_held);
            if let Some(stuck) = stuck {
                let how = how_it_sleeps("calls ibv_get_cq_event, which need not return,", false);
                self.tell(|ledger| ledger.sleeps(&stuck, how, &call));
            }
        });
    }

    /// This thread waits for an event of a channel: the program has called `transom_wait`.
    pub(super) fn waits_for(&'static self, channel: usize) {
        self.is_awake();
        let channels = self.sleepers.channels();
        if let Some(it) = channels.into_iter().find(|it| it.address == channel) {
            self.sleeps(self.call(), channel, &it.events, Asleep::SAID);
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
        self.attempt(|| {
            let thread = site::thread_only().thread;
            self.sleepers.asleep.lock().retain(|asleep| asleep.call.thread != thread);
        });
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
        let waiting = events.to_come();
        self.tell(|ledger| ledger.stuck(channel, thread, waiting, &looks))
    }

    /// The watcher's loop. A mistake in the check itself ends it.
    pub(super) fn watch(&self) {
        let mut waits = Waits::default();
        while self.attempt(|| self.look(&mut waits)) {
            self.tick();
        }
        self.watches_no_more();
    }

    fn watches_no_more(&self) {
        self.sleepers.has_watcher.store(false, Release);
        self.sleepers.let_go(|_| true).into_iter().for_each(Held::raise);
    }

    /// Waits until the next look, and raises events that are held for too long.
    fn tick(&self) {
        let end = Instant::now() + TICK;
        loop {
            let now = Instant::now();
            for event in self.sleepers.let_go(|it| it.until <= now) {
                self.attempt(|| _ = self.look_at_unseen(&event));
                self.tell(|ledger| ledger.event_raised(event.address));
                event.raise();
            }
            if now >= end {
                return;
            }
            let mut held = self.sleepers.held.lock();
            let until = held.iter().map(|it| it.until).min().map_or(end, |it| it.min(end));
            self.sleepers.holds.wait_until(&mut held, until);
        }
    }

    /// Waits until there is something to look at, and looks at the sleeping threads. Returns true: it goes on.
    fn look(&self, waits: &mut Waits) -> bool {
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
                let is_said = thread.does == Asleep::SAID;
                let mut how = how_it_sleeps(thread.does, false);
                how.is_alone |= is_said;
                how.may_wake &= !is_said;
                let call = thread.call;
                self.tell(|ledger| ledger.sleeps(&stuck, how, &call));
            }
        }
        let in_verbs: Vec<_> = asleep.iter().map(|thread| thread.call.thread).collect();
        drop(asleep);
        self.look_at_waits(waits, &in_verbs);
        true
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
                    if let Some(may_wake) = self.may_wake(thread, &wait, channel, &channels) {
                        self.tell_wait(thread, &stuck, &wait, may_wake, |_| true);
                    }
                }
                now.wait = Some((wait, since));
            }
            waits.0.insert(channel.address, now);
        }
    }

    /// Why the channel cannot wake the thread. None if it can, or if an event waits in it.
    fn misses(&self, channel: &Descriptor, thread: u32) -> Option<Stuck> {
        let stuck = self.stuck(channel.address, thread, &channel.events)?;
        Some(stuck).filter(|_| channel.events.to_come() == 0)
    }

    /// Whether something else than its channel may wake a thread. None if it does not wait for the channel.
    fn may_wake(
        &self,
        thread: u32,
        wait: &Wait,
        channel: &Descriptor,
        channels: &[Descriptor],
    ) -> Option<bool> {
        // Another descriptor may wake it, except the descriptor of a channel that cannot wake it either.
        let is_vain = |descriptor: &i32| {
            let channel = channels.iter().find(|channel| channel.descriptor == *descriptor);
            channel.is_some_and(|channel| self.misses(channel, thread).is_some())
        };
        let waits_for_it = wait.readable.contains(&channel.descriptor);
        waits_for_it.then(|| wait.has_others || !wait.readable.iter().all(is_vain))
    }

    fn tell_wait(
        &self,
        thread: u32,
        stuck: &Stuck,
        wait: &Wait,
        may_wake: bool,
        is_told: impl FnOnce(&How<'_>) -> bool,
    ) {
        let does = format!("sleeps in {}", wait.function);
        let how = how_it_sleeps(&does, may_wake);
        if is_told(&how) {
            self.tell(|ledger| ledger.sleeps(stuck, how, &Call::by(thread)));
        }
    }

    /// An event was held for as long as it may be, and nobody has asked for it. If a thread sleeps until it comes, and
    /// for nothing else, it would sleep on for ever on an adapter that raises no such event.
    fn look_at_unseen(&self, event: &Held) -> Option<()> {
        let channels = self.sleepers.channels();
        let channel = channels.iter().find(|it| it.address == event.channel)?;
        let thread = self.tell(|ledger| ledger.keeper(channel.address))?;
        let stuck = self.misses(channel, thread)?;
        let wait = self.wait_of(thread)?;
        let may_wake = self.may_wake(thread, &wait, channel, &channels)?;
        // It sleeps only briefly here, which is nothing to note.
        self.tell_wait(thread, &stuck, &wait, may_wake, |how| stuck.is_certain(how));
        Some(())
    }
}

/// How a thread sleeps. `may_wake` says that it waits for something other than channels.
fn how_it_sleeps(does: &str, may_wake: bool) -> How<'_> {
    uncancelled(|| How { does, may_wake: may_wake || timers_run(), is_alone: is_alone() })
}
