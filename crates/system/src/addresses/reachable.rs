//! Checks whether packets can be sent to an address, when a queue pair or an address handle gets it, as the kernel's
//! drivers do. Otherwise sending to nowhere would look like loss.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use transom_device::queue::Address;
use transom_wire::packet::PORT;

use super::{gid, ip, is_multicast};

/// An address to which no packets can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable {
    address: IpAddr,
    why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// It stands for no host at all.
    NoAddress,
    /// It stands for a group, and only datagrams go to groups.
    Group,
    /// It stands for all hosts of a network.
    Broadcast,
    /// It is valid on one link only, and the source is on none.
    OtherLink,
    /// The kernel has no route to it, for this reason.
    NoRoute(i32),
}

impl Why {
    /// What the address itself shows, if it is not this host's.
    fn at_sight(gid: &[u8; 16]) -> Option<Self> {
        match ip(gid) {
            _ if is_multicast(gid) => Some(Self::Group),
            IpAddr::V4(Ipv4Addr::BROADCAST) => Some(Self::Broadcast),
            address if address.is_unspecified() => Some(Self::NoAddress),
            IpAddr::V6(ip) if ip.is_unicast_link_local() => Some(Self::OtherLink),
            _ => None,
        }
    }
}

impl Unreachable {
    /// The error for a GID and this error number.
    pub(crate) fn for_errno(gid: [u8; 16], errno: i32) -> Self {
        let why = Why::at_sight(&gid).unwrap_or(match errno {
            libc::EINVAL => Why::Broadcast,
            errno => Why::NoRoute(errno),
        });
        Self { address: ip(&gid), why }
    }

    /// The GID of the address.
    pub fn gid(&self) -> [u8; 16] {
        gid(self.address)
    }

    /// The errno of the verb.
    pub fn errno(&self) -> i32 {
        match self.why {
            Why::NoAddress | Why::Group | Why::Broadcast => libc::EINVAL,
            Why::OtherLink => libc::ENETUNREACH,
            Why::NoRoute(errno) => errno,
        }
    }
}

impl std::error::Error for Unreachable {}

/// The sentence for a person.
impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.address.is_unspecified() && self.address.is_ipv6() {
            return f.write_str("the GID is all zero (grh.dgid): was it set?");
        }
        write!(f, "nothing can be sent to {}: ", self.address)?;
        match self.why {
            Why::NoAddress => f.write_str("it is the address of no host"),
            Why::Group => f.write_str("it is a multicast group, which only datagrams can reach"),
            Why::Broadcast => f.write_str("it is a broadcast address, and RoCE has none"),
            Why::OtherLink => f.write_str(
                "it is a link-local address, and the address it would come from is on no network",
            ),
            Why::NoRoute(errno) => {
                write!(f, "the kernel has no way there: {}", io::Error::from_raw_os_error(errno))
            }
        }
    }
}

/// Whether packets can be sent to an address that is not this host's. This sends no packet: a host that is down is
/// still reachable. `interface` is that of link-local addresses.
pub fn check_reachable(
    to: &Address,
    to_groups: bool,
    interface: Option<u32>,
) -> Result<(), Unreachable> {
    let address = ip(&to.gid);
    let because = |why| Err(Unreachable { address, why });
    match Why::at_sight(&to.gid) {
        Some(Why::Group) if to_groups => return Ok(()),
        Some(Why::OtherLink) if interface.is_some() => {}
        Some(why) => return because(why),
        None => {}
    }
    // Connecting a socket asks the kernel for a route, and sends nothing.
    let at = |ip, port| match ip {
        IpAddr::V4(ip) => SocketAddr::from((ip, port)),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, interface.unwrap_or(0)).into(),
    };
    let from = |ip| UdpSocket::bind(at(ip, 0));
    let anywhere = match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    // The source is gone if its interface is down. Without a socket this cannot be checked: packets will tell.
    let Ok(socket) = from(ip(&to.source)).or_else(|_| from(anywhere)) else { return Ok(()) };
    match socket.connect(at(address, PORT)) {
        Ok(()) => Ok(()),
        // A socket may not be connected to the broadcast address of a network unless it asks for that.
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => because(Why::Broadcast),
        // Without an address to send from there is no network to send to.
        Err(error) => because(Why::NoRoute(match error.raw_os_error() {
            Some(libc::EADDRNOTAVAIL) | None => libc::ENETUNREACH,
            Some(errno) => errno,
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The GID and the error number alone lead to the same reason.
    #[test]
    fn the_reason_is_known_by_the_error_number() {
        let source = gid(Ipv4Addr::UNSPECIFIED.into());
        let to = |gid| Address { gid, source, traffic_class: 0, hop_limit: 64, flow_label: 0 };
        for address in
            ["::", "0.0.0.0", "255.255.255.255", "127.255.255.255", "224.0.0.9", "fe80::9"]
        {
            let gid = gid(address.parse().unwrap());
            let why = check_reachable(&to(gid), false, None).unwrap_err();
            assert_eq!(Unreachable::for_errno(why.gid(), why.errno()), why);
            assert_eq!(why.gid(), gid);
        }
        let address = Ipv4Addr::LOCALHOST.into();
        let why = Unreachable { address, why: Why::NoRoute(libc::EHOSTUNREACH) };
        assert_eq!(Unreachable::for_errno(why.gid(), why.errno()), why);
    }
}
