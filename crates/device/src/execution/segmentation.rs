//! How a message becomes packets where a link carries them (rules H.2, PSN-03).

/// Most packets of a burst: what one system call sends in segments.
pub const MAX_BURST: u64 = 64;

/// How many packets carry this many bytes: at least one.
pub const fn packets(length: u64, mtu: u64) -> u32 {
    let count = length.div_ceil(mtu);
    if count == 0 { 1 } else { count as u32 }
}
