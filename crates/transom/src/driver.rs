//! A thread that delivers completions.

use crate::delivery::State;
use crate::process::Process;
use crate::{CompletionQueue, Error, Result};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A thread that delivers a queue's completions. Each delivery wakes the task that awaits it.
///
/// You need one only if you await futures while no reactor watches the queue's descriptor and no thread waits. The
/// thread sleeps while nothing completes, and ends when you drop the driver.
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
/// // Give it to any executor.
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
    /// The process of the thread. A forked child has no such thread.
    process: Process,
    /// Readable when the thread must end.
    stop: Arc<OwnedFd>,
    queue: CompletionQueue,
}

impl Driver {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::Verb`] if the process gets no descriptor or no thread.
    pub fn new(queue: &CompletionQueue) -> Result<Self> {
        let failed = |verb, errno| Error::Verb {
            verb,
            subject: "starting a completion driver".to_owned(),
            errno,
        };
        let process = Process::this()?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(|errno| failed("eventfd", errno.raw_os_error()))?;
        let stop = Arc::new(stop);
        let (inner, until) = (queue.inner.clone(), stop.clone());
        let drive = move || {
            let never = |_: &mut State| None::<()>;
            // It ends on request, or if the device fails. In that case all tasks see the failure themselves.
            let _ = inner.wait_until(None, Some(until.as_fd()), never);
        };
        let thread = transom_thread::start("transom-driver", drive)
            .map_err(|error| failed("pthread_create", error.raw_os_error().unwrap_or(0)))?;
        Ok(Self { thread: Some(thread), process, stop, queue: queue.clone() })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.process.is_parent() {
            // The stop event is shared with the parent, whose thread must not end.
            std::mem::forget(self.thread.take());
            return;
        }
        // Adding 1 to a fresh event counter cannot fail.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        self.queue.inner.rouse();
        // A task that this thread wakes may own the driver and drop it there. A thread cannot join itself.
        let this = std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != this) {
            let _ = thread.join();
        }
    }
}
