//! Follows processes: reads their events, and brings them into order of time.

use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

use transom_device::protection::{Key, Snapshot, State};
use transom_system::Watched;
use transom_system::clock;
use transom_system::registry::{Record, Registry};
use transom_system::trace::{Event, What};
use transom_system::traffic::{Carried, Way};

use super::find::{Finder, Whom};
use super::held::{Held, Seen};
use super::looks::{Look, Looks};
use super::output::Output;
use super::recordings::Recordings;
use super::timeline::{Number, Timeline};
use crate::failure::Result;

/// How often events are read. A ring holds those of a few milliseconds, if the program is busy.
const OFTEN: Duration = Duration::from_millis(3);

/// A process that is traced.
struct Traced {
    watched: Watched,
    number: Number,
    recordings: Recordings,
    looks: Looks,
    /// Whom its revocation waits for.
    waits_for: Option<u32>,
}

impl Traced {
    /// What is to be told beside its events.
    fn look(&mut self, is_last: bool) -> Vec<(u64, Seen)> {
        let watched = &self.watched;
        // The time is read first: an end that is seen in the events only is later.
        let now = clock::steady();
        let turn = watched.turn();
        let mut seen = self.recordings.changes(turn, now, |turn| watched.times(turn));
        if self.looks.next(now, turn, is_last, || watched.is_stopped()) {
            seen.push((now, Seen::Look(look_at(watched, now))));
            self.looks.took(now, clock::steady());
        }
        seen
    }
}

/// The processes, and what was read of them and is not told yet.
pub(super) struct Follower<'a> {
    registry: &'static Registry,
    finder: Finder,
    timeline: Timeline,
    output: &'a mut Output,
    traced: Vec<Traced>,
    held: Held,
}

impl<'a> Follower<'a> {
    pub(super) fn new(
        registry: &'static Registry,
        whom: Whom,
        limit: u64,
        output: &'a mut Output,
    ) -> Self {
        Self {
            registry,
            finder: Finder::new(registry, whom),
            timeline: Timeline::new(limit),
            output,
            traced: Vec::new(),
            held: Held::default(),
        }
    }

    /// Follows until `is_over`. Returns what was told.
    pub(super) fn run(mut self, is_over: &AtomicBool) -> Result<Timeline> {
        loop {
            // Looked at before the last reading: what came until then is read.
            let last = is_over.load(Acquire);
            self.round(last)?;
            if last {
                break;
            }
            std::thread::sleep(OFTEN);
        }
        let now = clock::steady();
        self.held.tell(u64::MAX, &mut self.timeline, sentences(self.registry));
        self.timeline.finish(now);
        self.output.write(self.timeline.packets.take())?;
        self.output.flush()?;
        self.timeline.unheard = self.finder.unheard();
        Ok(self.timeline)
    }

    /// One round: takes in new processes, reads, and writes what is old enough.
    fn round(&mut self, is_last: bool) -> Result {
        let now = clock::steady();
        for watched in self.finder.next(now, is_last) {
            self.take(watched);
        }
        let mut ended = Vec::new();
        for (index, traced) in self.traced.iter_mut().enumerate() {
            // Looked at before its events are read: then the last ones are among them.
            let is_alive = traced.watched.is_alive();
            let number = traced.number;
            let waits_for =
                is_alive.then(|| self.registry.waits_for(traced.watched.announcer().slot));
            let waits_for = waits_for.flatten();
            if std::mem::replace(&mut traced.waits_for, waits_for) != waits_for {
                self.held.add(now, number, Seen::Revoking(waits_for));
            }
            for (time, seen) in traced.look(is_last || !is_alive) {
                self.held.add(time, number, seen);
            }
            let hold = |event: Event| self.held.add(event.time, number, Seen::Event(event));
            match is_alive && !is_last {
                true => traced.watched.events(hold),
                false => traced.watched.last_events(hold),
            }
            traced.watched.refresh();
            traced.looks.note_missed(now, traced.watched.missed());
            self.timeline.note_missed(number, now, traced.watched.missed());
            if !is_alive {
                ended.push(index);
            }
        }
        let sentences = sentences(self.registry);
        self.held.tell_old(now, &mut self.timeline, &sentences);
        for traced in &self.traced {
            let ends = is_last || !traced.watched.is_alive();
            self.timeline.look(traced.number, now, ends, || sent(&traced.watched));
        }
        if !ended.is_empty() {
            // Nothing of it may be told after its end. What it did last is later than the beginning of this round.
            let now = clock::steady();
            self.held.tell(now, &mut self.timeline, &sentences);
            for index in ended.into_iter().rev() {
                let traced = self.traced.swap_remove(index);
                self.timeline.end(traced.number, now);
            }
        }
        self.output.write(self.timeline.packets.take())
    }

    /// Takes in a process that has come.
    fn take(&mut self, watched: Watched) {
        let (slot, process) = (watched.announcer().slot, watched.process());
        let number = self.timeline.process(process.pid, &process.name, slot);
        let now = clock::steady();
        let recordings = Recordings::new(watched.turn(), now);
        let looks = Looks::new(now);
        self.traced.push(Traced { watched, number, recordings, looks, waits_for: None });
    }
}

/// Why something was refused, by the slot of the process.
fn sentences(registry: &Registry) -> impl Fn(u8, &Event) -> Option<String> {
    |slot, event| sentence(registry, slot, event)
}

/// How many bytes a process has sent so far.
fn sent(watched: &Watched) -> u64 {
    let totals = watched.segment().totals().all;
    let kinds = Way::ALL.into_iter().flat_map(|way| Carried::ALL.map(|kind| (way, kind)));
    kinds.fold(0, |sum: u64, (way, kind)| sum.wrapping_add(totals.sent(way, kind).bytes))
}

/// What of a process is open to peers, as if it were opened at this time, and what is not.
pub(super) fn look_at(watched: &Watched, time: u64) -> Look {
    let keys = watched.segment().keys();
    let mut look = Look::default();
    for (key, object) in keys.seen(usize::MAX) {
        let Some(slot) = keys.slot_of(key).map(u64::from) else { continue };
        match object.state {
            State::Valid => look.open.push(opened(slot, key, &object, time)),
            // A window is told of while it is being bound.
            State::Free => look.ended.push((slot, u64::MAX)),
            State::Vacant => look.ended.push((slot, object.since)),
            // It is about to open, or to end.
            State::Changing => {}
        }
    }
    look
}

fn opened(slot: u64, key: Key, object: &Snapshot, time: u64) -> Event {
    Event {
        time,
        code: object.kind as u8,
        qp: object.qp,
        key: key.0,
        number: slot,
        address: object.base,
        length: object.length,
        detail: object.access.bits().into(),
        ..Event::of(What::Opened)
    }
}

/// Why something was refused, as `transom explain` says it.
pub(super) fn sentence(registry: &Registry, slot: u8, event: &Event) -> Option<String> {
    let records = registry.records(slot);
    let found = records.iter().rev().find(|record| match record {
        Record::Access(record) => {
            let attempt = &record.refusal.attempt;
            record.refusal.reason.code() == event.code
                && (attempt.qp, attempt.key.0) == (event.qp, event.key)
                && (attempt.address, attempt.length) == (event.address, event.length)
        }
        _ => false,
    });
    found.map(ToString::to_string)
}
