//! How busy other programs keep the processors while we measure. Figures of a busy machine say little.

use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::processors;

/// From this share of the processors on, others disturb the measurement.
const BUSY: f64 = 0.1;

/// The kernel counts in hundredths of a second. A shorter window has too few counts.
const WINDOW: Duration = Duration::from_millis(250);

/// The counts at a moment.
pub(super) struct Load {
    at: Instant,
    all: Ticks,
    /// The counts of the two processors that we measure on.
    two: Ticks,
    /// The ticks of this process and its descendants.
    own: u64,
}

/// The ticks of processors since the machine started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Ticks {
    busy: u64,
    all: u64,
}

impl Load {
    pub(super) fn now() -> Self {
        let read = fs::read_to_string("/proc/stat").unwrap_or_default();
        let two = processors::two().unwrap_or_default();
        let two = two.map(|number| Ticks::of(&read, &format!("cpu{number}")));
        let [near, far] = two;
        Self {
            at: Instant::now(),
            all: Ticks::of(&read, "cpu"),
            two: Ticks { busy: near.busy + far.busy, all: near.all + far.all },
            own: own(&processes(), std::process::id()),
        }
    }

    /// The share of the processors that others kept busy since then: of all processors, or of the two that we measure
    /// on if that is more. Waits if that was only a moment ago.
    pub(super) fn others_since(&self) -> f64 {
        sleep(WINDOW.saturating_sub(self.at.elapsed()));
        let now = Self::now();
        let own = now.own.saturating_sub(self.own);
        let [all, two] = [now.all.since(self.all), now.two.since(self.two)];
        all.others(own).max(two.others(own))
    }
}

impl Ticks {
    /// The ticks of one processor, or of all, from a line of `/proc/stat` (proc(5)).
    fn of(stat: &str, name: &str) -> Self {
        let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let counts: Vec<u64> = line.unwrap_or_default().split(' ').flat_map(str::parse).collect();
        let &[user, nice, system, idle, iowait, irq, softirq, steal, ..] = &counts[..] else {
            return Self::default();
        };
        // Interrupts do not count as others': packets over the wire cause some of ours.
        let busy = user + nice + system + steal;
        Self { busy, all: busy + idle + iowait + irq + softirq }
    }

    fn since(self, before: Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(before.busy),
            all: self.all.saturating_sub(before.all),
        }
    }

    /// The share of others, if this many ticks are our own.
    fn others(self, own: u64) -> f64 {
        self.busy.saturating_sub(own) as f64 / self.all.max(1) as f64
    }
}

/// Whether others were quiet enough to judge a target.
pub(super) fn is_quiet(others: f64) -> bool {
    others <= BUSY
}

/// A share as a sentence.
pub(super) fn busy_with_others(others: f64) -> String {
    format!("{:.0} % of the processors were busy with others", others * 100.0)
}

/// A process: its parent, and the ticks of the process and of its children that have ended.
struct Process {
    parent: u32,
    ticks: u64,
}

fn processes() -> BTreeMap<u32, Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(|pid: u32| Some((pid, Process::read(pid)?))).collect()
}

impl Process {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Parses a line of `/proc/PID/stat` (proc(5)). The name in it may have any characters.
    fn parse(stat: &str) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        let number = |field: usize| fields.get(field)?.parse::<u64>().ok();
        let ticks = (11..=14).map(number).sum::<Option<u64>>()?;
        Some(Self { parent: fields.get(1)?.parse().ok()?, ticks })
    }
}

/// The ticks of a process and its descendants.
fn own(processes: &BTreeMap<u32, Process>, pid: u32) -> u64 {
    let children = processes.iter().filter(|(_, process)| process.parent == pid);
    let ticks = processes.get(&pid).map_or(0, |process| process.ticks);
    ticks + children.map(|(child, _)| own(processes, *child)).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_processors_do_is_read() {
        let stat =
            "cpu  10 1 20 100 5 2 3 4 0 0\ncpu0 5 1 10 50 5 1 1 4 0 0\ncpu1 5 0 10 50 0 1 2 0\n";
        assert_eq!(Ticks::of(stat, "cpu"), Ticks { busy: 35, all: 145 });
        assert_eq!(Ticks::of(stat, "cpu0"), Ticks { busy: 20, all: 77 });
        assert_eq!(Ticks::of(stat, "cpu2"), Ticks::default());
    }

    #[test]
    fn our_own_processes_are_no_others() {
        let stat = |parent: u32, ticks: u64| {
            let line = format!("7 (a) name) S {parent} 7 7 0 -1 0 0 0 0 0 {ticks} 1 2 3 20 0");
            Process::parse(&line).unwrap()
        };
        let all = [(1, stat(0, 1000)), (5, stat(1, 10)), (6, stat(5, 20)), (7, stat(6, 30))];
        assert_eq!(own(&BTreeMap::from(all), 5), 10 + 20 + 30 + 3 * 6);
        let ticks = Ticks { busy: 150, all: 200 };
        assert_eq!(ticks.others(100), 0.25);
        assert_eq!(ticks.others(160), 0.0);
        assert!(is_quiet(0.1) && !is_quiet(0.25));
    }
}
