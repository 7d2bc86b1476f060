//! Copies between structs of the kernel's connection manager and libibverbs's own structs. librdmacm calls these
//! functions. The structs are plain data, and a null pointer is ignored.

use transom_abi::*;

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

/// Copies an address vector from the kernel.
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

/// Copies attributes of a queue pair from the kernel, except the state to move to. librdmacm has chosen that state
/// before it asks the kernel for the other attributes.
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

/// Copies a path record from the kernel.
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
    to.raw_traffic = from.raw_traffic as i32;
    to.reversible = from.reversible as i32;
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
    // SAFETY: every GID can be read as bytes.
    (to.dgid, to.sgid) = unsafe { (from.dgid.raw, from.sgid.raw) };
    to.raw_traffic = from.raw_traffic as u32;
    to.reversible = from.reversible as u32;
    to.mtu = from.mtu.into();
    copy_fields!(to from from:
        dlid slid flow_label hop_limit traffic_class numb_path pkey sl mtu_selector rate_selector
        rate packet_life_time_selector packet_life_time preference
    );
}
