//! A thread that delivers completions.

use crate::delivery::State;
use crate::{CompletionQueue, Error, Result};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// A thread that delivers a queue's completions, so that tasks which await them are woken.
///
/// It is needed only where futures are awaited and neither a reactor watches the queue's
/// descriptor nor a thread waits. It sleeps while nothing completes, and ends when dropped.
///
/// ```
/// # let context = transom::devices(&transom::Provider::software())?[0].open()?;
/// # let pd = transom::ProtectionDomain::new(&context)?;
/// # let cq = transom::CompletionQueue::new(&context, 16)?;
/// # let builder = transom::QueuePair::builder(&pd, &cq);
/// # let (a, b) = (builder.build()?, builder.build()?);
/// # let (at_a, at_b) = (a.endpoint(), b.endpoint());
/// # let (a, b) = (a.connect(&at_b)?, b.connect(&at_a)?);
/// use std::future::Future;
/// use transom::{Driver, QueuePair, Result};
///
/// let driver = Driver::new(&cq)?;
/// // To be given to any executor.
/// async fn tell(queue_pair: QueuePair) -> Result<()> {
///     queue_pair.send(b"awaited")?.await?;
///     Ok(())
/// }
/// # let _ = (tell(a), b, driver);
/// # Ok::<(), transom::Error>(())
/// ```
#[derive(Debug)]
pub struct Driver {
    thread: Option<JoinHandle<()>>,
    /// The process that the thread is in: a forked child has none.
    process: u32,
    /// Readable once the thread shall end.
    stop: Arc<OwnedFd>,
    queue: CompletionQueue,
}

impl Driver {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::Verb`] if there is no descriptor or no thread to be had.
    pub fn new(queue: &CompletionQueue) -> Result<Self> {
        let failed = |verb, errno| Error::Verb {
            verb,
            subject: "starting a completion driver".to_owned(),
            errno,
        };
        let stop = eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(|errno| failed("eventfd", errno.raw_os_error()))?;
        let stop = Arc::new(stop);
        let (inner, until) = (queue.inner.clone(), stop.clone());
        let drive = move || {
            let never = |_: &mut State| None::<()>;
            // It ends when told to, or if the device fails, which all tasks then see themselves.
            let _ = inner.wait_until(None, Some(until.as_fd()), never);
        };
        let thread = Builder::new()
            .name("transom-driver".to_owned())
            .spawn(drive)
            .map_err(|error| failed("pthread_create", error.raw_os_error().unwrap_or(0)))?;
        let process = std::process::id();
        Ok(Self { thread: Some(thread), process, stop, queue: queue.clone() })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // What tells the thread to end is one with its parent's.
            std::mem::forget(self.thread.take());
            return;
        }
        // Adding 1 to a fresh event counter cannot fail.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        self.queue.inner.rouse();
        // A task that it wakes may have it, and drop it there.
        let this = std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != this) {
            let _ = thread.join();
        }
    }
}
