//! What the kernel's connection manager says and libibverbs's own structs: librdmacm has these
//! copied from one into the other. Plain data; a null pointer is left alone.

use std::ffi::c_int;

use transom_abi::*;

/// A global route as the kernel has it (`rdma/ib_user_verbs.h`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct GlobalRoute {
    dgid: [u8; 16],
    flow_label: u32,
    sgid_index: u8,
    hop_limit: u8,
    traffic_class: u8,
    _reserved: u8,
}

/// `struct ib_uverbs_ah_attr`: an address vector as the kernel has it (`rdma/ib_user_verbs.h`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct ib_uverbs_ah_attr {
    grh: GlobalRoute,
    dlid: u16,
    sl: u8,
    src_path_bits: u8,
    static_rate: u8,
    is_global: u8,
    port_num: u8,
    _reserved: u8,
}

/// `struct ib_uverbs_qp_attr`: attributes of a queue pair as the kernel has them
/// (`rdma/ib_user_verbs.h`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct ib_uverbs_qp_attr {
    _qp_attr_mask: u32,
    _qp_state: u32,
    cur_qp_state: u32,
    path_mtu: u32,
    path_mig_state: u32,
    qkey: u32,
    rq_psn: u32,
    sq_psn: u32,
    dest_qp_num: u32,
    qp_access_flags: u32,
    ah_attr: ib_uverbs_ah_attr,
    alt_ah_attr: ib_uverbs_ah_attr,
    max_send_wr: u32,
    max_recv_wr: u32,
    max_send_sge: u32,
    max_recv_sge: u32,
    max_inline_data: u32,
    pkey_index: u16,
    alt_pkey_index: u16,
    en_sqd_async_notify: u8,
    sq_draining: u8,
    max_rd_atomic: u8,
    max_dest_rd_atomic: u8,
    min_rnr_timer: u8,
    port_num: u8,
    timeout: u8,
    retry_cnt: u8,
    rnr_retry: u8,
    alt_port_num: u8,
    alt_timeout: u8,
    _reserved: [u8; 5],
}

/// `struct ib_user_path_rec`: a path record as the kernel has it (`rdma/ib_user_sa.h`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct ib_user_path_rec {
    dgid: [u8; 16],
    sgid: [u8; 16],
    dlid: u16,
    slid: u16,
    raw_traffic: u32,
    flow_label: u32,
    reversible: u32,
    mtu: u32,
    pkey: u16,
    hop_limit: u8,
    traffic_class: u8,
    numb_path: u8,
    sl: u8,
    mtu_selector: u8,
    rate_selector: u8,
    rate: u8,
    packet_life_time_selector: u8,
    packet_life_time: u8,
    preference: u8,
}

/// A path record as libibverbs has it (`infiniband/sa.h`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct ibv_sa_path_rec {
    dgid: ibv_gid,
    sgid: ibv_gid,
    dlid: u16,
    slid: u16,
    raw_traffic: c_int,
    flow_label: u32,
    hop_limit: u8,
    traffic_class: u8,
    reversible: c_int,
    numb_path: u8,
    pkey: u16,
    sl: u8,
    mtu_selector: u8,
    mtu: u8,
    rate_selector: u8,
    rate: u8,
    packet_life_time_selector: u8,
    packet_life_time: u8,
    preference: u8,
}

const _: () = assert!(size_of::<ib_uverbs_ah_attr>() == 32);
const _: () = assert!(size_of::<ib_uverbs_qp_attr>() == 144);
const _: () = assert!(size_of::<ib_user_path_rec>() == 64);
const _: () = assert!(size_of::<ibv_sa_path_rec>() == 64);

/// Sets these fields of one struct from the same fields of another.
macro_rules! copy_fields {
    ($to:ident from $from:ident: $($field:ident)+) => {
        $($to.$field = $from.$field;)+
    };
}

fn address_vector(to: &mut ibv_ah_attr, from: &ib_uverbs_ah_attr) {
    let (grh, theirs) = (&mut to.grh, &from.grh);
    grh.dgid = ibv_gid { raw: theirs.dgid };
    copy_fields!(grh from theirs: flow_label sgid_index hop_limit traffic_class);
    copy_fields!(to from from: dlid sl src_path_bits static_rate is_global port_num);
}

/// Copies an address vector of the kernel's.
///
/// # Safety
/// Both are null or valid.
pub unsafe extern "C" fn ibv_copy_ah_attr_from_kern(
    to: *mut ibv_ah_attr,
    from: *const ib_uverbs_ah_attr,
) {
    // SAFETY: by the contract of this function.
    if let (Some(to), Some(from)) = unsafe { (to.as_mut(), from.as_ref()) } {
        address_vector(to, from);
    }
}

/// Copies attributes of a queue pair of the kernel's, but for the state to move to: librdmacm has
/// chosen that one before it asks the kernel for the others.
///
/// # Safety
/// Both are null or valid.
pub unsafe extern "C" fn ibv_copy_qp_attr_from_kern(
    to: *mut ibv_qp_attr,
    from: *const ib_uverbs_qp_attr,
) {
    // SAFETY: by the contract of this function.
    let (Some(to), Some(from)) = (unsafe { (to.as_mut(), from.as_ref()) }) else { return };
    copy_fields!(to from from:
        cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num qp_access_flags
        pkey_index alt_pkey_index en_sqd_async_notify sq_draining max_rd_atomic
        max_dest_rd_atomic min_rnr_timer port_num timeout retry_cnt rnr_retry alt_port_num
        alt_timeout
    );
    let cap = &mut to.cap;
    copy_fields!(cap from from:
        max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data
    );
    address_vector(&mut to.ah_attr, &from.ah_attr);
    address_vector(&mut to.alt_ah_attr, &from.alt_ah_attr);
}

/// Copies a path record of the kernel's.
///
/// # Safety
/// Both are null or valid.
pub unsafe extern "C" fn ibv_copy_path_rec_from_kern(
    to: *mut ibv_sa_path_rec,
    from: *const ib_user_path_rec,
) {
    // SAFETY: by the contract of this function.
    let (Some(to), Some(from)) = (unsafe { (to.as_mut(), from.as_ref()) }) else { return };
    to.dgid = ibv_gid { raw: from.dgid };
    to.sgid = ibv_gid { raw: from.sgid };
    to.raw_traffic = from.raw_traffic as c_int;
    to.reversible = from.reversible as c_int;
    to.mtu = from.mtu as u8;
    copy_fields!(to from from:
        dlid slid flow_label hop_limit traffic_class numb_path pkey sl mtu_selector rate_selector
        rate packet_life_time_selector packet_life_time preference
    );
}

/// Copies a path record for the kernel.
///
/// # Safety
/// Both are null or valid.
pub unsafe extern "C" fn ibv_copy_path_rec_to_kern(
    to: *mut ib_user_path_rec,
    from: *const ibv_sa_path_rec,
) {
    // SAFETY: by the contract of this function.
    let (Some(to), Some(from)) = (unsafe { (to.as_mut(), from.as_ref()) }) else { return };
    // SAFETY: every GID may be read as bytes.
    (to.dgid, to.sgid) = unsafe { (from.dgid.raw, from.sgid.raw) };
    to.raw_traffic = from.raw_traffic as u32;
    to.reversible = from.reversible as u32;
    to.mtu = from.mtu.into();
    copy_fields!(to from from:
        dlid slid flow_label hop_limit traffic_class numb_path pkey sl mtu_selector rate_selector
        rate packet_life_time_selector packet_life_time preference
    );
}
