//! Findings as lines of JSON.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use transom_check::Gravity;
use transom_check::mark::Mark;

use super::found::{Call, Findings, Found, Marked, Process};
use super::symbols::{Place, Source, Symbols};
use crate::lines::{self, Exact};

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    Finding(About<'a>),
    Note(About<'a>),
    Summary {
        opened: usize,
        found: usize,
        noted: usize,
        suppressed: usize,
        stopped: usize,
        marks: Vec<Full<'a>>,
    },
}

/// How full the queues were that were made at one place.
#[derive(Serialize)]
struct Full<'a> {
    queue: &'static str,
    most: u64,
    asked: u64,
    count: u64,
    processes: Vec<Of<'a>>,
    calls: Vec<At<'a>>,
}

#[derive(Serialize)]
struct About<'a> {
    kind: &'a str,
    rule: &'a str,
    man: &'a str,
    title: &'a str,
    sentence: &'a str,
    fix: &'a str,
    count: u64,
    processes: Vec<Of<'a>>,
    calls: Vec<At<'a>>,
}

/// A process, for a line.
#[derive(Serialize)]
pub(crate) struct Of<'a> {
    pid: u32,
    process: &'a str,
    program: &'a str,
}

impl<'a> Of<'a> {
    /// The process with this PID and the path of its program.
    pub(crate) fn new(pid: u32, program: &'a str) -> Self {
        Self { pid, process: program.rsplit('/').next().unwrap_or_default(), program }
    }
}

/// A call.
#[derive(Serialize)]
pub(crate) struct At<'a> {
    what: &'a str,
    thread: u32,
    callers: Vec<Named<'a>>,
}

#[derive(Serialize)]
struct Named<'a> {
    function: Option<&'a str>,
    file: Option<&'a Path>,
    line: Option<u32>,
    column: Option<u32>,
    inlined: bool,
    module: Option<&'a str>,
    offset: Exact,
}

/// A finding or note.
pub(super) fn print(out: &mut dyn Write, found: &Found) -> io::Result<()> {
    let about = About {
        kind: found.kind.name(),
        rule: found.kind.rule(),
        man: found.kind.man(),
        title: found.kind.title(),
        sentence: &found.says,
        fix: found.kind.instead(),
        count: found.count,
        processes: found.processes.iter().map(of).collect(),
        calls: found.calls.iter().map(at).collect(),
    };
    let line = match found.gravity {
        Gravity::Finding => Line::Finding(about),
        Gravity::Note => Line::Note(about),
    };
    lines::print(out, &line)
}

/// The last line.
pub(super) fn print_summary(
    out: &mut dyn Write,
    findings: &Findings,
    symbols: &mut Symbols,
) -> io::Result<()> {
    let marks = findings.marks.iter().map(|it| (it, Call::of(&it.mark.made, symbols)));
    let marks: Vec<_> = marks.collect();
    fn full<'a>((marked, made): &'a (&'a Marked, Call)) -> Full<'a> {
        let Mark { queue, level, count, .. } = &marked.mark;
        Full {
            queue: queue.name(),
            most: level.most,
            asked: level.asked,
            count: *count,
            processes: marked.processes.iter().map(of).collect(),
            calls: vec![at(made)],
        }
    }
    let summary = Line::Summary {
        opened: findings.opened,
        found: findings.with(Gravity::Finding).count(),
        noted: findings.with(Gravity::Note).count(),
        suppressed: findings.suppressed,
        stopped: findings.stopped.len(),
        marks: marks.iter().map(full).collect(),
    };
    lines::print(out, &summary)
}

fn of(process: &Process) -> Of<'_> {
    Of::new(process.pid, &process.program)
}

/// A call, for a line.
pub(crate) fn at(call: &Call) -> At<'_> {
    At { what: &call.what, thread: call.thread, callers: call.places.iter().map(named).collect() }
}

fn named(place: &Place) -> Named<'_> {
    let Place { module, offset, function, source, inlined } = place;
    let source = source.as_ref();
    let (file, line) = source.map(|Source { file, line, .. }| (file.as_path(), *line)).unzip();
    Named {
        function: function.as_deref(),
        file,
        line,
        column: source.and_then(|source| source.column),
        inlined: *inlined,
        module: Some(module.as_str()).filter(|module| !module.is_empty()),
        offset: Exact(*offset),
    }
}

#[cfg(test)]
mod tests {
    use super::super::FIELDS;
    use super::super::choice::Choice;
    use super::super::tests::found;
    use super::*;
    use crate::lines::field_names;
    use serde_json::{Value, json};
    use transom_check::mark::{Level, Queue};
    use transom_check::record::{Frame, Record, Site};

    fn printed(found: &Found) -> Value {
        let mut out = Vec::new();
        print(&mut out, found).unwrap();
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn a_finding_is_an_object_with_all_its_places() {
        let found = found();
        let line = printed(&found);
        assert_eq!(line["type"], "finding");
        assert_eq!(line["kind"], found.kind.name());
        assert_eq!(line["count"], 3);
        assert_eq!(
            line["processes"][0],
            json!({ "pid": 4711, "process": "server", "program": "/opt/server" })
        );
        let place = &line["calls"][0]["callers"][0];
        let expected = json!({
            "function": "finish", "file": "/src/server.c", "line": 83, "column": 5,
            "inlined": false, "module": "/opt/server", "offset": "4660",
        });
        assert_eq!(*place, expected);
        assert_eq!(line["calls"][1]["thread"], 4711);
    }

    fn summary(findings: &Findings) -> Value {
        let mut out = Vec::new();
        print_summary(&mut out, findings, &mut Symbols::default()).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    /// Findings beside the marks of two processes.
    fn with_marks() -> Findings {
        let file = |pid, most| {
            let frames = vec![Frame { module: "/opt/server".into(), offset: 4660 }];
            let made = Site { what: "made here".into(), thread: pid, frames };
            let level = Level { most, asked: 16 };
            vec![
                Record::Process { pid, program: "/opt/server".into() },
                Record::Mark(Mark { queue: Queue::Send, level, count: 2, made }),
            ]
        };
        let files = vec![file(7, 3), file(8, 5)];
        let findings = Findings::of(files, &Choice::default(), &mut Symbols::default());
        Findings { all: vec![found()], suppressed: 2, opened: 1, ..findings }
    }

    /// Rule: CHK-21
    #[test]
    fn the_last_line_counts_and_tells_how_full_the_queues_were() {
        let line = summary(&with_marks());
        for (field, expected) in
            [("opened", 1), ("found", 1), ("noted", 0), ("suppressed", 2), ("stopped", 0)]
        {
            assert_eq!(line[field], expected, "{line}");
        }
        let [mark] = &line["marks"].as_array().unwrap()[..] else { panic!("{line}") };
        assert_eq!((&mark["queue"], &mark["most"]), (&json!("send"), &json!(5)));
        assert_eq!((&mark["asked"], &mark["count"]), (&json!(16), &json!(4)));
        assert_eq!(mark["processes"].as_array().map(Vec::len), Some(2));
        assert_eq!(mark["calls"][0]["what"], "made here");
        assert_eq!(mark["calls"][0]["callers"][0]["offset"], "4660");
    }

    #[test]
    fn the_help_lists_every_field() {
        let words: Vec<_> = FIELDS.split([' ', '\n', ',', ';', ':']).collect();
        let mut fields = Vec::new();
        field_names(&printed(&found()), &mut fields);
        field_names(&summary(&with_marks()), &mut fields);
        assert!(fields.len() > 30);
        for field in fields {
            assert!(words.contains(&field.as_str()), "{field}");
        }
    }
}
