//! No pointer at all where one is needed: refused by every verb, whichever of its pointers it is.

use std::ptr::{null, null_mut};

use transom_abi::*;
use transom_conformance::extended::*;
use transom_conformance::harness::*;
use transom_conformance::queues::*;
use transom_conformance::shared_receive::*;
use transom_ibverbs::*;

fn end() -> End {
    End::new(Default::default())
}

/// Verbs that answer a pointer answer none, with `EINVAL`.
#[test]
fn nothing_is_made_of_nothing() {
    let end = end();
    let (context, verbs) = (end.context, verbs(end.context));
    let none = null_mut();
    fn refused<T>(name: &str, made: *mut T) {
        assert!(made.is_null(), "{name}");
        assert_eq!(errno(), libc::EINVAL, "{name}");
    }
    let wc = &mut ibv_wc::default();
    // SAFETY: live objects, values of this test's own, or null, which is what this is about.
    unsafe {
        refused("ibv_open_device", ibv_open_device(null_mut()));
        refused("ibv_alloc_pd", ibv_alloc_pd(null_mut()));
        refused("ibv_create_comp_channel", ibv_create_comp_channel(null_mut()));
        refused("ibv_create_cq", ibv_create_cq(null_mut(), 1, none, null_mut(), 0));
        refused("ibv_create_qp", ibv_create_qp(end.pd, null_mut()));
        refused("ibv_create_qp", ibv_create_qp(null_mut(), &mut end.init(IBV_QPT_RC)));
        let init = &mut ibv_srq_init_attr::default();
        (init.attr.max_wr, init.attr.max_sge) = (1, 1);
        refused("ibv_create_srq", ibv_create_srq(end.pd, null_mut()));
        refused("ibv_create_srq", ibv_create_srq(null_mut(), init));
        refused("ibv_create_ah", ibv_create_ah(end.pd, null_mut()));
        refused("ibv_create_ah", ibv_create_ah(null_mut(), &mut usual_attr(null_mut()).ah_attr));
        refused("ibv_create_ah_from_wc", ibv_create_ah_from_wc(end.pd, null_mut(), null_mut(), 1));
        wc.wc_flags = IBV_WC_GRH;
        refused("ibv_create_ah_from_wc", ibv_create_ah_from_wc(end.pd, wc, null_mut(), 1));
        refused("ibv_reg_mr", ibv_reg_mr(null_mut(), none, 1, 0));
        refused("ibv_reg_dmabuf_mr", ibv_reg_dmabuf_mr(null_mut(), 0, 1, 0, 0, 0));
        refused("ibv_import_mr", ibv_import_mr(null_mut(), 1));
        refused("ibv_import_pd", ibv_import_pd(null_mut(), 1));
        refused("ibv_import_dm", ibv_import_dm(null_mut(), 1));
        refused("ibv_alloc_mw", (*context).ops.alloc_mw.unwrap()(null_mut(), IBV_MW_TYPE_1));
        refused("ibv_alloc_null_mr", verbs.alloc_null_mr.unwrap()(null_mut()));
        refused("ibv_reg_dm_mr", verbs.reg_dm_mr.unwrap()(end.pd, null_mut(), 0, 1, 0));
        let dm = &mut ibv_alloc_dm_attr { length: 8, ..Default::default() };
        refused("ibv_alloc_dm", verbs.alloc_dm.unwrap()(null_mut(), dm));
        let td = &mut ibv_td_init_attr::default();
        refused("ibv_alloc_td", verbs.alloc_td.unwrap()(null_mut(), td));
        let parent = &mut ibv_parent_domain_init_attr { pd: end.pd, ..Default::default() };
        refused("ibv_alloc_parent_domain", verbs.alloc_parent_domain.unwrap()(null_mut(), parent));
        let cq = &mut cq_attr(0);
        refused("ibv_create_cq_ex", verbs.create_cq_ex.unwrap()(null_mut(), cq).cast::<ibv_cq>());
        for context in [context, null_mut()] {
            refused("ibv_alloc_dm", verbs.alloc_dm.unwrap()(context, null_mut()));
            refused("ibv_alloc_td", verbs.alloc_td.unwrap()(context, null_mut()));
            let parent = verbs.alloc_parent_domain.unwrap()(context, null_mut());
            refused("ibv_alloc_parent_domain", parent);
            refused("ibv_create_cq_ex", verbs.create_cq_ex.unwrap()(context, null_mut()));
            refused("ibv_create_qp_ex", verbs.create_qp_ex.unwrap()(context, null_mut()));
            refused("ibv_create_srq_ex", verbs.create_srq_ex.unwrap()(context, null_mut()));
            refused("ibv_open_xrcd", verbs.open_xrcd.unwrap()(context, null_mut()));
            refused("ibv_open_qp", verbs.open_qp.unwrap()(context, null_mut()));
        }
    }
}

/// What a verb has answered, and what it has left in `errno`.
fn told(answer: i32) -> (i32, i32) {
    let told = (answer, errno());
    // SAFETY: the address of this thread's own errno.
    unsafe { *libc::__errno_location() = 0 };
    told
}

/// Verbs that answer a number answer `EINVAL`, in `errno` too; none of the objects named has changed.
#[test]
fn nothing_is_done_with_nothing() {
    let end = end();
    let (context, verbs) = (end.context, verbs(end.context));
    let (qp, srq) = (end.qp(IBV_QPT_RC), srq(end.pd, 1));
    // SAFETY: an open context.
    let ops = &unsafe { &*context }.ops;
    let (bad, none) = (&mut null_mut(), &mut null_mut());
    // SAFETY: live objects, values of this test's own, or null, which is what this is about.
    let answers = unsafe {
        [
            ("ibv_query_device", told(ibv_query_device(context, null_mut()))),
            ("ibv_query_port", told(ibv_query_port(context, 1, null_mut()))),
            ("ibv_close_device", told(ibv_close_device(null_mut()))),
            ("ibv_dealloc_pd", told(ibv_dealloc_pd(null_mut()))),
            ("ibv_dereg_mr", told(ibv_dereg_mr(null_mut()))),
            ("ibv_destroy_cq", told(ibv_destroy_cq(null_mut()))),
            ("ibv_destroy_qp", told(ibv_destroy_qp(null_mut()))),
            ("ibv_destroy_srq", told(ibv_destroy_srq(null_mut()))),
            ("ibv_destroy_ah", told(ibv_destroy_ah(null_mut()))),
            ("ibv_destroy_comp_channel", told(ibv_destroy_comp_channel(null_mut()))),
            ("ibv_dealloc_mw", told(ops.dealloc_mw.unwrap()(null_mut()))),
            ("ibv_dealloc_td", told(verbs.dealloc_td.unwrap()(null_mut()))),
            ("ibv_free_dm", told(verbs.free_dm.unwrap()(null_mut()))),
            ("ibv_close_xrcd", told(verbs.close_xrcd.unwrap()(null_mut()))),
            ("ibv_resize_cq", told(ibv_resize_cq(null_mut(), 1))),
            ("ibv_req_notify_cq", told(ops.req_notify_cq.unwrap()(null_mut(), 0))),
            ("ibv_modify_cq", told(verbs.modify_cq.unwrap()(end.cq, null_mut()))),
            ("ibv_modify_qp", told(ibv_modify_qp(qp, null_mut(), 1))),
            ("ibv_query_qp", told(ibv_query_qp(null_mut(), null_mut(), 0, null_mut()))),
            ("ibv_modify_srq", told(ibv_modify_srq(srq, null_mut(), 1))),
            ("ibv_query_srq", told(ibv_query_srq(srq, null_mut()))),
            ("ibv_get_srq_num", told(verbs.get_srq_num.unwrap()(srq, null_mut()))),
            ("ibv_attach_mcast", told(ibv_attach_mcast(qp, null(), 0))),
            ("ibv_detach_mcast", told(ibv_detach_mcast(qp, null(), 0))),
            ("ibv_query_ece", told(ibv_query_ece(qp, null_mut()))),
            ("ibv_set_ece", told(ibv_set_ece(qp, null_mut()))),
            ("ibv_advise_mr", told(verbs.advise_mr.unwrap()(end.pd, 0, 0, null_mut(), 1))),
            ("ibv_query_rt_values_ex", told(verbs.query_rt_values.unwrap()(context, null_mut()))),
            ("ibv_bind_mw", told(ops.bind_mw.unwrap()(qp, null_mut(), null_mut()))),
            ("ibv_post_send", told(ops.post_send.unwrap()(null_mut(), &mut wr(0), bad))),
            (
                "ibv_post_recv",
                told(ops.post_recv.unwrap()(null_mut(), &mut Default::default(), none)),
            ),
            (
                "ibv_post_srq_recv",
                told(ops.post_srq_recv.unwrap()(null_mut(), &mut Default::default(), none)),
            ),
            (
                "ibv_resolve_eth_l2_from_gid",
                told(ibv_resolve_eth_l2_from_gid(context, null_mut(), null_mut(), null_mut())),
            ),
        ]
    };
    for (name, answer) in answers {
        assert_eq!(answer, (libc::EINVAL, libc::EINVAL), "{name}");
    }
    assert_eq!(state(qp), IBV_QPS_RESET);
}

/// Verbs that answer -1 do, without having taken anything.
#[test]
fn nothing_is_answered_to_nobody() {
    let end = end();
    let channel = channel(end.context);
    let (cq, context) = (&mut null_mut(), &mut null_mut());
    // SAFETY: an open context.
    let poll = unsafe { &*end.context }.ops.poll_cq.expect("never null");
    // SAFETY: live objects, values of this test's own, or null, which is what this is about.
    let answers = unsafe {
        [
            ibv_get_cq_event(null_mut(), cq, context),
            ibv_get_cq_event(channel, null_mut(), context),
            ibv_get_cq_event(channel, cq, null_mut()),
            ibv_get_async_event(null_mut(), &mut ibv_async_event::default()),
            ibv_get_async_event(end.context, null_mut()),
            ibv_query_gid(end.context, 1, 0, null_mut()),
            ibv_query_gid_type(end.context, 1, 0, null_mut()),
            ibv_query_pkey(end.context, 1, 0, null_mut()),
            ibv_init_ah_from_wc(end.context, 1, null_mut(), null_mut(), null_mut()),
            ibv_read_sysfs_file(null(), c"x".as_ptr(), null_mut(), 0),
            ibv_read_sysfs_file(c"/".as_ptr(), null(), null_mut(), 0),
            ibv_read_sysfs_file(c"/proc".as_ptr(), c"version".as_ptr(), null_mut(), 9),
            poll(null_mut(), 1, &mut ibv_wc::default()),
            poll(end.cq, 1, null_mut()),
            poll(end.cq, -1, null_mut()),
        ]
    };
    for (at, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer, -1, "number {at}");
    }
    // SAFETY: as above; acknowledging nothing does nothing.
    unsafe {
        assert_eq!(poll(end.cq, 0, null_mut()), 0);
        ibv_ack_async_event(null_mut());
        ibv_ack_cq_events(null_mut(), 1);
        ibv_free_device_list(null_mut());
        assert!(ibv_get_device_name(null_mut()).is_null());
    }
}

/// A device that is none of ours, a copy of ours included, has its own name, and is not opened.
#[test]
fn what_is_not_the_device_is_not_taken_for_it() {
    let mut count = 0;
    // SAFETY: room for the number; the list is freed below.
    let list = unsafe { ibv_get_device_list(&mut count) };
    // SAFETY: the list has one device.
    let device = unsafe { *list };
    // SAFETY: the device stays; its name ends in zero.
    let named = unsafe { std::ffi::CStr::from_ptr(ibv_get_device_name(device)) };
    assert_eq!((count, named), (1, DeviceName::default().as_c_str()));
    assert_ne!(ibv_get_device_guid(device), 0);
    // SAFETY: a live device, whose fields are plain.
    let mut copy = unsafe { device.read() };
    for other in [&raw mut copy, null_mut(), device.wrapping_byte_add(1)] {
        let set = |wrong: bool| {
            let errno = errno();
            // SAFETY: this thread's own number.
            unsafe { *libc::__errno_location() = 0 };
            assert_eq!((wrong, errno), (true, libc::EINVAL), "{other:?}");
        };
        set(ibv_get_device_guid(other) == 0);
        set(ibv_get_device_index(other) == -1);
        set(ibv_open_device(other).is_null());
        set(private::verbs_open_device(other, null_mut()).is_null());
    }
    copy.name[0] = b'x' as _;
    // SAFETY: a device of this test's own, whose name ends in zero.
    let own = unsafe { std::ffi::CStr::from_ptr(ibv_get_device_name(&raw mut copy)) };
    assert_eq!(own.to_bytes()[0], b'x');
    // SAFETY: the list is from that verb, and not used afterwards.
    unsafe { ibv_free_device_list(list) };
    // SAFETY: no context at all, which is what this is about.
    assert_eq!(unsafe { ibv_get_pkey_index(null_mut(), 1, PKEY.to_be()) }, -1);
}
