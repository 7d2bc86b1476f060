//! Findings as lines of JSON.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use transom_check::Gravity;

use super::found::{Call, Findings, Found, Process};
use super::symbols::{Place, Source};
use crate::lines::{self, Exact};

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    Finding(About<'a>),
    Note(About<'a>),
    Summary { opened: usize, found: usize, noted: usize, suppressed: usize, stopped: usize },
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
pub(super) fn print_summary(out: &mut dyn Write, findings: &Findings) -> io::Result<()> {
    let summary = Line::Summary {
        opened: findings.opened,
        found: findings.with(Gravity::Finding).count(),
        noted: findings.with(Gravity::Note).count(),
        suppressed: findings.suppressed,
        stopped: findings.stopped.len(),
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
    use super::super::tests::found;
    use super::*;
    use crate::lines::field_names;
    use serde_json::{Value, json};

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

    #[test]
    fn the_last_line_counts() {
        let findings =
            Findings { all: vec![found()], suppressed: 2, opened: 1, stopped: Vec::new() };
        let mut out = Vec::new();
        print_summary(&mut out, &findings).unwrap();
        let line: Value = serde_json::from_slice(&out).unwrap();
        let expected = json!({ "type": "summary", "opened": 1, "found": 1, "noted": 0, "suppressed": 2,
                    "stopped": 0 });
        assert_eq!(line, expected);
    }

    #[test]
    fn the_help_lists_every_field() {
        let words: Vec<_> = FIELDS.split([' ', '\n', ',', ';', ':']).collect();
        let mut fields =
            ["opened", "found", "noted", "suppressed", "stopped"].map(String::from).to_vec();
        field_names(&printed(&found()), &mut fields);
        assert!(fields.len() > 20);
        for field in fields {
            assert!(words.contains(&field.as_str()), "{field}");
        }
    }
}
