//! If programs of another user have the device's UDP port, the tests run in a network namespace of their own.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::{env, fs};

use crate::processes::{is_of_a_test, is_root, this_program};

/// UDP port 4791, as the kernel's tables have it.
const PORT: &str = ":12B7";
/// Whether this process has moved.
const MOVED: &str = "TRANSOM_TEST_MOVED";

/// Gives a new network namespace what most hosts have: the loopback interface, and another one with addresses of both
/// families and the default route. Then it runs a command.
const INSIDE: &str = "\
    ip link set lo up || exit
    ip link add eth0 type veth peer name far
    for interface in eth0 far; do
        ip link set $interface addrgenmode none
        ip link set $interface up
    done
    ip address add 10.9.0.1/24 dev eth0
    ip address add fe80::901/64 dev eth0 nodad
    ip route add default via 10.9.0.2 dev eth0
    exec \"$@\"";

/// Moves this process if another user's programs have the port. Call this before the process has threads: a program of
/// tests names it in its `.init_array`.
pub extern "C" fn leave() {
    // A test has put its own processes where they are, also those of other users.
    if env::var_os(MOVED).is_some() || is_of_a_test() {
        return;
    }
    // SAFETY: it has no arguments and cannot fail.
    let user = unsafe { libc::geteuid() };
    let tables = ["/proc/self/net/udp", "/proc/self/net/udp6"];
    let tables = tables.map(|table| fs::read_to_string(table).unwrap_or_default());
    let Some(other) = tables.iter().find_map(|table| other_user(table, user)) else { return };
    let taken = format!("UDP port 4791 is taken by a program of user {other}");
    let possible = unshared().args(["true"]).stderr(Stdio::null()).status();
    if !possible.is_ok_and(|status| status.success()) {
        eprintln!(
            "{taken}, and no network namespace can be made here (unshare): tests over the wire fail. \
             End that program: `ss -ulpn sport = :4791` names it"
        );
        return;
    }
    eprintln!("{taken}: these tests run in a network namespace of their own");
    let mut moved = unshared();
    moved.args(["sh", "-c", INSIDE, "sh"]);
    if !is_root() {
        // Without the privileges that made the namespace.
        moved.args(["setpriv", "--inh-caps=-all", "--ambient-caps=-all"]);
    }
    let error = moved.arg(this_program()).args(env::args_os().skip(1)).env(MOVED, "").exec();
    eprintln!("they do not, because unshare does not start: {error}");
}

/// A command in a new network namespace. An ordinary user gets one together with a user namespace.
fn unshared() -> Command {
    let mut unshare = Command::new("unshare");
    unshare.arg("--net");
    if !is_root() {
        unshare.args(["--map-current-user", "--keep-caps"]);
    }
    unshare
}

/// Another user who has the port, by a table of sockets: behind the title a line each, with the address, the state, two
/// pairs of numbers and a count before the user.
fn other_user(table: &str, user: u32) -> Option<u32> {
    let of_line = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        words.next().filter(|address| address.ends_with(PORT))?;
        words.nth(5)?.parse().ok()
    };
    table.lines().skip(1).filter_map(of_line).find(|owner| *owner != user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_user_is_found_who_has_the_port() {
        let table = "\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  187: 00000000:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 41 2 0000000000000000 0
  188: 00000000:12B8 00000000:0000 07 00000000:00000000 00:00000000 00000000     7        0 42 2 0000000000000000 0
";
        assert_eq!(other_user(table, 0), Some(1000));
        assert_eq!(other_user(table, 1000), None);
        assert_eq!(other_user("", 0), None);
    }
}
