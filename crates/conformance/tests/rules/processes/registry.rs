//! The registry of processes: who finds whom on one host, in whatever namespaces; that no place in it is
//! lost to processes that have ended; and where it lies.

use std::process::{Command, Stdio};

use transom_conformance::processes::*;

mod ended;
mod guids;
mod location;
mod reached;

/// How a program is run in a PID namespace of its own.
const OWN_PIDS: &[&str] = &["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
/// The same, with the `/proc` of the namespace around it.
const OWN_PIDS_BUT_PROC: &[&str] = &["unshare", "--pid", "--fork", "--kill-child"];

/// How a program is run in a mount namespace of its own, after the commands that follow.
const OWN_MOUNTS: &[&str] = &["unshare", "--mount", "sh", "-c"];

/// How a program is run so that no mode lets it pass because it is root.
const WITHOUT_RIGHTS: &[&str] = &["setpriv", "--bounding-set=-all", "--inh-caps=-all"];

/// Runs a test in a network namespace with its loopback interface up, if `wrapper` works there.
fn in_network(test: &str, wrapper: &[&str], body: fn()) {
    // Where the test itself runs, it has been found out.
    if std::env::var_os("TRANSOM_TEST_ALONE").is_none() {
        let user: &[&str] = if is_root() { &[] } else { &["--map-root-user"] };
        let mut attempt = Command::new("unshare");
        attempt.args(user).arg("--net").args(wrapper).arg("true").stderr(Stdio::null());
        if !attempt.status().is_ok_and(|status| status.success()) {
            return eprintln!("skipped: {wrapper:?} does not work here");
        }
    }
    alone(test, Way::Namespace, body);
}

fn loopback_up() {
    let status = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    assert!(status.is_ok_and(|status| status.success()), "ip link set lo up");
}

/// What a process has done before it runs, in a mount namespace of its own.
fn after(commands: &str) -> Vec<String> {
    let script = format!("{commands} && exec \"$@\"");
    OWN_MOUNTS.iter().copied().chain([&*script, "sh"]).map(str::to_owned).collect()
}

fn words(wrapper: &[String]) -> Vec<&str> {
    wrapper.iter().map(String::as_str).collect()
}
