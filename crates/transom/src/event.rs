//! Asynchronous events.

use transom_abi::*;

/// Something that happened outside of any work request; see `ibv_get_async_event(3)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// What happened.
    pub kind: AsyncEventKind,
    /// The number of the queue pair it happened to, if it is about one.
    pub queue_pair: Option<u32>,
}

/// What an [`AsyncEvent`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEventKind {
    /// A completion queue is in error.
    CompletionQueueError,
    /// A queue pair met an error it could not report as a completion.
    QueuePairFatal,
    /// The peer's request was invalid.
    InvalidRequest,
    /// The peer's request was refused: no key allows that access.
    AccessRefused,
    /// The peer's first packet has come.
    CommunicationEstablished,
    /// The send queue has drained.
    SendQueueDrained,
    /// The device is in error.
    DeviceFatal,
    /// A port became active.
    PortActive,
    /// A port is no longer active.
    PortError,
    /// Another event, with its number in `enum ibv_event_type`.
    Other(u32),
}

impl AsyncEvent {
    /// # Safety
    /// The event was taken and is not yet acknowledged, so the object it is about exists.
    pub(crate) unsafe fn from_raw(raw: &ibv_async_event) -> Self {
        use AsyncEventKind::*;
        let (kind, of_queue_pair) = match raw.event_type {
            IBV_EVENT_CQ_ERR => (CompletionQueueError, false),
            IBV_EVENT_QP_FATAL => (QueuePairFatal, true),
            IBV_EVENT_QP_REQ_ERR => (InvalidRequest, true),
            IBV_EVENT_QP_ACCESS_ERR => (AccessRefused, true),
            IBV_EVENT_COMM_EST => (CommunicationEstablished, true),
            IBV_EVENT_SQ_DRAINED => (SendQueueDrained, true),
            IBV_EVENT_DEVICE_FATAL => (DeviceFatal, false),
            IBV_EVENT_PORT_ACTIVE => (PortActive, false),
            IBV_EVENT_PORT_ERR => (PortError, false),
            other => (Other(other), false),
        };
        // SAFETY: for these events the union holds the queue pair, which the caller says exists.
        let queue_pair = of_queue_pair.then(|| unsafe { (*raw.element.qp).qp_num });
        Self { kind, queue_pair }
    }
}
