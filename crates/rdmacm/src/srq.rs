//! Shared receive queues of ids: `rdma_create_srq(3)`.

use std::ffi::c_int;
use std::ptr::null_mut;

use transom_abi::*;

use crate::entry::{effect_of, zero_of};
use crate::id::Id;
use crate::queues;
use crate::sanitized;
use crate::wrong::Wrong;

const NO_ATTRIBUTES: Wrong = Wrong::invalid("attr is null");

fn create(id: &Id, attr: &mut ibv_srq_init_attr_ex) -> Result<(), Wrong> {
    let (seen, device) = (id.seen(), id.device()?);
    if !seen.srq.is_null() {
        return Err(Wrong::invalid("the id has a shared receive queue already"));
    }
    if attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE == 0 {
        return Err(Wrong::invalid("comp_mask lacks IBV_SRQ_INIT_ATTR_TYPE"));
    }
    if attr.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 || attr.pd.is_null() {
        attr.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        attr.pd = seen.pd;
    }
    let mut made_queue = false;
    if attr.srq_type == IBV_SRQT_XRC {
        if attr.comp_mask & IBV_SRQ_INIT_ATTR_XRCD == 0 || attr.xrcd.is_null() {
            attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
            attr.xrcd = device.xrcd()?;
        }
        if attr.comp_mask & IBV_SRQ_INIT_ATTR_CQ == 0 || attr.cq.is_null() {
            if seen.recv_cq.is_null() {
                queues::create(id, 0, attr.attr.max_wr)?;
                made_queue = true;
            }
            attr.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
            attr.cq = id.seen().recv_cq;
        }
    }
    // SAFETY: the objects in the attributes are the program's and live, or were just made.
    let made = unsafe { id.provider.verbs.create_srq_ex(seen.verbs, attr) };
    let srq = made.inspect_err(|_| queues::destroy(id, false, made_queue))?;
    id.change(|seen| {
        seen.srq = srq;
    });
    let uses_cq = attr.srq_type == IBV_SRQT_XRC && attr.cq == id.seen().recv_cq;
    id.own(|own| own.srq_uses_cq = uses_cq);
    // What has been filled in. The verb has said so of the sizes.
    sanitized::written(&raw const attr.comp_mask);
    sanitized::written(&raw const attr.pd);
    if attr.srq_type == IBV_SRQT_XRC {
        sanitized::written(&raw const attr.xrcd);
        sanitized::written(&raw const attr.cq);
    }
    Ok(())
}

/// Makes the shared receive queue of an id, of the kind that its queue pairs need.
///
/// # Safety
/// All pointers are null or live.
pub unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    zero_of(c"rdma_create_srq", || {
        // SAFETY: by the contract of this function.
        let (id, attr) = unsafe { (Id::of(id)?, attr.as_mut().ok_or(NO_ATTRIBUTES)?) };
        let xrc = matches!(id.seen().qp_type, IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV);
        let mut extended = ibv_srq_init_attr_ex {
            srq_context: attr.srq_context,
            attr: attr.attr,
            comp_mask: IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
            srq_type: if xrc { IBV_SRQT_XRC } else { IBV_SRQT_BASIC },
            pd,
            ..Default::default()
        };
        create(id, &mut extended)?;
        attr.attr = extended.attr;
        sanitized::written(&raw const attr.attr);
        Ok(())
    })
}

/// Like [`rdma_create_srq`], for any kind.
///
/// # Safety
/// All pointers are null or live.
pub unsafe extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    zero_of(c"rdma_create_srq_ex", || {
        // SAFETY: by the contract of this function.
        let (id, attr) = unsafe { (Id::of(id)?, attr.as_mut().ok_or(NO_ATTRIBUTES)?) };
        create(id, attr)
    })
}

/// Ends the shared receive queue of an id.
pub(crate) fn destroy(id: &Id) {
    let srq = id.change(|seen| std::mem::replace(&mut seen.srq, null_mut()));
    if !srq.is_null() {
        // SAFETY: the queue belonged to the id, and is taken from it once.
        unsafe { (id.provider.verbs.ibv_destroy_srq)(srq) };
        id.own(|own| own.srq_uses_cq = false);
    }
    if id.seen().qp.is_null() {
        queues::destroy(id, true, true);
    }
}

/// Ends the shared receive queue of an id, with the completion queue that was made with it.
///
/// # Safety
/// The id is null or live, and nobody uses its queue.
pub unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    effect_of(c"rdma_destroy_srq", || {
        // SAFETY: by the contract of this function.
        destroy(unsafe { Id::of(id) }?);
        Ok(())
    });
}
