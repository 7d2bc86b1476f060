//! The rule table: which tests hold which rule.
//!
//! It reads and compares three texts:
//!
//! - `spec/rules.md`, where a rule is a table row that begins with its id ([`Rules::parse`]);
//! - the sources, where a test names the rules it checks: in a `Rules:` line of the comment above it, or at the start
//!   of its name ([`scan_rust`], [`scan_script`]);
//! - `spec/coverage.md`, which says for every rule where it is tested, or why not ([`Table`]).
//!
//! [`Table::problems`] lists every disagreement. [`Table::bless`] writes the table again from the sources, and keeps
//! the reasons that people wrote.

mod rules;
mod rust;
mod scan;
mod script;
mod table;
mod test;

pub use self::rules::{Rule, Rules};
pub use self::rust::scan_rust;
pub use self::scan::scan;
pub use self::script::scan_script;
pub use self::table::{Problems, State, Table};
pub use self::test::Test;

/// A few rules for the tests of this module.
#[cfg(test)]
mod sample {
    use std::collections::BTreeSet;

    use super::Rules;

    const RULES: &str = "\
# The rules
| key | meaning |
|---|---|
## A. First
### A.1 Domains
| id | rule |
|---|---|
| PD-01 | one | x |
| PD-02 | two | x |
## B. Second
| T1-01 | three |
| AT-10 | four |
| RXE-01 | a deviation |
";

    pub(super) fn rules() -> Rules {
        Rules::parse(RULES).unwrap()
    }

    pub(super) fn ids(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(|&id| id.to_owned()).collect()
    }
}
