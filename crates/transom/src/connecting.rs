//! Connections that are being made.

use crate::cm::{Channel, Event, Id, Offer};
use crate::context::OpenDevice;
use crate::created_queue_pair::CreatedQueuePair;
use crate::modify::{RECEIVER_NOT_READY_RETRIES, RETRIES};
use crate::pending::{ASKED_AGAIN, Arrival};
use crate::unconnected::Unconnected;
use crate::{
    Connection, ConnectionError, ConnectionProblem, Error, Initialized, Pending, PrivateData,
    Provider, QueuePair, QueuePairBuilder, Rejection, Result,
};
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;
use transom_abi::*;

/// The length of the private data in a request for a connection, in bytes.
const REQUEST: usize = 56;

/// Connects queue pairs to a [listener](crate::Listener) on an address.
///
/// ```no_run
/// use std::time::Duration;
/// use transom::{CompletionQueue, Connector, ProtectionDomain, Provider, QueuePair};
///
/// let context = transom::devices(&Provider::software())?[0].open()?;
/// let pd = ProtectionDomain::new(&context)?;
/// let cq = CompletionQueue::new(&context, 64)?;
/// let queue_pair = QueuePair::builder(&pd, &cq).build()?;
///
/// let server = "192.0.2.1:7471".parse().unwrap();
/// let mut connecting = Connector::new(server).private_data(b"hello").connect(queue_pair)?;
/// match connecting.wait_timeout(Duration::from_secs(3))? {
///     Some(connection) => println!("the server says {:?}", connection.private_data()),
///     None => println!("the server does not answer"),
/// }
/// # Ok::<(), transom::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Connector {
    address: SocketAddr,
    source: Option<SocketAddr>,
    private_data: Vec<u8>,
}

impl Connector {
    /// Connects to this address.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, source: None, private_data: Vec::new() }
    }

    /// Sets the local address, which selects the device. By default the system's routes select it. Port 0 takes any
    /// free port.
    pub fn source(mut self, address: SocketAddr) -> Self {
        self.source = Some(address);
        self
    }

    /// Sets the bytes for the peer's program that go with the request: up to 54 bytes ([why not
    /// more](PrivateData)).
    pub fn private_data(mut self, data: &[u8]) -> Self {
        self.private_data = data.to_vec();
        self
    }

    /// Begins to connect a queue pair. The queue pair must belong to the device that leads to the address. Wait for the
    /// [`Pending`] to get the connection.
    ///
    /// The connection manager decides how long to wait for a peer that does not answer (on Linux more than a minute).
    /// To wait less, give up earlier. If this or the connection fails or you give it up, the queue pair is lost:
    /// requests that you posted to it end with [`Status::Flushed`](crate::Status::Flushed).
    ///
    /// # Errors
    /// [`Error::PrivateDataTooLong`]; [`Error::UnreliableConnection`] if the queue pair is not a reliable connection;
    /// [`Error::Connection`] if no device leads there; [`Error::Library`] if the system has no librdmacm;
    /// [`Error::Verb`] if the process gets no file descriptor, or the device refuses.
    ///
    /// Later problems come from the [`Pending`]: [`Error::Connection`], with the problem.
    pub fn connect(
        &self,
        queue_pair: QueuePair<Initialized>,
    ) -> Result<Pending<'static, Connection>> {
        let queue_pair = Unconnected::new(queue_pair.inner);
        let private_data = marked(&self.private_data, REQUEST)?;
        check_service(&queue_pair)?;
        let id = self.begin(&queue_pair.device().provider, RDMA_PS_TCP)?;
        let peer = self.address;
        Ok(Establishing {
            step: Step::Address,
            id,
            queue_pair,
            peer,
            since: Instant::now(),
            private_data,
            from_peer: PrivateData::default(),
        }
        .pending())
    }
}

impl Connector {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn data(&self) -> &[u8] {
        &self.private_data
    }

    /// Creates an id, and begins to look for the device.
    pub(crate) fn begin(&self, provider: &Provider, port_space: rdma_port_space) -> Result<Id> {
        let id = Id::create(provider, port_space)?;
        found(id.resolve_address(self.source, self.address), self.address)?;
        Ok(id)
    }
}

/// Checks a call that looks for a route to the peer. If it cannot begin, there is no route.
pub(crate) fn found(begun: Result<()>, peer: SocketAddr) -> Result<()> {
    begun.map_err(|error| match error {
        Error::Verb { errno, .. } => no_connection(peer, ConnectionProblem::NoRoute { errno }),
        _ => error,
    })
}

impl QueuePairBuilder<Initialized> {
    /// Builds a queue pair, and connects it to a listener on this address: [`build`](Self::build) and
    /// [`Connector::connect`] in one call. It waits until the connection is made.
    ///
    /// # Errors
    /// The errors of both, and [`Error::Connection`].
    pub fn connect_to(&self, address: SocketAddr) -> Result<Connection> {
        Connector::new(address).connect(self.build()?)?.wait()
    }
}

/// A request whose acceptance was sent, until the peer has confirmed it.
pub(crate) fn until_confirmed(
    id: Id,
    queue_pair: Unconnected,
    peer: SocketAddr,
    from_peer: PrivateData,
) -> Pending<'static, Connection> {
    let (since, private_data) = (Instant::now(), Vec::new());
    let step = Step::Confirmation;
    Establishing { step, id, queue_pair, peer, since, private_data, from_peer }.pending()
}

/// Checks that this device leads to the peer, and also this port if one is given.
pub(crate) fn check_device(
    id: &Id,
    device: &OpenDevice,
    port: Option<u8>,
    peer: SocketAddr,
) -> Result<()> {
    id.check_provider(device)?;
    id.check_device(device, port).map_err(|problem| no_connection(peer, problem))
}

/// Checks that the device and the port of this queue pair lead to the peer.
pub(crate) fn check_queue_pair(
    id: &Id,
    queue_pair: &CreatedQueuePair,
    peer: SocketAddr,
) -> Result<()> {
    check_device(id, queue_pair.device(), Some(queue_pair.creation.port), peer)
}

/// Checks for a reliable connection, which the connection manager uses for TCP's port space.
pub(crate) fn check_service(queue_pair: &CreatedQueuePair) -> Result<()> {
    match queue_pair.creation.service {
        IBV_QPT_RC => Ok(()),
        _ => Err(Error::UnreliableConnection),
    }
}

/// Private data in the form in which they are sent.
pub(crate) fn marked(data: &[u8], carried: usize) -> Result<Vec<u8>> {
    PrivateData::marked(data, carried).ok_or_else(|| Error::PrivateDataTooLong {
        length: data.len(),
        room: PrivateData::room(carried),
    })
}

pub(crate) fn offer<'a>(
    queue_pair: &'a CreatedQueuePair,
    private_data: &'a [u8],
    reads: (u8, u8),
) -> Offer<'a> {
    Offer {
        private_data,
        reads,
        retries: RETRIES,
        receiver_not_ready_retries: RECEIVER_NOT_READY_RETRIES,
        queue_pair: queue_pair.local.qpn,
        shared_receives: queue_pair.parts.shared.is_some(),
    }
}

/// Moves the queue pair from INIT to RTS with the id's attributes. `reads` are the numbers that this end has
/// chosen.
pub(crate) fn bring_up(
    id: &Id,
    queue_pair: &CreatedQueuePair,
    reads: Option<(u8, u8)>,
) -> Result<()> {
    // INIT once more, because only now are the peer's rights known.
    for (state, step) in
        [(IBV_QPS_INIT, "preparing"), (IBV_QPS_RTR, "connecting"), (IBV_QPS_RTS, "moving to RTS")]
    {
        let (mut attributes, mask) = id.attributes(state)?;
        if let Some((served, outstanding)) = reads {
            (attributes.max_dest_rd_atomic, attributes.max_rd_atomic) = (served, outstanding);
        }
        queue_pair.follow(&mut attributes, mask, step)?;
    }
    Ok(())
}

pub(crate) fn no_connection(peer: SocketAddr, problem: ConnectionProblem) -> Error {
    Error::Connection(Box::new(ConnectionError { peer, problem }))
}

/// Turns an event that reports a problem into an error. Other unexpected events are no problem.
pub(crate) fn not_failed(event: Event, peer: SocketAddr, since: Instant) -> Result<()> {
    let rejected = |reason| {
        let private_data = PrivateData::received(event.private_data);
        ConnectionProblem::Rejected(Rejection { reason, private_data })
    };
    let errno = event.status.saturating_neg();
    let problem = match event.kind {
        RDMA_CM_EVENT_ADDR_ERROR | RDMA_CM_EVENT_ROUTE_ERROR => {
            ConnectionProblem::NoRoute { errno }
        }
        // A reason has 16 bits.
        RDMA_CM_EVENT_REJECTED => rejected(event.status as u16),
        // The status of a datagram service.
        RDMA_CM_EVENT_UNREACHABLE if event.status > 0 => rejected(match event.status {
            1 => 8,
            2 => 28,
            3 => 1,
            5 => 31,
            _ => 5,
        }),
        RDMA_CM_EVENT_UNREACHABLE => ConnectionProblem::Unreachable { after: since.elapsed() },
        RDMA_CM_EVENT_CONNECT_ERROR => ConnectionProblem::Failed { errno },
        RDMA_CM_EVENT_DISCONNECTED => ConnectionProblem::GaveUp,
        RDMA_CM_EVENT_DEVICE_REMOVAL => ConnectionProblem::DeviceRemoved,
        _ => return Ok(()),
    };
    Err(no_connection(peer, problem))
}

/// A connection that is being made.
struct Establishing {
    step: Step,
    id: Id,
    queue_pair: Unconnected,
    peer: SocketAddr,
    /// The time when the peer was asked.
    since: Instant,
    /// The private data for the peer, in the form in which they are sent.
    private_data: Vec<u8>,
    from_peer: PrivateData,
}

/// The answer that the connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The device that leads to the peer.
    Address,
    /// The path to the peer.
    Route,
    /// The peer's acceptance.
    Response,
    /// The peer's confirmation that it has the acceptance.
    Confirmation,
}

impl Establishing {
    fn pending(self) -> Pending<'static, Connection> {
        let channel = self.id.channel().clone();
        Pending::new(OnItsWay { establishing: Some(self), channel })
    }

    /// Handles an event. Returns whether the connection is made.
    fn advance(&mut self, event: Event) -> Result<bool> {
        match (self.step, event.kind) {
            (Step::Address, RDMA_CM_EVENT_ADDR_RESOLVED) => {
                check_queue_pair(&self.id, &self.queue_pair, self.peer)?;
                found(self.id.resolve_route(), self.peer)?;
                self.step = Step::Route;
            }
            (Step::Route, RDMA_CM_EVENT_ROUTE_RESOLVED) => {
                let reads = self.queue_pair.reads_at_once()?;
                self.since = Instant::now();
                self.id.connect(&offer(&self.queue_pair, &self.private_data, reads))?;
                self.step = Step::Response;
            }
            (Step::Response, RDMA_CM_EVENT_CONNECT_RESPONSE) => {
                self.from_peer = PrivateData::received(event.private_data);
                bring_up(&self.id, &self.queue_pair, None)?;
                self.id.establish()?;
                return Ok(true);
            }
            (Step::Confirmation, RDMA_CM_EVENT_ESTABLISHED) => return Ok(true),
            _ => not_failed(event, self.peer, self.since)?,
        }
        Ok(false)
    }

    /// Handles the events there are. Returns whether the connection is made.
    fn look(&mut self) -> Result<bool> {
        let mut failed = None;
        while let Some(event) = self.id.next()? {
            match (self.advance(event), &failed) {
                (Ok(false), _) => {}
                // The peer may have changed its mind meanwhile. The next event says so.
                (Err(error @ Error::Verb { .. }), None) => failed = Some(error),
                (outcome @ (Ok(true) | Err(Error::Connection(_))), _) => return outcome,
                (Err(_), _) => {}
            }
        }
        failed.map_or(Ok(false), Err)
    }
}

/// A connection that is being made, until it is made or has failed.
struct OnItsWay {
    establishing: Option<Establishing>,
    /// The id's channel. A caller that watches its descriptor may still use it after the id has gone.
    channel: Arc<Channel>,
}

impl Arrival for OnItsWay {
    type Output = Connection;

    fn take(&mut self) -> Result<Option<Connection>> {
        let establishing = self.establishing.as_mut().expect(ASKED_AGAIN);
        let there = match establishing.look() {
            Ok(false) => return Ok(None),
            outcome => outcome,
        };
        let Establishing { id, queue_pair, peer, from_peer, .. } =
            self.establishing.take().expect("it was looked at just now");
        there?;
        let queue_pair = QueuePair { inner: queue_pair.connected(), state: PhantomData };
        Ok(Some(Connection::new(id, queue_pair, from_peer, peer)))
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    fn data_has_come(&self) -> Result<()> {
        // After the result has come, there is nothing left to tell.
        self.establishing.as_ref().map_or(Ok(()), |establishing| establishing.id.data_has_come())
    }
}
