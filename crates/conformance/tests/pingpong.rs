//! Debian's own programs, unmodified, over our library: `apt-get install ibverbs-utils`.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use transom_conformance::processes::{Scratch, is_root};
use transom_conformance::programs::{Running, as_nobody, library, program};

const ITERATIONS: usize = 1000;

/// A tool of ibverbs-utils that finds our library in `folder`.
fn tool(name: &str, folder: &Path) -> Command {
    let mut command = Command::new(program(name, "ibverbs-utils"));
    command.env("LD_LIBRARY_PATH", folder);
    command
}

fn our_library() -> &'static Path {
    library(env!("CARGO_TARGET_TMPDIR"))
}

/// A port that was free a moment ago, on all addresses; the kernel gives out others before it comes
/// to this one again.
fn free_port() -> u16 {
    let probe = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"));
    probe.and_then(|probe| probe.local_addr()).expect("a free port").port()
}

/// One run of a ping-pong between two processes; every byte is checked by the programs themselves.
fn ping_pong(tool: impl Fn() -> Command, size: usize, more: &[&str]) {
    let port = free_port();
    let command = || {
        let mut command = tool();
        command.args(["-p", &port.to_string(), "-s", &size.to_string()]);
        command.args(["-n", &ITERATIONS.to_string(), "-c"]).args(more);
        command
    };
    let mut server = Running::start(&mut command());
    server.wait_until_it_listens(port);
    let client = Running::start(command().arg("localhost"));
    for end in [client, server] {
        let printed = end.finish(Duration::from_secs(120));
        let total = format!("{} bytes in ", 2 * size * ITERATIONS);
        let expected = [total.as_str(), "1000 iters in ", "local address:", "remote address:"];
        assert!(expected.iter().all(|line| printed.contains(line)), "{printed}");
        assert!(!printed.contains("invalid data"), "{printed}");
    }
}

fn every_size(name: &str, more: &[&str]) {
    // 1 byte to 1 MiB.
    for power in 0..=20 {
        ping_pong(|| tool(name, our_library()), 1 << power, more);
    }
}

#[test]
fn rc_pingpong_runs_polling() {
    every_size("ibv_rc_pingpong", &[]);
}

#[test]
fn rc_pingpong_runs_with_events() {
    every_size("ibv_rc_pingpong", &["-e"]);
}

#[test]
fn uc_pingpong_runs_polling() {
    every_size("ibv_uc_pingpong", &[]);
}

#[test]
fn uc_pingpong_runs_with_events() {
    every_size("ibv_uc_pingpong", &["-e"]);
}

#[test]
fn pingpong_runs_with_a_gid_and_other_mtus() {
    for name in ["ibv_rc_pingpong", "ibv_uc_pingpong"] {
        ping_pong(|| tool(name, our_library()), 5000, &["-g", "0"]);
        ping_pong(|| tool(name, our_library()), 100_000, &["-g", "0", "-e", "-m", "4096"]);
        ping_pong(|| tool(name, our_library()), 100_000, &["-m", "256", "-r", "16", "-i", "1"]);
    }
}

#[test]
fn pingpong_runs_through_shared_memory() {
    for name in ["ibv_rc_pingpong", "ibv_uc_pingpong"] {
        let shared = || {
            let mut command = tool(name, our_library());
            command.env("TRANSOM_COPY", "shared");
            command
        };
        ping_pong(shared, 100_000, &["-e"]);
    }
}

#[test]
fn an_ordinary_user_needs_no_more() {
    if !is_root() {
        println!("skipped: not root, so the other tests are unprivileged already");
        return;
    }
    // The build's folder may be root's alone.
    let scratch = Scratch::new("pingpong");
    let library = scratch.take(&our_library().join("libibverbs.so.1"));
    assert_eq!(library, scratch.path().join("libibverbs.so.1"));
    let unprivileged = |name: &'static str| {
        let folder = scratch.path().to_owned();
        move || {
            let mut command = tool(name, &folder);
            as_nobody(&mut command);
            command
        }
    };
    for name in ["ibv_rc_pingpong", "ibv_uc_pingpong"] {
        ping_pong(unprivileged(name), 4096, &[]);
        ping_pong(unprivileged(name), 1 << 20, &["-e"]);
    }
    let mut info = unprivileged("ibv_devinfo")();
    let printed = Running::start(&mut info).finish(Duration::from_secs(20));
    assert!(printed.contains("transom0"));
}

#[test]
fn the_device_is_listed() {
    let mut list = tool("ibv_devices", our_library());
    let printed = Running::start(&mut list).finish(Duration::from_secs(20));
    let device = printed.lines().find(|line| line.contains("transom0")).expect("our device");
    let guid = device.split_whitespace().last().expect("its GUID");
    assert!(guid.len() == 16 && u64::from_str_radix(guid, 16).is_ok_and(|guid| guid != 0));
}

#[test]
fn the_device_is_described() {
    let mut info = tool("ibv_devinfo", our_library());
    let printed = Running::start(info.arg("-v")).finish(Duration::from_secs(20));
    let value = |name: &str| {
        let line = printed.lines().find(|line| line.trim_start().starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in\n{printed}"));
        line.split_once(':').expect("a name and a value").1.trim().to_owned()
    };
    assert_eq!(value("hca_id:"), "transom0");
    assert_eq!(value("state:"), "PORT_ACTIVE (4)");
    assert_eq!(value("active_mtu:"), "4096 (5)");
    assert_eq!(value("link_layer:"), "Ethernet");
    assert_eq!(value("atomic_cap:"), "ATOMIC_HCA (1)");
    for name in ["max_mr:", "max_mw:"] {
        assert!(value(name).parse::<u64>().is_ok_and(|count| count >= 1 << 20), "{name}");
    }
    for line in ["MEM_WINDOW", "MEM_WINDOW_TYPE_2B", "MEM_MGT_EXTENSIONS", "GID[  0]:"] {
        assert!(printed.lines().any(|found| found.trim_start().starts_with(line)), "{line}");
    }
    assert!(printed.contains("::ffff:127.0.0.1, RoCE v2"), "{printed}");
}
