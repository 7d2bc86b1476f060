//! Connections that the connection manager has made.

use crate::cm::Id;
use crate::pending::Arrival;
use crate::{Connected, Pending, PrivateData, QueuePair, Result};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use transom_abi::*;

/// A connection with a peer, found by its address; from [`Connector::connect`](crate::Connector::connect)
/// or [`ConnectionRequest::accept`](crate::ConnectionRequest::accept).
///
/// It dereferences to its [`QueuePair`].
///
/// # Its end
/// It ends when it is dropped, whoever has clones of the queue pair: the peer is told, and what is outstanding
/// here ends with [`Status::Flushed`](crate::Status::Flushed). So wait for the completion of what the peer is to have.
///
/// It ends too when the peer disconnects or dies. Nothing tells this end of it but the
/// [`disconnection`](Self::disconnection): until somebody waits for that, asks or awaits, the queue pair
/// works on toward nobody, receives stay outstanding for ever, and the peer is not answered, which asks for the end
/// again and again and waits for more than a minute. **A client must await the end of its connection** beside all
/// else that it awaits, as a server must:
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
///     // It is over once the client has seen it.
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
    /// Gone before the id.
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

    /// Its queue pair. Clones of it can be used where this is not, in other threads for example.
    pub fn queue_pair(&self) -> &QueuePair<Connected> {
        &self.queue_pair
    }

    /// What the peer's program sent with its request, or with its acceptance.
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

    /// The end of the connection: that the peer has disconnected or died, or has confirmed a
    /// [`disconnect`](Self::disconnect), or that the device has gone. The queue pair is in error then.
    ///
    /// The connection's own descriptor ([`AsFd`], [`AsRawFd`]) is readable when there is something to see, too.
    pub fn disconnection(&mut self) -> Pending<'_, ()> {
        Pending::new(Disconnection { connection: self })
    }

    /// Ends the connection, without waiting for the peer: it is told, and the queue pair is in error.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb) if the device refuses; EINVAL if the connection has
    /// ended already.
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
        // Clones may hold the queue pair. If the device refuses, it is gone itself.
        let _ = self.queue_pair.fail();
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
    /// Tells that data of the peer's have come over the queue pair that a request was accepted with: a receive
    /// has ended well, or the device has said
    /// [`CommunicationEstablished`](crate::AsyncEventKind::CommunicationEstablished). So the peer
    /// has the acceptance, and the connection is there, though the peer's confirmation may be lost or late; see
    /// `rdma_notify(3)`. Wait for it afterwards as ever. Once that has told that the connection is there, or has
    /// failed, this does nothing: data may be heard of by somebody else than who waits.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb), EINVAL if the peer's data cannot have come, for it is this end
    /// that asks for the connection.
    pub fn data_has_come(&self) -> Result<()> {
        self.tell_of_data()
    }
}

/// The end of a connection, which is remembered.
struct Disconnection<'a> {
    connection: &'a mut Connection,
}

impl Arrival for Disconnection<'_> {
    type Output = ();

    fn take(&mut self) -> Result<Option<()>> {
        let Connection { id, queue_pair, ended, .. } = &mut *self.connection;
        while !*ended {
            let Some(event) = id.next()? else { return Ok(None) };
            // A peer that has given up at the last moment refuses what is there at this end already.
            if matches!(
                event.kind,
                RDMA_CM_EVENT_DISCONNECTED
                    | RDMA_CM_EVENT_REJECTED
                    | RDMA_CM_EVENT_UNREACHABLE
                    | RDMA_CM_EVENT_DEVICE_REMOVAL
            ) {
                *ended = true;
                let failed = queue_pair.fail();
                // What goes with its device cannot be put into error any more.
                if event.kind != RDMA_CM_EVENT_DEVICE_REMOVAL {
                    failed?;
                }
                // The peer would ask again and again. If it did not ask, there is nothing to confirm.
                let _ = id.disconnect();
            }
        }
        Ok(Some(()))
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
