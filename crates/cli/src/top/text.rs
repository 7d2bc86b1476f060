//! One screen as text, for a pipe: all panels below each other, as long as they are.

use super::palette::Palette;
use super::screen;
use super::state::State;
use super::view::View;
use crate::failure::Result;
use crate::layout;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::io::{Write, stdout};

pub(super) fn print(view: &View, state: &mut State) -> Result {
    let width = layout::columns(stdout()) as u16;
    // Nobody sees colours in it.
    let height = screen::height(view, state, width);
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    screen::draw_all(&mut buffer, view, state, Palette { has_colours: false });
    Ok(stdout().write_all(text(&buffer).as_bytes())?)
}

/// The lines of a screen, without the spaces at their ends.
pub(super) fn text(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let line = |cells: &[ratatui::buffer::Cell]| {
        let line: String = cells.iter().map(|cell| cell.symbol()).collect();
        format!("{}\n", line.trim_end())
    };
    buffer.content.chunks(width).map(line).collect()
}
