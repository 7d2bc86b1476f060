//! A refused access: why, and what was attempted on what.

use super::{Attempt, Key, Reason, Snapshot};

/// A refusal with everything that explains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{:?} with key {:#010x}: {reason} (rule {})", attempt.operation, attempt.key.0, self.rule())]
pub struct Refusal {
    /// Why.
    #[source]
    pub reason: Reason,
    /// What was attempted, by whom.
    pub attempt: Attempt,
    /// The object the key's index named, as it was.
    pub object: Snapshot,
}

impl Refusal {
    /// A refusal in which no object of the key table plays a part.
    pub fn without_object(reason: Reason, attempt: Attempt) -> Self {
        Self { reason, attempt, object: Snapshot::VACANT }
    }

    /// The key in question.
    pub fn key(&self) -> Key {
        self.attempt.key
    }

    /// The rule that refuses.
    pub fn rule(&self) -> &'static str {
        self.reason.rule(self.attempt.operation)
    }
}
