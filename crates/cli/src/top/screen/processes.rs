//! The table of processes.

use super::super::numbers::{count, memory};
use super::super::palette::Tone;
use super::super::state::{Panel, State};
use super::super::view::{Flow, Process, View};
use super::canvas::Canvas;
use super::table::{self, Column, Kind, Value, number, pid};
use ratatui::layout::Rect;

const COLUMNS: [Column<Process>; 24] = [
    pid!(),
    Column {
        title: "PROGRAM",
        width: 12,
        kind: Kind::Flexible,
        rank: 0,
        text: name,
        value: |it| Value::Text(it.name.to_lowercase()),
        tone: |it| if it.waits_for.is_some() { Tone::Warning } else { Tone::Strong },
    },
    number!("CTX", 4, 9, Tone::Plain, count, |it: &Process| it.count("ctx")),
    number!("PD", 4, 8, Tone::Plain, count, |it: &Process| it.count("pd")),
    number!("CQ", 4, 8, Tone::Plain, count, |it: &Process| it.count("cq")),
    number!("SRQ", 4, 9, Tone::Plain, count, |it: &Process| it.count("srq")),
    number!("QP", 4, 2, Tone::Plain, count, |it: &Process| it.count("qp")),
    number!("MR", 4, 2, Tone::Plain, count, |it: &Process| it.count("mr")),
    number!("MW", 4, 2, Tone::Plain, count, |it: &Process| it.windows),
    number!("OPEN", 7, 3, Tone::Open, memory, open),
    number!("OUT/s", 6, 0, Tone::Busy, count, |it: &Process| sent(it).message_rate),
    number!("IN/s", 6, 0, Tone::Busy, count, |it: &Process| received(it).message_rate),
    number!("OUT B/s", 8, 0, Tone::Busy, count, |it: &Process| sent(it).byte_rate),
    number!("IN B/s", 7, 0, Tone::Busy, count, |it: &Process| received(it).byte_rate),
    number!("WIRE/s", 7, 6, Tone::Busy, count, wire_messages),
    number!("WIRE OUT", 9, 5, Tone::Busy, count, |it: &Process| it.load.sent.wire.byte_rate),
    number!("WIRE IN", 8, 5, Tone::Busy, count, |it: &Process| it.load.received.wire.byte_rate),
    number!("SENT", 7, 7, Tone::Plain, count, |it: &Process| sent(it).messages),
    number!("RECEIVED", 9, 7, Tone::Plain, count, |it: &Process| received(it).messages),
    number!("BINDS", 6, 4, Tone::Window, count, |it: &Process| it.binds),
    number!("REVOKED", 8, 4, Tone::Window, count, |it: &Process| it.invalidations),
    number!("RNR", 5, 6, Tone::Warning, count, |it: &Process| it.not_ready),
    number!("AGAIN", 6, 6, Tone::Warning, count, |it: &Process| it.retransmissions),
    number!("REFUSED", 8, 1, Tone::Bad, count, |it: &Process| it.refusals),
];

fn sent(it: &Process) -> Flow {
    it.load.sent.both()
}

fn received(it: &Process) -> Flow {
    it.load.received.both()
}

fn open(it: &Process) -> u64 {
    it.in_windows.saturating_add(it.in_regions)
}

fn wire_messages(it: &Process) -> f64 {
    it.load.sent.wire.and(it.load.received.wire).message_rate
}

fn name(it: &Process) -> String {
    match it.waits_for {
        _ if it.is_far => format!("{} (in other namespaces)", it.name),
        Some(pid) => format!("{}, revoking, waits for {pid}", it.name),
        None if it.device > 0 => format!("{} (device {})", it.name, it.device),
        None => it.name.clone(),
    }
}

/// The processes in the list, as they are sorted.
pub(super) fn listed<'v>(view: &'v View, state: &State) -> Vec<&'v Process> {
    let is_listed = |it: &&Process| state.lists(it.pid, &it.name);
    let mut rows: Vec<_> = view.processes.iter().filter(is_listed).collect();
    table::sort(&COLUMNS, &mut rows, state.place(Panel::Processes));
    rows
}

pub(super) fn draw(canvas: &mut Canvas<'_>, area: Rect, view: &View, state: &mut State) {
    let rows = listed(view, state);
    let has_focus = state.focus == Panel::Processes;
    let mut place = *state.place(Panel::Processes);
    // The selection stays with its process, wherever that goes.
    if let Some(row) = rows.iter().position(|it| Some(it.stay) == state.selected) {
        place.row = row;
    }
    table::draw(canvas, area, Panel::Processes, (&COLUMNS, &rows), &mut place, has_focus);
    state.selected = rows.get(place.row).map(|it| it.stay);
    *state.place_mut(Panel::Processes) = place;
}
