//! Refuses, loses or delays arriving messages, because a user asked for it: `transom run --fault`.

use transom_net::faults::{Faults, MessageFate, MessageKind, MessageRule};
use transom_net::management::ManagementDatagram;
use transom_wire::cm::{Mad, RejectReason};

/// What becomes of a message that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Handled as without a fault.
    Handled,
    /// It is lost, or comes later.
    Lost,
    /// It is refused.
    Refused(RejectReason),
}

/// The rules of a process, each with the number of messages it has met, and the messages that are delayed.
#[derive(Debug, Default)]
pub(super) struct MessageFaults {
    rules: Vec<(MessageRule, u64)>,
    late: Vec<(u64, ManagementDatagram)>,
}

impl MessageFaults {
    pub(super) fn new(faults: Option<&Faults>) -> Self {
        let rules = faults.map_or(&[][..], |faults| &faults.messages);
        Self { rules: rules.iter().map(|rule| (*rule, 0)).collect(), late: Vec::new() }
    }

    /// Decides the fate of a message. Every rule counts the message; the first rule that applies to it decides.
    pub(super) fn meet(&mut self, datagram: &ManagementDatagram, now: u64) -> Fate {
        if self.rules.is_empty() {
            return Fate::Handled;
        }
        let mad = Mad::parse(&datagram.mad).ok();
        let kind = mad.and_then(|mad| MessageKind::of(&mad.message));
        let about = self.rules.iter_mut().filter(|(rule, _)| Some(rule.kind) == kind);
        let decided = about.fold(None, |decided, (rule, met)| {
            *met += 1;
            decided.or(rule.nth.includes(*met).then_some(rule.fate))
        });
        match decided {
            None => Fate::Handled,
            Some(MessageFate::Lost) => Fate::Lost,
            Some(MessageFate::Refused(reason)) => Fate::Refused(RejectReason::from_code(reason)),
            Some(MessageFate::Late(time)) => {
                self.late.push((now.saturating_add(time.nanoseconds()), *datagram));
                Fate::Lost
            }
        }
    }

    /// Takes the messages whose time has come.
    pub(super) fn take_due(&mut self, now: u64) -> Vec<ManagementDatagram> {
        let due = self.late.extract_if(.., |(at, _)| *at <= now);
        due.map(|(_, datagram)| datagram).collect()
    }

    /// When the next one's comes.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.late.iter().map(|(at, _)| *at).min()
    }
}
