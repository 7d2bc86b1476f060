//! Messages that are sent again.

use transom_wire::cm::{Bits, Mad};

use crate::shared::Shared;
use crate::timing::MILLISECOND;

/// How often in a row a request comes to nobody until that is believed. They are sent in short order, so that a
/// program that is about to start there gets one of them, and in no more than a host answers at once.
const IN_VAIN: u32 = 5;

/// How long after the first of them the next one goes, in nanoseconds; each time twice as long.
const PAUSE: u64 = 100 * MILLISECOND;

/// A request that waits for its answer, and had to be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// When it was sent first.
    pub since: u64,
    /// How often it was sent.
    pub sent: u32,
    /// How often it has come to nobody.
    pub in_vain: u32,
}

/// What follows from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InVain {
    /// That was known.
    Known,
    /// It goes again at this time.
    Again(u64),
    /// It has come to nobody often enough.
    Enough,
}

/// A message that is sent again until it is answered.
#[derive(Debug)]
pub(crate) struct Retransmission {
    mad: Box<Mad>,
    /// Nanoseconds until it is sent again.
    wait: u64,
    left: u32,
    begun: u64,
    /// How often it was sent.
    sent: u32,
    give_up: Option<u64>,
    /// An MRA has come.
    mra_received: bool,
    /// How often it has come to nobody, and that it has so the last time.
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
        self.is_in_vain = false;
        self.sent += 1;
        Some(self.mad())
    }

    /// How long it waits, if it was sent more than once.
    pub(crate) fn unanswered(&self) -> Option<Unanswered> {
        let Self { begun: since, sent, in_vain, .. } = *self;
        (sent > 1).then_some(Unanswered { since, sent, in_vain })
    }

    /// Whether this is it.
    pub(crate) fn is(&self, mad: &Mad) -> bool {
        *self.mad == *mad
    }

    /// It has come to nobody.
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

    /// An MRA has come: the answer takes so many nanoseconds. False if that was said before.
    pub(crate) fn wait_longer(&mut self, wait: u64) -> bool {
        let first = !std::mem::replace(&mut self.mra_received, true);
        if first {
            self.wait = wait;
        }
        first
    }
}
