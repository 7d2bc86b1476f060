//! Staying between the program and its parent, in a container, where both would end at once.
//!
//! When the first process of a PID namespace ends, as a container has one, the kernel kills all others there: nobody
//! beside the program would be left to speak for it. That first process is this command, or is likely to end at once when
//! this command's process does (`docker run`, with `--init` or a shell). So this process stays there, the program is its
//! child, and it ends when all has been said, as that did. As the first process it also takes what others leave behind.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use super::parent::{Signals, end_like, is_first, reap};
use super::watcher::{Vigil, Watching, close_what_is_the_programs};

/// The number of the first PID namespace of a machine, which does not end before that (`ioctl_ns(2)`).
const FIRST: u64 = 0xefff_fffc;

/// Whether the program's end is likely to be that of the PID namespace.
pub(super) fn is_needed() -> bool {
    let namespace = fs::metadata("/proc/self/ns/pid").map_or(FIRST, |it| it.ino());
    // SAFETY: takes nothing and cannot fail.
    let parent = unsafe { libc::getppid() };
    namespace != FIRST && (is_first() || parent == 1)
}

/// Comes back in a child, which becomes the program; this process ends as that does.
pub(super) fn stay(watching: Watching) -> io::Result<()> {
    let signals = Signals::block()?;
    // SAFETY: this process has one thread, so the child has all that it may need.
    let child = match unsafe { libc::fork() } {
        -1 => {
            let error = io::Error::last_os_error();
            signals.unblock();
            return Err(error);
        }
        0 => {
            signals.unblock();
            // Its name is there as long as the other process is.
            std::mem::forget(watching);
            return Ok(());
        }
        child => child,
    };
    let _ = close_what_is_the_programs();
    let mut vigil = Vigil::new(&watching);
    let status = loop {
        signals.forward(child);
        let ended = reap(child);
        let next = vigil.look();
        if let Some(status) = ended {
            break status;
        }
        vigil.sleep(Some(signals.descriptor()), next);
    };
    if is_first() {
        vigil.end();
    }
    drop(vigil);
    drop(watching);
    end_like(status)
}
