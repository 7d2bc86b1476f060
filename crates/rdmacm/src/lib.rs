//! The functions of librdmacm as `extern "C"` functions over the commands of rdma_cm.
//!
//! Each function has the name, the arguments and the results of its man page. The shared object exports them under
//! their symbol versions. They make connections by the commands of `<rdma/rdma_user_cm.h>`, and queue pairs only by
//! public verbs. With the kernel's file they drive real adapters; with the file of Transom's libibverbs they drive its
//! device. A [`Source`] chooses between the two.
//!
//! Raw pointers stop here. Programs hold ids, events and channels by pointers, which must be valid as the man pages
//! demand. A null where an object is needed is `EINVAL`. The file returns an id's pointer as it was given. The end of
//! an id waits until all its events are acknowledged.

#![deny(clippy::print_stderr, clippy::print_stdout)]

mod address;
mod addrinfo;
mod arrival;
mod channel;
mod check;
mod connect;
mod device;
mod endpoint;
mod entry;
mod event;
mod event_name;
mod file;
mod fork;
mod id;
mod last;
mod lookup;
mod migrate;
mod multicast;
mod provider;
mod qp;
mod query;
mod queues;
mod resolve;
mod rsocket;
mod sanitized;
mod srq;
mod verbs;
mod wrong;

pub use addrinfo::{rdma_freeaddrinfo, rdma_getaddrinfo};
pub use arrival::rdma_get_cm_event;
pub use channel::{rdma_create_event_channel, rdma_destroy_event_channel};
pub use connect::{
    rdma_accept, rdma_connect, rdma_disconnect, rdma_establish, rdma_get_remote_ece, rdma_notify,
    rdma_reject, rdma_reject_ece, rdma_set_local_ece,
};
pub use endpoint::{
    rdma_create_ep, rdma_destroy_ep, rdma_free_devices, rdma_get_devices, rdma_get_request,
};
pub use event::rdma_ack_cm_event;
pub use event_name::rdma_event_str;
pub use file::{CheckCalls, ExplainCalls, FileCalls};
pub use id::{rdma_create_id, rdma_destroy_id};
pub use lookup::{rdma_query_addrinfo, rdma_resolve_addrinfo, rdma_write_cm_event};
pub use migrate::{rdma_migrate_id, rdma_set_option};
pub use multicast::{rdma_join_multicast, rdma_join_multicast_ex, rdma_leave_multicast};
pub use provider::{Loaded, Provider, Source};
pub use qp::{rdma_create_qp, rdma_create_qp_ex, rdma_destroy_qp, rdma_init_qp_attr};
pub use resolve::{
    rdma_bind_addr, rdma_get_dst_port, rdma_get_src_port, rdma_listen, rdma_resolve_addr,
    rdma_resolve_route,
};
pub use rsocket::*;
pub use srq::{rdma_create_srq, rdma_create_srq_ex, rdma_destroy_srq};
pub use verbs::Verbs;
