//! Repeated messages.

use transom_wire::cm::{Bits, Mad};

use crate::shared::Shared;
use crate::timing::MILLISECOND;

/// How often in a row a request must reach nobody until it is given up. The tries follow each other quickly, so that a
/// program that is about to start there gets one of them. There are no more than a host answers at once.
const IN_VAIN: u32 = 5;

/// The time from the first such try to the next, in nanoseconds. It doubles each time.
const PAUSE: u64 = 100 * MILLISECOND;

/// A request that waits for its answer and was repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// The time of its first try.
    pub since: u64,
    /// The number of tries.
    pub sent: u32,
    /// The number of tries that have reached nobody.
    pub in_vain: u32,
}

/// The consequence of a try that has reached nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InVain {
    /// It was already known.
    Known,
    /// Send the message again at this time.
    Again(u64),
    /// Enough tries have reached nobody: give up.
    Enough,
}

/// A message that is repeated until it is answered.
#[derive(Debug)]
pub(crate) struct Retransmission {
    mad: Box<Mad>,
    /// The nanoseconds until it is repeated.
    wait: u64,
    left: u32,
    begun: u64,
    /// The number of tries.
    sent: u32,
    give_up: Option<u64>,
    /// Whether an MRA has come.
    mra_received: bool,
    /// The number of tries that have reached nobody, and whether the last one has.
    in_vain: u32,
    is_in_vain: bool,
}

impl Retransmission {
    pub(crate) fn new(mad: Mad, wait: u64, left: Bits<4>, now: u64, shared: &Shared) -> Self {
        let give_up = shared.config.timing.give_up.map(|timeout| now.saturating_add(timeout));
        Self {
            mad: Box::new(mad),
            wait,
            left: left.get(),
            begun: now,
            sent: 1,
            give_up,
            mra_received: false,
            in_vain: 0,
            is_in_vain: false,
        }
    }

    pub(crate) fn mad(&self) -> Mad {
        (*self.mad).clone()
    }

    /// The time of the next step.
    pub(crate) fn deadline(&self, now: u64) -> u64 {
        let next = now.saturating_add(self.wait);
        self.give_up.map_or(next, |give_up| next.min(give_up))
    }

    /// Its time has come. Returns the message if it must be repeated.
    pub(crate) fn again(&mut self, now: u64) -> Option<Mad> {
        if self.give_up.is_some_and(|give_up| now >= give_up) {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        self.is_in_vain = false;
        self.sent += 1;
        Some(self.mad())
    }

    /// Its tries so far, if there was more than one.
    pub(crate) fn unanswered(&self) -> Option<Unanswered> {
        let Self { begun: since, sent, in_vain, .. } = *self;
        (sent > 1).then_some(Unanswered { since, sent, in_vain })
    }

    /// Whether it is this message.
    pub(crate) fn is(&self, mad: &Mad) -> bool {
        *self.mad == *mad
    }

    /// The last try has reached nobody.
    pub(crate) fn came_to_nobody(&mut self, now: u64) -> InVain {
        if std::mem::replace(&mut self.is_in_vain, true) {
            return InVain::Known;
        }
        self.in_vain += 1;
        if self.in_vain >= IN_VAIN {
            return InVain::Enough;
        }
        let pause = (PAUSE << (self.in_vain - 1)).min(self.wait);
        InVain::Again(self.deadline(now).min(now.saturating_add(pause)))
    }

    /// An MRA has come: the answer takes `wait` nanoseconds. False if an MRA has come before.
    pub(crate) fn wait_longer(&mut self, wait: u64) -> bool {
        let first = !std::mem::replace(&mut self.mra_received, true);
        if first {
            self.wait = wait;
        }
        first
    }
}
