//! Congestion notifications: telling a sender that the network marked its packets (rules H.5).

use transom_wire::Psn;
use transom_wire::packet::{Operation, Packet, Transport};

/// At least so many nanoseconds are between two notifications of a queue pair (rule CNP-03).
const INTERVAL: u64 = 50_000;

/// Makes the notifications of one queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub struct Notifier {
    /// When the next may be sent.
    not_before: u64,
}

impl Notifier {
    /// A packet from queue pair `to` came marked: the notification to send, if one is due.
    pub fn notify(&mut self, to: u32, pkey: u16, now: u64) -> Option<Packet<'static>> {
        if now < self.not_before {
            return None;
        }
        self.not_before = now.saturating_add(INTERVAL);
        Some(Packet {
            transport: Transport::Rc,
            operation: Operation::Congestion,
            solicited: false,
            migrated: false,
            pkey,
            fecn: false,
            becn: true,
            to,
            ack_request: false,
            psn: Psn::new(0),
            payload: &[],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules: CNP-01, CNP-03
    #[test]
    fn one_notification_is_sent_in_an_interval() {
        let mut notifier = Notifier::default();
        let packet = notifier.notify(0x118, 0xffff, 1_000).expect("the first is due");
        assert_eq!((packet.operation, packet.to), (Operation::Congestion, 0x118));
        assert_eq!((packet.psn, packet.becn, packet.migrated), (Psn::new(0), true, false));
        assert_eq!(notifier.notify(0x118, 0xffff, 1_000 + INTERVAL - 1), None);
        assert!(notifier.notify(0x118, 0xffff, 1_000 + INTERVAL).is_some());
    }
}
