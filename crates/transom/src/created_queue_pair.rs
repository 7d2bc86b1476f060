//! The queue pair itself: its creation, its end, and the objects that it holds.

use crate::completion::Operation;
use crate::context::OpenDevice;
use crate::delivery::CreatedQueue;
use crate::domain::AllocatedDomain;
use crate::error::{non_null, unsupported};
use crate::extended::extended;
use crate::keep::Keep;
use crate::moment::Moment;
use crate::outstanding::Poster;
use crate::panics::outlive;
use crate::posted::WorkQueue;
use crate::process::Own;
use crate::shared::CreatedShared;
use crate::xrc_domain::OpenedXrcDomain;
use crate::{Context, Endpoint, Error, Gid, Posted, Result};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};
use transom_abi::*;

/// A queue pair. Its clones and its tickets hold it.
pub(crate) struct CreatedQueuePair {
    pub(crate) qp: *mut ibv_qp,
    /// Its extended form, if it was built for batches; null otherwise.
    pub(crate) extended: *mut ibv_qp_ex,
    pub(crate) local: Endpoint,
    pub(crate) creation: Creation,
    poster: Poster,
    /// The multicast groups it has joined. A group is listed once for each membership.
    pub(crate) groups: Own<Mutex<Vec<Gid>>>,
    pub(crate) parts: Parts,
}

/// The objects a queue pair is made from. Its service decides which of them it has.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// The completion queue of its sends.
    pub(crate) sends: Option<Arc<CreatedQueue>>,
    /// The completion queue of its own receive queue.
    pub(crate) receives: Option<Arc<CreatedQueue>>,
    /// The shared receive queue, if it uses one in place of a receive queue of its own.
    pub(crate) shared: Option<Arc<CreatedShared>>,
    pub(crate) domain: Option<Arc<AllocatedDomain>>,
    pub(crate) xrc_domain: Option<Arc<OpenedXrcDomain>>,
    pub(crate) device: Arc<OpenDevice>,
}

impl Parts {
    /// A device and nothing else.
    pub(crate) fn new(device: &Arc<OpenDevice>) -> Self {
        Self {
            sends: None,
            receives: None,
            shared: None,
            domain: None,
            xrc_domain: None,
            device: device.clone(),
        }
    }

    fn check_contexts(&self) -> Result<()> {
        let queues = self.sends.iter().chain(&self.receives).map(|queue| queue.device());
        let queues = queues.map(|device| (device, "completion queue"));
        let shared = self.shared.iter().map(|shared| (shared.device(), "shared receive queue"));
        match queues.chain(shared).find(|(device, _)| !Arc::ptr_eq(device, &self.device)) {
            Some((_, what)) => Err(Error::OtherContext { what }),
            None => Ok(()),
        }
    }
}

/// The creation parameters of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Creation {
    pub(crate) service: ibv_qp_type,
    pub(crate) capacity: ibv_qp_cap,
    /// The operations its batches can have, bits of `ibv_qp_create_send_ops_flags`. 0 if it has no batches.
    pub(crate) operations: ibv_qp_create_send_ops_flags,
    pub(crate) port: u8,
    pub(crate) gid_index: u8,
    /// Of its packets.
    pub(crate) traffic_class: Option<u8>,
    /// How often it asks again when the peer has no receive.
    pub(crate) receiver_not_ready_retries: Option<u8>,
    /// The key that datagrams to it must name.
    pub(crate) qkey: u32,
}

// SAFETY: libibverbs is thread-safe. Any thread may use and destroy a queue pair, and the endpoint is a plain
// value.
unsafe impl Send for CreatedQueuePair {}
// SAFETY: as for `Send`.
unsafe impl Sync for CreatedQueuePair {}

impl CreatedQueuePair {
    /// Creates a queue pair in RESET.
    pub(crate) fn create(parts: Parts, creation: Creation) -> Result<Self> {
        parts.check_contexts()?;
        let context = Context { inner: parts.device.clone() };
        let attributes = context.port(creation.port)?;
        let gid = context.gid(creation.port, creation.gid_index)?;
        let qp = create_qp(&parts, &creation)?;
        let mut extended = std::ptr::null_mut();
        if creation.operations != 0 {
            // SAFETY: the queue pair was created just now, with operations to build.
            extended = unsafe { (parts.device.provider.verbs.ibv_qp_to_qp_ex)(qp) };
        }
        // SAFETY: the queue pair was created just now.
        let qpn = unsafe { (*qp).qp_num };
        // Random, so that nobody can guess it without the endpoint.
        let psn = RandomState::new().hash_one(qpn) as u32 & 0xff_ffff;
        let local = Endpoint { qpn, psn, gid, lid: attributes.lid, mtu: attributes.active_mtu };
        let (poster, groups) = (Poster::new(), Own::new(Mutex::default(), parts.device.process));
        Ok(Self { qp, extended, local, creation, poster, groups, parts })
    }

    pub(crate) fn device(&self) -> &Arc<OpenDevice> {
        &self.parts.device
    }

    /// The completion queue of its sends. Only the receiving end of XRC has none, and its type cannot post
    /// sends.
    pub(crate) fn send_queue(&self) -> &Arc<CreatedQueue> {
        self.parts.sends.as_ref().expect("what posts sends was built with a queue for them")
    }

    /// Takes the completions of receives that have come. Returns the moment after that, or `None` if it has
    /// no receives.
    pub(crate) fn drain_receives(&self) -> Result<Option<Moment>> {
        let shared = self.parts.shared.as_ref().map(|shared| &shared.completions);
        let Some(queue) = shared.or(self.parts.receives.as_ref()) else { return Ok(None) };
        queue.poll()?;
        Ok(Some(queue.lock().outstanding.now()))
    }

    /// Posts a receive to its own receive queue. `post` gets its `wr_id`.
    pub(crate) fn post_receive(
        self: &Arc<Self>,
        operation: Operation,
        keep: Keep,
        post: impl FnOnce(u64) -> Result<()>,
    ) -> Result<Posted> {
        let queue = self.parts.receives.as_ref().ok_or(Error::SharedReceives)?;
        Posted::post(queue, self, operation, keep, post)
    }
}

impl WorkQueue for CreatedQueuePair {
    fn poster(&self) -> Poster {
        self.poster
    }
}

/// Creates the queue pair. Uses the plain verb if that verb has all the arguments.
fn create_qp(parts: &Parts, creation: &Creation) -> Result<*mut ibv_qp> {
    let cq = |queue: &Option<Arc<CreatedQueue>>| {
        queue.as_ref().map_or(std::ptr::null_mut(), |queue| queue.cq)
    };
    // A receive of a shared receive queue completes into that queue's completion queue.
    let of_shared = parts.shared.as_ref().map(|shared| shared.completions.cq);
    let (send_cq, recv_cq) = (cq(&parts.sends), of_shared.unwrap_or_else(|| cq(&parts.receives)));
    let srq = parts.shared.as_ref().map_or(std::ptr::null_mut(), |shared| shared.srq);
    let pd = parts.domain.as_ref().map_or(std::ptr::null_mut(), |domain| domain.pd);
    let Creation { service: qp_type, capacity: cap, operations, .. } = *creation;
    let subject = format_args!("creating a queue pair with {cap:?}");
    if operations == 0 && parts.xrc_domain.is_none() {
        let mut attributes =
            ibv_qp_init_attr { send_cq, recv_cq, srq, cap, qp_type, ..Default::default() };
        let verbs = parts.device.provider.verbs;
        // SAFETY: the domain and the queues exist and are of one context.
        let qp = unsafe { (verbs.ibv_create_qp)(pd, &raw mut attributes) };
        return Ok(non_null("ibv_create_qp", subject, qp)?.as_ptr());
    }
    let create_qp_ex = extended!(parts.device, create_qp_ex);
    let create_qp_ex = create_qp_ex.ok_or_else(|| unsupported("ibv_create_qp_ex"))?;
    let mut attributes = ibv_qp_init_attr_ex {
        send_cq,
        recv_cq,
        srq,
        cap,
        qp_type,
        pd,
        xrcd: parts.xrc_domain.as_ref().map_or(std::ptr::null_mut(), |domain| domain.xrcd),
        send_ops_flags: operations.into(),
        ..ibv_qp_init_attr_ex::default()
    };
    let given = [
        (!pd.is_null(), IBV_QP_INIT_ATTR_PD),
        (parts.xrc_domain.is_some(), IBV_QP_INIT_ATTR_XRCD),
        (operations != 0, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS),
    ];
    let given = given.into_iter().filter(|(given, _)| *given);
    attributes.comp_mask = given.fold(0, |mask, (_, bit)| mask | bit);
    // SAFETY: the context is open; the domains and the queues exist and are of it.
    let qp = unsafe { create_qp_ex(parts.device.context, &raw mut attributes) };
    Ok(non_null("ibv_create_qp_ex", subject, qp)?.as_ptr())
}

impl Drop for CreatedQueuePair {
    fn drop(&mut self) {
        if self.device().is_inherited() {
            return;
        }
        self.give_shared_receives_back();
        if !self.destroy() {
            // It must not go on serving its peer. Perhaps it has bound a window of type 2 that its last request frees
            // when its completion is taken (rule T2-06).
            let _ = self.fail();
            self.take_completions();
            if !self.destroy() {
                // The queue pair stays, so the objects it uses must stay.
                std::mem::forget(self.parts.clone());
                return;
            }
        }
        self.take_completions();
        for queue in self.completions() {
            // Nothing uses the objects of its other requests any more, so release them.
            let abandoned = queue.lock().outstanding.abandon(self.poster);
            outlive(|| drop(abandoned));
        }
    }
}

impl CreatedQueuePair {
    /// Makes it fail, because its connection is given up. If the device refuses, the device itself has gone.
    pub(crate) fn give_up(&self) {
        if !self.device().is_inherited() {
            let _ = self.fail();
        }
    }

    /// Destroys it, unless the device refuses.
    fn destroy(&self) -> bool {
        // SAFETY: only the drop calls this, and not again once it is destroyed. Nobody else has the queue pair.
        unsafe { (self.device().provider.verbs.ibv_destroy_qp)(self.qp) == 0 }
    }

    /// The completion queues of its requests.
    fn completions(&self) -> impl Iterator<Item = &Arc<CreatedQueue>> {
        self.parts.sends.iter().chain(&self.parts.receives)
    }

    /// Takes its completions. They take room in the queues until they are polled, unless the library has dropped them
    /// (rule ORD-29). If polling fails, the next poll reports it.
    fn take_completions(&self) {
        for queue in self.completions() {
            let _ = queue.poll();
        }
    }

    /// Makes the receives that it took from a shared receive queue complete now. Later its completions would vanish
    /// with it.
    fn give_shared_receives_back(&self) {
        if self.parts.shared.is_none() && self.parts.xrc_domain.is_none() {
            return;
        }
        // If the device refuses, the receives stay with the shared receive queue until its end.
        let _ = self.fail();
        if let Some(shared) = &self.parts.shared {
            let _ = shared.completions.poll();
        }
    }
}

impl fmt::Display for CreatedQueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue pair {:#x}", self.local.qpn)
    }
}

#[cfg(all(test, feature = "software"))]
mod tests {
    use crate::{CompletionQueue, Error, ProtectionDomain, Provider, QueuePair, Status};
    use std::ffi::c_int;
    use transom_abi::ibv_qp;

    /// Leaves completions in their queue, as libraries may (rule ORD-29).
    unsafe extern "C" fn destroys_nothing(_: *mut ibv_qp) -> c_int {
        0
    }

    #[test]
    fn what_a_queue_pair_leaves_in_its_queue_takes_no_room() {
        let provider = Provider::changed(|verbs| verbs.ibv_destroy_qp = destroys_nothing);
        let context = crate::devices(&provider).unwrap()[0].open().unwrap();
        let pd = ProtectionDomain::new(&context).unwrap();
        let cq = CompletionQueue::new(&context, 4).unwrap();
        let entries = cq.entries();
        let builder = QueuePair::builder(&pd, &cq).max_receives(entries as u32);
        // Each fills the queue.
        for _ in 0..3 {
            let qp = builder.build().unwrap();
            let receives: Vec<_> = (0..entries).map(|_| qp.receive(&[]).unwrap()).collect();
            drop(receives);
            qp.fail().unwrap();
        }
        let qp = builder.build().unwrap();
        let received = qp.receive(&[]).unwrap();
        qp.fail().unwrap();
        match received.wait() {
            Err(Error::Work(error)) => assert_eq!(error.status, Status::Flushed),
            other => panic!("{other:?}"),
        }
    }
}
