//! What a program tells `transom check` of its memory.
//!
//! A pool of buffers says when a buffer is the program's again. Under `transom check` a request that names such memory,
//! or a peer's write to it, is a mistake. Elsewhere these functions do nothing.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

use libloading::os::unix::Library;

type Say = unsafe extern "C" fn(*const c_void, usize);

/// The function of this name, which only a checked process has.
fn find(name: &CStr, found: &OnceLock<Option<Say>>) -> Option<Say> {
    // SAFETY: the functions of these names have this type.
    let look_up =
        || unsafe { Library::this().get::<Say>(name.to_bytes_with_nul()).ok().map(|it| *it) };
    *found.get_or_init(look_up)
}

/// These bytes are the program's own again: no device may touch them until they are [released](release).
pub fn claim(first: *const u8, length: usize) {
    static FOUND: OnceLock<Option<Say>> = OnceLock::new();
    if let Some(say) = find(c"transom_claimed", &FOUND) {
        // SAFETY: it takes any range.
        unsafe { say(first.cast(), length) };
    }
}

/// A device may have these bytes.
pub fn release(first: *const u8, length: usize) {
    static FOUND: OnceLock<Option<Say>> = OnceLock::new();
    if let Some(say) = find(c"transom_released", &FOUND) {
        // SAFETY: it takes any range.
        unsafe { say(first.cast(), length) };
    }
}
