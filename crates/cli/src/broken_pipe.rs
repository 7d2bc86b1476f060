//! SIGPIPE, as this command was started with. Rust ignores it from before `main` on, and resets it to the default in
//! programs that it starts. A program under `transom run` must have it as the user has it.

use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, Ordering::*};

/// Whether it was ignored.
static IGNORED: AtomicBool = AtomicBool::new(false);

/// Run by the loader, before Rust changes it.
extern "C" fn constructor() {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: asks, and changes nothing; what it writes is whole if it succeeds.
    let ignored = unsafe {
        libc::sigaction(libc::SIGPIPE, null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    };
    IGNORED.store(ignored, Relaxed);
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

/// Has a program that is started ignore it if this command was to.
pub(crate) fn leave_as_it_was(command: &mut Command) {
    if IGNORED.load(Relaxed) {
        // SAFETY: what is called may be called between a fork and `exec`.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
                Ok(())
            });
        }
    }
}
