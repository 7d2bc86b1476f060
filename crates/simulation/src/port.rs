//! A queue pair at work: what the device asks of the process around it. Everything that leaves the
//! device here is shown to the model first.

use transom_device::execution::{
    Context, CopyError, Counted, Effect, Effects, LocalBuffers, MemoryGone, Payload, Process,
    QueueSide, Reply, Request, Requester, Responder, Sent, Sink, TakeShared,
};
use transom_device::protection::{Announcer, Grant, KeyTable, Operation, Refusal, Waiter};
use transom_device::qp::QpTable;
use transom_device::queue::{Address, Completion, Receive};
use transom_device::transport::ResponseBurst;
use transom_device::transport::burst::Burst;
use transom_wire::grh::Route;
use transom_wire::packet::{Aeth, Operation as Opcode, Packet, Transport};
use transom_wire::{Psn, Syndrome};

use crate::device::{Alone, Device, Qp, SELF};
use crate::model::{At, Cause, Verdict};
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
        &self.shared.devices[self.at.device]
    }

    fn note(&self, verdict: Verdict) {
        self.shared.note(self.at, verdict);
    }

    /// The numbers that a gather copies: the bytes of the payload from `offset` on.
    fn gather(&self, payload: Payload<'_>, offset: u64, length: u64) -> Result<Vec<u8>, Refusal> {
        let sges = match payload {
            Payload::Inline(bytes) => {
                return Ok(bytes[offset as usize..][..length as usize].to_vec());
            }
            Payload::Buffers(sges) => sges,
        };
        let local = LocalBuffers {
            sges,
            keys: self.keys(),
            announcer: SELF,
            waiter: &Alone,
            qp: self.qp.number.bits(),
            pd: self.device().summary(self.at.qp).gate().pd,
        };
        let mut bytes = Vec::new();
        let gathered = local.each(Operation::LocalRead, offset, length, |_, grant| {
            bytes.extend(self.device().granted(grant).ok_or(CopyError::Far)?);
            Ok(())
        });
        match gathered {
            Ok(()) => Ok(bytes),
            Err(CopyError::Near(refusal)) => Err(refusal),
            Err(CopyError::Far) => Err(local.gone(Operation::LocalRead)),
        }
    }

    fn transmit(&self, packet: &Packet<'_>) {
        self.shared.transmit(self.at, packet);
    }
}

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
        self.device().clock.at(self.shared.now())
    }

    fn store(&self, at: &Grant<'_>, pieces: &[&[u8]]) -> Result<(), MemoryGone> {
        let bytes = pieces.concat();
        let verdict = {
            let mut model = self.shared.model();
            match self.cause {
                Cause::Responses => model.stored_for_response(self.at, at.address(), &bytes),
                cause => model.stored_for_request(self.at, cause, at.address(), &bytes),
            }
        };
        self.note(verdict);
        let fits = bytes.len() as u64 == at.length();
        self.note(fits.then_some(()).ok_or_else(|| "a store does not fill its grant".into()));
        self.device().store(at.address(), &bytes).ok_or(MemoryGone)
    }

    fn atomic(
        &self,
        at: &Grant<'_>,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, MemoryGone> {
        let word = self.device().load(at.address(), 8).ok_or(MemoryGone)?;
        let old = u64::from_ne_bytes(word.try_into().map_err(|_| MemoryGone)?);
        let new = update(old);
        let verdict = self.shared.model().changed(self.at, self.cause, at.address(), old, new);
        self.note(verdict);
        self.device().store(at.address(), &new.to_ne_bytes()).ok_or(MemoryGone)?;
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

    fn datagram_limit(&self, _to: &Address) -> u64 {
        self.qp.mtu
    }
}

impl Port<'_> {
    /// What the device is called with.
    fn context<'a>(&'a self, effects: &'a mut Effects) -> Context<'a, Self> {
        let (number, summary) = (self.qp.number, self.device().summary(self.at.qp));
        Context { process: self, number, summary, counted: Counted::empty(), effects }
    }

    /// The send queue does something, and then what it can.
    pub fn drive<T>(&self, step: impl FnOnce(&mut Requester, &mut Context<'_, Self>) -> T) -> T {
        let mut requester = self.qp.requester.borrow_mut();
        let mut effects = requester.effects().expect("there is memory");
        let mut cx = self.context(&mut effects);
        let result = step(&mut requester, &mut cx);
        requester.check_timeout(&mut cx);
        while let Some(request) = requester.next_segment(&mut cx) {
            self.settle(cx.effects);
            let outcome = self.send(&request, requester.payload());
            if !requester.sent(&request, outcome, &mut cx) {
                break;
            }
        }
        self.settle(cx.effects);
        result
    }

    /// The responder does something.
    pub fn respond_with<T>(
        &self,
        step: impl FnOnce(&mut Responder, &mut Context<'_, Self>) -> T,
    ) -> T {
        let mut responder = self.qp.execution.borrow_mut();
        let mut effects = responder.effects().expect("there is memory");
        let result = step(&mut responder, &mut self.context(&mut effects));
        drop(responder);
        self.settle(&mut effects);
        result
    }

    /// Takes packets that came together, all requests.
    pub fn take(&self, packets: &[Packet<'_>], from: &Route) {
        let mut rest = packets;
        while !rest.is_empty() {
            self.answer_reads();
            let taken = self.respond_with(|responder, cx| {
                self.qp.responder.borrow_mut().take(responder, rest, from, cx)
            });
            rest = &rest[taken..];
        }
        self.answer();
    }

    /// Sends all answers for which there is room.
    pub fn answer(&self) {
        self.answer_reads();
        self.respond_with(|_, cx| self.qp.responder.borrow_mut().acknowledge(cx));
    }

    /// Answers READs, atomics and others like them.
    fn answer_reads(&self) {
        let mut packets = self.qp.responder.borrow_mut();
        while !packets.is_idle() {
            let room = self.room();
            let next = self.respond_with(|_, cx| packets.next_answer(room, cx));
            let Some(answer) = next else { return };
            let mut data = Fetched { port: self, psn: answer.burst.psn, bytes: Vec::new() };
            let reply = self.respond_with(|responder, cx| {
                let reply = answer.fetch(responder, &mut data, cx);
                let fetched = matches!(reply, Reply::Data { .. });
                fetched.then(|| self.send_answer(&answer.burst, &data.bytes));
                packets.sent(&answer, reply, cx)
            });
            if !reply {
                return;
            }
        }
    }

    /// Does what the device wants done. What the model is told of memory and of packets it is told before.
    fn settle(&self, effects: &mut Effects) {
        for effect in effects.all() {
            match effect {
                Effect::Complete { side, completion, .. } => self.complete(*side, completion),
                Effect::Event(event) => self.shared.say(|| format!("{} event {event:?}", self.at)),
                Effect::Refused(refusal) => self.refused(refusal),
                Effect::Respond(packet) => self.respond(packet),
                Effect::FlushOther(fallen) => {
                    self.qp.flush[usize::from(*fallen == QueueSide::Send)].set(true);
                }
                Effect::Count { .. }
                | Effect::CompleteShared { .. }
                | Effect::ForgetUnexpected
                | Effect::Rendezvous => {}
            }
        }
        effects.clear();
    }

    fn complete(&self, side: QueueSide, completion: &Completion) {
        self.shared.say(|| {
            let Completion { wr_id, status, opcode, byte_length, .. } = completion;
            format!("{} {side:?} {wr_id:#x} {opcode:?} {status:?}, {byte_length} bytes", self.at)
        });
        let memory = |address, length| self.device().load(address, length).unwrap_or_default();
        let verdict = self.shared.model().completed(self.at, self.cause, side, completion, &memory);
        self.note(verdict);
    }

    fn refused(&self, refusal: &Refusal) {
        self.shared.say(|| {
            let Refusal { reason, attempt, .. } = refusal;
            format!("{} refuses {:?}: {reason:?} ({})", self.at, attempt.operation, refusal.rule())
        });
        let verdict = self.shared.model().refused(self.at, self.cause, refusal);
        self.note(verdict);
    }

    fn send(&self, request: &Request, payload: Payload<'_>) -> Sent {
        let burst = Burst::new(request, self.qp.mtu);
        let carried = request.body.carries_data();
        let packets = if carried { request.length.div_ceil(self.qp.mtu).max(1) } else { 1 };
        if self.room() < packets as usize {
            return Sent::Busy;
        }
        let data = if carried {
            match self.gather(payload, request.offset, request.length) {
                Ok(data) => data,
                Err(refusal) => return Sent::Near(refusal),
            }
        } else {
            Vec::new()
        };
        for part in burst {
            let packet = Packet { payload: &data[part.payload], ..part.packet };
            let verdict = self.shared.model().requested(self.at, &packet);
            self.note(verdict);
            self.transmit(&packet);
        }
        Sent::Queued
    }

    fn room(&self) -> usize {
        let egress = &self.device().egress;
        let room = egress.depth.saturating_sub(egress.pending.get());
        if (room as u64) < self.shared.burst {
            egress.was_full.set(true);
            egress.ever_full.set(egress.ever_full.get() || room == 0);
        }
        room
    }

    fn respond(&self, packet: &Packet<'_>) {
        if self.device().egress.ever_full.get() {
            self.shared.model().end_mut(self.at).held = true;
        }
        let verdict = self.shared.model().responded(self.at, packet);
        self.note(verdict);
        if self.room() == 0 {
            self.shared.say(|| format!("{} has no room for an answer", self.at));
            self.shared.slow_down(self.at);
            return;
        }
        self.transmit(packet);
    }

    fn send_answer(&self, burst: &ResponseBurst, bytes: &[u8]) {
        let whole = bytes.len() as u64 == burst.length;
        self.note(whole.then_some(()).ok_or_else(|| "a burst is not filled".into()));
        let mtu = self.qp.mtu as usize;
        let count = bytes.len().div_ceil(mtu).max(1);
        let aeth = Aeth { byte: Syndrome::Ack { credits: 0x1f }.to_byte(), msn: burst.msn };
        for number in 0..count {
            let end = bytes.len().min((number + 1) * mtu);
            let (begins, ends) = (burst.begins && number == 0, burst.ends && number + 1 == count);
            let operation = match (begins, ends) {
                (true, true) => Opcode::ReadResponseOnly(aeth),
                (true, false) => Opcode::ReadResponseFirst(aeth),
                (false, true) => Opcode::ReadResponseLast(aeth),
                (false, false) => Opcode::ReadResponseMiddle,
            };
            let psn = burst.psn.plus(number as u32);
            let packet = self.answer_packet(operation, psn, &bytes[number * mtu..end]);
            let verdict = self.shared.model().answered_read(self.at, &packet);
            self.note(verdict);
            self.transmit(&packet);
        }
    }

    fn answer_packet<'p>(&self, operation: Opcode, psn: Psn, payload: &'p [u8]) -> Packet<'p> {
        let packet = Packet::new(Transport::Rc, operation, self.qp.peer.bits(), psn);
        Packet { migrated: false, payload, ..packet }
    }
}

/// What a READ brings, in the order of its bytes.
struct Fetched<'a> {
    port: &'a Port<'a>,
    psn: Psn,
    bytes: Vec<u8>,
}

impl Sink for Fetched<'_> {
    fn copy_from(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError> {
        let Port { shared, at: end, .. } = *self.port;
        // A link without room lets later requests go first (rule ORD-08).
        let in_order = !self.port.device().egress.ever_full.get();
        let range = (at.address(), at.length());
        let verdict = shared.model().read(end, self.psn, offset, range, in_order);
        self.port.note(verdict);
        let bytes = self.port.device().granted(at).ok_or(CopyError::Far)?;
        self.bytes.resize(offset as usize, 0);
        self.bytes.extend(bytes);
        Ok(())
    }
}
