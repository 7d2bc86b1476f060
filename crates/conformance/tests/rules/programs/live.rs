//! The counters that programs under `transom run` find in the device's files.

use std::process::{Command, Stdio};
use std::time::Duration;

use transom_conformance::harness::until;
use transom_conformance::path_of;
use transom_conformance::processes::{Way, alone, interfaces_up};
use transom_conformance::programs::{Running, command, installed};

use super::looking_around::{Installed, compiled};

const COUNTERS: &str = "/sys/class/infiniband/transom0/ports/1/hw_counters";

/// How much more each number is than the first one: a network namespace may have the number, and the registry, of one
/// that is gone.
fn grown(told: &str) -> Vec<u64> {
    let numbers: Vec<u64> = told.lines().map(|line| line.parse().expect("a number")).collect();
    numbers.iter().map(|number| number - numbers[0]).collect()
}

/// A shell reads a counter, starts a program of known traffic, and reads it again; by mounts, and by the library that
/// leads calls.
fn read_by_a_shell() {
    let installed = Installed::new("live");
    let known = compiled(&installed, "known.c", "known", &["-libverbs"]);
    let known = known.display();
    let line = format!(
        "cd {COUNTERS}; for reads in 3 4 0; do cat rx_read_requests; {known} $reads </dev/null \
         >/dev/null || exit; done; cat rx_read_requests"
    );
    for (way, told) in installed.each(&line) {
        assert_eq!(grown(&told), [0, 3, 7, 7], "{way:?}");
    }
}

/// Rules: SEE-20
#[test]
fn a_counter_has_the_value_of_when_it_is_opened() {
    alone(
        path_of!("a_counter_has_the_value_of_when_it_is_opened"),
        Way::Namespace,
        read_by_a_shell,
    );
}

/// Who opens a file while another has it open does not wait. A moment after the last has closed it, who opens it finds
/// the value of then again.
fn opened_together() {
    let installed = Installed::new("live-together");
    let known = compiled(&installed, "known.c", "known", &["-libverbs"]);
    let known = known.display();
    let line = format!(
        "first=$(cat {COUNTERS}/rx_read_requests); echo $first; exec 3<{COUNTERS}/rx_read_requests; {known} 2 </dev/null >/dev/null; \
         timeout 5 cat {COUNTERS}/rx_read_requests; cat <&3; exec 3<&-; \
         for i in 1 2 3 4 5 6 7 8; do cat {COUNTERS}/rx_read_requests >/dev/null & done; wait; \
         {known} 1 </dev/null >/dev/null; tries=500; \
         while now=$(cat {COUNTERS}/rx_read_requests); [ $now != $((first + 3)) ] && [ $tries -gt 0 ]; \
         do tries=$((tries - 1)); done; echo $now"
    );
    for (way, told) in installed.each(&line) {
        assert_eq!(grown(&told), [0, 0, 0, 3], "{way:?}");
    }
}

/// Rules: SEE-20
#[test]
fn a_counter_can_be_opened_by_many() {
    alone(path_of!("a_counter_can_be_opened_by_many"), Way::Namespace, opened_together);
}

/// The real exporter, which makes its system calls itself.
fn exported() {
    let Ok(exporter) = installed("prometheus-node-exporter", "prometheus-node-exporter") else {
        return eprintln!("skipped: no prometheus-node-exporter");
    };
    interfaces_up();
    let here = Installed::new("live-exported");
    let known = compiled(&here, "known.c", "known", &["-libverbs"]);
    let address = "127.0.0.1:9100".parse().expect("an address");
    let mut run = Command::new(&command()[0]);
    run.args(["run", "--"]).arg(exporter).args([
        "--web.listen-address=127.0.0.1:9100",
        "--collector.disable-defaults",
        "--collector.infiniband",
    ]);
    let _running = Running::start(run.stderr(Stdio::null()));
    let packets = || {
        let metrics = crate::seen::exporters::scraped(address)?;
        let name = "node_infiniband_port_packets_received_total{device=\"transom0\",port=\"1\"}";
        Some(crate::seen::exporters::value(&metrics, name) as u64)
    };
    let before = until("the exporter", packets);
    for round in 1..=3 {
        let mut program = here.run_as_myself(&[known.to_str().expect("a plain path"), "5"]);
        Running::start(&mut program).success(Duration::from_secs(60)).expect("it ends well");
        // A READ is a request and an answer.
        until("the counts", || (packets()? == before + 10 * round).then_some(()));
    }
}

/// Rules: SEE-20
#[test]
fn node_exporter_under_a_run_tells_of_now() {
    alone(path_of!("node_exporter_under_a_run_tells_of_now"), Way::Namespace, exported);
}
