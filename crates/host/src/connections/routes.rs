//! The route from an address of this host to another.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use transom_cm::refused::Errno;
use transom_cm::{Refused, Route};
use transom_net::DevicePort;
use transom_system::addresses::{Addresses, gid};
use transom_system::rehearsal;
use transom_wire::cm::PathMtu;
use transom_wire::packet::PORT;

/// The address by which a destination is reached: the loopback address for the unspecified address and for all others
/// that stand for this host.
pub(super) fn reached_by(destination: IpAddr) -> IpAddr {
    match destination {
        IpAddr::V4(ip) if ip.is_loopback() || ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

/// The interface of a link-local address, as programs name it (`sin6_scope_id`).
pub(super) fn interface(address: &SocketAddr) -> Option<u32> {
    match address {
        SocketAddr::V6(address) => Some(address.scope_id()).filter(|scope| *scope != 0),
        SocketAddr::V4(_) => None,
    }
}

/// Refuses a link-local address without an interface, or with the wrong one (rule CM-36).
pub(super) fn check_interface(port: &DevicePort, address: SocketAddr) -> Result<(), Refused> {
    if !is_link_local(address.ip()) {
        return Ok(());
    }
    let named = interface(&address).ok_or(Refused::NoInterface)?;
    let has_it = port.addresses().network_of(&gid(address.ip())).is_none_or(|of| of == named);
    if has_it { Ok(()) } else { Err(Refused::NotAvailable) }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// The route from an address, or from the one that the kernel would choose, to another. A link-local address belongs to
/// an interface.
///
/// # Errors
///
/// The kernel's error if it has no route; `ENODEV` if the route begins at an address that the device does not have.
pub(super) fn find(
    port: &DevicePort,
    source: Option<IpAddr>,
    destination: IpAddr,
    interface: Option<u32>,
) -> Result<Route, Errno> {
    let source = source.filter(|source| !source.is_unspecified());
    let destination = reached_by(destination);
    if destination.is_loopback() && source.is_none_or(|it| it.is_ipv4() == destination.is_ipv4()) {
        return to_itself(&port.addresses(), destination);
    }
    let source = match source {
        Some(source) if source.is_ipv4() != destination.is_ipv4() => return Err(Errno::EINVAL),
        // A packet of this host for an address of this host stays here, whatever its source.
        _ if port.is_here(&gid(destination)) => source.unwrap_or(destination),
        _ => kernels_choice(source, destination, interface)?,
    };
    let addresses = port.addresses();
    let index = addresses.index_of(&gid(source)).ok_or(Errno::ENODEV)?;
    let mtu = addresses.path_mtu_from(&gid(source));
    route(source, destination, index, mtu)
}

/// The route to this host by a loopback address. As on Linux, both ends are the port's first GID, of any family, unless
/// that address is in the table.
fn to_itself(addresses: &Addresses, loopback: IpAddr) -> Result<Route, Errno> {
    let itself = addresses.iter().find(|(_, address)| address.ip() == loopback);
    let (index, own) = itself.or_else(|| addresses.own()).ok_or(Errno::ENODEV)?;
    route(own.ip(), own.ip(), index, own.path_mtu())
}

fn route(source: IpAddr, destination: IpAddr, index: usize, bytes: u32) -> Result<Route, Errno> {
    let gid_index = u8::try_from(index).map_err(|_| Errno::ENODEV)?;
    rehearsal::small_mtu().inspect(|it| it.note());
    Ok(Route { source, destination, gid_index, mtu: mtu(bytes), traffic_class: 0 })
}

/// The address from which the kernel would send. To find it, a socket is connected: this asks the kernel for a route,
/// and sends nothing.
fn kernels_choice(
    source: Option<IpAddr>,
    destination: IpAddr,
    interface: Option<u32>,
) -> Result<IpAddr, Errno> {
    let any = match destination {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let at = |ip, port| match ip {
        IpAddr::V6(v6) if is_link_local(ip) => {
            SocketAddrV6::new(v6, port, 0, interface.unwrap_or(0)).into()
        }
        ip => SocketAddr::new(ip, port),
    };
    let ask = || {
        let socket = UdpSocket::bind(at(source.unwrap_or(any), 0))?;
        socket.connect(at(destination, PORT))?;
        socket.local_addr()
    };
    match ask() {
        Ok(chosen) => Ok(chosen.ip()),
        // Without an address to send from there is no network to send to.
        Err(error) => Err(match error.raw_os_error() {
            Some(libc::EADDRNOTAVAIL) | None => Errno(libc::ENETUNREACH),
            Some(errno) => Errno(errno),
        }),
    }
}

/// The address from which the kernel would send to a destination, if there is a way.
pub fn source_towards(destination: SocketAddr) -> Option<IpAddr> {
    kernels_choice(None, destination.ip(), interface(&destination)).ok()
}

/// Whether an address is this host's, though not the device's: a socket can bind to it.
pub(super) fn is_local(address: IpAddr) -> bool {
    UdpSocket::bind(SocketAddr::new(address, 0)).is_ok()
}

/// The largest MTU of at most so many bytes.
fn mtu(bytes: u32) -> PathMtu {
    let all = [PathMtu::B4096, PathMtu::B2048, PathMtu::B1024, PathMtu::B512];
    all.into_iter().find(|mtu| mtu.bytes() <= bytes).unwrap_or(PathMtu::B256)
}
