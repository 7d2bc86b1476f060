//! Addresses in their C form.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use transom_abi::{sockaddr_in6, sockaddr_storage};

use super::refusal::Refusal;

const AF_INET: u16 = libc::AF_INET as u16;
const AF_INET6: u16 = libc::AF_INET6 as u16;
/// `AF_IB`. Its addresses are GIDs and service ids. No RoCE adapter has any.
pub(super) const AF_IB: u16 = 27;

/// The lengths in bytes of a `sockaddr_in`, a `sockaddr_in6` and a `sockaddr_ib`.
const IN: usize = 16;
const IN6: usize = 28;
pub(super) const IB: usize = 48;

/// The family of an address is not supported.
const FAMILY: Refusal = Refusal::invalid(
    "the address is neither AF_INET nor AF_INET6: its family is unset, or another one",
);
/// The length of an address does not fit its family.
const LENGTH: Refusal = Refusal::invalid("the length of the address does not fit its family");

/// The bytes of an address in a `sockaddr_storage`.
fn bytes(address: &sockaddr_storage) -> [u8; IB] {
    let mut bytes = [0; IB];
    bytes[..2].copy_from_slice(&address.ss_family.to_ne_bytes());
    bytes[2..].copy_from_slice(&address.ss_data[..IB - 2]);
    bytes
}

/// The bytes of an address in a `sockaddr_in6`.
fn bytes_of_ip(address: &sockaddr_in6) -> [u8; IB] {
    let mut bytes = [0; IB];
    bytes[..2].copy_from_slice(&address.sin6_family.to_ne_bytes());
    // Ports and addresses are in network order.
    bytes[2..4].copy_from_slice(&address.sin6_port.to_ne_bytes());
    bytes[4..8].copy_from_slice(&address.sin6_flowinfo.to_ne_bytes());
    bytes[8..24].copy_from_slice(&address.sin6_addr);
    bytes[24..28].copy_from_slice(&address.sin6_scope_id.to_ne_bytes());
    bytes
}

/// Reads an address by its family. `None` if there is none.
fn parse(bytes: &[u8; IB]) -> Result<Option<SocketAddr>, Refusal> {
    let [f0, f1, p0, p1, rest @ ..] = bytes;
    let port = u16::from_be_bytes([*p0, *p1]);
    match u16::from_ne_bytes([*f0, *f1]) {
        0 => Ok(None),
        AF_INET => {
            let (octets, _) = rest.split_first_chunk::<4>().ok_or(LENGTH)?;
            Ok(Some(SocketAddr::new(Ipv4Addr::from(*octets).into(), port)))
        }
        AF_INET6 => {
            let octets = rest.get(4..20).and_then(|octets| octets.first_chunk::<16>());
            let ip = Ipv6Addr::from(*octets.ok_or(LENGTH)?);
            let scope = rest.get(20..24).and_then(|scope| scope.first_chunk::<4>());
            // The scope has no meaning for other addresses.
            let scope = scope.filter(|_| ip.is_unicast_link_local());
            let scope = scope.map_or(0, |scope| u32::from_ne_bytes(*scope));
            Ok(Some(SocketAddrV6::new(ip, port, 0, scope).into()))
        }
        AF_IB => {
            let said = "the address is AF_IB, which no RoCE adapter has: give an IP address";
            Err(Refusal::new(libc::ENODEV, said))
        }
        _ => Err(FAMILY),
    }
}

/// Reads an IP address. `None` if there is none, `EINVAL` if it has another family.
pub(super) fn of_ip(address: &sockaddr_in6) -> Result<Option<SocketAddr>, Refusal> {
    parse(&bytes_of_ip(address))
}

/// Reads an address of `size` bytes. `EINVAL` if addresses of its family have another length.
pub(super) fn of(address: &sockaddr_storage, size: u16) -> Result<Option<SocketAddr>, Refusal> {
    if size == 0 {
        return Ok(None);
    }
    let right = match address.ss_family {
        AF_INET => IN,
        AF_INET6 => IN6,
        AF_IB => IB,
        _ => return Err(FAMILY),
    };
    if usize::from(size) != right {
        return Err(LENGTH);
    }
    parse(&bytes(address))
}

/// An address in a `sockaddr_storage`, and its length. Length zero if there is none.
pub(super) fn to_storage(address: Option<SocketAddr>) -> (sockaddr_storage, u16) {
    let mut storage = sockaddr_storage::default();
    let Some(address) = address else { return (storage, 0) };
    storage.ss_data[..2].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(address) => {
            storage.ss_family = AF_INET;
            storage.ss_data[2..6].copy_from_slice(&address.ip().octets());
            (storage, IN as u16)
        }
        SocketAddr::V6(address) => {
            storage.ss_family = AF_INET6;
            storage.ss_data[6..22].copy_from_slice(&address.ip().octets());
            storage.ss_data[22..26].copy_from_slice(&address.scope_id().to_ne_bytes());
            (storage, IN6 as u16)
        }
    }
}

/// An address in a `sockaddr_in6`. All zeros if there is none.
pub(super) fn to_ip(address: Option<SocketAddr>) -> sockaddr_in6 {
    let (storage, _) = to_storage(address);
    let number = |at: usize| u16::from_ne_bytes([storage.ss_data[at], storage.ss_data[at + 1]]);
    let mut sin6_addr = [0; 16];
    sin6_addr.copy_from_slice(&storage.ss_data[6..22]);
    let mut scope = [0; 4];
    scope.copy_from_slice(&storage.ss_data[22..26]);
    sockaddr_in6 {
        sin6_family: storage.ss_family,
        sin6_port: number(0),
        sin6_flowinfo: u32::from(number(2)) | u32::from(number(4)) << 16,
        sin6_addr,
        sin6_scope_id: u32::from_ne_bytes(scope),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_was_written() {
        for text in ["10.1.2.3:7174", "[fd00::1:2]:65535", "[fe80::1%7]:9", "0.0.0.0:0", "[::]:1"] {
            let address = Some(text.parse().unwrap());
            let (storage, size) = to_storage(address);
            assert_eq!(of(&storage, size), Ok(address));
            assert_eq!(of(&storage, size + 1), Err(LENGTH));
            assert_eq!(of_ip(&to_ip(address)), Ok(address));
        }
        assert_eq!((of(&sockaddr_storage::default(), 0), to_storage(None).1), (Ok(None), 0));
        assert_eq!(of(&sockaddr_storage::default(), 16), Err(FAMILY));
        assert_eq!(of_ip(&sockaddr_in6 { sin6_family: 99, ..to_ip(None) }), Err(FAMILY));
    }
}
