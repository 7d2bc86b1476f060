//! Refusals, newest first, each with its sentence.

use super::super::palette::Tone;
use super::super::state::{Panel, State, Target};
use super::super::view::{Refusal, View};
use super::canvas::Canvas;
use super::table;
use crate::clock;
use crate::layout::wrap;
use ratatui::layout::Rect;

/// A line of a refusal.
enum Line<'v> {
    /// When, who, and how often.
    Head(&'v Refusal),
    Sentence(String),
}

pub(super) fn shown<'v>(view: &'v View, state: &State) -> impl Iterator<Item = &'v Refusal> {
    view.refusals.iter().filter(|it| state.shows(it.owner, it.pid, &it.process))
}

fn lines<'v>(view: &'v View, state: &State, width: u16) -> Vec<Line<'v>> {
    let columns = usize::from(width).saturating_sub(2);
    let of_one = |refusal: &'v Refusal| {
        let sentence = wrap(&refusal.sentence, columns, &['`']);
        [Line::Head(refusal)].into_iter().chain(sentence.into_iter().map(Line::Sentence))
    };
    shown(view, state).flat_map(of_one).collect()
}

/// How many lines they take.
pub(super) fn height(view: &View, state: &State, width: u16) -> usize {
    lines(view, state, width).len().max(1)
}

pub(super) fn draw(canvas: &mut Canvas<'_>, area: Rect, view: &View, state: &mut State) {
    let lines = lines(view, state, area.width);
    let (has_focus, room) = (state.focus == Panel::Refusals, usize::from(area.height));
    let place = state.place_mut(Panel::Refusals);
    table::scroll(place, lines.len(), room);
    canvas.drawn.rows[Panel::Refusals as usize] = lines.len();
    canvas.drawn.room[Panel::Refusals as usize] = room;
    if lines.is_empty() {
        canvas.write(area, area.x, area.y, "Nothing was refused.", Tone::Quiet);
    }
    let here = lines.iter().enumerate().skip(place.top).take(room);
    for (y, (number, line)) in (area.y..).zip(here) {
        match line {
            Line::Head(refusal) => head(canvas, area, y, refusal, view.time),
            Line::Sentence(text) => drop(canvas.write(area, area.x + 2, y, text, Tone::Plain)),
        }
        let row = Rect { y, height: 1, ..area };
        table::mark(canvas, row, number == place.row, has_focus);
        canvas.drawn.targets.push((row, Target::Row(Panel::Refusals, number)));
    }
}

fn head(canvas: &mut Canvas<'_>, area: Rect, y: u16, refusal: &Refusal, now: u64) {
    let tone = if refusal.is_new { Tone::Bad } else { Tone::Title };
    let x = canvas.write(area, area.x, y, &clock::local(refusal.time, now), tone);
    let x = canvas.write(area, x + 2, y, &refusal.who, Tone::Strong);
    if refusal.count > 1 {
        canvas.write(area, x + 2, y, &format!("{} times", refusal.count), Tone::Warning);
    }
}
