//! That no call which answers an errno is without a record (rule EX-04): where a verb has not noted itself why it is
//! refused, [`entry`](crate::entry) notes at least which verb it was and what it answered.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::sync::{Arc, Weak};

use transom_host::device::Device;
use transom_system::clock;
use transom_system::registry::{CallRefusal, Name};

use crate::adapters;

thread_local! {
    /// The device of what the running verb has found last.
    static ABOUT: RefCell<Option<Weak<Device>>> = const { RefCell::new(None) };
    /// The errno that is about to be answered has been noted, or is no fault.
    static IS_TOLD: Cell<bool> = const { Cell::new(false) };
    /// The running verb, or the last one.
    static VERB: Cell<&'static str> = const { Cell::new("") };
    /// Which answer of which verb was noted last for want of more to say, and when.
    static LAST: Cell<((usize, c_int), u64)> = const { Cell::new(((0, 0), 0)) };
}

/// How long the same is not noted again, in nanoseconds.
const APART: u64 = 1_000_000_000;

/// A verb begins, which has found nothing yet.
pub(crate) fn begin(verb: &'static str) {
    VERB.set(verb);
    // A thread that ends has none any more.
    let _ = ABOUT.try_with(|about| about.take());
    IS_TOLD.set(false);
}

/// The running verb.
pub(crate) fn verb() -> &'static str {
    VERB.get()
}

/// The running verb is about something of this device.
pub(crate) fn about(device: &Arc<Device>) {
    let _ = ABOUT.try_with(|about| about.replace(Some(Arc::downgrade(device))));
}

/// Notes why a verb is refused; without a device of its own, with the one that it was about.
#[cold]
pub(crate) fn note(device: Option<&Device>, call: &CallRefusal) {
    IS_TOLD.set(true);
    match device {
        Some(device) => device.process().note_refused_call(call),
        None => {
            if let Some(device) = found() {
                device.process().note_refused_call(call);
            }
        }
    }
}

/// What was noted was no answer: the verb goes on.
#[cold]
pub(crate) fn goes_on() {
    IS_TOLD.set(false);
}

/// The errno that is about to be answered is no fault: nothing is to be noted.
#[cold]
pub(crate) fn is_no_fault() {
    IS_TOLD.set(true);
}

/// The verb answers an errno. That there is nothing yet, and that a signal came, is no fault; and what a loop is
/// answered again and again is noted once a second.
#[cold]
pub(crate) fn answered(verb: &'static str, errno: c_int) {
    let nothing_yet = matches!(errno, libc::EAGAIN | libc::EINTR);
    if IS_TOLD.take() || verb.is_empty() || nothing_yet || !is_due(verb, errno) {
        return;
    }
    note(None, &CallRefusal { verb: Name::new(verb), errno, ..CallRefusal::default() });
    IS_TOLD.set(false);
}

/// Whether this answer of this verb has not been noted in this thread just now.
pub(crate) fn is_due(verb: &'static str, errno: c_int) -> bool {
    let (now, this) = (clock::steady(), (verb.as_ptr().addr(), errno));
    let (last, since) = LAST.get();
    let due = this != last || now.saturating_sub(since) >= APART;
    if due {
        LAST.set((this, now));
    }
    due
}

/// The device that the verb was about, or the only one there is.
fn found() -> Option<Arc<Device>> {
    let about = ABOUT.try_with(|about| about.borrow().as_ref().and_then(Weak::upgrade));
    about.ok().flatten().or_else(adapters::only)
}
