//! The addresses that there are now, as the kernel lists them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::netlink::{self, Hardware, Interface};
use super::{Address, GID_TABLE, gid};

/// The kernel's index of the loopback interface.
const LOOPBACK_INTERFACE: u32 = 1;
pub(super) const LOOPBACK_MTU: u32 = 65_536;

/// The addresses of this host.
pub(super) struct Current {
    /// Those that the device has now, in the order of a new table.
    pub(super) own: Vec<Address>,
    /// The GIDs of the others.
    pub(super) others: Vec<[u8; 16]>,
}

impl Current {
    /// The addresses of now. The device has those of one interface, if that is named.
    pub(super) fn of(only: Option<&str>) -> io::Result<Self> {
        let mut own = all()?;
        let mut others = Vec::new();
        if let Some(name) = only {
            let interface = netlink::interface_index(name);
            let is_own = |address: &Address| Some(address.interface) == interface;
            others = own.iter().filter(|it| !is_own(it)).map(|it| it.gid).collect();
            own.retain(is_own);
            if own.is_empty() && interface == Some(LOOPBACK_INTERFACE) {
                own = loopback_addresses();
            }
        }
        sort(&mut own);
        own.truncate(GID_TABLE);
        Ok(Self { own, others })
    }
}

/// The addresses of all interfaces.
fn all() -> io::Result<Vec<Address>> {
    let (interfaces, assigned) = netlink::list()?;
    let mut addresses: Vec<Address> = Vec::new();
    for assigned in assigned {
        let of = |interface: &&Interface| interface.index == assigned.interface;
        let Some(interface) = interfaces.iter().find(of).filter(|interface| interface.running)
        else {
            continue;
        };
        let gid = gid(assigned.address);
        let known = addresses.iter().any(|address| address.gid == gid);
        if known || assigned.address.is_loopback() {
            continue;
        }
        addresses.push(Address {
            gid,
            interface: interface.index,
            mtu: interface.mtu,
            loopback: interface.loopback,
            hardware: interface.hardware,
        });
    }
    // Local links work even while the loopback interface is down.
    if addresses.is_empty() { Ok(loopback_addresses()) } else { Ok(addresses) }
}

fn loopback_addresses() -> Vec<Address> {
    let both = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    both.map(loopback).to_vec()
}

pub(super) fn loopback(ip: IpAddr) -> Address {
    Address {
        gid: gid(ip),
        interface: LOOPBACK_INTERFACE,
        mtu: LOOPBACK_MTU,
        loopback: true,
        hardware: Hardware::default(),
    }
}

/// Puts addresses into the order of a new table (rule NET-19).
pub(super) fn sort(addresses: &mut [Address]) {
    let first = |local: bool| {
        let of = addresses.iter().filter(|it| !it.loopback && is_link_local(it.ip()) == local);
        of.map(|it| it.interface).min()
    };
    // A host hardly communicates by an interface that has no other address.
    let first = first(false).or_else(|| first(true));
    addresses.sort_by_key(|it| {
        let kind = match it.ip() {
            ip if is_link_local(ip) && Some(it.interface) == first => 0,
            IpAddr::V4(_) => 1,
            ip if !is_link_local(ip) => 2,
            IpAddr::V6(_) => 3,
        };
        (it.loopback, kind, it.interface)
    });
}

pub(super) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules: NET-19
    #[test]
    fn the_order_is_that_of_a_port_of_linux() {
        let mut of = [
            (1, "10.255.0.1"),
            (2, "fe80::2"),
            (2, "fd00::2"),
            (2, "10.0.0.2"),
            (3, "fe80::3"),
            (3, "172.17.0.1"),
            (4, "fe80::4"),
        ]
        .map(|(interface, ip)| Address {
            interface,
            loopback: interface == 1,
            ..loopback(ip.parse().expect("an address"))
        });
        sort(&mut of);
        let order = of.map(|it| it.ip().to_string());
        let expected =
            ["fe80::2", "10.0.0.2", "172.17.0.1", "fd00::2", "fe80::3", "fe80::4", "10.255.0.1"];
        assert_eq!(order, expected);
    }
}
