//! READ responses as packets.

use transom_wire::Syndrome;
use transom_wire::packet::{Aeth, Operation, Packet, Transport};

use super::ResponseTrain;
use crate::execution::packets;

/// Responders here count no credits (rule ACK-03).
const NO_CREDITS: u8 = 0x1f;

impl ResponseTrain {
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
