//! `transom metrics`, for Prometheus: what it tells of known traffic, and whether its readers take it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use transom_abi::*;
use transom_conformance::documents::root;
use transom_conformance::forger::{FORGED, Forger, LENGTH, PEER, STRANGER};
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::{Scratch, Way, alone, interfaces_up, is_long};
use transom_conformance::programs::{Running, command, installed, program};
use transom_conformance::queues::number;
use transom_conformance::shared_receive::srq;
use transom_system::registry::Registry;
use transom_system::segment::Segment;
use transom_system::tools::{self, Tool};
use transom_wire::Psn;
use transom_wire::packet::{Ending, Operation, Packet, Transport};

use super::counters::flushing;
use super::exporters::{answered, scraped, value};
use super::losing::losing_a_write;
use super::packets::an_answer_is_missing;
use super::trace::python_with;

/// The metrics, printed once.
pub(super) fn printed() -> String {
    let output = Command::new(&command()[0]).arg("metrics").output().expect("the command");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The sum of the samples of a metric whose labels have all of these.
fn sum(metrics: &str, name: &str, labels: &[&str]) -> f64 {
    let samples = metrics.lines().filter_map(|line| {
        let (found, value) = line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once("} ")?;
        labels.iter().all(|label| found.contains(label)).then(|| value.parse::<f64>())
    });
    samples.map(|value| value.expect("a number")).sum()
}

/// The same of this process.
fn own(metrics: &str, name: &str, labels: &[&str]) -> f64 {
    let pid = format!("pid=\"{}\"", std::process::id());
    let labels: Vec<_> = labels.iter().copied().chain([pid.as_str()]).collect();
    sum(metrics, name, &labels)
}

/// What a metric tells of this process by one of its labels: these values, and zero for each other one. The other labels
/// have these.
pub(super) fn tells(
    metrics: &str,
    name: &str,
    label: &str,
    others: &[&str],
    expected: &[(&str, f64)],
) {
    let start = format!("{label}=\"");
    let of_it = metrics.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
    let samples: Vec<_> = of_it.collect();
    let values = samples.iter().map(|it| it.split_once(&start).expect("the label").1);
    let values: BTreeSet<_> = values.filter_map(|it| Some(it.split_once('"')?.0)).collect();
    assert!(expected.iter().all(|(value, _)| values.contains(value)), "{name}: {samples:#?}");
    for value in values {
        let count = expected.iter().find(|(it, _)| *it == value).map_or(0.0, |(_, count)| *count);
        let label = format!("{start}{value}\"");
        let labels = [others, &[&label]].concat();
        assert_eq!(own(metrics, name, &labels), count, "{name} {labels:?} in {samples:#?}");
    }
}

/// Five WRITEs, one of which is refused, a bind, and a SEND that finds no receive.
fn of_known_traffic() {
    let it = MemoryPair::new(Link::Loopback, 4096);
    let closed = printed();
    for _ in 0..4 {
        let done = it.op(IBV_WR_RDMA_WRITE, it.far.addr(), it.key(), 100);
        assert_eq!(done.status, IBV_WC_SUCCESS);
    }
    let (qa, qb) = it.pair.another(IBV_QPT_RC);
    let window = it.pair.b.mw(IBV_MW_TYPE_2);
    let access = IBV_ACCESS_REMOTE_WRITE;
    let key =
        bind(&it.pair.b, qb, window, Range { addr: it.far.addr(), length: 64, mr: it.mb, access });
    let open = printed();
    let refused = it.op_on(qa, IBV_WR_RDMA_WRITE, it.far.addr(), key, 65);
    assert_eq!(refused.status, IBV_WC_REM_ACCESS_ERR);
    let (qa, _) = it.pair.another_with(|attr| attr.rnr_retry = 1, |_| ());
    assert_eq!(it.op_on(qa, IBV_WR_SEND, 0, 0, 8).status, IBV_WC_RNR_RETRY_EXC_ERR);
    let after = printed();

    let of = own;
    let sent = ["direction=\"sent\"", "operation=\"write\"", "link=\"host\""];
    assert_eq!(of(&after, "transom_messages_total", &sent), 4.0, "{after}");
    assert_eq!(of(&after, "transom_message_bytes_total", &sent), 400.0);
    let received = ["direction=\"received\"", "operation=\"write\""];
    assert_eq!(of(&after, "transom_messages_total", &received), 4.0);
    assert_eq!(of(&after, "transom_refusals_total", &["RA-33"]), 1.0, "{after}");
    assert_eq!(of(&after, "transom_refusals_total", &[]), 1.0);
    assert_eq!(of(&after, "transom_binds_total", &[]), 1.0);
    assert_eq!(of(&closed, "transom_open_windows", &[]), 0.0);
    assert_eq!(of(&open, "transom_open_windows", &[]), 1.0);
    let by = [("window", 64.0), ("region", (it.near.len() + it.far.len()) as f64)];
    tells(&open, "transom_open_bytes", "by", &[], &by);
    // It waited once, and was asked to once more.
    assert_eq!(of(&after, "transom_not_ready_total", &[]), 2.0);
    assert_eq!(of(&after, "transom_no_receive_total", &[]), 2.0);
    assert_eq!(of(&after, "transom_not_ready_seconds_total", &[]), 0.000_01);
    let port = "node_infiniband_port_data_transmitted_bytes_total";
    assert_eq!(sum(&after, port, &["device=\"transom0\"", "port=\"1\""]), 464.0);
    assert!(after.ends_with("# EOF\n"));
}

/// Rules: SEE-07, SEE-08
#[test]
fn metrics_tell_of_each_process_what_it_did() {
    alone(path_of!("metrics_tell_of_each_process_what_it_did"), Way::Namespace, of_known_traffic);
}

/// The first case once, the second one twice, and so on.
fn of_refusals() {
    let it = MemoryPair::new(Link::Local, 4096);
    let (at, key) = (it.far.addr(), it.key());
    let (end, readable) = (at + it.far.len() as u64, keys(it.part(0, 64, READ as i32)).1);
    let window = it.pair.b.mw(IBV_MW_TYPE_2);
    let range = Range { addr: at, length: 64, mr: it.mb, access: READ };
    let of_other = bind(&it.pair.b, it.pair.qb, window, range);
    let cases = [
        (IBV_WR_RDMA_WRITE, at, key ^ 0x80, "the object has another key now", STALE),
        (
            IBV_WR_RDMA_WRITE,
            at,
            readable,
            "the object does not grant the right that is needed",
            RIGHT,
        ),
        (
            IBV_WR_RDMA_READ,
            at,
            of_other,
            "the window is bound through another queue pair",
            OTHER_QP,
        ),
        (IBV_WR_RDMA_READ, at - 8, key, "the range begins before the object", BELOW),
        (IBV_WR_RDMA_READ, end - 4, key, "the range ends past the object", PAST),
        (IBV_WR_ATOMIC_FETCH_AND_ADD, at + 4, key, "the address is not a multiple of eight", WORD),
        (IBV_WR_RDMA_READ, u64::MAX - 4, key, "the end of the range is beyond 2^64", WRAPS),
        (IBV_WR_SEND, 0, 0, "the receive buffer is smaller than the message", "RA-53"),
    ];
    for (count, (opcode, at, key, ..)) in (1..).zip(cases) {
        for _ in 0..count {
            let (qa, qb) = it.pair.another(IBV_QPT_RC);
            if opcode == IBV_WR_SEND {
                it.recv(qb, 1, 4);
            }
            assert_ne!(it.op_on(qa, opcode, at, key, 8).status, IBV_WC_SUCCESS, "{at:#x} {key:#x}");
        }
    }
    let metrics = printed();
    for (count, (.., reason, rules)) in (1..).zip(cases) {
        let labels = [format!("reason=\"{reason}\""), format!("rules=\"{rules}\"")];
        let labels = labels.each_ref().map(String::as_str);
        let told = own(&metrics, "transom_refusals_total", &labels);
        assert_eq!(told, f64::from(count), "{labels:?} in {metrics}");
    }
    assert_eq!(own(&metrics, "transom_refusals_total", &[]), 36.0, "{metrics}");
}

/// The rules of a reason, over all operations.
const STALE: &str = "INV-12 INV-35 LA-06 RA-24 T1-31";
const RIGHT: &str = "AT-15 FL-01 FL-02 LA-02 RA-28 RA-29 RA-30 RA-31";
const OTHER_QP: &str = "INV-11 INV-37 RA-27";
const BELOW: &str = "LA-10 RA-33 T1-26";
const PAST: &str = "LA-10 RA-33 T1-27";
const WORD: &str = "AT-01 AT-16";
const WRAPS: &str = "LA-11 RA-34 T1-28";

/// The only right of what these cases reach.
const READ: u32 = IBV_ACCESS_REMOTE_READ;

/// Rules: SEE-08
#[test]
fn metrics_tell_of_refusals_by_reason_with_its_rules() {
    let path = path_of!("metrics_tell_of_refusals_by_reason_with_its_rules");
    alone(path, Way::Namespace, of_refusals);
}

/// Objects, keys, operations and queues.
fn of_all_kinds() {
    let it = MemoryPair::new(Link::Loopback, 4096);
    let Pair { a, b, qa, qb } = &it.pair;
    let _ = (b.another_pd(), srq(b.pd, 4));
    let metrics = printed();
    let objects = [("ctx", 2.0), ("pd", 3.0), ("cq", 2.0), ("qp", 2.0), ("mr", 2.0), ("srq", 1.0)];
    tells(&metrics, "transom_objects", "kind", &[], &objects);

    let (at, key, window) = (it.far.addr(), it.key(), b.mw(IBV_MW_TYPE_2));
    let range = Range { addr: at, length: 64, mr: it.mb, access: IBV_ACCESS_REMOTE_WRITE };
    for _ in 0..2 {
        post(*qb, &mut local_inv_wr(bind(b, *qb, window, range)));
        b.expect(IBV_WC_SUCCESS);
    }
    let mut invalidates = wr(IBV_WR_SEND_WITH_INV);
    invalidates.imm.invalidate_rkey = bind(b, *qb, window, range);
    it.recv(*qb, 1, 64);
    post(*qa, &mut invalidates);
    for end in [a, b] {
        end.expect(IBV_WC_SUCCESS);
    }
    for opcode in [IBV_WR_RDMA_READ, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD] {
        assert_eq!(it.op(opcode, at, key, 8).status, IBV_WC_SUCCESS);
    }
    let flush = flushing(&it);
    (0..3).for_each(|_| flush());
    // Three receives wait, and four messages for an end that hears of nothing and is given all the time.
    (0..3).for_each(|wr_id| it.recv(*qb, wr_id, 64));
    let (asks, deaf) = (a.qp(IBV_QPT_RC), b.qp(IBV_QPT_RC));
    assert_eq!(modify(deaf, &usual_attr(asks), IBV_QPS_INIT), 0);
    bring_up(asks, &ibv_qp_attr { timeout: 0, ..usual_attr(deaf) });
    (0..4).for_each(|_| post(asks, &mut wr(IBV_WR_SEND)));

    let metrics = printed();
    let of = |name: &str, labels: &[&str]| own(&metrics, name, labels);
    let by = [("itself", 2.0), ("peer", 1.0)];
    tells(&metrics, "transom_invalidations_total", "by", &[], &by);
    let messages = [("send", 1.0), ("write", 0.0), ("read", 2.0), ("atomic", 1.0), ("flush", 3.0)];
    let bytes = [("send", 0.0), ("write", 0.0), ("read", 16.0), ("atomic", 8.0), ("flush", 0.0)];
    for direction in ["direction=\"sent\"", "direction=\"received\""] {
        let others = [direction, "link=\"host\""];
        tells(&metrics, "transom_messages_total", "operation", &others, &messages);
        tells(&metrics, "transom_message_bytes_total", "operation", &others, &bytes);
    }
    assert_eq!(of("transom_messages_total", &["link=\"wire\""]), 0.0);
    let queues = [("receive", 3.0), ("send", 4.0)];
    tells(&metrics, "transom_queue_high_water", "queue", &[], &queues);
    assert_eq!(set_state(asks, IBV_QPS_RESET), 0);
}

/// Rules: SEE-08
#[test]
fn metrics_tell_of_objects_keys_operations_and_queues() {
    let path = path_of!("metrics_tell_of_objects_keys_operations_and_queues");
    alone(path, Way::Namespace, of_all_kinds);
}

/// Requests that are sent again over the wire, each for another reason, and packets that nobody takes.
fn over_the_wire() {
    interfaces_up();
    // Those of a device are counted from its opening on.
    let it = losing_a_write(4096);
    let qb = it.pair.qb;
    // Nothing behind it shows that it is lost.
    let written = it.op(IBV_WR_RDMA_WRITE, it.far.addr(), it.key(), 100);
    assert_eq!(written.status, IBV_WC_SUCCESS);
    carries_each(&it);
    // A packet from nobody that the queue pair knows.
    let operation = Operation::SendOnly(Ending::Plain);
    let strange = Packet {
        payload: &[FORGED; LENGTH],
        ..Packet::new(Transport::Rc, operation, number(qb), Psn::new(19))
    };
    let stranger = Forger::at(STRANGER);
    stranger.send(&stranger.seal(&strange));
    let missing = an_answer_is_missing();
    // One for nobody.
    let forger = Forger::at(PEER);
    forger.send(&forger.seal(&Packet { to: strange.to ^ 0x7ff, ..strange }));

    let dropped = |metrics: &str, reason: &str| {
        own(metrics, "transom_packets_dropped_total", &[&format!("reason=\"{reason}\"")])
    };
    let again = |metrics: &str, reason: &str| {
        own(metrics, "transom_retransmissions_total", &[&format!("reason=\"{reason}\"")])
    };
    let metrics = until("the last packets", || {
        let metrics = printed();
        let all = dropped(&metrics, "no_queue_pair") > 0.0
            && again(&metrics, "implied_sequence_error") > 0.0;
        all.then_some(metrics)
    });
    assert_eq!(dropped(&metrics, "other_address"), 1.0, "{metrics}");
    assert_eq!(dropped(&metrics, "no_queue_pair"), 1.0, "{metrics}");
    assert_eq!(dropped(&metrics, "wrong_icrc"), 0.0, "{metrics}");
    let reasons = [("timeout", 1.0), ("implied_sequence_error", 1.0)];
    tells(&metrics, "transom_retransmissions_total", "reason", &[], &reasons);
    tells_what_was_carried(&metrics);
    // Two WRITEs one after the other: the second shows that the first is lost.
    drop(missing);
    let it = losing_a_write(4096);
    let qa = it.pair.qa;
    let mut sges = [it.near_sge(0, 100)];
    let mut second = rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, it.far.addr(), it.key());
    let mut first = ibv_send_wr { next: &raw mut second, ..second };
    post(qa, &mut first);
    for _ in 0..2 {
        it.pair.a.expect(IBV_WC_SUCCESS);
    }
    let reasons = [("timeout", 1.0), ("sequence_error", 1.0)];
    tells(&printed(), "transom_retransmissions_total", "reason", &[], &reasons);
}

/// A READ, two SENDs, an atomic and three FLUSHes.
fn carries_each(it: &MemoryPair) {
    let (at, key) = (it.far.addr(), it.key());
    assert_eq!(it.op(IBV_WR_RDMA_READ, at, key, 2000).status, IBV_WC_SUCCESS);
    for _ in 0..2 {
        it.recv(it.pair.qb, 1, 4096);
        assert_eq!(it.op(IBV_WR_SEND, 0, 0, 1500).status, IBV_WC_SUCCESS);
        it.pair.b.expect(IBV_WC_SUCCESS);
    }
    assert_eq!(it.op(IBV_WR_ATOMIC_FETCH_AND_ADD, at, key, 8).status, IBV_WC_SUCCESS);
    let flush = flushing(it);
    (0..3).for_each(|_| flush());
}

/// These and a WRITE, at both ends. What was sent again counts once, and messages count as wholes.
fn tells_what_was_carried(metrics: &str) {
    let messages = [("send", 2.0), ("write", 1.0), ("read", 1.0), ("atomic", 1.0), ("flush", 3.0)];
    let bytes =
        [("send", 3000.0), ("write", 100.0), ("read", 2000.0), ("atomic", 8.0), ("flush", 0.0)];
    for direction in ["direction=\"sent\"", "direction=\"received\""] {
        let others = [direction, "link=\"wire\""];
        tells(metrics, "transom_messages_total", "operation", &others, &messages);
        tells(metrics, "transom_message_bytes_total", "operation", &others, &bytes);
    }
    assert_eq!(own(metrics, "transom_messages_total", &["link=\"host\""]), 0.0, "{metrics}");
}

/// Rules: SEE-08
#[test]
fn metrics_tell_of_the_wire_why_requests_went_again_and_what_was_dropped() {
    let path = path_of!("metrics_tell_of_the_wire_why_requests_went_again_and_what_was_dropped");
    alone(path, Way::Namespace, over_the_wire);
}

/// Over HTTP and in a file, in the form that the reader asks for.
fn read_by_others() {
    interfaces_up();
    let it = MemoryPair::new(Link::Loopback, 4096);
    assert_eq!(it.op(IBV_WR_RDMA_WRITE, it.far.addr(), it.key(), 100).status, IBV_WC_SUCCESS);
    let scratch = Scratch::new("metrics");
    let file = scratch.path().join("transom.prom");
    let address: SocketAddr = "127.0.0.1:9879".parse().expect("an address");
    let mut transom = Command::new(&command()[0]);
    transom.args(["metrics", "--listen", &address.to_string(), "--file"]).arg(&file);
    let mut transom = Running::start(&mut transom);
    let metrics = until("the answer", || scraped(address));
    let name = "node_infiniband_port_packets_transmitted_total{device=\"transom0\",port=\"1\"}";
    assert_eq!(value(&metrics, name), 1.0);
    assert!(metrics.contains("# TYPE node_infiniband_port_packets_transmitted_total counter\n"));
    let (head, root) = answered(address, "GET / HTTP/1.0\r\n\r\n").expect("it is there");
    assert!(head.starts_with("HTTP/1.1 200 ") && root.contains("href=\"/metrics\""), "{head}");
    let mut second = Command::new(&command()[0]);
    let second = second.args(["metrics", "--listen", &address.to_string()]).output().expect("runs");
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("another program has this port"), "{said}");
    let in_file = until("the file", || fs::read_to_string(&file).ok());
    assert_eq!(value(&in_file, name), 1.0);
    promtool_takes(&metrics);
    answers_as_it_is_asked(address, &metrics);
    a_real_prometheus_asks(address, scratch.path());
    collected(scratch.path());
    transom.signal(libc::SIGTERM);
    let printed = transom.success(Duration::from_secs(30)).expect("it ends well");
    assert!(printed.complaints.contains("answers at http://127.0.0.1:9879/metrics"), "{printed:?}");
    // The paths are long, and lines are broken.
    let said: Vec<_> = printed.complaints.split_whitespace().collect();
    let kept = format!("keeps {} up to date", file.display());
    assert!(said.join(" ").contains(&kept), "{printed:?}");
    assert!(!file.exists());
}

/// Who asks for OpenMetrics gets that, with the same samples. What is not asked for as it should be is said.
fn answers_as_it_is_asked(address: SocketAddr, plain: &str) {
    let asked =
        |request: &str| answered(address, &format!("{request}\r\n\r\n")).expect("an answer");
    let (head, open) = asked(
        "GET /metrics HTTP/1.1\r\nHost: here\r\nAccept: \
         application/openmetrics-text;version=1.0.0;q=0.9,text/plain;version=0.0.4;q=0.5",
    );
    let kind = "\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
    assert!(head.contains(kind), "{head}");
    assert!(open.ends_with("\n# EOF\n"), "{open}");
    assert!(open.contains("# TYPE node_infiniband_port_packets_transmitted counter\n"), "{open}");
    let of = |text: &str| {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(of(&open), of(plain));
    let (head, body) = asked("HEAD /metrics HTTP/1.1");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && body.is_empty(), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", plain.len())), "{head}");
    let (head, body) = asked("GET /else HTTP/1.1");
    assert!(head.starts_with("HTTP/1.1 404 ") && body == "see /metrics\n", "{head}");
    let (head, _) = asked("POST /metrics HTTP/1.1");
    assert!(head.starts_with("HTTP/1.1 405 "), "{head}");
}

/// A real Prometheus scrapes the address, which it does by OpenMetrics, and answers for it. It takes each expression of
/// the dashboard.
fn a_real_prometheus_asks(address: SocketAddr, directory: &Path) {
    let Some(prometheus) = of_prometheus("prometheus") else { return };
    let configuration = directory.join("prometheus.yml");
    let scrapes = format!(
        "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\nscrape_configs: [{{job_name: \
         transom, static_configs: [{{targets: [\"{address}\"]}}]}}]\n"
    );
    fs::write(&configuration, scrapes).expect("a file");
    let own_address: SocketAddr = "127.0.0.1:9090".parse().expect("an address");
    let mut prometheus = Command::new(prometheus);
    prometheus
        .arg(format!("--config.file={}", configuration.display()))
        .arg(format!("--storage.tsdb.path={}", directory.join("tsdb").display()))
        .arg(format!("--web.listen-address={own_address}"))
        .stderr(Stdio::null());
    let _prometheus = Running::start(&mut prometheus);
    let ask = |expression: &str| {
        let letters = expression.bytes().map(|byte| format!("%{byte:02X}"));
        let query = format!("/api/v1/query?query={}", letters.collect::<String>());
        let (_, body) = answered(own_address, &format!("GET {query} HTTP/1.0\r\n\r\n"))?;
        let answer: Value = serde_json::from_str(&body).ok()?;
        Some(answer).filter(|it| it["status"] != "error" || it["errorType"] != "unavailable")
    };
    let value = |expression: &str| {
        let answer = ask(expression)?;
        let [sample] = &answer["data"]["result"].as_array()?[..] else { return None };
        sample["value"][1].as_str()?.parse::<f64>().ok()
    };
    // It looks for whom to scrape only five seconds after its start.
    until("two scrapes", || value("count_over_time(up[1m])").filter(|count| *count >= 2.0));
    assert_eq!(value("min_over_time(up{job=\"transom\"}[1m])"), Some(1.0));
    let pid = std::process::id();
    let sent = "operation=\"write\", direction=\"sent\", link=\"host\"";
    for (expression, expected) in [
        (format!("transom_messages_total{{pid=\"{pid}\", {sent}}}"), 1.0),
        (format!("sum(transom_messages_total{{pid=\"{pid}\", direction=\"sent\"}})"), 1.0),
        (format!("transom_message_bytes_total{{pid=\"{pid}\", {sent}}}"), 100.0),
        ("node_infiniband_port_packets_transmitted_total{device=\"transom0\"}".to_owned(), 1.0),
        (format!("transom_objects{{pid=\"{pid}\", kind=\"qp\"}}"), 2.0),
    ] {
        assert_eq!(value(&expression), Some(expected), "{expression}");
    }
    for panel in panels() {
        for target in panel["targets"].as_array().expect("targets") {
            let expression = target["expr"].as_str().expect("an expression");
            let asked = expression.replace("$__rate_interval", "1m");
            let answer = ask(&asked).expect("an answer");
            assert_eq!(answer["status"], "success", "{expression}: {answer}");
            assert_eq!(answer["data"]["resultType"], "vector", "{expression}: {answer}");
        }
    }
}

/// A program of Prometheus. In the long mode it must be there.
fn of_prometheus(name: &str) -> Option<PathBuf> {
    match installed(name, "prometheus") {
        Ok(path) => Some(path),
        Err(missing) => {
            assert!(!is_long(), "{missing}");
            println!("skipped: {missing}");
            None
        }
    }
}

/// The file of the dashboard.
const DASHBOARD: &str = "docs/grafana/transom.json";

/// The panels of the dashboard. Each asks the data source that the user chooses.
fn panels() -> Vec<Value> {
    let text = fs::read_to_string(root().join(DASHBOARD)).expect("the dashboard");
    let mut dashboard: Value = serde_json::from_str(&text).expect("JSON");
    assert!(dashboard["schemaVersion"].as_u64() >= Some(36));
    let [chosen] = &dashboard["templating"]["list"].as_array().expect("variables")[..] else {
        panic!("{}", dashboard["templating"])
    };
    assert_eq!((&chosen["type"], &chosen["query"]), (&"datasource".into(), &"prometheus".into()));
    let name = chosen["name"].as_str().expect("a name");
    let source = json!({"type": "prometheus", "uid": format!("${{{name}}}")});
    let panels = serde_json::from_value::<Vec<Value>>(dashboard["panels"].take()).expect("panels");
    for panel in &panels {
        let mut targets = panel["targets"].as_array().expect("targets").iter();
        assert_eq!(panel["datasource"], source, "{panel}");
        assert!(targets.all(|target| target["datasource"] == source), "{panel}");
    }
    panels
}

/// The real node_exporter of Debian takes the file of this directory.
fn collected(directory: &Path) {
    let address: SocketAddr = "127.0.0.1:9100".parse().expect("an address");
    let exporter = program("prometheus-node-exporter", "prometheus-node-exporter");
    let mut exporter = Command::new(exporter);
    exporter
        .arg(format!("--collector.textfile.directory={}", directory.display()))
        .arg(format!("--web.listen-address={address}"))
        .args(["--collector.disable-defaults", "--collector.textfile"])
        .stderr(Stdio::null());
    let _exporter = Running::start(&mut exporter);
    let metrics = until("the exporter", || scraped(address));
    assert_eq!(value(&metrics, "node_textfile_scrape_error"), 0.0, "{metrics}");
    let sent = ["direction=\"sent\"", "operation=\"write\"", "link=\"host\""];
    assert_eq!(own(&metrics, "transom_messages_total", &sent), 1.0, "{metrics}");
    let name = "node_infiniband_port_packets_transmitted_total{device=\"transom0\",port=\"1\"}";
    assert_eq!(value(&metrics, name), 1.0);
}

/// Rules: SEE-09
#[test]
fn prometheus_takes_what_it_is_told() {
    // Nobody reads what is said in a namespace.
    of_prometheus("prometheus");
    alone(path_of!("prometheus_takes_what_it_is_told"), Way::Namespace, read_by_others);
}

/// More clients that say nothing than there are places.
fn beside_silent_clients() {
    interfaces_up();
    let address: SocketAddr = "127.0.0.1:9879".parse().expect("an address");
    let mut transom = Command::new(&command()[0]);
    let mut transom = Running::start(transom.args(["metrics", "--listen", &address.to_string()]));
    until("the answer", || scraped(address));
    let silent: Vec<_> =
        (0..20).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    assert!(scraped(address).is_some());
    let is_open = |client: &TcpStream| {
        client.set_nonblocking(true).expect("a socket");
        let read = client.peek(&mut [0]);
        read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    // Nobody has waited for their time to be over.
    assert!(silent[13..].iter().all(is_open), "the answer was before their end");
    until("the first to make room", || (!silent[..13].iter().any(is_open)).then_some(()));
    transom.signal(libc::SIGTERM);
    transom.success(Duration::from_secs(30)).expect("it ends well");
}

/// Rules: SEE-09
#[test]
fn who_says_nothing_keeps_nobody_waiting() {
    let path = path_of!("who_says_nothing_keeps_nobody_waiting");
    alone(path, Way::Namespace, beside_silent_clients);
}

/// Rules: SEE-09
#[test]
fn only_this_host_is_answered() {
    let mut transom = Command::new(&command()[0]);
    let refused = transom.args(["metrics", "--listen", "0.0.0.0:9879"]).output().expect("it runs");
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("no loopback address"), "{said}");
}

/// Each panel asks for metrics that there are.
fn dashboard() {
    let it = MemoryPair::new(Link::Loopback, 4096);
    let metrics = printed();
    drop(it);
    let kinds = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let names = |(name, kind): (&str, &str)| match kind {
        "counter" => vec![format!("{name}_total")],
        "histogram" => ["bucket", "count", "sum"].map(|part| format!("{name}_{part}")).into(),
        _ => vec![name.to_owned()],
    };
    let known: BTreeSet<_> = kinds.flat_map(names).collect();
    let panels = panels();
    let ids: BTreeSet<_> = panels.iter().map(|it| it["id"].as_u64().expect("an id")).collect();
    assert_eq!(ids.len(), panels.len());
    for panel in &panels {
        assert!(panel["title"].is_string(), "{panel}");
        is_known_to_grafana(panel);
        let place = &panel["gridPos"];
        assert!(["h", "w", "x", "y"].iter().all(|side| place[side].is_u64()), "{panel}");
        for target in panel["targets"].as_array().expect("targets") {
            let asked = target["expr"].as_str().expect("an expression");
            let is_of_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            let words = asked.split(|letter| !is_of_word(letter));
            let is_name = |word: &&str| word.starts_with("transom_") || word.starts_with("node_");
            let names: Vec<_> = words.filter(is_name).collect();
            assert!(!names.is_empty(), "{asked}");
            for name in names {
                assert!(known.contains(name), "{name} of {asked} is not among {known:?}");
            }
        }
    }
}

/// What a panel is made of is among what was looked up in Grafana's schema (@grafana/schema 13.2.3). There is no Grafana
/// here that could be asked.
fn is_known_to_grafana(panel: &Value) {
    const UNITS: [&str; 6] = ["Bps", "pps", "ops", "short", "percentunit", "s"];
    const OPTIONS: [(&str, &[&str]); 2] = [
        ("timeseries", &["legend", "tooltip"]),
        (
            "heatmap",
            &[
                "calculate",
                "cellGap",
                "color",
                "exemplars",
                "filterValues",
                "legend",
                "rowsFrame",
                "showValue",
                "tooltip",
                "yAxis",
            ],
        ),
    ];
    let kind = panel["type"].as_str().expect("a type");
    let known = OPTIONS.iter().find(|(name, _)| *name == kind);
    let (_, known) = known.unwrap_or_else(|| panic!("a panel of type {kind}"));
    let options = panel["options"].as_object().expect("options");
    assert!(options.keys().all(|key| known.contains(&key.as_str())), "{panel}");
    let defaults = panel["fieldConfig"]["defaults"].as_object().expect("defaults");
    assert!(
        defaults.keys().all(|key| ["custom", "min", "unit"].contains(&key.as_str())),
        "{panel}"
    );
    let unit = defaults.get("unit").and_then(Value::as_str);
    assert!(unit.is_none_or(|unit| UNITS.contains(&unit)), "{panel}");
    let targets = panel["targets"].as_array().expect("targets").iter();
    let names: BTreeSet<_> =
        targets.clone().map(|it| it["refId"].as_str().expect("text")).collect();
    assert_eq!(names.len(), targets.count(), "{panel}");
}

/// Rules: SEE-10
#[test]
fn the_dashboard_asks_for_what_there_is() {
    alone(path_of!("the_dashboard_asks_for_what_there_is"), Way::Namespace, dashboard);
}

/// The schema comes in Grafana's package for Python, which a long run installs.
/// Rules: SEE-10
#[test]
fn grafanas_own_schema_knows_all_of_the_dashboard() {
    const READS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/dashboard.py");
    if !is_long() {
        return println!("skipped: not a long run");
    }
    let scratch = Scratch::new("dashboard");
    let python = python_with(&scratch, "grafana-foundation-sdk==1769699379!11.6.0");
    let mut reads = Command::new(python);
    let reads = reads.arg(READS).arg(root().join(DASHBOARD));
    let read = Running::start(reads).success(Duration::from_secs(60));
    let read = read.unwrap_or_else(|problem| panic!("{problem}"));
    assert!(read.output.starts_with("ok: "), "{read:?}");
}

/// How long requests took, recorded only while somebody wants to know.
fn latencies() {
    interfaces_up();
    let pairs = [Link::Loopback, Link::Local, Link::Rings, Link::Wire]
        .map(|link| (link, MemoryPair::new(link, 5 << 20)));
    let work = || {
        for (link, it) in &pairs {
            let (at, key) = (it.far.addr(), it.key());
            let reads = [(100, 3), (5000, 4), (100_000, 1), (1 << 20, 2), (5 << 20, 3)];
            // On a busy machine the wire loses packets of long messages, again and again.
            let short = |length| length <= 100_000 || *link != Link::Wire;
            let reads = reads.iter().filter(|(length, _)| short(*length));
            for length in reads.flat_map(|(length, count)| vec![*length; *count]) {
                assert_eq!(it.op(IBV_WR_RDMA_READ, at, key, length).status, IBV_WC_SUCCESS);
            }
            for _ in 0..2 {
                assert_eq!(it.op(IBV_WR_RDMA_WRITE, at, key, 0).status, IBV_WC_SUCCESS);
            }
            assert_eq!(it.op(IBV_WR_ATOMIC_FETCH_AND_ADD, at, key, 8).status, IBV_WC_SUCCESS);
            takes_time(it);
            let (qa, _) = it.pair.another(IBV_QPT_RC);
            let refused = it.op_on(qa, IBV_WR_RDMA_WRITE, at, key ^ 0x80, 8);
            assert_eq!(refused.status, IBV_WC_REM_ACCESS_ERR, "{link:?}");
        }
    };
    work();
    assert_eq!(sum(&printed(), "transom_latency_seconds_count", &[]), 0.0);
    let address: SocketAddr = "127.0.0.1:9879".parse().expect("an address");
    let mut transom = Command::new(&command()[0]);
    let mut transom = Running::start(transom.args(["metrics", "--listen", &address.to_string()]));
    until("all devices to record", || {
        let began = Registry::open().ok()?.processes();
        let mut all = began.iter().filter(|it| it.alive).filter_map(Segment::of);
        let is_on = tools::is_on(Tool::Latencies);
        (is_on && all.all(|it| it.latencies().is_some())).then_some(())
    });
    let begun = Instant::now();
    work();
    let longest = begun.elapsed().as_secs_f64();
    let metrics = scraped(address).expect("it answers");
    tells_the_times(&metrics);
    let total = sum(&metrics, "transom_latency_seconds_sum", &[]);
    assert!(total > 0.0 && total < longest, "{total} of {longest}");
    promtool_takes(&metrics);
    transom.signal(libc::SIGKILL);
    until("nobody to record", || (!tools::is_on(Tool::Latencies)).then_some(()));
    work();
    assert_eq!(sum(&printed(), "transom_latency_seconds_count", &[]), 115.0);
}

/// How many there are of each operation and size, over all links.
fn tells_the_times(metrics: &str) {
    let count = |labels: &[&str]| sum(metrics, "transom_latency_seconds_count", labels);
    let of = |operation, size| {
        let labels = [format!("operation=\"{operation}\""), format!("size=\"{size}\"")];
        count(&labels.each_ref().map(String::as_str))
    };
    for (operation, size, expected) in [
        ("read", "1024", 12.0),
        ("write", "64", 8.0),
        ("send", "1024", 8.0),
        ("flush", "64", 12.0),
        ("bind", "64", 20.0),
        ("invalidate", "64", 16.0),
    ] {
        assert_eq!(of(operation, size), expected, "{operation} {size} in {metrics}");
    }
    let operations = [
        ("read", 47.0),
        ("write", 8.0),
        ("atomic", 4.0),
        ("send", 8.0),
        ("flush", 12.0),
        ("bind", 20.0),
        ("invalidate", 16.0),
    ];
    let sizes = [
        ("64", 60.0),
        ("1024", 20.0),
        ("16384", 16.0),
        ("262144", 4.0),
        ("4194304", 6.0),
        ("+Inf", 9.0),
    ];
    tells(metrics, "transom_latency_seconds_count", "operation", &[], &operations);
    tells(metrics, "transom_latency_seconds_count", "size", &[], &sizes);
    let all = sum(metrics, "transom_latency_seconds_bucket", &["le=\"+Inf\""]);
    assert_eq!(all, 115.0);
}

/// Two SENDs, three FLUSHes, five binds and four invalidations.
fn takes_time(it: &MemoryPair) {
    let Pair { b, qb, .. } = &it.pair;
    for _ in 0..2 {
        it.recv(*qb, 1, 100);
        assert_eq!(it.op(IBV_WR_SEND, 0, 0, 100).status, IBV_WC_SUCCESS);
        b.expect(IBV_WC_SUCCESS);
    }
    let flush = flushing(it);
    (0..3).for_each(|_| flush());
    let (window, access) = (b.mw(IBV_MW_TYPE_2), IBV_ACCESS_REMOTE_WRITE);
    let range = Range { addr: it.far.addr(), length: 64, mr: it.mb, access };
    for _ in 0..4 {
        post(*qb, &mut local_inv_wr(bind(b, *qb, window, range)));
        b.expect(IBV_WC_SUCCESS);
    }
    bind(b, *qb, b.mw(IBV_MW_TYPE_1), range);
}

/// Rules: SEE-23
#[test]
fn metrics_tell_how_long_requests_took() {
    alone(path_of!("metrics_tell_how_long_requests_took"), Way::Namespace, latencies);
}

/// The real promtool has nothing to complain about. In the long mode it must be there.
fn promtool_takes(metrics: &str) {
    let Some(promtool) = of_prometheus("promtool") else { return };
    let mut check = Command::new(promtool);
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut check = check.spawn().expect("promtool");
    let mut input = check.stdin.take().expect("a pipe");
    input.write_all(metrics.as_bytes()).expect("it reads");
    drop(input);
    let checked = check.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{said}\n{metrics}");
}

/// As iproute2 tells of an adapter.
fn statistic() {
    let it = MemoryPair::new(Link::Loopback, 4096);
    let told = |words: &[&str]| {
        let mut transom = Command::new(&command()[0]);
        let output = transom.args(["run", "--", "rdma"]).args(words).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let link = || -> Value {
        let json = told(&["-j", "statistic", "show", "link", "transom0/1"]);
        serde_json::from_str::<Value>(&json).expect("JSON")[0].clone()
    };
    let reads = |link: &Value| link["rx_read_requests"].as_u64().expect("a number");
    // The number of a network namespace comes again, and with it the sums of who had it before.
    let before = reads(&link());
    for _ in 0..3 {
        let done = it.op(IBV_WR_RDMA_READ, it.far.addr(), it.key(), 100);
        assert_eq!(done.status, IBV_WC_SUCCESS);
    }
    let now = link();
    assert_eq!((&now["ifname"], &now["port"]), (&"transom0".into(), &1.into()));
    assert_eq!(reads(&now), before + 3);
    let text = told(&["statistic"]);
    assert!(text.starts_with("link transom0/1 duplicate_request "), "{text}");
    assert!(text.contains(&format!(" rx_read_requests {} ", before + 3)), "{text}");
}

/// Rules: SEE-11
#[test]
fn rdma_statistic_tells_of_the_port_now() {
    alone(path_of!("rdma_statistic_tells_of_the_port_now"), Way::Namespace, statistic);
}
