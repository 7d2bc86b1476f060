//! How fast bytes go through the port: run with `--release -- --ignored --nocapture speed`.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use transom_net::udp::{Arrivals, Port, SendError, Way};
use transom_system::registry::Registry;

use crate::namespace::{in_namespace, ip};

/// Bytes under way at most.
const WINDOW: u64 = 1 << 20;
const DURATION: Duration = Duration::from_secs(1);

/// Sends from one thread to another for a while; `arrange` runs in the receiving thread first.
fn measure(name: &str, segment: usize, source: IpAddr, destination: IpAddr, arrange: fn()) {
    let registry = Registry::open().expect("a registry");
    let claims = [(); 2].map(|()| registry.claim(0, 0).expect("a slot"));
    let [near, far] = claims.each_ref().map(|claim| claim.announcer());
    let (arrived, datagrams, ready, done) =
        (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            arrange();
            let port = Port::open(registry, far).expect("the port");
            let mut arrivals = Arrivals::default();
            ready.store(true, Release);
            while !done.load(Acquire) {
                let taken = port.receive(&mut arrivals, 64, |burst| {
                    datagrams.fetch_add(burst.iter().len() as u64, Relaxed);
                    arrived.fetch_add(burst.bytes.len() as u64, Release);
                });
                if taken.expect("a socket that works") == 0 {
                    let mut events =
                        port.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
                    let a_moment = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
                    poll(&mut events, Some(&a_moment)).expect("poll");
                }
            }
        });
        while !ready.load(Acquire) {
            std::thread::yield_now();
        }
        let port = Port::open(registry, near).expect("the port");
        let mut arrivals = Arrivals::default();
        port.receive(&mut arrivals, 64, |_| {}).expect("a socket that works");
        let way = Way { source, destination, flow: 1, tos: 0, ttl: 64, interface: 0 };
        let count = port.most_segments(segment);
        let mut burst = vec![0; count * segment];
        burst.chunks_mut(segment).for_each(|datagram| datagram[5] = far.slot);
        let (begun, mut sent, mut calls) = (Instant::now(), 0, 0_u64);
        let mut last = (Instant::now(), 0);
        while begun.elapsed() < DURATION {
            let now = arrived.load(Acquire);
            if now != last.1 {
                last = (Instant::now(), now);
            }
            if sent - now > WINDOW {
                // What is lost would stop this for ever.
                if last.0.elapsed() > Duration::from_millis(100) {
                    sent = now;
                }
                std::thread::yield_now();
                continue;
            }
            match port.send(&way, &burst, segment) {
                Ok(_) => (sent, calls) = (sent + burst.len() as u64, calls + 1),
                Err(SendError::Busy) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        let speed = arrived.load(Acquire) as f64 / begun.elapsed().as_secs_f64() / 1e9;
        done.store(true, Release);
        let datagrams = datagrams.load(Relaxed);
        println!("{name}, {segment} bytes: {speed:.2} GB/s ({datagrams} datagrams, {calls} sends)");
    });
}

/// What one small datagram costs from call to call, beside a plain socket's.
#[test]
#[ignore = "a measurement"]
fn one_by_one() {
    const ROUNDS: u32 = 300_000;
    in_namespace("speed::one_by_one", || {
        let registry = Registry::open().expect("a registry");
        let claim = registry.claim(0, 0).expect("a slot");
        let port = Port::open(registry, claim.announcer()).expect("the port");
        let mut arrivals = Arrivals::default();
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let way = Way { source: here, destination: here, flow: 1, tos: 0, ttl: 64, interface: 0 };
        let mut datagram = [0; 40];
        datagram[5] = claim.announcer().slot;
        let plain = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let to = plain.local_addr().expect("it is bound");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a port");
        for _ in 0..3 {
            let begun = Instant::now();
            for _ in 0..ROUNDS {
                sender.send_to(&datagram, to).expect("it is sent");
                plain.recv_from(&mut [0; 64]).expect("it has arrived");
            }
            let bare = begun.elapsed() / ROUNDS;
            let (begun, mut arrived) = (Instant::now(), 0);
            while arrived < ROUNDS as usize {
                port.send(&way, &datagram, 40).expect("it is sent");
                port.receive(&mut arrivals, 16, |burst| arrived += burst.iter().len())
                    .expect("it has arrived");
            }
            let ours = begun.elapsed() / ROUNDS;
            let begun = Instant::now();
            for _ in 0..ROUNDS {
                port.receive(&mut arrivals, 16, |_| {}).expect("nothing");
            }
            let ours_empty = begun.elapsed() / ROUNDS;
            plain.set_nonblocking(true).expect("an option");
            let begun = Instant::now();
            for _ in 0..ROUNDS {
                plain.recv_from(&mut [0; 64]).expect_err("nothing");
            }
            let bare_empty = begun.elapsed() / ROUNDS;
            plain.set_nonblocking(false).expect("an option");
            println!("plain {bare:?}, ours {ours:?}; nothing there {bare_empty:?}, {ours_empty:?}");
        }
    });
}

#[test]
#[ignore = "a measurement"]
fn loopback() {
    in_namespace("speed::loopback", || {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        for segment in [1072, 4144] {
            measure("loopback", segment, here, here, || {});
        }
    });
}

#[test]
#[ignore = "a measurement"]
fn veth() {
    in_namespace("speed::veth", || {
        for (segment, mtu) in [(1072, "1500"), (4144, "4400")] {
            // The last one goes with its namespace, in a while.
            let _ = Command::new("ip").args(["link", "del", "near"]).status();
            ip("link add near type veth peer name far");
            ip("address add 10.9.0.1/24 dev near");
            ip(&format!("link set near mtu {mtu} up"));
            ip(&format!("link set far mtu {mtu}"));
            let source = Ipv4Addr::new(10, 9, 0, 1).into();
            measure("veth", segment, source, Ipv4Addr::new(10, 9, 0, 2).into(), || {
                // SAFETY: this thread has no descriptors that depend on its namespace yet.
                unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }
                    .expect("a namespace");
                let me = rustix::thread::gettid();
                let parent = std::process::id();
                let enter = format!("-t {parent} -n ip link set far netns {me}");
                let moved = Command::new("nsenter").args(enter.split_whitespace()).status();
                assert!(moved.is_ok_and(|status| status.success()));
                ip("link set lo up");
                ip("address add 10.9.0.2/24 dev far");
                ip("link set far up");
            });
        }
    });
}
