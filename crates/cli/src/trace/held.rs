//! What was read of processes and is not told yet: it is told in order of time.

use transom_system::trace::Event;

use super::looks::{HELD, Look};
use super::timeline::{Number, Timeline};

/// What was read of a process.
pub(super) enum Seen {
    Event(Event),
    /// What is open to peers at a moment, and what is not any more.
    Look(Look),
    /// It records no more.
    Pause,
    /// It records again.
    Resume,
    /// A revocation waits for the process with this PID, or none does any more.
    Revoking(Option<u32>),
}

/// What was read, each with its time and its process.
#[derive(Default)]
pub(super) struct Held(Vec<(u64, Number, Seen)>);

impl Held {
    pub(super) fn add(&mut self, time: u64, of: Number, seen: Seen) {
        self.0.push((time, of, seen));
    }

    /// Tells all that is old enough at a time: nothing that is read later is older.
    pub(super) fn tell_old(
        &mut self,
        now: u64,
        timeline: &mut Timeline,
        sentence: impl Fn(u8, &Event) -> Option<String>,
    ) {
        self.tell(now.saturating_sub(HELD), timeline, sentence);
    }

    /// Tells all until a time. `sentence` knows why something was refused.
    pub(super) fn tell(
        &mut self,
        until: u64,
        timeline: &mut Timeline,
        sentence: impl Fn(u8, &Event) -> Option<String>,
    ) {
        self.0.sort_by_key(|(time, ..)| *time);
        let count = self.0.partition_point(|(time, ..)| *time <= until);
        for (time, of, seen) in self.0.drain(..count) {
            match seen {
                Seen::Event(event) => {
                    let slot = timeline.slot(of);
                    timeline.event(of, &event, |event| sentence(slot, event));
                }
                Seen::Look(look) => timeline.looked(of, time, &look),
                Seen::Pause => timeline.pause(of, time),
                Seen::Resume => timeline.resume(of),
                Seen::Revoking(whom) => timeline.revoking(of, time, whom),
            }
        }
    }
}
