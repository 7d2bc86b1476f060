//! One look as a JSON object on a line. `transom top --help` describes the fields.

use super::screen::service;
use super::view::{Flow, Latency, Links, Process, QueuePair, Span, Stage, View};
use crate::explain::json::{kind, length};
use crate::failure::Result;
use crate::lines::{self, Exact};
use serde_json::{Value, json};
use std::io::stdout;

pub(super) fn print(view: &View) -> Result {
    Ok(lines::print(&mut stdout().lock(), &value(view))?)
}

fn value(view: &View) -> Value {
    let processes = view.processes.iter().map(|it| process(it, view));
    let refusals = view.refusals.iter().map(|it| Value::Object(it.fields.clone()));
    let revocations = view.revocations.iter().map(|it| Value::Object(it.fields.clone()));
    json!({
        "time_ns": Exact(view.time),
        "interval_ns": Exact(view.interval.as_nanos()),
        "processes": processes.collect::<Vec<_>>(),
        "refusals": refusals.collect::<Vec<_>>(),
        "revocations": revocations.collect::<Vec<_>>(),
    })
}

fn process(it: &Process, view: &View) -> Value {
    let queue_pairs = view.queue_pairs.iter().filter(|qp| qp.owner == it.stay).map(queue_pair);
    let latencies = view.latencies.iter().filter(|latency| latency.owner == it.stay).map(latency);
    let regions = view.regions.iter().filter(|region| region.owner == it.stay);
    let regions = regions.map(|region| span(region, None));
    let windows = view.windows.iter().filter(|window| window.span.owner == it.stay);
    let windows = windows.map(|window| span(&window.span, Some(window.qp)));
    let of_stage = |stage: Stage| {
        let of_it = view
            .connections
            .iter()
            .filter(move |entry| entry.owner == it.stay && entry.stage == stage);
        let ends = of_it.map(|entry| match &entry.peer {
            None => json!({ "port_space": entry.space, "local": entry.local }),
            Some(peer) => json!({ "local": entry.local, "peer": peer }),
        });
        ends.collect::<Vec<_>>()
    };
    let objects = it.objects.iter().map(|(name, count)| ((*name).to_owned(), (*count).into()));
    json!({
        "pid": it.pid,
        "process": it.name,
        "device_number": it.device,
        "other_pid_namespace": !it.shares_pids,
        "readable": !it.is_far,
        "waits_for": it.waits_for,
        "objects": Value::Object(objects.collect()),
        "open_window_bytes": Exact(it.in_windows),
        "open_region_bytes": Exact(it.in_regions),
        "open_windows": it.windows,
        "sent": links(it.load.sent),
        "received": links(it.load.received),
        "refused": it.refusals,
        "binds": it.binds,
        "invalidations": it.invalidations,
        "not_ready": it.not_ready,
        "retransmissions": it.retransmissions,
        "latencies": latencies.collect::<Vec<_>>(),
        "queue_pairs": queue_pairs.collect::<Vec<_>>(),
        "regions": regions.collect::<Vec<_>>(),
        "windows": windows.collect::<Vec<_>>(),
        "left_out": it.left_out,
        "listeners": of_stage(Stage::Listening),
        "connections": of_stage(Stage::Connected),
        "requests": of_stage(Stage::Asking),
    })
}

fn links(links: Links) -> Value {
    let flow = |flow: Flow| {
        json!({
            "messages": flow.messages,
            "bytes": Exact(flow.bytes),
            "messages_per_second": flow.message_rate,
            "bytes_per_second": flow.byte_rate,
        })
    };
    json!({ "host": flow(links.host), "wire": flow(links.wire) })
}

fn latency(it: &Latency) -> Value {
    json!({
        "operation": it.operation,
        "count": it.requests,
        "p50_ns": it.p50.map(Exact),
        "p99_ns": it.p99.map(Exact),
    })
}

fn queue_pair(it: &QueuePair) -> Value {
    json!({
        "qp": it.number,
        "transport": service(it.service),
        "state": it.state.name(),
        "peer_qp": it.peer,
        "peer_pid": it.peer_process.as_ref().map(|(pid, _)| pid),
        "sent": links(it.load.sent),
        "received": links(it.load.received),
        "sends": it.depths.map(|depths| depths.sends),
        "receives": it.depths.map(|depths| depths.receives),
        "completions": it.depths.map(|depths| depths.completions),
        "most_sends": it.most_sends,
        "most_receives": it.most_receives,
        "failed": it.failed,
        "not_ready": it.not_ready,
        "retransmissions": it.retransmissions,
    })
}

fn span(span: &Span, qp: Option<u32>) -> Value {
    let access: Vec<_> = span.access.iter_names().map(|(name, _)| name).collect();
    let mut value = json!({
        "kind": kind(span.kind),
        "key": span.key,
        "base": Exact(span.base),
        "length": length(span.length),
        "access": access,
    });
    if let Some(qp) = qp.filter(|qp| *qp != 0) {
        value["qp"] = qp.into();
    }
    value
}

#[cfg(test)]
mod tests {
    use super::super::{FIELDS, screen};
    use super::*;

    /// Rules: SEE-31
    #[test]
    fn the_help_lists_every_field() {
        let mut names = Vec::new();
        lines::field_names(&value(&screen::tests::view()), &mut names);
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let listed: Vec<_> = FIELDS.split(|letter| !is_word(letter)).collect();
        for name in names {
            assert!(listed.contains(&name.as_str()), "{name} is not in --help");
        }
    }
}
