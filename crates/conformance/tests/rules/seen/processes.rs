//! Counts of processes that end, however they end, and of those that are forked.

use std::process::Command;
use std::time::Duration;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::*;
use transom_conformance::programs::{Running, command};
use transom_conformance::watching::{Counters, Kept, counters, counters_in, grown};
use transom_ibverbs::*;

use super::exporters::{scraped, value};

/// How many WRITEs a process carries out.
const WRITES: u64 = 7;

#[test]
fn role() {
    play(&[
        ("writes", writes),
        ("is_written_to", is_written_to),
        ("writes_to_itself", writes_to_itself),
        ("reads_from_itself", reads_from_itself),
    ]);
}

/// Connects, writes, and ends as it is told to.
fn writes(channel: &mut Channel) {
    let end = open();
    let qp = end.qp(IBV_QPT_RC);
    let near = Buffer::filled(64, 3);
    let mr = end.reg(&near, ALL);
    meet(channel, qp);
    let [at, key] = channel.hear();
    for _ in 0..WRITES {
        let mut sges = [sge(near.addr(), 64, mr)];
        post(qp, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, at, key as u32));
        end.expect(IBV_WC_SUCCESS);
    }
    channel.tell(&[1]);
    let [way] = channel.hear();
    match way {
        // The device is open.
        0 => std::mem::forget(end),
        1 => drop(end),
        _ => loop {
            std::thread::park();
        },
    }
}

fn is_written_to(channel: &mut Channel) {
    let end = open();
    let qp = end.qp(IBV_QPT_RC);
    let far = Buffer::filled(64, 5);
    let mr = end.reg(&far, ALL);
    meet(channel, qp);
    channel.tell(&[far.addr(), keys(mr).1.into()]);
    let [] = channel.hear();
}

fn count(counters: &Counters, name: &str) -> u64 {
    counters.get(name).copied().unwrap_or_default()
}

/// A process writes to another and ends: with its device closed, with its device open, or killed.
fn ended() {
    for way in 0..3 {
        let before = counters();
        let mut target = Child::start(path_of!("is_written_to"));
        let mut origin = Child::start(path_of!("writes"));
        let ([a], [b]) = (origin.hear(), target.hear());
        origin.tell(&[b]);
        target.tell(&[a]);
        let ([], []) = (origin.hear(), target.hear());
        origin.tell(&[]);
        target.tell(&[]);
        let place: [u64; 2] = target.hear();
        origin.tell(&place);
        let [_] = origin.hear();
        let during = grown(&before, &counters());
        assert_eq!(count(&during, "hw/rx_write_requests"), WRITES);
        assert_eq!(count(&during, "port_xmit_packets"), WRITES);
        if way == 2 {
            origin.kill();
        } else {
            origin.tell(&[way]);
            origin.finish();
        }
        // The other end stays, and has noticed.
        until("the other end to notice", || {
            let after = grown(&before, &counters());
            (after == during).then_some(())
        });
        target.tell(&[]);
        target.finish();
        assert_eq!(grown(&before, &counters()), during, "way {way}");
    }
}

/// Rules: SEE-02
#[test]
fn what_ended_processes_have_carried_stays_in_the_sums() {
    let path = path_of!("what_ended_processes_have_carried_stays_in_the_sums");
    alone(path, Way::Namespace, ended);
}

/// A process writes to itself, and is killed while nobody but an exporter knows it.
fn killed_alone() {
    let before = counters();
    let kept = Kept::new("kept");
    let mut process = Child::start(path_of!("writes_to_itself"));
    let [] = process.hear();
    let port = kept.path().join("class/infiniband/transom0/ports/1");
    until("the exporter to see it", || {
        let found = grown(&before, &counters_in(&port));
        (count(&found, "hw/rx_write_requests") == WRITES).then_some(())
    });
    // The exporter may still be writing its other files.
    let during = counters();
    process.kill();
    // It has taken a slot that another process may have next.
    let mut other = Child::start(path_of!("reads_from_itself"));
    // What the exporter shows is what it adds up in one round.
    let mut last = counters_in(&port);
    for reads in 1..=2 {
        other.tell(&[]);
        until("the exporter to see the other process", || {
            let now = counters_in(&port);
            grown(&last, &now);
            last = now;
            (count(&grown(&before, &last), "hw/rx_read_requests") == reads).then_some(())
        });
    }
    other.tell(&[]);
    other.finish();
    kept.end();
    // None has fallen.
    let after = grown(&during, &counters());
    assert_eq!(
        (count(&after, "hw/rx_read_requests"), after.get("hw/rx_write_requests")),
        (2, None)
    );
}

/// The same while a scraper asks.
fn killed_before_a_scrape() {
    interfaces_up();
    let address = "127.0.0.1:9879".parse().expect("an address");
    let mut transom = Command::new(&command()[0]);
    let mut transom = Running::start(transom.args(["metrics", "--listen", "127.0.0.1:9879"]));
    until("the answer", || scraped(address));
    let name = "node_infiniband_port_packets_transmitted_total{device=\"transom0\",port=\"1\"}";
    let sent = || value(&scraped(address).expect("it answers"), name);
    // More than once, because it may just then have looked by itself.
    for _ in 0..3 {
        let mut process = Child::start(path_of!("writes_to_itself"));
        let [] = process.hear();
        let before = sent();
        process.kill();
        assert_eq!([sent(), sent()], [before; 2]);
    }
    transom.signal(libc::SIGTERM);
    transom.success(Duration::from_secs(30)).expect("it ends well");
}

/// READs each time it is told to, twice.
fn reads_from_itself(channel: &mut Channel) {
    let it = MemoryPair::new(Link::Loopback, 64);
    for _ in 0..2 {
        let [] = channel.hear();
        let done = it.op(IBV_WR_RDMA_READ, it.far.addr(), it.key(), 64);
        assert_eq!(done.status, IBV_WC_SUCCESS);
    }
    let [] = channel.hear();
}

fn writes_to_itself(channel: &mut Channel) {
    let it = MemoryPair::new(Link::Loopback, 64);
    for _ in 0..WRITES {
        let done = it.op(IBV_WR_RDMA_WRITE, it.far.addr(), it.key(), 64);
        assert_eq!(done.status, IBV_WC_SUCCESS);
    }
    channel.tell(&[]);
    let [] = channel.hear();
}

/// Rules: SEE-02
#[test]
fn who_watches_keeps_what_a_killed_process_has_carried() {
    let path = path_of!("who_watches_keeps_what_a_killed_process_has_carried");
    alone(path, Way::Namespace, killed_alone);
}

/// Rules: SEE-02
#[test]
fn no_counter_falls_before_who_scrapes() {
    alone(path_of!("no_counter_falls_before_who_scrapes"), Way::Namespace, killed_before_a_scrape);
}

/// A forked child finds its parent's queue pair in error.
fn forked() {
    let it = MemoryPair::new(Link::Loopback, 64);
    recv(it.pair.qb, 1, &mut [it.far_sge(0, 8)]);
    let before = counters();
    fork_once(|| {
        let mut sges = [it.near_sge(0, 8)];
        let mut wr = rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, it.far.addr(), it.key());
        try_post(it.pair.qa, &mut wr);
        // SAFETY: a live queue pair, not used afterwards.
        unsafe { ibv_destroy_qp(it.pair.qa) == 0 }
    });
    assert_eq!(counters(), before);
}

/// Rules: SEE-05
#[test]
fn a_forked_child_counts_nothing() {
    alone(path_of!("a_forked_child_counts_nothing"), Way::Namespace, forked);
}
