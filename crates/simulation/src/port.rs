//! A queue pair at work: what the device asks of the process around it. Everything that leaves the
//! device here is shown to the model first.

use transom_device::execution::{
    CopyError, Direct, LocalBuffers, MAX_TRAIN, MemoryGone, Origin, Payload, QpEvent, QueueSide,
    Reply, Request, Sent, Services, Sink, TakeShared,
};
use transom_device::protection::{
    Announcer, Grant, KeyTable, Operation, Refusal, RemoteAddress, Waiter,
};
use transom_device::qp::{QpNumber, QpSummary, QpTable};
use transom_device::queue::{Completion, Receive, Sge};
use transom_device::transport::train::Train;
use transom_device::transport::{Outlet, ResponseTrain};
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
            pd: self.summary().gate().pd,
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

impl Services for Port<'_> {
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

    fn number(&self) -> QpNumber {
        self.qp.number
    }

    fn summary(&self) -> &QpSummary {
        self.device().summary(self.at.qp)
    }

    fn store(&self, at: &Grant<'_>, bytes: &[u8]) -> Result<(), MemoryGone> {
        self.store_pieces(at, &[bytes])
    }

    fn store_pieces(&self, at: &Grant<'_>, pieces: &[&[u8]]) -> Result<(), MemoryGone> {
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

    fn acknowledge(&self, reply: Reply) {
        if reply == Reply::Ack
            && let Some(packet) = self.qp.prepared.take()
        {
            self.respond(&packet);
        }
    }

    fn complete(&self, side: QueueSide, completion: Completion, _solicited: bool) {
        self.shared.say(|| {
            let Completion { wr_id, status, opcode, byte_length, .. } = completion;
            format!("{} {side:?} {wr_id:#x} {opcode:?} {status:?}, {byte_length} bytes", self.at)
        });
        let memory = |address, length| self.device().load(address, length).unwrap_or_default();
        let verdict =
            self.shared.model().completed(self.at, self.cause, side, &completion, &memory);
        self.note(verdict);
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

    fn forget_unexpected(&self) {}

    fn rendezvous(&self) {}

    fn shared_pd(&self, _srq: u32) -> Option<u32> {
        None
    }

    fn complete_shared(&self, _srq: u32, _completion: Completion, _solicited: bool) {}

    fn event(&self, event: QpEvent) {
        self.shared.say(|| format!("{} event {event:?}", self.at));
    }

    fn refused(&self, refusal: &Refusal) {
        self.shared.say(|| {
            let Refusal { reason, attempt, .. } = refusal;
            format!("{} refuses {:?}: {reason:?} ({})", self.at, attempt.operation, refusal.rule())
        });
        let verdict = self.shared.model().refused(self.at, self.cause, refusal);
        self.note(verdict);
    }

    fn flush_other(&self, fallen: QueueSide) {
        let other = usize::from(fallen == QueueSide::Send);
        self.qp.flush[other].set(true);
    }
}

impl Origin for Port<'_> {
    fn peer(&self) -> QpNumber {
        self.qp.peer
    }

    fn write_direct(&self, _: RemoteAddress, _: Payload<'_>, _: u64) -> Direct {
        Direct::Declined
    }

    fn read_direct(&self, _: RemoteAddress, _: &[Sge], _: u64) -> Direct {
        Direct::Declined
    }

    fn path_mtu(&self) -> Option<u64> {
        Some(self.qp.mtu)
    }

    fn segment_of(&self, rest: u64) -> u64 {
        rest.min(self.qp.mtu * self.shared.train.min(MAX_TRAIN))
    }

    fn send(&self, request: &Request, payload: Payload<'_>) -> Sent {
        let train = Train::new(request, self.qp.mtu);
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
        for part in train {
            let packet = Packet { payload: &data[part.payload], ..part.packet };
            let verdict = self.shared.model().requested(self.at, &packet);
            self.note(verdict);
            self.transmit(&packet);
        }
        Sent::Queued
    }
}

impl Outlet for Port<'_> {
    fn room(&self) -> usize {
        let egress = &self.device().egress;
        let room = egress.depth.saturating_sub(egress.pending.get());
        if (room as u64) < self.shared.train {
            egress.was_full.set(true);
            egress.ever_full.set(egress.ever_full.get() || room == 0);
        }
        room
    }

    fn response_mtu(&self) -> u64 {
        self.qp.mtu
    }

    fn train_of(&self, rest: u64) -> u64 {
        self.segment_of(rest)
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

    fn prepare(&self, acknowledgement: Option<Packet<'static>>) -> Option<Packet<'static>> {
        self.qp.prepared.replace(acknowledgement)
    }

    fn respond_data(
        &self,
        train: &ResponseTrain,
        fill: &mut dyn FnMut(&mut dyn Sink) -> Reply,
    ) -> Reply {
        let mut data = Fetched { port: self, psn: train.psn, bytes: Vec::new() };
        let reply = fill(&mut data);
        if !matches!(reply, Reply::Data { .. }) {
            return reply;
        }
        let bytes = data.bytes;
        let whole = bytes.len() as u64 == train.length;
        self.note(whole.then_some(()).ok_or_else(|| "a train is not filled".into()));
        let mtu = self.qp.mtu as usize;
        let count = bytes.len().div_ceil(mtu).max(1);
        let aeth = Aeth { byte: Syndrome::Ack { credits: 0x1f }.to_byte(), msn: train.msn };
        for number in 0..count {
            let end = bytes.len().min((number + 1) * mtu);
            let (begins, ends) = (train.begins && number == 0, train.ends && number + 1 == count);
            let operation = match (begins, ends) {
                (true, true) => Opcode::ReadResponseOnly(aeth),
                (true, false) => Opcode::ReadResponseFirst(aeth),
                (false, true) => Opcode::ReadResponseLast(aeth),
                (false, false) => Opcode::ReadResponseMiddle,
            };
            let psn = train.psn.plus(number as u32);
            let packet = self.answer(operation, psn, &bytes[number * mtu..end]);
            let verdict = self.shared.model().answered_read(self.at, &packet);
            self.note(verdict);
            self.transmit(&packet);
        }
        reply
    }
}

impl Port<'_> {
    fn answer<'p>(&self, operation: Opcode, psn: Psn, payload: &'p [u8]) -> Packet<'p> {
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
