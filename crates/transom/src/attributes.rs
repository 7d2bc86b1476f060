//! The abilities and limits of a device and its ports.

use std::ffi::{CStr, c_int};
use transom_abi::*;

/// The abilities and limits of a device; see `ibv_query_device(3)`.
///
/// ```
/// # let context = transom::devices(&transom::Provider::software())?[0].open()?;
/// let attributes = context.attributes()?;
/// if attributes.windows_type_2.is_none() {
///     println!("{} has no windows of type 2", context.name());
/// }
/// # assert!(attributes.windows_type_2.is_some());
/// # Ok::<(), transom::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceAttributes {
    /// The version of its firmware.
    pub firmware: String,
    /// The identifier of the node.
    pub node_guid: u64,
    /// The number of its ports, which count from 1.
    pub ports: u8,
    /// The length of the largest memory region, in bytes.
    pub max_region_length: u64,
    /// The limit on queue pairs.
    pub max_queue_pairs: u32,
    /// The limit on requests in one queue.
    pub max_requests: u32,
    /// The limit on slices in one request.
    pub max_slices: u32,
    /// The limit on completion queues.
    pub max_completion_queues: u32,
    /// The limit on entries in one completion queue.
    pub max_completions: u32,
    /// The limit on memory regions.
    pub max_regions: u32,
    /// The limit on memory windows.
    pub max_windows: u32,
    /// The limit on protection domains.
    pub max_protection_domains: u32,
    /// The limit on reads and atomics that a queue pair serves at a time.
    pub max_reads_served: u32,
    /// The limit on reads and atomics that a queue pair has outstanding.
    pub max_reads_outstanding: u32,
    /// The limit on shared receive queues.
    pub max_shared_receive_queues: u32,
    /// The limit on receives in one shared receive queue.
    pub max_shared_receives: u32,
    /// The limit on slices in one of those receives.
    pub max_shared_slices: u32,
    /// The limit on address handles.
    pub max_address_handles: u32,
    /// The limit on multicast groups that its queue pairs join.
    pub max_multicast_groups: u32,
    /// The limit on queue pairs that join one group.
    pub max_group_members: u32,
    /// Whether it has extended reliable connections (XRC).
    pub xrc: bool,
    /// Whether it has atomic operations.
    pub atomics: bool,
    /// Whether it has [atomic writes](crate::Request::atomic_write).
    pub atomic_writes: bool,
    /// Whether it has windows of type 1.
    pub windows_type_1: bool,
    /// Whether it has windows of type 2, and how it ties them to their queue pair.
    pub windows_type_2: Option<Type2Check>,
}

/// The check of an access through a type 2 window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type2Check {
    /// Type 2A: compares the number of the queue pair that bound it.
    QueuePair,
    /// Type 2B: compares that number and the protection domain.
    QueuePairAndDomain,
}

impl DeviceAttributes {
    /// Combines the answer of the plain query with the flags that only the extended query has.
    pub(crate) fn new(raw: &ibv_device_attr, extended_flags: u64) -> Self {
        let has = |bits| raw.device_cap_flags & bits != 0;
        // SAFETY: libibverbs ends the version with a NUL.
        let firmware = unsafe { CStr::from_ptr(raw.fw_ver.as_ptr()) };
        Self {
            firmware: firmware.to_string_lossy().into_owned(),
            node_guid: u64::from_be(raw.node_guid),
            ports: raw.phys_port_cnt,
            max_region_length: raw.max_mr_size,
            max_queue_pairs: count(raw.max_qp),
            max_requests: count(raw.max_qp_wr),
            max_slices: count(raw.max_sge),
            max_completion_queues: count(raw.max_cq),
            max_completions: count(raw.max_cqe),
            max_regions: count(raw.max_mr),
            max_windows: count(raw.max_mw),
            max_protection_domains: count(raw.max_pd),
            max_reads_served: count(raw.max_qp_rd_atom),
            max_reads_outstanding: count(raw.max_qp_init_rd_atom),
            max_shared_receive_queues: count(raw.max_srq),
            max_shared_receives: count(raw.max_srq_wr),
            max_shared_slices: count(raw.max_srq_sge),
            max_address_handles: count(raw.max_ah),
            max_multicast_groups: count(raw.max_mcast_grp),
            max_group_members: count(raw.max_mcast_qp_attach),
            xrc: has(IBV_DEVICE_XRC),
            atomics: raw.atomic_cap != IBV_ATOMIC_NONE,
            atomic_writes: extended_flags & IBV_DEVICE_ATOMIC_WRITE != 0,
            windows_type_1: has(IBV_DEVICE_MEM_WINDOW),
            windows_type_2: if has(IBV_DEVICE_MEM_WINDOW_TYPE_2B) {
                Some(Type2Check::QueuePairAndDomain)
            } else if has(IBV_DEVICE_MEM_WINDOW_TYPE_2A) {
                Some(Type2Check::QueuePair)
            } else {
                None
            },
        }
    }
}

/// The state of a port; see `ibv_query_port(3)`.
///
/// ```
/// # let context = transom::devices(&transom::Provider::software())?[0].open()?;
/// let port = context.port(1)?;
/// println!("packets carry {} bytes, and there are {} GIDs", port.active_mtu, port.gids);
/// # assert!(port.gids > 0);
/// # Ok::<(), transom::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortAttributes {
    /// Whether it carries data.
    pub active: bool,
    /// The payload of the largest packet in use, in bytes.
    pub active_mtu: u16,
    /// The payload of the largest packet it supports, in bytes.
    pub max_mtu: u16,
    /// The number of entries in its GID table.
    pub gids: u32,
    /// Its local identifier. 0 on Ethernet.
    pub lid: u16,
    /// Whether it is an Ethernet link (RoCE), where addresses are GIDs.
    pub ethernet: bool,
    /// The length of the largest message, in bytes.
    pub max_message: u32,
}

/// The protocol of an entry of a GID table. From [`Context::gid_type`](crate::Context::gid_type).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GidType {
    /// InfiniBand.
    InfiniBand,
    /// RoCE version 1: directly over Ethernet. No router forwards it.
    RoceV1,
    /// RoCE version 2: over UDP and IP. The software device has only these.
    RoceV2,
    /// Another type, with its number in `enum ibv_gid_type`.
    Other(u32),
}

impl From<u32> for GidType {
    fn from(raw: u32) -> Self {
        match raw {
            IBV_GID_TYPE_IB => Self::InfiniBand,
            IBV_GID_TYPE_ROCE_V1 => Self::RoceV1,
            IBV_GID_TYPE_ROCE_V2 => Self::RoceV2,
            other => Self::Other(other),
        }
    }
}

impl From<&ibv_port_attr> for PortAttributes {
    fn from(raw: &ibv_port_attr) -> Self {
        Self {
            active: raw.state == IBV_PORT_ACTIVE,
            active_mtu: mtu_bytes(raw.active_mtu),
            max_mtu: mtu_bytes(raw.max_mtu),
            gids: count(raw.gid_tbl_len),
            lid: raw.lid,
            ethernet: raw.link_layer == IBV_LINK_LAYER_ETHERNET,
            max_message: raw.max_msg_sz,
        }
    }
}

/// The MTU of an MTU code, in bytes.
fn mtu_bytes(mtu: ibv_mtu) -> u16 {
    128 << mtu.clamp(IBV_MTU_256, IBV_MTU_4096)
}

/// The largest MTU code whose MTU is at most this many bytes.
pub(crate) fn mtu_code(bytes: u16) -> ibv_mtu {
    let fits = |mtu: &ibv_mtu| mtu_bytes(*mtu) <= bytes;
    (IBV_MTU_256..=IBV_MTU_4096).rev().find(fits).unwrap_or(IBV_MTU_256)
}

/// Converts a count. C counts in signed integers.
fn count(raw: c_int) -> u32 {
    u32::try_from(raw).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtu_codes_and_bytes_agree() {
        for code in IBV_MTU_256..=IBV_MTU_4096 {
            assert_eq!(mtu_code(mtu_bytes(code)), code);
        }
        assert_eq!(mtu_code(1500), IBV_MTU_1024);
        assert_eq!(mtu_code(0), IBV_MTU_256);
        assert_eq!(mtu_bytes(0), 256);
    }
}
