//! Requests that are being accepted.

use crate::cm::Id;
use crate::connecting::{
    bring_up, check_queue_pair, check_service, marked, no_connection, offer, until_confirmed,
};
use crate::unconnected::Unconnected;
use crate::{
    Connected, Connection, ConnectionProblem, Error, Initialized, Pending, PrivateData, QueuePair,
    Result,
};
use rustix::io::Errno;
use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;

/// The length of the private data in an acceptance, in bytes.
const ACCEPTANCE: usize = 196;

/// A request that is being accepted. Its queue pair is connected, and the peer does not know it yet. From
/// [`ConnectionRequest::prepare`](crate::ConnectionRequest::prepare).
///
/// Use it to do work that needs a connected queue pair before the peer is told. For example, bind a window, and send
/// its grant with the acceptance. Dropping this refuses the request.
///
/// ```
/// # use std::thread;
/// use transom::{
///     Access, CompletionQueue, Grant, Listener, MemoryRegion, ProtectionDomain, Provider,
///     QueuePair, Rights, Type2, Window,
/// };
///
/// let provider = Provider::software();
/// let context = transom::devices(&provider)?[0].open()?;
/// let pd = ProtectionDomain::new(&context)?;
/// let cq = CompletionQueue::new(&context, 16)?;
/// let listener = Listener::bind(&provider, "127.0.0.1:0".parse().unwrap())?;
/// # let builder = QueuePair::builder(&pd, &cq);
/// # let server = listener.local_address();
/// # let client = thread::spawn(move || -> transom::Result<()> {
/// #     let connection = builder.connect_to(server)?;
/// #     let grant = connection.private_data().first_chunk().expect("a grant");
/// #     connection.write(b"over the transom", Grant::from_bytes(grant)?)?.wait()?;
/// #     Ok(())
/// # });
///
/// let region = MemoryRegion::register(&pd, vec![0; 16], Access::LOCAL_WRITE | Access::MW_BIND)?;
/// let accepting = listener.accept().wait()?.prepare(QueuePair::builder(&pd, &cq).build()?)?;
/// let window = Window::<Type2>::alloc(&pd)?;
/// let window = window.bind(accepting.queue_pair(), &region.all(), Rights::WRITE)?.wait()?;
/// let mut connection = accepting.accept(&window.grant().to_bytes())?.wait()?;
///
/// // The client takes the grant from `Connection::private_data`, and writes without a message before.
/// connection.disconnection().wait()?;
/// window.revoke()?;
/// assert_eq!(region.deregister()?, b"over the transom");
/// # client.join().unwrap()?;
/// # Ok::<(), transom::Error>(())
/// ```
#[must_use = "the request is refused unless it is accepted"]
pub struct Accepting {
    id: Id,
    /// For the same queue pair. Makes it fail, even if clones exist, unless the connection is made.
    own: Unconnected,
    queue_pair: QueuePair<Connected>,
    peer: SocketAddr,
    from_peer: PrivateData,
    /// The numbers of reads at once that this end has chosen.
    reads: (u8, u8),
}

impl Accepting {
    /// The queue pair, which is connected. Its messages reach the peer after the peer has the acceptance.
    pub fn queue_pair(&self) -> &QueuePair<Connected> {
        &self.queue_pair
    }

    /// Accepts the request, and sends up to 194 bytes to the peer's program ([why not more](PrivateData)). Wait for the
    /// [`Pending`] to get the connection.
    ///
    /// # Errors
    /// [`Error::PrivateDataTooLong`]; [`Error::Connection`] if the peer does not wait any more
    /// ([`GaveUp`](crate::ConnectionProblem::GaveUp)); [`Error::Verb`] if the device refuses.
    pub fn accept(self, private_data: &[u8]) -> Result<Pending<'static, Connection>> {
        let Self { id, own: queue_pair, peer, from_peer, reads, .. } = self;
        let private_data = marked(private_data, ACCEPTANCE)?;
        id.accept(&offer(&queue_pair, &private_data, reads))
            .map_err(|error| unless_gone(error, peer))?;
        Ok(until_confirmed(id, queue_pair, peer, from_peer))
    }
}

impl fmt::Debug for Accepting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accepting")
            .field("queue_pair", &self.queue_pair)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// Connects a queue pair to the peer of a request. `reads` is the peer's request: how many reads at once it wants to
/// make, and how many it allows.
pub(crate) fn prepare(
    id: Id,
    queue_pair: QueuePair<Initialized>,
    peer: SocketAddr,
    from_peer: PrivateData,
    reads: (u8, u8),
) -> Result<Accepting> {
    let own = Unconnected::new(queue_pair.inner.clone());
    check_service(&own)?;
    check_queue_pair(&id, &own, peer)?;
    let able = own.reads_at_once()?;
    let reads = (reads.0.min(able.0), reads.1.min(able.1));
    bring_up(&id, &own, Some(reads)).map_err(|error| unless_gone(error, peer))?;
    let queue_pair = QueuePair { inner: queue_pair.inner, state: PhantomData };
    Ok(Accepting { id, own, queue_pair, peer, from_peer, reads })
}

/// Interprets the failure of a step. If the id is no longer in the state of a request, the peer does not wait
/// any more.
fn unless_gone(error: Error, peer: SocketAddr) -> Error {
    match &error {
        Error::Verb { verb: "rdma_init_qp_attr" | "rdma_accept", errno, .. }
            if *errno == Errno::INVAL.raw_os_error() =>
        {
            no_connection(peer, ConnectionProblem::GaveUp)
        }
        _ => error,
    }
}
