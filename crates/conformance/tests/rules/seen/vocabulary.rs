//! What programs read: the JSON of all commands, in the words of `docs/json.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use transom_conformance::c_programs::{RDMACM, compile};
use transom_conformance::documents::Document;
use transom_conformance::harness::until;
use transom_conformance::path_of;
use transom_conformance::processes::{Scratch, Way, alone, interfaces_up};
use transom_conformance::programs::{Running, command};

use super::roles::Roles;

/// How long a command may take.
const LIMIT: Duration = Duration::from_secs(120);

/// The commands with `--json`, and those whose help lists what each key means.
const WITH_JSON: [&str; 9] =
    ["bench", "check", "devices", "doctor", "explain", "exposure", "rehearse", "top", "trace"];

/// What the value of a key is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Text,
    Texts,
    Digits,
    Number,
    Decimal,
    YesOrNo,
    Object,
    Objects,
    Map,
}

impl Form {
    fn of(name: &str) -> Self {
        match name {
            "text" => Self::Text,
            "texts" => Self::Texts,
            "digits" => Self::Digits,
            "number" => Self::Number,
            "decimal" => Self::Decimal,
            "yes or no" => Self::YesOrNo,
            "object" => Self::Object,
            "objects" => Self::Objects,
            "map" => Self::Map,
            other => panic!("no form {other}"),
        }
    }

    fn has(self, value: &Value) -> bool {
        let all = |is: fn(&Value) -> bool| value.as_array().is_some_and(|all| all.iter().all(is));
        match self {
            _ if value.is_null() => true,
            Self::Text => value.is_string(),
            Self::Texts => all(Value::is_string),
            Self::Digits => value.as_str().is_some_and(|text| text.parse::<u128>().is_ok()),
            Self::Number => value.as_u64().is_some_and(|number| number < 1 << 53),
            Self::Decimal => value.is_number(),
            Self::YesOrNo => value.is_boolean(),
            Self::Object | Self::Map => value.is_object(),
            Self::Objects => all(Value::is_object),
        }
    }
}

/// The keys of the page, and those that were told.
struct Vocabulary {
    keys: BTreeMap<String, Form>,
    told: BTreeSet<String>,
}

impl Vocabulary {
    fn read() -> Self {
        let page = Document::read("docs/json.md").text;
        let (_, table) = page.split_once("| key | form | meaning |").expect("the table");
        let (mut keys, mut meanings) = (BTreeMap::new(), BTreeSet::new());
        for row in table.lines().filter(|row| row.starts_with("| `")) {
            let cells: Vec<_> = row.trim_matches('|').splitn(3, '|').map(str::trim).collect();
            let [names, form, meaning] = cells[..] else { panic!("{row}") };
            // One concept has one row.
            assert!(meanings.insert(meaning.to_owned()), "two names: {row}");
            for name in names.split(", ") {
                let key = name.trim_matches('`').to_owned();
                assert!(keys.insert(key, Form::of(form)).is_none(), "two meanings: {row}");
            }
        }
        Self { keys, told: BTreeSet::new() }
    }

    /// Compares what a command told with the page.
    fn compare(&mut self, command: &str, value: &Value) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    let form = self.keys.get(key).copied();
                    let form =
                        form.unwrap_or_else(|| panic!("{command}: no {key} in docs/json.md"));
                    assert!(form.has(value), "{command}: {key} is {value}, and not {form:?}");
                    self.told.insert(key.clone());
                    match (form, value) {
                        (Form::Map, Value::Object(fields)) => {
                            fields.values().for_each(|value| self.compare(command, value));
                        }
                        _ => self.compare(command, value),
                    }
                }
            }
            Value::Array(all) => all.iter().for_each(|value| self.compare(command, value)),
            _ => {}
        }
    }

    /// The same of an object a line.
    fn compare_lines(&mut self, command: &str, text: &str) {
        assert!(!text.is_empty(), "{command} tells nothing");
        for line in text.lines() {
            self.compare(command, &serde_json::from_str(line).expect("JSON"));
        }
    }

    /// The same of the labels of our own metrics.
    fn compare_labels(&mut self, metrics: &str) {
        for line in metrics.lines().filter(|line| line.starts_with("transom_")) {
            let (_, labels) = line.split_once('{').expect("labels");
            let (labels, _) = labels.rsplit_once('}').expect("labels");
            for label in labels.split("\",").filter_map(|label| label.split_once('=')) {
                // That of a bucket is Prometheus's.
                if label.0 != "le" {
                    assert!(self.keys.contains_key(label.0), "{} in {line}", label.0);
                    self.told.insert(label.0.to_owned());
                }
            }
        }
    }
}

/// What a command prints on standard output. Some fail because what they run does.
fn printed(arguments: &[&str]) -> String {
    let [transom, ..] = command();
    let mut command = Command::new(transom);
    command.args(arguments).env_remove("GITHUB_ACTIONS");
    command.env("TRANSOM_LIB", transom.parent().expect("a folder"));
    let (status, printed) = Running::start(&mut command).end(LIMIT).unwrap();
    assert!(matches!(status.code(), Some(0 | 1 | 66)), "{arguments:?}: {printed:?}");
    printed.output
}

/// What a command writes about a program into a file that is only for programs.
fn written(file: &Path, command: &str, options: &[&str], program: &[&str]) -> String {
    let json = format!("--json={}", file.display());
    printed(&[&[command, &json], options, &["--"], program].concat());
    fs::read_to_string(file).expect("it is written")
}

fn all_commands() {
    interfaces_up();
    let mut vocabulary = Vocabulary::read();
    let scratch = Scratch::new("vocabulary");
    let build = |source: &str, libraries: &[&str]| {
        let name = source.trim_end_matches(".c").replace('/', "-");
        compile(&scratch, source, &name, libraries).to_str().expect("a path in UTF-8").to_owned()
    };
    let late_read = build("late_read.c", &["-libverbs"]);
    let wrong = build("checked/teardown.c", &["-libverbs"]);
    let lucky = build("rehearsed/moments.c", &["-libverbs"]);
    let connects = build("connects.c", RDMACM);
    let (lines, timeline) = (scratch.path().join("lines"), scratch.path().join("timeline"));
    let timeline = ["--output", timeline.to_str().expect("a path in UTF-8")];

    for (name, options, program) in [
        ("trace", &timeline[..], &[&*late_read, "windows"][..]),
        ("trace", &timeline, &[&connects]),
        ("exposure", &[], &[&late_read, "regions"]),
        ("exposure", &[], &[&late_read, "windows"]),
        ("check", &[], &[&wrong, "work-lost", "wrong"]),
    ] {
        vocabulary.compare_lines(name, &written(&lines, name, options, program));
    }
    let options = ["--only", "single-completions,refused-posts", "--runs", "12"];
    let told = written(&lines, "rehearse", &options, &[&lucky, "polls-once", "wrong"]);
    assert!(told.contains("\"places\""), "{told}");
    vocabulary.compare_lines("rehearse", &told);
    vocabulary.compare_lines("explain", &printed(&["explain", "--json"]));
    let told = printed(&["bench", "--quick", "--json", "8 bytes, to its completion"]);
    vocabulary.compare_lines("bench", &told);

    let found = scratch.path().join("found");
    printed(&["trace", "--anomalies", found.to_str().unwrap(), "--", &late_read, "windows"]);
    let files = fs::read_dir(&found).expect("a folder").map(|entry| entry.unwrap().path());
    let document = files.into_iter().find(|path| path.extension().unwrap() == "json");
    let document = fs::read_to_string(document.expect("a document")).unwrap();
    let document: Value = serde_json::from_str(&document).expect("JSON");
    vocabulary.compare("trace --anomalies", &document["tracer_data"]);

    let mut roles = Roles::new("vocabulary-roles");
    // It WRITEs until it is told to go on again, and is refused then.
    roles.guest.go_on();
    let busy = until("WRITEs", || {
        let told = printed(&["top", "--json", "--once", "--interval", "0.2"]);
        told.contains("\"p99_ns\"").then(|| serde_json::from_str(&told).expect("JSON"))
    });
    vocabulary.compare("top", &busy);
    roles.guest.go_on();
    roles.guest.says("refused");
    let options = [["--json"].as_slice(), &["--json", "--once"], &["--json"]];
    for (name, options) in ["devices", "top", "doctor"].into_iter().zip(options) {
        let told = printed(&[&[name], options].concat());
        vocabulary.compare(name, &serde_json::from_str(&told).expect("JSON"));
    }
    vocabulary.compare_labels(&printed(&["metrics"]));
    drop(roles);

    // Each key is told, or may be: the help says so.
    let helps = WITH_JSON.map(|name| printed(&[name, "--help"])).concat();
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let listed: BTreeSet<_> = helps.split(|letter| !is_word(letter)).collect();
    let unknown = |key: &&String| !vocabulary.told.contains(*key) && !listed.contains(key.as_str());
    let left: Vec<_> = vocabulary.keys.keys().filter(unknown).collect();
    assert!(left.is_empty(), "in docs/json.md, and nowhere else: {left:?}");
    let told =
        ["peer_qp", "object", "p99_ns", "first_ns", "callers", "by_right", "places", "targets"];
    assert!(told.iter().all(|key| vocabulary.told.contains(*key)), "{:?}", vocabulary.told);
}

/// A key has the same meaning and form everywhere, and what may have 64 bits is no number.
///
/// Rules: SEE-66, SEE-67
#[test]
fn all_commands_speak_to_programs_in_the_words_of_one_page() {
    let test = path_of!("all_commands_speak_to_programs_in_the_words_of_one_page");
    alone(test, Way::Namespace, all_commands);
}

/// What may have 64 bits: nanoseconds, bytes, addresses.
///
/// Rule: SEE-66
#[test]
fn the_page_has_no_number_that_may_have_64_bits() {
    for (key, form) in Vocabulary::read().keys {
        let is_large = ["_ns", "_bytes", "bytes_sent", "bytes_received"];
        let is_one = ["address", "base", "bytes", "length", "offset", "value", "limit", "wr_id"];
        let is_large = is_large.iter().any(|end| key.ends_with(end));
        if is_large || is_one.contains(&key.as_str()) {
            assert_eq!(form, Form::Digits, "{key}");
        }
    }
}
