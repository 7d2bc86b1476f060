//! What the packets of a trace show: its slices, each when it has ended, and its marks. For people and for programs.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::perfetto::*;

/// A slice or a mark.
pub(super) struct Shown {
    /// When it began, in nanoseconds of the trace's clock.
    pub(super) time: u64,
    /// How long it took. A mark has no length.
    pub(super) took: Option<u64>,
    /// The process of its track, if it has one.
    pub(super) process: Option<(u32, String)>,
    /// The names of its track and of those above, below that of the process. The outermost comes first.
    pub(super) track: Vec<String>,
    pub(super) name: String,
    pub(super) arguments: Vec<(String, Given)>,
    /// The flows that go on from here, and those that end here.
    pub(super) flows: (Vec<u64>, Vec<u64>),
}

/// The value of an argument.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Given {
    Number(u64),
    /// People read it in hexadecimal.
    Hex(u64),
    Text(String),
}

/// What packets have told so far.
#[derive(Default)]
pub(super) struct Reader {
    tracks: HashMap<u64, Known>,
    events: HashMap<u64, String>,
    arguments: HashMap<u64, String>,
    words: HashMap<u64, String>,
    /// What has begun on each track.
    open: HashMap<u64, Vec<Shown>>,
    /// How much later the clock that counts from 1970 is than that of the trace.
    since_1970: u64,
}

/// A track.
struct Known {
    name: String,
    process: Option<u32>,
    parent: Option<u64>,
    is_counter: bool,
}

impl Reader {
    /// Takes a packet. Returns what it shows, and the time at which it was told.
    pub(super) fn take(&mut self, packet: &TracePacket) -> Option<(u64, Option<Shown>)> {
        self.learn(packet);
        let (time, event) = (packet.timestamp?, packet.track_event.as_ref()?);
        Some((time, self.event(time, event)))
    }

    /// What the packets of a whole timeline show, in order of time. What has others in it comes before them.
    pub(super) fn in_order(&mut self, packets: &[TracePacket]) -> Vec<Shown> {
        let mut all: Vec<_> = packets.iter().filter_map(|packet| self.take(packet)?.1).collect();
        all.sort_by_key(|shown| (shown.time, Reverse(shown.took)));
        all
    }

    /// A time of the trace in nanoseconds since 1970.
    pub(super) fn wall(&self, time: u64) -> u64 {
        time.wrapping_add(self.since_1970)
    }

    /// Takes the names and clocks of a packet.
    fn learn(&mut self, packet: &TracePacket) {
        if let Some(clocks) = &packet.clock_snapshot {
            let of = |id| clocks.clocks.iter().find(|it| it.clock_id == Some(id))?.timestamp;
            if let (Some(wall), Some(steady)) = (of(REALTIME), of(MONOTONIC)) {
                self.since_1970 = wall.wrapping_sub(steady);
            }
        }
        if let Some(TrackDescriptor {
            uuid: Some(uuid), name, process, parent_uuid, counter, ..
        }) = &packet.track_descriptor
        {
            let pid = process.as_ref().and_then(|it| it.pid).map(i32::cast_unsigned);
            let name = process.as_ref().map_or(name, |process| &process.process_name);
            let known = Known {
                name: name.clone().unwrap_or_default(),
                process: process.is_some().then_some(pid.unwrap_or(0)),
                parent: *parent_uuid,
                is_counter: counter.is_some(),
            };
            self.tracks.insert(*uuid, known);
        }
        if let Some(data) = &packet.interned_data {
            let take = |names: &[Name], into: &mut HashMap<u64, String>| {
                for name in names {
                    into.insert(name.iid.unwrap_or(0), name.name.clone().unwrap_or_default());
                }
            };
            take(&data.event_names, &mut self.events);
            take(&data.debug_annotation_names, &mut self.arguments);
            take(&data.debug_annotation_string_values, &mut self.words);
        }
    }

    /// What an event shows. `None` if that is told later.
    fn event(&mut self, time: u64, event: &TrackEvent) -> Option<Shown> {
        let track = event.track_uuid?;
        if self.tracks.get(&track).is_some_and(|track| track.is_counter) {
            return None;
        }
        match event.r#type? {
            SLICE_BEGIN => {
                let begun = self.shown(time, track, event);
                self.open.entry(track).or_default().push(begun);
                None
            }
            SLICE_END => {
                let open = self.open.get_mut(&track)?;
                let mut begun = open.pop()?;
                if open.is_empty() {
                    self.open.remove(&track);
                }
                begun.took = Some(time.saturating_sub(begun.time));
                begun.arguments.extend(self.arguments(&event.debug_annotations));
                Some(begun)
            }
            INSTANT => Some(self.shown(time, track, event)),
            _ => None,
        }
    }

    fn shown(&self, time: u64, track: u64, event: &TrackEvent) -> Shown {
        let (process, track) = self.place(track);
        let interned = event.name_iid.and_then(|number| self.events.get(&number));
        Shown {
            time,
            took: None,
            process,
            track,
            name: event.name.clone().or_else(|| interned.cloned()).unwrap_or_default(),
            arguments: self.arguments(&event.debug_annotations).collect(),
            flows: (event.flow_ids.clone(), event.terminating_flow_ids.clone()),
        }
    }

    /// The process and the names of a track.
    fn place(&self, track: u64) -> (Option<(u32, String)>, Vec<String>) {
        let (mut process, mut names) = (None, Vec::new());
        let mut next = Some(track);
        while let Some(known) = next.and_then(|track| self.tracks.get(&track))
            && names.len() < 8
        {
            match known.process {
                Some(pid) => process = Some((pid, known.name.clone())),
                None => names.push(known.name.clone()),
            }
            next = known.parent.filter(|_| process.is_none());
        }
        names.reverse();
        (process, names)
    }

    fn arguments(&self, all: &[DebugAnnotation]) -> impl Iterator<Item = (String, Given)> {
        let known = |names: &HashMap<u64, String>, number| {
            names.get(&number).map_or_else(|| "?".to_owned(), Clone::clone)
        };
        all.iter().filter_map(move |argument| {
            let value = match argument.value.as_ref()? {
                Value::Number(number) => Given::Number(*number),
                Value::Pointer(number) => Given::Hex(*number),
                Value::Text(word) => Given::Text(word.clone()),
                Value::Interned(number) => Given::Text(known(&self.words, *number)),
            };
            Some((known(&self.arguments, argument.name_iid.unwrap_or(0)), value))
        })
    }
}
