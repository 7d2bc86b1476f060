//! How a call of rsockets comes in: the queue pairs and regions are the library's, and the program knows of none.

use std::ffi::{CStr, c_int};

use crate::check::OwnWork;
use crate::entry;
use crate::wrong::Wrong;

/// As [`entry::attempt`].
pub(super) fn attempt<T>(part: impl FnOnce() -> Result<T, Wrong>) -> Result<T, Wrong> {
    let _own = OwnWork::begin();
    entry::attempt(part)
}

/// Zero, or -1.
pub(super) fn zero_of(function: &'static CStr, body: impl FnOnce() -> Result<(), Wrong>) -> c_int {
    entry::zero(function, attempt(body))
}
