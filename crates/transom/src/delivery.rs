//! A completion queue at work: delivering completions, and waiting for them.
//!
//! Completions belong to the tickets ([`Posted`](crate::Posted)) of their requests. A thread that polls a queue
//! delivers every completion it finds to its ticket, also for other threads.
//!
//! To wait, a thread arms the queue (`ibv_req_notify_cq(3)`) and polls once more, since a completion may have come
//! before. Then it sleeps on the queue's descriptor. One thread at a time sleeps there, the *sleeper*. Only the sleeper
//! takes the event, so no other thread can take it while the sleeper sleeps. Other threads sleep on a condition
//! variable. Each delivery and the leaving sleeper signal it. Tasks leave a waker in their request's slot.

use crate::channel::Channel;
use crate::context::OpenDevice;
use crate::error::{check, last_error, unsupported};
use crate::outstanding::{BATCH, Leftover, Outstanding};
use crate::panics::outlive;
use crate::poll::{self, Taken};
use crate::process::Own;
use crate::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::ffi::c_int;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use transom_abi::*;

/// The queue itself. Every queue pair that uses it holds it.
pub(crate) struct CreatedQueue {
    pub(crate) cq: *mut ibv_cq,
    /// Its extended form, if it keeps times. Null otherwise.
    timed: *mut ibv_cq_ex,
    state: Own<Mutex<State>>,
    /// Signalled when completions are delivered, or the sleeper leaves.
    delivered: Condvar,
    /// Dropped after the queue is destroyed.
    channel: Channel,
}

// SAFETY: libibverbs is thread-safe. Any thread may use and destroy a queue.
unsafe impl Send for CreatedQueue {}
// SAFETY: as for `Send`.
unsafe impl Sync for CreatedQueue {}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) outstanding: Outstanding,
    /// The completions delivered so far.
    total: usize,
    /// An event was requested and is not yet taken.
    armed: bool,
    /// A thread sleeps on the descriptor.
    sleeper: bool,
    /// How many threads sleep on the condition variable. If none does, no signal is sent, which saves a system call.
    dozing: usize,
    /// Tasks await completions, or a reactor has the descriptor. So the queue must stay armed for the thread that
    /// delivers.
    awaited: bool,
}

impl State {
    fn entries(&self, cq: *mut ibv_cq) -> usize {
        // SAFETY: the queue exists, and its size changes only under the lock that guards `self`.
        usize::try_from(unsafe { (*cq).cqe }).unwrap_or(0)
    }
}

impl CreatedQueue {
    pub(crate) fn create(device: Arc<OpenDevice>, entries: u32, timed: bool) -> Result<Self> {
        let channel = Channel::create(device.clone())?;
        let state = Own::new(Mutex::default(), device.process);
        // SAFETY: the channel is the context's own.
        let (cq, timed) = unsafe {
            match timed {
                false => (poll::create(&device, entries, channel.raw)?, ptr::null_mut()),
                true => {
                    let timed = poll::create_timed(&device, entries, channel.raw)?;
                    // It begins with the plain form.
                    (timed.cast(), timed)
                }
            }
        };
        Ok(Self { cq, timed, state, delivered: Condvar::new(), channel })
    }

    /// Shrinks no further than the number of outstanding requests. The device checks only against completions that have
    /// come.
    pub(crate) fn resize(&self, entries: u32) -> Result<()> {
        let size = c_int::try_from(entries).unwrap_or(c_int::MAX);
        let state = self.lock();
        let outstanding = state.outstanding.count;
        if usize::try_from(entries).is_ok_and(|entries| entries < outstanding) {
            return Err(Error::CompletionQueueFull { entries: entries as usize });
        }
        // SAFETY: the queue exists; the lock keeps others from reading its size meanwhile.
        let result = unsafe { (self.verbs().ibv_resize_cq)(self.cq, size) };
        check("ibv_resize_cq", format_args!("resizing to {entries} entries"), result)
    }

    pub(crate) fn entries(&self) -> usize {
        self.lock().entries(self.cq)
    }

    /// The pointer to its channel.
    pub(crate) fn channel(&self) -> *mut ibv_comp_channel {
        self.channel.raw
    }

    pub(crate) fn device(&self) -> &Arc<OpenDevice> {
        &self.channel.device
    }

    /// Locks the state, even after a panic elsewhere: a panic never leaves a change half done.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state, if this many more requests may be outstanding.
    pub(crate) fn lock_for(&self, more: usize) -> Result<MutexGuard<'_, State>> {
        let state = self.lock();
        let entries = state.entries(self.cq);
        if state.outstanding.count + more <= entries {
            Ok(state)
        } else {
            Err(Error::CompletionQueueFull { entries })
        }
    }

    /// Delivers the completions there are, and returns their number.
    pub(crate) fn poll(&self) -> Result<usize> {
        self.poll_for(|_| None::<()>).map(|(total, _)| total)
    }

    /// Delivers completions until `done` returns a value or no more completions are there. It calls `done` under the
    /// same lock.
    pub(crate) fn poll_for<T>(
        &self,
        done: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<(usize, Option<T>)> {
        self.tell_tasks_if_failed(self.deliver(done))
    }

    fn deliver<T>(
        &self,
        mut done: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<(usize, Option<T>)> {
        let mut taken = Taken::nothing();
        let mut total = 0;
        loop {
            let mut leftovers = [const { Leftover::NOTHING }; BATCH];
            let mut state = self.lock();
            // SAFETY: the queue exists, and every thread that polls it holds the lock.
            let count = unsafe {
                match self.timed.is_null() {
                    true => poll::poll(self.cq, &mut taken),
                    false => poll::poll_timed(self.timed, &mut taken),
                }
            }?;
            let completions = taken.wcs.iter().zip(taken.times).take(count);
            for ((wc, time), leftover) in completions.zip(&mut leftovers) {
                *leftover = state.outstanding.deliver(wc, time);
            }
            state.total = state.total.wrapping_add(count);
            let found = done(&mut state);
            if count > 0 {
                self.signal(state);
                leftovers.into_iter().take(count).for_each(Leftover::settle);
            }
            total += count;
            if found.is_some() || count < BATCH {
                return Ok((total, found));
            }
        }
    }

    /// Takes the event if there is one, delivers the completions, and arms the queue. Returns how many completions
    /// there were.
    pub(crate) fn handle_events(&self) -> Result<usize> {
        let handle = || {
            self.take_event_unless_waited_for()?;
            let before = self.poll()?;
            self.arm_for_others()?;
            Ok(before + self.poll()?)
        };
        self.tell_tasks_if_failed(handle())
    }

    /// Wakes the tasks that await completions if the queue has failed. Nobody would deliver to them any more. They see
    /// the failure when they poll.
    fn tell_tasks_if_failed<T>(&self, outcome: Result<T>) -> Result<T> {
        if outcome.is_err() {
            let wakers = self.lock().outstanding.take_wakers();
            for waker in wakers {
                outlive(|| waker.wake());
            }
        }
        outcome
    }

    /// Arms the queue because a task awaits a completion, or a reactor has the descriptor. A completion that came before
    /// may raise no event, so a task must poll after it, and a reactor handle events.
    pub(crate) fn arm_for_others(&self) -> Result<()> {
        let mut state = self.lock();
        state.awaited = true;
        self.arm(&mut state)
    }

    /// Makes the next completion raise an event. You must poll after it: a completion that came before raises
    /// none.
    fn arm(&self, state: &mut State) -> Result<()> {
        if !state.armed {
            // SAFETY: the queue exists.
            let req_notify_cq = unsafe { (*(*self.cq).context).ops.req_notify_cq };
            let req_notify_cq = req_notify_cq.ok_or_else(|| unsupported("ibv_req_notify_cq"))?;
            // SAFETY: the queue exists.
            let result = unsafe { req_notify_cq(self.cq, 0) };
            check("ibv_req_notify_cq", "asking for a completion event", result)?;
            state.armed = true;
        }
        Ok(())
    }

    /// Waits until any thread delivers a completion. Returns how many were delivered, or 0 when the deadline
    /// has passed.
    pub(crate) fn wait_for_any(&self, deadline: Option<Instant>) -> Result<usize> {
        let before = self.lock().total;
        let new = |state: &mut State| Some(state.total.wrapping_sub(before)).filter(|new| *new > 0);
        Ok(self.wait_until(deadline, None, new)?.unwrap_or(0))
    }

    /// Polls and sleeps until `done` returns a value, the deadline passes, or `stop` becomes readable.
    pub(crate) fn wait_until<T>(
        &self,
        deadline: Option<Instant>,
        stop: Option<BorrowedFd<'_>>,
        done: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<Option<T>> {
        self.tell_tasks_if_failed(self.poll_and_sleep(deadline, stop, done))
    }

    fn poll_and_sleep<T>(
        &self,
        deadline: Option<Instant>,
        stop: Option<BorrowedFd<'_>>,
        mut done: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<Option<T>> {
        loop {
            if let (_, Some(result)) = self.poll_for(&mut done)? {
                return Ok(Some(result));
            }
            let mut state = self.lock();
            // Another thread may have delivered it meanwhile.
            if let Some(result) = done(&mut state) {
                return Ok(Some(result));
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            if state.sleeper {
                if stop.is_some_and(is_readable) {
                    return Ok(None);
                }
                self.doze(state, left);
                continue;
            }
            if !state.armed {
                self.arm(&mut state)?;
                continue;
            }
            state.sleeper = true;
            drop(state);
            let event = self.readable(stop, left);
            let mut state = self.lock();
            state.sleeper = false;
            let taken = match event {
                Ok(true) => self.take_event(&mut state).and_then(|()| match state.awaited {
                    true => self.arm(&mut state),
                    false => Ok(()),
                }),
                Ok(false) => Ok(()),
                Err(error) => Err(error),
            };
            self.signal(state);
            taken?;
            if stop.is_some_and(is_readable) {
                return Ok(None);
            }
        }
    }

    /// Wakes the waiting threads, so that they check whether they must stop.
    pub(crate) fn rouse(&self) {
        // With the lock, so that no thread is between its check and its sleep.
        self.signal(self.lock());
    }

    /// Wakes the dozing threads after it has released the lock.
    fn signal(&self, state: MutexGuard<'_, State>) {
        let dozing = state.dozing;
        drop(state);
        if dozing > 0 {
            self.delivered.notify_all();
        }
    }

    /// Waits until completions are delivered or the sleeper leaves.
    fn doze(&self, mut state: MutexGuard<'_, State>, timeout: Option<Duration>) {
        state.dozing += 1;
        let mut state = match timeout {
            Some(timeout) => {
                let woken = self.delivered.wait_timeout(state, timeout);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.delivered.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
        state.dozing -= 1;
    }

    /// Waits until the descriptor or `stop` is readable, or the time is up. Returns whether the descriptor is
    /// readable.
    fn readable(&self, stop: Option<BorrowedFd<'_>>, timeout: Option<Duration>) -> Result<bool> {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let watch = |descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN);
        let channel = self.channel.as_fd();
        let mut descriptors = [watch(channel), watch(stop.unwrap_or(channel))];
        match rustix::event::poll(&mut descriptors, timeout.as_ref()) {
            Ok(_) => Ok(!descriptors[0].revents().is_empty()),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => {
                let subject = "waiting for a completion event";
                check("poll", subject, errno.raw_os_error()).map(|()| false)
            }
        }
    }

    /// Takes the event if there is one. A sleeper is about to wake, and takes it by itself.
    fn take_event_unless_waited_for(&self) -> Result<()> {
        let mut state = self.lock();
        if !state.sleeper && self.readable(None, Some(Duration::ZERO))? {
            self.take_event(&mut state)?;
        }
        Ok(())
    }

    /// Takes an event that is there.
    fn take_event(&self, state: &mut State) -> Result<()> {
        let verbs = self.verbs();
        let (mut cq, mut cq_context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel exists and the places to write are valid.
        let result =
            unsafe { (verbs.ibv_get_cq_event)(self.channel.raw, &raw mut cq, &raw mut cq_context) };
        if result != 0 {
            return Err(last_error("ibv_get_cq_event", "taking a completion event"));
        }
        // SAFETY: the event was taken just now, and the channel belongs to this queue alone.
        unsafe { (verbs.ibv_ack_cq_events)(self.cq, 1) };
        state.armed = false;
        Ok(())
    }

    fn verbs(&self) -> &'static crate::provider::Verbs {
        self.channel.device.provider.verbs
    }
}

impl Drop for CreatedQueue {
    fn drop(&mut self) {
        if self.device().is_inherited() {
            return;
        }
        // SAFETY: every queue pair that uses the queue holds this, so none is left, and every event taken is
        // acknowledged.
        if unsafe { (self.verbs().ibv_destroy_cq)(self.cq) } != 0 {
            // The queue stays, so the device must stay open. The channel then stays as well.
            std::mem::forget(self.channel.device.clone());
        }
    }
}

impl fmt::Debug for CreatedQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreatedQueue").field("cq", &self.cq).finish_non_exhaustive()
    }
}

impl AsFd for CreatedQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
    let mut descriptors = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    matches!(rustix::event::poll(&mut descriptors, Some(&Timespec::default())), Ok(1..))
}
