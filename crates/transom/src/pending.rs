//! What will come: a connection, a request for one, its end.

use crate::Result;
use crate::cm::{Waiter, wait_until_readable};
use std::fmt;
use std::future::Future;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Something that will come, or fail: a [`Connection`](crate::Connection), a
/// [`ConnectionRequest`](crate::ConnectionRequest), or the end of a connection.
///
/// Wait for it ([`wait`](Self::wait)), ask for it ([`try_wait`](Self::try_wait)), or await it: it is a
/// future that any executor can poll. What wakes the task is a thread of this crate, one for the
/// process, that starts when the first is awaited. With a reactor of your own, or `poll(2)`, watch its
/// descriptor ([`AsFd`], [`AsRawFd`]) instead, and ask whenever that is readable. It is open for as long as this value lives,
/// so it can be watched no more when what it stands for has come.
///
/// Making a connection goes on only while somebody waits, asks or awaits. To drop this gives up what it
/// stands for: a connection that is being made is not made, and the peer is told so.
///
/// # Panics
/// If it is asked again when it has come, or has failed.
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

/// What is said to who asks for what has come or failed.
pub(crate) const ASKED_AGAIN: &str = "nobody asks for what has come or failed";

/// Something that comes by events of one channel.
pub(crate) trait Arrival: Send {
    type Output;

    /// Takes it if it is there, by the events there are.
    fn take(&mut self) -> Result<Option<Self::Output>>;

    /// What is readable while an event is there: the same one for as long as this value lives.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Is told that data of the peer's have come; only a connection on its way makes use of it.
    fn data_has_come(&self) -> Result<()> {
        Ok(())
    }
}

impl<'a, T> Pending<'a, T> {
    pub(crate) fn new(arrival: impl Arrival<Output = T> + 'a) -> Self {
        Self { waiter: Waiter::new(), arrival: Box::new(arrival) }
    }

    /// What comes is told that data of the peer's have come.
    pub(crate) fn tell_of_data(&self) -> Result<()> {
        self.arrival.data_has_come()
    }

    /// Waits for it.
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

    /// Waits for it for some time. `None` when the time is up; then wait again.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Option<T>> {
        self.wait_until(Instant::now().checked_add(timeout))
    }

    /// Takes it if it is there.
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
        // If it has come meanwhile, the task is woken at once.
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
