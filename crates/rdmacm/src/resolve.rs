//! Addresses and routes of ids: `rdma_bind_addr(3)`, `rdma_resolve_addr(3)`, `rdma_resolve_route(3)`,
//! `rdma_listen(3)`.

use std::ffi::c_int;

use transom_abi::*;

use crate::entry::{answered, attempt, zero, zero_of};
use crate::id::Id;
use crate::wrong::Wrong;
use crate::{address, arrival, query};

/// Binds an id to an address.
pub(crate) fn bind(id: &Id, (addr, addr_size): (sockaddr_storage, u16)) -> Result<(), Wrong> {
    let bind = rdma_ucm_bind { id: id.handle, addr_size, reserved: 0, addr };
    id.file()?.tell(RDMA_USER_CM_CMD_BIND, bind)?;
    query::addresses(id)
}

/// Begins to resolve an address.
pub(crate) fn resolve_address(
    id: &Id,
    source: Option<(sockaddr_storage, u16)>,
    (dst_addr, dst_size): (sockaddr_storage, u16),
    timeout_ms: c_int,
) -> Result<(), Wrong> {
    let (src_addr, src_size) = source.unwrap_or_default();
    id.change(|seen| seen.route.addr.dst.dst_storage = dst_addr);
    let resolve = rdma_ucm_resolve_addr {
        id: id.handle,
        timeout_ms: timeout_ms as u32,
        src_size,
        dst_size,
        reserved: 0,
        src_addr,
        dst_addr,
    };
    id.file()?.tell(RDMA_USER_CM_CMD_RESOLVE_ADDR, resolve)
}

/// Begins to resolve a route.
pub(crate) fn resolve_route(id: &Id, timeout_ms: c_int) -> Result<(), Wrong> {
    let resolve = rdma_ucm_resolve_route { id: id.handle, timeout_ms: timeout_ms as u32 };
    id.file()?.tell(RDMA_USER_CM_CMD_RESOLVE_ROUTE, resolve)
}

/// Binds an id to a local address, and to its device unless the address is the wildcard.
///
/// # Safety
/// The pointers are null or valid, the address as long as its family says.
pub unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    // SAFETY: by the contract of this function.
    zero_of(c"rdma_bind_addr", || unsafe { bind(Id::of(id)?, address::read(addr)?) })
}

/// Finds the device and the local address that lead to a destination.
///
/// # Safety
/// The pointers are null or valid, the addresses as long as their families say.
pub unsafe extern "C-unwind" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    src_addr: *mut sockaddr,
    dst_addr: *mut sockaddr,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: by the contract of this function.
    let begun = attempt(|| unsafe {
        let (id, destination) = (Id::of(id)?, address::read(dst_addr)?);
        let source = if src_addr.is_null() { None } else { Some(address::read(src_addr)?) };
        resolve_address(id, source, destination, timeout_ms)
    });
    // SAFETY: the id is live.
    zero(c"rdma_resolve_addr", begun.and_then(|()| unsafe { arrival::complete(id) }))
}

/// Finds the path to the destination.
///
/// # Safety
/// The id is null or live.
pub unsafe extern "C-unwind" fn rdma_resolve_route(
    id: *mut rdma_cm_id,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: by the contract of this function.
    let begun = attempt(|| resolve_route(unsafe { Id::of(id) }?, timeout_ms));
    // SAFETY: the id is live.
    zero(c"rdma_resolve_route", begun.and_then(|()| unsafe { arrival::complete(id) }))
}

/// Makes an id listen for requests.
pub(crate) fn listen(id: &Id, backlog: c_int) -> Result<(), Wrong> {
    let listen = rdma_ucm_listen { id: id.handle, backlog: backlog as u32 };
    id.file()?.tell(RDMA_USER_CM_CMD_LISTEN, listen)?;
    query::addresses(id)
}

/// Makes an id listen for requests.
///
/// # Safety
/// The id is null or live.
pub unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    // SAFETY: by the contract of this function.
    zero_of(c"rdma_listen", || listen(unsafe { Id::of(id) }?, backlog))
}

/// The port of the local address, network byte order.
///
/// # Safety
/// The id is null or live.
pub unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: by the contract of this function.
    let id = answered(c"rdma_get_src_port", unsafe { Id::of(id) });
    // SAFETY: every address can be read as bytes.
    id.map_or(0, |id| unsafe { address::port(&id.seen().route.addr.src.src_storage) })
}

/// The port of the peer's address, network byte order.
///
/// # Safety
/// The id is null or live.
pub unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: by the contract of this function.
    let id = answered(c"rdma_get_dst_port", unsafe { Id::of(id) });
    // SAFETY: every address can be read as bytes.
    id.map_or(0, |id| unsafe { address::port(&id.seen().route.addr.dst.dst_storage) })
}
