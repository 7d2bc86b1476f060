//! Tests that have a process of their own, some of them with faults of its device. Only the software device has these.

use super::{again, context};

/// The variable that marks the process that a test started for itself.
pub(crate) const ALONE: &str = "TRANSOM_TEST_ALONE";
/// The exit status of such a process if its device was gone too early to show anything.
pub(crate) const TOO_EARLY: i32 = 3;

/// Runs a test again in a process with this environment. Returns its exit status, or `None` in that process.
pub(crate) fn alone(test: &str, environment: &[(&str, &str)]) -> Option<i32> {
    if std::env::var_os(ALONE).is_some() {
        return None;
    }
    let mut again = again(test);
    again.env(ALONE, "1").envs(environment.iter().copied());
    Some(again.status().unwrap().code().expect("an end"))
}

/// Runs a test again in a process whose device goes away when all objects are there. Returns its exit status.
pub(crate) fn until_the_device_goes(test: &str) -> i32 {
    // On a busy machine the device may be gone before all objects are there.
    let mut times = [1, 4, 16, 64].into_iter();
    loop {
        let time = times.next().expect("enough time");
        let fault = format!("device-removal,at={}ms", time * 250);
        match alone(test, &[("TRANSOM_FAULT", &fault)]).expect("it is another process") {
            TOO_EARLY => {}
            end => return end,
        }
    }
}

pub(crate) fn has_faults() -> bool {
    !context().name().starts_with("rxe")
}
