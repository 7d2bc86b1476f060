//! Helpers for the tests of extended verbs: the operations that `verbs.h` reaches inline through the extended context,
//! and extended completion queues, polled as the header does.

use std::ffi::c_int;
use std::mem::offset_of;

use transom_abi::*;

use crate::harness::*;
use crate::queues::take_to;

/// The extended context around a context, as `verbs_get_ctx` finds it.
pub fn verbs(context: *mut ibv_context) -> &'static verbs_context {
    // SAFETY: an open context. Its `abi_compat` says that it lies within an extended one.
    unsafe {
        assert_eq!((*context).abi_compat, __VERBS_ABI_IS_EXTENDED);
        let verbs = &*context.byte_sub(offset_of!(verbs_context, context)).cast::<verbs_context>();
        assert!(verbs.sz >= size_of::<verbs_context>());
        verbs
    }
}

/// `ibv_create_cq_ex`. The error is the errno.
pub fn try_cq_ex(
    context: *mut ibv_context,
    attr: &ibv_cq_init_attr_ex,
) -> Result<*mut ibv_cq_ex, i32> {
    let mut attr = *attr;
    let create = verbs(context).create_cq_ex.expect("it is there");
    // SAFETY: the context is open, and the attributes name only live objects.
    let cq = unsafe { create(context, &mut attr) };
    if cq.is_null() { Err(errno()) } else { Ok(cq) }
}

/// Attributes of a queue for 4096 completions, from which these fields can be read.
pub fn cq_attr(wc_flags: u32) -> ibv_cq_init_attr_ex {
    ibv_cq_init_attr_ex { cqe: 4096, wc_flags: wc_flags.into(), ..Default::default() }
}

/// An extended completion queue with all fields that the device has.
pub fn cq_ex(context: *mut ibv_context) -> *mut ibv_cq_ex {
    try_cq_ex(context, &cq_attr(FIELDS)).expect("an extended queue")
}

/// All fields that the device has.
pub const FIELDS: u32 = IBV_WC_STANDARD_FLAGS
    | IBV_WC_EX_WITH_TM_INFO
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

/// `ibv_start_poll`; zero or an errno.
pub fn start_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: a live extended queue.
    unsafe { (*cq).start_poll.expect("always there")(cq, &mut ibv_poll_cq_attr::default()) }
}

/// `ibv_next_poll`; zero or an errno.
pub fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: a live extended queue.
    unsafe { (*cq).next_poll.expect("always there")(cq) }
}

/// `ibv_end_poll`.
pub fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: a live extended queue.
    unsafe { (*cq).end_poll.expect("always there")(cq) }
}

/// The current completion, read field by field from a queue with the standard fields.
pub fn read_wc(cq: *mut ibv_cq_ex) -> ibv_wc {
    // SAFETY: a live extended queue within a batch.
    unsafe {
        let queue = &*cq;
        ibv_wc {
            wr_id: queue.wr_id,
            status: queue.status,
            opcode: queue.read_opcode.expect("always there")(cq),
            vendor_err: queue.read_vendor_err.expect("always there")(cq),
            wc_flags: queue.read_wc_flags.expect("always there")(cq),
            byte_len: queue.read_byte_len.expect("asked for")(cq),
            imm: ibv_wc_imm { imm_data: queue.read_imm_data.expect("asked for")(cq) },
            qp_num: queue.read_qp_num.expect("asked for")(cq),
            src_qp: queue.read_src_qp.expect("asked for")(cq),
            pkey_index: 0,
            slid: queue.read_slid.expect("asked for")(cq) as u16,
            sl: queue.read_sl.expect("asked for")(cq),
            dlid_path_bits: queue.read_dlid_path_bits.expect("asked for")(cq),
        }
    }
}

/// The time when the current completion was added: in the device's ticks, and on the wall clock.
pub fn read_times(cq: *mut ibv_cq_ex) -> (u64, u64) {
    // SAFETY: a live extended queue within a batch.
    unsafe {
        let ticks = (*cq).read_completion_ts.expect("asked for")(cq);
        (ticks, (*cq).read_completion_wallclock_ns.expect("asked for")(cq))
    }
}

/// Takes a batch of the completions there are. `read` converts each.
pub fn take_batch<T>(cq: *mut ibv_cq_ex, mut read: impl FnMut(*mut ibv_cq_ex) -> T) -> Vec<T> {
    let mut taken = Vec::new();
    match start_poll(cq) {
        0 => {}
        answer => {
            assert_eq!(answer, libc::ENOENT);
            return taken;
        }
    }
    loop {
        taken.push(read(cq));
        match next_poll(cq) {
            0 => {}
            answer => {
                assert_eq!(answer, libc::ENOENT);
                break;
            }
        }
    }
    end_poll(cq);
    taken
}

/// Takes batches until there are `count` completions.
pub fn take_ex<T>(
    cq: *mut ibv_cq_ex,
    count: usize,
    mut read: impl FnMut(*mut ibv_cq_ex) -> T,
) -> Vec<T> {
    let mut taken = Vec::new();
    until("completions", || {
        taken.extend(take_batch(cq, &mut read));
        (taken.len() >= count).then_some(())
    });
    assert_eq!(taken.len(), count);
    taken
}

/// `ibv_modify_cq`; zero or an errno.
pub fn modify_cq(context: *mut ibv_context, cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> i32 {
    // SAFETY: an open context; the queue was made by it, the attributes are null or readable.
    unsafe { verbs(context).modify_cq.expect("it is there")(cq, attr) }
}

/// Sets the event moderation of a queue.
pub fn moderate(context: *mut ibv_context, cq: *mut ibv_cq, cq_count: u16, cq_period: u16) {
    let mut attr = ibv_modify_cq_attr {
        attr_mask: IBV_CQ_ATTR_MODERATE,
        moderate: ibv_moderate_cq { cq_count, cq_period },
    };
    assert_eq!(modify_cq(context, cq, &mut attr), 0);
}

/// `ibv_query_rt_values_ex`; zero or an errno.
pub fn query_rt_values(context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int {
    // SAFETY: an open context; the values are null or writable.
    unsafe { verbs(context).query_rt_values.expect("it is there")(context, values) }
}

/// The device's clock, in ticks.
pub fn raw_clock(context: *mut ibv_context) -> u64 {
    let mut values =
        ibv_values_ex { comp_mask: IBV_VALUES_MASK_RAW_CLOCK, ..ibv_values_ex::default() };
    assert_eq!(query_rt_values(context, &mut values), 0);
    assert_eq!((values.comp_mask, values.raw_clock.tv_sec), (IBV_VALUES_MASK_RAW_CLOCK, 0));
    values.raw_clock.tv_nsec as u64
}

/// A queue pair in ERR. Every receive posted to it completes at once, flushed, into this queue.
pub fn flushing(end: &End, cq: *mut ibv_cq) -> *mut ibv_qp {
    let mut init = ibv_qp_init_attr { send_cq: cq, recv_cq: cq, ..end.init(IBV_QPT_RC) };
    init.cap.max_recv_wr = 4096;
    let qp = end.qp_with(&mut init);
    take_to(end, qp, IBV_QPS_ERR);
    qp
}
