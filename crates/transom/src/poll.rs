//! Polling of the device's completion queues, with or without the time of each completion.

use crate::context::OpenDevice;
use crate::error::{check, non_null, unsupported};
use crate::extended::extended;
use crate::outstanding::BATCH;
use crate::{Error, Result};
use rustix::io::Errno;
use std::ffi::c_int;
use std::ptr;
use std::time::{Duration, SystemTime};
use transom_abi::*;

/// A batch of completions.
pub(crate) struct Taken {
    pub(crate) wcs: [ibv_wc; BATCH],
    /// When each was added to its queue, if the queue keeps times.
    pub(crate) times: [Option<SystemTime>; BATCH],
}

impl Taken {
    pub(crate) fn nothing() -> Self {
        Self { wcs: [ibv_wc::default(); BATCH], times: [None; BATCH] }
    }
}

/// Creates a queue; see `ibv_create_cq(3)`.
///
/// # Safety
/// The channel is of the context.
pub(crate) unsafe fn create(
    device: &OpenDevice,
    entries: u32,
    channel: *mut ibv_comp_channel,
) -> Result<*mut ibv_cq> {
    let size = c_int::try_from(entries).unwrap_or(c_int::MAX);
    let create_cq = device.provider.verbs.ibv_create_cq;
    // SAFETY: the context is open, and the channel is its own.
    let cq = unsafe { create_cq(device.context, size, ptr::null_mut(), channel, 0) };
    let subject = format_args!("creating a completion queue of {entries} entries");
    Ok(non_null("ibv_create_cq", subject, cq)?.as_ptr())
}

/// Takes at most a batch; see `ibv_poll_cq(3)`. Returns how many there were.
///
/// # Safety
/// The queue exists.
pub(crate) unsafe fn poll(cq: *mut ibv_cq, taken: &mut Taken) -> Result<usize> {
    // SAFETY: by the contract of this function.
    let poll_cq = unsafe { (*(*cq).context).ops.poll_cq };
    let poll_cq = poll_cq.ok_or_else(|| unsupported("ibv_poll_cq"))?;
    // SAFETY: the queue exists, and there is room for a batch.
    let count = unsafe { poll_cq(cq, BATCH as c_int, taken.wcs.as_mut_ptr()) };
    usize::try_from(count).map_err(|_| failed("ibv_poll_cq"))
}

/// The error of a poll that returns a negative number. The number only says that it failed, and few libraries set
/// `errno`.
fn failed(verb: &'static str) -> Error {
    let errno = Errno::IO.raw_os_error();
    Error::Verb { verb, subject: "polling a completion queue".to_owned(), errno }
}

/// Creates a queue that keeps the time of each completion; see `ibv_create_cq_ex(3)`.
///
/// # Safety
/// The channel is of the context.
pub(crate) unsafe fn create_timed(
    device: &OpenDevice,
    entries: u32,
    channel: *mut ibv_comp_channel,
) -> Result<*mut ibv_cq_ex> {
    const VERB: &str = "ibv_create_cq_ex";
    let create_cq_ex = extended!(device, create_cq_ex).ok_or_else(|| unsupported(VERB))?;
    let wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    let mut attributes = ibv_cq_init_attr_ex {
        cqe: entries,
        channel,
        wc_flags: wc_flags.into(),
        ..ibv_cq_init_attr_ex::default()
    };
    // SAFETY: the context is open, and the channel is its own.
    let cq = unsafe { create_cq_ex(device.context, &raw mut attributes) };
    let subject = format_args!("creating a completion queue of {entries} entries that keeps times");
    Ok(non_null(VERB, subject, cq)?.as_ptr())
}

/// Takes at most a batch, with times; see `ibv_start_poll` in `ibv_create_cq_ex(3)`.
///
/// # Safety
/// The queue exists and [`create_timed`] made it. Nobody else polls it meanwhile.
pub(crate) unsafe fn poll_timed(cq: *mut ibv_cq_ex, taken: &mut Taken) -> Result<usize> {
    // SAFETY: by the contract of this function.
    let (start, next, end) = unsafe { ((*cq).start_poll, (*cq).next_poll, (*cq).end_poll) };
    let (Some(start), Some(next), Some(end)) = (start, next, end) else {
        return Err(unsupported("ibv_start_poll"));
    };
    let mut attributes = ibv_poll_cq_attr::default();
    // SAFETY: by the contract of this function.
    let mut answer = unsafe { start(cq, &raw mut attributes) };
    if answer == Errno::NOENT.raw_os_error() {
        return Ok(0);
    }
    if answer < 0 {
        return Err(failed("ibv_start_poll"));
    }
    check("ibv_start_poll", "polling a completion queue", answer)?;
    let mut count = 0;
    while answer == 0 && count < BATCH {
        // SAFETY: there is a current completion.
        (taken.wcs[count], taken.times[count]) = unsafe { current(cq) };
        count += 1;
        if count < BATCH {
            // SAFETY: a batch is open.
            answer = unsafe { next(cq) };
        }
    }
    // SAFETY: a batch is open. A failure of `next_poll` will occur again when the next batch begins.
    unsafe { end(cq) };
    Ok(count)
}

/// Reads the valid fields of the current completion.
///
/// # Safety
/// There is a current completion: a batch is open.
unsafe fn current(cq: *mut ibv_cq_ex) -> (ibv_wc, Option<SystemTime>) {
    macro_rules! read {
        ($field:ident) => {
            // SAFETY: by the contract of this function; the field was asked for at creation.
            unsafe { (*cq).$field.map(|read| read(cq)) }.unwrap_or_default()
        };
    }
    // SAFETY: the queue exists.
    let (wr_id, status) = unsafe { ((*cq).wr_id, (*cq).status) };
    let (qp_num, vendor_err) = (read!(read_qp_num), read!(read_vendor_err));
    let failed = ibv_wc { wr_id, status, qp_num, vendor_err, ..ibv_wc::default() };
    if status != IBV_WC_SUCCESS {
        return (failed, None);
    }
    let wc = ibv_wc {
        opcode: read!(read_opcode),
        byte_len: read!(read_byte_len),
        imm: ibv_wc_imm { imm_data: read!(read_imm_data) },
        src_qp: read!(read_src_qp),
        wc_flags: read!(read_wc_flags),
        // A LID has 16 bits.
        slid: read!(read_slid) as u16,
        sl: read!(read_sl),
        dlid_path_bits: read!(read_dlid_path_bits),
        ..failed
    };
    let since_epoch = Duration::from_nanos(read!(read_completion_wallclock_ns));
    (wc, SystemTime::UNIX_EPOCH.checked_add(since_epoch))
}

#[cfg(all(test, feature = "software"))]
mod tests {
    use super::*;
    use crate::{CompletionQueue, Provider};

    unsafe extern "C" fn fails(_: *mut ibv_cq, _: c_int, _: *mut ibv_wc) -> c_int {
        -2
    }

    /// mlx5 calls this `CQ_POLL_ERR`. It is not an error number.
    unsafe extern "C" fn begins_nothing(_: *mut ibv_cq_ex, _: *mut ibv_poll_cq_attr) -> c_int {
        -2
    }

    #[test]
    fn a_poll_that_fails_without_a_reason_is_an_error_of_the_device() {
        let context = crate::devices(&Provider::software()).unwrap()[0].open().unwrap();
        let cq = CompletionQueue::new(&context, 1).unwrap();
        let timed = CompletionQueue::with_timestamps(&context, 1).unwrap();
        // SAFETY: the context is this test's own, and nobody else calls its operations.
        unsafe { (*context.inner.context).ops.poll_cq = Some(fails) };
        // SAFETY: it keeps times, so it is one of these, and nobody else polls it.
        unsafe { (*timed.inner.cq.cast::<ibv_cq_ex>()).start_poll = Some(begins_nothing) };
        for queue in [cq, timed] {
            // The error must not be that of an earlier call.
            std::fs::File::open("/nowhere").unwrap_err();
            assert_eq!(queue.poll().unwrap_err().errno(), Some(Errno::IO.raw_os_error()));
        }
    }
}
