//! What a program tells `transom check` about its memory and its threads.
//!
//! A pool of buffers says when a buffer is the program's again. Under `transom check` a request that names such memory,
//! or a peer's write to it, is a mistake. A thread says that it waits for a completion queue by means that nobody else
//! can see, such as a channel of the standard library. To wait while completions are in the queue, and no event can
//! come, is a mistake. Outside of `transom check` these functions do nothing.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::sync::OnceLock;

use libloading::os::unix::Library;
use transom_abi::ibv_comp_channel;

use crate::CompletionQueue;

static CLAIMED: Found<unsafe extern "C" fn(*const c_void, usize)> = Found::of(c"transom_claimed");
static RELEASED: Found<unsafe extern "C" fn(*const c_void, usize)> = Found::of(c"transom_released");
static WAITING: Found<unsafe extern "C" fn(*mut ibv_comp_channel)> = Found::of(c"transom_waiting");
static WOKEN: Found<unsafe extern "C" fn()> = Found::of(c"transom_woken");

/// A function of `transom.h`, of this type. Only a checked process has it.
struct Found<F> {
    name: &'static CStr,
    function: OnceLock<Option<F>>,
}

impl<F: Copy> Found<F> {
    const fn of(name: &'static CStr) -> Self {
        Self { name, function: OnceLock::new() }
    }

    fn get(&self) -> Option<F> {
        *self.function.get_or_init(|| {
            // SAFETY: each static above has the type of the function of its name.
            let found = unsafe { Library::this().get::<F>(self.name.to_bytes_with_nul()) };
            found.ok().map(|function| *function)
        })
    }
}

/// These bytes are the program's own again: no device may touch them until they are [released](release).
///
/// ```
/// use transom::check;
///
/// /// Buffers that nobody uses. No request names them.
/// #[derive(Default)]
/// struct Pool(Vec<Box<[u8; 2048]>>);
///
/// impl Pool {
///     fn take(&mut self) -> Option<Box<[u8; 2048]>> {
///         let buffer = self.0.pop()?;
///         check::release(buffer.as_ptr(), buffer.len());
///         Some(buffer)
///     }
///
///     fn give(&mut self, buffer: Box<[u8; 2048]>) {
///         check::claim(buffer.as_ptr(), buffer.len());
///         self.0.push(buffer);
///     }
/// }
///
/// let mut pool = Pool::default();
/// pool.give(Box::new([0; 2048]));
/// assert!(pool.take().is_some());
/// ```
pub fn claim(first: *const u8, length: usize) {
    if let Some(claimed) = CLAIMED.get() {
        // SAFETY: it takes any range.
        unsafe { claimed(first.cast(), length) };
    }
}

/// A device may have these bytes; see [`claim`].
pub fn release(first: *const u8, length: usize) {
    if let Some(released) = RELEASED.get() {
        // SAFETY: it takes any range.
        unsafe { released(first.cast(), length) };
    }
}

/// This thread now waits until the queue raises an event, and nothing else wakes it. It waits until the answer is
/// dropped.
///
/// ```
/// use std::sync::mpsc;
/// use transom::{CompletionQueue, Provider, check};
///
/// let context = transom::devices(&Provider::software())?[0].open()?;
/// let cq = CompletionQueue::new(&context, 16)?;
/// // A thread of the program looks at the descriptors of all queues, and tells others which are readable.
/// let (readable, queues) = mpsc::channel();
/// let reactor = std::thread::spawn(move || readable.send("the queue"));
///
/// let waiting = check::wait(&cq);
/// assert_eq!(queues.recv(), Ok("the queue"));
/// drop(waiting);
/// # reactor.join().unwrap().unwrap();
/// # Ok::<(), transom::Error>(())
/// ```
pub fn wait(queue: &CompletionQueue) -> Waiting<'_> {
    if let Some(waiting) = WAITING.get() {
        // SAFETY: the channel lives as long as the queue.
        unsafe { waiting(queue.inner.channel()) };
    }
    Waiting { queue: PhantomData, thread: PhantomData }
}

/// This thread waits for a completion queue, until this is dropped; see [`wait`].
#[derive(Debug)]
#[must_use = "the thread waits no more when this is dropped"]
pub struct Waiting<'a> {
    queue: PhantomData<&'a CompletionQueue>,
    /// It is of one thread.
    thread: PhantomData<*const ()>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(woken) = WOKEN.get() {
            // SAFETY: it is about this thread only.
            unsafe { woken() };
        }
    }
}
