//! The functions of `transom.h`. They are here and not in the device's library, so an unchecked process does not have
//! them, and a call costs it nothing.

use std::ffi::c_void;
use std::ptr::null_mut;

use libc::size_t;
use transom_interpose::given_back::Said;

use crate::calls::watcher;

fn tell(said: Said, what: *mut c_void, length: size_t) {
    if let Some(watcher) = watcher() {
        // SAFETY: the checker's function takes any range. A channel is live, as the header asks.
        unsafe { (watcher.says)(said, what, length) };
    }
}

/// These bytes are the program's own again.
#[unsafe(no_mangle)]
extern "C" fn transom_claimed(first: *mut c_void, length: size_t) {
    tell(Said::Claims, first, length);
}

/// The device may have these bytes.
#[unsafe(no_mangle)]
extern "C" fn transom_released(first: *mut c_void, length: size_t) {
    tell(Said::Releases, first, length);
}

/// This thread waits for an event of this channel.
#[unsafe(no_mangle)]
extern "C" fn transom_waiting(channel: *mut c_void) {
    tell(Said::Waits, channel, 0);
}

/// This thread no longer waits.
#[unsafe(no_mangle)]
extern "C" fn transom_woken() {
    tell(Said::Woke, null_mut(), 0);
}
