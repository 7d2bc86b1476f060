//! Address handles, and work requests that name them.

use std::ffi::c_int;
use std::net::IpAddr;

use transom_abi::*;
use transom_ibverbs::*;
use transom_system::addresses::{Addresses, gid};

use crate::harness::errno;

/// The address of this host, which any GID of the port may use.
pub fn here() -> ibv_ah_attr {
    let mut attr = ibv_ah_attr { is_global: 1, port_num: 1, ..ibv_ah_attr::default() };
    attr.grh.dgid = ibv_gid { raw: LOOPBACK_GID };
    attr
}

/// The address of a GID, from the first own GID of its family if there is one.
pub fn to_gid(raw: [u8; 16]) -> ibv_ah_attr {
    let mut attr = here();
    attr.grh.dgid = ibv_gid { raw };
    let addresses = Addresses::read().expect("the addresses of this host");
    attr.grh.sgid_index = addresses.towards(&raw).map_or(0, |(index, _)| index as u8);
    attr
}

/// An address whose source GID is of the other family, or of an empty entry if the port has none of that
/// family.
pub fn from_the_other_family(destination: &str) -> ibv_ah_attr {
    let destination: IpAddr = destination.parse().expect("an address");
    let other = if destination.is_ipv4() { "::" } else { "0.0.0.0" };
    let other = to_gid(gid(other.parse().expect("an address")));
    let mut attr = to_gid(gid(destination));
    let addresses = Addresses::read().expect("the addresses of this host");
    let is_empty = addresses.towards(&gid(destination)).is_none();
    attr.grh.sgid_index = if is_empty { u8::MAX } else { other.grh.sgid_index };
    attr
}

/// Makes an address handle. The error is the errno.
pub fn try_ah(pd: *mut ibv_pd, attr: &ibv_ah_attr) -> Result<*mut ibv_ah, i32> {
    let mut attr = *attr;
    // SAFETY: null or a domain of this test.
    let ah = unsafe { ibv_create_ah(pd, &mut attr) };
    if ah.is_null() { Err(errno()) } else { Ok(ah) }
}

/// Makes an address handle.
pub fn ah(pd: *mut ibv_pd, attr: &ibv_ah_attr) -> *mut ibv_ah {
    try_ah(pd, attr).expect("an address handle")
}

/// Destroys an address handle. Returns zero or an errno.
pub fn destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: null or an address handle of this test; its struct stays readable.
    unsafe { ibv_destroy_ah(ah) }
}

/// Sets the recipient of a work request.
pub fn addressed(mut wr: ibv_send_wr, ah: *mut ibv_ah, qpn: u32, qkey: u32) -> ibv_send_wr {
    wr.wr.ud = ibv_send_wr_ud { ah, remote_qpn: qpn, remote_qkey: qkey };
    wr
}
