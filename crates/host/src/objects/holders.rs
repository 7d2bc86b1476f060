//! Finds the objects that hold another one, to explain why it cannot end. They are looked for only then: as long as
//! nothing is refused, an object just counts its holders.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use transom_device::protection::State;
use transom_system::clock;
use transom_system::registry::{Holder, Holders};

use super::{Adapter, Cq, MemoryRegion, ProtectionDomain, QpReceives, QueuePair};
use super::{SharedReceiveQueue, XrcDomain};

/// The most slots of the key table to look at, because a program may ask again and again.
const MOST: usize = 1 << 14;

/// The number of windows that are bound to a region, and one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundWindows {
    /// Zero if none is found any more.
    pub count: u64,
    /// The key of one.
    pub key: u32,
    /// The queue pair that bound it.
    pub qp: u32,
    /// The work request that did.
    pub wr_id: u64,
    /// How long ago, in nanoseconds.
    pub age: u64,
}

impl Adapter {
    /// The objects of a protection domain.
    pub fn holders_of_domain(&self, domain: &ProtectionDomain) -> Holders {
        let mut holders = Holders::default();
        let number = domain.number();
        let objects = self.device().process().segment().keys().seen(MOST);
        for (key, object) in objects {
            if object.pd == number && object.state != State::Vacant {
                let kind = if object.kind.is_region() { Holder::Region } else { Holder::Window };
                holders.add(kind, key.0.into());
            }
        }
        for qp in self.queue_pairs.all() {
            if qp.pd_number() == number {
                holders.add(Holder::QueuePair, qp.number().bits().into());
            }
        }
        for srq in self.shared_queues.all() {
            if srq.config().pd.number() == number {
                holders.add(Holder::SharedReceiveQueue, 0);
            }
        }
        // Nobody else keeps account of these.
        let others = domain.children().saturating_sub(holders.count());
        (0..others).for_each(|_| holders.add(Holder::AddressHandle, 0));
        holders
    }

    /// The work queues that complete into a completion queue.
    pub fn holders_of_cq(&self, cq: &Cq) -> Holders {
        let mut holders = Holders::default();
        for qp in self.queue_pairs.all() {
            if qp.own_completion_queues().any(|own| own.id() == cq.id()) {
                holders.add(Holder::QueuePair, qp.number().bits().into());
            }
        }
        for srq in self.shared_queues.all() {
            let config = srq.config();
            let xrc = config.xrc.as_ref().map(|xrc| xrc.cq.id());
            let tags = config.tag_matching.as_ref().map(|matching| matching.cq.id());
            if [xrc, tags].contains(&Some(cq.id())) {
                holders.add(Holder::SharedReceiveQueue, 0);
            }
        }
        holders
    }

    /// The queue pairs that take their receives from a shared queue.
    fn holders_of_srq(&self, srq: &SharedReceiveQueue) -> Holders {
        self.queue_pairs_that(
            |receives| matches!(receives, QpReceives::Srq(own) if std::ptr::eq(&**own, srq)),
        )
    }

    /// The objects of an XRC domain.
    pub fn holders_of_xrc(&self, domain: &Arc<XrcDomain>) -> Holders {
        let mut holders = self.queue_pairs_that(
            |receives| matches!(receives, QpReceives::Xrc(own) if Arc::ptr_eq(own, domain)),
        );
        for srq in self.shared_queues.all() {
            if srq.config().xrc.as_ref().is_some_and(|xrc| Arc::ptr_eq(&xrc.domain, domain)) {
                holders.add(Holder::SharedReceiveQueue, 0);
            }
        }
        holders
    }

    fn queue_pairs_that(&self, receive_so: impl Fn(&QpReceives) -> bool) -> Holders {
        let mut holders = Holders::default();
        for qp in self.queue_pairs.all() {
            if receive_so(&qp.config().receives) {
                holders.add(Holder::QueuePair, qp.number().bits().into());
            }
        }
        holders
    }
}

impl SharedReceiveQueue {
    /// The queue pairs that take their receives from it.
    pub fn holders(&self) -> Holders {
        self.adapter().holders_of_srq(self)
    }
}

impl QueuePair {
    /// Its holders: windows of kind 2A that it has bound, or multicast groups that it is in.
    pub fn holders(&self) -> Holders {
        let mut holders = Holders::default();
        let keys = self.device().process().segment().keys();
        let number = self.number().bits();
        for (key, object) in keys.seen(MOST) {
            let bound = object.state == State::Valid && !object.kind.is_region();
            if bound && object.qp == number && self.device().options().windows_2a {
                holders.add(Holder::Window, key.0.into());
            }
        }
        (0..self.holds.memberships.load(Acquire)).for_each(|_| holders.add(Holder::Group, 0));
        holders
    }
}

impl MemoryRegion {
    /// The windows that are bound to it.
    pub fn bound_windows(&self) -> BoundWindows {
        let keys = self.pd().device().process().segment().keys();
        let mut bound = BoundWindows { count: 0, key: 0, qp: 0, wr_id: 0, age: 0 };
        for (key, window) in keys.windows_on(self.slot(), MOST) {
            if bound.count == 0 {
                let age = clock::steady().saturating_sub(window.since);
                let (qp, wr_id) = (window.qp, window.wr_id);
                bound = BoundWindows { count: 0, key: key.0, qp, wr_id, age };
            }
            bound.count += 1;
        }
        bound
    }
}
