//! `ibv_attach_mcast(3)`.

use std::ffi::c_int;

use transom_abi::*;
use transom_host::objects::JoinError;
use transom_rehearse::Feature;
use transom_system::addresses::is_multicast;

use crate::entry::errno_of;
use crate::{profile, qp, rehearse};

/// Makes a UD queue pair a member of a multicast group.
///
/// # Safety
/// `qp` is null or readable; `gid` is null or readable.
pub unsafe extern "C" fn ibv_attach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> c_int {
    errno_of("ibv_attach_mcast", || {
        profile::needs(Feature::Multicast)?;
        // SAFETY: by the contract of this verb.
        let (group, (adapter, pair)) = unsafe { (group(gid)?, qp::datagram_pair(qp)?) };
        rehearse::may_make()?;
        adapter.join_group(group, &pair).map_err(|error| match error {
            JoinError::Full => libc::ENOMEM,
            JoinError::Inherited => libc::EIO,
        })
    })
}

/// Ends a membership. `EINVAL` if there is none.
///
/// # Safety
/// As [`ibv_attach_mcast`].
pub unsafe extern "C" fn ibv_detach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> c_int {
    errno_of("ibv_detach_mcast", || {
        profile::needs(Feature::Multicast)?;
        // SAFETY: by the contract of this verb.
        let (group, (adapter, pair)) = unsafe { (group(gid)?, qp::datagram_pair(qp)?) };
        adapter.leave_group(group, &pair).map_err(|_| libc::EINVAL)
    })
}

/// # Safety
/// `gid` is null or readable.
unsafe fn group(gid: *const ibv_gid) -> Result<[u8; 16], c_int> {
    // SAFETY: by the contract of this function. Both variants are plain bytes.
    let gid = unsafe { gid.as_ref().ok_or(libc::EINVAL)?.raw };
    if is_multicast(&gid) { Ok(gid) } else { Err(libc::EINVAL) }
}
