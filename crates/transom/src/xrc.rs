//! Extended reliable connections (XRC): one connection that reaches many shared receive queues.

use crate::request::Toward;
use crate::{
    CompletionQueue, Endpoint, Payload, Posted, ProtectionDomain, QueuePair, QueuePairBuilder,
    Request, Result, XrcDomain, XrcInitialized, XrcInitiator, XrcTarget,
};
use std::marker::PhantomData;

impl QueuePair<XrcTarget> {
    /// Begins the receiving end of an extended reliable connection. It has no queues, so the builder's queue sizes do
    /// not apply.
    pub fn xrc_target(domain: &XrcDomain) -> QueuePairBuilder<XrcTarget> {
        QueuePairBuilder::xrc_target(domain)
    }

    /// Connects it to an initiator, which must connect to [`endpoint`](Self::endpoint) in turn.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb): EINVAL if it is connected already, or if the device
    /// cannot reach such a peer.
    pub fn connect(&self, initiator: &Endpoint) -> Result<()> {
        self.inner.ready_to_receive(initiator)?;
        self.inner.ready_to_send()
    }
}

impl QueuePair<XrcInitialized> {
    /// Begins the sending end of an extended reliable connection.
    pub fn xrc_initiator(
        pd: &ProtectionDomain,
        completions: &CompletionQueue,
    ) -> QueuePairBuilder<XrcInitialized> {
        QueuePairBuilder::xrc_initiator(pd, completions)
    }

    /// Connects it to a target, which must connect to [`endpoint`](Self::endpoint) in turn.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb) if the device cannot reach such a peer. The queue pair is then
    /// lost.
    pub fn connect(self, target: &Endpoint) -> Result<QueuePair<XrcInitiator>> {
        self.inner.ready_to_receive(target)?;
        self.inner.ready_to_send()?;
        Ok(QueuePair { inner: self.inner, state: PhantomData })
    }
}

impl QueuePair<XrcInitiator> {
    /// Posts a request to the target's shared receive queue of this [number](crate::SharedReceiveQueue::number). A
    /// request that consumes no receive needs the number too: its keys are checked in that queue's protection domain.
    ///
    /// # Errors
    /// As [`QueuePair::post`](crate::QueuePair::<crate::Connected>::post).
    pub fn post(&self, shared: u32, request: Request<'_>) -> Result<Posted> {
        request.post(&self.inner, Toward::Shared(shared))
    }

    /// Posts [`Request::send`].
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub fn send<'a>(&self, shared: u32, payload: impl Into<Payload<'a>>) -> Result<Posted> {
        self.post(shared, Request::send(payload))
    }
}
