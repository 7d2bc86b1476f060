//! Programs that have several devices, as `transom run --devices` and `--device` give them.

mod ids;
mod rails;

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use transom_conformance::c_programs::{compile, in_time, run};
use transom_conformance::path_of;
use transom_conformance::processes::{Scratch, Way, alone, as_nobody, interfaces_up, ip, is_root};
use transom_conformance::programs::{command, program};

const LIMIT: Duration = Duration::from_secs(120);

/// The command, installed for everybody.
struct Installed(Scratch);

impl Installed {
    fn new(test: &str) -> Self {
        let scratch = Scratch::new(test);
        let files = command().each_ref().map(|file| scratch.take(file));
        for (file, name) in files[3..].iter().zip(["libibverbs.so.1", "librdmacm.so.1"]) {
            fs::rename(file, scratch.path().join(name)).expect("our own file");
        }
        Self(scratch)
    }

    /// A program under `transom run` with these options.
    fn run(&self, options: &[&str], program: &[&str]) -> Command {
        self.under("run", options, program)
    }

    /// The same under this subcommand.
    fn under(&self, subcommand: &str, options: &[&str], program: &[&str]) -> Command {
        let mut command = Command::new(self.0.path().join("transom"));
        command.arg(subcommand).args(options).arg("--").args(program);
        for variable in ["TRANSOM_LIB", "TRANSOM_TREE", "TRANSOM_DEVICE_NAME", "LD_PRELOAD"] {
            command.env_remove(variable);
        }
        command.stdin(Stdio::null());
        command
    }

    /// What a line for the shell prints. It must not complain.
    fn says(&self, options: &[&str], line: &str) -> String {
        let output = self.run(options, &["sh", "-c", line]).output().expect("a shell");
        assert!(output.status.success() && output.stderr.is_empty(), "{line}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// The program `two_devices.c`.
    fn two_devices(&self) -> String {
        let binary = compile(&self.0, "two_devices.c", "two_devices", &["-libverbs"]);
        binary.to_str().expect("a plain path").to_owned()
    }
}

fn of_two_devices() {
    interfaces_up();
    let installed = Installed::new("two-devices");
    let binary = installed.two_devices();
    for link in ["", "wire"] {
        let mut command = installed.run(&["--devices", "2"], &[&binary]);
        run(command.env("TRANSOM_LINK", link), 4);
    }
    let down = ["--device", "transom0", "--device", "transom1,port=down"];
    run(&mut installed.run(&down, &[&binary, "port-down"]), 1);
}

/// What the program shows, it says itself, with the rules above each part.
#[test]
fn a_c_program_uses_two_devices() {
    alone(path_of!("a_c_program_uses_two_devices"), Way::Namespace, of_two_devices);
}

/// The files are redirected for it, not mounted.
#[test]
fn a_c_program_of_an_ordinary_user_uses_two_devices() {
    if !is_root() {
        eprintln!("skipped: not root, so the other tests are unprivileged already");
        return;
    }
    let installed = Installed::new("two-devices-of-nobody");
    let binary = installed.two_devices();
    let mut command = installed.run(&["--devices", "2"], &[&binary]);
    run(as_nobody(&mut command).current_dir("/").env("TMPDIR", installed.0.path()), 4);
}

/// A program of two devices of which this one goes. What it prints.
fn goes(installed: &Installed, device: &str, program: &[&str], link: &str) -> String {
    let printed = in_time(LIMIT, &|at| {
        let fault = format!("device-removal,{at},device={device}");
        let mut command = installed.run(&["--devices", "2", "--fault", &fault], program);
        command.env("TRANSOM_LINK", link);
        command
    });
    printed.output
}

fn one_of_two_goes() {
    interfaces_up();
    let installed = Installed::new("one-goes");
    let binary = installed.two_devices();
    for (link, number) in [("", "0"), ("", "1"), ("wire", "1")] {
        let shown = goes(&installed, number, &[&binary, "goes", number], link);
        assert_eq!(shown.matches("ok - ").count(), 3, "{shown}");
    }
    let shown = goes(&installed, "0", &[&binary, "takes-over", "0"], "");
    assert_eq!(shown.matches("ok - ").count(), 1, "{shown}");
}

/// What the program shows, it says itself.
/// Rules: AE-09, DEVS-11, DEVS-12
#[test]
fn one_of_two_devices_goes_while_the_other_goes_on() {
    let test = path_of!("one_of_two_devices_goes_while_the_other_goes_on");
    alone(test, Way::Namespace, one_of_two_goes);
}

fn checked_while_one_goes() {
    interfaces_up();
    let installed = Installed::new("checked-devices");
    let binary = installed.two_devices();
    let directory = installed.0.path().join("findings");
    let printed = in_time(LIMIT, &|at| {
        let fault = format!("device-removal,{at},device=1");
        let report = format!("--json={}", directory.display());
        let options = ["--devices=2", "--error-exitcode=0", &report, "--fault", &fault];
        installed.under("check", &options, &[&binary, "unpolled", "1"])
    });
    let found = fs::read_to_string(directory).expect("a report");
    let found: Vec<Value> =
        found.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let unpolled: Vec<_> = found
        .iter()
        .filter(|it| ["work-lost", "completions-unpolled"].iter().any(|kind| it["kind"] == *kind))
        .map(|it| it["sentence"].as_str().expect("a sentence"))
        .collect();
    let number = printed.output.split(' ').find(|word| word.starts_with("0x"));
    let number = number.unwrap_or_else(|| panic!("{printed:?}"));
    assert!(unpolled.len() == 1 && unpolled[0].contains(number), "{number}: {unpolled:?}");
}

/// A program that could poll is told what it has not polled.
/// Rules: CHK-02, DEVS-11
#[test]
fn a_device_that_goes_hides_no_mistake_at_the_other() {
    let test = path_of!("a_device_that_goes_hides_no_mistake_at_the_other");
    alone(test, Way::Namespace, checked_while_one_goes);
}

fn counters_of_one_that_goes() {
    interfaces_up();
    let installed = Installed::new("counters-stay");
    let binary = installed.two_devices();
    let line = format!(
        "cd /sys/class/infiniband/transom1/ports/1/hw_counters && cat sent_pkts && \
         {binary} left-open 1 >&2; status=$?; cat sent_pkts; exit $status"
    );
    let told = goes(&installed, "1", &["sh", "-c", &line], "");
    let counted: Vec<u64> = told.lines().map(|line| line.parse().expect("a number")).collect();
    assert!(matches!(counted[..], [before, after] if after == before + 1), "{counted:?}");
}

/// Rules: DEVS-08, DEVS-11
#[test]
fn what_a_device_counted_before_it_went_stays() {
    alone(
        path_of!("what_a_device_counted_before_it_went_stays"),
        Way::Namespace,
        counters_of_one_that_goes,
    );
}

/// What is told of a device is what verbs, files, iproute2's `rdma` and ibverbs-utils tell.
/// Rules: DEVS-01, DEVS-02
#[test]
fn devices_are_as_they_are_described() {
    let installed = Installed::new("described");
    program("ibv_devinfo", "ibverbs-utils");
    let options = [
        "--device=mlx5_0,numa=0,pci=81:00.0",
        "--device=mlx5_1,port=down,speed=400G,numa=3,pci=82:00.1",
        "--device=rxe0",
    ];
    let told = installed.says(&options, "ibv_devinfo -v");
    let of: Vec<&str> = told.split("hca_id:").skip(1).collect();
    let expected = [
        ("mlx5_0", "PORT_ACTIVE (4)", "4X (2)", "25.0 Gbps (32)"),
        ("mlx5_1", "PORT_DOWN (1)", "4X (2)", "100.0 Gbps (128)"),
        ("rxe0", "PORT_ACTIVE (4)", "4X (2)", "25.0 Gbps (32)"),
    ];
    assert_eq!(of.len(), expected.len(), "{told}");
    for (told, (name, state, width, speed)) in of.iter().zip(expected) {
        for word in [name, state, width, speed] {
            assert!(told.contains(word), "{name}: no {word}: {told}");
        }
    }
    let line =
        "rdma link | cut -d' ' -f 1-4; rdma dev | cut -d: -f 1-2; rdma dev show mlx5_1 | wc -l
        cd /sys/class/infiniband && cat */ports/1/rate */device/numa_node
        for device in *; do basename $(realpath $device/device); done
        cat /sys/class/infiniband_verbs/*/ibdev";
    let expected = "link mlx5_0/1 state ACTIVE\nlink mlx5_1/1 state DOWN\nlink rxe0/1 state ACTIVE\n\
         0: mlx5_0\n1: mlx5_1\n2: rxe0\n1\n\
         100 Gb/sec (4X EDR)\n400 Gb/sec (4X NDR)\n100 Gb/sec (4X EDR)\n0\n3\n";
    let told = installed.says(&options, line);
    let rest = told.strip_prefix(expected).unwrap_or_else(|| panic!("{told}"));
    // The third is told no node: it has the machine's only one, or none.
    let rest: Vec<&str> = rest.lines().skip(1).collect();
    assert_eq!(rest, ["0000:81:00.0", "0000:82:00.1", "rxe0", "mlx5_0", "mlx5_1", "rxe0"]);
    let names = "echo $(ls /sys/class/infiniband)";
    let told = installed.says(&["--devices=3", "--device-name=mlx5_4"], names);
    assert_eq!(told, "mlx5_4 mlx5_5 mlx5_6\n");
    // What a run was told does not reach the next one in it, and the variable does as the options do.
    let transom = installed.0.path().join("transom");
    let inner = format!("{} run --device-name rxe0 -- sh -c '{names}'", transom.display());
    assert_eq!(installed.says(&["--devices=2"], &inner), "rxe0\n");
    let inner = format!("TRANSOM_DEVICES='a;b,port=down' {} run -- rdma link", transom.display());
    let told = installed.says(&[], &inner);
    assert!(
        told.contains("link a/1 state ACTIVE") && told.contains("link b/1 state DOWN"),
        "{told}"
    );
}

/// A second interface, with the address 10.10.0.1.
fn second_interface_up() {
    interface_up(1);
}

/// The interface of this number beside eth0, with the address 10.10.0.1, 10.11.0.1 and so on.
fn interface_up(number: u8) {
    ip(&format!("link add eth{number} type veth peer name far{number}"));
    ip(&format!("address add 10.{}.0.1/24 dev eth{number}", 9 + number));
    ip(&format!("link set far{number} up"));
    ip(&format!("link set eth{number} up"));
}

/// Two devices, each on an interface of its own.
const ON_INTERFACES: [&str; 2] = ["--device=transom0,netdev=eth0", "--device=transom1,netdev=eth1"];

fn each_on_its_interface() {
    interfaces_up();
    second_interface_up();
    let installed = Installed::new("interfaces");
    let binary = installed.two_devices();
    let options = ON_INTERFACES;
    let line = "cd /sys/class/infiniband
        for device in *; do
            grep -hv ^0000:0000:0000:0000:0000:0000:0000:0000 $device/ports/1/gids/* | grep -v ^fe80
            cat $device/ports/1/gid_attrs/ndevs/* | uniq; ls $device/device/net
        done
        rdma link | cut -d' ' -f 2-4,7-";
    let told = installed.says(&options, line);
    let expected = "0000:0000:0000:0000:0000:ffff:0a09:0001\neth0\neth0\n\
                    0000:0000:0000:0000:0000:ffff:0a0a:0001\neth1\neth1\n\
                    transom0/1 state ACTIVE netdev eth0 \ntransom1/1 state ACTIVE netdev eth1 \n";
    assert_eq!(told, expected);
    for link in ["", "wire"] {
        let mut command = installed.run(&options, &[&binary]);
        run(command.env("TRANSOM_LINK", link), 4);
    }
    let line = format!("ip link set eth1 down; rdma link | cut -d' ' -f 2-4; {binary} interface");
    assert_eq!(
        installed.says(&options, &line),
        "transom0/1 state ACTIVE\ntransom1/1 state DOWN\nok - one is down\n"
    );
    let transom = installed.0.path().join("transom");
    let transom = transom.display();
    let line = format!(
        "ip link delete eth1; rdma link | cut -d' ' -f 2-4
        {transom} metrics | grep '^node_infiniband_state_id' | cut -c 26-
        {transom} devices 2>&1 | grep -o 'transom0:\\|opening transom1'"
    );
    let expected = "transom0/1 state ACTIVE\ntransom1/1 state DOWN\n\
                    device=\"transom0\",port=\"1\"} 4\ndevice=\"transom1\",port=\"1\"} 1\n\
                    transom0:\nopening transom1\n";
    assert_eq!(installed.says(&options, &line), expected, "one that is missing concerns no other");
    let refused = installed.run(&["--device=a,netdev=eth7"], &["true"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("interface eth7"), "{said}");
}

/// Rules: DEVS-05, DEVS-13
#[test]
fn a_device_has_the_addresses_of_its_interface() {
    let test = path_of!("a_device_has_the_addresses_of_its_interface");
    alone(test, Way::Namespace, each_on_its_interface);
}

/// What `rdma statistic` tells, by device.
fn statistics(told: &str) -> BTreeMap<String, Value> {
    let all: Vec<Value> = serde_json::from_str(told).expect("JSON");
    let name = |it: &Value| it["ifname"].as_str().expect("a name").to_owned();
    all.into_iter().map(|it| (name(&it), it)).collect()
}

/// The registry may be that of another namespace of this number, so only what counters have grown by is known.
fn counts_of_two_devices() {
    interfaces_up();
    let installed = Installed::new("counts");
    let binary = installed.two_devices();
    let transom = installed.0.path().join("transom");
    let line = format!(
        "rdma -j statistic && {binary} traffic >/dev/null && rdma -j statistic &&
        cat /sys/class/infiniband/*/ports/1/hw_counters/sent_pkts && {} metrics",
        transom.display()
    );
    let told = installed.says(&["--devices", "2"], &line);
    let parts: Vec<&str> = told.splitn(5, '\n').collect();
    let (before, after, metrics) = (statistics(parts[0]), statistics(parts[1]), parts[4]);
    let outside = Command::new(transom).arg("metrics").output().expect("the command");
    let outside = String::from_utf8(outside.stdout).expect("text");
    let expected = [("transom0", [2, 5, 2], parts[2]), ("transom1", [5, 2, 5], parts[3])];
    for (name, grown, sent) in expected {
        let keys = ["rx_write_requests", "sent_pkts", "rcvd_pkts"];
        let [before, after] =
            [&before, &after].map(|it| keys.map(|key| it[name][key].as_u64().expect("a number")));
        assert_eq!([0, 1, 2].map(|at| after[at] - before[at]), grown, "{name}");
        assert_eq!(sent, after[1].to_string(), "the file of {name}");
        // One that was told nothing of a second device names it after its first.
        for metrics in [metrics, &outside] {
            let sample = format!(
                "node_infiniband_unicast_packets_transmitted_total{{device=\"{name}\",port=\"1\"}} {sent}\n"
            );
            assert!(metrics.contains(&sample), "{metrics}");
        }
    }
}

fn lines_about_each_device() {
    interfaces_up();
    let installed = Installed::new("lines");
    let binary = installed.two_devices();
    let transom = installed.0.path().join("transom");
    let look = |options| {
        let line = format!("LOOKS='{} devices {options}' {binary} looked-at", transom.display());
        installed.says(&["--devices", "2"], &line)
    };
    let told = look("");
    for device in ["0", "1"] {
        assert!(told.contains(&format!("two_devices, device {device}\n")), "{told}");
    }
    let told: Value = serde_json::from_str(&look("--json")).expect("JSON");
    let all = told["processes"].as_array().expect("a list").iter();
    let mut numbers: Vec<_> =
        all.map(|it| it["device_number"].as_u64().expect("a number")).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1]);
}

/// A process has a line for each.
#[test]
fn what_is_told_of_a_process_names_the_device() {
    let test = path_of!("what_is_told_of_a_process_names_the_device");
    alone(test, Way::Namespace, lines_about_each_device);
}

/// Rules: DEVS-08
#[test]
fn each_device_counts_for_itself() {
    alone(path_of!("each_device_counts_for_itself"), Way::Namespace, counts_of_two_devices);
}
