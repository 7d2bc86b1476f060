//! The addresses of this network namespace: the device's GID table.
//!
//! The order is that of Linux for a RoCE port (rule NET-19): first the link-local IPv6 address of the first interface,
//! if that has one, then IPv4 addresses, then global IPv6 addresses, then other link-local ones. Loopback addresses are
//! entries only if there is nothing else. When an address goes, its entry becomes empty and the others stay, because
//! queue pairs and address handles name them by index. A new address takes the first empty entry.
//!
//! A device may have the addresses of one interface only ([`Addresses::of`]).

mod current;
mod multicast;
mod netlink;
mod reachable;

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use transom_device::queue;
use transom_wire::grh::{map_ipv4, mapped_ipv4};

use self::current::{Current, LOOPBACK_MTU, is_link_local};
pub use self::multicast::{GroupGid, is_multicast, leaves_host};
#[cfg(debug_assertions)]
pub(crate) use self::netlink::fuzz as fuzz_netlink;
use self::netlink::{Hardware, Watch};
pub use self::reachable::{Unreachable, check_reachable};
use crate::rehearsal;

/// The GID of 127.0.0.1. By it a program reaches itself and other programs of its user on this host, whatever the
/// network.
pub const LOOPBACK_GID: [u8; 16] = map_ipv4([127, 0, 0, 1]);

/// The address that stands for this very port.
pub const LOOPBACK: queue::Address = queue::Address {
    gid: LOOPBACK_GID,
    source: LOOPBACK_GID,
    traffic_class: 0,
    hop_limit: 64,
    flow_label: 0,
};

/// Entries of the GID table. Addresses beyond are left out.
pub const GID_TABLE: usize = 128;

/// The most bytes around the payload of a packet: IPv6, UDP, BTH, XRCETH, RETH, ImmDt and the ICRC.
const HEADERS: u32 = 40 + 8 + 12 + 4 + 16 + 4 + 4;

/// One address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The GID (rule NET-08).
    pub gid: [u8; 16],
    /// Index of its interface.
    pub interface: u32,
    /// MTU of its interface.
    pub mtu: u32,
    /// Its interface is the loopback interface.
    pub loopback: bool,
    /// The hardware address of its interface.
    hardware: Hardware,
}

impl Address {
    /// The GID as an IP address.
    pub fn ip(&self) -> IpAddr {
        ip(&self.gid)
    }

    /// The name of its interface, if that still exists.
    pub fn interface_name(&self) -> Option<String> {
        netlink::interface_name(self.interface)
    }

    /// The largest InfiniBand MTU, in bytes, whose packets its interface carries whole.
    pub fn path_mtu(&self) -> u32 {
        path_mtu(self.mtu)
    }
}

/// The IP address that a GID stands for (rule NET-08).
pub fn ip(gid: &[u8; 16]) -> IpAddr {
    mapped_ipv4(gid).map_or_else(|| IpAddr::from(*gid), IpAddr::from)
}

/// The GID of an IP address (rule NET-08).
pub fn gid(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => map_ipv4(ip.octets()),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// The largest InfiniBand MTU that fits packets of `mtu` bytes; 256, the smallest, if none does.
pub fn path_mtu(mtu: u32) -> u32 {
    let mtu = mtu.min(rehearsal::most_mtu());
    let fits = |path_mtu: &u32| path_mtu + HEADERS <= mtu;
    [4096, 2048, 1024, 512].into_iter().find(fits).unwrap_or(256)
}

/// Why nothing can be sent to an address from an entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSource {
    /// The entry is empty.
    Empty,
    /// One is an IPv4 address, the other an IPv6 address.
    OtherFamily,
}

/// The changes that [`Addresses::refresh`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Entries whose address has gone or has been replaced. An entry may be in `added` too.
    pub removed: Vec<usize>,
    /// Entries that have a new address.
    pub added: Vec<usize>,
    /// An address belongs to another interface now.
    pub moved: bool,
    /// An interface's MTU is another now.
    pub mtu: bool,
    /// Addresses that belong to another hardware address now: to another interface, or to the same one after a
    /// fail-over, for example.
    pub hardware: Vec<IpAddr>,
    /// `Some(true)` if there is an address other than loopback now and was none before. `Some(false)` if the last one
    /// has gone.
    pub network: Option<bool>,
}

impl Changes {
    /// Nothing changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The GID table, and the means to learn of its changes.
pub struct Addresses {
    watch: Watch,
    table: Vec<Option<Address>>,
    /// The only interface whose addresses are in the table, if that is told.
    only: Option<String>,
    /// The GIDs of this host that are not in the table, because they are other interfaces'.
    others: Vec<[u8; 16]>,
    /// There is no address that other hosts can reach, though there should be: the last one has gone, or the only
    /// interface has none.
    lost_network: bool,
}

impl Addresses {
    /// The addresses of now.
    pub fn read() -> io::Result<Self> {
        Self::of(None)
    }

    /// The addresses of now, of this interface only if one is named. There are none while it does not exist.
    pub fn of(only: Option<&str>) -> io::Result<Self> {
        // Watch first, so that no change falls in between.
        let watch = Watch::new()?;
        let Current { own, others } = Current::of(only)?;
        let lost_network = own.is_empty();
        let (table, only) = (own.into_iter().map(Some).collect(), only.map(str::to_owned));
        Ok(Self { watch, table, only, others, lost_network })
    }

    /// Readable when [`Addresses::refresh`] has something to do.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.watch.descriptor()
    }

    /// The table by index. Empty entries are `None`, and so is everything past its end.
    pub fn table(&self) -> &[Option<Address>] {
        &self.table
    }

    /// The address at an index.
    pub fn get(&self, index: usize) -> Option<&Address> {
        self.table.get(index)?.as_ref()
    }

    /// All addresses with their indexes.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Address)> {
        let entries = self.table.iter().enumerate();
        entries.filter_map(|(index, entry)| Some((index, entry.as_ref()?)))
    }

    /// The interface that the addresses are of, by its name and index. Of several it is that of the first entry.
    pub fn interface(&self) -> Option<(String, u32)> {
        match &self.only {
            Some(name) => Some((name.clone(), netlink::interface_index(name)?)),
            None => {
                let first = self.get(0)?;
                Some((first.interface_name()?, first.interface))
            }
        }
    }

    /// Whether a GID is one of this host's, be it in the table or not.
    pub fn is_of_this_host(&self, gid: &[u8; 16]) -> bool {
        self.index_of(gid).is_some() || self.others.contains(gid)
    }

    /// The index of a GID.
    pub fn index_of(&self, gid: &[u8; 16]) -> Option<usize> {
        self.iter().find(|(_, address)| address.gid == *gid).map(|(index, _)| index)
    }

    /// The GID that packets to `destination` come from: the one at `index`, which must have the same family (rule
    /// ST-09). A loopback address stands for this host, whichever of its own addresses the index names. For a group of
    /// the other family, it is the first GID of the group's family.
    pub fn source(&self, index: usize, destination: &[u8; 16]) -> Result<[u8; 16], NoSource> {
        let chosen = self.get(index).ok_or(NoSource::Empty)?;
        if ip(destination).is_loopback() {
            return Ok(*destination);
        }
        if chosen.ip().is_ipv4() == ip(destination).is_ipv4() {
            return Ok(chosen.gid);
        }
        let other = self.towards(destination).filter(|_| is_multicast(destination));
        other.map(|(_, address)| address.gid).ok_or(NoSource::OtherFamily)
    }

    /// The first entry of the family of a destination.
    pub fn towards(&self, destination: &[u8; 16]) -> Option<(usize, &Address)> {
        let ipv4 = ip(destination).is_ipv4();
        self.iter().find(|(_, address)| address.ip().is_ipv4() == ipv4)
    }

    /// The entry by which this host reaches itself, whatever the network: the first.
    pub fn own(&self) -> Option<(usize, &Address)> {
        self.iter().next()
    }

    /// Whether there is an address that other hosts can reach: one other than loopback.
    pub fn has_network(&self) -> bool {
        self.iter().any(|(_, address)| !address.loopback)
    }

    /// The interface by which packets leave from one address to another, if the addresses do not tell the kernel:
    /// link-local ones mean nothing without an interface.
    pub fn interface_between(&self, source: &[u8; 16], destination: &[u8; 16]) -> Option<u32> {
        let scoped = [source, destination].into_iter().any(|gid| is_link_local(ip(gid)));
        scoped.then(|| self.network_of(source)).flatten()
    }

    /// The interface of an address that other hosts can reach.
    pub fn network_of(&self, gid: &[u8; 16]) -> Option<u32> {
        let (_, address) = self.iter().find(|(_, address)| address.gid == *gid)?;
        (!address.loopback).then_some(address.interface)
    }

    /// The interfaces that have such addresses of a family. One may occur more than once.
    pub fn networks(&self, ipv4: bool) -> impl Iterator<Item = u32> {
        let reachable =
            move |address: &&Address| !address.loopback && address.ip().is_ipv4() == ipv4;
        self.iter().map(|(_, address)| address).filter(reachable).map(|address| address.interface)
    }

    /// Whether there was such an address and is none now: then the port is down. A host that never had one has an
    /// active port, for itself.
    pub fn has_lost_network(&self) -> bool {
        self.lost_network
    }

    /// The largest InfiniBand MTU of the network that programs use if they choose none: that of the first address that
    /// other hosts can reach, or of loopback if there is none (rule PK-11).
    pub fn path_mtu(&self) -> u32 {
        let network = self.has_network();
        let chosen = self.iter().find(|(_, address)| address.loopback != network);
        chosen.map_or(256, |(_, address)| address.path_mtu())
    }

    /// The largest InfiniBand MTU of packets from an address.
    pub fn path_mtu_from(&self, source: &[u8; 16]) -> u32 {
        let address = self.index_of(source).and_then(|index| self.get(index));
        match address {
            Some(address) => address.path_mtu(),
            None if ip(source).is_loopback() => path_mtu(LOOPBACK_MTU),
            None => self.path_mtu(),
        }
    }

    /// Takes in the changes since the last call. Asks the kernel nothing if nothing changed.
    pub fn refresh(&mut self) -> io::Result<Changes> {
        if !self.watch.drain() {
            return Ok(Changes::default());
        }
        let Current { own, others } = Current::of(self.only.as_deref())?;
        self.others = others;
        let had_network = self.has_network();
        let mut changes = self.take(&own);
        let network = self.has_network();
        changes.network = (network != had_network).then_some(network);
        self.lost_network = (self.lost_network || had_network) && !network;
        Ok(changes)
    }

    fn take(&mut self, current: &[Address]) -> Changes {
        let mut changes = Changes::default();
        for (index, entry) in self.table.iter_mut().enumerate() {
            let Some(old) = entry else { continue };
            match current.iter().find(|new| new.gid == old.gid) {
                Some(new) => {
                    changes.moved |= new.interface != old.interface;
                    changes.mtu |= new.mtu != old.mtu;
                    if new.hardware != old.hardware {
                        changes.hardware.push(new.ip());
                    }
                    *old = *new;
                }
                None => {
                    *entry = None;
                    changes.removed.push(index);
                }
            }
        }
        for new in current {
            if self.index_of(&new.gid).is_some() {
                continue;
            }
            let empty = self.table.iter().position(Option::is_none).unwrap_or(self.table.len());
            match self.table.get_mut(empty) {
                Some(entry) => *entry = Some(*new),
                None if empty < GID_TABLE => self.table.push(Some(*new)),
                None => break,
            }
            changes.added.push(empty);
        }
        changes
    }
}

/// Whether there is a network interface of this name.
pub fn is_interface(name: &str) -> bool {
    netlink::interface_index(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::current::{loopback, sort};
    use super::*;

    fn table(of: &[(u32, &str)]) -> Addresses {
        let address = |(interface, ip): &(u32, &str)| {
            let ip: IpAddr = ip.parse().expect("an address");
            Address { interface: *interface, mtu: 1500, loopback: *interface == 1, ..loopback(ip) }
        };
        let mut addresses: Vec<_> = of.iter().map(address).collect();
        sort(&mut addresses);
        let watch = Watch::new().expect("a socket");
        let table = addresses.into_iter().map(Some).collect();
        Addresses { watch, table, only: None, others: Vec::new(), lost_network: false }
    }

    /// Rules: ST-09
    #[test]
    fn a_source_is_of_the_family_of_its_destination() {
        let table = table(&[(2, "fe80::2"), (2, "10.0.0.2"), (2, "fd00::2")]);
        let source = |index, to: &str| {
            let source = table.source(index, &gid(to.parse().expect("an address")));
            source.map(|gid| ip(&gid).to_string())
        };
        let is = |ip: &str| Ok(ip.to_owned());
        assert_eq!(source(1, "10.0.0.9"), is("10.0.0.2"));
        assert_eq!(source(0, "10.0.0.9"), Err(NoSource::OtherFamily));
        assert_eq!(source(1, "fd00::9"), Err(NoSource::OtherFamily));
        assert_eq!(source(0, "fd00::9"), is("fe80::2"));
        assert_eq!(source(3, "fd00::9"), Err(NoSource::Empty));
        assert_eq!([source(0, "127.0.0.1"), source(1, "::1")], [is("127.0.0.1"), is("::1")]);
        assert_eq!([source(0, "239.0.0.9"), source(1, "ff0e::9")], [is("10.0.0.2"), is("fe80::2")]);
        let between = |from: &str, to: &str| {
            let [from, to] = [from, to].map(|ip| gid(ip.parse().expect("an address")));
            table.interface_between(&from, &to)
        };
        assert_eq!([between("fe80::2", "fe80::9"), between("fd00::2", "fe80::9")], [Some(2); 2]);
        assert_eq!([between("fd00::2", "fd00::9"), between("10.0.0.2", "10.0.0.9")], [None; 2]);
    }
}
