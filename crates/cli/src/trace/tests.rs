use std::collections::HashMap;

use transom_system::trace::{Event, What};

use super::parse_bytes;
use super::perfetto::{SLICE_BEGIN, SLICE_END, TrackEvent};
use super::timeline::Timeline;

const QP: u32 = 0x3_0001;
const PEER: u32 = 0x4_0002;

fn event(what: What, time: u64) -> Event {
    Event { time, qp: QP, peer: PEER, code: 1, length: 64, ..Event::of(what) }
}

/// What a timeline of one process shows of these events: each with its time and track.
fn told(events: &[Event]) -> Vec<(u64, TrackEvent)> {
    let mut timeline = Timeline::new(1_000_000);
    let process = timeline.process(7, "program", 3);
    events.iter().for_each(|it| timeline.event(process, it, |_| None));
    timeline.finish(1_000);
    let packets = timeline.packets.take().into_iter();
    packets.filter_map(|it| Some((it.timestamp?, it.track_event?))).collect()
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
