//! How a queue pair begins, is opened again, and ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::*};

use parking_lot::Mutex;
use transom_device::Access;
use transom_device::execution::MAX_DATAGRAM;
use transom_device::qp::{Bypass, Gate, QpNumber, QpState, QpSummary, SharedQueue};
use transom_system::catalog::Number;
use transom_system::sanitizers;
use transom_wire::Psn;

use super::explained::Told;
use super::feeds::Feeds;
use super::receive::{ReceiveHalf, Receiving};
use super::rehearsed::Rehearsed;
use super::send::SendHalf;
use super::timed::Begun;
use super::traced::Traced;
use super::{Holds, Numbers, QpAttributes, QpConfig, QpReceives, QueuePair};
use crate::device::Device;
use crate::events::AsyncEvent;
use crate::objects::completion_counter::Counters;
use crate::objects::cq::Feed;
use crate::objects::{Adapter, Busy, Deferred, Link, RegisterError, XrcDomain};

/// The events of a queue pair.
const EVENTS: &[AsyncEvent] = &[
    AsyncEvent::QpFatal,
    AsyncEvent::QpRequestError,
    AsyncEvent::QpAccessError,
    AsyncEvent::Established,
    AsyncEvent::SendQueueDrained,
    AsyncEvent::LastWqeReached,
];

impl QpConfig {
    /// Whether all that it names belongs to this device.
    fn is_of(&self, device: &Arc<Device>) -> bool {
        let mut queues = self.send_cq.iter().chain(&self.receive_cq);
        self.pd.as_ref().is_none_or(|pd| Arc::ptr_eq(pd.device(), device))
            && queues.all(|cq| cq.is_of(device))
            && match &self.receives {
                QpReceives::Srq(srq) => Arc::ptr_eq(srq.device(), device),
                QpReceives::Xrc(domain) => domain.is_of(device),
                QpReceives::Own { .. } | QpReceives::Nowhere => true,
            }
    }
}

impl QueuePair {
    /// Creates a queue pair in RESET. The sizes have been checked against [`Limits`](crate::device::Limits).
    pub fn create(adapter: &Arc<Adapter>, config: QpConfig) -> Result<Arc<Self>, RegisterError> {
        let device = adapter.device();
        device.check_own()?;
        if !config.is_of(device) {
            return Err(RegisterError::OtherDevice);
        }
        let (requester, responder) = config.halves().map_err(|_| RegisterError::Exhausted)?;
        let send = SendHalf::new(requester).map_err(|_| RegisterError::Exhausted)?;
        let receive = ReceiveHalf::new(config.service, responder);
        let receive = receive.map_err(|_| RegisterError::Exhausted)?;
        let events = config.events.attach(config.id, EVENTS)?;
        if let Some(pd) = &config.pd {
            pd.adopt().map_err(|_| RegisterError::Busy)?;
        }
        let feeds = Feeds::new(&config, &send.requester, &receive.responder);
        let made = feeds.and_then(|feeds| match adapter.queue_pairs.take_index() {
            Some(taken) => Ok((taken, feeds)),
            None => {
                feeds.all().for_each(Feed::end);
                Err(RegisterError::Exhausted)
            }
        });
        let (Numbers { index, place }, feeds) = made.inspect_err(|_| {
            if let Some(pd) = &config.pd {
                pd.release();
            }
        })?;
        let number = QpNumber::new(device.process().announcer().slot, index);
        match &config.receives {
            QpReceives::Srq(srq) => srq.adopt(),
            QpReceives::Xrc(domain) => domain.adopt(),
            QpReceives::Own { .. } | QpReceives::Nowhere => {}
        }
        let inherited = QpSummary::default();
        inherited.set_gate(Gate {
            state: QpState::Error,
            service: config.service,
            access: Access::empty(),
            bypass: Bypass::Free,
            read_resources: 0,
            pd: config.pd.as_ref().map_or(0, |pd| pd.number()),
        });
        let qp = Arc::new(Self {
            device: device.clone(),
            adapter: adapter.clone(),
            number,
            events,
            inherited,
            send: Mutex::new(send),
            receive: Receiving::new(receive),
            feeds,
            holds: Holds { handles: AtomicU32::new(1), memberships: AtomicU32::new(0) },
            counters: Counters::default(),
            told: Told::default(),
            rehearsed: Rehearsed::new(config.service),
            traced: Traced::default(),
            begun: Begun::default(),
            traffic: device.process().place(place),
            mtu_shift: AtomicU8::new(MAX_DATAGRAM.trailing_zeros() as u8),
            tells: Mutex::new(()),
            config,
        });
        qp.open_gate(QpState::Reset, &QpAttributes::reset());
        qp.summary().set_place(place);
        qp.traffic.begin(index);
        let domain = match &qp.config.receives {
            QpReceives::Xrc(domain) => Some(domain),
            _ => None,
        };
        qp.summary().set_xrc_domain(domain.and_then(|domain| domain.file()));
        qp.summary().set_own_domain(domain.map_or(0, |domain| domain.number()));
        qp.summary().set_shared_queue(match &qp.config.receives {
            QpReceives::Srq(srq) => SharedQueue::Number(srq.number()),
            QpReceives::Xrc(_) => SharedQueue::EachMessageNames,
            QpReceives::Own { .. } | QpReceives::Nowhere => SharedQueue::None,
        });
        let queues = [&qp.config.send_cq, &qp.config.receive_cq];
        let numbers = queues.map(|cq| cq.as_ref().and_then(|cq| cq.listed()));
        qp.summary().set_completes_to(numbers.map(Number::bits));
        qp.summary().set_first_sent(Psn::default());
        sanitizers::made(number.bits());
        adapter.queue_pairs.enter(index, &qp);
        Ok(qp)
    }
}

impl Adapter {
    /// Takes another handle of the receiving end of an XRC connection, by number (`ibv_open_qp(3)`). `None` if this
    /// process has none of that number in the domain.
    pub fn open_xrc_target(&self, number: u32, domain: &Arc<XrcDomain>) -> Option<Arc<QueuePair>> {
        let qp = self.queue_pairs.get(QpNumber::from_bits(number).index())?;
        let QpReceives::Xrc(own) = &qp.config.receives else { return None };
        if qp.number.bits() != number || !Arc::ptr_eq(own, domain) {
            return None;
        }
        let one_more = |count| (count > 0).then(|| count + 1);
        qp.holds.handles.fetch_update(AcqRel, Acquire, one_more).ok()?;
        Some(qp)
    }
}

impl QueuePair {
    /// Checks that nothing keeps it. A bound window does, on a device with 2A windows (rule T2-06), and so does
    /// membership of a multicast group (rule CR-10).
    pub fn check_unused(&self) -> Result<(), Busy> {
        let bound = self.device.options().windows_2a && self.summary().windows() > 0;
        if bound || self.holds.memberships.load(Acquire) > 0 { Err(Busy) } else { Ok(()) }
    }

    /// Ends the queue pair unless something keeps it. When it returns, nothing arrives through it any
    /// more and its completions are gone, unless a rehearsal leaves them (rule REH-85).
    pub fn destroy(&self) -> Result<(), Busy> {
        self.check_unused()?;
        match self.holds.handles.fetch_update(AcqRel, Acquire, |count| count.checked_sub(1)) {
            Ok(1) => {}
            // Other handles remain, or it is gone already.
            Ok(_) | Err(_) => return Ok(()),
        }
        // In a forked child it is the parent's, and goes on.
        if !self.device.process().is_inherited() {
            self.close();
            self.rehearse_anew();
            self.summary().leave();
            self.tell_of_end();
            self.device.process().segment().retire(self.traffic.number());
            sanitizers::forget(self.number.bits());
        }
        let leaves_completions = !self.device.process().is_inherited() && self.leaves_completions();
        self.adapter.queue_pairs.leave(self.number.index(), self.traffic.number());
        let QpConfig { pd, receives, .. } = &self.config;
        self.feeds.all().for_each(if leaves_completions { Feed::leave } else { Feed::end });
        match receives {
            QpReceives::Srq(srq) => srq.release(),
            QpReceives::Xrc(domain) => domain.release(),
            QpReceives::Own { .. } | QpReceives::Nowhere => {}
        }
        if let Some(pd) = pd {
            pd.release();
        }
        self.counters.release();
        Ok(())
    }

    /// Closes the gate, and waits for accesses that are under way.
    fn close(&self) {
        let mut deferred = Deferred::default();
        {
            let mut half = self.send.lock();
            let mut receive = self.receive.half.lock();
            receive.repeat_last_acknowledgement(self);
            self.open_gate(QpState::Reset, &QpAttributes::reset());
            half.requester.reset();
            half.count(&self.device);
            half.lead(Link::None, QpNumber::from_bits(0), self);
            receive.reset(self, &mut deferred);
        }
        deferred.run(&self.adapter);
        // The program may end next, and its peer must get the last answers.
        self.device.port().send_rest();
        let keys = self.device.process().segment().keys();
        keys.drain_queue_pair(self.number.index(), &**self.device.process());
    }

    /// Leaves its groups because its context ends. They would make [`QueuePair::destroy`] refuse.
    pub fn leave_groups(&self) {
        self.adapter.groups.leave_all(self.device.port(), self);
    }
}
