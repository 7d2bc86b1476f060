//! The shared object `libibverbs.so.1`: the verbs of `transom-ibverbs`, under the names and versions that programs ask
//! for. The versions are in `ibverbs.map`, or here if the map has no room for them.
//!
//! `transom-exports` describes how the symbols are made.

#![deny(clippy::print_stderr, clippy::print_stdout)]

use transom_exports::{jump, symbol};

#[global_allocator]
static ALLOCATOR: transom_ibverbs::Allocator = transom_ibverbs::Allocator;

/// The loader runs it. This library has its own copy of Rust's standard library.
extern "C" fn constructor() {
    // If this fails, no device opens, and the error of the open says why.
    let _ = transom_ibverbs::log::start();
    transom_ibverbs::say_panics();
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

/// The verbs.
macro_rules! export {
    ($($name:ident)+) => {
        $(symbol!($name, transom_ibverbs::$name, []);)+
    };
}

/// The functions that rdma-core's own libraries share, with the version nodes after the one in the map.
macro_rules! private {
    ($($later:tt { $($(#[$doc:meta])* $kind:ident $name:ident)+ })+) => {
        $($(symbol!($name, transom_ibverbs::private::$name, $later);)+)+
    };
}

export! {
    _ibv_query_comp_cntr_caps
    _ibv_query_gid_ex
    _ibv_query_gid_table
    ibv_ack_async_event
    ibv_ack_cq_events
    ibv_alloc_buf
    ibv_alloc_dmah
    ibv_alloc_pd
    ibv_attach_mcast
    ibv_close_device
    ibv_copy_ah_attr_from_kern
    ibv_copy_path_rec_from_kern
    ibv_copy_path_rec_to_kern
    ibv_copy_qp_attr_from_kern
    ibv_create_ah
    ibv_create_ah_from_wc
    ibv_create_comp_channel
    ibv_create_comp_cntr
    ibv_create_cq
    ibv_create_qp
    ibv_create_srq
    ibv_dealloc_dmah
    ibv_dealloc_pd
    ibv_dereg_mr
    ibv_destroy_ah
    ibv_destroy_comp_channel
    ibv_destroy_comp_cntr
    ibv_destroy_cq
    ibv_destroy_qp
    ibv_destroy_srq
    ibv_detach_mcast
    ibv_dm_export_dmabuf_fd
    ibv_dofork_range
    ibv_dontfork_range
    ibv_event_type_str
    ibv_export_buf_dmabuf_fd
    ibv_fork_init
    ibv_free_buf
    ibv_free_device_list
    ibv_get_async_event
    ibv_get_cq_event
    ibv_get_device_guid
    ibv_get_device_index
    ibv_get_device_list
    ibv_get_device_name
    ibv_get_pkey_index
    ibv_get_sysfs_path
    ibv_import_device
    ibv_import_dm
    ibv_import_mr
    ibv_import_pd
    ibv_inc_comp_cntr
    ibv_inc_err_comp_cntr
    ibv_init_ah_from_wc
    ibv_is_fork_initialized
    ibv_modify_qp
    ibv_modify_srq
    ibv_node_type_str
    ibv_open_device
    ibv_port_state_str
    ibv_qp_attach_comp_cntr
    ibv_qp_to_qp_ex
    ibv_query_device
    ibv_query_ece
    ibv_query_gid
    ibv_query_pkey
    ibv_query_port
    ibv_query_port_speed
    ibv_query_qp
    ibv_query_qp_data_in_order
    ibv_query_srq
    ibv_rate_to_mbps
    ibv_rate_to_mult
    ibv_read_comp_cntr
    ibv_read_err_comp_cntr
    ibv_read_sysfs_file
    ibv_reg_buf_mr
    ibv_reg_dmabuf_mr
    ibv_reg_mr
    ibv_reg_mr_ex
    ibv_reg_mr_iova
    ibv_reg_mr_iova2
    ibv_rereg_mr
    ibv_resize_cq
    ibv_resolve_eth_l2_from_gid
    ibv_set_comp_cntr
    ibv_set_ece
    ibv_set_err_comp_cntr
    ibv_unimport_dm
    ibv_unimport_mr
    ibv_unimport_pd
    ibv_wc_status_str
    mbps_to_ibv_rate
    mult_to_ibv_rate
    transom_rdma_cm_close
    transom_rdma_cm_event_acked
    transom_rdma_cm_event_freed
    transom_rdma_cm_event_got
    transom_rdma_cm_given
    transom_rdma_cm_id_ended
    transom_rdma_cm_id_made
    transom_rdma_cm_open
    transom_rdma_cm_own_work
    transom_rdma_cm_refused
    transom_rdma_cm_used
    transom_rdma_cm_waits
    transom_rdma_cm_watched
    transom_rdma_cm_why
    transom_rdma_cm_write
}

// Old providers ask for it. It has no default version, so no new program can link to it.
std::arch::global_asm!(
    ".globl transom_ibv_register_driver",
    ".type transom_ibv_register_driver,@function",
    "transom_ibv_register_driver:",
    jump!(),
    ".size transom_ibv_register_driver, . - transom_ibv_register_driver",
    ".symver transom_ibv_register_driver,ibv_register_driver@IBVERBS_1.1,remove",
    target = sym transom_ibverbs::ibv_register_driver,
);

// rdma-core has always exported these two verbs as private symbols.
symbol!(
    ibv_query_gid_type,
    transom_ibverbs::ibv_query_gid_type,
    ["IBVERBS_PRIVATE_57" "IBVERBS_PRIVATE_59" "IBVERBS_PRIVATE_64" "IBVERBS_PRIVATE_65"]
);
symbol!(
    ibv_wr_opcode_str,
    transom_ibverbs::ibv_wr_opcode_str,
    ["IBVERBS_PRIVATE_57" "IBVERBS_PRIVATE_59" "IBVERBS_PRIVATE_64" "IBVERBS_PRIVATE_65"]
);

transom_ibverbs::private_functions!(private);

// A C `bool` that providers read: may the kernel take a device from a program that uses it? No, because the device is
// in the program.
std::arch::global_asm!(
    ".pushsection .bss.verbs_allow_disassociate_destroy,\"aw\",@nobits",
    ".globl verbs_allow_disassociate_destroy",
    ".type verbs_allow_disassociate_destroy,@object",
    "verbs_allow_disassociate_destroy:",
    ".zero 1",
    ".size verbs_allow_disassociate_destroy, 1",
    ".symver verbs_allow_disassociate_destroy,verbs_allow_disassociate_destroy@IBVERBS_PRIVATE_57",
    ".symver verbs_allow_disassociate_destroy,verbs_allow_disassociate_destroy@IBVERBS_PRIVATE_59",
    ".symver verbs_allow_disassociate_destroy,verbs_allow_disassociate_destroy@IBVERBS_PRIVATE_64",
    ".symver verbs_allow_disassociate_destroy,verbs_allow_disassociate_destroy@IBVERBS_PRIVATE_65",
    ".popsection",
);
