//! Connections being made.

use crate::cm::{Channel, Event, Id, Offer};
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

/// The bytes that a request for a connection carries for programs.
const REQUEST: usize = 56;

/// Connects queue pairs to who [listens](crate::Listener) on an address.
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

    /// The address at this end, by which its device is chosen; otherwise the system's routes say.
    /// With port 0 any free one is taken.
    pub fn source(mut self, address: SocketAddr) -> Self {
        self.source = Some(address);
        self
    }

    /// What the peer's program is told with the request: up to 54 bytes
    /// ([why not more](PrivateData)).
    pub fn private_data(mut self, data: &[u8]) -> Self {
        self.private_data = data.to_vec();
        self
    }

    /// Begins to connect a queue pair, which must be of the device that leads to the address. The
    /// connection is there once it was [waited for](Pending).
    ///
    /// How long a peer may take that does not answer is up to the connection manager (on Linux more than
    /// a minute); to wait for less, give up earlier. If this or the connection fails or is given up, so is
    /// the queue pair: what was posted to it ends with [`Status::Flushed`](crate::Status::Flushed).
    ///
    /// # Errors
    /// [`Error::PrivateDataTooLong`]; [`Error::UnreliableConnection`] if it is no reliable
    /// connection; [`Error::Connection`] if no device leads there; [`Error::Library`] if the system has
    /// no librdmacm; [`Error::Verb`] if there is no descriptor to be had, or the device refuses.
    ///
    /// What else there may be is told when it is waited for: [`Error::Connection`], with what was in the
    /// way.
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

    /// An id that looks for the device.
    pub(crate) fn begin(&self, provider: &Provider, port_space: rdma_port_space) -> Result<Id> {
        let id = Id::create(provider, port_space)?;
        found(id.resolve_address(self.source, self.address), self.address)?;
        Ok(id)
    }
}

/// Judges a call that looks for a way to the peer: what cannot even begin leads nowhere.
pub(crate) fn found(begun: Result<()>, peer: SocketAddr) -> Result<()> {
    begun.map_err(|error| match error {
        Error::Verb { errno, .. } => no_connection(peer, ConnectionProblem::NoRoute { errno }),
        _ => error,
    })
}

impl QueuePairBuilder<Initialized> {
    /// Builds a queue pair, and connects it to who listens on this address: [`build`](Self::build) and
    /// [`Connector::connect`] in one, until the connection is there.
    ///
    /// # Errors
    /// As both have, and [`Error::Connection`].
    pub fn connect_to(&self, address: SocketAddr) -> Result<Connection> {
        Connector::new(address).connect(self.build()?)?.wait()
    }
}

/// A request whose acceptance was sent, until the peer has it.
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

pub(crate) fn check_device(id: &Id, queue_pair: &CreatedQueuePair, peer: SocketAddr) -> Result<()> {
    let port = queue_pair.creation.port;
    id.check_device(queue_pair.device(), Some(port)).map_err(|problem| no_connection(peer, problem))
}

/// The connection manager's transport for TCP's port space is the reliable connection.
pub(crate) fn check_service(queue_pair: &CreatedQueuePair) -> Result<()> {
    match queue_pair.creation.service {
        IBV_QPT_RC => Ok(()),
        _ => Err(Error::UnreliableConnection),
    }
}

/// Private data as they are sent.
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

/// Brings the queue pair from INIT to RTS, as the id says; `reads` is what this end has settled on.
pub(crate) fn bring_up(
    id: &Id,
    queue_pair: &CreatedQueuePair,
    reads: Option<(u8, u8)>,
) -> Result<()> {
    // INIT once more, for now it is known what the peer may do.
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

/// Judges an event that is none of those that were waited for: what it may have said is in the way.
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
        // A reason is one of 16 bits.
        RDMA_CM_EVENT_REJECTED => rejected(event.status as u16),
        // Of a service of datagrams: its status.
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

/// A connection on its way.
struct Establishing {
    step: Step,
    id: Id,
    queue_pair: Unconnected,
    peer: SocketAddr,
    /// When the peer was asked.
    since: Instant,
    /// What the peer is to be told, as it is sent.
    private_data: Vec<u8>,
    from_peer: PrivateData,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The device that leads to the peer.
    Address,
    /// The path to the peer.
    Route,
    /// The peer's acceptance.
    Response,
    /// That the peer has the acceptance.
    Confirmation,
}

impl Establishing {
    fn pending(self) -> Pending<'static, Connection> {
        let channel = self.id.channel().clone();
        Pending::new(OnItsWay { establishing: Some(self), channel })
    }

    /// Takes what has happened into account; whether the connection is there.
    fn advance(&mut self, event: Event) -> Result<bool> {
        match (self.step, event.kind) {
            (Step::Address, RDMA_CM_EVENT_ADDR_RESOLVED) => {
                check_device(&self.id, &self.queue_pair, self.peer)?;
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

    /// Whether the connection is there, by the events there are.
    fn look(&mut self) -> Result<bool> {
        let mut failed = None;
        while let Some(event) = self.id.next()? {
            match (self.advance(event), &failed) {
                (Ok(false), _) => {}
                // The peer may have changed its mind meanwhile, which the next event tells.
                (Err(error @ Error::Verb { .. }), None) => failed = Some(error),
                (outcome @ (Ok(true) | Err(Error::Connection(_))), _) => return outcome,
                (Err(_), _) => {}
            }
        }
        failed.map_or(Ok(false), Err)
    }
}

/// A connection on its way, until it is there or has failed.
struct OnItsWay {
    establishing: Option<Establishing>,
    /// Its id's, which who watches the descriptor may still have when the id has gone.
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
        // Whoever has waited for it knows more already.
        self.establishing.as_ref().map_or(Ok(()), |establishing| establishing.id.data_has_come())
    }
}
