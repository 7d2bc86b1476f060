//! The values for this end's queue pair that REQ and REP agree on.
//!
//! Each end describes itself. One end answers the READs that the other end begins. So the peer's initiator depth is the
//! number of responder resources here, and the reverse.

use transom_wire::cm::{Bits, PathMtu, Rep, Req, TimeCode};

use super::ReplyParameters;
use crate::attributes::{Access, Retries};
use crate::timing::{ack_timeout, twice};

/// The queue pair's values from the exchange of messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreed {
    pub(super) mtu: PathMtu,
    pub(super) responder_resources: u8,
    initiator_depth: u8,
    pub(super) retry_count: Bits<3>,
    rnr_retry_count: Bits<3>,
    pub(super) ack_timeout: TimeCode,
    /// The packet life time. At the active end it gives the timeout, with the delay in the REP.
    pub(super) life_time: TimeCode,
}

impl Agreed {
    /// The values that this end asks for.
    pub(super) fn asked(req: &Req, life_time: TimeCode) -> Self {
        Self {
            mtu: req.mtu,
            responder_resources: req.responder_resources,
            initiator_depth: req.initiator_depth,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            ack_timeout: twice(life_time),
            life_time,
        }
    }

    /// The values that the peer asks for.
    pub(super) fn offered(req: &Req) -> Self {
        // The minimum is the timeout for packet life time 0.
        let ack_timeout = req.primary.local_ack_timeout.max(TimeCode::of(Bits::low(1)));
        let life_time = TimeCode::of(Bits::low(u32::from(ack_timeout.code()) - 1));
        Self {
            mtu: req.mtu,
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            ack_timeout,
            life_time,
        }
    }

    /// This end accepts.
    pub(super) fn accept(&mut self, parameters: &ReplyParameters<'_>) {
        self.responder_resources = parameters.responder_resources;
        self.initiator_depth = parameters.initiator_depth;
    }

    /// The peer has accepted.
    pub(super) fn on_rep(&mut self, rep: &Rep) {
        self.responder_resources = rep.initiator_depth;
        self.initiator_depth = rep.responder_resources;
        self.rnr_retry_count = rep.rnr_retry_count;
        self.ack_timeout = ack_timeout(rep.target_ack_delay, self.life_time);
    }

    /// The peer's rights here. `flush` is true if the adapter has FLUSH.
    pub(super) fn access(&self, flush: bool) -> Access {
        let reads = self.responder_resources > 0;
        Access {
            remote_write: true,
            remote_read: reads,
            remote_atomic: reads,
            flush_global: reads && flush,
        }
    }

    pub(super) fn retries(&self) -> Retries {
        Retries {
            retry_count: self.retry_count,
            rnr_retry_count: self.rnr_retry_count,
            initiator_depth: self.initiator_depth,
        }
    }
}
