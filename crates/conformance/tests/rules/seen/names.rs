//! Nothing is counted without a test that makes it move, and without a word of it for readers.

use std::collections::BTreeSet;
use std::fs;

use transom_conformance::documents::root;
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::{Way, alone};
use transom_system::latency::{SIZES, Timed};
use transom_system::port_counters::{COUNTERS, HW_COUNTERS};

use super::metrics::printed;

/// What no device without cables, switches and lanes can have, and the age of values that are read from memory.
const NEVER: [&str; 11] = [
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "symbol_error",
    "hw/lifespan",
    "hw/link_downed",
];

/// What the tests of another folder count, and how it is called there.
const ELSEWHERE: [(&str, &str, &str); 1] =
    [("port_xmit_wait", "crates/host/src/objects/qp/services/packets/tests.rs", "no_room")];

/// The texts of the tests here.
fn tests() -> Vec<String> {
    let folder = root().join("crates/conformance/tests/rules/seen");
    let files =
        fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("a file").path());
    files.map(|file| fs::read_to_string(file).expect("a file")).collect()
}

/// The names that a test expects in pairs with another number than zero.
fn expected(test: &str) -> impl Iterator<Item = &str> {
    let pairs = test.match_indices("(\"").filter_map(|(at, _)| {
        let (name, rest) = test[at + 2..].split_once("\", ")?;
        let value = rest.split([',', ')']).next()?.trim();
        let is_zero = value.parse() == Ok(0.0);
        (!is_zero && !value.starts_with(['"', '|', '&'])).then_some(name)
    });
    pairs.filter(|name| !name.contains('"'))
}

/// Rules: SEE-04
#[test]
fn each_counter_of_the_port_has_a_test_that_makes_it_move() {
    let tests = tests();
    let tested: BTreeSet<_> = tests.iter().flat_map(|test| expected(test)).collect();
    let of_port = COUNTERS.iter().map(|(name, _)| (*name).to_owned());
    let all = of_port.chain(HW_COUNTERS.iter().map(|(name, _)| format!("hw/{name}")));
    let all: BTreeSet<_> = all.collect();
    for (name, file, called) in ELSEWHERE {
        let text = fs::read_to_string(root().join(file)).expect("a file");
        assert!(text.contains(called), "{name} in {file}");
    }
    let elsewhere = |name: &str| ELSEWHERE.iter().any(|(it, ..)| *it == name);
    let moves = |name: &&String| tested.contains(name.as_str()) || elsewhere(name);
    let still: Vec<_> = all.iter().filter(|it| !moves(it)).map(String::as_str).collect();
    let mut never = NEVER.to_vec();
    never.sort_unstable();
    assert_eq!(still, never, "these move in no test, and these never do");
}

/// Rules: SEE-04
#[test]
fn the_page_tells_of_each_counter_of_the_port() {
    let page = fs::read_to_string(root().join("docs/see.md")).expect("the page");
    let (_, told) = page.split_once("\n## What is counted\n").expect("its section");
    let (told, _) = told.split_once("\n## ").expect("another section");
    for (name, _) in COUNTERS.iter().chain(&HW_COUNTERS) {
        assert!(told.contains(&format!("`{name}`")), "{name} is not in docs/see.md");
    }
}

/// Each metric of processes, as a reader asks for it.
fn of_processes() {
    let it = MemoryPair::new(Link::Loopback, 4096);
    let metrics = printed();
    drop(it);
    let page = fs::read_to_string(root().join("docs/see.md")).expect("the page");
    let test = include_str!("metrics.rs");
    let mut count = 0;
    for line in metrics.lines().filter_map(|line| line.strip_prefix("# TYPE transom_")) {
        let (name, kind) = line.split_once(' ').expect("a kind");
        let name = format!("transom_{name}{}", if kind == "counter" { "_total" } else { "" });
        assert!(page.contains(&format!("`{name}`")), "{name} is not in docs/see.md");
        let shown = if kind == "histogram" { format!("{name}_count") } else { name };
        assert!(test.contains(&format!("\"{shown}\"")), "no test asks for {shown}");
        count += 1;
    }
    assert!(count >= 15, "{metrics}");
    each_value_moves(&metrics);
}

/// The labels that tell values of one metric apart.
const LABELS: [&str; 5] = ["operation", "reason", "kind", "by", "queue"];

/// Each value of a metric's labels is expected in a test that asks for the metric, with another number than zero. Of the
/// refusals and of the times only those are told that there are.
fn each_value_moves(metrics: &str) {
    let samples = metrics.lines().filter_map(|line| line.strip_prefix("transom_")?.split_once('{'));
    let labels = samples.flat_map(|(name, rest)| {
        let labels = rest.split(',').filter_map(|label| label.split_once("=\""));
        labels.map(move |(label, value)| (name, label, value.split('"').next().unwrap_or_default()))
    });
    let told = labels.filter(|(_, label, _)| LABELS.contains(label));
    let times = Timed::ALL.map(|it| it.name().to_owned()).into_iter();
    let times = times.chain(SIZES.map(|size| size.to_string())).chain(["+Inf".to_owned()]);
    let told = told.map(|(name, _, value)| (name, value.to_owned()));
    let told: BTreeSet<_> = told.chain(times.map(|it| ("latency_seconds_count", it))).collect();
    let tests = [include_str!("metrics.rs"), include_str!("packets.rs")];
    let functions: Vec<_> = tests.iter().flat_map(|test| test.split("\n}\n")).collect();
    for (name, value) in &told {
        let name = format!("\"transom_{name}\"");
        let mut those = functions.iter().filter(|function| function.contains(&name));
        let moves = those.any(|function| expected(function).any(|it| it == value));
        assert!(moves, "{value} of {name} moves in no test");
    }
    // Twice five operations, twice two that do it, and the rest.
    assert_eq!(told.len(), 2 * 5 + 2 * 2 + 3 + 2 + 6 + 11 + 7 + 6, "{told:?}");
}

/// Rules: SEE-08
#[test]
fn each_metric_of_processes_has_a_test_and_is_on_the_page() {
    let path = path_of!("each_metric_of_processes_has_a_test_and_is_on_the_page");
    alone(path, Way::Namespace, of_processes);
}
