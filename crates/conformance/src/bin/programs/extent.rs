//! How much of a script runs.

/// From a look that takes a minute or two for all scripts together, to hours for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Extent {
    /// Each tool, with the programs built for the tests. Measures nothing.
    Quick,
    /// The runs that are recorded.
    Usual,
    /// All options, sizes and repetitions.
    Long,
}

impl Extent {
    /// Whether all options, sizes and repetitions are wanted.
    pub(crate) fn is_long(self) -> bool {
        self == Self::Long
    }

    /// The cargo profile of the programs. Measurements need the profile that users have. A quick look measures nothing,
    /// so it uses the tests' profile, which is already built.
    pub(crate) fn profile(self) -> &'static str {
        if self == Self::Quick { "dev" } else { "release" }
    }
}
