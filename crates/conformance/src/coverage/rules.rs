//! The rules of `spec/rules.md`.

use std::collections::BTreeSet;

/// Rules with these prefixes describe deviations of other adapters. No tests hold them.
const DEVIATIONS: [&str; 3] = ["RXE", "MLX", "IRD"];

/// One numbered rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its id, such as `T1-01`.
    pub id: String,
    /// The heading above it.
    pub section: String,
}

/// The rules of `spec/rules.md`, in the order of that file.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    list: Vec<Rule>,
    ids: BTreeSet<String>,
    prefixes: BTreeSet<String>,
}

impl Rules {
    /// Reads the rules. An id that occurs twice is an error.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut rules = Self::default();
        let mut section = String::new();
        for line in text.lines() {
            if line.starts_with('#') {
                section = line.trim_start_matches('#').trim().to_owned();
            }
            let Some(id) = cells(line).and_then(|cells| cells.into_iter().next()) else { continue };
            let Some((prefix, _)) = split_id(id) else { continue };
            if DEVIATIONS.contains(&prefix) {
                continue;
            }
            if !rules.ids.insert(id.to_owned()) {
                return Err(format!("spec/rules.md has two rules {id}"));
            }
            rules.prefixes.insert(prefix.to_owned());
            rules.list.push(Rule { id: id.to_owned(), section: section.clone() });
        }
        Ok(rules)
    }

    /// The rules in order.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.list.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether a rule has this id.
    pub fn contains(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    /// The ids that a test's name begins with: `t1_01_t1_02_other_type` carries T1-01 and T1-02.
    ///
    /// Only the start counts, so that "10 ms" in the middle of a name is not taken for a rule.
    pub(super) fn ids_in_name(&self, name: &str) -> BTreeSet<String> {
        let mut ids = BTreeSet::new();
        let mut parts = name.strip_prefix("test_").unwrap_or(name).split('_');
        while let (Some(prefix), Some(number)) = (parts.next(), parts.next()) {
            let id = format!("{}-{number}", prefix.to_ascii_uppercase());
            match split_id(&id) {
                Some((prefix, _)) if self.prefixes.contains(prefix) => ids.insert(id),
                _ => break,
            };
        }
        ids
    }
}

/// `T1-01` is `("T1", "01")`. Any other form is `None`.
pub(super) fn split_id(id: &str) -> Option<(&str, &str)> {
    let (prefix, number) = id.split_once('-')?;
    let prefix_ok = prefix.starts_with(|c: char| c.is_ascii_uppercase())
        && prefix.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
    let number_ok = number.len() >= 2 && number.chars().all(|c| c.is_ascii_digit());
    (prefix_ok && number_ok).then_some((prefix, number))
}

/// The cells of a Markdown table row.
pub(super) fn cells(line: &str) -> Option<Vec<&str>> {
    let row = line.trim().strip_prefix('|')?;
    Some(row.strip_suffix('|').unwrap_or(row).split('|').map(str::trim).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coverage::sample::rules;

    #[test]
    fn rules_are_rows_with_an_id_and_deviations_are_none() {
        let rules = rules();
        let list: Vec<_> = rules.iter().map(|r| (r.id.as_str(), r.section.as_str())).collect();
        let (a, b) = ("A.1 Domains", "B. Second");
        assert_eq!(list, [("PD-01", a), ("PD-02", a), ("T1-01", b), ("AT-10", b)]);
    }

    #[test]
    fn a_rule_given_twice_is_refused() {
        assert!(Rules::parse("| PD-01 | a |\n| PD-01 | b |\n").unwrap_err().contains("PD-01"));
    }
}
