//! `ibv_modify_qp(3)`, `ibv_query_qp(3)`: a queue pair's attributes, and values that are kept only for queries.

use std::ffi::c_int;

use transom_abi::*;
use transom_device::qp::{Mask, ModifyError, QpState};
use transom_host::Limits;
use transom_host::objects::{ModifyFailure, QpAttributes, QueuePair};
use transom_system::addresses::{Addresses, path_mtu};
use transom_system::registry::CallFault;
use transom_system::rehearsal;

use super::{QPS, Told};
use crate::ah;
use crate::check;
use crate::cq;
use crate::device;
use crate::entry::errno_of;
use crate::rehearse;
use crate::sanitized;
use crate::told;
use crate::wrong::Wrong;

/// Changes attributes and state (rules G.3). On an error nothing has changed.
///
/// # Safety
/// `qp` is null or readable; `attr` is null or readable.
pub unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    errno_of("ibv_modify_qp", || {
        // SAFETY: by the contract of this verb.
        let attr = unsafe { attr.as_ref() }.ok_or(libc::EINVAL)?;
        // SAFETY: as above.
        let (pair, told) = unsafe {
            QPS.with(qp.cast(), |object| (object.inner.pair.clone(), object.inner.told.clone()))
        }?;
        rehearse::take_time();
        let mut told = told.lock();
        let mask = modify(&pair, attr, mask as u32).map_err(|wrong| {
            wrong.told(Some(pair.device()), "ibv_modify_qp", pair.number().bits())
        })?;
        if mask.contains(Mask::AV) {
            told.address = attr.ah_attr;
        }
        if mask.contains(Mask::AV | Mask::DEST_QPN)
            && let Some(checker) = check::on()
        {
            checker.pair_connected(qp.addr(), &pair, attr);
        }
        if mask.contains(Mask::STATE) {
            if attr.qp_state == IBV_QPS_RESET {
                told.address = ibv_ah_attr::default();
            }
            // SAFETY: as above.
            unsafe { tell_state(qp, attr.qp_state) }?;
            if let Some(checker) = check::on() {
                checker.pair_modified(qp.addr(), attr.qp_state);
            }
        }
        Ok(())
    })
}

/// Sets the state in the C struct. The caller holds the lock of [`Told`].
///
/// # Safety
/// `qp` is null or readable.
unsafe fn tell_state(qp: *mut ibv_qp, state: ibv_qp_state) -> Result<(), c_int> {
    // SAFETY: by the contract of this function. The struct is live while the table is locked.
    unsafe { QPS.with(qp.cast(), |object| (*object.abi).base.qp_base.state = state) }
}

/// Changes a queue pair by attributes from C. Returns the mask.
fn modify(pair: &QueuePair, attr: &ibv_qp_attr, bits: u32) -> Result<Mask, Wrong> {
    let unknown = u64::from(bits & !Mask::all().bits());
    let mask = Mask::from_bits(bits);
    let mask = mask.ok_or(Wrong::invalid("attr_mask", unknown, "ST-03"))?;
    let attributes = parse(attr, mask, &pair.device().port().addresses())?;
    let from = pair.summary().gate().state;
    // Only the queue pair of an id of rdma_cm is, when its peer has accepted.
    if mask.contains(Mask::STATE) && attributes.state == QpState::Rtr && pair.is_kept_back() {
        told::rehearsed("REH-33");
        return Err(libc::ENOMEM.into());
    }
    pair.modify(&attributes, mask).map_err(|failure| {
        let to = if mask.contains(Mask::STATE) { attributes.state } else { from };
        wrong(failure, attr, from, to)
    })?;
    Ok(mask)
}

/// The fault of a failed modify.
fn wrong(failure: ModifyFailure, attr: &ibv_qp_attr, from: QpState, to: QpState) -> Wrong {
    let (from, to) = (from as u64, to as u64);
    let invalid = |fault, value: u64, rule| Wrong::with(libc::EINVAL, fault, value, rule);
    let of = |fault, mask: Mask, rule| invalid(fault, mask.bits().into(), rule).and(to);
    match failure {
        ModifyFailure::Transition(error) => match error {
            ModifyError::NoTransition => invalid(CallFault::NoTransition, from, "ST-01").and(to),
            ModifyError::Missing(mask) => of(CallFault::Missing, mask, "ST-02"),
            ModifyError::Excess(mask) => of(CallFault::Excess, mask, "ST-03"),
            ModifyError::OtherState => invalid(CallFault::WrongState, from, "ST-05"),
            ModifyError::NoAlternatePath => {
                of(CallFault::Excess, Mask::ALT_PATH | Mask::PATH_MIG_STATE, "ST-08")
            }
        },
        ModifyFailure::OutOfRange(mask) => {
            of(CallFault::OutOfRange, mask, "ST-07").and_more(first_of(mask, attr))
        }
        ModifyFailure::Draining => invalid(CallFault::WrongState, from, "ST-17"),
        ModifyFailure::NoMemory => Wrong::exhausted(""),
        ModifyFailure::NoPort(errno) => errno.into(),
        ModifyFailure::NoPeer(errno) => Wrong::with(errno, CallFault::Unnamed, 0, "ST-28"),
        ModifyFailure::Unreachable(why) => Wrong::unreachable(why),
        ModifyFailure::Inherited => libc::EIO.into(),
    }
}

/// The value of the first of these attributes, and its maximum.
fn first_of(mask: Mask, attr: &ibv_qp_attr) -> [u64; 2] {
    let limits = Limits::here();
    let [sent, answered] = [limits.initiated_reads, limits.read_resources].map(u64::from);
    let attributes: [(Mask, u64, u64); 12] = [
        (Mask::ACCESS_FLAGS, attr.qp_access_flags.into(), 0),
        (Mask::PKEY_INDEX, attr.pkey_index.into(), 0),
        (Mask::PORT, attr.port_num.into(), 1),
        (Mask::PATH_MTU, attr.path_mtu.into(), IBV_MTU_4096.into()),
        (Mask::TIMEOUT, attr.timeout.into(), 31),
        (Mask::RETRY_CNT, attr.retry_cnt.into(), 7),
        (Mask::RNR_RETRY, attr.rnr_retry.into(), 7),
        (Mask::RQ_PSN, attr.rq_psn.into(), 0xff_ffff),
        (Mask::MAX_QP_RD_ATOMIC, attr.max_rd_atomic.into(), sent),
        (Mask::MIN_RNR_TIMER, attr.min_rnr_timer.into(), 31),
        (Mask::MAX_DEST_RD_ATOMIC, attr.max_dest_rd_atomic.into(), answered),
        (Mask::DEST_QPN, attr.dest_qp_num.into(), 0xff_ffff),
    ];
    let first = attributes.into_iter().find(|(bit, ..)| mask.contains(*bit));
    first.map_or([0; 2], |(_, value, most)| [value, most])
}

/// Turns attributes from C into values. Fields outside the mask are ignored.
fn parse(attr: &ibv_qp_attr, mask: Mask, addresses: &Addresses) -> Result<QpAttributes, Wrong> {
    let state = |bit, field, value| match mask.contains(bit) {
        true => {
            let state = QpState::new(value);
            state.map(Some).ok_or(Wrong::invalid(field, value.into(), "ST-01"))
        }
        false => Ok(None),
    };
    let most = device::mtu_code(path_mtu(u32::MAX));
    if mask.contains(Mask::PATH_MTU) && attr.path_mtu > most && most < IBV_MTU_4096 {
        rehearsal::small_mtu().inspect(|it| it.note());
        return Err(Wrong::too_much("path_mtu", attr.path_mtu.into(), most.into(), "REH-28"));
    }
    let destination = match mask.contains(Mask::AV) {
        true => Some(ah::address(&attr.ah_attr, addresses)?),
        false => None,
    };
    Ok(QpAttributes {
        state: state(Mask::STATE, "qp_state", attr.qp_state)?.unwrap_or(QpState::Reset),
        current: state(Mask::CUR_STATE, "cur_qp_state", attr.cur_qp_state)?,
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

/// Reads all attributes that are set, whatever the mask (rule ST-25).
///
/// # Safety
/// `qp` is null or readable; `attr` and `init` are null or writable.
pub unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    errno_of("ibv_query_qp", || {
        // SAFETY: by the contract of this verb. These fields do not change.
        let (pair, told, created) = unsafe {
            QPS.with(qp.cast(), |object| {
                let (ours, plain) = (object.inner, &raw const (*object.abi).base.qp_base);
                let created = ibv_qp_init_attr {
                    qp_context: (*plain).qp_context,
                    send_cq: (*plain).send_cq,
                    recv_cq: (*plain).recv_cq,
                    srq: (*plain).srq,
                    cap: ours.cap,
                    qp_type: ours.kind,
                    sq_sig_all: c_int::from(ours.pair.config().send.signal_all),
                };
                (ours.pair.clone(), ours.told.clone(), created)
            })
        }?;
        let told = told.lock();
        let (attributes, draining) = pair.query();
        // SAFETY: as above.
        unsafe {
            if attributes.state == QpState::Sqd && !draining {
                cq::all_are_there(created.send_cq);
            }
            if let Some(attr) = attr.as_mut() {
                *attr = to_c(&attributes, draining, created.cap, &told);
                rehearse::poison_attributes(&pair, attr, mask as u32);
                sanitized::has_filled(attr);
            }
            if let Some(init) = init.as_mut() {
                *init = created;
                sanitized::has_filled(init);
            }
            tell_state(qp, attributes.state as ibv_qp_state)
        }
    })
}

fn to_c(attributes: &QpAttributes, draining: bool, cap: ibv_qp_cap, told: &Told) -> ibv_qp_attr {
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
        cap,
        ah_attr: told.address,
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
        ..ibv_qp_attr::default()
    }
}

/// Promises nothing about the order in which the bytes of a message land (rule ORD-24): no bit of the newer answer is
/// set, and the older answer is no.
pub extern "C" fn ibv_query_qp_data_in_order(
    _qp: *mut ibv_qp,
    _op: ibv_wr_opcode,
    _flags: u32,
) -> c_int {
    0
}
