//! The real node_exporter of Debian reads the directory that `transom metrics` keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::{Scratch, Way, alone, interfaces_up};
use transom_conformance::programs::{Running, command, program};
use transom_conformance::watching::{Kept, counters};

use super::metrics::printed;

/// What an exporter answers at an address.
pub(crate) fn scraped(address: SocketAddr) -> Option<String> {
    let (head, body) = answered(address, "GET /metrics HTTP/1.0\r\n\r\n")?;
    let succeeds = head.starts_with("HTTP/1.") && head[8..].starts_with(" 200 ");
    succeeds.then_some(body)
}

/// What it answers a request: head and body.
pub(super) fn answered(address: SocketAddr, request: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.to_owned(), body.to_owned()))
}

/// The samples of the device whose names begin so, by name and labels.
fn samples(metrics: &str, name: &str) -> BTreeMap<(String, Vec<String>), f64> {
    let of = |line: &str| {
        let (sample, value) = line.split_once("} ")?;
        let (found, labels) = sample.split_once('{')?;
        let mut labels: Vec<_> = labels.split(',').map(str::to_owned).collect();
        labels.sort();
        let ours = found.starts_with(name) && labels.iter().any(|it| it == "device=\"transom0\"");
        ours.then(|| ((found.to_owned(), labels), value.parse().expect("a number")))
    };
    metrics.lines().filter_map(of).collect()
}

/// The counters of a port, and the names that node_exporter 1.10 gives to them. That of Debian knows fewer.
const OF_PORT: [(&str, &str); 45] = [
    ("VL15_dropped", "vl15_dropped_total"),
    ("excessive_buffer_overrun_errors", "excessive_buffer_overrun_errors_total"),
    ("link_downed", "link_downed_total"),
    ("link_error_recovery", "link_error_recovery_total"),
    ("local_link_integrity_errors", "local_link_integrity_errors_total"),
    ("multicast_rcv_packets", "multicast_packets_received_total"),
    ("multicast_xmit_packets", "multicast_packets_transmitted_total"),
    ("port_rcv_constraint_errors", "port_constraint_errors_received_total"),
    ("port_rcv_data", "port_data_received_bytes_total"),
    ("port_rcv_discards", "port_discards_received_total"),
    ("port_rcv_errors", "port_errors_received_total"),
    ("port_rcv_packets", "port_packets_received_total"),
    ("port_rcv_remote_physical_errors", "port_receive_remote_physical_errors_total"),
    ("port_rcv_switch_relay_errors", "port_receive_switch_relay_errors_total"),
    ("port_xmit_constraint_errors", "port_constraint_errors_transmitted_total"),
    ("port_xmit_data", "port_data_transmitted_bytes_total"),
    ("port_xmit_discards", "port_discards_transmitted_total"),
    ("port_xmit_packets", "port_packets_transmitted_total"),
    ("port_xmit_wait", "port_transmit_wait_total"),
    ("symbol_error", "symbol_error_total"),
    ("unicast_rcv_packets", "unicast_packets_received_total"),
    ("unicast_xmit_packets", "unicast_packets_transmitted_total"),
    ("hw/duplicate_request", "duplicate_requests_packets_total"),
    ("hw/implied_nak_seq_err", "implied_nak_seq_errors_total"),
    ("hw/local_ack_timeout_err", "local_ack_timeout_errors_total"),
    ("hw/np_cnp_sent", "np_cnp_packets_sent_total"),
    ("hw/np_ecn_marked_roce_packets", "np_ecn_marked_roce_packets_received_total"),
    ("hw/out_of_buffer", "out_of_buffer_drops_total"),
    ("hw/out_of_sequence", "out_of_sequence_packets_received_total"),
    ("hw/packet_seq_err", "packet_sequence_errors_total"),
    ("hw/req_cqe_error", "req_cqes_errors_total"),
    ("hw/req_cqe_flush_error", "req_cqes_flush_errors_total"),
    ("hw/req_remote_access_errors", "req_remote_access_errors_total"),
    ("hw/req_remote_invalid_request", "req_remote_invalid_request_errors_total"),
    ("hw/resp_cqe_error", "resp_cqes_errors_total"),
    ("hw/resp_cqe_flush_error", "resp_cqes_flush_errors_total"),
    ("hw/resp_local_length_error", "resp_local_length_errors_total"),
    ("hw/resp_remote_access_errors", "resp_remote_access_errors_total"),
    ("hw/rnr_nak_retry_err", "rnr_nak_retry_packets_received_total"),
    ("hw/rp_cnp_handled", "rp_cnp_packets_handled_total"),
    ("hw/rp_cnp_ignored", "rp_cnp_ignored_packets_received_total"),
    ("hw/rx_atomic_requests", "rx_atomic_requests_total"),
    ("hw/rx_icrc_encapsulated", "rx_icrc_encapsulated_errors_total"),
    ("hw/rx_read_requests", "rx_read_requests_total"),
    ("hw/rx_write_requests", "rx_write_requests_total"),
];

const OURS: &str = "node_infiniband_";

/// `transom metrics` tells all that a real exporter tells, and what newer ones do.
fn tells_the_same(exporter: &str, transom: &str) {
    let (theirs, ours) = (samples(exporter, OURS), samples(transom, OURS));
    for (sample, value) in &theirs {
        assert_eq!(ours.get(sample), Some(value), "{sample:?} in {transom}");
    }
    let names = theirs.keys().map(|(name, _)| name.clone());
    let newer = OF_PORT.map(|(_, name)| name).into_iter().chain(["lifespan_seconds"]);
    let expected: BTreeSet<_> = names.chain(newer.map(|name| format!("{OURS}{name}"))).collect();
    let found: BTreeSet<_> = ours.keys().map(|(name, _)| name.clone()).collect();
    assert_eq!(found, expected);
}

/// `transom metrics` tells each counter of the port as it is, under its name there.
pub(super) fn metrics_tell_the_counters() {
    let (counters, metrics) = until("counters that stay as they are", || {
        let (before, metrics) = (counters(), printed());
        (before == counters()).then_some((before, metrics))
    });
    for (counter, name) in OF_PORT {
        // The files count in units of four bytes.
        let unit = if name.contains("_bytes_") { 4 } else { 1 };
        let told = value(&metrics, &format!("{OURS}{name}{{device=\"transom0\",port=\"1\"}}"));
        assert_eq!(told as u64, counters[counter] * unit, "{counter} as {name} in {metrics}");
    }
}

/// The value of a sample.
pub(crate) fn value(metrics: &str, sample: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    let line = line.unwrap_or_else(|| panic!("no {sample} in {metrics}"));
    line.split(' ').next().and_then(|value| value.parse().ok()).expect("a number")
}

/// The exporter tells of the device as of an adapter, with the counts that the traffic made, while it changes.
fn exported() {
    interfaces_up();
    let it = MemoryPair::new(Link::Local, 8192);
    let kept = Kept::new("exported");
    let address: SocketAddr = "127.0.0.1:9100".parse().expect("an address");
    let mut exporter =
        Command::new(program("prometheus-node-exporter", "prometheus-node-exporter"));
    exporter
        .arg(format!("--path.sysfs={}", kept.path().display()))
        .arg(format!("--web.listen-address={address}"))
        .args(["--collector.disable-defaults", "--collector.infiniband", "--collector.netclass"])
        .stderr(Stdio::null());
    let _exporter = Running::start(&mut exporter);
    // Everything else of the host is there too. Other tests make and remove interfaces, and the exporter gives up if one
    // goes while it reads them.
    let netclass = "node_scrape_collector_success{collector=\"netclass\"}";
    let metrics =
        until("the exporter", || scraped(address).filter(|it| value(it, netclass) == 1.0));
    let labels = "{device=\"transom0\",port=\"1\"}";
    let count = |metrics: &str, name: &str| {
        value(metrics, &format!("node_infiniband_{name}{labels}")) as u64
    };
    assert_eq!(count(&metrics, "state_id"), 4);
    assert_eq!(value(&metrics, "node_scrape_collector_success{collector=\"infiniband\"}"), 1.0);
    for _ in 0..10 {
        let done = it.op(IBV_WR_RDMA_WRITE, it.far.addr(), it.key(), 3000);
        assert_eq!(done.status, IBV_WC_SUCCESS);
    }
    let expected = [
        ("port_packets_transmitted_total", 30),
        ("port_packets_received_total", 30),
        // The exporter makes bytes of it.
        ("port_data_transmitted_bytes_total", 30_480),
        ("port_data_received_bytes_total", 30_480),
        ("unicast_packets_transmitted_total", 30),
        ("port_errors_received_total", 0),
    ];
    let metrics = until("the counts", || {
        let metrics = scraped(address)?;
        let found = expected.map(|(name, _)| (name, count(&metrics, name)));
        let last = found[1].1;
        assert!(last <= 30, "{found:?}");
        (found == expected).then_some(metrics)
    });
    assert_eq!(kept.counters(), counters());
    tells_the_same(&metrics, &printed());
    kept.end();
}

/// Rules: SEE-06, SEE-07
#[test]
fn node_exporter_tells_of_the_device() {
    alone(path_of!("node_exporter_tells_of_the_device"), Way::Namespace, exported);
}

/// Rules: SEE-06
#[test]
fn a_directory_of_somebody_else_is_left_alone() {
    let scratch = Scratch::new("of-somebody-else");
    let file = scratch.path().join("file");
    std::fs::write(&file, "theirs").expect("a file");
    let mut transom = Command::new(&command()[0]);
    let refused = transom.args(["metrics", "--sysfs"]).arg(scratch.path()).output();
    let refused = refused.expect("the command");
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("it is not empty"), "{said}");
    assert_eq!(std::fs::read(&file).expect("still there"), b"theirs");
}
