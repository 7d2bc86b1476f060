//! The shared object `librdmacm.so.1`: the functions of `transom-rdmacm`, under the names and versions that programs
//! ask for, over the `libibverbs.so.1` of the process. The versions are in `rdmacm.map`. `transom-exports` describes
//! how the symbols are made.

#![deny(clippy::print_stderr, clippy::print_stdout)]

use transom_exports::symbol;
use transom_rdmacm::Loaded;

/// Symbols: a jump to each function, in its node of the map.
macro_rules! export {
    ($($name:ident $(<$source:ty>)?)+) => {
        $(symbol!($name, transom_rdmacm::$name $(::<$source>)?, []);)+
    };
}

export! {
    raccept
    rbind
    rclose
    rconnect
    rdma_accept
    rdma_ack_cm_event
    rdma_bind_addr
    rdma_connect
    rdma_create_ep<Loaded>
    rdma_create_event_channel<Loaded>
    rdma_create_id<Loaded>
    rdma_create_qp
    rdma_create_qp_ex
    rdma_create_srq
    rdma_create_srq_ex
    rdma_destroy_ep
    rdma_destroy_event_channel
    rdma_destroy_id
    rdma_destroy_qp
    rdma_destroy_srq
    rdma_disconnect
    rdma_establish
    rdma_event_str
    rdma_free_devices
    rdma_freeaddrinfo
    rdma_get_cm_event
    rdma_get_devices<Loaded>
    rdma_get_dst_port
    rdma_get_remote_ece
    rdma_get_request
    rdma_get_src_port
    rdma_getaddrinfo
    rdma_init_qp_attr
    rdma_join_multicast
    rdma_join_multicast_ex
    rdma_leave_multicast
    rdma_listen
    rdma_migrate_id
    rdma_notify
    rdma_query_addrinfo
    rdma_reject
    rdma_reject_ece
    rdma_resolve_addr
    rdma_resolve_addrinfo
    rdma_resolve_route
    rdma_set_local_ece
    rdma_set_option
    rdma_write_cm_event
    repoll_create
    repoll_ctl
    repoll_wait
    rfcntl
    rgetpeername
    rgetsockname
    rgetsockopt
    riomap
    riounmap
    riowrite
    rlisten
    rpoll
    rread
    rreadv
    rrecv
    rrecvfrom
    rrecvmsg
    rselect
    rsend
    rsendmsg
    rsendto
    rsetsockopt
    rshutdown
    rsocket<Loaded>
    rwrite
    rwritev
}
