//! Queue pairs of ids, and their changes of state: `rdma_create_qp(3)`, `rdma_destroy_qp(3)`, `rdma_init_qp_attr(3)`.

use std::ffi::c_int;
use std::ptr::null_mut;

use transom_abi::*;

use crate::entry::{effect_of, zero_of};
use crate::event::address_vector;
use crate::id::Id;
use crate::queues;
use crate::sanitized;
use crate::verbs::done;
use crate::wrong::Wrong;

const NO_ATTRIBUTES: Wrong = Wrong::invalid("qp_init_attr is null");

/// Asks the file for the attributes that move a queue pair to the state in `attr`.
fn attributes(id: &Id, attr: &mut ibv_qp_attr) -> Result<c_int, Wrong> {
    let (handle, qp_state) = (id.handle, attr.qp_state);
    let from: ib_uverbs_qp_attr = id.file()?.ask(RDMA_USER_CM_CMD_INIT_QP_ATTR, |response| {
        rdma_ucm_init_qp_attr { response, id: handle, qp_state }
    })?;
    copy(attr, &from);
    Ok(from.qp_attr_mask as c_int)
}

/// Copies all attributes except the state to move to, which the caller has chosen.
fn copy(to: &mut ibv_qp_attr, from: &ib_uverbs_qp_attr) {
    macro_rules! same {
        ($to:expr, $from:expr; $($field:ident)+) => { $($to.$field = $from.$field;)+ };
    }
    same!(to, from;
        cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num qp_access_flags
        pkey_index alt_pkey_index en_sqd_async_notify sq_draining max_rd_atomic
        max_dest_rd_atomic min_rnr_timer port_num timeout retry_cnt rnr_retry alt_port_num
        alt_timeout
    );
    same!(to.cap, from; max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data);
    to.ah_attr = address_vector(&from.ah_attr);
    to.alt_ah_attr = address_vector(&from.alt_ah_attr);
}

/// Moves a queue pair to a state with the file's attributes, after `change` has changed them.
fn move_to(
    id: &Id,
    qp: *mut ibv_qp,
    state: ibv_qp_state,
    change: impl FnOnce(&mut ibv_qp_attr),
) -> Result<(), Wrong> {
    let mut attr = ibv_qp_attr { qp_state: state, ..Default::default() };
    let mask = attributes(id, &mut attr)?;
    change(&mut attr);
    // SAFETY: the queue pair belongs to the id, and is live.
    done("ibv_modify_qp", unsafe { (id.provider.verbs.ibv_modify_qp)(qp, &mut attr, mask) })
}

/// Makes the queue pair able to receive. `resources` replaces the responder resources of the exchange.
pub(crate) fn ready_to_receive(
    id: &Id,
    qp: *mut ibv_qp,
    resources: Option<u8>,
) -> Result<(), Wrong> {
    // Again to INIT, because now the rights of the peer are known.
    move_to(id, qp, IBV_QPS_INIT, |_| ())?;
    move_to(id, qp, IBV_QPS_RTR, |attr| {
        attr.max_dest_rd_atomic = resources.unwrap_or(attr.max_dest_rd_atomic);
    })
}

/// Makes the queue pair able to send. `depth` replaces the initiator depth of the exchange.
pub(crate) fn ready_to_send(id: &Id, qp: *mut ibv_qp, depth: Option<u8>) -> Result<(), Wrong> {
    move_to(id, qp, IBV_QPS_RTS, |attr| attr.max_rd_atomic = depth.unwrap_or(attr.max_rd_atomic))
}

/// Moves the queue pair of an id, if it has one, to the error state.
pub(crate) fn fail(id: &Id) -> Result<(), Wrong> {
    let qp = id.seen().qp;
    if qp.is_null() {
        return Ok(());
    }
    let mut attr = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..Default::default() };
    let modify = id.provider.verbs.ibv_modify_qp;
    // SAFETY: the queue pair belongs to the id, and is live.
    done("ibv_modify_qp", unsafe { modify(qp, &mut attr, IBV_QP_STATE as c_int) })
}

/// Moves a new queue pair as far as possible without a peer. A datagram queue pair can then send (rule CM-34).
fn begin(id: &Id, qp: *mut ibv_qp) -> Result<(), Wrong> {
    move_to(id, qp, IBV_QPS_INIT, |_| ())?;
    if !id.is_datagram() {
        return Ok(());
    }
    let modify = |attr: &mut ibv_qp_attr, mask: ibv_qp_attr_mask| {
        // SAFETY: the queue pair is live.
        done("ibv_modify_qp", unsafe { (id.provider.verbs.ibv_modify_qp)(qp, attr, mask as c_int) })
    };
    let mut attr = ibv_qp_attr { qp_state: IBV_QPS_RTR, ..Default::default() };
    modify(&mut attr, IBV_QP_STATE)?;
    attr.qp_state = IBV_QPS_RTS;
    modify(&mut attr, IBV_QP_STATE | IBV_QP_SQ_PSN)
}

/// Makes the queue pair of an id.
pub(crate) fn create(id: &Id, attr: &mut ibv_qp_init_attr_ex) -> Result<(), Wrong> {
    let seen = id.seen();
    let device = id.device()?;
    if !seen.qp.is_null() {
        return Err(Wrong::invalid("the id has a queue pair already"));
    }
    let conflict = |theirs: *mut ibv_cq, ours: *mut ibv_cq| {
        !theirs.is_null() && !ours.is_null() && theirs != ours
    };
    if conflict(attr.send_cq, seen.send_cq) || conflict(attr.recv_cq, seen.recv_cq) {
        return Err(Wrong::invalid("send_cq or recv_cq is not the one that the id has already"));
    }
    if attr.comp_mask & IBV_QP_INIT_ATTR_PD == 0 || attr.pd.is_null() {
        attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
        attr.pd = seen.pd;
    // SAFETY: the program's protection domain is live.
    } else if unsafe { (*attr.pd).context } != seen.verbs {
        return Err(Wrong::invalid(
            "pd belongs to another context than id->verbs: allocate it there",
        ));
    }
    let wants_xrcd = attr.comp_mask & IBV_QP_INIT_ATTR_XRCD != 0;
    if wants_xrcd && attr.xrcd.is_null() || !wants_xrcd && seen.qp_type == IBV_QPT_XRC_RECV {
        attr.xrcd = device.xrcd()?;
        attr.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
    }
    if attr.srq.is_null() {
        attr.srq = seen.srq;
    }
    let (had_send, had_receive) = (!seen.send_cq.is_null(), !seen.recv_cq.is_null());
    let missing = |theirs: *mut ibv_cq, count: u32| if theirs.is_null() { count } else { 0 };
    queues::create(
        id,
        missing(attr.send_cq, if had_send { 0 } else { attr.cap.max_send_wr }),
        missing(attr.recv_cq, if had_receive { 0 } else { attr.cap.max_recv_wr }),
    )?;
    let seen = id.seen();
    attr.send_cq = if attr.send_cq.is_null() { seen.send_cq } else { attr.send_cq };
    attr.recv_cq = if attr.recv_cq.is_null() { seen.recv_cq } else { attr.recv_cq };
    // SAFETY: the objects in the attributes are the program's and live, or were just made.
    let made = unsafe { id.provider.verbs.create_qp_ex(seen.verbs, attr) };
    let made = made.and_then(|qp| {
        // SAFETY: the queue pair was just made, and nobody else has it.
        let undo = |_: &Wrong| unsafe { _ = (id.provider.verbs.ibv_destroy_qp)(qp) };
        begin(id, qp).map(|()| qp).inspect_err(undo)
    });
    let qp = made.inspect_err(|_| queues::destroy(id, !had_send, !had_receive))?;
    id.change(|seen| {
        seen.qp = qp;
        seen.pd = attr.pd;
    });
    // What has been filled in. The verb has said so of the sizes.
    sanitized::written(&raw const attr.comp_mask);
    sanitized::written(&raw const attr.pd);
    sanitized::written(&raw const attr.srq);
    sanitized::written(&raw const attr.send_cq);
    sanitized::written(&raw const attr.recv_cq);
    if attr.comp_mask & IBV_QP_INIT_ATTR_XRCD != 0 {
        sanitized::written(&raw const attr.xrcd);
    }
    Ok(())
}

/// The same with the attributes of `rdma_create_qp`.
pub(crate) fn create_plain(
    id: &Id,
    pd: *mut ibv_pd,
    attr: &mut ibv_qp_init_attr,
) -> Result<(), Wrong> {
    let mut extended = ibv_qp_init_attr_ex {
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
        comp_mask: IBV_QP_INIT_ATTR_PD,
        pd,
        ..Default::default()
    };
    if attr.qp_type == IBV_QPT_XRC_RECV {
        extended.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
    }
    create(id, &mut extended)?;
    attr.send_cq = extended.send_cq;
    attr.recv_cq = extended.recv_cq;
    attr.srq = extended.srq;
    attr.cap = extended.cap;
    sanitized::written(&raw const attr.send_cq);
    sanitized::written(&raw const attr.recv_cq);
    sanitized::written(&raw const attr.srq);
    sanitized::written(&raw const attr.cap);
    Ok(())
}

/// Makes the queue pair of an id. Without a protection domain it uses the id's. Missing completion queues are made with
/// it.
///
/// # Safety
/// All pointers are null or live.
pub unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    zero_of(c"rdma_create_qp", || {
        // SAFETY: by the contract of this function.
        let (id, attr) = unsafe { (Id::of(id)?, qp_init_attr.as_mut().ok_or(NO_ATTRIBUTES)?) };
        create_plain(id, pd, attr)
    })
}

/// Like [`rdma_create_qp`], with extended attributes.
///
/// # Safety
/// All pointers are null or live.
pub unsafe extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    qp_init_attr: *mut ibv_qp_init_attr_ex,
) -> c_int {
    zero_of(c"rdma_create_qp_ex", || {
        // SAFETY: by the contract of this function.
        let (id, attr) = unsafe { (Id::of(id)?, qp_init_attr.as_mut().ok_or(NO_ATTRIBUTES)?) };
        create(id, attr)
    })
}

/// Ends the queue pair of an id.
pub(crate) fn destroy(id: &Id) {
    let qp = id.change(|seen| std::mem::replace(&mut seen.qp, null_mut()));
    if !qp.is_null() {
        // SAFETY: the queue pair belonged to the id, and is taken from it once.
        unsafe { (id.provider.verbs.ibv_destroy_qp)(qp) };
    }
    queues::destroy(id, true, !id.own(|own| own.srq_uses_cq));
}

/// Ends the queue pair of an id, with the completion queues that were made with it.
///
/// # Safety
/// The id is null or live, and nobody uses its queue pair.
pub unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    effect_of(c"rdma_destroy_qp", || {
        // SAFETY: by the contract of this function.
        destroy(unsafe { Id::of(id) }?);
        Ok(())
    });
}

/// Fills in the attributes that move a queue pair to the state in `qp_attr`, for a program that has its own queue pair.
///
/// # Safety
/// All pointers are null or valid.
pub unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    qp_attr: *mut ibv_qp_attr,
    qp_attr_mask: *mut c_int,
) -> c_int {
    zero_of(c"rdma_init_qp_attr", || {
        // SAFETY: by the contract of this function.
        let (id, attr, mask) = unsafe { (Id::of(id)?, qp_attr.as_mut(), qp_attr_mask.as_mut()) };
        let (Some(attr), Some(mask)) = (attr, mask) else {
            return Err(Wrong::invalid("qp_attr or qp_attr_mask is null"));
        };
        *mask = attributes(id, attr)?;
        sanitized::written(attr);
        sanitized::written(mask);
        Ok(())
    })
}
