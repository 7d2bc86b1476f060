//! The addresses of queue pairs.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::Ipv6Addr;

/// The data that a peer needs to connect to a queue pair.
///
/// It is a plain value: send it by any means, for example as JSON over a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The queue pair's number, 24 bits.
    pub qpn: u32,
    /// Its first packet sequence number, 24 bits.
    pub psn: u32,
    /// The GID of its port.
    pub gid: Gid,
    /// The LID of its port. 0 on Ethernet.
    pub lid: u16,
    /// The payload of the largest packet that its port takes, in bytes.
    pub mtu: u16,
}

/// A global identifier: the address of a port, 16 bytes in network order.
///
/// It displays as an IPv6 address:
///
/// ```
/// let mut gid = transom::Gid([0; 16]);
/// gid.0[10..].copy_from_slice(&[0xff, 0xff, 192, 0, 2, 1]);
/// assert_eq!(gid.to_string(), "::ffff:192.0.2.1");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gid(pub [u8; 16]);

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}
