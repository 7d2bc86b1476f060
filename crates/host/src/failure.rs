//! What a panic becomes: an error of the device, not the end of a stranger's program.
//!
//! A panic is a mistake of this library that nobody knew of. Whatever thread it happens on, that of a
//! verb or the background thread, it is caught before it reaches the program ([`caught`]). It has let
//! go of its locks on the way, but what they guard may be half done; so the devices of this process
//! have failed, all of them, for they share code and tables: peers see them depart, their queue pairs
//! are in error, each context has an `IBV_EVENT_DEVICE_FATAL`, and verbs answer `EIO` but for those
//! that end something. When the last of these devices is closed, a new one can be opened.

use std::io;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::*};

use transom_device::qp::QpState;

use crate::adapter::{Adapter, OpenError};
use crate::fork;
use crate::objects::AsyncEvent;
use crate::say;

static FAILED: AtomicBool = AtomicBool::new(false);

/// The devices of this process have failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// Has panics said like everything else that this library has to say: what Rust does by itself may end
/// a program whose standard error is gone. For a library that has its Rust to itself; a Rust program
/// has decided for all that is in it.
pub fn say_panics() {
    std::panic::set_hook(Box::new(|panic: &PanicHookInfo<'_>| {
        let message = panic.payload_as_str().unwrap_or("no message");
        match panic.location() {
            Some(at) => say(format_args!("{MISTAKE}: {message} ({at})")),
            None => say(format_args!("{MISTAKE}: {message}")),
        }
    }));
}

/// What a person can do about it.
const MISTAKE: &str = "a mistake in Transom, which whoever maintains it wants to hear of; the device \
                       has failed";

/// Whether the devices of this process have failed, and are not closed yet.
#[inline]
pub fn has_failed() -> bool {
    FAILED.load(Relaxed)
}

/// Makes a call, and has the devices of this process fail if it panics.
///
/// Do not use it around a wait that `pthread_cancel(3)` may end: that unwinds as well, and cannot be
/// caught.
#[inline]
pub fn caught<T>(call: impl FnOnce() -> T) -> Result<T, Failed> {
    // Nobody sees what a panic has left half done: after it the devices are not used any more.
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        // What a panic carries may panic when it is dropped.
        std::mem::forget(panic);
        fail();
        Failed
    })
}

#[cold]
fn fail() {
    FAILED.store(true, SeqCst);
    for device in fork::devices() {
        let told = catch_unwind(AssertUnwindSafe(|| device.fail()));
        // The event may be missing then, but not the errors.
        std::mem::forget(told);
    }
}

/// Lets a process begin anew whose failed devices are all closed; an error if one is left.
pub(crate) fn begin_anew() -> Result<(), OpenError> {
    if has_failed() {
        // A forked child has begun anew with those that it inherits.
        if fork::devices().iter().any(|device| !device.is_inherited()) {
            return Err(not_yet());
        }
        FAILED.store(false, SeqCst);
    }
    Ok(())
}

fn not_yet() -> OpenError {
    let cause = io::Error::from_raw_os_error(libc::EIO);
    OpenError::new("it has failed, and is not closed everywhere", cause)
}

impl Adapter {
    /// Whether it is of use: not if it has failed.
    pub fn check(&self) -> Result<(), OpenError> {
        match self.failed.load(SeqCst) {
            true => Err(not_yet()),
            false => Ok(()),
        }
    }

    /// Nothing is done for peers any more; the program is told, once.
    fn fail(&self) {
        if self.failed.swap(true, SeqCst) || self.is_inherited() {
            return;
        }
        for qp in self.all_qps() {
            qp.summary().fall(QpState::Error);
        }
        self.depart();
        self.leave_port();
        self.raise_port_event(AsyncEvent::DeviceFatal);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::Arc;

    use super::*;
    use crate::Options;
    use crate::objects::EventQueue;
    use crate::progress::Deferred;

    /// Says that this is the process that a test started for itself: all devices of a process fail
    /// together.
    const ALONE: &str = "TRANSOM_TEST_ALONE";

    /// Nobody is there to catch what happens on the background thread.
    /// Rules: AE-09
    #[test]
    fn a_panic_on_the_background_thread_is_an_error_of_the_device() {
        const TEST: &str =
            "failure::tests::a_panic_on_the_background_thread_is_an_error_of_the_device";
        if std::env::var_os(ALONE).is_none() {
            let this = std::env::current_exe().expect("a test has a path");
            let status = Command::new(this).args(["--exact", TEST]).env(ALONE, "1").status();
            return assert!(status.expect("it starts").success());
        }
        let open = || Adapter::open(Options::default());
        let devices = [(); 2].map(|()| open().expect("a device opens"));
        let told = [(); 3].map(|()| Arc::new(EventQueue::new().expect("a queue")));
        let attach =
            |(told, of): (&Arc<_>, usize)| devices[of].tell_port_events(told).expect("room");
        let _sources: Vec<_> = told.iter().zip([0, 0, 1]).map(attach).collect();
        devices[0].progress.defer(Deferred::Panic);
        devices[0].progress.wake(&devices[0]);
        for told in &told {
            let (event, _) = told.take().expect("it comes");
            assert_eq!(event, AsyncEvent::DeviceFatal);
            rustix::io::ioctl_fionbio(told.descriptor(), true).expect("an option");
            assert!(told.take().is_err(), "once");
        }
        assert!(has_failed() && devices.iter().all(|device| device.check().is_err()));
        assert_eq!(open().map(drop).expect_err("they are not closed").errno(), Some(libc::EIO));
        let [first, second] = devices;
        drop(first);
        assert!(open().is_err());
        drop(second);
        // The thread lets go of its device a moment later.
        while open().is_err() {
            std::thread::yield_now();
        }
        assert!(!has_failed());
    }
}
