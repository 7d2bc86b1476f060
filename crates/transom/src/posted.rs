//! The ticket of a posted request.

use crate::delivery::{CreatedQueue, State};
use crate::keep::Keep;
use crate::outstanding::{Poster, Ticket};
use crate::panics::outlive;
use crate::{Completion, Error, Operation, Result, WorkError};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// A posted request. Its completion has not come, or you have not taken it.
///
/// Wait for it ([`wait`](Self::wait)), poll it ([`try_wait`](Self::try_wait)), or await it. It is a future that any
/// executor can poll, if a [`Driver`](crate::Driver), a reactor or a waiting thread delivers the queue's completions. A
/// request that is already done is ready at once. Between queue pairs of one process that is the usual case, so a task
/// that awaits nothing else never yields to other tasks.
///
/// The request keeps its memory registered until you have its completion. Then it keeps nothing, and you can
/// [deregister](crate::MemoryRegion::deregister) the memory.
///
/// Drop it if you do not need the result: the request goes on, and keeps its memory registered until it is done. While
/// the ticket exists, the queue pair or shared receive queue of the request is not destroyed.
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
    /// While this exists, the completion will come.
    _posted_to: Arc<dyn WorkQueue>,
}

/// The target of posts: a queue pair or a shared receive queue.
pub(crate) trait WorkQueue: Send + Sync {
    /// Its name in the slots of its requests.
    fn poster(&self) -> Poster;
}

impl Posted {
    /// Posts a request that completes into this queue. `post` gets its `wr_id`.
    pub(crate) fn post(
        queue: &Arc<CreatedQueue>,
        to: &Arc<impl WorkQueue + 'static>,
        operation: Operation,
        keep: Keep,
        post: impl FnOnce(u64) -> Result<()>,
    ) -> Result<Self> {
        // Inserted before the post, because the completion may come at once.
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

    /// Posts several requests that complete into this queue, all or none. `post` gets the `wr_id` of each.
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

    /// Waits for the completion, up to a timeout. `None` when the time is up; you may wait again.
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
        let (_, taken) = queue.poll_for(|state| take(*ticket, outcome, state))?;
        taken.map(released).transpose()
    }

    /// Waits for the completion, and keeps the ticket.
    pub(crate) fn outcome(&mut self) -> Result<Completion> {
        loop {
            if let Some(completion) = self.wait_until(None)? {
                return Ok(completion);
            }
        }
    }

    fn wait_until(&mut self, deadline: Option<Instant>) -> Result<Option<Completion>> {
        let Self { ticket, outcome, queue, .. } = self;
        let taken = queue.wait_until(deadline, None, |state| take(*ticket, outcome, state))?;
        taken.map(released).transpose()
    }

    /// Takes the completion, or leaves a waker for its arrival.
    fn take_or_wake(&mut self, waker: &Waker) -> Result<Option<Completion>> {
        if let Some(completion) = self.try_wait()? {
            return Ok(Some(completion));
        }
        // Cloned without the lock: this runs code of the executor, which may do anything.
        let waker = waker.clone();
        let previous = self.queue.lock().outstanding.set_waker(self.ticket, waker);
        drop(previous);
        self.queue.arm_for_others()?;
        // The completion may have come before the queue was armed.
        self.try_wait()
    }
}

/// Takes the completion if it is there, and remembers it. With it come the objects of the request.
fn take(
    ticket: Ticket,
    outcome: &mut Option<Result<Completion, WorkError>>,
    state: &mut State,
) -> Option<(Result<Completion>, Keep)> {
    let mut keep = Keep::Nothing;
    if outcome.is_none() {
        let (result, kept) = state.outstanding.take(ticket)?;
        (*outcome, keep) = (Some(result), kept);
    }
    outcome.map(|outcome| (outcome.map_err(Error::Work), keep))
}

/// The completion, after the objects of its request are released. The queue is not locked.
fn released((outcome, keep): (Result<Completion>, Keep)) -> Result<Completion> {
    outlive(|| drop(keep));
    outcome
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
        if self.outcome.is_none() && !self.queue.device().is_inherited() {
            let (keep, waker) = self.queue.lock().outstanding.detach(self.ticket);
            outlive(|| drop(keep));
            drop(waker);
        }
    }
}

impl fmt::Debug for Posted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Posted").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}
