//! Connections between processes: through their pipes, and over the wire.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use transom_conformance::connections::*;
use transom_conformance::harness::until;
use transom_conformance::path_of;
use transom_conformance::processes::*;
use transom_conformance::programs::command;
use transom_system::registry::Registry;
use transom_system::registry::connections::Connections;

mod hosts;
mod puppet;
mod users;

use puppet::*;

/// So long a request waits for somebody to listen.
const WAITS: Duration = Duration::from_millis(100);

/// The pipe that tells when a process ends. No other file that is open has its number.
fn life_of(pid: u32) -> u64 {
    let registry = Registry::open().expect("a registry");
    let found = registry.processes().into_iter().find(|it| it.pid == pid);
    let slot = found.expect("it has a device").announcer.slot;
    let path = registry.socket_path(slot).with_file_name(format!("life-{slot}"));
    path.metadata().expect("its pipe").ino()
}

/// The pipes of this kind that a process has open.
fn lives_of(pid: u32) -> impl Iterator<Item = u64> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("it is there");
    let paths = open.filter_map(|it| Some(it.ok()?.path()));
    let lives = paths
        .filter(|path| fs::read_link(path).is_ok_and(|it| it.to_string_lossy().contains("/life-")));
    lives.filter_map(|path| Some(path.metadata().ok()?.ino()))
}

/// Runs each test with processes that reach each other through their pipes, and over the wire.
macro_rules! on_both_ways {
    ($($(#[$doc:meta])* fn $name:ident($environment:ident) $body:block)+) => {
        $($(#[$doc])* mod $name {
            use super::*;

            fn run($environment: &[&str]) $body

            #[test]
            fn local() {
                run(&[]);
            }

            #[test]
            fn wire() {
                alone(path_of!("wire"), Way::Network, || run(&["TRANSOM_LINK=wire"]));
            }
        })+
    };
}

on_both_ways! {
    /// Rules: CM-01, CM-03, CM-09, CM-20, CM-29, CM-41
    fn processes_connect_and_part(environment) {
        let [mut active, mut passive] = Puppet::two(environment);
        let port = passive.ask(&[order::LISTEN, 0]);
        active.connect(&mut passive, port);
        active.order(&[order::DISCONNECT]);
        let (_, of_passive) = passive.expect(event::DISCONNECTED);
        passive.order(&[order::DISCONNECT]);
        let (_, of_active) = active.expect(event::DISCONNECTED);
        assert_ne!(of_active >> 24, of_passive >> 24, "the processes' slots");
        active.expect(event::TIMEWAIT_EXIT);
        passive.expect(event::TIMEWAIT_EXIT);
        active.finish();
        passive.finish();
    }

    /// Rules: CM-21, CM-33
    fn a_request_is_refused(environment) {
        let [mut active, mut passive] = Puppet::two(environment);
        let port = passive.ask(&[order::LISTEN, 0]);
        active.order(&[order::CONNECT, port]);
        active.is_refused_by(&mut passive);
        // Port 1 is nobody's.
        active.order(&[order::CONNECT, 1]);
        assert_eq!(active.expect(event::REJECTED).0, 8);
        active.finish();
        passive.finish();
    }

    /// The other end is told, though its process can say nothing any more.
    ///
    /// Rules: CM-50
    fn connections_of_a_killed_process_end(environment) {
        let [mut active, mut passive] = Puppet::two(environment);
        let port = passive.ask(&[order::LISTEN, 0]);
        active.connect(&mut passive, port);
        passive.0.kill();
        active.expect(event::DISCONNECTED);
        let mut passive = Puppet::start(environment);
        let port = passive.ask(&[order::LISTEN, 0]);
        active.connect(&mut passive, port);
        active.0.kill();
        passive.expect(event::DISCONNECTED);
        passive.finish();
    }

    /// Each process waits for the ends of the others by descriptors. It closes those of one that has ended.
    ///
    /// Rules: CM-50
    fn what_waits_for_the_end_of_a_process_goes_with_it(environment) {
        let [mut active, mut passive] = Puppet::two(environment);
        let port = passive.ask(&[order::LISTEN, 0]);
        active.connect(&mut passive, port);
        let life = life_of(active.0.pid());
        let waits = || lives_of(passive.0.pid()).filter(|it| *it == life).count();
        until("it waits for the end", || (waits() > 0).then_some(()));
        active.0.kill();
        until("nothing of it is open", || (waits() == 0).then_some(()));
        passive.expect(event::DISCONNECTED);
        passive.finish();
    }

    /// Rules: CM-30
    fn a_datagram_service_is_resolved(environment) {
        let [mut active, mut passive] = Puppet::two(environment);
        let port = passive.ask(&[order::SERVE]);
        active.order(&[order::RESOLVE, port]);
        passive.expect(event::CONNECT_REQUEST);
        passive.order(&[order::ACCEPT]);
        active.expect(event::ESTABLISHED);
        active.order(&[order::RESOLVE, 1]);
        assert_eq!(active.expect(event::UNREACHABLE).0, 1);
        active.finish();
        passive.finish();
    }

    /// A request waits where the port is, even if another process gets its packets.
    ///
    /// Rules: CM-56
    fn a_server_tells_its_port_before_it_listens(environment) {
        let [mut active, mut passive] = in_time(WAITS, || {
            let [mut active, mut passive] = Puppet::two(environment);
            let port = passive.ask(&[order::TELL]);
            let asked = Instant::now();
            active.order(&[order::CONNECT, port]);
            passive.ask(&[order::LISTEN]);
            (asked, [active, passive])
        });
        active.is_refused_by(&mut passive);
        active.finish();
        passive.finish();
    }

    /// Rules: CM-22, CM-43
    fn a_request_beyond_the_backlog_finds_room_later(environment) {
        let [mut first, mut second, mut passive] =
            [(); 3].map(|()| Puppet::start(&[environment, &["TRANSOM_CONNECT_TIMEOUT=16000"]].concat()));
        let port = passive.ask(&[order::LISTEN, 1]);
        first.order(&[order::CONNECT, port]);
        second.order(&[order::CONNECT, port]);
        // One of them has been dropped meanwhile, or has come just now; it is sent again in either case.
        for _ in 0..2 {
            passive.expect(event::CONNECT_REQUEST);
            passive.order(&[order::REJECT]);
        }
        for active in [&mut first, &mut second] {
            assert_eq!(active.expect(event::REJECTED).0, 28);
        }
        [first, second, passive].into_iter().for_each(Puppet::finish);
    }

    /// Rules: CM-08, CM-15
    fn messages_that_are_refused_lost_or_late(environment) {
        let start = |fault| {
            let more = [fault, "TRANSOM_CONNECT_TIMEOUT=16000"];
            Puppet::start(&[environment, &more].concat())
        };
        let mut active = start("TRANSOM_FAULT=delay=100ms,op=rep");
        let mut passive = start("TRANSOM_FAULT=reject=3,nth=1;drop,op=req,nth=2;drop,op=rtu,nth=1");
        let port = passive.ask(&[order::LISTEN, 0]);
        active.order(&[order::CONNECT, port]);
        assert_eq!(active.expect(event::REJECTED).0, 3);
        // The REQ is sent again, and so is the REP, for which the RTU is.
        active.connect(&mut passive, port);
        active.finish();
        passive.finish();
    }

    /// The user who asks why a program stands still is told.
    ///
    /// Rules: CM-14
    fn a_request_that_is_not_answered_is_told_while_it_waits(environment) {
        let environment = [environment, &["TRANSOM_CONNECT_TIMEOUT=800"]].concat();
        let [mut active, mut passive] = Puppet::two(&environment);
        let port = passive.ask(&[order::LISTEN, 0]);
        passive.0.stop();
        let registry = Registry::open().expect("the puppets have one");
        let seen = || {
            let table = Connections::look(registry).expect("it can be read")?;
            let all = table.lock().expect("it is locked").all_waiting();
            let mut of_it = all.into_iter().map(|(_, waiting)| waiting);
            of_it.find(|waiting| u64::from(waiting.destination.port()) == port)
        };
        active.order(&[order::CONNECT, port]);
        let waiting = until("it to be told", || seen().filter(|waiting| waiting.sent > 2));
        assert_eq!(waiting.in_vain, 0);
        let sentence = waiting.sentence(waiting.since + 9_000_000_000);
        assert!(sentence.contains(" is not answered for 9 s, sent "), "{sentence}");
        active.expect(event::UNREACHABLE);
        assert_eq!(seen(), None);
        passive.0.resume();
        active.finish();
        passive.finish();
    }

    /// So are programs that ask.
    ///
    /// Rules: EX-07
    fn a_request_that_is_not_answered_is_a_line_of_explain(environment) {
        let [transom, ..] = command();
        let [mut active, mut passive] = Puppet::two(environment);
        let port = passive.ask(&[order::LISTEN, 0]);
        passive.0.stop();
        active.order(&[order::CONNECT, port]);
        let pid = active.0.pid().to_string();
        let line = until("it to be told", || {
            let mut explain = Command::new(transom);
            let told = explain.args(["explain", "--json", "--pid", &pid]).output().expect("it ran");
            let told = String::from_utf8(told.stdout).expect("text");
            let mut lines =
                told.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
            lines.find(|line| line["reason"] == "unanswered")
        });
        assert_eq!((&line["role"], line["pid"].to_string()), (&"waiter".into(), pid), "{line}");
        let sentence = line["sentence"].as_str().expect("a sentence");
        assert!(sentence.contains(&format!(":{port} is not answered for ")), "{line}");
        let [since, seen] = ["since_ns", "time_ns"].map(|key| {
            line[key].as_str().and_then(|time| time.parse::<u64>().ok()).expect("a time")
        });
        assert!((0..60_000_000_000).contains(&(seen - since)), "{line}");
        active.0.kill();
        passive.0.resume();
        passive.finish();
    }

    /// Rules: CM-14, CM-43
    fn a_stopped_peer_is_given_up_after_the_time_set(environment) {
        let environment = [environment, &["TRANSOM_CONNECT_TIMEOUT=400"]].concat();
        let [mut active, mut passive] = Puppet::two(&environment);
        let port = passive.ask(&[order::LISTEN, 0]);
        passive.0.stop();
        active.order(&[order::CONNECT, port]);
        assert_eq!(active.expect(event::UNREACHABLE).0, -libc::ETIMEDOUT);
        passive.0.resume();
        active.finish();
        passive.finish();
    }
}

/// Both ends are started at once, and the client is ready first.
///
/// Rules: CM-56
#[test]
fn a_client_that_is_started_with_its_server_finds_it() {
    let [mut active, mut passive] = in_time(WAITS, || {
        let mut passive = Puppet::start(&[]);
        let port = passive.ask(&[order::LISTEN, 0]);
        passive.ask(&[order::LEAVE]);
        let started = Instant::now();
        let mut active = Puppet::start(&[]);
        active.order(&[order::CONNECT, port]);
        // It has been asked for by then.
        active.ask(&[order::TELL]);
        passive.ask(&[order::RETURN, port]);
        (started, [active, passive])
    });
    active.ask(&[]);
    active.is_refused_by(&mut passive);
    active.finish();
    passive.finish();
}

/// A server that makes a listener for each connection, as `perftest -R` does: the request goes to it though nobody
/// has the port.
///
/// Rules: CM-56
#[test]
fn a_server_lets_its_listener_go_before_it_makes_the_next() {
    let [mut active, mut passive] = in_time(WAITS, || {
        let [mut active, mut passive] = Puppet::two(&[]);
        let port = passive.ask(&[order::LISTEN, 0]);
        active.connect(&mut passive, port);
        passive.ask(&[order::LEAVE]);
        let asked = Instant::now();
        active.order(&[order::CONNECT, port]);
        passive.ask(&[order::RETURN, port]);
        (asked, [active, passive])
    });
    active.is_refused_by(&mut passive);
    active.finish();
    passive.finish();
}

/// What is about a connection goes to its process, and not by way of another that has the port: that may
/// have stopped.
///
/// Rules: CM-20
#[test]
fn stopped_processes_on_the_port_hold_up_no_connection_of_others() {
    alone(
        path_of!("stopped_processes_on_the_port_hold_up_no_connection_of_others"),
        Way::Network,
        || {
            let wire = || Puppet::start(&["TRANSOM_LINK=wire"]);
            let [mut active, mut passive] = [(); 2].map(|()| wire());
            let port = passive.ask(&[order::LISTEN, 0]);
            active.connect(&mut passive, port);
            // Each has the port when it has asked for something. Any of them might get a packet.
            let bystanders = [(); 6].map(|()| {
                let mut bystander = wire();
                bystander.order(&[order::CONNECT, 1]);
                bystander.expect(event::REJECTED);
                bystander
            });
            bystanders.iter().for_each(|it| it.0.stop());
            active.part(&mut passive);
            for bystander in bystanders {
                bystander.0.resume();
                bystander.finish();
            }
            active.finish();
            passive.finish();
        },
    );
}

/// Rules: CM-36, CM-50
#[test]
fn a_port_is_one_process_s_until_that_ends() {
    let [mut one, mut other] = Puppet::two(&[]);
    let port = one.ask(&[order::LISTEN, 0]);
    assert_eq!(other.ask(&[order::BIND, port]), libc::EADDRNOTAVAIL as u64);
    one.0.kill();
    assert_eq!(other.ask(&[order::BIND, port]), 0);
    other.finish();
}
