mod stragglers;

use std::collections::HashMap;

use transom_device::execution::{Awaited, Tally};
use transom_system::trace::{Event, What};

use serde_json::{Value, json};

use super::json::{FIELDS, line};
use super::looks::Look;
use super::parse_bytes;
use super::perfetto::{SLICE_BEGIN, SLICE_END, TracePacket, TrackEvent};
use super::shown::Reader;
use super::timeline::Timeline;
use crate::lines::field_names;

const QP: u32 = 0x3_0001;
const PEER: u32 = 0x4_0002;

fn event(what: What, time: u64) -> Event {
    Event { time, qp: QP, peer: PEER, code: 1, length: 64, ..Event::of(what) }
}

/// The packets of a timeline of one process, with these events.
fn packets(events: &[Event]) -> Vec<TracePacket> {
    let mut timeline = Timeline::new(1_000_000);
    let process = timeline.process(7, "program", 3);
    events.iter().for_each(|it| timeline.event(process, it, |_| None));
    timeline.finish(1_000);
    timeline.packets.take()
}

/// What they show: each with its time and track.
fn told(events: &[Event]) -> Vec<(u64, TrackEvent)> {
    let packets = packets(events).into_iter();
    packets.filter_map(|it| Some((it.timestamp?, it.track_event?))).collect()
}

/// The same as lines for programs.
fn lines(events: &[Event]) -> Vec<Value> {
    let mut reader = Reader::default();
    let shown = packets(events);
    let shown = shown.iter().filter_map(|packet| reader.take(packet)?.1);
    shown.map(|shown| line(&shown, shown.time)).collect()
}

/// When a line says that it began.
fn time(line: &Value) -> Option<u64> {
    line["time_ns"].as_str()?.parse().ok()
}

/// How long it says that it took.
fn took(line: &Value) -> Option<u64> {
    line["took_ns"].as_str()?.parse().ok()
}

/// One event of each kind, with all that it may have.
fn everything() -> Vec<Event> {
    let all = What::ALL.iter().zip(10..).map(|(what, time)| Event {
        key: 0x1234_5607,
        address: 0x7000,
        number: if *what == What::Managed { u64::MAX } else { 0 },
        ..event(*what, time)
    });
    let mut all: Vec<_> = all.collect();
    let failed = [-110_i16, 28].map(i16::cast_unsigned);
    all.extend(failed.map(|more| Event { more, ..event(What::Managed, 90) }));
    all
}

/// What is on one track begins and ends in turn, however requests overlap.
/// Rules: SEE-44
#[test]
fn requests_that_overlap_are_beside_each_other() {
    let posted = |position, time| Event { detail: position, ..event(What::Posted, time) };
    let ended = |position, time| Event { detail: position, ..event(What::Ended, time) };
    let all = [posted(0, 10), posted(1, 20), ended(0, 30), posted(2, 40), ended(1, 50)];
    let mut open: HashMap<u64, u64> = HashMap::new();
    let mut slices = Vec::new();
    for (time, event) in told(&all) {
        let track = event.track_uuid.unwrap();
        match event.r#type {
            Some(SLICE_BEGIN) => assert_eq!(open.insert(track, time), None, "one at a time"),
            Some(SLICE_END) => slices.push((open.remove(&track).expect("it has begun"), time)),
            _ => {}
        }
    }
    // The last one had not ended when the trace did.
    assert_eq!(slices, [(10, 30), (20, 50), (40, 1_000)]);
}

/// A trace may go on for days, with processes that come and go.
/// Rules: SEE-44
#[test]
fn of_processes_that_have_ended_no_object_is_remembered() {
    let mut timeline = Timeline::new(1_000_000);
    let mut before = 0;
    for round in 1..=3 {
        let process = timeline.process(7, "program", 3);
        let later = |it: &Event| Event { time: it.time + round * 1_000, ..*it };
        everything().iter().map(later).for_each(|it| timeline.event(process, &it, |_| None));
        timeline.look(process, round * 1_000 + 500, false, || 0);
        assert!(timeline.remembered() > 0);
        timeline.end(process, round * 1_000 + 900);
        assert_eq!(timeline.remembered(), 0);
        let packets = timeline.packets.take().len();
        assert!(round < 3 || packets == before, "each is told of as the one before");
        before = packets;
    }
}

/// A message that finds no receive is not carried out.
///
/// Rules: SEE-44
#[test]
fn a_message_that_finds_no_receive_is_told_as_not_taken() {
    let code = Tally::NoReceive.code();
    let all = [event(What::Came, 10), Event { code, ..event(What::Counted, 20) }];
    let lines = lines(&all);
    let [came, mark] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(mark["name"], "a message found no receive");
    assert_eq!(came["arguments"]["status"], "not taken: no receive", "{came}");
}

/// With `rnr_retry` 7 that goes on for ever, a thousand times a second.
///
/// Rules: SEE-44
#[test]
fn what_comes_again_for_want_of_a_receive_is_told_a_few_times_and_counted() {
    let counted = |tally: Tally, time| Event { code: tally.code(), ..event(What::Counted, time) };
    let named = |lines: &[Value], name: &str| lines.iter().filter(|it| it["name"] == name).count();
    // The one that is taken is shown, and carried out.
    let mut all: Vec<_> = (0..100)
        .flat_map(|at| [event(What::Came, 10 + at), counted(Tally::NoReceive, 10 + at)])
        .collect();
    all.extend([event(What::Came, 300), event(What::Touched, 310), event(What::Received, 320)]);
    let target = lines(&all);
    assert_eq!(named(&target, "a message found no receive"), 8, "{target:?}");
    assert_eq!(named(&target, "a message came again 92 times more: no receive"), 1);
    let is_taken = |it: &&Value| time(it) == Some(300) && took(it) == Some(10);
    assert_eq!(target.iter().filter(is_taken).count(), 1, "{target:?}");
    // So is the one that succeeds.
    let mut all = vec![event(What::Posted, 5)];
    all.extend((0..100).flat_map(|at| {
        let waits = Event { code: Awaited::Time.code(), ..event(What::Waits, 10 + at) };
        [event(What::Sent, 10 + at), counted(Tally::NotReady, 10 + at), waits]
    }));
    all.extend([event(What::Sent, 300), event(What::Ended, 320)]);
    let origin = lines(&all);
    assert_eq!(named(&origin, "asked to wait: the peer has no receive"), 8, "{origin:?}");
    assert_eq!(named(&origin, "asked to wait 92 times more: the peer has no receive"), 1);
    let sent = origin.iter().filter(|it| it["name"] == "sent");
    assert_eq!(sent.filter_map(time).collect::<Vec<_>>(), [10, 11, 12, 13, 14, 15, 16, 17, 300]);
    assert!(origin.len() < 40, "{origin:?}");
}

/// What the tracks of values hold, each with its time.
fn values(timeline: &mut Timeline) -> HashMap<String, Vec<(u64, i64)>> {
    let (mut names, mut values) = (HashMap::new(), HashMap::<_, Vec<_>>::new());
    let mut packets = timeline.packets.take();
    packets.sort_by_key(|it| it.timestamp);
    for packet in packets {
        let described = packet.track_descriptor.unwrap_or_default();
        names.insert(described.uuid.unwrap_or(0), described.name.unwrap_or_default());
        let event = packet.track_event.unwrap_or_default();
        if let (Some(time), Some(track), Some(value)) =
            (packet.timestamp, event.track_uuid, event.counter_value)
        {
            values.entry(names[&track].clone()).or_default().push((time, value));
        }
    }
    values
}

/// Rules: SEE-44
#[test]
fn a_value_stands_where_it_began() {
    const MS: u64 = 1_000_000;
    let mut timeline = Timeline::new(1_000_000);
    let process = timeline.process(7, "program", 3);
    let look = |timeline: &mut Timeline, at, is_last, sent| {
        timeline.look(process, at * MS, is_last, || sent);
    };
    look(&mut timeline, 100, false, 3_000);
    let (posted, ended) = (What::Posted, What::Ended);
    let first = [(posted, 1, 101), (posted, 2, 101), (ended, 1, 101), (ended, 2, 101)];
    let all = [&first[..], &[(posted, 3, 160), (ended, 3, 160)]].concat();
    for (order, (what, position, at)) in (0..).zip(all) {
        if order == 4 {
            look(&mut timeline, 150, false, 4_000);
        }
        let it = Event { detail: position, ..event(what, at * MS + order) };
        timeline.event(process, &it, |_| None);
    }
    timeline.end(process, 165 * MS);
    look(&mut timeline, 200, false, 4_000);
    look(&mut timeline, 250, true, 4_000);
    let values = values(&mut timeline);
    assert_eq!(values["sent"], [(100 * MS, 10_000), (200 * MS, 0), (250 * MS, 0)]);
    // Not each change of a busy moment, but the first and the last.
    let under_way = [(101 * MS, 1), (101 * MS + 3, 0), (160 * MS + 4, 1), (160 * MS + 5, 0)];
    assert_eq!(values["requests under way"], under_way);
}

/// What was posted before the trace began is known by what goes on with it.
///
/// Rules: SEE-44
#[test]
fn requests_that_have_not_ended_are_counted() {
    let under_way = |events: &[Event]| {
        let mut timeline = Timeline::new(1_000_000);
        let process = timeline.process(7, "program", 3);
        events.iter().for_each(|it| timeline.event(process, it, |_| None));
        timeline.finish(1_000);
        timeline.told.under_way
    };
    let sent = |position, time| Event { number: position, ..event(What::Sent, time) };
    let posted = |position, time| Event { detail: position, ..event(What::Posted, time) };
    let ended = |position, time| Event { detail: position, ..event(What::Ended, time) };
    assert_eq!(under_way(&[sent(4, 10), sent(4, 20)]), 1);
    assert_eq!(under_way(&[sent(4, 10), posted(5, 20), sent(4, 30)]), 2);
    assert_eq!(under_way(&[sent(4, 10), posted(5, 20), ended(4, 30), ended(5, 40)]), 0);
}

/// What is told of something that is open already is no second one: it was open when somebody began to look.
///
/// Rules: SEE-50
#[test]
fn a_window_that_is_told_of_twice_is_one() {
    let opened = |key, time| Event { number: 4, key, ..event(What::Opened, time) };
    let closed = Event { number: 4, ..event(What::Closed, 40) };
    let bars = |events: &[Event]| {
        let lines = lines(events);
        let memory = lines.iter().filter(|it| it["track"][0] == "memory");
        memory.map(|it| (time(it), took(it))).collect::<Vec<_>>()
    };
    assert_eq!(bars(&[opened(7, 10), opened(7, 20), closed]), [(Some(10), Some(30))]);
    let two = [(Some(10), Some(10)), (Some(20), Some(20))];
    assert_eq!(bars(&[opened(7, 10), opened(9, 20), closed]), two);
}

/// A thread tells of a region, loses its processor, and opens the region then.
///
/// Rules: SEE-50
#[test]
fn a_look_does_not_end_what_is_about_to_open() {
    const MS: u64 = 1_000_000;
    let mut timeline = Timeline::new(1_000_000);
    let process = timeline.process(7, "program", 3);
    let opened = Event { number: 4, key: 7, ..event(What::Opened, 10) };
    timeline.event(process, &opened, |_| None);
    // Another one had the slot before.
    timeline.looked(process, 50 * MS, &Look { ended: vec![(4, 9)], ..Look::default() });
    let open = vec![Event { time: 90 * MS, ..opened }];
    timeline.looked(process, 90 * MS, &Look { open, ..Look::default() });
    timeline.looked(process, 200 * MS, &Look { ended: vec![(4, 150 * MS)], ..Look::default() });
    timeline.finish(300 * MS);
    let (mut reader, packets) = (Reader::default(), timeline.packets.take());
    let bars = packets.iter().filter_map(|it| reader.take(it)?.1);
    let bars: Vec<_> = bars.map(|it| (it.time, it.took)).collect();
    assert_eq!(bars, [(10, Some(200 * MS - 10))]);
}

/// A revocation waits for a peer, and for another one, and still does when the trace ends.
///
/// Rules: SEE-44
#[test]
fn a_revocation_that_waits_is_shown_as_long_as_it_does() {
    let mut timeline = Timeline::new(1_000_000);
    let process = timeline.process(7, "program", 3);
    for (time, whom) in [(10, Some(81)), (30, Some(82)), (50, None), (60, Some(81))] {
        timeline.revoking(process, time, whom);
    }
    timeline.finish(100);
    let (mut reader, packets) = (Reader::default(), timeline.packets.take());
    let shown = packets.iter().filter_map(|it| reader.take(it)?.1);
    let shown: Vec<_> = shown.map(|it| (it.track.join("/"), it.name, it.time, it.took)).collect();
    let waits = |pid, time, took| {
        ("revocations".to_owned(), format!("waits for process {pid}"), time, Some(took))
    };
    assert_eq!(shown, [waits(81, 10, 20), waits(82, 30, 20), waits(81, 60, 40)]);
}

/// A thread may still record what it had begun to when nothing was recorded any more.
///
/// Rules: SEE-50
#[test]
fn what_is_refused_while_nothing_is_recorded_is_told_and_no_beginning() {
    let mut timeline = Timeline::new(1_000_000);
    let process = timeline.process(7, "program", 3);
    let names = |timeline: &mut Timeline| {
        let (mut reader, packets) = (Reader::default(), timeline.packets.take());
        let shown = packets.iter().filter_map(|it| reader.take(it)?.1);
        shown.map(|it| (it.time, it.track.join("/"))).collect::<Vec<_>>()
    };
    timeline.pause(process, 10);
    for (what, time) in [(What::Posted, 11), (What::Opened, 12), (What::Refused, 13)] {
        timeline.event(process, &event(what, time), |_| None);
    }
    timeline.resume(process);
    timeline.event(process, &event(What::Opened, 14), |_| None);
    timeline.finish(20);
    let shown = names(&mut timeline);
    let at = |track: &str| {
        let of_it = shown.iter().filter(|(_, it)| it.starts_with(track));
        of_it.map(|(time, _)| *time).collect::<Vec<_>>()
    };
    assert_eq!((at("refused"), at("memory"), at("QP")), (vec![13], vec![14], vec![]), "{shown:?}");
}

/// Rules: SEE-44
#[test]
fn each_kind_of_wait_is_told_until_its_request_goes_on() {
    let kinds = [
        (Awaited::Time, "waits for the time of its next attempt"),
        (Awaited::State, "waits: the state of the queue pair lets nothing begin"),
        (Awaited::Fence, "waits behind its fence"),
        (Awaited::Reads, "waits: as many READs and atomics are under way as may be"),
        (Awaited::Turn, "waits for those before it"),
        (Awaited::Window, "waits for the window"),
        (Awaited::Room, "waits for room at its peer or in the socket"),
    ];
    assert_eq!(kinds.map(|(awaited, _)| awaited), Awaited::ALL);
    for (awaited, name) in kinds {
        let waits = Event { code: awaited.code(), ..event(What::Waits, 20) };
        let all = [event(What::Posted, 10), waits, event(What::Sent, 35), event(What::Ended, 50)];
        let lines = lines(&all);
        let [wait] = lines.iter().filter(|it| it["name"] == name).collect::<Vec<_>>()[..] else {
            panic!("{awaited:?} in {lines:?}")
        };
        assert_eq!((time(wait), took(wait)), (Some(20), Some(15)), "{wait}");
        assert_eq!(wait["track"], json!(["QP 0x30001", "requests"]), "{wait}");
    }
}

/// A wait ends when it does, though what ends it is left out.
///
/// Rules: SEE-45
#[test]
fn a_wait_whose_end_is_beyond_the_limit_ends_in_time() {
    let mut timeline = Timeline::new(10_000);
    let process = timeline.process(7, "program", 3);
    let request = Event { detail: 0, ..event(What::Posted, 1) };
    let waits = Event { number: 0, code: 3, ..event(What::Waits, 2) };
    let others = (3..200).map(|time| Event { number: time, ..event(What::Managed, time) });
    let sent = Event { number: 0, ..event(What::Sent, 500) };
    let ended = Event { detail: 0, ..event(What::Ended, 900) };
    let all = [request, waits].into_iter().chain(others).chain([sent, ended]);
    all.for_each(|it| timeline.event(process, &it, |_| None));
    assert!(timeline.left_out() > 0);
    timeline.finish(1_000);
    let mut reader = Reader::default();
    let packets = timeline.packets.take();
    let shown: Vec<_> = packets.iter().filter_map(|it| reader.take(it)?.1).collect();
    let wait = shown.iter().find(|it| it.name.starts_with("waits")).expect("it is there");
    assert_eq!((wait.time, wait.took), (2, Some(498)));
}

/// A request ends after what has happened meanwhile, and began before it.
///
/// Rules: SEE-46
#[test]
fn a_whole_timeline_is_told_in_order_of_time() {
    let posted = Event { detail: 0, ..event(What::Posted, 10) };
    let bound = Event { number: 4, ..event(What::Opened, 10) };
    let ended = Event { detail: 0, ..event(What::Ended, 40) };
    let changed = [20, 30].map(|time| Event { code: time as u8, ..event(What::Changed, time) });
    let all = packets(&[&[posted, bound][..], &changed, &[ended]].concat());
    let shown = Reader::default().in_order(&all);
    let times: Vec<_> = shown.iter().map(|it| (it.time, it.took)).collect();
    let expected = [(10, Some(990)), (10, Some(30)), (20, None), (30, None)];
    assert_eq!(times, expected);
}

#[test]
fn a_queue_pair_without_a_peer_names_none() {
    let alone = |what| Event { peer: 0, key: 0, ..event(what, 10) };
    let all = [What::Changed, What::Came, What::Posted, What::Refused].map(alone);
    let lines = lines(&all);
    assert_eq!(lines.len(), 4, "{lines:?}");
    // It had one before the reset.
    let reset = self::lines(&[Event { code: 0, ..event(What::Changed, 10) }]);
    assert_eq!((&reset[0]["name"], &reset[0]["arguments"]), (&"RESET".into(), &json!({})));
    assert!(lines.iter().all(|line| !line.to_string().contains("qp\":0")), "{lines:?}");
}

/// Events may be missed. A request whose end is one of them ends with the next that does.
#[test]
fn a_request_whose_end_was_missed_ends_with_a_later_one() {
    let posted = |position, time| Event { detail: position, ..event(What::Posted, time) };
    let all = [posted(0, 10), posted(1, 20), Event { detail: 1, ..event(What::Ended, 30) }];
    let ends = told(&all).into_iter().filter(|(_, it)| it.r#type == Some(SLICE_END));
    assert_eq!(ends.map(|(time, _)| time).collect::<Vec<_>>(), [30, 30]);
}

#[test]
fn a_number_of_bytes_has_a_unit_or_none() {
    assert_eq!(parse_bytes("500k"), Ok(500_000));
    assert_eq!(parse_bytes("2M"), Ok(2_000_000));
    assert_eq!(parse_bytes("10000"), Ok(10_000));
    for wrong in ["", "k", "9k", "1G", "-1", "99999999999999999999M"] {
        assert!(parse_bytes(wrong).is_err(), "{wrong}");
    }
}

/// Rules: SEE-49
#[test]
fn a_receive_of_a_shared_queue_is_on_its_track_and_on_that_of_the_queue_pair_that_took_it() {
    let posted = Event { qp: 0, key: 0x3_0009, number: 5, ..event(What::ReceivePosted, 10) };
    let received = Event { key: 0x3_0009, number: 5, ..event(What::Received, 20) };
    let lines = lines(&[posted, received]);
    let tracks = lines.iter().map(|it| (it["track"].clone(), it["name"].as_str().unwrap()));
    let expected = [
        (json!(["SRQ 0x30009"]), "receive posted"),
        (json!(["SRQ 0x30009"]), "receive completed"),
        (json!(["QP 0x30001", "receives"]), "receive completed"),
    ];
    assert_eq!(tracks.collect::<Vec<_>>(), expected);
    assert_eq!(lines[1]["arguments"]["qp"], QP);
    assert_eq!(lines[2]["arguments"]["srq"], 0x3_0009);
    assert!(lines.iter().all(|it| it["arguments"]["wr_id"] == "5"), "{lines:?}");
}

/// Rules: SEE-47
#[test]
fn the_help_has_every_field_of_a_line() {
    let mut names = Vec::new();
    lines(&everything()).iter().for_each(|line| field_names(line, &mut names));
    let words: Vec<_> = FIELDS.split([' ', '\n', ',', ';', '(', ':']).collect();
    for name in ["status", "wr_id", "peer_qp", "access", "local_port", "errno", "code"] {
        assert!(names.iter().any(|it| it == name), "{name} in {names:?}");
    }
    for name in names {
        assert!(words.contains(&name.as_str()), "{name}");
    }
}

/// Rules: SEE-66
#[test]
fn no_number_of_a_line_is_beyond_what_readers_keep_exactly() {
    fn largest(value: &Value) -> u64 {
        let within = |values: &mut dyn Iterator<Item = &Value>| values.map(largest).max();
        match value {
            Value::Object(fields) => within(&mut fields.values()).unwrap_or(0),
            Value::Array(values) => within(&mut values.iter()).unwrap_or(0),
            other => other.as_u64().unwrap_or(0),
        }
    }
    let all = everything().into_iter();
    let largest_of = |it: Event| {
        // One byte less than all addresses.
        Event { address: u64::MAX, number: u64::MAX, length: u64::MAX - 1, ..it }
    };
    let most: Vec<_> = all.map(largest_of).collect();
    let lines = lines(&most);
    assert!(lines.iter().all(|line| largest(line) < 1 << 53), "{lines:?}");
    for (name, greatest) in [("wr_id", u64::MAX), ("address", u64::MAX), ("length", u64::MAX - 1)] {
        let greatest = json!(greatest.to_string());
        let is_there = |line: &Value| line["arguments"][name] == greatest;
        assert!(lines.iter().any(is_there), "{lines:?}");
    }
}

/// Rules: SEE-47
#[test]
fn a_line_has_the_time_and_the_numbers_of_its_request() {
    let posted = Event { detail: 4, number: 9, key: 0x1234_5607, ..event(What::Posted, 10) };
    let ended = Event { detail: 4, ..event(What::Ended, 35) };
    let expected = json!({
        "time_ns": "10", "took_ns": "25", "pid": 7, "process": "program",
        "track": ["QP 0x30001", "requests"], "qp": QP, "name": "WRITE",
        "arguments": {
            "length": "64", "wr_id": "9", "key": 0x1234_5607, "address": "0", "peer_qp": PEER,
            "status": "IBV_WC_SUCCESS",
        },
        "flows_out": [], "flows_in": [],
    });
    assert_eq!(lines(&[posted, ended]), [expected]);
}
