//! Moderation: events that a completion queue holds back, to tell of more completions at once.

/// When an event that was asked for is raised (`ibv_modify_cq(3)`): after `count` completions, or
/// `period` nanoseconds after the first of them.
///
/// If either is zero, events come at once: a count alone could hold one back for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moderation {
    /// Completions.
    pub count: u16,
    /// Nanoseconds.
    pub period: u64,
}

/// The fate of an event that was asked for.
pub(super) enum Fate {
    /// It is raised now.
    Raised,
    /// It is held back.
    Held,
    /// It is held back. Call [`HeldBack::end_period`] at this time.
    HeldUntil(u64),
}

/// The requested event, while it is held back.
#[derive(Default)]
pub(super) struct HeldBack {
    pub(super) moderation: Moderation,
    /// The completions that it is to tell of.
    pub(super) completions: u16,
    /// When it is raised at the latest.
    deadline: u64,
    /// When a call of [`HeldBack::end_period`] is to come.
    call: Option<u64>,
}

impl HeldBack {
    /// Whether events may be held back.
    pub(super) fn is_moderated(&self) -> bool {
        self.moderation.count > 1 && self.moderation.period > 0
    }

    /// There are so many more completions to tell of.
    pub(super) fn hold(&mut self, more: usize, now: u64) -> Fate {
        let first = self.completions == 0;
        self.completions = self.completions.saturating_add(u16::try_from(more).unwrap_or(u16::MAX));
        if !self.is_moderated() || self.completions >= self.moderation.count {
            return Fate::Raised;
        }
        if first {
            self.deadline = now + self.moderation.period;
        }
        // One call at a time. The call finds a later deadline by itself, but comes too late for an earlier one.
        if self.call.is_some_and(|call| call <= self.deadline) {
            return Fate::Held;
        }
        self.call_again()
    }

    /// The time of a call has come.
    pub(super) fn end_period(&mut self, now: u64) -> Fate {
        self.call = None;
        match self.completions {
            0 => Fate::Held,
            _ if now >= self.deadline => Fate::Raised,
            _ => self.call_again(),
        }
    }

    fn call_again(&mut self) -> Fate {
        self.call = Some(self.deadline);
        Fate::HeldUntil(self.deadline)
    }

    /// The event is raised.
    pub(super) fn let_go(&mut self) {
        self.completions = 0;
    }
}
