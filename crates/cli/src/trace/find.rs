//! Finds the processes that are to be traced, as they come.

use transom_device::protection::Announcer;
use transom_system::Watched;
use transom_system::registry::{Process, Registry, Watcher};
use transom_system::tools::Tool;

/// How often to look for new processes, in nanoseconds.
const LOOKS: u64 = 50_000_000;

/// The processes that are to be traced.
pub(super) enum Whom {
    /// Those of a program, which announce themselves here.
    Program(Watcher),
    /// These, or all there are.
    Running(Vec<u32>),
}

impl Whom {
    fn includes(&self, process: &Process) -> bool {
        match self {
            Self::Program(_) => false,
            Self::Running(pids) => pids.is_empty() || pids.contains(&process.pid),
        }
    }
}

/// Where they are looked for, and those that were found.
pub(super) struct Finder {
    registry: &'static Registry,
    whom: Whom,
    found: Vec<Announcer>,
    looked: u64,
}

impl Finder {
    pub(super) fn new(registry: &'static Registry, whom: Whom) -> Self {
        Self { registry, whom, found: Vec::new(), looked: 0 }
    }

    /// Those that have come since the last time. They record their events from now on.
    pub(super) fn next(&mut self, now: u64) -> Vec<Watched> {
        let mut come = Vec::new();
        if let Whom::Program(watcher) = &self.whom {
            while let Some(announcer) = watcher.next() {
                let process = self.registry.process(announcer.slot);
                come.extend(process.filter(|it| it.announcer == announcer));
            }
        } else if now.saturating_sub(self.looked) >= LOOKS {
            self.looked = now;
            let all = self.registry.processes().into_iter();
            come.extend(all.filter(|it| it.alive && self.whom.includes(it)));
        }
        come.retain(|it| !self.found.contains(&it.announcer));
        // One that is still opening its device is looked at again.
        let watch = |it: &Process| Watched::new(self.registry, it, &[Tool::Events]);
        let watched: Vec<_> = come.iter().filter_map(watch).collect();
        if !watched.is_empty() {
            // One whose slot has another process now does not come again.
            let is_there = |it: &Announcer| {
                let now = self.registry.process(it.slot);
                now.is_none_or(|now| now.announcer == *it)
            };
            self.found.retain(is_there);
        }
        self.found.extend(watched.iter().map(Watched::announcer));
        watched
    }
}
