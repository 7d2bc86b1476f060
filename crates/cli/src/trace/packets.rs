//! Packets of a trace, in the order in which they are written, and their names, which later packets refer to.

use std::collections::HashMap;
use std::hash::Hash;

use rustix::time::{ClockId, clock_gettime};

use super::perfetto::*;

/// A value of an argument.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Argument {
    Number(u64),
    /// An address, a key or the number of a queue pair.
    Hex(u64),
    /// One of a few words.
    Word(&'static str),
    Text(String),
}

/// Arguments of a slice or a mark, with their names.
pub(super) type Arguments<'a> = &'a [(&'static str, Argument)];

/// What connects a slice or a mark to others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flows {
    /// It goes on from here.
    pub(super) on: Option<u64>,
    /// It ends here.
    pub(super) end: Option<u64>,
}

/// A track, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Track(u64);

/// The name of a slice or a mark.
#[derive(Clone, Debug)]
pub(super) enum Title {
    /// One that many have.
    Often(String),
    /// One of its own.
    Once(String),
}

/// The sequence of all packets of this command.
const SEQUENCE: u32 = 1;

/// Packets that are not written yet.
pub(super) struct Packets {
    made: Vec<TracePacket>,
    tracks: u64,
    events: Names<String>,
    arguments: Names<&'static str>,
    words: Names<&'static str>,
    new: InternedData,
    /// Encoded bytes of all packets so far.
    bytes: u64,
}

/// Names with numbers.
struct Names<T>(HashMap<T, u64>);

impl<T: Eq + Hash + Clone + ToString> Names<T> {
    /// The number of a name. A new name goes to `new`.
    fn number(&mut self, name: &T, new: &mut Vec<Name>) -> u64 {
        if let Some(number) = self.0.get(name) {
            return *number;
        }
        let number = self.0.len() as u64 + 1;
        self.0.insert(name.clone(), number);
        new.push(Name { iid: Some(number), name: Some(name.to_string()) });
        number
    }
}

impl Packets {
    /// The beginning of a trace.
    pub(super) fn new() -> Self {
        let mut packets = Self {
            made: Vec::new(),
            tracks: 0,
            events: Names(HashMap::new()),
            arguments: Names(HashMap::new()),
            words: Names(HashMap::new()),
            new: InternedData::default(),
            bytes: 0,
        };
        packets.add(TracePacket {
            sequence_flags: Some(SEQ_INCREMENTAL_STATE_CLEARED),
            trace_packet_defaults: Some(TracePacketDefaults {
                timestamp_clock_id: Some(MONOTONIC),
            }),
            clock_snapshot: Some(clocks()),
            ..TracePacket::default()
        });
        packets
    }

    /// How many bytes the packets take that were made so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes the packets that were made since the last time, in order of time.
    pub(super) fn take(&mut self) -> Vec<TracePacket> {
        let mut made = std::mem::take(&mut self.made);
        // What describes tracks or names comes before what uses it, and has no time.
        made.sort_by_key(|packet| packet.timestamp.unwrap_or(0));
        made
    }

    /// A track for a process.
    pub(super) fn process(&mut self, pid: u32, name: &str) -> Track {
        let process =
            ProcessDescriptor { pid: Some(pid.cast_signed()), process_name: Some(name.to_owned()) };
        self.track(TrackDescriptor {
            process: Some(process),
            child_ordering: Some(ORDERED_EXPLICITLY),
            ..TrackDescriptor::default()
        })
    }

    /// A track below another one. Those of lower ranks come first.
    pub(super) fn below(&mut self, parent: Track, name: &str, rank: u32) -> Track {
        self.track(TrackDescriptor {
            name: Some(name.to_owned()),
            parent_uuid: Some(parent.0),
            child_ordering: Some(ORDERED_EXPLICITLY),
            sibling_order_rank: i32::try_from(rank).ok(),
            ..TrackDescriptor::default()
        })
    }

    /// A track beside the processes.
    pub(super) fn alone(&mut self, name: &str) -> Track {
        self.track(TrackDescriptor { name: Some(name.to_owned()), ..TrackDescriptor::default() })
    }

    /// A track of values. `unit` is what is counted.
    pub(super) fn counter(&mut self, parent: Track, name: &str, unit: &str, rank: u32) -> Track {
        let counter = CounterDescriptor { unit_name: Some(unit.to_owned()) };
        self.track(TrackDescriptor {
            name: Some(name.to_owned()),
            parent_uuid: Some(parent.0),
            counter: Some(counter),
            sibling_order_rank: i32::try_from(rank).ok(),
            ..TrackDescriptor::default()
        })
    }

    fn track(&mut self, descriptor: TrackDescriptor) -> Track {
        self.tracks += 1;
        let track_descriptor = Some(TrackDescriptor { uuid: Some(self.tracks), ..descriptor });
        self.add(TracePacket { track_descriptor, ..TracePacket::default() });
        Track(self.tracks)
    }

    /// Something begins on a track.
    pub(super) fn begin(
        &mut self,
        track: Track,
        time: u64,
        title: &Title,
        flows: Flows,
        arguments: Arguments<'_>,
    ) {
        self.event(track, time, SLICE_BEGIN, Some(title), flows, arguments);
    }

    /// The innermost thing on a track ends.
    pub(super) fn end(&mut self, track: Track, time: u64, arguments: Arguments<'_>) {
        self.event(track, time, SLICE_END, None, Flows::default(), arguments);
    }

    /// Something happens at a moment.
    pub(super) fn mark(
        &mut self,
        track: Track,
        time: u64,
        title: &Title,
        flows: Flows,
        arguments: Arguments<'_>,
    ) {
        self.event(track, time, INSTANT, Some(title), flows, arguments);
    }

    /// A value, from now on.
    pub(super) fn value(&mut self, track: Track, time: u64, value: u64) {
        let event = TrackEvent {
            r#type: Some(COUNTER),
            track_uuid: Some(track.0),
            counter_value: Some(i64::try_from(value).unwrap_or(i64::MAX)),
            ..TrackEvent::default()
        };
        self.add_event(time, event);
    }

    fn event(
        &mut self,
        track: Track,
        time: u64,
        kind: i32,
        title: Option<&Title>,
        flows: Flows,
        arguments: Arguments<'_>,
    ) {
        let mut event = TrackEvent {
            r#type: Some(kind),
            track_uuid: Some(track.0),
            flow_ids: flows.on.into_iter().collect(),
            terminating_flow_ids: flows.end.into_iter().collect(),
            ..TrackEvent::default()
        };
        match title {
            Some(Title::Often(name)) => {
                event.name_iid = Some(self.events.number(name, &mut self.new.event_names));
            }
            Some(Title::Once(name)) => event.name = Some(name.clone()),
            None => {}
        }
        for (name, value) in arguments {
            let name = self.arguments.number(name, &mut self.new.debug_annotation_names);
            let value = match value {
                Argument::Number(number) => Value::Number(*number),
                Argument::Hex(number) => Value::Pointer(*number),
                Argument::Text(text) => Value::Text(text.clone()),
                Argument::Word(word) => {
                    let values = &mut self.new.debug_annotation_string_values;
                    Value::Interned(self.words.number(word, values))
                }
            };
            event
                .debug_annotations
                .push(DebugAnnotation { name_iid: Some(name), value: Some(value) });
        }
        self.add_event(time, event);
    }

    fn add_event(&mut self, time: u64, event: TrackEvent) {
        let new = std::mem::take(&mut self.new);
        if new != InternedData::default() {
            // Without a time, so that it stays before all that use it.
            let flags = Some(SEQ_NEEDS_INCREMENTAL_STATE);
            let packet = TracePacket {
                interned_data: Some(new),
                sequence_flags: flags,
                ..TracePacket::default()
            };
            self.add(packet);
        }
        self.add(TracePacket {
            timestamp: Some(time),
            sequence_flags: Some(SEQ_NEEDS_INCREMENTAL_STATE),
            track_event: Some(event),
            ..TracePacket::default()
        });
    }

    fn add(&mut self, packet: TracePacket) {
        let packet = TracePacket { trusted_packet_sequence_id: Some(SEQUENCE), ..packet };
        self.bytes += encoded(&packet);
        self.made.push(packet);
    }
}

/// The bytes that a packet takes in a file, but for a few.
fn encoded(packet: &TracePacket) -> u64 {
    prost::Message::encoded_len(packet) as u64 + 2
}

/// The clocks now.
fn clocks() -> ClockSnapshot {
    let all = [
        (REALTIME, ClockId::Realtime),
        (MONOTONIC, ClockId::Monotonic),
        (BOOTTIME, ClockId::Boottime),
    ];
    let read = |(number, id)| {
        let time = clock_gettime(id);
        let time = time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned();
        Clock { clock_id: Some(number), timestamp: Some(time) }
    };
    ClockSnapshot { clocks: all.map(read).into() }
}
