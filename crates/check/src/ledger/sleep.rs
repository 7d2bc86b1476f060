//! Threads that sleep until a completion channel has an event.
//!
//! A completion queue raises an event only for a completion that is added after the program asked for it. So a thread
//! that asks and then sleeps, without a look into the queue between, misses what was there before.

use std::collections::BTreeMap;

use super::{Ledger, Thing};
use crate::{Call, Kind};

/// How a completion queue was when the program asked it for an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arming {
    /// For any completion, and at once: not for solicited ones, and none is held back.
    pub is_plain: bool,
    /// How many completions it held at least.
    pub held: usize,
    /// One of them is of a receive.
    pub has_receive: bool,
    /// The device raised an event at once, for what it held. Most adapters do not.
    pub raised: bool,
}

/// What the device knows of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The queue.
    pub queue: usize,
    /// The next completion raises an event, or one is held back.
    pub is_armed: bool,
    /// How many completions it holds.
    pub holds: usize,
}

/// Why a thread cannot be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    queue: usize,
    holds: usize,
    is_armed: bool,
    /// What had been done to the queues of the channel by then.
    moment: u64,
}

/// How a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct How<'a> {
    /// What it does, such as "sleeps in poll".
    pub does: &'a str,
    /// Something else than an event of a channel may wake it.
    pub may_wake: bool,
}

impl<'a> How<'a> {
    /// For nothing but events of channels.
    pub const fn for_events(does: &'a str) -> Self {
        Self { does, may_wake: false }
    }
}

/// A completion queue that has a channel.
#[derive(Debug, Default)]
pub(super) struct Watched {
    channel: usize,
    armed: Option<Armed>,
    /// The first poll of each thread.
    first_polls: BTreeMap<u32, u64>,
    /// The last time that each thread made, armed or polled it, or took an event of it.
    last_uses: BTreeMap<u32, u64>,
    /// The last poll that found nothing more.
    emptied: Option<Call>,
    /// The call that took the last event of it.
    told: Option<Call>,
}

#[derive(Clone, Copy, Debug)]
struct Armed {
    arming: Arming,
    call: Call,
    /// A poll has found nothing more since.
    is_empty: bool,
    /// How many were polled since.
    polled: usize,
    /// How many sends had been posted by then.
    sends: u64,
}

/// What becomes of a thread that sleeps for a queue.
enum Fate {
    /// There is nothing to be missed.
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

    /// Whether no other thread has had to do with it since this one began to poll it: so nobody else looks after it.
    fn is_of(&self, thread: u32) -> bool {
        let begun = self.first_polls.get(&thread).copied().unwrap_or(0);
        self.last_uses.iter().all(|(other, last)| *other == thread || *last < begun)
    }

    fn fate(&self, look: &Look, thread: u32, sends: u64) -> Fate {
        match (look.holds, self.armed.filter(|armed| look.is_armed || armed.arming.raised)) {
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

    /// A completion queue is asked for an event.
    pub fn queue_armed(&mut self, queue: usize, arming: Arming, call: &Call) {
        let (moment, sends) = (self.next_moment(), self.sends);
        let Some(watched) = self.watched.get_mut(&queue) else { return };
        watched.used(call.thread, moment);
        watched.armed = Some(Armed { arming, call: *call, is_empty: false, polled: 0, sends });
    }

    /// A thread polls a queue: it gets so many, and perhaps sees that there are no more.
    pub fn queue_polled(&mut self, queue: usize, count: usize, is_empty: bool, call: &Call) {
        let moment = self.next_moment();
        let Some(watched) = self.watched.get_mut(&queue) else { return };
        watched.used(call.thread, moment);
        watched.first_polls.entry(call.thread).or_insert(moment);
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
        if let Some(armed) = &mut watched.armed {
            armed.arming.raised = false;
        }
    }

    fn next_moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// Why a thread that sleeps for a channel cannot be woken on every adapter, if that is certain. The channel has so
    /// many events, and these are all of its queues.
    ///
    /// It is certain if no event can come: no queue of the channel is armed, but for those that hold what was there
    /// before they were armed; if a queue holds completions; and if nobody but this thread looks after the queues. An
    /// event that was raised for what was there before is none on other adapters.
    pub fn stuck(
        &self,
        channel: usize,
        thread: u32,
        events: usize,
        looks: &[Look],
    ) -> Option<Stuck> {
        let mut raised = 0;
        let mut stuck = None;
        for look in looks {
            let watched = self.watched.get(&look.queue).filter(|it| it.channel == channel)?;
            if !watched.is_of(thread) {
                return None;
            }
            raised += usize::from(watched.armed.is_some_and(|armed| armed.arming.raised));
            match watched.fate(look, thread, self.sends) {
                Fate::Idle => {}
                Fate::Wakes => return None,
                Fate::Misses => {
                    let Look { queue, holds, is_armed } = *look;
                    stuck = stuck.or(Some(Stuck { queue, holds, is_armed, moment: self.moment }));
                }
            }
        }
        stuck.filter(|_| events == raised)
    }

    /// The thread that had to do with the queues of a channel last: if any sleeps for them, it is this one.
    pub fn keeper(&self, channel: usize) -> Option<u32> {
        let of_channel = self.watched.values().filter(|it| it.channel == channel);
        let uses = of_channel.flat_map(|it| &it.last_uses);
        uses.max_by_key(|(_, moment)| **moment).map(|(thread, _)| *thread)
    }

    /// A thread sleeps and cannot be woken, or could not on other adapters. Where it was called is known, or its thread
    /// alone.
    pub fn sleeps(&mut self, stuck: &Stuck, how: How, call: &Call) {
        let Stuck { queue, holds, .. } = *stuck;
        let Some(watched) = self.watched.get(&queue) else { return };
        let number = self.objects.get(&(Thing::CompletionQueue, queue)).map_or(0, |it| it.number);
        let of = Thing::CompletionQueue.called(number);
        let completions = if holds == 1 { "a completion" } else { &format!("{holds} completions") };
        let armed = watched.armed;
        let is_late = armed.is_some_and(|it| it.arming.raised || stuck.is_armed);
        let why = match (armed, is_late) {
            (None, _) => ", and was never armed by ibv_req_notify_cq",
            (Some(_), true) => {
                " that came before it was armed, and has not been polled empty since"
            }
            (Some(_), false) => ", and was not armed again after its last event",
        };
        let How { does, may_wake } = how;
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
        let kind = if may_wake { Kind::SleepsBeside } else { Kind::SleepsOnCompletions };
        self.found(kind, says, calls);
    }
}
