//! Completion queues.

use crate::delivery::CreatedQueue;
use crate::{Context, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A completion queue with a completion channel of its own; see `ibv_create_cq(3)`.
///
/// Clones refer to the same queue. It is destroyed when the last of them and the last queue pair
/// that uses it are gone.
///
/// Completions reach the tickets of their requests when someone polls the queue: [`poll`](Self::poll), any call that
/// waits, a [`Driver`](crate::Driver), or [`handle_events`](Self::handle_events).
///
/// # With a reactor
/// The queue's descriptor ([`AsFd`], [`AsRawFd`]) becomes readable when a completion comes. Then call
/// [`handle_events`](Self::handle_events). The descriptor stays the same while the queue exists. When you take it for
/// the first time, this crate asks the device for an event of the next completion. So take it before you post, or call
/// [`handle_events`](Self::handle_events) once before you wait: some adapters raise no event for a completion that had
/// already come.
///
/// ```
/// # let context = transom::devices(&transom::Provider::software())?[0].open()?;
/// # let pd = transom::ProtectionDomain::new(&context)?;
/// # let builder_cq = transom::CompletionQueue::new(&context, 16)?;
/// use rustix::event::{PollFd, PollFlags, poll};
/// use transom::{CompletionQueue, QueuePair};
///
/// let cq = CompletionQueue::new(&context, 16)?;
/// let mut watched = [PollFd::new(&cq, PollFlags::IN)];
/// # let (a, b) = (QueuePair::builder(&pd, &cq).build()?, QueuePair::builder(&pd, &builder_cq).build()?);
/// # let (at_a, at_b) = (a.endpoint(), b.endpoint());
/// # let (a, b) = (a.connect(&at_b)?, b.connect(&at_a)?);
/// let mut received = a.receive(&[])?;
/// # b.send(b"")?.wait()?;
/// while received.try_wait()?.is_none() {
///     poll(&mut watched, None).expect("it is open");
///     cq.handle_events()?;
/// }
/// # Ok::<(), transom::Error>(())
/// ```
///
/// # Failures
/// If the waker of a task panics where completions are delivered, or the drop of a buffer, the panic goes no further. If
/// the device fails, all threads and tasks that wait for a completion get the error.
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    pub(crate) inner: Arc<CreatedQueue>,
}

impl CompletionQueue {
    /// Creates a queue with at least `entries` entries. No more requests than entries can be outstanding, so the queue
    /// never overruns.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb): EINVAL if the device has no queues of that size, ENOMEM if it has no more
    /// queues, EMFILE if the process has no more file descriptors.
    pub fn new(context: &Context, entries: u32) -> Result<Self> {
        let created = CreatedQueue::create(context.inner.clone(), entries, false)?;
        Ok(Self { inner: Arc::new(created) })
    }

    /// Creates a queue whose completions carry the wall-clock time when they were added to it; see
    /// `ibv_create_cq_ex(3)`. Otherwise it is like one from [`new`](Self::new).
    ///
    /// ```
    /// use transom::{CompletionQueue, ProtectionDomain, Provider, QueuePair};
    ///
    /// let context = transom::devices(&Provider::software())?[0].open()?;
    /// let pd = ProtectionDomain::new(&context)?;
    /// let cq = CompletionQueue::with_timestamps(&context, 16)?;
    /// # let builder = QueuePair::builder(&pd, &cq);
    /// # let (a, b) = (builder.build()?, builder.build()?);
    /// # let (at_a, at_b) = (a.endpoint(), b.endpoint());
    /// # let (a, b) = (a.connect(&at_b)?, b.connect(&at_a)?);
    /// let received = b.receive(&[])?;
    /// let sent = a.send(b"")?.wait()?;
    /// assert!(sent.timestamp().is_some() && received.wait()?.timestamp().is_some());
    /// # Ok::<(), transom::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new); [`Error::Verb`](crate::Error::Verb), EOPNOTSUPP if the device or its library keeps no
    /// such times.
    pub fn with_timestamps(context: &Context, entries: u32) -> Result<Self> {
        let created = CreatedQueue::create(context.inner.clone(), entries, true)?;
        Ok(Self { inner: Arc::new(created) })
    }

    /// The number of entries: at least as many as you asked for.
    pub fn entries(&self) -> usize {
        self.inner.entries()
    }

    /// Changes the number of entries, to at least this many; see `ibv_resize_cq(3)`.
    ///
    /// # Errors
    /// [`Error::CompletionQueueFull`](crate::Error::CompletionQueueFull) if more requests are
    /// outstanding; [`Error::Verb`](crate::Error::Verb): EINVAL if the device has no queues of that
    /// size, EOPNOTSUPP if it cannot change the size.
    pub fn resize(&self, entries: u32) -> Result<()> {
        self.inner.resize(entries)
    }

    /// Takes the completions there are and delivers them to their tickets; see `ibv_poll_cq(3)`. Returns how many there
    /// were. It does not wait.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb) if the device fails.
    pub fn poll(&self) -> Result<usize> {
        self.inner.poll()
    }

    /// Waits until a completion is delivered, by this thread or another. Returns how many were delivered meanwhile, or
    /// 0 when the time is up.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb) if the device fails.
    pub fn wait(&self, timeout: Duration) -> Result<usize> {
        self.inner.wait_for_any(Instant::now().checked_add(timeout))
    }

    /// For a reactor: call it when the queue's descriptor is readable. It takes the events, delivers the completions,
    /// which wakes the tasks that await them, and asks for the next event. Returns how many completions there were.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb) if the device fails.
    pub fn handle_events(&self) -> Result<usize> {
        self.inner.handle_events()
    }
}

impl AsFd for CompletionQueue {
    /// The descriptor. From now on a completion makes it readable.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // If the device refuses, `handle_events` reports it.
        let _ = self.inner.arm_for_others();
        self.inner.as_fd()
    }
}

impl AsRawFd for CompletionQueue {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
