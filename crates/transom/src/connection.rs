//! Connections that the connection manager has made.

use crate::cm::Id;
use crate::pending::Arrival;
use crate::{Connected, Pending, PrivateData, QueuePair, Result};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use transom_abi::*;

/// A connection with a peer that was found by its address. From
/// [`Connector::connect`](crate::Connector::connect) or
/// [`ConnectionRequest::accept`](crate::ConnectionRequest::accept).
///
/// It dereferences to its [`QueuePair`].
///
/// # Its end
/// It ends when you drop it, even if clones of the queue pair exist. The peer is told, and requests that are
/// outstanding here end with [`Status::Flushed`](crate::Status::Flushed). So wait for their completions first if the
/// peer must have them.
///
/// It also ends when the peer disconnects or dies. Only the [`disconnection`](Self::disconnection) tells you so. Until
/// you wait for it, poll it or await it, the queue pair works for no peer, and receives stay outstanding forever. The
/// peer gets no answer: it asks for the end again and again, and waits for more than a minute. **A client must await
/// the end of its connection** beside everything else that it awaits, and so must a server:
///
/// ```
/// use std::thread;
/// use transom::{CompletionQueue, Listener, ProtectionDomain, Provider, QueuePair};
///
/// let provider = Provider::software();
/// let context = transom::devices(&provider)?[0].open()?;
/// let pd = ProtectionDomain::new(&context)?;
/// let cq = CompletionQueue::new(&context, 64)?;
/// let builder = QueuePair::builder(&pd, &cq);
/// let listener = Listener::bind(&provider, "127.0.0.1:0".parse().unwrap())?;
/// let address = listener.local_address();
/// let at_server = builder.build()?;
/// let server = thread::spawn(move || {
///     let mut connection = listener.accept().wait()?.accept(at_server, b"")?.wait()?;
///     connection.disconnect()?;
///     // It ends once the client has seen it.
///     connection.disconnection().wait()
/// });
///
/// let mut connection = builder.connect_to(address)?;
/// let message = connection.receive(&[])?;
/// connection.disconnection().wait()?;
/// assert!(message.wait().is_err());
/// server.join().unwrap()?;
/// # Ok::<(), transom::Error>(())
/// ```
pub struct Connection {
    /// Declared first, so that it is dropped before the id.
    queue_pair: QueuePair<Connected>,
    private_data: PrivateData,
    peer: SocketAddr,
    ended: bool,
    id: Id,
}

impl Connection {
    pub(crate) fn new(
        id: Id,
        queue_pair: QueuePair<Connected>,
        private_data: PrivateData,
        peer: SocketAddr,
    ) -> Self {
        Self { queue_pair, private_data, peer, ended: false, id }
    }

    /// Its queue pair. Use clones of it where you cannot use the connection, for example in other threads.
    pub fn queue_pair(&self) -> &QueuePair<Connected> {
        &self.queue_pair
    }

    /// The private data that the peer's program sent with its request or its acceptance.
    pub fn private_data(&self) -> &PrivateData {
        &self.private_data
    }

    /// The peer's address.
    pub fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    /// The address at this end.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.id.local_address()
    }

    /// The end of the connection: the peer has disconnected or died, or has confirmed a
    /// [`disconnect`](Self::disconnect), or the device has gone. The queue pair is then in the error state.
    ///
    /// The connection's own descriptor ([`AsFd`], [`AsRawFd`]) is also readable when there is an event.
    pub fn disconnection(&mut self) -> Pending<'_, ()> {
        Pending::new(Disconnection { connection: self })
    }

    /// Ends the connection without waiting for the peer. The peer is told, and the queue pair is in the error
    /// state.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb) if the device refuses; EINVAL if the connection has already ended.
    pub fn disconnect(&mut self) -> Result<()> {
        self.queue_pair.fail()?;
        self.id.disconnect()
    }
}

impl Deref for Connection {
    type Target = QueuePair<Connected>;

    fn deref(&self) -> &QueuePair<Connected> {
        &self.queue_pair
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.as_fd()
    }
}

impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Clones may hold the queue pair.
        self.queue_pair.inner.give_up();
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("queue_pair", &self.queue_pair)
            .field("peer", &self.peer)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl Pending<'_, Connection> {
    /// Call this if data of the peer have come on the queue pair that you accepted the request with: a receive has
    /// succeeded, or the device has reported
    /// [`CommunicationEstablished`](crate::AsyncEventKind::CommunicationEstablished). Then the peer has the acceptance,
    /// and the connection is made, even if the peer's confirmation is lost or late; see `rdma_notify(3)`. Wait for the
    /// [`Pending`] afterwards as usual.
    ///
    /// You need the [`Pending`] itself for this, so call it between two looks at it: after a
    /// [`wait_timeout`](Self::wait_timeout), a [`try_wait`](Self::try_wait) or a poll that brought nothing. If it has
    /// already given the connection, or has failed, this does nothing.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb), EINVAL if this end asked for the connection, so no data can have
    /// come.
    pub fn data_has_come(&self) -> Result<()> {
        self.tell_of_data()
    }
}

/// The end of a connection. The connection remembers it.
struct Disconnection<'a> {
    connection: &'a mut Connection,
}

impl Arrival for Disconnection<'_> {
    type Output = ();

    fn take(&mut self) -> Result<Option<()>> {
        let Connection { id, queue_pair, ended, .. } = &mut *self.connection;
        while !*ended {
            let Some(event) = id.next()? else { return Ok(None) };
            // A peer that gives up at the last moment refuses a connection that this end already has.
            if matches!(
                event.kind,
                RDMA_CM_EVENT_DISCONNECTED
                    | RDMA_CM_EVENT_REJECTED
                    | RDMA_CM_EVENT_UNREACHABLE
                    | RDMA_CM_EVENT_DEVICE_REMOVAL
            ) {
                *ended = true;
                let failed = queue_pair.fail();
                // A queue pair whose device has gone cannot be moved to the error state.
                if event.kind != RDMA_CM_EVENT_DEVICE_REMOVAL {
                    failed?;
                }
                // Without this the peer would ask again and again. If it did not ask, there is nothing to
                // confirm.
                let _ = id.disconnect();
            }
        }
        Ok(Some(()))
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
