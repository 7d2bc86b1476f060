//! `ibv_alloc_buf(3)`: memory of the kind that suits the device best, here shared memory. It is no dma-buf, and stays
//! until it is freed, like other memory of the program.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use transom_abi::*;
use transom_check::ledger::Thing;
use transom_system::fork::HeldOverForks;
use transom_system::memory::Allocation;

use crate::context::Context;
use crate::entry::{effect_always, number_of, pointer_of};
use crate::object::{Handled, InContext, Table};
use crate::pd;

/// A buffer, and the C struct of the domain that it was allocated from.
struct Buffer {
    pd: *mut ibv_pd,
    memory: Allocation,
    length: usize,
}

// SAFETY: only the program uses the memory, and the domain is only compared.
unsafe impl Send for Buffer {}

impl Handled for ibv_buf {
    const THING: Thing = Thing::Buffer;

    unsafe fn handle(abi: *const Self) -> u32 {
        // SAFETY: by the contract of this function.
        unsafe { (*abi).handle }
    }

    fn set_handle(&mut self, handle: u32) {
        self.handle = handle;
    }
}

/// A buffer has no context of its own. Its domain has one.
impl InContext for ibv_buf {
    unsafe fn context(_: *const Self) -> *mut ibv_context {
        null_mut()
    }
}

static BUFFERS: Table<ibv_buf, Buffer> = Table::new();

/// The lock of all of them.
pub(crate) fn lock() -> &'static dyn HeldOverForks {
    &BUFFERS
}

/// Whether a buffer was allocated from this domain, under this name, and contains the range.
///
/// # Safety
/// `buf` is null or readable.
pub(crate) unsafe fn holds(
    buf: *const ibv_buf,
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
) -> bool {
    let holds = |buffer: &Buffer| {
        let offset = address.addr().checked_sub(buffer.memory.first().addr().get());
        let end = offset.and_then(|offset| offset.checked_add(length));
        buffer.pd == pd && end.is_some_and(|end| end <= buffer.length)
    };
    // SAFETY: by the contract of this function.
    unsafe { BUFFERS.with(buf, |object| holds(object.inner)) }.unwrap_or(false)
}

/// Allocates a buffer. Returns its address, which is aligned to a page (rule MR-41).
///
/// # Safety
/// `pd` is null or readable, `buf` null or writable.
pub unsafe extern "C" fn ibv_alloc_buf(
    pd: *mut ibv_pd,
    size: usize,
    buf: *mut *mut ibv_buf,
) -> *mut c_void {
    pointer_of("ibv_alloc_buf", || {
        // SAFETY: by the contract of this verb.
        let buf = unsafe { buf.as_mut() }.ok_or(libc::EINVAL)?;
        // SAFETY: as above.
        let ours = unsafe { pd::find(pd) }?;
        // SAFETY: a protection domain's context is open.
        unsafe { Context::to_make_in(ours.context) }?;
        let memory = Allocation::new(size).map_err(|_| libc::ENOMEM)?;
        let address = memory.first().as_ptr().cast();
        let buffer = Buffer { pd, memory, length: size };
        *buf = BUFFERS.insert(ibv_buf::default(), |_| buffer);
        Ok(address)
    })
}

/// Frees a buffer. No region may lie in it any more. Nothing happens if it is already freed.
///
/// # Safety
/// `buf` is null or readable.
pub unsafe extern "C" fn ibv_free_buf(buf: *mut ibv_buf) {
    effect_always(|| {
        // SAFETY: by the contract of this verb.
        let taken = unsafe { BUFFERS.take(buf) };
        drop(taken.map(|mut taken| taken.inner.take()));
    })
}

/// A new descriptor of a buffer that is a dma-buf. No buffer is one: -1, `ENODATA` (rule MR-43).
///
/// # Safety
/// `buf` is null or readable.
pub unsafe extern "C" fn ibv_export_buf_dmabuf_fd(buf: *mut ibv_buf) -> c_int {
    number_of("ibv_export_buf_dmabuf_fd", || {
        // SAFETY: by the contract of this verb.
        unsafe { BUFFERS.with(buf, |_| ()) }?;
        Err(libc::ENODATA)
    })
}
