//! Tests run again in a network namespace of their own.

use std::env;
use std::process::{Command, Stdio};

const INSIDE: &str = "TRANSOM_TEST_NAMESPACE";

/// Runs `body` alone in a process in a new network namespace whose loopback interface is up. `test` is
/// the test that calls this. Says so and does nothing where no namespace can be made.
pub(crate) fn in_namespace(test: &str, body: fn()) {
    if env::var_os(INSIDE).is_some_and(|name| name == test) {
        body();
        return remove_registry();
    }
    // An ordinary user gets one along with a user namespace, where the system allows that.
    // SAFETY: takes nothing and cannot fail.
    let user: &[&str] = if unsafe { libc::geteuid() } == 0 { &[] } else { &["--map-root-user"] };
    let enter = |command: &mut Command| -> bool {
        let status = command.stdin(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let mut try_it = Command::new("unshare");
    try_it.args(user).args(["--net", "ip", "link", "set", "lo", "up"]).stderr(Stdio::null());
    if !enter(&mut try_it) {
        return println!("skipped: no network namespace can be made here (unshare, ip)");
    }
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "120", "unshare"]).args(user);
    command.args(["--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]);
    command.arg(env::current_exe().expect("a test has a path"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1", "--include-ignored"]);
    assert!(enter(command.env(INSIDE, test)), "{test} failed in its network namespace");
}

/// Takes away the registry of this namespace, for another namespace may get its number.
fn remove_registry() {
    let namespace = std::fs::read_link("/proc/self/ns/net").expect("a namespace");
    let number: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let of_this = |name: &str| name.starts_with("transom-") && name.contains(&number);
    for entry in entries.filter(|entry| entry.file_name().to_str().is_some_and(of_this)) {
        let _ = std::fs::remove_dir_all(entry.path());
    }
}

/// Runs `ip` with these words.
pub(crate) fn ip(words: &str) {
    let status = Command::new("ip").args(words.split_whitespace()).status();
    assert!(status.expect("there is an ip command").success(), "ip {words}");
}
