//! What the device says it can, and what a call then gives: sizes up to those told, and what flags
//! promise.

use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::extended::*;
use transom_conformance::extended_qp::*;
use transom_conformance::harness::*;
use transom_conformance::memory::*;
use transom_conformance::queues::*;
use transom_conformance::shared_receive::*;
use transom_conformance::xrc::*;
use transom_conformance::{on_each_link, tag_matching};
use transom_device::queue::TAG_MAX_SGE;
use transom_ibverbs::*;

/// `IBV_DEVICE_FLUSH_PERSISTENT`, which only newer headers have.
const FLUSH_PERSISTENT: u64 = 1 << 39;

fn end() -> End {
    End::new(Default::default())
}

/// Zero as success, anything else as an errno.
fn done(code: i32) -> Result<(), i32> {
    if code == 0 { Ok(()) } else { Err(code) }
}

fn port_attr(end: &End) -> ibv_port_attr {
    let mut port = ibv_port_attr::default();
    let query = verbs(end.context).query_port.expect("there");
    // SAFETY: an open context and a struct of this size.
    assert_eq!(unsafe { query(end.context, 1, &mut port, size_of::<ibv_port_attr>()) }, 0);
    port
}

fn extended_attr(end: &End) -> ibv_device_attr_ex {
    let mut attr = std::mem::MaybeUninit::<ibv_device_attr_ex>::zeroed();
    let (query, size) = (verbs(end.context).query_device_ex, size_of::<ibv_device_attr_ex>());
    // SAFETY: an open context and a struct of this size, all plain numbers.
    unsafe {
        assert_eq!(query.expect("there")(end.context, null_mut(), attr.as_mut_ptr(), size), 0);
        attr.assume_init()
    }
}

/// A size that a call takes: what it is, the most of it, and the call, which ends what it makes.
struct Size<'a> {
    name: &'a str,
    most: i64,
    call: Box<dyn Fn(i64) -> Result<(), i32> + 'a>,
}

fn size<'a>(
    name: &'a str,
    most: impl Into<i64>,
    call: impl Fn(i64) -> Result<(), i32> + 'a,
) -> Size<'a> {
    Size { name, most: most.into(), call: Box::new(call) }
}

fn create_qp(end: &End, change: impl FnOnce(&mut ibv_qp_init_attr)) -> Result<(), i32> {
    let mut init = end.init(IBV_QPT_RC);
    change(&mut init);
    try_qp(end.pd, &mut init).and_then(|qp| done(destroy_qp(qp)))
}

/// Moves a new queue pair to RTS with changed attributes.
fn connect_with(end: &End, change: impl FnOnce(&mut ibv_qp_attr)) -> Result<(), i32> {
    let qp = end.qp(IBV_QPT_RC);
    let mut attr = usual_attr(qp);
    change(&mut attr);
    let steps = [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS];
    let moved = steps.into_iter().try_for_each(|state| done(modify(qp, &attr, state)));
    assert_eq!(destroy_qp(qp), 0);
    moved
}

fn create_srq(end: &End, max_wr: i64, max_sge: i64) -> Result<(), i32> {
    try_srq(end.pd, max_wr as u32, max_sge as u32).and_then(|srq| done(destroy_srq(srq)))
}

fn create_cq_ex(end: &End, attr: &ibv_cq_init_attr_ex) -> Result<(), i32> {
    try_cq_ex(end.context, attr).and_then(|cq| done(destroy_cq(cq.cast())))
}

fn create_tag_srq(end: &End, tags: i64, operations: i64) -> Result<(), i32> {
    let tm_cap = ibv_tm_cap { max_num_tags: tags as u32, max_ops: operations as u32 };
    let attr = ibv_srq_init_attr_ex { tm_cap, ..tag_matching::srq_attr(end.pd, end.cq) };
    try_srq_ex(end.context, &attr).and_then(|srq| done(destroy_srq(srq)))
}

/// A size at the limit that the device tells is given, but for want of memory; one more is refused,
/// and so is one so large that it wraps.
/// Rules: CR-03, CR-13, CR-19
#[test]
fn a_size_is_given_up_to_its_limit() {
    let end = &end();
    let (attr, port, more) = (device_attr(end.context), port_attr(end), extended_attr(end));
    // SAFETY: an open context.
    let vectors = unsafe { (*end.context).num_comp_vectors };
    let srq = srq(end.pd, 1);
    let resized = try_cq(end.context, 1, null_mut()).unwrap();
    let tagged = try_srq_ex(end.context, &tag_matching::srq_attr(end.pd, end.cq)).unwrap();
    let sizes = [
        size("max_qp_wr, sent", attr.max_qp_wr, |most| {
            create_qp(end, |init| init.cap.max_send_wr = most as u32)
        }),
        size("max_qp_wr, received", attr.max_qp_wr, |most| {
            create_qp(end, |init| init.cap.max_recv_wr = most as u32)
        }),
        size("max_sge, sent", attr.max_sge, |most| {
            create_qp(end, |init| init.cap.max_send_sge = most as u32)
        }),
        size("max_sge, received", attr.max_sge, |most| {
            create_qp(end, |init| init.cap.max_recv_sge = most as u32)
        }),
        size("max_qp_rd_atom", attr.max_qp_rd_atom, |most| {
            connect_with(end, |attr| attr.max_dest_rd_atomic = most as u8)
        }),
        size("max_qp_init_rd_atom", attr.max_qp_init_rd_atom, |most| {
            connect_with(end, |attr| attr.max_rd_atomic = most as u8)
        }),
        size("max_pkeys", attr.max_pkeys - 1, |most| {
            connect_with(end, |attr| attr.pkey_index = most as u16)
        }),
        size("max_mtu", port.max_mtu, |most| {
            connect_with(end, |attr| attr.path_mtu = most as ibv_mtu)
        }),
        size("phys_port_cnt", attr.phys_port_cnt, |most| {
            connect_with(end, |attr| attr.port_num = most as u8)
        }),
        size("max_cqe", attr.max_cqe, |most| {
            try_cq(end.context, most as i32, null_mut()).and_then(|cq| done(destroy_cq(cq)))
        }),
        size("max_cqe, extended", attr.max_cqe, |most| {
            create_cq_ex(end, &ibv_cq_init_attr_ex { cqe: most as u32, ..cq_attr(0) })
        }),
        size("max_cqe, resized", attr.max_cqe, |most| {
            // SAFETY: a live queue.
            done(unsafe { ibv_resize_cq(resized, most as i32) })
        }),
        size("num_comp_vectors", vectors - 1, |most| {
            create_cq_ex(end, &ibv_cq_init_attr_ex { comp_vector: most as u32, ..cq_attr(0) })
        }),
        size("max_srq_wr", attr.max_srq_wr, |most| create_srq(end, most, 1)),
        size("max_srq_sge", attr.max_srq_sge, |most| create_srq(end, 1, most)),
        size("max_srq_wr, resized", attr.max_srq_wr, |most| {
            let attr = ibv_srq_attr { max_wr: most as u32, ..Default::default() };
            done(modify_srq(srq, attr, IBV_SRQ_MAX_WR))
        }),
        size("max_num_tags", more.tm_caps.max_num_tags, |most| create_tag_srq(end, most, 1)),
        size("max_ops", more.tm_caps.max_ops, |most| create_tag_srq(end, 1, most)),
        size("tag matching's max_sge", more.tm_caps.max_sge, |most| {
            let mut sges = [ibv_sge::default(); TAG_MAX_SGE + 1];
            let mut ops = [tag_matching::add_op(1, 1, 1, &mut sges[..most as usize])];
            tag_matching::try_ops(tagged, &mut ops).map_err(|(errno, _)| errno)
        }),
        size("gid_tbl_len", port.gid_tbl_len - 1, |most| {
            let mut gid = ibv_gid { raw: [0; 16] };
            // SAFETY: an open context and a place for the answer.
            let answer = unsafe { ibv_query_gid(end.context, 1, most as i32, &mut gid) };
            if answer == 0 { Ok(()) } else { Err(errno()) }
        }),
        size("pkey_tbl_len", port.pkey_tbl_len - 1, |most| {
            // SAFETY: an open context and a place for the answer.
            let answer = unsafe { ibv_query_pkey(end.context, 1, most as i32, &mut 0) };
            if answer == 0 { Ok(()) } else { Err(errno()) }
        }),
    ];
    for Size { name, most, call } in sizes {
        assert!(matches!(call(most), Ok(()) | Err(libc::ENOMEM)), "{name} of {most}");
        assert_eq!(call(most + 1), Err(libc::EINVAL), "{name} of {}", most + 1);
    }
}

/// Everything at its limit at once.
/// Rules: CR-02, CR-03
#[test]
fn a_queue_pair_may_have_the_most_of_everything() {
    let end = end();
    let attr = device_attr(end.context);
    let (requests, sges) = (attr.max_qp_wr as u32, attr.max_sge as u32);
    let made = create_qp(&end, |init| {
        init.cap.max_send_wr = requests;
        init.cap.max_recv_wr = requests;
        init.cap.max_send_sge = sges;
        init.cap.max_recv_sge = sges;
    });
    assert!(matches!(made, Ok(()) | Err(libc::ENOMEM)), "{made:?}");
    let made = create_srq(&end, attr.max_srq_wr.into(), attr.max_srq_sge.into());
    assert!(matches!(made, Ok(()) | Err(libc::ENOMEM)), "{made:?}");
}

on_each_link! {
    /// As many SGEs as are told, in each opcode that gathers or scatters, and not one more.
    /// Rules: PS-03
    fn a_request_has_up_to_max_sge_pieces(link: Link) {
        let pair = Pair::unconnected(link, IBV_QPT_RC);
        let attr = device_attr(pair.a.context);
        let most = attr.max_sge as u32;
        assert!(attr.max_sge_rd <= attr.max_sge);
        let cap = ibv_qp_cap { max_send_sge: most, max_recv_sge: most, ..pair.a.init(2).cap };
        let [qa, qb] = [&pair.a, &pair.b]
            .map(|end| end.qp_with(&mut ibv_qp_init_attr { cap, ..end.init(IBV_QPT_RC) }));
        connect(qa, qb);
        let (near, far) = (Buffer::new(4096), Buffer::new(4096));
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        let mut sges = vec![sge(near.addr(), 8, ma); most as usize + 1];
        let mut places = vec![sge(far.addr(), 8, mb); most as usize + 1];
        for (opcode, most) in [
            (IBV_WR_SEND, attr.max_sge),
            (IBV_WR_RDMA_WRITE, attr.max_sge),
            (IBV_WR_RDMA_READ, attr.max_sge_rd),
        ] {
            let most = most as usize;
            recv(qb, 1, &mut places[..most]);
            let mut one = |count: usize| {
                let sges = &mut sges[..count];
                try_post(qa, &mut rdma_wr(opcode, sges, far.addr(), keys(mb).1))
            };
            assert_eq!((one(most), one(attr.max_sge as usize + 1)), (0, libc::EINVAL));
            assert_eq!(pair.a.expect(IBV_WC_SUCCESS).byte_len as usize / 8 % most, 0);
        }
        assert_eq!(try_recv(qb, 1, &mut places), libc::EINVAL);
    }
}

/// A capability that is told is there, and one that is not is refused.
#[test]
fn the_flags_promise_what_calls_do() {
    let end = &end();
    let flags = extended_attr(end).device_cap_flags_ex;
    let qp = end.qp(IBV_QPT_RC);
    take_to(end, qp, IBV_QPS_RTS);
    let srq = srq(end.pd, 1);
    let buffer = Buffer::new(4096);
    let window = |kind| alloc_mw(end.pd, kind).map(|mw| assert_eq!(dealloc_mw(mw), 0));
    let registers = |access: u32| {
        try_reg(end.pd, buffer.addr(), 4096, access as i32).map(|mr| assert_eq!(dereg(mr), 0))
    };
    let builds = |kind, operations| {
        let qp = try_qp_ex(end, &mut init_ex(end, kind, operations));
        qp.map(|qp| assert_eq!(destroy_qp(qp), 0))
    };
    let created = |kind, flags| {
        let mut init = init_ex(end, kind, 0);
        init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
        init.create_flags = flags;
        try_qp_ex(end, &mut init).map(|qp| assert_eq!(destroy_qp(qp), 0))
    };
    type Try<'a> = Box<dyn Fn() -> Result<(), i32> + 'a>;
    let promises: [(&str, u64, Try<'_>); 12] = [
        ("windows", IBV_DEVICE_MEM_WINDOW.into(), Box::new(|| window(IBV_MW_TYPE_1))),
        (
            "windows of type 2",
            (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B).into(),
            Box::new(|| window(IBV_MW_TYPE_2)),
        ),
        (
            "invalidation",
            IBV_DEVICE_MEM_MGT_EXTENSIONS.into(),
            Box::new(|| {
                builds(IBV_QPT_RC, IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV)
            }),
        ),
        (
            "the state it is in",
            IBV_DEVICE_CURR_QP_STATE_MOD.into(),
            Box::new(|| {
                let (qp_state, cur_qp_state) = (IBV_QPS_RTS, IBV_QPS_RTS);
                let attr = ibv_qp_attr { qp_state, cur_qp_state, ..Default::default() };
                done(modify_with(qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE))
            }),
        ),
        (
            "resizing shared receive queues",
            IBV_DEVICE_SRQ_RESIZE.into(),
            Box::new(|| {
                let attr = ibv_srq_attr { max_wr: 7, ..Default::default() };
                done(modify_srq(srq, attr, IBV_SRQ_MAX_WR))
            }),
        ),
        (
            "XRC",
            IBV_DEVICE_XRC.into(),
            Box::new(|| {
                let xrcd = try_xrcd(end.context, -1, libc::O_CREAT)?;
                done(close_xrcd(end.context, xrcd))
            }),
        ),
        (
            "FLUSH",
            IBV_DEVICE_FLUSH_GLOBAL,
            Box::new(|| {
                registers(IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_LOCAL_WRITE)?;
                builds(IBV_QPT_RC, IBV_QP_EX_WITH_FLUSH)
            }),
        ),
        (
            "FLUSH to what outlasts a power cut",
            FLUSH_PERSISTENT,
            Box::new(|| registers(IBV_ACCESS_FLUSH_PERSISTENT)),
        ),
        (
            "ATOMIC WRITE",
            IBV_DEVICE_ATOMIC_WRITE,
            Box::new(|| builds(IBV_QPT_RC, IBV_QP_EX_WITH_ATOMIC_WRITE)),
        ),
        (
            "frames",
            IBV_DEVICE_RAW_IP_CSUM.into(),
            Box::new(|| create_qp(end, |init| init.qp_type = IBV_QPT_RAW_PACKET)),
        ),
        (
            "checksums of frames",
            IBV_DEVICE_RAW_SCATTER_FCS,
            Box::new(|| created(IBV_QPT_UD, IBV_QP_CREATE_SCATTER_FCS)),
        ),
        (
            "another path",
            IBV_DEVICE_AUTO_PATH_MIG.into(),
            Box::new(|| {
                let attr = ibv_qp_attr { path_mig_state: 1, ..Default::default() };
                done(modify_with(qp, &attr, IBV_QP_PATH_MIG_STATE))
            }),
        ),
    ];
    for (name, bits, attempt) in promises {
        let refused = attempt().err();
        let expected = flags & bits != 0;
        assert_eq!(refused.is_none(), expected, "{name}: {refused:?}");
        assert!(matches!(refused, None | Some(libc::EINVAL | libc::EOPNOTSUPP)), "{name}");
    }
    let paging = extended_attr(end).odp_caps.general_caps;
    assert_eq!(registers(IBV_ACCESS_ON_DEMAND).is_ok(), paging & u64::from(IBV_ODP_SUPPORT) != 0);
    let everything = try_reg(end.pd, 0, usize::MAX, IBV_ACCESS_ON_DEMAND as i32);
    assert_eq!(everything.is_ok(), paging & u64::from(IBV_ODP_SUPPORT_IMPLICIT) != 0);
    let memory = try_dm(end.context, ibv_alloc_dm_attr { length: 8, ..Default::default() });
    assert_eq!(memory.is_ok(), extended_attr(end).max_dm_size > 0);
}
