//! `ibv_create_qp_ex(3)`, `ibv_qp_to_qp_ex(3)`.

use transom_abi::*;

use crate::context::Context;
use crate::create_qp;
use crate::entry::pointer_of;
use crate::qp::{self, Qp};
use crate::wrong::Wrong;
use crate::xrc;

/// Creates a queue pair in RESET (`ibv_create_qp_ex(3)`). If the program asks for it, the queue pair has a batch in
/// which to build send work requests.
///
/// # Safety
/// `context` is null or open; `init` is null or valid.
pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    pointer_of("ibv_create_qp_ex", || {
        // SAFETY: by the contract of this verb.
        let Some(init) = (unsafe { init.as_mut() }) else { return Err(libc::EINVAL) };
        // SAFETY: as above.
        unsafe {
            let ours = Context::of(context);
            check_extensions(context, init)
                .and_then(|()| check_xrc_domain(ours, init))
                .map_err(|wrong| wrong.told(None, "ibv_create_qp_ex", 0))?;
            create_qp::create("ibv_create_qp_ex", init)
        }
    })
}

/// Checks the attributes that only the extended form has. `EINVAL` for unknown ones, `EOPNOTSUPP` for those that this
/// device does not support.
fn check_extensions(context: *mut ibv_context, init: &ibv_qp_init_attr_ex) -> Result<(), Wrong> {
    const NOT_HERE: u32 =
        IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
    const KNOWN: u32 = NOT_HERE
        | IBV_QP_INIT_ATTR_PD
        | IBV_QP_INIT_ATTR_XRCD
        | IBV_QP_INIT_ATTR_CREATE_FLAGS
        | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    const CREATE_FLAGS: u32 = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB
        | IBV_QP_CREATE_SCATTER_FCS
        | IBV_QP_CREATE_CVLAN_STRIPPING
        | IBV_QP_CREATE_SOURCE_QPN
        | IBV_QP_CREATE_PCI_WRITE_END_PADDING;
    let asks = |bits| init.comp_mask & bits != 0;
    if asks(!KNOWN) {
        return Err(Wrong::invalid("comp_mask", (init.comp_mask & !KNOWN).into(), ""));
    }
    if asks(NOT_HERE) {
        return Err(Wrong::unsupported("comp_mask", (init.comp_mask & NOT_HERE).into(), ""));
    }
    if asks(IBV_QP_INIT_ATTR_CREATE_FLAGS) && init.create_flags != 0 {
        let (known, flags) = (init.create_flags & !CREATE_FLAGS == 0, init.create_flags.into());
        let wrong = if known { Wrong::unsupported } else { Wrong::invalid };
        return Err(wrong("create_flags", flags, ""));
    }
    if init.qp_type == IBV_QPT_XRC_RECV {
        return Ok(());
    }
    // Only the receiving end belongs to an XRC domain.
    if asks(IBV_QP_INIT_ATTR_XRCD) {
        const SAID: &str = "comp_mask has IBV_QP_INIT_ATTR_XRCD, which only IBV_QPT_XRC_RECV takes";
        return Err(Wrong::because(libc::EINVAL, SAID, ""));
    }
    // A field outside `comp_mask` may hold anything.
    let pd = if asks(IBV_QP_INIT_ATTR_PD) { init.pd } else { std::ptr::null_mut() };
    // SAFETY: it is null or a domain's struct, which stays readable.
    match unsafe { pd.as_ref() } {
        Some(pd) if pd.context == context => Ok(()),
        _ => Err(Wrong::unknown("pd", libc::EINVAL, "PD-08")),
    }
}

/// The receiving end of XRC has the context of its domain, so that must be the verb's.
///
/// # Safety
/// `init` is valid.
unsafe fn check_xrc_domain(
    ours: Option<&Context>,
    init: &ibv_qp_init_attr_ex,
) -> Result<(), Wrong> {
    let takes = init.qp_type == IBV_QPT_XRC_RECV && init.comp_mask & IBV_QP_INIT_ATTR_XRCD != 0;
    // SAFETY: by the contract of this function. What is not found is refused later.
    let is_other = takes
        && unsafe {
            xrc::find(init.xrcd).is_ok()
                && ours.is_some_and(|ours| !ours.goes_with((*init.xrcd).context))
        };
    if is_other { Err(Wrong::OTHER_CONTEXT) } else { Ok(()) }
}

/// The extended form of a queue pair. Null if it was not created to build requests.
///
/// # Safety
/// `qp` is null or live.
pub unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    pointer_of("ibv_qp_to_qp_ex", || {
        // SAFETY: by the contract of this verb.
        match unsafe { qp::ours(qp) } {
            Some(Qp { batch: Some(_), .. }) => Ok(qp.cast()),
            _ => Err(libc::EOPNOTSUPP),
        }
    })
}
