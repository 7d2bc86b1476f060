//! Datagrams that come to nobody.

use std::net::IpAddr;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use transom_net::udp::{Obstacle, Way};

use crate::namespace::in_namespace;
use crate::peer::Peer;
use crate::port::Opened;

/// A SEND of RC to this queue pair.
fn request(qpn: u32, length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..length).map(|at| at as u8).collect();
    bytes[0] = 0x04;
    bytes[4..8].copy_from_slice(&qpn.to_be_bytes());
    bytes
}

fn way(address: &str) -> Way {
    let address: IpAddr = address.parse().expect("an address");
    Way { source: address, destination: address, flow: 0x1234, tos: 0, ttl: 64, interface: 0 }
}

/// What is told next: where it was sent to, why it has not arrived, and its beginning.
fn told(here: &Opened) -> Vec<(IpAddr, Obstacle, Vec<u8>)> {
    let descriptor = here.port.undelivered_descriptor();
    let mut wait = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    let patience = Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(poll(&mut wait, Some(&patience)), Ok(1), "it is told");
    let mut all = Vec::new();
    here.port.undelivered(|it| all.push((it.destination, it.why, it.datagram.to_vec())));
    all
}

/// The next sender does not take the report for its own.
#[test]
fn what_a_host_says_that_nobody_has_the_port_is_told_with_what_was_sent() {
    let test = "undelivered::what_a_host_says_that_nobody_has_the_port_is_told_with_what_was_sent";
    in_namespace(test, || {
        let here = Opened::new();
        here.port.close();
        for (address, length) in [("127.0.0.1", 308), ("::1", 308), ("127.0.0.1", 12)] {
            let (way, sent) = (way(address), request(0x3_0007, length));
            let send = || here.port.send(&way, &sent, length).expect("it is sent");
            send();
            let first = told(&here);
            assert_eq!(first, [(way.destination, Obstacle::NoPort, sent.clone())]);
            // The socket hears of the first while it sends the second, and of that while it sends the third.
            for _ in 0..3 {
                send();
            }
            let mut rest = told(&here);
            while rest.len() < 3 {
                rest.extend(told(&here));
            }
            assert_eq!(rest, vec![first[0].clone(); 3]);
        }
        let descriptor = here.port.undelivered_descriptor();
        let mut wait = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        assert_eq!(poll(&mut wait, Some(&now)), Ok(0), "all is told");
    });
}

/// No host says so where another process has the port: that one does.
#[test]
fn a_sender_to_a_process_that_has_ended_is_told_by_the_one_that_has_the_port() {
    let test = concat!(
        "undelivered::",
        "a_sender_to_a_process_that_has_ended_is_told_by_the_one_that_has_the_port"
    );
    in_namespace(test, || {
        let mut here = Opened::new();
        let other = Peer::start();
        let qpn = u32::from(other.slot) << 16 | 7;
        for address in ["127.0.0.1", "::1"] {
            let sent = request(qpn, 40);
            here.port.send(&way(address), &sent, 40).expect("it is sent");
        }
        other.kill();
        for address in ["127.0.0.1", "::1"] {
            let (way, sent) = (way(address), request(qpn, 40));
            let mut rounds = 0;
            let it = loop {
                here.port.send(&way, &sent, 40).expect("it is sent");
                assert!(here.take().is_empty(), "nothing is for this process");
                let mut all = Vec::new();
                here.port.undelivered(|it| all.push((it.why, it.datagram.to_vec())));
                if let Some(it) = all.pop() {
                    break it;
                }
                rounds += 1;
                assert!(rounds < 1_000_000, "nothing is told");
                std::thread::yield_now();
            };
            assert_eq!(it, (Obstacle::NoProcess, sent[..12].to_vec()));
        }
        // Nobody waits for an answer to an unreliable one, nor to an answer.
        for opcode in [0x24, 0x64, 0x11] {
            let mut sent = request(qpn, 40);
            sent[0] = opcode;
            here.port.send(&way("127.0.0.1"), &sent, 40).expect("it is sent");
            assert!(here.take().is_empty());
            here.port.undelivered(|it| panic!("{it:?}"));
        }
    });
}
