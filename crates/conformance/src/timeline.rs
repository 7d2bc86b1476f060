//! Reads a timeline that `transom trace` has written, by the numbers of Perfetto's public format, and knows nothing of
//! how it was written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use crate::processes::again;
use crate::programs::Running;

/// A field of a message: its number, and its value.
type Field<'a> = (u64, Value<'a>);

#[derive(Clone, Copy, Debug)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message.
fn fields(mut bytes: &[u8]) -> Vec<Field<'_>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut bytes)),
            1 => Value::Number(u64::from_le_bytes(take(&mut bytes, 8).try_into().unwrap())),
            2 => {
                let length = varint(&mut bytes);
                Value::Bytes(take(&mut bytes, length as usize))
            }
            other => panic!("a field of type {other}"),
        };
        all.push((tag >> 3, value));
    }
    all
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number that does not end")
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(count);
    *bytes = rest;
    taken
}

fn number(message: &[Field<'_>], wanted: u64) -> Option<u64> {
    message.iter().find_map(|(field, value)| match value {
        Value::Number(number) if *field == wanted => Some(*number),
        _ => None,
    })
}

fn parts<'a>(message: &[Field<'a>], wanted: u64) -> Vec<&'a [u8]> {
    let part = |(field, value): &Field<'a>| match value {
        Value::Bytes(bytes) if *field == wanted => Some(*bytes),
        _ => None,
    };
    message.iter().filter_map(part).collect()
}

fn text(message: &[Field<'_>], wanted: u64) -> Option<String> {
    parts(message, wanted).first().map(|bytes| String::from_utf8(bytes.to_vec()).expect("UTF-8"))
}

/// A slice or a mark.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The names of its track and of those above.
    pub track: String,
    /// Its name.
    pub name: String,
    /// When it began, in nanoseconds.
    pub begin: u64,
    /// When it ended. A mark has none.
    pub end: Option<u64>,
    /// Its arguments, as text.
    pub arguments: BTreeMap<String, String>,
    /// The flows that go on from here, and those that end here.
    pub flows: (Vec<u64>, Vec<u64>),
}

/// The folder where a test leaves a copy of the timelines that it reads.
const KEPT: &str = "TRANSOM_TEST_TIMELINES";

/// The bytes of a timeline.
pub fn bytes_of(file: &Path) -> Vec<u8> {
    if let (Some(folder), Some(name)) = (env::var_os(KEPT), file.file_name()) {
        fs::copy(file, Path::new(&folder).join(name)).expect("it is written");
    }
    fs::read(file).expect("it is written")
}

/// Runs another test. Returns the timelines that it has read, copied to this folder.
pub fn timelines_of(test: &str, folder: &Path) -> Vec<PathBuf> {
    fs::create_dir(folder).expect("the scratch folder is ours");
    let run = Running::start(again(test).env(KEPT, folder)).success(Duration::from_secs(200));
    run.unwrap_or_else(|problem| panic!("{test}: {problem}"));
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.unwrap().path());
    let timelines: Vec<_> = entries.collect();
    assert!(!timelines.is_empty(), "{test} leaves none");
    timelines
}

/// The values of each counter of this name in a file, in order of their times.
pub fn values(bytes: &[u8], counter: &str) -> Vec<Vec<(u64, u64)>> {
    let mut all: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for packet in parts(&fields(bytes), 1).into_iter().map(fields) {
        for track in parts(&packet, 60).into_iter().map(fields) {
            let is_counter = !parts(&track, 8).is_empty();
            if is_counter && text(&track, 2).as_deref() == Some(counter) {
                all.insert(number(&track, 1).unwrap(), Vec::new());
            }
        }
        for event in parts(&packet, 11).into_iter().map(fields) {
            // Only values of counters are in this field.
            if let Some(value) = number(&event, 30)
                && let Some(values) = all.get_mut(&number(&event, 11).unwrap())
            {
                values.push((number(&packet, 8).unwrap(), value));
            }
        }
    }
    all.values_mut().for_each(|values| values.sort_by_key(|(time, _)| *time));
    all.into_values().collect()
}

/// Everything in a file, in the order in which it begins.
pub fn read(bytes: &[u8]) -> Vec<Shown> {
    let mut tracks: BTreeMap<u64, (String, Option<u64>)> = BTreeMap::new();
    let mut names: [BTreeMap<u64, String>; 3] = Default::default();
    let mut events = Vec::new();
    for packet in parts(&fields(bytes), 1).into_iter().map(fields) {
        for track in parts(&packet, 60).into_iter().map(fields) {
            let process = parts(&track, 3).first().and_then(|it| text(&fields(it), 6));
            let name = process.or_else(|| text(&track, 2)).unwrap_or_default();
            tracks.insert(number(&track, 1).unwrap(), (name, number(&track, 5)));
        }
        for data in parts(&packet, 12).into_iter().map(fields) {
            for (names, field) in names.iter_mut().zip([2, 3, 29]) {
                for name in parts(&data, field).into_iter().map(fields) {
                    names.insert(number(&name, 1).unwrap(), text(&name, 2).unwrap());
                }
            }
        }
        for event in parts(&packet, 11) {
            events.push((number(&packet, 8).unwrap(), fields(event)));
        }
    }
    // A reader sorts them. What is equal stays in order.
    events.sort_by_key(|(time, _)| *time);
    let mut all: Vec<Shown> = Vec::new();
    let mut open: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (time, event) in events {
        let track = number(&event, 11).unwrap();
        let mut arguments = BTreeMap::new();
        for argument in parts(&event, 4).into_iter().map(fields) {
            let name = names[1][&number(&argument, 1).unwrap()].clone();
            let value = text(&argument, 6)
                .or_else(|| number(&argument, 17).map(|word| names[2][&word].clone()))
                .or_else(|| number(&argument, 7).map(|number| format!("{number:#x}")))
                .or_else(|| number(&argument, 3).map(|number| number.to_string()));
            arguments.insert(name, value.expect("a value"));
        }
        match number(&event, 9) {
            Some(2) => {
                let index = open.get_mut(&track).and_then(Vec::pop).expect("it has begun");
                all[index].end = Some(time);
                all[index].arguments.extend(arguments);
            }
            Some(kind @ (1 | 3)) => {
                let interned = number(&event, 10).map(|name| names[0][&name].clone());
                let of = |field| {
                    let all = event.iter().filter(|(number, _)| *number == field);
                    all.flat_map(|(_, value)| match value {
                        Value::Number(flow) => vec![*flow],
                        Value::Bytes(_) => {
                            panic!("flows are packed, and Perfetto does not read that")
                        }
                    })
                    .collect::<Vec<_>>()
                };
                if kind == 1 {
                    open.entry(track).or_default().push(all.len());
                }
                all.push(Shown {
                    track: place(&tracks, track),
                    name: text(&event, 23).or(interned).expect("a name"),
                    begin: time,
                    end: None,
                    arguments,
                    flows: (of(47), of(48)),
                });
            }
            _ => {}
        }
    }
    assert!(open.values().all(Vec::is_empty), "something has not ended");
    all
}

fn place(tracks: &BTreeMap<u64, (String, Option<u64>)>, track: u64) -> String {
    let (name, parent) = &tracks[&track];
    match parent {
        Some(parent) => format!("{}/{name}", place(tracks, *parent)),
        None => name.clone(),
    }
}
