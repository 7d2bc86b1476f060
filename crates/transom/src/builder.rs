//! Builds queue pairs.

use crate::created_queue_pair::{CreatedQueuePair, Creation, Parts};
use crate::{
    CompletionQueue, Connectable, Connected, Datagram, Initialized, ProtectionDomain, QueuePair,
    QueuePairState, Result, SharedReceiveQueue, XrcDomain, XrcInitialized, XrcTarget,
};
use std::marker::PhantomData;
use std::sync::Arc;
use transom_abi::*;

/// The service of a connected queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// RC: every request arrives, once and in order, or fails.
    ReliableConnection,
    /// UC: sends and writes only. A message that is lost or refused is lost silently.
    UnreliableConnection,
}

/// Builds a [`QueuePair`]. You get one from [`QueuePair::builder`], [`QueuePair::datagram`],
/// [`QueuePair::xrc_initiator`] or [`QueuePair::xrc_target`].
///
/// The defaults are port 1, GID 0, room for 64 sends and 64 receives of 4 slices each, and 64 bytes of inline
/// data.
///
/// ```
/// # let context = transom::devices(&transom::Provider::software())?[0].open()?;
/// # let pd = transom::ProtectionDomain::new(&context)?;
/// # let cq = transom::CompletionQueue::new(&context, 16)?;
/// use transom::{QueuePair, Service};
///
/// let builder = QueuePair::builder(&pd, &cq).max_sends(8).max_receives(8).max_inline(128);
/// let reliable = builder.build()?;
/// let unreliable = builder.clone().service(Service::UnreliableConnection).build()?;
/// # Ok::<(), transom::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct QueuePairBuilder<S: QueuePairState = Initialized> {
    parts: Parts,
    creation: Creation,
    batches: bool,
    atomic_writes: bool,
    state: PhantomData<S>,
}

impl QueuePair<Initialized> {
    /// Begins a queue pair. All its completions go to one queue.
    pub fn builder(pd: &ProtectionDomain, completions: &CompletionQueue) -> QueuePairBuilder {
        QueuePairBuilder::connected(pd, completions)
    }
}

impl QueuePairBuilder<Initialized> {
    /// A reliable connection.
    fn connected(pd: &ProtectionDomain, completions: &CompletionQueue) -> Self {
        Self::new(receiving(pd, completions), IBV_QPT_RC)
    }

    /// Sets the service. The default is a reliable connection.
    pub fn service(mut self, service: Service) -> Self {
        self.creation.service = match service {
            Service::ReliableConnection => IBV_QPT_RC,
            Service::UnreliableConnection => IBV_QPT_UC,
        };
        self
    }

    /// Sets another queue for the completions of receives.
    pub fn receive_completions(mut self, queue: &CompletionQueue) -> Self {
        self.parts.receives = Some(queue.inner.clone());
        self
    }

    /// Makes it take its receives from a shared receive queue. They complete into that queue's completion queue, and
    /// the queue pair has no receive queue of its own. Not for an unreliable connection (rule CR-07).
    pub fn shared_receives(self, queue: &SharedReceiveQueue<Connected>) -> Self {
        self.sharing(queue)
    }
}

impl QueuePairBuilder<Datagram> {
    pub(crate) fn datagram(pd: &ProtectionDomain, completions: &CompletionQueue) -> Self {
        Self::new(receiving(pd, completions), IBV_QPT_UD)
    }

    /// Sets the key that datagrams to it must name. The device drops others (rule UD-05). The default is 0. Keys with
    /// the highest bit set are not for programs.
    pub fn qkey(mut self, qkey: u32) -> Self {
        self.creation.qkey = qkey;
        self
    }

    /// Sets another queue for the completions of receives.
    pub fn receive_completions(mut self, queue: &CompletionQueue) -> Self {
        self.parts.receives = Some(queue.inner.clone());
        self
    }

    /// Makes it take its receives from a shared receive queue. They complete into that queue's completion queue, and
    /// the queue pair has no receive queue of its own.
    pub fn shared_receives(self, queue: &SharedReceiveQueue<Datagram>) -> Self {
        self.sharing(queue)
    }
}

/// How it sends once it is connected.
impl<S: Connectable> QueuePairBuilder<S> {
    /// Sets how often a reliable connection repeats a message for which the peer has posted no receive: 0 to 6 times.
    /// Before each time it waits as long as the peer says. After the last, the request fails with
    /// [`Status::ReceiverNotReady`](crate::Status::ReceiverNotReady), and the queue pair is in error.
    ///
    /// 7 stands for no end: the message waits until there is a receive. This is the default, except that a connection
    /// manager lets the peer choose it. Peers of this crate choose 7.
    ///
    /// ```
    /// # let context = transom::devices(&transom::Provider::software())?[0].open()?;
    /// # let pd = transom::ProtectionDomain::new(&context)?;
    /// # let cq = transom::CompletionQueue::new(&context, 16)?;
    /// use transom::{Error, QueuePair, Status};
    ///
    /// let builder = QueuePair::builder(&pd, &cq).receiver_not_ready_retries(3);
    /// # let (a, b) = (builder.build()?, builder.build()?);
    /// # let (at_a, at_b) = (a.endpoint(), b.endpoint());
    /// # let (a, b) = (a.connect(&at_b)?, b.connect(&at_a)?);
    /// match a.send(b"nobody receives it")?.wait() {
    ///     Err(Error::Work(error)) => assert_eq!(error.status, Status::ReceiverNotReady),
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok::<(), transom::Error>(())
    /// ```
    pub fn receiver_not_ready_retries(mut self, times: u8) -> Self {
        self.creation.receiver_not_ready_retries = Some(times);
        self
    }

    /// Sets the traffic class of its packets. On Ethernet (RoCE) it becomes that of IP (rule NET-07). The default is 0
    /// or, with a connection manager, the one that the system is set to.
    pub fn traffic_class(mut self, class: u8) -> Self {
        self.creation.traffic_class = Some(class);
        self
    }
}

impl QueuePairBuilder<XrcInitialized> {
    pub(crate) fn xrc_initiator(pd: &ProtectionDomain, completions: &CompletionQueue) -> Self {
        Self::new(sending(pd, completions), IBV_QPT_XRC_SEND)
    }
}

impl QueuePairBuilder<XrcTarget> {
    pub(crate) fn xrc_target(domain: &XrcDomain) -> Self {
        let device = &domain.inner.device;
        let parts = Parts { xrc_domain: Some(domain.inner.clone()), ..Parts::new(device) };
        Self::new(parts, IBV_QPT_XRC_RECV)
    }
}

impl<S: QueuePairState> QueuePairBuilder<S> {
    fn new(parts: Parts, service: ibv_qp_type) -> Self {
        let capacity = ibv_qp_cap {
            max_send_wr: 64,
            max_recv_wr: 64,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 64,
        };
        let creation = Creation {
            service,
            capacity,
            operations: 0,
            port: 1,
            gid_index: 0,
            traffic_class: None,
            receiver_not_ready_retries: None,
            qkey: 0,
        };
        Self { parts, creation, batches: false, atomic_writes: false, state: PhantomData }
    }

    fn sharing<T: crate::Sharing>(mut self, queue: &SharedReceiveQueue<T>) -> Self {
        self.parts.shared = Some(queue.inner.clone());
        self
    }

    /// Sets how many sends (reads, writes, binds and so on) can be outstanding. A send is outstanding from its post
    /// until its completion is taken.
    pub fn max_sends(mut self, requests: u32) -> Self {
        self.creation.capacity.max_send_wr = requests;
        self
    }

    /// Sets how many receives can be outstanding.
    pub fn max_receives(mut self, requests: u32) -> Self {
        self.creation.capacity.max_recv_wr = requests;
        self
    }

    /// Sets how many slices a request can have.
    pub fn max_slices(mut self, slices: u32) -> Self {
        let capacity = &mut self.creation.capacity;
        (capacity.max_send_sge, capacity.max_recv_sge) = (slices, slices);
        self
    }

    /// Sets how many bytes a send or write can carry inline.
    pub fn max_inline(mut self, bytes: u32) -> Self {
        self.creation.capacity.max_inline_data = bytes;
        self
    }

    /// Sets the port. The first is 1.
    pub fn port(mut self, port: u8) -> Self {
        self.creation.port = port;
        self
    }

    /// Sets its address, by an index into the port's GID table.
    ///
    /// An Ethernet adapter (RoCE) has several entries for each of its addresses, and both ends must use entries of one
    /// [type](crate::Context::gid_type). Entry 0 is often one of RoCE version 1, which no router forwards. A queue pair
    /// that is connected by a [`Connector`](crate::Connector) or a [`Listener`](crate::Listener) uses the entry that the
    /// connection manager chooses.
    pub fn gid_index(mut self, index: u8) -> Self {
        self.creation.gid_index = index;
        self
    }

    /// Makes it able to post [`Batch`](crate::Batch)es too; see `ibv_create_qp_ex(3)`. Not for the receiving
    /// end of XRC.
    pub fn batches(mut self) -> Self {
        self.batches = true;
        self
    }

    /// Lets its [`batches`](Self::batches) contain [atomic writes](crate::Request::atomic_write), if the device
    /// supports them.
    pub fn atomic_writes(mut self) -> Self {
        self.atomic_writes = true;
        self.batches()
    }

    /// Creates the queue pair.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb): EINVAL if the device supports no queue pair of that size, ENOMEM if it has
    /// no more queue pairs, EOPNOTSUPP if the device or its library has no batches or not all operations that you asked
    /// for. The same error if there is no such port or GID. [`Error::OtherContext`](crate::Error::OtherContext) if a
    /// queue and the domain belong to different opened devices.
    pub fn build(&self) -> Result<QueuePair<S>> {
        let mut parts = self.parts.clone();
        if parts.shared.is_some() {
            parts.receives = None;
        }
        let creation = Creation { operations: self.operations(), ..self.creation };
        let created = CreatedQueuePair::create(parts, creation)?;
        created.initialize()?;
        if self.creation.service == IBV_QPT_UD {
            created.ready_for_datagrams()?;
        }
        Ok(QueuePair { inner: Arc::new(created), state: PhantomData })
    }

    /// The operations its batches can have: all that its service supports, except those that only newer
    /// devices have.
    fn operations(&self) -> ibv_qp_create_send_ops_flags {
        const DATAGRAM: u32 = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
        const UNRELIABLE: u32 =
            DATAGRAM | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
        const RELIABLE: u32 = UNRELIABLE
            | IBV_QP_EX_WITH_SEND_WITH_INV
            | IBV_QP_EX_WITH_RDMA_READ
            | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
            | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
        if !self.batches {
            return 0;
        }
        let usual = match self.creation.service {
            IBV_QPT_UD => DATAGRAM,
            IBV_QPT_UC => UNRELIABLE,
            _ => RELIABLE,
        };
        if self.atomic_writes { usual | IBV_QP_EX_WITH_ATOMIC_WRITE } else { usual }
    }
}

/// The parts of a queue pair that only sends.
fn sending(pd: &ProtectionDomain, completions: &CompletionQueue) -> Parts {
    Parts {
        sends: Some(completions.inner.clone()),
        domain: Some(pd.inner.clone()),
        ..Parts::new(&pd.inner.device)
    }
}

/// The parts of a queue pair that sends and receives.
fn receiving(pd: &ProtectionDomain, completions: &CompletionQueue) -> Parts {
    Parts { receives: Some(completions.inner.clone()), ..sending(pd, completions) }
}
