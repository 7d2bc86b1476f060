//! The table of what the connection managers have: who listens, who is connected, who waits for an answer.

use super::super::palette::Tone;
use super::super::state::{Panel, State};
use super::super::view::{Connection, Stage, View};
use super::canvas::Canvas;
use super::table::{self, Column, Kind, Value, pid, words};
use ratatui::layout::Rect;

const COLUMNS: [Column<Connection>; 6] = [
    pid!(),
    words!("PROGRAM", 14, Kind::Text, 2, |_| Tone::Plain, |it: &Connection| it.process.clone()),
    words!("STATE", 10, Kind::Text, 0, tone, |it: &Connection| it.stage.name().to_owned()),
    words!("SPACE", 6, Kind::Text, 3, |_| Tone::Plain, |it: &Connection| it.space.to_owned()),
    words!("LOCAL", 24, Kind::Flexible, 0, |_| Tone::Plain, |it: &Connection| it.local.clone()),
    words!("PEER", 24, Kind::Flexible, 0, |_| Tone::Plain, peer),
];

fn tone(it: &Connection) -> Tone {
    match it.stage {
        Stage::Listening => Tone::Plain,
        Stage::Connected => Tone::Good,
        Stage::Asking => Tone::Warning,
    }
}

fn peer(it: &Connection) -> String {
    match (&it.peer, &it.waits) {
        (Some(peer), Some(waits)) => format!("{peer}: {waits}"),
        (Some(peer), None) => peer.clone(),
        (None, _) => String::new(),
    }
}

/// The entries that are shown, as they are sorted.
pub(super) fn shown<'v>(view: &'v View, state: &State) -> Vec<&'v Connection> {
    let is_shown = |it: &&Connection| state.shows(it.owner, it.pid, &it.process);
    let mut rows: Vec<_> = view.connections.iter().filter(is_shown).collect();
    table::sort(&COLUMNS, &mut rows, state.place(Panel::Connections));
    rows
}

pub(super) fn draw(canvas: &mut Canvas<'_>, area: Rect, view: &View, state: &mut State) {
    let rows = shown(view, state);
    let has_focus = state.focus == Panel::Connections;
    let place = state.place_mut(Panel::Connections);
    table::draw(canvas, area, Panel::Connections, (&COLUMNS, &rows), place, has_focus);
}
