//! Shared receive queues.

use crate::error::{check, non_null, unsupported};
use crate::extended::extended;
use crate::post::post_shared_receive;
use crate::received::Receiving;
use crate::shared::CreatedShared;
use crate::xrc_domain::OpenedXrcDomain;
use crate::{
    CompletionQueue, Connected, Datagram, Error, Operation, Posted, ProtectionDomain, Result,
    Sharing, Slice, XrcDomain, XrcTarget,
};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use transom_abi::*;

/// A shared receive queue: receives for many queue pairs; see `ibv_create_srq(3)`.
///
/// Each message that comes to one of its queue pairs takes the oldest receive (rule SQ-07). All receives complete into
/// the completion queue of the shared receive queue, whichever queue pair takes them. So their tickets work like
/// others, and the completion names the queue pair. A receive keeps its memory until it completes or the shared receive
/// queue is destroyed.
///
/// If you drop a queue pair while it uses a receive, because only a part of a message has come, the receive completes as
/// flushed on the software device. An adapter may flush it too late, after the queue pair has gone, and then it never
/// completes. There, make the queue pair [fail](crate::QueuePair::fail) first. Drop it after the event
/// [`LastReceiveTaken`](crate::AsyncEventKind::LastReceiveTaken), and after a [poll](CompletionQueue::poll) of the
/// completion queue.
///
/// Receives of datagrams have a header before their payload. So queue pairs for datagrams share queues of their own:
/// `SharedReceiveQueue<Datagram>`.
///
/// Clones refer to the same queue. It is destroyed when the last clone, its last queue pair and the last ticket of its
/// receives are gone.
///
/// ```
/// use transom::{
///     Access, CompletionQueue, MemoryRegion, ProtectionDomain, Provider, QueuePair,
///     SharedReceiveQueue,
/// };
///
/// let context = transom::devices(&Provider::software())?[0].open()?;
/// let pd = ProtectionDomain::new(&context)?;
/// let cq = CompletionQueue::new(&context, 16)?;
/// let shared = SharedReceiveQueue::new(&pd, &cq, 8, 1)?;
///
/// // One of the server's queue pairs; it could have thousands.
/// let server = QueuePair::builder(&pd, &cq).shared_receives(&shared).build()?;
/// let client = QueuePair::builder(&pd, &cq).build()?;
/// let (at_server, at_client) = (server.endpoint(), client.endpoint());
/// let (server, client) = (server.connect(&at_client)?, client.connect(&at_server)?);
///
/// let inbox = MemoryRegion::register(&pd, vec![0; 64], Access::LOCAL_WRITE)?;
/// let received = shared.receive(&[inbox.all()])?;
/// client.send(b"to whom it concerns")?.wait()?;
/// let message = received.wait()?;
/// assert_eq!(message.queue_pair(), server.number());
/// # Ok::<(), transom::Error>(())
/// ```
pub struct SharedReceiveQueue<S: Sharing = Connected> {
    pub(crate) inner: Arc<CreatedShared>,
    receivers: PhantomData<S>,
}

impl SharedReceiveQueue<Connected> {
    /// Creates a queue for at least `receives` receives of `slices` slices each, for reliable connections.
    ///
    /// # Errors
    /// [`Error::Verb`]: EINVAL if the device has no queues of that size, ENOMEM if it has no more queues.
    /// [`Error::OtherContext`] if the completion queue belongs to another opened device.
    pub fn new(
        pd: &ProtectionDomain,
        completions: &CompletionQueue,
        receives: u32,
        slices: u32,
    ) -> Result<Self> {
        Self::create(pd, completions, None, receives, slices)
    }
}

impl SharedReceiveQueue<Datagram> {
    /// Creates a queue for at least `receives` receives, for queue pairs that receive datagrams.
    ///
    /// # Errors
    /// As [`new`](SharedReceiveQueue::new).
    pub fn datagram(
        pd: &ProtectionDomain,
        completions: &CompletionQueue,
        receives: u32,
    ) -> Result<Self> {
        Self::create(pd, completions, None, receives, 1)
    }

    /// Posts a receive of a datagram; see
    /// [`QueuePair::receive`](crate::QueuePair::<Datagram>::receive).
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the slice has no room for the header; [`Error::Verb`], ENOMEM if the queue is full;
    /// [`Error::CompletionQueueFull`]; [`Error::OtherContext`] if the slice belongs to another opened device.
    pub fn receive(&self, buffer: &Slice) -> Result<Receiving> {
        Receiving::post(buffer, |local| {
            post_shared_receive(&self.inner, Operation::ReceiveDatagram, local)
        })
    }
}

impl SharedReceiveQueue<XrcTarget> {
    /// Creates a queue for at least `receives` receives of `slices` slices each, for messages of extended reliable
    /// connections; see `ibv_create_srq_ex(3)`. A message reaches it through any [`XrcTarget`] of the domain, if it
    /// names this queue's [`number`](Self::number).
    ///
    /// # Errors
    /// As [`new`](SharedReceiveQueue::new); [`Error::Verb`], EOPNOTSUPP if the device has no XRC.
    pub fn xrc(
        pd: &ProtectionDomain,
        completions: &CompletionQueue,
        domain: &XrcDomain,
        receives: u32,
        slices: u32,
    ) -> Result<Self> {
        Self::create(pd, completions, Some(&domain.inner), receives, slices)
    }

    /// The number that messages name it by; see `ibv_get_srq_num(3)`.
    ///
    /// # Errors
    /// [`Error::Verb`] if the device does not answer.
    pub fn number(&self) -> Result<u32> {
        const VERB: &str = "ibv_get_srq_num";
        let get_srq_num = extended!(self.inner.device(), get_srq_num);
        let get_srq_num = get_srq_num.ok_or_else(|| unsupported(VERB))?;
        let mut number = 0;
        // SAFETY: the queue exists and the place to write is valid.
        let result = unsafe { get_srq_num(self.inner.srq, &raw mut number) };
        check(VERB, format_args!("asking for the number of {}", self.inner), result)?;
        Ok(number)
    }
}

/// A shared receive queue for messages of connected peers.
pub trait SharingMessages: Sharing {}

impl SharingMessages for Connected {}
impl SharingMessages for XrcTarget {}

impl<S: SharingMessages> SharedReceiveQueue<S> {
    /// Posts a receive. One of the next messages goes into these slices; see `ibv_post_srq_recv(3)`.
    ///
    /// # Errors
    /// [`Error::Verb`]: ENOMEM if the queue is full, EINVAL if there are too many slices;
    /// [`Error::CompletionQueueFull`]; [`Error::OtherContext`] if a slice belongs to another opened device.
    pub fn receive(&self, local: &[Slice]) -> Result<Posted> {
        post_shared_receive(&self.inner, Operation::Receive, local)
    }
}

impl<S: Sharing> SharedReceiveQueue<S> {
    fn create(
        pd: &ProtectionDomain,
        completions: &CompletionQueue,
        xrc_domain: Option<&Arc<OpenedXrcDomain>>,
        receives: u32,
        slices: u32,
    ) -> Result<Self> {
        let (domain, completions) = (pd.inner.clone(), completions.inner.clone());
        if !Arc::ptr_eq(completions.device(), &domain.device) {
            return Err(Error::OtherContext { what: "completion queue" });
        }
        if xrc_domain.is_some_and(|xrc| !Arc::ptr_eq(&xrc.device, &domain.device)) {
            return Err(Error::OtherContext { what: "XRC domain" });
        }
        let attr = ibv_srq_attr { max_wr: receives, max_sge: slices, srq_limit: 0 };
        let subject = format_args!("creating a shared receive queue with {attr:?}");
        let srq = match xrc_domain {
            None => {
                let mut attributes = ibv_srq_init_attr { attr, ..ibv_srq_init_attr::default() };
                let verbs = domain.device.provider.verbs;
                // SAFETY: the domain is allocated.
                let srq = unsafe { (verbs.ibv_create_srq)(domain.pd, &raw mut attributes) };
                non_null("ibv_create_srq", subject, srq)?
            }
            Some(xrc) => {
                let create_srq_ex = extended!(domain.device, create_srq_ex);
                let create_srq_ex =
                    create_srq_ex.ok_or_else(|| unsupported("ibv_create_srq_ex"))?;
                let mut attributes = ibv_srq_init_attr_ex {
                    attr,
                    comp_mask: IBV_SRQ_INIT_ATTR_TYPE
                        | IBV_SRQ_INIT_ATTR_PD
                        | IBV_SRQ_INIT_ATTR_XRCD
                        | IBV_SRQ_INIT_ATTR_CQ,
                    srq_type: IBV_SRQT_XRC,
                    pd: domain.pd,
                    xrcd: xrc.xrcd,
                    cq: completions.cq,
                    ..ibv_srq_init_attr_ex::default()
                };
                // SAFETY: the context is open. The domains and the queue exist and belong to it.
                let srq = unsafe { create_srq_ex(domain.device.context, &raw mut attributes) };
                non_null("ibv_create_srq_ex", subject, srq)?
            }
        };
        let (srq, xrc_domain) = (srq.as_ptr(), xrc_domain.cloned());
        // SAFETY: it was created just now, from these.
        let created = unsafe { CreatedShared::from_raw(srq, completions, domain, xrc_domain) };
        Ok(Self { inner: Arc::new(created), receivers: PhantomData })
    }

    /// The number of receives it can hold; see `ibv_query_srq(3)`.
    ///
    /// # Errors
    /// [`Error::Verb`] if the device does not answer.
    pub fn capacity(&self) -> Result<u32> {
        Ok(self.inner.query()?.max_wr)
    }

    /// Changes the number of receives it can hold, to at least this many; see `ibv_modify_srq(3)`.
    ///
    /// # Errors
    /// [`Error::Verb`]: EINVAL if more are posted, if the limit is higher, if the device has no queues of that size, or
    /// if it cannot resize them (rule SQ-05).
    pub fn resize(&self, receives: u32) -> Result<()> {
        let attributes = ibv_srq_attr { max_wr: receives, ..ibv_srq_attr::default() };
        self.inner.modify(attributes, IBV_SRQ_MAX_WR)
    }

    /// Arms the limit. When fewer than `limit` receives are left, now or later, a
    /// [`ReceivesRunLow`](crate::AsyncEventKind::ReceivesRunLow) event comes, once (rules SQ-01 to SQ-03). 0
    /// disarms it.
    ///
    /// # Errors
    /// [`Error::Verb`], EINVAL if the queue cannot hold that many (rule SQ-04).
    pub fn arm_limit(&self, limit: u32) -> Result<()> {
        let attributes = ibv_srq_attr { srq_limit: limit, ..ibv_srq_attr::default() };
        self.inner.modify(attributes, IBV_SRQ_LIMIT)
    }

    /// The armed limit. 0 if none is armed, or if it was reached.
    ///
    /// # Errors
    /// [`Error::Verb`] if the device does not answer.
    pub fn limit(&self) -> Result<u32> {
        Ok(self.inner.query()?.srq_limit)
    }

    /// The handle that events name it by:
    /// [`AsyncEvent::shared_receive_queue`](crate::AsyncEvent::shared_receive_queue).
    pub fn handle(&self) -> u32 {
        // SAFETY: the queue exists.
        unsafe { (*self.inner.srq).handle }
    }
}

impl<S: Sharing> Clone for SharedReceiveQueue<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), receivers: PhantomData }
    }
}

impl<S: Sharing> fmt::Debug for SharedReceiveQueue<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedReceiveQueue").field(&self.handle()).finish()
    }
}
