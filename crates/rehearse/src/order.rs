//! Whose promises of memory order a rehearsal keeps.

use crate::Provocation;

/// An authority on memory order. `spec/ordering.md` says what each promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The InfiniBand specification, and all that the manual pages of rdma-core promise or suggest beside it.
    Verbs,
    /// The specification alone: what the manual pages only suggest does not count.
    Spec,
    /// The published model of RDMA on x86.
    Model,
}

impl Order {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Verbs, Self::Spec, Self::Model];

    /// Its name for users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Verbs => "verbs",
            Self::Spec => "spec",
            Self::Model => "model",
        }
    }

    /// Whether a device that keeps these promises may do something. The model has words of memory, which are read and
    /// written once, and no memory of relaxed ordering.
    pub fn allows(self, provocation: Provocation) -> bool {
        self != Self::Model
            || !matches!(
                provocation,
                Provocation::ScrambledBytes
                    | Provocation::RepeatedBytes
                    | Provocation::ScrambledMessages
                    | Provocation::RelaxedOrdering
                    | Provocation::TornSources
            )
    }

    /// The one with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}
