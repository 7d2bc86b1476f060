//! Global identifiers and the table entries that hold them.

use core::ffi::c_uint;

/// A 128-bit global identifier: an address of a port.
#[repr(C)]
#[derive(Clone, Copy)]
pub union ibv_gid {
    /// The sixteen bytes in the order they travel.
    pub raw: [u8; 16],
    /// The same bytes as prefix and interface identifier.
    pub global: ibv_gid_global,
}
plain_union!(ibv_gid, raw = [0; 16]);

/// The two halves of an [`ibv_gid`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ibv_gid_global {
    /// Subnet prefix, network byte order.
    pub subnet_prefix: u64,
    /// Interface identifier, network byte order.
    pub interface_id: u64,
}

c_enum! {
    /// The protocol a GID table entry speaks, as in [`ibv_gid_entry::gid_type`].
    ibv_gid_type: c_uint {
        /// InfiniBand.
        IBV_GID_TYPE_IB = 0,
        /// RoCE version 1: directly over Ethernet.
        IBV_GID_TYPE_ROCE_V1 = 1,
        /// RoCE version 2: over UDP and IP.
        IBV_GID_TYPE_ROCE_V2 = 2,
    }
}

/// One entry of a port's GID table, see `ibv_query_gid_ex(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_gid_entry {
    /// The identifier itself.
    pub gid: ibv_gid,
    /// Index in the port's table.
    pub gid_index: u32,
    /// Port the table belongs to, from 1.
    pub port_num: u32,
    /// One of [`ibv_gid_type`].
    pub gid_type: u32,
    /// Interface index of the network device behind the entry, 0 if none.
    pub ndev_ifindex: u32,
}
