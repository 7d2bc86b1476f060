//! Listeners, and the requests that arrive at them.

use crate::accepting::prepare;
use crate::cm::{Id, Signal};
use crate::connecting::marked;
use crate::pending::Arrival;
use crate::{
    Accepting, Connected, Connection, Error, Initialized, Pending, PrivateData, Provider,
    QueuePair, QueuePairState, Result,
};
use rustix::io::Errno;
use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Mutex, PoisonError};
use transom_abi::*;

/// The length of the private data in a refusal, in bytes.
const REFUSAL: usize = 148;

/// The length of the private data in an answer about datagrams, including a refusal, in bytes.
pub(crate) const ANSWER: usize = 136;

/// Listens on an address for requests for connections; see `rdma_listen(3)`.
///
/// ```
/// use std::thread;
/// use transom::{
///     Access, CompletionQueue, Connector, Context, Listener, MemoryRegion, ProtectionDomain,
///     Provider, QueuePair, QueuePairBuilder, Result,
/// };
///
/// fn builder(context: &Context) -> Result<QueuePairBuilder> {
///     let pd = ProtectionDomain::new(context)?;
///     Ok(QueuePair::builder(&pd, &CompletionQueue::new(context, 64)?))
/// }
///
/// let provider = Provider::software();
/// let context = transom::devices(&provider)?[0].open()?;
/// let listener = Listener::bind(&provider, "127.0.0.1:0".parse().unwrap())?;
/// let server = listener.local_address();
///
/// // The peer could be any program that uses rdma_cm, in another process or on another host.
/// let peer = thread::spawn({
///     let context = context.clone();
///     move || -> Result<()> {
///         let connector = Connector::new(server).private_data(b"anybody there?");
///         let connection = connector.connect(builder(&context)?.build()?)?.wait()?;
///         assert_eq!(&**connection.private_data(), b"come in");
///         connection.send(b"over the transom")?.wait()?;
///         Ok(())
///     }
/// });
///
/// let request = listener.accept().wait()?;
/// assert_eq!(&**request.private_data(), b"anybody there?");
/// // Post the receive before the acceptance, so that it is there when the peer sends.
/// let pd = ProtectionDomain::new(&context)?;
/// let inbox = MemoryRegion::register(&pd, vec![0; 64], Access::LOCAL_WRITE)?;
/// let queue_pair = QueuePair::builder(&pd, &CompletionQueue::new(&context, 64)?).build()?;
/// let message = queue_pair.receive(&[inbox.all()])?;
/// let mut connection = request.accept(queue_pair, b"come in")?.wait()?;
/// assert_eq!(message.wait()?.length(), 16);
/// connection.disconnection().wait()?;
/// # peer.join().unwrap()?;
/// # Ok::<(), transom::Error>(())
/// ```
pub struct Listener<S: QueuePairState = Connected> {
    /// The descriptor that all waiters watch.
    signal: Signal,
    id: Id,
    /// Whether the device has gone. That event comes once. The lock is held while a request is taken, until the request
    /// has a channel of its own.
    gone: Mutex<bool>,
    state: PhantomData<S>,
}

impl Listener {
    /// Listens on an address of one of the provider's devices, or on the wildcard address for all of them. Port 0 takes
    /// any free port. The ports are those of `rdma_cm`, which are separate from TCP's.
    ///
    /// # Errors
    /// [`Error::Verb`]: EADDRINUSE if somebody already listens there, or EADDRNOTAVAIL if one of the two listens on the
    /// wildcard or a loopback address; EADDRNOTAVAIL or ENODEV if no device has the address; EACCES for a port below
    /// 1024 without the privilege. [`Error::Library`] if the system has no librdmacm.
    pub fn bind(provider: &Provider, address: SocketAddr) -> Result<Self> {
        Self::listen(provider, RDMA_PS_TCP, address)
    }
}

impl<S: QueuePairState> Listener<S> {
    pub(crate) fn listen(
        provider: &Provider,
        port_space: rdma_port_space,
        address: SocketAddr,
    ) -> Result<Self> {
        let id = Id::create(provider, port_space)?;
        id.bind(address)?;
        id.listen()?;
        let signal = Signal::of(id.as_fd())?;
        Ok(Self { signal, id, gone: Mutex::new(false), state: PhantomData })
    }

    /// The address it listens on.
    pub fn local_address(&self) -> SocketAddr {
        self.id.local_address().expect("what listens is bound to an address of IP")
    }

    /// The next request. Any number of threads and tasks can wait for one. Each request goes to one of them. The
    /// listener's own descriptor ([`AsFd`]) is also readable while a request waits. When the device has gone, all who
    /// wait get ENODEV, and so do all later calls. The descriptor then stays readable.
    pub fn accept(&self) -> Pending<'_, ConnectionRequest<S>> {
        Pending::new(Next { listener: self })
    }

    fn take(&self) -> Result<Option<ConnectionRequest<S>>> {
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        if *gone {
            return Err(self.device_gone());
        }
        while let Some(event) = self.id.next()? {
            match event.kind {
                RDMA_CM_EVENT_CONNECT_REQUEST => {
                    // SAFETY: the request came just now.
                    let id = unsafe { Id::of_request(event.id, &self.id) }?;
                    let Some(peer) = id.peer_address() else { continue };
                    let private_data = PrivateData::received(event.private_data);
                    let reads = event.reads;
                    let state = PhantomData;
                    return Ok(Some(ConnectionRequest { private_data, reads, peer, id, state }));
                }
                RDMA_CM_EVENT_DEVICE_REMOVAL => {
                    *gone = true;
                    self.signal.stay();
                    return Err(self.device_gone());
                }
                _ => {}
            }
        }
        Ok(None)
    }

    fn device_gone(&self) -> Error {
        Error::Verb {
            verb: "rdma_listen",
            subject: format!("listening on {}", self.local_address()),
            errno: Errno::NODEV.raw_os_error(),
        }
    }
}

impl<S: QueuePairState> AsFd for Listener<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }
}

impl<S: QueuePairState> AsRawFd for Listener<S> {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl<S: QueuePairState> fmt::Debug for Listener<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Listener").field(&self.id.local_address()).finish()
    }
}

/// The next request of a listener.
struct Next<'a, S: QueuePairState> {
    listener: &'a Listener<S>,
}

impl<S: QueuePairState> Arrival for Next<'_, S> {
    type Output = ConnectionRequest<S>;

    fn take(&mut self) -> Result<Option<ConnectionRequest<S>>> {
        self.listener.take()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// A request from a peer that wants to connect, or to know where to send datagrams. From [`Listener::accept`]. Dropping
/// it refuses the request.
pub struct ConnectionRequest<S: QueuePairState = Connected> {
    private_data: PrivateData,
    /// How many reads at once the peer wants to make, and how many it allows.
    reads: (u8, u8),
    peer: SocketAddr,
    id: Id,
    state: PhantomData<S>,
}

impl<S: QueuePairState> ConnectionRequest<S> {
    /// The private data that the peer's program sent with it.
    pub fn private_data(&self) -> &PrivateData {
        &self.private_data
    }

    /// The peer's address.
    pub fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    /// The address that the peer wants to connect to.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.id.local_address()
    }

    /// The name of the device that the request came through, such as `mlx5_0`. The queue pair that accepts it must
    /// belong to this device.
    pub fn device_name(&self) -> Option<String> {
        self.id.device_name()
    }

    /// Refuses it, with up to 146 bytes for the peer's program, or 134 if it is about datagrams
    /// ([why not more](PrivateData)).
    ///
    /// # Errors
    /// [`Error::PrivateDataTooLong`], and the peer gets a refusal without them; [`Error::Verb`], EINVAL if the peer
    /// does not wait any more.
    pub fn reject(self, private_data: &[u8]) -> Result<()> {
        let carried = if self.id.is_for_datagrams() { ANSWER } else { REFUSAL };
        self.id.reject(&marked(private_data, carried)?)
    }

    pub(crate) fn asked(&self) -> (&Id, SocketAddr) {
        (&self.id, self.peer)
    }
}

impl ConnectionRequest {
    /// Accepts it with a queue pair, and up to 194 bytes for the peer's program ([why not more](PrivateData)). If the
    /// peer sends at once, post receives before. Wait for the [`Pending`] to get the connection. To send the grant of a
    /// window with the acceptance, use [`prepare`](Self::prepare).
    ///
    /// If this or the connection fails or you give it up, the request is refused, and requests that you posted to the
    /// queue pair end with [`Status::Flushed`](crate::Status::Flushed).
    ///
    /// # Errors
    /// [`Error::PrivateDataTooLong`]; [`Error::UnreliableConnection`] if the queue pair is not a reliable connection;
    /// [`Error::OtherContext`] if the queue pair belongs to another provider than the listener; [`Error::Connection`] if
    /// it belongs to another device or port, or if the peer does not wait any more
    /// ([`GaveUp`](crate::ConnectionProblem::GaveUp)); [`Error::Verb`] if the device refuses.
    pub fn accept(
        self,
        queue_pair: QueuePair<Initialized>,
        private_data: &[u8],
    ) -> Result<Pending<'static, Connection>> {
        self.prepare(queue_pair)?.accept(private_data)
    }

    /// Connects a queue pair to the peer. The peer is not told before you [accept](Accepting::accept). Between the two
    /// calls you can use the connected queue pair, for example to bind the window whose grant the acceptance carries.
    ///
    /// If this fails or you give it up, the request is refused, and requests that you posted to the queue pair end with
    /// [`Status::Flushed`](crate::Status::Flushed).
    ///
    /// # Errors
    /// As [`accept`](Self::accept), except for the private data.
    pub fn prepare(self, queue_pair: QueuePair<Initialized>) -> Result<Accepting> {
        let Self { private_data, reads, peer, id, .. } = self;
        prepare(id, queue_pair, peer, private_data, reads)
    }
}

impl<S: QueuePairState> fmt::Debug for ConnectionRequest<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionRequest")
            .field("peer", &self.peer)
            .field("private_data", &self.private_data)
            .finish_non_exhaustive()
    }
}
