//! Multicast groups across a network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::net::netdevice::name_to_index;
use rustix::net::sockopt;
use rustix::thread::{UnshareFlags, gettid, unshare_unsafe};
use transom_net::udp::{Arrivals, Datagrams};
use transom_wire::packet::PORT;

use crate::namespace::{in_namespace, ip};
use crate::port::Opened;

/// What the far end sends to: a group, or an address of the near end.
type Orders = Receiver<IpAddr>;

/// Sends a datagram for everybody to each address it is told, by an interface that it is given.
fn far_end(tid: Sender<i32>, orders: Orders) {
    // SAFETY: this thread has nothing that depends on its namespace.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("as its process has");
    tid.send(gettid().as_raw_nonzero().get()).expect("it listens");
    // The interface is here when the first order comes.
    let mut sockets = None;
    for to in orders {
        let (v4, v6) = sockets.get_or_insert_with(|| {
            ip("address add 10.9.0.2/24 dev far");
            ip("address add fd99::2/64 dev far nodad");
            ip("link set far up");
            let v4 = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a socket");
            let v6 = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).expect("a socket");
            let index = name_to_index(&v6, "far").expect("it is here");
            sockopt::set_ipv6_multicast_if(&v6, index).expect("an interface");
            sockopt::set_ip_multicast_if(&v4, &Ipv4Addr::new(10, 9, 0, 2)).expect("an address");
            (v4, v6)
        });
        let mut datagram = [0; 64];
        datagram[5..8].fill(0xff);
        let socket = if to.is_ipv4() { v4 } else { v6 };
        // A link that has just come up may still refuse.
        let _ = socket.send_to(&datagram, SocketAddr::new(to, PORT));
    }
}

/// Has another program of this host join a group.
fn another_joins(group: IpAddr, interface: u32) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).expect("a socket");
    match group {
        IpAddr::V4(group) => {
            let any = Ipv4Addr::UNSPECIFIED;
            sockopt::set_ip_add_membership_with_ifindex(&socket, &group, &any, interface)
        }
        IpAddr::V6(group) => sockopt::set_ipv6_add_membership(&socket, &group, interface),
    }
    .expect("it joins");
    socket
}

/// What is sent to a group comes here while the port is in it, on that interface, whoever else is.
#[test]
fn a_port_hears_the_groups_it_is_in() {
    in_namespace("groups::a_port_hears_the_groups_it_is_in", || {
        let ((tell, orders), (tid, of_far)) = (channel(), channel());
        let far = std::thread::spawn(move || far_end(tid, orders));
        let tid = of_far.recv().expect("it has begun");
        ip("link add near type veth peer name far");
        ip(&format!("link set far netns {tid}"));
        ip("address add 10.9.0.1/24 dev near");
        ip("address add fd99::1/64 dev near nodad");
        ip("link set near up");
        let here = Opened::new();
        let near = name_to_index(here.port.descriptors()[0], "near").expect("it is here");
        let mut arrivals = Arrivals::default();
        // Has something sent until it comes, and says where all went that came meanwhile.
        let mut until = |to: IpAddr| {
            let (mut came, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(20));
            while !came.contains(&to) {
                assert!(Instant::now() < deadline, "nothing comes to {to}");
                tell.send(to).expect("it lives");
                let each = |burst: Datagrams<'_>| came.push(burst.to);
                here.port.receive(&mut arrivals, usize::MAX, each).expect("a socket that works");
                std::thread::yield_now();
            }
            came
        };
        let v4 = (IpAddr::from([239, 9, 0, 1]), IpAddr::from([10, 9, 0, 1]));
        let v6: (Ipv6Addr, Ipv6Addr) =
            ("ff0e::9".parse().expect("an address"), "fd99::1".parse().expect("an address"));
        for (group, own) in [v4, (v6.0.into(), v6.1.into())] {
            let _other = another_joins(group, near);
            until(own);
            tell.send(group).expect("it lives");
            assert!(!until(own).contains(&group), "it hears {group} of others");
            here.port.join(group, near).expect("it joins");
            here.port.join(group, near).expect("it is in it");
            until(group);
            here.port.leave(group, near).expect("it leaves");
            // What is on its way may still come.
            until(own);
            tell.send(group).expect("it lives");
            assert!(!until(own).contains(&group), "it still hears {group}");
            assert!(here.port.leave(group, near).is_err(), "it is in it no more");
        }
        drop(tell);
        far.join().expect("it went well");
    });
}
