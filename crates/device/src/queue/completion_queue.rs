//! Completion queues: the waiting completions, and when the consumer is told (rules G.5, G.6).

use std::collections::VecDeque;
use std::sync::Arc;

use super::moderation::{Fate, HeldBack};
use super::{Completion, Feeder, Flags, Moderation, Returned, SizeError, Status, room_for};

/// The kind of completion that raises an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Notify {
    /// Nothing.
    No,
    /// A solicited or failed one.
    Solicited,
    /// Any.
    Any,
}

/// The host's work after a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// The consumer asked to be told: raise the event now.
    pub notify: bool,
    /// The queue was full: the completion is lost and the queue unusable (rule CQ-05).
    pub overrun: bool,
    /// Call [`CompletionQueue::end_period`] at this time.
    pub period_ends: Option<u64>,
}

/// The options of a completion queue beyond the defaults (`ibv_create_cq_ex(3)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompletionOptions {
    /// Each completion keeps the time when it was added.
    pub timestamps: bool,
    /// A full queue loses its oldest completion and goes on.
    pub ignore_overrun: bool,
}

/// The work queue of completions that it has left behind.
const NOBODY: Feeder = Feeder(u32::MAX);

/// A completion queue.
pub struct CompletionQueue {
    waiting: VecDeque<Completion>,
    /// The places of each feeder come back here. Free names are `None`.
    feeders: Vec<Option<Arc<Returned>>>,
    unused: Vec<Feeder>,
    /// How many of them a consumer that asked for solicited ones wants to be told of.
    urgent: usize,
    /// How many of both the last event told of, until one is taken.
    told: (usize, usize),
    capacity: usize,
    options: CompletionOptions,
    notify: Notify,
    overrun: bool,
    held_back: HeldBack,
}

impl CompletionQueue {
    /// A queue for `capacity` completions; their memory is taken now, not while polling.
    pub fn new(capacity: usize, options: CompletionOptions) -> Result<Self, SizeError> {
        Ok(Self {
            waiting: room_for(capacity)?.into(),
            feeders: Vec::new(),
            unused: Vec::new(),
            urgent: 0,
            told: (0, 0),
            capacity,
            options,
            notify: Notify::No,
            overrun: false,
            held_back: HeldBack::default(),
        })
    }

    /// How many completions it holds.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// A number that changes as completions are taken.
    pub fn taken(&self) -> u32 {
        self.feeders.iter().flatten().fold(0, |sum, feeder| feeder.count().wrapping_add(sum))
    }

    /// Makes a work queue complete here. Its places come back to `returned`.
    pub fn attach(&mut self, returned: &Arc<Returned>) -> Result<Feeder, SizeError> {
        let returned = Some(returned.clone());
        if let Some(feeder) = self.unused.pop() {
            self.feeders[feeder.0 as usize] = returned;
            return Ok(feeder);
        }
        let no_memory = |_| SizeError::NoMemory;
        let feeder = Feeder(u32::try_from(self.feeders.len()).map_err(|_| SizeError::NoMemory)?);
        self.feeders.try_reserve(1).map_err(no_memory)?;
        // For when they end.
        self.unused.try_reserve(self.feeders.len() + 1).map_err(no_memory)?;
        self.feeders.push(returned);
        Ok(feeder)
    }

    /// An attached work queue no longer completes here, and its completions are dropped (rule ORD-29).
    pub fn detach(&mut self, feeder: Feeder) {
        self.forget(feeder);
        let place = self.feeders.get_mut(feeder.0 as usize);
        if place.and_then(Option::take).is_some() {
            self.unused.push(feeder);
        }
    }

    /// An attached work queue no longer completes here, and its completions stay. Their places come back at once.
    pub fn leave(&mut self, feeder: Feeder) {
        let returned = self.feeders.get(feeder.0 as usize).and_then(Option::as_ref);
        for completion in self.waiting.iter_mut().filter(|it| it.feeder == feeder) {
            if let Some(returned) = returned {
                returned.add(completion.places);
            }
            (completion.feeder, completion.places) = (NOBODY, 0);
        }
        self.detach(feeder);
    }

    /// Whether completions of a work queue wait here.
    pub fn has_any_of(&self, feeder: Feeder) -> bool {
        self.waiting.iter().any(|completion| completion.feeder == feeder)
    }

    /// Whether work queues complete here.
    pub fn is_fed(&self) -> bool {
        self.unused.len() < self.feeders.len()
    }

    /// Whether a completion was lost.
    pub fn is_overrun(&self) -> bool {
        self.overrun
    }

    /// Whether the next completion must carry the time.
    #[inline]
    pub fn wants_time(&self) -> bool {
        self.options.timestamps || (self.is_moderated() && self.notify != Notify::No)
    }

    /// Adds a completion if there is room and nothing else to do for it. This is the case while the consumer polls.
    /// False leaves it to [`CompletionQueue::push`].
    #[inline]
    pub fn push_quietly(
        &mut self,
        feeder: Feeder,
        completion: &Completion,
        solicited: bool,
    ) -> bool {
        let quiet = self.notify == Notify::No
            && !self.options.timestamps
            && self.waiting.len() < self.capacity;
        if quiet {
            self.add(feeder, completion, solicited);
        }
        quiet
    }

    /// Adds a completion where there is room; whether it is an urgent one.
    #[inline]
    fn add(&mut self, feeder: Feeder, completion: &Completion, solicited: bool) -> bool {
        let urgent = solicited || completion.status != Status::Success;
        self.urgent += usize::from(urgent);
        self.waiting.push_back(*completion);
        // In place, so that the completion is copied as a whole.
        if let Some(last) = self.waiting.back_mut() {
            last.feeder = feeder;
            last.flags.set(Flags::SOLICITED, solicited);
        }
        urgent
    }

    /// Adds a completion. `solicited` is the message's flag (rules CQ-06 to CQ-10).
    pub fn push(&mut self, feeder: Feeder, completion: Completion, solicited: bool) -> Pending {
        if self.waiting.len() == self.capacity {
            if !self.options.ignore_overrun {
                let first = !self.overrun;
                self.overrun = true;
                return Pending { overrun: first, ..Pending::default() };
            }
            self.pop();
        }
        let time = completion.time;
        let urgent = self.add(feeder, &completion, solicited);
        match self.notify {
            Notify::Any => self.tell(1, time),
            Notify::Solicited if urgent => self.tell(1, time),
            Notify::No | Notify::Solicited => Pending::default(),
        }
    }

    /// There are so many more completions that the consumer wants to be told of: now, or with later
    /// ones.
    fn tell(&mut self, more: usize, now: u64) -> Pending {
        let fate = self.held_back.hold(more, now);
        self.carry_out(fate)
    }

    fn carry_out(&mut self, fate: Fate) -> Pending {
        match fate {
            Fate::Raised => self.raise(),
            Fate::Held => Pending::default(),
            Fate::HeldUntil(time) => Pending { period_ends: Some(time), ..Pending::default() },
        }
    }

    fn raise(&mut self) -> Pending {
        self.notify = Notify::No;
        self.held_back.let_go();
        self.told = (self.waiting.len(), self.urgent);
        Pending { notify: true, ..Pending::default() }
    }

    /// Whether events may be held back, for which the time is needed.
    pub fn is_moderated(&self) -> bool {
        self.held_back.is_moderated()
    }

    /// The time that a change asked for has come.
    pub fn end_period(&mut self, now: u64) -> Pending {
        let fate = self.held_back.end_period(now);
        self.carry_out(fate)
    }

    /// Changes when events are raised; one that is held back is raised now.
    pub fn moderate(&mut self, moderation: Moderation) -> Pending {
        self.held_back.moderation = moderation;
        if self.held_back.completions > 0 { self.raise() } else { Pending::default() }
    }

    /// Takes the oldest completion, which gives back its places.
    #[inline]
    pub fn pop(&mut self) -> Option<Completion> {
        let completion = self.waiting.pop_front()?;
        self.urgent -= usize::from(is_urgent(&completion));
        self.told = (0, 0);
        self.give_back(&completion);
        Some(completion)
    }

    #[inline]
    fn give_back(&self, completion: &Completion) {
        if let Some(Some(returned)) = self.feeders.get(completion.feeder.0 as usize) {
            returned.add(completion.places);
        }
    }

    /// Whether a completion to come raises an event.
    pub fn is_armed(&self) -> bool {
        self.notify != Notify::No
    }

    /// How many completions wait.
    pub fn count(&self) -> usize {
        self.waiting.len()
    }

    /// The completions that wait, the oldest first.
    pub fn waiting(&self) -> impl Iterator<Item = &Completion> {
        self.waiting.iter()
    }

    /// Whether none is waiting.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Asks for an event. Asking again never asks for less (rules CQ-08, CQ-09). Completions that the consumer has not
    /// taken yet count as if they came now (rule CQ-10), because it may ask without having looked. The exception are
    /// those that the last event reported, if the consumer has taken none since: it asks before it looks, and would
    /// find nothing at the second event.
    pub fn arm(&mut self, notify: Notify, now: u64) -> Pending {
        self.notify = self.notify.max(notify);
        let there = match self.notify {
            Notify::Any => self.waiting.len() - self.told.0,
            Notify::Solicited => self.urgent - self.told.1,
            Notify::No => 0,
        };
        match there.saturating_sub(self.held_back.completions.into()) {
            0 => Pending::default(),
            more => self.tell(more, now),
        }
    }

    /// Takes the completions that wait as reported, so that arming raises no event for them. Adapters need not do more.
    pub fn take_as_told(&mut self) {
        self.told = (self.waiting.len(), self.urgent);
    }

    /// The device has failed: everyone who asked for an event gets it, and finds the failure when polling.
    pub fn fail(&mut self) -> Pending {
        match self.notify {
            Notify::No => Pending::default(),
            Notify::Solicited | Notify::Any => self.raise(),
        }
    }

    /// Changes the size; what waits is kept (rule CQ-14).
    pub fn resize(&mut self, capacity: usize) -> Result<(), SizeError> {
        if capacity < self.waiting.len() {
            return Err(SizeError::TooSmall { least: self.waiting.len() });
        }
        let mut waiting = VecDeque::from(room_for(capacity)?);
        waiting.append(&mut self.waiting);
        self.waiting = waiting;
        self.capacity = capacity;
        Ok(())
    }

    /// Drops the waiting completions of a work queue. A shared receive queue has the places of those that came
    /// through a queue pair.
    pub fn forget(&mut self, feeder: Feeder) {
        let returned = self.feeders.get(feeder.0 as usize).and_then(Option::as_ref);
        self.waiting.retain(|completion| {
            let stays = completion.feeder != feeder;
            if !stays && let Some(returned) = returned {
                returned.add(completion.places);
            }
            stays
        });
        self.urgent = self.waiting.iter().filter(|completion| is_urgent(completion)).count();
        self.told = (0, 0);
    }
}

/// Whether a consumer that asked for solicited ones wants to be told of it (rule CQ-07).
#[inline]
fn is_urgent(completion: &Completion) -> bool {
    completion.flags.contains(Flags::SOLICITED) || completion.status != Status::Success
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{Opcode, Places};

    fn at(time: u64) -> Completion {
        Completion { time, ..Completion::new(time, Status::Success, Opcode::Receive, 1) }
    }

    fn moderated(count: u16, period: u64) -> CompletionQueue {
        let mut queue = CompletionQueue::new(64, CompletionOptions::default()).unwrap();
        assert_eq!(queue.moderate(Moderation { count, period }), Pending::default());
        assert_eq!(queue.arm(Notify::Any, 0), NOTHING);
        queue
    }

    const FIRST: Feeder = Feeder(0);
    const NOW: Pending = Pending { notify: true, overrun: false, period_ends: None };
    const NOTHING: Pending = Pending { notify: false, overrun: false, period_ends: None };

    fn later(time: u64) -> Pending {
        Pending { period_ends: Some(time), ..NOTHING }
    }

    #[test]
    fn a_count_raises_before_the_period() {
        let mut queue = moderated(3, 100);
        assert!(queue.wants_time());
        assert_eq!(queue.push(FIRST, at(10), false), later(110));
        assert_eq!(queue.push(FIRST, at(20), false), NOTHING);
        assert_eq!(queue.push(FIRST, at(30), false), NOW);
        assert!(!queue.wants_time(), "nobody waits for an event");
        assert_eq!(queue.end_period(110), NOTHING);
    }

    #[test]
    fn a_period_raises_before_the_count() {
        let mut queue = moderated(3, 100);
        assert_eq!(queue.push(FIRST, at(10), false), later(110));
        assert_eq!(queue.end_period(110), NOW);
        assert_eq!(queue.push(FIRST, at(120), false), NOTHING);
    }

    #[test]
    fn one_call_is_due_at_a_time() {
        let mut queue = moderated(2, 100);
        assert_eq!(queue.push(FIRST, at(10), false), later(110));
        assert_eq!(queue.push(FIRST, at(20), false), NOW);
        while queue.pop().is_some() {}
        assert_eq!(queue.arm(Notify::Any, 30), NOTHING);
        assert_eq!(queue.push(FIRST, at(50), false), NOTHING);
        assert_eq!(queue.end_period(110), later(150));
        assert_eq!(queue.end_period(150), NOW);
    }

    #[test]
    fn a_shorter_period_is_not_late() {
        let mut queue = moderated(2, 100);
        assert_eq!(queue.push(FIRST, at(10), false), later(110));
        assert_eq!(queue.push(FIRST, at(20), false), NOW);
        while queue.pop().is_some() {}
        assert_eq!(queue.moderate(Moderation { count: 9, period: 10 }), NOTHING);
        assert_eq!(queue.arm(Notify::Any, 30), NOTHING);
        assert_eq!(queue.push(FIRST, at(40), false), later(50));
        assert_eq!(queue.end_period(50), NOW);
        assert_eq!(queue.end_period(110), NOTHING, "the call for the longer one");
    }

    #[test]
    fn what_waits_when_armed_is_held_back_like_what_comes() {
        let mut queue = moderated(3, 100);
        assert_eq!(queue.push(FIRST, at(10), false), later(110));
        assert_eq!(queue.arm(Notify::Any, 20), NOTHING, "it is held back already");
        assert_eq!(queue.end_period(110), NOW);
        assert_eq!(queue.arm(Notify::Solicited, 120), NOTHING, "nobody solicited it");
        assert_eq!(queue.arm(Notify::Any, 125), NOTHING, "the event told of it");
        assert_eq!(queue.push(FIRST, at(130), false), later(230));
        assert_eq!(queue.push(FIRST, at(140), false), NOTHING);
        assert_eq!(queue.push(FIRST, at(150), false), NOW);
        queue.pop();
        assert_eq!(queue.arm(Notify::Any, 160), NOW, "three wait");
    }

    #[test]
    fn solicited_ones_are_known_until_they_are_taken() {
        let mut queue = CompletionQueue::new(2, CompletionOptions::default()).unwrap();
        let asked = |queue: &mut CompletionQueue| {
            let pending = queue.arm(Notify::Solicited, 0);
            // Whatever it was armed for, it is not any more.
            queue.notify = Notify::No;
            pending
        };
        assert!(
            queue.push_quietly(FIRST, &at(1), true) && queue.push_quietly(FIRST, &at(2), false)
        );
        assert_eq!(asked(&mut queue), NOW);
        queue.pop();
        assert_eq!(asked(&mut queue), NOTHING);
        let failed = Completion { status: Status::Flushed, ..at(3) };
        assert!(queue.push_quietly(Feeder(2), &failed, false));
        assert_eq!(asked(&mut queue), NOW);
        queue.forget(Feeder(2));
        assert_eq!(asked(&mut queue), NOTHING);
    }

    #[test]
    fn half_a_moderation_holds_nothing_back() {
        for (count, period) in [(0, 100), (1, 100), (9, 0), (0, 0)] {
            assert_eq!(moderated(count, period).push(FIRST, at(10), false), NOW);
        }
    }

    #[test]
    fn a_new_moderation_lets_go_what_is_held() {
        let mut queue = moderated(3, 100);
        assert_eq!(queue.push(FIRST, at(10), false), later(110));
        assert_eq!(queue.moderate(Moderation { count: 9, period: 900 }), NOW);
        assert_eq!(queue.end_period(110), NOTHING);
    }

    #[test]
    fn a_queue_that_ignores_overrun_loses_the_oldest() {
        let options = CompletionOptions { ignore_overrun: true, ..CompletionOptions::default() };
        let mut queue = CompletionQueue::new(2, options).unwrap();
        for time in 1..=5 {
            assert_eq!(queue.push(FIRST, at(time), false), NOTHING);
        }
        let left = std::iter::from_fn(|| queue.pop()).map(|completion| completion.wr_id);
        assert_eq!(left.collect::<Vec<_>>(), [4, 5]);
        assert!(!queue.is_overrun());
    }

    /// A completion gives back its places when it is polled, and when nobody can poll it any more; those of others
    /// stay where they are. A name is used again.
    #[test]
    fn places_come_back_to_the_queue_that_had_them() {
        let options = CompletionOptions { ignore_overrun: true, ..CompletionOptions::default() };
        let mut queue = CompletionQueue::new(2, options).unwrap();
        let (mut first, mut second) = (Places::new(8, false), Places::new(8, true));
        let [one, two] = [&first, &second].map(|it| queue.attach(it.returned()).unwrap());
        assert!(one != two && queue.is_fed());
        let back = |places: &mut Places| (0..=8).rfind(|count| places.has_room_for(*count));
        (0..8).for_each(|_| [&mut first, &mut second].into_iter().for_each(Places::take));
        let taking = |places| Completion { places, ..at(1) };
        queue.push(one, taking(1), false);
        queue.push(two, taking(2), false);
        assert_eq!((back(&mut first), back(&mut second)), (Some(0), Some(0)));
        queue.push(two, taking(3), false);
        assert_eq!((back(&mut first), back(&mut second)), (Some(1), Some(0)), "lost");
        queue.pop();
        assert_eq!((back(&mut first), back(&mut second)), (Some(1), Some(2)), "polled");
        queue.push(one, taking(4), false);
        queue.detach(two);
        queue.detach(two);
        assert_eq!((back(&mut first), back(&mut second)), (Some(1), Some(5)), "forgotten");
        assert_eq!(queue.attach(second.returned()), Ok(two));
        queue.pop();
        assert_eq!((back(&mut first), back(&mut second)), (Some(5), Some(5)));
        assert!(queue.is_empty());
        [one, two].into_iter().for_each(|feeder| queue.detach(feeder));
        assert!(!queue.is_fed());
    }

    /// Rules: EX-07
    #[test]
    fn what_is_taken_is_seen_although_as_much_comes() {
        let mut queue = CompletionQueue::new(4, CompletionOptions::default()).unwrap();
        let mut places = Places::new(4, false);
        let feeder = queue.attach(places.returned()).unwrap();
        let mut push = |queue: &mut CompletionQueue| {
            places.take();
            queue.push(feeder, Completion { places: 1, ..at(1) }, false);
        };
        push(&mut queue);
        let before = (queue.count(), queue.taken());
        push(&mut queue);
        assert_eq!(queue.taken(), before.1);
        queue.pop();
        assert_eq!((queue.count(), queue.taken() != before.1), (before.0, true));
    }

    #[test]
    fn a_size_without_memory_is_refused() {
        let options = CompletionOptions::default();
        assert_eq!(CompletionQueue::new(usize::MAX, options).err(), Some(SizeError::NoMemory));
        let mut queue = moderated(0, 0);
        queue.push(FIRST, at(10), false);
        assert_eq!(queue.resize(usize::MAX), Err(SizeError::NoMemory));
        assert_eq!(queue.pop(), Some(at(10)));
    }
}
