//! The events that the file of an anomaly keeps: the last before it, and the first after it.

use serde_json::{Value, json};
use transom_system::registry::Registry;
use transom_system::trace::Event;
use transom_system::{Watched, clock};

use super::super::follow::{look_at, sentence};
use super::super::packets::Packets;
use super::super::timeline::Timeline;
use super::cause::Cause;
use super::member::Member;

/// How many events a file has at most. Half of them are from before the anomaly. All processes have equal shares.
const EVENTS: usize = 1 << 15;

/// The events of a process around an anomaly, in order of time.
pub(super) struct Kept {
    events: Vec<Event>,
    /// What was open to peers when the anomaly was seen.
    open: Vec<Event>,
    /// How many there were before them since the process is watched, and how many could not be read since.
    older: u64,
    missed: u64,
}

impl Kept {
    /// Takes those that are there now.
    pub(super) fn begin(watched: &mut Watched) -> Self {
        let mut events = Vec::new();
        watched.rewind();
        watched.events(|event| events.push(event));
        let open = look_at(watched, 0).open;
        Self { events, open, older: watched.missed(), missed: 0 }
    }

    /// Takes those that have come since. From a process that goes on no more, the last ones too.
    pub(super) fn end(&mut self, watched: &mut Watched, is_over: bool) {
        let each = |event| self.events.push(event);
        match is_over {
            true => watched.last_events(each),
            false => watched.events(each),
        }
        self.missed = watched.missed().saturating_sub(self.older);
        self.events.sort_by_key(|event| event.time);
    }

    /// Those around a moment: so many before it, and so many after it. Returns how many older ones there are.
    fn around(&self, moment: u64, share: usize) -> (&[Event], usize) {
        let at = self.events.partition_point(|event| event.time <= moment);
        let first = at.saturating_sub(share);
        (&self.events[first..self.events.len().min(at + share)], first)
    }
}

/// The timeline of the processes concerned, and what is to be said of each.
pub(super) fn timeline(
    registry: &'static Registry,
    causes: &[Cause],
    kept: &[(usize, Kept)],
    members: &[Member],
) -> (Packets, Vec<Value>) {
    let mut timeline = Timeline::new(u64::MAX);
    let since_then =
        clock::wall().saturating_sub(causes.iter().map(Cause::time).min().unwrap_or(0));
    let moment = clock::steady().saturating_sub(since_then);
    let share = EVENTS / 2 / kept.len().max(1);
    let (mut all, mut said) = (Vec::new(), Vec::new());
    for (index, kept) in kept {
        let watched = &members[*index].watched;
        let (process, slot) = (watched.process(), watched.announcer().slot);
        let number = timeline.process(process.pid, &process.name, slot);
        let (events, left) = kept.around(moment, share);
        let begin = events.first().map_or(moment, |event| event.time);
        // What was open was opened before, if its opening is not among them.
        let is_told = |slot| events.iter().any(|event| is_opening(event, slot));
        let open = kept.open.iter().filter(|event| !is_told(event.number));
        all.extend(open.map(|event| (number, slot, Event { time: begin, ..*event })));
        all.extend(events.iter().map(|event| (number, slot, *event)));
        let older = kept.older + left as u64;
        if older > 0 {
            timeline.note(number, begin, format!("{older} older events are left out"));
        }
        timeline.note_missed(number, begin, kept.missed);
        said.push(json!({
            "pid": process.pid,
            "process": process.name,
            "events": events.len(),
            "older_events": older,
            "missed_events": kept.missed,
        }));
    }
    all.sort_by_key(|(_, _, event)| event.time);
    for (number, slot, event) in &all {
        timeline.event(*number, event, |event| sentence(registry, *slot, event));
    }
    for cause in causes {
        let ago = clock::wall().saturating_sub(cause.time());
        timeline.anomaly(clock::steady().saturating_sub(ago), cause.sentence());
    }
    timeline.finish(all.last().map_or(moment, |(_, _, event)| event.time));
    (timeline.packets, said)
}

fn is_opening(event: &Event, slot: u64) -> bool {
    event.what == transom_system::trace::What::Opened && event.number == slot
}

#[cfg(test)]
mod tests {
    use super::*;
    use transom_system::trace::What;

    /// Rules: SEE-64
    #[test]
    fn a_file_keeps_the_last_events_before_an_anomaly_and_the_first_after_it() {
        let at = |time| Event { time, ..Event::of(What::Sent) };
        let kept =
            Kept { events: (0..100).map(at).collect(), open: Vec::new(), older: 0, missed: 0 };
        let times = |moment, share| {
            let (events, older) = kept.around(moment, share);
            (events.first().map(|it| it.time), events.last().map(|it| it.time), older)
        };
        assert_eq!(times(49, 10), (Some(40), Some(59), 40));
        assert_eq!(times(95, 10), (Some(86), Some(99), 86));
        assert_eq!(times(3, 10), (Some(0), Some(13), 0));
        assert_eq!(times(1000, 1000), (Some(0), Some(99), 0));
    }
}
