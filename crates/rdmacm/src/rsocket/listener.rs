//! A thread that makes sockets from the requests to a listener. So a peer is connected before the program accepts it,
//! as with TCP.
//!
//! The first request waits for a while until the program asks for it. A program for rsockets may set options for its
//! accepted sockets between `rlisten` and `raccept`, because other libraries make these sockets only in `raccept`.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use transom_abi::{RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_DEVICE_REMOVAL};

use super::datagram::DEVICE_GONE;
use super::own_id::{Happened, OwnId};
use super::wait::{Flag, timespec};
use crate::check::OwnWork;
use crate::sanitized;
use crate::wrong::Wrong;

/// How long the first request waits for the program to ask, in milliseconds. A program that connects to itself before
/// it accepts waits this long.
const FIRST: c_int = 100;

/// The sockets of a listener that the program has not accepted yet.
#[derive(Debug)]
pub(crate) struct Listener<T> {
    shared: Arc<Shared<T>>,
    thread: Option<JoinHandle<()>>,
    /// The process of the thread. A forked child has no such thread.
    process: u32,
}

#[derive(Debug)]
struct Shared<T> {
    queue: Mutex<VecDeque<T>>,
    backlog: usize,
    /// The device is gone, and no request comes any more. It is set with the queue locked.
    gone: AtomicBool,
    /// The queue is not empty, or no request comes any more.
    filled: Flag,
    /// The program has asked for a socket.
    has_asked: AtomicBool,
    /// The program has asked for the first socket, or has taken one, so that there is room in the queue.
    asked: Flag,
    stop: Flag,
}

impl<T: Send + 'static> Listener<T> {
    /// Starts the thread that makes sockets from the requests to a listening id.
    pub(crate) fn start(
        own: Arc<OwnId>,
        backlog: c_int,
        make: impl Fn(Happened) -> Option<T> + Send + 'static,
    ) -> Result<Self, Wrong> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            backlog: usize::try_from(backlog).unwrap_or(0).max(1),
            gone: AtomicBool::new(false),
            filled: Flag::new()?,
            has_asked: AtomicBool::new(false),
            asked: Flag::new()?,
            stop: Flag::new()?,
        });
        let theirs = Arc::clone(&shared);
        let thread = transom_thread::start("rsocket", move || {
            let _inside = sanitized::inside();
            serve(&own, &theirs, make);
        })
        .map_err(|_| Wrong::new(libc::EAGAIN, "no thread can be started: see `ulimit -u`"))?;
        Ok(Self { shared, thread: Some(thread), process: std::process::id() })
    }

    /// A descriptor that is readable while there are sockets to accept.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.shared.filled.as_raw_fd()
    }

    /// Whether there are none. This counts as a question of the program.
    pub(crate) fn is_empty(&self) -> bool {
        self.ask();
        self.shared.queue.lock().is_empty()
    }

    /// Whether none will come any more, because the device is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.shared.gone.load(Relaxed)
    }

    /// Takes the oldest socket. If none will come any more, every call fails.
    pub(crate) fn accept(&self) -> Result<Option<T>, Wrong> {
        self.ask();
        let mut queue = self.shared.queue.lock();
        let accepted = queue.pop_front();
        if accepted.is_some() {
            self.shared.asked.set();
        } else if self.is_gone() {
            return Err(DEVICE_GONE);
        }
        if queue.is_empty() && !self.is_gone() {
            self.shared.filled.clear();
        }
        Ok(accepted)
    }

    fn ask(&self) {
        if !self.shared.has_asked.load(Relaxed) && !self.shared.has_asked.swap(true, Relaxed) {
            self.shared.asked.set();
        }
    }
}

impl<T> Drop for Listener<T> {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.process == std::process::id() {
            self.shared.stop.set();
            let _ = thread.join();
        }
    }
}

/// Waits for requests until it is stopped, or the device goes.
fn serve<T>(own: &OwnId, shared: &Shared<T>, make: impl Fn(Happened) -> Option<T>) {
    let _own = OwnWork::begin();
    let mut is_first = true;
    loop {
        let is_full = shared.queue.lock().len() >= shared.backlog;
        let next = if is_full { shared.asked.as_raw_fd() } else { own.descriptor() };
        if stopped_before(shared, next, -1) {
            return;
        }
        if is_full {
            shared.asked.clear();
            continue;
        }
        if std::mem::take(&mut is_first) && stopped_before(shared, shared.asked.as_raw_fd(), FIRST)
        {
            return;
        }
        let Some(happened) = own.next() else { continue };
        if happened.event == RDMA_CM_EVENT_DEVICE_REMOVAL {
            let _queue = shared.queue.lock();
            shared.gone.store(true, Relaxed);
            shared.filled.set();
            return;
        }
        if happened.event != RDMA_CM_EVENT_CONNECT_REQUEST {
            continue;
        }
        if let Some(made) = make(happened) {
            let mut queue = shared.queue.lock();
            queue.push_back(made);
            shared.filled.set();
        }
    }
}

/// Waits until a descriptor is readable, or for this time in milliseconds. True if the thread must stop.
fn stopped_before<T>(shared: &Shared<T>, next: RawFd, milliseconds: c_int) -> bool {
    let polled = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut both = [polled(shared.stop.as_raw_fd()), polled(next)];
    transom_thread::poll(&mut both, timespec(milliseconds));
    both[0].revents != 0
}
