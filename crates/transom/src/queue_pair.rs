//! Queue pairs.

use crate::created_queue_pair::CreatedQueuePair;
use crate::post::post_receive;
use crate::request::Toward;
use crate::unconnected::Unconnected;
use crate::{
    Connected, Datagram, Endpoint, Initialized, OnePeer, Operation, Payload, Posted,
    QueuePairState, RemoteSlice, Request, Result, Slice, XrcInitiator, XrcTarget,
};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use transom_abi::*;

/// A queue pair; see `ibv_create_qp(3)`.
///
/// It begins [`Initialized`]: it takes receives but does not yet send. [`connect`](QueuePair::connect) makes it
/// [`Connected`]. Clones refer to the same queue pair. It is destroyed when the last clone, the last [`Posted`] ticket
/// of it and the last [`Window`](crate::Window) of type 2 that it has bound are gone. You cannot clone a queue pair
/// before it is connected, because it connects only once:
///
/// ```compile_fail,E0599
/// # fn of(queue_pair: transom::QueuePair<transom::Initialized>) {
/// let again = queue_pair.clone();
/// # }
/// ```
///
/// Queue pairs of other kinds begin at [`QueuePair::datagram`], [`QueuePair::xrc_initiator`] and
/// [`QueuePair::xrc_target`].
///
/// The queue pair lets the peer read, write and do atomics. Keys alone decide which memory the peer may
/// touch.
///
/// ```
/// use transom::{Access, CompletionQueue, MemoryRegion, ProtectionDomain, Provider, QueuePair};
///
/// let context = transom::devices(&Provider::software())?[0].open()?;
/// let pd = ProtectionDomain::new(&context)?;
/// let cq = CompletionQueue::new(&context, 16)?;
///
/// // Two queue pairs of one process, connected to each other.
/// let (a, b) = (QueuePair::builder(&pd, &cq).build()?, QueuePair::builder(&pd, &cq).build()?);
/// let (at_a, at_b) = (a.endpoint(), b.endpoint());
/// let (a, b) = (a.connect(&at_b)?, b.connect(&at_a)?);
///
/// let inbox = MemoryRegion::register(&pd, vec![0; 64], Access::LOCAL_WRITE)?;
/// let received = b.receive(&[inbox.all()])?;
/// a.send(b"over the transom")?.wait()?;
/// let message = received.wait()?;
///
/// let mut text = vec![0; message.length()];
/// inbox.read_at(0, &mut text)?;
/// assert_eq!(text, b"over the transom");
/// # Ok::<(), transom::Error>(())
/// ```
pub struct QueuePair<S: QueuePairState = Connected> {
    pub(crate) inner: Arc<CreatedQueuePair>,
    pub(crate) state: PhantomData<S>,
}

impl<S: QueuePairState> QueuePair<S> {
    /// Its number, 24 bits.
    pub fn number(&self) -> u32 {
        self.inner.local.qpn
    }

    /// The data that the peer needs to connect to it.
    pub fn endpoint(&self) -> Endpoint {
        self.inner.local
    }

    /// Moves it to the error state. All outstanding requests end with [`Status::Flushed`](crate::Status::Flushed), and
    /// so do later ones (rule ST-19).
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb) if the device refuses.
    pub fn fail(&self) -> Result<()> {
        self.inner.fail()
    }

    /// Whether the device has it in the error state; see `ibv_query_qp(3)`. A refused or failed request moves both
    /// sides there.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb) if the device does not answer.
    pub fn has_failed(&self) -> Result<bool> {
        Ok(self.inner.query_state()? == IBV_QPS_ERR)
    }

    /// How many sends (reads, writes, binds and so on) can be outstanding: at least as many as you asked for. A send is
    /// outstanding until its completion is taken from the completion queue, not only until it is done.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb) if the device does not answer.
    pub fn max_sends(&self) -> Result<u32> {
        Ok(self.inner.query_capacity()?.max_send_wr)
    }
}

impl<S: OnePeer> QueuePair<S> {
    /// Posts a receive. The next message goes into these slices, one after the other. A send consumes the receive, and
    /// so does a write with immediate data.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb): ENOMEM if the receive queue is full, EINVAL if there
    /// are too many slices; [`Error::CompletionQueueFull`](crate::Error::CompletionQueueFull);
    /// [`Error::SharedReceives`](crate::Error::SharedReceives) if it was built with a shared receive
    /// queue; [`Error::OtherContext`](crate::Error::OtherContext) if a slice is of another opened device.
    pub fn receive(&self, local: &[Slice]) -> Result<Posted> {
        post_receive(&self.inner, Operation::Receive, local)
    }
}

impl QueuePair<Initialized> {
    /// Connects it to a peer, which must connect to [`endpoint`](Self::endpoint) in turn; see
    /// `ibv_modify_qp(3)`.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb) if the device cannot reach such a peer. The queue pair is then lost:
    /// requests that you posted to it end with [`Status::Flushed`](crate::Status::Flushed).
    pub fn connect(self, peer: &Endpoint) -> Result<QueuePair<Connected>> {
        let queue_pair = Unconnected::new(self.inner);
        queue_pair.ready_to_receive(peer)?;
        queue_pair.ready_to_send()?;
        Ok(QueuePair { inner: queue_pair.connected(), state: PhantomData })
    }
}

/// Each of these methods posts one request and returns its ticket; see `ibv_post_send(3)`.
///
/// All have the errors of [`post`](Self::post). A request that fails later reports it through its ticket.
impl QueuePair<Connected> {
    /// Posts a request that you made before.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb): ENOMEM if the send queue is full, EINVAL if the request has too many slices
    /// or too many inline bytes, or is not one of this service;
    /// [`Error::CompletionQueueFull`](crate::Error::CompletionQueueFull);
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if the request would touch more than the peer's slice;
    /// [`Error::OtherContext`](crate::Error::OtherContext) if a slice belongs to another opened device.
    pub fn post(&self, request: Request<'_>) -> Result<Posted> {
        request.post(&self.inner, Toward::Peer)
    }

    /// Posts [`Request::send`]. It waits until the peer has a receive for it.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub fn send<'a>(&self, payload: impl Into<Payload<'a>>) -> Result<Posted> {
        self.post(Request::send(payload))
    }

    /// Posts [`Request::send_immediate`].
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub fn send_immediate<'a>(
        &self,
        payload: impl Into<Payload<'a>>,
        immediate: u32,
    ) -> Result<Posted> {
        self.post(Request::send_immediate(payload, immediate))
    }

    /// Posts [`Request::send_invalidate`].
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub fn send_invalidate<'a>(
        &self,
        payload: impl Into<Payload<'a>>,
        rkey: u32,
    ) -> Result<Posted> {
        self.post(Request::send_invalidate(payload, rkey))
    }

    /// Posts [`Request::write`].
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub fn write<'a>(
        &self,
        payload: impl Into<Payload<'a>>,
        remote: impl Into<RemoteSlice>,
    ) -> Result<Posted> {
        self.post(Request::write(payload, remote))
    }

    /// Posts [`Request::write_immediate`].
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub fn write_immediate<'a>(
        &self,
        payload: impl Into<Payload<'a>>,
        remote: impl Into<RemoteSlice>,
        immediate: u32,
    ) -> Result<Posted> {
        self.post(Request::write_immediate(payload, remote, immediate))
    }

    /// Posts [`Request::read`].
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub fn read(&self, local: &[Slice], remote: impl Into<RemoteSlice>) -> Result<Posted> {
        self.post(Request::read(local, remote))
    }

    /// Posts [`Request::atomic_write`].
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub fn atomic_write(&self, word: &[u8; 8], remote: impl Into<RemoteSlice>) -> Result<Posted> {
        self.post(Request::atomic_write(word, remote))
    }

    /// Posts [`Request::compare_swap`].
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub fn compare_swap(
        &self,
        local: &Slice,
        remote: impl Into<RemoteSlice>,
        compare: u64,
        swap: u64,
    ) -> Result<Posted> {
        self.post(Request::compare_swap(local, remote, compare, swap))
    }

    /// Posts [`Request::fetch_add`].
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub fn fetch_add(
        &self,
        local: &Slice,
        remote: impl Into<RemoteSlice>,
        add: u64,
    ) -> Result<Posted> {
        self.post(Request::fetch_add(local, remote, add))
    }
}

/// Not for queue pairs that are not yet connected: connecting a clone would put the connected queue pair into the error
/// state.
macro_rules! clones_in {
    ($($state:ty)+) => {
        $(impl Clone for QueuePair<$state> {
            fn clone(&self) -> Self {
                Self { inner: self.inner.clone(), state: PhantomData }
            }
        })+
    };
}

clones_in! { Connected Datagram XrcInitiator XrcTarget }

impl<S: QueuePairState> fmt::Debug for QueuePair<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QueuePair").field(&self.inner.local).finish()
    }
}
