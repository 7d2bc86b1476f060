//! The queue pair itself: its creation, its states, its end.

use crate::attributes::mtu_code;
use crate::context::OpenDevice;
use crate::delivery::CreatedQueue;
use crate::domain::AllocatedDomain;
use crate::error::{check, non_null};
use crate::keep::Keep;
use crate::{Context, Endpoint, Error, Operation, Posted, Result};
use std::ffi::c_int;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use transom_abi::*;

/// Packets wait 4.096 µs times 2 to this power for an acknowledgement: 67 ms.
const TIMEOUT: u8 = 14;

/// How often a packet without acknowledgement is sent again.
const RETRIES: u8 = 7;

/// A peer without a receive is asked again without end.
const RECEIVER_NOT_READY_RETRIES: u8 = 7;

/// A peer that sends without a receive here shall wait 0.64 ms.
const RECEIVER_NOT_READY_TIMER: u8 = 12;

/// How many reads and atomics may be under way, if the device can do so many. Both sides must
/// agree, so it is a number that every device can do.
const READS: u32 = 16;

/// A queue pair. Its clones and its tickets hold it.
pub(crate) struct Connection {
    pub(crate) qp: *mut ibv_qp,
    pub(crate) local: Endpoint,
    service: ibv_qp_type,
    port: u8,
    gid_index: u8,
    /// For sends, and for receives.
    queues: [Arc<CreatedQueue>; 2],
    pub(crate) domain: Arc<AllocatedDomain>,
}

// SAFETY: libibverbs is thread-safe; a queue pair may be used and destroyed by any thread.
unsafe impl Send for Connection {}
// SAFETY: as for `Send`.
unsafe impl Sync for Connection {}

impl Connection {
    /// Creates a queue pair whose completion queues are these, as `creation` names them.
    pub(crate) fn create(
        domain: Arc<AllocatedDomain>,
        queues: [Arc<CreatedQueue>; 2],
        creation: &mut ibv_qp_init_attr,
        port: u8,
        gid_index: u8,
    ) -> Result<Self> {
        if queues.iter().any(|queue| !Arc::ptr_eq(queue.device(), &domain.device)) {
            return Err(Error::OtherContext { what: "completion queue" });
        }
        let context = Context { inner: domain.device.clone() };
        let attributes = context.port(port)?;
        let gid = context.gid(port, gid_index)?;
        let service = creation.qp_type;
        let wanted = creation.cap;
        // SAFETY: the domain and the queues exist and are of one context.
        let qp = unsafe { (domain.device.provider.verbs.ibv_create_qp)(domain.pd, creation) };
        let subject = format_args!("creating a queue pair with {wanted:?}");
        let qp = non_null("ibv_create_qp", subject, qp)?.as_ptr();
        // SAFETY: the queue pair was created just now.
        let qpn = unsafe { (*qp).qp_num };
        // Not to be guessed by who did not see the endpoint.
        let psn = RandomState::new().hash_one(qpn) as u32 & 0xff_ffff;
        let local = Endpoint { qpn, psn, gid, lid: attributes.lid, mtu: attributes.active_mtu };
        Ok(Self { qp, local, service, port, gid_index, queues, domain })
    }

    fn device(&self) -> &OpenDevice {
        &self.domain.device
    }

    pub(crate) fn send_queue(&self) -> &Arc<CreatedQueue> {
        &self.queues[0]
    }

    pub(crate) fn receive_queue(&self) -> &Arc<CreatedQueue> {
        &self.queues[1]
    }

    /// RESET to INIT. Whether the peer may do something is left to the keys.
    pub(crate) fn initialize(&self) -> Result<()> {
        let remote = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
        let atomics = Context { inner: self.domain.device.clone() }.attributes()?.atomics;
        let mut attributes = ibv_qp_attr {
            qp_state: IBV_QPS_INIT,
            port_num: self.port,
            qp_access_flags: if atomics { remote | IBV_ACCESS_REMOTE_ATOMIC } else { remote },
            ..ibv_qp_attr::default()
        };
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        self.modify(&mut attributes, mask, "moving to INIT")
    }

    /// INIT to RTR, connected to the peer.
    pub(crate) fn ready_to_receive(&self, peer: &Endpoint) -> Result<()> {
        let route = ibv_global_route {
            dgid: ibv_gid { raw: peer.gid.0 },
            sgid_index: self.gid_index,
            hop_limit: 64,
            ..ibv_global_route::default()
        };
        let mut attributes = ibv_qp_attr {
            qp_state: IBV_QPS_RTR,
            path_mtu: mtu_code(self.local.mtu.min(peer.mtu)),
            dest_qp_num: peer.qpn,
            rq_psn: peer.psn,
            max_dest_rd_atomic: self.reads(|device| device.max_reads_served)?,
            min_rnr_timer: RECEIVER_NOT_READY_TIMER,
            ah_attr: ibv_ah_attr {
                grh: route,
                is_global: 1,
                dlid: peer.lid,
                port_num: self.port,
                ..ibv_ah_attr::default()
            },
            ..ibv_qp_attr::default()
        };
        let mut mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        if self.service == IBV_QPT_RC {
            mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        }
        let step = format!("connecting to {:#x} at {}", peer.qpn, peer.gid);
        self.modify(&mut attributes, mask, &step)
    }

    /// RTR to RTS.
    pub(crate) fn ready_to_send(&self) -> Result<()> {
        let mut attributes = ibv_qp_attr {
            qp_state: IBV_QPS_RTS,
            sq_psn: self.local.psn,
            timeout: TIMEOUT,
            retry_cnt: RETRIES,
            rnr_retry: RECEIVER_NOT_READY_RETRIES,
            max_rd_atomic: self.reads(|device| device.max_reads_outstanding)?,
            ..ibv_qp_attr::default()
        };
        let mut mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
        if self.service == IBV_QPT_RC {
            mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
            mask |= IBV_QP_MAX_QP_RD_ATOMIC;
        }
        self.modify(&mut attributes, mask, "moving to RTS")
    }

    pub(crate) fn modify(
        &self,
        attributes: &mut ibv_qp_attr,
        mask: ibv_qp_attr_mask,
        step: &str,
    ) -> Result<()> {
        let verbs = self.device().provider.verbs;
        // SAFETY: the queue pair exists and the attributes are valid.
        let result = unsafe { (verbs.ibv_modify_qp)(self.qp, attributes, mask as c_int) };
        check("ibv_modify_qp", format_args!("{step}, {self}"), result)
    }

    pub(crate) fn query_state(&self) -> Result<ibv_qp_state> {
        let verbs = self.device().provider.verbs;
        let mut attributes = ibv_qp_attr::default();
        let mut creation = ibv_qp_init_attr::default();
        let mask = IBV_QP_STATE as c_int;
        // SAFETY: the queue pair exists and the places to write are valid.
        let result =
            unsafe { (verbs.ibv_query_qp)(self.qp, &raw mut attributes, mask, &raw mut creation) };
        check("ibv_query_qp", format_args!("querying {self}"), result)?;
        Ok(attributes.qp_state)
    }

    /// Posts a request whose completion goes to this queue: `post` is given its `wr_id`.
    pub(crate) fn post(
        self: &Arc<Self>,
        queue: &Arc<CreatedQueue>,
        operation: Operation,
        keep: Keep,
        post: impl FnOnce(u64) -> Result<()>,
    ) -> Result<Posted> {
        // Before it is posted, since its completion may come at once.
        let ticket = queue.lock_for_one_more()?.outstanding.insert(self.local.qpn, operation, keep);
        match post(ticket.wr_id()) {
            Ok(()) => Ok(Posted::new(ticket, queue.clone(), self.clone())),
            Err(error) => {
                let keep = queue.lock().outstanding.remove(ticket);
                drop(keep);
                Err(error)
            }
        }
    }

    fn reads(&self, limit: impl Fn(&crate::DeviceAttributes) -> u32) -> Result<u8> {
        let attributes = Context { inner: self.domain.device.clone() }.attributes()?;
        Ok(limit(&attributes).min(READS) as u8)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Its tickets are gone, so what is outstanding is detached. Slots are cleared while the
        // number is still its own; what they hold is released when no request uses it any more.
        let abandoned = self.queues.each_ref().map(|queue| {
            let mut state = queue.lock();
            state.outstanding.abandon(self.local.qpn)
        });
        // SAFETY: nobody else has the queue pair.
        if unsafe { (self.device().provider.verbs.ibv_destroy_qp)(self.qp) } != 0 {
            // The queue pair stays, so what it uses must stay.
            std::mem::forget((abandoned, self.queues.clone(), self.domain.clone()));
        }
    }
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue pair {:#x}", self.local.qpn)
    }
}
