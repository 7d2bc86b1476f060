//! `ibv_post_send(3)`, `ibv_post_recv(3)`: work requests from C.

use std::ffi::c_int;

use transom_abi::*;
use transom_device::execution::QueueSide;
use transom_device::protection::{Bind, Key};
use transom_device::qp::{QpState, Service};
use transom_device::queue::{
    Body, LocalOp, PostError, ReceiveRequest, Remote, SendFlags, SendOp, SendRequest, Sge,
};
use transom_host::Limits;
use transom_host::objects::{More, QpReceives, QueuePair};
use transom_system::registry::{CallFault, SEND_QUEUE};

use crate::answers::By;
use crate::entry::{guarded_always, zero_or};
use crate::qp::{self, Qp};
use crate::wrong::Wrong;
use crate::{ah, mr, mw, rehearse};

const MAX_SGE: usize = Limits::DEVICE.max_sge as usize;

/// The fault of a refused post with `sges` SGEs, where at most `limit` were allowed. A receive has no opcode.
#[cold]
pub(crate) fn wrong(
    error: PostError,
    qp: &QueuePair,
    opcode: Option<u32>,
    sges: usize,
    limit: usize,
) -> Wrong {
    let invalid = |fault, value: u64, rule| Wrong::with(libc::EINVAL, fault, value, rule);
    match error {
        PostError::Full => {
            let is_in_error = qp.summary().gate().state == QpState::Error;
            let (queue, side) = match opcode {
                Some(_) => (SEND_QUEUE, QueueSide::Send),
                None => ("receive queue", QueueSide::Receive),
            };
            Wrong::full(queue, qp.why_full(side), is_in_error)
        }
        PostError::TooManySges => {
            let by = if opcode.is_some() { By::Post } else { By::Receive };
            Wrong::too_many_sges(sges, limit, by)
        }
        PostError::InlineTooLong => {
            let room = qp.config().send.inline_room as u64;
            Wrong::with(libc::EINVAL, CallFault::Unnamed, 0, "PS-04").and(room)
        }
        PostError::InlineNotAllowed => {
            Wrong::invalid("send_flags", SendFlags::INLINE.bits().into(), "PS-05")
        }
        PostError::WrongState => {
            let rule = if opcode.is_some() { "ST-20" } else { "ST-21" };
            invalid(CallFault::WrongState, qp.summary().gate().state as u64, rule)
        }
        PostError::WrongService if opcode.is_none() => {
            Wrong::invalid("qp->srq, being there,", 1, "PS-11")
        }
        PostError::WrongService => {
            let rule = match opcode {
                Some(IBV_WR_SEND_WITH_INV) => "INV-43",
                Some(IBV_WR_LOCAL_INV) => "INV-19",
                Some(IBV_WR_BIND_MW) => "T2-11",
                _ => "PS-06",
            };
            invalid(CallFault::WrongService, opcode.unwrap_or(0).into(), rule)
        }
    }
}

/// A C list of SGEs.
///
/// # Safety
/// `list` has `count` readable elements if `count` is positive.
pub(crate) unsafe fn sges<'a>(list: *const ibv_sge, count: c_int) -> Result<&'a [Sge], Wrong> {
    const { assert!(size_of::<Sge>() == size_of::<ibv_sge>()) };
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(_) if list.is_null() => Err(Wrong::invalid("sg_list", 0, "PS-03")),
        // SAFETY: by the contract of this function; `Sge` is laid out as `ibv_sge`.
        Ok(count) => Ok(unsafe { std::slice::from_raw_parts(list.cast::<Sge>(), count) }),
        Err(_) => Err(Wrong::invalid("num_sge", count as u64, "PS-03")),
    }
}

/// Posts a list of send work requests, up to the first bad one (rule PS-01).
///
/// # Safety
/// `qp` is live; the list and what it points to is valid; `bad` is null or writable.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let mut next = wr;
    let posted = guarded_always("ibv_post_send", || {
        // SAFETY: by the contract of this verb.
        let ours = unsafe { qp::usable(qp) }?;
        // SAFETY: by the contract of this verb.
        while let Some(wr) = unsafe { next.as_ref() } {
            // As soon as it is posted another thread may have polled its completion, and the request is that thread's.
            let behind = wr.next;
            // SAFETY: as above.
            unsafe { post_one_send(ours, wr) }.map_err(|wrong| {
                // Requests posted before this one expect more to follow. Send them now.
                ours.pair.advance();
                let number = ours.pair.number().bits();
                wrong.told(Some(ours.pair.device()), "ibv_post_send", number)
            })?;
            next = behind;
        }
        Ok(())
    });
    // SAFETY: as above.
    unsafe { tell_bad(bad, next, posted) }
}

/// # Safety
/// What `wr` points to is valid.
#[inline]
unsafe fn post_one_send(Qp { pair: qp, kind, .. }: &Qp, wr: &ibv_send_wr) -> Result<(), Wrong> {
    // SAFETY: by the contract of this function. The unions are plain data, read as opcode and type say.
    unsafe {
        let sges = sges(wr.sg_list, wr.num_sge)?;
        match *kind {
            IBV_QPT_UD | IBV_QPT_XRC_SEND => post_addressed(qp, *kind, wr, sges),
            _ => post_to(Remote::Connected, operation(wr, sges)?, qp, wr, sges),
        }
    }
}

/// Posts a request that names its destination. It is not inlined, so that other requests do not pay for it.
///
/// # Safety
/// As [`post_one_send`].
#[inline(never)]
unsafe fn post_addressed(
    qp: &QueuePair,
    kind: ibv_qp_type,
    wr: &ibv_send_wr,
    sges: &[Sge],
) -> Result<(), Wrong> {
    // SAFETY: by the contract of this function.
    unsafe {
        let (op, remote) = match kind {
            IBV_QPT_UD => datagram(wr)?,
            _ => (operation(wr, sges)?, Remote::Srq(wr.qp_type.xrc.remote_srqn)),
        };
        post_to(remote, op, qp, wr, sges)
    }
}

/// Posts a request to `remote`. It is inlined, because each caller knows more about the arguments.
///
/// # Safety
/// As [`post_one_send`].
#[inline(always)]
unsafe fn post_to(
    remote: Remote,
    op: SendOp,
    qp: &QueuePair,
    wr: &ibv_send_wr,
    sges: &[Sge],
) -> Result<(), Wrong> {
    let flags = SendFlags::from_bits_truncate(wr.send_flags);
    let request = SendRequest { wr_id: wr.wr_id, op, flags, sges, inline: None, remote };
    let more = if wr.next.is_null() { More::Perhaps } else { More::Follows };
    let refused =
        |error| wrong(error, qp, Some(wr.opcode), request.sges.len(), qp.config().send.max_sge);
    if flags.contains(SendFlags::INLINE) {
        // SAFETY: by the contract of this function.
        unsafe { post_inline(qp, &request, more) }?.map_err(refused)?;
    } else {
        qp.post_send(&request, more).map_err(refused)?;
    }
    // A program may read the new key from the window or compute it. Both work (rule KEY-10).
    if let SendOp::Local(LocalOp::BindType2(bind)) = op
        && !rehearse::keeps_window_key()
    {
        // SAFETY: `operation` has found it not null.
        unsafe { (*wr.op.bind_mw.mw).rkey = bind.window.0 };
    }
    Ok(())
}

/// Posts with the data as it is now (rule LA-21). Keys are not checked.
///
/// # Safety
/// The SGEs name readable memory.
#[inline(never)]
unsafe fn post_inline(
    qp: &QueuePair,
    request: &SendRequest<'_>,
    more: More,
) -> Result<Result<(), PostError>, Wrong> {
    let most = qp.config().send.max_sge.clamp(1, MAX_SGE);
    if request.sges.len() > most {
        return Err(Wrong::too_many_sges(request.sges.len(), most, By::Post));
    }
    // Lengths first: a refused request's memory is not read.
    let total: u64 = request.sges.iter().map(|sge| u64::from(sge.length)).sum();
    let room = qp.config().send.inline_room as u64;
    if total > room {
        let is_datagram = qp.config().service == Service::Ud;
        return Err(Wrong::inline_too_long(total, room, is_datagram, By::Post));
    }
    let bytes = |sge: &Sge| match sge.length {
        0 => &[][..],
        // SAFETY: by the contract of this function, and C's own rule for inline data.
        length => unsafe { std::slice::from_raw_parts(sge.address as *const u8, length as usize) },
    };
    let post = |data: &[&[u8]]| {
        qp.post_send(&SendRequest { sges: &[], inline: Some(data), ..*request }, more)
    };
    Ok(match request.sges {
        // The common case.
        [sge] => post(&[bytes(sge)]),
        sges => {
            let mut data: [&[u8]; MAX_SGE] = [&[]; MAX_SGE];
            data.iter_mut().zip(sges).for_each(|(data, sge)| *data = bytes(sge));
            post(&data[..sges.len()])
        }
    })
}

/// The operation and the destination of a UD request. A request that moves data but is no SEND is accepted, and fails
/// in its turn (rule PS-06).
///
/// # Safety
/// The unions of `wr` hold what UD and its opcode say.
unsafe fn datagram(wr: &ibv_send_wr) -> Result<(SendOp, Remote), Wrong> {
    let body = match wr.opcode {
        IBV_WR_SEND => Body::Send,
        // SAFETY: by the contract of this function.
        IBV_WR_SEND_WITH_IMM => Body::SendImmediate(unsafe { wr.imm.imm_data }),
        IBV_WR_RDMA_WRITE
        | IBV_WR_RDMA_WRITE_WITH_IMM
        | IBV_WR_RDMA_READ
        | IBV_WR_ATOMIC_CMP_AND_SWP
        | IBV_WR_ATOMIC_FETCH_AND_ADD
        | IBV_WR_ATOMIC_WRITE => return Ok((SendOp::Unsupported, Remote::Connected)),
        other => {
            let fault = CallFault::WrongService;
            return Err(Wrong::with(libc::EINVAL, fault, other.into(), "PS-06"));
        }
    };
    // SAFETY: as above.
    let ud = unsafe { wr.wr.ud };
    // SAFETY: as above.
    let to = unsafe { ah::datagram("ibv_post_send", ud.ah, ud.remote_qpn, ud.remote_qkey) }
        .map_err(|errno| Wrong::unknown("wr.ud.ah", errno, ""))?;
    Ok((SendOp::Message(body), Remote::Datagram(to)))
}

/// # Safety
/// The unions of `wr` hold what its opcode says.
#[inline]
unsafe fn operation(wr: &ibv_send_wr, sges: &[Sge]) -> Result<SendOp, Wrong> {
    // SAFETY: by the contract of this function. All variants are plain data.
    unsafe {
        let rdma = wr.wr.rdma;
        let atomic = wr.wr.atomic;
        Ok(SendOp::Message(match wr.opcode {
            IBV_WR_SEND => Body::Send,
            IBV_WR_SEND_WITH_IMM => Body::SendImmediate(wr.imm.imm_data),
            IBV_WR_SEND_WITH_INV => Body::SendInvalidate(Key(wr.imm.invalidate_rkey)),
            IBV_WR_RDMA_WRITE => {
                Body::Write { address: rdma.remote_addr, key: Key(rdma.rkey), immediate: None }
            }
            IBV_WR_RDMA_WRITE_WITH_IMM => Body::Write {
                address: rdma.remote_addr,
                key: Key(rdma.rkey),
                immediate: Some(wr.imm.imm_data),
            },
            IBV_WR_RDMA_READ => Body::Read { address: rdma.remote_addr, key: Key(rdma.rkey) },
            IBV_WR_ATOMIC_CMP_AND_SWP => Body::CompareSwap {
                address: atomic.remote_addr,
                key: Key(atomic.rkey),
                swap: atomic.swap,
                compare: atomic.compare_add,
            },
            IBV_WR_ATOMIC_FETCH_AND_ADD => Body::FetchAdd {
                address: atomic.remote_addr,
                key: Key(atomic.rkey),
                add: atomic.compare_add,
            },
            IBV_WR_ATOMIC_WRITE => {
                Body::AtomicWrite { address: rdma.remote_addr, key: Key(rdma.rkey) }
            }
            IBV_WR_LOCAL_INV if sges.is_empty() => {
                let key = Key(wr.imm.invalidate_rkey);
                return Ok(SendOp::Local(LocalOp::Invalidate(key)));
            }
            IBV_WR_BIND_MW if sges.is_empty() => {
                let bind = type2_bind(&wr.op.bind_mw)?;
                return Ok(SendOp::Local(LocalOp::BindType2(bind)));
            }
            IBV_WR_LOCAL_INV | IBV_WR_BIND_MW => {
                return Err(Wrong::invalid("num_sge", sges.len() as u64, "T2-12"));
            }
            other => return Err(Wrong::invalid("opcode", other.into(), "PS-07")),
        }))
    }
}

/// The bind of a type 2 window.
///
/// # Safety
/// The window and region are null or readable.
pub(crate) unsafe fn type2_bind(bind: &ibv_send_wr_bind_mw) -> Result<Bind, Wrong> {
    let info = &bind.bind_info;
    if bind.mw.is_null() || info.mr.is_null() {
        return Err(Wrong::unknown("bind_mw.mw or .mr", libc::EINVAL, ""));
    }
    // SAFETY: by the contract of this function.
    let (kind, rkey, region) = unsafe { ((*bind.mw).type_, (*bind.mw).rkey, mr::key_of(info.mr)) };
    if kind != IBV_MW_TYPE_2 {
        return Err(Wrong::invalid("bind_mw.mw->type", kind.into(), "T2-11"));
    }
    Ok(Bind {
        window: Key(rkey).with_byte(bind.rkey as u8),
        region,
        address: info.addr,
        length: info.length,
        access: mw::rights(info.mw_access_flags),
    })
}

/// Posts a list of receive work requests, up to the first bad one (rule PS-01).
///
/// # Safety
/// As [`post_send`].
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut next = wr;
    let posted = guarded_always("ibv_post_recv", || {
        // SAFETY: by the contract of this verb.
        let ours = &unsafe { qp::usable(qp) }?.pair;
        let post_one = |request: &ReceiveRequest<'_>| {
            ours.post_receive(request).map_err(|error| {
                let limit = match ours.config().receives {
                    QpReceives::Own { max_sge, .. } => max_sge,
                    _ => 0,
                };
                wrong(error, ours, None, request.sges.len(), limit)
            })
        };
        // SAFETY: as above.
        unsafe { receives(&mut next, post_one) }
            .map_err(|wrong| wrong.told(Some(ours.device()), "ibv_post_recv", ours.number().bits()))
    });
    // SAFETY: as above.
    unsafe { tell_bad(bad, next, posted) }
}

/// Posts a list of receives one by one. Afterwards `next` is the first one that was not posted.
///
/// # Safety
/// The list and what it points to is valid.
#[inline]
pub(crate) unsafe fn receives(
    next: &mut *mut ibv_recv_wr,
    mut post_one: impl FnMut(&ReceiveRequest<'_>) -> Result<(), Wrong>,
) -> Result<(), Wrong> {
    // SAFETY: by the contract of this function.
    while let Some(wr) = unsafe { next.as_ref() } {
        // SAFETY: as above.
        let sges = unsafe { sges(wr.sg_list, wr.num_sge) }?;
        // A message may wait for it, and its completion be polled at once.
        let behind = wr.next;
        post_one(&ReceiveRequest { wr_id: wr.wr_id, sges })?;
        *next = behind;
    }
    Ok(())
}

/// The result of posting a list. If it failed, `bad` gets the first request that was not posted.
///
/// # Safety
/// `bad` is null or writable.
#[inline]
pub(crate) unsafe fn tell_bad<T>(
    bad: *mut *mut T,
    next: *mut T,
    posted: Result<(), c_int>,
) -> c_int {
    if posted.is_err() && !bad.is_null() {
        // SAFETY: by the contract of this function.
        unsafe { *bad = next };
    }
    zero_or(posted)
}
