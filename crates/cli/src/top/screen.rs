//! From what was seen to what stands on the screen.
//!
//! | module | holds |
//! |---|---|
//! | `canvas` | what panels are drawn on |
//! | `table` | tables: columns that fit, sorting, the selected row |
//! | `processes`, `queue_pairs`, `connections` | the tables |
//! | `memory` | the picture of each process's memory |
//! | `latencies` | how long requests take, by process and operation |
//! | `refusals` | refusals and revocations, with their sentences |
//! | `head` | the lines above the panels |
//! | `help` | the page about the keys |

mod canvas;
mod connections;
mod head;
mod help;
mod latencies;
mod memory;
mod processes;
mod queue_pairs;
mod refusals;
mod table;
#[cfg(test)]
pub(super) mod tests;

use super::palette::{Palette, Tone};
use super::state::{Drawn, Panel, State, Target};
use super::view::View;
use canvas::Canvas;
pub(super) use queue_pairs::service;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{Block, BorderType, Widget};

/// From this size on all panels are shown at once.
const ALL_AT_ONCE: (u16, u16) = (150, 36);
/// The lines above and below the panels.
const HEAD: u16 = 4;
const FOOT: u16 = 1;
/// The lines of a box beside its rows: two borders, and the titles of the columns.
const AROUND: u16 = 3;

/// Draws everything, and remembers in `state` where it is.
pub(super) fn draw(buffer: &mut Buffer, view: &View, state: &mut State, palette: Palette) {
    let area = buffer.area;
    let mut canvas = Canvas { buffer, palette, drawn: Drawn::default() };
    let [head, middle, foot] = rows(area, [HEAD, 0, FOOT]);
    head::draw(&mut canvas, head, view, state);
    if is_empty(view) {
        nothing_runs(&mut canvas, middle, state);
    } else {
        panels(&mut canvas, middle, view, state);
    }
    foot_line(&mut canvas, foot, state);
    if state.helps {
        help::draw(&mut canvas, middle);
    }
    state.drawn = canvas.drawn;
}

/// Draws all panels below each other.
pub(super) fn draw_all(buffer: &mut Buffer, view: &View, state: &mut State, palette: Palette) {
    let area = buffer.area;
    let heights = heights(view, state, area.width);
    let mut canvas = Canvas { buffer, palette, drawn: Drawn::default() };
    head::draw(&mut canvas, Rect { height: HEAD.min(area.height), ..area }, view, state);
    let mut y = area.y + HEAD;
    if is_empty(view) {
        nothing_runs(&mut canvas, Rect { y, height: area.height - HEAD, ..area }, state);
        return;
    }
    // Nothing is in focus, so no row is selected.
    for (tab, height) in Panel::ALL.into_iter().zip(heights) {
        let place = Rect { y, height, ..area }.intersection(area);
        panel(&mut canvas, place, tab, &[tab], view, state);
        y = y.saturating_add(height);
    }
}

/// The lines that [`draw_all`] takes.
pub(super) fn height(view: &View, state: &State, width: u16) -> u16 {
    let panels = heights(view, state, width);
    let rows = if is_empty(view) { NOTHING.len() as u16 } else { panels.iter().sum() };
    HEAD + rows
}

/// How high each panel is with all its rows, as long as all of them fit somewhere.
fn heights(view: &View, state: &State, width: u16) -> [u16; Panel::ALL.len()] {
    const MOST: usize = 5000;
    Panel::ALL.map(|panel| {
        let rows = match panel {
            Panel::Memory => memory::height(view, state) + 2,
            Panel::Refusals => refusals::height(view, state, width.saturating_sub(2)) + 2,
            // One line without rows says that there are none.
            _ => count(panel, view, state).max(1) + usize::from(AROUND),
        };
        rows.min(MOST) as u16
    })
}

fn is_empty(view: &View) -> bool {
    view.processes.is_empty() && view.refusals.is_empty()
}

/// Cuts an area into three below each other. The one of height zero gets what is left.
fn rows(area: Rect, heights: [u16; 3]) -> [Rect; 3] {
    let fixed: u16 = heights.iter().sum();
    let left = area.height.saturating_sub(fixed);
    let mut y = area.y;
    heights.map(|height| {
        let height = if height == 0 { left } else { height }.min(area.bottom().saturating_sub(y));
        let row = Rect::new(area.x, y, area.width, height);
        y += height;
        row
    })
}

/// Cuts an area into two, the left one of so many hundredths.
fn columns(area: Rect, hundredths: u16) -> [Rect; 2] {
    let left = (u32::from(area.width) * u32::from(hundredths) / 100) as u16;
    let right = area.width - left;
    [Rect { width: left, ..area }, Rect { x: area.x + left, width: right, ..area }]
}

fn panels(canvas: &mut Canvas<'_>, area: Rect, view: &View, state: &mut State) {
    let is_large =
        canvas.buffer.area.width >= ALL_AT_ONCE.0 && canvas.buffer.area.height >= ALL_AT_ONCE.1;
    let listed = view.processes.iter().filter(|it| state.lists(it.pid, &it.name)).count() as u16;
    if is_large {
        let first = (listed.max(1) + AROUND).min(area.height / 4);
        let second = (area.height - first) * 2 / 5;
        let [first, second, third] = rows(area, [first, second, 0]);
        let [queue_pairs, connections] = columns(second, 62);
        let [memory, refusals] = columns(third, 62);
        panel(canvas, first, Panel::Processes, &[Panel::Processes], view, state);
        panel(canvas, queue_pairs, Panel::QueuePairs, &[Panel::QueuePairs], view, state);
        panel(canvas, connections, Panel::Connections, &[Panel::Connections], view, state);
        panel(canvas, memory, Panel::Memory, &[Panel::Memory], view, state);
        let [refusals, latencies, _] = rows(refusals, [refusals.height * 3 / 5, 0, 0]);
        panel(canvas, refusals, Panel::Refusals, &[Panel::Refusals], view, state);
        panel(canvas, latencies, Panel::Latencies, &[Panel::Latencies], view, state);
        return;
    }
    // The processes, and one of the others. Who looks at the processes sees more of them.
    let part = if state.focus == Panel::Processes { area.height / 2 } else { area.height * 2 / 5 };
    let first = (listed.max(1) + AROUND).min(part.max(AROUND + 1));
    let [first, second, _] = rows(area, [first, 0, 0]);
    panel(canvas, first, Panel::Processes, &[Panel::Processes], view, state);
    let below = match state.focus {
        Panel::Processes => state.below,
        other => other,
    };
    state.below = below;
    panel(canvas, second, below, &Panel::ALL[1..], view, state);
}

/// A panel in its box. Of several tabs it is the one in front.
fn panel(
    canvas: &mut Canvas<'_>,
    area: Rect,
    shown: Panel,
    tabs: &[Panel],
    view: &View,
    state: &mut State,
) {
    if area.height < 2 {
        return;
    }
    let has_focus = state.focus == shown;
    let tone = if has_focus { Tone::Title } else { Tone::Quiet };
    let frame =
        Block::bordered().border_type(BorderType::Rounded).border_style(canvas.palette.style(tone));
    let inner = frame.inner(area);
    frame.render(area, canvas.buffer);
    canvas.drawn.targets.push((area, Target::Panel(shown)));
    titles(canvas, area, (shown, tabs), view, state);
    contents(canvas, inner, shown, view, state);
}

/// The titles in the upper border.
fn titles(
    canvas: &mut Canvas<'_>,
    area: Rect,
    (shown, tabs): (Panel, &[Panel]),
    view: &View,
    state: &State,
) {
    // The corner stays.
    let line = Rect { height: 1, width: area.width - 1, ..area };
    let title = |tab: &Panel| format!(" {} {} ", *tab as usize + 1, tab.title());
    let counted = |tab: &Panel| format!("{} ", count(*tab, view, state));
    // Where there is no room for all, only what is shown is counted, and what is wrong.
    let widths = tabs.iter().map(|tab| title(tab).len() + counted(tab).len() + 1);
    let has_room = widths.sum::<usize>() + 4 < usize::from(area.width);
    let mut x = area.x + 2;
    for tab in tabs {
        let count = count(*tab, view, state);
        let is_counted = has_room || tab == &shown || *tab == Panel::Refusals;
        let from = x;
        let tone = match (*tab == shown, state.focus == shown) {
            (true, true) => Tone::Title,
            (true, false) => Tone::Strong,
            (false, _) => Tone::Quiet,
        };
        let (open, close) = if *tab == shown && tabs.len() > 1 { ("┤", "├") } else { ("", "") };
        x = canvas.write(line, x, area.y, open, tone);
        x = canvas.write(line, x, area.y, &title(tab), tone);
        let tone = match tab {
            Panel::Refusals if count > 0 => Tone::Bad,
            _ => tone,
        };
        if is_counted {
            x = canvas.write(line, x, area.y, &counted(tab), tone);
        }
        x = canvas.write(line, x, area.y, close, tone);
        let width = x - from;
        canvas.drawn.targets.push((Rect { x: from, width, ..line }, Target::Panel(*tab)));
        x += 1;
    }
}

/// How many things a panel is about.
fn count(panel: Panel, view: &View, state: &State) -> usize {
    match panel {
        Panel::Processes => processes::listed(view, state).len(),
        Panel::QueuePairs => queue_pairs::shown(view, state).len(),
        Panel::Memory => memory::regions(view, state),
        Panel::Connections => connections::shown(view, state).len(),
        Panel::Refusals => refusals::shown(view, state).map(|refusal| refusal.count).sum(),
        Panel::Latencies => latencies::shown(view, state).len(),
    }
}

fn contents(canvas: &mut Canvas<'_>, area: Rect, panel: Panel, view: &View, state: &mut State) {
    match panel {
        Panel::Processes => processes::draw(canvas, area, view, state),
        Panel::QueuePairs => queue_pairs::draw(canvas, area, view, state),
        Panel::Memory => memory::draw(canvas, area, view, state),
        Panel::Connections => connections::draw(canvas, area, view, state),
        Panel::Refusals => refusals::draw(canvas, area, view, state),
        Panel::Latencies => latencies::draw(canvas, area, view, state),
    }
}

/// What to do where there is nothing to see.
const NOTHING: [&str; 5] = [
    "None of your processes has an RDMA device open here.",
    "",
    "Start one in another terminal, and look here again:",
    "    transom run -- PROGRAM      a program of yours",
    "    transom bench --quick       some traffic, for a few seconds",
];

/// The same of those that the filter lets through.
const NOTHING_LIKE_IT: &str = "None of your processes like that has an RDMA device open here.";

fn nothing_runs(canvas: &mut Canvas<'_>, area: Rect, state: &State) {
    let mut nothing = NOTHING;
    if !state.filter.is_empty() {
        // Others may have one.
        nothing[0] = NOTHING_LIKE_IT;
    }
    let width = nothing.iter().map(|line| line.len()).max().unwrap_or(0) as u16;
    let x = area.x + area.width.saturating_sub(width) / 2;
    let y = area.y + area.height.saturating_sub(NOTHING.len() as u16) / 2;
    for (line, text) in (y..).zip(nothing) {
        let tone = if line == y { Tone::Strong } else { Tone::Plain };
        canvas.write(area, x, line, text, tone);
    }
}

/// The keys, or the filter while it is typed.
fn foot_line(canvas: &mut Canvas<'_>, area: Rect, state: &State) {
    if state.is_typing {
        let x = canvas.write(area, area.x + 1, area.y, "Filter: ", Tone::Title);
        let x = canvas.write(area, x, area.y, &state.filter, Tone::Strong);
        let x = canvas.write(area, x, area.y, "▏", Tone::Title);
        canvas.write(area, x + 1, area.y, "name or PID; Enter keeps it, Esc drops it", Tone::Quiet);
        return;
    }
    let only = if state.only.is_some() { "all" } else { "only this" };
    let pause = if state.is_paused { "go on" } else { "pause" };
    let keys = [
        ("Tab", "panel"),
        ("↑↓", "row"),
        ("Enter", only),
        ("/", "filter"),
        ("s", "sort"),
        ("p", pause),
        ("?", "help"),
        ("q", "quit"),
    ];
    let mut x = area.x + 1;
    let has_columns = !canvas.drawn.columns[state.focus as usize].is_empty();
    for (key, does) in keys.into_iter().filter(|(key, _)| *key != "s" || has_columns) {
        x = canvas.write(area, x, area.y, key, Tone::Title);
        x = canvas.write(area, x + 1, area.y, does, Tone::Plain) + 2;
    }
}
