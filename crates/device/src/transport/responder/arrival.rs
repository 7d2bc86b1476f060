//! The process around a queue pair, as a segment sees it that came in packets.

use core::cell::Cell;

use transom_wire::packet::Packet;

use crate::execution::{
    Injection, MemoryGone, QpEvent, QueueSide, Reply, Request, Services, TakeShared,
};
use crate::protection::{Announcer, Grant, KeyTable, Refusal, Waiter};
use crate::qp::{QpNumber, QpSummary, QpTable};
use crate::queue::{Completion, Receive};
use crate::transport::Outlet;

/// [`Services`] while packets are carried out: the acknowledgement of a message is a packet, which is
/// on its way before the program sees the completion.
pub(super) struct Arrival<'a, S> {
    pub(super) outlet: &'a S,
    /// What acknowledges the message, until it is sent.
    pub(super) acknowledgement: Cell<Option<Packet<'static>>>,
}

impl<S: Outlet> Services for Arrival<'_, S> {
    fn acknowledge(&self, reply: Reply) {
        if reply == Reply::Ack
            && let Some(packet) = self.acknowledgement.take()
        {
            self.outlet.respond(&packet);
        }
    }

    fn keys(&self) -> KeyTable<'_> {
        self.outlet.keys()
    }

    fn qps(&self) -> QpTable<'_> {
        self.outlet.qps()
    }

    fn announcer(&self) -> Announcer {
        self.outlet.announcer()
    }

    fn waiter(&self) -> &dyn Waiter {
        self.outlet.waiter()
    }

    fn now(&self) -> u64 {
        self.outlet.now()
    }

    fn number(&self) -> QpNumber {
        self.outlet.number()
    }

    fn summary(&self) -> &QpSummary {
        self.outlet.summary()
    }

    fn store(&self, at: &Grant<'_>, bytes: &[u8]) -> Result<(), MemoryGone> {
        self.outlet.store(at, bytes)
    }

    fn store_pieces(&self, at: &Grant<'_>, pieces: &[&[u8]]) -> Result<(), MemoryGone> {
        self.outlet.store_pieces(at, pieces)
    }

    fn atomic(
        &self,
        at: &Grant<'_>,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, MemoryGone> {
        self.outlet.atomic(at, update)
    }

    fn complete(&self, side: QueueSide, completion: Completion, solicited: bool) {
        self.outlet.complete(side, completion, solicited);
    }

    fn take_shared(
        &self,
        srq: Option<u32>,
        tag: Option<u64>,
        least: u64,
        receive: &mut Receive,
    ) -> TakeShared {
        self.outlet.take_shared(srq, tag, least, receive)
    }

    fn forget_unexpected(&self) {
        self.outlet.forget_unexpected();
    }

    fn rendezvous(&self) {
        self.outlet.rendezvous();
    }

    fn shared_pd(&self, srq: u32) -> Option<u32> {
        self.outlet.shared_pd(srq)
    }

    fn complete_shared(&self, srq: u32, completion: Completion, solicited: bool) {
        self.outlet.complete_shared(srq, completion, solicited);
    }

    fn event(&self, event: QpEvent) {
        self.outlet.event(event);
    }

    fn injected(&self, request: &Request) -> Option<Injection> {
        self.outlet.injected(request)
    }

    fn refused(&self, refusal: &Refusal) {
        self.outlet.refused(refusal);
    }

    fn flush_other(&self, fallen: QueueSide) {
        self.outlet.flush_other(fallen);
    }
}
