//! The device as it is listed, before it is opened.

use crate::ibv_context;
use core::ffi::{c_char, c_int, c_uint};

c_enum! {
    /// What kind of node a device is; `ibv_node_type_str(3)` names it.
    ibv_node_type: c_int {
        /// Not known.
        IBV_NODE_UNKNOWN = -1,
        /// InfiniBand or RoCE channel adapter.
        IBV_NODE_CA = 1,
        /// InfiniBand switch.
        IBV_NODE_SWITCH = 2,
        /// InfiniBand router.
        IBV_NODE_ROUTER = 3,
        /// iWARP adapter.
        IBV_NODE_RNIC = 4,
        /// Cisco usNIC over Ethernet.
        IBV_NODE_USNIC = 5,
        /// Cisco usNIC over UDP.
        IBV_NODE_USNIC_UDP = 6,
        /// A device with a transport of its own.
        IBV_NODE_UNSPECIFIED = 7,
    }
}

c_enum! {
    /// The transport a device speaks.
    ibv_transport_type: c_int {
        /// Not known.
        IBV_TRANSPORT_UNKNOWN = -1,
        /// InfiniBand transport, RoCE included.
        IBV_TRANSPORT_IB = 0,
        /// iWARP.
        IBV_TRANSPORT_IWARP = 1,
        /// Cisco usNIC over Ethernet.
        IBV_TRANSPORT_USNIC = 2,
        /// Cisco usNIC over UDP.
        IBV_TRANSPORT_USNIC_UDP = 3,
        /// A transport of the device's own.
        IBV_TRANSPORT_UNSPECIFIED = 4,
    }
}

/// Bytes of a device name, with the terminating NUL.
pub const IBV_SYSFS_NAME_MAX: usize = 64;

/// Bytes of a sysfs path, with the terminating NUL.
pub const IBV_SYSFS_PATH_MAX: usize = 256;

/// Two pointers that nobody calls; they keep the offsets of what follows.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct _ibv_device_ops {
    /// Unused, leave it empty.
    pub _dummy1: Option<unsafe extern "C" fn(*mut ibv_device, c_int) -> *mut ibv_context>,
    /// Unused, leave it empty.
    pub _dummy2: Option<unsafe extern "C" fn(*mut ibv_context)>,
}

/// A device as `ibv_get_device_list(3)` returns it.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_device {
    /// Unused pointers.
    pub _ops: _ibv_device_ops,
    /// Kind of node.
    pub node_type: ibv_node_type,
    /// Transport it speaks.
    pub transport_type: ibv_transport_type,
    /// Name of the RDMA device, NUL-terminated.
    pub name: [c_char; IBV_SYSFS_NAME_MAX],
    /// Name of the uverbs character device, NUL-terminated.
    pub dev_name: [c_char; IBV_SYSFS_NAME_MAX],
    /// Path of the uverbs device in sysfs, NUL-terminated.
    pub dev_path: [c_char; IBV_SYSFS_PATH_MAX],
    /// Path of the RDMA device in sysfs, NUL-terminated.
    pub ibdev_path: [c_char; IBV_SYSFS_PATH_MAX],
}

c_enum! {
    /// Whether `fork(2)` is safe with registered memory, see `ibv_is_fork_initialized(3)`.
    ibv_fork_status: c_uint {
        /// Forking is not supported as things stand.
        IBV_FORK_DISABLED = 0,
        /// `ibv_fork_init(3)` was called.
        IBV_FORK_ENABLED = 1,
        /// The system copes with forks by itself.
        IBV_FORK_UNNEEDED = 2,
    }
}
