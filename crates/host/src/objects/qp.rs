//! Queue pairs of this process: the device's two halves, each under its own lock, and their link.
//!
//! | module | holds |
//! |---|---|
//! | [`config`], [`lifetime`] | its attributes at creation, its beginning and end |
//! | [`attributes`] | its attributes, and its changes of state |
//! | [`send`] | the sending half: posted requests, and the steps that move it on |
//! | [`receive`] | the receiving half: receives, packets and the responses to them |
//! | [`inbound`] | arrivals by a link: requests, replies, packets |
//! | [`services`] | services that the device's halves call, and the sending of segments |
//! | [`effects`], [`feeds`] | the effects that the device asks for, and the completion queues of its work |
//! | `counting` | what it counts of its work |
//! | [`explained`] | notes for `transom explain` |
//! | [`timed`] | how long its requests take, for those who want to know |
//! | [`traced`] | what is recorded of its work, for those who want its events |
//!
//! Locks are taken in this order: send queue, receive queue, completion queue. The device's effects are carried out
//! under the lock of the half that asks for them. Those that need the other half are deferred ([`Deferred`]).

mod attributes;
mod config;
mod counting;
mod effects;
mod explained;
mod feeds;
mod inbound;
mod lifetime;
mod receive;
mod rehearsed;
mod send;
mod services;
#[cfg(test)]
mod testing;
mod timed;
mod traced;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32};

use parking_lot::Mutex;
use transom_device::execution::Counted;
use transom_device::qp::{QpNumber, QpState, QpSummary};
use transom_system::Place;
use transom_system::traffic::Way;
use transom_wire::Psn;

use super::completion_counter::Counters;
use super::{Adapter, AttachError, CompletionCounter, Deferred, Link};
use crate::device::Device;
use crate::events::{AsyncEvent, EventSource};

pub use attributes::{ModifyFailure, QpAttributes};
pub use config::{QpConfig, QpReceives};
use explained::Told;
pub use explained::Unpolled;
use feeds::Feeds;
pub(crate) use inbound::Taken;
use receive::Receiving;
use rehearsed::Rehearsed;
use send::SendHalf;
pub use send::{More, PostOne};
use services::At;
use timed::Begun;
use traced::Traced;

/// A queue pair. It lives until [`QueuePair::destroy`].
pub struct QueuePair {
    device: Arc<Device>,
    /// The other queue pairs that it may send to in this process, and everything they share.
    adapter: Arc<Adapter>,
    number: QpNumber,
    config: QpConfig,
    events: EventSource<AsyncEvent>,
    /// A forked child sees this in place of the summary: the queue pair is in error.
    inherited: QpSummary,
    send: Mutex<SendHalf>,
    receive: Receiving,
    feeds: Feeds,
    pub(super) holds: Holds,
    counters: Counters,
    told: Told,
    rehearsed: Option<Box<Rehearsed>>,
    traced: Traced,
    begun: Begun,
    /// Where it counts what it carries. A forked child must not write there.
    traffic: Place,
    /// The path MTU is two to the power of this. It is set with both halves locked.
    mtu_shift: AtomicU8,
    /// Held while a listener is told whom it lets in. Taken last.
    tells: Mutex<()>,
}

/// The numbers that a queue pair has in its process.
pub(super) struct Numbers {
    /// That of its number.
    pub(super) index: u16,
    /// That of the place where it counts what it carries.
    pub(super) place: u32,
}

/// The holders of a queue pair. While it has any, it does not end.
pub(super) struct Holds {
    /// How many handles a program has. Only the receiving end of XRC can have more than one.
    handles: AtomicU32,
    /// Multicast groups it is in (rule CR-10).
    pub(super) memberships: AtomicU32,
}

impl QueuePair {
    /// Its number.
    pub fn number(&self) -> QpNumber {
        self.number
    }

    /// The device it is on.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The objects that are on it.
    pub fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    /// The attributes it was created with.
    pub fn config(&self) -> &QpConfig {
        &self.config
    }

    /// The state of it that initiators see.
    #[inline]
    pub fn summary(&self) -> &QpSummary {
        if self.device.process().is_inherited() {
            return &self.inherited;
        }
        let table = self.device.process().segment().qps();
        table.summary(self.number.index()).expect("the table has an entry for every u16")
    }

    /// Its protection domain's number. The receiving end of XRC has no domain, so the number is zero.
    pub(crate) fn pd_number(&self) -> u32 {
        self.config.pd.as_ref().map_or(0, |pd| pd.number())
    }

    /// Makes a completion counter count these operations, until the queue pair is destroyed. You can attach one only in
    /// RESET or INIT. On an error it counts none of them (rules CC-06 to CC-09).
    pub fn attach_counter(
        &self,
        counter: &Arc<CompletionCounter>,
        operations: Counted,
    ) -> Result<(), AttachError> {
        // With both locks, as `modify` has them, so that the state stays.
        let _both = (self.send.lock(), self.receive.half.lock());
        let state = self.summary().gate().state;
        let here = Arc::ptr_eq(counter.device(), &self.device);
        if operations.is_empty() || !here || !matches!(state, QpState::Reset | QpState::Init) {
            return Err(AttachError::Invalid);
        }
        if !Counted::of(self.config.service).contains(operations) {
            return Err(AttachError::Unsupported);
        }
        if self.counters.any(operations) {
            return Err(AttachError::Taken);
        }
        self.counters.attach(counter, operations)
    }

    /// Goes on with everything that waited for room on the wire.
    pub(crate) fn advance_packets(&self) {
        self.advance();
        let mut deferred = Deferred::default();
        self.receive.half.lock().advance(self, &mut deferred);
        deferred.run(&self.adapter);
    }

    /// The queue pair at work where nothing is sent.
    fn here(&self) -> At<'_> {
        At::new(self, &Link::None, self.number, Psn::default(), Way::Wire)
    }

    /// The same, where something has come from this host.
    fn receiving(&self) -> At<'_> {
        At::new(self, &Link::None, self.number, Psn::default(), Way::Host)
    }
}
