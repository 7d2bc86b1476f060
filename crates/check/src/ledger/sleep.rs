//! Threads that sleep until a completion channel has an event.
//!
//! A completion queue raises an event only for a completion that is added after the program armed the queue. So a
//! thread must poll between arming and sleeping. If it does not, it misses the earlier completions.

use std::collections::BTreeMap;

use super::{Ledger, Thing};
use crate::{Call, Kind};

/// The state of a completion queue when the program armed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arming {
    /// It is armed for any completion, not only for solicited ones, and its events are not delayed by moderation.
    pub is_plain: bool,
    /// The number of completions that it held at least.
    pub held: usize,
    /// One of these completions is of a receive.
    pub has_receive: bool,
    /// The device has an event for these completions, and holds it. Some adapters have none.
    pub is_held: bool,
}

/// The device's view of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The queue.
    pub queue: usize,
    /// The next completion raises an event, or moderation delays an event.
    pub is_armed: bool,
    /// The number of completions that it holds.
    pub holds: usize,
}

/// Why a thread cannot be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    queue: usize,
    holds: usize,
    is_armed: bool,
    /// The thread armed the queue last, and polled it last since its last event. So it looks after the queue.
    is_keeper: bool,
    /// The ledger's moment at that time. If it changes, the thread or another one has used the queues.
    moment: u64,
}

impl Stuck {
    /// Whether a thread that sleeps so can certainly not be woken. Otherwise another one may be about to serve the queue.
    pub const fn is_certain(&self, how: &How<'_>) -> bool {
        !how.may_wake && (how.is_alone || self.is_keeper)
    }
}

/// How a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct How<'a> {
    /// Its action, such as "sleeps in poll".
    pub does: &'a str,
    /// Something other than an event of a channel may wake it.
    pub may_wake: bool,
    /// There is no other thread of the program that could look after its queues.
    pub is_alone: bool,
}

/// A completion queue that has a channel.
#[derive(Debug, Default)]
pub(super) struct Watched {
    channel: usize,
    armed: Option<Armed>,
    /// The moment of the first poll of each thread.
    first_polls: BTreeMap<u32, u64>,
    /// The last moment when each thread made, armed or polled it, or took its event.
    last_uses: BTreeMap<u32, u64>,
    /// The last poll that left it empty.
    emptied: Option<Call>,
    /// The call that took its last event.
    told: Option<Call>,
    /// The thread that polled it last, if that was after its last event. A thread that takes events and does not poll
    /// may hand the queue to another one.
    polled_by: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Armed {
    arming: Arming,
    call: Call,
    /// A poll has left it empty since.
    is_empty: bool,
    /// The number of completions that were polled since.
    polled: usize,
    /// The number of sends that were posted before.
    sends: u64,
}

/// The fate of a thread that sleeps for a queue.
enum Fate {
    /// There is nothing to miss.
    Idle,
    /// An event may come.
    Wakes,
    /// Completions wait, and no event comes for them.
    Misses,
}

impl Watched {
    fn used(&mut self, thread: u32, moment: u64) {
        self.last_uses.insert(thread, moment);
    }

    /// Whether only this thread serves the queue: no other thread has used it since this one began to poll it.
    fn is_of(&self, thread: u32) -> bool {
        let begun = self.first_polls.get(&thread).copied().unwrap_or(0);
        self.last_uses.iter().all(|(other, last)| *other == thread || *last < begun)
    }

    fn fate(&self, look: &Look, thread: u32, sends: u64) -> Fate {
        match (look.holds, self.armed.filter(|armed| look.is_armed || armed.arming.is_held)) {
            (0, _) if look.is_armed => Fate::Wakes,
            (0, _) => Fate::Idle,
            (_, None) if look.is_armed => Fate::Wakes,
            (_, None) => Fate::Misses,
            (holds, Some(armed)) => {
                let Armed { arming, call, is_empty, polled, .. } = armed;
                let came_before = arming.held.checked_sub(polled) == Some(holds);
                let misses = arming.is_plain
                    && arming.has_receive
                    && came_before
                    && !is_empty
                    && sends == armed.sends
                    && call.thread == thread;
                if misses { Fate::Misses } else { Fate::Wakes }
            }
        }
    }
}

impl Ledger {
    /// A completion queue with a channel is made.
    pub fn queue_watched(&mut self, queue: usize, channel: usize, call: &Call) {
        let moment = self.next_moment();
        let mut watched = Watched { channel, ..Watched::default() };
        watched.used(call.thread, moment);
        self.watched.insert(queue, watched);
    }

    /// A completion queue is armed.
    pub fn queue_armed(&mut self, queue: usize, arming: Arming, call: &Call) {
        let (moment, sends) = (self.next_moment(), self.sends);
        let Some(watched) = self.watched.get_mut(&queue) else { return };
        watched.used(call.thread, moment);
        watched.armed = Some(Armed { arming, call: *call, is_empty: false, polled: 0, sends });
    }

    /// A thread polls a queue and gets `count` completions. `is_empty` says that the poll left no more.
    pub fn queue_polled(&mut self, queue: usize, count: usize, is_empty: bool, call: &Call) {
        let moment = self.next_moment();
        let Some(watched) = self.watched.get_mut(&queue) else { return };
        watched.used(call.thread, moment);
        watched.first_polls.entry(call.thread).or_insert(moment);
        watched.polled_by = Some(call.thread);
        if is_empty {
            watched.emptied = Some(*call);
        }
        if let Some(armed) = &mut watched.armed {
            armed.polled += count;
            armed.is_empty |= is_empty;
        }
    }

    /// A thread takes an event of a queue from its channel.
    pub fn queue_told(&mut self, queue: usize, call: &Call) {
        let moment = self.next_moment();
        let Some(watched) = self.watched.get_mut(&queue) else { return };
        watched.used(call.thread, moment);
        watched.told = Some(*call);
        watched.polled_by = None;
        if let Some(armed) = &mut watched.armed {
            armed.arming.is_held = false;
        }
    }

    /// An event that was held is raised. A thread may see that from now on.
    pub fn event_raised(&mut self, queue: usize) {
        if let Some(armed) = self.watched.get_mut(&queue).and_then(|it| it.armed.as_mut()) {
            armed.arming.is_held = false;
        }
    }

    fn next_moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// Why a thread that sleeps for a channel cannot wake up on every adapter. None if this is not certain. `events` is
    /// the number of events in the channel, and `looks` has all of its queues.
    ///
    /// It is certain if all of this holds:
    ///
    /// * A queue of the channel holds completions.
    /// * Only this thread looks after the queues.
    /// * No event can come: no queue is armed, except queues whose completions were all there before the arming.
    ///
    /// An event that is held does not count: there are adapters that have none for earlier completions.
    pub fn stuck(
        &self,
        channel: usize,
        thread: u32,
        events: usize,
        looks: &[Look],
    ) -> Option<Stuck> {
        let mut stuck = None;
        for look in looks {
            let watched = self.watched.get(&look.queue).filter(|it| it.channel == channel)?;
            if !watched.is_of(thread) {
                return None;
            }
            match watched.fate(look, thread, self.sends) {
                Fate::Idle => {}
                Fate::Wakes => return None,
                Fate::Misses => {
                    let Look { queue, holds, is_armed } = *look;
                    let arms = watched.armed.is_some_and(|it| it.call.thread == thread);
                    let is_keeper = arms && watched.polled_by == Some(thread);
                    let moment = self.moment;
                    stuck = stuck.or(Some(Stuck { queue, holds, is_armed, is_keeper, moment }));
                }
            }
        }
        stuck.filter(|_| events == 0)
    }

    /// The thread that used the queues of a channel last. If a thread sleeps for them, it is this one.
    pub fn keeper(&self, channel: usize) -> Option<u32> {
        let of_channel = self.watched.values().filter(|it| it.channel == channel);
        let uses = of_channel.flat_map(|it| &it.last_uses);
        uses.max_by_key(|(_, moment)| **moment).map(|(thread, _)| *thread)
    }

    /// A thread sleeps and cannot wake up, here or on other adapters. `call` is the sleeping call, or has only its
    /// thread.
    pub fn sleeps(&mut self, stuck: &Stuck, how: How, call: &Call) {
        let Stuck { queue, holds, .. } = *stuck;
        let Some(watched) = self.watched.get(&queue) else { return };
        let number = self.objects.get(&(Thing::CompletionQueue, queue)).map_or(0, |it| it.number);
        let of = Thing::CompletionQueue.called(number);
        let completions = if holds == 1 { "a completion" } else { &format!("{holds} completions") };
        let armed = watched.armed;
        let is_late = armed.is_some_and(|it| it.arming.is_held || stuck.is_armed);
        let why = match (armed, is_late) {
            (None, _) => ", and was never armed by ibv_req_notify_cq",
            (Some(_), true) => {
                " that came before it was armed, and has not been polled empty since"
            }
            (Some(_), false) => ", and was not armed again after its last event",
        };
        let (does, is_certain) = (how.does, stuck.is_certain(&how));
        let says = format!("A thread {does} while {of} holds {completions}{why}.");
        let mut calls = Vec::new();
        if call.frames().is_empty() {
            let own = |it: &Call| it.thread == call.thread;
            let (emptied, told) = (watched.emptied.filter(own), watched.told.filter(own));
            let here = match (emptied, told) {
                (Some(emptied), _) => ("it polled last here, and then sleeps", emptied),
                (None, Some(told)) => ("it took the last event here, and then sleeps", told),
                (None, None) => ("it sleeps", *call),
            };
            calls.push((here.0.to_owned(), here.1));
        } else {
            calls.push(("it sleeps here".to_owned(), *call));
        }
        calls.extend(armed.map(|armed| ("armed here".to_owned(), armed.call)));
        calls.extend(self.made_by(Thing::CompletionQueue, queue));
        let kind = if is_certain { Kind::SleepsOnCompletions } else { Kind::SleepsBeside };
        self.found(kind, says, calls);
    }
}
