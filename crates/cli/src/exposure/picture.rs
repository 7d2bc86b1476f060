//! The picture of a process: its memory from top to bottom, time from left to right. What was open is light, and what
//! was used of it is dark.

use std::fmt::{self, Write};
use std::ops::Range;

use transom_exposure::opening::{Object, Opening};
use transom_exposure::report::{Account, Measured};
use transom_exposure::sums::total;

use super::Names;
use super::peers::Peer;
use super::scale::{Addresses, Times};
use super::words::{bytes, bytes_by_time, escaped, percent, rights, time};
use crate::check::shown;

/// The width of the picture, and of the space for addresses at its left.
const WIDTH: f64 = 1160.0;
const LEFT: f64 = 175.0;
const RIGHT: f64 = 20.0;

/// The height of a connection's bar.
const BAR: f64 = 16.0;

/// The space for the words above the bars and above the memory.
const TITLE: f64 = 22.0;

/// The least that anything is high or wide.
const LEAST: f64 = 1.5;

/// At most so many regions and windows are drawn: those that were open for nothing most.
const DRAWN: usize = 400;

/// At most so many connections are.
const BARS: usize = 12;

/// Draws the memory of a process.
pub(super) fn draw(
    out: &mut String,
    account: &Account,
    accounts: &[Account],
    names: &Names,
    of: &Range<u64>,
) -> fmt::Result {
    let mut drawn: Vec<&Measured> = account.openings.iter().collect();
    drawn.sort_by_key(|it| std::cmp::Reverse(it.sums.unused()));
    let folded = account.folded.iter().map(|it| it.sums.openings);
    let left_out = total(folded.chain([drawn.len().saturating_sub(DRAWN) as u64]));
    drawn.truncate(DRAWN);
    // Windows lie on their regions, and come later.
    drawn.sort_by_key(|it| (it.opening.object != Object::Region, it.opening.number));
    let memory = |it: &Opening| it.address..it.address.saturating_add(it.length);
    let ranges = drawn.iter().map(|it| memory(&it.opening)).collect();
    let bounds = drawn.iter().flat_map(|it| {
        let inner = it.opening.touched.ranges.iter().flat_map(|range| [range.start, range.end]);
        let inner = inner.map(|at| it.opening.address.saturating_add(at));
        let memory = memory(&it.opening);
        inner.chain([memory.start, memory.end])
    });
    let addresses = Addresses::of(ranges, bounds.collect::<Vec<_>>());
    let times = Times { of: of.clone(), at: LEFT..WIDTH - RIGHT };
    let bars = account.pairs.len().min(BARS);
    let top = TITLE + bars as f64 * BAR + if bars > 0 { TITLE } else { 0.0 };
    let bottom = top + addresses.height();
    let height = bottom + 34.0;
    writeln!(out, "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\">")?;
    axis(out, &times, TITLE - 6.0, bottom + 6.0)?;
    if bars > 0 {
        writeln!(out, "<text class=\"head\" x=\"0\" y=\"14\">let in</text>")?;
        pairs(out, account, accounts, &times)?;
    }
    writeln!(out, "<text class=\"head\" x=\"0\" y=\"{:.1}\">memory</text>", top - 8.0)?;
    for (start, y) in addresses.starts() {
        let y = top + y + 10.0;
        writeln!(out, "<text class=\"address\" x=\"0\" y=\"{y:.1}\">{start:#x}</text>")?;
    }
    for it in drawn {
        opening(out, it, names.call(account, it.opening.site), &addresses, &times, top)?;
    }
    writeln!(out, "</svg>")?;
    if left_out > 0 {
        writeln!(out, "<p>{left_out} more regions and windows are not drawn.</p>")?;
    }
    Ok(())
}

fn axis(out: &mut String, times: &Times, top: f64, bottom: f64) -> fmt::Result {
    for tick in times.ticks() {
        let x = times.place(times.of.start + tick);
        writeln!(out, "<path class=\"tick\" d=\"M{x:.1} {top:.1}V{bottom:.1}\"/>")?;
        let text = if tick == 0 { "0".to_owned() } else { time(tick) };
        let y = bottom + 16.0;
        writeln!(out, "<text class=\"time\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>")?;
    }
    Ok(())
}

/// The connections, as long as they let their peers in.
fn pairs(out: &mut String, account: &Account, accounts: &[Account], times: &Times) -> fmt::Result {
    for (row, pair) in account.pairs.iter().take(BARS).enumerate() {
        let until = if pair.until == 0 { times.of.end } else { pair.until };
        let (x, y) = (times.place(pair.since), TITLE + row as f64 * BAR);
        let width = (times.place(until) - x).max(LEAST);
        let (peer, may) = (Peer::of(pair, accounts).name(), rights(pair.rights));
        let (peer, number) = (escaped(&peer), pair.number);
        let height = BAR - 4.0;
        writeln!(
            out,
            "<g><title>queue pair {number:#x} lets in {peer}, for {may}</title><rect class=\"pair\" \
             x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height}\"/></g>"
        )?;
        let y = y + 10.0;
        writeln!(out, "<text class=\"address\" x=\"0\" y=\"{y:.1}\">{peer}</text>")?;
    }
    Ok(())
}

fn opening(
    out: &mut String,
    it: &Measured,
    call: Option<&crate::check::found::Call>,
    addresses: &Addresses,
    times: &Times,
    top: f64,
) -> fmt::Result {
    let Measured { opening, sums, .. } = it;
    let from = std::env::current_dir().unwrap_or_default();
    let place = call.and_then(|call| shown::places(call).first().map(|it| shown::place(it, &from)));
    let place = place.map_or_else(String::new, |place| format!(", {place}"));
    let (object, size, may) =
        (opening.object.name(), bytes(opening.length.into()), rights(opening.rights));
    let used = percent(sums.used, sums.open);
    let open = bytes_by_time(sums.open);
    let title =
        escaped(&format!("{object} of {size} for {may}{place}: {open} open, {used} of it used"));
    let color = if opening.rights.deeds().any(|deed| deed != transom_exposure::Deed::Read) {
        "written"
    } else {
        "read"
    };
    let kind = if opening.object == Object::Region { "region" } else { "window" };
    let (x, end) = (times.place(opening.since), times.place(opening.until));
    let width = (end - x).max(LEAST);
    let y = |offset: u64| top + addresses.place(opening.address.saturating_add(offset));
    let (y0, height) = (y(0), (y(opening.length) - y(0)).max(LEAST));
    writeln!(
        out,
        "<g class=\"{kind} {color}\"><title>{title}</title><rect class=\"open\" x=\"{x:.1}\" \
         y=\"{y0:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
    )?;
    for range in &opening.touched.ranges {
        let (y0, y1) = (y(range.start), y(range.end));
        let height = (y1 - y0).max(LEAST);
        let width = (times.place(range.last.at) - x).max(LEAST);
        writeln!(
            out,
            "<rect class=\"used\" x=\"{x:.1}\" y=\"{y0:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\"/>"
        )?;
        for moment in [range.first, range.last] {
            let x = times.place(moment.at);
            writeln!(out, "<path class=\"touch\" d=\"M{x:.1} {y0:.1}v{height:.1}\"/>")?;
        }
    }
    writeln!(out, "</g>")
}
