//! A socket of either kind, and the wait of calls on it.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::datagram::DatagramSocket;
use super::settings::{Options, Settings};
use super::stream_socket::{Accepted, StreamSocket};
use super::table::Table;
use super::wait::{Deadline, Waiting, wait_for};
use crate::entry::restarts;
use crate::provider::Provider;
use crate::wrong::{NotNow, Wrong};

/// Another thread has closed the socket.
pub(crate) const CLOSED: Wrong =
    Wrong::new(libc::EBADF, "another thread has closed the socket while this one used it");

/// A socket.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) waiting: Waiting,
    pub(crate) provider: &'static Provider,
    pub(crate) family: c_int,
    nonblocking: AtomicBool,
    /// How long a call polls before it sleeps.
    polling_time: Duration,
    state: Mutex<State>,
}

/// The kind of a socket.
#[derive(Debug)]
pub(crate) enum State {
    Stream(Box<StreamSocket>),
    Datagram(Box<DatagramSocket>),
    /// It was closed while another thread used it.
    Closed,
}

impl State {
    /// The stream socket, if it is one.
    pub(crate) fn stream(&mut self) -> Result<&mut StreamSocket, Wrong> {
        match self {
            Self::Stream(stream) => Ok(stream),
            Self::Datagram(_) => Err(Wrong::new(
                libc::EOPNOTSUPP,
                "the socket is a datagram socket: only stream sockets have this call",
            )),
            Self::Closed => Err(CLOSED),
        }
    }

    /// The settings and options of either kind.
    pub(crate) fn options(&mut self) -> Result<(&mut Settings, &mut Options), Wrong> {
        match self {
            Self::Stream(stream) => Ok((&mut stream.settings, &mut stream.options)),
            Self::Datagram(socket) => Ok((&mut socket.settings, &mut socket.options)),
            Self::Closed => Err(CLOSED),
        }
    }

    fn arm(&mut self) -> Result<(), Wrong> {
        match self {
            Self::Stream(stream) => stream.arm(),
            Self::Datagram(socket) => socket.arm(),
            Self::Closed => Err(CLOSED),
        }
    }

    fn woken(&mut self, waiting: &Waiting) {
        match self {
            Self::Stream(stream) => stream.woken(waiting),
            Self::Datagram(socket) => socket.woken(waiting),
            Self::Closed => {}
        }
    }
}

/// The sockets of this process.
pub(crate) static SOCKETS: Table<Socket> = Table::new();

impl Socket {
    /// A stream socket.
    pub(crate) fn stream(provider: &'static Provider, family: c_int) -> Result<Arc<Self>, Wrong> {
        let waiting = Waiting::new()?;
        let socket = StreamSocket::new(provider, &waiting)?;
        Self::add(provider, family, waiting, State::Stream(Box::new(socket)))
    }

    /// A datagram socket.
    pub(crate) fn datagram(provider: &'static Provider, family: c_int) -> Result<Arc<Self>, Wrong> {
        let waiting = Waiting::new()?;
        let socket = DatagramSocket::new(provider, family, &waiting)?;
        Self::add(provider, family, waiting, State::Datagram(Box::new(socket)))
    }

    /// An accepted socket.
    pub(crate) fn accepted(&self, accepted: Accepted) -> Result<Arc<Self>, Wrong> {
        let Accepted { waiting, socket } = accepted;
        Self::add(self.provider, self.family, waiting, State::Stream(Box::new(socket)))
    }

    fn add(
        provider: &'static Provider,
        family: c_int,
        waiting: Waiting,
        mut state: State,
    ) -> Result<Arc<Self>, Wrong> {
        let socket = Arc::new(Self {
            waiting,
            provider,
            family,
            nonblocking: AtomicBool::new(false),
            polling_time: state.options()?.0.polling_time,
            state: Mutex::new(state),
        });
        SOCKETS.add(socket.number(), socket.clone())?;
        Ok(socket)
    }

    /// The descriptor that the program holds.
    pub(crate) fn number(&self) -> RawFd {
        self.waiting.descriptor()
    }

    pub(crate) fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Relaxed)
    }

    pub(crate) fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Relaxed);
    }

    /// Reads or changes it.
    pub(crate) fn with<T>(&self, with: impl FnOnce(&mut State) -> T) -> T {
        with(&mut self.state.lock())
    }

    /// Takes new events and handles them.
    pub(crate) fn advance(&self) {
        self.state.lock().woken(&self.waiting);
    }

    /// From now on, events make the descriptor readable. The caller must look once more for earlier events.
    pub(crate) fn arm(&self) -> Result<(), Wrong> {
        self.state.lock().arm()
    }

    /// Repeats `attempt` until it returns a value, or until the deadline: `EAGAIN` then. A signal interrupts it as it
    /// interrupts calls on sockets: if there is a deadline, or if the signal's handler was set without `SA_RESTART`.
    pub(crate) fn until<T>(
        &self,
        deadline: Deadline,
        mut attempt: impl FnMut(&mut State) -> Result<Option<T>, Wrong>,
    ) -> Result<T, Wrong> {
        let mut state = self.state.lock();
        if let Some(answer) = attempt(&mut state)? {
            return Ok(answer);
        }
        if matches!(deadline, Deadline::Now) {
            if !self.waiting.has_happened() {
                return Err(Wrong::not_now(NotNow::Again));
            }
            state.woken(&self.waiting);
            return attempt(&mut state)?.ok_or(Wrong::not_now(NotNow::Again));
        }
        let begun = Instant::now();
        while begun.elapsed() < self.polling_time {
            drop(state);
            std::hint::spin_loop();
            state = self.state.lock();
            if let Some(answer) = attempt(&mut state)? {
                return Ok(answer);
            }
        }
        loop {
            state.arm()?;
            if let Some(answer) = attempt(&mut state)? {
                return Ok(answer);
            }
            let waiter = self.waiting.enter();
            drop(state);
            let waited = wait_for(self.number(), deadline);
            self.waiting.leave(waiter);
            state = self.state.lock();
            state.woken(&self.waiting);
            match (waited, attempt(&mut state)?) {
                (_, Some(answer)) => return Ok(answer),
                (Ok(true), None) => {}
                (Ok(false), None) => return Err(Wrong::not_now(NotNow::Again)),
                (Err(wrong), None) => {
                    let interrupted = wrong == Wrong::not_now(NotNow::Interrupted);
                    if !interrupted || !matches!(deadline, Deadline::Never) || !restarts() {
                        return Err(wrong);
                    }
                }
            }
        }
    }

    /// Closes it. Its number is already free. Waiting threads are told.
    pub(crate) fn close(&self) {
        self.begin_to_end();
        self.await_end(None);
        self.with(|state| *state = State::Closed);
        self.waiting.nudge();
    }

    /// Tells the peer that this is the end.
    pub(crate) fn begin_to_end(&self) {
        self.with(|state| {
            if let State::Stream(stream) = state {
                stream.begin_to_close();
            }
        });
    }

    /// Waits until sent data has arrived, until the deadline if there is one, or for the program's linger time.
    pub(crate) fn await_end(&self, deadline: Option<Deadline>) {
        let deadline = deadline.unwrap_or_else(|| {
            Deadline::after(self.with(|state| match state {
                State::Stream(stream) => stream.options.linger,
                State::Datagram(_) | State::Closed => None,
            }))
        });
        // Data that has not arrived by then is lost. An interrupted wait goes on.
        while self.until(deadline, |state| match state {
            State::Stream(stream) => Ok(stream.is_flushed().then_some(())),
            State::Datagram(_) | State::Closed => Ok(Some(())),
        }) == Err(Wrong::not_now(NotNow::Interrupted))
        {}
    }
}
