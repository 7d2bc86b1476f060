//! A stream socket and its phases: bound, listening or connecting, connected, ended.
//!
//! | module | holds |
//! |---|---|
//! | `accepted` | the sockets that a listener makes from requests |
//! | `mapped` | the memory that the program has mapped for its peer |
//! | `options` | the options that the id knows, and that accepted sockets inherit |

mod accepted;
mod mapped;
mod options;

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use transom_abi::*;

use super::listener::Listener;
use super::own_id::{Happened, OwnId};
use super::protocol::Introduction;
use super::settings::{Options, Settings};
use super::stream::Stream;
use super::wait::Waiting;
use crate::connect::connect;
use crate::id::Id;
use crate::provider::Provider;
use crate::wrong::Wrong;
use crate::{migrate, resolve};
pub(crate) use accepted::Accepted;
use accepted::accepted;
pub(crate) use mapped::Mapped;

/// The timeout for addresses and routes, in milliseconds.
const RESOLVE_TIMEOUT: c_int = 5000;
/// The number of retries. For a receiver that is not ready, 7 means for ever.
const RETRIES: u8 = 7;

/// The peer uses rdma_cm, but not rsockets.
const STRANGER: Wrong = Wrong::new(
    libc::EPROTO,
    "the peer does not speak the protocol of rsockets: is it another program?",
);

/// A stream socket.
#[derive(Debug)]
pub(crate) struct StreamSocket {
    phase: Phase,
    pub(crate) stream: Option<Box<Stream>>,
    /// Declared after the stream, which ends first.
    own: Arc<OwnId>,
    pub(crate) settings: Settings,
    pub(crate) options: Options,
    /// The error for `SO_ERROR` or for the next call.
    error: Option<Wrong>,
    /// The address that the program has bound it to.
    bound: Option<(sockaddr_storage, u16)>,
    /// The paths that the program has chosen.
    route: Vec<u8>,
    /// Memory of the program that the peer may write to.
    mapped: Vec<Mapped>,
}

/// The values that an accepted socket takes from its listener, at that time.
type Inherited = (Settings, Options);

#[derive(Debug)]
enum Phase {
    Idle,
    Listening(Listener<Accepted>, Arc<Mutex<Inherited>>),
    Resolving,
    Requesting,
    Connected,
    /// The connect has failed.
    Failed,
}

impl StreamSocket {
    pub(crate) fn new(provider: &'static Provider, waiting: &Waiting) -> Result<Self, Wrong> {
        let own = OwnId::create(provider, RDMA_PS_TCP, IBV_QPT_RC)?;
        waiting.watch(own.descriptor())?;
        Ok(Self {
            phase: Phase::Idle,
            stream: None,
            own: Arc::new(own),
            settings: Settings::new(),
            options: Options::default(),
            error: None,
            bound: None,
            route: Vec::new(),
            mapped: Vec::new(),
        })
    }

    pub(crate) fn id(&self) -> &Id {
        self.own.id()
    }

    /// Its address. If a connect has failed, the address is the bound one: it loses the one for that connection.
    pub(crate) fn address(&self) -> sockaddr_storage {
        match self.phase {
            Phase::Failed => self.bound.map(|(address, _)| address).unwrap_or_default(),
            // SAFETY: every address can be read as bytes.
            _ => unsafe { self.id().seen().route.addr.src.src_storage },
        }
    }

    pub(crate) fn bind(&mut self, address: (sockaddr_storage, u16)) -> Result<(), Wrong> {
        if self.bound.is_some() || !matches!(self.phase, Phase::Idle) {
            return Err(Wrong::invalid("the socket is bound already, or connected"));
        }
        resolve::bind(self.id(), address)?;
        // Keep the address with the port that was chosen.
        self.bound = Some((self.address(), address.1));
        Ok(())
    }

    pub(crate) fn listen(&mut self, backlog: c_int, waiting: &Waiting) -> Result<(), Wrong> {
        match self.phase {
            Phase::Idle => {}
            // A second rlisten could only change the backlog. No program depends on that.
            Phase::Listening(..) => return Ok(()),
            _ => return Err(Wrong::invalid("the socket is connected, or rconnect was called")),
        }
        let backlog = backlog.clamp(1, 4096);
        resolve::listen(self.id(), backlog)?;
        let own = self.own.clone();
        let inherited = Arc::new(Mutex::new((self.settings, self.options.clone())));
        let theirs = inherited.clone();
        let make = move |request| {
            let (settings, options) = theirs.lock().clone();
            accepted(&own, request, settings, options).ok()
        };
        let listener = Listener::start(self.own.clone(), backlog, make)?;
        waiting.watch(listener.descriptor())?;
        waiting.forget(self.own.descriptor());
        self.phase = Phase::Listening(listener, inherited);
        Ok(())
    }

    /// The oldest connection that nobody has accepted.
    pub(crate) fn accept(&mut self) -> Result<Option<Accepted>, Wrong> {
        match &self.phase {
            Phase::Listening(listener, _) => listener.accept(),
            _ => Err(Wrong::invalid("the socket does not listen: rlisten comes before")),
        }
    }

    /// Gives it a new id, bound like the old one and with the same options.
    fn begin_anew(&mut self, waiting: &Waiting) -> Result<(), Wrong> {
        let own = OwnId::create(self.id().provider, RDMA_PS_TCP, IBV_QPT_RC)?;
        self.tell_options(own.id())?;
        waiting.watch(own.descriptor())?;
        self.end_stream();
        self.phase = Phase::Idle;
        self.own = Arc::new(own);
        match self.bound.take() {
            Some(address) => self.bind(address),
            None => Ok(()),
        }
    }

    /// Stops listening. Threads that wait in an accept find out.
    pub(crate) fn stop_listening(&mut self, waiting: &Waiting) -> Result<(), Wrong> {
        if self.is_listening() { self.begin_anew(waiting) } else { Ok(()) }
    }

    /// Begins to connect. If the last connect has failed and its error was not reported, it returns that error instead.
    pub(crate) fn connect(
        &mut self,
        to: (sockaddr_storage, u16),
        waiting: &Waiting,
    ) -> Result<(), Wrong> {
        match self.phase {
            Phase::Idle => {}
            Phase::Failed => {
                if let Some(wrong) = self.error.take() {
                    return Err(wrong);
                }
                self.begin_anew(waiting)?;
            }
            Phase::Resolving | Phase::Requesting => {
                return Err(Wrong::new(libc::EALREADY, "the socket is being connected already"));
            }
            Phase::Connected => {
                return Err(Wrong::new(libc::EISCONN, "the socket is connected already"));
            }
            Phase::Listening(..) => {
                return Err(Wrong::new(libc::EOPNOTSUPP, "the socket listens"));
            }
        }
        resolve::resolve_address(self.id(), None, to, RESOLVE_TIMEOUT)?;
        self.phase = Phase::Resolving;
        self.advance(waiting);
        Ok(())
    }

    /// Whether it is connected. If the connect has failed, it returns the reason, once.
    pub(crate) fn is_connected(&mut self) -> Result<bool, Wrong> {
        match self.phase {
            Phase::Connected => Ok(true),
            Phase::Resolving | Phase::Requesting => Ok(false),
            Phase::Failed => Err(self.error.take().unwrap_or(Wrong::new(
                libc::ECONNABORTED,
                "the socket could not be connected; an earlier call had the reason",
            ))),
            Phase::Idle | Phase::Listening(..) => Err(Wrong::not_connected()),
        }
    }

    /// Whether a connect is running.
    pub(crate) fn is_connecting(&self) -> bool {
        matches!(self.phase, Phase::Resolving | Phase::Requesting)
    }

    /// Handles the events of the id. Other threads may wait for these events, so it nudges them.
    pub(crate) fn advance(&mut self, waiting: &Waiting) {
        if matches!(self.phase, Phase::Listening(..)) {
            return;
        }
        let mut taken = false;
        while let Some(happened) = self.own.next() {
            taken = true;
            if let Err(wrong) = self.happened(&happened, waiting) {
                self.fail(wrong);
            }
        }
        if taken {
            waiting.nudge();
        }
    }

    fn happened(&mut self, happened: &Happened, waiting: &Waiting) -> Result<(), Wrong> {
        match (&self.phase, happened.event) {
            (Phase::Resolving, RDMA_CM_EVENT_ADDR_RESOLVED) => {
                if self.route.is_empty() {
                    return resolve::resolve_route(self.id(), RESOLVE_TIMEOUT);
                }
                let (level, option) = (RDMA_OPTION_IB as c_int, RDMA_OPTION_IB_PATH as c_int);
                let (paths, length) = (self.route.as_mut_ptr().cast(), self.route.len());
                migrate::set_option(self.own.id(), level, option, paths, length)
            }
            (Phase::Resolving, RDMA_CM_EVENT_ROUTE_RESOLVED) => self.request(waiting),
            (Phase::Requesting, RDMA_CM_EVENT_ESTABLISHED) => {
                let peer = Introduction::read(&happened.data).ok_or(STRANGER)?;
                let Some(stream) = &mut self.stream else { return Err(STRANGER) };
                stream.met(&peer, true);
                self.phase = Phase::Connected;
                stream.progress();
                Ok(())
            }
            (Phase::Connected, RDMA_CM_EVENT_ESTABLISHED) => {
                if let Some(stream) = &mut self.stream {
                    stream.ready();
                    stream.progress();
                }
                Ok(())
            }
            (
                Phase::Connected,
                RDMA_CM_EVENT_DISCONNECTED
                | RDMA_CM_EVENT_REJECTED
                | RDMA_CM_EVENT_UNREACHABLE
                | RDMA_CM_EVENT_CONNECT_ERROR,
            ) => {
                if let Some(stream) = &mut self.stream {
                    stream.disconnected(self.own.id());
                }
                Ok(())
            }
            (_, RDMA_CM_EVENT_DISCONNECTED) => Err(Wrong::new(
                libc::ECONNRESET,
                "the peer has ended the connection before it was established",
            )),
            (
                _,
                event @ (RDMA_CM_EVENT_REJECTED
                | RDMA_CM_EVENT_UNREACHABLE
                | RDMA_CM_EVENT_DEVICE_REMOVAL
                | RDMA_CM_EVENT_ADDR_ERROR
                | RDMA_CM_EVENT_ROUTE_ERROR
                | RDMA_CM_EVENT_CONNECT_ERROR),
            ) => Err(Wrong::of_event(event, happened.status)),
            _ => Ok(()),
        }
    }

    /// Asks the peer for a connection.
    fn request(&mut self, waiting: &Waiting) -> Result<(), Wrong> {
        let stream = Stream::create(&self.own, &self.settings)?;
        let stream = self.stream.insert(Box::new(stream));
        waiting.watch(stream.descriptor())?;
        let data = stream.introduction(&self.settings).bytes();
        // SAFETY: the data is as long as the parameters say.
        unsafe { connect(self.own.id(), Some(&parameters(&data))) }?;
        self.phase = Phase::Requesting;
        Ok(())
    }

    /// The connection or the connect has failed.
    fn fail(&mut self, wrong: Wrong) {
        match &mut self.stream {
            Some(stream) if matches!(self.phase, Phase::Connected) => stream.fail(wrong),
            _ => {
                self.error = Some(wrong);
                self.phase = Phase::Failed;
                self.end_stream();
            }
        }
    }

    /// Gives up a connect, whichever direction the program has shut down. Threads that wait for it are told.
    pub(crate) fn give_up(&mut self, waiting: &Waiting) {
        // The old id goes, so the peer is asked no more. Without descriptors for a new one, it stays until the close.
        let _ = self.begin_anew(waiting);
        self.fail(Wrong::new(
            libc::ECONNRESET,
            "rshutdown was called for the socket while it was being connected",
        ));
    }

    fn end_stream(&mut self) {
        if let Some(mut stream) = self.stream.take() {
            stream.end(&self.own);
        }
        self.mapped.clear();
    }

    /// The stream of a connected socket.
    pub(crate) fn connected(&mut self) -> Result<Option<&mut Stream>, Wrong> {
        if self.is_connected()? { Ok(self.stream.as_deref_mut()) } else { Ok(None) }
    }

    /// From now on, events wake waiting threads.
    pub(crate) fn arm(&mut self) -> Result<(), Wrong> {
        self.stream.as_mut().map_or(Ok(()), |stream| stream.arm())
    }

    /// Takes the events that have woken a thread, and wakes the others.
    pub(crate) fn woken(&mut self, waiting: &Waiting) {
        self.advance(waiting);
        if self.stream.as_mut().is_some_and(|stream| stream.take_events()) {
            waiting.nudge();
        }
    }

    pub(crate) fn is_listening(&self) -> bool {
        matches!(self.phase, Phase::Listening(..))
    }

    /// The value of `SO_ERROR`. The error is reported only once.
    pub(crate) fn take_error(&mut self) -> c_int {
        if let Phase::Listening(listener, _) = &self.phase
            && listener.is_gone()
        {
            return libc::ENODEV;
        }
        let of_stream = |stream: &mut Box<Stream>| stream.take_reason();
        let wrong = self.error.take().or_else(|| self.stream.as_mut().and_then(of_stream));
        wrong.map_or(0, |wrong| wrong.errno())
    }

    /// The events that `poll(2)` would report.
    pub(crate) fn events(&mut self) -> i16 {
        use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP};
        match &self.phase {
            Phase::Idle => POLLOUT | POLLHUP,
            Phase::Listening(listener, _) => {
                if listener.is_gone() {
                    POLLIN | POLLERR
                } else if listener.is_empty() {
                    0
                } else {
                    POLLIN
                }
            }
            Phase::Resolving | Phase::Requesting => 0,
            Phase::Failed => {
                POLLIN | POLLOUT | POLLHUP | if self.error.is_some() { POLLERR } else { 0 }
            }
            Phase::Connected => {
                let Some(stream) = &mut self.stream else { return POLLHUP };
                stream.progress();
                let mut events = 0;
                for (is, event) in [
                    (stream.is_readable(), POLLIN),
                    (stream.is_writable(), POLLOUT),
                    (stream.is_hung_up(), POLLHUP),
                    (stream.is_finished(), POLLRDHUP),
                    (stream.has_failed(), POLLERR),
                ] {
                    events |= if is { event } else { 0 };
                }
                events
            }
        }
    }

    /// Begins to close it. Sent data still arrives, unless `SO_LINGER` is zero.
    pub(crate) fn begin_to_close(&mut self) {
        if self.options.linger == Some(Duration::ZERO) {
            self.end_stream();
        } else if let Some(stream) = &mut self.stream {
            stream.shut(true, true);
        }
    }

    /// Whether the peer has been told of the shutdown, or never will be.
    pub(crate) fn is_told(&mut self) -> bool {
        self.stream.as_mut().is_none_or(|stream| stream.is_told())
    }

    /// Whether all sent data has arrived, or never will.
    pub(crate) fn is_flushed(&mut self) -> bool {
        let connected = matches!(self.phase, Phase::Connected);
        self.stream.as_mut().is_none_or(|stream| !connected || stream.is_flushed())
    }
}

impl Drop for StreamSocket {
    fn drop(&mut self) {
        self.end_stream();
    }
}

/// Parameters of a connection. No READs are used, so they ask for no READ resources.
fn parameters(data: &[u8]) -> rdma_conn_param {
    rdma_conn_param {
        private_data: data.as_ptr().cast(),
        private_data_len: data.len() as u8,
        flow_control: 1,
        retry_count: RETRIES,
        rnr_retry_count: RETRIES,
        ..Default::default()
    }
}
