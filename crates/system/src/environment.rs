//! The environment, as far as this device does what it says: read here, and nowhere else.
//!
//! Whoever starts a set-user-ID program, or one with capabilities of its file, gives it its environment
//! and does not have its rights. What such a program does must not be that user's wish: a capture
//! would be a file of the program's owner, with content of the user's. The kernel says so to every
//! program when it starts (`AT_SECURE`, see `getauxval(3)`), and then nothing is read.

use std::ffi::OsString;

/// The value of a variable; none in a program that has rights its user does not have.
pub fn variable(name: &str) -> Option<OsString> {
    #[expect(clippy::disallowed_methods, reason = "this is the place")]
    (!is_secure()).then(|| std::env::var_os(name)).flatten()
}

/// Whether this program has rights that its user does not have.
fn is_secure() -> bool {
    // SAFETY: looks up a number that the kernel left when the program started.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
