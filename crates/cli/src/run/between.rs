//! Stays between the program and its parent in a container, where both would end at once.
//!
//! A container has a PID namespace. When the first process of a PID namespace ends, the kernel kills all others there.
//! Then nobody could speak for the program. The first process is this command, or is likely to end when this command's
//! process ends (`docker run`, with `--init` or a shell). So this process stays, and the program is its child. This
//! process ends as the program did, after it has spoken for it. As the first process it also reaps orphans.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use super::parent::{Signals, end_like, is_first, reap};
use super::watcher::{Vigil, Watching, close_what_is_the_programs};

/// The inode number of the machine's first PID namespace, which ends only with the machine (`ioctl_ns(2)`).
const FIRST: u64 = 0xefff_fffc;

/// Whether the program's end is likely to end the PID namespace.
pub(super) fn is_needed() -> bool {
    let namespace = fs::metadata("/proc/self/ns/pid").map_or(FIRST, |it| it.ino());
    // SAFETY: it has no arguments and cannot fail.
    let parent = unsafe { libc::getppid() };
    namespace != FIRST && (is_first() || parent == 1)
}

/// Returns in a child, which becomes the program. This process ends as the child does.
pub(super) fn stay(mut watching: Watching) -> io::Result<()> {
    let signals = Signals::block()?;
    let mut vigil = Vigil::new(&mut watching);
    // SAFETY: this process has one thread, so the child has everything it needs.
    let child = match unsafe { libc::fork() } {
        -1 => {
            let error = io::Error::last_os_error();
            signals.unblock();
            return Err(error);
        }
        0 => {
            signals.unblock();
            // Its name exists as long as the other process does.
            vigil.forget();
            std::mem::forget(watching);
            return Ok(());
        }
        child => child,
    };
    let _ = close_what_is_the_programs();
    let status = loop {
        signals.forward(child);
        let ended = reap(child, || vigil.let_go());
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
