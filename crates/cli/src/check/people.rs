//! Findings for people, in the form of rustc's errors: a sentence, the lines of source code, and advice.

use std::collections::HashMap;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anstyle::{AnsiColor, Style};
use transom_check::{Gravity, Kind};

use super::found::{Call, Findings, Found, Process, kinds};
use super::shown;
use super::symbols::{Place, Source};
use super::verb;
use crate::layout::Page;
use crate::sentence::counted;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const NOTE: Style = AnsiColor::Cyan.on_default().bold();
const FRAME: Style = AnsiColor::Blue.on_default().bold();
const BOLD: Style = Style::new().bold();

/// A longer file is not source code.
const LONGEST_SOURCE: u64 = 16 << 20;
/// At most this many processes are named, and notes of a kind shown.
const NAMED: usize = 4;
/// A label that would begin further to the right gets a line of its own.
const ROOM: usize = 28;

/// The notes about what a program has not done until it ended.
const FOLLOW: [Kind; 3] = [Kind::LeftAtExit, Kind::OpenAtEnd, Kind::RightsUnused];

/// Shows findings, with their lines of source code.
pub(super) struct Reporter {
    /// Names of files below this directory are relative to it.
    from: PathBuf,
    sources: HashMap<PathBuf, Option<Vec<String>>>,
}

impl Reporter {
    pub(super) fn new() -> Self {
        Self::from(env::current_dir().unwrap_or_default())
    }

    fn from(from: PathBuf) -> Self {
        Self { from, sources: HashMap::new() }
    }

    /// Prints a finding with all details.
    pub(super) fn finding(&mut self, out: &mut Page<impl Write>, found: &Found) -> io::Result<()> {
        let (style, word) = match found.gravity {
            Gravity::Finding => (ERROR, "error"),
            Gravity::Note => (NOTE, "note"),
        };
        let kind = found.kind.name();
        let says = &found.says;
        out.text(format_args!("{style}{word}[{kind}]{style:#}{BOLD}: {says}{BOLD:#}"))?;
        let lines = found.calls.iter().filter_map(shown::source).map(|(_, source)| source.line);
        let gutter = lines.max().map_or(1, |line| line.to_string().len());
        let first = found.calls.first().map(|call| call.thread);
        let is_one_thread = found.calls.iter().all(|call| Some(call.thread) == first);
        for (index, call) in found.calls.iter().enumerate() {
            let style = if index == 0 { style } else { FRAME };
            self.call(out, call, gutter, style, is_one_thread)?;
        }
        let aside = format!("{:gutter$} {FRAME}={FRAME:#} ", "");
        out.item(&aside, who(found))?;
        if let Some(module) = shown::without_lines(&found.calls) {
            out.item(&aside, format_args!("compile {module} with -g to see its lines"))?;
        }
        out.item(&aside, format_args!("{BOLD}help{BOLD:#}: {}", found.kind.instead()))?;
        let (rule, man) = (found.kind.rule(), found.kind.man());
        out.item(&aside, format_args!("rule {rule}; {man}"))?;
        out.item(&aside, format_args!("more: `transom check --explain {kind}`"))?;
        writeln!(out.to)
    }

    fn call(
        &mut self,
        out: &mut Page<impl Write>,
        call: &Call,
        gutter: usize,
        style: Style,
        is_one_thread: bool,
    ) -> io::Result<()> {
        let places = shown::places(call);
        let thread = match is_one_thread {
            true => String::new(),
            false => format!(" (thread {})", call.thread),
        };
        let from = self.from.clone();
        let named = |place: &Place| shown::place(place, &from);
        let first = places.first().map_or("a place that is not known".into(), |it| named(it));
        let arrow = format!("{:gutter$}{FRAME}-->{FRAME:#} ", "");
        out.item(arrow, format_args!("{first}{thread}"))?;
        let bar = format!("{:gutter$} {FRAME}|{FRAME:#} ", "");
        let source = places.first().filter(|place| shown::has_user_source(place));
        let source = source.and_then(|place| place.source.as_ref());
        match source.and_then(|source| Some((source, self.line(source)?))) {
            Some((source, line)) => {
                let excerpt = Excerpt::of(&line, source.column, call);
                excerpt.print(out, source.line, gutter, style, &call.what)?;
            }
            None => out.item(&bar, format_args!("{style}{}{style:#}", call.what))?,
        }
        for caller in places.iter().skip(1) {
            out.item(&bar, format_args!("called from {}", named(caller)))?;
        }
        Ok(())
    }

    /// The text of a line, if the file is readable.
    fn line(&mut self, source: &Source) -> Option<String> {
        let lines = self.sources.entry(source.file.clone()).or_insert_with(|| lines(&source.file));
        let index = usize::try_from(source.line).ok()?.checked_sub(1)?;
        lines.as_ref()?.get(index).filter(|line| !line.trim().is_empty()).cloned()
    }

    /// Prints a summary of the notes. Of a program that has not ended well, those are left out that it would have
    /// whatever went wrong: it ended before its work was done.
    pub(super) fn notes(
        &self,
        out: &mut Page<impl Write>,
        findings: &Findings,
        well: bool,
    ) -> io::Result<()> {
        let all = findings.with(Gravity::Note);
        let (follow, notes): (Vec<_>, Vec<_>) =
            all.partition(|note| !well && FOLLOW.contains(&note.kind));
        for (kind, count) in kinds(notes.iter().copied()) {
            let name = kind.name();
            let title = kind.title();
            out.text(format_args!("{NOTE}note[{name}]{NOTE:#}{BOLD}: {title}{BOLD:#}"))?;
            for note in notes.iter().filter(|note| note.kind == kind).take(NAMED) {
                let places = note.calls.first().map(shown::places).unwrap_or_default();
                let named = |place: &Place| shown::place(place, &self.from);
                let at = places.first().map(|it| format!(", at {}", named(it))).unwrap_or_default();
                // Many programs call verbs by functions of their own.
                let from = places.get(1).filter(|place| shown::has_user_source(place));
                let from =
                    from.map(|it| format!(", called from {}", named(it))).unwrap_or_default();
                let says = note.says.trim_end_matches('.');
                out.item("  ", format_args!("{says}{at}{from}"))?;
            }
            if count > NAMED {
                out.item("  ", format_args!("{} more; --json has all", count - NAMED))?;
            }
        }
        if let (count @ 1.., Some(first)) = (follow.len(), follow.first()) {
            let them = counted(count, "note is", "notes are");
            out.text(format_args!(
                "{them} not shown, such as {}: the program ended before its work was done. --json has all.",
                first.kind.name()
            ))?;
        }
        if !notes.is_empty() || !follow.is_empty() {
            writeln!(out.to)?;
        }
        Ok(())
    }
}

fn lines(file: &Path) -> Option<Vec<String>> {
    let about = fs::metadata(file).ok()?;
    if !about.is_file() || about.len() > LONGEST_SOURCE {
        return None;
    }
    let text = fs::read(file).ok()?;
    Some(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
}

/// A line of source code without its indentation, and the marked part of it.
struct Excerpt {
    text: String,
    start: usize,
    length: usize,
}

impl Excerpt {
    /// `column` is the start of the call, or of a macro with it, if it is known. The verb's name is marked, or else the
    /// name that is there. Otherwise the whole line is.
    fn of(line: &str, column: Option<u32>, call: &Call) -> Self {
        let plain = |letter: char| match letter {
            '\t' => ' ',
            // A terminal would act on it.
            letter if letter.is_control() => '?',
            letter => letter,
        };
        let text: String = line.trim().chars().map(plain).collect();
        let whole = Self { start: 0, length: text.chars().count(), text };
        let indent = line.len() - line.trim_start().len();
        let is_name = |letter: &char| letter.is_alphanumeric() || *letter == '_';
        // Compilers count bytes.
        let start = column.and_then(|column| usize::try_from(column).ok()?.checked_sub(1));
        let before = start.and_then(|start| line.get(indent..start));
        let start = before.map(|before| before.chars().count());
        let rest: String = whole.text.chars().skip(start.unwrap_or(0)).collect();
        let name: String = rest.chars().take_while(is_name).collect();
        // A column that is a verb's is exact.
        let is_exact = start.is_some() && verb::is_verb(&name);
        let verb = Some(&rest).filter(|_| !is_exact).and_then(|rest| verb::named_in(rest, call));
        let (before, length) = match verb {
            Some(verb) => (rest[..verb.start].chars().count(), verb.len()),
            None if start.is_some() => (0, name.chars().count()),
            None => return whole,
        };
        match length {
            0 => whole,
            length => Self { start: start.unwrap_or(0) + before, length, ..whole },
        }
    }

    fn print(
        &self,
        out: &mut Page<impl Write>,
        number: u32,
        gutter: usize,
        style: Style,
        what: &str,
    ) -> io::Result<()> {
        let bar = format!("{:gutter$} {FRAME}|{FRAME:#} ", "");
        let columns = out.columns().saturating_sub(gutter + 3);
        let mut text: String = self.text.chars().take(columns).collect();
        if text.len() < self.text.len() {
            text.pop();
            text.push('…');
        }
        writeln!(out.to, "{FRAME}{number:gutter$} |{FRAME:#} {text}")?;
        let end = self.start + self.length;
        if end > columns {
            return out.item(&bar, format_args!("{style}{what}{style:#}"));
        }
        let (spaces, marks) = (self.start, "^".repeat(self.length));
        if end + ROOM <= columns || end + 1 + what.chars().count() <= columns {
            let first = format!("{bar}{:spaces$}{style}{marks}{style:#} ", "");
            return out.item(first, format_args!("{style}{what}{style:#}"));
        }
        writeln!(out.to, "{bar}{:spaces$}{style}{marks}{style:#}", "")?;
        out.item(&bar, format_args!("{style}{what}{style:#}"))
    }
}

/// The count of a finding, and its processes.
fn who(found: &Found) -> String {
    let times = match found.count {
        1 => String::new(),
        count => format!("{count} times "),
    };
    let named = |it: &Process| format!("{} (process {})", it.name(), it.pid);
    let all: Vec<_> = found.processes.iter().take(NAMED).map(named).collect();
    match found.processes.len().saturating_sub(NAMED) {
        0 => format!("{times}in {}", all.join(", ")),
        more => format!("{times}in {} and {more} more processes", all.join(", ")),
    }
}

/// The sentence about a process that was not checked to its end.
pub(super) fn stopped(process: &Process, says: &str) -> String {
    let Process { pid, .. } = process;
    format!(
        "{} (process {pid}) was not checked to its end, because of a mistake in Transom. Please report it: {says}.",
        process.name()
    )
}

/// A sentence about all findings.
pub(super) fn summary(findings: &Findings) -> String {
    let Findings { opened, suppressed, .. } = findings;
    let found: Vec<_> = findings.with(Gravity::Finding).collect();
    let mut processes: Vec<_> = found.iter().flat_map(|it| &it.processes).collect();
    processes.sort_by_key(|process| (process.pid, &process.program));
    processes.dedup();
    let mut summary = match found.len() {
        0 if *opened == 0 => "No process opened a device, so nothing was checked".to_owned(),
        0 => {
            let opened = counted(*opened, "process that opened", "processes that opened");
            format!("No finding in {opened} a device")
        }
        count => format!(
            "{} of {} in {}",
            counted(count, "finding", "findings"),
            counted(kinds(found.iter().copied()).len(), "kind", "kinds"),
            counted(processes.len(), "process", "processes")
        ),
    };
    let notes = findings.with(Gravity::Note).count();
    if notes > 0 {
        let _ = write!(summary, "; {}", counted(notes, "note", "notes"));
    }
    if *suppressed > 0 {
        let _ = write!(summary, "; {suppressed} suppressed");
    }
    summary + "."
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;
    use crate::run::scratch::Scratch;
    use anstream::adapter::strip_str;

    fn printed(reporter: &mut Reporter, found: &Found) -> String {
        let mut out = Page::new(Vec::new(), 80);
        reporter.finding(&mut out, found).unwrap();
        strip_str(std::str::from_utf8(&out.to).unwrap()).to_string()
    }

    /// Source code with this many lines, including these.
    fn source(scratch: &Scratch, lines: &[(usize, &str)]) -> PathBuf {
        let line = |number| lines.iter().find(|(at, _)| *at == number).map_or("", |(_, it)| it);
        let text: Vec<_> = (1..=100).map(line).collect();
        let path = scratch.0.join("server.c");
        fs::write(&path, text.join("\n")).unwrap();
        path
    }

    fn in_file(mut found: Found, path: &Path) -> Found {
        for place in found.calls.iter_mut().flat_map(|call| &mut call.places) {
            place.source.as_mut().unwrap().file = path.to_owned();
        }
        found
    }

    #[test]
    fn a_finding_shows_the_lines_of_its_calls_and_what_to_do() {
        let scratch = Scratch::new("people-source");
        let lines = [(83, "    ibv_destroy_qp(qp);"), (71, "\tif (ibv_post_send(qp, &wr, &bad))")];
        let path = source(&scratch, &lines);
        let mut found = in_file(found(), &path);
        // Column 6 is after the tab, `if`, a space and the bracket.
        found.calls[1].places[0].source.as_mut().unwrap().column = Some(6);
        let text = printed(&mut Reporter::from(scratch.0.clone()), &found);
        let expected = "\
error[work-lost]: queue pair 0x12 is destroyed with 1 request under way
  --> server.c:83 in finish
83 | ibv_destroy_qp(qp);
   | ^^^^^^^^^^^^^^ destroyed here
   | called from server.c:91 in main
  --> server.c:71 in post_reply
71 | if (ibv_post_send(qp, &wr, &bad))
   |     ^^^^^^^^^^^^^ posted here
   | called from server.c:44 in serve
   = 3 times in server (process 4711)
   = help: ";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.ends_with("   = more: `transom check --explain work-lost`\n\n"), "{text}");
    }

    #[test]
    fn lines_that_are_not_there_are_left_out_and_threads_are_told_apart() {
        let mut found = found();
        found.calls[1].thread = 4712;
        let text = printed(&mut Reporter::from("/src".into()), &found);
        let expected =
            "  --> server.c:83 in finish (thread 4711)\n   | destroyed here\n   | called";
        assert!(text.contains(expected) && text.contains("post_reply (thread 4712)"), "{text}");
        found.calls[0].places.clear();
        let text = printed(&mut Reporter::from("/src".into()), &found);
        assert!(text.contains("--> a place that is not known (thread 4711)\n"), "{text}");
    }

    #[test]
    fn a_program_without_lines_is_named() {
        let mut found = found();
        let text = printed(&mut Reporter::from("/src".into()), &found);
        assert!(!text.contains("with -g"), "{text}");
        for place in found.calls.iter_mut().flat_map(|call| &mut call.places) {
            place.source = None;
        }
        let text = printed(&mut Reporter::from("/src".into()), &found);
        assert!(text.contains("  = compile server with -g to see its lines\n"), "{text}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let scratch = Scratch::new("people-width");
        let long = format!("    if (ready) {:60}ibv_destroy_qp(a, \"{}\");", "", "x".repeat(200));
        let path = source(&scratch, &[(83, &long), (71, &long)]);
        for kind in Kind::ALL {
            for column in [None, Some(1), Some(76), Some(300)] {
                let mut found = in_file(found(), &path);
                found.kind = *kind;
                found.says = "a sentence with many words ".repeat(12);
                found.processes = (0..50)
                    .map(|pid| Process { pid, program: "/usr/lib/a/program/of/some/length".into() })
                    .collect();
                found.calls[0].what = "what is said of this call ".repeat(9);
                for place in found.calls.iter_mut().flat_map(|call| &mut call.places) {
                    place.source.as_mut().unwrap().column = column;
                }
                let text = printed(&mut Reporter::from(scratch.0.clone()), &found);
                for line in text.lines() {
                    assert!(line.chars().count() <= 80, "{line}\n{text}");
                }
            }
        }
    }

    #[test]
    fn what_a_terminal_would_obey_is_not_printed() {
        let excerpt = Excerpt::of("\tprint(\"\u{1b}[2J\");", Some(2), &found().calls[0]);
        assert_eq!(
            (excerpt.text.as_str(), excerpt.start, excerpt.length),
            ("print(\"?[2J\");", 0, 5)
        );
    }

    #[test]
    fn a_column_that_is_no_name_marks_the_whole_line() {
        for column in [None, Some(0), Some(1), Some(3), Some(99), Some(u32::MAX)] {
            let excerpt = Excerpt::of("  (a)", column, &found().calls[0]);
            assert_eq!((excerpt.start, excerpt.length), (0, 3), "{column:?}");
        }
        // Columns count bytes.
        let excerpt = Excerpt::of("é(call());", Some(4), &found().calls[0]);
        assert_eq!((excerpt.start, excerpt.length), (2, 4));
    }

    #[test]
    fn the_verb_inside_a_macro_is_marked() {
        let [destroyed, posted] = &found().calls[..] else { panic!("two calls") };
        let marked = |line: &str, column, call| {
            let Excerpt { text, start, length } = Excerpt::of(line, column, call);
            text.chars().skip(start).take(length).collect::<String>()
        };
        let line = "\tif (é) CHECK(!ibv_destroy_qp(qp)); /* é */";
        // Columns count bytes.
        let column = line.find("CHECK").and_then(|at| u32::try_from(at + 1).ok());
        assert_eq!(marked(line, column, destroyed), "ibv_destroy_qp");
        assert_eq!(marked(line, None, destroyed), "ibv_destroy_qp");
        assert_eq!(marked(line, column, posted), "CHECK");
        let exact = "\tibv_close_all(ibv_destroy_qp(qp));";
        assert_eq!(marked(exact, Some(2), destroyed), "ibv_close_all");
    }

    #[test]
    fn notes_are_told_in_short() {
        let note = |says: &str| {
            let mut note = found();
            (note.gravity, note.says) = (Gravity::Note, says.into());
            note
        };
        let all = (0..6).map(|number| note(&format!("queue {number} was full."))).collect();
        let findings = Findings { all, opened: 1, ..Findings::default() };
        let text = notes(&findings, true);
        let first =
            "  queue 0 was full, at server.c:83 in finish, called from server.c:91 in main\n";
        assert!(text.contains(first), "{text}");
        assert!(text.ends_with("  2 more; --json has all\n\n"), "{text}");
        let nothing = "No finding in 1 process that opened a device; 6 notes.";
        assert_eq!(summary(&findings), nothing);
    }

    fn notes(findings: &Findings, well: bool) -> String {
        let mut out = Page::new(Vec::new(), 80);
        Reporter::from("/src".into()).notes(&mut out, findings, well).unwrap();
        strip_str(std::str::from_utf8(&out.to).unwrap()).to_string()
    }

    /// What it leaves behind says nothing about why it failed.
    #[test]
    fn of_a_program_that_failed_notes_of_what_it_left_are_counted_only() {
        let of = |kind| {
            let mut note = found();
            (note.kind, note.gravity) = (kind, Gravity::Note);
            note
        };
        let all = [Kind::LeftAtExit, Kind::QueueFull, Kind::RightsUnused, Kind::OpenAtEnd].map(of);
        let findings = Findings { all: all.into(), opened: 1, ..Findings::default() };
        let (well, failed) = (notes(&findings, true), notes(&findings, false));
        for name in ["left-at-exit", "rights-unused", "open-at-end", "queue-full"] {
            let note = format!("note[{name}]");
            assert!(well.contains(&note), "{well}");
            assert_eq!(failed.contains(&note), name == "queue-full", "{failed}");
        }
        let left_out = "\n3 notes are not shown, such as left-at-exit: ";
        assert!(failed.contains(left_out) && !well.contains("not shown"), "{failed}{well}");
    }
}
