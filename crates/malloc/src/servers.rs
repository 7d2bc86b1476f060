//! The devices of this process that offer shared memory.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::*};

use libc::size_t;
use transom_interpose::given_back::WATCH;
use transom_interpose::shared_memory::{Served, Server, VERSION};

use crate::names::{find, find_with_version, library_of};
use crate::next;

/// Hardly any program has more copies of the device.
const MOST: usize = 4;

/// The devices that have offered, without holes.
static SERVERS: [AtomicPtr<Server>; MOST] = [const { AtomicPtr::new(null_mut()) }; MOST];
/// The device that allocations are taken from, if any.
static TAKEN_FROM: AtomicPtr<Server> = AtomicPtr::new(null_mut());

/// The devices that have offered.
#[inline]
pub(crate) fn all() -> impl DoubleEndedIterator<Item = &'static Server> {
    // SAFETY: an offer stays until the process ends.
    SERVERS.iter().filter_map(|server| unsafe { server.load(Acquire).as_ref() })
}

/// The device that allocations are taken from.
#[inline]
pub(crate) fn taken_from() -> Option<&'static Server> {
    // SAFETY: as above.
    unsafe { TAKEN_FROM.load(Acquire).as_ref() }
}

/// A device offers its shared memory.
///
/// # Safety
///
/// Its functions can be called until the process ends.
#[unsafe(no_mangle)]
unsafe extern "C" fn transom_malloc_serve(server: &'static Server) -> Served {
    let pointer = std::ptr::from_ref(server).cast_mut();
    let is_free = |place: &&AtomicPtr<Server>| {
        place.compare_exchange(null_mut(), pointer, AcqRel, Relaxed).is_ok()
    };
    if server.version != VERSION || SERVERS.iter().find(is_free).is_none() {
        return Served::Nothing;
    }
    if has_sanitizer() {
        return Served::Sanitizer;
    }
    if !is_of_the_c_library() {
        return Served::OtherAllocator;
    }
    // Allocations come from the first device only.
    let _ = TAKEN_FROM.compare_exchange(null_mut(), pointer, AcqRel, Relaxed);
    Served::Allocations
}

/// Whether the process has a sanitizer's runtime, which has its own allocator or records each byte.
fn has_sanitizer() -> bool {
    const MARKS: [&CStr; 6] = [
        c"__asan_init",
        c"__tsan_init",
        c"__msan_init",
        c"__hwasan_init",
        c"__lsan_init",
        c"__dfsan_init",
    ];
    MARKS.into_iter().any(|name| !find(name).is_null())
}

/// Whether the program's allocations come to this library, and this library's own calls go on to the C library.
fn is_of_the_c_library() -> bool {
    // Only the C library has this.
    let Some(c_library) = library_of(find(c"gnu_get_libc_version")) else { return false };
    let this_library = library_of((&raw const TAKEN_FROM).cast_mut().cast());
    let comes_here = [c"free", c"realloc", c"posix_memalign", c"aligned_alloc"];
    let goes_on = [
        next::malloc().map(|it| it as *mut c_void),
        next::free().map(|it| it as *mut c_void),
        next::realloc().map(|it| it as *mut c_void),
        next::posix_memalign().map(|it| it as *mut c_void),
        next::memalign().map(|it| it as *mut c_void),
    ];
    // What `transom check` puts between hands everything on.
    let freed = library_of(find(WATCH));
    let hands_on = |library: Option<usize>| {
        library == Some(c_library) || (library == freed && freed.is_some())
    };
    comes_here.into_iter().all(|name| library_of(find(name)) == this_library)
        && library_of(find(c"malloc")) == Some(c_library)
        && library_of(find_with_version(c"free")) == Some(c_library)
        && goes_on.into_iter().all(|it| hands_on(it.and_then(library_of)))
}

/// Whether a block may be a device's. Those begin at a page; hardly any other block does.
#[inline(always)]
pub(crate) fn may_have(block: *const c_void) -> bool {
    // The smallest page. Larger pages begin at multiples of it.
    block.addr().is_multiple_of(4096) && !block.is_null()
}

/// The device of a block, and the block's length in bytes.
#[cold]
#[inline(never)]
pub(crate) fn owner_of(block: *const c_void) -> Option<(&'static Server, size_t)> {
    all().find_map(|server| {
        // SAFETY: the function of a device, which takes any address.
        let bytes = unsafe { (server.bytes_of)(block) };
        (bytes > 0).then_some((server, bytes))
    })
}
