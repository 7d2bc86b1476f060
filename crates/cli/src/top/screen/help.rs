//! The page about the keys.

use super::super::palette::Tone;
use super::canvas::Canvas;
use ratatui::layout::Rect;
use ratatui::widgets::{Block, BorderType, Clear, Widget};

const KEYS: [(&str, &str); 16] = [
    ("Tab, 1 to 6", "go to another panel"),
    ("↑ ↓, PgUp PgDn", "select a row; Home and End: the first, the last"),
    ("Enter", "only the selected process in all panels; again: all"),
    ("/", "filter by name or PID"),
    ("Esc", "all processes again, and then without a filter"),
    ("s, r", "sort by the next column; the other way round"),
    ("p, Space", "pause, and go on"),
    ("q, Ctrl-C", "quit"),
    ("mouse", "click a row, a panel or a title; turn the wheel"),
    ("", ""),
    ("/s, B/s", "a second: messages and bytes, OUT sent, IN for peers"),
    ("MW, OPEN", "windows, and bytes, that peers may use now"),
    ("RNR, AGAIN", "asked to wait for a receive; requests sent again"),
    ("SQ, RQ, CQ", "requests, receives, completions that wait in its queues"),
    ("MOST SQ, RQ", "the most work that has waited in a queue"),
    ("P50, P99", "half of the requests, 99 of 100, took so long at most"),
];

pub(super) fn draw(canvas: &mut Canvas<'_>, area: Rect) {
    let (width, height) = (76.min(area.width), (KEYS.len() as u16 + 2).min(area.height));
    let x = area.x + (area.width - width) / 2;
    let y = area.y + (area.height - height) / 2;
    let area = Rect { x, y, width, height };
    Clear.render(area, canvas.buffer);
    let frame = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(canvas.palette.style(Tone::Title))
        .title(" Help: any key closes it ");
    let inner = frame.inner(area);
    frame.render(area, canvas.buffer);
    for (y, (key, does)) in (inner.y..).zip(KEYS) {
        canvas.write(inner, inner.x + 1, y, key, Tone::Title);
        canvas.write(inner, inner.x + 17, y, does, Tone::Plain);
    }
    // What lies below is not to be clicked on.
    canvas.drawn.targets.clear();
}
