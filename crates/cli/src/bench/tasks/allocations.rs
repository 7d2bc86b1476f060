//! Allocations of the program.

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr::null_mut;

use super::time_near;
use crate::bench::process::Process;
use crate::failure::{Failure, Result};

const PAGE: usize = 4096;

/// Allocates with the C library, aligned to a page.
fn aligned(size: usize) -> Result<*mut c_void> {
    let mut block = null_mut();
    // SAFETY: a valid place for the result.
    match unsafe { libc::posix_memalign(&mut block, PAGE, size) } {
        0 => Ok(block),
        errno => Err(Failure::new(std::io::Error::from_raw_os_error(errno))),
    }
}

/// Writes to each page.
fn touch(block: *mut c_void, size: usize) {
    for at in (0..size).step_by(PAGE) {
        // SAFETY: within the block, which is this measurement's.
        unsafe { black_box(block.cast::<u8>().add(at)).write_volatile(1) };
    }
}

pub(super) fn allocate(process: &mut Process, size: usize, count: usize) -> Result<f64> {
    time_near(process, count, |_| {
        let block = aligned(size)?;
        touch(block, size);
        // SAFETY: allocated above.
        unsafe { libc::free(black_box(block)) };
        Ok(())
    })
}

pub(super) fn malloc(process: &mut Process, size: usize, count: usize) -> Result<f64> {
    time_near(process, count, |_| {
        // SAFETY: it takes a number, and its result is freed once.
        unsafe { libc::free(black_box(libc::malloc(black_box(size)))) };
        Ok(())
    })
}

pub(super) fn fork(process: &mut Process, length: usize, count: usize) -> Result<f64> {
    let block = aligned(length)?;
    touch(block, length);
    let took = time_near(process, count, |_| {
        // SAFETY: the child ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: it takes a number.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: this process's own child, and a valid place for its status.
        let ended = unsafe { libc::waitpid(child, &mut status, 0) };
        touch(block, length);
        if child > 0 && ended == child && status == 0 {
            Ok(())
        } else {
            Err(Failure::new("a forked child failed"))
        }
    })?;
    // SAFETY: allocated above.
    unsafe { libc::free(block) };
    Ok(took)
}
