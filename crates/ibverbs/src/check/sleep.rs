//! Threads that sleep for completions.
//!
//! A thread says when it is about to sleep in `ibv_get_cq_event`. Another thread, of this library, looks at those that
//! sleep: what lasts for a while is no moment between two steps of the program.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Arc, Once, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use transom_check::Call;
use transom_check::ledger::{Arming, Look, Stuck};
use transom_host::events::{CompletionEvent, EventQueue};
use transom_host::objects::Cq;

use super::{Checker, on, site};

/// What the thread that looks is called.
pub(super) const WATCHER: &str = "transom-check";
/// How often it looks.
const TICK: Duration = Duration::from_millis(100);
/// How long nothing may change until it is said that a thread sleeps.
const LONG: Duration = Duration::from_millis(500);

type Channel = EventQueue<CompletionEvent>;

/// Who sleeps, and for what.
pub(super) struct Sleepers {
    queues: Mutex<BTreeMap<usize, Waited>>,
    asleep: Mutex<Vec<Asleep>>,
    changed: Condvar,
    watches: Once,
}

impl Sleepers {
    pub(super) const fn new() -> Self {
        Self {
            queues: Mutex::new(BTreeMap::new()),
            asleep: Mutex::new(Vec::new()),
            changed: Condvar::new(),
            watches: Once::new(),
        }
    }
}

/// A completion queue with a channel.
struct Waited {
    channel: usize,
    queue: Weak<Cq>,
}

/// A thread that sleeps.
struct Asleep {
    call: Call,
    channel: usize,
    events: Weak<Channel>,
    /// Why it cannot be woken, since when, if that is so.
    stuck: Option<(Stuck, Instant)>,
    is_told: bool,
}

/// This thread sleeps no more when it ends: it may be cancelled in its sleep.
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
    /// A completion queue is made that has a channel.
    pub(crate) fn queue_watched(&self, address: usize, channel: usize, queue: &Arc<Cq>) {
        let call = site::thread_only();
        self.tell(|ledger| ledger.queue_watched(address, channel, &call));
        let mut queues = self.sleepers.queues.lock();
        queues.retain(|_, waited| waited.queue.strong_count() > 0);
        queues.insert(address, Waited { channel, queue: Arc::downgrade(queue) });
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

    /// This thread waits for an event of a channel.
    pub(crate) fn may_sleep(&'static self, channel: usize, events: &Arc<Channel>) {
        if !events.blocks() {
            return;
        }
        let call = site::call();
        let stuck = self.stuck(channel, call.thread, events);
        if !events.waiting().is_empty() {
            // It would sleep on an adapter that raises no event for what was there before.
            let how = "calls ibv_get_cq_event, which need not return,";
            stuck.iter().for_each(|stuck| self.tell(|ledger| ledger.sleeps(stuck, how, &call)));
            return;
        }
        let events = Arc::downgrade(events);
        let _ = CANCELLED.try_with(|_| ());
        let stuck = stuck.map(|stuck| (stuck, Instant::now()));
        self.sleepers.asleep.lock().push(Asleep { call, channel, events, stuck, is_told: false });
        self.sleepers.watches.call_once(|| {
            // Where there is no thread to be had, nobody looks.
            let _ = thread::Builder::new().name(WATCHER.to_owned()).spawn(|| self.watch());
        });
        self.sleepers.changed.notify_one();
    }

    /// This thread waits no more.
    pub(crate) fn is_awake(&self) {
        let thread = site::thread_only().thread;
        self.sleepers.asleep.lock().retain(|asleep| asleep.call.thread != thread);
    }

    /// Why a thread that waits for a channel cannot be woken, if that is so.
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
        // Afterwards: what was raised before the queues were looked at must be seen.
        let waiting = events.waiting().len();
        self.tell(|ledger| ledger.stuck(channel, thread, waiting, &looks))
    }

    /// Looks at the threads that sleep.
    fn watch(&self) {
        block_signals();
        loop {
            let mut asleep = self.sleepers.asleep.lock();
            while asleep.is_empty() {
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
                    let (how, call) = ("sleeps in ibv_get_cq_event", thread.call);
                    self.tell(|ledger| ledger.sleeps(&stuck, how, &call));
                }
            }
            drop(asleep);
            thread::sleep(TICK);
        }
    }
}

/// Signals are for the program's own threads.
fn block_signals() {
    // SAFETY: a signal set of this call's own, filled and then given to this thread only.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}
