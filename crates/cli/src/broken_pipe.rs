//! The SIGPIPE action that this command was started with. Rust ignores SIGPIPE before `main`, and resets it to the
//! default in programs that it starts. A program under `transom run` must have the action that the user chose.

use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, Ordering::*};

/// Whether this command was started with SIGPIPE ignored.
static IGNORED: AtomicBool = AtomicBool::new(false);

/// The loader runs this before Rust changes the action.
extern "C" fn constructor() {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: the call asks, and changes nothing. The action is written whole if the call succeeds.
    let ignored = unsafe {
        libc::sigaction(libc::SIGPIPE, null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    };
    IGNORED.store(ignored, Relaxed);
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

/// Makes a program that is started ignore SIGPIPE, if this command was started that way.
pub(crate) fn leave_as_it_was(command: &mut Command) {
    if IGNORED.load(Relaxed) {
        // SAFETY: the closure calls only functions that may be called between `fork` and `exec`.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
                Ok(())
            });
        }
    }
}
