//! The table of `spec/coverage.md`: how it is read and written, and what is wrong with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::rules::{cells, split_id};
use super::{Rule, Rules, Test};

/// A row of the table names at most this many tests.
const NAMED: usize = 3;

/// The state of a rule in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// These tests hold it, and this many more.
    Tested(Vec<String>, usize),
    /// A named piece of work will hold it.
    Later(String),
    /// It does not apply, for this reason.
    NotApplicable(String),
    /// Nothing holds it, and there is no reason.
    Gap,
}

impl State {
    fn word(&self) -> &'static str {
        match self {
            Self::Tested(..) => "tested",
            Self::Later(_) => "later",
            Self::NotApplicable(_) => "n/a",
            Self::Gap => "gap",
        }
    }
}

/// The table of `spec/coverage.md`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Its rows.
    pub rows: Vec<(String, State)>,
}

impl Table {
    /// Reads the table.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut rows = Vec::new();
        for line in text.lines() {
            let Some(cells) = cells(line) else { continue };
            if split_id(cells[0]).is_none() {
                continue;
            }
            let [id, state, why] = cells[..] else {
                return Err(format!("spec/coverage.md: a row has three cells, not so: {line}"));
            };
            let state = match state {
                "tested" => {
                    let more = why.rsplit_once(", and ").map(|(_, more)| more);
                    let more = more.and_then(|more| more.strip_suffix(" more"));
                    let named = why.split('`').skip(1).step_by(2).map(Into::into).collect();
                    State::Tested(named, more.and_then(|more| more.parse().ok()).unwrap_or(0))
                }
                "later" => State::Later(why.to_owned()),
                "n/a" => State::NotApplicable(why.to_owned()),
                "gap" => State::Gap,
                _ => return Err(format!("spec/coverage.md: {id} has no known state: {state}")),
            };
            rows.push((id.to_owned(), state));
        }
        Ok(Self { rows })
    }

    /// The table for these sources. It keeps this table's reasons for rules without a test.
    pub fn bless(&self, rules: &Rules, tests: &[Test]) -> Self {
        let old: BTreeMap<_, _> = self.rows.iter().map(|(id, state)| (id, state)).collect();
        let row = |rule: &Rule| {
            let mut names: Vec<_> = carrying(&rule.id, tests).map(|t| t.name.clone()).collect();
            names.dedup();
            let more = names.len().saturating_sub(NAMED);
            names.truncate(NAMED);
            let state = match old.get(&rule.id) {
                _ if !names.is_empty() => State::Tested(names, more),
                Some(state @ (State::Later(_) | State::NotApplicable(_))) => (*state).clone(),
                _ => State::Gap,
            };
            (rule.id.clone(), state)
        };
        Self { rows: rules.iter().map(row).collect() }
    }

    /// The text of `spec/coverage.md`.
    pub fn render(&self, rules: &Rules) -> String {
        let mut text = String::from(INTRODUCTION);
        let states: [(&str, &str); 4] = [
            ("tested", "held by the tests named"),
            ("later", "comes with the element of work named"),
            ("n/a", "does not apply, for the reason given"),
            ("gap", "nothing holds it yet; the test run fails"),
        ];
        text.push_str("| state | rules | meaning |\n|---|---|---|\n");
        for (state, meaning) in states {
            let _ = writeln!(text, "| {state} | {} | {meaning} |", self.count(state));
        }
        let sections: BTreeMap<_, _> = rules.iter().map(|r| (&r.id, r.section.as_str())).collect();
        let mut section = None;
        for (id, state) in &self.rows {
            let here = sections.get(id).copied().unwrap_or("No rule of spec/rules.md");
            if section != Some(here) {
                section = Some(here);
                let _ =
                    write!(text, "\n## {here}\n\n| id | state | where / why |\n|---|---|---|\n");
            }
            let why = match state {
                State::Tested(names, more) => {
                    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
                    let more = if *more > 0 { format!(", and {more} more") } else { String::new() };
                    names.join(", ") + &more
                }
                State::Later(why) | State::NotApplicable(why) => why.clone(),
                State::Gap => String::new(),
            };
            let _ = writeln!(text, "| {id} | {} | {why} |", state.word());
        }
        text
    }

    /// How many rows are in a state.
    pub fn count(&self, state: &str) -> usize {
        self.rows.iter().filter(|(_, s)| s.word() == state).count()
    }

    /// All disagreements of the table, the rules and the tests.
    pub fn problems(&self, rules: &Rules, tests: &[Test]) -> Problems {
        let mut problems = Problems::default();
        let mut seen = BTreeSet::new();
        for (id, state) in &self.rows {
            if !rules.contains(id) {
                problems.listing.push(format!("{id} is listed and is no rule"));
            }
            if !seen.insert(id) {
                problems.listing.push(format!("{id} is listed twice"));
            }
            match state {
                State::Gap => problems.gaps.push(id.clone()),
                State::Tested(names, _) => {
                    if names.is_empty() {
                        problems.missing.push(format!("{id} is tested, but no test is named"));
                    }
                    for name in names {
                        let same: Vec<_> = tests.iter().filter(|t| t.name == *name).collect();
                        if same.is_empty() {
                            problems.missing.push(format!("{id}: there is no test {name}"));
                        } else if !same.iter().any(|t| t.ids.contains(id)) {
                            problems.missing.push(format!("{id}: {name} does not carry this id"));
                        }
                    }
                }
                State::Later(why) | State::NotApplicable(why) => {
                    if why.is_empty() {
                        problems.stale.push(format!("{id} is {} without a reason", state.word()));
                    }
                    if let Some(test) = carrying(id, tests).next() {
                        let word = state.word();
                        problems.stale.push(format!("{id} is {word}, yet {} has it", test.name));
                    }
                }
            }
        }
        for rule in rules.iter().filter(|rule| !seen.contains(&rule.id)) {
            problems.listing.push(format!("{} is not listed", rule.id));
        }
        for test in tests {
            for id in test.ids.iter().filter(|id| !rules.contains(id)) {
                problems.unknown.push(format!("{} carries {id}, which is no rule", test.name));
            }
        }
        problems
    }
}

fn carrying<'a>(id: &'a str, tests: &'a [Test]) -> impl Iterator<Item = &'a Test> {
    tests.iter().filter(move |test| test.ids.contains(id))
}

/// The findings of [`Table::problems`], by kind.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Problems {
    /// Rules that are not listed exactly once.
    pub listing: Vec<String>,
    /// Listed tests that do not exist, or do not carry the rule's id.
    pub missing: Vec<String>,
    /// Rules without a test and without a reason.
    pub gaps: Vec<String>,
    /// Rules with a test and with a reason for having none.
    pub stale: Vec<String>,
    /// Ids that a test carries and that are not rules.
    pub unknown: Vec<String>,
}

const INTRODUCTION: &str = "\
# Where each rule is tested

One row for each rule of [rules.md](rules.md). Each test carries the ids of the rules that it checks, in a `Rules:`
line above it or at the start of its name. The table names a test as `crate/file::function`. The test run fails
in three cases: a listed test does not exist or does not carry the rule's id; a rule has neither a test nor a
reason; a rule has a test and still has a reason.

You write the reasons (`later`, `n/a`) by hand, and this command keeps them. It writes all the rest from the sources:

    TRANSOM_BLESS=1 cargo test -p transom-conformance --test rules coverage

";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coverage::sample::{ids, rules};

    fn test(name: &str, list: &[&str]) -> Test {
        Test { name: name.to_owned(), ids: ids(list) }
    }

    #[test]
    fn blessing_names_tests_keeps_reasons_and_leaves_gaps() {
        let rules = rules();
        let old = Table::parse(
            "| PD-01 | tested | `gone/x::y` |\n| PD-02 | later | with the wire link |\n\
             | T1-01 | later | some day |\n",
        );
        let tests: Vec<_> = (0..5).map(|n| test(&format!("f::t{n}"), &["T1-01"])).collect();
        let new = old.unwrap().bless(&rules, &tests);
        let named = ["f::t0", "f::t1", "f::t2"].map(str::to_owned).to_vec();
        assert_eq!(
            new.rows,
            [
                ("PD-01".to_owned(), State::Gap),
                ("PD-02".to_owned(), State::Later("with the wire link".to_owned())),
                ("T1-01".to_owned(), State::Tested(named, 2)),
                ("AT-10".to_owned(), State::Gap),
            ]
        );
        let text = new.render(&rules);
        assert!(text.contains("| T1-01 | tested | `f::t0`, `f::t1`, `f::t2`, and 2 more |\n"));
        assert!(text.contains("| gap | 2 |"));
        assert_eq!(Table::parse(&text).unwrap(), new);
        assert_eq!(new.bless(&rules, &tests), new);
    }

    #[test]
    fn every_kind_of_disagreement_is_a_problem() {
        let table = Table::parse(
            "| PD-01 | tested | `f::a`, `f::b` |\n| PD-01 | gap | |\n\
             | PD-02 | later | with UD |\n| ZZ-01 | n/a | |\n| T1-01 | tested | |\n",
        )
        .unwrap();
        let tests = [test("f::a", &["PD-02"]), test("f::c", &["T1-99", "T1-01..T1-05"])];
        assert_eq!(
            table.problems(&rules(), &tests),
            Problems {
                listing: vec![
                    "PD-01 is listed twice".to_owned(),
                    "ZZ-01 is listed and is no rule".to_owned(),
                    "AT-10 is not listed".to_owned(),
                ],
                missing: vec![
                    "PD-01: f::a does not carry this id".to_owned(),
                    "PD-01: there is no test f::b".to_owned(),
                    "T1-01 is tested, but no test is named".to_owned(),
                ],
                gaps: vec!["PD-01".to_owned()],
                stale: vec![
                    "PD-02 is later, yet f::a has it".to_owned(),
                    "ZZ-01 is n/a without a reason".to_owned(),
                ],
                unknown: vec![
                    "f::c carries T1-01..T1-05, which is no rule".to_owned(),
                    "f::c carries T1-99, which is no rule".to_owned(),
                ],
            }
        );
    }

    #[test]
    fn a_row_of_another_form_is_refused() {
        assert!(Table::parse("| PD-01 | tested |\n").is_err());
        assert!(Table::parse("| PD-01 | maybe | x |\n").is_err());
    }
}
