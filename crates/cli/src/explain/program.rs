//! What one program was refused and waited for, with all that it starts, once it has failed.

use std::fmt::Display;
use std::io::Write;
use std::iter;
use std::os::fd::BorrowedFd;
use std::process::Command;
use std::time::{Duration, Instant};

use transom_device::execution::Unheard;
use transom_device::protection::Announcer;
use transom_system::environment::EXPLAIN;
use transom_system::registry::{Fate, Record, Registry, Watcher, WorkRecord};

use super::asked::{Asked, Refused};
use super::groups::{self, Order};
use super::{print_lost, who};
use crate::clock;
use crate::devices::registry;
use crate::failure::{Failure, Result};
use crate::layout::{self, Page};
use crate::sentence::counted;
use crate::waits::{Told, Waits};

/// How many are told, of equal ones one.
const MOST: usize = 20;
/// The same of a program that has succeeded.
const FEW: usize = 4;

/// How often there may be a look at what its processes wait for.
const TICK: Duration = Duration::from_millis(500);
/// The least and the most time from one look to the next.
const BETWEEN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// A program, and its processes that have opened a device.
pub(crate) struct OfProgram {
    registry: &'static Registry,
    watcher: Watcher,
    begun: u64,
    processes: Vec<Announcer>,
    waits: Waits,
}

impl OfProgram {
    /// Has the processes of a program announce themselves here, and from here to a run around this one.
    pub(crate) fn prepare(command: &mut Command) -> Result<Self> {
        let registry = registry()?;
        let number = getrandom::u64().map_err(Failure::new)?;
        let around = EXPLAIN.watcher().map_err(Failure::new)?;
        let watcher = registry.make_watcher_within(number, around).map_err(|error| {
            Failure::new(format_args!("the program's processes cannot be found: {error}"))
        })?;
        command.env(EXPLAIN.name, format!("{number:x}"));
        let (processes, waits) = (Vec::new(), Waits::new(registry));
        Ok(Self { registry, watcher, begun: clock::now(), processes, waits })
    }

    /// Takes in its processes, and what they wait for, while somebody waits for its end: each time that the descriptor
    /// is readable, and so often.
    pub(crate) fn during<T>(
        &mut self,
        wait: impl FnOnce(BorrowedFd<'_>, Duration, &mut dyn FnMut()) -> T,
    ) -> T {
        let Self { watcher, processes, waits, .. } = self;
        let begun = Instant::now();
        let mut next = begun + TICK;
        // A command of this kind around this one tells of them too.
        let comes = || {
            let process = watcher.next()?.process;
            watcher.pass_on(process);
            Some(process)
        };
        let mut look = || {
            processes.extend(iter::from_fn(comes));
            let now = Instant::now();
            if now >= next {
                waits.look(processes.iter().copied());
                next = now + ((now - begun) / 12).clamp(BETWEEN[0], BETWEEN[1]) - TICK / 10;
            }
        };
        let waited = wait(watcher.descriptor(), TICK, &mut look);
        processes.extend(iter::from_fn(comes));
        waited
    }

    /// Says on standard error, after these words, what it was refused, or that nothing was.
    pub(crate) fn print(&self, ended: impl Display) -> Result {
        self.print_if(ended, |_, _| true)
    }

    /// The same, but says nothing if it was refused nothing and waited for nothing.
    pub(crate) fn print_reasons(&self, ended: impl Display) -> Result {
        self.print_if(ended, |refusals, waits| !refusals.is_empty() || !waits.is_empty())
    }

    /// Of a program that has succeeded: says after these words which accesses were refused, if any were, and which
    /// messages no receive can take.
    pub(crate) fn print_accesses(&self, succeeded: impl Display) -> Result {
        let only = Some(self.processes.clone());
        let mut refusals =
            Asked { only, since: self.begun, ..Asked::default() }.refusals(self.registry);
        refusals.retain(|refused| is_access(&refused.record) || is_out_of_place(&refused.record));
        if refusals.is_empty() {
            return Ok(());
        }
        refusals.reverse();
        let mut out = layout::stderr_at_once();
        let count = refusals.iter().filter(|refused| is_access(&refused.record)).count();
        let were = if count == 1 { "was" } else { "were" };
        let accesses = counted(count, "access", "accesses");
        // Of many messages only some are noted.
        let though = match (count, refusals.len() - count) {
            (0, _) => {
                "messages were dropped, oldest first. Their senders do not hear of it.".to_owned()
            }
            (_, 0) => format!(
                "{accesses} {were} refused, oldest first. Does it look at the status of each completion?"
            ),
            _ => format!("{accesses} {were} refused, and messages dropped, oldest first."),
        };
        out.text(format_args!("{succeeded}, though {though}"))?;
        let left = groups::print(&mut out, &refusals, Order::OldestFirst, FEW)?;
        if left > 0 {
            out.text(format_args!("{left} later: `transom explain` shows the newest first."))?;
        }
        Ok(out.send()?)
    }

    fn print_if(
        &self,
        ended: impl Display,
        is_wanted: impl Fn(&[Refused], &[Told<'_>]) -> bool,
    ) -> Result {
        let all = Asked { since: self.begun, ..Asked::default() };
        let asked = Asked { only: Some(self.processes.clone()), ..all.clone() };
        let mut refusals = asked.refusals(self.registry);
        let waits = self.waits.told();
        if !is_wanted(&refusals, &waits) {
            return Ok(());
        }
        refusals.reverse();
        let others = all.refusals(self.registry).len().saturating_sub(refusals.len());
        let mut out = layout::stderr_at_once();
        write(&mut out, ended, self.processes.is_empty(), (&refusals, &waits), others)?;
        Ok(out.send()?)
    }
}

fn is_access(record: &Record) -> bool {
    matches!(record, Record::Access(_))
}

/// Whether a message was dropped that would be dropped each time: nobody posts a receive sooner for it.
fn is_out_of_place(record: &Record) -> bool {
    let Record::Work(WorkRecord { fate: Fate::Dropped(why), .. }) = record else { return false };
    matches!(why, Unheard::TooSmall { .. } | Unheard::OtherQkey { .. })
}

/// Writes the refusals of a program, oldest first, and how many others had.
fn write(
    out: &mut Page<impl Write>,
    ended: impl Display,
    has_no_device: bool,
    (refusals, waits): (&[Refused], &[Told<'_>]),
    others: usize,
) -> Result {
    match (refusals, waits, has_no_device) {
        ([], _, true) => out.text(format_args!(
            "{ended} Nothing was refused: none of its processes opened a device."
        ))?,
        ([], [], false) => out.text(format_args!(
            "{ended} Nothing was refused, and nothing waited for long. It may have failed by something else: \
             see what it printed. `transom check -- PROGRAM` looks for mistakes that nobody refuses."
        ))?,
        ([], _, false) => out.text(format_args!("{ended} Nothing was refused."))?,
        _ => out.text(format_args!("{ended} This was refused, oldest first:"))?,
    }
    let left = groups::print(out, refusals, Order::OldestFirst, MOST)?;
    if left > 0 {
        out.text(format_args!("{left} later: `transom explain` shows the newest first."))?;
    }
    print_lost(out, refusals)?;
    if !waits.is_empty() {
        out.text("This still waited at the end:")?;
    }
    for Told { process, sentence, .. } in waits.iter().take(MOST) {
        out.item("  ", format_args!("{}: {sentence}", who(process)))?;
    }
    if waits.len() > MOST {
        out.item("  ", format_args!("and {} more", waits.len() - MOST))?;
    }
    if others > 0 {
        let others = counted(others, "refusal", "refusals");
        out.text(format_args!("{others} of other programs meanwhile: `transom explain`"))?;
    }
    Ok(())
}
