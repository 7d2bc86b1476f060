//! Which tools look at the work of this process. A request that is posted looks at one word: while it is zero, no tool
//! is on, and the request goes the plain way.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;

/// A tool that looks at requests, or changes what happens to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Tool {
    /// [A rehearsal](crate::rehearsal) provokes something.
    Rehearsal = 1 << 0,
    /// Somebody hears what is opened to peers, and what they touch.
    Listener = 1 << 1,
    /// [Events](crate::trace) are recorded.
    Events = 1 << 2,
    /// [Times of requests](crate::latency) are recorded.
    Latencies = 1 << 3,
}

/// One bit for each tool that is on. The upper half is not written here: debuggers and the kernel count up there who is
/// attached to [probes](crate::probes). They find it in the file, in this section.
// SAFETY: the section is for such words, and nobody else names it.
#[unsafe(link_section = ".probes")]
pub(crate) static ON: AtomicU32 = AtomicU32::new(0);

/// The half of the word that is not written here.
const PROBED: u32 = 0xffff_0000;

/// How often each tool was turned on and not off again: a process may have several devices.
static USERS: Mutex<[u32; 32]> = Mutex::new([0; 32]);

/// Whether any tool is on.
#[inline]
pub fn any() -> bool {
    ON.load(Relaxed) != 0
}

/// Whether a tool is on.
#[inline]
pub fn is_on(tool: Tool) -> bool {
    ON.load(Relaxed) & tool as u32 != 0
}

/// Whether somebody is attached to [probes](crate::probes).
#[inline]
pub fn is_probed() -> bool {
    ON.load(Relaxed) & PROBED != 0
}

/// Turns a tool on. What it needs must be ready for those that find it on.
pub fn turn_on(tool: Tool) {
    let mut users = USERS.lock();
    users[(tool as u32).trailing_zeros() as usize] += 1;
    ON.fetch_or(tool as u32, Relaxed);
}

/// What is left of the word in a forked child. A rehearsal goes on, and so does a listener. Probes stay in a child, and
/// who detaches counts down here too.
const STAY: u32 = Tool::Rehearsal as u32 | Tool::Listener as u32 | PROBED;

/// In a forked child, in which nobody has asked for anything yet. The lock of [`hold`] is held.
pub(crate) fn leave_to_parent() {
    // SAFETY: locked by `hold`, in the thread that this one is the copy of.
    let users = unsafe { &mut *USERS.data_ptr() };
    for (bit, count) in users.iter_mut().enumerate() {
        if STAY >> bit & 1 == 0 {
            *count = 0;
        }
    }
    leave(&ON);
}

fn leave(on: &AtomicU32) {
    on.fetch_and(STAY, Relaxed);
}

/// Has threads that turn tools on or off wait until [`release`]: a fork comes.
pub(crate) fn hold() {
    std::mem::forget(USERS.lock());
}

/// Ends that.
///
/// # Safety
/// After [`hold`], in the same thread or in its copy.
pub(crate) unsafe fn release() {
    // SAFETY: locked by `hold`, by the contract of this function.
    unsafe { USERS.force_unlock() };
}

/// Turns a tool off, for one of those who have turned it on.
pub fn turn_off(tool: Tool) {
    let mut users = USERS.lock();
    let users = &mut users[(tool as u32).trailing_zeros() as usize];
    *users = users.saturating_sub(1);
    if *users == 0 {
        ON.fetch_and(!(tool as u32), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A debugger that lets a child go counts down there too, and would get below zero.
    ///
    /// Rules: SEE-61
    #[test]
    fn a_forked_child_keeps_the_count_of_those_who_are_attached_to_probes() {
        const ATTACHED: u32 = 3 << 16;
        let on = AtomicU32::new(ATTACHED | Tool::Rehearsal as u32 | Tool::Events as u32);
        leave(&on);
        assert_eq!(on.into_inner(), ATTACHED | Tool::Rehearsal as u32);
    }
}
