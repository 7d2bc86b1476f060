//! What panels are drawn on.

use super::super::palette::{Palette, Tone};
use super::super::state::Drawn;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

pub(super) struct Canvas<'a> {
    pub(super) buffer: &'a mut Buffer,
    pub(super) palette: Palette,
    pub(super) drawn: Drawn,
}

impl Canvas<'_> {
    /// Writes a text from here on, and no further than the area goes: the end of what is cut says so. Returns the column
    /// behind it.
    pub(super) fn write(&mut self, area: Rect, x: u16, y: u16, text: &str, tone: Tone) -> u16 {
        let area = area.intersection(self.buffer.area);
        if x >= area.right() || !(area.y..area.bottom()).contains(&y) {
            return x;
        }
        let (room, style) = (usize::from(area.right() - x), self.palette.style(tone));
        let behind = self.buffer.set_stringn(x, y, text, room, style).0;
        if Span::raw(text).width() > room {
            self.buffer.set_stringn(area.right() - 1, y, "…", 1, style);
            return area.right();
        }
        behind
    }

    /// Writes a text that ends where the area does.
    pub(super) fn write_right(&mut self, area: Rect, y: u16, text: &str, tone: Tone) {
        let width = Span::raw(text).width().min(usize::from(area.width)) as u16;
        self.write(area, area.right() - width, y, text, tone);
    }
}
