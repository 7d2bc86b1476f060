//! The ports of the network namespace, which its processes share, and the routes from its addresses.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use transom_cm::{Claim, Host, Refused, Route};
use transom_system::addresses::gid;
use transom_system::registry::connections::{Connections, Locked};
use transom_wire::cm::{CommId, PortSpace};

use super::routes;
use crate::device::Device;

/// The kernel's own range, if nobody has set another.
const EPHEMERAL: RangeInclusive<u16> = 32_768..=60_999;
/// `CAP_NET_BIND_SERVICE`, `capabilities(7)`.
const BIND_SERVICE: u32 = 10;

/// The ports, as one process sees them.
pub(super) struct SharedPorts {
    device: Arc<Device>,
    pub(super) table: Connections,
    /// The range from which a program that asks for port 0 gets its port.
    ephemeral: RangeInclusive<u16>,
    /// Ports below this one need a privilege.
    unprivileged: u16,
    /// An IPv6 wildcard excludes IPv4 unless its program says otherwise.
    v6_only: bool,
}

impl SharedPorts {
    pub(super) fn new(device: Arc<Device>, table: Connections) -> Self {
        let numbers = |name: &str| -> Vec<u16> {
            let text = fs::read_to_string(format!("/proc/sys/net/{name}"));
            text.unwrap_or_default().split_whitespace().filter_map(|it| it.parse().ok()).collect()
        };
        let ephemeral = match *numbers("ipv4/ip_local_port_range") {
            [first, last] if 0 < first && first <= last => first..=last,
            _ => EPHEMERAL,
        };
        let unprivileged = numbers("ipv4/ip_unprivileged_port_start");
        let unprivileged = unprivileged.first().copied().unwrap_or(1024);
        let v6_only = numbers("ipv6/bindv6only").first().is_some_and(|it| *it != 0);
        Self { device, table, ephemeral, unprivileged, v6_only }
    }

    /// Refuses addresses that no id can be bound to.
    fn check_address(&self, address: SocketAddr) -> Result<(), Refused> {
        routes::check_interface(self.device.port(), address)?;
        let address = address.ip();
        if address.is_unspecified() || self.device.port().has(&gid(address)) {
            Ok(())
        } else if routes::is_local(address) {
            Err(Refused::NoDevice)
        } else {
            Err(Refused::NotAvailable)
        }
    }

    /// A port that nobody has. The search begins at a random one.
    fn any_port(&self, table: &mut Locked<'_>, space: PortSpace) -> Option<u16> {
        let (first, last) = (*self.ephemeral.start(), *self.ephemeral.end());
        let any = getrandom::u32().unwrap_or_default() as u16;
        let begin = first + any % (last - first).saturating_add(1);
        let mut candidates = (begin..=last).chain(first..begin);
        candidates.find(|port| table.ports(space, *port).is_empty())
    }
}

/// The reason why a claim conflicts with those of others, if it does.
fn conflict(table: &mut Locked<'_>, claim: &Claim, to_listen: bool) -> Option<Refused> {
    let others = table.ports(claim.space, claim.address.port());
    others.iter().find_map(|other| claim.conflict(&other.claim, to_listen || other.listens))
}

impl Host for SharedPorts {
    fn claim(&mut self, mut claim: Claim) -> Result<u16, Refused> {
        self.check_address(claim.address)?;
        let mut table = self.table.lock().map_err(|_| Refused::NoTable)?;
        match claim.address.port() {
            0 => {
                let port = self.any_port(&mut table, claim.space);
                claim.address.set_port(port.ok_or(Refused::NoPort)?);
            }
            port if port < self.unprivileged && !has_capability(BIND_SERVICE) => {
                return Err(Refused::Privileged);
            }
            _ => {
                if let Some(refused) = conflict(&mut table, &claim, false) {
                    return Err(refused);
                }
            }
        }
        table.add_port(&claim).map_err(|_| Refused::NoTable)?;
        Ok(claim.address.port())
    }

    fn is_v6_only(&self) -> bool {
        self.v6_only
    }

    fn change(&mut self, claim: Claim) -> Result<(), Refused> {
        let mut table = self.table.lock().map_err(|_| Refused::NoTable)?;
        table.change_port(&claim);
        Ok(())
    }

    fn listen(&mut self, claim: Claim) -> Result<(), Refused> {
        let mut table = self.table.lock().map_err(|_| Refused::NoTable)?;
        if let Some(refused) = conflict(&mut table, &claim, true) {
            return Err(refused);
        }
        table.listen(&claim);
        Ok(())
    }

    fn is_here(&self, address: IpAddr) -> bool {
        self.device.port().is_here(&gid(address))
    }

    fn ids_at(&mut self, space: PortSpace, port: u16) -> Vec<CommId> {
        let claims = self.table.lock().map(|mut table| table.ports(space, port));
        claims.unwrap_or_default().iter().map(|it| it.claim.id).collect()
    }

    fn release(&mut self, claim: Claim) {
        // If a claim cannot be released now, the port is free when this process ends.
        if let Ok(mut table) = self.table.lock() {
            table.remove_port(&claim);
        }
    }

    fn route(&mut self, source: IpAddr, destination: IpAddr) -> Option<Route> {
        let port = self.device.port();
        let interface = port.addresses().network_of(&gid(source));
        routes::find(port, Some(source), destination, interface).ok()
    }
}

/// Whether this process has a capability.
fn has_capability(number: u32) -> bool {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.is_some_and(|set| set >> number & 1 == 1)
}
