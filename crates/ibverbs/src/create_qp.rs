//! `ibv_create_qp(3)`, `ibv_open_qp(3)`, and the parts of each type of queue pair.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use transom_abi::*;
use transom_device::execution::RequesterLimits;
use transom_device::qp::Service;
use transom_host::Limits;
use transom_host::objects::{Cq, ProtectionDomain, QpConfig, QpReceives, QueuePair};

use crate::batch::Batch;
use crate::check;
use crate::context::Context;
use crate::entry::pointer_of;
use crate::qp::{self, Qp};
use crate::sanitized;
use crate::wrong::Wrong;
use crate::{cq, pd, profile, rehearse, srq, wr, xrc};

/// Creates a queue pair in RESET (rules CR-01 to CR-08). The receiving end of XRC needs the extended verb, which can
/// name an XRC domain.
///
/// # Safety
/// `pd` is null or readable; `init` is null or valid.
pub unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    pointer_of("ibv_create_qp", || {
        // SAFETY: by the contract of this verb.
        let Some(init) = (unsafe { init.as_mut() }) else { return Err(libc::EINVAL) };
        let mut extended = ibv_qp_init_attr_ex {
            qp_context: init.qp_context,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            cap: init.cap,
            qp_type: init.qp_type,
            sq_sig_all: init.sq_sig_all,
            comp_mask: IBV_QP_INIT_ATTR_PD,
            pd,
            ..ibv_qp_init_attr_ex::default()
        };
        // SAFETY: as above.
        let created = unsafe { create("ibv_create_qp", &mut extended) };
        init.cap = extended.cap;
        sanitized::has_filled(&raw const init.cap);
        created
    })
}

/// Creates a queue pair for either verb.
///
/// # Safety
/// The domains are null or readable; other pointers in `init` are valid.
pub(crate) unsafe fn create(
    verb: &'static str,
    init: &mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp, c_int> {
    // SAFETY: by the contract of this function.
    unsafe {
        try_create(init).map_err(|wrong| {
            // The fault may come before the domain is looked up. Look it up here, because the refusal is noted at its
            // device.
            let given = init.comp_mask & IBV_QP_INIT_ATTR_PD != 0;
            let _ = pd::find(if given { init.pd } else { std::ptr::null_mut() });
            wrong.told(None, verb, 0)
        })
    }
}

/// # Safety
/// As [`create`].
unsafe fn try_create(init: &mut ibv_qp_init_attr_ex) -> Result<*mut ibv_qp, Wrong> {
    let service = service(init.qp_type)?;
    profile::needs_service(service, init.qp_type)?;
    let wants_batch = init.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
    let operations = if wants_batch { init.send_ops_flags } else { 0 };
    let unsupported = operations & (!wr::operations_of(service) | profile::lacking_operations());
    if unsupported != 0 {
        return Err(Wrong::unsupported("send_ops_flags", unsupported, "PS-06"));
    }
    let cap = capacity(init, service)?;
    // SAFETY: by the contract of this function.
    let parts = unsafe { parts(init, service, &cap) }?;
    // SAFETY: a context outlives its domains.
    let context = unsafe { Context::of(parts.context) }.ok_or(libc::EINVAL)?;
    // SAFETY: those of live objects.
    if !parts.contexts.iter().all(|other| unsafe { context.goes_with(*other) }) {
        return Err(Wrong::OTHER_CONTEXT);
    }
    rehearse::may_make()?;
    let batch = wants_batch.then(|| Batch::new(init.qp_type, operations, cap)).transpose()?;
    // Events carry the handle, so reserve it first.
    let handle = qp::reserve();
    let config = QpConfig {
        pd: parts.pd,
        service,
        send_cq: parts.send_cq,
        receive_cq: parts.receive_cq,
        send: RequesterLimits {
            size: cap.max_send_wr as usize,
            max_sge: cap.max_send_sge as usize,
            inline_room: cap.max_inline_data as usize,
            signal_all: init.sq_sig_all != 0,
        },
        receives: parts.receives,
        events: context.events.clone(),
        id: u64::from(handle),
    };
    let pair = QueuePair::create(&context.adapter, config)
        .map_err(|error| Wrong::of_object(error, "CR-03"))?;
    context.adopt();
    let sends = service != Service::XrcTarget;
    let receives = !matches!(service, Service::XrcInitiator | Service::XrcTarget);
    let plain = ibv_qp {
        context: parts.context,
        qp_context: init.qp_context,
        pd: if sends { init.pd } else { std::ptr::null_mut() },
        send_cq: if sends { init.send_cq } else { std::ptr::null_mut() },
        recv_cq: if receives { init.recv_cq } else { std::ptr::null_mut() },
        srq: if receives { init.srq } else { std::ptr::null_mut() },
        qp_num: pair.number().bits(),
        state: IBV_QPS_RESET,
        qp_type: init.qp_type,
        ..ibv_qp::default()
    };
    let qp = Qp::new(pair.clone(), init.qp_type, batch, cap);
    let asked = std::mem::replace(&mut init.cap, cap);
    sanitized::has_filled(&raw const init.cap);
    let made = qp::enter(handle, wr::extended(plain), qp);
    if let Some(checker) = check::on() {
        checker.pair_made(made.addr(), &pair, &asked, init);
    }
    Ok(made)
}

fn service(kind: ibv_qp_type) -> Result<Service, Wrong> {
    match kind {
        IBV_QPT_RC => Ok(Service::Rc),
        IBV_QPT_UC => Ok(Service::Uc),
        IBV_QPT_UD => Ok(Service::Ud),
        IBV_QPT_XRC_SEND => Ok(Service::XrcInitiator),
        IBV_QPT_XRC_RECV => Ok(Service::XrcTarget),
        IBV_QPT_RAW_PACKET | IBV_QPT_DRIVER => {
            Err(Wrong::unsupported("qp_type", kind.into(), "CR-05"))
        }
        _ => Err(Wrong::invalid("qp_type", kind.into(), "CR-05")),
    }
}

/// The length of a gather entry in bytes: address, length and key.
const GATHER_ENTRY: u32 = 16;

/// The sizes that the queue pair gets. Queues are at least as deep as asked for. The other sizes are as asked for, but
/// zero for queues that the type does not have (rules CR-02, CR-03, CR-08).
fn capacity(init: &ibv_qp_init_attr_ex, service: Service) -> Result<ibv_qp_cap, Wrong> {
    let limits = Limits::here();
    let mut cap = init.cap;
    let xrc = matches!(service, Service::XrcInitiator | Service::XrcTarget);
    if xrc || !init.srq.is_null() {
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
    }
    if service == Service::XrcTarget {
        (cap.max_send_wr, cap.max_send_sge, cap.max_inline_data) = (0, 0, 0);
    }
    let inline = match service {
        Service::Ud => limits.datagram_inline,
        _ => limits.inline,
    };
    let asked = [
        ("cap.max_send_wr", cap.max_send_wr, limits.work_requests),
        ("cap.max_recv_wr", cap.max_recv_wr, limits.work_requests),
        ("cap.max_send_sge", cap.max_send_sge, limits.max_sge),
        ("cap.max_recv_sge", cap.max_recv_sge, limits.max_sge),
        ("cap.max_inline_data", cap.max_inline_data, inline),
    ];
    if let Some((field, asked, limit)) = asked.into_iter().find(|(_, asked, limit)| asked > limit) {
        return Err(Wrong::too_much(field, asked.into(), limit.into(), "CR-03"));
    }
    if rehearse::is_exact() {
        return Ok(cap);
    }
    if service != Service::XrcTarget {
        let batch = init.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
        // Adapters have that much inline room in place of a gather entry, and programs use it without having asked for
        // it. An atomic write takes its 8 bytes when it is built.
        let own = cap.max_inline_data.max(GATHER_ENTRY);
        let granted = profile::inline(&cap, service, batch.then_some(init.send_ops_flags));
        cap.max_inline_data = granted.unwrap_or(own).min(inline);
    }
    if cap.max_recv_wr > 0 {
        // Adapters have room for one SGE in every receive.
        cap.max_recv_sge = cap.max_recv_sge.max(1);
    }
    let depth = |asked| Limits::depth(asked).min(limits.work_requests);
    cap.max_send_wr = depth(cap.max_send_wr);
    cap.max_recv_wr = depth(cap.max_recv_wr);
    Ok(cap)
}

/// The objects that a queue pair of its type uses.
struct Parts {
    context: *mut ibv_context,
    /// Those of the queues, or null.
    contexts: [*mut ibv_context; 3],
    pd: Option<Arc<ProtectionDomain>>,
    send_cq: Option<Arc<Cq>>,
    receive_cq: Option<Arc<Cq>>,
    receives: QpReceives,
}

/// # Safety
/// As [`create`].
unsafe fn parts(
    init: &ibv_qp_init_attr_ex,
    service: Service,
    cap: &ibv_qp_cap,
) -> Result<Parts, Wrong> {
    let kind = u64::from(init.qp_type);
    if service == Service::XrcTarget {
        if init.comp_mask & IBV_QP_INIT_ATTR_XRCD == 0 {
            const SAID: &str = "IBV_QPT_XRC_RECV needs xrcd, and IBV_QP_INIT_ATTR_XRCD in comp_mask (ibv_create_qp_ex)";
            return Err(Wrong::because(libc::EINVAL, SAID, ""));
        }
        if !init.srq.is_null() {
            return Err(Wrong::invalid("srq with a qp_type", kind, "CR-07"));
        }
        // SAFETY: by the contract of this function. `find` has checked that it is live.
        let (domain, context) = unsafe { (xrc::find(init.xrcd)?, (*init.xrcd).context) };
        let (contexts, receives) = ([std::ptr::null_mut(); 3], QpReceives::Xrc(domain));
        return Ok(Parts {
            context,
            contexts,
            pd: None,
            send_cq: None,
            receive_cq: None,
            receives,
        });
    }
    // SAFETY: by the contract of this function.
    let (pd, send_cq) = unsafe { (pd::find(init.pd), cq::find(init.send_cq)) };
    let pd = pd.map_err(|errno| Wrong::unknown("pd", errno, "PD-08"))?;
    let send_cq = send_cq.map_err(|errno| Wrong::unknown("send_cq", errno, "CR-06"))?;
    let (context, pd, send_cq) = (pd.context, Some(pd.domain), Some(send_cq));
    let shared = match service {
        _ if init.srq.is_null() => None,
        // SAFETY: by the contract of this function.
        Service::Rc | Service::Ud => Some(
            unsafe { srq::find(init.srq) }
                .map_err(|errno| Wrong::unknown("srq", errno, "CR-06"))?,
        ),
        _ => return Err(Wrong::invalid("srq with a qp_type", kind, "CR-07")),
    };
    let tag_matching = shared.as_ref().and_then(|srq| srq.config().tag_matching.clone());
    if let (Some(srq), Some(_)) = (&shared, &tag_matching) {
        // Tags are matched for RC only. Its READs into a tagged buffer use the queue pair's own protection domain, so
        // the shared queue must have the same.
        let number = srq.config().pd.number();
        let same_pd = pd.as_ref().is_some_and(|pd| pd.number() == number);
        if service != Service::Rc || !same_pd {
            const SAID: &str =
                "a queue that matches tags serves only RC queue pairs in its own protection domain";
            return Err(Wrong::because(libc::EINVAL, SAID, ""));
        }
    }
    let receives = match (service, shared) {
        (Service::XrcInitiator, _) => QpReceives::Nowhere,
        (_, Some(srq)) => QpReceives::Srq(srq),
        (_, None) => {
            QpReceives::Own { size: cap.max_recv_wr as usize, max_sge: cap.max_recv_sge as usize }
        }
    };
    let receive_cq = match service {
        Service::XrcInitiator => None,
        // SAFETY: by the contract of this function.
        _ => Some(
            unsafe { cq::find(init.recv_cq) }
                .map_err(|errno| Wrong::unknown("recv_cq", errno, "CR-06"))?,
        ),
    };
    // SAFETY: null or live, as found above. XRC_SEND may name anything as its queues of receives.
    let contexts = unsafe {
        let none = std::ptr::null_mut();
        let receives = if receive_cq.is_some() { (*init.recv_cq).context } else { none };
        let shared = if init.srq.is_null() { none } else { (*init.srq).context };
        [(*init.send_cq).context, receives, shared]
    };
    // With tag matching, all receives complete to the shared queue's completion queue.
    let receive_cq = tag_matching.map(|matching| matching.cq).or(receive_cq);
    Ok(Parts { context, contexts, pd, send_cq, receive_cq, receives })
}

/// Opens by its number the receiving end of an XRC connection that this process has made.
///
/// # Safety
/// `context` is open; `attr` is null or readable.
pub(crate) unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    pointer_of("ibv_open_qp", || {
        const NEEDED: u32 = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
        // SAFETY: by the contract of this verb.
        (|| unsafe {
            let attr = attr.as_ref().ok_or(libc::EINVAL)?;
            let ours = Context::to_make_in(context)?;
            let known = attr.comp_mask < IBV_QP_OPEN_ATTR_RESERVED;
            if !known || attr.comp_mask & NEEDED != NEEDED || attr.qp_type != IBV_QPT_XRC_RECV {
                return Err(libc::EINVAL);
            }
            let domain = xrc::find(attr.xrcd)?;
            if !ours.goes_with((*attr.xrcd).context) {
                return Err(Wrong::OTHER_CONTEXT.told(None, "ibv_open_qp", 0));
            }
            let pair = ours.adapter.open_xrc_target(attr.qp_num, &domain).ok_or(libc::ENOENT)?;
            let named = attr.comp_mask & IBV_QP_OPEN_ATTR_CONTEXT != 0;
            let qp_context = if named { attr.qp_context } else { std::ptr::null_mut() };
            Ok(opened(context, ours, qp_context, pair))
        })()
    })
}

/// The C object for an opened receiving end of an XRC connection.
fn opened(
    context: *mut ibv_context,
    ours: &Context,
    qp_context: *mut c_void,
    pair: Arc<QueuePair>,
) -> *mut ibv_qp {
    ours.adopt();
    let plain = ibv_qp {
        context,
        qp_context,
        qp_num: pair.number().bits(),
        state: pair.query().0.state as ibv_qp_state,
        qp_type: IBV_QPT_XRC_RECV,
        ..ibv_qp::default()
    };
    let qp = Qp::new(pair, IBV_QPT_XRC_RECV, None, ibv_qp_cap::default());
    qp::enter(qp::reserve(), wr::extended(plain), qp)
}
