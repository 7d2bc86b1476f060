//! `ibv_wr_start(3)` and its family: send work requests that a program builds call by call.
//!
//! A batch is locked from `wr_start` to `wr_complete` or `wr_abort`. Other threads that start one on the same queue
//! pair wait. Builders and setters without an open batch do nothing.

use std::ffi::{c_int, c_void};
use std::mem::forget;

use parking_lot::Mutex;
use transom_abi::*;
use transom_device::operation::Operation;
use transom_device::protection::Key;
use transom_device::qp::Service;
use transom_device::queue::{Body, LocalOp, Placement, Remote, SendOp, Sge};

use transom_system::failure::has_failed;
use transom_system::sanitizers::{self, Half};

use crate::batch::Batch;
use crate::check;
use crate::entry::{guarded, guarded_always, zero_or};
use crate::wrong::Wrong;
use crate::{ah, exposure, post, qp};

/// The operations that a queue pair of this service can build: bits of `ibv_qp_create_send_ops_flags`.
pub(crate) fn operations_of(service: Service) -> u64 {
    // The receiving end of XRC sends nothing.
    let has = |operation: &Operation| {
        service != Service::XrcTarget && operation.needs().services.include(service)
    };
    let operations = Operation::ALL.iter().copied().filter(has);
    operations.fold(0, |all, operation| all | u64::from(bits(operation)))
}

/// The bits of an operation.
const fn bits(operation: Operation) -> ibv_qp_create_send_ops_flags {
    match operation {
        Operation::Send => IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
        Operation::RemoteInvalidate => IBV_QP_EX_WITH_SEND_WITH_INV,
        Operation::Write => IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
        Operation::Read => IBV_QP_EX_WITH_RDMA_READ,
        Operation::CompareSwap => IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
        Operation::FetchAdd => IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
        Operation::AtomicWrite => IBV_QP_EX_WITH_ATOMIC_WRITE,
        Operation::Flush | Operation::FlushPersistent => IBV_QP_EX_WITH_FLUSH,
        Operation::Bind => IBV_QP_EX_WITH_BIND_MW,
        Operation::Invalidate => IBV_QP_EX_WITH_LOCAL_INV,
        Operation::LocalRead | Operation::LocalWrite => 0,
    }
}

/// The extended form of a plain queue pair struct.
pub(crate) fn extended(qp_base: ibv_qp) -> ibv_qp_ex_flush {
    let base = ibv_qp_ex {
        qp_base,
        comp_mask: 0,
        wr_id: 0,
        wr_flags: 0,
        wr_atomic_cmp_swp: Some(atomic_cmp_swp),
        wr_atomic_fetch_add: Some(atomic_fetch_add),
        wr_bind_mw: Some(bind_mw),
        wr_local_inv: Some(local_inv),
        wr_rdma_read: Some(rdma_read),
        wr_rdma_write: Some(rdma_write),
        wr_rdma_write_imm: Some(rdma_write_imm),
        wr_send: Some(send),
        wr_send_imm: Some(send_imm),
        wr_send_inv: Some(send_inv),
        wr_send_tso: Some(send_tso),
        wr_set_ud_addr: Some(set_ud_addr),
        wr_set_xrc_srqn: Some(set_xrc_srqn),
        wr_set_inline_data: Some(set_inline_data),
        wr_set_inline_data_list: Some(set_inline_data_list),
        wr_set_sge: Some(set_sge),
        wr_set_sge_list: Some(set_sge_list),
        wr_start: Some(start),
        wr_complete: Some(complete),
        wr_abort: Some(abort),
        wr_atomic_write: Some(atomic_write),
    };
    ibv_qp_ex_flush { base, wr_flush: Some(flush) }
}

/// Begins a batch. It waits while another thread is building one.
///
/// # Safety
/// `qp` is null or live.
pub(crate) unsafe extern "C" fn start(qp: *mut ibv_qp_ex) {
    let _ = guarded("ibv_wr_start", || {
        // SAFETY: by the contract of this function.
        if let Some(batch) = unsafe { batch_of(qp) } {
            // `complete` or `abort` unlocks it.
            forget(batch.lock());
        }
        Ok(())
    });
}

/// Posts the batch, all of it or nothing (rule PS-14).
///
/// # Safety
/// As [`start`].
pub(crate) unsafe extern "C" fn complete(qp: *mut ibv_qp_ex) -> c_int {
    zero_or(guarded_always("ibv_wr_complete", || {
        let post = |batch: &Batch| {
            // SAFETY: by the contract of this verb.
            let pair = &unsafe { qp::usable(qp.cast()) }?.pair;
            if sanitizers::are_told() {
                batch.note();
            }
            sanitizers::posted(Some(pair.number().bits()), Half::Send);
            let refused = |error| post::wrong(error, pair, Some(IBV_WR_SEND), 0, 0);
            let post = || batch.post(pair, refused);
            let posted = match check::on() {
                Some(checker) => {
                    let device = check::id_of(pair.device());
                    let described = || batch.described(device);
                    checker.posting(pair.device(), qp.addr(), described, post)
                }
                None => {
                    exposure::posts(|| batch.described(0));
                    post()
                }
            };
            posted.map_err(|wrong| {
                wrong.told(Some(pair.device()), "ibv_wr_complete", pair.number().bits())
            })
        };
        // No batch is open. After the device has failed, none can begin.
        let none = || Err(if has_failed() { libc::EIO } else { libc::EINVAL });
        // SAFETY: by the contract of this function.
        unsafe { end(qp, post) }.unwrap_or_else(none)
    }))
}

/// Drops the batch (rule PS-15).
///
/// # Safety
/// As [`start`].
pub(crate) unsafe extern "C" fn abort(qp: *mut ibv_qp_ex) {
    // SAFETY: by the contract of this function.
    let _ = guarded_always("ibv_wr_abort", || Ok(unsafe { end(qp, |_| ()) }));
}

/// How many requests the open batch has. 0 if no batch is open.
///
/// # Safety
/// As [`start`].
pub(crate) unsafe fn count_built(qp: *mut ibv_qp_ex) -> usize {
    // SAFETY: by the contract of this function. The thread that builds, which is the caller, has the lock.
    unsafe {
        let open = batch_of(qp).filter(|batch| batch.is_locked());
        open.map_or(0, |batch| (*batch.data_ptr()).len())
    }
}

/// Whether the adapter that the device stands for refuses a request of the open batch.
///
/// # Safety
/// As [`start`].
pub(crate) unsafe fn is_refused(qp: *mut ibv_qp_ex, signals_all: bool) -> bool {
    // SAFETY: as in `count_built`.
    unsafe {
        let open = batch_of(qp).filter(|batch| batch.is_locked());
        open.is_some_and(|batch| (*batch.data_ptr()).is_refused(signals_all))
    }
}

/// # Safety
/// As [`start`].
unsafe fn batch_of<'a>(qp: *mut ibv_qp_ex) -> Option<&'a Mutex<Batch>> {
    // SAFETY: by the contract of this function. The plain struct is the first field.
    unsafe { qp::ours(qp.cast()) }?.batch.as_ref()
}

/// Runs `last` on the open batch, then ends it. `None` if no batch is open.
///
/// # Safety
/// As [`start`].
unsafe fn end<T>(qp: *mut ibv_qp_ex, last: impl FnOnce(&Batch) -> T) -> Option<T> {
    /// A batch that ends when this is dropped, also by a panic.
    struct Open<'a>(&'a Mutex<Batch>);
    impl Drop for Open<'_> {
        fn drop(&mut self) {
            // SAFETY: `start` has locked it for the thread that builds, and forgotten the guard. The caller is that
            // thread.
            unsafe {
                (*self.0.data_ptr()).clear();
                self.0.force_unlock();
            }
        }
    }

    // SAFETY: by the contract of this function.
    let open = Open(unsafe { batch_of(qp) }.filter(|batch| batch.is_locked())?);
    // SAFETY: as above. Nobody changes it meanwhile.
    Some(last(unsafe { &*open.0.data_ptr() }))
}

/// Runs a builder or setter on the open batch.
///
/// # Safety
/// As [`start`].
unsafe fn build(qp: *mut ibv_qp_ex, step: impl FnOnce(&mut Batch)) {
    let _ = guarded("ibv_wr_builder", || {
        // SAFETY: by the contract of this function.
        if let Some(batch) = unsafe { batch_of(qp) }.filter(|batch| batch.is_locked()) {
            // SAFETY: `start` has locked it for the thread that builds, which is the caller.
            step(unsafe { &mut *batch.data_ptr() });
        }
        Ok(())
    });
}

/// Begins a request with the `wr_id` and `wr_flags` that the program has set.
///
/// # Safety
/// As [`start`].
unsafe fn begin(qp: *mut ibv_qp_ex, operation: ibv_qp_create_send_ops_flags, op: SendOp) {
    // SAFETY: by the contract of this function. If it has a batch, it is not null.
    unsafe { build(qp, |batch| batch.begin(operation, (*qp).wr_id, (*qp).wr_flags, op)) };
}

/// Declares builders: the bit of the operation, and the operation made of the arguments.
macro_rules! builders {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*) = $bit:ident, $op:expr;)+) => {
        $($(#[$doc])*
        ///
        /// # Safety
        /// As [`start`].
        unsafe extern "C" fn $name(qp: *mut ibv_qp_ex, $($argument: $kind),*) {
            // SAFETY: by the contract of this function.
            unsafe { begin(qp, $bit, $op) };
        })+
    };
}

builders! {
    /// SEND.
    send() = IBV_QP_EX_WITH_SEND, SendOp::Message(Body::Send);
    /// SEND with immediate data.
    send_imm(imm: u32) = IBV_QP_EX_WITH_SEND_WITH_IMM, SendOp::Message(Body::SendImmediate(imm));
    /// SEND with invalidate.
    send_inv(rkey: u32) = IBV_QP_EX_WITH_SEND_WITH_INV,
        SendOp::Message(Body::SendInvalidate(Key(rkey)));
    /// RDMA WRITE.
    rdma_write(rkey: u32, address: u64) = IBV_QP_EX_WITH_RDMA_WRITE,
        SendOp::Message(Body::Write { address, key: Key(rkey), immediate: None });
    /// RDMA WRITE with immediate data.
    rdma_write_imm(rkey: u32, address: u64, imm: u32) = IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
        SendOp::Message(Body::Write { address, key: Key(rkey), immediate: Some(imm) });
    /// RDMA READ.
    rdma_read(rkey: u32, address: u64) = IBV_QP_EX_WITH_RDMA_READ,
        SendOp::Message(Body::Read { address, key: Key(rkey) });
    /// Compare and swap.
    atomic_cmp_swp(rkey: u32, address: u64, compare: u64, swap: u64) =
        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
        SendOp::Message(Body::CompareSwap { address, key: Key(rkey), swap, compare });
    /// Fetch and add.
    atomic_fetch_add(rkey: u32, address: u64, add: u64) = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
        SendOp::Message(Body::FetchAdd { address, key: Key(rkey), add });
    /// LOCAL_INV.
    local_inv(rkey: u32) = IBV_QP_EX_WITH_LOCAL_INV, SendOp::Local(LocalOp::Invalidate(Key(rkey)));
    /// TCP segmentation. No queue pair can be created with it, so it fails its batch.
    send_tso(_hdr: *mut c_void, _hdr_sz: u16, _mss: u16) = IBV_QP_EX_WITH_TSO, SendOp::Unsupported;
}

/// ATOMIC WRITE of the 8 bytes at `atomic_wr`, as they are now.
///
/// # Safety
/// As [`start`]; `atomic_wr` is null or readable.
unsafe extern "C" fn atomic_write(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    address: u64,
    atomic_wr: *const c_void,
) {
    // SAFETY: by the contract of this function. The copy of 8 bytes needs no alignment.
    unsafe {
        let body = Body::AtomicWrite { address, key: Key(rkey) };
        begin(qp, IBV_QP_EX_WITH_ATOMIC_WRITE, SendOp::Message(body));
        build(qp, |batch| match atomic_wr.is_null() {
            true => batch.fail(libc::EINVAL.into()),
            false => batch.set_word(atomic_wr.cast::<[u8; 8]>().read_unaligned()),
        });
    }
}

/// FLUSH of a remote range, or of the whole region or window.
///
/// # Safety
/// As [`start`].
unsafe extern "C" fn flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    address: u64,
    length: usize,
    kind: u8,
    level: u8,
) {
    let placement = Placement::from_bits(kind).filter(|placement| !placement.is_empty());
    let known = matches!(level, IBV_FLUSH_RANGE | IBV_FLUSH_MR);
    let whole = level == IBV_FLUSH_MR;
    let body = match (placement.filter(|_| known), u32::try_from(length)) {
        (Some(placement), Ok(length)) => {
            Ok(Body::Flush { address, key: Key(rkey), length, placement, whole })
        }
        _ => Err(Wrong::invalid("type or level, or length", u64::from(level), "FL-01")),
    };
    // SAFETY: by the contract of this function.
    unsafe {
        match body {
            Ok(body) => begin(qp, IBV_QP_EX_WITH_FLUSH, SendOp::Message(body)),
            Err(wrong) => build(qp, |batch| batch.fail(wrong)),
        }
    }
}

/// Bind of a type 2 window.
///
/// # Safety
/// As [`start`]; `mw`, `bind_info` and its region are null or valid.
unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    bind_info: *const ibv_mw_bind_info,
) {
    // SAFETY: by the contract of this function.
    unsafe {
        let missing = || Wrong::unknown("bind_info", libc::EINVAL, "PS-14");
        let bind = bind_info
            .as_ref()
            .ok_or_else(missing)
            .and_then(|info| post::type2_bind(&ibv_send_wr_bind_mw { mw, rkey, bind_info: *info }));
        match bind {
            Ok(bind) => {
                begin(qp, IBV_QP_EX_WITH_BIND_MW, SendOp::Local(LocalOp::BindType2(bind)));
                build(qp, |batch| batch.set_window(mw));
            }
            Err(wrong) => build(qp, |batch| batch.fail(wrong)),
        }
    }
}

/// Sets the destination of the last request's datagram.
///
/// # Safety
/// As [`start`]; `ah` is null or live.
unsafe extern "C" fn set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, remote_qpn: u32, qkey: u32) {
    // SAFETY: by the contract of this function.
    unsafe {
        build(qp, |batch| {
            let remote = ah::datagram("ibv_wr_set_ud_addr", ah, remote_qpn, qkey);
            let remote = remote.map(Remote::Datagram);
            batch.set_remote(IBV_QPT_UD, remote);
        });
    }
}

/// Sets the shared receive queue that the last request reaches.
///
/// # Safety
/// As [`start`].
unsafe extern "C" fn set_xrc_srqn(qp: *mut ibv_qp_ex, remote_srqn: u32) {
    let remote = Ok(Remote::Srq(remote_srqn));
    // SAFETY: by the contract of this function.
    unsafe { build(qp, |batch| batch.set_remote(IBV_QPT_XRC_SEND, remote)) };
}

/// Copies one buffer into the last request.
///
/// # Safety
/// As [`start`]; the buffer is readable.
unsafe extern "C" fn set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    // SAFETY: by the contract of this function.
    unsafe { build(qp, |batch| batch.set_inline(&[ibv_data_buf { addr, length }])) };
}

/// Copies several buffers into the last request.
///
/// # Safety
/// As [`start`]; the list and its buffers are readable.
unsafe extern "C" fn set_inline_data_list(
    qp: *mut ibv_qp_ex,
    num_buf: usize,
    buf_list: *const ibv_data_buf,
) {
    // SAFETY: by the contract of this function.
    unsafe {
        build(qp, |batch| match list(buf_list, num_buf) {
            Some(buffers) => batch.set_inline(buffers),
            None => batch.fail(libc::EINVAL.into()),
        });
    }
}

/// Sets one local buffer.
///
/// # Safety
/// As [`start`].
unsafe extern "C" fn set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let sge = Sge { address: addr, length, key: lkey };
    // SAFETY: by the contract of this function.
    unsafe { build(qp, |batch| batch.set_sges(&[sge])) };
}

/// Sets several local buffers.
///
/// # Safety
/// As [`start`]; the list is readable.
unsafe extern "C" fn set_sge_list(qp: *mut ibv_qp_ex, num_sge: usize, sg_list: *const ibv_sge) {
    const { assert!(size_of::<Sge>() == size_of::<ibv_sge>()) };
    // SAFETY: by the contract of this function; `Sge` is laid out as `ibv_sge`.
    unsafe {
        build(qp, |batch| match list(sg_list.cast::<Sge>(), num_sge) {
            Some(sges) => batch.set_sges(sges),
            None => batch.fail(libc::EINVAL.into()),
        });
    }
}

/// A C list. `None` if it is null, or too long for memory.
///
/// # Safety
/// `first` is null or has `count` readable elements.
unsafe fn list<'a, T>(first: *const T, count: usize) -> Option<&'a [T]> {
    match count {
        0 => Some(&[]),
        _ if first.is_null() || count > isize::MAX as usize / size_of::<T>() => None,
        // SAFETY: by the contract of this function.
        _ => Some(unsafe { std::slice::from_raw_parts(first, count) }),
    }
}
