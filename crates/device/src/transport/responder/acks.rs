//! Acknowledgements and NAKs that are still to be sent.

use transom_wire::RnrTimer;

/// What the origin is to be told next, beside the answers to its READs and atomics. Packets are named by their extended
/// PSNs.
#[derive(Default)]
pub(super) struct AckState {
    /// The packet up to which an acknowledgement is due.
    due: Option<u64>,
    /// The last packet that was dropped because it came too early. It has to be sent again.
    lost: Option<u64>,
    /// The next packet was turned down because there was no receive. Its origin is told when the pending answers have
    /// gone out.
    not_ready: Option<RnrTimer>,
    /// The origin has been told to go back: nothing more is said until it does (rule PSN-11).
    silent: bool,
}

impl AckState {
    /// An acknowledgement up to this packet is due.
    pub(super) fn owe(&mut self, extended_psn: u64) {
        self.due = self.due.max(Some(extended_psn));
    }

    /// Everything up to this packet is acknowledged, by an answer to it.
    pub(super) fn answered(&mut self, extended_psn: u64) {
        self.due = self.due.filter(|due| *due > extended_psn);
    }

    /// Everything is acknowledged.
    pub(super) fn acknowledged(&mut self) {
        self.due = None;
    }

    /// Takes the acknowledgement that is due, if it may go now.
    pub(super) fn take_due(&mut self, may_go: impl FnOnce(u64) -> bool) -> Option<u64> {
        self.due.take_if(|due| may_go(*due))
    }

    /// This packet came before others that are missing. Returns whether that is news to the origin.
    pub(super) fn note_early(&mut self, extended_psn: u64) -> bool {
        if !self.silent {
            self.hold_back(extended_psn);
        }
        !self.silent
    }

    /// This packet has to come again, when the pending answers have gone out.
    pub(super) fn hold_back(&mut self, extended_psn: u64) {
        self.lost = self.lost.max(Some(extended_psn));
    }

    /// The same, after a while: it found no receive.
    pub(super) fn hold_back_for(&mut self, extended_psn: u64, timer: RnrTimer) {
        self.not_ready = Some(timer);
        self.hold_back(extended_psn);
    }

    /// Takes the last packet that has to come again, and how long its origin is to wait if it found no receive.
    pub(super) fn take_lost(&mut self) -> Option<(u64, Option<RnrTimer>)> {
        self.lost.take().map(|lost| (lost, self.not_ready.take()))
    }

    /// The origin is told to go back.
    pub(super) fn fall_silent(&mut self) {
        self.silent = true;
    }

    /// The packet that is next in order has come: the origin has gone back if it was told to.
    pub(super) fn resume(&mut self) {
        (self.not_ready, self.silent) = (None, false);
    }

    /// A packet is refused, after which nothing else is said.
    pub(super) fn give_up(&mut self) {
        (self.due, self.lost) = (None, None);
    }
}
