//! Work requests made of garbage, posted or built call by call, and what polls them.

use std::ffi::c_int;
use std::ptr::{null, null_mut};

use transom_abi::*;
use transom_conformance::extended::*;
use transom_conformance::extended_qp::*;
use transom_conformance::harness::*;
use transom_ibverbs::ibv_qp_to_qp_ex;

use super::objects::{Objects, answer};

/// All of these.
pub(crate) const ACTS: [fn(&mut Objects); 8] =
    [send, send, receive, shared_receive, tag_list, bind, batch, polling];

/// How many SGEs a request says it has: those of its list, fewer, or less than none.
fn count(objects: &mut Objects, sges: &[ibv_sge]) -> c_int {
    match objects.random.is_wild() {
        true if objects.random.once_in(2) => -(objects.random.below(1 << 30) as c_int),
        true => objects.random.below(sges.len() + 1) as c_int,
        false => sges.len() as c_int,
    }
}

/// Memory that C may read: what is sent inline is read at once.
fn readable(objects: &mut Objects, sges: &mut [ibv_sge]) {
    for element in sges {
        element.addr = objects.buffer.addr() + objects.random.below(4096) as u64;
    }
}

fn info(objects: &mut Objects) -> ibv_mw_bind_info {
    let known = REMOTE | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED;
    ibv_mw_bind_info {
        mr: objects.mr(),
        addr: objects.address(),
        length: objects.length(),
        mw_access_flags: objects.random.some_bits(known) as u32,
    }
}

fn send(objects: &mut Objects) {
    let qp = objects.qp();
    let mut sges = objects.sges();
    let send_flags = objects.random.some_bits(0x1f_u32) as u32;
    if send_flags & IBV_SEND_INLINE != 0 {
        readable(objects, &mut sges);
    }
    let opcode = objects.random.below(10) as u32;
    let mut wr = ibv_send_wr {
        wr_id: objects.random.garbage(),
        sg_list: if objects.random.is_wild() { null_mut() } else { sges.as_mut_ptr() },
        num_sge: count(objects, &sges),
        opcode: objects.random.mostly(opcode) as u32,
        send_flags,
        ..Default::default()
    };
    wr.imm.invalidate_rkey = objects.key();
    wr.qp_type.xrc.remote_srqn = objects.random.garbage() as u32;
    // SAFETY: null or a live queue pair.
    if unsafe { qp.as_ref() }.is_some_and(|qp| qp.qp_type == IBV_QPT_UD) {
        let qkey = objects.random.mostly(transom_conformance::datagrams::QKEY) as u32;
        let (ah, remote_qpn) = (objects.ah(), objects.qp_number());
        wr.wr.ud = ibv_send_wr_ud { ah, remote_qpn, remote_qkey: qkey };
    } else {
        let (remote_addr, rkey) = (objects.address(), objects.key());
        let (compare_add, swap) = (objects.random.number(), objects.random.number());
        wr.wr.atomic = ibv_send_wr_atomic { remote_addr, compare_add, swap, rkey };
        if wr.opcode <= IBV_WR_RDMA_READ {
            wr.wr.rdma = ibv_send_wr_rdma { remote_addr, rkey };
        }
    }
    if wr.opcode == IBV_WR_BIND_MW {
        let (mw, bind_info) = (objects.mw(), info(objects));
        wr.op.bind_mw =
            ibv_send_wr_bind_mw { mw, rkey: objects.random.garbage() as u32, bind_info };
    }
    // A list of two: the same once more.
    let mut first = ibv_send_wr { next: &mut wr, ..wr };
    let head = if objects.random.once_in(4) { &raw mut first } else { &raw mut wr };
    let (context, mut bad) = (objects.context(), null_mut());
    // SAFETY: null or a live queue pair, and requests whose lists are as long as they say.
    let code = unsafe { (*context).ops.post_send.expect("never null")(qp, head, &mut bad) };
    if !answer("ibv_post_send", code) && !qp.is_null() {
        assert!(bad == &raw mut wr || bad == head);
    }
}

/// A receive, and its SGEs.
fn receives(objects: &mut Objects) -> (Vec<ibv_sge>, ibv_recv_wr) {
    let mut sges = objects.sges();
    let wr = ibv_recv_wr {
        wr_id: objects.random.garbage(),
        next: null_mut(),
        sg_list: if objects.random.is_wild() { null_mut() } else { sges.as_mut_ptr() },
        num_sge: count(objects, &sges),
    };
    (sges, wr)
}

fn receive(objects: &mut Objects) {
    let (context, qp) = (objects.context(), objects.qp());
    let (_pieces, mut wr) = receives(objects);
    let post = |bad| {
        // SAFETY: null or a live queue pair, and a request whose list is as long as it says.
        unsafe { (*context).ops.post_recv.expect("never null")(qp, &mut wr, bad) }
    };
    answer("ibv_post_recv", { post }(&mut null_mut()));
}

fn shared_receive(objects: &mut Objects) {
    let (context, srq) = (objects.context(), objects.srq());
    let (_pieces, mut wr) = receives(objects);
    // SAFETY: null or a live queue, and a request whose list is as long as it says.
    let code =
        unsafe { (*context).ops.post_srq_recv.expect("never null")(srq, &mut wr, &mut null_mut()) };
    answer("ibv_post_srq_recv", code);
}

fn tag_list(objects: &mut Objects) {
    let (context, mut srq) = (objects.context(), objects.srq());
    if !objects.random.is_wild() {
        // The first queue that matches tags.
        srq = objects.srqs[2];
    }
    let mut sges = objects.sges();
    let change = objects.random.below(3) as u32;
    let mut wr = ibv_ops_wr {
        wr_id: objects.random.garbage(),
        next: null_mut(),
        opcode: objects.random.mostly(change) as u32,
        flags: objects.random.some_bits(3_u32) as c_int,
        tm: ibv_ops_wr_tm {
            unexpected_cnt: objects.random.garbage() as u32,
            handle: objects.random.garbage() as u32,
            add: ibv_ops_wr_tm_add {
                recv_wr_id: objects.random.garbage(),
                sg_list: if objects.random.is_wild() { null_mut() } else { sges.as_mut_ptr() },
                num_sge: count(objects, &sges),
                tag: objects.random.garbage(),
                mask: objects.random.garbage(),
            },
        },
    };
    let post = verbs(context).post_srq_ops.expect("never null");
    // SAFETY: null or a live queue, and a request whose list is as long as it says.
    answer("ibv_post_srq_ops", unsafe { post(srq, &mut wr, &mut null_mut()) });
}

fn bind(objects: &mut Objects) {
    let (context, qp, mw) = (objects.context(), objects.qp(), objects.mw());
    let mut bind = ibv_mw_bind {
        wr_id: objects.random.garbage(),
        send_flags: objects.random.some_bits(0x1f_u32) as u32,
        bind_info: info(objects),
    };
    // SAFETY: null or live objects.
    let code = unsafe { (*context).ops.bind_mw.expect("never null")(qp, mw, &mut bind) };
    answer("ibv_bind_mw", code);
}

/// Calls that build requests, in any order.
fn batch(objects: &mut Objects) {
    let qp = objects.qp();
    // SAFETY: null or a live queue pair.
    if unsafe { ibv_qp_to_qp_ex(qp) }.is_null() {
        return;
    }
    let build = Builder::of(qp);
    if !objects.random.once_in(8) {
        build.start();
    }
    // SAFETY: a live queue pair.
    let is_datagram = unsafe { (*qp).qp_type } == IBV_QPT_UD;
    for _ in 0..objects.random.below(6) {
        let flags = objects.random.some_bits(0x17_u32) as u32;
        let build = build.next(objects.random.garbage(), flags);
        match objects.random.is_wild() {
            true => step(objects, build),
            false => message(objects, build, is_datagram),
        }
    }
    match objects.random.once_in(4) {
        true => build.abort(),
        false => {
            answer("ibv_wr_complete", build.complete());
        }
    }
    assert_eq!(build.complete(), libc::EINVAL, "there is no batch any more");
}

/// A message as it should be built.
fn message(objects: &mut Objects, build: Builder, is_datagram: bool) {
    match objects.random.below(3) {
        0 if !is_datagram => build.rdma_write(objects.key(), objects.address()),
        1 => build.send_imm(objects.random.garbage() as u32),
        _ => build.send(),
    }
    let sges = objects.sges();
    match objects.random.once_in(2) {
        true => build.sges(&sges),
        false => build.inline(&objects.buffer.read(0, 64)),
    }
    if is_datagram {
        let (ah, qpn) = (objects.ah(), objects.qp_number());
        build.set_ud_addr(ah, qpn, transom_conformance::datagrams::QKEY);
    }
}

/// Any call.
fn step(objects: &mut Objects, build: Builder) {
    let (key, addr) = (objects.key(), objects.address());
    let (any, other) = (objects.random.garbage(), objects.random.garbage());
    let word = objects.buffer.addr() + objects.random.below(4096) as u64;
    let length = objects.random.mostly(objects.random.clone().below(128) as u64) as usize;
    let mut sges = objects.sges();
    match objects.random.below(20) {
        0 => build.send(),
        1 => build.send_imm(any as u32),
        2 => build.send_inv(key),
        3 => build.send_tso(word as *mut _, any as u16 % 256, other as u16),
        4 => build.rdma_write(key, addr),
        5 => build.rdma_write_imm(key, addr, any as u32),
        6 => build.rdma_read(key, addr),
        7 => build.atomic_cmp_swp(key, addr, any, other),
        8 => build.atomic_fetch_add(key, addr, any),
        9 => build.atomic_write(key, addr, if any == 0 { null() } else { word as *const _ }),
        10 => {
            let (mw, info) = (objects.mw(), info(objects));
            build.bind_mw(mw, any as u32, &info);
        }
        11 => build.local_inv(key),
        12 => build.flush(key, addr, length, any as u8, other as u8),
        13 => {
            let (ah, qpn) = (objects.ah(), objects.qp_number());
            build.set_ud_addr(ah, qpn, any as u32);
        }
        14 => build.set_xrc_srqn(any as u32),
        15 => build.set_inline_data(word as *mut _, length),
        16 => {
            let list = [length, other as usize % 2048]
                .map(|length| ibv_data_buf { addr: word as *mut _, length });
            build.set_inline_data_list(any as usize % 3, list.as_ptr());
        }
        17 => build.set_sge(key, addr, any as u32),
        18 => build.set_sge_list(sges.len(), sges.as_mut_ptr()),
        _ => build.set_sge_list(0, null()),
    }
}

/// Extended completion queues, polled in batches or not in order.
fn polling(objects: &mut Objects) {
    let cq = objects.random.one_of(&objects.extended_cqs);
    let comp_mask = objects.random.mostly(0) as u32;
    let mut attr = ibv_poll_cq_attr { comp_mask };
    // SAFETY: a live extended queue.
    match unsafe { (*cq).start_poll.expect("always there")(cq, &mut attr) } {
        0 => {
            while next_poll(cq) == 0 {
                read_wc(cq);
                read_times(cq);
            }
            end_poll(cq);
        }
        code => assert!(matches!(code, libc::ENOENT | libc::EINVAL | libc::EIO), "{code}"),
    }
    if objects.random.once_in(8) {
        end_poll(cq);
    }
}
