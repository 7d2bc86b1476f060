//! The verbs of domains and memory that C reaches through the extended context. They return values.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use transom_abi::*;
use transom_ibverbs::*;

use crate::extended::verbs;
use crate::harness::*;

fn some_or_errno<T>(pointer: *mut T) -> Result<*mut T, i32> {
    if pointer.is_null() { Err(errno()) } else { Ok(pointer) }
}

/// The context of a domain.
fn context(pd: *mut ibv_pd) -> *mut ibv_context {
    // SAFETY: a domain of this test; its struct stays readable.
    unsafe { (*pd).context }
}

/// `ibv_alloc_td`.
pub fn alloc_td(context: *mut ibv_context) -> *mut ibv_td {
    let alloc = verbs(context).alloc_td.expect("it is there");
    // SAFETY: an open context.
    let td = unsafe { alloc(context, &mut ibv_td_init_attr::default()) };
    some_or_errno(td).expect("a thread domain")
}

/// `ibv_dealloc_td`; zero or an errno.
pub fn dealloc_td(context: *mut ibv_context, td: *mut ibv_td) -> c_int {
    // SAFETY: a thread domain of this test, or one that was.
    unsafe { verbs(context).dealloc_td.expect("it is there")(td) }
}

/// The attributes for a parent domain of a domain.
pub fn parent_attr(pd: *mut ibv_pd, td: *mut ibv_td) -> ibv_parent_domain_init_attr {
    ibv_parent_domain_init_attr { pd, td, ..Default::default() }
}

/// `ibv_alloc_parent_domain`. The error is the errno.
pub fn try_parent(
    context: *mut ibv_context,
    mut attr: ibv_parent_domain_init_attr,
) -> Result<*mut ibv_pd, i32> {
    let alloc = verbs(context).alloc_parent_domain.expect("it is there");
    // SAFETY: an open context. The domains are this test's, freed ones of it, or null.
    some_or_errno(unsafe { alloc(context, &mut attr) })
}

/// `ibv_alloc_null_mr`. The error is the errno.
pub fn try_null_mr(pd: *mut ibv_pd) -> Result<*mut ibv_mr, i32> {
    // SAFETY: a domain of this test.
    some_or_errno(unsafe { verbs(context(pd)).alloc_null_mr.expect("it is there")(pd) })
}

/// `ibv_alloc_dm` with any attributes. The error is the errno.
pub fn try_dm(context: *mut ibv_context, mut attr: ibv_alloc_dm_attr) -> Result<*mut ibv_dm, i32> {
    // SAFETY: an open context.
    some_or_errno(unsafe { verbs(context).alloc_dm.expect("it is there")(context, &mut attr) })
}

/// Device memory of this many bytes.
pub fn alloc_dm(context: *mut ibv_context, length: usize) -> *mut ibv_dm {
    try_dm(context, ibv_alloc_dm_attr { length, ..Default::default() }).expect("device memory")
}

/// `ibv_free_dm`; zero or an errno.
pub fn free_dm(dm: *mut ibv_dm) -> c_int {
    // SAFETY: device memory of this test; its struct stays readable after it is freed.
    unsafe { verbs((*dm).context).free_dm.expect("it is there")(dm) }
}

/// `ibv_reg_dm_mr`. The error is the errno.
pub fn try_reg_dm(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
    access: u32,
) -> Result<*mut ibv_mr, i32> {
    let reg = verbs(context(pd)).reg_dm_mr.expect("it is there");
    // SAFETY: objects of this test, live or freed.
    some_or_errno(unsafe { reg(pd, dm, offset, length, access) })
}

/// `ibv_memcpy_to_dm`; zero or an errno.
pub fn to_dm(dm: *mut ibv_dm, offset: u64, from: u64, length: usize) -> c_int {
    // SAFETY: device memory of this test, live or freed. The kernel checks the address.
    unsafe { (*dm).memcpy_to_dm.expect("it is there")(dm, offset, from as *const c_void, length) }
}

/// `ibv_memcpy_from_dm`; zero or an errno.
pub fn from_dm(to: u64, dm: *mut ibv_dm, offset: u64, length: usize) -> c_int {
    // SAFETY: as above.
    unsafe { (*dm).memcpy_from_dm.expect("it is there")(to as *mut c_void, dm, offset, length) }
}

/// `ibv_advise_mr`; zero or an errno.
pub fn advise(pd: *mut ibv_pd, advice: u32, flags: u32, sges: &mut [ibv_sge]) -> c_int {
    let (list, count) = (sges.as_mut_ptr(), sges.len() as u32);
    // SAFETY: a domain of this test, live or freed, and a valid list.
    unsafe { verbs(context(pd)).advise_mr.expect("it is there")(pd, advice, flags, list, count) }
}

/// `ibv_reg_dmabuf_mr`; the errno if it is refused.
pub fn try_dmabuf(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: u32,
) -> Result<*mut ibv_mr, i32> {
    // SAFETY: a domain of this test; the kernel checks the descriptor.
    some_or_errno(unsafe { ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, access as c_int) })
}

/// `ibv_import_device` of a duplicate of a context's descriptor.
pub fn import_context(of: *mut ibv_context) -> *mut ibv_context {
    // SAFETY: an open context's own descriptor.
    let fd = unsafe { libc::fcntl((*of).cmd_fd, libc::F_DUPFD_CLOEXEC, 0) };
    assert!(fd >= 0);
    some_or_errno(ibv_import_device(fd)).expect("a context")
}

/// `ibv_import_pd`; the errno if it is refused.
pub fn import_pd(context: *mut ibv_context, handle: u32) -> Result<*mut ibv_pd, i32> {
    // SAFETY: an open context.
    some_or_errno(unsafe { ibv_import_pd(context, handle) })
}

/// `ibv_import_mr`; the errno if it is refused.
pub fn import_mr(pd: *mut ibv_pd, handle: u32) -> Result<*mut ibv_mr, i32> {
    // SAFETY: a domain of this test.
    some_or_errno(unsafe { ibv_import_mr(pd, handle) })
}

/// `ibv_import_dm`; the errno if it is refused.
pub fn import_dm(context: *mut ibv_context, handle: u32) -> Result<*mut ibv_dm, i32> {
    // SAFETY: an open context.
    some_or_errno(unsafe { ibv_import_dm(context, handle) })
}

/// A domain that nobody has allocated.
pub fn unknown_pd(context: *mut ibv_context) -> *mut ibv_pd {
    Box::leak(Box::new(ibv_pd { context, handle: u32::MAX }))
}

/// No thread domain.
pub const NO_TD: *mut ibv_td = null_mut();
