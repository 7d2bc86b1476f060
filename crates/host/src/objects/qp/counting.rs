//! What a queue pair counts of its work, in its process's segment. Other processes look there ([`Traffic`]).

use transom_device::execution::Tally;
use transom_device::operation::Operation;
use transom_system::traffic::{Carried, Depths, Traffic, Waits, Way};

use super::services::At;
use super::{QpReceives, QueuePair, SendHalf};
use crate::objects::{Cq, Link};

impl Link {
    /// How messages go over it.
    #[inline]
    pub(super) fn way(&self) -> Way {
        match self {
            Self::Loopback | Self::Local(_) => Way::Host,
            Self::None | Self::Wire(_) => Way::Wire,
        }
    }
}

impl SendHalf {
    /// How many requests have not ended, how many have ended without a completion, and how they wait.
    fn depths(&self) -> (u32, u32, Waits) {
        let Self { requester, link, .. } = self;
        let waits = Waits {
            for_a_receive: requester.retry.rnr_count == 7,
            for_an_answer: requester.retry.timeout == 0,
            on_the_wire: matches!(link, Link::Wire(_)),
        };
        (requester.occupancy().1 as u32, requester.unreported(), waits)
    }
}

impl QueuePair {
    /// Counts something that is seen by the half whose lock is held. A forked child sees its queue pairs in error, and
    /// counts nothing.
    #[cold]
    pub(super) fn tally(&self, tally: Tally, count: u64) {
        self.trace_counted(tally, count);
        if !self.device.process().is_inherited() {
            self.traffic.tally(tally, count);
        }
    }

    /// Shows how much waits in its queues now. A half that is busy is shown as it was, for nobody is to wait for this.
    pub(crate) fn show_depths(&self) {
        let before = self.traffic.depths();
        let sends = self.send.try_lock().map(|half| half.depths());
        let (sends, silent, waits) = sends.unwrap_or((before.sends, before.silent, before.waits));
        let receives = match &self.config.receives {
            QpReceives::Srq(srq) => srq.waiting(),
            _ => self.receive.half.try_lock().map(|half| half.responder.occupancy().1),
        };
        let mut queues: Vec<_> = self.own_completion_queues().map(|cq| &**cq).collect();
        queues.dedup_by(|one, other| std::ptr::eq(*one, *other));
        queues.iter().for_each(|cq| cq.show());
        let completions = queues.into_iter().map(Cq::waiting).sum::<Option<usize>>();
        self.traffic.show_depths(Depths {
            sends,
            silent,
            waits,
            receives: receives.map_or(before.receives, |count| count as u32),
            completions: completions.map_or(before.completions, |count| count as u32),
        });
    }
}

impl At<'_> {
    /// A request of the send queue has ended well.
    #[inline]
    pub(super) fn count_carried(&self, operation: Operation, bytes: u64) {
        match Carried::by(operation) {
            Some(kind) => {
                let flow = self.qp.traffic.sent.of(self.way.get(), kind);
                flow.add(bytes, self.packets_of(bytes));
            }
            None => self.count_local(operation),
        }
    }

    #[cold]
    fn count_local(&self, operation: Operation) {
        match operation {
            Operation::Bind => self.qp.tally(Tally::Bound, 1),
            Operation::Invalidate => self.qp.tally(Tally::Invalidated, 1),
            _ => {}
        }
    }

    /// A request of the peer's has been carried out here.
    #[inline]
    pub(super) fn count_served(&self, operation: Operation, bytes: u64) {
        if let Some(kind) = Carried::by(operation) {
            let flow = self.qp.traffic.received.of(self.way.get(), kind);
            flow.add(bytes, self.packets_of(bytes));
        }
    }

    /// A request has been carried out on the direct way. This counts it at its target.
    #[inline]
    pub(super) fn count_there(&self, traffic: &Traffic, kind: Carried, bytes: u64) {
        traffic.served[kind as usize].add(bytes, self.packets_of(bytes));
    }

    /// The same, and counts it here too: nobody else will.
    #[inline(always)]
    pub(super) fn count_at_both_ends(&self, traffic: &Traffic, kind: Carried, bytes: u64) {
        let packets = self.packets_of(bytes);
        self.qp.traffic.sent.of(Way::Host, kind).add(bytes, packets);
        traffic.served[kind as usize].add(bytes, packets);
    }

    /// The place where the target of the direct way counts.
    #[inline(always)]
    pub(super) fn traffic_there(&self, number: u32) -> &Traffic {
        match self.link {
            Link::Local(peer) => peer.segment.traffic(number),
            _ => self.qp.device.process().segment().traffic(number),
        }
    }

    /// The packets that an adapter needs for so many bytes at the path MTU. Without data it is one.
    #[inline(always)]
    fn packets_of(&self, bytes: u64) -> u64 {
        let below = (1 << self.mtu_shift) - 1;
        if bytes <= below { 1 } else { bytes.wrapping_add(below) >> self.mtu_shift }
    }
}
