//! Refusals and revocations, newest first, each with its sentence.

use super::super::palette::Tone;
use super::super::state::{Panel, State, Target};
use super::super::view::{Refusal, Revocation, View};
use super::canvas::Canvas;
use super::table;
use crate::clock;
use crate::layout::wrap;
use ratatui::layout::Rect;
use std::cmp::Reverse;

/// One of them, or several equal ones.
#[derive(Clone, Copy)]
enum Told<'v> {
    Refused(&'v Refusal),
    Revoked(&'v Revocation),
}

impl<'v> Told<'v> {
    fn time(self) -> u64 {
        match self {
            Self::Refused(it) => it.time,
            Self::Revoked(it) => it.time,
        }
    }

    fn count(self) -> usize {
        match self {
            Self::Refused(it) => it.count,
            Self::Revoked(it) => it.count,
        }
    }

    fn sentence(self) -> &'v str {
        match self {
            Self::Refused(it) => &it.sentence,
            Self::Revoked(it) => &it.sentence,
        }
    }

    /// The process in words.
    fn who(self) -> String {
        match self {
            Self::Refused(it) => it.who.clone(),
            Self::Revoked(it) => format!("{}, PID {}", it.process, it.pid),
        }
    }

    fn tone(self) -> Tone {
        match self {
            Self::Refused(it) if it.is_new => Tone::Bad,
            Self::Revoked(it) if it.is_new => Tone::Warning,
            _ => Tone::Title,
        }
    }
}

/// A line of one of them.
enum Line<'v> {
    /// When, who, and how often.
    Head(Told<'v>),
    Sentence(String),
}

pub(super) fn shown<'v>(view: &'v View, state: &State) -> impl Iterator<Item = &'v Refusal> {
    view.refusals.iter().filter(|it| state.shows(it.owner, it.pid, &it.process))
}

/// Both kinds, by time.
fn told<'v>(view: &'v View, state: &State) -> Vec<Told<'v>> {
    let revoked = view.revocations.iter();
    let revoked = revoked.filter(|it| state.shows(it.owner, it.pid, &it.process));
    let refused = shown(view, state).map(Told::Refused);
    let mut all: Vec<_> = refused.chain(revoked.map(Told::Revoked)).collect();
    all.sort_by_key(|it| Reverse(it.time()));
    all
}

fn lines<'v>(view: &'v View, state: &State, width: u16) -> Vec<Line<'v>> {
    let columns = usize::from(width).saturating_sub(2);
    let of_one = |one: Told<'v>| {
        let sentence = wrap(one.sentence(), columns, &['`']);
        [Line::Head(one)].into_iter().chain(sentence.into_iter().map(Line::Sentence))
    };
    told(view, state).into_iter().flat_map(of_one).collect()
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
        canvas.write(area, area.x, area.y, Panel::Refusals.without_rows(), Tone::Quiet);
    }
    let here = lines.iter().enumerate().skip(place.top).take(room);
    for (y, (number, line)) in (area.y..).zip(here) {
        match line {
            Line::Head(one) => head(canvas, area, y, *one, view.time),
            Line::Sentence(text) => drop(canvas.write(area, area.x + 2, y, text, Tone::Plain)),
        }
        let row = Rect { y, height: 1, ..area };
        table::mark(canvas, row, number == place.row, has_focus);
        canvas.drawn.targets.push((row, Target::Row(Panel::Refusals, number)));
    }
}

fn head(canvas: &mut Canvas<'_>, area: Rect, y: u16, one: Told<'_>, now: u64) {
    let x = canvas.write(area, area.x, y, &clock::local(one.time(), now), one.tone());
    let x = canvas.write(area, x + 2, y, &one.who(), Tone::Strong);
    if one.count() > 1 {
        canvas.write(area, x + 2, y, &format!("{} times", one.count()), Tone::Warning);
    }
}
