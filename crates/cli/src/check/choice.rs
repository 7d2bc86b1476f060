//! The user's choice of findings, and their gravity.

use std::fs;
use std::path::{Path, PathBuf};

use transom_check::{Gravity, Kind};

use super::symbols::Place;
use crate::failure::{Failure, Result};
use crate::shell::option;
use crate::wanted::{Wanted, is_near};

/// Kinds about objects that still exist when a program ends (`--leaks`).
const LEAKS: [&str; 1] = ["left-at-exit"];

#[derive(clap::Args)]
pub(super) struct ChoiceArgs {
    #[command(flatten)]
    kinds: Wanted<Kind>,
    /// Count objects that are left when the program ends as findings
    #[arg(long)]
    leaks: bool,
    /// Count all notes as findings
    #[arg(long)]
    notes_are_findings: bool,
    #[command(flatten)]
    suppressions: SuppressionsArgs,
}

/// The user's file of suppressions.
#[derive(clap::Args)]
pub(crate) struct SuppressionsArgs {
    /// Hide the findings that a line of FILE matches; `transom check --help` tells its form
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    suppressions: Option<PathBuf>,
}

impl SuppressionsArgs {
    /// The option as the user may type it, with a space before it.
    pub(crate) fn words(&self) -> String {
        let file = self.suppressions.as_ref();
        file.map_or(String::new(), |file| option("suppressions", file))
    }
}

/// The user's choice.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    kinds: Wanted<Kind>,
    leaks: bool,
    notes_are_findings: bool,
    suppressions: Vec<Suppression>,
}

impl Choice {
    pub(super) fn of(args: &ChoiceArgs) -> Result<Self> {
        if args.kinds.all().next().is_none() {
            return Err(Failure::with_status(2, "no kind of mistake is left to look for"));
        }
        Ok(Self {
            kinds: args.kinds.clone(),
            leaks: args.leaks,
            notes_are_findings: args.notes_are_findings,
            ..Self::suppressing(&args.suppressions)?
        })
    }

    /// Everything but what is suppressed.
    pub(crate) fn suppressing(args: &SuppressionsArgs) -> Result<Self> {
        let suppressions = args.suppressions.as_deref().map_or(Ok(Vec::new()), read)?;
        Ok(Self { suppressions, ..Self::default() })
    }

    /// The kinds that the user does not want to see.
    pub(super) fn unwanted(&self) -> impl Iterator<Item = Kind> {
        Kind::ALL.iter().copied().filter(|kind| !self.wants(*kind))
    }

    pub(super) fn wants(&self, kind: Kind) -> bool {
        self.kinds.has(kind)
    }

    pub(super) fn gravity(&self, kind: Kind) -> Gravity {
        let is_leak = self.leaks && LEAKS.contains(&kind.name());
        if self.notes_are_findings || is_leak { Gravity::Finding } else { kind.gravity() }
    }

    /// Whether the user suppresses a finding of this kind with these callers.
    pub(super) fn suppresses<'a>(
        &self,
        kind: Kind,
        callers: impl Iterator<Item = &'a Place> + Clone,
    ) -> bool {
        self.suppressions.iter().any(|it| it.matches(kind, callers.clone()))
    }

    /// All kinds that count as findings.
    pub(super) fn kinds_of_findings(&self) -> impl Iterator<Item = Kind> {
        self.kinds.all().filter(|kind| self.gravity(*kind) == Gravity::Finding)
    }
}

/// A line of a suppressions file.
#[derive(Debug, PartialEq, Eq)]
struct Suppression {
    /// `None` for any kind.
    kind: Option<Kind>,
    /// The name of a function, program or library, with `*` for anything.
    pattern: String,
}

impl Suppression {
    /// `None` for an empty line or a comment.
    fn parse(line: &str) -> std::result::Result<Option<Self>, String> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(None);
        }
        let (name, pattern) = line.split_once(char::is_whitespace).ok_or_else(|| {
            format!("{line:?} is no kind and function; write them with a space between, or `*`")
        })?;
        let kind = match name {
            "*" => None,
            name => Some(Kind::named(name).ok_or_else(|| unknown(name))?),
        };
        Ok(Some(Self { kind, pattern: pattern.trim().to_owned() }))
    }

    fn matches<'a>(&self, kind: Kind, mut callers: impl Iterator<Item = &'a Place>) -> bool {
        let is_named = |place: &Place| {
            let function = place.function.as_deref().unwrap_or_default();
            [function, place.module_name(), &place.module]
                .into_iter()
                .any(|name| !name.is_empty() && matches(&self.pattern, name))
        };
        self.kind.is_none_or(|it| it == kind) && (self.pattern == "*" || callers.any(is_named))
    }
}

fn unknown(name: &str) -> String {
    let likeness = |kind: &Kind| strsim::jaro(kind.name(), name);
    let nearest = Kind::ALL.iter().max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    let nearest = nearest.filter(|kind| is_near(name, kind.name()));
    let nearest = nearest.map_or_else(
        || "; `transom check --help` lists them".to_owned(),
        |kind| format!("; did you mean {}?", kind.name()),
    );
    format!("there is no kind {name}{nearest}")
}

fn read(file: &Path) -> Result<Vec<Suppression>> {
    let name = file.display();
    let text = fs::read_to_string(file).map_err(|error| {
        Failure::with_status(2, format_args!("cannot read the suppressions in {name}: {error}"))
    })?;
    let mut suppressions = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let parsed = Suppression::parse(line).map_err(|problem| {
            Failure::with_status(2, format_args!("{name}, line {}: {problem}", index + 1))
        })?;
        suppressions.extend(parsed);
    }
    Ok(suppressions)
}

/// Whether a name matches a pattern. Each `*` in the pattern stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let Some((middle, last)) = rest.rsplit_once('*') else { return name.ends_with(rest) };
    for part in middle.split('*') {
        // The first match is right, because it leaves the most room for the rest.
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    name.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name) in [
            ("finish", "finish"),
            ("*", "finish"),
            ("fin*", "finish"),
            ("*ish", "finish"),
            ("f*i*h", "finish"),
            ("*lib*.so*", "/usr/lib/libucp.so.0"),
            ("f**h", "finish"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("fin", "finish"), ("f*x*h", "finish"), ("finish*h", "finish")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn a_suppression_names_a_kind_and_a_function_or_library_of_any_caller() {
        let found = found();
        let is = |line: &str| {
            Suppression::parse(line).unwrap().unwrap().matches(found.kind, found.places())
        };
        let kind = found.kind.name();
        for line in ["finish", "serve", "server", "/opt/serv*", "*", "post_*"] {
            assert!(is(&format!("{kind}   {line} ")) && is(&format!("* {line}")), "{line}");
        }
        let other = Kind::ALL.iter().find(|it| **it != found.kind).unwrap().name();
        assert!(!is(&format!("{other} finish")) && !is("* client"));
    }

    #[test]
    fn a_wrong_line_of_suppressions_is_told_with_what_is_meant() {
        for line in ["", "  ", "# work-lost finish"] {
            assert_eq!(Suppression::parse(line), Ok(None));
        }
        let error = Suppression::parse("work-lots finish").unwrap_err();
        assert_eq!(error, "there is no kind work-lots; did you mean work-lost?");
        let error = Suppression::parse("foo finish").unwrap_err();
        assert_eq!(error, "there is no kind foo; `transom check --help` lists them");
        assert!(Suppression::parse("work-lost").unwrap_err().contains("a space between"));
    }

    #[test]
    fn kinds_are_chosen() {
        let [one, two] = [Kind::ALL[0], Kind::ALL[1]];
        let only = Choice { kinds: Wanted::only(one), ..Choice::default() };
        assert!(only.wants(one) && !only.wants(two));
        let without = Choice { kinds: Wanted::without(one), ..Choice::default() };
        assert!(!without.wants(one) && without.wants(two));
        assert!(!without.kinds_of_findings().any(|kind| kind == one));
    }

    #[test]
    fn notes_are_findings_if_that_is_wanted() {
        let strict = Choice { notes_are_findings: true, ..Choice::default() };
        assert!(Kind::ALL.iter().all(|kind| strict.gravity(*kind) == Gravity::Finding));
        assert!(Kind::ALL.iter().all(|kind| Choice::default().gravity(*kind) == kind.gravity()));
    }

    #[test]
    fn leaks_are_kinds() {
        assert!(LEAKS.iter().all(|name| Kind::named(name).is_some()));
    }
}
