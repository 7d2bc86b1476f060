//! What `ibv_query_device_ex(3)` tells of a device beyond [`ibv_device_attr`].

use crate::ibv_device_attr;
use core::ffi::c_uint;

/// Input of `ibv_query_device_ex(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_query_device_ex_input {
    /// No bits are defined: 0.
    pub comp_mask: u32,
}

c_enum! {
    /// Operations that work on demand-paged memory, for one transport.
    ibv_odp_transport_cap_bits: c_uint {
        /// Sending from it.
        IBV_ODP_SUPPORT_SEND = 1 << 0,
        /// Receiving into it.
        IBV_ODP_SUPPORT_RECV = 1 << 1,
        /// RDMA write.
        IBV_ODP_SUPPORT_WRITE = 1 << 2,
        /// RDMA read.
        IBV_ODP_SUPPORT_READ = 1 << 3,
        /// Atomic operations.
        IBV_ODP_SUPPORT_ATOMIC = 1 << 4,
        /// Receiving into it through a shared receive queue.
        IBV_ODP_SUPPORT_SRQ_RECV = 1 << 5,
    }
}

c_enum! {
    /// Bits of [`ibv_odp_caps::general_caps`].
    ibv_odp_general_caps: c_uint {
        /// On-demand paging is supported.
        IBV_ODP_SUPPORT = 1 << 0,
        /// A region may cover the whole address space.
        IBV_ODP_SUPPORT_IMPLICIT = 1 << 1,
    }
}

/// Support for on-demand paging.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_odp_caps {
    /// Bits of [`ibv_odp_general_caps`].
    pub general_caps: u64,
    /// What each transport can do.
    pub per_transport_caps: ibv_odp_caps_per_transport,
}

/// The member `per_transport_caps` of [`ibv_odp_caps`]: bits of [`ibv_odp_transport_cap_bits`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_odp_caps_per_transport {
    /// Operations of RC QPs.
    pub rc_odp_caps: u32,
    /// Operations of UC QPs.
    pub uc_odp_caps: u32,
    /// Operations of UD QPs.
    pub ud_odp_caps: u32,
}

/// Support for TCP segmentation offload.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_tso_caps {
    /// Bytes of the largest payload to segment, 0 if unsupported.
    pub max_tso: u32,
    /// QP types that do it: bit n for `ibv_qp_type` n.
    pub supported_qpts: u32,
}

c_enum! {
    /// Hash functions for spreading received packets.
    ibv_rx_hash_function_flags: c_uint {
        /// The Toeplitz hash.
        IBV_RX_HASH_FUNC_TOEPLITZ = 1 << 0,
    }
}

c_enum! {
    /// Packet fields that enter the receive hash.
    ibv_rx_hash_fields: c_uint {
        /// IPv4 source address.
        IBV_RX_HASH_SRC_IPV4 = 1 << 0,
        /// IPv4 destination address.
        IBV_RX_HASH_DST_IPV4 = 1 << 1,
        /// IPv6 source address.
        IBV_RX_HASH_SRC_IPV6 = 1 << 2,
        /// IPv6 destination address.
        IBV_RX_HASH_DST_IPV6 = 1 << 3,
        /// TCP source port.
        IBV_RX_HASH_SRC_PORT_TCP = 1 << 4,
        /// TCP destination port.
        IBV_RX_HASH_DST_PORT_TCP = 1 << 5,
        /// UDP source port.
        IBV_RX_HASH_SRC_PORT_UDP = 1 << 6,
        /// UDP destination port.
        IBV_RX_HASH_DST_PORT_UDP = 1 << 7,
        /// IPsec security parameter index.
        IBV_RX_HASH_IPSEC_SPI = 1 << 8,
        /// Take the fields of the inner packet of a tunnel.
        IBV_RX_HASH_INNER = 1 << 31,
    }
}

/// Support for receive-side scaling.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_rss_caps {
    /// QP types that do it: bit n for `ibv_qp_type` n.
    pub supported_qpts: u32,
    /// Number of indirection tables.
    pub max_rwq_indirection_tables: u32,
    /// Entries in one indirection table.
    pub max_rwq_indirection_table_size: u32,
    /// Bits of [`ibv_rx_hash_fields`].
    pub rx_hash_fields_mask: u64,
    /// Bits of [`ibv_rx_hash_function_flags`].
    pub rx_hash_function: u8,
}

/// Support for limiting the rate of a QP.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_packet_pacing_caps {
    /// Lowest rate, kbit/s.
    pub qp_rate_limit_min: u32,
    /// Highest rate, kbit/s.
    pub qp_rate_limit_max: u32,
    /// QP types that do it: bit n for `ibv_qp_type` n.
    pub supported_qpts: u32,
}

c_enum! {
    /// Bits of [`ibv_device_attr_ex::raw_packet_caps`].
    ibv_raw_packet_caps: c_uint {
        /// Strips the customer VLAN tag on receipt.
        IBV_RAW_PACKET_CAP_CVLAN_STRIPPING = 1 << 0,
        /// Keeps the frame check sequence on receipt.
        IBV_RAW_PACKET_CAP_SCATTER_FCS = 1 << 1,
        /// Computes and checks IP checksums.
        IBV_RAW_PACKET_CAP_IP_CSUM = 1 << 2,
        /// Waits a while before it drops a packet for want of a receive request.
        IBV_RAW_PACKET_CAP_DELAY_DROP = 1 << 3,
    }
}

c_enum! {
    /// Bits of [`ibv_tm_caps::flags`].
    ibv_tm_cap_flags: c_uint {
        /// Tag matching on RC QPs.
        IBV_TM_CAP_RC = 1 << 0,
    }
}

/// Support for tag matching.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_tm_caps {
    /// Bytes of the largest rendezvous request header.
    pub max_rndv_hdr_size: u32,
    /// Tagged buffers in one matching list.
    pub max_num_tags: u32,
    /// Bits of [`ibv_tm_cap_flags`].
    pub flags: u32,
    /// Outstanding operations on a list.
    pub max_ops: u32,
    /// Scatter entries of a tagged buffer.
    pub max_sge: u32,
}

/// Limits of CQ moderation, see `ibv_modify_cq(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_cq_moderation_caps {
    /// Most completions per event.
    pub max_cq_count: u16,
    /// Longest wait for them, µs.
    pub max_cq_period: u16,
}

c_enum! {
    /// Operand sizes of PCI atomic operations.
    ibv_pci_atomic_op_size: c_uint {
        /// Four bytes.
        IBV_PCI_ATOMIC_OPERATION_4_BYTE_SIZE_SUP = 1 << 0,
        /// Eight bytes.
        IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP = 1 << 1,
        /// Sixteen bytes.
        IBV_PCI_ATOMIC_OPERATION_16_BYTE_SIZE_SUP = 1 << 2,
    }
}

/// Support for PCI atomics: bits of [`ibv_pci_atomic_op_size`] for each operation.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_pci_atomic_caps {
    /// Sizes of fetch and add.
    pub fetch_add: u16,
    /// Sizes of swap.
    pub swap: u16,
    /// Sizes of compare and swap.
    pub compare_swap: u16,
}

/// The extended attributes of a device, see `ibv_query_device_ex(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_device_attr_ex {
    /// The attributes of `ibv_query_device(3)`.
    pub orig_attr: ibv_device_attr,
    /// No bits are defined: 0.
    pub comp_mask: u32,
    /// On-demand paging.
    pub odp_caps: ibv_odp_caps,
    /// Valid bits of a completion timestamp, 0 if there are none.
    pub completion_timestamp_mask: u64,
    /// Frequency of the completion clock, kHz.
    pub hca_core_clock: u64,
    /// Bits of `ibv_device_cap_flags` and those above 32.
    pub device_cap_flags_ex: u64,
    /// TCP segmentation offload.
    pub tso_caps: ibv_tso_caps,
    /// Receive-side scaling.
    pub rss_caps: ibv_rss_caps,
    /// Number of receive work queues.
    pub max_wq_type_rq: u32,
    /// Rate limiting.
    pub packet_pacing_caps: ibv_packet_pacing_caps,
    /// Bits of [`ibv_raw_packet_caps`].
    pub raw_packet_caps: u32,
    /// Tag matching.
    pub tm_caps: ibv_tm_caps,
    /// CQ moderation.
    pub cq_mod_caps: ibv_cq_moderation_caps,
    /// Bytes of device memory.
    pub max_dm_size: u64,
    /// PCI atomics.
    pub pci_atomic_caps: ibv_pci_atomic_caps,
    /// On-demand paging of XRC QPs: bits of [`ibv_odp_transport_cap_bits`].
    pub xrc_odp_caps: u32,
    /// Number of physical ports, where 255 are not enough.
    pub phys_port_cnt_ex: u32,
}
