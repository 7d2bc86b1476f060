//! The abilities that the tested device lacks, and its deviations from the rules.
//!
//! Both are printed, so that you see what the tests did not show on your device.

use transom::Context;

/// Ends a test that needs an ability that the device lacks. The software device has all.
macro_rules! need {
    ($has:expr, $what:literal) => {
        if !$has {
            assert!(std::env::var_os("TRANSOM_TEST_PROVIDER").is_some(), "lacks {}", $what);
            println!("skipped: {}", $what);
            return;
        }
    };
}

pub(crate) use need;

/// The deviations of the kernel's rxe that these tests see. Section I.1 of `spec/rules.md` has them all, with their
/// reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// RXE-01: a window's bounds are those of its region.
    WindowBounds,
    /// RXE-10: a write of several packets goes on after its window was invalidated.
    WritesGoOn,
    /// RXE-13, RXE-26: the completion of a receive does not name the key that was invalidated.
    InvalidatedKeyUnnamed,
    /// RXE-17, RXE-18, RXE-29: another status than in the rules.
    OtherStatus,
    /// RXE-19: no event reports a refused access.
    NoRefusalEvent,
    /// RXE-23: a datagram that is too long succeeds, and is lost.
    LongDatagramSucceeds,
    /// RXE-25: requests that are posted to a queue pair in error are not flushed.
    PostedInErrorStays,
    /// RXE-27: a datagram that is too long for the receive takes it.
    LongDatagramTakesReceive,
    /// RXE-28: an unreliable connection may have a shared receive queue.
    SharedByUnreliable,
    /// RXE-30: a shared receive queue whose resizing is refused is gone, and the next message stops the kernel.
    RefusedResizeKills,
    /// RXE-31: a datagram's key with the highest bit set is not replaced by the sender's own.
    OwnKeyNotUsed,
    /// RXE-32: a receive of a shared queue that is in use disappears with its queue pair.
    ReceiveGoesWithQueuePair,
    /// RXE-33: an invalidation that was carried out may end as flushed, if a refusal because of it comes before its
    /// completion.
    DoneYetFlushed,
}

/// Whether the device deviates there. Prints a line if it does.
pub(crate) fn departs(context: &Context, departure: Departure) -> bool {
    let departs = context.name().starts_with("rxe");
    if departs {
        println!("departs: {departure:?}");
    }
    departs
}
