//! Objects made with garbage. What is made joins the others, or is ended at once.

use std::ffi::c_int;
use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::datagrams::*;
use transom_conformance::extended::*;
use transom_conformance::harness::*;
use transom_conformance::memory::*;
use transom_conformance::queues::*;
use transom_conformance::shared_receive::*;
use transom_conformance::xrc::*;
use transom_ibverbs::*;

use super::objects::{Objects, answer_with_errno, refused};

/// All of these.
pub(crate) const ACTS: [fn(&mut Objects); 13] = [
    domain,
    thread_domain,
    parent_domain,
    xrc_domain,
    completion_queue,
    extended_completion_queue,
    shared_receive_queue,
    queue_pair,
    opened_queue_pair,
    region,
    window,
    address_handle,
    device_memory,
];

/// Keeps some of what is made: at most so many, so that they stay cheap to end.
fn keep<T: Copy>(objects: &mut Objects, pool: fn(&mut Objects) -> &mut Vec<T>, object: T) -> bool {
    let keeps = pool(objects).len() < 48 && objects.random.once_in(2);
    if keeps {
        pool(objects).push(object);
    }
    keeps
}

/// A new object joins the others or goes again; a refused one has a documented errno.
fn made<T>(
    objects: &mut Objects,
    verb: &str,
    object: *mut T,
    pool: fn(&mut Objects) -> &mut Vec<*mut T>,
    end: impl FnOnce(*mut T) -> c_int,
) {
    if object.is_null() {
        return refused(verb, errno());
    }
    if !keep(objects, pool, object) {
        assert_eq!(end(object), 0, "what {verb} made does not go");
    }
}

fn domain(objects: &mut Objects) {
    let context = objects.context_or_null();
    // SAFETY: null or an open context.
    let pd = unsafe { ibv_alloc_pd(context) };
    made(objects, "ibv_alloc_pd", pd, |objects| &mut objects.pds, dealloc_pd);
    let (context, handle) = (objects.context(), objects.random.garbage() as u32);
    // SAFETY: an open context; only the second name is ended.
    unsafe {
        match import_pd(context, handle) {
            Ok(pd) => ibv_unimport_pd(pd),
            Err(errno) => refused("ibv_import_pd", errno),
        }
        match import_dm(context, handle) {
            Ok(dm) => ibv_unimport_dm(dm),
            Err(errno) => refused("ibv_import_dm", errno),
        }
        let mr = ibv_import_mr(objects.pd(), handle);
        if mr.is_null() { refused("ibv_import_mr", errno()) } else { ibv_unimport_mr(mr) }
    }
}

fn thread_domain(objects: &mut Objects) {
    let mut init = ibv_td_init_attr { comp_mask: objects.random.mostly(0) as u32 };
    let (context, given) = (objects.context(), objects.context_or_null());
    let alloc = verbs(context).alloc_td.expect("never null");
    // SAFETY: null or an open context, and attributes.
    let td = unsafe { alloc(given, &mut init) };
    made(objects, "ibv_alloc_td", td, |objects| &mut objects.tds, |td| dealloc_td(context, td));
}

fn parent_domain(objects: &mut Objects) {
    let (context, given) = (objects.context(), objects.context_or_null());
    let mut attr = parent_attr(objects.pd(), objects.td());
    attr.comp_mask = objects.random.some_bits(3_u32) as u32;
    let alloc = verbs(context).alloc_parent_domain.expect("never null");
    // SAFETY: null or an open context, and attributes that name nothing dead.
    let pd = unsafe { alloc(given, &mut attr) };
    made(objects, "ibv_alloc_parent_domain", pd, |objects| &mut objects.pds, dealloc_pd);
}

fn xrc_domain(objects: &mut Objects) {
    let (context, given) = (objects.context(), objects.context_or_null());
    let flags = (libc::O_CREAT | libc::O_EXCL) as u32;
    let mut init = ibv_xrcd_init_attr {
        comp_mask: objects.random.mostly(3) as u32,
        fd: descriptor(objects),
        oflags: objects.random.some_bits(flags) as c_int,
    };
    let open = verbs(context).open_xrcd.expect("never null");
    // SAFETY: null or an open context, and attributes.
    let xrcd = unsafe { open(given, &mut init) };
    made(
        objects,
        "ibv_open_xrcd",
        xrcd,
        |objects| &mut objects.xrcds,
        |xrcd| close_xrcd(context, xrcd),
    );
}

/// A descriptor: of a file, of a socket, or of nothing.
fn descriptor(objects: &mut Objects) -> c_int {
    objects.random.one_of(&[objects.fd, objects.fd, objects.fd, 0, -1, -2, c_int::MIN, 1 << 30])
}

fn completion_queue(objects: &mut Objects) {
    let (context, channel) = (objects.context_or_null(), objects.channel());
    let cqe = objects.random.mostly(16) as c_int;
    let vector = objects.random.mostly(0) as c_int;
    // SAFETY: null or an open context, null or a live channel.
    let cq = unsafe { ibv_create_cq(context, cqe, null_mut(), channel, vector) };
    made(objects, "ibv_create_cq", cq, |objects| &mut objects.cqs, destroy_cq);
}

fn extended_completion_queue(objects: &mut Objects) {
    let (context, given) = (objects.context(), objects.context_or_null());
    let mut attr = ibv_cq_init_attr_ex {
        cqe: objects.random.mostly(16) as u32,
        cq_context: null_mut(),
        channel: objects.channel(),
        comp_vector: objects.random.mostly(0) as u32,
        wc_flags: objects.random.some_bits(FIELDS),
        comp_mask: objects.random.some_bits(3_u32) as u32,
        flags: objects.random.some_bits(3_u32) as u32,
        parent_domain: objects.pd(),
    };
    let create = verbs(context).create_cq_ex.expect("never null");
    // SAFETY: null or an open context, and attributes that name nothing dead.
    let cq = unsafe { create(given, &mut attr) };
    made(objects, "ibv_create_cq_ex", cq.cast(), |objects| &mut objects.cqs, destroy_cq);
}

fn shared_receive_queue(objects: &mut Objects) {
    let (context, given) = (objects.context(), objects.context_or_null());
    let attr = ibv_srq_attr {
        max_wr: objects.random.mostly(16) as u32,
        max_sge: objects.random.mostly(2) as u32,
        srq_limit: objects.random.garbage() as u32,
    };
    let srq = if objects.random.once_in(2) {
        let mut init = ibv_srq_init_attr { srq_context: null_mut(), attr };
        // SAFETY: null or a live domain, and attributes.
        unsafe { ibv_create_srq(objects.pd(), &mut init) }
    } else {
        let mut init = ibv_srq_init_attr_ex {
            srq_context: null_mut(),
            attr,
            comp_mask: objects.random.mostly(0x1f) as u32,
            srq_type: objects.random.garbage() as u32 % 4,
            pd: objects.pd(),
            xrcd: objects.xrcd(),
            cq: objects.cq(),
            tm_cap: ibv_tm_cap {
                max_num_tags: objects.random.mostly(4) as u32,
                max_ops: objects.random.mostly(4) as u32,
            },
        };
        let create = verbs(context).create_srq_ex.expect("never null");
        // SAFETY: null or an open context, and attributes that name nothing dead.
        unsafe { create(given, &mut init) }
    };
    made(objects, "ibv_create_srq", srq, |objects| &mut objects.srqs, destroy_srq);
}

fn queue_pair(objects: &mut Objects) {
    let (context, given) = (objects.context(), objects.context_or_null());
    let kind = objects.random.one_of(&[IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, 9, 10]);
    let srq = if objects.random.once_in(3) { objects.srq() } else { null_mut() };
    let asked = ibv_qp_cap {
        max_send_wr: objects.random.mostly(16) as u32,
        max_recv_wr: objects.random.mostly(16) as u32,
        max_send_sge: objects.random.mostly(2) as u32,
        max_recv_sge: objects.random.mostly(2) as u32,
        max_inline_data: objects.random.mostly(64) as u32,
    };
    let (send_cq, recv_cq, pd) = (objects.cq(), objects.cq(), objects.pd());
    let (qp_type, sq_sig_all) =
        (objects.random.mostly(kind) as u32, objects.random.garbage() as i32);
    let (qp, cap) = if objects.random.once_in(2) {
        let mut init = ibv_qp_init_attr {
            qp_context: null_mut(),
            send_cq,
            recv_cq,
            srq,
            cap: asked,
            qp_type,
            sq_sig_all,
        };
        // SAFETY: null or a live domain, and attributes that name nothing dead.
        (unsafe { ibv_create_qp(pd, &mut init) }, init.cap)
    } else {
        let mut init = ibv_qp_init_attr_ex {
            send_cq,
            recv_cq,
            srq,
            cap: asked,
            qp_type,
            sq_sig_all,
            comp_mask: objects.random.mostly(IBV_QP_INIT_ATTR_PD) as u32,
            pd,
            xrcd: objects.xrcd(),
            create_flags: objects.random.mostly(0) as u32,
            max_tso_header: objects.random.mostly(0) as u16,
            source_qpn: objects.random.garbage() as u32,
            send_ops_flags: objects.random.some_bits(0x7ff_u32),
            ..Default::default()
        };
        let bits = [0, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QP_INIT_ATTR_XRCD];
        init.comp_mask |= objects.random.one_of(&bits);
        let create = verbs(context).create_qp_ex.expect("never null");
        // SAFETY: null or an open context, and attributes that name nothing dead.
        (unsafe { create(given, &mut init) }, init.cap)
    };
    assert!(!qp.is_null() || cap == asked, "a refused creation has changed what was asked for");
    made(objects, "ibv_create_qp", qp, |objects| &mut objects.qps, destroy_qp);
}

/// The number of a queue pair that can be opened, mostly.
fn xrc_target_number(objects: &mut Objects) -> u32 {
    // SAFETY: live queue pairs.
    let known = objects.qps.iter().find(|qp| unsafe { (***qp).qp_type } == IBV_QPT_XRC_RECV);
    let known = number(*known.expect("one is there from the beginning"));
    objects.random.mostly(known) as u32
}

fn opened_queue_pair(objects: &mut Objects) {
    let (context, given) = (objects.context(), objects.context_or_null());
    let mut attr = ibv_qp_open_attr {
        comp_mask: objects.random.mostly(15) as u32,
        qp_num: xrc_target_number(objects),
        xrcd: objects.xrcd(),
        qp_context: null_mut(),
        qp_type: objects.random.mostly(IBV_QPT_XRC_RECV) as u32,
    };
    let open = verbs(context).open_qp.expect("never null");
    // SAFETY: null or an open context, and attributes that name nothing dead.
    let qp = unsafe { open(given, &mut attr) };
    made(objects, "ibv_open_qp", qp, |objects| &mut objects.qps, destroy_qp);
}

fn region(objects: &mut Objects) {
    let known = IBV_ACCESS_LOCAL_WRITE | REMOTE | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED;
    let access = objects.random.some_bits(known | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB) as u32;
    let (pd, dm, fd) = (objects.pd(), objects.dm(), descriptor(objects));
    let (addr, length) = (objects.address(), objects.length() as usize);
    let near = addr % 4096 + (objects.random.garbage() & !4095);
    let iova = objects.random.mostly(near);
    let iova = if objects.random.once_in(2) { addr } else { iova };
    let context = objects.context();
    let verbs = verbs(context);
    // SAFETY: null or live objects; memory and descriptors may be anything.
    let mr = unsafe {
        match objects.random.below(6) {
            0 => ibv_reg_mr(pd, addr as *mut _, length, access as c_int),
            1 => ibv_reg_mr_iova(pd, addr as *mut _, length, iova, access as c_int),
            2 => ibv_reg_mr_iova2(pd, addr as *mut _, length, iova, access),
            3 => verbs.alloc_null_mr.expect("never null")(pd),
            4 => {
                let (offset, access) = (objects.length(), access | IBV_ACCESS_ZERO_BASED);
                verbs.reg_dm_mr.expect("never null")(pd, dm, offset, length, access)
            }
            _ => {
                let offset = objects.random.mostly(iova % 4096);
                let access = access & !IBV_ACCESS_MW_BIND & !IBV_ACCESS_ZERO_BASED;
                ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, access as c_int)
            }
        }
    };
    made(objects, "ibv_reg_mr", mr, |objects| &mut objects.mrs, dereg);
}

fn window(objects: &mut Objects) {
    let (context, pd) = (objects.context(), objects.pd());
    let kind = 1 + objects.random.below(2) as u32;
    let kind = objects.random.mostly(kind) as u32;
    // SAFETY: null or a live domain.
    let mw = unsafe { (*context).ops.alloc_mw.expect("never null")(pd, kind) };
    made(objects, "ibv_alloc_mw", mw, |objects| &mut objects.mws, dealloc_mw);
}

/// An address vector: of this host, or of anywhere.
pub(crate) fn address_vector(objects: &mut Objects) -> ibv_ah_attr {
    let mut attr = here();
    if objects.random.once_in(3) {
        let words = [objects.random.number(), objects.random.number()];
        let raw: [u8; 16] = words.map(u64::to_ne_bytes).concat().try_into().expect("sixteen");
        attr.grh.dgid = ibv_gid { raw };
    }
    attr.grh.flow_label = objects.random.garbage() as u32;
    attr.grh.sgid_index = objects.random.mostly(0) as u8;
    attr.grh.hop_limit = objects.random.garbage() as u8;
    attr.grh.traffic_class = objects.random.garbage() as u8;
    attr.dlid = objects.random.mostly(1) as u16;
    attr.sl = objects.random.mostly(7) as u8;
    attr.src_path_bits = objects.random.garbage() as u8;
    attr.static_rate = objects.random.garbage() as u8;
    attr.is_global = objects.random.mostly(1) as u8;
    attr.port_num = objects.random.mostly(1) as u8;
    attr
}

fn address_handle(objects: &mut Objects) {
    let pd = objects.pd();
    let mut attr = address_vector(objects);
    let mut grh = [0; 5].map(|_: u64| objects.random.garbage());
    let mut wc = ibv_wc {
        slid: objects.random.garbage() as u16,
        sl: objects.random.garbage() as u8,
        src_qp: objects.random.garbage() as u32,
        wc_flags: objects.random.garbage() as u32,
        ..Default::default()
    };
    // The version and the checksum of a header that is one, mostly.
    if !objects.random.is_wild() {
        grh[0] = u64::from(6_u32 << 28).to_be();
    }
    let port = objects.random.mostly(1) as u8;
    let grh =
        if objects.random.once_in(8) { null_mut() } else { grh.as_mut_ptr().cast::<ibv_grh>() };
    // SAFETY: null or a live domain; the rest is this call's own.
    let ah = unsafe {
        answer_with_errno(
            "ibv_init_ah_from_wc",
            ibv_init_ah_from_wc(objects.context(), port, &mut wc, grh, &mut attr.clone()),
        );
        match objects.random.once_in(2) {
            true => ibv_create_ah(pd, &mut attr),
            false => ibv_create_ah_from_wc(pd, &mut wc, grh, port),
        }
    };
    made(objects, "ibv_create_ah", ah, |objects| &mut objects.ahs, destroy_ah);
}

fn device_memory(objects: &mut Objects) {
    let (context, given) = (objects.context(), objects.context_or_null());
    let mut attr = ibv_alloc_dm_attr {
        length: objects.length() as usize,
        log_align_req: objects.random.mostly(3) as u32,
        comp_mask: objects.random.mostly(0) as u32,
    };
    let alloc = verbs(context).alloc_dm.expect("never null");
    // SAFETY: null or an open context, and attributes.
    let dm = unsafe { alloc(given, &mut attr) };
    made(objects, "ibv_alloc_dm", dm, |objects| &mut objects.dms, free_dm);
}
