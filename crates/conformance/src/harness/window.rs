//! Memory windows: allocates and binds them, and makes requests for a bind and an invalidation.

use std::ffi::c_int;

use transom_abi::*;
use transom_device::protection::Key;

use super::{End, errno, post, wr};

/// `ibv_alloc_mw`, as the inline function of `verbs.h` calls it.
pub fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> Result<*mut ibv_mw, i32> {
    // SAFETY: a live domain.
    let mw = unsafe { (*(*pd).context).ops.alloc_mw.expect("never null")(pd, kind) };
    if mw.is_null() { Err(errno()) } else { Ok(mw) }
}

impl End {
    /// A window of type 1 or 2.
    pub fn mw(&self, kind: ibv_mw_type) -> *mut ibv_mw {
        alloc_mw(self.pd, kind).expect("a window")
    }
}

/// `ibv_dealloc_mw`.
pub fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: a window of this test; its struct stays readable after it is freed.
    unsafe { (*(*mw).context).ops.dealloc_mw.expect("never null")(mw) }
}

/// The window's key, as the library knows it.
pub fn rkey(mw: *mut ibv_mw) -> u32 {
    // SAFETY: a live window.
    unsafe { (*mw).rkey }
}

/// The memory for a bind.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The region.
    pub mr: *mut ibv_mr,
    /// The first address.
    pub addr: u64,
    /// The length in bytes.
    pub length: u64,
    /// The rights.
    pub access: u32,
}

impl Range {
    /// The form in which a bind names it.
    pub fn info(self) -> ibv_mw_bind_info {
        ibv_mw_bind_info {
            mr: self.mr,
            addr: self.addr,
            length: self.length,
            mw_access_flags: self.access,
        }
    }
}

/// `ibv_bind_mw`, straight to the provider's operation. Returns zero or an errno.
pub fn bind1(qp: *mut ibv_qp, mw: *mut ibv_mw, wr_id: u64, flags: u32, range: Range) -> c_int {
    let mut bind = ibv_mw_bind { wr_id, send_flags: flags, bind_info: range.info() };
    // SAFETY: all named objects are live, or null if the test wants that.
    unsafe { (*(*qp).context).ops.bind_mw.expect("never null")(qp, mw, &mut bind) }
}

/// A work request that binds a type 2 window with the low byte of `key`.
pub fn bind2_wr(mw: *mut ibv_mw, key: u32, range: Range) -> ibv_send_wr {
    let mut wr = wr(IBV_WR_BIND_MW);
    wr.op.bind_mw = ibv_send_wr_bind_mw { mw, rkey: key, bind_info: range.info() };
    wr
}

/// Binds a window of either type, signaled, and waits for its success on the end's queue.
pub fn bind(end: &End, qp: *mut ibv_qp, mw: *mut ibv_mw, range: Range) -> u32 {
    // SAFETY: a live window.
    let key = if unsafe { (*mw).type_ } == IBV_MW_TYPE_1 {
        assert_eq!(bind1(qp, mw, 77, IBV_SEND_SIGNALED, range), 0);
        rkey(mw)
    } else {
        let key = Key(rkey(mw)).next().0;
        post(qp, &mut bind2_wr(mw, key, range));
        key
    };
    let wc = end.expect(IBV_WC_SUCCESS);
    assert_eq!(wc.opcode, IBV_WC_BIND_MW);
    key
}

/// A LOCAL_INV.
pub fn local_inv_wr(key: u32) -> ibv_send_wr {
    let mut wr = wr(IBV_WR_LOCAL_INV);
    wr.imm.invalidate_rkey = key;
    wr
}
