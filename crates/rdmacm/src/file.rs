//! The file that connections are made by: `/dev/infiniband/rdma_cm`, or what stands in for it.

use std::ffi::{CStr, c_int, c_void};
use std::mem::size_of;

use libloading::Library;
use transom_abi::rdma_ucm_cmd_hdr;

use crate::entry::last_errno;

/// The kernel's file.
const KERNELS: &CStr = c"/dev/infiniband/rdma_cm";

/// The calls that open, use and close the file: those of the C library on the kernel's file, or those
/// that Transom's libibverbs has for its own device. A thread may be cancelled while it waits in
/// `write`.
#[derive(Clone, Copy, Debug)]
pub struct FileCalls {
    /// Opens the file: its descriptor, or -1.
    pub open: unsafe extern "C" fn() -> c_int,
    /// Writes a command, as `write(2)`.
    pub write: unsafe extern "C-unwind" fn(c_int, *const c_void, usize) -> isize,
    /// Closes the file.
    pub close: unsafe extern "C" fn(c_int) -> c_int,
}

impl FileCalls {
    /// Those of the C library.
    pub const KERNEL: Self = {
        unsafe extern "C" fn open() -> c_int {
            // SAFETY: a path that ends with a zero.
            unsafe { libc::open(KERNELS.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) }
        }
        unsafe extern "C-unwind" {
            fn write(fd: c_int, bytes: *const c_void, count: usize) -> isize;
        }
        Self { open, write, close: libc::close }
    };

    /// Those that a libibverbs has for its own device, if it has such.
    ///
    /// # Safety
    /// The library is a libibverbs.
    pub(crate) unsafe fn of(library: &Library) -> Option<Self> {
        // SAFETY: these names are Transom's, and have these types.
        unsafe {
            Some(Self {
                open: *library.get("transom_rdma_cm_open\0").ok()?,
                write: *library.get("transom_rdma_cm_write\0").ok()?,
                close: *library.get("transom_rdma_cm_close\0").ok()?,
            })
        }
    }

    /// Opens the file.
    pub(crate) fn open(&self) -> Result<c_int, c_int> {
        // SAFETY: it has no arguments.
        match unsafe { (self.open)() } {
            ..0 => Err(last_errno()),
            descriptor => Ok(descriptor),
        }
    }
}

/// An open file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File {
    pub(crate) calls: &'static FileCalls,
    pub(crate) descriptor: c_int,
}

/// A command as it is written.
#[repr(C)]
pub(crate) struct Written<C> {
    header: rdma_ucm_cmd_hdr,
    command: C,
}

impl<C> Written<C> {
    /// `room` is that for the answer.
    pub(crate) fn new(number: u32, command: C, room: usize) -> Self {
        const { assert!(size_of::<Self>() == size_of::<rdma_ucm_cmd_hdr>() + size_of::<C>()) };
        const { assert!(size_of::<C>() <= u16::MAX as usize) };
        let (in_, out) = (size_of::<C>() as u16, room.min(u16::MAX.into()) as u16);
        Self { header: rdma_ucm_cmd_hdr { cmd: number, in_, out }, command }
    }
}

impl File {
    /// Writes a command that has no answer.
    pub(crate) fn tell<C>(&self, number: u32, command: C) -> Result<(), c_int> {
        self.written(&Written::new(number, command, 0))
    }

    /// Writes a command that answers to an address.
    pub(crate) fn ask<C, A: Default>(
        &self,
        number: u32,
        command: impl FnOnce(u64) -> C,
    ) -> Result<A, c_int> {
        let mut answer = A::default();
        let at = (&raw mut answer).expose_provenance() as u64;
        self.written(&Written::new(number, command(at), size_of::<A>()))?;
        Ok(answer)
    }

    fn written<C>(&self, command: &Written<C>) -> Result<(), c_int> {
        let answer = self.write(command);
        if usize::try_from(answer) == Ok(size_of::<Written<C>>()) {
            Ok(())
        } else if answer < 0 {
            Err(last_errno())
        } else {
            // No part of a command means anything.
            Err(libc::ENODATA)
        }
    }

    /// Writes a command, and may be cancelled in it: nothing here would be left undone.
    pub(crate) fn write<C>(&self, command: &Written<C>) -> isize {
        let (bytes, count) = ((&raw const *command).cast(), size_of::<Written<C>>());
        // SAFETY: the command lies there, and where its answer goes is that of its type.
        unsafe { (self.calls.write)(self.descriptor, bytes, count) }
    }
}
