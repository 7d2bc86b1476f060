//! Socket addresses of programs.

use std::ffi::c_int;
use std::mem::size_of;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

use transom_abi::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

use crate::address;
use crate::sanitized;
use crate::wrong::Wrong;

/// The bytes before the IPv4 address in an IPv4-mapped IPv6 address.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF];

/// Reads a program's address, with its length, for a socket of a family. An IPv4-mapped IPv6 address becomes the IPv4
/// address.
///
/// # Safety
/// `from` has `length` bytes.
pub(crate) unsafe fn read(
    from: *const sockaddr,
    length: u32,
    family: c_int,
) -> Result<(sockaddr_storage, u16), Wrong> {
    // SAFETY: by the contract of this function.
    let (address, length) = unsafe { read_as_is(from, length) }?;
    if c_int::from(address.ss_family) != family {
        let said = "the address is of another family than the socket";
        return Err(Wrong::new(libc::EAFNOSUPPORT, said));
    }
    Ok(unmapped(&address).unwrap_or((address, length)))
}

/// Reads a program's address, with its length, unchanged.
///
/// # Safety
/// `from` has `length` bytes.
pub(crate) unsafe fn read_as_is(
    from: *const sockaddr,
    length: u32,
) -> Result<(sockaddr_storage, u16), Wrong> {
    if from.is_null() || (length as usize) < size_of::<u16>() {
        return Err(Wrong::invalid("the address is null, or its length too short"));
    }
    // SAFETY: by the contract of this function.
    let family = unsafe { (&raw const (*from).sa_family).read_unaligned() };
    let whole = address::length(family);
    let whole = whole.map_err(|_| {
        let said = "the address's family is none of AF_INET, AF_INET6 and AF_IB: is it set?";
        Wrong::new(libc::EAFNOSUPPORT, said)
    })?;
    if length < whole.into() {
        return Err(Wrong::invalid("addrlen is shorter than an address of its family"));
    }
    // SAFETY: by the contract of this function.
    unsafe { address::read(from) }
}

fn unmapped(address: &sockaddr_storage) -> Option<(sockaddr_storage, u16)> {
    let data = &address.ss_data;
    let is_mapped = c_int::from(address.ss_family) == libc::AF_INET6 && data[6..18] == MAPPED;
    is_mapped.then(|| {
        let ss_family = libc::AF_INET as u16;
        let mut plain = sockaddr_storage { ss_family, ..Default::default() };
        plain.ss_data[..2].copy_from_slice(&data[..2]);
        plain.ss_data[2..6].copy_from_slice(&data[18..22]);
        (plain, size_of::<sockaddr_in>() as u16)
    })
}

/// An address in its C form, with its length.
pub(crate) fn storage(address: SocketAddr) -> (sockaddr_storage, u16) {
    let mut storage = sockaddr_storage::default();
    storage.ss_data[..2].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(address) => {
            storage.ss_family = libc::AF_INET as u16;
            storage.ss_data[2..6].copy_from_slice(&address.ip().octets());
            (storage, size_of::<sockaddr_in>() as u16)
        }
        SocketAddr::V6(address) => {
            storage.ss_family = libc::AF_INET6 as u16;
            storage.ss_data[2..6].copy_from_slice(&address.flowinfo().to_ne_bytes());
            storage.ss_data[6..22].copy_from_slice(&address.ip().octets());
            storage.ss_data[22..26].copy_from_slice(&address.scope_id().to_ne_bytes());
            (storage, size_of::<sockaddr_in6>() as u16)
        }
    }
}

/// The address in a C form.
pub(crate) fn address(storage: &sockaddr_storage) -> Option<SocketAddr> {
    let data = &storage.ss_data;
    let port = u16::from_be_bytes([data[0], data[1]]);
    let word = |at: usize| u32::from_ne_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
    match c_int::from(storage.ss_family) {
        libc::AF_INET => Some(SocketAddr::from((*data[2..].first_chunk::<4>()?, port))),
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(*data[6..].first_chunk::<16>()?);
            Some(SocketAddr::V6(SocketAddrV6::new(ip, port, word(2), word(22))))
        }
        _ => None,
    }
}

/// An address in the form for a socket of a family, with its length. An address of another family becomes all zeros.
pub(crate) fn shown(address: &sockaddr_storage, family: c_int) -> (sockaddr_storage, usize) {
    let length = match family {
        libc::AF_INET6 => size_of::<sockaddr_in6>(),
        _ => size_of::<sockaddr_in>(),
    };
    let theirs = c_int::from(address.ss_family);
    let mut shown = *address;
    if theirs == libc::AF_INET && family == libc::AF_INET6 {
        shown = sockaddr_storage { ss_family: libc::AF_INET6 as u16, ..Default::default() };
        shown.ss_data[..2].copy_from_slice(&address.ss_data[..2]);
        if address.ss_data[2..6] != [0; 4] {
            shown.ss_data[6..18].copy_from_slice(&MAPPED);
            shown.ss_data[18..22].copy_from_slice(&address.ss_data[2..6]);
        }
    } else if theirs != family {
        shown = sockaddr_storage { ss_family: family as u16, ..Default::default() };
    }
    (shown, length)
}

/// Writes an address for the program, or the part of it that there is room for. Sets its whole length.
///
/// # Safety
/// Both are null or valid, and `to` has the room that `length` says.
pub(crate) unsafe fn give(
    (address, whole): (sockaddr_storage, usize),
    to: *mut sockaddr,
    length: *mut u32,
) -> Result<(), Wrong> {
    if to.is_null() || length.is_null() {
        return Err(Wrong::new(libc::EFAULT, "the address or its length is null"));
    }
    // SAFETY: by the contract of this function.
    unsafe {
        let room = (length.read_unaligned() as usize).min(whole);
        to.cast::<u8>().copy_from((&raw const address).cast(), room);
        length.write_unaligned(whole as u32);
        sanitized::bytes_written(to.cast(), room);
        sanitized::written(length);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_ipv4_in_one_of_ipv6_goes_both_ways() {
        let mut address =
            sockaddr_storage { ss_family: libc::AF_INET6 as u16, ..Default::default() };
        address.ss_data[..2].copy_from_slice(&80_u16.to_be_bytes());
        address.ss_data[6..18].copy_from_slice(&MAPPED);
        address.ss_data[18..22].copy_from_slice(&[10, 1, 2, 3]);
        let (plain, length) = unmapped(&address).unwrap();
        assert_eq!((plain.ss_family, length), (libc::AF_INET as u16, 16));
        assert_eq!(plain.ss_data[..6], [0, 80, 10, 1, 2, 3]);
        let (shown, length) = shown(&plain, libc::AF_INET6);
        assert_eq!((shown.ss_data, length), (address.ss_data, 28));
    }

    #[test]
    fn addresses_go_both_ways() {
        for text in ["10.1.2.3:80", "[fe80::1%3]:65535"] {
            let one: SocketAddr = text.parse().unwrap();
            assert_eq!(address(&storage(one).0), Some(one));
        }
        assert_eq!(address(&sockaddr_storage::default()), None);
    }

    #[test]
    fn what_is_given_is_as_long_as_its_room() {
        let address = shown(&sockaddr_storage::default(), libc::AF_INET);
        let (mut room, mut length) = ([0xFF_u8; 16], 3);
        // SAFETY: there is more room than it says.
        assert_eq!(unsafe { give(address, room.as_mut_ptr().cast(), &mut length) }, Ok(()));
        assert_eq!((room[..4].to_vec(), length), (vec![2, 0, 0, 0xFF], 16));
    }
}
