//! The attributes to create a queue pair with.

use std::sync::Arc;

use transom_device::execution::{Receives, Requester, RequesterLimits, Responder};
use transom_device::qp::Service;
use transom_device::queue::{SizeError, TAG_MAX_SGE};

use crate::device::Limits;
use crate::events::{AsyncEvent, EventQueue};
use crate::objects::{Cq, ProtectionDomain, SharedReceiveQueue, XrcDomain};

/// The attributes to create a queue pair with.
#[derive(Clone)]
pub struct QpConfig {
    /// Its protection domain. The receiving end of XRC has none.
    pub pd: Option<Arc<ProtectionDomain>>,
    /// Its transport service.
    pub service: Service,
    /// The completion queue of its send queue, if it sends.
    pub send_cq: Option<Arc<Cq>>,
    /// The completion queue of its receives. `None` if it does not receive, or if each shared queue has its own (XRC).
    pub receive_cq: Option<Arc<Cq>>,
    /// Its send queue.
    pub send: RequesterLimits,
    /// Where its receives come from.
    pub receives: QpReceives,
    /// Where its events go.
    pub events: Arc<EventQueue<AsyncEvent>>,
    /// How events name it.
    pub id: u64,
}

/// The source of a queue pair's receives.
#[derive(Clone)]
pub enum QpReceives {
    /// From a queue of its own.
    Own {
        /// Work requests.
        size: usize,
        /// Most scatter/gather entries of each.
        max_sge: usize,
    },
    /// From a shared queue.
    Srq(Arc<SharedReceiveQueue>),
    /// From the shared queue of this domain that each message names.
    Xrc(Arc<XrcDomain>),
    /// It does not receive.
    Nowhere,
}

impl QpReceives {
    /// Whether they come from a shared queue that matches tags.
    fn match_tags(&self) -> bool {
        matches!(self, Self::Srq(srq) if srq.config().tag_matching.is_some())
    }
}

impl QpConfig {
    /// Makes its sending and its receiving half, with the memory that they need.
    pub(super) fn halves(&self) -> Result<(Requester, Responder), SizeError> {
        let tagged = self.receives.match_tags();
        let requester = match tagged {
            true => Requester::with_rendezvous(self.service, &self.send),
            false => Requester::new(self.service, &self.send),
        };
        let (receives, max_sge) = match &self.receives {
            &QpReceives::Own { size, max_sge } => (Receives::Own { size, max_sge }, max_sge),
            QpReceives::Srq(srq) => {
                let max_sge = if tagged { TAG_MAX_SGE } else { 0 };
                (Receives::Shared { tagged }, max_sge.max(srq.config().max_sge))
            }
            QpReceives::Xrc(_) => (Receives::Named, Limits::DEVICE.max_sge as usize),
            QpReceives::Nowhere => (Receives::Nowhere, 0),
        };
        Ok((requester?, Responder::new(self.service, receives, max_sge)?))
    }
}
