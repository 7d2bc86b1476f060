//! Making queue pairs.

use crate::connection::Connection;
use crate::{CompletionQueue, Initialized, ProtectionDomain, QueuePair, Result};
use std::marker::PhantomData;
use std::sync::Arc;
use transom_abi::*;

/// The service a queue pair gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// RC: every request arrives, once and in order, or fails.
    ReliableConnection,
    /// UC: sends and writes only, and what is lost or refused is lost silently.
    UnreliableConnection,
}

/// Makes a [`QueuePair`]; from [`QueuePair::builder`].
///
/// Unless told otherwise, it is a reliable connection on port 1 with GID 0, room for 64 sends and
/// 64 receives of 4 slices each, and 64 bytes of inline data.
#[derive(Clone, Debug)]
pub struct QueuePairBuilder {
    pd: ProtectionDomain,
    send_queue: CompletionQueue,
    receive_queue: CompletionQueue,
    service: Service,
    capacity: ibv_qp_cap,
    port: u8,
    gid_index: u8,
}

impl QueuePairBuilder {
    pub(crate) fn new(pd: &ProtectionDomain, completions: &CompletionQueue) -> Self {
        Self {
            pd: pd.clone(),
            send_queue: completions.clone(),
            receive_queue: completions.clone(),
            service: Service::ReliableConnection,
            capacity: ibv_qp_cap {
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 4,
                max_recv_sge: 4,
                max_inline_data: 64,
            },
            port: 1,
            gid_index: 0,
        }
    }

    /// The service it gives.
    pub fn service(mut self, service: Service) -> Self {
        self.service = service;
        self
    }

    /// Another queue for the completions of receives.
    pub fn receive_completions(mut self, queue: &CompletionQueue) -> Self {
        self.receive_queue = queue.clone();
        self
    }

    /// How many sends (reads, writes, binds and so on) can be outstanding.
    pub fn max_sends(mut self, requests: u32) -> Self {
        self.capacity.max_send_wr = requests;
        self
    }

    /// How many receives can be outstanding.
    pub fn max_receives(mut self, requests: u32) -> Self {
        self.capacity.max_recv_wr = requests;
        self
    }

    /// How many slices a request can have.
    pub fn max_slices(mut self, slices: u32) -> Self {
        (self.capacity.max_send_sge, self.capacity.max_recv_sge) = (slices, slices);
        self
    }

    /// How many bytes can be sent or written inline.
    pub fn max_inline(mut self, bytes: u32) -> Self {
        self.capacity.max_inline_data = bytes;
        self
    }

    /// The port it uses, the first being 1.
    pub fn port(mut self, port: u8) -> Self {
        self.port = port;
        self
    }

    /// Which of the port's GIDs is its address.
    pub fn gid_index(mut self, index: u8) -> Self {
        self.gid_index = index;
        self
    }

    /// Creates the queue pair.
    ///
    /// # Errors
    /// [`Error::Verb`](crate::Error::Verb): EINVAL if the device has no queue pairs of that size,
    /// ENOMEM if it has no more of them; or if there is no such port or GID.
    /// [`Error::OtherContext`](crate::Error::OtherContext) if a completion queue is of another
    /// opened device than the protection domain.
    pub fn build(&self) -> Result<QueuePair<Initialized>> {
        let mut creation = ibv_qp_init_attr {
            send_cq: self.send_queue.inner.cq,
            recv_cq: self.receive_queue.inner.cq,
            cap: self.capacity,
            qp_type: match self.service {
                Service::ReliableConnection => IBV_QPT_RC,
                Service::UnreliableConnection => IBV_QPT_UC,
            },
            ..ibv_qp_init_attr::default()
        };
        let queues = [self.send_queue.inner.clone(), self.receive_queue.inner.clone()];
        let domain = self.pd.inner.clone();
        let connection =
            Connection::create(domain, queues, &mut creation, self.port, self.gid_index)?;
        connection.initialize()?;
        Ok(QueuePair { inner: Arc::new(connection), state: PhantomData })
    }
}
