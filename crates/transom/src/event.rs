//! Asynchronous events.

use transom_abi::*;

/// An event outside of any work request; see `ibv_get_async_event(3)`.
///
/// ```
/// # let context = transom::devices(&transom::Provider::software())?[0].open()?;
/// # let pd = transom::ProtectionDomain::new(&context)?;
/// # let cq = transom::CompletionQueue::new(&context, 16)?;
/// # let builder = transom::QueuePair::builder(&pd, &cq);
/// # let (a, b) = (builder.build()?, builder.build()?);
/// # let (at_a, at_b) = (a.endpoint(), b.endpoint());
/// # let (a, b) = (a.connect(&at_b)?, b.connect(&at_a)?);
/// use std::time::Duration;
/// use transom::{AsyncEventKind, RemoteSlice};
///
/// // A request for memory that `b` has not granted raises an event there.
/// let nowhere = RemoteSlice { addr: 0, rkey: 0x1234, length: 4 };
/// a.write(b"lost", nowhere)?.wait().unwrap_err();
/// while let Some(event) = context.async_event(Duration::from_secs(1))? {
///     if event.kind == AsyncEventKind::AccessRefused {
///         assert_eq!(event.queue_pair, Some(b.number()));
///         break;
///     }
/// }
/// # Ok::<(), transom::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// The kind of event.
    pub kind: AsyncEventKind,
    /// The number of the queue pair that the event is about, if any.
    pub queue_pair: Option<u32>,
    /// The [handle](crate::SharedReceiveQueue::handle) of the shared receive queue that the event is about,
    /// if any.
    pub shared_receive_queue: Option<u32>,
}

/// The kind of an [`AsyncEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEventKind {
    /// A completion queue is in error.
    CompletionQueueError,
    /// A queue pair had an error that it could not report as a completion.
    QueuePairFatal,
    /// The peer's request was invalid.
    InvalidRequest,
    /// The peer's request was refused: no key allows that access.
    AccessRefused,
    /// The peer's first packet has arrived.
    CommunicationEstablished,
    /// The send queue has drained.
    SendQueueDrained,
    /// A queue pair in error has taken its last receive from its shared receive queue.
    LastReceiveTaken,
    /// A shared receive queue has fewer receives left than the [armed
    /// limit](crate::SharedReceiveQueue::arm_limit).
    ReceivesRunLow,
    /// A shared receive queue is in error.
    SharedReceiveQueueError,
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
    /// The event was taken and is not yet acknowledged, so the object that it is about exists.
    pub(crate) unsafe fn from_raw(raw: &ibv_async_event) -> Self {
        use AsyncEventKind::*;
        let (kind, about) = match raw.event_type {
            IBV_EVENT_CQ_ERR => (CompletionQueueError, About::Other),
            IBV_EVENT_QP_FATAL => (QueuePairFatal, About::QueuePair),
            IBV_EVENT_QP_REQ_ERR => (InvalidRequest, About::QueuePair),
            IBV_EVENT_QP_ACCESS_ERR => (AccessRefused, About::QueuePair),
            IBV_EVENT_COMM_EST => (CommunicationEstablished, About::QueuePair),
            IBV_EVENT_SQ_DRAINED => (SendQueueDrained, About::QueuePair),
            IBV_EVENT_QP_LAST_WQE_REACHED => (LastReceiveTaken, About::QueuePair),
            IBV_EVENT_PATH_MIG | IBV_EVENT_PATH_MIG_ERR => {
                (Other(raw.event_type), About::QueuePair)
            }
            IBV_EVENT_SRQ_LIMIT_REACHED => (ReceivesRunLow, About::SharedReceiveQueue),
            IBV_EVENT_SRQ_ERR => (SharedReceiveQueueError, About::SharedReceiveQueue),
            IBV_EVENT_DEVICE_FATAL => (DeviceFatal, About::Other),
            IBV_EVENT_PORT_ACTIVE => (PortActive, About::Other),
            IBV_EVENT_PORT_ERR => (PortError, About::Other),
            other => (Other(other), About::Other),
        };
        let is_about = |object| about == object;
        // SAFETY: for these events the union holds the queue pair, which the caller says exists.
        let queue_pair = is_about(About::QueuePair).then(|| unsafe { (*raw.element.qp).qp_num });
        let shared_receive_queue =
            // SAFETY: likewise the shared receive queue.
            is_about(About::SharedReceiveQueue).then(|| unsafe { (*raw.element.srq).handle });
        Self { kind, queue_pair, shared_receive_queue }
    }
}

/// The kind of object that an event is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    QueuePair,
    SharedReceiveQueue,
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For every event that `ibv_get_async_event(3)` says is about a queue pair, including those that only
    /// adapters raise.
    #[test]
    fn events_name_their_queue_pair() {
        // SAFETY: all zero is a queue pair: null pointers and integers.
        let mut qp: ibv_qp = unsafe { std::mem::zeroed() };
        qp.qp_num = 0x17;
        let element = ibv_async_event_element { qp: &raw mut qp };
        let about = [
            IBV_EVENT_QP_FATAL,
            IBV_EVENT_QP_REQ_ERR,
            IBV_EVENT_QP_ACCESS_ERR,
            IBV_EVENT_COMM_EST,
            IBV_EVENT_SQ_DRAINED,
            IBV_EVENT_PATH_MIG,
            IBV_EVENT_PATH_MIG_ERR,
            IBV_EVENT_QP_LAST_WQE_REACHED,
        ];
        for event_type in about {
            // SAFETY: it is about the queue pair above.
            let event = unsafe { AsyncEvent::from_raw(&ibv_async_event { element, event_type }) };
            assert_eq!((event.queue_pair, event.shared_receive_queue), (Some(0x17), None));
        }
    }
}
