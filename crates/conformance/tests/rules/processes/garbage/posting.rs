//! Work requests made of garbage, posted or built call by call, and what polls them.

use std::ffi::c_int;
use std::ptr::{null, null_mut};

use transom_abi::*;
use transom_conformance::extended::*;
use transom_conformance::extended_qp::*;
use transom_conformance::harness::*;
use transom_ibverbs::ibv_qp_to_qp_ex;

use super::world::{World, answer};

/// All of these.
pub(crate) const ACTS: [fn(&mut World); 8] =
    [send, send, receive, shared_receive, tag_list, bind, batch, polling];

/// How many pieces a request says it has: those of its list, fewer, or less than none.
fn count(world: &mut World, pieces: &[ibv_sge]) -> c_int {
    match world.random.is_wild() {
        true if world.random.once_in(2) => -(world.random.below(1 << 30) as c_int),
        true => world.random.below(pieces.len() + 1) as c_int,
        false => pieces.len() as c_int,
    }
}

/// Memory that C may read: what is sent inline is read at once.
fn readable(world: &mut World, pieces: &mut [ibv_sge]) {
    for piece in pieces {
        piece.addr = world.buffer.addr() + world.random.below(4096) as u64;
    }
}

fn info(world: &mut World) -> ibv_mw_bind_info {
    let known = REMOTE | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED;
    ibv_mw_bind_info {
        mr: world.mr(),
        addr: world.address(),
        length: world.length(),
        mw_access_flags: world.random.some_bits(known) as u32,
    }
}

fn send(world: &mut World) {
    let qp = world.qp();
    let mut pieces = world.pieces();
    let send_flags = world.random.some_bits(0x1f_u32) as u32;
    if send_flags & IBV_SEND_INLINE != 0 {
        readable(world, &mut pieces);
    }
    let opcode = world.random.below(10) as u32;
    let mut wr = ibv_send_wr {
        wr_id: world.random.garbage(),
        sg_list: if world.random.is_wild() { null_mut() } else { pieces.as_mut_ptr() },
        num_sge: count(world, &pieces),
        opcode: world.random.mostly(opcode) as u32,
        send_flags,
        ..Default::default()
    };
    wr.imm.invalidate_rkey = world.key();
    wr.qp_type.xrc.remote_srqn = world.random.garbage() as u32;
    // SAFETY: null or a live queue pair.
    if unsafe { qp.as_ref() }.is_some_and(|qp| qp.qp_type == IBV_QPT_UD) {
        let qkey = world.random.mostly(transom_conformance::datagrams::QKEY) as u32;
        let (ah, remote_qpn) = (world.ah(), world.qp_number());
        wr.wr.ud = ibv_send_wr_ud { ah, remote_qpn, remote_qkey: qkey };
    } else {
        let (remote_addr, rkey) = (world.address(), world.key());
        let (compare_add, swap) = (world.random.number(), world.random.number());
        wr.wr.atomic = ibv_send_wr_atomic { remote_addr, compare_add, swap, rkey };
        if wr.opcode <= IBV_WR_RDMA_READ {
            wr.wr.rdma = ibv_send_wr_rdma { remote_addr, rkey };
        }
    }
    if wr.opcode == IBV_WR_BIND_MW {
        let (mw, bind_info) = (world.mw(), info(world));
        wr.op.bind_mw = ibv_send_wr_bind_mw { mw, rkey: world.random.garbage() as u32, bind_info };
    }
    // A list of two: the same once more.
    let mut first = ibv_send_wr { next: &mut wr, ..wr };
    let head = if world.random.once_in(4) { &raw mut first } else { &raw mut wr };
    let (context, mut bad) = (world.context(), null_mut());
    // SAFETY: null or a live queue pair, and requests whose lists are as long as they say.
    let code = unsafe { (*context).ops.post_send.expect("never null")(qp, head, &mut bad) };
    if !answer("ibv_post_send", code) && !qp.is_null() {
        assert!(bad == &raw mut wr || bad == head);
    }
}

/// A receive, and its pieces.
fn receives(world: &mut World) -> (Vec<ibv_sge>, ibv_recv_wr) {
    let mut pieces = world.pieces();
    let wr = ibv_recv_wr {
        wr_id: world.random.garbage(),
        next: null_mut(),
        sg_list: if world.random.is_wild() { null_mut() } else { pieces.as_mut_ptr() },
        num_sge: count(world, &pieces),
    };
    (pieces, wr)
}

fn receive(world: &mut World) {
    let (context, qp) = (world.context(), world.qp());
    let (_pieces, mut wr) = receives(world);
    let post = |bad| {
        // SAFETY: null or a live queue pair, and a request whose list is as long as it says.
        unsafe { (*context).ops.post_recv.expect("never null")(qp, &mut wr, bad) }
    };
    answer("ibv_post_recv", { post }(&mut null_mut()));
}

fn shared_receive(world: &mut World) {
    let (context, srq) = (world.context(), world.srq());
    let (_pieces, mut wr) = receives(world);
    // SAFETY: null or a live queue, and a request whose list is as long as it says.
    let code =
        unsafe { (*context).ops.post_srq_recv.expect("never null")(srq, &mut wr, &mut null_mut()) };
    answer("ibv_post_srq_recv", code);
}

fn tag_list(world: &mut World) {
    let (context, mut srq) = (world.context(), world.srq());
    if !world.random.is_wild() {
        // The first queue that matches tags.
        srq = world.srqs[2];
    }
    let mut pieces = world.pieces();
    let change = world.random.below(3) as u32;
    let mut wr = ibv_ops_wr {
        wr_id: world.random.garbage(),
        next: null_mut(),
        opcode: world.random.mostly(change) as u32,
        flags: world.random.some_bits(3_u32) as c_int,
        tm: ibv_ops_wr_tm {
            unexpected_cnt: world.random.garbage() as u32,
            handle: world.random.garbage() as u32,
            add: ibv_ops_wr_tm_add {
                recv_wr_id: world.random.garbage(),
                sg_list: if world.random.is_wild() { null_mut() } else { pieces.as_mut_ptr() },
                num_sge: count(world, &pieces),
                tag: world.random.garbage(),
                mask: world.random.garbage(),
            },
        },
    };
    let post = verbs(context).post_srq_ops.expect("never null");
    // SAFETY: null or a live queue, and a request whose list is as long as it says.
    answer("ibv_post_srq_ops", unsafe { post(srq, &mut wr, &mut null_mut()) });
}

fn bind(world: &mut World) {
    let (context, qp, mw) = (world.context(), world.qp(), world.mw());
    let mut bind = ibv_mw_bind {
        wr_id: world.random.garbage(),
        send_flags: world.random.some_bits(0x1f_u32) as u32,
        bind_info: info(world),
    };
    // SAFETY: null or live objects.
    let code = unsafe { (*context).ops.bind_mw.expect("never null")(qp, mw, &mut bind) };
    answer("ibv_bind_mw", code);
}

/// Calls that build requests, in any order.
fn batch(world: &mut World) {
    let qp = world.qp();
    // SAFETY: null or a live queue pair.
    if unsafe { ibv_qp_to_qp_ex(qp) }.is_null() {
        return;
    }
    let build = Builder::of(qp);
    if !world.random.once_in(8) {
        build.start();
    }
    // SAFETY: a live queue pair.
    let is_datagram = unsafe { (*qp).qp_type } == IBV_QPT_UD;
    for _ in 0..world.random.below(6) {
        let flags = world.random.some_bits(0x17_u32) as u32;
        let build = build.next(world.random.garbage(), flags);
        match world.random.is_wild() {
            true => step(world, build),
            false => message(world, build, is_datagram),
        }
    }
    match world.random.once_in(4) {
        true => build.abort(),
        false => {
            answer("ibv_wr_complete", build.complete());
        }
    }
    assert_eq!(build.complete(), libc::EINVAL, "there is no batch any more");
}

/// A message as it should be built.
fn message(world: &mut World, build: Builder, is_datagram: bool) {
    match world.random.below(3) {
        0 if !is_datagram => build.rdma_write(world.key(), world.address()),
        1 => build.send_imm(world.random.garbage() as u32),
        _ => build.send(),
    }
    let pieces = world.pieces();
    match world.random.once_in(2) {
        true => build.pieces(&pieces),
        false => build.inline(&world.buffer.read(0, 64)),
    }
    if is_datagram {
        let (ah, qpn) = (world.ah(), world.qp_number());
        build.set_ud_addr(ah, qpn, transom_conformance::datagrams::QKEY);
    }
}

/// Any call.
fn step(world: &mut World, build: Builder) {
    let (key, addr) = (world.key(), world.address());
    let (any, other) = (world.random.garbage(), world.random.garbage());
    let word = world.buffer.addr() + world.random.below(4096) as u64;
    let length = world.random.mostly(world.random.clone().below(128) as u64) as usize;
    let mut pieces = world.pieces();
    match world.random.below(20) {
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
            let (mw, info) = (world.mw(), info(world));
            build.bind_mw(mw, any as u32, &info);
        }
        11 => build.local_inv(key),
        12 => build.flush(key, addr, length, any as u8, other as u8),
        13 => {
            let (ah, qpn) = (world.ah(), world.qp_number());
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
        18 => build.set_sge_list(pieces.len(), pieces.as_mut_ptr()),
        _ => build.set_sge_list(0, null()),
    }
}

/// Extended completion queues, polled in batches or not in order.
fn polling(world: &mut World) {
    let cq = world.random.one_of(&world.extended_cqs);
    let comp_mask = world.random.mostly(0) as u32;
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
    if world.random.once_in(8) {
        end_poll(cq);
    }
}
