//! Checks the variables that `transom run` passes to its program, before the program starts.

use std::env;

use transom_ibverbs::check_environment;
use transom_system::environment::{ALL, PREFIX};

use crate::failure::{Failure, Result};
use crate::layout;

/// Variables of Transom's build and tests.
const OF_DEVELOPERS: [&str; 10] = [
    "TRANSOM_BLESS",
    "TRANSOM_CARRY",
    "TRANSOM_CM_SEED",
    "TRANSOM_CM_SEEDS",
    "TRANSOM_LIBGCC",
    "TRANSOM_LINK_FOR",
    "TRANSOM_LONG",
    "TRANSOM_RXE",
    "TRANSOM_SEED",
    "TRANSOM_ZIG",
];
/// The prefix of variables of tests that start themselves.
const OF_TESTS: &str = "TRANSOM_TEST_";

/// Refuses values with which no device would open, and warns of names that nobody reads.
pub(super) fn check() -> Result {
    for name in env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
        if let Some(known) = instead_of(&name) {
            layout::warn(format_args!("nobody reads {name}; did you mean {known}?"));
        }
    }
    check_environment().map_err(|error| Failure::with_status(2, error))
}

/// The variable that the user probably means by a name that nobody reads.
fn instead_of(name: &str) -> Option<&'static str> {
    let is_known = !name.starts_with(PREFIX)
        || name.starts_with(OF_TESTS)
        || OF_DEVELOPERS.contains(&name)
        || ALL.iter().any(|known| known.name == name);
    let own = |name: &str| name.trim_start_matches(PREFIX).to_owned();
    let likeness = |known: &&str| strsim::jaro(&own(known), &own(name));
    let names = ALL.iter().filter(|known| !known.effect.is_empty()).map(|known| known.name);
    let nearest = names.max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    nearest.filter(|_| !is_known)
}

/// Rows of the help text.
pub(super) fn rows() -> String {
    let of_users = ALL.iter().filter(|variable| !variable.effect.is_empty());
    let rows = of_users.map(|variable| {
        format!("  {:<25}  {}", format!("{}={}", variable.name, variable.value), variable.effect)
    });
    rows.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_variable_is_named() {
        for (name, known) in [
            ("TRANSOM_LNIK", "TRANSOM_LINK"),
            ("TRANSOM_DEVICE", "TRANSOM_DEVICES"),
            ("TRANSOM_DEVICENAME", "TRANSOM_DEVICE_NAME"),
            ("TRANSOM_WINDOW", "TRANSOM_WINDOWS"),
            ("TRANSOM_CONNECTION_TIMEOUT", "TRANSOM_CONNECT_TIMEOUT"),
        ] {
            assert_eq!(instead_of(name), Some(known));
        }
        for name in ["PATH", "TRANSOM_LINK", "TRANSOM_TREE", "TRANSOM_TEST_ROLE", "TRANSOM_LONG"] {
            assert_eq!(instead_of(name), None, "{name}");
        }
    }
}
