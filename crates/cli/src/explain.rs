//! `transom explain`: why accesses and calls were refused.

mod json;

use crate::clock::{self, Ago};
use crate::devices::{self, registry};
use crate::failure::{Failure, Result};
use crate::packets;
use anstyle::{AnsiColor, Style};
use serde::Serialize;
use std::io::Write;
use transom_device::qp::QpNumber;
use transom_system::registry::{Fate, Process, Record, Registry, Role};

const EXAMPLES: &str = "\
Examples:
  transom explain --limit 1
  transom explain --json | jq 'select(.reason == \"past_end\") | .outside_by'";

const FIELDS: &str = "\
With --json, each line is one refusal, an object (numbers are whole, up to 64 bits; null where
there is nothing to say). Of an access that was refused it has these fields:
  time_ns      when, in nanoseconds since 1970
  pid          the process whose device refused
  process      the name of its program
  alive        whether it runs and has its device open
  device       open; closed, by a process that may still run; or ended, with its process
  role         \"target\": it refused a peer's request; \"origin\": its own work request
  reason       why, such as past_end, below_start, free_window, stale_key, unknown_index,
               right_missing, other_qp, other_pd, memory_gone
  code         the number of the reason; the completion has it as its vendor_err, except at the
               origin of a request that came over the wire
  rule         the rule that refuses
  operation    write, read, atomic, atomic_write, flush, send, remote_invalidate (asked for by a
               peer); local_read, local_write, bind, invalidate (its own)
  address      the first address of the range, as the request names it
  length       the bytes of the range
  key          the key of the request
  outside_by   for past_end and below_start: how many bytes beyond its end or before its start
  qp           the queue pair that refused
  peer_qp      the queue pair at the other end
  pd           the protection domain of the queue pair that refused
  qp_access    what the queue pair itself allows its peer, a list such as [\"REMOTE_READ\"]
  room         for receive_too_small: the bytes of the receive
  object       what the key named then, or null:
    kind       region, null_region, window_1, window_2a, window_2b
    state      valid (a region, or a bound window), free (a window), changing
    base       its first address, as requests name it
    length     its bytes
    access     the rights it grants, a list
    pd         its protection domain
    qp         the queue pair that bound it (windows)
    wr_id      the work request that bound it (windows)
    age_ns     for how long it had been registered or bound
  sentence     all that for a person, as it is printed without --json

Of a call that was refused at once, such as of ibv_create_qp, it has these:
  time_ns, pid, process, alive, device
               as above
  role         \"caller\"
  reason       why, such as too_much, unsupported, invalid, unknown, missing, wrong_state,
               unreachable
  rule         the rule that refuses; null if there is none of that subject
  verb         the verb that was called
  errno        the number that it answered, or set
  field        the field of its arguments that is wrong
  value        what the field was; of a modify, the attributes or the state that are wrong
  limit        what it may be at most; of a modify, the state to go to; for unreachable, value and
               limit are the two halves of the GID
  qp           the queue pair that the call was about
  sentence     all that for a person

Of work that came to nothing otherwise, such as a request that nobody answered, it has these:
  time_ns, pid, process, alive, device
               as above
  role         \"origin\": its own work request; \"target\": what came for it
  reason       why: unanswered, not_ready, bad_response, refused_there, unfit, flushed, overrun,
               dropped
  status       the status of the completion, such as IBV_WC_RETRY_EXC_ERR; null if there is none
  wr_id        the work request, if it is one
  qp           the queue pair
  peer_qp      the queue pair at the other end
  sentence     all that for a person

Of a connection that did not come about it has these:
  time_ns, pid, process, alive, device
               as above
  role         \"active\": it asked for the connection; \"passive\": it was asked
  reason       why: rejected, unreachable, nobody_there, not_served, no_route (active); refused,
               backlog_full (passive)
  code         the number of the peer's reason or status, or the errno
  source       the address and port that asked
  destination  the address and port that was asked
  nearest_port of a port that nobody listens on, the nearest one that somebody listens on
  said         what the program that refused has said, if it is text
  sentence     all that for a person

Examples:
  transom explain --limit 1
  transom explain --json | jq 'select(.reason == \"past_end\") | .outside_by'";

/// Say why accesses, calls and connections were refused, newest first, and why packets were dropped.
///
/// Each process keeps its last 64 refusals, also for a while after it has closed its device or ended,
/// and counts the packets that it dropped; those of such processes are told of with --pid. Only
/// processes of the same user and network namespace are seen. The rules that the sentences name
/// are those of spec/rules.md in Transom's source.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = FIELDS, verbatim_doc_comment)]
pub(crate) struct ExplainArgs {
    /// Print one JSON object a line; its fields are described by --help.
    #[arg(long)]
    json: bool,
    /// Print at most this many.
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Print those of one process only.
    #[arg(long)]
    pid: Option<u32>,
}

/// A refusal, and who refused.
struct Refused {
    process: Process,
    record: Record,
}

pub(crate) fn run(args: &ExplainArgs) -> Result {
    let registry = registry()?;
    let refusals = collect(registry, args.pid);
    if args.json {
        let mut out = std::io::stdout().lock();
        for refused in refusals.iter().take(args.limit) {
            let line = serde_json::to_string(&json::line(refused)).map_err(Failure::new)?;
            writeln!(out, "{line}")?;
        }
        return Ok(());
    }
    print(&refusals, args)?;
    print_dropped(registry, args.pid)?;
    print_waiting(registry, args.pid)
}

/// What all processes have noted, newest first; of a certain one also what others refused it.
fn collect(registry: &Registry, pid: Option<u32>) -> Vec<Refused> {
    let mut all = Vec::new();
    for slot in 0..=u8::MAX {
        let Some(process) = registry.process(slot) else { continue };
        let records = registry.records(slot);
        // If another process has taken the slot meanwhile, it is not clear whose they are.
        let now = registry.process(slot);
        if now.is_none_or(|now| now.announcer != process.announcer) {
            continue;
        }
        let refused = |record| Refused { process: process.clone(), record };
        all.extend(records.into_iter().map(refused));
    }
    if let Some(pid) = pid {
        let slots: Vec<_> = registry.processes().into_iter().filter(|it| it.pid == pid).collect();
        let peers: Vec<_> = all.iter().filter(|it| it.process.pid == pid).map(unanswered).collect();
        all.retain(|it| {
            it.process.pid == pid
                || slots.iter().any(|asker| is_told_to(&it.record, asker.announcer.slot))
                || peers.iter().flatten().any(|peer| has_dropped(&it.record, *peer))
        });
    }
    all.sort_by_key(|refused| std::cmp::Reverse(refused.record.time()));
    all
}

/// Whether a process noted it of a request of the process in a slot.
fn is_told_to(record: &Record, slot: u8) -> bool {
    let peer = match record {
        Record::Access(record) if record.role() == Role::Target => record.peer,
        Record::Work(record) if record.work.is_none() => record.peer,
        _ => return false,
    };
    QpNumber::from_bits(peer).slot() == slot
}

/// The queue pair that has not answered.
fn unanswered(refused: &Refused) -> Option<u32> {
    let Record::Work(record) = &refused.record else { return None };
    matches!(record.fate, Fate::Unanswered { .. }).then_some(record.peer)
}

/// Whether it is a message that was dropped which came to this queue pair by a packet, which does not say of whom.
fn has_dropped(record: &Record, qp: u32) -> bool {
    let Record::Work(record) = record else { return false };
    matches!(record.fate, Fate::Dropped(_)) && (record.qp, record.peer) == (qp, 0)
}

fn print(refusals: &[Refused], args: &ExplainArgs) -> Result {
    const TIME: Style = AnsiColor::Cyan.on_default();
    const DIM: Style = Style::new().dimmed();
    let mut out = anstream::stdout().lock();
    if refusals.is_empty() {
        match args.pid {
            Some(pid) => writeln!(out, "No refusals of process {pid}.")?,
            None => writeln!(out, "No refusals: nothing of yours was denied an access.")?,
        }
        writeln!(
            out,
            "When the device refuses a READ, WRITE, atomic, bind or invalidation, the reason shows \
             up here:\nwhich key and range, whose window or region, its bounds and rights, and how \
             far outside.\nSo does a call that it refuses at once: which argument, and what it may \
             be.\n`transom demo` has two accesses refused."
        )?;
    }
    let now = clock::now();
    for Refused { process, record } in refusals.iter().take(args.limit) {
        let time = clock::local(record.time(), now);
        let ago = Ago(now.saturating_sub(record.time()));
        writeln!(out, "{TIME}{time}{TIME:#} {DIM}({ago}){DIM:#}  {}", who(process))?;
        writeln!(out, "  {record}")?;
    }
    let left = refusals.len().saturating_sub(args.limit);
    if left > 0 {
        writeln!(out, "{left} older; --limit {} shows all.", refusals.len())?;
    }
    Ok(())
}

fn who(process: &Process) -> String {
    let Process { name, pid, shares_pids, .. } = process;
    let device = match Device::of(process) {
        Device::Open => "",
        Device::Closed => " (device closed)",
        Device::Ended => " (ended)",
    };
    let space = if *shares_pids { "" } else { " in another PID namespace" };
    format!("{name}, PID {pid}{space}{device}")
}

/// What has become of a process's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Device {
    Open,
    /// By its process, which may still run.
    Closed,
    /// With its process.
    Ended,
}

impl Device {
    fn of(process: &Process) -> Self {
        match (process.alive, process.closed) {
            (true, _) => Self::Open,
            (false, true) => Self::Closed,
            (false, false) => Self::Ended,
        }
    }
}

/// Says why packets were dropped: by processes with a device, or by a certain one.
fn print_dropped(registry: &Registry, only: Option<u32>) -> Result {
    let mut out = anstream::stdout().lock();
    for process in registry.processes() {
        if only.map_or(!process.alive, |pid| process.pid != pid) {
            continue;
        }
        for line in packets::dropped(registry.counters(process.announcer.slot)) {
            writeln!(out, "{}: {line}.", who(&process))?;
        }
    }
    Ok(())
}

/// Says whom a revocation waits for.
fn print_waiting(registry: &'static Registry, only: Option<u32>) -> Result {
    let processes = registry.processes();
    let waiting = processes.iter().filter(|process| process.alive);
    let waiting = waiting.filter(|process| only.is_none_or(|pid| process.pid == pid));
    for process in waiting {
        for sentence in devices::unanswered(registry, process) {
            writeln!(anstream::stdout(), "{}: {sentence}", who(process))?;
        }
        let Some(pid) = process.waits_for else { continue };
        // It is a PID in the namespace of the one that waits.
        let is_other =
            |other: &&Process| other.pid == pid && other.shares_pids == process.shares_pids;
        let other = processes.iter().find(is_other);
        let other = other.map_or_else(|| format!("PID {pid}"), who);
        writeln!(
            anstream::stdout(),
            "{} is revoking a key right now and waits for {other}, which has begun an access with \
             it and does not go on. If it was stopped, let it continue (kill -CONT {pid}) or end \
             it.",
            who(process)
        )?;
    }
    Ok(())
}
