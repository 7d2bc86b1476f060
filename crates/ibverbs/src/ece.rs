//! `ibv_set_ece(3)`, `ibv_query_ece(3)`: options that two devices of one vendor agree on when they connect. This device
//! has none. It reports so under its own vendor number, and accepts that number from a peer.

use std::ffi::c_int;

use transom_abi::{ibv_ece, ibv_qp};

use crate::device::VENDOR_ID;
use crate::entry::errno_of;
use crate::qp;
use crate::sanitized;

/// Reads the options of a queue pair.
///
/// # Safety
/// `qp` is null or readable; `ece` is null or writable.
pub unsafe extern "C" fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    errno_of("ibv_query_ece", || {
        // SAFETY: by the contract of this verb.
        let Some(ece) = (unsafe { ece.as_mut() }) else { return Err(libc::EINVAL) };
        // SAFETY: as above.
        unsafe { qp::check_live(qp) }?;
        *ece = ibv_ece { vendor_id: VENDOR_ID, options: 0, comp_mask: 0 };
        sanitized::has_filled(ece);
        Ok(())
    })
}

/// Takes a peer's options. It writes the accepted ones, which are none, to `ece`. As in libibverbs, vendor zero means
/// that the peer has sent no options.
///
/// # Safety
/// As [`ibv_query_ece`].
pub unsafe extern "C" fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    errno_of("ibv_set_ece", || {
        // SAFETY: by the contract of this verb.
        let Some(ece) = (unsafe { ece.as_mut() }) else { return Err(libc::EINVAL) };
        if ece.vendor_id == 0 {
            return Err(libc::EOPNOTSUPP);
        }
        if ece.vendor_id != VENDOR_ID || ece.comp_mask != 0 {
            return Err(libc::EINVAL);
        }
        // SAFETY: as above.
        unsafe { qp::check_live(qp) }?;
        ece.options = 0;
        Ok(())
    })
}
