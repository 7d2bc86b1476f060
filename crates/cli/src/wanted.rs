//! The options that choose from a list of names: only these, or all but those.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use transom_check::Kind;
use transom_rehearse::Provocation;

use crate::shell::option;

/// What has a name in a list that a user chooses from.
pub(crate) trait Named: Copy + PartialEq + Send + Sync + 'static {
    /// All of them.
    const ALL: &'static [Self];
    /// The name of the option that has only these.
    const OPTION: &'static str;
    /// What stands for the names in a help text.
    const VALUES: &'static str;
    /// The help text of the option that has only these.
    const ONLY: &'static str;
    /// The help text of `--without`.
    const WITHOUT: &'static str;

    fn name(self) -> &'static str;
}

impl Named for Kind {
    const ALL: &'static [Self] = Self::ALL;
    const OPTION: &'static str = "kinds";
    const VALUES: &'static str = "KIND,KIND";
    const ONLY: &'static str = "Look only for these kinds; --help lists them";
    const WITHOUT: &'static str = "Do not look for these kinds";

    fn name(self) -> &'static str {
        Self::name(self)
    }
}

impl Named for Provocation {
    const ALL: &'static [Self] = Self::ALL;
    const OPTION: &'static str = "only";
    const VALUES: &'static str = "NAME,NAME";
    const ONLY: &'static str = "Provoke only these";
    const WITHOUT: &'static str = "Do not provoke these";

    fn name(self) -> &'static str {
        Self::name(self)
    }
}

/// Parses a name. For a wrong one, clap names the nearest.
pub(crate) fn parser<T: Named>() -> impl TypedValueParser<Value = T> {
    let named = |name: String| T::ALL.iter().copied().find(|it| it.name() == name);
    PossibleValuesParser::new(T::ALL.iter().map(|it| it.name()))
        .try_map(move |name| named(name).ok_or("there is none"))
}

/// Whether a name may be meant by what was typed: at most a third of its letters differ.
pub(crate) fn is_near(typed: &str, name: &str) -> bool {
    let longest = typed.chars().count().max(name.chars().count());
    strsim::damerau_levenshtein(typed, name) * 3 <= longest
}

/// What the user has chosen: all of them, if nothing.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Wanted<T: Named> {
    #[arg(
        long = T::OPTION,
        help = T::ONLY,
        value_name = T::VALUES,
        value_delimiter = ',',
        value_parser = parser::<T>(),
        hide_possible_values = true
    )]
    only: Vec<T>,
    #[arg(
        long,
        help = T::WITHOUT,
        value_name = T::VALUES,
        value_delimiter = ',',
        value_parser = parser::<T>(),
        hide_possible_values = true
    )]
    without: Vec<T>,
}

impl<T: Named> Default for Wanted<T> {
    fn default() -> Self {
        Self { only: Vec::new(), without: Vec::new() }
    }
}

impl<T: Named> Wanted<T> {
    pub(crate) fn has(&self, it: T) -> bool {
        (self.only.is_empty() || self.only.contains(&it)) && !self.without.contains(&it)
    }

    /// The options as the user may type them, each with a space before it.
    pub(crate) fn words(&self) -> String {
        let list = |name: &str, all: &[T]| match all {
            [] => String::new(),
            all => option(name, all.iter().map(|it| it.name()).collect::<Vec<_>>().join(",")),
        };
        list(T::OPTION, &self.only) + &list("without", &self.without)
    }

    /// All that is wanted.
    pub(crate) fn all(&self) -> impl Iterator<Item = T> {
        T::ALL.iter().copied().filter(|it| self.has(*it))
    }
}

#[cfg(test)]
impl<T: Named> Wanted<T> {
    pub(crate) fn only(it: T) -> Self {
        Self { only: vec![it], without: Vec::new() }
    }

    pub(crate) fn without(it: T) -> Self {
        Self { only: Vec::new(), without: vec![it] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_guessed_is_near() {
        for (typed, name) in [("work-lots", "work-lost"), ("late-wrk", "late-work"), ("a", "a")] {
            assert!(is_near(typed, name), "{typed}");
        }
        for (typed, name) in [("nonsense", "nothing-signaled"), ("foo", "acked-too-much")] {
            assert!(!is_near(typed, name), "{typed}");
        }
    }
}
