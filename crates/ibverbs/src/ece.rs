//! `ibv_set_ece(3)`, `ibv_query_ece(3)`: options that two ends of one vendor agree on when they
//! connect. This device has none: it says so under its own vendor number and accepts that from a
//! peer.

use std::ffi::c_int;

use transom_abi::{ibv_ece, ibv_qp};

use crate::device::VENDOR_ID;
use crate::qp;

/// Tells the options of a queue pair.
///
/// # Safety
/// `qp` is null or readable; `ece` is null or writable.
pub unsafe extern "C" fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: by the contract of this verb.
    let Some(ece) = (unsafe { ece.as_mut() }) else { return libc::EINVAL };
    // SAFETY: as above.
    if !unsafe { qp::is_live(qp) } {
        return libc::EINVAL;
    }
    *ece = ibv_ece { vendor_id: VENDOR_ID, options: 0, comp_mask: 0 };
    0
}

/// Takes options of a peer; those accepted, which are none, are left in `ece`. A vendor of zero is a
/// peer that does not speak of options, as libibverbs has it.
///
/// # Safety
/// As [`ibv_query_ece`].
pub unsafe extern "C" fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: by the contract of this verb.
    let Some(ece) = (unsafe { ece.as_mut() }) else { return libc::EINVAL };
    if ece.vendor_id == 0 {
        return libc::EOPNOTSUPP;
    }
    // SAFETY: as above.
    if ece.vendor_id != VENDOR_ID || ece.comp_mask != 0 || !unsafe { qp::is_live(qp) } {
        return libc::EINVAL;
    }
    ece.options = 0;
    0
}
