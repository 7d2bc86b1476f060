//! Waits for events of connections, and wakes tasks that await them.
//!
//! One thread for the process watches the descriptors that are awaited; it starts with the first and
//! sleeps while nothing happens. Who has a reactor of his own can watch them there instead.

use crate::panics::outlive;
use crate::{Error, Result};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::Builder;
use std::time::Instant;

/// Waits until the descriptor is readable. False when the time is up.
pub(crate) fn wait_until_readable(
    descriptor: BorrowedFd<'_>,
    deadline: Option<Instant>,
) -> Result<bool> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // What is too long for a number of seconds is as good as without end.
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], left.as_ref()) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(errno) => {
                let (verb, subject) = ("poll", "waiting for an event".to_owned());
                return Err(Error::Verb { verb, subject, errno: errno.raw_os_error() });
            }
        }
    }
}

/// Wakes the task once the descriptor is readable. Descriptors that may be watched are
/// [forgotten](forget) before they are closed.
pub(crate) fn wake_when_readable(descriptor: BorrowedFd<'_>, waker: &Waker) -> Result<()> {
    let mut guard = lock();
    let watcher = match &mut *guard {
        Some(watcher) => watcher,
        none => none.insert(Watcher::start()?),
    };
    let key = descriptor.as_raw_fd();
    let awaited = watcher.wakers.contains_key(&key);
    let wakers = watcher.wakers.entry(key).or_default();
    if !wakers.iter().any(|other| other.will_wake(waker)) {
        wakers.push(waker.clone());
    }
    if awaited {
        return Ok(());
    }
    let (data, flags) = (epoll::EventData::new_u64(key as u64), epoll::EventFlags::IN);
    let Err(errno) = epoll::add(watcher.epoll, descriptor, data, flags) else { return Ok(()) };
    let _woken_no_more = watcher.wakers.remove(&key);
    // Wakers are dropped with nothing locked: what goes with them may have a descriptor that is watched.
    drop(guard);
    Err(failed("epoll_ctl", errno.raw_os_error()))
}

/// Watches a descriptor no more, and wakes nobody for it.
pub(crate) fn forget(descriptor: RawFd) {
    // Dropped with nothing locked, as above.
    let _woken_no_more = lock().as_mut().map(|watcher| watcher.stop(descriptor));
}

/// The descriptors that are watched, and who awaits them.
struct Watcher {
    /// Never closed, since the thread never ends.
    epoll: &'static OwnedFd,
    wakers: HashMap<RawFd, Vec<Waker>>,
}

/// That of the process, once something was awaited.
static WATCHER: Mutex<Option<Watcher>> = Mutex::new(None);

/// Also after a panic elsewhere: every change is made whole.
fn lock() -> MutexGuard<'static, Option<Watcher>> {
    WATCHER.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watcher {
    fn start() -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| failed("epoll_create1", errno.raw_os_error()))?;
        let epoll: &'static OwnedFd = Box::leak(Box::new(epoll));
        Builder::new()
            .name("transom-waker".to_owned())
            .spawn(move || watch(epoll))
            .map_err(|error| failed("pthread_create", error.raw_os_error().unwrap_or(0)))?;
        Ok(Self { epoll, wakers: HashMap::new() })
    }

    /// Who awaited the descriptor, which is watched no more.
    fn stop(&mut self, descriptor: RawFd) -> Vec<Waker> {
        let Some(wakers) = self.wakers.remove(&descriptor) else { return Vec::new() };
        // SAFETY: a descriptor with wakers is open, for it is forgotten before it is closed.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let _ = epoll::delete(self.epoll, descriptor);
        wakers
    }
}

fn watch(epoll: &'static OwnedFd) {
    let mut events = Vec::with_capacity(64);
    loop {
        match epoll::wait(epoll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            // Nothing else can fail with a descriptor that is never closed.
            Err(_) => return,
        }
        for event in events.drain(..) {
            // A task that still awaits it says so again.
            let wakers = lock().as_mut().map(|watcher| watcher.stop(event.data.u64() as RawFd));
            for waker in wakers.into_iter().flatten() {
                // One that panics does not end this thread, which wakes all.
                outlive(|| waker.wake());
            }
        }
    }
}

fn failed(verb: &'static str, errno: i32) -> Error {
    Error::Verb { verb, subject: "watching for an event to wake a task".to_owned(), errno }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::Arc;
    use std::sync::mpsc;
    use std::task::Wake;
    use std::time::Duration;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    /// Goes with a descriptor that is watched, as a task does that awaits a connection.
    struct Owner(RawFd);

    impl Wake for Owner {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Owner {
        fn drop(&mut self) {
            forget(self.0);
        }
    }

    #[test]
    fn a_waker_that_panics_leaves_nobody_unwoken() {
        struct Panics;

        impl Wake for Panics {
            fn wake(self: Arc<Self>) {
                panic!("as this test wants it");
            }
        }

        struct Tells(mpsc::Sender<()>);

        impl Wake for Tells {
            fn wake(self: Arc<Self>) {
                self.0.send(()).unwrap();
            }
        }

        let (tell, told) = mpsc::channel();
        let tells = Waker::from(Arc::new(Tells(tell)));
        let one = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
        // Of those who await the same, and of those who await something else later.
        wake_when_readable(one.as_fd(), &Waker::from(Arc::new(Panics))).unwrap();
        wake_when_readable(one.as_fd(), &tells).unwrap();
        for _ in 0..2 {
            told.recv_timeout(Duration::from_secs(10)).expect("it is woken");
            wake_when_readable(one.as_fd(), &tells).unwrap();
        }
        forget(one.as_raw_fd());
    }

    #[test]
    fn what_goes_with_a_waker_may_be_watched_itself() {
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || {
            let [one, other] = [0; 2].map(|_| eventfd(0, EventfdFlags::CLOEXEC).unwrap());
            let waker = Waker::from(Arc::new(Owner(other.as_raw_fd())));
            wake_when_readable(one.as_fd(), &waker).unwrap();
            drop(waker);
            forget(one.as_raw_fd());
            done.send(()).unwrap();
        });
        is_done.recv_timeout(Duration::from_secs(10)).expect("it waits for itself");
    }
}
