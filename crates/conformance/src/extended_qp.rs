//! Extended queue pairs: `ibv_create_qp_ex` creates them, and calls build their work requests.

use std::ffi::{c_int, c_void};

use transom_abi::*;
use transom_ibverbs::ibv_qp_to_qp_ex;

use crate::extended::verbs;
use crate::harness::*;

/// The usual creation attributes with a domain, for building these operations.
pub fn init_ex(end: &End, kind: ibv_qp_type, operations: u32) -> ibv_qp_init_attr_ex {
    let usual = end.init(kind);
    ibv_qp_init_attr_ex {
        send_cq: usual.send_cq,
        recv_cq: usual.recv_cq,
        cap: usual.cap,
        qp_type: kind,
        comp_mask: IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        pd: end.pd,
        send_ops_flags: u64::from(operations),
        ..ibv_qp_init_attr_ex::default()
    }
}

/// Creates a queue pair with extended attributes. The error is the errno.
pub fn try_qp_ex(end: &End, init: &mut ibv_qp_init_attr_ex) -> Result<*mut ibv_qp, i32> {
    let create = verbs(end.context).create_qp_ex.expect("never null");
    // SAFETY: an open context, and attributes whose pointers are live or null.
    let qp = unsafe { create(end.context, init) };
    if qp.is_null() { Err(errno()) } else { Ok(qp) }
}

/// A queue pair that builds these operations.
pub fn qp_ex(end: &End, kind: ibv_qp_type, operations: u32) -> *mut ibv_qp {
    try_qp_ex(end, &mut init_ex(end, kind, operations)).expect("an extended queue pair")
}

/// The calls that build work requests on a queue pair.
#[derive(Clone, Copy)]
pub struct Builder(*mut ibv_qp_ex);

// SAFETY: only a pointer. The library locks a batch for the thread that builds it.
unsafe impl Send for Builder {}
// SAFETY: as above.
unsafe impl Sync for Builder {}

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident = $field:ident($($argument:ident: $kind:ty),*) $(-> $answer:ty)?;)+) => {
        $($(#[$doc])*
        pub fn $name(self, $($argument: $kind),*) $(-> $answer)? {
            // SAFETY: a live queue pair, and buffers that the test keeps.
            unsafe { (*self.0).$field.expect("never null")(self.0, $($argument),*) }
        })+
    };
}

impl Builder {
    /// The builder of a queue pair that was created for it.
    pub fn of(qp: *mut ibv_qp) -> Self {
        // SAFETY: a live queue pair.
        let extended = unsafe { ibv_qp_to_qp_ex(qp) };
        assert!(!extended.is_null());
        Self(extended)
    }

    /// Sets number and flags of the next request.
    pub fn next(self, wr_id: u64, flags: u32) -> Self {
        // SAFETY: a live queue pair, whose batch this thread builds.
        unsafe { ((*self.0).wr_id, (*self.0).wr_flags) = (wr_id, flags) };
        self
    }

    /// The same, signaled.
    pub fn signaled(self, wr_id: u64) -> Self {
        self.next(wr_id, IBV_SEND_SIGNALED)
    }

    /// Builds one batch and posts it. Returns zero or an errno.
    pub fn batch(self, build: impl FnOnce(Self)) -> c_int {
        self.start();
        build(self);
        self.complete()
    }

    /// Sets one SGE of a registered buffer.
    pub fn sge(self, element: ibv_sge) {
        self.set_sge(element.lkey, element.addr, element.length);
    }

    /// Sets several SGEs.
    pub fn sges(self, sges: &[ibv_sge]) {
        self.set_sge_list(sges.len(), sges.as_ptr());
    }

    /// Copies bytes in.
    pub fn inline(self, bytes: &[u8]) {
        self.set_inline_data(bytes.as_ptr().cast_mut().cast(), bytes.len());
    }

    /// `ibv_wr_flush`, which headers newer than those of rdma-core 44 have.
    pub fn flush(self, rkey: u32, addr: u64, length: usize, kind: u8, level: u8) {
        // SAFETY: a live queue pair of this library, which has the longer struct.
        unsafe {
            let longer = self.0.cast::<ibv_qp_ex_flush>();
            (*longer).wr_flush.expect("never null")(self.0, rkey, addr, length, kind, level);
        }
    }

    calls! {
        /// `ibv_wr_start`
        start = wr_start();
        /// `ibv_wr_complete`
        complete = wr_complete() -> c_int;
        /// `ibv_wr_abort`
        abort = wr_abort();
        /// `ibv_wr_send`
        send = wr_send();
        /// `ibv_wr_send_imm`
        send_imm = wr_send_imm(imm: u32);
        /// `ibv_wr_send_inv`
        send_inv = wr_send_inv(rkey: u32);
        /// `ibv_wr_send_tso`
        send_tso = wr_send_tso(header: *mut c_void, length: u16, mss: u16);
        /// `ibv_wr_rdma_write`
        rdma_write = wr_rdma_write(rkey: u32, addr: u64);
        /// `ibv_wr_rdma_write_imm`
        rdma_write_imm = wr_rdma_write_imm(rkey: u32, addr: u64, imm: u32);
        /// `ibv_wr_rdma_read`
        rdma_read = wr_rdma_read(rkey: u32, addr: u64);
        /// `ibv_wr_atomic_cmp_swp`
        atomic_cmp_swp = wr_atomic_cmp_swp(rkey: u32, addr: u64, compare: u64, swap: u64);
        /// `ibv_wr_atomic_fetch_add`
        atomic_fetch_add = wr_atomic_fetch_add(rkey: u32, addr: u64, add: u64);
        /// `ibv_wr_atomic_write`
        atomic_write = wr_atomic_write(rkey: u32, addr: u64, word: *const c_void);
        /// `ibv_wr_bind_mw`
        bind_mw = wr_bind_mw(mw: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info);
        /// `ibv_wr_local_inv`
        local_inv = wr_local_inv(rkey: u32);
        /// `ibv_wr_set_ud_addr`
        set_ud_addr = wr_set_ud_addr(ah: *mut ibv_ah, qpn: u32, qkey: u32);
        /// `ibv_wr_set_xrc_srqn`
        set_xrc_srqn = wr_set_xrc_srqn(srqn: u32);
        /// `ibv_wr_set_inline_data`
        set_inline_data = wr_set_inline_data(addr: *mut c_void, length: usize);
        /// `ibv_wr_set_inline_data_list`
        set_inline_data_list = wr_set_inline_data_list(count: usize, list: *const ibv_data_buf);
        /// `ibv_wr_set_sge`
        set_sge = wr_set_sge(lkey: u32, addr: u64, length: u32);
        /// `ibv_wr_set_sge_list`
        set_sge_list = wr_set_sge_list(count: usize, list: *const ibv_sge);
    }
}
