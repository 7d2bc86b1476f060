//! A queue pair at work: what the device asks of the process around it. Everything that leaves the
//! device here is shown to the model first.

use std::cell::Cell;

use transom_device::execution::{Effect, MemoryGone, Process, QueueSide, Shortcuts, TakeShared};
use transom_device::protection::{Announcer, Grant, KeyTable, Refusal, Waiter};
use transom_device::qp::{QpSummary, QpTable};
use transom_device::queue::{Address, Completion, Receive};
use transom_wire::Psn;
use transom_wire::packet::Packet;

use crate::device::{Alone, Device, SELF};
use crate::endpoint::Io;
use crate::model::{At, Cause, Model, Verdict};
use crate::node::{Egress, Qp};
use crate::world::Shared;

/// A queue pair, why it is at work, and everything around it.
pub struct Port<'a> {
    /// Everything.
    pub shared: &'a Shared,
    /// Which queue pair.
    pub at: At,
    /// The same.
    pub qp: &'a Qp,
    /// Why.
    pub cause: &'a Cause,
}

impl Port<'_> {
    fn device(&self) -> &Device {
        &self.shared.nodes[self.at.device].device
    }

    fn egress(&self) -> &Egress {
        &self.shared.nodes[self.at.device].egress
    }

    fn note(&self, verdict: Verdict) {
        self.shared.note(self.at, verdict);
    }

    /// Packets leave, and the model hears of them.
    fn transmit(
        &self,
        packets: &[Packet<'_>],
        told: impl Fn(&mut Model, At, &Packet<'_>) -> Verdict,
    ) {
        for packet in packets {
            let verdict = told(&mut self.shared.model(), self.at, packet);
            self.note(verdict);
            self.shared.transmit(self.at, packet);
        }
    }
}

/// Everything goes as segments.
impl Shortcuts for Port<'_> {}

impl Process for Port<'_> {
    fn keys(&self) -> KeyTable<'_> {
        self.device().keys()
    }

    fn qps(&self) -> QpTable<'_> {
        self.device().table()
    }

    fn announcer(&self) -> Announcer {
        SELF
    }

    fn waiter(&self) -> &dyn Waiter {
        &Alone
    }

    fn now(&self) -> u64 {
        self.shared.nodes[self.at.device].clock.at(self.shared.now())
    }

    fn store(&self, at: &Grant<'_>, pieces: &[&[u8]]) -> Result<(), MemoryGone> {
        let bytes = pieces.concat();
        let verdict = {
            let mut model = self.shared.model();
            match self.cause {
                Cause::Responses => model.stored_for_response(self.at, at.place(), &bytes),
                cause => model.stored_for_request(self.at, cause, at.place(), &bytes),
            }
        };
        self.note(verdict);
        let fits = bytes.len() as u64 == at.length();
        self.note(fits.then_some(()).ok_or_else(|| "a store does not fill its grant".into()));
        self.device().store(at.place(), &bytes).ok_or(MemoryGone)
    }

    fn atomic(
        &self,
        at: &Grant<'_>,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, MemoryGone> {
        let old = self.device().word(at).ok_or(MemoryGone)?;
        let new = update(old);
        let verdict = self.shared.model().changed(self.at, self.cause, at.place(), old, new);
        self.note(verdict);
        self.device().store(at.place(), &new.to_ne_bytes()).ok_or(MemoryGone)?;
        Ok(old)
    }

    fn take_shared(
        &self,
        _srq: Option<u32>,
        _tag: Option<u64>,
        _least: u64,
        _receive: &mut Receive,
    ) -> TakeShared {
        TakeShared::Unknown
    }

    fn shared_pd(&self, _srq: u32) -> Option<u32> {
        None
    }

    fn complete(&self, completion: &Completion) {
        self.completed(QueueSide::Send, completion);
    }

    fn note_refusal(&self, refusal: &Refusal) {
        self.shared.say(|| {
            let Refusal { reason, attempt, .. } = refusal;
            format!("{} refuses {:?}: {reason:?} ({})", self.at, attempt.operation, refusal.rule())
        });
        let verdict = self.shared.model().refused(self.at, self.cause, refusal);
        self.note(verdict);
    }

    fn datagram_limit(&self, _to: &Address) -> u64 {
        self.qp.mtu
    }
}

impl Io for Port<'_> {
    fn summary(&self) -> &QpSummary {
        self.device().summary(self.qp.number)
    }

    /// What the model is told of memory and of packets it is told before.
    fn happened(&self, effect: &Effect) {
        match effect {
            Effect::Complete { completion, .. } => self.completed(QueueSide::Receive, completion),
            Effect::Event(event) => self.shared.say(|| format!("{} event {event:?}", self.at)),
            Effect::Respond(packet) => self.respond(packet),
            other => panic!("no queue pair here wants {other:?}"),
        }
    }

    fn given_back(&self) -> &[Cell<u32>; 2] {
        &self.qp.given_back
    }

    fn load(&self, at: &Grant<'_>) -> Option<Vec<u8>> {
        self.device().granted(at)
    }

    fn read(&self, first: Psn, offset: u64, at: &Grant<'_>) -> Option<Vec<u8>> {
        // A link without room lets later requests go first (rule ORD-08).
        let in_order = !self.egress().ever_full.get();
        let range = (at.place(), at.length());
        let verdict = self.shared.model().read(self.at, first, offset, range, in_order);
        self.note(verdict);
        self.device().granted(at)
    }

    fn room(&self) -> usize {
        let egress = self.egress();
        let room = egress.depth.saturating_sub(egress.pending.get());
        if (room as u64) < self.shared.burst {
            egress.was_full.set(true);
            egress.ever_full.set(egress.ever_full.get() || room == 0);
        }
        room
    }

    fn send(&self, packets: &[Packet<'_>]) {
        self.transmit(packets, Model::requested);
    }

    fn joins(&self) -> usize {
        let egress = self.egress();
        if egress.pending.get() == 0 {
            egress.has_refused.set(false);
        }
        // What is taken back again and again would never be all gone.
        if egress.has_refused.get() { 0 } else { self.shared.burst as usize }
    }

    fn send_joined(&self, packets: &[Packet<'_>]) -> bool {
        let room = self.room();
        if packets.len() <= room {
            self.send(packets);
            return true;
        }
        // What left before there was no room any more leaves again with the others.
        let egress = self.egress();
        egress.was_full.set(true);
        egress.ever_full.set(true);
        egress.has_refused.set(true);
        self.send(&packets[..room]);
        for packet in &packets[..room] {
            let verdict = self.shared.model().taken_back(self.at, packet);
            self.note(verdict);
        }
        false
    }

    fn send_answer(&self, packets: &[Packet<'_>]) -> bool {
        self.transmit(packets, Model::answered_read);
        true
    }
}

impl Port<'_> {
    fn completed(&self, side: QueueSide, completion: &Completion) {
        let given_back = &self.qp.given_back[usize::from(side == QueueSide::Receive)];
        given_back.update(|places| places + completion.places);
        self.shared.say(|| {
            let Completion { wr_id, status, opcode, byte_length, .. } = completion;
            format!("{} {side:?} {wr_id:#x} {opcode:?} {status:?}, {byte_length} bytes", self.at)
        });
        let memory = |address, length| self.device().load(address, length).unwrap_or_default();
        let verdict = self.shared.model().completed(self.at, self.cause, side, completion, &memory);
        self.note(verdict);
    }

    fn respond(&self, packet: &Packet<'_>) {
        if self.egress().ever_full.get() {
            self.shared.model().end_mut(self.at).held = true;
        }
        if self.room() == 0 {
            let verdict = self.shared.model().responded(self.at, packet);
            self.note(verdict);
            self.shared.say(|| format!("{} has no room for an answer", self.at));
            self.shared.slow_down(self.at);
            return;
        }
        self.transmit(&[*packet], Model::responded);
    }
}
