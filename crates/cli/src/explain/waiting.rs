//! What running processes wait for: requests, completions, answers, and peers in the middle of an access.

use std::io::Write;
use std::time::Duration;

use serde::Serialize;
use transom_system::clock;
use transom_system::registry::{Process, Registry};

use super::asked::Asked;
use super::{Device, who};
use crate::devices;
use crate::failure::{Failure, Result};
use crate::layout::Page;
use crate::lines::Exact;
use crate::waits::{self, Told, Waits};

/// How many things that wait are told to people.
const MOST: usize = 20;

/// A process that waits, as a line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    time_ns: Exact,
    pid: u32,
    process: &'a str,
    device_state: Device,
    role: &'static str,
    reason: &'static str,
    since_ns: Option<Exact>,
    qp: Option<u32>,
    waits_for: Option<u32>,
    sentence: String,
}

impl<'a> Line<'a> {
    fn new(process: &'a Process, reason: &'static str, sentence: String) -> Self {
        Self {
            time_ns: Exact(clock::wall()),
            pid: process.pid,
            process: &process.name,
            device_state: Device::of(process),
            role: "waiter",
            reason,
            since_ns: None,
            qp: None,
            waits_for: None,
            sentence,
        }
    }
}

/// Prints all of it for people. Whether anything has waited for long.
pub(super) fn print(
    out: &mut Page<impl Write>,
    registry: &'static Registry,
    asked: &Asked,
) -> Result<bool> {
    let processes = registry.processes();
    for process in processes.iter().filter(|process| process.alive && asked.is_of(process)) {
        for (_, sentence) in devices::unanswered(registry, process) {
            out.text(format_args!("{}: {sentence}", who(process)))?;
        }
        if let Some((_, sentence)) = revocation(&processes, process) {
            out.text(format_args!("{}: {sentence}.", who(process)))?;
        }
    }
    let waits = looked_at(registry, asked);
    let told = waits.told();
    for Told { process, sentence, .. } in told.iter().take(MOST) {
        out.text(format_args!("{}: {sentence}.", who(process)))?;
    }
    if told.len() > MOST {
        out.text(format_args!("And {} more things wait.", told.len() - MOST))?;
    }
    Ok(!told.is_empty())
}

/// Prints the same for programs.
pub(super) fn print_lines(
    out: &mut dyn Write,
    registry: &'static Registry,
    asked: &Asked,
) -> Result {
    let processes = registry.processes();
    for process in processes.iter().filter(|process| process.alive && asked.is_of(process)) {
        for (since, sentence) in devices::unanswered(registry, process) {
            let line = Line::new(process, "unanswered", sentence);
            write(out, &Line { since_ns: Some(Exact(since)), ..line })?;
        }
        if let Some((pid, sentence)) = revocation(&processes, process) {
            let line = Line::new(process, "revocation", sentence);
            write(out, &Line { waits_for: Some(pid), ..line })?;
        }
    }
    for Told { process, reason, qp, since, last, sentence } in looked_at(registry, asked).told() {
        let [since, last] = [since, last].map(|time| Exact(clock::wall_time(time)));
        let line = Line::new(process, reason, sentence.to_owned());
        write(out, &Line { time_ns: last, since_ns: Some(since), qp: Some(qp), ..line })?;
    }
    Ok(())
}

fn write(out: &mut dyn Write, line: &Line<'_>) -> Result {
    writeln!(out, "{}", serde_json::to_string(line).map_err(Failure::new)?)?;
    Ok(())
}

/// Looks what waits, and again a second later if anything does.
fn looked_at(registry: &'static Registry, asked: &Asked) -> Waits {
    let is_asked = |process: &Process| process.alive && asked.is_of(process);
    let of: Vec<_> = registry.processes().into_iter().filter(is_asked).collect();
    let of = of.iter().map(|process| process.announcer);
    let mut waits = Waits::new(registry);
    waits.look(of.clone());
    if waits.is_any() {
        std::thread::sleep(Duration::from_nanos(waits::LONG));
        waits.look(of);
    }
    waits
}

/// The process that a revocation waits for, by its PID, and a sentence for people.
fn revocation(processes: &[Process], process: &Process) -> Option<(u32, String)> {
    let pid = process.waits_for?;
    // The PID is one of the waiting process's PID namespace.
    let is_other = |other: &&Process| other.pid == pid && other.shares_pids == process.shares_pids;
    let other = processes.iter().find(is_other);
    let other = other.map_or_else(|| format!("PID {pid}"), who);
    let sentence = format!(
        "a revocation of a key waits for {other}, which has begun an access with this key and does \
         not finish it. If that process was stopped, let it continue (`kill -CONT {pid}`), or end it"
    );
    Some((pid, sentence))
}
