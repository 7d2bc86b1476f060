//! A program that may have only so much memory: what does not fit is refused, and all else goes on.

use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::extended_qp::*;
use transom_conformance::harness::*;
use transom_conformance::memory::{free_dm, try_dm};
use transom_conformance::processes::*;
use transom_conformance::queues::*;
use transom_conformance::shared_receive::*;
use transom_conformance::tag_matching;
use transom_conformance::{on_each_way, path_of};
use transom_ibverbs::*;

/// What is limited, and in which field of `/proc/self/statm` the pages of it stand that this process has.
#[derive(Clone, Copy)]
enum Limited {
    /// Address space, of whatever kind.
    All = libc::RLIMIT_AS as isize,
    /// What can be written to and is not shared. Address space that the allocator keeps for later does
    /// not count.
    Own = libc::RLIMIT_DATA as isize,
}

/// Lets this process have so much memory beyond what it has.
fn limit_memory(limited: Limited, more: u64) {
    let field = match limited {
        Limited::All => 0,
        Limited::Own => 5,
    };
    let pages = std::fs::read_to_string("/proc/self/statm").expect("this process is there");
    let pages = pages.split_whitespace().nth(field).and_then(|size| size.parse::<u64>().ok());
    set_limit(limited, pages.expect("a number") * 4096 + more);
}

fn set_limit(limited: Limited, rlim_cur: u64) {
    let limit = libc::rlimit { rlim_cur, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a limit of this call's own.
    assert_eq!(unsafe { libc::setrlimit(limited as u32, &limit) }, 0);
}

/// Makes something with ever more memory until there is enough: each part of it is the one that does
/// not fit once. Whatever does not is refused.
fn with_ever_more<T>(name: &str, make: impl Fn() -> Result<T, i32>, end: impl Fn(T) -> i32) {
    // The device's thread may still have what was made before, and give it back while the limit counts it.
    until(name, || (refusals(name, &make, &end) > 2).then_some(()));
}

/// How often it is refused before there is enough.
fn refusals<T>(name: &str, make: &impl Fn() -> Result<T, i32>, end: &impl Fn(T) -> i32) -> u32 {
    let mut refused = 0;
    for more in (2 << 20..).step_by(3 << 20) {
        limit_memory(Limited::Own, more);
        let made = make();
        set_limit(Limited::Own, libc::RLIM_INFINITY);
        match made {
            Ok(object) => {
                assert_eq!(end(object), 0, "{name}");
                break;
            }
            Err(errno) => assert_eq!(errno, libc::ENOMEM, "{name} with {more} bytes"),
        }
        refused += 1;
    }
    refused
}

/// Makes as many as there is memory for: some, and not for ever. Does something without memory, then
/// ends them all.
fn until_refused<T: Copy>(
    name: &str,
    make: impl Fn() -> Result<T, i32>,
    end: impl Fn(T) -> i32,
    without: impl Fn(),
) {
    let mut made = Vec::new();
    let errno = loop {
        match make() {
            Ok(object) => made.push(object),
            Err(errno) => break errno,
        }
        assert!(made.len() < 1000, "{name}: the limit is none");
    };
    assert_eq!(errno, libc::ENOMEM, "{name}");
    assert!(!made.is_empty(), "{name}");
    without();
    made.into_iter().for_each(|object| assert_eq!(end(object), 0, "{name}"));
}

/// To look whether memory in many mappings is there takes no memory.
///
/// Rules: MR-20
#[test]
fn memory_in_many_mappings_is_registered_without_memory() {
    const MAPPINGS: usize = 8000;
    const PAGE: usize = 4096;
    alone(path_of!("memory_in_many_mappings_is_registered_without_memory"), Way::Direct, || {
        // SAFETY: a setting of the allocator.
        assert_eq!(unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10) }, 1);
        let end = open();
        let length = MAPPINGS * PAGE;
        let (rights, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping where the kernel finds room.
        let first = unsafe { libc::mmap(null_mut(), length, rights, kind, -1, 0) }.cast::<u8>();
        let page = |at: usize| first.wrapping_add(at * PAGE);
        // SAFETY: this test's own memory.
        (0..MAPPINGS).for_each(|at| unsafe { page(at).write(at as u8) });
        // What one of two neighbours is told makes them two mappings.
        for at in (0..MAPPINGS).step_by(2) {
            // SAFETY: this test's own memory, of which no byte is changed.
            let told = unsafe { libc::madvise(page(at).cast(), PAGE, libc::MADV_DONTDUMP) };
            assert_eq!(told, 0);
        }
        let register = || {
            // SAFETY: the memory outlives the region.
            let mr = unsafe { ibv_reg_mr(end.pd, first.cast(), length, ALL) };
            assert!(!mr.is_null());
            mr
        };
        let without_memory = |act: &dyn Fn()| {
            limit_memory(Limited::Own, 64 << 10);
            act();
            set_limit(Limited::Own, libc::RLIM_INFINITY);
        };
        without_memory(&|| assert_eq!(dereg(register()), 0));
        // SAFETY: this test's own memory.
        let is_whole = |at: usize| unsafe { page(at).read() } == at as u8;
        assert!((0..MAPPINGS).all(is_whole));
    });
}

on_each_way! {
    /// Queues of the largest size, until there is no memory for one more.
    fn what_does_not_fit_is_refused() {
        let end = open();
        let attr = device_attr(end.context);
        let (qa, qb) = (end.qp(IBV_QPT_RC), end.qp(IBV_QPT_RC));
        connect(qa, qb);
        let small_cq = try_cq(end.context, 1, null_mut()).unwrap();
        let small_srq = try_srq(end.pd, 1, attr.max_srq_sge as u32).unwrap();
        limit_memory(Limited::All, 256 << 20);
        let (requests, sges) = (attr.max_qp_wr as u32, attr.max_sge as u32);
        let most = ibv_qp_cap {
            max_send_wr: requests,
            max_recv_wr: requests,
            max_send_sge: sges,
            max_recv_sge: sges,
            max_inline_data: 256,
        };
        let make = || try_qp(end.pd, &mut ibv_qp_init_attr { cap: most, ..end.init(IBV_QPT_RC) });
        let exchange = || {
            recv(qb, 2, &mut []);
            post(qa, &mut wr(IBV_WR_SEND));
            let both = [end.expect(IBV_WC_SUCCESS).wr_id, end.expect(IBV_WC_SUCCESS).wr_id];
            assert_eq!(both.iter().sum::<u64>(), 3);
        };
        until_refused("queue pair", make, destroy_qp, exchange);
        let make = || try_srq(end.pd, attr.max_srq_wr as u32, attr.max_srq_sge as u32);
        until_refused("shared receive queue", make, destroy_srq, || {
            let more = ibv_srq_attr { max_wr: attr.max_srq_wr as u32, ..Default::default() };
            assert_eq!(modify_srq(small_srq, more, IBV_SRQ_MAX_WR), libc::ENOMEM);
            assert_eq!(query_srq(small_srq).max_wr, 1);
        });
        let cqe = attr.max_cqe / 4;
        let make = || try_cq(end.context, cqe, null_mut());
        until_refused("completion queue", make, destroy_cq, || {
            // SAFETY: a live queue.
            unsafe {
                assert_eq!(ibv_resize_cq(small_cq, attr.max_cqe), libc::ENOMEM);
                assert_eq!((*small_cq).cqe, 1);
            }
        });
        exchange();
    }

    /// Every part of what is largest may be the one for which there is no memory.
    fn whatever_part_does_not_fit_is_refused() {
        // Keep nothing of what is given back, so that it counts when it is taken again.
        // SAFETY: a setting of the allocator.
        assert_eq!(unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10) }, 1);
        let end = open();
        let attr = device_attr(end.context);
        let (requests, sges) = (attr.max_qp_wr as u32, attr.max_sge as u32);
        let shared = attr.max_srq_wr as u32;
        let most = ibv_qp_cap {
            max_send_wr: requests,
            max_recv_wr: requests,
            max_send_sge: sges,
            max_recv_sge: sges,
            max_inline_data: 256,
        };
        for kind in [IBV_QPT_RC, IBV_QPT_UD] {
            let plain = || try_qp(end.pd, &mut ibv_qp_init_attr { cap: most, ..end.init(kind) });
            with_ever_more("queue pair", plain, destroy_qp);
            let batches = || {
                let init = init_ex(&end, kind, IBV_QP_EX_WITH_SEND);
                try_qp_ex(&end, &mut ibv_qp_init_attr_ex { cap: most, ..init })
            };
            with_ever_more("queue pair with batches", batches, destroy_qp);
        }
        let tags = || {
            let attr = ibv_srq_attr { max_wr: shared, max_sge: sges, srq_limit: 0 };
            let tm_cap = ibv_tm_cap { max_num_tags: 1 << 10, max_ops: 1 };
            let init = tag_matching::srq_attr(end.pd, end.cq);
            tag_matching::try_srq(end.context, &ibv_srq_init_attr_ex { attr, tm_cap, ..init })
        };
        with_ever_more("shared receive queue with tags", tags, destroy_srq);
        let cq = || try_cq(end.context, attr.max_cqe / 8, null_mut());
        with_ever_more("completion queue", cq, destroy_cq);
        let attr = ibv_alloc_dm_attr { length: 32 << 20, ..Default::default() };
        with_ever_more("device memory", || try_dm(end.context, attr), free_dm);
    }

    /// The flush of the longest queues takes no memory.
    /// Rules: ST-19, ORD-28
    fn long_queues_are_flushed_without_memory() {
        // What is large is asked of the system, and refused.
        // SAFETY: a setting of the allocator.
        assert_eq!(unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10) }, 1);
        let end = open();
        let most = device_attr(end.context).max_qp_wr as u32;
        let cap = ibv_qp_cap { max_send_wr: most, max_recv_wr: most, ..Default::default() };
        let cq = try_cq(end.context, 2 * most as i32, null_mut()).unwrap();
        let init = ibv_qp_init_attr { cap, send_cq: cq, recv_cq: cq, ..end.init(IBV_QPT_RC) };
        let qa = try_qp(end.pd, &mut { init }).unwrap();
        // It posts no receive, so all that is sent to it waits.
        let qb = end.qp(IBV_QPT_RC);
        connect(qa, qb);
        let count = u64::from(most);
        for id in 0..count {
            recv(qa, count + id, &mut []);
            post(qa, &mut ibv_send_wr { wr_id: id, ..wr(IBV_WR_SEND) });
        }
        limit_memory(Limited::Own, 16 << 10);
        let modified = modify(qa, &ibv_qp_attr::default(), IBV_QPS_ERR);
        // A failure could not be told without memory.
        set_limit(Limited::Own, libc::RLIM_INFINITY);
        assert_eq!(modified, 0);
        let mut next = [0, count];
        for _ in 0..2 * count {
            let done = poll(cq).expect("all is flushed at once");
            let side = usize::from(done.wr_id >= count);
            assert_eq!((done.status, done.wr_id), (IBV_WC_WR_FLUSH_ERR, next[side]));
            next[side] += 1;
        }
    }
}
