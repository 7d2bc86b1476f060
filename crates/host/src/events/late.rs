//! Events that come late in a rehearsal (`transom rehearse`), and together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use transom_rehearse::Provocation;
use transom_system::{clock, rehearsal};

use super::{AsyncEvent, CompletionEvent};

/// Somebody who holds events back for a while.
pub(crate) trait HoldsEvents: Send + Sync {
    /// The time has come.
    fn end_period(self: Arc<Self>, now: u64);
}

/// Somebody who knows when a time has come.
pub(crate) trait Alarm: Send + Sync {
    /// Sets an alarm. False if none will come.
    fn set(&self, time: u64, queue: Weak<dyn HoldsEvents>) -> bool;
}

/// A kind of event that may come late.
pub trait MayBeLate: Copy + PartialEq + Send + Sync {
    /// What makes it late.
    const PROVOCATION: Provocation;
    /// The shortest time, in nanoseconds. It may be doubled 8 times.
    const SHORTEST: u64;

    /// The number of a new queue of such events, if places name it.
    fn number_queue() -> u32;

    /// The object of the place, for an event of the queue with the number `queue` that names `id`.
    fn object(queue: u32, id: u64) -> u32;
}

const DOUBLINGS: u64 = 8;

impl MayBeLate for CompletionEvent {
    const PROVOCATION: Provocation = Provocation::LateEvents;
    const SHORTEST: u64 = 100_000;

    fn number_queue() -> u32 {
        0
    }

    /// The completion queue. It is named by its handle.
    fn object(_: u32, id: u64) -> u32 {
        rehearsal::number_of(id as u32)
    }
}

impl MayBeLate for AsyncEvent {
    const PROVOCATION: Provocation = Provocation::LateAsyncEvents;
    const SHORTEST: u64 = 400_000;

    /// In the order in which contexts are opened.
    fn number_queue() -> u32 {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        NEXT.fetch_add(1, Relaxed)
    }

    /// The context. Its objects are of many sorts, whose handles could not be told apart.
    fn object(queue: u32, _: u64) -> u32 {
        queue
    }
}

/// What a rehearsal knows of a queue of events.
pub(super) struct Lateness {
    alarm: Arc<dyn Alarm>,
    number: u32,
    /// How many events each object has raised while none was held back.
    raised: Mutex<BTreeMap<u32, u64>>,
}

impl std::fmt::Debug for Lateness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lateness").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Lateness {
    /// For a new queue. `None` in a process without a rehearsal.
    pub(super) fn of<K: MayBeLate>(alarm: &Arc<impl Alarm + 'static>) -> Option<Self> {
        rehearsal::on()?;
        let (alarm, number) = (alarm.clone(), K::number_queue());
        Some(Self { alarm, number, raised: Mutex::default() })
    }

    /// Whether the next event of an object comes late. If so, the alarm is set.
    pub(super) fn delays<K: MayBeLate>(&self, id: u64, queue: Weak<dyn HoldsEvents>) -> bool {
        let Some(rehearsal) = rehearsal::on() else { return false };
        let object = K::object(self.number, id);
        let nth = {
            let mut raised = self.raised.lock();
            let count = raised.entry(object).or_default();
            *count += 1;
            *count - 1
        };
        let number = rehearsal.provokes(K::PROVOCATION, object, nth);
        let Some(number) = number else { return false };
        let until = clock::steady() + (K::SHORTEST << (number % (DOUBLINGS + 1)));
        self.alarm.set(until, queue)
    }
}
