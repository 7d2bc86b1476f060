//! What one program was refused, with all that it starts, once it has failed.

use std::fmt::Display;
use std::io::Write;
use std::iter;
use std::os::fd::BorrowedFd;
use std::process::Command;

use transom_device::protection::Announcer;
use transom_system::environment::EXPLAIN;
use transom_system::registry::{Registry, Watcher};

use super::asked::{Asked, Refused};
use super::groups::{self, Order};
use super::print_lost;
use crate::clock;
use crate::devices::registry;
use crate::failure::{Failure, Result};
use crate::layout::{self, Page};
use crate::sentence::counted;

/// How many are told, of equal ones one.
const MOST: usize = 20;

/// A program, and its processes that have opened a device.
pub(crate) struct OfProgram {
    registry: &'static Registry,
    watcher: Watcher,
    begun: u64,
    processes: Vec<Announcer>,
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
        Ok(Self { registry, watcher, begun: clock::now(), processes: Vec::new() })
    }

    /// Takes in its processes while somebody waits for its end.
    pub(crate) fn during<T>(
        &mut self,
        wait: impl FnOnce(BorrowedFd<'_>, &mut dyn FnMut()) -> T,
    ) -> T {
        let Self { watcher, processes, .. } = self;
        let mut take_in = || processes.extend(iter::from_fn(|| watcher.next()));
        let waited = wait(watcher.descriptor(), &mut take_in);
        take_in();
        waited
    }

    /// Says on standard error, after these words, what it was refused, or that nothing was.
    pub(crate) fn print(&self, ended: impl Display) -> Result {
        self.print_if(ended, |_| true)
    }

    /// The same, but says nothing if it was refused nothing.
    pub(crate) fn print_refusals(&self, ended: impl Display) -> Result {
        self.print_if(ended, |refusals| !refusals.is_empty())
    }

    fn print_if(&self, ended: impl Display, is_wanted: impl Fn(&[Refused]) -> bool) -> Result {
        let all = Asked { since: self.begun, ..Asked::default() };
        let asked = Asked { only: Some(self.processes.clone()), ..all.clone() };
        let mut refusals = asked.refusals(self.registry);
        if !is_wanted(&refusals) {
            return Ok(());
        }
        refusals.reverse();
        let others = all.refusals(self.registry).len().saturating_sub(refusals.len());
        let mut out = layout::stderr_at_once();
        write(&mut out, ended, self.processes.is_empty(), &refusals, others)?;
        Ok(out.send()?)
    }
}

/// Writes the refusals of a program, oldest first, and how many others had.
fn write(
    out: &mut Page<impl Write>,
    ended: impl Display,
    has_no_device: bool,
    refusals: &[Refused],
    others: usize,
) -> Result {
    match (refusals, has_no_device) {
        ([], true) => out.text(format_args!(
            "{ended} Nothing was refused: none of its processes opened a device."
        ))?,
        ([], false) => out.text(format_args!(
            "{ended} Nothing was refused. `transom check -- PROGRAM` looks for mistakes that nobody refuses."
        ))?,
        _ => out.text(format_args!("{ended} This was refused, oldest first:"))?,
    }
    let left = groups::print(out, refusals, Order::OldestFirst, MOST)?;
    if left > 0 {
        out.text(format_args!("{left} later: `transom explain` shows the newest first."))?;
    }
    print_lost(out, refusals)?;
    if others > 0 {
        let others = counted(others, "refusal", "refusals");
        out.text(format_args!("{others} of other programs meanwhile: `transom explain`"))?;
    }
    Ok(())
}
