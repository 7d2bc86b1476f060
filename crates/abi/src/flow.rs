//! Flow steering and counters, as far as [`verbs_context`](crate::verbs_context) needs them.

use crate::ibv_context;
use core::ffi::c_uint;

c_enum! {
    /// Bits of [`ibv_flow_attr::flags`].
    ibv_flow_flags: c_uint {
        /// Let the packet go on to further rules.
        IBV_FLOW_ATTR_FLAGS_DONT_TRAP = 1 << 1,
        /// The rule is for packets that are sent.
        IBV_FLOW_ATTR_FLAGS_EGRESS = 1 << 2,
    }
}

c_enum! {
    /// What a flow takes.
    ibv_flow_attr_type: c_uint {
        /// Packets that fit the specifications.
        IBV_FLOW_ATTR_NORMAL = 0,
        /// All that no other rule takes.
        IBV_FLOW_ATTR_ALL_DEFAULT = 1,
        /// All multicast that no other rule takes.
        IBV_FLOW_ATTR_MC_DEFAULT = 2,
        /// A copy of everything.
        IBV_FLOW_ATTR_SNIFFER = 3,
    }
}

/// Input of `ibv_create_flow(3)`; the specifications follow it in memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_flow_attr {
    /// No bits are defined: 0.
    pub comp_mask: u32,
    /// What the flow takes (`type` in C).
    pub type_: ibv_flow_attr_type,
    /// Bytes of this struct and the specifications.
    pub size: u16,
    /// Priority; lower comes first.
    pub priority: u16,
    /// Number of specifications.
    pub num_of_specs: u8,
    /// Port of the flow.
    pub port: u8,
    /// Bits of [`ibv_flow_flags`].
    pub flags: u32,
}

/// A flow, see `ibv_create_flow(3)`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ibv_flow {
    /// No bits are defined: 0.
    pub comp_mask: u32,
    /// Device context of the flow.
    pub context: *mut ibv_context,
    /// Kernel handle.
    pub handle: u32,
}

/// An action of a flow, see `ibv_create_flow_action_esp(3)`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ibv_flow_action {
    /// Device context of the action.
    pub context: *mut ibv_context,
}

opaque! {
    /// Input of `ibv_create_flow_action_esp(3)`, not spelled out here.
    ibv_flow_action_esp_attr
}

/// Input of `ibv_create_counters(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_counters_init_attr {
    /// No bits are defined: 0.
    pub comp_mask: u32,
}

/// A set of counters, see `ibv_create_counters(3)`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ibv_counters {
    /// Device context of the counters.
    pub context: *mut ibv_context,
}

c_enum! {
    /// What a counter counts.
    ibv_counter_description: c_uint {
        /// Packets.
        IBV_COUNTER_PACKETS = 0,
        /// Bytes.
        IBV_COUNTER_BYTES = 1,
    }
}

/// Input of `ibv_attach_counters_point_flow(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_counter_attach_attr {
    /// What to count.
    pub counter_desc: ibv_counter_description,
    /// Index of the counter in its set.
    pub index: u32,
    /// No bits are defined: 0.
    pub comp_mask: u32,
}

c_enum! {
    /// Flags of `ibv_read_counters(3)`.
    ibv_read_counters_flags: c_uint {
        /// Values the driver holds already will do.
        IBV_READ_COUNTERS_ATTR_PREFER_CACHED = 1 << 0,
    }
}
