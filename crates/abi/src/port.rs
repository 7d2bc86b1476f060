//! Ports and what `ibv_query_port(3)` tells of them.

use core::ffi::{c_int, c_uint};

c_enum! {
    /// The size of the largest packet's payload on a path.
    ibv_mtu: c_uint {
        /// 256 bytes.
        IBV_MTU_256 = 1,
        /// 512 bytes.
        IBV_MTU_512 = 2,
        /// 1024 bytes.
        IBV_MTU_1024 = 3,
        /// 2048 bytes.
        IBV_MTU_2048 = 4,
        /// 4096 bytes.
        IBV_MTU_4096 = 5,
    }
}

c_enum! {
    /// The logical state of a port; `ibv_port_state_str(3)` names it.
    ibv_port_state: c_uint {
        /// No state change, or not known.
        IBV_PORT_NOP = 0,
        /// The link is down.
        IBV_PORT_DOWN = 1,
        /// The link is up, the port is not yet configured.
        IBV_PORT_INIT = 2,
        /// Configured, not yet carrying data.
        IBV_PORT_ARMED = 3,
        /// Carries data.
        IBV_PORT_ACTIVE = 4,
        /// Active, with the link down for a moment.
        IBV_PORT_ACTIVE_DEFER = 5,
    }
}

/// Link layer not given; InfiniBand is meant.
pub const IBV_LINK_LAYER_UNSPECIFIED: u8 = 0;

/// The port is an InfiniBand link.
pub const IBV_LINK_LAYER_INFINIBAND: u8 = 1;

/// The port is an Ethernet link.
pub const IBV_LINK_LAYER_ETHERNET: u8 = 2;

/// Bit of [`ibv_port_attr::flags`]: every address vector needs a global route.
pub const IBV_QPF_GRH_REQUIRED: u8 = 1 << 0;

c_enum! {
    /// Bits of [`ibv_port_attr::port_cap_flags`].
    ibv_port_cap_flags: c_uint {
        /// A subnet manager runs here.
        IBV_PORT_SM = 1 << 1,
        /// Notices.
        IBV_PORT_NOTICE_SUP = 1 << 2,
        /// Traps.
        IBV_PORT_TRAP_SUP = 1 << 3,
        /// Optional values of the inter-packet delay.
        IBV_PORT_OPT_IPD_SUP = 1 << 4,
        /// Automatic path migration.
        IBV_PORT_AUTO_MIGR_SUP = 1 << 5,
        /// Mapping of service levels to virtual lanes.
        IBV_PORT_SL_MAP_SUP = 1 << 6,
        /// The management key survives a power cycle.
        IBV_PORT_MKEY_NVRAM = 1 << 7,
        /// The partition keys survive a power cycle.
        IBV_PORT_PKEY_NVRAM = 1 << 8,
        /// Has LEDs that can be controlled.
        IBV_PORT_LED_INFO_SUP = 1 << 9,
        /// System image GUID.
        IBV_PORT_SYS_IMAGE_GUID_SUP = 1 << 11,
        /// Traps for partition keys at a switch's external port.
        IBV_PORT_PKEY_SW_EXT_PORT_TRAP_SUP = 1 << 12,
        /// Extended link speeds.
        IBV_PORT_EXTENDED_SPEEDS_SUP = 1 << 14,
        /// [`ibv_port_attr::port_cap_flags2`] is valid.
        IBV_PORT_CAP_MASK2_SUP = 1 << 15,
        /// Communication management.
        IBV_PORT_CM_SUP = 1 << 16,
        /// SNMP tunnelling.
        IBV_PORT_SNMP_TUNNEL_SUP = 1 << 17,
        /// Reinitialisation that keeps settings.
        IBV_PORT_REINIT_SUP = 1 << 18,
        /// Device management.
        IBV_PORT_DEVICE_MGMT_SUP = 1 << 19,
        /// Vendor-specific management classes.
        IBV_PORT_VENDOR_CLASS_SUP = 1 << 20,
        /// Directed-route notices.
        IBV_PORT_DR_NOTICE_SUP = 1 << 21,
        /// Notices for a changed capability mask.
        IBV_PORT_CAP_MASK_NOTICE_SUP = 1 << 22,
        /// Boot management.
        IBV_PORT_BOOT_MGMT_SUP = 1 << 23,
        /// Measures the latency of the link.
        IBV_PORT_LINK_LATENCY_SUP = 1 << 24,
        /// Can ask clients to register again.
        IBV_PORT_CLIENT_REG_SUP = 1 << 25,
        /// GIDs are made of IP addresses (RoCE).
        IBV_PORT_IP_BASED_GIDS = 1 << 26,
    }
}

c_enum! {
    /// Bits of [`ibv_port_attr::port_cap_flags2`].
    ibv_port_cap_flags2: c_uint {
        /// The node description can be set.
        IBV_PORT_SET_NODE_DESC_SUP = 1 << 0,
        /// Extended port information.
        IBV_PORT_INFO_EXT_SUP = 1 << 1,
        /// Virtual ports.
        IBV_PORT_VIRT_SUP = 1 << 2,
        /// A table of the switch's port states.
        IBV_PORT_SWITCH_PORT_STATE_TABLE_SUP = 1 << 3,
        /// Link width 2x.
        IBV_PORT_LINK_WIDTH_2X_SUP = 1 << 4,
        /// Link speed HDR, 50 Gbit/s a lane.
        IBV_PORT_LINK_SPEED_HDR_SUP = 1 << 5,
        /// Link speed NDR, 100 Gbit/s a lane.
        IBV_PORT_LINK_SPEED_NDR_SUP = 1 << 10,
    }
}

/// The attributes of a port, see `ibv_query_port(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_port_attr {
    /// Logical state.
    pub state: ibv_port_state,
    /// Largest MTU the port can do.
    pub max_mtu: ibv_mtu,
    /// MTU in use.
    pub active_mtu: ibv_mtu,
    /// Entries of the GID table.
    pub gid_tbl_len: c_int,
    /// Bits of `ibv_port_cap_flags`.
    pub port_cap_flags: u32,
    /// Bytes of the largest message.
    pub max_msg_sz: u32,
    /// Packets with a bad partition key so far.
    pub bad_pkey_cntr: u32,
    /// Packets with a bad queue key so far.
    pub qkey_viol_cntr: u32,
    /// Entries of the partition key table.
    pub pkey_tbl_len: u16,
    /// Base LID, 0 on Ethernet.
    pub lid: u16,
    /// LID of the subnet manager.
    pub sm_lid: u16,
    /// LID mask control: how many low bits of the LID select a path.
    pub lmc: u8,
    /// Code of the number of virtual lanes.
    pub max_vl_num: u8,
    /// Service level of the subnet manager.
    pub sm_sl: u8,
    /// Delay of the subnet: 4.096 µs times 2 to this power.
    pub subnet_timeout: u8,
    /// Kind of initialisation the subnet manager did.
    pub init_type_reply: u8,
    /// Code of the link width: 1, 2, 4, 8 and 16 for 1x, 4x, 8x, 12x and 2x.
    pub active_width: u8,
    /// Code of the link speed per lane.
    pub active_speed: u8,
    /// State of the physical link: 5 is up.
    pub phys_state: u8,
    /// One of the `IBV_LINK_LAYER_*` values.
    pub link_layer: u8,
    /// Bits such as [`IBV_QPF_GRH_REQUIRED`].
    pub flags: u8,
    /// Bits of `ibv_port_cap_flags2`.
    pub port_cap_flags2: u16,
}
