//! The table of queue pairs.

use super::super::numbers::count;
use super::super::palette::Tone;
use super::super::state::{Panel, State};
use super::super::view::{Flow, QueuePair, View};
use super::canvas::Canvas;
use super::table::{self, Column, Kind, Value, number, pid, words};
use ratatui::layout::Rect;
use transom_device::qp::{QpState, Service};
use transom_system::traffic::Depths;

/// A column of how much waits in a queue. That is not known before the process has told it.
macro_rules! depth {
    ($title:literal, $rank:literal, $of:expr) => {
        Column {
            title: $title,
            width: 5,
            kind: Kind::Number,
            rank: $rank,
            text: |it| it.depths.map($of).map_or_else(|| "-".to_owned(), |it| count(it as f64)),
            value: |it| Value::Number(it.depths.map($of).map_or(-1.0, |it| it as f64)),
            tone: |it| if it.depths.map($of) > Some(0) { Tone::Plain } else { Tone::Quiet },
        }
    };
}

const COLUMNS: [Column<QueuePair>; 19] = [
    pid!(),
    words!("PROGRAM", 14, Kind::Text, 4, |_| Tone::Plain, |it: &QueuePair| it.process.clone()),
    words!("QP", 8, Kind::Text, 0, |_| Tone::Strong, |it: &QueuePair| format!("{:#x}", it.number)),
    words!("TYPE", 5, Kind::Text, 2, |_| Tone::Plain, type_name),
    words!("STATE", 6, Kind::Text, 0, tone_of_state, state_of),
    words!("PEER", 16, Kind::Flexible, 0, tone_of_peer, peer),
    number!("OUT/s", 6, 0, Tone::Busy, count, |it: &QueuePair| sent(it).message_rate),
    number!("IN/s", 6, 0, Tone::Busy, count, |it: &QueuePair| received(it).message_rate),
    number!("OUT B/s", 8, 0, Tone::Busy, count, |it: &QueuePair| sent(it).byte_rate),
    number!("IN B/s", 7, 0, Tone::Busy, count, |it: &QueuePair| received(it).byte_rate),
    depth!("SQ", 1, |depths: Depths| depths.sends),
    depth!("RQ", 3, |depths: Depths| depths.receives),
    depth!("CQ", 3, |depths: Depths| depths.completions),
    number!("SENT", 7, 7, Tone::Plain, count, |it: &QueuePair| sent(it).messages),
    number!("RECEIVED", 9, 7, Tone::Plain, count, |it: &QueuePair| received(it).messages),
    number!("MOST SQ", 8, 5, Tone::Plain, count, |it: &QueuePair| it.most_sends),
    number!("MOST RQ", 8, 5, Tone::Plain, count, |it: &QueuePair| it.most_receives),
    number!("RNR", 5, 6, Tone::Warning, count, |it: &QueuePair| it.not_ready),
    number!("FAILED", 7, 4, Tone::Bad, count, |it: &QueuePair| it.failed),
];

fn sent(it: &QueuePair) -> Flow {
    it.load.sent.both()
}

fn received(it: &QueuePair) -> Flow {
    it.load.received.both()
}

fn state_of(it: &QueuePair) -> String {
    it.state.name().to_owned()
}

fn type_name(it: &QueuePair) -> String {
    service(it.service).to_owned()
}

/// The type of a queue pair, as people say it.
pub(in super::super) fn service(service: Service) -> &'static str {
    match service {
        Service::Rc => "RC",
        Service::Uc => "UC",
        Service::Ud => "UD",
        Service::XrcInitiator => "XRC_S",
        Service::XrcTarget => "XRC_R",
    }
}

fn tone_of_state(it: &QueuePair) -> Tone {
    match it.state {
        QpState::Rts => Tone::Good,
        QpState::Error | QpState::Sqe => Tone::Bad,
        QpState::Reset | QpState::Init => Tone::Quiet,
        QpState::Rtr | QpState::Sqd => Tone::Warning,
    }
}

fn peer(it: &QueuePair) -> String {
    match (&it.peer, &it.peer_process) {
        (Some(peer), Some((pid, name))) => format!("{peer:#x} {pid} {name}"),
        (Some(peer), None) => format!("{peer:#x}"),
        (None, _) => "-".to_owned(),
    }
}

fn tone_of_peer(it: &QueuePair) -> Tone {
    if it.peer.is_some() { Tone::Plain } else { Tone::Quiet }
}

/// The queue pairs that are shown, as they are sorted.
pub(super) fn shown<'v>(view: &'v View, state: &State) -> Vec<&'v QueuePair> {
    let is_shown = |it: &&QueuePair| state.shows(it.owner, it.pid, &it.process);
    let mut rows: Vec<_> = view.queue_pairs.iter().filter(is_shown).collect();
    table::sort(&COLUMNS, &mut rows, state.place(Panel::QueuePairs));
    rows
}

pub(super) fn draw(canvas: &mut Canvas<'_>, area: Rect, view: &View, state: &mut State) {
    let rows = shown(view, state);
    let has_focus = state.focus == Panel::QueuePairs;
    let place = state.place_mut(Panel::QueuePairs);
    table::draw(canvas, area, Panel::QueuePairs, (&COLUMNS, &rows), place, has_focus);
}
