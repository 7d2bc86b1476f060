//! Devices of a program that exits.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// The devices fail, and nobody waits for their current work.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test's own variable")]
fn a_mistake_at_exit_keeps_no_program_from_its_end() {
    if std::env::var_os(ALONE).is_some() {
        let handler: Arc<dyn ForkHandler> = Arc::new(Mistaken);
        watch(Arc::downgrade(&handler)).expect("it is told");
        std::mem::forget(handler);
        std::process::exit(0);
    }
    let this = std::env::current_exe().expect("a test has a path");
    let test = "a_mistake_at_exit_keeps_no_program_from_its_end";
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
