//! Findings as a report of tests, in the form of JUnit, which CIs read.
//!
//! Each finding is a failed test. Each kind without findings is a passed test.

use std::fmt::Write as _;
use std::path::Path;

use transom_check::{Gravity, Kind};

use super::found::{Findings, Found};
use super::shown;

/// The name of the test suite.
const SUITE: &str = "transom check";

/// Makes a report. `kinds` are those that were looked for. `text` makes a finding's text for people. `unopened` is the
/// failure if a device was required and no process opened one.
pub(super) fn report(
    findings: &Findings,
    kinds: impl Iterator<Item = Kind>,
    unopened: Option<&str>,
    from: &Path,
    mut text: impl FnMut(&Found) -> String,
) -> String {
    let failed: Vec<_> = findings.with(Gravity::Finding).collect();
    let passed: Vec<_> = kinds.filter(|kind| failed.iter().all(|it| it.kind != *kind)).collect();
    let failures = failed.len() + usize::from(unopened.is_some());
    let tests = failures + passed.len();
    let mut report = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing into a string cannot fail.
    let _ = writeln!(report, "<testsuites tests=\"{tests}\" failures=\"{failures}\">");
    let _ = writeln!(
        report,
        "  <testsuite name=\"{SUITE}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"0\">"
    );
    for found in failed {
        let (kind, says) = (found.kind.name(), &found.says);
        let source = found.calls.first().and_then(shown::source);
        let source = source.map(|(_, it)| (shown::relative(&it.file, from), it.line));
        let (place, file) = match source {
            Some((file, line)) => {
                let file = file.display().to_string();
                (format!(" at {file}:{line}"), format!(" file=\"{}\"", escaped(&file)))
            }
            None => (String::new(), String::new()),
        };
        case(&mut report, &format!("{kind}{place}"), &file, Some((kind, says, &text(found))));
    }
    if let Some(problem) = unopened {
        case(&mut report, "a device is opened", "", Some(("require", problem, problem)));
    }
    for kind in passed {
        case(&mut report, kind.name(), "", None);
    }
    report.push_str("  </testsuite>\n</testsuites>\n");
    report
}

/// A test, and its failure: type, message and text.
fn case(report: &mut String, name: &str, file: &str, failure: Option<(&str, &str, &str)>) {
    let name = escaped(name);
    let _ = write!(report, "    <testcase classname=\"{SUITE}\" name=\"{name}\"{file}");
    let Some((kind, message, text)) = failure else {
        report.push_str("/>\n");
        return;
    };
    let (message, text) = (escaped(message), escaped(text));
    let _ = writeln!(
        report,
        ">\n      <failure type=\"{kind}\" message=\"{message}\">{text}</failure>\n    </testcase>"
    );
}

/// Escapes a text for XML, without the characters that XML forbids.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(letter),
            '\u{fffe}' | '\u{ffff}' => escaped.push('?'),
            letter if letter.is_control() => escaped.push('?'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;

    /// The elements of an XML text with their attributes. Panics if it is not well-formed.
    fn elements(xml: &str) -> Vec<String> {
        let (mut open, mut all) = (Vec::new(), Vec::new());
        let mut rest = xml.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>").unwrap();
        while let Some((text, tag)) = rest.split_once('<') {
            assert!(!text.contains('>'), "{text}");
            let references = text.split('&').skip(1);
            let known = ["amp;", "lt;", "gt;", "quot;"];
            for reference in references {
                assert!(known.iter().any(|name| reference.starts_with(name)), "{reference}");
            }
            let (tag, after) = tag.split_once('>').unwrap();
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop().as_deref(), Some(name));
            } else {
                all.push(tag.to_owned());
                if !tag.ends_with('/') {
                    open.push(tag.split(' ').next().unwrap().to_owned());
                }
            }
            rest = after;
        }
        assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest}");
        all
    }

    #[test]
    fn a_finding_is_a_test_that_failed_and_each_other_kind_one_that_passed() {
        let found = found();
        let kind = found.kind;
        let findings = Findings { all: vec![found], opened: 1, ..Findings::default() };
        let kinds = || Kind::ALL.iter().copied().filter(|kind| kind.gravity() == Gravity::Finding);
        let text = |_: &Found| "a < b & \"c\"\n\u{1b}[31m".to_owned();
        let xml = report(&findings, kinds(), None, Path::new("/src"), text);
        let elements = elements(&xml);
        let cases: Vec<_> = elements.iter().filter(|it| it.starts_with("testcase")).collect();
        assert_eq!(cases.len(), kinds().count());
        let name = kind.name();
        let failed = format!("name=\"{name} at server.c:83\" file=\"server.c\"");
        assert!(cases[0].ends_with(&failed), "{cases:?}");
        assert!(cases[1..].iter().all(|case| case.ends_with("\"/")), "{cases:?}");
        assert!(elements[0].ends_with("failures=\"1\""), "{elements:?}");
        let message = format!("failure type=\"{name}\" message=\"queue pair 0x12");
        assert!(elements.iter().any(|it| it.starts_with(&message)), "{xml}");
        assert!(xml.contains("a &lt; b &amp; &quot;c&quot;\n?[31m"), "{xml}");
    }

    #[test]
    fn a_device_that_was_not_opened_is_a_test_that_failed() {
        let findings = Findings::default();
        let problem = Some("no process opened a device");
        let text = |_: &Found| String::new();
        let xml = report(&findings, std::iter::empty(), problem, Path::new("/"), text);
        let elements = elements(&xml);
        assert!(elements[0].ends_with("tests=\"1\" failures=\"1\""), "{elements:?}");
        assert!(elements[2].contains("a device is opened"), "{elements:?}");
    }
}
