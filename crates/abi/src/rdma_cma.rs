//! The types and constants of `<rdma/rdma_cma.h>`.

use crate::newer::{
    RDMA_CM_EVENT_ADDRINFO_ERROR, RDMA_CM_EVENT_ADDRINFO_RESOLVED, RDMA_CM_EVENT_USER,
};
use crate::{
    ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_gid, ibv_pd, ibv_qp, ibv_qp_type,
    ibv_sa_path_rec, ibv_srq, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage,
};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

c_enum! {
    /// What happened to an id; `rdma_event_str(3)` names it.
    rdma_cm_event_type: c_uint {
        /// The destination's address led to a device, and a local address.
        RDMA_CM_EVENT_ADDR_RESOLVED = 0,
        /// It did not.
        RDMA_CM_EVENT_ADDR_ERROR = 1,
        /// There is a path to the destination.
        RDMA_CM_EVENT_ROUTE_RESOLVED = 2,
        /// There is none.
        RDMA_CM_EVENT_ROUTE_ERROR = 3,
        /// Somebody wants to connect; the event has an id for it.
        RDMA_CM_EVENT_CONNECT_REQUEST = 4,
        /// The peer has accepted, and the program brings up its queue pair itself.
        RDMA_CM_EVENT_CONNECT_RESPONSE = 5,
        /// Connecting failed at this end.
        RDMA_CM_EVENT_CONNECT_ERROR = 6,
        /// The peer did not answer.
        RDMA_CM_EVENT_UNREACHABLE = 7,
        /// The peer has refused.
        RDMA_CM_EVENT_REJECTED = 8,
        /// The connection is there.
        RDMA_CM_EVENT_ESTABLISHED = 9,
        /// The connection has ended.
        RDMA_CM_EVENT_DISCONNECTED = 10,
        /// The device has gone.
        RDMA_CM_EVENT_DEVICE_REMOVAL = 11,
        /// A multicast group has been joined.
        RDMA_CM_EVENT_MULTICAST_JOIN = 12,
        /// It has not, or has gone.
        RDMA_CM_EVENT_MULTICAST_ERROR = 13,
        /// The address has moved to other hardware.
        RDMA_CM_EVENT_ADDR_CHANGE = 14,
        /// No packet of the connection is under way any more.
        RDMA_CM_EVENT_TIMEWAIT_EXIT = 15,
    }
}

/// The name of an event.
pub fn rdma_cm_event_name(event: rdma_cm_event_type) -> &'static CStr {
    match event {
        RDMA_CM_EVENT_ADDR_RESOLVED => c"RDMA_CM_EVENT_ADDR_RESOLVED",
        RDMA_CM_EVENT_ADDR_ERROR => c"RDMA_CM_EVENT_ADDR_ERROR",
        RDMA_CM_EVENT_ROUTE_RESOLVED => c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        RDMA_CM_EVENT_ROUTE_ERROR => c"RDMA_CM_EVENT_ROUTE_ERROR",
        RDMA_CM_EVENT_CONNECT_REQUEST => c"RDMA_CM_EVENT_CONNECT_REQUEST",
        RDMA_CM_EVENT_CONNECT_RESPONSE => c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        RDMA_CM_EVENT_CONNECT_ERROR => c"RDMA_CM_EVENT_CONNECT_ERROR",
        RDMA_CM_EVENT_UNREACHABLE => c"RDMA_CM_EVENT_UNREACHABLE",
        RDMA_CM_EVENT_REJECTED => c"RDMA_CM_EVENT_REJECTED",
        RDMA_CM_EVENT_ESTABLISHED => c"RDMA_CM_EVENT_ESTABLISHED",
        RDMA_CM_EVENT_DISCONNECTED => c"RDMA_CM_EVENT_DISCONNECTED",
        RDMA_CM_EVENT_DEVICE_REMOVAL => c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        RDMA_CM_EVENT_MULTICAST_JOIN => c"RDMA_CM_EVENT_MULTICAST_JOIN",
        RDMA_CM_EVENT_MULTICAST_ERROR => c"RDMA_CM_EVENT_MULTICAST_ERROR",
        RDMA_CM_EVENT_ADDR_CHANGE => c"RDMA_CM_EVENT_ADDR_CHANGE",
        RDMA_CM_EVENT_TIMEWAIT_EXIT => c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
        RDMA_CM_EVENT_ADDRINFO_RESOLVED => c"RDMA_CM_EVENT_ADDRINFO_RESOLVED",
        RDMA_CM_EVENT_ADDRINFO_ERROR => c"RDMA_CM_EVENT_ADDRINFO_ERROR",
        RDMA_CM_EVENT_USER => c"RDMA_CM_EVENT_USER",
        _ => c"UNKNOWN EVENT",
    }
}

c_enum! {
    /// What ports are numbered within.
    rdma_port_space: c_uint {
        /// Datagrams to IPoIB's multicast groups.
        RDMA_PS_IPOIB = 0x0002,
        /// Connections.
        RDMA_PS_TCP = 0x0106,
        /// Datagrams.
        RDMA_PS_UDP = 0x0111,
        /// Service ids, with addresses of `AF_IB`.
        RDMA_PS_IB = 0x013F,
    }
}

/// The part of a service id that names the port space.
pub const RDMA_IB_IP_PS_MASK: u64 = 0xFFFF_FFFF_FFFF_0000;
/// The part of a service id that is the port.
pub const RDMA_IB_IP_PORT_MASK: u64 = 0xFFFF;
/// Service ids of [`RDMA_PS_TCP`].
pub const RDMA_IB_IP_PS_TCP: u64 = 0x0106_0000;
/// Service ids of [`RDMA_PS_UDP`].
pub const RDMA_IB_IP_PS_UDP: u64 = 0x0111_0000;
/// Service ids of [`RDMA_PS_IB`].
pub const RDMA_IB_PS_IB: u64 = 0x013F_0000;
/// The Q_Key of datagrams and groups unless another is given.
pub const RDMA_UDP_QKEY: c_uint = 0x0123_4567;
/// As responder resources: as many as the device has.
pub const RDMA_MAX_RESP_RES: c_uint = 0xFF;
/// As initiator depth: as many as the device has.
pub const RDMA_MAX_INIT_DEPTH: c_uint = 0xFF;

/// The InfiniBand addresses of an id.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ib_addr {
    /// Local GID.
    pub sgid: ibv_gid,
    /// The peer's GID.
    pub dgid: ibv_gid,
    /// Partition key, network byte order.
    pub pkey: u16,
}

/// The local address of an id (an anonymous union in C).
#[repr(C)]
#[derive(Clone, Copy)]
pub union rdma_addr_src {
    /// Any family.
    pub src_addr: sockaddr,
    /// IPv4.
    pub src_sin: sockaddr_in,
    /// IPv6.
    pub src_sin6: sockaddr_in6,
    /// All of it.
    pub src_storage: sockaddr_storage,
}
plain_union!(rdma_addr_src, src_storage = sockaddr_storage::default());

/// The peer's address of an id (an anonymous union in C).
#[repr(C)]
#[derive(Clone, Copy)]
pub union rdma_addr_dst {
    /// Any family.
    pub dst_addr: sockaddr,
    /// IPv4.
    pub dst_sin: sockaddr_in,
    /// IPv6.
    pub dst_sin6: sockaddr_in6,
    /// All of it.
    pub dst_storage: sockaddr_storage,
}
plain_union!(rdma_addr_dst, dst_storage = sockaddr_storage::default());

/// The addresses below those of IP (an anonymous union in C).
#[repr(C)]
#[derive(Clone, Copy)]
pub union rdma_addr_addr {
    /// InfiniBand's, which RoCE has too.
    pub ibaddr: rdma_ib_addr,
}
plain_union!(rdma_addr_addr, ibaddr = rdma_ib_addr::default());

/// The addresses of an id.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_addr {
    /// The local one.
    pub src: rdma_addr_src,
    /// The peer's.
    pub dst: rdma_addr_dst,
    /// Both below IP.
    pub addr: rdma_addr_addr,
}

/// The addresses of an id and the paths between them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_route {
    /// The addresses.
    pub addr: rdma_addr,
    /// The paths, once the route is resolved.
    pub path_rec: *mut ibv_sa_path_rec,
    /// How many paths there are.
    pub num_paths: c_int,
}

/// Where the events of ids arrive.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_event_channel {
    /// Readable while an event waits.
    pub fd: c_int,
}

/// An id: one end of a connection, a listener, or what sends and receives datagrams.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_cm_id {
    /// The device, once an address is bound or resolved.
    pub verbs: *mut ibv_context,
    /// Where its events arrive.
    pub channel: *mut rdma_event_channel,
    /// The program's own.
    pub context: *mut c_void,
    /// Its queue pair, if the library has made it.
    pub qp: *mut ibv_qp,
    /// Addresses and paths.
    pub route: rdma_route,
    /// Port space.
    pub ps: rdma_port_space,
    /// Port of the device, from 1.
    pub port_num: u8,
    /// Of a synchronous id: the last event.
    pub event: *mut rdma_cm_event,
    /// Channel of [`Self::send_cq`], if the library has made them.
    pub send_cq_channel: *mut ibv_comp_channel,
    /// Completion queue of sends.
    pub send_cq: *mut ibv_cq,
    /// Channel of [`Self::recv_cq`], if the library has made them.
    pub recv_cq_channel: *mut ibv_comp_channel,
    /// Completion queue of receives.
    pub recv_cq: *mut ibv_cq,
    /// Shared receive queue.
    pub srq: *mut ibv_srq,
    /// Protection domain.
    pub pd: *mut ibv_pd,
    /// Kind of its queue pair.
    pub qp_type: ibv_qp_type,
}

/// What an end of a connection asks for or offers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_conn_param {
    /// Data for the peer's program.
    pub private_data: *const c_void,
    /// Bytes of it.
    pub private_data_len: u8,
    /// READs and atomics of the peer's that may be under way.
    pub responder_resources: u8,
    /// READs and atomics of its own that may be under way.
    pub initiator_depth: u8,
    /// Carried, and of no use.
    pub flow_control: u8,
    /// How often a request is sent again; not used in accepting.
    pub retry_count: u8,
    /// How often a request is sent again to a receiver that is not ready.
    pub rnr_retry_count: u8,
    /// Nonzero with a shared receive queue; not used if the id has a queue pair.
    pub srq: u8,
    /// Number of the queue pair; not used if the id has one.
    pub qp_num: u32,
}

/// How to reach the peer's end of datagrams.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ud_param {
    /// Data of the peer's program.
    pub private_data: *const c_void,
    /// Bytes of it.
    pub private_data_len: u8,
    /// Address vector.
    pub ah_attr: ibv_ah_attr,
    /// Number of the queue pair.
    pub qp_num: u32,
    /// Its Q_Key.
    pub qkey: u32,
}

/// What an event tells (an anonymous union in C).
#[repr(C)]
#[derive(Clone, Copy)]
pub union rdma_cm_event_param {
    /// Of connections.
    pub conn: rdma_conn_param,
    /// Of datagrams and groups.
    pub ud: rdma_ud_param,
}

plain_union!(rdma_cm_event_param, ud = rdma_ud_param::default());

/// An event.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_cm_event {
    /// What it happened to; of [`RDMA_CM_EVENT_CONNECT_REQUEST`] a new id.
    pub id: *mut rdma_cm_id,
    /// Of [`RDMA_CM_EVENT_CONNECT_REQUEST`] the listener.
    pub listen_id: *mut rdma_cm_id,
    /// What happened.
    pub event: rdma_cm_event_type,
    /// Why: 0, a negative error number, or the peer's reason.
    pub status: c_int,
    /// What else it tells.
    pub param: rdma_cm_event_param,
}

/// Flag of `rdma_getaddrinfo`: to listen.
pub const RAI_PASSIVE: c_int = 1;
/// Flag of `rdma_getaddrinfo`: the node is an address, and no name to look up.
pub const RAI_NUMERICHOST: c_int = 2;
/// Flag of `rdma_getaddrinfo`: do not look for a path.
pub const RAI_NOROUTE: c_int = 4;
/// Flag of `rdma_getaddrinfo`: `ai_family` says what the node's address is.
pub const RAI_FAMILY: c_int = 8;

/// What `rdma_getaddrinfo` finds, and is told to look for.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_addrinfo {
    /// Bits `RAI_…`.
    pub ai_flags: c_int,
    /// Address family.
    pub ai_family: c_int,
    /// Kind of queue pair.
    pub ai_qp_type: c_int,
    /// Port space.
    pub ai_port_space: c_int,
    /// Bytes of [`Self::ai_src_addr`].
    pub ai_src_len: u32,
    /// Bytes of [`Self::ai_dst_addr`].
    pub ai_dst_len: u32,
    /// Local address.
    pub ai_src_addr: *mut sockaddr,
    /// Destination.
    pub ai_dst_addr: *mut sockaddr,
    /// Name of the local address.
    pub ai_src_canonname: *mut c_char,
    /// Name of the destination.
    pub ai_dst_canonname: *mut c_char,
    /// Bytes of [`Self::ai_route`].
    pub ai_route_len: usize,
    /// Paths, each an [`ibv_path_data`](crate::ibv_path_data).
    pub ai_route: *mut c_void,
    /// Bytes of [`Self::ai_connect`].
    pub ai_connect_len: usize,
    /// Data to connect with.
    pub ai_connect: *mut c_void,
    /// The next one.
    pub ai_next: *mut rdma_addrinfo,
}

c_enum! {
    /// Which fields of [`rdma_cm_join_mc_attr_ex`] are set.
    rdma_cm_join_mc_attr_mask: c_uint {
        /// `addr`.
        RDMA_CM_JOIN_MC_ATTR_ADDRESS = 1,
        /// `join_flags`.
        RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS = 1 << 1,
        /// None that is known.
        RDMA_CM_JOIN_MC_ATTR_RESERVED = 1 << 2,
    }
}

c_enum! {
    /// How a group is joined.
    rdma_cm_mc_join_flags: c_uint {
        /// To send and receive.
        RDMA_MC_JOIN_FLAG_FULLMEMBER = 0,
        /// To send only.
        RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER = 1,
        /// No flag that is known.
        RDMA_MC_JOIN_FLAG_RESERVED = 2,
    }
}

/// What `rdma_join_multicast_ex` is told.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_cm_join_mc_attr_ex {
    /// Bits of [`rdma_cm_join_mc_attr_mask`].
    pub comp_mask: u32,
    /// One of [`rdma_cm_mc_join_flags`].
    pub join_flags: u32,
    /// The group.
    pub addr: *mut sockaddr,
}

/// Level of options of an id.
pub const RDMA_OPTION_ID: c_uint = 0;
/// Level of options of InfiniBand.
pub const RDMA_OPTION_IB: c_uint = 1;
/// Option of an id: type of service, one byte.
pub const RDMA_OPTION_ID_TOS: c_uint = 0;
/// Option of an id: share the address with others that say so, an `int`.
pub const RDMA_OPTION_ID_REUSEADDR: c_uint = 1;
/// Option of an id: this address family only, an `int`.
pub const RDMA_OPTION_ID_AFONLY: c_uint = 2;
/// Option of an id: ACK timeout, a time code of one byte.
pub const RDMA_OPTION_ID_ACK_TIMEOUT: c_uint = 3;
/// Option of InfiniBand: paths, each an [`ibv_path_data`](crate::ibv_path_data).
pub const RDMA_OPTION_IB_PATH: c_uint = 1;
