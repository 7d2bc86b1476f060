//! The rule table: which test holds which rule.
//!
//! Three texts are read and compared:
//!
//! - `spec/rules.md`, where a rule is a table row that begins with its id ([`Rules::parse`]);
//! - the sources, where a test carries the ids of the rules it checks, in a `Rules:` line of the
//!   comment above it or at the start of its name ([`scan_rust`], [`scan_script`]);
//! - `spec/coverage.md`, which says for every rule where it is tested, or why not ([`Table`]).
//!
//! [`Table::problems`] lists every disagreement; [`Table::bless`] writes the table anew from the
//! sources, keeping the reasons that people wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

/// Rules with these prefixes describe how other adapters deviate; nothing is tested by them.
const DEVIATIONS: [&str; 3] = ["RXE", "MLX", "IRD"];

/// Every function inside a call of a macro whose name begins so is a test.
const LISTING_MACROS: &str = "on_each_";

/// A row of the table names at most this many tests.
const NAMED: usize = 3;

/// One numbered rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its id, such as `T1-01`.
    pub id: String,
    /// The heading it stands under.
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
    /// Reads the rules; an id that stands there twice is an error.
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

    /// The ids a test's name begins with: `t1_01_t1_02_other_type` carries T1-01 and T1-02.
    ///
    /// Only at the start, so that "10 ms" in the middle of a name is not taken for a rule.
    fn ids_in_name(&self, name: &str) -> BTreeSet<String> {
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

/// A test, and the ids of the rules it says it checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// `crate/file::function`, such as `conformance/windows_type1::t1_01_window_must_be_type_1`.
    pub name: String,
    /// The ids.
    pub ids: BTreeSet<String>,
}

/// Finds the tests of all crates and of `tests/` below the root of the workspace.
pub fn scan(root: &Path, rules: &Rules) -> io::Result<Vec<Test>> {
    let mut tests = Vec::new();
    for top in ["crates", "tests"] {
        let top = root.join(top);
        if top.is_dir() {
            scan_folder(root, &top, rules, &mut tests)?;
        }
    }
    tests.sort_by(|a, b| rank(&a.name).cmp(&rank(&b.name)));
    Ok(tests)
}

fn scan_folder(root: &Path, folder: &Path, rules: &Rules, to: &mut Vec<Test>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') || name == "target" {
            continue;
        }
        if path.is_dir() {
            scan_folder(root, &path, rules, to)?;
            continue;
        }
        let at = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        let in_tests = at.starts_with("tests/") || at.contains("/tests/");
        match path.extension().and_then(|e| e.to_str()) {
            Some("rs") => {
                to.extend(scan_rust(&rust_file_name(&at), &fs::read_to_string(&path)?, rules));
            }
            Some("c" | "sh" | "py") if in_tests => {
                to.extend(scan_script(&script_file_name(&at), &fs::read_to_string(&path)?));
            }
            _ => {}
        }
    }
    Ok(())
}

/// `crates/conformance/tests/windows.rs` is `conformance/windows`, and
/// `crates/device/src/key.rs` is `device/src/key`.
fn rust_file_name(path: &str) -> String {
    let path = script_file_name(path);
    path.strip_suffix(".rs").unwrap_or(&path).to_owned()
}

fn script_file_name(path: &str) -> String {
    match path.strip_prefix("crates/") {
        Some(path) => path.replacen("/tests/", "/", 1),
        None => path.to_owned(),
    }
}

/// The order tests are named in: those that exist to hold the rules first.
fn rank(name: &str) -> (u8, &str) {
    let class = match name {
        _ if name.starts_with("conformance/") => 0,
        _ if name.starts_with("tests/") => 1,
        _ => 2,
    };
    (class, name)
}

/// Finds the tests in a Rust source file.
///
/// A test is a function with a `#[test]` attribute (of any path: `#[tokio::test]` is one too),
/// wherever it stands, also in a macro's call such as `proptest! { … }`; and every function in a
/// call of a macro named `on_each_…!`. One that is `#[ignore]`d is none: it holds nothing.
pub fn scan_rust(file: &str, source: &str, rules: &Rules) -> Vec<Test> {
    let tokens = lex(source);
    let mut tests = Vec::new();
    walk(&tokens, file, false, rules, &mut tests);
    tests
}

/// Finds the tests in a C file, a shell script or a Python file.
///
/// A comment line `Rules: …` above a function names that function; elsewhere, the file.
pub fn scan_script(file: &str, source: &str) -> Vec<Test> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut comment = String::new();
    let mut flush = |comment: &mut String, name: String| {
        let ids = ids_in_comment(comment);
        if !ids.is_empty() {
            found.entry(name).or_default().extend(ids);
        }
        comment.clear();
    };
    for line in source.lines() {
        let line = line.trim();
        let text = ["//", "/*", "*", "#"].iter().find_map(|start| line.strip_prefix(start));
        match text {
            Some(text) => {
                comment.push_str(text.trim_end_matches("*/"));
                comment.push('\n');
            }
            None => {
                let name = match function_name(line) {
                    Some(function) => format!("{file}::{function}"),
                    None => file.to_owned(),
                };
                flush(&mut comment, name);
            }
        }
    }
    flush(&mut comment, file.to_owned());
    found.into_iter().map(|(name, ids)| Test { name, ids }).collect()
}

/// The name of the function which a line of C, shell or Python begins to define.
fn function_name(line: &str) -> Option<&str> {
    if line.ends_with(';') {
        return None;
    }
    let head = line.split_once('(')?.0.trim_end();
    let name = head.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next()?;
    let control = ["if", "for", "while", "switch", "return"].contains(&name);
    (!name.is_empty() && !head.contains('=') && !control).then_some(name)
}

/// The ids in the `Rules:` lines of a comment; a line that ends in a comma goes on in the next.
fn ids_in_comment(comment: &str) -> BTreeSet<String> {
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

/// Whether a word of a `Rules:` line is meant as an id. A range such as `T1-01..T1-05` is taken as
/// it stands, so that it is reported as no rule: ids are written out, or they cannot be searched.
fn is_id_like(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase()) && word.contains('-')
}

/// `T1-01` is `("T1", "01")`; anything of another form is `None`.
fn split_id(id: &str) -> Option<(&str, &str)> {
    let (prefix, number) = id.split_once('-')?;
    let prefix_ok = prefix.starts_with(|c: char| c.is_ascii_uppercase())
        && prefix.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
    let number_ok = number.len() >= 2 && number.chars().all(|c| c.is_ascii_digit());
    (prefix_ok && number_ok).then_some((prefix, number))
}

/// The cells of a Markdown table row.
fn cells(line: &str) -> Option<Vec<&str>> {
    let row = line.trim().strip_prefix('|')?;
    Some(row.strip_suffix('|').unwrap_or(row).split('|').map(str::trim).collect())
}

/// As much of Rust's tokens as it takes to find functions and what stands above them.
#[derive(Debug, PartialEq, Eq)]
enum Token<'a> {
    Comment(&'a str),
    Word(&'a str),
    Other(char),
    Group(char, Vec<Token<'a>>),
}

fn lex(source: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer { source, at: 0 };
    let mut tokens = Vec::new();
    loop {
        tokens.extend(lexer.group());
        if lexer.at >= source.len() {
            return tokens;
        }
    }
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    /// The tokens up to the end of the group that is open, whose closing bracket is eaten.
    fn group(&mut self) -> Vec<Token<'a>> {
        let mut tokens = Vec::new();
        while let Some(c) = self.rest().chars().next() {
            let from = self.at;
            self.at += c.len_utf8();
            match c {
                '/' if self.rest().starts_with('/') => {
                    self.skip_while(|c| c != '\n');
                    tokens.push(Token::Comment(&self.source[from..self.at]));
                }
                '/' if self.rest().starts_with('*') => {
                    self.block_comment();
                    tokens.push(Token::Comment(&self.source[from..self.at]));
                }
                '(' | '[' | '{' => tokens.push(Token::Group(c, self.group())),
                ')' | ']' | '}' => return tokens,
                '"' => self.string(),
                '\'' => self.char_or_lifetime(),
                _ if c.is_alphanumeric() || c == '_' => {
                    self.skip_while(|c| c.is_alphanumeric() || c == '_');
                    let word = &self.source[from..self.at];
                    match (word, self.rest().chars().next()) {
                        ("r" | "br" | "cr", Some('"' | '#')) if self.raw_string() => {}
                        _ => tokens.push(Token::Word(word)),
                    }
                }
                _ if c.is_whitespace() => {}
                _ => tokens.push(Token::Other(c)),
            }
        }
        tokens
    }

    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn skip_while(&mut self, keep: impl Fn(char) -> bool) {
        self.at += self.rest().find(|c| !keep(c)).unwrap_or(self.rest().len());
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        self.at -= 1;
        while !self.rest().is_empty() {
            let step = match () {
                () if self.rest().starts_with("/*") => 1,
                () if self.rest().starts_with("*/") => -1,
                () => 0,
            };
            depth += step;
            self.at += match step {
                0 => self.rest().chars().next().map_or(0, char::len_utf8),
                _ => 2,
            };
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        let mut escaped = false;
        for c in self.rest().chars() {
            self.at += c.len_utf8();
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => return,
                _ => {}
            }
        }
    }

    /// After `r`: eats `#"…"#` and says so, or leaves a raw name such as `r#fn` alone.
    fn raw_string(&mut self) -> bool {
        let hashes = self.rest().len() - self.rest().trim_start_matches('#').len();
        if !self.rest()[hashes..].starts_with('"') {
            return false;
        }
        let end = format!("\"{}", "#".repeat(hashes));
        let body = self.at + hashes + 1;
        self.at = match self.source[body..].find(&end) {
            Some(length) => body + length + end.len(),
            None => self.source.len(),
        };
        true
    }

    fn char_or_lifetime(&mut self) {
        let mut chars = self.rest().chars();
        match (chars.next(), chars.next()) {
            (Some('\\'), Some(escaped)) => {
                self.at += 1 + escaped.len_utf8();
                self.skip_while(|c| c != '\'');
                self.at += usize::from(!self.rest().is_empty());
            }
            (Some(c), Some('\'')) => self.at += c.len_utf8() + 1,
            _ => self.skip_while(|c| c.is_alphanumeric() || c == '_'),
        }
    }
}

/// What stands above an item.
#[derive(Default)]
struct Above {
    comment: String,
    test: bool,
    ignored: bool,
}

fn walk(tokens: &[Token<'_>], file: &str, listing: bool, rules: &Rules, to: &mut Vec<Test>) {
    let mut above = Above::default();
    let mut rest = tokens;
    while let Some((token, after)) = rest.split_first() {
        rest = after;
        match (token, rest) {
            (Token::Comment(text), _) => {
                above.comment.push_str(text);
                above.comment.push('\n');
            }
            (Token::Other('#'), [Token::Group('[', attribute), after @ ..]) => {
                above.test |= attribute_name(attribute) == Some("test");
                above.ignored |= attribute_name(attribute) == Some("ignore");
                rest = after;
            }
            (Token::Other('#'), [Token::Other('!'), Token::Group('[', _), after @ ..]) => {
                rest = after;
            }
            (Token::Word("fn"), [Token::Word(name), after @ ..]) => {
                let above = std::mem::take(&mut above);
                if (above.test || listing) && !above.ignored {
                    let mut ids = ids_in_comment(&above.comment);
                    ids.extend(rules.ids_in_name(name));
                    to.push(Test { name: format!("{file}::{name}"), ids });
                }
                let body = |t: &Token<'_>| matches!(t, Token::Group('{', _) | Token::Other(';'));
                rest = after.iter().position(body).map_or(&[], |at| &after[at + 1..]);
            }
            (
                Token::Word("macro_rules"),
                [Token::Other('!'), Token::Word(_), Token::Group(..), after @ ..],
            ) => {
                above = Above::default();
                rest = after;
            }
            (Token::Word(name), [Token::Other('!'), Token::Group(_, body), after @ ..]) => {
                walk(body, file, name.starts_with(LISTING_MACROS), rules, to);
                above = Above::default();
                rest = after;
            }
            (Token::Group('{', body), _) => {
                walk(body, file, listing, rules, to);
                above = Above::default();
            }
            (Token::Other(';'), _) => above = Above::default(),
            _ => {}
        }
    }
}

/// The last word of an attribute's path: `test` for `#[test]` and `#[tokio::test(…)]`.
fn attribute_name<'a>(attribute: &[Token<'a>]) -> Option<&'a str> {
    let mut name = None;
    for token in attribute {
        match token {
            Token::Word(word) => name = Some(*word),
            Token::Other(':') => {}
            _ => break,
        }
    }
    name
}

/// What the table says of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is held by these tests, and by so many more.
    Tested(Vec<String>, usize),
    /// It will be held, with the piece of work named.
    Later(String),
    /// It does not apply, for the reason given.
    NotApplicable(String),
    /// Nothing holds it, and nobody said why.
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

    /// The table as the sources have it, with this table's reasons for what has no test.
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
            ("later", "comes with the piece of work named"),
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

    /// Everything in which the table, the rules and the tests disagree.
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

/// What [`Table::problems`] found, by kind.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Problems {
    /// Rules that are not listed exactly once.
    pub listing: Vec<String>,
    /// Tests that are listed and do not exist, or do not carry the rule's id.
    pub missing: Vec<String>,
    /// Rules that are neither tested nor given a reason.
    pub gaps: Vec<String>,
    /// Rules with a reason for having no test, which have one.
    pub stale: Vec<String>,
    /// Ids carried by a test which are no rules.
    pub unknown: Vec<String>,
}

const INTRODUCTION: &str = "\
# Where each rule is tested

One row for each rule of [rules.md](rules.md). A test carries the ids of the rules it checks, in a
`Rules:` line above it or at the start of its name; it is named here as `crate/file::function`.
The test run fails if a listed test does not exist or does not carry the rule's id, if a rule has
neither a test nor a reason, and if a reason has outlived its truth.

Reasons (`later`, `n/a`) are written by hand and kept. All the rest is written from the sources by

    TRANSOM_BLESS=1 cargo test -p transom-conformance --test coverage

";

#[cfg(test)]
mod tests {
    use super::*;

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

    fn rules() -> Rules {
        Rules::parse(RULES).unwrap()
    }

    fn ids(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(|&id| id.to_owned()).collect()
    }

    fn rust(source: &str) -> Vec<(String, BTreeSet<String>)> {
        scan_rust("f", source, &rules()).into_iter().map(|t| (t.name, t.ids)).collect()
    }

    fn found(name: &str, list: &[&str]) -> (String, BTreeSet<String>) {
        (format!("f::{name}"), ids(list))
    }

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

    #[test]
    fn a_test_carries_the_ids_of_its_rules_line_and_of_its_name() {
        let source = "
            /// Something, as T1-01 has it.
            ///
            /// Rules: PD-01, PD-02
            #[test]
            #[should_panic(expected = \"x\")]
            pub(crate) fn refused() { fn helper() {} }

            // Rules: PD-01,
            // AT-10.
            #[test]
            fn continued() {}

            #[tokio::test(flavor = \"multi_thread\")]
            async fn t1_01_pd_02_name() {}

            #[test]
            fn waits_at_10_ms() {}

            /// Rules: PD-01
            fn helper() {}
        ";
        assert_eq!(
            rust(source),
            [
                found("refused", &["PD-01", "PD-02"]),
                found("continued", &["AT-10", "PD-01"]),
                found("t1_01_pd_02_name", &["PD-02", "T1-01"]),
                found("waits_at_10_ms", &[]),
            ]
        );
    }

    #[test]
    fn a_comment_belongs_to_the_next_item_only() {
        let source = "
            /// Rules: PD-01
            struct S { x: u8 }
            #[test] fn a() {}
            /// Rules: PD-01
            use x::y;
            #[test] fn b() {}
        ";
        assert_eq!(rust(source), [found("a", &[]), found("b", &[])]);
    }

    #[test]
    fn tests_in_modules_and_macros_are_found() {
        let source = "
            mod inner { #[test] fn pd_01_x() {} }
            on_each_link! {
                /// Rules: PD-02
                fn listed(link: Link) { let f = |x| { x }; fn helper() {} }
                fn t1_01_also(link: Link) -> Result<(), E> {}
            }
            proptest! {
                #![proptest_config(Config::with_cases(10))]
                /// Rules: AT-10
                #[test]
                fn random(x in 0..10u8, y in prop_oneof![Just(1), Just(2)]) {}
                fn helper() {}
            }
            macro_rules! on_each_thing { ($(fn $n:ident)*) => { #[test] fn pd_01_no() {} } }
        ";
        assert_eq!(
            rust(source),
            [
                found("pd_01_x", &["PD-01"]),
                found("listed", &["PD-02"]),
                found("t1_01_also", &["T1-01"]),
                found("random", &["AT-10"]),
            ]
        );
    }

    #[test]
    fn what_only_looks_like_a_test_is_none() {
        let source = r##"
            #[ignore = "slow"] #[test] fn pd_01_ignored() {}
            // #[test] fn pd_01_commented() {}
            /* #[test] fn pd_01_block() {} /* nested */ #[test] fn pd_01_again() {} */
            const A: &str = "#[test] fn pd_01_string() {} \" } #[test] fn pd_01_after() {}";
            const B: &str = r#"#[test] fn pd_01_raw() {} " }"#;
            const C: [char; 4] = ['"', '\'', '{', '\u{7b}'];
            #[cfg(test)] fn pd_01_helper<'a>(x: &'a str) {}
            type F = fn(u8) -> u8;
            #[test] fn pd_02_real() {}
        "##;
        assert_eq!(rust(source), [found("pd_02_real", &["PD-02"])]);
    }

    #[test]
    fn a_script_or_its_function_is_a_test() {
        let c = "
            /* Everything through the header alone.
             * Rules: PD-01 */
            #include <infiniband/verbs.h>

            /* Rules: PD-02, T1-01 */
            static void refuses(struct ibv_pd *pd)
            {
                /* Rules: AT-10 */
                check(1);
            }
        ";
        let found: Vec<_> =
            scan_script("tests/w.c", c).into_iter().map(|t| (t.name, t.ids)).collect();
        assert_eq!(
            found,
            [
                ("tests/w.c".to_owned(), ids(&["AT-10", "PD-01"])),
                ("tests/w.c::refuses".to_owned(), ids(&["PD-02", "T1-01"])),
            ]
        );
        let shell = "#!/bin/sh\n# Rules: PD-01\nset -e\n# Rules: PD-02\nkilled() {\n:\n}\n";
        let names: Vec<_> = scan_script("tests/x.sh", shell).into_iter().map(|t| t.name).collect();
        assert_eq!(names, ["tests/x.sh", "tests/x.sh::killed"]);
    }

    #[test]
    fn files_are_named_by_crate() {
        assert_eq!(rust_file_name("crates/conformance/tests/windows.rs"), "conformance/windows");
        assert_eq!(rust_file_name("crates/device/src/key/table.rs"), "device/src/key/table");
        assert_eq!(script_file_name("crates/ibverbs/tests/c/mw.c"), "ibverbs/c/mw.c");
        assert_eq!(script_file_name("tests/mw.sh"), "tests/mw.sh");
    }

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
