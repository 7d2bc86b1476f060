//! `ibv_create_qp(3)`, `ibv_modify_qp(3)`, `ibv_query_qp(3)`.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use parking_lot::Mutex;
use transom_abi::*;
use transom_device::execution::RequesterLimits;
use transom_device::qp::{Mask, QpState, Service};
use transom_host::objects::{
    Cq, Destination, ProtectionDomain, QpAttributes, QpConfig, QpReceives, QueuePair, RegisterError,
};
use transom_host::{Adapter, GIDS, Limits};

use crate::context::Context;
use crate::event::EventCount;
use crate::object::{Handled, InContext, Object, Table};
use crate::wr::{self, Batch};
use crate::{ah, cq, errno_of, null_with, pd, srq, xrc};

/// A queue pair, and what only C wants back.
pub(crate) struct Qp {
    pub(crate) pair: Arc<QueuePair>,
    /// Its type, as it was created.
    pub(crate) kind: ibv_qp_type,
    /// What `ibv_wr_start` and its family build, if it was created for them.
    pub(crate) batch: Option<Mutex<Batch>>,
    cap: ibv_qp_cap,
    address: ibv_ah_attr,
    rate_limit: u32,
    events: Arc<EventCount>,
}

/// Every queue pair has room for the extended form, whose first field is the plain one.
type QpObject = Object<ibv_qp_ex_flush, Qp>;

static QPS: Table<ibv_qp_ex_flush, Qp> = Table::new();

impl InContext for ibv_qp_ex_flush {
    fn context(&self) -> *mut ibv_context {
        self.base.qp_base.context
    }
}

impl Handled for ibv_qp_ex_flush {
    fn handle(&self) -> u32 {
        self.base.qp_base.handle
    }

    fn set_handle(&mut self, handle: u32) {
        self.base.qp_base.handle = handle;
    }
}

/// Ours, straight from a live pointer: posting trusts it, as C demands.
///
/// # Safety
/// `qp` is null or live.
#[inline]
pub(crate) unsafe fn ours<'a>(qp: *mut ibv_qp) -> Option<&'a Qp> {
    // SAFETY: by the contract of this function.
    unsafe { qp.cast::<QpObject>().as_ref() }?.inner.as_ref()
}

/// The device's queue pair, likewise.
///
/// # Safety
/// As [`ours`].
#[inline]
pub(crate) unsafe fn of<'a>(qp: *mut ibv_qp) -> Option<&'a QueuePair> {
    // SAFETY: by the contract of this function.
    Some(&unsafe { ours(qp) }?.pair)
}

/// Whether a pointer names a queue pair that is not destroyed.
///
/// # Safety
/// `qp` is null or readable.
pub(crate) unsafe fn is_live(qp: *mut ibv_qp) -> bool {
    // SAFETY: by the contract of this function.
    unsafe { QPS.with(qp.cast(), |object| object.inner.is_some()) }.unwrap_or(false)
}

/// Creates a queue pair in RESET (rules CR-01 to CR-08). The receiving end of XRC needs the extended
/// verb, to name its XRC domain.
///
/// # Safety
/// `pd` is null or readable; `init` is null or valid.
pub unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: by the contract of this verb.
    let Some(init) = (unsafe { init.as_mut() }) else { return null_with(libc::EINVAL) };
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
    let created = unsafe { create(&mut extended) };
    init.cap = extended.cap;
    created.unwrap_or_else(null_with)
}

/// Creates a queue pair for either verb.
///
/// # Safety
/// The domains are null or readable; other pointers in `init` are valid.
pub(crate) unsafe fn create(init: &mut ibv_qp_init_attr_ex) -> Result<*mut ibv_qp, c_int> {
    let service = service(init.qp_type)?;
    let wants_batch = init.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
    let operations = if wants_batch { init.send_ops_flags } else { 0 };
    if operations & !wr::operations_of(init.qp_type) != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    let cap = capacity(init, service, operations)?;
    // SAFETY: by the contract of this function.
    let parts = unsafe { parts(init, service, &cap) }?;
    // SAFETY: a context outlives its domains.
    let context = unsafe { Context::of(parts.context) }.ok_or(libc::EINVAL)?;
    // The handle names the queue pair in events, so it comes first.
    let handle = QPS.reserve();
    let config = QpConfig {
        pd: parts.pd,
        service,
        send_cq: parts.send_cq,
        receive_cq: parts.receive_cq,
        send: RequesterLimits {
            size: cap.max_send_wr as usize,
            pieces: cap.max_send_sge as usize,
            inline_room: cap.max_inline_data as usize,
            signal_all: init.sq_sig_all != 0,
        },
        receives: parts.receives,
        events: context.events.clone(),
        id: u64::from(handle),
    };
    let pair = QueuePair::create(&context.adapter, config).map_err(|error| match error {
        RegisterError::Busy => libc::EBUSY,
        _ => libc::ENOMEM,
    })?;
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
    let qp = Qp {
        pair,
        kind: init.qp_type,
        batch: wants_batch.then(|| Mutex::new(Batch::new(init.qp_type, operations, cap))),
        cap,
        address: ibv_ah_attr::default(),
        rate_limit: 0,
        events: Arc::default(),
    };
    init.cap = cap;
    Ok(QPS.insert_reserved(handle, wr::extended(plain), qp).cast())
}

fn service(kind: ibv_qp_type) -> Result<Service, c_int> {
    match kind {
        IBV_QPT_RC => Ok(Service::Rc),
        IBV_QPT_UC => Ok(Service::Uc),
        IBV_QPT_UD => Ok(Service::Ud),
        IBV_QPT_XRC_SEND => Ok(Service::XrcInitiator),
        IBV_QPT_XRC_RECV => Ok(Service::XrcTarget),
        IBV_QPT_RAW_PACKET | IBV_QPT_DRIVER => Err(libc::EOPNOTSUPP),
        _ => Err(libc::EINVAL),
    }
}

/// The sizes that are given: what was asked for, but for queues that the type does not have
/// (rules CR-02, CR-03, CR-08).
fn capacity(
    init: &ibv_qp_init_attr_ex,
    service: Service,
    operations: u64,
) -> Result<ibv_qp_cap, c_int> {
    let limits = Limits::DEVICE;
    let mut cap = init.cap;
    let xrc = matches!(service, Service::XrcInitiator | Service::XrcTarget);
    if xrc || !init.srq.is_null() {
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
    }
    if service == Service::XrcTarget {
        (cap.max_send_wr, cap.max_send_sge, cap.max_inline_data) = (0, 0, 0);
    }
    if operations & u64::from(IBV_QP_EX_WITH_ATOMIC_WRITE) != 0 {
        // Its eight bytes are taken when it is built.
        cap.max_inline_data = cap.max_inline_data.max(8);
    }
    let within = cap.max_send_wr <= limits.work_requests
        && cap.max_recv_wr <= limits.work_requests
        && cap.max_send_sge <= limits.pieces
        && cap.max_recv_sge <= limits.pieces
        && cap.max_inline_data <= limits.inline;
    if within { Ok(cap) } else { Err(libc::EINVAL) }
}

/// The objects that a queue pair is made of, as its type needs them.
struct Parts {
    context: *mut ibv_context,
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
) -> Result<Parts, c_int> {
    if service == Service::XrcTarget {
        if init.comp_mask & IBV_QP_INIT_ATTR_XRCD == 0 || !init.srq.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: by the contract of this function; `find` has seen that it is live.
        let (domain, context) = unsafe { (xrc::find(init.xrcd)?, (*init.xrcd).context) };
        let receives = QpReceives::Xrc(domain);
        return Ok(Parts { context, pd: None, send_cq: None, receive_cq: None, receives });
    }
    // SAFETY: by the contract of this function.
    let (pd, send_cq) = unsafe { (pd::find(init.pd)?, cq::find(init.send_cq)?) };
    let (context, pd, send_cq) = (pd.context, Some(pd.domain), Some(send_cq));
    let shared = match service {
        _ if init.srq.is_null() => None,
        // SAFETY: by the contract of this function.
        Service::Rc | Service::Ud => Some(unsafe { srq::find(init.srq) }?),
        _ => return Err(libc::EINVAL),
    };
    let tag_matching = shared.as_ref().and_then(|srq| srq.config().tag_matching.clone());
    if let (Some(srq), Some(_)) = (&shared, &tag_matching) {
        // Tags are matched for RC; what it reads into a tagged buffer goes by the queue pair's own
        // protection domain, which is therefore the queue's.
        let number = srq.config().pd.number();
        let same_pd = pd.as_ref().is_some_and(|pd| pd.number() == number);
        if service != Service::Rc || !same_pd {
            return Err(libc::EINVAL);
        }
    }
    let receives = match (service, shared) {
        (Service::XrcInitiator, _) => QpReceives::Nowhere,
        (_, Some(srq)) => QpReceives::Srq(srq),
        (_, None) => {
            QpReceives::Own { size: cap.max_recv_wr as usize, pieces: cap.max_recv_sge as usize }
        }
    };
    let receive_cq = match service {
        Service::XrcInitiator => None,
        // SAFETY: by the contract of this function.
        _ => Some(unsafe { cq::find(init.recv_cq) }?),
    };
    // With tag matching, all receives complete where the shared queue says.
    let receive_cq = tag_matching.map(|matching| matching.cq).or(receive_cq);
    Ok(Parts { context, pd, send_cq, receive_cq, receives })
}

/// The C object for the receiving end of an XRC connection that is opened once more.
pub(crate) fn opened(
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
    let qp = Qp {
        pair,
        kind: IBV_QPT_XRC_RECV,
        batch: None,
        cap: ibv_qp_cap::default(),
        address: ibv_ah_attr::default(),
        rate_limit: 0,
        events: Arc::default(),
    };
    QPS.insert(wr::extended(plain), |_| qp).cast()
}

/// A UD queue pair and its device, for multicast; `EINVAL` for any other type.
///
/// # Safety
/// `qp` is null or readable.
pub(crate) unsafe fn datagram_pair(
    qp: *mut ibv_qp,
) -> Result<(Arc<Adapter>, Arc<QueuePair>), c_int> {
    // SAFETY: by the contract of this function.
    let pair = unsafe {
        QPS.with(qp.cast(), |object| object.inner.as_ref().map(|ours| ours.pair.clone()))
    }?;
    let pair = pair.ok_or(libc::ENOENT)?;
    if pair.config().service != Service::Ud {
        return Err(libc::EINVAL);
    }
    Ok((pair.adapter().clone(), pair))
}

/// Ends a queue pair, after its delivered events are acknowledged (rules CR-09, CR-18, T2-05, T2-06).
///
/// # Safety
/// `qp` is null or readable.
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    errno_of((|| {
        loop {
            // SAFETY: by the contract of this verb.
            let events = unsafe {
                QPS.with(qp.cast(), |object| object.inner.as_ref().map(|qp| qp.events.clone()))
            }?
            .ok_or(libc::ENOENT)?;
            events.settle();
            // SAFETY: as above.
            unsafe { QPS.check_unused(qp.cast(), |qp| qp.pair.check_unused()) }?;
            // SAFETY: as above.
            let mut taken = unsafe { QPS.take(qp.cast()) }?;
            let ours = taken.inner.take().ok_or(libc::ENOENT)?;
            // No event can be delivered from here on; one may have been just before.
            if !events.is_settled() {
                taken.put_back(ours);
                continue;
            }
            if ours.pair.destroy().is_err() {
                taken.put_back(ours);
                return Err(libc::EBUSY);
            }
            // SAFETY: the struct stays readable; a context outlives its queue pairs.
            unsafe { Context::release((*qp).context) };
            return Ok(());
        }
    })())
}

/// Changes attributes and state (rules G.3); on an error nothing has changed.
///
/// # Safety
/// `qp` is null or readable; `attr` is null or readable.
pub unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    errno_of((|| {
        // SAFETY: by the contract of this verb.
        let attr = unsafe { attr.as_ref() }.ok_or(libc::EINVAL)?;
        let mask = Mask::from_bits(mask as u32).ok_or(libc::EINVAL)?;
        let attributes = parse(attr, mask)?;
        // SAFETY: as above.
        unsafe {
            QPS.with(qp.cast(), |object| {
                let ours = object.inner.as_mut().ok_or(libc::ENOENT)?;
                ours.pair.modify(&attributes, mask).map_err(|_| libc::EINVAL)?;
                if mask.contains(Mask::AV) {
                    ours.address = attr.ah_attr;
                }
                if mask.contains(Mask::STATE) {
                    object.abi.base.qp_base.state = attr.qp_state;
                    if attr.qp_state == IBV_QPS_RESET {
                        ours.address = ibv_ah_attr::default();
                    }
                }
                Ok(())
            })
        }?
    })())
}

/// Turns attributes from C into values; fields that the mask does not name are not looked at.
fn parse(attr: &ibv_qp_attr, mask: Mask) -> Result<QpAttributes, c_int> {
    let state = |bit, value| match mask.contains(bit) {
        true => QpState::new(value).ok_or(libc::EINVAL).map(Some),
        false => Ok(None),
    };
    let destination = match mask.contains(Mask::AV) {
        true => destination(&attr.ah_attr)?,
        false => Destination::default(),
    };
    Ok(QpAttributes {
        state: state(Mask::STATE, attr.qp_state)?.unwrap_or(QpState::Reset),
        current: state(Mask::CUR_STATE, attr.cur_qp_state)?,
        path_mtu: attr.path_mtu,
        qkey: attr.qkey,
        rq_psn: attr.rq_psn,
        sq_psn: attr.sq_psn,
        dest_qpn: attr.dest_qp_num,
        access: attr.qp_access_flags,
        destination,
        pkey_index: attr.pkey_index,
        port: attr.port_num,
        notify_drained: attr.en_sqd_async_notify != 0,
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        timeout: attr.timeout,
        retry_count: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
    })
}

/// Where an address vector points.
fn destination(attr: &ibv_ah_attr) -> Result<Destination, c_int> {
    let here = GIDS.contains(&ah::address(attr)?.gid);
    Ok(if here { Destination::ThisDevice } else { Destination::Elsewhere })
}

/// Tells all attributes that are set (rule ST-25).
///
/// # Safety
/// `qp` is null or readable; `attr` and `init` are null or writable.
pub unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    errno_of((|| {
        // SAFETY: by the contract of this verb.
        unsafe {
            QPS.with(qp.cast(), |object| {
                let plain = &mut object.abi.base.qp_base;
                let ours = object.inner.as_ref().ok_or(libc::ENOENT)?;
                let (attributes, draining) = ours.pair.query();
                if let Some(attr) = attr.as_mut() {
                    *attr = to_c(&attributes, draining, ours);
                }
                if let Some(init) = init.as_mut() {
                    *init = ibv_qp_init_attr {
                        qp_context: plain.qp_context,
                        send_cq: plain.send_cq,
                        recv_cq: plain.recv_cq,
                        srq: plain.srq,
                        cap: ours.cap,
                        qp_type: ours.kind,
                        sq_sig_all: c_int::from(ours.pair.config().send.signal_all),
                    };
                }
                plain.state = attributes.state as ibv_qp_state;
                Ok(())
            })
        }?
    })())
}

fn to_c(attributes: &QpAttributes, draining: bool, ours: &Qp) -> ibv_qp_attr {
    ibv_qp_attr {
        qp_state: attributes.state as ibv_qp_state,
        cur_qp_state: attributes.state as ibv_qp_state,
        path_mtu: attributes.path_mtu,
        path_mig_state: IBV_MIG_MIGRATED,
        qkey: attributes.qkey,
        rq_psn: attributes.rq_psn,
        sq_psn: attributes.sq_psn,
        dest_qp_num: attributes.dest_qpn,
        qp_access_flags: attributes.access,
        cap: ours.cap,
        ah_attr: ours.address,
        pkey_index: attributes.pkey_index,
        en_sqd_async_notify: u8::from(attributes.notify_drained),
        sq_draining: u8::from(draining),
        max_rd_atomic: attributes.max_rd_atomic,
        max_dest_rd_atomic: attributes.max_dest_rd_atomic,
        min_rnr_timer: attributes.min_rnr_timer,
        port_num: attributes.port,
        timeout: attributes.timeout,
        retry_cnt: attributes.retry_count,
        rnr_retry: attributes.rnr_retry,
        rate_limit: ours.rate_limit,
        ..ibv_qp_attr::default()
    }
}

/// Takes note of a rate for a queue pair, in kbit/s; [`ibv_query_qp`] tells it. Nothing is held back
/// for it: links within a host have no packets to pace, and the device reports no pacing.
///
/// # Safety
/// `qp` is null or readable; `attr` is null or readable.
pub(crate) unsafe extern "C" fn modify_qp_rate_limit(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_rate_limit_attr,
) -> c_int {
    errno_of((|| {
        // SAFETY: by the contract of this verb.
        let attr = unsafe { attr.as_ref() }.filter(|attr| attr.comp_mask == 0);
        let attr = attr.ok_or(libc::EINVAL)?;
        // SAFETY: as above.
        unsafe {
            QPS.with(qp.cast(), |object| {
                let ours = object.inner.as_mut().ok_or(libc::ENOENT)?;
                ours.rate_limit = attr.rate_limit;
                Ok(())
            })
        }?
    })())
}

/// No promise that the bytes of a message land in order (rule ORD-24): no bit of the newer answer,
/// and no in the older one.
pub extern "C" fn ibv_query_qp_data_in_order(
    _qp: *mut ibv_qp,
    _op: ibv_wr_opcode,
    _flags: u32,
) -> c_int {
    0
}

/// Counts an asynchronous event as delivered; the pointer for C.
pub(crate) fn deliver_event(handle: u32) -> Option<*mut ibv_qp> {
    QPS.with_locked(handle, |object| {
        if let Some(qp) = &object.inner {
            qp.events.delivered();
        }
        &raw mut object.abi.base.qp_base
    })
}

/// Counts an asynchronous event as acknowledged.
///
/// # Safety
/// `qp` is null or live.
pub(crate) unsafe fn acknowledge_event(qp: *mut ibv_qp) {
    // SAFETY: by the contract of this function.
    if let Some(object) = unsafe { qp.cast::<QpObject>().as_ref() }
        && let Some(ours) = &object.inner
    {
        ours.events.acknowledged(1);
    }
}

/// Ends the queue pairs of a context that is closed.
pub(crate) fn free_all(context: *mut ibv_context) {
    for mut taken in QPS.take_all(context) {
        let Some(ours) = taken.inner.take() else { continue };
        ours.pair.leave_groups();
        if ours.pair.destroy().is_err() {
            taken.put_back(ours);
            continue;
        }
        // SAFETY: this queue pair is the one that is counted off.
        unsafe { Context::release(context) };
    }
}
