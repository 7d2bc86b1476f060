//! How many objects the device says it has: so many can be made, and no more.

use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::datagrams::*;
use transom_conformance::extended::*;
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::{Way, alone};
use transom_conformance::queues::*;
use transom_conformance::shared_receive::*;
use transom_ibverbs::*;

fn end() -> End {
    End::new(Default::default())
}

/// Makes as many as the device says it has. One more is `ENOMEM`, until one is ended.
fn fill<T: Copy>(most: i32, make: impl Fn() -> Result<T, i32>, end: impl Fn(T) -> i32) {
    let made: Vec<T> = (0..most)
        .map(|count| make().unwrap_or_else(|errno| panic!("after {count}: errno {errno}")))
        .collect();
    assert_eq!(make().err(), Some(libc::ENOMEM), "one more than {most}");
    assert_eq!(end(made[made.len() / 2]), 0);
    assert_eq!(end(make().expect("one was ended")), 0);
    for (at, object) in made.iter().enumerate() {
        assert_eq!(end(*object), if at == made.len() / 2 { libc::ENOENT } else { 0 }, "{at}");
    }
}

/// Rules: PD-11
#[test]
fn there_are_max_pd_domains() {
    alone(path_of!("there_are_max_pd_domains"), Way::Direct, || {
        let end = end();
        let make = || {
            // SAFETY: an open context.
            let pd = unsafe { ibv_alloc_pd(end.context) };
            if pd.is_null() { Err(errno()) } else { Ok(pd) }
        };
        // One is the end's own.
        fill(device_attr(end.context).max_pd - 1, make, dealloc_pd);
    });
}

#[test]
fn there_are_max_cq_completion_queues() {
    alone(path_of!("there_are_max_cq_completion_queues"), Way::Direct, || {
        let end = end();
        // One is the end's own; of both kinds the others.
        let extended = std::cell::Cell::new(false);
        let make = || {
            extended.set(!extended.get());
            match extended.get() {
                true => {
                    let attr = ibv_cq_init_attr_ex { cqe: 1, ..cq_attr(0) };
                    try_cq_ex(end.context, &attr).map(|cq| cq.cast())
                }
                false => try_cq(end.context, 1, null_mut()),
            }
        };
        fill(device_attr(end.context).max_cq - 1, make, destroy_cq);
    });
}

#[test]
fn there_are_max_srq_shared_receive_queues() {
    alone(path_of!("there_are_max_srq_shared_receive_queues"), Way::Direct, || {
        let end = end();
        fill(device_attr(end.context).max_srq, || try_srq(end.pd, 1, 0), destroy_srq);
    });
}

#[test]
fn there_are_max_ah_address_handles() {
    alone(path_of!("there_are_max_ah_address_handles"), Way::Direct, || {
        let end = end();
        fill(device_attr(end.context).max_ah, || try_ah(end.pd, &here()), destroy_ah);
    });
}

#[test]
fn there_are_max_qp_queue_pairs() {
    alone(path_of!("there_are_max_qp_queue_pairs"), Way::Direct, || {
        let end = end();
        let make = || {
            let cap = ibv_qp_cap { max_send_wr: 1, max_recv_wr: 1, ..Default::default() };
            try_qp(end.pd, &mut ibv_qp_init_attr { cap, ..end.init(IBV_QPT_RC) })
        };
        fill(device_attr(end.context).max_qp, make, destroy_qp);
    });
}

/// Joins a group, or leaves one; zero or an errno.
fn member(join: bool, qp: *mut ibv_qp, number: u16) -> i32 {
    let mut raw = [0; 16];
    (raw[0], raw[1], [raw[14], raw[15]]) = (0xff, 0x01, number.to_be_bytes());
    let call = if join { ibv_attach_mcast } else { ibv_detach_mcast };
    // SAFETY: a live queue pair and a GID of this call's own.
    unsafe { call(qp, &ibv_gid { raw }, 0) }
}

/// As many groups, as many members of each, and so as many memberships as are told.
#[test]
fn there_are_max_mcast_grp_groups_of_max_mcast_qp_attach() {
    alone(path_of!("there_are_max_mcast_grp_groups_of_max_mcast_qp_attach"), Way::Direct, || {
        let end = end();
        let attr = device_attr(end.context);
        let (groups, members) = (attr.max_mcast_grp as u16, attr.max_mcast_qp_attach as usize);
        assert_eq!(attr.max_total_mcast_qp_attach, i32::from(groups) * members as i32);
        let first = ud_qp(&end);
        for group in 0..groups {
            assert_eq!(member(true, first, group), 0, "group {group}");
        }
        assert_eq!(member(true, first, groups), libc::ENOMEM);
        let others: Vec<_> = (1..members).map(|_| ud_qp(&end)).collect();
        for (at, qp) in others.iter().enumerate() {
            assert_eq!(member(true, *qp, 0), 0, "member {at}");
        }
        let one_more = ud_qp(&end);
        assert_eq!(member(true, one_more, 0), libc::ENOMEM);
        assert_eq!(member(false, first, 0), 0);
        assert_eq!(member(true, one_more, 0), 0);
        assert_eq!((member(false, first, 1), member(true, first, groups)), (0, 0));
    });
}
