//! The functions that allocate and free. Each has the name and the arguments of the C library's.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use libc::{EINVAL, ENOMEM, size_t};
use transom_thread::{errno, set_errno};

use crate::next;
use crate::servers::{all, may_have, owner_of, taken_from};

/// Memory of the device, for an allocation aligned to a page or more. `None` if the C library must allocate it.
#[inline]
fn take(align: size_t, size: size_t) -> Option<*mut c_void> {
    const LEAST: size_t = 4096;
    if align < LEAST {
        return None;
    }
    let server = taken_from()?;
    let before = errno();
    // SAFETY: the function of a device, which takes any numbers.
    let block = unsafe { (server.take)(align.max(page()), size) };
    set_errno(before);
    (!block.is_null()).then_some(block)
}

fn page() -> size_t {
    // SAFETY: the function takes any number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as size_t }
}

/// Without a next function there is no memory.
fn no_memory() -> *mut c_void {
    set_errno(ENOMEM);
    null_mut()
}

/// `free(3)`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn free(block: *mut c_void) {
    if may_have(block) && given_back(block) {
        return;
    }
    if let Some(free) = next::free() {
        // SAFETY: by the contract of the C library's function.
        unsafe { free(block) };
    }
}

/// Gives a block back to its device. False if it belongs to none.
#[cold]
#[inline(never)]
fn given_back(block: *mut c_void) -> bool {
    let before = errno();
    // SAFETY: the function of a device, which takes any address.
    let mut given = all().map(|server| unsafe { (server.give)(block) });
    let given = given.find(|given| given.is_ours).unwrap_or_default();
    if given.held > 0 {
        tell_that_it_is_gone(block, given.held);
    }
    set_errno(before);
    given.is_ours
}

/// Tells libraries that cache regions (UCX, libfabric, OpenMPI) that this memory is gone. They interpose the C
/// library's functions that unmap or empty memory, and end their regions there. Freeing a block of the device calls
/// none of these, so without this call they would keep every freed block. The call itself leaves shared memory as it
/// is: the pages stay in its file.
fn tell_that_it_is_gone(first: *mut c_void, length: size_t) {
    if let Some(madvise) = next::madvise() {
        // SAFETY: the pages are a device's. The program has given them back, and a region still holds them.
        unsafe { madvise(first, length, libc::MADV_DONTNEED) };
    }
}

/// `realloc(3)`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(block: *mut c_void, size: size_t) -> *mut c_void {
    if may_have(block)
        && let Some((_, bytes)) = owner_of(block)
    {
        // SAFETY: by the contract of the C library's function. The device's block has `bytes` bytes.
        return unsafe { resized(block, bytes, size) };
    }
    match next::realloc() {
        // SAFETY: by the contract of the C library's function.
        Some(realloc) => unsafe { realloc(block, size) },
        None => no_memory(),
    }
}

/// Changes the length of a device's block. The block stays in place if the new length fits and is more than half of the
/// old one.
///
/// # Safety
/// The block has `bytes` bytes and belongs to the caller.
unsafe fn resized(block: *mut c_void, bytes: size_t, size: size_t) -> *mut c_void {
    if size == 0 {
        given_back(block);
        return null_mut();
    }
    if size <= bytes && size > bytes / 2 {
        return block;
    }
    let other = take(page(), size).or_else(|| {
        // SAFETY: the function takes any number.
        next::malloc().map(|malloc| unsafe { malloc(size) })
    });
    let Some(other) = other.filter(|other| !other.is_null()) else { return no_memory() };
    // SAFETY: both blocks have at least that many bytes, and nobody else has the new one.
    unsafe { other.cast::<u8>().copy_from_nonoverlapping(block.cast(), bytes.min(size)) };
    given_back(block);
    other
}

/// `reallocarray(3)`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(block: *mut c_void, count: size_t, size: size_t) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: by the contract of the C library's function.
        Some(size) => unsafe { realloc(block, size) },
        None => no_memory(),
    }
}

/// `posix_memalign(3)`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(block: *mut *mut c_void, align: size_t, size: size_t) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
        return EINVAL;
    }
    if let Some(taken) = take(align, size) {
        // SAFETY: by the contract of the C library's function, `block` has room for the answer.
        unsafe { block.write(taken) };
        return 0;
    }
    match next::posix_memalign() {
        // SAFETY: by the contract of the C library's function.
        Some(posix_memalign) => unsafe { posix_memalign(block, align, size) },
        None => ENOMEM,
    }
}

/// `aligned_alloc(3)`, which aligned `operator new` calls.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn aligned_alloc(align: size_t, size: size_t) -> *mut c_void {
    if align.is_power_of_two()
        && let Some(taken) = take(align, size)
    {
        return taken;
    }
    match next::aligned_alloc() {
        // SAFETY: by the contract of the C library's function.
        Some(aligned_alloc) => unsafe { aligned_alloc(align, size) },
        None => no_memory(),
    }
}

/// `memalign(3)`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn memalign(align: size_t, size: size_t) -> *mut c_void {
    if align.is_power_of_two()
        && let Some(taken) = take(align, size)
    {
        return taken;
    }
    match next::memalign() {
        // SAFETY: by the contract of the C library's function.
        Some(memalign) => unsafe { memalign(align, size) },
        None => no_memory(),
    }
}

/// `valloc(3)`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn valloc(size: size_t) -> *mut c_void {
    if let Some(taken) = take(page(), size) {
        return taken;
    }
    match next::valloc() {
        // SAFETY: by the contract of the C library's function.
        Some(valloc) => unsafe { valloc(size) },
        None => no_memory(),
    }
}

/// `pvalloc(3)`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pvalloc(size: size_t) -> *mut c_void {
    if let Some(taken) = take(page(), size) {
        return taken;
    }
    match next::pvalloc() {
        // SAFETY: by the contract of the C library's function.
        Some(pvalloc) => unsafe { pvalloc(size) },
        None => no_memory(),
    }
}

/// `malloc_usable_size(3)`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> size_t {
    if may_have(block)
        && let Some((_, bytes)) = owner_of(block)
    {
        return bytes;
    }
    // SAFETY: by the contract of the C library's function.
    next::malloc_usable_size().map_or(0, |usable| unsafe { usable(block) })
}
