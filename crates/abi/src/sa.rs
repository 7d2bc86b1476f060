//! Paths as `<infiniband/sa.h>` has them.

use crate::ibv_gid;
use core::ffi::{c_int, c_uint};

/// A path from one port to another, in the order and size that programs read.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_sa_path_rec {
    /// Destination GID.
    pub dgid: ibv_gid,
    /// Source GID.
    pub sgid: ibv_gid,
    /// Destination LID, network byte order.
    pub dlid: u16,
    /// Source LID, network byte order.
    pub slid: u16,
    /// Nonzero for raw packets.
    pub raw_traffic: c_int,
    /// Flow label, network byte order.
    pub flow_label: u32,
    /// Hop limit, or time to live.
    pub hop_limit: u8,
    /// Traffic class, or type of service.
    pub traffic_class: u8,
    /// Nonzero if the way back is the same.
    pub reversible: c_int,
    /// Number of paths.
    pub numb_path: u8,
    /// Partition key, network byte order.
    pub pkey: u16,
    /// Service level.
    pub sl: u8,
    /// How [`Self::mtu`] is meant; 2 is exactly.
    pub mtu_selector: u8,
    /// Path MTU, one of [`ibv_mtu`](crate::ibv_mtu).
    pub mtu: u8,
    /// How [`Self::rate`] is meant; 2 is exactly.
    pub rate_selector: u8,
    /// Rate, one of [`ibv_rate`](crate::ibv_rate).
    pub rate: u8,
    /// How [`Self::packet_life_time`] is meant; 2 is exactly.
    pub packet_life_time_selector: u8,
    /// How long a packet may be under way, a time code.
    pub packet_life_time: u8,
    /// How much this path is preferred.
    pub preference: u8,
}

/// A path record in the form of a message of subnet administration, 64 bytes of it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_path_record {
    /// Service id, network byte order.
    pub service_id: u64,
    /// Destination GID.
    pub dgid: ibv_gid,
    /// Source GID.
    pub sgid: ibv_gid,
    /// Destination LID, network byte order.
    pub dlid: u16,
    /// Source LID, network byte order.
    pub slid: u16,
    /// Flow label (bits 27 to 8) and hop limit (7 to 0), network byte order.
    pub flowlabel_hoplimit: u32,
    /// Traffic class.
    pub tclass: u8,
    /// Reversible (bit 7) and number of paths (6 to 0).
    pub reversible_numpath: u8,
    /// Partition key, network byte order.
    pub pkey: u16,
    /// QoS class (bits 15 to 4) and service level (3 to 0), network byte order.
    pub qosclass_sl: u16,
    /// Selector (bits 7 and 6) and path MTU.
    pub mtu: u8,
    /// Selector (bits 7 and 6) and rate.
    pub rate: u8,
    /// Selector (bits 7 and 6) and packet life time.
    pub packetlifetime: u8,
    /// How much this path is preferred.
    pub preference: u8,
    /// Nothing.
    pub reserved: [u8; 6],
}

/// A path record and what it is for, as `RDMA_OPTION_IB_PATH` takes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_path_data {
    /// Bits `IBV_PATH_FLAG_…`.
    pub flags: u32,
    /// Nothing.
    pub reserved: u32,
    /// The path.
    pub path: ibv_path_record,
}

/// Bit of `reversible_numpath` in [`ibv_path_record`].
pub const IBV_PATH_RECORD_REVERSIBLE: c_uint = 0x80;
/// Bit of `flags` in [`ibv_path_data`]: for messages of management.
pub const IBV_PATH_FLAG_GMP: c_uint = 1;
/// Bit of `flags` in [`ibv_path_data`]: the primary path.
pub const IBV_PATH_FLAG_PRIMARY: c_uint = 1 << 1;
/// Bit of `flags` in [`ibv_path_data`]: the alternate path.
pub const IBV_PATH_FLAG_ALTERNATE: c_uint = 1 << 2;
/// Bit of `flags` in [`ibv_path_data`]: from this port.
pub const IBV_PATH_FLAG_OUTBOUND: c_uint = 1 << 3;
/// Bit of `flags` in [`ibv_path_data`]: to this port.
pub const IBV_PATH_FLAG_INBOUND: c_uint = 1 << 4;
/// Bit of `flags` in [`ibv_path_data`]: to this port, the reverse of the outbound one.
pub const IBV_PATH_FLAG_INBOUND_REVERSE: c_uint = 1 << 5;
/// Bits of `flags` in [`ibv_path_data`]: both ways.
pub const IBV_PATH_FLAG_BIDIRECTIONAL: c_uint =
    IBV_PATH_FLAG_OUTBOUND | IBV_PATH_FLAG_INBOUND_REVERSE;
