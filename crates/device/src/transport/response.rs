//! READ responses as packets.

use transom_wire::packet::{Aeth, Operation, Packet, Transport};
use transom_wire::{Psn, Syndrome};

use super::burst::middle_left;
use crate::execution::{Context, Process, Reply, Request, Responder, Sink, packets};

/// Responders here count no credits (rule ACK-03).
const NO_CREDITS: u8 = 0x1f;

/// A run of READ responses with consecutive numbers, one path MTU each but the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseBurst {
    /// The number of the first.
    pub psn: Psn,
    /// Bytes of them all.
    pub length: u64,
    /// The first of them begins the READ's answer.
    pub begins: bool,
    /// The last of them ends it.
    pub ends: bool,
    /// How many messages have completed, for the AETHs (rule PSN-20).
    pub msn: u32,
}

/// The result of [`PacketResponder::next_answer`](super::responder::PacketResponder::next_answer).
#[derive(Clone, Copy, Debug)]
pub enum NextAnswer {
    /// No answer is pending, or there is no room for it.
    Nothing,
    /// A packet without data is among the effects.
    Packet,
    /// A burst of READ data. The caller has to fetch and send it.
    Data(ReadAnswer),
}

/// Part of the answer to a READ, which is still to be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAnswer {
    /// The packets that carry it.
    pub burst: ResponseBurst,
    /// The same part of the request.
    pub(super) request: Request,
    /// The READ has been answered before.
    pub(super) again: bool,
}

impl ReadAnswer {
    /// Copies the data to the sink, after checking the rest of the READ again. Send it if the answer is
    /// [`Reply::Data`].
    pub fn fetch<P: Process>(
        &self,
        responder: &mut Responder,
        sink: &mut dyn Sink,
        cx: &mut Context<'_, P>,
    ) -> Reply {
        match self.again {
            false => responder.fetch(&self.request, sink, cx),
            true => responder.fetch_again(&self.request, sink, cx),
        }
    }
}

impl ResponseBurst {
    /// The packets for the queue pair `to`, without their payload, and how long that is.
    pub fn packets(self, transport: Transport, to: u32, mtu: u64) -> ResponsePackets {
        let count = packets(self.length, mtu);
        ResponsePackets { burst: self, transport, to, mtu, made: 0, count }
    }
}

/// The packets of a run of READ responses, in order.
#[derive(Clone, Debug)]
pub struct ResponsePackets {
    burst: ResponseBurst,
    transport: Transport,
    to: u32,
    mtu: u64,
    /// How many have been made.
    made: u32,
    count: u32,
}

impl ResponsePackets {
    /// How many of the next packets differ from the last one in their number alone: they count as made.
    pub fn repeats(&mut self) -> u32 {
        let repeats = middle_left(self.burst.begins, self.made, self.count);
        self.made += repeats;
        repeats
    }
}

impl Iterator for ResponsePackets {
    type Item = (Packet<'static>, u64);

    fn next(&mut self) -> Option<Self::Item> {
        let ResponseBurst { psn, length, begins, ends, msn } = self.burst;
        if self.made == self.count {
            return None;
        }
        let aeth = Aeth { byte: Syndrome::Ack { credits: NO_CREDITS }.to_byte(), msn };
        let number = self.made;
        self.made += 1;
        let operation = match (begins && number == 0, ends && self.made == self.count) {
            (true, true) => Operation::ReadResponseOnly(aeth),
            (true, false) => Operation::ReadResponseFirst(aeth),
            (false, true) => Operation::ReadResponseLast(aeth),
            (false, false) => Operation::ReadResponseMiddle,
        };
        let packet = Packet::new(self.transport, operation, self.to, psn.plus(number));
        let before = u64::from(number) * self.mtu;
        Some((packet, (length - before).min(self.mtu)))
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const MTU: u64 = 256;

    /// Rules: PSN-03
    #[test]
    fn what_is_repeated_differs_in_its_number_alone() {
        for (begins, ends) in [(false, false), (false, true), (true, false), (true, true)] {
            for (length, count) in [(0, 1), (1, 1), (256, 1), (257, 2), (900, 4), (1024, 4)] {
                let burst =
                    ResponseBurst { psn: Psn::new(0xff_ffff), length, begins, ends, msn: 7 };
                let packets = || burst.packets(Transport::Rc, 0x33, MTU);
                let (mut parts, mut made, mut repeated) = (packets(), Vec::new(), 0);
                while let Some((packet, length)) = parts.next() {
                    let repeats = parts.repeats();
                    made.push((packet, length));
                    for number in 1..=repeats {
                        made.push((Packet { psn: packet.psn.plus(number), ..packet }, length));
                    }
                    repeated += repeats;
                }
                assert_eq!(made, packets().collect::<Vec<_>>(), "{length}");
                let expected = u32::saturating_sub(count, 2 + u32::from(begins));
                assert_eq!(repeated, expected, "{length} {begins}");
            }
        }
    }
}
