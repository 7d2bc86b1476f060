//! Windows and regions.

use transom_abi::*;

use super::time_near;
use crate::bench::end::{End, Memory, deregister, register};
use crate::bench::process::Process;
use crate::failure::Result;

pub(super) fn bind_and_invalidate(
    process: &mut Process,
    length: usize,
    count: usize,
) -> Result<f64> {
    let memory = Memory::new(length)?;
    let (region, mw) = (register(process.end.pd, &memory)?, process.end.window()?);
    let took = time_near(process, count, |process| bind_once(&process.end, mw, region))?;
    process.end.free_window(mw);
    deregister(region)?;
    Ok(took)
}

/// An unsignaled bind of a region, and the LOCAL_INV that ends it.
fn bind_once(end: &End, mw: *mut ibv_mw, region: *mut ibv_mr) -> Result {
    // SAFETY: window and region are live.
    let (key, addr, length) =
        unsafe { ((*mw).rkey.wrapping_add(1), (*region).addr as u64, (*region).length as u64) };
    let mut bind = ibv_send_wr { opcode: IBV_WR_BIND_MW, ..ibv_send_wr::default() };
    let mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    bind.op.bind_mw = ibv_send_wr_bind_mw {
        mw,
        rkey: key,
        bind_info: ibv_mw_bind_info { mr: region, addr, length, mw_access_flags },
    };
    end.post(0, &mut bind)?;
    let mut invalidate = ibv_send_wr {
        opcode: IBV_WR_LOCAL_INV,
        send_flags: IBV_SEND_SIGNALED,
        ..ibv_send_wr::default()
    };
    // SAFETY: a live window; posting has put the new key there.
    invalidate.imm.invalidate_rkey = unsafe { (*mw).rkey };
    end.carry_out(&mut invalidate)
}

/// Makes windows until there are this many. Returns the bytes that each takes in the key table.
pub(super) fn make(process: &mut Process, live: usize) -> Result<f64> {
    let made = live.saturating_sub(process.windows.len());
    if !process.is_near() || made == 0 {
        return Ok(0.0);
    }
    let segment = process.end.adapter.device().process().segment();
    let used = || segment.memory_used().unwrap_or(0) as f64;
    let before = used();
    for _ in 0..made {
        process.windows.push(process.end.window()?);
    }
    Ok((used() - before) / made as f64)
}

pub(super) fn register_and_deregister(
    process: &mut Process,
    length: usize,
    count: usize,
) -> Result<f64> {
    let memory = Memory::new(length)?;
    time_near(process, count, |process| deregister(register(process.end.pd, &memory)?))
}
