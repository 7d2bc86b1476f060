//! What `ibv_query_device(3)` tells of a device.

use core::ffi::{c_char, c_int, c_uint};

c_enum! {
    /// Bits of [`ibv_device_attr::device_cap_flags`].
    ibv_device_cap_flags: c_uint {
        /// The number of work requests of a QP can be changed.
        IBV_DEVICE_RESIZE_MAX_WR = 1 << 0,
        /// Counts bad partition keys.
        IBV_DEVICE_BAD_PKEY_CNTR = 1 << 1,
        /// Counts bad queue keys.
        IBV_DEVICE_BAD_QKEY_CNTR = 1 << 2,
        /// Raw packet multicast.
        IBV_DEVICE_RAW_MULTI = 1 << 3,
        /// Automatic path migration.
        IBV_DEVICE_AUTO_PATH_MIG = 1 << 4,
        /// The physical port of a QP can be changed.
        IBV_DEVICE_CHANGE_PHY_PORT = 1 << 5,
        /// Checks that an address handle's port is the QP's.
        IBV_DEVICE_UD_AV_PORT_ENFORCE = 1 << 6,
        /// `ibv_modify_qp(3)` accepts the current state as a condition.
        IBV_DEVICE_CURR_QP_STATE_MOD = 1 << 7,
        /// A port can be shut down.
        IBV_DEVICE_SHUTDOWN_PORT = 1 << 8,
        /// The port's init type can be set.
        IBV_DEVICE_INIT_TYPE = 1 << 9,
        /// Reports the port becoming active.
        IBV_DEVICE_PORT_ACTIVE_EVENT = 1 << 10,
        /// Has a system image GUID.
        IBV_DEVICE_SYS_IMAGE_GUID = 1 << 11,
        /// RC QPs send receiver-not-ready NAKs.
        IBV_DEVICE_RC_RNR_NAK_GEN = 1 << 12,
        /// A shared receive queue can be resized.
        IBV_DEVICE_SRQ_RESIZE = 1 << 13,
        /// A CQ can notify after N completions.
        IBV_DEVICE_N_NOTIFY_CQ = 1 << 14,
        /// Memory windows.
        IBV_DEVICE_MEM_WINDOW = 1 << 17,
        /// Checksums for IP over UD QPs.
        IBV_DEVICE_UD_IP_CSUM = 1 << 18,
        /// Extended reliable connections.
        IBV_DEVICE_XRC = 1 << 20,
        /// The base memory management extensions (send with invalidate and the like).
        IBV_DEVICE_MEM_MGT_EXTENSIONS = 1 << 21,
        /// Type 2A memory windows: bound to a QP number.
        IBV_DEVICE_MEM_WINDOW_TYPE_2A = 1 << 23,
        /// Type 2B memory windows: bound to a QP number and a protection domain.
        IBV_DEVICE_MEM_WINDOW_TYPE_2B = 1 << 24,
        /// Checksums for IP over RC QPs.
        IBV_DEVICE_RC_IP_CSUM = 1 << 25,
        /// Checksums for raw packet QPs.
        IBV_DEVICE_RAW_IP_CSUM = 1 << 26,
        /// Flow steering, see `ibv_create_flow(3)`.
        IBV_DEVICE_MANAGED_FLOW_STEERING = 1 << 29,
    }
}

/// Bit of `device_cap_flags_ex`: a receive queue can keep the frame check sequence.
pub const IBV_DEVICE_RAW_SCATTER_FCS: u64 = 1 << 34;

/// Bit of `device_cap_flags_ex`: the end of a PCI write can be padded to a cache line.
pub const IBV_DEVICE_PCI_WRITE_END_PADDING: u64 = 1 << 36;

c_enum! {
    /// How far the atomicity of a device's atomic operations reaches.
    ibv_atomic_cap: c_uint {
        /// No atomic operations.
        IBV_ATOMIC_NONE = 0,
        /// Atomic among this device's operations only.
        IBV_ATOMIC_HCA = 1,
        /// Atomic with the processor and other devices too.
        IBV_ATOMIC_GLOB = 2,
    }
}

/// The attributes of a device, see `ibv_query_device(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_device_attr {
    /// Firmware version, NUL-terminated.
    pub fw_ver: [c_char; 64],
    /// GUID of the node, network byte order.
    pub node_guid: u64,
    /// GUID of the system the device is part of, network byte order.
    pub sys_image_guid: u64,
    /// Bytes of the largest memory region.
    pub max_mr_size: u64,
    /// Page sizes a region may use: bit n for 2 to the n bytes.
    pub page_size_cap: u64,
    /// Vendor identifier (IEEE OUI).
    pub vendor_id: u32,
    /// Part number the vendor gave it.
    pub vendor_part_id: u32,
    /// Hardware revision.
    pub hw_ver: u32,
    /// Number of QPs.
    pub max_qp: c_int,
    /// Outstanding work requests in one queue.
    pub max_qp_wr: c_int,
    /// Bits of `ibv_device_cap_flags`.
    pub device_cap_flags: c_uint,
    /// Scatter/gather entries per work request.
    pub max_sge: c_int,
    /// Scatter/gather entries per RDMA read.
    pub max_sge_rd: c_int,
    /// Number of CQs.
    pub max_cq: c_int,
    /// Entries in one CQ.
    pub max_cqe: c_int,
    /// Number of memory regions.
    pub max_mr: c_int,
    /// Number of protection domains.
    pub max_pd: c_int,
    /// Reads and atomics a QP can serve at a time.
    pub max_qp_rd_atom: c_int,
    /// Reads and atomics an end-to-end context can serve at a time.
    pub max_ee_rd_atom: c_int,
    /// Resources of the whole device for serving reads and atomics.
    pub max_res_rd_atom: c_int,
    /// Reads and atomics a QP can have outstanding as requester.
    pub max_qp_init_rd_atom: c_int,
    /// Reads and atomics an end-to-end context can have outstanding.
    pub max_ee_init_rd_atom: c_int,
    /// Reach of atomic operations.
    pub atomic_cap: ibv_atomic_cap,
    /// Number of end-to-end contexts.
    pub max_ee: c_int,
    /// Number of reliable datagram domains.
    pub max_rdd: c_int,
    /// Number of memory windows.
    pub max_mw: c_int,
    /// Number of raw IPv6 QPs.
    pub max_raw_ipv6_qp: c_int,
    /// Number of raw Ethertype QPs.
    pub max_raw_ethy_qp: c_int,
    /// Number of multicast groups.
    pub max_mcast_grp: c_int,
    /// QPs attached to one multicast group.
    pub max_mcast_qp_attach: c_int,
    /// QPs attached to all multicast groups together.
    pub max_total_mcast_qp_attach: c_int,
    /// Number of address handles.
    pub max_ah: c_int,
    /// Number of fast memory regions.
    pub max_fmr: c_int,
    /// Times a fast memory region can be mapped before it is unmapped.
    pub max_map_per_fmr: c_int,
    /// Number of shared receive queues.
    pub max_srq: c_int,
    /// Work requests in one shared receive queue.
    pub max_srq_wr: c_int,
    /// Scatter entries per work request of a shared receive queue.
    pub max_srq_sge: c_int,
    /// Partitions of a port.
    pub max_pkeys: u16,
    /// Delay of acknowledgements: 4.096 µs times 2 to this power.
    pub local_ca_ack_delay: u8,
    /// Number of physical ports.
    pub phys_port_cnt: u8,
}
