//! Posting single requests: to a send queue, a receive queue, a shared receive queue.

use crate::context::OpenDevice;
use crate::copy::check_range;
use crate::created_queue_pair::CreatedQueuePair;
use crate::error::{check, unsupported};
use crate::keep::{Held, Keep};
use crate::shared::CreatedShared;
use crate::{Error, Operation, Posted, Result, Slice};
use std::ffi::c_int;
use std::fmt;
use std::ptr;
use std::sync::Arc;
use transom_abi::*;

/// Posts a request to the send queue. It always asks for a completion.
///
/// # Safety
/// `keep` holds every object that the request names by address: the regions of its slices, a window to bind and the
/// region for it, an address handle.
pub(crate) unsafe fn post_send(
    queue_pair: &Arc<CreatedQueuePair>,
    operation: Operation,
    mut wr: ibv_send_wr,
    keep: Keep,
) -> Result<Posted> {
    // SAFETY: the queue pair exists.
    let post_send = unsafe { (*(*queue_pair.qp).context).ops.post_send };
    let post_send = post_send.ok_or_else(|| unsupported("ibv_post_send"))?;
    wr.send_flags |= IBV_SEND_SIGNALED;
    Posted::post(queue_pair.send_queue(), queue_pair, operation, keep, |wr_id| {
        wr.wr_id = wr_id;
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair exists. The request and its list are valid during the call. The caller promises that
        // the objects it names stay until its completion.
        let result = unsafe { post_send(queue_pair.qp, &raw mut wr, &raw mut bad) };
        let inline = Inline(&wr);
        check("ibv_post_send", format_args!("posting {operation}{inline} to {queue_pair}"), result)
    })
}

/// How many bytes a request carries inline.
fn inline_length(wr: &ibv_send_wr) -> Option<u64> {
    if wr.send_flags & IBV_SEND_INLINE == 0 || wr.sg_list.is_null() {
        return None;
    }
    let count = usize::try_from(wr.num_sge).ok()?;
    // SAFETY: the request's own list, which is valid here.
    let sges = unsafe { std::slice::from_raw_parts(wr.sg_list, count) };
    Some(sges.iter().map(|sge| u64::from(sge.length)).sum())
}

/// Tells how many bytes are inline, for a caller that has more than the room.
struct Inline<'a>(&'a ibv_send_wr);

impl fmt::Display for Inline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(length) = inline_length(self.0) else { return Ok(()) };
        write!(f, " of {length} bytes inline (at most the queue pair's max_inline)")
    }
}

/// Posts a request to the receive queue; see `ibv_post_recv(3)`.
pub(crate) fn post_receive(
    queue_pair: &Arc<CreatedQueuePair>,
    operation: Operation,
    local: &[Slice],
) -> Result<Posted> {
    // SAFETY: the queue pair exists.
    let post_recv = unsafe { (*(*queue_pair.qp).context).ops.post_recv };
    let post_recv = post_recv.ok_or_else(|| unsupported("ibv_post_recv"))?;
    check_regions(local, queue_pair.device())?;
    with_sges(local, |sg_list, num_sge| {
        queue_pair.post_receive(operation, regions(local).collect(), |wr_id| {
            let mut wr = ibv_recv_wr { wr_id, next: ptr::null_mut(), sg_list, num_sge };
            let mut bad = ptr::null_mut();
            // SAFETY: the queue pair exists. The request and its list are valid during the call. The slot holds the
            // regions it names until its completion.
            let result = unsafe { post_recv(queue_pair.qp, &raw mut wr, &raw mut bad) };
            check("ibv_post_recv", format_args!("posting {operation} to {queue_pair}"), result)
        })
    })
}

/// Posts a request to a shared receive queue; see `ibv_post_srq_recv(3)`.
pub(crate) fn post_shared_receive(
    shared: &Arc<CreatedShared>,
    operation: Operation,
    local: &[Slice],
) -> Result<Posted> {
    // SAFETY: the queue exists.
    let post_recv = unsafe { (*(*shared.srq).context).ops.post_srq_recv };
    let post_recv = post_recv.ok_or_else(|| unsupported("ibv_post_srq_recv"))?;
    check_regions(local, shared.device())?;
    with_sges(local, |sg_list, num_sge| {
        let keep = regions(local).collect();
        Posted::post(&shared.completions, shared, operation, keep, |wr_id| {
            let mut wr = ibv_recv_wr { wr_id, next: ptr::null_mut(), sg_list, num_sge };
            let mut bad = ptr::null_mut();
            // SAFETY: as for `post_receive`.
            let result = unsafe { post_recv(shared.srq, &raw mut wr, &raw mut bad) };
            check("ibv_post_srq_recv", format_args!("posting {operation} to {shared}"), result)
        })
    })
}

/// Checks that all slices belong to regions of this opened device. On another device the key may be nobody's, or
/// somebody else's.
pub(crate) fn check_regions(slices: &[Slice], device: &OpenDevice) -> Result<()> {
    // SAFETY: a slice holds its region, so it is registered.
    let is_of = |slice: &Slice| unsafe { (*slice.region.mr()).context } == device.context;
    match slices.iter().all(is_of) {
        true => Ok(()),
        false => Err(Error::OtherContext { what: "memory region" }),
    }
}

pub(crate) fn regions(slices: &[Slice]) -> impl Iterator<Item = Arc<dyn Held>> {
    slices.iter().map(|slice| slice.region.clone() as Arc<dyn Held>)
}

/// Makes the scatter/gather list of some slices. Allocates only for a long list.
pub(crate) fn with_sges<R>(
    slices: &[Slice],
    post: impl FnOnce(*mut ibv_sge, c_int) -> Result<R>,
) -> Result<R> {
    let mut short = [ibv_sge::default(); 4];
    let mut long = Vec::new();
    let sges = match short.get_mut(..slices.len()) {
        Some(short) => short,
        None => {
            long.resize(slices.len(), ibv_sge::default());
            &mut long[..]
        }
    };
    let mut count = 0;
    // Empty slices are left out: to some hardware a length of 0 means 2^31.
    for (sge, slice) in sges.iter_mut().zip(slices.iter().filter(|slice| !slice.is_empty())) {
        // SAFETY: the slice holds its region, so it is registered.
        let lkey = unsafe { (*slice.region.mr()).lkey };
        *sge = ibv_sge { addr: slice.address, length: sge_length(slice.len())?, lkey };
        count += 1;
    }
    post(sges.as_mut_ptr(), count)
}

/// The length of a scatter/gather entry, which has 32 bits.
pub(crate) fn sge_length(length: usize) -> Result<u32> {
    let available = u32::MAX;
    check_range("a scatter/gather entry", 0..length as u64, available.into())?;
    Ok(length as u32)
}
