//! The processes that the user asks about, and their refusals.

use crate::clock;
use crate::failure::{Failure, Result};
use std::net::SocketAddr;
use std::path::PathBuf;
use transom_device::operation::Operation;
use transom_device::protection::Announcer;
use transom_device::qp::QpNumber;
use transom_system::registry::{Fate, Process, Record, RefusalRecord, Registry, Role};

/// The user's choice of processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(super) pid: Option<u32>,
    /// The name of the program.
    pub(super) process: Option<String>,
    /// Only these stays of processes.
    pub(super) only: Option<Vec<Announcer>>,
    /// Nanoseconds since 1970.
    pub(super) since: u64,
}

/// A refusal, and the process that refused.
#[derive(Clone)]
pub(crate) struct Refused {
    pub(crate) process: Process,
    pub(crate) record: Record,
    /// How many older refusals of the process are no longer kept.
    pub(crate) lost: u64,
}

impl Asked {
    /// Everything of all processes, from now on.
    pub(crate) fn from_now() -> Self {
        Self { since: clock::now(), ..Self::default() }
    }

    /// Whether a process belongs to the choice.
    pub(super) fn is_of(&self, process: &Process) -> bool {
        self.pid.is_none_or(|pid| process.pid == pid)
            && self.process.as_ref().is_none_or(|name| process.name == *name)
            && self.only.as_ref().is_none_or(|only| only.contains(&process.announcer))
    }

    /// Fails if no such process is known. An empty answer would wrongly say that nothing was refused there.
    pub(super) fn check(&self, registry: &Registry) -> Result {
        let processes = registry.newest_processes();
        if self.pid.is_none() && self.process.is_none()
            || processes.iter().any(|process| self.is_of(process))
        {
            return Ok(());
        }
        let known = known(&processes, self.process.as_deref().unwrap_or_default());
        let wanted = match (self.pid, &self.process) {
            (Some(pid), Some(name)) => format!("no process {pid} called {name}"),
            (Some(pid), None) => format!("no process {pid}"),
            (None, name) => format!("no process called {}", name.as_deref().unwrap_or_default()),
        };
        let runs = self.pid.is_some_and(|pid| PathBuf::from(format!("/proc/{pid}")).exists());
        let is_number = |process: &Process| self.process == Some(process.pid.to_string());
        let why = match runs {
            true => {
                "the process runs without one: did you start it with `transom run`? Or the process "
            }
            false if processes.iter().any(is_number) => {
                "it is the number of a process that has (--pid). Or the process "
            }
            false => "the process ",
        };
        Err(Failure::new(format_args!(
            "{wanted} has opened a device here; {why}belongs to another user, is in another network \
             namespace, or has ended since: the last {} openings are kept. Of this user's in this namespace \
             ({}), {known}",
            Registry::PROCESSES,
            registry.directory().display()
        )))
    }

    /// The refusals of the chosen processes, and those that their peers noted of the same events. Newest
    /// first.
    pub(super) fn refusals(&self, registry: &Registry) -> Vec<Refused> {
        let mut all = Vec::new();
        for slot in 0..=u8::MAX {
            let Some(process) = registry.process(slot) else { continue };
            let (records, lost) = (registry.records(slot), registry.lost(slot));
            // If another process has taken the slot meanwhile, the records may be of either.
            let now = registry.process(slot);
            if now.is_none_or(|now| now.announcer != process.announcer) {
                continue;
            }
            let recent = records.into_iter().filter(|record| record.time() >= self.since);
            all.extend(recent.map(|record| Refused { process: process.clone(), record, lost }));
        }
        let own = registry.processes().into_iter().filter(|process| self.is_of(process));
        let slots: Vec<u8> = own.map(|process| process.announcer.slot).collect();
        self.retain(&mut all, &slots);
        all.sort_by_key(|refused| std::cmp::Reverse(refused.record.time()));
        all
    }

    /// Keeps the refusals of the chosen processes, and those that their peers noted of the same events.
    fn retain(&self, all: &mut Vec<Refused>, slots: &[u8]) {
        let own: Vec<_> = all.iter().filter(|refused| self.is_of(&refused.process)).collect();
        let unconnected: Vec<_> = own.iter().filter_map(|refused| ends(&refused.record)).collect();
        let silent: Vec<u32> =
            own.iter().filter_map(|refused| unanswered(&refused.record)).collect();
        all.retain(|refused| {
            let Refused { process, record, .. } = refused;
            self.is_of(process)
                || ends(record).is_some_and(|ends| unconnected.contains(&ends))
                || asker(record).is_some_and(|slot| slots.contains(&slot))
                || silent.iter().any(|qp| has_dropped(record, *qp))
        });
    }
}

/// The known processes, and at most as many as a person reads: those first whose name is like the wanted one, then
/// those that run, then in their order.
fn known(processes: &[Process], wanted: &str) -> String {
    const MOST: usize = 12;
    let is_alike = |name: &str| {
        let [name, wanted] = [name, wanted].map(str::to_lowercase);
        !wanted.is_empty() && (name.contains(&wanted) || wanted.contains(&name))
    };
    let mut known: Vec<_> = processes.iter().collect();
    known.sort_by_key(|it| (!is_alike(&it.name), !it.alive));
    let mut names: Vec<String> = Vec::new();
    for who in known.into_iter().map(super::who) {
        // Each device of a process has an entry.
        if !names.contains(&who) {
            names.push(who);
        }
    }
    let more = names.len().saturating_sub(MOST);
    names.truncate(MOST);
    match (names.as_slice(), more) {
        ([], _) => "none is known".to_owned(),
        (names, 0) => format!("known are: {}", names.join("; ")),
        (names, more) => format!("known are: {}; and {more} more", names.join("; ")),
    }
}

/// The two ends of a connection that was not made.
pub(super) fn ends(record: &Record) -> Option<(SocketAddr, SocketAddr)> {
    match record {
        Record::Connection(record) => Some((record.source, record.destination)),
        Record::Access(_) | Record::Call(_) | Record::Work(_) => None,
    }
}

/// The slot of the process whose request another process noted.
fn asker(record: &Record) -> Option<u8> {
    let peer = match record {
        // The refusal of a peer's receive concerns the request of the other end too.
        Record::Access(record) if record.role() == Role::Target || stores(record) => record.peer,
        Record::Work(record) if record.work.is_none() => record.peer,
        _ => return None,
    };
    Some(QpNumber::from_bits(peer).slot())
}

/// Whether the refused access was to store data.
fn stores(record: &RefusalRecord) -> bool {
    record.refusal.attempt.operation == Operation::LocalWrite
}

/// The queue pair that has not answered.
fn unanswered(record: &Record) -> Option<u32> {
    let Record::Work(record) = record else { return None };
    matches!(record.fate, Fate::Unanswered { .. }).then_some(record.peer)
}

/// Whether this queue pair dropped a message that came in a packet. A packet does not name its sender.
fn has_dropped(record: &Record, qp: u32) -> bool {
    let Record::Work(record) = record else { return false };
    matches!(record.fate, Fate::Dropped(_)) && (record.qp, record.peer) == (qp, 0)
}

#[cfg(test)]
mod tests {
    use super::super::json::tests::process;
    use super::*;
    use transom_system::registry::{ConnectionFault, ConnectionRecord, Name};

    #[test]
    fn of_many_processes_each_is_named_once_and_those_first_that_are_wanted() {
        let of = |pid, alive| Process { pid, alive, ..process() };
        let ended = (0..30).flat_map(|pid| [of(100 + pid, false), of(100 + pid, false)]);
        let alike = Process { pid: 998, name: "ib_read_bw".into(), ..process() };
        let all: Vec<_> = ended.chain([alike, of(999, true)]).collect();
        let [first, second] = [&all[60], &all[61]].map(super::super::who);
        let told = known(&all, "IB_read");
        assert!(told.starts_with(&format!("known are: {first}; {second}; p, PID 100 ")), "{told}");
        assert_eq!(told.matches("PID 100 ").count(), 1, "{told}");
        assert!(told.ends_with("; and 20 more"), "{told}");
        assert!(known(&all, "").starts_with(&format!("known are: {second}; ")), "{told}");
    }

    /// The end that refused a connection knows why.
    #[test]
    fn of_a_process_what_its_peer_knows_is_told_too() {
        let refused = |pid, fault, port| {
            let record = ConnectionRecord {
                time: 5,
                fault,
                code: 28,
                source: SocketAddr::from(([10, 0, 0, 1], 50_000)),
                destination: SocketAddr::from(([10, 0, 0, 2], port)),
                nearest: 0,
                listens_at: None,
                other_space: None,
                cause: None,
                said: Name::new(""),
            };
            let process = Process { pid, ..process() };
            Refused { process, record: Record::Connection(record), lost: 0 }
        };
        let mut all = vec![
            refused(1, ConnectionFault::Rejected, 7471),
            refused(2, ConnectionFault::Refused, 7471),
            refused(2, ConnectionFault::Refused, 7472),
        ];
        Asked { pid: Some(1), ..Asked::default() }.retain(&mut all, &[]);
        let left = all.iter().map(|it| (it.process.pid, ends(&it.record).unwrap().1.port()));
        let left: Vec<_> = left.collect();
        assert_eq!(left, [(1, 7471), (2, 7471)]);
    }
}
