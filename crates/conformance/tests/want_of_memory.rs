//! A program that may have only so much memory: what does not fit is refused, and all else goes on.

use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_way;
use transom_conformance::processes::*;
use transom_conformance::queues::*;
use transom_conformance::shared_receive::*;
use transom_ibverbs::*;

/// Lets this process have so much memory beyond what it has.
fn limit_memory(more: u64) {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("this process is there");
    let pages: u64 = pages.split(' ').next().and_then(|size| size.parse().ok()).expect("a number");
    let limit = libc::rlimit { rlim_cur: pages * 4096 + more, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a limit of this call's own.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
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

on_each_way! {
    /// Queues of the largest size, until there is no memory for one more.
    fn what_does_not_fit_is_refused() {
        let end = open();
        let attr = device_attr(end.context);
        let (qa, qb) = (end.qp(IBV_QPT_RC), end.qp(IBV_QPT_RC));
        connect(qa, qb);
        let small_cq = try_cq(end.context, 1, null_mut()).unwrap();
        let small_srq = try_srq(end.pd, 1, attr.max_srq_sge as u32).unwrap();
        limit_memory(256 << 20);
        let (requests, pieces) = (attr.max_qp_wr as u32, attr.max_sge as u32);
        let most = ibv_qp_cap {
            max_send_wr: requests,
            max_recv_wr: requests,
            max_send_sge: pieces,
            max_recv_sge: pieces,
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
}
