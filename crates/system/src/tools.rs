//! Which tools look at the work of this process. A request that is posted looks at one word: while it is zero, no tool
//! is on, and the request goes the plain way.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A tool that looks at requests, or changes what happens to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Tool {
    /// [A rehearsal](crate::rehearsal) provokes something.
    Rehearsal = 1 << 0,
}

/// One bit for each tool that is on.
static ON: AtomicU32 = AtomicU32::new(0);

/// Whether any tool is on.
#[inline]
pub fn any() -> bool {
    ON.load(Relaxed) != 0
}

/// Turns a tool on. What it needs must be ready for those that find it on.
pub fn turn_on(tool: Tool) {
    ON.fetch_or(tool as u32, Relaxed);
}
