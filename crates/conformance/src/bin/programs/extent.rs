//! How much a script runs.

/// From a look that takes a minute or two of all scripts together, to hours of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Extent {
    /// Each tool, with the programs built for the tests; nothing is measured.
    Quick,
    /// What is recorded.
    Usual,
    /// All options, sizes and repetitions.
    Long,
}

impl Extent {
    /// Whether all options, sizes and repetitions are wanted.
    pub(crate) fn is_long(self) -> bool {
        self == Self::Long
    }

    /// The profile of what runs. What was measured with another than users have would say nothing; one
    /// of its own would have to be built for a quick look, though that measures nothing.
    pub(crate) fn profile(self) -> &'static str {
        if self == Self::Quick { "dev" } else { "release" }
    }
}
