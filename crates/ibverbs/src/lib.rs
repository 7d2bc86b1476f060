//! The verbs of libibverbs as `extern "C"` functions over the software device.
//!
//! Each function has the name, the arguments and the results of its man page. The shared object exports them under
//! their symbol versions, and the Rust API calls them directly. Raw pointers stop here: this crate turns arguments from
//! C into values, and refuses null and unknown arguments as the rules say. Work requests and buffers must be valid, as
//! the man pages demand.
//!
//! Control verbs find their object by its handle, and never trust the pointer. Memory of destroyed objects stays
//! readable and is kept for reuse, so a second destroy returns `ENOENT` (rules DR-02, MWA-17).

#![deny(clippy::print_stderr, clippy::print_stdout)]

mod adapters;
mod ah;
mod answers;
mod batch;
mod bind_mw;
mod buf;
mod check;
mod checked;
mod checked_ex;
mod comp_channel;
mod comp_cntr;
mod context;
mod cq;
mod cq_event;
mod cq_ex;
mod create_qp;
mod description;
mod device;
mod device_ex;
mod device_name;
mod dm;
mod ece;
mod entry;
mod errno;
mod event;
mod event_count;
mod exposure;
mod fork;
mod gids;
mod marshal;
mod mcast;
mod mr;
mod mr_ex;
mod mw;
mod newer;
mod object;
mod on_demand;
mod open_device;
mod operations;
mod options;
mod parent_domain;
mod pd;
mod poller;
mod post;
mod post_srq_ops;
pub mod private;
mod profile;
mod qp;
mod qp_ex;
mod rdma_cm;
mod records;
mod rehearse;
mod rehearsed;
mod requests;
mod sanitized;
mod site;
mod special_mr;
mod srq;
mod strings;
mod td;
mod told;
mod watched;
mod wr;
mod wrong;
mod xrc;

pub use ah::{
    ibv_create_ah, ibv_create_ah_from_wc, ibv_destroy_ah, ibv_init_ah_from_wc,
    ibv_resolve_eth_l2_from_gid,
};
pub use buf::{ibv_alloc_buf, ibv_export_buf_dmabuf_fd, ibv_free_buf};
pub use check::transom_rdma_cm_own_work;
pub use comp_channel::{ibv_create_comp_channel, ibv_destroy_comp_channel};
pub use comp_cntr::{
    _ibv_query_comp_cntr_caps, ibv_create_comp_cntr, ibv_destroy_comp_cntr, ibv_inc_comp_cntr,
    ibv_inc_err_comp_cntr, ibv_qp_attach_comp_cntr, ibv_read_comp_cntr, ibv_read_err_comp_cntr,
    ibv_set_comp_cntr, ibv_set_err_comp_cntr,
};
pub use cq::{ibv_create_cq, ibv_destroy_cq, ibv_resize_cq};
pub use cq_event::{ibv_ack_cq_events, ibv_get_cq_event};
pub use create_qp::ibv_create_qp;
pub use description::{Description, InterfaceName, NotADevice, NotChosen, PciAddress, Speed};
pub use device::{
    _ibv_query_gid_ex, _ibv_query_gid_table, ibv_free_device_list, ibv_get_device_guid,
    ibv_get_device_index, ibv_get_device_list, ibv_get_device_name, ibv_get_pkey_index,
    ibv_get_sysfs_path, ibv_query_device, ibv_query_gid, ibv_query_gid_type, ibv_query_pkey,
    ibv_query_port, ibv_read_sysfs_file,
};
pub use device::{
    FW_VER, HW_VER, PKEY, VENDOR_ID, VENDOR_PART_ID, dev_name, dev_path, device_attributes,
    port_attributes,
};
pub use device_name::{DeviceName, NotAName};
pub use dm::{ibv_import_dm, ibv_unimport_dm};
pub use ece::{ibv_query_ece, ibv_set_ece};
pub use event::{ibv_ack_async_event, ibv_get_async_event};
pub use fork::{ibv_dofork_range, ibv_dontfork_range, ibv_fork_init, ibv_is_fork_initialized};
pub use marshal::*;
pub use mcast::{ibv_attach_mcast, ibv_detach_mcast};
pub use mr::{
    ibv_dereg_mr, ibv_import_mr, ibv_reg_mr, ibv_reg_mr_iova, ibv_reg_mr_iova2, ibv_rereg_mr,
    ibv_unimport_mr,
};
pub use mr_ex::{ibv_reg_buf_mr, ibv_reg_mr_ex};
pub use newer::*;
pub use open_device::{ibv_close_device, ibv_import_device, ibv_open_device, open_context};
pub use options::check_environment;
pub use pd::{ibv_alloc_pd, ibv_dealloc_pd, ibv_import_pd, ibv_unimport_pd};
pub use private::ibv_register_driver;
pub use qp::{ibv_destroy_qp, ibv_modify_qp, ibv_query_qp, ibv_query_qp_data_in_order};
pub use qp_ex::ibv_qp_to_qp_ex;
pub use rdma_cm::{
    transom_rdma_cm_close, transom_rdma_cm_event_acked, transom_rdma_cm_event_freed,
    transom_rdma_cm_event_got, transom_rdma_cm_given, transom_rdma_cm_id_ended,
    transom_rdma_cm_id_made, transom_rdma_cm_open, transom_rdma_cm_refused, transom_rdma_cm_used,
    transom_rdma_cm_waits, transom_rdma_cm_watched, transom_rdma_cm_why, transom_rdma_cm_write,
};
pub use special_mr::ibv_reg_dmabuf_mr;
pub use srq::{ibv_create_srq, ibv_destroy_srq, ibv_modify_srq, ibv_query_srq};
pub use strings::{
    ibv_event_type_str, ibv_node_type_str, ibv_port_state_str, ibv_rate_to_mbps, ibv_rate_to_mult,
    ibv_wc_status_str, mbps_to_ibv_rate, mult_to_ibv_rate,
};
pub use transom_system::addresses;
pub use transom_system::addresses::LOOPBACK_GID;
pub use transom_system::failure::say_panics;
pub use transom_system::log;
pub use transom_system::memory::Allocation;
pub use transom_system::sanitizers::Allocator;
