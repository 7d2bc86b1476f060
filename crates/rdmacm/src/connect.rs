//! Connections: made, refused and ended by `rdma_connect(3)`, `rdma_accept(3)`, `rdma_establish(3)`, `rdma_reject(3)`,
//! `rdma_disconnect(3)`, `rdma_notify(3)`; and the offers of enhanced connection establishment.

use std::ffi::{c_int, c_void};

use transom_abi::*;

use crate::check;
use crate::entry::{attempt, zero, zero_of};
use crate::id::Id;
use crate::sanitized;
use crate::wrong::Wrong;
use crate::{arrival, qp};

/// The reason for a rejection of the peer's offer of enhanced connection establishment.
const VENDOR_OPTION_NOT_SUPPORTED: u8 = 35;
/// As responder resources or initiator depth: the device's maximum.
const MOST: u8 = u8::MAX;
/// The number of retries of a request, unless the program sets one.
const RETRIES: u8 = 7;

const NO_ECE: Wrong = Wrong::invalid("ece is null");
const OWN_ECE: Wrong =
    Wrong::invalid("the id has a queue pair: the library exchanges its options itself");

/// Checks the program's parameters.
fn check(id: &Id, given: Option<&rdma_conn_param>) -> Result<(), Wrong> {
    let seen = id.seen();
    let limits = id.device()?.limits;
    if seen.ps != RDMA_PS_TCP {
        return Ok(());
    }
    match given {
        // There is no queue pair to connect.
        None if seen.qp.is_null() => Err(Wrong::invalid(
            "conn_param is null, and the id has no queue pair: rdma_create_qp, or give qp_num",
        )),
        Some(given)
            if given.responder_resources != MOST && given.responder_resources > limits.0
                || given.initiator_depth != MOST && given.initiator_depth > limits.1 =>
        {
            Err(Wrong::told(
                libc::EINVAL,
                format!(
                    "responder_resources is {} and initiator_depth {}: they may be at most {} and {}, \
                     or RDMA_MAX_RESP_RES and RDMA_MAX_INIT_DEPTH",
                    given.responder_resources, given.initiator_depth, limits.0, limits.1
                ),
            ))
        }
        _ => Ok(()),
    }
}

/// The program's parameters, if it gives any. Refused if they belong to an event that was acknowledged.
///
/// # Safety
/// The parameters are null or valid.
unsafe fn given<'a>(param: *mut rdma_conn_param) -> Result<Option<&'a rdma_conn_param>, Wrong> {
    check::used(param, "conn_param is of an event that was acknowledged")?;
    // SAFETY: by the contract of this function.
    Ok(unsafe { param.as_ref() })
}

/// The program's private data. Where it gives no pointer there are none, whatever length it gives.
///
/// # Safety
/// `from` is null, or has `length` bytes as long as the result is used.
unsafe fn private_data<'a>(from: *const c_void, length: u8) -> Result<&'a [u8], Wrong> {
    if from.is_null() || length == 0 {
        return Ok(&[]);
    }
    check::bytes_used(from, length.into(), "private_data is of an event that was acknowledged")?;
    sanitized::bytes_sent(from.cast(), length.into());
    // SAFETY: by the contract of this function.
    Ok(unsafe { std::slice::from_raw_parts(from.cast::<u8>(), length.into()) })
}

/// The form that private data have in commands: all parts, one behind the other, and their length.
fn joined(parts: &[&[u8]]) -> Result<([u8; RDMA_MAX_PRIVATE_DATA], u8), Wrong> {
    let all = parts.concat();
    let length = u8::try_from(all.len());
    let length =
        length.map_err(|_| Wrong::invalid("there are more than 255 bytes of private data"))?;
    let mut room = [0; RDMA_MAX_PRIVATE_DATA];
    room[..all.len()].copy_from_slice(&all);
    Ok((room, length))
}

/// The parameters of a command: the program's, and the queue pair of the id if it has one.
///
/// # Safety
/// The program's private data has the length that it gives.
unsafe fn parameters(
    id: &Id,
    given: Option<&rdma_conn_param>,
    (responder_resources, initiator_depth): (u8, u8),
) -> Result<rdma_ucm_conn_param, Wrong> {
    let seen = id.seen();
    let mut to = rdma_ucm_conn_param {
        responder_resources,
        initiator_depth,
        retry_count: RETRIES,
        rnr_retry_count: RETRIES,
        valid: 1,
        ..Default::default()
    };
    let data = match given {
        // SAFETY: by the contract of this function.
        Some(given) => unsafe { private_data(given.private_data, given.private_data_len) }?,
        None => &[],
    };
    let first = id.own(|own| own.connect_data.clone());
    (to.private_data, to.private_data_len) = joined(&[&first, data])?;
    if let Some(given) = given {
        to.flow_control = given.flow_control;
        to.retry_count = given.retry_count;
        to.rnr_retry_count = given.rnr_retry_count;
        to.qp_num = given.qp_num;
        to.srq = given.srq;
    }
    // SAFETY: the queue pair belongs to the id, and is live.
    if let Some(qp) = unsafe { seen.qp.as_ref() } {
        to.qp_num = qp.qp_num;
        to.srq = (!qp.srq.is_null()).into();
    }
    Ok(to)
}

/// This end's offer of enhanced connection establishment.
fn offer(id: &Id) -> Result<rdma_ucm_ece, Wrong> {
    let qp = id.seen().qp;
    let ece = if qp.is_null() {
        id.own(|own| own.local_ece)
    } else {
        // SAFETY: the queue pair belongs to the id, and is live.
        unsafe { id.provider.verbs.ece_of(qp) }?
    };
    Ok(rdma_ucm_ece { vendor_id: ece.vendor_id, attr_mod: ece.options })
}

/// This end's answer to the peer's offer. It carries the peer's vendor number, because a peer that has offered nothing
/// takes any other number for a mistake.
fn answer(id: &Id) -> Result<rdma_ucm_ece, Wrong> {
    match id.own(|own| own.remote_ece.vendor_id) {
        0 => Ok(rdma_ucm_ece::default()),
        vendor_id => Ok(rdma_ucm_ece { vendor_id, ..offer(id)? }),
    }
}

/// # Safety
/// The program's private data has the length that it gives.
pub(crate) unsafe fn connect(id: &Id, given: Option<&rdma_conn_param>) -> Result<(), Wrong> {
    check(id, given)?;
    let limits = id.device()?.limits;
    let depth = |given: Option<u8>, most| given.filter(|depth| *depth != MOST).unwrap_or(most);
    let depths = (
        depth(given.map(|given| given.responder_resources), limits.0),
        depth(given.map(|given| given.initiator_depth), limits.1),
    );
    // SAFETY: by the contract of this function.
    let conn_param = unsafe { parameters(id, given, depths) }?;
    let connect = rdma_ucm_connect { conn_param, id: id.handle, reserved: 0, ece: offer(id)? };
    id.file()?.tell(RDMA_USER_CM_CMD_CONNECT, connect)?;
    id.own(|own| own.connect_data = Vec::new());
    Ok(())
}

/// Connects. For datagrams, it finds the peer's queue pair.
///
/// # Safety
/// All pointers are null or valid.
pub unsafe extern "C-unwind" fn rdma_connect(
    id: *mut rdma_cm_id,
    conn_param: *mut rdma_conn_param,
) -> c_int {
    // SAFETY: by the contract of this function.
    let begun = attempt(|| unsafe { connect(Id::of(id)?, given(conn_param)?) });
    // SAFETY: the id is live.
    zero(c"rdma_connect", begun.and_then(|()| unsafe { arrival::complete(id) }))
}

/// # Safety
/// The program's private data has the length that it gives.
unsafe fn accept_with(id: &Id, given: Option<&rdma_conn_param>) -> Result<(), Wrong> {
    check(id, given)?;
    let (asked, limits) = (id.own(|own| own.asked), id.device()?.limits);
    // Use the peer's wish, up to the device's maximum, unless the program sets a value.
    let depth = |given: Option<u8>, asked: u8, most: u8| {
        given.filter(|depth| *depth != MOST).unwrap_or(asked.min(most))
    };
    let depths = (
        depth(given.map(|given| given.responder_resources), asked.0, limits.0),
        depth(given.map(|given| given.initiator_depth), asked.1, limits.1),
    );
    let qp = id.seen().qp;
    if !qp.is_null() && !id.is_datagram() {
        let remote = id.own(|own| own.remote_ece);
        if remote.vendor_id != 0 {
            // SAFETY: the queue pair belongs to the id, and is live.
            unsafe {
                let own = id.provider.verbs.ece_of(qp)?;
                // The meaning of another vendor's options is unknown here.
                let options = if remote.vendor_id == own.vendor_id { remote.options } else { 0 };
                id.provider.verbs.set_ece(qp, ibv_ece { options, ..own })?;
            }
        }
        qp::ready_to_receive(id, qp, Some(depths.0))?;
        qp::ready_to_send(id, qp, Some(depths.1))?;
    }
    let accept = rdma_ucm_accept {
        uid: id.uid(),
        // SAFETY: by the contract of this function.
        conn_param: unsafe { parameters(id, given, depths) }?,
        id: id.handle,
        reserved: 0,
        ece: answer(id)?,
    };
    id.file()?.tell(RDMA_USER_CM_CMD_ACCEPT, accept)
}

/// Accepts a request. The id's queue pair can send and receive before the peer gets the answer (rule CM-03).
///
/// # Safety
/// All pointers are null or valid.
pub unsafe extern "C-unwind" fn rdma_accept(
    id: *mut rdma_cm_id,
    conn_param: *mut rdma_conn_param,
) -> c_int {
    let begun = attempt(|| {
        // SAFETY: by the contract of this function.
        let (id, given) = unsafe { (Id::of(id)?, given(conn_param)?) };
        // SAFETY: by the contract of this function.
        unsafe { accept(id, given) }.map(|()| id.is_datagram())
    });
    let accepted = begun.and_then(|is_datagram| match is_datagram {
        // No peer confirms an accept of datagrams, so there is no event to wait for.
        true => Ok(()),
        // SAFETY: the id is live.
        false => unsafe { arrival::complete(id) },
    });
    zero(c"rdma_accept", accepted)
}

/// # Safety
/// The program's private data has the length that it gives.
pub(crate) unsafe fn accept(id: &Id, given: Option<&rdma_conn_param>) -> Result<(), Wrong> {
    // SAFETY: by the contract of this function.
    unsafe { accept_with(id, given) }.inspect_err(|_| _ = qp::fail(id))
}

/// Confirms the peer's answer, for a program that has its own queue pair.
///
/// # Safety
/// The id is null or live.
pub unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    zero_of(c"rdma_establish", || {
        // SAFETY: by the contract of this function.
        let id = unsafe { Id::of(id) }?;
        if id.seen().qp.is_null() {
            arrival::confirm(id)
        } else {
            Err(Wrong::invalid("the id has a queue pair, which the library brings up itself"))
        }
    })
}

/// # Safety
/// The id is null or live, and `data` has `length` bytes.
pub(crate) unsafe fn reject(
    id: *mut rdma_cm_id,
    data: *const c_void,
    length: u8,
    reason: u8,
) -> Result<(), Wrong> {
    // SAFETY: by the contract of this function.
    let (id, data) = unsafe { (Id::of(id)?, private_data(data, length)?) };
    let (private_data, private_data_len) = joined(&[data])?;
    let reject =
        rdma_ucm_reject { id: id.handle, private_data_len, reason, reserved: [0; 2], private_data };
    id.file()?.tell(RDMA_USER_CM_CMD_REJECT, reject)
}

/// Refuses a request.
///
/// # Safety
/// The id is null or live, and `private_data` has `private_data_len` bytes.
pub unsafe extern "C" fn rdma_reject(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    // SAFETY: by the contract of this function.
    zero_of(c"rdma_reject", || unsafe { reject(id, private_data, private_data_len, 0) })
}

/// Refuses a request or an answer because of its offer of enhanced connection establishment.
///
/// # Safety
/// The id is null or live, and `private_data` has `private_data_len` bytes.
pub unsafe extern "C" fn rdma_reject_ece(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    let reason = VENDOR_OPTION_NOT_SUPPORTED;
    // SAFETY: by the contract of this function.
    zero_of(c"rdma_reject_ece", || unsafe { reject(id, private_data, private_data_len, reason) })
}

/// Ends a connection, or confirms that the peer has ended it. Afterwards the id's queue pair is in the error state, and
/// its posted work is flushed.
///
/// # Safety
/// The id is null or live.
pub unsafe extern "C-unwind" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    let begun = attempt(|| {
        // SAFETY: by the contract of this function.
        let id = unsafe { Id::of(id) }?;
        id.device()?;
        qp::fail(id)?;
        let disconnect = rdma_ucm_disconnect { id: id.handle };
        id.file()?.tell(RDMA_USER_CM_CMD_DISCONNECT, disconnect)
    });
    // SAFETY: the id is live.
    zero(c"rdma_disconnect", begun.and_then(|()| unsafe { arrival::complete(id) }))
}

/// Passes on an event of the queue pair that the program has received (rule CM-47).
///
/// # Safety
/// The id is null or live.
pub unsafe extern "C" fn rdma_notify(id: *mut rdma_cm_id, event: ibv_event_type) -> c_int {
    zero_of(c"rdma_notify", || {
        // SAFETY: by the contract of this function.
        let id = unsafe { Id::of(id) }?;
        id.file()?.tell(RDMA_USER_CM_CMD_NOTIFY, rdma_ucm_notify { id: id.handle, event })
    })
}

/// Sets the offer of the next request or answer, for a program that has its own queue pair.
///
/// # Safety
/// All pointers are null or valid.
pub unsafe extern "C" fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    zero_of(c"rdma_set_local_ece", || {
        // SAFETY: by the contract of this function.
        let (id, ece) = unsafe { (Id::of(id)?, ece.as_ref().ok_or(NO_ECE)?) };
        if !id.seen().qp.is_null() {
            return Err(OWN_ECE);
        }
        if ece.vendor_id == 0 || ece.comp_mask != 0 {
            return Err(Wrong::invalid("ece.vendor_id is 0, or ece.comp_mask is not"));
        }
        id.own(|own| own.local_ece = *ece);
        Ok(())
    })
}

/// Reads the peer's offer, for a program that has its own queue pair.
///
/// # Safety
/// All pointers are null or valid.
pub unsafe extern "C" fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    zero_of(c"rdma_get_remote_ece", || {
        // SAFETY: by the contract of this function.
        let (id, ece) = unsafe { (Id::of(id)?, ece.as_mut().ok_or(NO_ECE)?) };
        if !id.seen().qp.is_null() {
            return Err(OWN_ECE);
        }
        *ece = id.own(|own| own.remote_ece);
        sanitized::written(ece);
        Ok(())
    })
}
