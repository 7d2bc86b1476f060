//! Devices of a program that exits.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use transom_system::failure::fail;
use transom_system::fork::{ForkHandler, watch};

/// Marks a process that a test started for itself.
const ALONE: &str = "TRANSOM_TEST_ALONE";
/// The exit code of that process when it has been told of the defect.
const TOLD: i32 = 9;

/// A device with a defect when the program exits.
struct Mistaken;

impl ForkHandler for Mistaken {
    fn hold(&self, _until: Instant) -> bool {
        false
    }

    unsafe fn release(&self) {}

    fn leave_to_parent(&self) {}

    fn at_exit(&self, _until: Instant) {
        panic!("a test wants it");
    }

    fn fail(&self) {
        // SAFETY: ends this process.
        unsafe { libc::_exit(TOLD) };
    }

    fn own_device(&self) -> Option<u8> {
        Some(0)
    }
}

/// A device that keeps something until the program exits.
struct Keeping;

impl ForkHandler for Keeping {
    fn hold(&self, _until: Instant) -> bool {
        false
    }

    unsafe fn release(&self) {}

    fn leave_to_parent(&self) {}

    fn at_exit(&self, _until: Instant) {
        // SAFETY: ends this process.
        unsafe { libc::_exit(TOLD) };
    }

    fn fail(&self) {}

    fn own_device(&self) -> Option<u8> {
        Some(0)
    }
}

/// The devices fail, and nobody waits for their current work.
#[test]
fn a_mistake_at_exit_keeps_no_program_from_its_end() {
    exits(Arc::new(Mistaken), "a_mistake_at_exit_keeps_no_program_from_its_end", || ());
}

/// It has counted until it failed, and its counters must not fall.
#[test]
fn a_device_that_has_failed_hears_of_the_exit() {
    exits(Arc::new(Keeping), "a_device_that_has_failed_hears_of_the_exit", fail);
}

/// A program with this device exits by itself after a call, and the device ends it. It is a process of its own.
#[expect(clippy::disallowed_methods, reason = "a test's own variable")]
fn exits(device: Arc<dyn ForkHandler>, test: &str, before: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        watch(Arc::downgrade(&device)).expect("it is told");
        std::mem::forget(device);
        before();
        std::process::exit(0);
    }
    let this = std::env::current_exe().expect("a test has a path");
    let mut child =
        Command::new(this).args(["--exact", test]).env(ALONE, "1").spawn().expect("it starts");
    let until = Instant::now() + Duration::from_secs(60);
    let status = loop {
        match child.try_wait().expect("it can be waited for") {
            Some(status) => break status,
            None if Instant::now() < until => std::thread::yield_now(),
            None => {
                child.kill().expect("it is there");
                break child.wait().expect("it has ended");
            }
        }
    };
    assert_eq!(status.code(), Some(TOLD));
}
