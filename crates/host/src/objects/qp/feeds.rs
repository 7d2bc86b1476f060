//! Where a queue pair's work completes.

use std::sync::Arc;

use transom_device::execution::{Requester, Responder};

use super::{QpConfig, QpReceives, QueuePair};
use crate::objects::cq::Feed;
use crate::objects::{Cq, RegisterError};

/// The completion queues of its work, except those of XRC's shared receive queues.
pub(super) struct Feeds {
    pub(super) send: Option<Feed>,
    pub(super) receive: Option<Feed>,
}

impl Feeds {
    /// Makes the feeds of a queue pair with these halves.
    pub(super) fn new(
        config: &QpConfig,
        requester: &Requester,
        responder: &Responder,
    ) -> Result<Self, RegisterError> {
        let none = Arc::default();
        let received = match &config.receives {
            QpReceives::Own { .. } => responder.returned().unwrap_or(&none),
            QpReceives::Srq(srq) => srq.returned(),
            QpReceives::Xrc(_) | QpReceives::Nowhere => &none,
        };
        let feed = |cq: &Option<Arc<Cq>>, returned| {
            cq.as_ref().map(|cq| Feed::new(cq, returned)).transpose()
        };
        let send = feed(&config.send_cq, requester.returned())?;
        let receive = feed(&config.receive_cq, received);
        let receive = receive.inspect_err(|_| send.iter().for_each(Feed::end))?;
        Ok(Self { send, receive })
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Feed> {
        self.send.iter().chain(&self.receive)
    }
}

impl QueuePair {
    /// The completion queues of its sends and its receives, except those of XRC's shared queues.
    pub(crate) fn own_completion_queues(&self) -> impl Iterator<Item = &Arc<Cq>> {
        self.feeds.all().map(Feed::cq)
    }

    /// Whether it completes into the queue of this id. A shared queue of its XRC domain counts too.
    pub(crate) fn feeds(&self, cq: u64) -> bool {
        self.own_completion_queues().any(|own| own.id() == cq)
            || matches!(&self.config.receives, QpReceives::Xrc(domain)
                if self.adapter.shared_queues.any_completes_to(domain, cq))
    }
}
