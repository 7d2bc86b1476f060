//! The costs of the system itself.

use std::ffi::c_void;
use std::hint::black_box;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::{time, time_near};
use crate::bench::end::{LARGEST, Memory};
use crate::bench::process::Process;
use crate::failure::{Failure, Result};

pub(super) fn kernel_copy(
    process: &mut Process,
    write: bool,
    size: usize,
    count: usize,
) -> Result<f64> {
    let near = process.end.outgoing(size).addr as *mut c_void;
    let far = (process.peer.address + LARGEST as u64) as *mut c_void;
    let near = libc::iovec { iov_base: near, iov_len: size };
    let far = libc::iovec { iov_base: far, iov_len: size };
    let pid = process.peer.pid as i32;
    time_near(process, count, |_| {
        // SAFETY: both ranges are buffers of this measurement; the kernel checks them.
        let (moved, call) = unsafe {
            match write {
                true => (libc::process_vm_writev(pid, &near, 1, &far, 1, 0), "process_vm_writev"),
                false => (libc::process_vm_readv(pid, &near, 1, &far, 1, 0), "process_vm_readv"),
            }
        };
        check(usize::try_from(moved) == Ok(size), call)
    })
}

pub(super) fn memcpy(process: &mut Process, size: usize, count: usize) -> Result<f64> {
    let (from, to) = (process.end.outgoing(size).addr, process.end.incoming(size).addr);
    let (from, to) = (from as *const u8, to as *mut u8);
    time_near(process, count, |_| {
        // SAFETY: two halves of one buffer, each at least this long, and nobody else uses them meanwhile.
        unsafe { black_box(to).copy_from_nonoverlapping(black_box(from), size) };
        Ok(())
    })
}

pub(super) fn lock(process: &mut Process, length: usize, count: usize) -> Result<f64> {
    let memory = Memory::new(length)?;
    memory.fill();
    let address = memory.address() as *const c_void;
    time_near(process, count, |_| {
        // SAFETY: our own mapping.
        let done =
            unsafe { libc::mlock(address, length) == 0 && libc::munlock(address, length) == 0 };
        check(done, "mlock")
    })
}

pub(super) fn eventfd(process: &mut Process, count: usize) -> Result<f64> {
    process.meet()?;
    let [first, second] = &process.bells;
    let round_trip = time(count, |_| {
        if process.is_near() {
            ring(first)?;
            wait(second)
        } else {
            wait(first)?;
            ring(second)
        }
    })?;
    Ok(round_trip / 2.0)
}

fn ring(bell: &OwnedFd) -> Result {
    let one = 1_u64;
    // SAFETY: the descriptor is open, and the kernel reads the number.
    let written = unsafe { libc::write(bell.as_raw_fd(), (&raw const one).cast(), 8) };
    check(written == 8, "writing to an eventfd")
}

fn wait(bell: &OwnedFd) -> Result {
    let mut rung = 0_u64;
    // SAFETY: the descriptor is open, and the kernel fills the number.
    let read = unsafe { libc::read(bell.as_raw_fd(), (&raw mut rung).cast(), 8) };
    check(read == 8, "reading from an eventfd")
}

fn check(done: bool, what: &str) -> Result {
    if done { Ok(()) } else { Err(Failure::new(format!("{what}: {}", io::Error::last_os_error()))) }
}
