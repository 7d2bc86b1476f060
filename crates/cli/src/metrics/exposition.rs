//! The counters as OpenMetrics: those that exist elsewhere under their names there (`node_infiniband_…`), the others as
//! `transom_…`, by process.

use super::seen::{Seen, SeenDevice, SeenProcess};
use crate::run::tree::{BOARD_ID, HCA_TYPE};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry as Metrics;
use std::collections::HashMap;
use std::fmt;
use transom_device::execution::Tally;
use transom_device::operation::Operation;
use transom_device::protection::Reason;
use transom_ibverbs::FW_VER;
use transom_system::latency::{self, Times};
use transom_system::registry::Dropped;
use transom_system::traffic::{Amount, Carried, Totals, Way};

/// The content types of OpenMetrics, and of the older format.
pub(super) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
pub(super) const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The names that node_exporter gives to the counters of a port, of which it has more from version to version.
const OF_PORT: [(&str, &str, &str); 45] = [
    ("VL15_dropped", "vl15_dropped", "Incoming VL15 packets dropped"),
    ("excessive_buffer_overrun_errors", "excessive_buffer_overrun_errors", "Buffer overruns"),
    ("link_downed", "link_downed", "Times the link went down"),
    ("link_error_recovery", "link_error_recovery", "Times the link recovered from an error"),
    ("local_link_integrity_errors", "local_link_integrity_errors", "Local physical errors"),
    ("multicast_rcv_packets", "multicast_packets_received", "Multicast packets received"),
    ("multicast_xmit_packets", "multicast_packets_transmitted", "Multicast packets transmitted"),
    (
        "port_rcv_constraint_errors",
        "port_constraint_errors_received",
        "Packets of another partition",
    ),
    ("port_rcv_data", "port_data_received_bytes", "Bytes received"),
    ("port_rcv_discards", "port_discards_received", "Packets received that nobody took"),
    ("port_rcv_errors", "port_errors_received", "Packets received with an error"),
    ("port_rcv_packets", "port_packets_received", "Packets received"),
    (
        "port_rcv_remote_physical_errors",
        "port_receive_remote_physical_errors",
        "Packets marked bad by a switch",
    ),
    ("port_rcv_switch_relay_errors", "port_receive_switch_relay_errors", "Packets not relayed"),
    (
        "port_xmit_constraint_errors",
        "port_constraint_errors_transmitted",
        "Packets not transmitted for a constraint",
    ),
    ("port_xmit_data", "port_data_transmitted_bytes", "Bytes transmitted"),
    ("port_xmit_discards", "port_discards_transmitted", "Packets that had no way out"),
    ("port_xmit_packets", "port_packets_transmitted", "Packets transmitted"),
    ("port_xmit_wait", "port_transmit_wait", "Times that packets waited for room"),
    ("symbol_error", "symbol_error", "Minor link errors"),
    ("unicast_rcv_packets", "unicast_packets_received", "Unicast packets received"),
    ("unicast_xmit_packets", "unicast_packets_transmitted", "Unicast packets transmitted"),
    // From here on those of `hw_counters`.
    ("duplicate_request", "duplicate_requests_packets", "Packets of peers that had come before"),
    (
        "implied_nak_seq_err",
        "implied_nak_seq_errors",
        "Answers that showed that an earlier one is missing",
    ),
    ("local_ack_timeout_err", "local_ack_timeout_errors", "Times that no answer came in time"),
    ("np_cnp_sent", "np_cnp_packets_sent", "Congestion notifications sent"),
    (
        "np_ecn_marked_roce_packets",
        "np_ecn_marked_roce_packets_received",
        "Packets received that a congested network had marked",
    ),
    ("out_of_buffer", "out_of_buffer_drops", "Messages that found no receive"),
    ("out_of_sequence", "out_of_sequence_packets_received", "Packets of peers that came too early"),
    ("packet_seq_err", "packet_sequence_errors", "Times that a peer missed a packet and said so"),
    ("req_cqe_error", "req_cqes_errors", "Requests that ended in error"),
    ("req_cqe_flush_error", "req_cqes_flush_errors", "Requests that were flushed"),
    ("req_remote_access_errors", "req_remote_access_errors", "Accesses that a peer refused"),
    (
        "req_remote_invalid_request",
        "req_remote_invalid_request_errors",
        "Requests that a peer refused as invalid",
    ),
    ("resp_cqe_error", "resp_cqes_errors", "Receives that ended in error"),
    ("resp_cqe_flush_error", "resp_cqes_flush_errors", "Receives that were flushed"),
    ("resp_local_length_error", "resp_local_length_errors", "Messages longer than their receive"),
    (
        "resp_remote_access_errors",
        "resp_remote_access_errors",
        "Accesses of peers that were refused",
    ),
    ("rnr_nak_retry_err", "rnr_nak_retry_packets_received", "Times that a peer had no receive"),
    (
        "rp_cnp_handled",
        "rp_cnp_packets_handled",
        "Congestion notifications that slowed a queue pair down",
    ),
    (
        "rp_cnp_ignored",
        "rp_cnp_ignored_packets_received",
        "Congestion notifications that changed nothing",
    ),
    ("rx_atomic_requests", "rx_atomic_requests", "Atomics carried out for peers"),
    ("rx_icrc_encapsulated", "rx_icrc_encapsulated_errors", "Packets with a wrong ICRC"),
    ("rx_read_requests", "rx_read_requests", "READs carried out for peers"),
    ("rx_write_requests", "rx_write_requests", "WRITEs carried out for peers"),
];

/// What was seen, as text.
pub(super) fn text(seen: Seen) -> Result<String, fmt::Error> {
    let mut metrics = Metrics::default();
    metrics.register_collector(Box::new(seen));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &metrics)?;
    Ok(text)
}

/// OpenMetrics in the older text format, for those who do not ask for it. There a counter is declared by the name of its
/// samples, and nothing marks the end.
pub(super) fn plain(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| *line != "# EOF").collect();
    let counter =
        |line: &str| line.strip_prefix("# TYPE ")?.strip_suffix(" counter").map(str::to_owned);
    let mut plain = String::new();
    for (index, line) in lines.iter().enumerate() {
        // The help of a metric stands before its type.
        let next = lines.get(index + 1).and_then(|next| counter(next));
        let help = next.and_then(|name| {
            let help = line.strip_prefix("# HELP ")?.strip_prefix(name.as_str())?;
            Some(format!("# HELP {name}_total{help}"))
        });
        let kind = counter(line).map(|name| format!("# TYPE {name}_total counter"));
        plain += &help.or(kind).unwrap_or_else(|| (*line).to_owned());
        plain.push('\n');
    }
    plain
}

/// The labels of a sample.
type Labels = Vec<(&'static str, String)>;

/// The value of a sample.
enum Value {
    Whole(u64),
    Seconds(u64),
    Times(Box<Times>),
}

/// A metric with its samples. The encoder adds `_total` to the name of a counter.
struct Metric {
    name: String,
    help: String,
    kind: MetricType,
    samples: Vec<(Labels, Value)>,
}

impl Metric {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(&self.name, &self.help, None, self.kind)?;
        for (labels, value) in &self.samples {
            let mut sample = family.encode_family(labels)?;
            let no_exemplar = None::<&Exemplar<Labels, f64>>;
            match (self.kind, value) {
                (MetricType::Counter, Value::Whole(value)) => {
                    sample.encode_counter(value, no_exemplar)?;
                }
                (MetricType::Counter, Value::Seconds(nanoseconds)) => {
                    sample.encode_counter(&seconds(*nanoseconds), no_exemplar)?;
                }
                (_, Value::Times(times)) => sample.encode_histogram(
                    seconds(times.sum),
                    times.count(),
                    &buckets(times),
                    None::<&HashMap<usize, Exemplar<Labels, f64>>>,
                )?,
                (_, Value::Whole(value)) => sample.encode_gauge(value)?,
                (_, Value::Seconds(nanoseconds)) => sample.encode_gauge(&seconds(*nanoseconds))?,
            }
        }
        Ok(())
    }
}

/// The buckets, each with its limit in seconds.
fn buckets(times: &Times) -> Vec<(f64, u64)> {
    let limit = |bucket| latency::limit_of(bucket).map_or(f64::INFINITY, seconds);
    times.buckets.iter().enumerate().map(|(bucket, count)| (limit(bucket), *count)).collect()
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

impl Collector for Seen {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        of_port(self).chain(of_processes(self)).try_for_each(|metric| metric.encode(&mut encoder))
    }
}

/// The metrics that an adapter's port has too.
fn of_port(seen: &Seen) -> impl Iterator<Item = Metric> {
    let metric = move |name: &str, help: &str, kind, value: &dyn Fn(&SeenDevice) -> u64| {
        let samples = seen.devices.iter().map(|device| {
            let labels = vec![("device", device.name.clone()), ("port", "1".to_owned())];
            (labels, Value::Whole(value(device)))
        });
        let (name, samples) = (format!("node_infiniband_{name}"), samples.collect());
        Metric { name, help: help.to_owned(), kind, samples }
    };
    let counters = OF_PORT.into_iter().map(move |(file, name, help)| {
        // The files count in units of four bytes.
        let unit = if file.ends_with("_data") { 4 } else { 1 };
        metric(name, help, MetricType::Counter, &|it| it.port_counter(file).wrapping_mul(unit))
    });
    let state =
        metric("state_id", "State of the port (4: active)", MetricType::Gauge, &|it| it.state);
    let physical = "Physical state of the port (5: link up)";
    let physical =
        metric("physical_state_id", physical, MetricType::Gauge, &|it| it.physical_state);
    let rate = "Fastest rate that the port reports";
    let rate = metric("rate_bytes_per_second", rate, MetricType::Gauge, &|it| it.rate);
    let age = metric("lifespan_seconds", "Age of the values at most", MetricType::Gauge, &|it| {
        it.port_counter("lifespan") / 1000
    });
    let info = seen.devices.iter().map(|device| {
        let labels = vec![
            ("board_id", BOARD_ID.to_owned()),
            ("device", device.name.clone()),
            ("firmware_version", FW_VER.to_string_lossy().into_owned()),
            ("hca_type", HCA_TYPE.to_owned()),
        ];
        (labels, Value::Whole(1))
    });
    let info = Metric {
        name: "node_infiniband_info".to_owned(),
        help: "What the device is".to_owned(),
        kind: MetricType::Gauge,
        samples: info.collect(),
    };
    counters.chain([state, physical, rate, age, info])
}

/// A row of a process: what tells it from others of the same metric, and its value.
type Row = (Labels, Value);

/// What is told of each process: name, help, kind, and the rows.
type OfProcess = (&'static str, &'static str, MetricType, fn(&SeenProcess) -> Vec<Row>);

const OF_PROCESS: [OfProcess; 15] = [
    (
        "messages",
        "Requests that ended well, at the origin (sent) and at the target (received)",
        MetricType::Counter,
        |process| flows(process, |amount| amount.messages),
    ),
    ("message_bytes", "Their bytes, without headers", MetricType::Counter, |process| {
        flows(process, |amount| amount.bytes)
    }),
    (
        "refusals",
        "Accesses that were refused, by reason, with all rules that have it",
        MetricType::Counter,
        refusals,
    ),
    ("binds", "Windows that were bound", MetricType::Counter, |process| {
        one(process.all().tally(Tally::Bound))
    }),
    (
        "invalidations",
        "Keys that were invalidated, by this process or by a peer",
        MetricType::Counter,
        |process| {
            let by = [("itself", Tally::Invalidated), ("peer", Tally::InvalidatedByPeer)];
            by.map(|(by, tally)| row("by", by, process.all().tally(tally))).into()
        },
    ),
    ("open_windows", "Windows that peers may use now", MetricType::Gauge, |process| {
        one(process.open.windows)
    }),
    (
        "open_bytes",
        "Bytes that peers may use now, by what opens them",
        MetricType::Gauge,
        |process| {
            let by = [("window", process.open.in_windows), ("region", process.open.in_regions)];
            by.map(|(by, bytes)| row("by", by, bytes)).into()
        },
    ),
    ("not_ready", "Times a peer had no receive", MetricType::Counter, |process| {
        one(process.all().tally(Tally::NotReady))
    }),
    (
        "not_ready_seconds",
        "Time that peers without a receive asked to wait",
        MetricType::Counter,
        |process| vec![(Vec::new(), Value::Seconds(process.all().tally(Tally::NotReadyTime)))],
    ),
    ("no_receive", "Messages of peers that found no receive", MetricType::Counter, |process| {
        one(process.all().tally(Tally::NoReceive))
    }),
    ("retransmissions", "Why requests were sent again", MetricType::Counter, |process| {
        let why = [
            ("timeout", Tally::Timeout),
            ("sequence_error", Tally::SequenceError),
            ("implied_sequence_error", Tally::ImpliedSequenceError),
        ];
        why.map(|(why, tally)| row("reason", why, process.all().tally(tally))).into()
    }),
    (
        "latency_seconds",
        "Time from post to completion of requests that ended well, while somebody wants to know",
        MetricType::Histogram,
        latencies,
    ),
    ("queue_high_water", "The most work that waited in one queue", MetricType::Gauge, |process| {
        let all = process.all();
        let queues = [("send", all.most_sends), ("receive", all.most_receives)];
        queues.map(|(queue, most)| row("queue", queue, most)).into()
    }),
    ("objects", "Objects that the process has", MetricType::Gauge, |process| {
        process.objects.iter().map(|(kind, count)| row("kind", kind, *count)).collect()
    }),
    ("packets_dropped", "Packets that were dropped, by reason", MetricType::Counter, |process| {
        let dropped = |why: Dropped| row("reason", why.name(), process.packets.dropped(why));
        Dropped::ALL.map(dropped).into()
    }),
];

fn one(value: u64) -> Vec<Row> {
    vec![(Vec::new(), Value::Whole(value))]
}

fn row(label: &'static str, text: &str, value: u64) -> Row {
    (vec![(label, text.to_owned())], Value::Whole(value))
}

fn of_processes(seen: &Seen) -> impl Iterator<Item = Metric> {
    OF_PROCESS.into_iter().map(|(name, help, kind, rows)| {
        let samples = seen.processes.iter().flat_map(|process| {
            let labels = || {
                let device = ("device", process.device.clone());
                vec![device, ("pid", process.pid.to_string()), ("process", process.name.clone())]
            };
            rows(process)
                .into_iter()
                .map(move |(more, value)| (labels().into_iter().chain(more).collect(), value))
        });
        Metric {
            name: format!("transom_{name}"),
            help: help.to_owned(),
            kind,
            samples: samples.collect(),
        }
    })
}

/// One row for each direction, way and operation.
fn flows(process: &SeenProcess, value: fn(&Amount) -> u64) -> Vec<Row> {
    type Of = fn(&Totals, Way, Carried) -> Amount;
    let directions: [(&str, Of); 2] = [("sent", Totals::sent), ("received", Totals::received)];
    let mut rows = Vec::new();
    for (direction, of) in directions {
        for (way, link) in [(Way::Host, "host"), (Way::Wire, "wire")] {
            for kind in Carried::ALL {
                let labels = vec![
                    ("direction", direction.to_owned()),
                    ("link", link.to_owned()),
                    ("operation", kind.name().to_owned()),
                ];
                rows.push((labels, Value::Whole(value(&of(process.all(), way, kind)))));
            }
        }
    }
    rows
}

/// One row for each operation and class of sizes. The size is the most bytes that the class has.
fn latencies(process: &SeenProcess) -> Vec<Row> {
    let rows = process.times.iter().map(|(kind, class, times)| {
        let size = latency::SIZES.get(*class).map_or_else(|| "+Inf".to_owned(), u64::to_string);
        let labels = vec![("operation", kind.name().to_owned()), ("size", size)];
        (labels, Value::Times(Box::new(*times)))
    });
    rows.collect()
}

/// One row for each reason that there was. Some reasons have a rule for each operation.
fn refusals(process: &SeenProcess) -> Vec<Row> {
    let counted = Reason::ALL.iter().map(|reason| (*reason, process.totals.refusals(*reason)));
    let rows = counted.filter(|(_, count)| *count > 0).map(|(reason, count)| {
        let mut rules: Vec<_> = Operation::ALL.iter().map(|it| reason.rule(*it)).collect();
        rules.sort_unstable();
        rules.dedup();
        let labels = vec![("reason", reason.to_string()), ("rules", rules.join(" "))];
        (labels, Value::Whole(count))
    });
    rows.collect()
}
