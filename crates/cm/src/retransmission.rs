//! Messages that are sent again.

use transom_wire::cm::{Bits, Mad};

use crate::shared::Shared;

/// A message that is sent again until it is answered.
#[derive(Debug)]
pub(crate) struct Retransmission {
    mad: Box<Mad>,
    /// Nanoseconds until it is sent again.
    wait: u64,
    left: u32,
    give_up: Option<u64>,
    /// An MRA has come.
    mra_received: bool,
}

impl Retransmission {
    pub(crate) fn new(mad: Mad, wait: u64, left: Bits<4>, now: u64, shared: &Shared) -> Self {
        let give_up = shared.config.timing.give_up.map(|timeout| now.saturating_add(timeout));
        Self { mad: Box::new(mad), wait, left: left.get(), give_up, mra_received: false }
    }

    pub(crate) fn mad(&self) -> Mad {
        (*self.mad).clone()
    }

    /// When to look at it again.
    pub(crate) fn deadline(&self, now: u64) -> u64 {
        let next = now.saturating_add(self.wait);
        self.give_up.map_or(next, |give_up| next.min(give_up))
    }

    /// Its time has come: the message, if it is to be sent once more.
    pub(crate) fn again(&mut self, now: u64) -> Option<Mad> {
        if self.give_up.is_some_and(|give_up| now >= give_up) {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        Some(self.mad())
    }

    /// An MRA has come: the answer takes so many nanoseconds. False if that was said before.
    pub(crate) fn wait_longer(&mut self, wait: u64) -> bool {
        let first = !std::mem::replace(&mut self.mra_received, true);
        if first {
            self.wait = wait;
        }
        first
    }
}
