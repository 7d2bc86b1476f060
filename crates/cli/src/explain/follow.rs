//! Refusals as they happen.

use super::asked::{Asked, Refused};
use super::{Form, groups, who};
use crate::failure::Result;
use crate::layout;
use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;
use transom_system::registry::{Record, Registry};

/// How often this looks for new ones. A process that notes a refusal signals nobody, so that refusals cost
/// nothing.
const SOON: Duration = Duration::from_millis(100);

/// The refusals that were seen.
pub(crate) struct Seen<'a> {
    registry: &'a Registry,
    asked: Asked,
    /// For each stay of a process in a slot: the kept records, and the number of lost ones.
    of: HashMap<(u8, u32), (Vec<Record>, u64)>,
}

impl<'a> Seen<'a> {
    /// None yet.
    pub(crate) fn new(registry: &'a Registry, asked: Asked) -> Self {
        Self { registry, asked, of: HashMap::new() }
    }

    /// The refusals since the last call, oldest first.
    pub(crate) fn next(&mut self) -> Vec<Refused> {
        let mut new = Vec::new();
        let registry = self.registry;
        for process in registry.processes() {
            if !self.asked.is_of(&process) {
                continue;
            }
            let slot = process.announcer.slot;
            let (records, lost) = (registry.records(slot), registry.lost(slot));
            // If another process has the slot now, the records may be its.
            let now = registry.process(slot);
            if now.is_none_or(|now| now.announcer != process.announcer) {
                continue;
            }
            let stay = (slot, process.announcer.generation);
            // Losses before the first look do not count.
            let before = self.of.remove(&stay).unwrap_or((Vec::new(), lost));
            let come = records.iter().filter(|it| !before.0.contains(it));
            let come: Vec<_> = come.filter(|it| it.time() >= self.asked.since).copied().collect();
            // The losses since then, except those that were seen before.
            let seen_lost = before.0.iter().filter(|it| !records.contains(it)).count() as u64;
            let missed = lost.saturating_sub(before.1).saturating_sub(seen_lost);
            self.of.insert(stay, (records, lost));
            let refused = |record| Refused { process: process.clone(), record, lost: missed };
            new.extend(come.into_iter().map(refused));
        }
        // Of a stay whose slot has another process now, nothing more comes.
        self.of.retain(|(slot, generation), _| {
            let now = registry.process(*slot);
            now.is_none_or(|now| now.announcer.generation == *generation)
        });
        new.sort_by_key(|refused| refused.record.time());
        new
    }
}

/// Prints new refusals until nobody reads any more.
pub(super) fn print(registry: &Registry, asked: Asked, form: Option<Form>) -> Result {
    let mut seen = Seen::new(registry, asked);
    loop {
        let new = seen.next();
        let mut out = std::io::stdout().lock();
        let mut told = None;
        for refused in &new {
            if let Some(print) = form {
                print(&mut out, refused)?;
                continue;
            }
            let mut out = layout::stdout();
            if refused.lost > 0 && told.replace(refused.process.announcer).is_none() {
                out.text(format_args!("{}: {} are lost.", who(&refused.process), refused.lost))?;
            }
            groups::print_one(&mut out, refused)?;
        }
        out.flush()?;
        drop(out);
        std::thread::sleep(SOON);
    }
}
