//! The picture of each process's memory: its regions and windows, and what is open to peers.

use super::super::numbers;
use super::super::palette::Tone;
use super::super::state::{Panel, State, Target};
use super::super::view::{Process, Span, Touch, View, Window};
use super::canvas::Canvas;
use super::table;
use crate::sentence::counted;
use ratatui::layout::Rect;
use std::cmp::Reverse;
use std::time::Duration;
use transom_device::protection::{Kind, SHARED};

/// Columns before the bar: address, size, rights.
const BEFORE: u16 = 16 + 1 + 7 + 1 + 3 + 1;
/// Columns behind the bar: the key.
const BEHIND: u16 = 1 + 10;
/// The windows of a region that have lines of their own.
const MOST_WINDOWS: usize = 3;

/// A touch that is younger is brighter.
const JUST_NOW: Duration = Duration::from_secs(1);

/// How a part of the memory is open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Shade {
    Closed,
    Open,
    Window,
    /// A window was here, and was revoked some moments ago.
    Revoked,
    /// A peer was there some moments ago.
    Fading,
    /// A peer was there just now.
    Touched,
}

impl Shade {
    const LEGEND: [Self; 5] =
        [Self::Closed, Self::Open, Self::Window, Self::Touched, Self::Revoked];

    fn symbol(self) -> &'static str {
        match self {
            Self::Closed => "░",
            Self::Open => "▒",
            Self::Window => "▓",
            Self::Revoked => "×",
            Self::Fading | Self::Touched => "█",
        }
    }

    fn tone(self) -> Tone {
        match self {
            Self::Closed => Tone::Quiet,
            Self::Open => Tone::Open,
            Self::Window => Tone::Window,
            Self::Revoked => Tone::Bad,
            Self::Fading => Tone::Fading,
            Self::Touched => Tone::Touched,
        }
    }

    fn means(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::Window => "window",
            Self::Revoked => "ended",
            Self::Fading | Self::Touched => "touched",
        }
    }
}

/// What is on a region.
struct On<'v> {
    windows: Vec<&'v Window>,
    touches: Vec<&'v Touch>,
    revoked: Vec<&'v Touch>,
}

/// A line of the picture.
enum Line<'v> {
    Process(&'v Process),
    Region(&'v Span, On<'v>),
    Window(&'v Span, &'v Window),
    /// So many more windows of the region.
    More(usize),
    LeftOut(usize),
}

fn lines<'v>(view: &'v View, state: &State) -> Vec<Line<'v>> {
    let mut lines = Vec::new();
    for process in state.shown(view) {
        lines.push(Line::Process(process));
        for region in view.regions.iter().filter(|region| region.owner == process.stay) {
            let on_it = |window: &&Window| region.part(&window.span).is_some();
            let windows: Vec<_> = view.windows.iter().filter(on_it).collect();
            let own = windows.iter().take(MOST_WINDOWS).map(|window| Line::Window(region, window));
            let own: Vec<_> = own.collect();
            let more = windows.len() - own.len();
            let touches = view.touches.iter().filter(|it| region.part(&it.span).is_some());
            let revoked = view.revoked.iter().filter(|it| region.part(&it.span).is_some());
            let (touches, revoked) = (touches.collect(), revoked.collect());
            lines.push(Line::Region(region, On { windows, touches, revoked }));
            lines.extend(own);
            lines.extend((more > 0).then_some(Line::More(more)));
        }
        lines.extend((process.left_out > 0).then_some(Line::LeftOut(process.left_out)));
    }
    lines
}

/// How many regions are shown.
pub(super) fn regions(view: &View, state: &State) -> usize {
    let of = |process: &Process| view.regions.iter().filter(|it| it.owner == process.stay).count();
    state.shown(view).map(of).sum()
}

/// How many lines the picture takes, with its legend.
pub(super) fn height(view: &View, state: &State) -> usize {
    lines(view, state).len().max(1) + 1
}

pub(super) fn draw(canvas: &mut Canvas<'_>, area: Rect, view: &View, state: &mut State) {
    if area.height == 0 {
        return;
    }
    let lines = lines(view, state);
    let (has_focus, room) = (state.focus == Panel::Memory, usize::from(area.height) - 1);
    let place = state.place_mut(Panel::Memory);
    table::scroll(place, lines.len(), room);
    canvas.drawn.rows[Panel::Memory as usize] = lines.len();
    canvas.drawn.room[Panel::Memory as usize] = room;
    legend(canvas, area);
    if lines.is_empty() {
        canvas.write(area, area.x, area.y + 1, Panel::Memory.without_rows(), Tone::Quiet);
    }
    let here = lines.iter().enumerate().skip(place.top).take(room);
    for (y, (number, line)) in (area.y + 1..).zip(here) {
        draw_line(canvas, Rect { y, height: 1, ..area }, line);
        let row = Rect { y, height: 1, ..area };
        table::mark(canvas, row, number == place.row, has_focus);
        canvas.drawn.targets.push((row, Target::Row(Panel::Memory, number)));
    }
}

/// What the titles and shades mean.
fn legend(canvas: &mut Canvas<'_>, area: Rect) {
    canvas.write(area, area.x, area.y, "ADDRESS", Tone::Title);
    let size = Rect { width: (16 + 1 + 7).min(area.width), ..area };
    canvas.write_right(size, area.y, "SIZE", Tone::Title);
    let mut x = canvas.write(area, area.x + 25, area.y, "PEERS", Tone::Title) + 1;
    for shade in Shade::LEGEND {
        x = canvas.write(area, x, area.y, shade.symbol(), shade.tone());
        x = canvas.write(area, x + 1, area.y, shade.means(), Tone::Quiet) + 1;
    }
    canvas.write_right(area, area.y, "KEY", Tone::Title);
}

fn draw_line(canvas: &mut Canvas<'_>, line: Rect, what: &Line<'_>) {
    match what {
        Line::Process(process) => {
            let x = canvas.write(line, line.x, line.y, &process.name, Tone::Strong);
            let x = canvas.write(line, x + 1, line.y, &process.pid.to_string(), Tone::Plain);
            let open = [
                (process.in_windows, counted(process.windows as usize, "window", "windows")),
                (process.in_regions, "regions".to_owned()),
            ];
            let open = open.into_iter().filter(|(bytes, _)| *bytes > 0);
            let open: Vec<_> = open
                .map(|(bytes, by)| format!("{} open by {by}", numbers::memory(bytes as f64)))
                .collect();
            let open = match open.is_empty() {
                true if process.is_far => {
                    "in other namespaces: nobody here can look into it".to_owned()
                }
                true => "nothing is open to peers".to_owned(),
                false => open.join(", "),
            };
            canvas.write(line, x + 2, line.y, &open, Tone::Quiet);
        }
        Line::Region(region, on) => {
            span(canvas, line, region, 1);
            bar(canvas, bar_of(line), region, on);
        }
        Line::Window(region, window) => {
            span(canvas, line, &window.span, 3);
            let (from, _) = region.part(&window.span).unwrap_or_default();
            let at = bar_of(line);
            let text = window_text(window, from, usize::from(at.width));
            canvas.write(at, at.x, at.y, &text, Tone::Window);
        }
        Line::More(count) => {
            let more = format!("and {}", counted(*count, "more window", "more windows"));
            canvas.write(line, line.x + 3, line.y, &more, Tone::Quiet);
        }
        Line::LeftOut(count) => {
            let more = format!("and {count} more regions and windows that are not shown");
            canvas.write(line, line.x + 1, line.y, &more, Tone::Quiet);
        }
    }
}

/// What a window is, where in its region, and for which queue pair, in few columns or in more.
fn window_text(window: &Window, from: u64, columns: usize) -> String {
    let kind = match window.span.kind {
        Kind::Window1 => "1 ",
        Kind::Window2A => "2A ",
        Kind::Window2B => "2B ",
        Kind::Region | Kind::Null => "",
    };
    let by = match window.qp {
        0 => String::new(),
        qp => format!(", QP {qp:#x}"),
    };
    let long = format!("▓ type {kind}window at +{from:#x}{by}");
    // A number that is cut would be another one.
    if long.chars().count() <= columns { long } else { format!("▓ {kind}window +{from:#x}{by}") }
}

/// The part of a line for the bar.
fn bar_of(line: Rect) -> Rect {
    let width = line.width.saturating_sub(BEFORE + BEHIND);
    Rect { x: line.x + BEFORE, width, ..line }
}

/// Address, size and rights on the left, the key on the right.
fn span(canvas: &mut Canvas<'_>, line: Rect, span: &Span, indent: u16) {
    let address = match span.place & SHARED {
        0 => format!("{:#x}", span.place),
        // Whatever the process has there, requests name it by its base.
        _ => format!("{:#x}", span.base),
    };
    let tone = if span.kind.is_region() { Tone::Plain } else { Tone::Window };
    canvas.write(line, line.x + indent, line.y, &address, tone);
    let size = Rect { width: (16 + 1 + 7).min(line.width), ..line };
    canvas.write_right(size, line.y, &numbers::memory(span.length as f64), Tone::Plain);
    let tone = if span.is_open() { Tone::Warning } else { Tone::Quiet };
    canvas.write(line, line.x + 25, line.y, &numbers::rights(span.access), tone);
    let key = Rect { x: line.right().saturating_sub(BEHIND), width: BEHIND, ..line };
    canvas.write_right(key.intersection(line), line.y, &format!("{:#010x}", span.key), Tone::Quiet);
}

/// Each cell stands for an equal part of the region, and shows the most of what is there.
fn bar(canvas: &mut Canvas<'_>, area: Rect, region: &Span, on: &On<'_>) {
    let cells = usize::from(area.width);
    let own = if region.is_open() { Shade::Open } else { Shade::Closed };
    let mut shades = vec![own; cells];
    let windows = on.windows.iter().filter(|window| window.span.is_open());
    let windows = windows.map(|window| (&window.span, Shade::Window));
    for (span, shade) in windows {
        let Some((from, to)) = region.part(span) else { continue };
        for cell in &mut shades[covered(from, to, region.length, cells)] {
            *cell = shade.max(*cell);
        }
    }
    // What came last is on top.
    let revoked = on.revoked.iter().map(|it| (*it, Shade::Revoked));
    let touches = on.touches.iter().map(|it| {
        let is_new = it.age < JUST_NOW;
        (*it, if is_new { Shade::Touched } else { Shade::Fading })
    });
    let mut moments: Vec<_> = revoked.chain(touches).collect();
    moments.sort_by_key(|(moment, _)| Reverse(moment.age));
    let open = shades.clone();
    for (moment, shade) in moments {
        let Some((from, to)) = region.part(&moment.span) else { continue };
        for cell in covered(from, to, region.length, cells) {
            // Where another window is open, that is what counts.
            if shade != Shade::Revoked || open[cell] != Shade::Window {
                shades[cell] = shade;
            }
        }
    }
    let mut x = area.x;
    for shade in shades {
        x = canvas.write(area, x, area.y, shade.symbol(), shade.tone());
    }
}

/// The cells of so many that a part of a region lies in, even if it fills none of them.
fn covered(from: u64, to: u64, length: u64, cells: usize) -> std::ops::Range<usize> {
    let scaled = |offset: u64| u128::from(offset) * cells as u128;
    let length = u128::from(length.max(1));
    let first = (scaled(from) / length) as usize;
    let last = scaled(to).div_ceil(length) as usize;
    first.min(cells)..last.clamp(first, cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_lies_in_each_cell_that_it_touches() {
        assert_eq!(covered(0, 4096, 4096, 10), 0..10);
        assert_eq!(covered(1000, 1001, 4096, 10), 2..3);
        assert_eq!(covered(4095, 4096, 4096, 10), 9..10);
        assert_eq!(covered(0, 1, 1, 10), 0..10);
        assert_eq!(covered(0, u64::MAX, u64::MAX, 7), 0..7);
        assert_eq!(covered(0, 8, 8, 0), 0..0);
    }
}
