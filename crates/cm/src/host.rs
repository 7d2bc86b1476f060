//! The engine's questions to the host: which process has a port, and which route leads to an address.
//!
//! The processes of a network namespace share its ports. So the host keeps their registry ([`Host`]).
//! [`Claim::conflict`] decides what may be shared. [`Ports`] is a host with a registry in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use transom_wire::cm::{CommId, PathMtu, PortSpace};

use crate::refused::Refused;

/// The route from an address of this host to another address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// The address here.
    pub source: IpAddr,
    /// The address there.
    pub destination: IpAddr,
    /// The index of the source's GID.
    pub gid_index: u8,
    /// The MTU of its network.
    pub mtu: PathMtu,
    /// Traffic class, unless a program sets one.
    pub traffic_class: u8,
}

/// Whether an address belongs to no device and stands for any: the wildcard, and, as on Linux, every loopback address
/// (rule CM-67).
pub fn is_any(address: IpAddr) -> bool {
    address.is_unspecified() || address.is_loopback()
}

/// An id's claim to an address and a port of a port space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The id. It is unique over all processes (rule CM-41).
    pub id: CommId,
    /// The port space.
    pub space: PortSpace,
    /// The address, or a wildcard, and the port. Port 0 means any.
    pub address: SocketAddr,
    /// Whether an IPv6 wildcard excludes IPv4.
    pub v6_only: bool,
    /// Whether other ids with this option may have the same port.
    pub reuse: bool,
}

impl Claim {
    /// Whether the claim is to one family only. An IPv4 address always is; an IPv6 wildcard may cover both.
    fn one_family(&self) -> bool {
        self.v6_only || self.address.is_ipv4()
    }

    /// The reason why two claims conflict, if they do (rule CM-36). With `to_listen`, shared ports conflict too.
    pub fn conflict(&self, other: &Self, to_listen: bool) -> Option<Refused> {
        if self.id == other.id || self.space != other.space {
            return None;
        }
        let (own, theirs) = (self.address, other.address);
        if own.port() != theirs.port() || !to_listen && self.reuse && other.reuse {
            return None;
        }
        let families_differ = own.is_ipv4() != theirs.is_ipv4();
        if families_differ && self.one_family() && other.one_family() {
            return None;
        }
        if is_any(own.ip()) || is_any(theirs.ip()) {
            return Some(Refused::Overlaps);
        }
        (own.ip() == theirs.ip()).then_some(Refused::InUse)
    }

    /// Whether a listener with this claim takes a request for an address (rules CM-21, CM-67). `from_here` is true if
    /// the request comes from this host.
    pub fn takes(&self, destination: IpAddr, from_here: bool) -> bool {
        let own = self.address.ip();
        let same_family = own.is_ipv4() == destination.is_ipv4();
        let any = own.is_unspecified() || own.is_loopback() && from_here;
        own == destination || any && (same_family || !self.one_family())
    }
}

/// The part of the host that the engine needs.
pub trait Host {
    /// Gives an id a port, and returns its number (rules CM-36, CM-37). It is refused if the address does not belong to
    /// this host ([`Refused::NotAvailable`]) or to no device ([`Refused::NoDevice`]).
    fn claim(&mut self, claim: Claim) -> Result<u16, Refused>;

    /// Whether an IPv6 wildcard excludes IPv4 if its program does not say so.
    fn is_v6_only(&self) -> bool;

    /// The id of this claim has it with these options from now on. Who wants the port later is judged by them.
    fn change(&mut self, claim: Claim) -> Result<(), Refused>;

    /// Lets an id with this claim listen. Nobody may share its port then.
    fn listen(&mut self, claim: Claim) -> Result<(), Refused>;

    /// Whether an address belongs to this host.
    fn is_here(&self, address: IpAddr) -> bool;

    /// The ids that have a port, listening or not.
    fn ids_at(&mut self, space: PortSpace, port: u16) -> Vec<CommId>;

    /// Takes a claim back.
    fn release(&mut self, claim: Claim);

    /// The route from the address of a device here to another address, if there is one and it begins at that address's
    /// network.
    fn route(&mut self, source: IpAddr, destination: IpAddr) -> Option<Route>;
}

/// A host in memory: its addresses, and the ports of one process or of the processes of a simulation.
#[derive(Clone, Debug)]
pub struct Ports {
    addresses: Vec<IpAddr>,
    claims: BTreeMap<(PortSpace, u16), Vec<Claim>>,
    listening: BTreeSet<CommId>,
    /// The ports that port 0 chooses from.
    pub ephemeral: std::ops::RangeInclusive<u16>,
    /// Whether ids may have ports below 1024.
    pub privileged: bool,
    /// Whether an IPv6 wildcard excludes IPv4 if its program does not say so.
    pub v6_only: bool,
    next: u16,
}

impl Ports {
    /// A host with these addresses.
    pub fn new(addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        Self {
            addresses: addresses.into_iter().collect(),
            claims: BTreeMap::new(),
            listening: BTreeSet::new(),
            ephemeral: 32_768..=60_999,
            privileged: false,
            v6_only: false,
            next: 0,
        }
    }

    /// Whether there are no claims.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.listening.is_empty()
    }

    /// Takes back all claims of a process.
    pub fn release_slot(&mut self, slot: u8) {
        let of_slot = |id: CommId| (id.0 >> 24) as u8 == slot;
        for claims in self.claims.values_mut() {
            claims.retain(|claim| !of_slot(claim.id));
        }
        self.claims.retain(|_, claims| !claims.is_empty());
        self.listening.retain(|id| !of_slot(*id));
    }

    fn find_conflict(&self, claim: &Claim, to_listen: bool) -> Option<Refused> {
        let others = self.claims.get(&(claim.space, claim.address.port()))?;
        others.iter().find_map(|other| {
            claim.conflict(other, to_listen || self.listening.contains(&other.id))
        })
    }

    /// A free port. The search begins after the last port given.
    fn any_port(&mut self, space: PortSpace) -> Option<u16> {
        let (first, last) = (*self.ephemeral.start(), *self.ephemeral.end());
        let behind = self.next.clamp(first, last);
        let mut candidates = (behind..=last).chain(first..behind);
        let port = candidates.find(|port| !self.claims.contains_key(&(space, *port)))?;
        self.next = port.wrapping_add(1);
        Some(port)
    }
}

impl Host for Ports {
    fn claim(&mut self, mut claim: Claim) -> Result<u16, Refused> {
        let ip = claim.address.ip();
        if !is_any(ip) && !self.is_here(ip) {
            return Err(Refused::NotAvailable);
        }
        match claim.address.port() {
            0 => {
                let port = self.any_port(claim.space).ok_or(Refused::NoPort)?;
                claim.address.set_port(port);
            }
            1..1024 if !self.privileged => return Err(Refused::Privileged),
            _ => {
                if let Some(refused) = self.find_conflict(&claim, false) {
                    return Err(refused);
                }
            }
        }
        let port = claim.address.port();
        self.claims.entry((claim.space, port)).or_default().push(claim);
        Ok(port)
    }

    fn is_v6_only(&self) -> bool {
        self.v6_only
    }

    fn change(&mut self, claim: Claim) -> Result<(), Refused> {
        let claims = self.claims.get_mut(&(claim.space, claim.address.port()));
        let own = claims.into_iter().flatten().filter(|it| it.id == claim.id);
        own.for_each(|it| *it = claim);
        Ok(())
    }

    fn listen(&mut self, claim: Claim) -> Result<(), Refused> {
        if let Some(refused) = self.find_conflict(&claim, true) {
            return Err(refused);
        }
        self.listening.insert(claim.id);
        Ok(())
    }

    fn is_here(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.addresses.contains(&address)
    }

    fn ids_at(&mut self, space: PortSpace, port: u16) -> Vec<CommId> {
        let claims = self.claims.get(&(space, port)).map_or(&[][..], Vec::as_slice);
        claims.iter().map(|claim| claim.id).collect()
    }

    fn release(&mut self, claim: Claim) {
        self.listening.remove(&claim.id);
        let key = (claim.space, claim.address.port());
        if let Some(claims) = self.claims.get_mut(&key) {
            claims.retain(|other| other.id != claim.id);
            if claims.is_empty() {
                self.claims.remove(&key);
            }
        }
    }

    fn route(&mut self, source: IpAddr, destination: IpAddr) -> Option<Route> {
        let index = self.addresses.iter().position(|address| *address == source)?;
        (source.is_ipv4() == destination.is_ipv4()).then_some(Route {
            source,
            destination,
            gid_index: u8::try_from(index).ok()?,
            mtu: PathMtu::B1024,
            traffic_class: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(id: u32, address: &str) -> Claim {
        Claim {
            id: CommId(id),
            space: PortSpace::Tcp,
            address: address.parse().unwrap(),
            v6_only: false,
            reuse: false,
        }
    }

    fn host() -> Ports {
        Ports::new(["10.0.0.1", "10.0.0.2", "fd00::1"].map(|address| address.parse().unwrap()))
    }

    /// Rules: CM-36
    #[test]
    fn a_port_belongs_to_one_id_unless_addresses_differ() {
        let mut host = host();
        assert_eq!(host.claim(claim(1, "10.0.0.1:5000")), Ok(5000));
        assert_eq!(host.claim(claim(2, "10.0.0.1:5000")), Err(Refused::InUse));
        assert_eq!(host.claim(claim(2, "0.0.0.0:5000")), Err(Refused::Overlaps));
        assert_eq!(host.claim(claim(2, "[::]:5000")), Err(Refused::Overlaps));
        assert_eq!(host.claim(Claim { v6_only: true, ..claim(3, "[::]:5000") }), Ok(5000));
        assert_eq!(host.claim(claim(4, "10.0.0.2:5000")), Ok(5000));
        assert_eq!(
            host.claim(Claim { space: PortSpace::Udp, ..claim(5, "0.0.0.0:5000") }),
            Ok(5000)
        );
        assert_eq!(host.claim(claim(6, "10.9.9.9:5001")), Err(Refused::NotAvailable));
        for claim in [1, 3, 4].map(|id| claim(id, "10.0.0.1:5000")) {
            host.release(claim);
        }
        assert_eq!(host.claim(claim(2, "[::]:5000")), Ok(5000));
        assert_eq!(host.claim(claim(1, "10.0.0.1:5000")), Err(Refused::Overlaps));
        host.release(claim(2, "[::]:5000"));
        host.release(Claim { space: PortSpace::Udp, ..claim(5, "0.0.0.0:5000") });
        assert!(host.is_empty());
    }

    /// Rules: CM-21, CM-67
    #[test]
    fn who_listens_at_loopback_takes_what_is_from_this_host() {
        let takes = |own: &str, destination: &str, from_here| {
            claim(1, &format!("{own}:5000")).takes(destination.parse().unwrap(), from_here)
        };
        for own in ["127.0.0.1", "127.0.1.1", "[::1]"] {
            assert!(takes(own, "10.0.0.1", true) && takes(own, "127.0.0.1", true), "{own}");
            assert!(!takes(own, "10.0.0.1", false), "{own}");
            assert_eq!(takes(own, "fd00::1", true), own == "[::1]");
        }
        let only = Claim { v6_only: true, ..claim(1, "[::1]:5000") };
        assert!(!only.takes("10.0.0.1".parse().unwrap(), true));
        assert!(takes("0.0.0.0", "10.0.0.1", false) && !takes("0.0.0.0", "fd00::1", true));
        assert!(takes("10.0.0.1", "10.0.0.1", false) && !takes("10.0.0.1", "10.0.0.2", true));
    }

    /// Rules: CM-36
    #[test]
    fn who_listens_shares_with_nobody() {
        let mut host = host();
        let shared = |id| Claim { reuse: true, ..claim(id, "10.0.0.1:5000") };
        assert_eq!([host.claim(shared(1)), host.claim(shared(2))], [Ok(5000), Ok(5000)]);
        assert_eq!(host.claim(claim(3, "10.0.0.1:5000")), Err(Refused::InUse));
        assert_eq!(host.listen(shared(1)), Err(Refused::InUse));
        host.release(shared(2));
        assert_eq!(host.listen(shared(1)), Ok(()));
        assert_eq!(host.claim(shared(2)), Err(Refused::InUse));
    }

    /// Rules: CM-37
    #[test]
    fn any_port_is_a_free_one_as_long_as_there_is_one() {
        let mut host = host();
        host.ephemeral = 50_000..=50_002;
        let mut ports: Vec<_> =
            (1..=3).map(|id| host.claim(claim(id, "0.0.0.0:0")).unwrap()).collect();
        ports.sort_unstable();
        assert_eq!(ports, [50_000, 50_001, 50_002]);
        assert_eq!(host.claim(claim(4, "0.0.0.0:0")), Err(Refused::NoPort));
        host.release(claim(2, "0.0.0.0:50001"));
        assert_eq!(host.claim(claim(4, "10.0.0.1:0")), Ok(50_001));
        assert_eq!(host.claim(claim(5, "10.0.0.1:80")), Err(Refused::Privileged));
        host.privileged = true;
        assert_eq!(host.claim(claim(5, "10.0.0.1:80")), Ok(80));
    }
}
