//! The functions that programs would call without this library.

use std::ffi::{CStr, c_int, c_void};

use libc::size_t;

transom_interpose::next! {
    munmap = c"munmap": fn(first: *mut c_void, length: size_t) -> c_int;
    madvise = c"madvise": fn(first: *mut c_void, length: size_t, advice: c_int) -> c_int;
    free = c"free": fn(block: *mut c_void);
    realloc = c"realloc": fn(block: *mut c_void, size: size_t) -> *mut c_void;
    malloc_usable_size = c"malloc_usable_size": fn(block: *mut c_void) -> size_t;
}

/// Whether the program's allocator is that of the C library. Only then is the length of a block known.
pub(crate) fn is_of_the_c_library() -> bool {
    let library = |place: *mut c_void| {
        let mut found = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
        // SAFETY: `found` has room for the result, and it is written if the result is not zero.
        unsafe {
            let known = !place.is_null() && libc::dladdr(place, found.as_mut_ptr()) != 0;
            known.then(|| found.assume_init().dli_fbase.addr())
        }
    };
    let behind = |name: &CStr| {
        // SAFETY: the name ends in zero.
        library(unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) })
    };
    // Only the C library has this function.
    let c_library = behind(c"gnu_get_libc_version");
    let all = [c"malloc", c"free", c"realloc", c"malloc_usable_size"];
    c_library.is_some() && all.into_iter().all(|name| behind(name) == c_library)
}
