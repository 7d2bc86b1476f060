//! The table of how long requests take, by process and operation.

use super::super::numbers::{count, time};
use super::super::palette::Tone;
use super::super::state::{Panel, State};
use super::super::view::{Latency, View};
use super::canvas::Canvas;
use super::table::{self, Column, Kind, Value, number, pid, words};
use ratatui::layout::Rect;

const COLUMNS: [Column<Latency>; 6] = [
    pid!(),
    words!("PROGRAM", 14, Kind::Flexible, 0, |_| Tone::Plain, |it: &Latency| it.process.clone()),
    words!("OPERATION", 11, Kind::Text, 0, |_| Tone::Plain, operation),
    number!("REQUESTS", 8, 1, Tone::Busy, count, |it: &Latency| it.requests),
    number!("P50", 8, 0, Tone::Strong, time, |it: &Latency| at_most(it.p50)),
    number!("P99", 8, 0, Tone::Strong, time, |it: &Latency| at_most(it.p99)),
];

fn operation(it: &Latency) -> String {
    it.operation.to_owned()
}

fn at_most(time: Option<u64>) -> f64 {
    time.map_or(f64::INFINITY, |nanoseconds| nanoseconds as f64)
}

/// Those that are shown, as they are sorted.
pub(super) fn shown<'v>(view: &'v View, state: &State) -> Vec<&'v Latency> {
    let is_shown = |it: &&Latency| state.shows(it.owner, it.pid, &it.process);
    let mut rows: Vec<_> = view.latencies.iter().filter(is_shown).collect();
    table::sort(&COLUMNS, &mut rows, state.place(Panel::Latencies));
    rows
}

pub(super) fn draw(canvas: &mut Canvas<'_>, area: Rect, view: &View, state: &mut State) {
    let rows = shown(view, state);
    let has_focus = state.focus == Panel::Latencies;
    let place = state.place_mut(Panel::Latencies);
    table::draw(canvas, area, Panel::Latencies, (&COLUMNS, &rows), place, has_focus);
}
