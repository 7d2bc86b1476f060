//! Functions that rdma-core added after its version 44 and that fit no other module: the speed of a port, DMA handles,
//! `ibv_wr_opcode_str`.

use std::ffi::{c_char, c_int, c_void};

use transom_abi::*;

use crate::device::port_of;
use crate::entry::{errno_of, number_of, pointer_of};
use crate::sanitized;

/// The speed of a port in units of 100 Mbit/s: its number of lanes times the speed of a lane.
///
/// # Safety
/// `speed` is null or writable.
pub unsafe extern "C" fn ibv_query_port_speed(
    context: *mut ibv_context,
    port: u32,
    speed: *mut u64,
) -> c_int {
    errno_of("ibv_query_port_speed", || {
        let port = u8::try_from(port).map_err(|_| libc::EINVAL)?;
        // SAFETY: by the contract of this verb.
        let speed = unsafe { speed.as_mut() }.ok_or(libc::EINVAL)?;
        // SAFETY: by the contract of this verb.
        let attr = unsafe { port_of(context, port) }?;
        *speed = lanes(attr.active_width) * lane_speed(attr.active_speed);
        sanitized::has_filled(speed);
        Ok(())
    })
}

/// The number of lanes that an `active_width` of a port stands for.
fn lanes(width: u8) -> u64 {
    match width {
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 1,
    }
}

/// The speed of a lane that an `active_speed` of a port stands for, in units of 100 Mbit/s.
fn lane_speed(speed: u8) -> u64 {
    match speed {
        1 => 25,
        2 => 50,
        4 | 8 => 100,
        16 => 140,
        32 => 250,
        64 => 500,
        128 => 1_000,
        _ => 0,
    }
}

/// DMA handles steer the caches of a PCIe bus. There is no such bus: null, `EOPNOTSUPP` (rule MR-44).
pub extern "C" fn ibv_alloc_dmah(_context: *mut ibv_context, _attr: *mut c_void) -> *mut c_void {
    pointer_of("ibv_alloc_dmah", || Err(libc::EOPNOTSUPP))
}

/// There are no DMA handles to free: `EOPNOTSUPP`.
pub extern "C" fn ibv_dealloc_dmah(_dmah: *mut c_void) -> c_int {
    errno_of("ibv_dealloc_dmah", || Err(libc::EOPNOTSUPP))
}

/// Device memory is no dma-buf: -1, `EOPNOTSUPP`.
pub extern "C" fn ibv_dm_export_dmabuf_fd(_dm: *mut c_void) -> c_int {
    number_of("ibv_dm_export_dmabuf_fd", || Err(libc::EOPNOTSUPP))
}

/// rdma-core's name of a work request's opcode.
pub extern "C" fn ibv_wr_opcode_str(opcode: ibv_wr_opcode) -> *const c_char {
    /// Version 44 left the number free.
    const IBV_WR_FLUSH: ibv_wr_opcode = 14;
    let name = match opcode {
        IBV_WR_RDMA_WRITE => c"rdma-write",
        IBV_WR_RDMA_WRITE_WITH_IMM => c"rdma-write-with-imm",
        IBV_WR_SEND => c"send",
        IBV_WR_SEND_WITH_IMM => c"send-with-imm",
        IBV_WR_RDMA_READ => c"rdma-read",
        IBV_WR_ATOMIC_CMP_AND_SWP => c"atomic-cmp-and-swp",
        IBV_WR_ATOMIC_FETCH_AND_ADD => c"atomic-fetch-and-add",
        IBV_WR_LOCAL_INV => c"local-inv",
        IBV_WR_BIND_MW => c"bind-mw",
        IBV_WR_SEND_WITH_INV => c"send-with-inv",
        IBV_WR_TSO => c"tso",
        IBV_WR_DRIVER1 => c"driver1",
        IBV_WR_FLUSH => c"flush",
        IBV_WR_ATOMIC_WRITE => c"atomic-write",
        _ => c"unknown",
    };
    name.as_ptr()
}
