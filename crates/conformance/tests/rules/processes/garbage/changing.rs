//! Objects changed by garbage and asked for it. What is refused has changed nothing.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use transom_abi::*;
use transom_conformance::extended::*;
use transom_conformance::harness::*;
use transom_conformance::shared_receive::*;
use transom_ibverbs::*;

use super::making::address_vector;
use super::objects::{Objects, answer, answer_with_errno, refused};

/// All of these.
pub(crate) const ACTS: [fn(&mut Objects); 8] = [
    queue_pair,
    queue_pair,
    queue_pair_options,
    shared_receive_queue,
    completion_queue,
    region,
    membership,
    question,
];

/// What a queue pair is like, but for what traffic changes by itself.
fn settings(qp: *mut ibv_qp) -> String {
    let (qp_state, cur_qp_state, sq_draining) = (0, 0, 0);
    format!("{:?}", ibv_qp_attr { qp_state, cur_qp_state, sq_draining, ..query(qp) })
}

fn queue_pair(objects: &mut Objects) {
    let qp = objects.qp();
    if qp.is_null() {
        // SAFETY: no queue pair.
        let code = unsafe { ibv_modify_qp(qp, &mut ibv_qp_attr::default(), 1) };
        return assert_eq!(code, libc::EINVAL);
    }
    let next = (state(qp) + 1) % 4;
    let known = IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_QKEY;
    // SAFETY: a live queue pair.
    let usual = required_attributes(unsafe { (*qp).qp_type }, next);
    let mut attr = ibv_qp_attr {
        qp_state: objects.random.mostly(next) as u32,
        cur_qp_state: objects.random.garbage() as u32,
        path_mtu: objects.random.mostly(IBV_MTU_1024) as u32,
        path_mig_state: objects.random.garbage() as u32,
        qkey: objects.random.garbage() as u32,
        rq_psn: objects.random.garbage() as u32,
        sq_psn: objects.random.garbage() as u32,
        dest_qp_num: objects.qp_number(),
        qp_access_flags: objects.random.some_bits(REMOTE) as u32,
        ah_attr: address_vector(objects),
        alt_ah_attr: address_vector(objects),
        pkey_index: objects.random.mostly(0) as u16,
        alt_pkey_index: objects.random.garbage() as u16,
        en_sqd_async_notify: objects.random.garbage() as u8,
        sq_draining: objects.random.garbage() as u8,
        max_rd_atomic: objects.random.mostly(16) as u8,
        max_dest_rd_atomic: objects.random.mostly(16) as u8,
        min_rnr_timer: objects.random.mostly(1) as u8,
        port_num: objects.random.mostly(1) as u8,
        timeout: objects.random.mostly(1) as u8,
        retry_cnt: objects.random.mostly(1) as u8,
        rnr_retry: objects.random.mostly(1) as u8,
        alt_port_num: objects.random.garbage() as u8,
        alt_timeout: objects.random.garbage() as u8,
        rate_limit: objects.random.garbage() as u32,
        ..Default::default()
    };
    let any = objects.random.some_bits(known) as u32;
    let mask = if objects.random.once_in(3) { any } else { usual };
    let before = settings(qp);
    // SAFETY: a live queue pair, and attributes.
    let code = unsafe { ibv_modify_qp(qp, &mut attr, mask as c_int) };
    if !answer("ibv_modify_qp", code) {
        assert_eq!(settings(qp), before, "refused, and changed");
    }
}

fn queue_pair_options(objects: &mut Objects) {
    let qp = objects.qp();
    let mut ece = ibv_ece {
        vendor_id: objects.random.mostly(VENDOR_ID) as u32,
        options: objects.random.garbage() as u32,
        comp_mask: objects.random.mostly(0) as u32,
    };
    // SAFETY: null or a live queue pair; the rest is this call's own.
    unsafe {
        answer("ibv_set_ece", ibv_set_ece(qp, &mut ece));
        answer("ibv_query_ece", ibv_query_ece(qp, &mut ece));
        let (opcode, flags) = (objects.random.garbage() as u32, objects.random.garbage() as u32);
        assert_eq!(ibv_query_qp_data_in_order(qp, opcode, flags), 0);
    }
}

fn shared_receive_queue(objects: &mut Objects) {
    let (context, srq) = (objects.context(), objects.srq());
    let mut attr = ibv_srq_attr {
        max_wr: objects.random.mostly(16) as u32,
        max_sge: objects.random.garbage() as u32,
        srq_limit: objects.random.mostly(0) as u32,
    };
    let mask = objects.random.some_bits(3_u32) as c_int;
    let mut number = 0;
    let get_number = verbs(context).get_srq_num.expect("never null");
    // SAFETY: null or a live queue; the rest is this call's own.
    unsafe {
        answer("ibv_get_srq_num", get_number(srq, &mut number));
        let before = if srq.is_null() { Default::default() } else { query_srq(srq) };
        if !answer("ibv_modify_srq", ibv_modify_srq(srq, &mut attr, mask)) && !srq.is_null() {
            let after = query_srq(srq);
            assert_eq!((after.max_wr, after.max_sge), (before.max_wr, before.max_sge));
        }
        answer("ibv_query_srq", ibv_query_srq(srq, &mut attr));
    }
}

fn completion_queue(objects: &mut Objects) {
    let (context, cq) = (objects.context(), objects.cq());
    let cqe = objects.random.mostly(4096) as c_int;
    let mut attr = ibv_modify_cq_attr {
        attr_mask: objects.random.mostly(1) as u32,
        moderate: ibv_moderate_cq {
            cq_count: objects.random.garbage() as u16,
            cq_period: objects.random.garbage() as u16,
        },
    };
    answer("ibv_modify_cq", modify_cq(context, cq, &mut attr));
    // SAFETY: null or a live queue.
    unsafe {
        let before = cq.as_ref().map(|cq| cq.cqe);
        if !answer("ibv_resize_cq", ibv_resize_cq(cq, cqe)) {
            assert_eq!(cq.as_ref().map(|cq| cq.cqe), before);
        }
        let (arm, solicited) = ((*context).ops.req_notify_cq, objects.random.garbage() as c_int);
        answer("ibv_req_notify_cq", arm.expect("never null")(cq, solicited));
    }
}

fn region(objects: &mut Objects) {
    let (context, mr, pd) = (objects.context(), objects.mr(), objects.pd());
    let flags = objects.random.some_bits(7_u32) as u32;
    let (addr, length) = (objects.address(), objects.length() as usize);
    let access = objects.random.some_bits(IBV_ACCESS_LOCAL_WRITE | REMOTE) as c_int;
    // SAFETY: null or a live region.
    let show = || unsafe { mr.as_ref() }.map(|mr| (mr.addr, mr.length, mr.pd, mr.lkey, mr.rkey));
    let before = show();
    if let Err((code, errno)) = rereg_raw(mr, flags, pd, addr, length, access) {
        assert!(code < 0, "{code}");
        refused("ibv_rereg_mr", errno);
        assert_eq!(show(), before);
    }
    let mut sges = objects.sges();
    let advice = objects.random.mostly(0) as u32;
    let flags = objects.random.some_bits(1_u32) as u32;
    let (list, count) = (sges.as_mut_ptr(), sges.len() as u32);
    let advise = verbs(context).advise_mr.expect("never null");
    // SAFETY: null or a live domain, and a list that is there.
    answer("ibv_advise_mr", unsafe { advise(pd, advice, flags, list, count) });
}

fn membership(objects: &mut Objects) {
    let qp = objects.qp();
    let mut raw = [0; 16];
    raw[0] = objects.random.mostly(0xff) as u8;
    raw[15] = objects.random.below(4) as u8;
    let (gid, lid) = (ibv_gid { raw }, objects.random.garbage() as u16);
    // SAFETY: null or a live queue pair, and a GID.
    unsafe {
        let same = |(other, has): &(*mut ibv_qp, ibv_gid)| *other == qp && has.raw == raw;
        let known = objects.members.iter().position(same);
        if objects.random.once_in(2) {
            if answer("ibv_attach_mcast", ibv_attach_mcast(qp, &gid, lid)) && known.is_none() {
                objects.members.push((qp, gid));
            }
        } else {
            let left = answer("ibv_detach_mcast", ibv_detach_mcast(qp, &gid, lid));
            assert_eq!(left, known.is_some());
            known.map(|at| objects.members.swap_remove(at));
        }
    }
}

fn question(objects: &mut Objects) {
    let context = objects.context();
    let given = objects.context_or_null();
    let (port, index) = (objects.random.mostly(1) as u8, objects.random.garbage());
    let size = objects.random.below(600);
    let mut room = [MaybeUninit::<u64>::zeroed(); 128];
    let at = room.as_mut_ptr();
    let input = ibv_query_device_ex_input { comp_mask: objects.random.mostly(0) as u32 };
    let mut values =
        ibv_values_ex { comp_mask: objects.random.mostly(1) as u32, ..Default::default() };
    let ours = verbs(context);
    let (qp, dm, mask) = (objects.qp(), objects.dm(), objects.random.garbage() as c_int);
    let (address, length) = (objects.address(), objects.length());
    // SAFETY: null or live objects; there is room for the largest answer.
    unsafe {
        answer("ibv_query_device", ibv_query_device(given, at.cast()));
        let query = ours.query_device_ex.expect("never null");
        answer("ibv_query_device_ex", query(given, &input, at.cast(), size));
        answer("ibv_query_port", ibv_query_port(given, port, at.cast()));
        answer(
            "ibv_query_port",
            ours.query_port.expect("never null")(given, port, at.cast(), size),
        );
        answer_with_errno("ibv_query_gid", ibv_query_gid(given, port, index as c_int, at.cast()));
        let code = ibv_query_gid_type(given, port, index as u32, at.cast());
        answer_with_errno("ibv_query_gid_type", code);
        let (flags, port) = (objects.random.mostly(0) as u32, u32::from(port));
        let code = _ibv_query_gid_ex(given, port, index as u32, at.cast(), flags, size);
        answer("ibv_query_gid_ex", code);
        let (most, size) = (size % 4, size / 2);
        let count = _ibv_query_gid_table(given, at.cast(), most, flags, size);
        assert!(count == -(libc::EINVAL as isize) || (0..=3).contains(&count), "{count}");
        let code = ibv_query_pkey(given, port as u8, index as c_int, at.cast());
        answer_with_errno("ibv_query_pkey", code);
        assert!(matches!(ibv_get_pkey_index(given, port as u8, index as u16), -1 | 0));
        answer(
            "ibv_query_rt_values_ex",
            ours.query_rt_values.expect("never null")(given, &mut values),
        );
        answer("ibv_query_qp", ibv_query_qp(qp, at.cast(), mask, at.add(64).cast()));
        if !dm.is_null() {
            let (to, from) = ((*dm).memcpy_to_dm, (*dm).memcpy_from_dm);
            let (offset, length) = (objects.length() & !3, length as usize & !3);
            answer("ibv_memcpy_to_dm", to.expect("set")(dm, offset, address as *const _, length));
            answer("ibv_memcpy_from_dm", from.expect("set")(address as *mut _, dm, offset, length));
        }
    }
}
