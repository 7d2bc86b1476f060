//! A test in the sources, and the ids that the comment above it lists.

use std::collections::BTreeSet;

/// A test, and the ids of the rules that it checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// `crate/file::function`, such as `conformance/rules/windows/keys::key_01_the_key_of_a_new_window`.
    pub name: String,
    /// The ids.
    pub ids: BTreeSet<String>,
}

/// The ids in the `Rules:` lines of a comment. A line that ends in a comma continues in the next.
pub(super) fn ids_in_comment(comment: &str) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    let mut goes_on = false;
    for line in comment.lines() {
        let line = line.trim_start_matches(['/', '!', '*', '#']).trim();
        let list = match line.strip_prefix("Rules:").or_else(|| line.strip_prefix("Rule:")) {
            Some(list) => list,
            None if goes_on => line,
            None => continue,
        };
        goes_on = list.trim_end().ends_with(',');
        let words = list.split(|c: char| c.is_whitespace() || ",;()`".contains(c));
        ids.extend(
            words.map(|w| w.trim_end_matches('.')).filter(|w| is_id_like(w)).map(Into::into),
        );
    }
    ids
}

/// Whether a word of a `Rules:` line looks like an id. A range such as `T1-01..T1-05` counts as one word, so that it is
/// reported as no rule. Ids must be written out, so that people can search for them.
fn is_id_like(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase()) && word.contains('-')
}
