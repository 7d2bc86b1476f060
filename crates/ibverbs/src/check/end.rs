//! What the process leaves when it ends by itself, and what a queue pair leaves.
//!
//! The process may end in the handler of a signal that interrupted any call of this library, and so with any lock held.
//! Nothing here waits for one for long. What cannot be looked at is not told.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use transom_check::Ledger;
use transom_check::ledger::{Ends, RanDry, Thing, Unread};
use transom_device::protection::Key;
use transom_host::events::{AsyncEvent, EventQueue};
use transom_host::objects::QueuePair;

use super::{Checker, TELLS, checker, events};

/// For so long another thread may hold a lock.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Runs after the program's own `atexit` functions and destructors.
extern "C" fn at_end() {
    // A signal handler may have called `exit` while this thread had the ledger locked.
    if let Some(checker) = checker().filter(|_| !TELLS.get()) {
        checker.attempt(|| checker.open_at_end());
        checker.process_ends();
        let marks = checker.tell(|ledger| ledger.marks().to_vec());
        checker.attempt(|| checker.sink.lock().end(&marks));
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = at_end;

/// What the device has for the program of a queue pair that ends, and the program has not taken.
pub(super) struct Left {
    pub(super) dry: RanDry,
    unread: Vec<Unread>,
    messages: usize,
    /// The numbers of completions in the queues of its sends and its receives.
    completions: [usize; 2],
}

impl Left {
    pub(super) fn of(pair: &QueuePair) -> Self {
        let dry = pair.ran_dry(PATIENCE).unwrap_or_default();
        let unpolled = pair.unpolled(PATIENCE);
        Self {
            dry: RanDry { times: dry.times, waits: dry.waits },
            unread: unpolled.errors.into_iter().map(events::unread).collect(),
            messages: unpolled.messages,
            completions: unpolled.completions,
        }
    }

    /// Tells the ledger.
    pub(super) fn tell(&self, ledger: &mut Ledger, address: usize, ends: Ends<'_>) {
        ledger.queues_hold(address, self.completions);
        ledger.errors_unread(address, &self.unread, ends);
        ledger.messages_unread(address, self.messages, ends);
    }
}

/// Waits for a lock, unless this thread may hold it.
fn briefly<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    lock.try_lock_for(PATIENCE)
}

impl Checker {
    /// A context is opened, with these asynchronous events.
    pub(crate) fn context_opened(&self, events: &Arc<EventQueue<AsyncEvent>>) {
        let mut contexts = self.contexts.lock();
        contexts.retain(|known| known.strong_count() > 0);
        contexts.push(Arc::downgrade(events));
    }

    /// The process ends. Tells the ledger which keys are still open to peers.
    fn open_at_end(&self) {
        let Some(devices) = briefly(&self.devices) else { return };
        let is_open = |&(id, key): &(usize, u32)| {
            let device = devices.get(&id).and_then(|device| device.upgrade());
            device.is_some_and(|device| device.is_valid(Key(key)))
        };
        let keys = self.tell(|ledger| ledger.granted_keys());
        let open: Vec<_> = keys.into_iter().filter(is_open).collect();
        self.tell(|ledger| ledger.open_at_end(&open));
    }

    /// The process ends by itself. A program cannot poll a device that has failed.
    fn process_ends(&self) {
        let pairs = self.attempt(|| self.living_pairs());
        let has_failed = pairs.iter().any(|(_, pair)| pair.device().check().is_err());
        let left = self.attempt(|| {
            pairs.iter().map(|(address, pair)| (*address, Left::of(pair))).collect::<Vec<_>>()
        });
        let messages = self.attempt(|| self.shared_messages());
        let events = self.attempt(|| self.fatal_events(&pairs));
        self.tell_and_keep(
            |kind| !has_failed || !kind.needs_device(),
            |ledger| {
                for (address, left) in &left {
                    left.tell(ledger, *address, Ends::WithProcess);
                    ledger.ran_dry(*address, left.dry);
                }
                for (address, count) in &messages {
                    ledger.shared_messages_unread(*address, *count, Ends::WithProcess);
                }
                for (thing, at, event) in &events {
                    let address = match at {
                        At::Address(address) => Some(*address),
                        At::Number(number) => ledger.numbered(*thing, *number),
                    };
                    if let Some(address) = address {
                        ledger.events_unread(Some(*thing), address, &[event], None);
                    }
                }
                ledger.process_ends();
            },
        );
    }

    fn living_pairs(&self) -> Vec<(usize, Arc<QueuePair>)> {
        let pairs = briefly(&self.pairs);
        let pairs = pairs.iter().flat_map(|pairs| pairs.iter());
        pairs.filter_map(|(address, pair)| Some((*address, pair.upgrade()?))).collect()
    }

    /// How many messages of each shared receive queue of XRC the program has not polled.
    fn shared_messages(&self) -> Vec<(usize, usize)> {
        let queues = briefly(&self.xrc_queues);
        let queues = queues.iter().flat_map(|queues| queues.iter());
        let living = queues.filter_map(|(address, queue)| Some((*address, queue.upgrade()?)));
        living.map(|(address, queue)| (address, queue.unpolled_messages(PATIENCE))).collect()
    }

    /// The fatal events of the program's objects that it has not read: what each is of.
    fn fatal_events(&self, pairs: &[(usize, Arc<QueuePair>)]) -> Vec<(Thing, At, &'static str)> {
        let contexts = briefly(&self.contexts);
        let contexts = contexts.iter().flat_map(|contexts| contexts.iter());
        let contexts: Vec<_> = contexts.filter_map(Weak::upgrade).collect();
        let waiting =
            contexts.iter().filter_map(|events| events.waiting_within(PATIENCE)).flatten();
        let of_object = waiting.filter_map(|(event, id)| {
            let (thing, name) = events::fatal(event)?;
            let at = match thing? {
                Thing::QueuePair => {
                    let (address, _) = pairs.iter().find(|(_, pair)| pair.config().id == id)?;
                    At::Address(*address)
                }
                _ => At::Number(u32::try_from(id).ok()?),
            };
            Some((thing?, at, name))
        });
        let mut all: Vec<_> = of_object.collect();
        all.dedup();
        all
    }
}

/// How an object is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Address(usize),
    Number(u32),
}
