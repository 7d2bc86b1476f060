//! No command that rdma-core's providers send to the kernel is refused without a sentence.

use std::collections::BTreeSet;
use std::ptr::null_mut;

use transom_conformance::harness::*;
use transom_conformance::processes::{Way, alone};
use transom_conformance::queues::number;
use transom_ibverbs::private::*;

use super::verbs::{Refused, each_is_told_of, source};

/// Declares calls of commands, whose arguments make no difference.
macro_rules! commands {
    ($($name:ident)+) => {
        vec![$((stringify!($name), Box::new(|| _ = $name()) as Box<dyn Fn()>)),+]
    };
}

fn commands() -> Vec<Refused> {
    let mut all: Vec<Refused> = commands! {
        _verbs_init_and_alloc_context
        execute_ioctl
        ibv_cmd_advise_mr
        ibv_cmd_alloc_dm
        ibv_cmd_alloc_dmah
        ibv_cmd_alloc_mw
        ibv_cmd_alloc_pd
        ibv_cmd_attach_mcast
        ibv_cmd_close_xrcd
        ibv_cmd_create_ah
        ibv_cmd_create_comp_cntr
        ibv_cmd_create_counters
        ibv_cmd_create_cq
        ibv_cmd_create_cq_ex
        ibv_cmd_create_cq_ex2
        ibv_cmd_create_flow
        ibv_cmd_create_flow_action_esp
        ibv_cmd_create_qp
        ibv_cmd_create_qp_ex
        ibv_cmd_create_qp_ex2
        ibv_cmd_create_rwq_ind_table
        ibv_cmd_create_srq
        ibv_cmd_create_srq_ex
        ibv_cmd_create_wq
        ibv_cmd_dealloc_mw
        ibv_cmd_dealloc_pd
        ibv_cmd_dereg_mr
        ibv_cmd_destroy_ah
        ibv_cmd_destroy_comp_cntr
        ibv_cmd_destroy_counters
        ibv_cmd_destroy_cq
        ibv_cmd_destroy_flow
        ibv_cmd_destroy_flow_action
        ibv_cmd_destroy_qp
        ibv_cmd_destroy_rwq_ind_table
        ibv_cmd_destroy_srq
        ibv_cmd_destroy_wq
        ibv_cmd_detach_mcast
        ibv_cmd_export_dmabuf_fd
        ibv_cmd_free_dm
        ibv_cmd_free_dmah
        ibv_cmd_get_context
        ibv_cmd_inc_comp_cntr
        ibv_cmd_inc_err_comp_cntr
        ibv_cmd_modify_cq
        ibv_cmd_modify_flow_action_esp
        ibv_cmd_modify_qp
        ibv_cmd_modify_qp_ex
        ibv_cmd_modify_srq
        ibv_cmd_modify_wq
        ibv_cmd_open_qp
        ibv_cmd_open_xrcd
        ibv_cmd_poll_cq
        ibv_cmd_qp_attach_comp_cntr
        ibv_cmd_query_comp_cntr_caps
        ibv_cmd_query_context
        ibv_cmd_query_device_any
        ibv_cmd_query_mr
        ibv_cmd_query_port
        ibv_cmd_query_port_speed
        ibv_cmd_query_qp
        ibv_cmd_query_srq
        ibv_cmd_read_comp_cntr
        ibv_cmd_read_counters
        ibv_cmd_read_err_comp_cntr
        ibv_cmd_reg_dm_mr
        ibv_cmd_reg_dmabuf_mr
        ibv_cmd_reg_mr
        ibv_cmd_reg_mr_ex
        ibv_cmd_req_notify_cq
        ibv_cmd_rereg_mr
        ibv_cmd_resize_cq
        ibv_cmd_set_comp_cntr
        ibv_cmd_set_err_comp_cntr
        ibv_dmabuf_heap_alloc
        ibv_dmabuf_heap_cc_shared_init
        ibv_read_ibdev_sysfs_file
    };
    for (name, post) in [
        ("ibv_cmd_post_recv", ibv_cmd_post_recv as unsafe extern "C" fn(_, _, _) -> _),
        ("ibv_cmd_post_send", ibv_cmd_post_send),
        ("ibv_cmd_post_srq_recv", ibv_cmd_post_srq_recv),
    ] {
        // SAFETY: nothing is written by null.
        let call = move || _ = unsafe { post(null_mut(), null_mut(), null_mut()) };
        all.push((name, Box::new(call)));
    }
    let open = || _ = verbs_open_device(null_mut(), std::ptr::dangling_mut());
    all.push(("verbs_open_device", Box::new(open)));
    all
}

/// Those that answer no errno.
const WITHOUT: &[&str] = &[
    "__ioctl_final_num_attrs",
    "__verbs_log",
    "ibv_dmabuf_heap_destroy",
    "ibv_dmabuf_heap_free",
    "verbs_init_cq",
    "verbs_register_driver_34",
    "verbs_register_driver_57",
    "verbs_register_driver_59",
    "verbs_register_driver_64",
    "verbs_register_driver_65",
    "verbs_set_ops",
    "verbs_uninit_context",
];

/// Rules: EX-04
#[test]
fn every_command_of_a_provider_is_told_of() {
    fn every_command() {
        let text = source("crates/libibverbs/src/lib.rs");
        let blocks = text.split("\nprivate! {\n").skip(1);
        let words = blocks.flat_map(|block| {
            let (_, behind) = block.split_once(']').expect("versions");
            behind.split_once('}').expect("an end").0.split_whitespace()
        });
        let commands = commands();
        let known = commands.iter().map(|(name, _)| *name).chain(WITHOUT.iter().copied());
        assert_eq!(known.collect::<BTreeSet<_>>(), words.collect());
        let end = End::new(Default::default());
        let slot = transom_device::qp::QpNumber::from_bits(number(end.qp(transom_abi::IBV_QPT_RC)));
        each_is_told_of(slot.slot(), &commands);
    }
    let path = transom_conformance::path_of!("every_command_of_a_provider_is_told_of");
    alone(path, Way::Direct, every_command);
}
