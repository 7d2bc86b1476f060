//! One page as text, for a pipe: all panels below each other, as long as they are.

use super::palette::Palette;
use super::screen;
use super::state::State;
use super::view::View;
use crate::failure::Result;
use crate::layout;
use crate::sentence::counted;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::io::{Write, stdout};

/// The most kinds of refusals. More are for `transom explain`.
const REFUSALS: usize = 10;

pub(super) fn print(view: View, state: &mut State) -> Result {
    let width = layout::columns(stdout()) as u16;
    Ok(stdout().write_all(page(view, state, width).as_bytes())?)
}

pub(super) fn page(mut view: View, state: &mut State, width: u16) -> String {
    let older = view.refusals.drain(REFUSALS.min(view.refusals.len())..);
    view.older = older.map(|refusal| refusal.count).sum();
    // Nobody sees colours in it.
    let height = screen::height(&view, state, width);
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    screen::draw_all(&mut buffer, &view, state, Palette { has_colours: false });
    let mut page = text(&buffer);
    if view.older > 0 {
        let older = counted(view.older, "older refusal", "older refusals");
        page += &format!("{older}: `transom explain`\n");
    }
    page
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
