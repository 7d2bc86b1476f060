//! DREQs for processes that have ended, sent again. The process is gone, so nobody gets the DREP that would confirm one.

use transom_cm::Transmit;
use transom_wire::cm::Message;

/// A DREQ is sent again so many nanoseconds after the first time. Each later time comes after twice as long.
const FIRST: u64 = 100_000_000;
/// How often it is sent again. All takes less than a second, because the sender may have nothing else to live for.
const TIMES: u32 = 4;

/// The messages to repeat.
#[derive(Default)]
pub(super) struct Farewells(Vec<Farewell>);

struct Farewell {
    transmit: Transmit,
    said_first: u64,
    /// How often it was said again.
    times: u32,
}

impl Farewell {
    /// When it is said next.
    fn due(&self) -> u64 {
        self.said_first.saturating_add(FIRST << self.times)
    }
}

impl Farewells {
    /// A message was sent as a packet, which may be lost. Only DREQs are repeated here: the sender of any other message
    /// repeats its own.
    pub(super) fn said(&mut self, transmit: Transmit, now: u64) {
        if matches!(transmit.mad.message, Message::Dreq(_)) {
            self.0.push(Farewell { transmit, said_first: now, times: 0 });
        }
    }

    /// Takes the messages that are due now.
    pub(super) fn take_due(&mut self, now: u64) -> Vec<Transmit> {
        let due = self.0.iter_mut().filter(|farewell| farewell.due() <= now);
        let due = due.map(|farewell| {
            farewell.times += 1;
            farewell.transmit.clone()
        });
        let due = due.collect();
        self.0.retain(|farewell| farewell.times < TIMES);
        due
    }

    /// When the next one is.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.0.iter().map(Farewell::due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};
    use transom_wire::cm::{Bits, CommId, Drep, Dreq, Mad};

    fn transmit(message: Message) -> Transmit {
        let [source, destination] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
        let mad = Mad { transaction: 7, message };
        Transmit { source, destination, traffic_class: 0, hop_limit: 64, mad }
    }

    /// Rules: CM-50
    #[test]
    fn a_dreq_is_said_again_within_a_second() {
        let [local_id, remote_id] = [CommId(1), CommId(2)];
        let dreq = Message::Dreq(Dreq {
            local_id,
            remote_id,
            remote_qpn: Bits::low(3),
            private_data: [0; _],
        });
        let drep = Message::Drep(Drep { local_id, remote_id, private_data: [0; _] });
        let mut farewells = Farewells::default();
        farewells.said(transmit(drep), 0);
        assert_eq!(farewells.deadline(), None);
        farewells.said(transmit(dreq.clone()), 1_000);
        let mut times = Vec::new();
        while let Some(deadline) = farewells.deadline() {
            assert!(farewells.take_due(deadline - 1).is_empty());
            assert_eq!(farewells.take_due(deadline), [transmit(dreq.clone())]);
            times.push((deadline - 1_000) / 1_000_000);
        }
        assert_eq!(times, [100, 200, 400, 800]);
    }
}
