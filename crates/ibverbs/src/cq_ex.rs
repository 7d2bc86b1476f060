//! `ibv_create_cq_ex(3)`: completion queues that are polled field by field.

use std::ffi::c_int;

use transom_abi::*;
use transom_device::queue::{Completion, CompletionOptions};
use transom_rehearse::Feature;
use transom_system::clock;

use crate::check;
use crate::context::Context;
use crate::cq::{self, DomainUse, Queue, Request};
use crate::entry::{guarded_always, pointer_of};
use crate::poller::{Current, Poller};
use crate::wrong::Wrong;
use crate::{pd, profile, watched};

/// The fields that a completion of Transom's own device can have.
const READABLE: u64 = (IBV_WC_STANDARD_FLAGS
    | IBV_WC_EX_WITH_TM_INFO
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) as u64;

/// The fields with the time of a completion.
const TIMED: u64 =
    (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) as u64;

/// The fields that a completion can have.
fn readable() -> u64 {
    let timed = if profile::has(Feature::Timestamps) { 0 } else { TIMED };
    let tagged = u64::from(IBV_WC_EX_WITH_TM_INFO);
    let tagged = if profile::has(Feature::TagMatching) { 0 } else { tagged };
    READABLE & !(timed | tagged)
}

/// Makes a completion queue for at least `cqe` completions. The program can read the fields that it asks for.
///
/// # Safety
/// `context` is null or open; `attr` is null or readable, and what it names is live.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    pointer_of("ibv_create_cq_ex", || {
        // SAFETY: by the contract of this verb.
        let Some(attr) = (unsafe { attr.as_ref() }) else { return Err(libc::EINVAL) };
        // SAFETY: by the contract of this verb.
        unsafe {
            // A refusal is noted at this context's device.
            let _ = Context::of(context);
            let request =
                request(context, attr).map_err(|wrong| wrong.told(None, "ibv_create_cq_ex", 0))?;
            cq::create("ibv_create_cq_ex", context, request, operations(attr))
        }
    })
}

/// Checks the attributes.
///
/// # Safety
/// As [`create_cq_ex`].
unsafe fn request(context: *mut ibv_context, attr: &ibv_cq_init_attr_ex) -> Result<Request, Wrong> {
    const FLAGS: u32 = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    if attr.comp_mask & !(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD) != 0 {
        return Err(Wrong::invalid("comp_mask", attr.comp_mask.into(), ""));
    }
    let has = |field| attr.comp_mask & field != 0;
    let flags = if has(IBV_CQ_INIT_ATTR_MASK_FLAGS) { attr.flags } else { 0 };
    let unreadable = attr.wc_flags & !readable();
    if unreadable != 0 {
        return Err(Wrong::unsupported("wc_flags", unreadable, ""));
    }
    if flags & !FLAGS != 0 {
        return Err(Wrong::unsupported("flags", (flags & !FLAGS).into(), ""));
    }
    let parent = if has(IBV_CQ_INIT_ATTR_MASK_PD) {
        // SAFETY: by the contract of this function.
        let found = unsafe { pd::find(attr.parent_domain) };
        let found = found.map_err(|errno| Wrong::unknown("parent_domain", errno, "PD-08"))?;
        if found.context != context {
            return Err(Wrong::unknown("parent_domain", libc::EINVAL, "PD-08"));
        }
        Some(DomainUse::of(&found.domain).ok_or(libc::ENOENT)?)
    } else {
        None
    };
    Ok(Request {
        cqe: attr.cqe.into(),
        channel: attr.channel,
        comp_vector: attr.comp_vector.into(),
        options: CompletionOptions {
            timestamps: attr.wc_flags & TIMED != 0,
            ignore_overrun: flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN != 0,
        },
        poller: Poller::new(flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0),
        parent,
    })
}

/// The operations of a queue: those that every queue has, and the readers of the fields that the program asks for.
fn operations(attr: &ibv_cq_init_attr_ex) -> ibv_cq_ex {
    let asked = |field: ibv_create_cq_wc_flags| attr.wc_flags & u64::from(field) != 0;
    macro_rules! if_asked {
        ($field:ident, $reader:ident) => {
            if asked($field) { Some($reader as _) } else { None }
        };
    }
    ibv_cq_ex {
        cq_context: attr.cq_context,
        start_poll: Some(start_poll),
        next_poll: Some(next_poll),
        end_poll: Some(end_poll),
        read_opcode: Some(read_opcode),
        read_vendor_err: Some(read_vendor_err),
        read_wc_flags: Some(read_wc_flags),
        read_byte_len: if_asked!(IBV_WC_EX_WITH_BYTE_LEN, read_byte_len),
        read_imm_data: if_asked!(IBV_WC_EX_WITH_IMM, read_imm_data),
        read_qp_num: if_asked!(IBV_WC_EX_WITH_QP_NUM, read_qp_num),
        read_src_qp: if_asked!(IBV_WC_EX_WITH_SRC_QP, read_src_qp),
        read_slid: if_asked!(IBV_WC_EX_WITH_SLID, read_slid),
        read_sl: if_asked!(IBV_WC_EX_WITH_SL, read_sl),
        read_dlid_path_bits: if_asked!(IBV_WC_EX_WITH_DLID_PATH_BITS, read_dlid_path_bits),
        read_completion_ts: if_asked!(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, read_completion_ts),
        read_completion_wallclock_ns: if_asked!(
            IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
            read_completion_wallclock_ns
        ),
        read_tm_info: if_asked!(IBV_WC_EX_WITH_TM_INFO, read_tm_info),
        ..ibv_cq_ex::default()
    }
}

/// Begins a batch with its first completion. `ENOENT` if there is none. Other threads wait until the batch ends.
///
/// # Safety
/// `cq` is null or live, and this thread is in no batch of it; `attr` is null or readable.
pub(crate) unsafe extern "C" fn start_poll(
    cq: *mut ibv_cq_ex,
    attr: *mut ibv_poll_cq_attr,
) -> c_int {
    let answer = guarded_always("ibv_start_poll", || {
        // SAFETY: by the contract of this verb.
        let (queue, attr) = unsafe { (cq::usable(cq.cast())?, attr.as_ref()) };
        let Some(ibv_poll_cq_attr { comp_mask: 0 }) = attr else {
            return Err(libc::EINVAL);
        };
        loop {
            let turn = queue.poller.begin();
            // SAFETY: the queue is live, and it is this thread's turn.
            let found = unsafe { advance(cq, queue) }?;
            if found {
                // `end_poll` ends the turn.
                std::mem::forget(turn);
            } else {
                drop(turn);
            }
            if queue.cq.polled(usize::from(found)) {
                return Ok(found);
            }
        }
    });
    zero_if_found(answer)
}

/// Goes on to the next completion. `ENOENT` if there is none.
///
/// # Safety
/// `cq` is null or live; this thread is in a batch of it.
pub(crate) unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    zero_if_found(guarded_always("ibv_next_poll", || {
        // SAFETY: by the contract of this verb.
        let queue = unsafe { cq::usable(cq.cast()) }?;
        // SAFETY: as above.
        unsafe { advance(cq, queue) }
    }))
}

/// The result of polling. `ENOENT` means that there is no completion; it is no error.
fn zero_if_found(found: Result<bool, c_int>) -> c_int {
    match found {
        Ok(true) => 0,
        Ok(false) => libc::ENOENT,
        Err(errno) => errno,
    }
}

/// Ends the batch.
///
/// # Safety
/// `cq` is null or live; this thread is in a batch of it.
unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: by the contract of this verb.
    if let Some(queue) = unsafe { cq::of(cq.cast()) } {
        queue.poller.end();
    }
}

/// Makes the next completion the current one, if there is one. `EIO` if the queue has overrun (rule CQ-05).
///
/// # Safety
/// `cq` is `queue`'s pointer for C, and it is this thread's turn.
unsafe fn advance(cq: *mut ibv_cq_ex, queue: &Queue) -> Result<bool, c_int> {
    let show = |_, completion: &Completion| {
        let wc = cq::to_c(completion);
        let tag = ibv_wc_tm_info { tag: completion.tag, priv_: completion.tag_context };
        // SAFETY: by the contract of this function, nobody else reads or writes these.
        unsafe {
            (*cq).wr_id = wc.wr_id;
            (*cq).status = wc.status;
            *queue.poller.current.get() = Current { wc, tag, time: completion.time };
            watched::is_current(cq, &wc);
        }
    };
    let poll = || queue.adapter.poll(&queue.cq, 1, show);
    let polled = match check::on() {
        None => poll(),
        Some(checker) => checker.polling(|| {
            let polled = poll();
            // SAFETY: as above.
            let current = unsafe { &(*queue.poller.current.get()).wc };
            let got = if polled == Some(1) { std::slice::from_ref(current) } else { &[] };
            checker.polled(cq.addr(), got, polled == Some(0), || queue.cq.count());
            polled
        }),
    };
    polled.map(|count| count > 0).ok_or_else(|| cq::overrun(queue, "ibv_start_poll"))
}

/// The tag of a message that a tagged buffer has matched, and its sender's own data. Zeros for any other completion.
///
/// # Safety
/// `cq` is null or live; this thread is in a batch of it. `info` is null or writable.
unsafe extern "C" fn read_tm_info(cq: *mut ibv_cq_ex, info: *mut ibv_wc_tm_info) {
    // SAFETY: by the contract of this verb. It is this thread's turn, so nobody writes the current completion.
    unsafe {
        if let (Some(queue), Some(info)) = (cq::of(cq.cast()), info.as_mut()) {
            *info = (*queue.poller.current.get()).tag;
        }
    }
}

macro_rules! readers {
    ($($(#[$doc:meta])* $name:ident($queue:ident, $current:ident) -> $type:ty { $value:expr })+) => {
        $($(#[$doc])*
        ///
        /// # Safety
        /// `cq` is null or live; this thread is in a batch of it.
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
            // SAFETY: by the contract of this verb.
            let Some($queue) = (unsafe { cq::of(cq.cast()) }) else { return 0 };
            // SAFETY: it is this thread's turn, so nobody writes the current completion.
            let $current = unsafe { &*$queue.poller.current.get() };
            $value
        })+
    };
}

readers! {
    /// The operation.
    read_opcode(_queue, current) -> ibv_wc_opcode { current.wc.opcode }
    /// The code of the reason for a failure.
    read_vendor_err(_queue, current) -> u32 { current.wc.vendor_err }
    /// Bytes transferred.
    read_byte_len(_queue, current) -> u32 { current.wc.byte_len }
    /// Immediate data in network order, or the invalidated key.
    read_imm_data(_queue, current) -> u32 {
        // SAFETY: both members are plain words.
        unsafe { current.wc.imm.imm_data }
    }
    /// The local queue pair.
    read_qp_num(_queue, current) -> u32 { current.wc.qp_num }
    /// The sending queue pair.
    read_src_qp(_queue, current) -> u32 { current.wc.src_qp }
    /// Which fields are valid.
    read_wc_flags(_queue, current) -> u32 { current.wc.wc_flags }
    /// The source LID.
    read_slid(_queue, current) -> u32 { current.wc.slid.into() }
    /// The service level.
    read_sl(_queue, current) -> u8 { current.wc.sl }
    /// The low bits of the destination LID.
    read_dlid_path_bits(_queue, current) -> u8 { current.wc.dlid_path_bits }
    /// The time when it was added to the queue, in ticks of the device's clock: nanoseconds.
    read_completion_ts(_queue, current) -> u64 { current.time }
    /// The same time, in nanoseconds of the wall clock.
    read_completion_wallclock_ns(_queue, current) -> u64 { clock::wall_time(current.time) }
}
