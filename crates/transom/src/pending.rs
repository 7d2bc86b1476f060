//! Results that are still to come: a connection, a request for one, its end.

use crate::Result;
use crate::cm::{Waiter, wait_until_readable};
use std::fmt;
use std::future::Future;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// A result that will come, or fail: a [`Connection`](crate::Connection), a
/// [`ConnectionRequest`](crate::ConnectionRequest), or the end of a connection.
///
/// Wait for it ([`wait`](Self::wait)), poll it ([`try_wait`](Self::try_wait)), or await it. It is a future that any
/// executor can poll. A thread of this crate wakes the task. There is one for the process, and it starts when you await
/// the first. With a reactor of your own, or `poll(2)`, watch the descriptor instead ([`AsFd`], [`AsRawFd`]), and call
/// [`try_wait`](Self::try_wait) whenever it is readable. The descriptor closes with this value, so stop watching it
/// when the result has come.
///
/// A connection makes progress only while somebody waits, polls or awaits. Dropping this gives it up: the connection is
/// not made, and the peer is told.
///
/// # Panics
/// If you poll it again after it has come, or has failed.
///
/// ```
/// # let context = transom::devices(&transom::Provider::software())?[0].open()?;
/// # let pd = transom::ProtectionDomain::new(&context)?;
/// # let cq = transom::CompletionQueue::new(&context, 16)?;
/// use std::time::Duration;
/// use transom::{Listener, Provider};
///
/// let listener = Listener::bind(&Provider::software(), "127.0.0.1:0".parse().unwrap())?;
/// let mut next = listener.accept();
/// assert!(next.try_wait()?.is_none()); // nobody has come
/// assert!(next.wait_timeout(Duration::from_millis(1))?.is_none());
/// # Ok::<(), transom::Error>(())
/// ```
#[must_use = "nothing is made unless somebody waits for it"]
pub struct Pending<'a, T> {
    waiter: Waiter,
    arrival: Box<dyn Arrival<Output = T> + 'a>,
}

/// The panic message for a caller that polls again after the result has come or failed.
pub(crate) const ASKED_AGAIN: &str = "nobody asks for what has come or failed";

/// A result that comes through the events of one channel.
pub(crate) trait Arrival: Send {
    type Output;

    /// Takes the result if it is there, after it has handled the events there are.
    fn take(&mut self) -> Result<Option<Self::Output>>;

    /// A descriptor that is readable while an event is there. It stays the same for as long as this value
    /// lives.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Says that data of the peer have come. Only a connection that is being made uses this.
    fn data_has_come(&self) -> Result<()> {
        Ok(())
    }
}

impl<'a, T> Pending<'a, T> {
    pub(crate) fn new(arrival: impl Arrival<Output = T> + 'a) -> Self {
        Self { waiter: Waiter::new(), arrival: Box::new(arrival) }
    }

    /// Tells the arrival that data of the peer have come.
    pub(crate) fn tell_of_data(&self) -> Result<()> {
        self.arrival.data_has_come()
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// [`Error::Connection`](crate::Error::Connection) if there will be no connection,
    /// [`Error::Verb`](crate::Error::Verb) if a call failed.
    pub fn wait(mut self) -> Result<T> {
        loop {
            if let Some(output) = self.wait_until(None)? {
                return Ok(output);
            }
        }
    }

    /// Waits for the result, up to a timeout. `None` when the time is up; you may wait again.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Option<T>> {
        self.wait_until(Instant::now().checked_add(timeout))
    }

    /// Takes the result if it is there.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> Result<Option<T>> {
        self.arrival.take()
    }

    fn wait_until(&mut self, deadline: Option<Instant>) -> Result<Option<T>> {
        loop {
            if let Some(output) = self.arrival.take()? {
                return Ok(Some(output));
            }
            if !wait_until_readable(self.as_fd(), deadline)? {
                return Ok(None);
            }
        }
    }
}

impl<T> Future for Pending<'_, T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { waiter, arrival } = &mut *self;
        if let Some(outcome) = arrival.take().transpose() {
            return Poll::Ready(outcome);
        }
        // If it has come meanwhile, this wakes the task at once.
        match waiter.wake_when_readable(arrival.descriptor(), context.waker()) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl<T> AsFd for Pending<'_, T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.arrival.descriptor()
    }
}

impl<T> AsRawFd for Pending<'_, T> {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl<T> fmt::Debug for Pending<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}
