//! Connections between two hosts.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use transom_conformance::connections::*;
use transom_conformance::processes::*;
use transom_conformance::programs::command;
use transom_conformance::spaces::{INTERFACE, Side, two_hosts};

use super::puppet::*;

/// So long a host says that nobody is there before a request is given up.
const TRIED: Duration = Duration::from_millis(1400);

/// Rules: CM-01, CM-21, CM-29, CM-50, CM-67
#[test]
fn hosts_connect_and_part() {
    let Some(pair) = two_hosts() else { return };
    let mut active = Puppet::start_in(&pair, Side::Near);
    let [mut passive, mut bystander] = [(); 2].map(|()| Puppet::start_in(&pair, Side::Far));
    let port = passive.ask(&[order::LISTEN, 0]);
    // That one may get the packets.
    let other = bystander.ask(&[order::LISTEN, 0]);
    active.connect(&mut passive, port);
    active.part(&mut passive);
    active.expect(event::TIMEWAIT_EXIT);
    active.order(&[order::CONNECT, 1]);
    assert_eq!(active.expect(event::REJECTED).0, 8);
    // Who listens at loopback is there for its own host alone.
    bystander.order(&[order::HOST, Ipv4Addr::LOCALHOST.to_bits().into()]);
    let near = bystander.ask(&[order::LISTEN, 0]);
    active.order(&[order::CONNECT, near]);
    assert_eq!(active.expect(event::REJECTED).0, 28);
    active.connect(&mut bystander, other);
    // The process beside it says so.
    bystander.0.kill();
    active.expect(event::DISCONNECTED);
    // So does one that has the port and uses no connections.
    let net = format!("--net={}", pair.space(Side::Far).path());
    let mut stranger = Child::start_under(STRANGER, &["nsenter", &net]);
    let [] = stranger.hear();
    passive.expect(event::TIMEWAIT_EXIT);
    active.connect(&mut passive, port);
    passive.0.kill();
    active.expect(event::DISCONNECTED);
    stranger.tell(&[]);
    stranger.finish();
    active.finish();
}

/// Nobody else is on its host, but for what `transom run` has left beside it.
///
/// Rules: CM-50
#[test]
fn a_program_of_transom_run_is_spoken_for_however_it_ends() {
    let Some(pair) = two_hosts() else { return };
    let [transom, ..] = command();
    let run = [transom.to_str().expect("text"), "run", "--"];
    // The first process of a container, with which all others there end.
    let contained = [&["unshare", "--pid", "--fork", "--mount-proc"], &run[..]].concat();
    let mut active = Puppet::start_in(&pair, Side::Near);
    let ways = [libc::SIGKILL, libc::SIGTERM, libc::SIGABRT, 0];
    let ways = ways.into_iter().flat_map(|how| [(how, &run[..]), (how, &contained)]);
    for (how, command) in ways {
        let mut passive = Puppet::start_under_in(&pair, Side::Far, command);
        let port = passive.ask(&[order::LISTEN, 0]);
        active.connect(&mut passive, port);
        passive.order(&[order::DIE, how as u64]);
        active.expect(event::DISCONNECTED);
        active.order(&[order::DISCONNECT]);
        active.expect(event::TIMEWAIT_EXIT);
    }
    active.finish();
}

/// What is said for it may be lost: `transom run` says it again, and so does another process of its host.
///
/// Rules: CM-50
#[test]
fn what_is_said_for_the_dead_is_said_again() {
    let Some(pair) = two_hosts() else { return };
    let [transom, ..] = command();
    let run = [transom.to_str().expect("text"), "run", "--"];
    let loses = ["env", "TRANSOM_FAULT=drop,op=dreq,nth=1"];
    for (command, others) in [(&run[..], 0), (&[], 1)] {
        let others: Vec<_> = (0..others).map(|_| Puppet::start_in(&pair, Side::Far)).collect();
        let mut active = Puppet::start_under_in(&pair, Side::Near, &loses);
        let mut passive = Puppet::start_under_in(&pair, Side::Far, command);
        let port = passive.ask(&[order::LISTEN, 0]);
        active.connect(&mut passive, port);
        passive.0.kill();
        active.expect(event::DISCONNECTED);
        others.into_iter().chain([active]).for_each(Puppet::finish);
    }
}

/// Nobody could answer: the host says so. A server that starts there in time gets the request.
///
/// Rules: CM-70
#[test]
fn a_host_where_no_process_is_says_so_unless_one_starts_in_time() {
    let Some(pair) = two_hosts() else { return };
    let mut active = Puppet::start_in(&pair, Side::Near);
    let asked = Instant::now();
    active.order(&[order::CONNECT, 7471]);
    assert_eq!(active.expect(event::REJECTED).0, 8);
    active.order(&[order::RESOLVE, 7471]);
    assert_eq!(active.expect(event::UNREACHABLE).0, 1);
    // Linux would wait for two minutes.
    assert!(asked.elapsed() < LIMIT, "{:?}", asked.elapsed());
    active.finish();
    let [mut active, mut passive] = in_time(TRIED, || {
        let mut active = Puppet::start_in(&pair, Side::Near);
        let asked = Instant::now();
        active.order(&[order::CONNECT, 7471]);
        let mut passive = Puppet::start_in(&pair, Side::Far);
        passive.ask(&[order::RETURN, 7471]);
        (asked, [active, passive])
    });
    active.is_accepted_by(&mut passive);
    // Nobody is left to say that it is over. An end that says so itself learns that it is.
    passive.0.kill();
    active.order(&[order::DISCONNECT]);
    assert_eq!(active.expect(event::DISCONNECTED).0, 0);
    active.finish();
}

/// Link-local addresses, of which each names its interface, and which lead nowhere without.
///
/// Rules: CM-36
#[test]
fn hosts_connect_by_link_local_addresses() {
    let Some(pair) = two_hosts() else { return };
    for (side, last) in [(Side::Near, 1), (Side::Far, 2)] {
        let given = pair.space(side).ip(&format!("addr add fe80::{last}/64 dev {INTERFACE} nodad"));
        given.expect("an address");
    }
    let [mut active, mut passive] = [Side::Near, Side::Far].map(|side| {
        let mut puppet = Puppet::start_in(&pair, side);
        puppet.order(&[order::LINK_LOCAL, 2]);
        puppet
    });
    let port = passive.ask(&[order::LISTEN, 0]);
    active.connect(&mut passive, port);
    assert_eq!(active.ask(&[order::INTERFACE]), 1, "its own address has an interface too");
    active.part(&mut passive);
    active.finish();
    passive.finish();
}
