//! `ibv_create_ah(3)`: address handles.

use std::ffi::c_int;

use transom_abi::ibv_ah;
use transom_device::queue::Datagram;

/// Where a datagram goes that is sent with this address handle.
///
/// # Safety
/// `ah` is null or live.
pub(crate) unsafe fn datagram(ah: *mut ibv_ah, qp: u32, qkey: u32) -> Result<Datagram, c_int> {
    let _ = (ah, qp, qkey);
    Err(libc::EOPNOTSUPP)
}
