//! The operations in a context. The inlines of `verbs.h` call the verbs through them.
//!
//! Verbs for Ethernet frames have no function. Their operations in the context stay null, and the inlines of `verbs.h`
//! return `EOPNOTSUPP` themselves.
//!
//! | verbs | needs |
//! |---|---|
//! | `ibv_create_flow`, `ibv_destroy_flow` | steering of received frames |
//! | `ibv_create_flow_action_esp`, `ibv_modify_flow_action_esp`, `ibv_destroy_flow_action` | the same |
//! | `ibv_create_counters`, `ibv_attach_counters_point_flow`, `ibv_read_counters`, `ibv_destroy_counters` | flows to count |
//! | `ibv_create_wq`, `ibv_modify_wq`, `ibv_destroy_wq` | spreading of received frames |
//! | `ibv_create_rwq_ind_table`, `ibv_destroy_rwq_ind_table` | the same |

use transom_abi::{
    __VERBS_ABI_IS_EXTENDED, ibv_context, ibv_context_ops, ibv_device, verbs_context,
};

use crate::watched::told_or;
use crate::{
    bind_mw, cq, cq_ex, create_qp, device, device_ex, dm, mw, on_demand, parent_domain, post,
    post_srq_ops, qp_ex, special_mr, srq, td, watched, xrc,
};

/// The operations of every context of a device. Its caller fills in the descriptors.
pub(crate) fn operations(device: *mut ibv_device) -> verbs_context {
    let context = ibv_context {
        device,
        ops: ibv_context_ops {
            alloc_mw: Some(mw::alloc_mw),
            bind_mw: Some(bind_mw::bind_mw),
            dealloc_mw: Some(mw::dealloc_mw),
            poll_cq: Some(told_or(cq::poll_cq, watched::poll_cq)),
            req_notify_cq: Some(told_or(cq::req_notify_cq, watched::req_notify_cq)),
            post_srq_recv: Some(told_or(srq::post_srq_recv, watched::post_srq_recv)),
            post_send: Some(told_or(post::post_send, watched::post_send)),
            post_recv: Some(told_or(post::post_recv, watched::post_recv)),
            ..ibv_context_ops::default()
        },
        cmd_fd: -1,
        async_fd: -1,
        num_comp_vectors: 1,
        mutex: Default::default(),
        abi_compat: __VERBS_ABI_IS_EXTENDED,
    };
    verbs_context {
        query_port: Some(device::query_port_ex),
        advise_mr: Some(on_demand::advise_mr),
        alloc_null_mr: Some(special_mr::alloc_null_mr),
        reg_dm_mr: Some(special_mr::reg_dm_mr),
        alloc_dm: Some(dm::alloc_dm),
        free_dm: Some(dm::free_dm),
        alloc_parent_domain: Some(parent_domain::alloc_parent_domain),
        dealloc_td: Some(td::dealloc_td),
        alloc_td: Some(td::alloc_td),
        create_srq_ex: Some(srq::create_srq_ex),
        get_srq_num: Some(srq::get_srq_num),
        post_srq_ops: Some(post_srq_ops::post_srq_ops),
        open_xrcd: Some(xrc::open_xrcd),
        close_xrcd: Some(xrc::close_xrcd),
        open_qp: Some(create_qp::open_qp),
        create_qp_ex: Some(qp_ex::create_qp_ex),
        query_device_ex: Some(device_ex::query_device_ex),
        query_rt_values: Some(device_ex::query_rt_values),
        create_cq_ex: Some(cq_ex::create_cq_ex),
        modify_cq: Some(cq::modify_cq),
        sz: size_of::<verbs_context>(),
        context,
        ..verbs_context::default()
    }
}
