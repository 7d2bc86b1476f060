//! What a device and its ports can do.

use std::ffi::{CStr, c_int};
use transom_abi::*;

/// What a device can do; see `ibv_query_device(3)`.
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
    /// How many ports it has, numbered from 1.
    pub ports: u8,
    /// The bytes of the largest memory region.
    pub max_region_length: u64,
    /// How many queue pairs it can have.
    pub max_queue_pairs: u32,
    /// How many requests one queue can hold.
    pub max_requests: u32,
    /// How many slices one request can have.
    pub max_slices: u32,
    /// How many completion queues it can have.
    pub max_completion_queues: u32,
    /// How many entries one completion queue can have.
    pub max_completions: u32,
    /// How many memory regions it can have.
    pub max_regions: u32,
    /// How many memory windows it can have.
    pub max_windows: u32,
    /// How many protection domains it can have.
    pub max_protection_domains: u32,
    /// How many reads and atomics a queue pair can serve at a time.
    pub max_reads_served: u32,
    /// How many reads and atomics a queue pair can have outstanding.
    pub max_reads_outstanding: u32,
    /// How many shared receive queues it can have.
    pub max_shared_receive_queues: u32,
    /// How many receives one of them can hold.
    pub max_shared_receives: u32,
    /// How many slices each of those can have.
    pub max_shared_slices: u32,
    /// How many address handles it can have.
    pub max_address_handles: u32,
    /// How many multicast groups its queue pairs can join.
    pub max_multicast_groups: u32,
    /// How many queue pairs can join one group.
    pub max_group_members: u32,
    /// Whether it has extended reliable connections (XRC).
    pub xrc: bool,
    /// Whether it has atomic operations.
    pub atomics: bool,
    /// Whether it has [atomic writes](crate::Request::atomic_write).
    pub atomic_writes: bool,
    /// Whether it has windows of type 1.
    pub windows_type_1: bool,
    /// Whether it has windows of type 2, and how it holds them to their queue pair.
    pub windows_type_2: Option<Type2Check>,
}

/// What an access through a type 2 window is checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type2Check {
    /// Type 2A: the number of the queue pair that bound it.
    QueuePair,
    /// Type 2B: that number and the protection domain.
    QueuePairAndDomain,
}

impl DeviceAttributes {
    /// From what the plain query says, and from the flags that only the extended one has.
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
    /// The payload bytes of the largest packet in use.
    pub active_mtu: u16,
    /// The payload bytes of the largest packet it can do.
    pub max_mtu: u16,
    /// The entries of its GID table.
    pub gids: u32,
    /// Its local identifier; 0 on Ethernet.
    pub lid: u16,
    /// Whether it is an Ethernet link (RoCE), so that addresses are GIDs.
    pub ethernet: bool,
    /// The bytes of the largest message.
    pub max_message: u32,
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

/// The bytes an MTU code stands for.
fn mtu_bytes(mtu: ibv_mtu) -> u16 {
    128 << mtu.clamp(IBV_MTU_256, IBV_MTU_4096)
}

/// The largest MTU code that stands for no more than these bytes.
pub(crate) fn mtu_code(bytes: u16) -> ibv_mtu {
    let fits = |mtu: &ibv_mtu| mtu_bytes(*mtu) <= bytes;
    (IBV_MTU_256..=IBV_MTU_4096).rev().find(fits).unwrap_or(IBV_MTU_256)
}

/// C counts in signed integers.
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
