//! Ensures that every call that returns an errno leaves a record (rule EX-04). If a verb has not noted the reason
//! itself, [`entry`](crate::entry) notes at least the verb and the errno.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr::null;
use std::sync::Arc;

use transom_check::ledger::Thing;
use transom_host::device::Device;
use transom_system::clock;
use transom_system::failure::{any_has_failed, has_failed};
use transom_system::registry::{CallFault, CallRefusal, Name};
use transom_system::rehearsal;

use crate::adapters;

// None of these has a destructor: it would run when the thread exits, and a thread may exit in the middle of `malloc`.
thread_local! {
    /// The address of the device of the object that the running verb has found last. Null if it has found none.
    static ABOUT: Cell<*const Device> = const { Cell::new(null()) };
    /// The errno about to be returned has been noted, or is no fault.
    static IS_TOLD: Cell<bool> = const { Cell::new(false) };
    /// The running verb must not find what belongs to a device that has failed.
    static IS_BARRED: Cell<bool> = const { Cell::new(false) };
    /// It would have found such a thing.
    static HAS_GONE: Cell<bool> = const { Cell::new(false) };
    /// The running verb, or the last one.
    static VERB: Cell<&'static str> = const { Cell::new("") };
    /// The object of its parent that the running verb of a forked child has found last.
    static PARENTS: Cell<Option<(Thing, usize)>> = const { Cell::new(None) };
    /// The rule by which a rehearsal has refused the running verb. Empty if it has not.
    static REHEARSED: Cell<&'static str> = const { Cell::new("") };
    /// The verb and the errno of the last record without a reason of its own, and its time.
    static LAST: Cell<((usize, c_int), u64)> = const { Cell::new(((0, 0), 0)) };
}

/// What a rehearsal refuses.
pub(crate) const REHEARSED_SAYS: &str = "`transom rehearse` made it fail, as an adapter may";
/// What the adapter refuses that the device stands for.
pub(crate) const ADAPTER_SAYS: &str = "the adapter of --as takes no such request";
/// Of a device that has gone.
const GONE: &str = "the device is gone: standard error says why";
const REMOVED: &str =
    "the device is gone: `transom rehearse` removed it, or standard error says why";

/// The same answer is noted at most once in this time, in nanoseconds.
const APART: u64 = 1_000_000_000;

/// A verb begins. It has found nothing yet.
pub(crate) fn begin(verb: &'static str) {
    VERB.set(verb);
    ABOUT.set(null());
    IS_TOLD.set(false);
    PARENTS.set(None);
    REHEARSED.set("");
}

/// The rehearsal refuses the running verb, by this rule.
#[cold]
pub(crate) fn rehearsed(rule: &'static str) {
    REHEARSED.set(rule);
}

/// The running verb.
pub(crate) fn verb() -> &'static str {
    VERB.get()
}

/// In a forked child, the running verb finds an object of the parent. Whether it has just found it before: verbs may
/// look an object up several times.
pub(crate) fn finds_again(parents: Option<(Thing, usize)>) -> bool {
    PARENTS.replace(parents) == parents && parents.is_some()
}

/// Makes a call that does not find what belongs to a device that has failed. If it would have, the answer is `EIO`.
pub(crate) fn while_barred<T>(call: impl FnOnce() -> Result<T, c_int>) -> Result<T, c_int> {
    if any_has_failed() { barred(call) } else { call() }
}

#[cold]
fn barred<T>(call: impl FnOnce() -> Result<T, c_int>) -> Result<T, c_int> {
    /// Lets verbs find everything again, also after a panic.
    struct Until;

    impl Drop for Until {
        fn drop(&mut self) {
            IS_BARRED.set(false);
        }
    }

    HAS_GONE.set(false);
    IS_BARRED.set(true);
    let until = Until;
    let answer = call();
    drop(until);
    if HAS_GONE.get() { answer.map_err(|_| libc::EIO) } else { answer }
}

/// Whether the running verb must not find what belongs to this device.
#[inline]
pub(crate) fn is_barred_from(device: &Device) -> bool {
    any_has_failed() && has_gone(device)
}

#[cold]
fn has_gone(device: &Device) -> bool {
    let has_gone = IS_BARRED.get() && device.check().is_err();
    if has_gone {
        HAS_GONE.set(true);
    }
    has_gone
}

/// The running verb has found an object of this device.
pub(crate) fn about(device: &Arc<Device>) {
    ABOUT.set(Arc::as_ptr(device));
}

/// Notes why a verb is refused, at `device` or else at the device of the object that the verb has found.
#[cold]
pub(crate) fn note(device: Option<&Device>, call: &CallRefusal) {
    IS_TOLD.set(true);
    let found = device.map_or_else(found, |_| None);
    let Some(device) = device.or(found.as_deref()) else { return };
    let why = (call.fault == CallFault::Unnamed).then(|| why(device, call.errno)).flatten();
    device.process().note_refused_call(&match why {
        Some((said, rule)) => CallRefusal {
            fault: CallFault::Told,
            said: Name::new(said),
            rule: Name::new(rule),
            ..*call
        },
        None => *call,
    });
}

/// Why a verb answers an errno that is not its program's fault, and the rule.
fn why(device: &Device, errno: c_int) -> Option<(&'static str, &'static str)> {
    match (REHEARSED.take(), errno) {
        ("", libc::EIO) if any_has_failed() && (has_failed() || device.check().is_err()) => {
            Some(if rehearsal::on().is_some() { (REMOVED, "REH-81") } else { (GONE, "AE-09") })
        }
        ("", _) => None,
        (rule, _) => Some((REHEARSED_SAYS, rule)),
    }
}

/// The last note was no answer: the verb goes on.
#[cold]
pub(crate) fn goes_on() {
    IS_TOLD.set(false);
}

/// The errno about to be returned is no fault, and is not noted.
#[cold]
pub(crate) fn is_no_fault() {
    IS_TOLD.set(true);
}

/// The verb returns an errno. `EAGAIN` and `EINTR` are no faults. An answer that a loop gets again and again is noted
/// once a second.
#[cold]
pub(crate) fn answered(verb: &'static str, errno: c_int) {
    let nothing_yet = matches!(errno, libc::EAGAIN | libc::EINTR) && REHEARSED.get().is_empty();
    if IS_TOLD.take() || verb.is_empty() || nothing_yet || !is_due(verb, errno) {
        return;
    }
    note(None, &CallRefusal { verb: Name::new(verb), errno, ..CallRefusal::default() });
    IS_TOLD.set(false);
}

/// Whether this thread has not noted this answer of this verb within the last second.
pub(crate) fn is_due(verb: &'static str, errno: c_int) -> bool {
    let (now, this) = (clock::steady(), (verb.as_ptr().addr(), errno));
    let (last, since) = LAST.get();
    let due = this != last || now.saturating_sub(since) >= APART;
    if due {
        LAST.set((this, now));
    }
    due
}

/// The device of the object that the verb has found, or the only device of the process.
fn found() -> Option<Arc<Device>> {
    adapters::at(ABOUT.get()).or_else(adapters::only)
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    /// The verbs that a program ends with must find their objects.
    #[test]
    fn a_panic_ends_the_bar() {
        let panicked = catch_unwind(|| {
            barred(|| -> Result<(), c_int> {
                assert!(IS_BARRED.get());
                HAS_GONE.set(true);
                panic!("a test wants it")
            })
        });
        assert!(panicked.is_err() && !IS_BARRED.get());
        assert_eq!(barred(|| Err::<(), _>(libc::EINVAL)), Err(libc::EINVAL), "of another verb");
    }
}
