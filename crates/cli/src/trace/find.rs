//! Finds the processes that are to be traced, as they come.

use transom_device::protection::Announcer;
use transom_system::Watched;
use transom_system::registry::{Announced, Process, Registry, Watcher};
use transom_system::tools::Tool;

/// How often to look for new processes, in nanoseconds.
const LOOKS: u64 = 50_000_000;

/// How long a trace around this one may take to ask a process for its events, in nanoseconds. The process waits for a
/// second until anybody has asked.
const PATIENCE: u64 = 500_000_000;

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
    /// Those that a trace around this one has to ask first, and answers that it has. A process goes on as soon as
    /// anybody has asked for its events, and may end before another one asks. So each reaches it before.
    waiting: Vec<Waiting>,
    unheard: usize,
}

/// A process that has announced itself, and is not asked yet.
struct Waiting {
    process: Announcer,
    /// `None` if it has ended, or cannot be reached.
    reached: Option<Watched>,
    /// Until when it waits for the trace around this one.
    until: u64,
    /// The trace within this one that waits for an answer.
    from: Option<u64>,
}

impl Finder {
    pub(super) fn new(registry: &'static Registry, whom: Whom) -> Self {
        let (found, waiting) = Default::default();
        Self { registry, whom, found, looked: 0, waiting, unheard: 0 }
    }

    /// How many processes ended before they could be asked for their events.
    pub(super) fn unheard(&self) -> usize {
        self.unheard
    }

    /// Those that have come since the last time. They record their events from now on. The last time, nobody is waited
    /// for.
    pub(super) fn next(&mut self, now: u64, is_last: bool) -> Vec<Watched> {
        match &self.whom {
            Whom::Program(watcher) => {
                while let Some(Announced { process, from }) = watcher.next() {
                    let is_it = |it: &&mut Waiting| it.process == process;
                    if let Some(waiting) = self.waiting.iter_mut().find(is_it) {
                        // The answer of the trace around this one.
                        waiting.until = now;
                    } else if !self.found.contains(&process) {
                        let registry = self.registry;
                        let found = registry.process(process.slot);
                        let found = found.filter(|it| it.announcer == process);
                        let reached =
                            found.and_then(|it| Watched::reached(registry, &it, &[Tool::Events]));
                        let until = if watcher.pass_on(process) { now + PATIENCE } else { now };
                        self.waiting.push(Waiting { process, reached, until, from });
                    }
                }
                self.announced(if is_last { u64::MAX } else { now })
            }
            Whom::Running(_) if now.saturating_sub(self.looked) >= LOOKS => {
                self.looked = now;
                self.running()
            }
            Whom::Running(_) => Vec::new(),
        }
    }

    /// Those that have announced themselves, and need not wait longer.
    fn announced(&mut self, now: u64) -> Vec<Watched> {
        let mut watched = Vec::new();
        let come = self.waiting.extract_if(.., |it| it.until <= now);
        for Waiting { process, reached, from, .. } in come {
            match reached {
                Some(mut reached) => {
                    reached.begin();
                    watched.push(reached);
                }
                None => self.unheard += 1,
            }
            self.found.push(process);
            if let Some(from) = from {
                self.registry.tell_watcher(from, process);
            }
        }
        watched
    }

    /// Those that run and are new.
    fn running(&mut self) -> Vec<Watched> {
        let all = self.registry.processes().into_iter();
        let come = all.filter(|it| it.alive && self.whom.includes(it));
        let come = come.filter(|it| !self.found.contains(&it.announcer));
        // One that is still opening its device is looked at again.
        let watch = |it: Process| Watched::new(self.registry, &it, &[Tool::Events]);
        let watched: Vec<_> = come.filter_map(watch).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that has announced itself, and is gone when it is looked for, is told of.
    #[test]
    fn a_process_that_has_ended_before_it_was_asked_is_counted() {
        let registry = Registry::open().expect("a registry");
        let number = u64::from(std::process::id()) << 32 | 0xf1;
        let watcher = registry.make_watcher(number).expect("one");
        // A generation that no stay has yet.
        assert!(registry.tell_watcher(number, Announcer { slot: 250, generation: 0x7f_fffe }));
        let mut finder = Finder::new(registry, Whom::Program(watcher));
        assert!(finder.next(1, false).is_empty());
        assert_eq!(finder.unheard(), 1);
    }

    /// A trace within another one asks a process when the outer one has answered that it has, or has no time left.
    #[test]
    fn the_trace_around_another_one_is_first() {
        let registry = Registry::open().expect("a registry");
        let number = u64::from(std::process::id()) << 32 | 0xf2;
        let outer = registry.make_watcher(number).expect("one");
        let inner = registry.make_watcher_within(number + 1, Some(number)).expect("one");
        let [mut outer, mut inner] =
            [outer, inner].map(|watcher| Finder::new(registry, Whom::Program(watcher)));
        let mut look = |inner_at, outer_looks| {
            inner.next(inner_at, false);
            if outer_looks {
                outer.next(1, false);
            }
            inner.next(inner_at, false);
            [inner.unheard(), outer.unheard()]
        };
        // Nobody has such a stay, so who looks for it finds that it is gone.
        let mut stays = (0x7f_fff0..).map(|generation| Announcer { slot: 251, generation });
        let mut announce = || registry.tell_watcher(number + 1, stays.next().expect("without end"));
        assert!(announce());
        assert_eq!(look(1, false), [0, 0]);
        assert_eq!(look(1, true), [1, 1]);
        assert!(announce());
        assert_eq!(look(2, false), [1, 1]);
        assert_eq!(look(3 + PATIENCE, false), [2, 1]);
        // A late answer changes nothing.
        assert_eq!(look(4 + PATIENCE, true), [2, 2]);
    }
}
