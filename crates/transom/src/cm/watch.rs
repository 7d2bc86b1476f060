//! Waits for events of connections, and wakes tasks that await them.
//!
//! One thread for the process watches the descriptors that tasks await. It starts with the first of them and sleeps
//! while nothing happens. If you have a reactor, you can watch them there instead.
//!
//! A forked child has no such thread, and its parent's watched descriptors belong to the parent. So a child
//! starts anew.

use crate::panics::outlive;
use crate::process::in_each_child;
use crate::{Error, Result};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;
use std::{mem, ptr};

/// Waits until the descriptor is readable. False when the time is up.
pub(crate) fn wait_until_readable(
    descriptor: BorrowedFd<'_>,
    deadline: Option<Instant>,
) -> Result<bool> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // A time that is too long for a `Timespec` is as good as no deadline.
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

/// A task that awaits a descriptor. It has one waker at a time. When this is dropped, it has none.
pub(crate) struct Waiter {
    /// Never reused.
    number: u64,
    /// The descriptor at which it may have a waker.
    descriptor: Option<RawFd>,
}

impl Waiter {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { number: NEXT.fetch_add(1, Relaxed), descriptor: None }
    }

    /// Wakes the task when the descriptor is readable. Pass the same descriptor each time. A descriptor that may be
    /// watched must be [forgotten](forget) before it is closed.
    pub(crate) fn wake_when_readable(
        &mut self,
        descriptor: BorrowedFd<'_>,
        waker: &Waker,
    ) -> Result<()> {
        let waker = waker.clone();
        let this_process = this_process()?;
        let mut guard = lock(this_process);
        let watcher = match &mut *guard {
            Some(watcher) => watcher,
            none => none.insert(Watcher::start(this_process)?),
        };
        let key = descriptor.as_raw_fd();
        let awaited = watcher.wakers.contains_key(&key);
        let wakers = watcher.wakers.entry(key).or_default();
        self.descriptor = Some(key);
        let before = match wakers.iter_mut().find(|(number, _)| *number == self.number) {
            Some((_, before)) => Some(mem::replace(before, waker)),
            None => {
                wakers.push((self.number, waker));
                None
            }
        };
        let (data, flags) = (epoll::EventData::new_u64(key as u64), epoll::EventFlags::IN);
        let added = match awaited {
            true => Ok(()),
            false => epoll::add(watcher.epoll, descriptor, data, flags),
        };
        let woken_no_more = added.is_err().then(|| watcher.wakers.remove(&key));
        // Wakers are dropped with nothing locked: their drop may close a watched descriptor.
        drop(guard);
        drop((before, woken_no_more));
        added.map_err(|errno| failed("epoll_ctl", errno.raw_os_error()))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let (Some(descriptor), Some(watched)) = (self.descriptor, watched()) else { return };
        // Dropped with nothing locked, as above.
        let _woken_no_more =
            lock(watched).as_mut().and_then(|watcher| watcher.remove(descriptor, self.number));
    }
}

/// Stops watching a descriptor, and wakes nobody for it.
pub(crate) fn forget(descriptor: RawFd) {
    let Some(watched) = watched() else { return };
    // Dropped with nothing locked, as above.
    let _woken_no_more = lock(watched).as_mut().map(|watcher| watcher.stop(descriptor));
}

/// The watched descriptors, and the tasks that await them.
struct Watcher {
    /// Never closed, because the thread never ends.
    epoll: &'static OwnedFd,
    /// Each waker with the number of its waiter.
    wakers: HashMap<RawFd, Vec<(u64, Waker)>>,
}

/// The watcher of a process, once a task awaits something.
type Watched = Mutex<Option<Watcher>>;

/// The watcher of this process, once a task awaits something. It is never freed. A forked child has none: another
/// thread of the parent may have locked it, and its wakers belong to the parent's tasks.
static WATCHED: AtomicPtr<Watched> = AtomicPtr::new(ptr::null_mut());

/// The watcher of this process, if a task has awaited something in it.
fn watched() -> Option<&'static Watched> {
    // SAFETY: a watcher is never freed once it is there.
    unsafe { WATCHED.load(Acquire).as_ref() }
}

/// The watcher of this process. Creates it if there is none.
fn this_process() -> Result<&'static Watched> {
    if let Some(watched) = watched() {
        return Ok(watched);
    }
    // Before anybody locks it. If a child leaves it more than once, that does no harm.
    in_each_child(leave_to_parent)?;
    let new = Box::into_raw(Box::default());
    match WATCHED.compare_exchange(ptr::null_mut(), new, AcqRel, Acquire) {
        // SAFETY: it stays for good now.
        Ok(_) => Ok(unsafe { &*new }),
        Err(others) => {
            // SAFETY: nobody has seen it.
            drop(unsafe { Box::from_raw(new) });
            // SAFETY: as in `watched`.
            Ok(unsafe { &*others })
        }
    }
}

unsafe extern "C" fn leave_to_parent() {
    WATCHED.store(ptr::null_mut(), Release);
}

/// Locks it, even after a panic elsewhere: a panic never leaves a change half done.
fn lock(watched: &Watched) -> MutexGuard<'_, Option<Watcher>> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watcher {
    fn start(watched: &'static Watched) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| failed("epoll_create1", errno.raw_os_error()))?;
        let epoll: &'static OwnedFd = Box::leak(Box::new(epoll));
        transom_thread::start("transom-waker", move || watch(epoll, watched))
            .map_err(|error| failed("pthread_create", error.raw_os_error().unwrap_or(0)))?;
        Ok(Self { epoll, wakers: HashMap::new() })
    }

    /// Stops watching the descriptor. Returns the wakers of the tasks that awaited it.
    fn stop(&mut self, descriptor: RawFd) -> Vec<(u64, Waker)> {
        let Some(wakers) = self.wakers.remove(&descriptor) else { return Vec::new() };
        // SAFETY: a descriptor with wakers is open, because it is forgotten before it is closed.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let _ = epoll::delete(self.epoll, descriptor);
        wakers
    }

    /// Removes the waker of a waiter, if it has one there. Stops watching a descriptor that nobody awaits any
    /// more.
    fn remove(&mut self, descriptor: RawFd, number: u64) -> Option<Waker> {
        let wakers = self.wakers.get_mut(&descriptor)?;
        let at = wakers.iter().position(|(other, _)| *other == number)?;
        let (_, waker) = wakers.swap_remove(at);
        if wakers.is_empty() {
            self.stop(descriptor);
        }
        Some(waker)
    }
}

fn watch(epoll: &'static OwnedFd, watched: &Watched) {
    let mut events = Vec::with_capacity(64);
    loop {
        match epoll::wait(epoll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            // Nothing else can fail with a descriptor that is never closed.
            Err(_) => return,
        }
        for event in events.drain(..) {
            // A task that still awaits it registers again.
            let descriptor = event.data.u64() as RawFd;
            let wakers = lock(watched).as_mut().map(|watcher| watcher.stop(descriptor));
            for (_, waker) in wakers.into_iter().flatten() {
                // A waker that panics does not end this thread, which wakes all tasks.
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

    /// Owns a watched descriptor, as a task does that awaits a connection.
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
        // For tasks that await the same descriptor, and for tasks that await it later.
        let [mut panics, mut is_told] = [(); 2].map(|()| Waiter::new());
        panics.wake_when_readable(one.as_fd(), &Waker::from(Arc::new(Panics))).unwrap();
        is_told.wake_when_readable(one.as_fd(), &tells).unwrap();
        for _ in 0..2 {
            told.recv_timeout(Duration::from_secs(10)).expect("it is woken");
            is_told.wake_when_readable(one.as_fd(), &tells).unwrap();
        }
        forget(one.as_raw_fd());
    }

    #[test]
    fn who_awaits_has_one_waker_and_none_when_gone() {
        struct Task;

        impl Wake for Task {
            fn wake(self: Arc<Self>) {}
        }

        let never = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let tasks = [(); 3].map(|()| Arc::new(Task));
        let [first, second, other] = tasks.each_ref().map(|task| Waker::from(task.clone()));
        let had = || tasks.each_ref().map(|task| Arc::strong_count(task) - 2);
        let [mut waiter, mut another] = [(); 2].map(|()| Waiter::new());
        waiter.wake_when_readable(never.as_fd(), &first).unwrap();
        waiter.wake_when_readable(never.as_fd(), &second).unwrap();
        another.wake_when_readable(never.as_fd(), &other).unwrap();
        assert_eq!(had(), [0, 1, 1]);
        drop(waiter);
        assert_eq!(had(), [0, 0, 1]);
        drop(another);
        assert_eq!(had(), [0, 0, 0]);
        // It is watched for the next waiter.
        let mut next = Waiter::new();
        next.wake_when_readable(never.as_fd(), &first).unwrap();
        assert_eq!(had(), [1, 0, 0]);
        forget(never.as_raw_fd());
        assert_eq!(had(), [0, 0, 0]);
    }

    #[test]
    fn what_goes_with_a_waker_may_be_watched_itself() {
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || {
            let [one, other] = [0; 2].map(|_| eventfd(0, EventfdFlags::CLOEXEC).unwrap());
            let waker = Waker::from(Arc::new(Owner(other.as_raw_fd())));
            let mut waiter = Waiter::new();
            waiter.wake_when_readable(one.as_fd(), &waker).unwrap();
            drop(waker);
            forget(one.as_raw_fd());
            done.send(()).unwrap();
        });
        is_done.recv_timeout(Duration::from_secs(10)).expect("it waits for itself");
    }
}
