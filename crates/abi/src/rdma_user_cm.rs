//! The commands of `/dev/infiniband/rdma_cm`, with their answers and events, as `<rdma/rdma_user_cm.h>` has them.
//!
//! A command is an [`rdma_ucm_cmd_hdr`] and the command's own struct behind it, in one `write(2)`. What it
//! answers is written to the address in its field `response`. Constants that `<rdma/rdma_cma.h>` has too
//! stand there.

use crate::{
    ib_path_rec_data, ib_user_path_rec, ib_uverbs_ah_attr, ibv_path_record, sockaddr_in6,
    sockaddr_storage,
};
use core::ffi::c_uint;

/// The version of the commands that is described here.
pub const RDMA_USER_CM_ABI_VERSION: c_uint = 4;
/// Room for private data in commands and events.
pub const RDMA_MAX_PRIVATE_DATA: usize = 256;

/// Command: [`rdma_ucm_create_id`], answered by [`rdma_ucm_create_id_resp`].
pub const RDMA_USER_CM_CMD_CREATE_ID: u32 = 0;
/// Command: [`rdma_ucm_destroy_id`], answered by [`rdma_ucm_destroy_id_resp`].
pub const RDMA_USER_CM_CMD_DESTROY_ID: u32 = 1;
/// Command: [`rdma_ucm_bind_ip`].
pub const RDMA_USER_CM_CMD_BIND_IP: u32 = 2;
/// Command: [`rdma_ucm_resolve_ip`].
pub const RDMA_USER_CM_CMD_RESOLVE_IP: u32 = 3;
/// Command: [`rdma_ucm_resolve_route`].
pub const RDMA_USER_CM_CMD_RESOLVE_ROUTE: u32 = 4;
/// Command: [`rdma_ucm_query`], answered by [`rdma_ucm_query_route_resp`].
pub const RDMA_USER_CM_CMD_QUERY_ROUTE: u32 = 5;
/// Command: [`rdma_ucm_connect`].
pub const RDMA_USER_CM_CMD_CONNECT: u32 = 6;
/// Command: [`rdma_ucm_listen`].
pub const RDMA_USER_CM_CMD_LISTEN: u32 = 7;
/// Command: [`rdma_ucm_accept`].
pub const RDMA_USER_CM_CMD_ACCEPT: u32 = 8;
/// Command: [`rdma_ucm_reject`].
pub const RDMA_USER_CM_CMD_REJECT: u32 = 9;
/// Command: [`rdma_ucm_disconnect`].
pub const RDMA_USER_CM_CMD_DISCONNECT: u32 = 10;
/// Command: [`rdma_ucm_init_qp_attr`], answered by [`ib_uverbs_qp_attr`](crate::ib_uverbs_qp_attr).
pub const RDMA_USER_CM_CMD_INIT_QP_ATTR: u32 = 11;
/// Command: [`rdma_ucm_get_event`], answered by [`rdma_ucm_event_resp`].
pub const RDMA_USER_CM_CMD_GET_EVENT: u32 = 12;
/// Command: not in use.
pub const RDMA_USER_CM_CMD_GET_OPTION: u32 = 13;
/// Command: [`rdma_ucm_set_option`].
pub const RDMA_USER_CM_CMD_SET_OPTION: u32 = 14;
/// Command: [`rdma_ucm_notify`].
pub const RDMA_USER_CM_CMD_NOTIFY: u32 = 15;
/// Command: [`rdma_ucm_join_ip_mcast`], answered by [`rdma_ucm_create_id_resp`].
pub const RDMA_USER_CM_CMD_JOIN_IP_MCAST: u32 = 16;
/// Command: [`rdma_ucm_destroy_id`] of a group's id, answered by [`rdma_ucm_destroy_id_resp`].
pub const RDMA_USER_CM_CMD_LEAVE_MCAST: u32 = 17;
/// Command: [`rdma_ucm_migrate_id`], answered by [`rdma_ucm_migrate_resp`].
pub const RDMA_USER_CM_CMD_MIGRATE_ID: u32 = 18;
/// Command: [`rdma_ucm_query`], answered by what its `option` asks for.
pub const RDMA_USER_CM_CMD_QUERY: u32 = 19;
/// Command: [`rdma_ucm_bind`].
pub const RDMA_USER_CM_CMD_BIND: u32 = 20;
/// Command: [`rdma_ucm_resolve_addr`].
pub const RDMA_USER_CM_CMD_RESOLVE_ADDR: u32 = 21;
/// Command: [`rdma_ucm_join_mcast`], answered by [`rdma_ucm_create_id_resp`].
pub const RDMA_USER_CM_CMD_JOIN_MCAST: u32 = 22;

/// What [`RDMA_USER_CM_CMD_QUERY`] may ask for: [`rdma_ucm_query_addr_resp`], IP addresses.
pub const RDMA_USER_CM_QUERY_ADDR: u32 = 0;
/// What [`RDMA_USER_CM_CMD_QUERY`] may ask for: [`rdma_ucm_query_path_resp`].
pub const RDMA_USER_CM_QUERY_PATH: u32 = 1;
/// What [`RDMA_USER_CM_CMD_QUERY`] may ask for: [`rdma_ucm_query_addr_resp`], addresses of `AF_IB`.
pub const RDMA_USER_CM_QUERY_GID: u32 = 2;

/// What every command begins with.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_cmd_hdr {
    /// Which, one of `RDMA_USER_CM_CMD_…`.
    pub cmd: u32,
    /// Bytes of the command behind this header (`in` in C).
    pub in_: u16,
    /// Bytes of room for the answer.
    pub out: u16,
}

/// Makes an id.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_create_id {
    /// The caller's own number for it, which events carry.
    pub uid: u64,
    /// Where the answer is to be written.
    pub response: u64,
    /// Port space, one of [`rdma_port_space`](crate::rdma_port_space).
    pub ps: u16,
    /// Kind of queue pair, one of [`ibv_qp_type`](crate::ibv_qp_type).
    pub qp_type: u8,
    /// Nothing.
    pub reserved: [u8; 5],
}

/// The answer: its number.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_create_id_resp {
    /// The id.
    pub id: u32,
}

/// Ends an id, or leaves a group.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_destroy_id {
    /// Where the answer is to be written.
    pub response: u64,
    /// The id.
    pub id: u32,
    /// Nothing.
    pub reserved: u32,
}

/// The answer: what the caller has to see acknowledged before it lets go of it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_destroy_id_resp {
    /// How many events of it have been fetched.
    pub events_reported: u32,
}

/// Binds an id to an IP address.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_bind_ip {
    /// Where the answer is to be written.
    pub response: u64,
    /// IPv4 or IPv6.
    pub addr: sockaddr_in6,
    /// The id.
    pub id: u32,
}

/// Binds an id to an address of any family.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_bind {
    /// The id.
    pub id: u32,
    /// Bytes of `addr`.
    pub addr_size: u16,
    /// Nothing.
    pub reserved: u16,
    /// The address.
    pub addr: sockaddr_storage,
}

/// Resolves an IP address.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_resolve_ip {
    /// Local address.
    pub src_addr: sockaddr_in6,
    /// Destination.
    pub dst_addr: sockaddr_in6,
    /// The id.
    pub id: u32,
    /// For how long to try, in milliseconds.
    pub timeout_ms: u32,
}

/// Resolves an address of any family.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_resolve_addr {
    /// The id.
    pub id: u32,
    /// For how long to try, in milliseconds.
    pub timeout_ms: u32,
    /// Bytes of `src_addr`.
    pub src_size: u16,
    /// Bytes of `dst_addr`.
    pub dst_size: u16,
    /// Nothing.
    pub reserved: u32,
    /// Local address.
    pub src_addr: sockaddr_storage,
    /// Destination.
    pub dst_addr: sockaddr_storage,
}

/// Looks for paths to the destination.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_resolve_route {
    /// The id.
    pub id: u32,
    /// For how long to try, in milliseconds.
    pub timeout_ms: u32,
}

/// Asks for an id's addresses, device and paths.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_query {
    /// Where the answer is to be written.
    pub response: u64,
    /// The id.
    pub id: u32,
    /// What for, one of `RDMA_USER_CM_QUERY_…`; 0 with `QUERY_ROUTE`.
    pub option: u32,
}

/// The answer: all of them, IP alone.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_query_route_resp {
    /// GUID of the device, network byte order; 0 while there is none.
    pub node_guid: u64,
    /// The paths.
    pub ib_route: [ib_user_path_rec; 2],
    /// Local address.
    pub src_addr: sockaddr_in6,
    /// Destination.
    pub dst_addr: sockaddr_in6,
    /// How many paths there are.
    pub num_paths: u32,
    /// Port of the device.
    pub port_num: u8,
    /// Nothing.
    pub reserved: [u8; 3],
    /// Number of the device in the kernel.
    pub ibdev_index: u32,
    /// Nothing.
    pub reserved1: u32,
}

/// The answer: addresses and device.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_query_addr_resp {
    /// GUID of the device, network byte order; 0 while there is none.
    pub node_guid: u64,
    /// Port of the device.
    pub port_num: u8,
    /// Nothing.
    pub reserved: u8,
    /// Partition key, network byte order.
    pub pkey: u16,
    /// Bytes of `src_addr`.
    pub src_size: u16,
    /// Bytes of `dst_addr`.
    pub dst_size: u16,
    /// Local address.
    pub src_addr: sockaddr_storage,
    /// Destination.
    pub dst_addr: sockaddr_storage,
    /// Number of the device in the kernel.
    pub ibdev_index: u32,
    /// Nothing.
    pub reserved1: u32,
}

/// The answer: how many paths there are. As many as there is room for follow, each an [`ib_path_rec_data`]
/// (`path_data` in C).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_query_path_resp {
    /// How many paths there are.
    pub num_paths: u32,
    /// Nothing.
    pub reserved: u32,
}

/// What an end of a connection asks for or offers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rdma_ucm_conn_param {
    /// Number of the queue pair.
    pub qp_num: u32,
    /// Q_Key.
    pub qkey: u32,
    /// Data of programs.
    pub private_data: [u8; RDMA_MAX_PRIVATE_DATA],
    /// Bytes of it.
    pub private_data_len: u8,
    /// Nonzero with a shared receive queue.
    pub srq: u8,
    /// READs and atomics of the peer's that may be under way.
    pub responder_resources: u8,
    /// READs and atomics of its own that may be under way.
    pub initiator_depth: u8,
    /// Carried, and of no use.
    pub flow_control: u8,
    /// How often a request is sent again.
    pub retry_count: u8,
    /// How often a request is sent again to a receiver that is not ready.
    pub rnr_retry_count: u8,
    /// Nonzero if the rest is to be heeded.
    pub valid: u8,
}

impl Default for rdma_ucm_conn_param {
    fn default() -> Self {
        Self {
            qp_num: 0,
            qkey: 0,
            private_data: [0; RDMA_MAX_PRIVATE_DATA],
            private_data_len: 0,
            srq: 0,
            responder_resources: 0,
            initiator_depth: 0,
            flow_control: 0,
            retry_count: 0,
            rnr_retry_count: 0,
            valid: 0,
        }
    }
}

/// How to reach an end of datagrams.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rdma_ucm_ud_param {
    /// Number of the queue pair.
    pub qp_num: u32,
    /// Q_Key.
    pub qkey: u32,
    /// Address vector.
    pub ah_attr: ib_uverbs_ah_attr,
    /// Data of programs.
    pub private_data: [u8; RDMA_MAX_PRIVATE_DATA],
    /// Bytes of it.
    pub private_data_len: u8,
    /// Nothing.
    pub reserved: [u8; 7],
}

impl Default for rdma_ucm_ud_param {
    fn default() -> Self {
        Self {
            qp_num: 0,
            qkey: 0,
            ah_attr: ib_uverbs_ah_attr::default(),
            private_data: [0; RDMA_MAX_PRIVATE_DATA],
            private_data_len: 0,
            reserved: [0; 7],
        }
    }
}

/// Enhanced connection establishment: what vendors agree on beyond the specification.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_ece {
    /// Whose options they are.
    pub vendor_id: u32,
    /// The options.
    pub attr_mod: u32,
}

/// Connects.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_connect {
    /// What is asked for or offered.
    pub conn_param: rdma_ucm_conn_param,
    /// The id.
    pub id: u32,
    /// Nothing.
    pub reserved: u32,
    /// Enhanced connection establishment.
    pub ece: rdma_ucm_ece,
}

/// Listens.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_listen {
    /// The id.
    pub id: u32,
    /// How many requests may wait to be fetched.
    pub backlog: u32,
}

/// Accepts a request, or confirms that a connection is accepted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_accept {
    /// The caller's own number for it, which events carry.
    pub uid: u64,
    /// What is asked for or offered.
    pub conn_param: rdma_ucm_conn_param,
    /// The id.
    pub id: u32,
    /// Nothing.
    pub reserved: u32,
    /// Enhanced connection establishment.
    pub ece: rdma_ucm_ece,
}

/// Refuses a request.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rdma_ucm_reject {
    /// The id.
    pub id: u32,
    /// Bytes of it.
    pub private_data_len: u8,
    /// Why; 0 is the program's own decision.
    pub reason: u8,
    /// Nothing.
    pub reserved: [u8; 2],
    /// Data of programs.
    pub private_data: [u8; RDMA_MAX_PRIVATE_DATA],
}

impl Default for rdma_ucm_reject {
    fn default() -> Self {
        Self {
            id: 0,
            private_data_len: 0,
            reason: 0,
            reserved: [0; 2],
            private_data: [0; RDMA_MAX_PRIVATE_DATA],
        }
    }
}

/// Ends a connection.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_disconnect {
    /// The id.
    pub id: u32,
}

/// Asks how a queue pair goes to a state.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_init_qp_attr {
    /// Where the answer is to be written.
    pub response: u64,
    /// The id.
    pub id: u32,
    /// The state, one of [`ibv_qp_state`](crate::ibv_qp_state).
    pub qp_state: u32,
}

/// Tells of an event of the queue pair.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_notify {
    /// The id.
    pub id: u32,
    /// Which, one of [`ibv_event_type`](crate::ibv_event_type).
    pub event: u32,
}

/// Joins a group by its IP address.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_join_ip_mcast {
    /// Where the answer is to be written.
    pub response: u64,
    /// The caller's own number for it, which events carry.
    pub uid: u64,
    /// IPv4 or IPv6.
    pub addr: sockaddr_in6,
    /// The id.
    pub id: u32,
}

/// Joins a group by an address of any family.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_join_mcast {
    /// Where the answer is to be written.
    pub response: u64,
    /// The caller's own number for it, which events carry.
    pub uid: u64,
    /// The id.
    pub id: u32,
    /// Bytes of `addr`.
    pub addr_size: u16,
    /// How, one of [`rdma_cm_mc_join_flags`](crate::rdma_cm_mc_join_flags).
    pub join_flags: u16,
    /// The group.
    pub addr: sockaddr_storage,
}

/// Fetches the next event.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_get_event {
    /// Where the answer is to be written.
    pub response: u64,
}

/// What an event tells (an anonymous union in C).
#[repr(C)]
#[derive(Clone, Copy)]
pub union rdma_ucm_event_param {
    /// Of connections.
    pub conn: rdma_ucm_conn_param,
    /// Of datagrams and groups.
    pub ud: rdma_ucm_ud_param,
}
plain_union!(rdma_ucm_event_param, ud = rdma_ucm_ud_param::default());

/// An event.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_event_resp {
    /// The number that the id, or the group, was made with; of a request the listener's.
    pub uid: u64,
    /// The id; of a request the new one.
    pub id: u32,
    /// What happened, one of [`rdma_cm_event_type`](crate::rdma_cm_event_type).
    pub event: u32,
    /// Why: 0, a negative error number, or the peer's reason.
    pub status: u32,
    /// What else it tells.
    pub param: rdma_ucm_event_param,
    /// Nothing.
    pub reserved: u32,
    /// Enhanced connection establishment.
    pub ece: rdma_ucm_ece,
}

/// Sets an option.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_set_option {
    /// Where its value is.
    pub optval: u64,
    /// The id.
    pub id: u32,
    /// One of `RDMA_OPTION_ID` and `RDMA_OPTION_IB`.
    pub level: u32,
    /// Which option.
    pub optname: u32,
    /// Bytes of its value.
    pub optlen: u32,
}

/// Moves an id here from another open file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_migrate_id {
    /// Where the answer is to be written.
    pub response: u64,
    /// The id's number there.
    pub id: u32,
    /// The other file's descriptor.
    pub fd: u32,
}

/// The answer: what the caller has to see acknowledged before it goes on.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_migrate_resp {
    /// How many events of it have been fetched.
    pub events_reported: u32,
}

/// `path_rec` is a path record.
const _: () = assert!(size_of::<ib_path_rec_data>() == 8 + size_of::<ibv_path_record>());
