//! The lines above the panels: how much there is, and what all of it carries together.

use super::super::numbers;
use super::super::palette::Tone;
use super::super::state::State;
use super::super::view::{Flow, View};
use super::canvas::Canvas;
use crate::clock;
use crate::sentence::counted;
use ratatui::layout::Rect;
use ratatui::text::Span;
use ratatui::widgets::{RenderDirection, Sparkline, Widget};

/// Where the four columns of numbers end.
const ENDS: [u16; 4] = [16, 26, 40, 50];
/// Where the curve begins.
const CURVE: u16 = 54;

pub(super) fn draw(canvas: &mut Canvas<'_>, area: Rect, view: &View, state: &State) {
    title(canvas, area, view, state);
    if area.height < 4 {
        return;
    }
    let titles = ["sent/s", "bytes/s", "received/s", "bytes/s"];
    let write = |canvas: &mut Canvas<'_>, y, cells: [(String, Tone); 4]| {
        for (end, (text, tone)) in ENDS.into_iter().zip(cells) {
            let cell = Rect { width: end.min(area.width), ..area };
            canvas.write_right(cell, y, &text, tone);
        }
    };
    write(canvas, area.y + 1, titles.map(|title| (title.to_owned(), Tone::Title)));
    let load = view.load();
    let ways = [
        ("host", load.sent.host, load.received.host),
        ("wire", load.sent.wire, load.received.wire),
    ];
    for (y, (name, sent, received)) in (area.y + 2..).zip(ways) {
        canvas.write(area, area.x + 1, y, name, Tone::Title);
        let cells = |flow: Flow| [flow.message_rate, flow.byte_rate];
        let [a, b] = cells(sent);
        let [c, d] = cells(received);
        write(canvas, y, [a, b, c, d].map(|rate| (numbers::count(rate), busy(rate))));
    }
    curve(canvas, area, view, state);
}

fn busy(rate: f64) -> Tone {
    if rate > 0.0 { Tone::Busy } else { Tone::Quiet }
}

fn title(canvas: &mut Canvas<'_>, area: Rect, view: &View, state: &State) {
    let line = Rect { height: 1, ..area };
    let x = canvas.write(line, area.x + 1, area.y, "transom top", Tone::Title);
    let shown: usize = view.refusals.iter().map(|refusal| refusal.count).sum();
    let refused = shown + view.older;
    let there = [
        counted(view.processes.len(), "process", "processes"),
        counted(view.queue_pairs.len(), "queue pair", "queue pairs"),
        counted(refused, "refusal", "refusals"),
    ];
    // The right end comes first: the time stays.
    let now = clock::local(view.time, view.time);
    let now = now.split('.').next().unwrap_or_default();
    let state_of_it = if state.is_paused { "PAUSED" } else { "" };
    let right = format!("{state_of_it:>6} {now} ");
    let room = line.width.saturating_sub(right.len() as u16);
    let there = there.join(", ");
    canvas.write(Rect { width: room, ..line }, x + 2, area.y, &there, Tone::Plain);
    canvas.write_right(line, area.y, &right, Tone::Quiet);
    if state.is_paused {
        canvas.write(line, line.x + room, area.y, "PAUSED", Tone::Warning);
    }
    // The numbers before it stay.
    let from = CURVE.min(area.width);
    let at = Rect { x: area.x + from, y: area.y + 1, width: area.width - from, height: 1 };
    canvas.write_right(at, at.y, &chosen(view, state), Tone::Warning);
}

/// Which processes the panels are about, if not all: one alone, and the filter, unless it is typed at the foot.
fn chosen(view: &View, state: &State) -> String {
    let only = view.processes.iter().find(|it| Some(it.stay) == state.only);
    let only = only.map(|it| format!("only {}", it.pid));
    let is_told = !state.filter.is_empty() && !state.is_typing;
    let filter = is_told.then(|| format!("filter: {}", state.filter));
    let chosen: Vec<_> = only.into_iter().chain(filter).collect();
    if chosen.is_empty() { String::new() } else { format!(" {} ", chosen.join(", ")) }
}

/// The messages of the last looks. Which processes are chosen is told in place of the curve's title where there is no
/// room for both.
fn curve(canvas: &mut Canvas<'_>, area: Rect, view: &View, state: &State) {
    const TITLE: &str = "sent/s of both, until now";
    let width = area.width.saturating_sub(CURVE + 1);
    let highest = view.history.iter().copied().max().unwrap_or(0);
    // One look is no curve.
    if width < 8 || highest == 0 || view.history.len() < 2 {
        return;
    }
    let at = Rect { x: area.x + CURVE, y: area.y + 2, width, height: 2 };
    if TITLE.len() + Span::raw(chosen(view, state)).width() <= usize::from(area.right() - at.x) {
        canvas.write(area, at.x, area.y + 1, TITLE, Tone::Quiet);
    }
    let newest_first: Vec<u64> = view.history.iter().rev().copied().collect();
    Sparkline::default()
        .data(&newest_first)
        .max(highest)
        .direction(RenderDirection::RightToLeft)
        .style(canvas.palette.style(Tone::Good))
        .render(at, canvas.buffer);
}
