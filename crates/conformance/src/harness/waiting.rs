//! Waits for a completion, an event, or anything else.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use transom_abi::*;

/// How long a completion may take before the test fails.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Takes a completion if there is one. Makes progress.
pub fn poll(cq: *mut ibv_cq) -> Option<ibv_wc> {
    let mut wc = ibv_wc::default();
    // SAFETY: a live queue.
    let count = unsafe { (*(*cq).context).ops.poll_cq.expect("never null")(cq, 1, &mut wc) };
    assert!(count >= 0, "ibv_poll_cq answered {count}");
    (count == 1).then_some(wc)
}

/// Polls until a completion is there.
pub fn wait(cq: *mut ibv_cq) -> ibv_wc {
    until("a completion", || poll(cq))
}

/// How long it tries without a pause. Most results come sooner.
const EAGER: Duration = Duration::from_millis(1);

/// The pause between later tries. It leaves the processor to the awaited side and to other tests.
const PAUSE: Duration = Duration::from_micros(50);

/// Tries until there is a result.
pub fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        let waited = start.elapsed();
        assert!(waited < TIMEOUT, "waited in vain for {what}");
        match waited < EAGER {
            true => std::thread::yield_now(),
            false => std::thread::sleep(PAUSE),
        }
    }
}

/// Tells other threads that the test is over, even if it fails here. Otherwise they, and so the test, would
/// run forever.
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Whether a descriptor is readable now.
pub fn readable(fd: c_int) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry of this call's own.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
}
