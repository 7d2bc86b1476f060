//! Answers: what goes back to the origin, in the order of its requests.

use transom_wire::packet::{Aeth, Operation, Packet, Transport};
use transom_wire::{NakCode, Psn, RnrTimer, Syndrome};

use super::PacketResponder;
use super::kept::{Answer, Kept};
use crate::execution::{Counted, Reply, Request, Responder, packets};
use crate::qp::Service;
use crate::queue::{Body, Remote};
use crate::transport::{Outlet, ResponseTrain};

/// An acknowledgement that says nothing of credits (rule ACK-03).
const NO_CREDITS: Syndrome = Syndrome::Ack { credits: 0x1f };

impl PacketResponder {
    /// Goes on with the answers that wait for room on the link, and sends what is due after them.
    pub fn advance<S: Outlet>(&mut self, responder: &mut Responder, outlet: &S) {
        self.answer(responder, outlet);
        if let Some(place) = self.due
            && !self.kept.owes_before(place)
        {
            self.due = None;
            // As far as no answer of another kind lies between (rule PSN-23).
            let end = self.kept.end_from(place, self.expected);
            outlet.respond(&self.acknowledgement(end, self.msn, outlet));
        }
        if let Some(lost) = self.lost
            && !self.kept.owes()
        {
            self.lost = None;
            let not_ready = self.not_ready.take();
            if lost >= self.expected && outlet.summary().gate().receives() {
                match not_ready {
                    Some(timer) => self.answer_not_ready(timer, outlet),
                    None => {
                        self.silent = true;
                        self.answer_refused(self.expected, NakCode::SequenceError, outlet);
                    }
                }
            }
        }
    }

    /// Sends the answers of READs, atomics and others like them, as far as there is room.
    pub(super) fn answer<S: Outlet>(&mut self, responder: &mut Responder, outlet: &S) {
        while let Some(kept) = self.kept.oldest_owed().copied() {
            if outlet.room() == 0 {
                return;
            }
            // It acknowledges what came before it (rule ACK-05).
            self.due = self.due.filter(|due| *due > kept.at);
            let aeth = aeth(NO_CREDITS, kept.msn);
            let operation = match kept.answer {
                Answer::Data { .. } => {
                    if !self.answer_read(kept, responder, outlet) {
                        return;
                    }
                    continue;
                }
                Answer::Old(old) => Operation::AtomicAcknowledge { aeth, old },
                Answer::Done => Operation::ReadResponseOnly(aeth),
            };
            outlet.respond(&self.packet(operation, kept.at, outlet));
            self.kept.answered(1, true);
        }
    }

    /// Sends the next train of a READ's answer; false if it failed.
    fn answer_read<S: Outlet>(
        &mut self,
        kept: Kept,
        responder: &mut Responder,
        outlet: &S,
    ) -> bool {
        let Answer::Data { from, length: read } = kept.answer else { return false };
        let (range, mtu) = (kept.range, outlet.response_mtu());
        let offset = u64::from(range.next) * mtu;
        let room = (outlet.room() as u64).max(1).saturating_mul(mtu);
        let length = outlet.train_of(range.end.saturating_sub(offset)).min(room);
        let place = kept.at + u64::from(range.next);
        let ends = offset + length >= range.end;
        let train = ResponseTrain {
            psn: psn(place),
            length,
            begins: range.next == range.first,
            ends,
            msn: kept.msn,
        };
        let remote = match self.service {
            Service::XrcTarget => Remote::Srq(kept.srq),
            _ => Remote::Connected,
        };
        let body = Body::Read { address: from.address, key: from.key };
        let request = self.request(responder, remote, body, outlet);
        let request = Request { offset, length, total: range.end, ..request };
        let mut fill =
            |sink: &mut dyn crate::execution::Sink| responder.fetch(&request, from, sink, outlet);
        match outlet.respond_data(&train, &mut fill) {
            Reply::Data { .. } => {}
            Reply::Nak { code, .. } => {
                self.refuse(place, code, outlet);
                return false;
            }
            // It waits for room.
            Reply::Silence => return false,
            _ => {
                self.kept.forget_owed();
                return false;
            }
        }
        if ends && !kept.answered {
            outlet.count(Counted::REMOTE_READ, Some(read));
        }
        self.kept.answered(packets(length, mtu), ends);
        true
    }

    /// The acknowledgement of all that has come, if it is not the answer to a READ or an atomic that
    /// says so.
    pub fn last_word<S: Outlet>(&self, outlet: &S) -> Option<Packet<'static>> {
        let last = self.expected.checked_sub(1).filter(|last| *last >= self.first)?;
        let said = !self.kept.owes() && !self.kept.holds(last) && self.service.is_reliable();
        said.then(|| self.acknowledgement(last, self.msn, outlet))
    }

    /// The acknowledgement of all up to `place`.
    pub(super) fn acknowledgement<S: Outlet>(
        &self,
        place: u64,
        msn: u32,
        outlet: &S,
    ) -> Packet<'static> {
        self.packet(Operation::Acknowledge(aeth(NO_CREDITS, msn)), place, outlet)
    }

    /// The receiver is not ready for the next packet (rule RN-01).
    pub(super) fn answer_not_ready<S: Outlet>(&mut self, timer: RnrTimer, outlet: &S) {
        self.silent = true;
        self.due = None;
        let aeth = aeth(Syndrome::RnrNak(timer), self.msn);
        outlet.respond(&self.packet(Operation::Acknowledge(aeth), self.expected, outlet));
    }

    /// The packet at this place is not accepted (rule ACK-02).
    pub(super) fn answer_refused<S: Outlet>(&self, place: u64, code: NakCode, outlet: &S) {
        let aeth = aeth(Syndrome::Nak(code), self.msn);
        outlet.respond(&self.packet(Operation::Acknowledge(aeth), place, outlet));
    }

    fn packet<S: Outlet>(&self, operation: Operation, place: u64, outlet: &S) -> Packet<'static> {
        let transport = match self.service {
            Service::XrcTarget => Transport::Xrc { srq: 0 },
            _ => Transport::Rc,
        };
        Packet::new(transport, operation, outlet.summary().peering().from.bits(), psn(place))
    }
}

/// The number of the packet at a place.
fn psn(place: u64) -> Psn {
    Psn::new(place as u32)
}

fn aeth(syndrome: Syndrome, msn: u32) -> Aeth {
    Aeth { byte: syndrome.to_byte(), msn: msn & 0xff_ffff }
}
