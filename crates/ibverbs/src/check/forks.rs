//! Forks, and a child's uses of its parent's objects.
//!
//! A child begins anew. When it opens a device, it gets a checker of its own. About its parent's objects it only knows
//! what the parent knew at the fork.

use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};

use parking_lot::Mutex;
use transom_check::Call;
use transom_check::ledger::{Thing, parents_object};
use transom_host::device::Device;
use transom_system::failure::caught_aside;
use transom_thread::uncancelled;

use super::sink::Sink;
use super::{CHECKER, Checker, on, on_outside};
use crate::{site, told};

/// The parent's checker, in a forked child.
struct Parent {
    /// Its state is that of the fork. A lock that another thread held then stays locked.
    checker: &'static Checker,
    /// The call that made this child.
    forked: Option<Call>,
    sink: Mutex<Sink>,
}

/// Null if the parent of this process is not checked. It is never freed.
static PARENT: AtomicPtr<Parent> = AtomicPtr::new(null_mut());
/// The program has called `ibv_fork_init`.
static IS_SAFE: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The call in which this thread forks.
    static FORKS: Cell<Option<Call>> = const { Cell::new(None) };
}

/// The program calls `ibv_fork_init`.
pub(crate) fn is_fork_safe() {
    IS_SAFE.store(true, Relaxed);
}

/// Sees each fork from now on.
pub(super) fn watch() {
    static ONCE: Once = Once::new();
    // SAFETY: functions that live as long as this library.
    ONCE.call_once(|| unsafe { _ = libc::pthread_atfork(Some(before), None, Some(in_child)) });
}

unsafe extern "C" fn before() {
    // A signal handler may fork while its thread has the ledger locked.
    let Some(checker) = on_outside() else { return };
    let call = checker.call();
    FORKS.set(Some(call));
    // SAFETY: it takes a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    checker.tell(|ledger| ledger.forks(page, IS_SAFE.load(Relaxed), &call));
}

unsafe extern "C" fn in_child() {
    let checker = on().or_else(|| parent().map(|parent| parent.checker));
    CHECKER.store(null_mut(), Release);
    let Some(checker) = checker else { return };
    let sink = Mutex::new(Sink::later(&checker.directory));
    let parent = Parent { checker, forked: FORKS.take(), sink };
    PARENT.store(Box::into_raw(Box::new(parent)), Release);
}

#[inline]
fn parent() -> Option<&'static Parent> {
    // SAFETY: null, or a box that was leaked.
    unsafe { PARENT.load(Acquire).as_ref() }
}

/// A verb gets an object of a device, or the device alone. In a forked child it may be the parent's.
#[inline]
pub(crate) fn uses(
    verb: impl FnOnce() -> &'static str,
    device: &Device,
    of: Option<(Thing, usize)>,
) {
    if let Some(parent) = parent()
        && device.process().is_inherited()
    {
        let verb = verb();
        // A function that is no verb looks at each object once.
        if verb != told::verb() || !told::finds_again(of) {
            parent.used(verb, of);
        }
    }
}

impl Parent {
    #[cold]
    fn used(&self, verb: &str, of: Option<(Thing, usize)>) {
        // After a panic here, by a mistake in the check itself, the child goes on.
        let _ = caught_aside(|| {
            let call = site::call();
            // If another thread held the lock at the fork, nobody knows where the object was made.
            let known = self.checker.ledger.try_lock();
            let known = known.zip(of).and_then(|(ledger, (thing, at))| ledger.made_at(thing, at));
            let mistake = parents_object(verb, of.map(|it| it.0), known, self.forked, &call);
            uncancelled(|| self.sink.lock().write(mistake));
        });
    }
}
