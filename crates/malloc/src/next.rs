//! The functions that would be called without this library.
//!
//! They are looked up when they are first needed, which may be before the constructor here has run. The C library's
//! `dlsym` may itself ask for memory, or free what an earlier call has left; it does without, for else it would be
//! called again and again.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use libc::size_t;
use transom_interpose::Next;

/// The thread that looks a function up, as it knows itself; zero for none. A variable of each thread would have to be
/// found by a function that sanitizers stand before.
static LOOKS: AtomicUsize = AtomicUsize::new(0);

#[inline]
fn look_up(next: &Next) -> *mut c_void {
    next.known().unwrap_or_else(|| look_up_first(next))
}

/// Looks a function up, unless that is what this call comes from.
#[cold]
#[inline(never)]
fn look_up_first(next: &Next) -> *mut c_void {
    // SAFETY: it takes nothing.
    let this = unsafe { libc::pthread_self() } as usize;
    while let Err(other) = LOOKS.compare_exchange(0, this, Acquire, Relaxed) {
        if other == this {
            return null_mut();
        }
        std::thread::yield_now();
    }
    let found = next.find();
    LOOKS.store(0, Release);
    found
}

macro_rules! next {
    ($($name:ident = $text:literal: fn($($argument:ident: $type:ty),*) $(-> $answer:ty)? ;)+) => {
        /// Looks them all up.
        pub(crate) fn find_all() {
            $(look_up(&found::$name);)+
        }

        #[allow(non_upper_case_globals)]
        mod found {
            use super::Next;
            $(pub(super) static $name: Next = Next::new($text);)+
        }

        $(
            /// The next function of this name; `None` if there is none.
            #[inline]
            pub(crate) fn $name() -> Option<unsafe extern "C" fn($($type),*) $(-> $answer)?> {
                let found = look_up(&found::$name);
                // SAFETY: the function of the C library's, or of another library before it, of this name; null
                // is none.
                unsafe { std::mem::transmute(found) }
            }
        )+
    };
}

next! {
    malloc = c"malloc": fn(size: size_t) -> *mut c_void;
    free = c"free": fn(block: *mut c_void);
    realloc = c"realloc": fn(block: *mut c_void, size: size_t) -> *mut c_void;
    posix_memalign = c"posix_memalign":
        fn(block: *mut *mut c_void, align: size_t, size: size_t) -> c_int;
    aligned_alloc = c"aligned_alloc": fn(align: size_t, size: size_t) -> *mut c_void;
    memalign = c"memalign": fn(align: size_t, size: size_t) -> *mut c_void;
    valloc = c"valloc": fn(size: size_t) -> *mut c_void;
    pvalloc = c"pvalloc": fn(size: size_t) -> *mut c_void;
    malloc_usable_size = c"malloc_usable_size": fn(block: *mut c_void) -> size_t;
    madvise = c"madvise": fn(first: *mut c_void, length: size_t, advice: c_int) -> c_int;
    register_atfork = c"__register_atfork": fn(
        before: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
        library: *mut c_void
    ) -> c_int;
}
