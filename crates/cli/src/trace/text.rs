//! A trace as text for a terminal: a line for each slice when it ends, and for each mark.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;

use super::perfetto::*;
use crate::failure::Result;
use crate::layout;

/// What packets have told so far.
#[derive(Default)]
pub(super) struct Text {
    tracks: HashMap<u64, Known>,
    events: HashMap<u64, String>,
    arguments: HashMap<u64, String>,
    words: HashMap<u64, String>,
    /// What has begun on each track.
    open: HashMap<u64, Vec<Begun>>,
    /// The time of the first event.
    first: Option<u64>,
}

/// A track.
struct Known {
    name: String,
    parent: Option<u64>,
    is_counter: bool,
}

/// Something that has not ended.
struct Begun {
    time: u64,
    name: String,
    arguments: String,
}

impl Text {
    /// Prints what packets tell.
    pub(super) fn print(&mut self, packets: &[TracePacket]) -> Result {
        let mut out = layout::stdout();
        for packet in packets {
            self.learn(packet);
            let (Some(time), Some(event)) = (packet.timestamp, &packet.track_event) else {
                continue;
            };
            let first = *self.first.get_or_insert(time);
            if let Some((time, text)) = self.line(time, event) {
                let since = time.saturating_sub(first);
                let stamp =
                    format!("{:>4}.{:06} ", since / 1_000_000_000, since / 1000 % 1_000_000);
                out.item(stamp, text)?;
            }
        }
        out.to.flush()?;
        Ok(())
    }

    /// Takes the names of a packet.
    fn learn(&mut self, packet: &TracePacket) {
        if let Some(TrackDescriptor {
            uuid: Some(uuid), name, process, parent_uuid, counter, ..
        }) = &packet.track_descriptor
        {
            let of_process = process.as_ref().map(|process| {
                let name = process.process_name.as_deref().unwrap_or("process");
                format!("{name} {}", process.pid.unwrap_or(0))
            });
            let name = of_process.or_else(|| name.clone()).unwrap_or_default();
            let known = Known { name, parent: *parent_uuid, is_counter: counter.is_some() };
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

    /// The line for an event, and its time. `None` if it has none yet.
    fn line(&mut self, time: u64, event: &TrackEvent) -> Option<(u64, String)> {
        let track = event.track_uuid?;
        if self.tracks.get(&track).is_some_and(|track| track.is_counter) {
            return None;
        }
        let place = self.place(track);
        let arguments = self.arguments(&event.debug_annotations);
        match event.r#type? {
            SLICE_BEGIN => {
                let begun = Begun { time, name: self.name(event), arguments };
                self.open.entry(track).or_default().push(begun);
                None
            }
            SLICE_END => {
                let begun = self.open.get_mut(&track)?.pop()?;
                let took = Took(time.saturating_sub(begun.time));
                let both = [begun.arguments.as_str(), arguments.as_str()];
                let told: Vec<_> = both.into_iter().filter(|it| !it.is_empty()).collect();
                let told = told.join(", ");
                let colon = if told.is_empty() { "" } else { ": " };
                Some((
                    begun.time,
                    printable(&format!("{place}: {}, {took}{colon}{told}", begun.name)),
                ))
            }
            INSTANT => {
                let name = self.name(event);
                let colon = if arguments.is_empty() { "" } else { ": " };
                Some((time, printable(&format!("{place}: {name}{colon}{arguments}"))))
            }
            _ => None,
        }
    }

    fn name(&self, event: &TrackEvent) -> String {
        let interned = event.name_iid.and_then(|number| self.events.get(&number));
        event.name.clone().or_else(|| interned.cloned()).unwrap_or_default()
    }

    /// The process and the queue pair of a track.
    fn place(&self, track: u64) -> String {
        let mut names = Vec::new();
        let mut next = Some(track);
        while let Some(known) = next.and_then(|track| self.tracks.get(&track))
            && names.len() < 8
        {
            names.push(known.name.as_str());
            next = known.parent;
        }
        names.reverse();
        names.join(", ")
    }

    fn arguments(&self, all: &[DebugAnnotation]) -> String {
        let mut text = String::new();
        for argument in all {
            let number = argument.name_iid.unwrap_or(0);
            let name = self.arguments.get(&number).map_or("?", String::as_str);
            let comma = if text.is_empty() { "" } else { ", " };
            let _ = match &argument.value {
                Some(Value::Number(number)) => write!(text, "{comma}{name} {number}"),
                Some(Value::Pointer(number)) => write!(text, "{comma}{name} {number:#x}"),
                Some(Value::Text(word)) => write!(text, "{comma}{name} {word}"),
                Some(Value::Interned(number)) => {
                    let word = self.words.get(number).map_or("?", String::as_str);
                    write!(text, "{comma}{name} {word}")
                }
                None => Ok(()),
            };
        }
        text
    }
}

/// How long something took.
struct Took(u64);

impl std::fmt::Display for Took {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nanoseconds = self.0 as f64;
        match self.0 {
            0..10_000_000 => write!(f, "{:.1} µs", nanoseconds / 1e3),
            10_000_000..10_000_000_000 => write!(f, "{:.1} ms", nanoseconds / 1e6),
            _ => write!(f, "{:.1} s", nanoseconds / 1e9),
        }
    }
}

/// A file may come from anybody, and a terminal obeys control characters.
fn printable(line: &str) -> String {
    line.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}
