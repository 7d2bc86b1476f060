//! The way of a datagram, and the longest packet that it carries.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use rustix::net::sockopt;
use transom_wire::packet::PORT;

use super::socket;

/// The way of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The address it comes from, one of this machine's.
    pub source: IpAddr,
    /// The address it goes to, of the same family.
    pub destination: IpAddr,
    /// Tells apart flows that may take different ways. It chooses the UDP source port (rule NET-01).
    pub flow: u16,
    /// TOS, or traffic class: DSCP and congestion bits (rule NET-07).
    pub tos: u8,
    /// TTL, or hop limit (rule NET-05).
    pub ttl: u8,
    /// Index of the interface that it leaves by. Zero leaves the choice to the routes, which say nothing about groups
    /// and link-local addresses.
    pub interface: u32,
}

/// The longest IP packet, in bytes, that a way carries whole, as far as the kernel knows: the MTU of the route, or less
/// if a router has said so.
pub fn path_mtu(way: &Way) -> io::Result<u32> {
    let at = |ip: IpAddr, port| match ip.to_canonical() {
        IpAddr::V4(ip) => SocketAddr::from((ip, port)),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, way.interface).into(),
    };
    let to = at(way.destination, PORT);
    let socket = socket::open(to)?;
    rustix::net::bind(&socket, &at(way.source, 0))?;
    rustix::net::connect(&socket, &to)?;
    Ok(if to.is_ipv4() { sockopt::ip_mtu(&socket)? } else { sockopt::ipv6_mtu(&socket)? })
}
