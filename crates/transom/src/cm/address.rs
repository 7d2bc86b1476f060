//! Socket addresses in C's form.

use rustix::net::AddressFamily;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use transom_abi::{sockaddr_in, sockaddr_in6, sockaddr_storage};

/// Converts an address to C's form.
pub(crate) fn to_c(address: SocketAddr) -> sockaddr_storage {
    let mut storage = sockaddr_storage::default();
    match address {
        SocketAddr::V4(v4) => {
            let sin = sockaddr_in {
                sin_family: AddressFamily::INET.as_raw(),
                sin_port: v4.port().to_be(),
                sin_addr: u32::from_ne_bytes(v4.ip().octets()),
                sin_zero: [0; 8],
            };
            // SAFETY: a `sockaddr_storage` has room for it, and is aligned for it.
            unsafe { (&raw mut storage).cast::<sockaddr_in>().write(sin) };
        }
        SocketAddr::V6(v6) => {
            let sin6 = sockaddr_in6 {
                sin6_family: AddressFamily::INET6.as_raw(),
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: v6.ip().octets(),
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { (&raw mut storage).cast::<sockaddr_in6>().write(sin6) };
        }
    }
    storage
}

/// Converts an address from C's form, if it is an IP address.
pub(crate) fn from_c(storage: &sockaddr_storage) -> Option<SocketAddr> {
    match AddressFamily::from_raw(storage.ss_family) {
        AddressFamily::INET => {
            // SAFETY: with this family the storage holds one, and any bytes are such an address.
            let sin = unsafe { (&raw const *storage).cast::<sockaddr_in>().read() };
            let ip = Ipv4Addr::from(sin.sin_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(sin.sin_port)).into())
        }
        AddressFamily::INET6 => {
            // SAFETY: as above.
            let sin6 = unsafe { (&raw const *storage).cast::<sockaddr_in6>().read() };
            let (ip, port) = (Ipv6Addr::from(sin6.sin6_addr), u16::from_be(sin6.sin6_port));
            Some(SocketAddrV6::new(ip, port, sin6.sin6_flowinfo, sin6.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_were() {
        for text in ["10.99.0.1:7471", "0.0.0.0:0", "[::1]:1", "[fe80::1%3]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(from_c(&to_c(address)), Some(address));
        }
        assert_eq!(from_c(&sockaddr_storage::default()), None);
    }
}
