//! Socket addresses of IPv4, IPv6 and InfiniBand.

use std::ffi::c_int;
use std::mem::size_of;

use crate::wrong::Wrong;
use transom_abi::*;

/// The address family of `<infiniband/ib.h>`.
pub(crate) const AF_IB: u16 = 27;
/// The length of its `struct sockaddr_ib` in bytes.
const SOCKADDR_IB: usize = 48;

/// The family of an address is none that ids can have.
const FAMILY: Wrong =
    Wrong::invalid("the address's family is none of AF_INET, AF_INET6 and AF_IB: is it set?");

/// The length in bytes of an address of a family that ids can have.
pub(crate) fn length(family: u16) -> Result<u16, Wrong> {
    match c_int::from(family) {
        libc::AF_INET => Ok(size_of::<sockaddr_in>() as u16),
        libc::AF_INET6 => Ok(size_of::<sockaddr_in6>() as u16),
        _ if family == AF_IB => Ok(SOCKADDR_IB as u16),
        _ => Err(FAMILY),
    }
}

/// Reads a program's address, with its length.
///
/// # Safety
/// It is null, or an address as long as its family says.
pub(crate) unsafe fn read(address: *const sockaddr) -> Result<(sockaddr_storage, u16), Wrong> {
    // SAFETY: by the contract of this function.
    let first = unsafe { address.as_ref() }.ok_or(Wrong::invalid("the address is null"))?;
    let length = length(first.sa_family)?;
    let mut copy = sockaddr_storage::default();
    let to = (&raw mut copy).cast::<u8>();
    // SAFETY: the address has `length` bytes, and the copy has room for any address.
    unsafe { to.copy_from_nonoverlapping(address.cast(), length.into()) };
    Ok((copy, length))
}

/// Makes a `struct sockaddr_ib`. `from` has the GID in the place of its IPv6 address. The service id combines a port
/// space and a port.
pub(crate) fn of_gid(from: &sockaddr_in6, space: rdma_port_space) -> [u8; SOCKADDR_IB] {
    let port = u16::from_be(from.sin6_port);
    let of_space = if space == 0 { 0 } else { !0 << 16 };
    let mask: u64 = of_space | if port == 0 { 0 } else { 0xffff };
    let mut bytes = [0; SOCKADDR_IB];
    bytes[..2].copy_from_slice(&AF_IB.to_ne_bytes());
    // The default P_Key.
    bytes[2..4].copy_from_slice(&[0xff; 2]);
    bytes[4..8].copy_from_slice(&from.sin6_flowinfo.to_ne_bytes());
    bytes[8..24].copy_from_slice(&from.sin6_addr);
    bytes[24..32].copy_from_slice(&(u64::from(space) << 16 | u64::from(port)).to_be_bytes());
    bytes[32..40].copy_from_slice(&mask.to_be_bytes());
    bytes[40..].copy_from_slice(&u64::from(from.sin6_scope_id).to_ne_bytes());
    bytes
}

/// The port of an address, network byte order, or 0.
pub(crate) fn port(address: &sockaddr_storage) -> u16 {
    let data = &address.ss_data;
    match c_int::from(address.ss_family) {
        libc::AF_INET | libc::AF_INET6 => u16::from_ne_bytes([data[0], data[1]]),
        _ if address.ss_family == AF_IB => {
            // The service id, and the mask of its valid bits. The last 16 bits are the port.
            let [sid, mask] = [22, 30].map(|at| u16::from_ne_bytes([data[at + 6], data[at + 7]]));
            sid & mask
        }
        _ => 0,
    }
}

/// The GID in an InfiniBand address.
pub(crate) fn gid(address: &sockaddr_storage) -> Option<[u8; 16]> {
    let gid = address.ss_data[6..22].try_into().expect("sixteen bytes");
    (address.ss_family == AF_IB).then_some(gid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_where_each_family_has_them() {
        let mut address =
            sockaddr_storage { ss_family: libc::AF_INET6 as u16, ..Default::default() };
        address.ss_data[..2].copy_from_slice(&7471_u16.to_be_bytes());
        assert_eq!(port(&address), 7471_u16.to_be());
        let mut address = sockaddr_storage { ss_family: AF_IB, ..Default::default() };
        address.ss_data[22..30].copy_from_slice(&0x0106_1D2F_u64.to_be_bytes());
        address.ss_data[30..38].copy_from_slice(&u64::MAX.to_be_bytes());
        assert_eq!(port(&address), 7471_u16.to_be());
        assert_eq!(length(1), Err(FAMILY));
    }
}
