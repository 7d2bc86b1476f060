//! The shared object `libibverbs.so.1`: the verbs of `transom-ibverbs` under the names and versions
//! that programs ask for, and nothing else. `ibverbs.map` holds the versions.
//!
//! Each symbol is a jump in assembly rather than a `#[no_mangle]` function: the linker would put
//! those into the base version, whatever the map says.

macro_rules! export {
    ($($name:ident)+) => {
        $(std::arch::global_asm!(
            concat!(".globl ", stringify!($name)),
            concat!(".type ", stringify!($name), ",@function"),
            concat!(stringify!($name), ":"),
            "jmp {target}",
            concat!(".size ", stringify!($name), ", . - ", stringify!($name)),
            target = sym transom_ibverbs::$name,
        );)+
    };
}

export! {
    _ibv_query_gid_ex
    _ibv_query_gid_table
    ibv_ack_async_event
    ibv_ack_cq_events
    ibv_alloc_pd
    ibv_attach_mcast
    ibv_close_device
    ibv_create_ah
    ibv_create_ah_from_wc
    ibv_create_comp_channel
    ibv_create_cq
    ibv_create_qp
    ibv_create_srq
    ibv_dealloc_pd
    ibv_dereg_mr
    ibv_destroy_ah
    ibv_destroy_comp_channel
    ibv_destroy_cq
    ibv_destroy_qp
    ibv_destroy_srq
    ibv_detach_mcast
    ibv_event_type_str
    ibv_fork_init
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
    ibv_init_ah_from_wc
    ibv_is_fork_initialized
    ibv_modify_qp
    ibv_modify_srq
    ibv_node_type_str
    ibv_open_device
    ibv_port_state_str
    ibv_qp_to_qp_ex
    ibv_query_device
    ibv_query_ece
    ibv_query_gid
    ibv_query_gid_type
    ibv_query_pkey
    ibv_query_port
    ibv_query_qp
    ibv_query_qp_data_in_order
    ibv_query_srq
    ibv_rate_to_mbps
    ibv_rate_to_mult
    ibv_read_sysfs_file
    ibv_reg_dmabuf_mr
    ibv_reg_mr
    ibv_reg_mr_iova
    ibv_reg_mr_iova2
    ibv_rereg_mr
    ibv_resize_cq
    ibv_resolve_eth_l2_from_gid
    ibv_set_ece
    ibv_unimport_dm
    ibv_unimport_mr
    ibv_unimport_pd
    ibv_wc_status_str
    mbps_to_ibv_rate
    mult_to_ibv_rate
}
