//! READ responses as packets.

use transom_wire::packet::{Aeth, Operation, Packet, Transport};
use transom_wire::{Psn, Syndrome};

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
    /// Messages completed, for the AETHs (rule PSN-20).
    pub msn: u32,
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
    /// Copies the data to the sink, after the rest of the READ has been checked anew. It is to be sent if
    /// the answer is [`Reply::Data`].
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
    pub fn packets(
        self,
        transport: Transport,
        to: u32,
        mtu: u64,
    ) -> impl Iterator<Item = (Packet<'static>, u64)> {
        let count = packets(self.length, mtu);
        let aeth = Aeth { byte: Syndrome::Ack { credits: NO_CREDITS }.to_byte(), msn: self.msn };
        (0..count).map(move |number| {
            let first = self.begins && number == 0;
            let last = self.ends && number + 1 == count;
            let operation = match (first, last) {
                (true, true) => Operation::ReadResponseOnly(aeth),
                (true, false) => Operation::ReadResponseFirst(aeth),
                (false, true) => Operation::ReadResponseLast(aeth),
                (false, false) => Operation::ReadResponseMiddle,
            };
            let packet = Packet::new(transport, operation, to, self.psn.plus(number));
            let before = u64::from(number) * mtu;
            (packet, (self.length - before).min(mtu))
        })
    }
}
