//! One process's port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as SocketAddrUnix, UnixDatagram, UnixListener};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType};
use transom_net::udp::{Arrivals, Datagrams, Port, SendError, Way, path_mtu, taken_by_others};
use transom_system::registry::{Claim, Dropped, Registry};
use transom_wire::packet::PORT;

use crate::namespace::{in_namespace, ip};

/// Datagrams that came together, and their way.
pub(crate) struct Burst {
    from: SocketAddr,
    to: IpAddr,
    tos: u8,
    ttl: u8,
    parts: Vec<Vec<u8>>,
}

/// A port and its slot in the registry.
pub(crate) struct Opened {
    pub(crate) port: Port,
    pub(crate) claim: Claim,
    arrivals: Arrivals,
}

impl Opened {
    pub(crate) fn new() -> Self {
        let registry = Registry::open().expect("a registry");
        let claim = registry.claim(0, 0).expect("a slot");
        let port = Port::open(registry, claim.announcer()).expect("the port");
        Self { port, claim, arrivals: Arrivals::default() }
    }

    /// Datagrams of `length` bytes for this process, all different.
    pub(crate) fn datagrams(&self, count: usize, length: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..count * length).map(|at| (at / 3) as u8).collect();
        for (number, datagram) in bytes.chunks_mut(length).enumerate() {
            datagram[..12].fill(0);
            datagram[5] = self.claim.announcer().slot;
            datagram[8..12].copy_from_slice(&(number as u32).to_be_bytes());
        }
        bytes
    }

    /// What has arrived.
    pub(crate) fn take(&mut self) -> Vec<Burst> {
        let mut all = Vec::new();
        let each = |burst: Datagrams<'_>| {
            let Datagrams { from, to, tos, ttl, .. } = burst;
            all.push(Burst {
                from,
                to,
                tos,
                ttl,
                parts: burst.iter().map(<[u8]>::to_vec).collect(),
            });
        };
        self.port.receive(&mut self.arrivals, usize::MAX, each).expect("a socket that works");
        all
    }

    /// Sends to this process itself and checks that the same arrives.
    fn there_and_back(&mut self, way: &Way, bytes: &[u8], segment: usize) {
        let count = bytes.len().div_ceil(segment);
        let mut left = bytes;
        while !left.is_empty() {
            let sent = self.port.send(way, left, segment).expect("it is sent");
            left = &left[(sent * segment).min(left.len())..];
        }
        let mut arrived = Vec::new();
        for Burst { from, to, tos, ttl, parts } in self.take() {
            assert_eq!((from.ip(), to), (way.source, way.destination));
            assert_eq!((tos, ttl), (way.tos, way.ttl));
            assert!(from.port() >= 0xc000, "rule NET-01: {from}");
            arrived.extend(parts);
        }
        assert_eq!(arrived.len(), count);
        assert!(arrived.iter().zip(bytes.chunks(segment)).all(|(one, other)| one == other));
    }
}

fn local(way: &str) -> Way {
    let address: IpAddr = way.parse().expect("an address");
    Way { source: address, destination: address, flow: 0x1234, tos: 0x6a, ttl: 33, interface: 0 }
}

/// A process that passes a packet on may be killed before it has counted the packet. And a message there may be no
/// packet.
#[test]
fn what_is_handed_on_and_not_counted_is_taken_nevertheless() {
    in_namespace("port::what_is_handed_on_and_not_counted_is_taken_nevertheless", || {
        let mut here = Opened::new();
        let registry = Registry::open().expect("a registry");
        let name = format!("udp-{}", here.claim.announcer().slot);
        let other = UnixDatagram::unbound().expect("a socket");
        for _ in 0..3 {
            let to = registry.directory().join(&name);
            assert_eq!(other.send_to(b"nonsense", to).expect("it is taken"), 8);
        }
        let handed = here.port.descriptors()[1].try_clone_to_owned().expect("a descriptor");
        let is_readable = || {
            let mut wait = [PollFd::new(&handed, PollFlags::IN)];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut wait, Some(&now)).expect("poll") == 1
        };
        assert!(here.take().is_empty());
        assert!(is_readable(), "nobody has said that there is something");
        here.port.expect_handed();
        assert!(here.take().is_empty());
        assert!(!is_readable());
    });
}

/// A process that takes one burst at a time gets both in turn.
#[test]
fn what_is_handed_on_does_not_keep_what_comes_by_itself_waiting() {
    in_namespace("port::what_is_handed_on_does_not_keep_what_comes_by_itself_waiting", || {
        let here = Opened::new();
        let registry = Registry::open().expect("a registry");
        let name = format!("udp-{}", here.claim.announcer().slot);
        let other = UnixDatagram::unbound().expect("a socket");
        for _ in 0..3 {
            other.send_to(b"nonsense", registry.directory().join(&name)).expect("it is taken");
        }
        here.port.expect_handed();
        let datagram = here.datagrams(1, 64);
        assert_eq!(here.port.send(&local("127.0.0.1"), &datagram, 64).expect("room"), 1);
        let mut come = 0;
        let each = |datagrams: Datagrams<'_>| come += datagrams.iter().len();
        here.port.receive(&mut Arrivals::default(), 1, each).expect("a socket that works");
        assert_eq!(come, 1);
    });
}

/// Rules: NET-01, NET-05, NET-07
#[test]
fn bursts_arrive_whole_in_order_and_with_their_way() {
    in_namespace("port::bursts_arrive_whole_in_order_and_with_their_way", || {
        let mut here = Opened::new();
        assert!(here.take().is_empty());
        let ways = [
            local("127.0.0.1"),
            local("::1"),
            Way { source: Ipv4Addr::new(127, 0, 0, 9).into(), ..local("127.0.0.1") },
        ];
        for way in ways {
            for (count, segment) in
                [(1, 60), (2, 60), (64, 60), (15, 4136), (62, 1052), (1, 65_000)]
            {
                assert!(count <= here.port.most_segments(segment));
                let bytes = here.datagrams(count, segment);
                here.there_and_back(&way, &bytes, segment);
                // The last one may be shorter.
                here.there_and_back(&way, &bytes[..bytes.len() - 40], segment);
            }
            // More than one call takes goes in several.
            let bytes = here.datagrams(200, 1052);
            here.there_and_back(&way, &bytes, 1052);
        }
    });
}

/// Rules: NET-01
#[test]
fn a_flow_keeps_its_source_port() {
    in_namespace("port::a_flow_keeps_its_source_port", || {
        let mut here = Opened::new();
        let mut port_of = |flow| {
            let way = Way { flow, ..local("127.0.0.1") };
            let bytes = here.datagrams(1, 60);
            here.port.send(&way, &bytes, 60).expect("it is sent");
            here.take()[0].from.port()
        };
        let (one, other) = (port_of(0x0001), port_of(0xfff2));
        assert_eq!((one, other), (0xc001, 0xfff2));
        assert_eq!((port_of(0x0001), port_of(0xfff2)), (one, other));
        // The two share a socket.
        assert_eq!(port_of(0x0011), one);
    });
}

#[test]
fn a_source_port_that_is_taken_is_passed_over() {
    in_namespace("port::a_source_port_that_is_taken_is_passed_over", || {
        let taken = [0xffff_u16, 0xc000].map(|port| UdpSocket::bind(("0.0.0.0", port)));
        let mut here = Opened::new();
        let bytes = here.datagrams(1, 60);
        here.port.send(&Way { flow: 0xffff, ..local("127.0.0.1") }, &bytes, 60).expect("sent");
        assert_eq!(here.take()[0].from.port(), 0xc001);
        drop(taken);
    });
}

/// Rules: NET-13
#[test]
fn datagrams_of_any_length_arrive() {
    in_namespace("port::datagrams_of_any_length_arrive", || {
        let mut here = Opened::new();
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a port");
        for length in [0, 1, 5, 6, 7, 8, 11, 65_507] {
            let mut bytes = vec![0; length];
            if let Some(slot) = bytes.get_mut(5) {
                *slot = here.claim.announcer().slot;
            }
            sender.send_to(&bytes, ("127.0.0.1", PORT)).expect("it is sent");
            let arrived: Vec<Vec<u8>> =
                here.take().into_iter().flat_map(|burst| burst.parts).collect();
            let told: usize = arrived.iter().map(Vec::len).sum();
            assert_eq!(told, length);
        }
        assert_eq!(here.port.counters().dropped(Dropped::Cut), 0);
    });
}

/// Rules: NET-04
#[test]
fn datagrams_without_a_checksum_arrive() {
    in_namespace("port::datagrams_without_a_checksum_arrive", || {
        let mut here = Opened::new();
        let bytes = here.datagrams(1, 60);
        let options = [
            ("127.0.0.1", libc::SOL_SOCKET, libc::SO_NO_CHECK),
            ("::1", libc::SOL_UDP, libc::UDP_NO_CHECK6_TX),
        ];
        for (address, level, option) in options {
            let sender = UdpSocket::bind((address, 0)).expect("a port");
            // SAFETY: the kernel reads a number of four bytes.
            let done = unsafe {
                let on = (&raw const ONE).cast();
                libc::setsockopt(sender.as_raw_fd(), level, option, on, 4)
            };
            assert_eq!(done, 0);
            sender.send_to(&bytes, (address, PORT)).expect("it is sent");
            assert_eq!(here.take().len(), 1, "{address}");
        }
    });
}

static ONE: i32 = 1;

/// Rules: NET-12
#[test]
fn nothing_for_queue_pair_zero_is_given_out() {
    in_namespace("port::nothing_for_queue_pair_zero_is_given_out", || {
        let mut here = Opened::new();
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a port");
        // The form of a probe, with a wrong secret.
        let mut probe = [0; 24];
        (probe[0], probe[11], probe[15]) = (0xff, 7, 1);
        for bytes in [&probe[..], &[0; 64]] {
            sender.send_to(bytes, ("127.0.0.1", PORT)).expect("it is sent");
        }
        assert!(here.take().is_empty());
        let bytes = here.datagrams(3, 60);
        here.there_and_back(&local("::1"), &bytes, 60);
    });
}

#[test]
fn what_no_way_carries_is_refused() {
    in_namespace("port::what_no_way_carries_is_refused", || {
        ip("link set lo mtu 1500");
        let mut here = Opened::new();
        for text in ["127.0.0.1", "::1"] {
            let way = local(text);
            assert_eq!(path_mtu(&way).expect("a route"), 1500);
            let bytes = here.datagrams(4, 2000);
            for count in [1, 4] {
                let refused = here.port.send(&way, &bytes[..count * 2000], 2000);
                assert!(matches!(refused, Err(SendError::TooLong)), "{refused:?}");
            }
            let bytes = here.datagrams(4, 1052);
            here.there_and_back(&way, &bytes, 1052);
            assert_eq!(here.port.most_segments(1052), 62, "bursts go on");
        }
    });
}

#[test]
fn no_route_and_no_such_source_are_told() {
    in_namespace("port::no_route_and_no_such_source_are_told", || {
        let here = Opened::new();
        let bytes = here.datagrams(4, 60);
        let nowhere = Ipv4Addr::new(192, 0, 2, 1).into();
        let ways = [
            Way { destination: nowhere, ..local("127.0.0.1") },
            Way { source: nowhere, ..local("127.0.0.1") },
            Way { destination: Ipv6Addr::from(1_u128 << 125).into(), ..local("::1") },
            Way { source: Ipv6Addr::from(1_u128 << 125).into(), ..local("::1") },
        ];
        for way in ways {
            for count in [1, 4] {
                let refused = here.port.send(&way, &bytes[..count * 60], 60);
                assert!(matches!(refused, Err(SendError::Unreachable(_))), "{way:?} {refused:?}");
            }
        }
        assert_eq!(here.port.identification(3), 3, "bursts go on");
    });
}

#[test]
fn what_the_socket_has_no_room_for_is_counted() {
    in_namespace("port::what_the_socket_has_no_room_for_is_counted", || {
        let mut here = Opened::new();
        let (way, bytes) = (local("127.0.0.1"), here.datagrams(60, 1052));
        let bursts = 3 * here.port.receive_room() / bytes.len();
        for _ in 0..bursts {
            here.port.send(&way, &bytes, 1052).expect("it is sent");
        }
        let arrived: usize = here.take().iter().map(|burst| burst.parts.len()).sum();
        assert!(arrived * 1052 >= here.port.receive_room() / 2, "{arrived} arrived");
        // The kernel tells with the next one.
        here.there_and_back(&way, &bytes, 1052);
        let lost = here.port.counters().dropped(Dropped::Overflow);
        assert!(lost > 0);
    });
}

/// A call takes what was there, and then lets its caller go on: a poll takes everything when a time has come.
#[test]
fn a_sender_without_end_does_not_keep_a_call() {
    in_namespace("port::a_sender_without_end_does_not_keep_a_call", || {
        let here = Opened::new();
        for length in [8_000, 100] {
            let datagram = here.datagrams(1, length);
            let send = || {
                let sent = here.port.send(&local("127.0.0.1"), &datagram, length);
                assert_eq!(sent.expect("it is sent"), 1);
            };
            let (mut bursts, mut arrivals) = (0, Arrivals::default());
            // Twice what the socket holds, as the kernel counts.
            let most = 4 * here.port.receive_room() / (length + 512) + 16;
            // More than one system call takes.
            (0..16).for_each(|_| send());
            let take = |_: Datagrams<'_>| {
                bursts += 1;
                assert!(bursts < most, "{length}");
                send();
            };
            here.port.receive(&mut arrivals, usize::MAX, take).expect("a socket that works");
            assert!(bursts * length > here.port.receive_room() / 8, "{bursts}");
            while here.port.receive(&mut arrivals, 16, |_| {}).expect("a socket that works") > 0 {}
        }
    });
}

/// Anybody can send packets for a slot that nobody has. To look who has it takes system calls.
/// Rules: NET-18
#[test]
fn a_stranger_cannot_have_a_slot_looked_for_with_each_packet() {
    in_namespace("port::a_stranger_cannot_have_a_slot_looked_for_with_each_packet", || {
        let mut here = Opened::new();
        let absent = here.claim.announcer().slot ^ 0x80;
        // Whoever looks connects here.
        let name = SocketAddrUnix::from_abstract_name(format!("transom-slot-{absent}").as_bytes());
        let looked = UnixListener::bind_addr(&name.expect("a name")).expect("nobody has it");
        looked.set_nonblocking(true).expect("it can be set");
        let mut datagrams = here.datagrams(50, 100);
        datagrams.chunks_mut(100).for_each(|datagram| datagram[5] = absent);
        let start = Instant::now();
        for _ in 0..20 {
            here.port.send(&local("127.0.0.1"), &datagrams, 100).expect("it is sent");
            assert!(here.take().is_empty());
        }
        assert_eq!(here.port.counters().dropped(Dropped::NobodyThere), 1000);
        let most = 1 + start.elapsed().as_millis() as usize / 10;
        let looks = std::iter::from_fn(|| looked.accept().ok()).count();
        assert!((1..=most).contains(&looks), "{looks} of {most}");
    });
}

#[test]
fn a_port_that_is_taken_is_named_with_who_has_it() {
    in_namespace("port::a_port_that_is_taken_is_named_with_who_has_it", || {
        for address in ["0.0.0.0", "::"] {
            let taken = UdpSocket::bind((address, PORT)).expect("nobody has it");
            let registry = Registry::open().expect("a registry");
            let claim = registry.claim(0, 0).expect("a slot");
            let refused = Port::open(registry, claim.announcer()).err().expect("it is taken");
            assert_eq!(refused.errno(), libc::EADDRINUSE);
            let text = refused.to_string();
            assert!(text.contains("port 4791") && text.contains("of user 0"), "{text}");
            assert!(text.contains("network namespace"), "{text}");
            assert!(taken_by_others(registry).is_some(), "somebody has it");
            drop(taken);
            let port = Port::open(registry, claim.announcer()).expect("it is free again");
            assert!(taken_by_others(registry).is_none(), "we have it");
            drop(port);
        }
    });
}

#[test]
fn a_port_shared_with_a_program_of_another_registry_is_refused() {
    in_namespace("port::a_port_shared_with_a_program_of_another_registry_is_refused", || {
        let other = rustix::net::socket(AddressFamily::INET6, SocketType::DGRAM, None);
        let other = other.expect("a socket");
        rustix::net::sockopt::set_socket_reuseport(&other, true).expect("an option");
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT));
        rustix::net::bind(&other, &any).expect("nobody has it");
        let registry = Registry::open().expect("a registry");
        let claim = registry.claim(0, 0).expect("a slot");
        let refused = Port::open(registry, claim.announcer()).err().expect("the port is another's");
        assert_eq!(refused.errno(), libc::EADDRINUSE);
        assert!(refused.to_string().contains("the same /dev/shm"), "{refused}");
        drop(other);
        Port::open(registry, claim.announcer()).expect("it is free again");
    });
}

#[test]
fn a_forked_child_does_not_hold_the_port() {
    in_namespace("port::a_forked_child_does_not_hold_the_port", || {
        let mut here = Opened::new();
        let (until, end) = std::io::pipe().expect("a pipe");
        // SAFETY: the child makes system calls only, and ends by one.
        let child = unsafe { libc::fork() };
        if child == 0 {
            here.port.make_private();
            drop(end);
            let _ = rustix::io::read(&until, &mut [0; 1]);
            // SAFETY: takes a number and does not return.
            unsafe { libc::_exit(0) };
        }
        drop(until);
        let bytes = here.datagrams(10, 60);
        here.there_and_back(&local("127.0.0.1"), &bytes, 60);
        drop(here);
        // The child may not have got so far yet.
        let deadline = Instant::now() + Duration::from_secs(10);
        while let Err(taken) = UdpSocket::bind(("::", PORT)) {
            assert!(Instant::now() < deadline, "{taken}");
            std::thread::yield_now();
        }
        drop(end);
        // SAFETY: it is this process's child.
        assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    });
}

/// Whatever lies in the socket of a port that is closed, others get theirs of it, and what is for all.
#[test]
fn what_has_gone_astray_to_a_port_that_is_closed_is_handed_on() {
    in_namespace("port::what_has_gone_astray_to_a_port_that_is_closed_is_handed_on", || {
        let registry = Registry::open().expect("a registry");
        let [first, second] = [0, 0].map(|_| registry.claim(0, 0).expect("a slot"));
        let port = Port::open(registry, first.announcer()).expect("the port");
        // The second has no port yet: what is for it comes to the only one.
        let way = local("127.0.0.1");
        let send = |slot: u8, count: usize| {
            let mut datagram = [0; 64];
            // Queue pair 1 is of slot 0, which no process has.
            (datagram[5], datagram[7]) = (slot, 1);
            for _ in 0..count {
                assert_eq!(port.send(&way, &datagram, 64).expect("room"), 1);
            }
        };
        send(first.announcer().slot, 200);
        send(second.announcer().slot, 1);
        send(0, 3);
        let other = Port::open(registry, second.announcer()).expect("the port");
        port.close();
        let mut come = 0;
        let taken = other.receive(&mut Arrivals::default(), 1000, |datagrams| {
            come += datagrams.iter().len();
        });
        taken.expect("a socket that works");
        assert_eq!(come, 4);
    });
}

/// What is for queue pair 1 comes to any process that has the port, also to one that opens or closes it at that
/// moment: a request for a connection to another process may be among it.
#[test]
fn what_is_for_all_is_not_lost_where_a_port_opens_or_closes() {
    in_namespace("port::what_is_for_all_is_not_lost_where_a_port_opens_or_closes", || {
        const ROUNDS: usize = 50;
        let mut stays = Opened::new();
        let (come, rounds) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let count = |port: &mut Opened| {
            let parts: usize = port.take().iter().map(|burst| burst.parts.len()).sum();
            come.fetch_add(parts, SeqCst);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _over = OnDrop(|| rounds.store(ROUNDS, SeqCst));
                for _ in 0..ROUNDS {
                    let mut other = Opened::new();
                    count(&mut other);
                    drop(other);
                    rounds.fetch_add(1, SeqCst);
                }
            });
            let mut datagram = [0; 64];
            datagram[7] = 1;
            for sent in 1.. {
                // Each of a flow of its own: which process gets it differs.
                let sender = UdpSocket::bind("127.0.0.1:0").expect("a port");
                sender.send_to(&datagram, ("127.0.0.1", PORT)).expect("it is sent");
                let deadline = Instant::now() + Duration::from_secs(20);
                while come.load(SeqCst) < sent {
                    count(&mut stays);
                    let round = rounds.load(SeqCst);
                    assert!(Instant::now() < deadline, "one of {sent} is lost in round {round}");
                }
                if rounds.load(SeqCst) >= ROUNDS {
                    break;
                }
            }
        });
    });
}

/// Does something at the end, also if a test fails before.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Somebody else may have the socket of a port that is closed: a child that a thread is just starting.
#[test]
fn a_port_that_is_closed_takes_no_packets_though_its_socket_is_still_open() {
    in_namespace(
        "port::a_port_that_is_closed_takes_no_packets_though_its_socket_is_still_open",
        || {
            let registry = Registry::open().expect("a registry");
            let [first, second] = [0, 0].map(|_| registry.claim(0, 0).expect("a slot"));
            let [first, second] = [&first, &second]
                .map(|claim| Port::open(registry, claim.announcer()).expect("the port"));
            let elsewhere = first.descriptors()[0].try_clone_to_owned().expect("a descriptor");
            drop(first);
            // To queue pair 1: any process may be asked for it.
            let mut datagram = [0; 64];
            datagram[7] = 1;
            for flow in 0..64 {
                let way = Way { flow, ..local("127.0.0.1") };
                assert_eq!(second.send(&way, &datagram, 64).expect("room"), 1);
            }
            let mut come = 0;
            let taken = second.receive(&mut Arrivals::default(), 1000, |datagrams| {
                come += datagrams.iter().len();
            });
            taken.expect("a socket that works");
            assert_eq!(come, 64);
            drop(elsewhere);
        },
    );
}

/// Rules: NET-03, NET-05
#[test]
fn identifications_are_as_told_and_nothing_is_fragmented() {
    in_namespace("port::identifications_are_as_told_and_nothing_is_fragmented", || {
        ip("link add near type veth peer name far");
        // The far end cuts nothing, so this one must.
        ip("link set near gso_max_segs 1");
        ip("address add 10.9.0.1/24 dev near");
        ip("link set near up");
        ip("link set far up");
        ip("neighbour add 10.9.0.2 lladdr 02:00:00:00:00:02 dev near");
        const EVERY: u16 = libc::ETH_P_ALL as u16;
        let protocol = Protocol::from_raw(u32::from(EVERY.to_be()).try_into().expect("not zero"));
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let all = rustix::net::socket_with(
            AddressFamily::PACKET,
            SocketType::DGRAM,
            flags,
            Some(protocol),
        )
        .expect("a socket that sees every packet");
        let here = Opened::new();
        let way = Way {
            source: Ipv4Addr::new(10, 9, 0, 1).into(),
            destination: Ipv4Addr::new(10, 9, 0, 2).into(),
            flow: 7,
            tos: 0x68,
            ttl: 9,
            interface: 0,
        };
        // A link that has just come up may still drop packets without a word.
        let bytes = here.datagrams(1, 60);
        loop {
            here.port.send(&way, &bytes, 60).expect("it is sent");
            if identifications(&all, 1, 60).is_some() {
                break;
            }
        }
        // The packet socket, which sees each where it leaves and where it arrives, holds so many.
        for (count, segment) in [(1, 64), (5, 1052), (1, 68), (30, 1056)] {
            let bytes = here.datagrams(count, segment);
            assert_eq!(here.port.send(&way, &bytes, segment).expect("it is sent"), count);
            let told: Vec<u16> = (0..count).map(|index| here.port.identification(index)).collect();
            assert_eq!(identifications(&all, count, segment), Some(told));
        }
    });
}

/// The identifications of packets to 10.9.0.2 with datagrams of `segment` bytes, as a packet socket
/// sees them in the order of their numbers; `None` if they do not come.
fn identifications(all: &OwnedFd, count: usize, segment: usize) -> Option<Vec<u16>> {
    let deadline = Instant::now() + Duration::from_secs(1);
    let (mut seen, mut packet) = (Vec::new(), [0; 4096]);
    while seen.len() < count {
        let Ok((length, _)) = rustix::net::recv(all, &mut packet, RecvFlags::DONTWAIT) else {
            if Instant::now() > deadline {
                return None;
            }
            std::thread::yield_now();
            continue;
        };
        let own = packet[0] == 0x45 && packet[16..20] == [10, 9, 0, 2];
        let number = u32::from_be_bytes(packet[36..40].try_into().expect("four bytes"));
        if own && length == 28 + segment && number as usize == seen.len() {
            seen.push(u16::from_be_bytes([packet[4], packet[5]]));
            assert_eq!(packet[6..8], [0x40, 0], "DF is set, and it is no fragment");
            assert_eq!((packet[1], packet[8], packet[9]), (0x68, 9, 17));
            let covered = u16::from_be_bytes([packet[24], packet[25]]);
            assert_eq!(usize::from(covered), 8 + segment, "UDP covers the datagram");
        }
    }
    Some(seen)
}
