//! Several processes on one port.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};
use rustix::process::Signal;
use transom_net::udp::{Arrivals, Port, Way};
use transom_system::registry::{Claim, Registry};

use crate::namespace::in_namespace;
use crate::peer::Peer;

/// This process's port, which sends to the others.
struct Sender {
    port: Port,
    _claim: Claim,
}

impl Sender {
    fn new() -> Self {
        let registry = Registry::open().expect("a registry");
        let claim = registry.claim(0, 0).expect("a slot");
        let port = Port::open(registry, claim.announcer()).expect("the port");
        Self { port, _claim: claim }
    }

    /// Sends `count` datagrams to the process in a slot, in bursts of ten.
    fn send(&self, slot: u8, count: usize) {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let way = Way {
            source: here,
            destination: here,
            flow: slot.into(),
            tos: 0,
            ttl: 64,
            interface: 0,
        };
        let mut datagram = [0; 64];
        datagram[5] = slot;
        let burst = datagram.repeat(10);
        for _ in 0..count / 10 {
            assert_eq!(self.port.send(&way, &burst, 64).expect("room"), 10);
        }
    }

    /// Takes what has come here, and hands on what is not for here.
    fn take(&self) {
        let taken = self.port.receive(&mut Arrivals::default(), usize::MAX, |datagrams| {
            panic!("nobody sends here: {datagrams:?}");
        });
        taken.expect("a socket that works");
    }

    /// Sends to each peer until nothing takes a detour any more, for ten seconds at most, and checks
    /// that all arrives. `sent` is what each has got so far.
    fn settle(&self, peers: &mut [Peer], sent: &mut u64) {
        let mut detours = u64::MAX;
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            for peer in peers.iter() {
                self.send(peer.slot, 10);
            }
            *sent += 10;
            let before = detours;
            detours = 0;
            // Who is asked takes what it has got, and that may be for one who was asked before.
            self.take();
            for peer in peers.iter_mut() {
                detours += peer.seen().handed_on;
            }
            for peer in peers.iter_mut() {
                let seen = peer.until(*sent);
                assert_eq!(seen.foreign, 0);
            }
            detours += self.port.counters().handed_on.load(Relaxed);
            if detours == before {
                return;
            }
        }
        panic!("packets go astray for ever");
    }
}

#[test]
fn each_process_gets_its_packets_and_no_others() {
    in_namespace("sharing::each_process_gets_its_packets_and_no_others", || {
        let mut peers = [Peer::start(), Peer::start(), Peer::start()];
        let (sender, mut sent) = (Sender::new(), 0);
        sender.settle(&mut peers, &mut sent);
        for peer in &peers {
            sender.send(peer.slot, 1000);
        }
        for peer in &mut peers {
            peer.until(sent + 1000);
        }
    });
}

#[test]
fn datagrams_that_came_together_go_to_the_process_of_each() {
    in_namespace("sharing::datagrams_that_came_together_go_to_the_process_of_each", || {
        let mut peers = [Peer::start(), Peer::start(), Peer::start()];
        let (sender, mut sent) = (Sender::new(), 0);
        sender.settle(&mut peers, &mut sent);
        // One burst for all: the process of the first gets it, as from a network card.
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let way = Way { source: here, destination: here, flow: 1, tos: 0, ttl: 64, interface: 0 };
        let mut burst = [0; 60 * 64];
        for (number, datagram) in burst.chunks_mut(64).enumerate() {
            datagram[5] = peers[number / 5 % 3].slot;
        }
        assert_eq!(sender.port.send(&way, &burst, 64).expect("room"), 60);
        for peer in &mut peers {
            assert_eq!(peer.until(sent + 20).foreign, 0);
        }
    });
}

#[test]
fn a_killed_process_takes_nothing_from_the_others() {
    in_namespace("sharing::a_killed_process_takes_nothing_from_the_others", || {
        let mut peers = vec![Peer::start(), Peer::start(), Peer::start(), Peer::start()];
        let (sender, mut sent) = (Sender::new(), 0);
        sender.settle(&mut peers, &mut sent);
        let dead = peers.remove(0);
        let slot = dead.slot;
        dead.kill();
        sender.settle(&mut peers, &mut sent);
        // What still comes for the dead one disturbs nobody.
        sender.send(slot, 100);
        sender.settle(&mut peers, &mut sent);
        peers.remove(1).kill();
        peers.remove(0).kill();
        sender.settle(&mut peers, &mut sent);
    });
}

#[test]
fn a_process_that_leaves_or_comes_takes_nothing_from_the_others() {
    in_namespace("sharing::a_process_that_leaves_or_comes_takes_nothing_from_the_others", || {
        let mut peers = vec![Peer::start(), Peer::start(), Peer::start()];
        let (sender, mut sent) = (Sender::new(), 0);
        sender.settle(&mut peers, &mut sent);
        peers.remove(0).leave();
        sender.settle(&mut peers, &mut sent);
        let mut late = [Peer::start()];
        sender.settle(&mut late, &mut 0);
        sender.settle(&mut peers, &mut sent);
    });
}

#[test]
fn a_stopped_process_keeps_its_packets_and_takes_no_others() {
    in_namespace("sharing::a_stopped_process_keeps_its_packets_and_takes_no_others", || {
        let mut peers = vec![Peer::start(), Peer::start(), Peer::start()];
        let (sender, mut sent) = (Sender::new(), 0);
        sender.settle(&mut peers, &mut sent);
        let stopped = peers.remove(1);
        stopped.signal(Signal::STOP);
        let before = sent;
        sender.send(stopped.slot, 50);
        sender.settle(&mut peers, &mut sent);
        // One goes meanwhile, so that the order changes: the last one moves.
        peers.remove(0).kill();
        sender.settle(&mut peers, &mut sent);
        stopped.signal(Signal::CONT);
        let mut stopped = [stopped];
        let mut own = before + 50;
        stopped[0].until(own);
        sender.settle(&mut stopped, &mut own);
    });
}

/// Packets for the process that moves in the kernel's list when one has left it go to any, and here to none that
/// would hand them on: one is stopped, and this one does not look. That is noticed without a packet.
fn expect_noticed<T>(leave: impl FnOnce(Peer) -> T) {
    let sender = Sender::new();
    let [leaves, stopped, mut last] = [Peer::start(), Peer::start(), Peer::start()];
    stopped.signal(Signal::STOP);
    let _left = leave(leaves);
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut datagram = [0; 64];
    datagram[5] = last.slot;
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut before = last.seen().own;
    loop {
        for flow in 0..16 {
            let way = Way { source: here, destination: here, flow, tos: 0, ttl: 64, interface: 0 };
            assert_eq!(sender.port.send(&way, &datagram, 64).expect("room"), 1);
        }
        let after = last.seen().own;
        if after == before + 16 {
            return;
        }
        assert!(Instant::now() < deadline, "{} of 16 arrive", after - before);
        before = after;
    }
}

#[test]
fn the_end_of_a_process_is_noticed_without_a_packet() {
    in_namespace("sharing::the_end_of_a_process_is_noticed_without_a_packet", || {
        expect_noticed(Peer::kill);
    });
}

/// Its process lives on.
#[test]
fn a_port_that_is_closed_is_noticed_without_a_packet() {
    in_namespace("sharing::a_port_that_is_closed_is_noticed_without_a_packet", || {
        expect_noticed(|mut peer| {
            peer.close();
            peer
        });
    });
}

#[test]
fn many_processes_come_and_go() {
    in_namespace("sharing::many_processes_come_and_go", || {
        let sender = Sender::new();
        let mut peers: Vec<(Peer, u64)> = (0..6).map(|_| (Peer::start(), 0)).collect();
        // A fixed sequence without a pattern: what happens next, and to whom.
        let mut numbers = Xoshiro256PlusPlus::seed_from_u64(1);
        for _ in 0..30 {
            let number = numbers.next_u64();
            let at = (number >> 40) as usize % peers.len();
            match number >> 61 {
                0..=1 if peers.len() > 2 => peers.remove(at).0.kill(),
                2..=3 if peers.len() > 2 => peers.remove(at).0.leave(),
                4 => {
                    // Two at once, so that nobody can tell in which order they went.
                    let (one, other) = (Peer::start(), Peer::start());
                    one.kill();
                    other.kill();
                }
                _ => peers.push((Peer::start(), 0)),
            }
            for (peer, sent) in &mut peers {
                sender.settle(std::slice::from_mut(peer), sent);
            }
        }
    });
}
