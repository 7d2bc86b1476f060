//! Address vectors and address handles.

use crate::{ibv_context, ibv_gid, ibv_pd};
use core::ffi::c_uint;

/// The part of an address vector that becomes a global routing header.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_global_route {
    /// Destination GID.
    pub dgid: ibv_gid,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Index of the source GID in the local port's table.
    pub sgid_index: u8,
    /// Hop limit, or time to live.
    pub hop_limit: u8,
    /// Traffic class, or type of service.
    pub traffic_class: u8,
}

/// The 40-byte global routing header at the start of a received datagram's buffer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_grh {
    /// Version (4 bits), traffic class (8) and flow label (20), network byte order.
    pub version_tclass_flow: u32,
    /// Bytes after this header, network byte order.
    pub paylen: u16,
    /// Number of the header that follows.
    pub next_hdr: u8,
    /// Hops left.
    pub hop_limit: u8,
    /// Source GID.
    pub sgid: ibv_gid,
    /// Destination GID.
    pub dgid: ibv_gid,
}

/// An address vector, see `ibv_create_ah(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_ah_attr {
    /// Global route; used if [`Self::is_global`] is not 0.
    pub grh: ibv_global_route,
    /// Destination LID.
    pub dlid: u16,
    /// Service level.
    pub sl: u8,
    /// Low bits of the source LID, below the port's LMC.
    pub src_path_bits: u8,
    /// Rate limit, one of [`ibv_rate`].
    pub static_rate: u8,
    /// Nonzero if the route in [`Self::grh`] applies.
    pub is_global: u8,
    /// Local port to send from.
    pub port_num: u8,
}

/// An address handle, see `ibv_create_ah(3)`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ibv_ah {
    /// Device context of the handle.
    pub context: *mut ibv_context,
    /// Protection domain it was created in.
    pub pd: *mut ibv_pd,
    /// Kernel handle.
    pub handle: u32,
}

c_enum! {
    /// A static rate, see `ibv_rate_to_mbps(3)`.
    ibv_rate: c_uint {
        /// No limit: the port's own rate.
        IBV_RATE_MAX = 0,
        /// 2.5 Gbit/s.
        IBV_RATE_2_5_GBPS = 2,
        /// 5 Gbit/s.
        IBV_RATE_5_GBPS = 5,
        /// 10 Gbit/s.
        IBV_RATE_10_GBPS = 3,
        /// 20 Gbit/s.
        IBV_RATE_20_GBPS = 6,
        /// 30 Gbit/s.
        IBV_RATE_30_GBPS = 4,
        /// 40 Gbit/s.
        IBV_RATE_40_GBPS = 7,
        /// 60 Gbit/s.
        IBV_RATE_60_GBPS = 8,
        /// 80 Gbit/s.
        IBV_RATE_80_GBPS = 9,
        /// 120 Gbit/s.
        IBV_RATE_120_GBPS = 10,
        /// 14 Gbit/s.
        IBV_RATE_14_GBPS = 11,
        /// 56 Gbit/s.
        IBV_RATE_56_GBPS = 12,
        /// 112 Gbit/s.
        IBV_RATE_112_GBPS = 13,
        /// 168 Gbit/s.
        IBV_RATE_168_GBPS = 14,
        /// 25 Gbit/s.
        IBV_RATE_25_GBPS = 15,
        /// 100 Gbit/s.
        IBV_RATE_100_GBPS = 16,
        /// 200 Gbit/s.
        IBV_RATE_200_GBPS = 17,
        /// 300 Gbit/s.
        IBV_RATE_300_GBPS = 18,
        /// 28 Gbit/s.
        IBV_RATE_28_GBPS = 19,
        /// 50 Gbit/s.
        IBV_RATE_50_GBPS = 20,
        /// 400 Gbit/s.
        IBV_RATE_400_GBPS = 21,
        /// 600 Gbit/s.
        IBV_RATE_600_GBPS = 22,
        /// 800 Gbit/s.
        IBV_RATE_800_GBPS = 23,
        /// 1200 Gbit/s.
        IBV_RATE_1200_GBPS = 24,
    }
}
