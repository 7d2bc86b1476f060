//! Tables: as many columns as fit, sorted by one of them, with a row selected.

use super::super::palette::Tone;
use super::super::state::{Panel, Place, Target};
use super::canvas::Canvas;
use ratatui::layout::Rect;
use std::cmp::Ordering;

/// A column of a table about things of one type.
pub(super) struct Column<T> {
    pub(super) title: &'static str,
    /// Its width. Columns that are flexible share what is left.
    pub(super) width: u16,
    pub(super) kind: Kind,
    /// Where there is no room for all, those of the highest rank go first.
    pub(super) rank: u8,
    pub(super) text: fn(&T) -> String,
    pub(super) value: fn(&T) -> Value,
    pub(super) tone: fn(&T) -> Tone,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Flexible,
    /// On the right.
    Number,
}

/// What a column is sorted by.
#[derive(PartialEq, PartialOrd)]
pub(super) enum Value {
    Number(f64),
    Text(String),
}

/// A column of numbers. Zeros are quiet.
macro_rules! number {
    ($title:literal, $width:literal, $rank:literal, $tone:expr, $form:path, $value:expr) => {
        Column {
            title: $title,
            width: $width,
            kind: Kind::Number,
            rank: $rank,
            text: |it| $form(($value)(it) as f64),
            value: |it| Value::Number(($value)(it) as f64),
            tone: |it| if ($value)(it) as f64 > 0.0 { $tone } else { Tone::Quiet },
        }
    };
}

/// A column of words.
macro_rules! words {
    ($title:literal, $width:literal, $kind:expr, $rank:literal, $tone:expr, $text:expr) => {
        Column {
            title: $title,
            width: $width,
            kind: $kind,
            rank: $rank,
            text: $text,
            value: |it| Value::Text(($text)(it).to_lowercase()),
            tone: $tone,
        }
    };
}

/// The column of PIDs.
macro_rules! pid {
    () => {
        Column {
            title: "PID",
            width: 7,
            kind: Kind::Number,
            rank: 0,
            text: |it| it.pid.to_string(),
            value: |it| Value::Number(it.pid.into()),
            tone: |_| Tone::Plain,
        }
    };
}

pub(super) use {number, pid, words};

/// Columns between columns.
const GAP: u16 = 1;

/// The columns that fit, each with its number, place and width.
fn fitting<T>(columns: &[Column<T>], width: u16) -> Vec<(usize, u16, u16)> {
    let mut chosen: Vec<usize> = (0..columns.len()).collect();
    let taken = |chosen: &[usize]| -> u16 {
        let widths = chosen.iter().map(|index| columns[*index].width + GAP);
        widths.sum::<u16>().saturating_sub(GAP)
    };
    while taken(&chosen) > width {
        let last = (0..chosen.len()).max_by_key(|at| columns[chosen[*at]].rank);
        match last {
            Some(at) if chosen.len() > 1 => drop(chosen.remove(at)),
            _ => break,
        }
    }
    let mut left = width.saturating_sub(taken(&chosen));
    let is_flexible = |index: &&usize| columns[**index].kind == Kind::Flexible;
    let mut flexible = chosen.iter().filter(is_flexible).count() as u16;
    let mut x = 0;
    let place = |index: usize| {
        let column = &columns[index];
        let mut width = column.width;
        if column.kind == Kind::Flexible {
            let more = left / flexible;
            width += more;
            (left, flexible) = (left - more, flexible - 1);
        }
        let at = x;
        x += width + GAP;
        (index, at, width)
    };
    chosen.into_iter().map(place).collect()
}

/// Sorts rows as somebody wants them. Equal ones keep their order.
pub(super) fn sort<T>(columns: &[Column<T>], rows: &mut [&T], place: &Place) {
    let Some(column) = columns.get(place.sort) else { return };
    let falls = falls(column, place);
    rows.sort_by(|one, other| {
        let (one, other) = ((column.value)(one), (column.value)(other));
        let rising = one.partial_cmp(&other).unwrap_or(Ordering::Equal);
        if falls { rising.reverse() } else { rising }
    });
}

/// Whether the largest comes first. Numbers tell most where they are large. Those in the first column are names.
fn falls<T>(column: &Column<T>, place: &Place) -> bool {
    (column.kind == Kind::Number && place.sort > 0) != place.is_reversed
}

/// Moves a place so that its row is shown.
pub(super) fn scroll(place: &mut Place, rows: usize, room: usize) {
    place.row = place.row.min(rows.saturating_sub(1));
    place.top = place.top.min(rows.saturating_sub(room)).min(place.row);
    if place.row >= place.top + room {
        place.top = place.row + 1 - room.max(1);
    }
}

/// Draws rows that are sorted already, or says that there are none.
pub(super) fn draw<T>(
    canvas: &mut Canvas<'_>,
    area: Rect,
    panel: Panel,
    (columns, rows): (&[Column<T>], &[&T]),
    place: &mut Place,
    has_focus: bool,
) {
    if rows.is_empty() {
        canvas.write(area, area.x, area.y + 1, panel.without_rows(), Tone::Quiet);
    }
    let room = usize::from(area.height).saturating_sub(1);
    scroll(place, rows.len(), room);
    canvas.drawn.rows[panel as usize] = rows.len();
    canvas.drawn.room[panel as usize] = room;
    let fitting = fitting(columns, area.width);
    canvas.drawn.columns[panel as usize] = fitting.iter().map(|(index, ..)| *index).collect();
    for (index, x, width) in &fitting {
        let column = &columns[*index];
        let sorted = *index == place.sort;
        let cell = Rect::new(area.x + x, area.y, *width, 1).intersection(area);
        let arrow = match (sorted, falls(column, place)) {
            (false, _) => "",
            (true, true) => "▾",
            (true, false) => "▴",
        };
        let title = format!("{}{arrow}", column.title);
        let tone = if sorted { Tone::Strong } else { Tone::Title };
        align(canvas, cell, &title, column.kind, tone);
        canvas.drawn.targets.push((cell, Target::Column(panel, *index)));
    }
    for (line, (number, row)) in rows.iter().enumerate().skip(place.top).take(room).enumerate() {
        let line = Rect::new(area.x, area.y + 1 + line as u16, area.width, 1);
        for (index, x, width) in &fitting {
            let column = &columns[*index];
            let cell = Rect::new(area.x + x, line.y, *width, 1).intersection(area);
            align(canvas, cell, &(column.text)(row), column.kind, (column.tone)(row));
        }
        mark(canvas, line, number == place.row, has_focus);
        canvas.drawn.targets.push((line, Target::Row(panel, number)));
    }
}

/// Shows that a row is the selected one.
pub(super) fn mark(canvas: &mut Canvas<'_>, line: Rect, is_selected: bool, has_focus: bool) {
    if is_selected && has_focus {
        canvas.buffer.set_style(line, canvas.palette.selected());
    }
}

fn align(canvas: &mut Canvas<'_>, cell: Rect, text: &str, kind: Kind, tone: Tone) {
    match kind {
        Kind::Number => canvas.write_right(cell, cell.y, text, tone),
        Kind::Text | Kind::Flexible => drop(canvas.write(cell, cell.x, cell.y, text, tone)),
    }
}
