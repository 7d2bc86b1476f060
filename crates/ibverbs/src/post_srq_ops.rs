//! `ibv_post_srq_ops(3)`: operations on the tagged buffers of a shared receive queue.

use std::ffi::c_int;

use transom_abi::*;
use transom_device::queue::{TagChange, TagRequest};
use transom_host::objects::SharedReceiveQueue;

use crate::entry::guarded_always;
use crate::{errno, post, srq};

/// Carries out a list of operations, up to the first bad one.
///
/// # Safety
/// `srq` is null or live; the list and everything that it points to is valid; `bad` is null or writable.
pub(crate) unsafe extern "C" fn post_srq_ops(
    srq: *mut ibv_srq,
    wr: *mut ibv_ops_wr,
    bad: *mut *mut ibv_ops_wr,
) -> c_int {
    let mut next = wr;
    let done = guarded_always("ibv_post_srq_ops", || {
        // SAFETY: by the contract of this verb.
        let queue = unsafe { srq::usable(srq) }?;
        // SAFETY: as above.
        while let Some(wr) = unsafe { next.as_mut() } {
            let behind = wr.next;
            // SAFETY: as above.
            unsafe { post_one(queue, wr) }?;
            next = behind;
        }
        Ok(())
    });
    // SAFETY: as above.
    unsafe { post::tell_bad(bad, next, done) }
}

/// # Safety
/// Everything that `wr` points to is valid.
unsafe fn post_one(queue: &SharedReceiveQueue, wr: &mut ibv_ops_wr) -> Result<(), c_int> {
    let flags = wr.flags as ibv_ops_flags;
    if flags & !(IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC) != 0 {
        return Err(libc::EINVAL);
    }
    let change = match wr.opcode {
        IBV_WR_TAG_ADD => TagChange::Add {
            receive: wr.tm.add.recv_wr_id,
            tag: wr.tm.add.tag,
            mask: wr.tm.add.mask,
            // SAFETY: by the contract of this function.
            sges: unsafe { post::sges(wr.tm.add.sg_list, wr.tm.add.num_sge) }?,
        },
        IBV_WR_TAG_DEL => TagChange::Remove(wr.tm.handle),
        IBV_WR_TAG_SYNC => TagChange::Sync,
        _ => return Err(libc::EINVAL),
    };
    // TAG_SYNC does nothing but report the count.
    let reports = flags & IBV_OPS_TM_SYNC != 0 || wr.opcode == IBV_WR_TAG_SYNC;
    let request = TagRequest {
        wr_id: wr.wr_id,
        signaled: flags & IBV_OPS_SIGNALED != 0,
        unexpected: reports.then_some(wr.tm.unexpected_cnt),
        change,
    };
    if let Some(handle) = queue.post_list_operation(&request).map_err(errno::of_post)? {
        wr.tm.handle = handle;
    }
    Ok(())
}
