//! The ticket of a posted request.

use crate::delivery::{CreatedQueue, State};
use crate::keep::Keep;
use crate::outstanding::{Poster, Ticket};
use crate::{Completion, Error, Operation, Result, WorkError};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// A posted request, whose completion is still to come or to be taken.
///
/// Wait for it ([`wait`](Self::wait)), ask for it ([`try_wait`](Self::try_wait)), or await it: it
/// is a future that any executor can poll, provided that a [`Driver`](crate::Driver), a reactor or
/// a waiting thread delivers the queue's completions. What is done already is ready at once, as most is between
/// queue pairs of one process: a task that awaits nothing else gives way to no other.
///
/// Dropping it only means that nobody wants to know: the request goes on, and keeps its memory
/// registered until it is done. As long as it exists, the queue pair or shared receive queue it was
/// posted to is not destroyed.
///
/// ```
/// # let context = transom::devices(&transom::Provider::software())?[0].open()?;
/// # let pd = transom::ProtectionDomain::new(&context)?;
/// # let cq = transom::CompletionQueue::new(&context, 16)?;
/// # let builder = transom::QueuePair::builder(&pd, &cq);
/// # let (a, b) = (builder.build()?, builder.build()?);
/// # let (at_a, at_b) = (a.endpoint(), b.endpoint());
/// # let (a, b) = (a.connect(&at_b)?, b.connect(&at_a)?);
/// use std::time::Duration;
///
/// let mut received = b.receive(&[])?;
/// assert!(received.try_wait()?.is_none());
/// a.send(b"")?.wait()?;
/// while received.wait_timeout(Duration::from_secs(1))?.is_none() {
///     println!("not yet");
/// }
/// # Ok::<(), transom::Error>(())
/// ```
#[must_use = "the completion says whether the request succeeded"]
pub struct Posted {
    ticket: Ticket,
    outcome: Option<Result<Completion, WorkError>>,
    queue: Arc<CreatedQueue>,
    /// While it exists, the completion will come.
    _posted_to: Arc<dyn WorkQueue>,
}

/// What requests are posted to: a queue pair or a shared receive queue.
pub(crate) trait WorkQueue: Send + Sync {
    /// How the slots of its requests name it.
    fn poster(&self) -> Poster;
}

impl Posted {
    /// Posts a request that completes into this queue: `post` is given its `wr_id`.
    pub(crate) fn post(
        queue: &Arc<CreatedQueue>,
        to: &Arc<impl WorkQueue + 'static>,
        operation: Operation,
        keep: Keep,
        post: impl FnOnce(u64) -> Result<()>,
    ) -> Result<Self> {
        // Before it is posted, since its completion may come at once.
        let ticket = queue.lock_for(1)?.outstanding.insert(to.poster(), operation, keep);
        match post(ticket.wr_id()) {
            Ok(()) => Ok(Self::new(ticket, queue, to)),
            Err(error) => {
                let keep = queue.lock().outstanding.remove(ticket);
                drop(keep);
                Err(error)
            }
        }
    }

    /// Posts several requests that complete into this queue, all or none: `post` is given the
    /// `wr_id` of each.
    pub(crate) fn post_all(
        queue: &Arc<CreatedQueue>,
        to: &Arc<impl WorkQueue + 'static>,
        requests: Vec<(Operation, Keep)>,
        post: impl FnOnce(&[u64]) -> Result<()>,
    ) -> Result<Vec<Self>> {
        let mut state = queue.lock_for(requests.len())?;
        let insert = |(operation, keep)| state.outstanding.insert(to.poster(), operation, keep);
        let tickets: Vec<_> = requests.into_iter().map(insert).collect();
        drop(state);
        let wr_ids: Vec<_> = tickets.iter().map(|ticket| ticket.wr_id()).collect();
        match post(&wr_ids) {
            Ok(()) => Ok(tickets.into_iter().map(|ticket| Self::new(ticket, queue, to)).collect()),
            Err(error) => {
                let mut state = queue.lock();
                let remove = |ticket| state.outstanding.remove(ticket);
                let keeps: Vec<_> = tickets.into_iter().map(remove).collect();
                drop(state);
                drop(keeps);
                Err(error)
            }
        }
    }

    fn new(ticket: Ticket, queue: &Arc<CreatedQueue>, to: &Arc<impl WorkQueue + 'static>) -> Self {
        Self { ticket, outcome: None, queue: queue.clone(), _posted_to: to.clone() }
    }

    /// Waits for the completion.
    ///
    /// # Errors
    /// [`Error::Work`] if the request failed, [`Error::Verb`] if the device did.
    pub fn wait(mut self) -> Result<Completion> {
        self.outcome()
    }

    /// Waits for the completion for some time. `None` when the time is up; then wait again.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Option<Completion>> {
        self.wait_until(Instant::now().checked_add(timeout))
    }

    /// Polls the queue once and takes the completion if it is there.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> Result<Option<Completion>> {
        let Self { ticket, outcome, queue, .. } = self;
        queue.poll_for(|state| take(*ticket, outcome, state))?.1.transpose()
    }

    /// Waits for the completion, without giving the ticket up.
    pub(crate) fn outcome(&mut self) -> Result<Completion> {
        loop {
            if let Some(completion) = self.wait_until(None)? {
                return Ok(completion);
            }
        }
    }

    fn wait_until(&mut self, deadline: Option<Instant>) -> Result<Option<Completion>> {
        let Self { ticket, outcome, queue, .. } = self;
        queue.wait_until(deadline, None, |state| take(*ticket, outcome, state))?.transpose()
    }

    /// Takes the completion, or leaves a waker for when it comes.
    fn take_or_wake(&mut self, waker: &Waker) -> Result<Option<Completion>> {
        if let Some(completion) = self.try_wait()? {
            return Ok(Some(completion));
        }
        // Cloned without the lock: that is the executor's code, which may do anything.
        let waker = waker.clone();
        let previous = self.queue.lock().outstanding.set_waker(self.ticket, waker);
        drop(previous);
        self.queue.arm_for_task()?;
        // It may have come before the queue was armed.
        self.try_wait()
    }
}

/// Takes the completion if it is there, and remembers it.
fn take(
    ticket: Ticket,
    outcome: &mut Option<Result<Completion, WorkError>>,
    state: &mut State,
) -> Option<Result<Completion>> {
    if outcome.is_none() {
        *outcome = state.outstanding.take(ticket);
    }
    outcome.map(|outcome| outcome.map_err(Error::Work))
}

impl Future for Posted {
    type Output = Result<Completion>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.take_or_wake(context.waker()) {
            Ok(Some(completion)) => Poll::Ready(Ok(completion)),
            Ok(None) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl Drop for Posted {
    fn drop(&mut self) {
        if self.outcome.is_none() {
            let waker = self.queue.lock().outstanding.detach(self.ticket);
            drop(waker);
        }
    }
}

impl fmt::Debug for Posted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Posted").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}
