//! Datagram queue pairs that peers find by address (SIDR).

use crate::cm::{Channel, Event, Id, Offer};
use crate::connecting::{Connector, check_device, check_queue_pair, found, marked, not_failed};
use crate::domain::AllocatedDomain;
use crate::error::non_null;
use crate::listener::ANSWER;
use crate::pending::{ASKED_AGAIN, Arrival};
use crate::{
    AddressHandle, ConnectionRequest, Datagram, Destination, Error, Listener, Pending, PrivateData,
    ProtectionDomain, Provider, QueuePair, Result,
};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;
use transom_abi::*;

/// The length of the private data in the request for a service, in bytes.
const QUESTION: usize = 180;

/// A queue pair for datagrams, found by its address. From [`Connector::find_datagrams`].
#[derive(Clone, Debug)]
pub struct DatagramService {
    /// The destination for datagrams to it.
    pub destination: Destination,
    /// The private data of its program.
    pub private_data: PrivateData,
}

impl Destination {
    /// The key of all queue pairs that are found by address. The connection manager uses this one for all.
    pub const SERVICE_QKEY: u32 = RDMA_UDP_QKEY;
}

/// Datagrams have no connection. A peer that asks for the address of a service gets a destination for its datagrams,
/// and nothing more.
///
/// ```
/// use std::thread;
/// use transom::{
///     Access, CompletionQueue, Connector, Destination, Listener, MemoryRegion, ProtectionDomain,
///     Provider, QueuePair,
/// };
///
/// let provider = Provider::software();
/// let context = transom::devices(&provider)?[0].open()?;
/// let pd = ProtectionDomain::new(&context)?;
/// let cq = CompletionQueue::new(&context, 16)?;
/// let builder = QueuePair::datagram(&pd, &cq).qkey(Destination::SERVICE_QKEY);
/// let (client, server) = (builder.build()?, builder.build()?);
/// let inbox = MemoryRegion::register(&pd, vec![0; 104], Access::LOCAL_WRITE)?;
/// let received = server.receive(&inbox.all())?;
///
/// let listener = Listener::datagrams(&provider, "127.0.0.1:0".parse().unwrap())?;
/// let finding = Connector::new(listener.local_address()).find_datagrams(&pd)?;
/// let asking = thread::spawn(move || finding.wait());
/// listener.accept().wait()?.accept(&server, b"at your service")?;
///
/// let service = asking.join().unwrap()?;
/// assert_eq!(&*service.private_data, b"at your service");
/// client.send(&service.destination, b"over the transom")?.wait()?;
/// assert_eq!(received.wait()?.to_vec(), b"over the transom");
/// # Ok::<(), transom::Error>(())
/// ```
impl Listener<Datagram> {
    /// Listens on an address for peers that look for a queue pair for datagrams. Its ports are separate from the ports
    /// of connections, and from UDP ports.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub fn datagrams(provider: &Provider, address: SocketAddr) -> Result<Self> {
        Self::listen(provider, RDMA_PS_UDP, address)
    }
}

impl ConnectionRequest<Datagram> {
    /// Sends this queue pair to the peer, with up to 134 bytes for its program ([why not more](PrivateData)). The queue
    /// pair's key must be [`Destination::SERVICE_QKEY`].
    ///
    /// # Errors
    /// [`Error::PrivateDataTooLong`]; [`Error::ServiceQkey`] if the queue pair has another key;
    /// [`Error::OtherContext`] if it belongs to another provider than the listener; [`Error::Connection`] if it belongs
    /// to another device or port; [`Error::Verb`] if the peer already has an answer, or the device refuses.
    pub fn accept(self, queue_pair: &QueuePair<Datagram>, private_data: &[u8]) -> Result<()> {
        let private_data = &marked(private_data, ANSWER)?;
        let (created, (id, peer)) = (&queue_pair.inner, self.asked());
        if created.creation.qkey != Destination::SERVICE_QKEY {
            return Err(Error::ServiceQkey { given: created.creation.qkey });
        }
        check_queue_pair(id, created, peer)?;
        id.accept(&Offer { private_data, queue_pair: queue_pair.number(), ..Offer::NOTHING })
    }
}

impl Connector {
    /// Begins to look for the datagram queue pair of a [listener](Listener::datagrams) on the address. Queue pairs of
    /// this domain can then reach it. The private data may be up to 178 bytes.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn find_datagrams(
        &self,
        pd: &ProtectionDomain,
    ) -> Result<Pending<'static, DatagramService>> {
        let private_data = marked(self.data(), QUESTION)?;
        let (id, peer) = (self.begin(&pd.inner.device.provider, RDMA_PS_UDP)?, self.address());
        let (domain, since) = (pd.inner.clone(), Instant::now());
        let channel = id.channel().clone();
        let asking = Some(Asking { id, domain, peer, since, private_data });
        Ok(Pending::new(Finding { asking, channel }))
    }
}

/// A service that was asked for.
struct Asking {
    id: Id,
    domain: Arc<AllocatedDomain>,
    peer: SocketAddr,
    /// The time when the peer was asked.
    since: Instant,
    private_data: Vec<u8>,
}

impl Asking {
    /// Handles an event. Returns the service if this event brings it.
    fn advance(&mut self, event: Event) -> Result<Option<DatagramService>> {
        match (event.kind, event.datagrams) {
            (RDMA_CM_EVENT_ADDR_RESOLVED, _) => {
                check_device(&self.id, &self.domain.device, None, self.peer)?;
                found(self.id.resolve_route(), self.peer)?;
            }
            (RDMA_CM_EVENT_ROUTE_RESOLVED, _) => {
                self.since = Instant::now();
                self.id.connect(&Offer { private_data: &self.private_data, ..Offer::NOTHING })?;
            }
            (RDMA_CM_EVENT_ESTABLISHED, Some(found)) => {
                let private_data = PrivateData::received(event.private_data);
                let destination = self.destination(found)?;
                return Ok(Some(DatagramService { destination, private_data }));
            }
            _ => not_failed(event, self.peer, self.since)?,
        }
        Ok(None)
    }

    fn destination(&self, mut found: rdma_ud_param) -> Result<Destination> {
        let create = self.domain.device.provider.verbs.ibv_create_ah;
        // SAFETY: the domain is allocated, and the attributes are those of its device.
        let ah = unsafe { create(self.domain.pd, &raw mut found.ah_attr) };
        let subject = format_args!("making an address handle for {}", self.peer);
        let ah = non_null("ibv_create_ah", subject, ah)?.as_ptr();
        // SAFETY: it was made just now.
        let address = unsafe { AddressHandle::from_raw(ah, self.domain.clone()) };
        Ok(Destination { address, queue_pair: found.qp_num, qkey: found.qkey })
    }

    fn look(&mut self) -> Result<Option<DatagramService>> {
        while let Some(event) = self.id.next()? {
            if let Some(service) = self.advance(event)? {
                return Ok(Some(service));
            }
        }
        Ok(None)
    }
}

/// The search for a service, until it ends.
struct Finding {
    asking: Option<Asking>,
    /// Kept apart from `asking`, as for a connection that is being made.
    channel: Arc<Channel>,
}

impl Arrival for Finding {
    type Output = DatagramService;

    fn take(&mut self) -> Result<Option<DatagramService>> {
        let outcome = self.asking.as_mut().expect(ASKED_AGAIN).look();
        if !matches!(outcome, Ok(None)) {
            self.asking = None;
        }
        outcome
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
