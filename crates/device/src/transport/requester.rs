//! Answers that come as packets (rules PSN-20 to PSN-32): which of them count, and for what. Their effect on a work
//! request is the [`Requester`]'s.

use transom_wire::packet::{Operation as Opcode, Packet};
use transom_wire::{NakCode, Psn, Syndrome};

use crate::execution::{
    Context, CopyError, MAX_BURST, Process, Requester, SendWqe, Source, Tally, Why, packets,
    status_of,
};
use crate::operation::Data;
use crate::protection::Grant;
use crate::queue::Status;

impl Requester {
    /// Takes packets for this queue pair in the order in which they came, including packets that are no answers.
    /// [`Requester::next_segment`] then gives the segments for which they make room.
    pub fn on_packets<P: Process>(&mut self, packets: &[Packet<'_>], cx: &mut Context<'_, P>) {
        let Some(mtu) = self.connection.link.mtu.filter(|_| self.service().is_reliable()) else {
            return;
        };
        self.note_heard();
        let before = self.oldest(mtu);
        if packets.iter().any(|packet| packet.becn || packet.operation == Opcode::Congestion) {
            self.note_congestion(mtu);
        }
        let mut rest = packets;
        while !rest.is_empty() {
            let taken = self.on_packet(rest, mtu, cx);
            rest = &rest[taken..];
        }
        self.note_progress(before, mtu, cx);
    }

    /// Takes the first of the packets, and those that continue it; says how many.
    fn on_packet<P: Process>(
        &mut self,
        packets: &[Packet<'_>],
        mtu: u64,
        cx: &mut Context<'_, P>,
    ) -> usize {
        let packet = &packets[0];
        if !self.service().serves(&packet.transport) || !self.awaits(packet.psn, mtu) {
            return 1;
        }
        match packet.operation {
            Opcode::Acknowledge(aeth) => {
                self.on_acknowledge(packet.psn, aeth.syndrome(), mtu, cx);
            }
            Opcode::AtomicAcknowledge { aeth, old } => {
                self.on_atomic(packet.psn, aeth.syndrome(), old, mtu, cx);
            }
            Opcode::ReadResponseFirst(_)
            | Opcode::ReadResponseMiddle
            | Opcode::ReadResponseLast(_)
            | Opcode::ReadResponseOnly(_) => return self.on_read_responses(packets, mtu, cx),
            // Requests are the responder's.
            _ => {}
        }
        1
    }

    fn on_acknowledge<P: Process>(
        &mut self,
        psn: Psn,
        syndrome: Option<Syndrome>,
        mtu: u64,
        cx: &mut Context<'_, P>,
    ) {
        match syndrome {
            Some(Syndrome::Ack { .. }) => {
                if !self.acknowledge(psn.plus(1), mtu, cx) {
                    self.note_missed(psn, mtu, cx);
                }
            }
            Some(Syndrome::Nak(code)) if code != NakCode::SequenceError => {
                if self.refuses_head(psn, mtu, cx) {
                    self.fail_head(cx, status_of(code), Why::Refused(0));
                }
            }
            // Everything before it has arrived.
            _ if !self.reaches(psn, mtu, cx) => {}
            // Packets sent before the last retry may have been refused as often as they were sent. They are on their
            // way again or will be.
            Some(Syndrome::RnrNak(_) | Syndrome::Nak(_)) if !self.is_in_flight(mtu) => {}
            Some(Syndrome::RnrNak(timer)) => self.wait_for_receiver(timer, cx),
            Some(Syndrome::Nak(_)) => {
                cx.process.tally(Tally::SequenceError, 1);
                self.go_back(mtu, cx);
            }
            None => self.fail_head(cx, Status::BadResponse, Why::BadResponse),
        }
    }

    fn on_atomic<P: Process>(
        &mut self,
        psn: Psn,
        syndrome: Option<Syndrome>,
        old: u64,
        mtu: u64,
        cx: &mut Context<'_, P>,
    ) {
        if !self.reaches(psn, mtu, cx) {
            return;
        }
        let fits = self.head().data() == Data::OldValue;
        match syndrome {
            Some(Syndrome::Ack { .. }) if fits => self.store_atomic(old, cx),
            _ => self.fail_head(cx, Status::BadResponse, Why::BadResponse),
        }
    }

    /// Takes READ responses as long as each continues the one before; says how many.
    fn on_read_responses<P: Process>(
        &mut self,
        packets: &[Packet<'_>],
        mtu: u64,
        cx: &mut Context<'_, P>,
    ) -> usize {
        let first = packets[0];
        if !self.reaches(first.psn, mtu, cx) {
            return 1;
        }
        let wqe = *self.head();
        let Some(answered) = wqe.answered() else { return 1 };
        if is_flushed(&wqe, &first) {
            self.finish_head(cx);
            return 1;
        }
        let unit = self.read_unit();
        let asked = (self.sent_until().since(first.psn) as usize).min(MAX_BURST as usize);
        let fits = |(number, packet): &(u32, &Packet<'_>)| {
            packet.transport == first.transport
                && packet.psn == first.psn.plus(*number)
                && continues(packet, &wqe, answered + u64::from(*number) * mtu, mtu, unit)
        };
        let count = (0..).zip(packets).take(asked).take_while(fits).count();
        if count == 0 {
            self.fail_head(cx, Status::BadResponse, Why::BadResponse);
            return 1;
        }
        let length = (count as u64 * mtu).min(wqe.length - answered);
        let mut data = Payloads { packets: &packets[..count], mtu, process: cx.process };
        if self.store(answered, length, &mut data, cx) {
            self.retry.reload();
            if answered + length == wqe.length {
                self.finish_head(cx);
            } else {
                self.set_answered(answered + length);
            }
        }
        count
    }

    /// Takes everything before this number, which is awaited, as acknowledged. True if that makes it the oldest one.
    /// Otherwise an earlier request still waits for its own answer.
    fn reaches<P: Process>(&mut self, psn: Psn, mtu: u64, cx: &mut Context<'_, P>) -> bool {
        if !self.acknowledge(psn, mtu, cx) {
            self.note_missed(psn, mtu, cx);
            return false;
        }
        self.take_up_head(mtu);
        !self.is_empty() && self.oldest(mtu) == psn
    }

    /// Whether a NAK of this number, which is final, is for the oldest work request: for any part of
    /// it, though data of earlier parts of a READ be missing. That was lost, and the target, in error,
    /// will not send it again (rule RA-54).
    fn refuses_head<P: Process>(&mut self, psn: Psn, mtu: u64, cx: &mut Context<'_, P>) -> bool {
        if self.acknowledge(psn, mtu, cx) {
            return self.reaches(psn, mtu, cx);
        }
        let head = self.head();
        let within = psn.since(head.message) < packets(head.length, mtu);
        within || self.reaches(psn, mtu, cx)
    }

    /// Takes everything before `end` as acknowledged (rule PSN-21). False if something there waits for data, which an
    /// acknowledgement does not bring. This holds even if it names that very number: a target answers a repeated
    /// request with how far it has come.
    fn acknowledge<P: Process>(&mut self, end: Psn, mtu: u64, cx: &mut Context<'_, P>) -> bool {
        while !self.is_empty() && end.compare(self.oldest(mtu)).is_gt() {
            let head = *self.head();
            if head.returns_data() {
                return false;
            }
            self.take_up_head(mtu);
            self.retry.reload();
            let arrived = end.since(head.message);
            if arrived < packets(head.length, mtu) {
                self.set_answered(u64::from(arrived) * mtu);
                break;
            }
            self.finish_head(cx);
        }
        true
    }
}

/// Whether the packet says that a FLUSH or ATOMIC WRITE is done: a READ response without data.
fn is_flushed(wqe: &SendWqe, packet: &Packet<'_>) -> bool {
    let Opcode::ReadResponseOnly(aeth) = packet.operation else { return false };
    let acknowledged = matches!(aeth.syndrome(), Some(Syndrome::Ack { .. }));
    let waits = wqe.uses_read_resources() && !wqe.returns_data();
    waits && acknowledged && packet.payload.is_empty()
}

/// Whether the packet brings the next part of a READ, from `offset` on (rule PSN-30). An answer may begin again where
/// the data was asked for again, and it ends where a request ends.
fn continues(packet: &Packet<'_>, wqe: &SendWqe, offset: u64, mtu: u64, unit: u64) -> bool {
    let (begins, ends, aeth) = match packet.operation {
        Opcode::ReadResponseFirst(aeth) => (true, false, Some(aeth)),
        Opcode::ReadResponseMiddle => (false, false, None),
        Opcode::ReadResponseLast(aeth) => (false, true, Some(aeth)),
        Opcode::ReadResponseOnly(aeth) => (true, true, Some(aeth)),
        _ => return false,
    };
    if wqe.data() != Data::Fetched || offset > wqe.length || (offset == wqe.length && offset > 0) {
        return false;
    }
    let end = (offset + mtu).min(wqe.length);
    packet.payload.len() as u64 == end - offset
        && ends == (end == wqe.length || end.is_multiple_of(unit))
        && (begins || !offset.is_multiple_of(unit))
        && aeth.is_none_or(|aeth| matches!(aeth.syndrome(), Some(Syndrome::Ack { .. })))
}

/// The payloads of consecutive READ responses, each of the path MTU but the last.
struct Payloads<'a, 'p, P> {
    packets: &'a [Packet<'p>],
    mtu: u64,
    process: &'a P,
}

impl<P> Payloads<'_, '_, P> {
    /// Hands out the pieces that make up `length` bytes from `offset` on.
    fn each<'s>(
        &'s self,
        offset: u64,
        length: usize,
        mut piece: impl FnMut(&'s [u8]),
    ) -> Result<(), CopyError> {
        let (mut left, mut skip) = (length, (offset % self.mtu) as usize);
        let mut packets = self.packets.iter().skip((offset / self.mtu) as usize);
        while left > 0 {
            let payload = packets.next().map_or(&[][..], |packet| packet.payload);
            let bytes = payload.get(skip..).unwrap_or_default();
            let bytes = &bytes[..bytes.len().min(left)];
            if bytes.is_empty() {
                return Err(CopyError::Far);
            }
            piece(bytes);
            left -= bytes.len();
            skip = 0;
        }
        Ok(())
    }
}

impl<P: Process> Source for Payloads<'_, '_, P> {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), CopyError> {
        let mut rest = &mut *bytes;
        self.each(offset, rest.len(), |piece| {
            let (part, behind) = core::mem::take(&mut rest).split_at_mut(piece.len());
            part.copy_from_slice(piece);
            rest = behind;
        })
    }

    fn copy_to(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError> {
        if at.is_null() {
            return Ok(());
        }
        let mut pieces = [&[][..]; MAX_BURST as usize];
        let mut count = 0;
        self.each(offset, at.length() as usize, |piece| {
            pieces[count] = piece;
            count += 1;
        })?;
        self.process.store(at, &pieces[..count]).map_err(|_| CopyError::Far)
    }
}
