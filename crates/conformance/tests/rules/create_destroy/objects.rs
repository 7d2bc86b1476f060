//! Making and ending queue pairs, completion queues and channels: what is refused, what is told
//! back, and what must wait.

use std::ffi::c_void;
use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::extended::*;
use transom_conformance::harness::*;
use transom_conformance::memory::*;
use transom_conformance::path_of;
use transom_conformance::processes::{Way, alone};
use transom_conformance::queues::*;
use transom_conformance::shared_receive::*;
use transom_conformance::xrc::*;
use transom_ibverbs::*;

fn end() -> End {
    End::new(Default::default())
}

/// A completion queue with a completion vector; the errno if it is refused.
fn cq_on_vector(end: &End, vector: i32) -> Result<*mut ibv_cq, i32> {
    // SAFETY: the context is open.
    let cq = unsafe { ibv_create_cq(end.context, 5, null_mut(), null_mut(), vector) };
    if cq.is_null() { Err(errno()) } else { Ok(cq) }
}

/// A new queue pair is in RESET and has what it was given.
/// Rules: CR-01
#[test]
fn a_new_queue_pair_is_as_it_was_asked_for() {
    let end = end();
    let other = try_cq(end.context, 7, null_mut()).unwrap();
    for kind in [IBV_QPT_RC, IBV_QPT_UC] {
        let mut init = ibv_qp_init_attr { recv_cq: other, ..end.init(kind) };
        init.qp_context = (&raw const end).cast_mut().cast::<c_void>();
        let qp = end.qp_with(&mut init);
        // SAFETY: a live queue pair.
        let found = unsafe { &*qp };
        assert_eq!((found.context, found.pd), (end.context, end.pd));
        assert_eq!((found.send_cq, found.recv_cq), (end.cq, other));
        assert_eq!((found.qp_context, found.srq), (init.qp_context, null_mut()));
        assert_eq!((found.qp_type, found.state), (kind, IBV_QPS_RESET));
        assert!(found.qp_num > 0 && found.qp_num < 1 << 24);
        assert_eq!(state(qp), IBV_QPS_RESET);
        // It completes where it says.
        take_to(&end, qp, IBV_QPS_RTS);
        recv(qp, 5, &mut []);
        post(qp, &mut wr(IBV_WR_SEND));
        assert_eq!(wait(other).wr_id, 5);
        assert_eq!(end.wait().wr_id, 1);
    }
}

/// Each context has handles of its own on Linux, so objects of two of one device do not go together. Those of a context
/// that was imported go with those of the one that it was made from.
/// Rules: DEVS-04
#[test]
fn objects_of_two_contexts_do_not_go_together() {
    let (one, other) = ends(Link::Loopback, Default::default());
    let channel = channel(other.context);
    let refused = |init: ibv_qp_init_attr| {
        let mut init = init;
        assert_eq!(try_qp(one.pd, &mut init), Err(libc::EINVAL));
    };
    let shared = srq(other.pd, 4);
    refused(ibv_qp_init_attr { send_cq: other.cq, ..one.init(IBV_QPT_RC) });
    refused(ibv_qp_init_attr { recv_cq: other.cq, ..one.init(IBV_QPT_UD) });
    refused(ibv_qp_init_attr { srq: shared, ..one.init(IBV_QPT_RC) });
    assert_eq!(try_cq(one.context, 4, channel), Err(libc::EBADF));
    let at = |end: &End, pd, domain, cq| try_srq_ex(end.context, &xrc_srq_init(pd, domain, cq));
    let domains = [&one, &other].map(|end| xrcd(end.context));
    assert_eq!(at(&one, one.pd, domains[1], one.cq), Err(libc::EINVAL));
    assert_eq!(at(&one, one.pd, domains[0], other.cq), Err(libc::EINVAL));
    assert_eq!(at(&other, one.pd, domains[0], one.cq), Err(libc::EINVAL));
    assert_eq!(try_xrc_target(one.context, domains[1]).map(drop), Err(libc::EINVAL));
    let target = xrc_target(other.context, domains[1]);
    let named = number(target);
    assert_eq!(try_open_qp(one.context, domains[1], named).map(drop), Err(libc::EINVAL));
    let (memory, dm) = (Buffer::new(4096), alloc_dm(other.context, 64));
    let mr = one.reg(&memory, ALL);
    let moved = Change { pd: Some(other.pd), ..Change::default() };
    assert_eq!(rereg(mr, moved).map_err(|(_, errno)| errno), Err(libc::EINVAL));
    let zero_based = IBV_ACCESS_ZERO_BASED;
    assert_eq!(try_reg_dm(one.pd, dm, 0, 64, zero_based).map(drop), Err(libc::EINVAL));
    // A handle of one means nothing in the other.
    // SAFETY: a live domain.
    let handle = unsafe { (*other.pd).handle };
    assert_eq!(import_pd(one.context, handle), Err(libc::ENOENT));

    let imported = import_context(other.context);
    let cq = try_cq(imported, 4, channel).expect("a queue");
    let mut init = ibv_qp_init_attr { send_cq: cq, ..other.init(IBV_QPT_RC) };
    let qp = try_qp(other.pd, &mut init).expect("a queue pair");
    assert_eq!((destroy_qp(qp), destroy_qp(target), destroy_cq(cq)), (0, 0, 0));
    // SAFETY: nothing of it is left.
    assert_eq!(unsafe { ibv_close_device(imported) }, 0);
}

/// What comes back is at least what was asked for, a query says the same, and the room is there.
/// Rules: CR-02
#[test]
fn the_sizes_given_are_at_least_those_asked_for() {
    let end = end();
    for size in [1, 2, 3, 10, 100] {
        let asked = ibv_qp_cap {
            max_send_wr: size,
            max_recv_wr: size + 1,
            max_send_sge: 1 + size % 5,
            max_recv_sge: 2 + size % 3,
            max_inline_data: size * 3,
        };
        let mut init = ibv_qp_init_attr { cap: asked, ..end.init(IBV_QPT_RC) };
        let qp = end.qp_with(&mut init);
        let given = init.cap;
        assert!(given.max_send_wr >= asked.max_send_wr);
        assert!(given.max_recv_wr >= asked.max_recv_wr);
        assert!(given.max_send_sge >= asked.max_send_sge);
        assert!(given.max_recv_sge >= asked.max_recv_sge);
        assert!(given.max_inline_data >= asked.max_inline_data);
        assert_eq!(query(qp).cap, given);
        // All of it can be used at once.
        let mut sges = vec![ibv_sge::default(); given.max_recv_sge as usize];
        take_to(&end, qp, IBV_QPS_SQD);
        for wr_id in 0..given.max_recv_wr {
            recv(qp, u64::from(wr_id), &mut sges);
        }
        let mut sges = vec![ibv_sge::default(); given.max_send_sge as usize];
        for _ in 0..given.max_send_wr {
            post(qp, &mut with_sges(wr(IBV_WR_SEND), &mut sges));
        }
        assert_eq!(destroy_qp(qp), 0);
    }
}

/// Queues are as deep as an adapter's would be, for programs that are off by one; the room is there,
/// and no more.
/// Rules: CR-02, CR-14, CR-19
#[test]
fn queues_are_as_deep_as_an_adapters() {
    let end = end();
    for (asked, own, shared) in [(1, 1, 1), (2, 2, 3), (500, 512, 511), (512, 512, 1023)] {
        let cq = try_cq(end.context, asked as i32, null_mut()).unwrap();
        // SAFETY: a live queue.
        assert_eq!(unsafe { (*cq).cqe }, shared as i32);
        let mut init = end.init(IBV_QPT_RC);
        (init.cap.max_send_wr, init.cap.max_recv_wr) = (asked, asked);
        init.cap.max_recv_sge = 0;
        let qp = end.qp_with(&mut init);
        assert_eq!((init.cap.max_send_wr, init.cap.max_recv_wr), (own, own));
        assert_eq!(init.cap.max_recv_sge, 1, "a receive has room for one");
        take_to(&end, qp, IBV_QPS_SQD);
        for wr_id in 0..own {
            recv(qp, u64::from(wr_id), &mut []);
            post(qp, &mut wr(IBV_WR_SEND));
        }
        assert_eq!(try_recv(qp, 0, &mut []), libc::ENOMEM);
        assert_eq!(try_post(qp, &mut wr(IBV_WR_SEND)), libc::ENOMEM);
        let attr = ibv_srq_attr { max_wr: asked, ..ibv_srq_attr::default() };
        let mut init = ibv_srq_init_attr { attr, ..ibv_srq_init_attr::default() };
        // SAFETY: a live domain.
        let srq = unsafe { ibv_create_srq(end.pd, &mut init) };
        assert!(!srq.is_null());
        assert_eq!((init.attr.max_wr, query_srq(srq).max_wr), (shared, shared));
        let room = (init.attr.max_sge, query_srq(srq).max_sge);
        assert_eq!(room, (1, 1), "a receive has room for one, as on mlx5 and rxe");
        for wr_id in 0..shared {
            srq_recv(srq, u64::from(wr_id), &mut []);
        }
        assert_eq!(try_srq_recv(srq, 0, &mut []), libc::ENOMEM);
        assert_eq!((destroy_qp(qp), destroy_srq(srq), destroy_cq(cq)), (0, 0, 0));
    }
}

/// More than the device says it has is `EINVAL`; as much as it says is not.
/// Rules: CR-03
#[test]
fn more_than_the_device_has_is_refused() {
    let end = end();
    let most = device_attr(end.context);
    let (requests, sges) = (most.max_qp_wr as u32, most.max_sge as u32);
    type Field = fn(&mut ibv_qp_cap) -> &mut u32;
    let fields: [(Field, u32); 4] = [
        (|cap| &mut cap.max_send_wr, requests),
        (|cap| &mut cap.max_recv_wr, requests),
        (|cap| &mut cap.max_send_sge, sges),
        (|cap| &mut cap.max_recv_sge, sges),
    ];
    for (at, (field, limit)) in fields.into_iter().enumerate() {
        for (value, fits) in [(limit, true), (limit + 1, false), (u32::MAX, false)] {
            let mut init = end.init(IBV_QPT_RC);
            *field(&mut init.cap) = value;
            match try_qp(end.pd, &mut init) {
                Ok(qp) => {
                    assert!(fits, "field {at} of {value}");
                    assert_eq!(destroy_qp(qp), 0);
                }
                Err(code) => assert_eq!((code, fits), (libc::EINVAL, false), "field {at}"),
            }
        }
    }
    let mut init = end.init(IBV_QPT_RC);
    init.cap.max_inline_data = 1 << 30;
    assert_eq!(try_qp(end.pd, &mut init), Err(libc::EINVAL));
}

/// A queue of no room is a queue; what is posted to it finds none.
/// Rules: CR-02, CR-04, PS-02, PS-12
#[test]
fn queues_may_have_no_room() {
    let end = end();
    let mut init = ibv_qp_init_attr { cap: ibv_qp_cap::default(), ..end.init(IBV_QPT_RC) };
    let qp = end.qp_with(&mut init);
    take_to(&end, qp, IBV_QPS_RTS);
    assert_eq!((init.cap.max_send_wr, init.cap.max_recv_wr), (0, 0));
    assert_eq!(try_post(qp, &mut wr(IBV_WR_SEND)), libc::ENOMEM);
    assert_eq!(try_recv(qp, 1, &mut []), libc::ENOMEM);
    assert_eq!(set_state(qp, IBV_QPS_ERR), 0);
    end.expect_nothing();
    assert_eq!(destroy_qp(qp), 0);
}

/// Only known services can be asked for.
/// Rules: CR-05
#[test]
fn unknown_services_are_refused() {
    let end = end();
    for kind in [0, 1, 5, 6, 7, 11, 254, 256, u32::MAX] {
        let refused = try_qp(end.pd, &mut end.init(kind)).unwrap_err();
        assert!([libc::EINVAL, libc::EOPNOTSUPP].contains(&refused), "type {kind}: {refused}");
    }
}

/// A queue pair needs live completion queues and a live domain.
/// Rules: CR-06, PD-08
#[test]
fn a_queue_pair_needs_live_queues() {
    let end = end();
    let gone = try_cq(end.context, 4, null_mut()).unwrap();
    assert_eq!(destroy_cq(gone), 0);
    for bad in [null_mut(), gone] {
        for (send_cq, recv_cq) in [(bad, end.cq), (end.cq, bad), (bad, bad)] {
            let mut init = ibv_qp_init_attr { send_cq, recv_cq, ..end.init(IBV_QPT_RC) };
            assert!(try_qp(end.pd, &mut init).is_err());
        }
    }
    assert!(try_qp(null_mut(), &mut end.init(IBV_QPT_RC)).is_err());
    let pd = end.another_pd();
    assert_eq!(dealloc_pd(pd), 0);
    assert!(try_qp(pd, &mut end.init(IBV_QPT_RC)).is_err());
    // Nothing refused is counted.
    assert_eq!((destroy_cq(end.cq), dealloc_pd(end.pd)), (0, 0));
}

/// A queue pair can be ended in every state, with work waiting in it.
/// Rules: CR-09
#[test]
fn a_queue_pair_ends_in_any_state() {
    for kind in [IBV_QPT_RC, IBV_QPT_UC] {
        for to in [
            IBV_QPS_RESET,
            IBV_QPS_INIT,
            IBV_QPS_RTR,
            IBV_QPS_RTS,
            IBV_QPS_SQD,
            IBV_QPS_SQE,
            IBV_QPS_ERR,
        ] {
            if (kind, to) == (IBV_QPT_RC, IBV_QPS_SQE) {
                continue;
            }
            let end = end();
            let qp = end.qp(kind);
            take_to(&end, qp, to);
            if to != IBV_QPS_RESET {
                recv(qp, 1, &mut []);
            }
            if matches!(to, IBV_QPS_SQD | IBV_QPS_SQE | IBV_QPS_ERR) {
                post(qp, &mut wr(IBV_WR_SEND));
            }
            assert_eq!(destroy_qp(qp), 0, "type {kind} in {to}");
            assert_eq!((destroy_cq(end.cq), dealloc_pd(end.pd)), (0, 0));
        }
    }
}

/// A queue pair that has ended is not known any more.
/// Rules: CR-11
#[test]
fn an_ended_queue_pair_is_unknown() {
    let end = end();
    let qp = end.qp(IBV_QPT_RC);
    assert_eq!(destroy_qp(qp), 0);
    let (mut attr, mut init) = (usual_attr(null_mut()), ibv_qp_init_attr::default());
    assert_eq!(destroy_qp(qp), libc::ENOENT);
    assert_eq!(modify_with(qp, &attr, required_attributes(IBV_QPT_RC, IBV_QPS_INIT)), libc::ENOENT);
    // SAFETY: the struct of an ended queue pair stays readable.
    assert_eq!(unsafe { ibv_query_qp(qp, &mut attr, -1, &mut init) }, libc::ENOENT);
}

/// A completion queue stays while a queue pair uses it, for either direction.
/// Rules: CR-12
#[test]
fn a_completion_queue_in_use_stays() {
    let end = end();
    let (send_cq, recv_cq) =
        (try_cq(end.context, 4, null_mut()).unwrap(), try_cq(end.context, 4, null_mut()).unwrap());
    let mut init = ibv_qp_init_attr { send_cq, recv_cq, ..end.init(IBV_QPT_RC) };
    let (first, second) = (end.qp_with(&mut init), end.qp_with(&mut init));
    for qp in [first, second] {
        assert_eq!((destroy_cq(send_cq), destroy_cq(recv_cq)), (libc::EBUSY, libc::EBUSY));
        assert_eq!(destroy_qp(qp), 0);
    }
    assert_eq!((destroy_cq(send_cq), destroy_cq(recv_cq)), (0, 0));
    assert_eq!(destroy_cq(send_cq), libc::ENOENT);
}

/// A completion queue has at least the room asked for, and no more can be asked for than there is.
/// Rules: CR-13, CR-14
#[test]
fn a_completion_queue_has_the_room_asked_for() {
    let end = end();
    let most = device_attr(end.context).max_cqe;
    for bad in [0, -1, i32::MIN, most + 1, i32::MAX] {
        assert_eq!(try_cq(end.context, bad, null_mut()), Err(libc::EINVAL), "{bad}");
    }
    for size in [1, 5, 1000, most] {
        let cq = try_cq(end.context, size, null_mut()).unwrap();
        // SAFETY: a live queue.
        let (given, context) = unsafe { ((*cq).cqe, (*cq).context) };
        assert!(given >= size);
        assert_eq!(context, end.context);
        assert_eq!(destroy_cq(cq), 0);
    }
    // The room is real: as many completions as it has fit.
    let cq = try_cq(end.context, 5, null_mut()).unwrap();
    let mut init = ibv_qp_init_attr { send_cq: cq, recv_cq: cq, ..end.init(IBV_QPT_RC) };
    let qp = end.qp_with(&mut init);
    take_to(&end, qp, IBV_QPS_ERR);
    for wr_id in 0..5 {
        recv(qp, wr_id, &mut []);
    }
    assert_eq!(wait_for(cq, 5).len(), 5);
    assert!(!end.has_event());
}

/// There are as many completion vectors as the context says.
/// Rules: CR-15
#[test]
fn completion_vectors_are_those_of_the_context() {
    let end = end();
    // SAFETY: an open context.
    let count = unsafe { (*end.context).num_comp_vectors };
    assert!(count >= 1);
    for vector in 0..count {
        assert_eq!(destroy_cq(cq_on_vector(&end, vector).unwrap()), 0);
    }
    for vector in [-1, count, i32::MAX, i32::MIN] {
        assert_eq!(cq_on_vector(&end, vector), Err(libc::EINVAL), "vector {vector}");
    }
}

/// A channel stays while completion queues use it.
/// Rules: CR-16
#[test]
fn a_channel_in_use_stays() {
    let end = end();
    let channel = channel(end.context);
    // SAFETY: a live channel, until it is ended.
    let destroy = || unsafe { ibv_destroy_comp_channel(channel) };
    let cqs = [(); 2].map(|()| try_cq(end.context, 4, channel).unwrap());
    for cq in cqs {
        assert_eq!(destroy(), libc::EBUSY);
        // SAFETY: a live queue.
        assert_eq!(unsafe { (*cq).channel }, channel);
        assert_eq!(destroy_cq(cq), 0);
    }
    assert_eq!(destroy(), 0);
}

/// A number just freed is not given out again; after all others it may be, but never while in use.
/// Rules: CR-20
#[test]
fn numbers_rest_before_they_come_back() {
    alone(path_of!("numbers_rest_before_they_come_back"), Way::Direct, || {
        let end = end();
        let mut init = end.init(IBV_QPT_RC);
        init.cap = ibv_qp_cap { max_send_wr: 1, max_recv_wr: 1, ..ibv_qp_cap::default() };
        let kept = number(end.qp_with(&mut init));
        let mut seen = std::collections::HashSet::new();
        let mut last = kept;
        // More than there are numbers for a process, so they do come back.
        for round in 0..70_000 {
            let qp = end.qp_with(&mut init);
            let new = number(qp);
            assert!(new != last && new != kept, "round {round}: {new:#x} is given out again");
            if round < 10_000 {
                assert!(seen.insert(new), "round {round}: {new:#x} came back already");
            }
            assert_eq!(destroy_qp(qp), 0);
            last = new;
        }
    });
}

/// What a verb has answered, as an error, and what it has left in `errno`.
trait Told {
    fn errno(self) -> i32;
}

/// Zero, or an errno.
impl Told for i32 {
    fn errno(self) -> i32 {
        self
    }
}

/// A pointer, or null and an errno elsewhere.
impl<T> Told for *mut T {
    fn errno(self) -> i32 {
        if self.is_null() { errno() } else { 0 }
    }
}

/// An answer is what it should be, and so is `errno`, which had something else.
fn expect_told(name: &str, wanted: i32, call: impl FnOnce() -> i32) {
    // SAFETY: the address of this thread's own errno.
    unsafe { *libc::__errno_location() = libc::ENOTTY };
    let answer = call();
    assert_eq!((answer, errno()), (wanted, wanted), "{name}");
}

/// Calls, each with its name, and the errno that it answers one way or the other.
macro_rules! expect {
    ($wanted:expr; $($name:literal: $call:expr,)+) => {
        $(
            // SAFETY: live objects, or ones whose memory is still there, and values of the test's own.
            #[allow(unused_unsafe)]
            expect_told($name, $wanted, || Told::errno(unsafe { $call }));
        )+
    };
}

/// A handle that is not there, or not any more, is `ENOENT` to every verb, in `errno` as well.
/// Rules: PD-08, DR-02, MWA-17
#[test]
fn what_is_gone_is_enoent_to_every_verb() {
    let end = end();
    let (context, verbs) = (end.context, verbs(end.context));
    // SAFETY: an open context.
    let ops = unsafe { &(*context).ops };
    let (address, access) = ((&raw const end).cast_mut().cast::<c_void>(), 0);
    let buffer = Buffer::new(4096);
    let pd = end.another_pd();
    assert_eq!(dealloc_pd(pd), 0);
    let cq = try_cq(context, 1, null_mut()).expect("a queue");
    assert_eq!(destroy_cq(cq), 0);
    let qp = end.qp(IBV_QPT_RC);
    assert_eq!(destroy_qp(qp), 0);
    let shared = srq(end.pd, 1);
    assert_eq!(destroy_srq(shared), 0);
    let mr = end.reg(&buffer, 0);
    assert_eq!(dereg(mr), 0);
    let mw = end.mw(IBV_MW_TYPE_2);
    assert_eq!(dealloc_mw(mw), 0);
    let dm = alloc_dm(context, 4096);
    assert_eq!(free_dm(dm), 0);
    let td = alloc_td(context);
    assert_eq!(dealloc_td(context, td), 0);
    let xrcd = xrcd(context);
    assert_eq!(close_xrcd(context, xrcd), 0);
    let mut attr = usual_attr(null_mut()).ah_attr;
    // SAFETY: a live domain and an address of this test's own.
    let ah = unsafe { ibv_create_ah(end.pd, &mut attr) };
    // SAFETY: it is live.
    assert_eq!(unsafe { ibv_destroy_ah(ah) }, 0);
    let srq_init = ibv_srq_init_attr {
        attr: ibv_srq_attr { max_wr: 1, max_sge: 1, srq_limit: 0 },
        ..Default::default()
    };
    let with_srq = ibv_qp_init_attr { srq: shared, ..end.init(IBV_QPT_RC) };
    let with_cq = ibv_qp_init_attr { send_cq: cq, ..end.init(IBV_QPT_RC) };
    let group = ibv_gid { raw: [0xff; 16] };
    let ece = ibv_ece { vendor_id: VENDOR_ID, options: 0, comp_mask: 0 };
    let unknown = u32::MAX;
    expect! { libc::ENOENT;
        "ibv_dealloc_pd": ibv_dealloc_pd(pd),
        "ibv_reg_mr": ibv_reg_mr(pd, address, 8, access),
        "ibv_reg_mr_iova": ibv_reg_mr_iova(pd, address, 8, 0, access),
        "ibv_reg_mr_iova2": ibv_reg_mr_iova2(pd, address, 8, 0, 0),
        "ibv_reg_dmabuf_mr": ibv_reg_dmabuf_mr(pd, 0, 8, 0, 0, access),
        "ibv_alloc_null_mr": verbs.alloc_null_mr.unwrap()(pd),
        "ibv_alloc_mw": ops.alloc_mw.unwrap()(pd, IBV_MW_TYPE_1),
        "ibv_create_srq": ibv_create_srq(pd, &mut { srq_init }),
        "ibv_create_qp": ibv_create_qp(pd, &mut end.init(IBV_QPT_RC)),
        "ibv_create_ah": ibv_create_ah(pd, &mut { attr }),
        "ibv_advise_mr": verbs.advise_mr.unwrap()(pd, 0, 0, &mut ibv_sge::default(), 1),
        "ibv_import_pd": ibv_import_pd(context, unknown),
        "ibv_import_mr": ibv_import_mr(end.pd, unknown),
        "ibv_import_dm": ibv_import_dm(context, unknown),
        "ibv_create_qp of a queue": ibv_create_qp(end.pd, &mut { with_cq }),
        "ibv_create_qp of a shared queue": ibv_create_qp(end.pd, &mut { with_srq }),
        "ibv_destroy_cq": ibv_destroy_cq(cq),
        "ibv_resize_cq": ibv_resize_cq(cq, 1),
        "ibv_modify_cq": verbs.modify_cq.unwrap()(cq, &mut ibv_modify_cq_attr::default()),
        "ibv_destroy_qp": ibv_destroy_qp(qp),
        "ibv_modify_qp": ibv_modify_qp(qp, &mut ibv_qp_attr::default(), 0),
        "ibv_query_qp": ibv_query_qp(qp, null_mut(), 0, null_mut()),
        "ibv_query_ece": ibv_query_ece(qp, &mut { ece }),
        "ibv_set_ece": ibv_set_ece(qp, &mut { ece }),
        "ibv_attach_mcast": ibv_attach_mcast(qp, &group, 0),
        "ibv_detach_mcast": ibv_detach_mcast(qp, &group, 0),
        "ibv_destroy_srq": ibv_destroy_srq(shared),
        "ibv_modify_srq": ibv_modify_srq(shared, &mut ibv_srq_attr::default(), 0),
        "ibv_query_srq": ibv_query_srq(shared, &mut ibv_srq_attr::default()),
        "ibv_get_srq_num": verbs.get_srq_num.unwrap()(shared, &mut 0),
        "ibv_dereg_mr": ibv_dereg_mr(mr),
        "ibv_dealloc_mw": ops.dealloc_mw.unwrap()(mw),
        "ibv_free_dm": verbs.free_dm.unwrap()(dm),
        "ibv_reg_dm_mr": verbs.reg_dm_mr.unwrap()(end.pd, dm, 0, 8, IBV_ACCESS_ZERO_BASED),
        "ibv_memcpy_to_dm": (*dm).memcpy_to_dm.unwrap()(dm, 0, address, 8),
        "ibv_memcpy_from_dm": (*dm).memcpy_from_dm.unwrap()(address, dm, 0, 8),
        "ibv_dealloc_td": verbs.dealloc_td.unwrap()(td),
        "ibv_close_xrcd": verbs.close_xrcd.unwrap()(xrcd),
        "ibv_destroy_ah": ibv_destroy_ah(ah),
    }
}

/// What is in use is `EBUSY`, what does not fit `ENOMEM`, what there is not `EOPNOTSUPP`, and so on;
/// always in `errno` as well.
/// Rules: PD-02, CR-12, CR-16, CR-17, DR-03, PS-02
#[test]
fn every_refusal_is_in_errno_as_well() {
    let end = end();
    let (context, verbs) = (end.context, verbs(end.context));
    // SAFETY: an open context.
    let ops = unsafe { &(*context).ops };
    let buffer = Buffer::new(4096);
    let mr = end.reg(&buffer, ALL);
    let channel = channel(context);
    let mut on_channel = end.init(IBV_QPT_RC);
    on_channel.send_cq = try_cq(context, 1, channel).expect("a queue");
    on_channel.srq = srq(end.pd, 1);
    end.qp_with(&mut on_channel);
    let (td, dm, xrcd) = (alloc_td(context), alloc_dm(context, 4096), xrcd(context));
    try_parent(context, parent_attr(end.pd, td)).expect("a domain");
    let zero_based = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE;
    try_reg_dm(end.pd, dm, 0, 64, zero_based).expect("a region");
    let xrc = xrc_srq_init(end.pd, xrcd, end.cq);
    try_srq_ex(context, &xrc).expect("a queue");
    let qp = end.qp(IBV_QPT_RC);
    bring_up(qp, &usual_attr(qp));
    let range = Range { mr, addr: buffer.addr(), length: 8, access: IBV_ACCESS_REMOTE_READ };
    bind(&end, qp, end.mw(IBV_MW_TYPE_2), range);
    expect! { libc::EBUSY;
        "ibv_dealloc_pd": ibv_dealloc_pd(end.pd),
        "ibv_destroy_cq": ibv_destroy_cq(on_channel.send_cq),
        "ibv_destroy_comp_channel": ibv_destroy_comp_channel(channel),
        "ibv_destroy_srq": ibv_destroy_srq(on_channel.srq),
        "ibv_dereg_mr": ibv_dereg_mr(mr),
        "ibv_dealloc_td": verbs.dealloc_td.unwrap()(td),
        "ibv_free_dm": verbs.free_dm.unwrap()(dm),
        "ibv_close_xrcd": verbs.close_xrcd.unwrap()(xrcd),
    }
    let bad = &mut null_mut();
    assert_eq!(try_recv(qp, 0, &mut []), 0);
    let full = || loop {
        let refused = try_recv(qp, 0, &mut []);
        if refused != 0 {
            return refused;
        }
    };
    let mut too_many = ibv_alloc_dm_attr { length: usize::MAX, ..Default::default() };
    expect! { libc::ENOMEM;
        "ibv_post_recv": full(),
        "ibv_alloc_dm": verbs.alloc_dm.unwrap()(context, &mut too_many),
    }
    expect! { libc::EOPNOTSUPP;
        "ibv_get_srq_num": verbs.get_srq_num.unwrap()(on_channel.srq, &mut 0),
        "ibv_create_qp": ibv_create_qp(end.pd, &mut end.init(IBV_QPT_RAW_PACKET)),
        "ibv_alloc_dmah": ibv_alloc_dmah(context, null_mut()),
        "ibv_dealloc_dmah": ibv_dealloc_dmah(null_mut()),
        "ibv_qp_to_qp_ex": ibv_qp_to_qp_ex(qp),
        "a provider's command": private::ibv_cmd_alloc_pd(),
    }
    expect! { libc::EINVAL;
        "ibv_resize_cq": ibv_resize_cq(end.cq, 0),
        "ibv_modify_qp": ibv_modify_qp(qp, &mut ibv_qp_attr::default(), 1 << 30),
        "ibv_modify_srq": ibv_modify_srq(on_channel.srq, &mut Default::default(), 1 << 30),
        "ibv_query_port": ibv_query_port(context, 2, &mut Default::default()),
        "ibv_query_gid_ex": _ibv_query_gid_ex(context, 2, 0, &mut Default::default(), 0, 32),
        "ibv_attach_mcast": ibv_attach_mcast(qp, &ibv_gid { raw: [0; 16] }, 0),
        "ibv_post_send": ops.post_send.unwrap()(qp, &mut wr(99), bad),
        "ibv_bind_mw": ops.bind_mw.unwrap()(qp, end.mw(IBV_MW_TYPE_2), &mut Default::default()),
        "ibv_start_poll": start_poll_with(cq_ex(context), 1),
        "ibv_set_ece": ibv_set_ece(qp, &mut ibv_ece { vendor_id: 1, options: 0, comp_mask: 0 }),
    }
    // Those that answer -1, or the negative of an errno.
    let minus_one = |answer: i32| if answer == -1 { errno() } else { answer };
    // SAFETY: an open context, and null.
    let table = unsafe { _ibv_query_gid_table(context, null_mut(), 1, 0, 32) };
    assert_eq!((table, errno()), (-(libc::EINVAL as isize), libc::EINVAL));
    expect! { libc::EINVAL;
        "ibv_query_gid": minus_one(ibv_query_gid(context, 1, -1, &mut ibv_gid { raw: [0; 16] })),
        "ibv_query_pkey": minus_one(ibv_query_pkey(context, 1, 1, &mut 0)),
        "ibv_poll_cq": minus_one(ops.poll_cq.unwrap()(end.cq, -1, null_mut())),
    }
    expect! { libc::ENOENT;
        "ibv_get_pkey_index": minus_one(ibv_get_pkey_index(context, 1, 1)),
        "ibv_read_sysfs_file": minus_one(
            ibv_read_sysfs_file(c"/nowhere".as_ptr(), c"file".as_ptr(), [0; 8].as_mut_ptr(), 8)
        ),
    }
}

/// Begins to poll with a mask; zero or an errno.
fn start_poll_with(cq: *mut ibv_cq_ex, comp_mask: u32) -> i32 {
    // SAFETY: a live queue.
    unsafe { (*cq).start_poll.unwrap()(cq, &mut ibv_poll_cq_attr { comp_mask }) }
}
