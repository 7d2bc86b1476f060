//! `transom explain`: says why accesses, calls and connections were refused.
//!
//! | module | holds |
//! |---|---|
//! | `asked` | the processes that the user asks about, and their refusals |
//! | `groups` | refusals for people: equal ones once, with a count |
//! | `program` | what one program was refused, once it has failed |
//! | `follow` | refusals as they happen |
//! | `json` | a refusal as a line of JSON |
//! | `huatuo` | a refusal as a document of HUATUO |
//! | `rule` | the text of a rule |
//! | `symptom` | the usual causes of a status, an errno or an event |
//! | `waiting` | what running processes wait for |

mod asked;
mod follow;
mod groups;
mod huatuo;
pub(crate) mod json;
mod program;
mod rule;
mod symptom;
mod waiting;

use crate::clock;
use crate::devices::registry;
use crate::failure::Result;
use crate::layout::{self, Page};
use crate::packets;
use crate::sentence::counted;
pub(crate) use asked::{Asked, Refused};
pub(crate) use follow::Seen;
use groups::Order;
pub(crate) use huatuo::{Kind as DocumentKind, document};
pub(crate) use program::OfProgram;
use serde::Serialize;
use serde_json::Value;
use std::io::Write;
use std::time::Duration;
use transom_system::registry::{Process, Registry};

const EXAMPLES: &str = "\
Examples:
  transom explain --limit 1
  transom explain --follow --process ib_write_bw
  transom explain --rule RA-33
  transom explain IBV_WC_RETRY_EXC_ERR
  transom run --explain -- make check
  transom explain --json | jq 'select(.reason == \"past_end\") | .outside_by'";

const FIELDS: &str = "\
With --json, each line is an object for one refusal, or for something that waits. Numbers are integers;
what may have 64 bits is a text of decimal digits: time_ns, since_ns, address, length, outside_by, room,
base, age_ns, wr_id, value, limit. A field without a value is null. A refusal that happened several times
has several lines. A refused access has these fields:
  time_ns      when, in nanoseconds since 1970
  pid          the process whose device refused it
  process      the name of its program
  device_state  open; closed: the process may still run; or ended: with its process
  lost         how many older refusals of the process are lost
  role         \"target\": it refused a peer's request; \"origin\": its own work request
  reason       why, such as past_end, below_start, free_window, stale_key, unknown_index,
               right_missing, other_qp, other_pd, memory_gone
  code         the number of the reason; the completion has it as its vendor_err, except at the
               origin of a request that came over the wire
  rule         the rule that was broken
  operation    write, read, atomic, atomic_write, flush, send, remote_invalidate (asked for by a
               peer); local_read, local_write, bind, invalidate (its own)
  address      the first address of the range, as the request names it
  length       the bytes of the range
  key          the key of the request
  outside_by   for past_end and below_start: how many bytes past its end or before its start
  qp           the queue pair that refused
  peer_qp      the queue pair at the other end
  pd           the protection domain of the queue pair that refused
  qp_access    what the queue pair itself allows its peer, a list such as [\"REMOTE_READ\"]
  room         for receive_too_small: the bytes of the receive
  object       the region or window of the key, or null:
    kind       region, null_region, window_1, window_2a, window_2b
    state      valid (a region, or a bound window), free (a window), changing
    base       its first address, as requests name it
    length     its bytes; null if it covers all addresses
    access     the rights it grants, a list
    pd         its protection domain
    qp         the queue pair that bound it (windows)
    wr_id      the work request that bound it (windows)
    age_ns     for how long it had been registered or bound
  sentence     all that for people, as it is printed without --json

A call that was refused at once, such as ibv_create_qp, has time_ns, pid, process, device_state and
lost as above, and these fields:
  role         \"caller\"
  reason       why, such as too_much, unsupported, invalid, unknown, missing, wrong_state,
               unreachable; told, if only the sentence says it (functions of librdmacm);
               waits, for a call that has not returned for a second (errno is 0)
  rule         the rule that was broken; null if there is none
  verb         the verb that was called
  errno        the number that it returned, or set
  field        the field of its arguments that is wrong
  value        the field's value; of a modify, the wrong attributes or the wrong state
  limit        the most that it may be; of a modify, the state to go to; for unreachable, value and
               limit are the two halves of the GID
  qp           the queue pair that the call was about
  sentence     all that for people

Work that failed otherwise, such as a request that was not answered, has time_ns, pid, process,
device_state and lost as above, and these fields:
  role         \"origin\": its own work request; \"target\": a message for it
  reason       why: unanswered, not_ready, bad_response, refused_there, unfit, flushed, overrun,
               dropped, no_tag
  status       the status of the completion, such as IBV_WC_RETRY_EXC_ERR; null if there is none
  wr_id        the work request, if it is one
  qp           the queue pair
  peer_qp      the queue pair at the other end
  sentence     all that for people

A connection that failed has time_ns, pid, process, device_state and lost as above, and these fields:
  role          \"active\": it asked for the connection; \"passive\": it was asked
  reason        why: rejected, unreachable, nobody_there, not_served, no_route, not_joined,
                not_confirmed (active); refused, backlog_full (passive); device_removed,
                address_changed (either)
  code          the peer's reason or status, or the errno
  source        the address and port that asked
  destination   the address and port that was asked
  nearest_port  if nobody listens on the port: the port with its bytes swapped, if somebody listens
                there, or else the nearest that somebody listens on
  listens_at    if nobody listens at that address: another address where somebody listens on the port
  cause         for reason 28, if the peer gives it: program, destroyed, ended, not_taken
  said          the private data of the program that refused, if it is text
  sentence      all that for people

Behind them, and without --follow, comes what running processes have waited for, for a second or
longer. That takes a second, if anything waits. Each has time_ns (when it was seen), pid, process and
device_state as above, and these fields:
  role         \"waiter\"
  reason       not_ended: requests have not ended; no_completion: requests have ended, and none was
               signaled; not_polled: completions are there, and nobody polls; unanswered: nobody
               answers a request for a connection; revocation: a peer is in the middle of an access
  since_ns     when it was first seen to wait; null for a revocation
  qp           the queue pair; of a completion queue, the first one that it belongs to
  waits_for    the PID of the peer that a revocation waits for
  sentence     all that for people

Examples:
  transom explain --limit 1
  transom explain --follow --process ib_write_bw
  transom explain --rule RA-33
  transom explain IBV_WC_RETRY_EXC_ERR
  transom run --explain -- make check
  transom explain --json | jq 'select(.reason == \"past_end\") | .outside_by'";

/// Say why accesses, calls and connections were refused, newest first, and why packets were dropped
///
/// A refusal that happened several times is shown once, with a count. Each process keeps its last 64 refusals, and
/// counts the packets that it dropped. They stay when the process closes its device or ends, until about 254 other
/// devices have been opened. For the dropped packets of such a process use --pid. You see processes of your user in this
/// network namespace. Of processes that run, it also says what waits for a second or longer: requests that have not
/// ended, and completions that nobody polls.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = FIELDS)]
pub(crate) struct ExplainArgs {
    /// Print the usual causes of this status, errno, event or call, and no refusals
    #[arg(value_name = "SYMPTOM", exclusive = true)]
    symptom: Option<String>,
    /// Print one JSON object a line; --help lists its fields
    #[arg(long, conflicts_with = "huatuo")]
    json: bool,
    /// Print one document a line, as HUATUO stores events: the object of --json as tracer_data
    #[arg(long)]
    huatuo: bool,
    /// Print at most this many refusals
    #[arg(long, value_name = "N", default_value_t = 20, conflicts_with = "follow")]
    limit: usize,
    /// Print only those of this process
    #[arg(long)]
    pid: Option<u32>,
    /// Print only those of programs with this name
    #[arg(long, value_name = "NAME")]
    process: Option<String>,
    /// Print only those of this long ago until now, such as 30s, 5m, 2h, 1d
    #[arg(long, value_name = "TIME", value_parser = clock::parse_duration)]
    since: Option<Duration>,
    /// Print new ones as they happen, oldest first, until interrupted; --since adds older ones
    #[arg(long)]
    follow: bool,
    /// Print a rule, such as MR-04, and no refusals
    #[arg(long, value_name = "ID", exclusive = true)]
    rule: Option<String>,
}

/// Prints a refusal for programs.
type Form = fn(&mut dyn Write, &Refused) -> Result;

impl ExplainArgs {
    /// How programs want a refusal. None for people.
    fn form(&self) -> Option<Form> {
        match (self.json, self.huatuo) {
            (true, _) => Some(json::print),
            (_, true) => Some(huatuo::print),
            (false, false) => None,
        }
    }
}

pub(crate) fn run(args: &ExplainArgs) -> Result {
    if let Some(id) = &args.rule {
        return rule::print(id);
    }
    if let Some(name) = &args.symptom {
        return symptom::print(name);
    }
    let registry = registry()?;
    let since = args.since.map(|since| clock::now().saturating_sub(since.as_nanos() as u64));
    let (pid, process) = (args.pid, args.process.clone());
    let asked = Asked { pid, process, since: since.unwrap_or(0), ..Asked::default() };
    if args.follow {
        let since = since.unwrap_or_else(clock::now);
        return follow::print(registry, Asked { since, ..asked }, args.form());
    }
    asked.check(registry)?;
    let refusals = asked.refusals(registry);
    if let Some(print) = args.form() {
        let mut out = std::io::stdout().lock();
        refusals.iter().take(args.limit).try_for_each(|refused| print(&mut out, refused))?;
        // A document of HUATUO is stored for good, and a wait ends.
        return if args.json { waiting::print_lines(&mut out, registry, &asked) } else { Ok(()) };
    }
    let mut out = layout::stdout();
    let left = groups::print(&mut out, &refusals, Order::NewestFirst, args.limit)?;
    if left > 0 {
        out.text(format_args!("{left} older; --limit {} shows all.", args.limit + left))?;
    }
    print_lost(&mut out, &refusals)?;
    print_dropped(&mut out, registry, &asked)?;
    let waits = waiting::print(&mut out, registry, &asked)?;
    if refusals.is_empty() { print_none(&mut out, registry, &asked, waits) } else { Ok(()) }
}

/// Equal refusals, as others show them.
pub(crate) struct Told {
    newest: Refused,
    /// When the first of them was, in nanoseconds since 1970.
    pub(crate) first: u64,
    pub(crate) count: usize,
}

impl Told {
    /// All that are kept, newest first.
    pub(crate) fn all(registry: &Registry) -> Vec<Self> {
        groups::told(&Asked::default().refusals(registry))
    }

    /// When the newest of them was, in nanoseconds since 1970.
    pub(crate) fn time(&self) -> u64 {
        self.newest.record.time()
    }

    pub(crate) fn process(&self) -> &Process {
        &self.newest.process
    }

    /// The process, in words.
    pub(crate) fn who(&self) -> String {
        who(self.process())
    }

    pub(crate) fn sentence(&self) -> String {
        self.newest.record.to_string()
    }

    /// The newest of them, with the fields of `transom explain --json`.
    pub(crate) fn json(&self) -> Value {
        self.newest.json()
    }
}

/// Prints that there are none, how many processes were looked at, and where to read on.
fn print_none(
    out: &mut Page<impl Write>,
    registry: &Registry,
    asked: &Asked,
    waits: bool,
) -> Result {
    let whose = match (asked.pid, &asked.process) {
        (Some(pid), _) => format!(" of process {pid}"),
        (None, Some(name)) => format!(" of {name}"),
        (None, None) => String::new(),
    };
    let since = if asked.since > 0 { " since then" } else { "" };
    out.text(format_args!("No refusals{whose}{since}."))?;
    if waits {
        return Ok(());
    }
    out.text(
        "If the device refuses a READ, WRITE, atomic, bind or invalidation, you see the reason here: the \
         key and the range, the window or region with its bounds and rights, and how far outside the access \
         was. If it refuses a call at once, you see the argument, and what it may be. `transom demo` shows \
         two refused accesses.",
    )?;
    let processes = counted(registry.processes().len(), "process", "processes");
    out.text(format_args!(
        "Looked at {processes} of this user in this network namespace ({}).",
        registry.directory().display()
    ))?;
    out.text(
        "Usual causes of a status, an errno or an event: `transom explain IBV_WC_RETRY_EXC_ERR`.",
    )?;
    Ok(())
}

/// Prints which processes have lost older refusals.
fn print_lost(out: &mut Page<impl Write>, refusals: &[Refused]) -> Result {
    let mut told = Vec::new();
    for Refused { process, lost, .. } in refusals.iter().filter(|refused| refused.lost > 0) {
        if told.contains(&process.announcer) {
            continue;
        }
        told.push(process.announcer);
        let (are, refusals) = if *lost == 1 { ("is", "refusal") } else { ("are", "refusals") };
        let who = who(process);
        out.text(format_args!(
            "{who}: {lost} older {refusals} {are} lost; each process keeps its last 64."
        ))?;
    }
    Ok(())
}

/// A process, in words.
pub(crate) fn who(process: &Process) -> String {
    let Process { name, pid, shares_pids, .. } = process;
    let device = match Device::of(process) {
        Device::Open => "",
        Device::Closed => " (device closed)",
        Device::Ended => " (ended)",
    };
    let space = if *shares_pids { "" } else { " in another PID namespace" };
    format!("{name}, PID {pid}{space}{device}")
}

/// The state of a process's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Device {
    Open,
    /// The process has closed it, and may still run.
    Closed,
    /// The process has ended, or has closed descriptors of the device.
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

/// Prints why packets were dropped: by all processes with a device, or by one.
fn print_dropped(out: &mut Page<impl Write>, registry: &Registry, asked: &Asked) -> Result {
    for process in registry.processes() {
        let wanted = if asked.pid.is_some() { asked.is_of(&process) } else { process.alive };
        if !wanted || !asked.is_of(&process) {
            continue;
        }
        for line in packets::dropped(registry.counters(process.announcer.slot)) {
            out.text(format_args!("{}: {line}.", who(&process)))?;
        }
    }
    Ok(())
}
