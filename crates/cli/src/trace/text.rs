//! A trace as text for a terminal: a line for each slice and for each mark. While it happens, that of a slice comes when
//! it ends. Of a whole timeline they are in order of time.

use std::fmt;
use std::io::{self, Write};

use super::perfetto::TracePacket;
use super::shown::{Given, Reader, Shown};
use crate::failure::Result;
use crate::layout::{self, Page};

/// The text, and what it was told so far.
#[derive(Default)]
pub(super) struct Text {
    reader: Reader,
    /// The time of the first event.
    first: Option<u64>,
}

impl Text {
    /// Prints what packets tell.
    pub(super) fn print(&mut self, packets: &[TracePacket]) -> Result {
        let mut out = layout::stdout();
        for packet in packets {
            let Some((time, shown)) = self.reader.take(packet) else { continue };
            let first = *self.first.get_or_insert(time);
            shown.map_or(Ok(()), |shown| tell(&mut out, &shown, first))?;
        }
        out.to.flush()?;
        Ok(())
    }

    /// Prints what the packets of a whole timeline tell.
    pub(super) fn print_whole(&mut self, packets: &[TracePacket]) -> Result {
        let mut out = layout::stdout();
        let all = self.reader.in_order(packets);
        let first = all.first().map_or(0, |shown| shown.time);
        all.iter().try_for_each(|shown| tell(&mut out, shown, first))?;
        out.to.flush()?;
        Ok(())
    }
}

/// Prints the line of a slice or a mark, with the time since the first event.
fn tell(out: &mut Page<impl Write>, shown: &Shown, first: u64) -> io::Result<()> {
    let since = shown.time.saturating_sub(first);
    let stamp = format!("{:>4}.{:06} ", since / 1_000_000_000, since / 1000 % 1_000_000);
    out.item(stamp, printable(&line(shown)))
}

/// The line for a slice or a mark.
fn line(shown: &Shown) -> String {
    let process = shown.process.iter().map(|(pid, name)| {
        let name = if name.is_empty() { "process" } else { name };
        format!("{name} {pid}")
    });
    let place: Vec<_> = process.chain(shown.track.iter().cloned()).collect();
    let took = shown.took.map_or_else(String::new, |took| format!(", {}", Took(took)));
    let told = shown.arguments.iter().map(|(name, value)| match value {
        Given::Number(number) => format!("{name} {number}"),
        Given::Hex(number) => format!("{name} {number:#x}"),
        Given::Text(word) => format!("{name} {word}"),
    });
    let told: Vec<_> = told.collect();
    let colon = if told.is_empty() { "" } else { ": " };
    format!("{}: {}{took}{colon}{}", place.join(", "), shown.name, told.join(", "))
}

/// How long something took.
struct Took(u64);

impl fmt::Display for Took {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0 as f64;
        match self.0 {
            0..10_000_000 => write!(f, "{:.1} µs", nanoseconds / 1e3),
            10_000_000..10_000_000_000 => write!(f, "{:.1} ms", nanoseconds / 1e6),
            _ => write!(f, "{:.1} s", nanoseconds / 1e9),
        }
    }
}

/// A file may come from anybody, and a terminal obeys control characters.
fn printable(line: &str) -> String {
    line.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}
