//! `transom trace --anomalies`, on programs in which something goes wrong.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use transom_abi::*;
use transom_conformance::c_programs::compile;
use transom_conformance::forger::{Forger, PEER};
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::*;
use transom_conformance::programs::{Printed, Running, command};
use transom_conformance::queues::{number, try_cq};
use transom_conformance::timeline::{Shown, bytes_of, read};
use transom_system::tools::{self, Tool};
use transom_wire::Psn;
use transom_wire::packet::{Aeth, Operation, Packet, Transport};

use super::trace::all_record;

/// How long it may take.
const LIMIT: Duration = Duration::from_secs(60);

fn trace(directory: &Path, arguments: &[&str]) -> Running {
    let [transom, ..] = command();
    let mut trace = Command::new(transom);
    trace.args(["trace", "--anomalies"]).arg(directory).args(arguments);
    trace.env("TRANSOM_LIB", transom.parent().expect("a folder"));
    Running::start(&mut trace)
}

/// Looks at processes that run, this one among them.
fn begin(directory: &Path, pids: &[u32], arguments: &[&str]) -> Running {
    let words: Vec<_> = pids.iter().flat_map(|pid| ["--pid".into(), pid.to_string()]).collect();
    let all: Vec<_> = words.iter().map(String::as_str).chain(arguments.iter().copied()).collect();
    let running = trace(directory, &all);
    all_record(pids);
    running
}

fn end(mut running: Running) -> String {
    running.signal(libc::SIGINT);
    let (status, Printed { complaints, .. }) = running.end(LIMIT).unwrap();
    assert!(status.success(), "{complaints}");
    // It is wrapped for a terminal.
    complaints.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The documents in a directory, each with its file. A document is there when its timeline is whole.
fn documents(directory: &Path) -> Vec<(PathBuf, Value)> {
    let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = entries.filter(|path| path.extension().unwrap() == "json").collect();
    all.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        text.ends_with('\n').then(|| (path, serde_json::from_str(&text).unwrap()))
    };
    all.into_iter().filter_map(read).collect()
}

fn shown(document: &Value) -> Vec<Shown> {
    let path = document["tracer_data"]["trace"].as_str().expect("a path");
    read(&bytes_of(Path::new(path)))
}

/// Those on tracks of this name that have this name too.
fn find<'a>(all: &'a [Shown], track: &str, name: &str) -> Vec<&'a Shown> {
    all.iter().filter(|it| it.track.ends_with(track) && it.name.starts_with(name)).collect()
}

fn reasons(document: &Value) -> Vec<&str> {
    let all = document["tracer_data"]["anomalies"].as_array().expect("a list");
    all.iter().map(|it| it["reason"].as_str().expect("text")).collect()
}

/// A server READs from a window of a client once too late. Without the window nothing is wrong, and there is no file.
///
/// Rules: SEE-63, SEE-64
#[test]
fn one_refusal_leaves_one_file_with_what_both_ends_did() {
    let scratch = Scratch::new("anomalies");
    let binary = compile(&scratch, "late_read.c", "late_read", &["-libverbs"]);
    let directory = scratch.path().join("found");
    let run = |how| {
        let running = trace(&directory, &["--", binary.to_str().unwrap(), how]);
        let (status, printed) = running.end(LIMIT).unwrap();
        assert!(status.success(), "{printed:?}");
        printed.complaints.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let said = run("regions");
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "{said}");
    assert!(said.contains("nothing went wrong in 2 processes"), "{said}");

    let said = run("windows");
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "{said}");
    assert!(said.contains("1 anomaly in 2 processes, 1 timeline in "), "{said}");
    let [(path, document)] = &documents(&directory)[..] else { panic!("{said}") };
    assert_eq!(
        (&document["tracer_name"], &document["tracer_type"]),
        (&"transom".into(), &"autotracing".into())
    );
    let data = &document["tracer_data"];
    assert_eq!(Path::new(data["trace"].as_str().unwrap()).file_stem(), path.file_stem());
    let [refusal] = &data["anomalies"].as_array().unwrap()[..] else { panic!("{data}") };
    assert_eq!((&refusal["rule"], &refusal["role"]), (&"RA-26".into(), &"target".into()));
    assert_eq!(data["processes"].as_array().unwrap().len(), 2);

    let all = shown(document);
    let requests = find(&all, "/requests", "READ");
    let [request] = requests[..] else { panic!("{all:#?}") };
    assert_eq!(request.arguments["status"], "IBV_WC_REM_ACCESS_ERR");
    let access = find(&all, "/for the peer", "READ");
    let [access] = access[..] else { panic!("{all:#?}") };
    assert_eq!(access.flows.1, find(&all, "/requests", "sent").last().unwrap().flows.0);
    let refused = find(&all, "/refused", "READ of 64 bytes");
    let [refused] = refused[..] else { panic!("{all:#?}") };
    assert!((request.begin..request.end.unwrap()).contains(&refused.begin));
    let marks = find(&all, "anomalies", "late_read, PID ");
    let [mark] = marks[..] else { panic!("{all:#?}") };
    assert!(mark.name.contains(refusal["sentence"].as_str().unwrap()), "{}", mark.name);
    assert!(mark.begin.abs_diff(refused.begin) < 1_000_000_000, "{mark:?} {refused:?}");

    // The command reads it.
    let [transom, ..] = command();
    let mut reads = Command::new(transom);
    reads.args(["trace", "--read"]).arg(data["trace"].as_str().unwrap());
    let text = Running::start(&mut reads).success(LIMIT).unwrap().output;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["requests: READ", "status IBV_WC_REM_ACCESS_ERR", "refused: READ of 64 bytes"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Tests whose timelines have something of each kind.
pub(super) const TIMELINES: [&str; 4] = [
    path_of!("one_refusal_leaves_one_file_with_what_both_ends_did"),
    path_of!("a_process_that_is_killed_leaves_a_file_with_its_peer"),
    path_of!("a_request_that_never_finds_a_receive_leaves_one_file"),
    path_of!("a_process_that_waits_long_for_receives_leaves_one_file"),
];

/// A queue pair asks by a wrong key.
fn refuse(it: &MemoryPair) {
    let (qa, _) = it.pair.another(IBV_QPT_RC);
    let failed = it.op_on(qa, IBV_WR_RDMA_WRITE, it.far.addr(), it.key() ^ 0x80, 8);
    assert_eq!(failed.status, IBV_WC_REM_ACCESS_ERR);
}

fn limited() {
    let it = MemoryPair::new(Link::Loopback, 64);
    let scratch = Scratch::new("limited");
    // Names of files need not be text.
    let directory = &scratch.path().join(OsStr::from_bytes(b"no-\xff-text"));
    let running = begin(directory, &[std::process::id()], &["--files", "1"]);
    refuse(&it);
    until("a file", || directory.exists().then(|| documents(directory)).filter(|it| it.len() == 1));
    refuse(&it);
    let said = end(running);
    let [(_, document)] = &documents(directory)[..] else { panic!("{said}") };
    let trace = document["tracer_data"]["trace"].as_str().expect("a path");
    assert!(trace.contains("/no-\u{fffd}-text/anomaly-"), "{trace}");
    assert!(said.contains("2 anomalies in 1 process, 1 timeline in "), "{said}");
    assert!(said.contains("1 anomaly left out"), "{said}");
    assert_eq!(fs::read_dir(directory).unwrap().count(), 2);
}

/// Rules: SEE-64
#[test]
fn no_more_files_are_written_than_allowed_and_what_is_left_out_is_said() {
    let path = path_of!("no_more_files_are_written_than_allowed_and_what_is_left_out_is_said");
    alone(path, Way::Namespace, limited);
}

/// More goes wrong than a process keeps records of, while the command is stopped.
fn lost() {
    const REFUSED: u64 = 80;
    let it = MemoryPair::new(Link::Loopback, 64);
    let directory = Scratch::new("lost");
    refuse(&it);
    let mut running = begin(directory.path(), &[std::process::id()], &["--files", "1"]);
    running.signal(libc::SIGSTOP);
    let stat = format!("/proc/{}/stat", running.id());
    until("it to stop", || fs::read_to_string(&stat).unwrap().contains(") T ").then_some(()));
    (0..REFUSED).for_each(|_| refuse(&it));
    running.signal(libc::SIGCONT);
    let said = end(running);
    let number = |before: &str| {
        let (text, _) = said.split_once(before).unwrap_or_else(|| panic!("{before}: {said}"));
        text.rsplit(' ').next().unwrap().parse::<u64>().unwrap_or_else(|_| panic!("{said}"))
    };
    let (known, lost) = (number(" anomalies in 1 process"), number(" records of errors"));
    assert_eq!((known + lost, lost), (REFUSED, REFUSED - 64), "{said}");
}

/// Rules: SEE-64
#[test]
fn records_that_were_written_over_unread_are_counted() {
    let path = path_of!("records_that_were_written_over_unread_are_counted");
    alone(path, Way::Namespace, lost);
}

/// What the other processes do; on its own it does nothing.
#[test]
fn role() {
    play(&[
        ("lives", lives),
        ("exits", exits),
        ("leaves", leaves),
        ("becomes", becomes),
        ("is_deaf", is_deaf),
    ]);
}

/// Connects, and says when somebody watches it.
fn connected(channel: &mut Channel) -> End {
    let end = open();
    let qp = end.qp(IBV_QPT_RC);
    meet(channel, qp);
    channel.tell(&[]);
    until("events to be wanted", || tools::is_on(Tool::Events).then_some(()));
    channel.tell(&[]);
    end
}

/// Lives until it is killed.
fn lives(channel: &mut Channel) {
    let _end = connected(channel);
    let [] = channel.hear();
}

fn killed() {
    let end_here = open();
    let qp = end_here.qp(IBV_QPT_RC);
    let mut peer = Child::start(path_of!("lives"));
    meet(&mut peer.channel, qp);
    let [] = peer.hear();
    let directory = Scratch::new("killed");
    let pid = peer.pid();
    let running = begin(directory.path(), &[std::process::id(), pid], &[]);
    let [] = peer.hear();
    peer.kill();
    until("a file", || (!documents(directory.path()).is_empty()).then_some(()));
    let said = end(running);
    let all = documents(directory.path());
    let (_, first) = &all[0];
    assert_eq!(reasons(first)[0], "gone", "{first:#}");
    let data = &first["tracer_data"];
    assert_eq!(data["anomalies"][0]["pid"], pid);
    let pids: Vec<_> = data["processes"].as_array().unwrap().iter().map(|it| &it["pid"]).collect();
    assert!(pids.contains(&&pid.into()) && pids.contains(&&std::process::id().into()), "{data}");
    assert!(said.contains("it has gone without closing its device"), "{said}");
    assert_eq!(find(&shown(first), "anomalies", "").len(), reasons(first).len());
}

/// Rules: SEE-65
#[test]
fn a_process_that_is_killed_leaves_a_file_with_its_peer() {
    let path = path_of!("a_process_that_is_killed_leaves_a_file_with_its_peer");
    alone(path, Way::Namespace, killed);
}

/// Exits with its device open, when it is told to.
fn exits(channel: &mut Channel) {
    let _end = connected(channel);
    let [] = channel.hear();
    // SAFETY: as a program's own call of `exit`.
    unsafe { libc::exit(0) }
}

fn exited() {
    let end_here = open();
    let qp = end_here.qp(IBV_QPT_RC);
    let mut peer = Child::start(path_of!("exits"));
    meet(&mut peer.channel, qp);
    let [] = peer.hear();
    let directory = Scratch::new("exited");
    let running = begin(directory.path(), &[std::process::id(), peer.pid()], &[]);
    let [] = peer.hear();
    peer.tell(&[]);
    let stat = format!("/proc/{}/stat", peer.pid());
    until("an exit", || fs::read_to_string(&stat).unwrap().contains(") Z ").then_some(()));
    let said = end(running);
    peer.kill();
    assert!(said.contains("nothing went wrong in 2 processes"), "{said}");
}

/// Rules: SEE-65
#[test]
fn a_process_that_exits_while_it_is_connected_is_no_anomaly() {
    alone(
        path_of!("a_process_that_exits_while_it_is_connected_is_no_anomaly"),
        Way::Namespace,
        exited,
    );
}

/// Leaves without a word to its library, when it is told to.
fn leaves(channel: &mut Channel) {
    let _end = connected(channel);
    let [] = channel.hear();
    // SAFETY: as a program's own call of `_exit`.
    unsafe { libc::_exit(0) }
}

/// Becomes another program, which lives on.
fn becomes(channel: &mut Channel) {
    let _end = connected(channel);
    let [] = channel.hear();
    panic!("{}", Command::new("sleep").arg("infinity").exec());
}

fn left(how: &str) {
    let end_here = open();
    let qp = end_here.qp(IBV_QPT_RC);
    let mut peer = Child::start(how);
    meet(&mut peer.channel, qp);
    let [] = peer.hear();
    let directory = Scratch::new("left");
    let running = begin(directory.path(), &[std::process::id(), peer.pid()], &[]);
    let [] = peer.hear();
    peer.tell(&[]);
    until("a file", || (!documents(directory.path()).is_empty()).then_some(()));
    end(running);
    let (_, document) = &documents(directory.path())[0];
    let gone = &document["tracer_data"]["anomalies"][0];
    assert_eq!((&gone["reason"], &gone["pid"]), (&"gone".into(), &peer.pid().into()), "{gone}");
    peer.kill();
}

/// Rules: SEE-65
#[test]
fn a_process_that_calls_exit_without_its_library_leaves_a_file() {
    let path = path_of!("a_process_that_calls_exit_without_its_library_leaves_a_file");
    alone(path, Way::Namespace, || left(path_of!("leaves")));
}

/// Rules: SEE-65
#[test]
fn a_process_that_becomes_another_program_leaves_a_file() {
    let path = path_of!("a_process_that_becomes_another_program_leaves_a_file");
    alone(path, Way::Namespace, || left(path_of!("becomes")));
}

/// Is connected, and then hears of nothing.
fn is_deaf(channel: &mut Channel) {
    let end = open();
    let qp = end.qp(IBV_QPT_RC);
    meet(channel, qp);
    assert_eq!(set_state(qp, IBV_QPS_RESET), 0);
    channel.tell(&[]);
    until("events to be wanted", || tools::is_on(Tool::Events).then_some(()));
    channel.tell(&[]);
    let [] = channel.hear();
}

fn unanswered() {
    let end_here = open();
    let qp = end_here.qp(IBV_QPT_RC);
    let mut peer = Child::start(path_of!("is_deaf"));
    meet_to_lose(&mut peer.channel, qp);
    let [] = peer.hear();
    let directory = Scratch::new("unanswered");
    let (me, peer_pid) = (std::process::id(), peer.pid());
    let running = begin(directory.path(), &[me, peer_pid], &[]);
    let [] = peer.hear();
    post(qp, &mut wr(IBV_WR_SEND));
    end_here.expect(IBV_WC_RETRY_EXC_ERR);
    until("a file", || (!documents(directory.path()).is_empty()).then_some(()));
    let said = end(running);
    peer.kill();
    let [(_, document)] = &documents(directory.path())[..] else { panic!("{said}") };
    let data = &document["tracer_data"];
    let [failed] = &data["anomalies"].as_array().unwrap()[..] else { panic!("{data}") };
    assert_eq!(
        (&failed["pid"], &failed["status"], &failed["role"]),
        (&me.into(), &"IBV_WC_RETRY_EXC_ERR".into(), &"origin".into()),
        "{failed}"
    );
    let mut pids: Vec<_> =
        data["processes"].as_array().unwrap().iter().map(|it| it["pid"].as_u64()).collect();
    let mut both = [me, peer_pid].map(|pid| Some(u64::from(pid)));
    pids.sort();
    both.sort();
    assert_eq!(pids, both, "{data}");
    let all = shown(document);
    let requests = find(&all, "/requests", "SEND");
    let [request] = requests[..] else { panic!("{all:#?}") };
    assert_eq!(request.arguments["status"], "IBV_WC_RETRY_EXC_ERR");
    let marks = find(&all, "anomalies", "");
    let [mark] = marks[..] else { panic!("{all:#?}") };
    assert!(mark.name.contains(failed["sentence"].as_str().unwrap()), "{}", mark.name);
}

/// Rules: SEE-63, SEE-65
#[test]
fn a_request_that_nobody_answers_leaves_one_file_of_both_ends() {
    let path = path_of!("a_request_that_nobody_answers_leaves_one_file_of_both_ends");
    alone(path, Way::Namespace, unanswered);
}

/// A request fails over the wire for this reason, and leaves something of this name on this track.
fn failed(fails: impl FnOnce(&MemoryPair), reason: &str, (track, name): (&str, &str)) {
    interfaces_up();
    let it = MemoryPair::new(Link::Wire, 64);
    let directory = Scratch::new(reason);
    let running = begin(directory.path(), &[std::process::id()], &[]);
    fails(&it);
    until("a file", || (!documents(directory.path()).is_empty()).then_some(()));
    let said = end(running);
    let [(_, document)] = &documents(directory.path())[..] else { panic!("{said}") };
    assert_eq!(reasons(document), [reason], "{document:#}");
    assert_eq!(document["tracer_data"]["anomalies"][0]["role"], "origin", "{document:#}");
    let all = shown(document);
    assert_eq!(find(&all, track, name).len(), 1, "{all:#?}");
}

fn asked_in_vain() {
    let fails = |it: &MemoryPair| {
        let (qa, _) = it.connected(|attr| attr.rnr_retry = 2, |_| ());
        post(qa, &mut wr(IBV_WR_SEND));
        it.pair.a.expect(IBV_WC_RNR_RETRY_EXC_ERR);
    };
    let shown = ("/events", "the peer had no receive, however often it was asked");
    failed(fails, "not_ready", shown);
}

/// Rules: SEE-65
#[test]
fn a_request_that_never_finds_a_receive_leaves_one_file() {
    let path = path_of!("a_request_that_never_finds_a_receive_leaves_one_file");
    alone(path, Way::Namespace, asked_in_vain);
}

/// An answer with a syndrome that there is not. Only a peer that is no device of ours sends one.
fn answered_badly() {
    let fails = |it: &MemoryPair| {
        assert_eq!(set_state(it.pair.qb, IBV_QPS_RESET), 0);
        post(it.pair.qa, &mut wr(IBV_WR_SEND));
        let (forger, first) = (Forger::at(PEER), Psn::new(usual_attr(it.pair.qb).sq_psn));
        let answer = Operation::Acknowledge(Aeth { byte: 0x40, msn: 0 });
        let answer = Packet::new(Transport::Rc, answer, number(it.pair.qa), first);
        forger.send(&forger.seal(&answer));
        it.pair.a.expect(IBV_WC_BAD_RESP_ERR);
    };
    failed(fails, "bad_response", ("/events", "ERR"));
}

/// Rules: SEE-65
#[test]
fn a_bad_answer_leaves_one_file() {
    alone(path_of!("a_bad_answer_leaves_one_file"), Way::Namespace, answered_badly);
}

fn overrun() {
    let fails = |it: &MemoryPair| {
        let cq = try_cq(it.pair.a.context, 4, std::ptr::null_mut()).expect("a queue");
        let mut init = it.pair.a.init(IBV_QPT_RC);
        init.send_cq = cq;
        let (qa, qb) = (it.pair.a.qp_with(&mut init), it.pair.b.qp(IBV_QPT_RC));
        connect(qa, qb);
        // SAFETY: a live queue.
        let room = unsafe { (*cq).cqe };
        for wr_id in 0..=room as u64 {
            recv(qb, wr_id, &mut []);
            post(qa, &mut wr(IBV_WR_SEND));
        }
        until("it overruns", || (state(qa) == IBV_QPS_ERR).then_some(()));
    };
    failed(fails, "overrun", ("/events", "ERR"));
}

/// Rules: SEE-65
#[test]
fn a_completion_queue_without_room_leaves_one_file() {
    alone(path_of!("a_completion_queue_without_room_leaves_one_file"), Way::Namespace, overrun);
}

fn bound_in_vain() {
    let it = MemoryPair::new(Link::Loopback, 64);
    let (a, window) = (&it.pair.a, it.pair.a.mw(IBV_MW_TYPE_2));
    let mr = a.reg(&it.near, IBV_ACCESS_LOCAL_WRITE as i32);
    let range = Range { addr: it.near.addr(), length: 8, mr, access: IBV_ACCESS_REMOTE_READ };
    let directory = Scratch::new("bound");
    let running = begin(directory.path(), &[std::process::id()], &[]);
    // The region does not allow windows.
    post(it.pair.qa, &mut bind2_wr(window, rkey(window) + 1, range));
    a.expect(IBV_WC_MW_BIND_ERR);
    until("a file", || (!documents(directory.path()).is_empty()).then_some(()));
    let said = end(running);
    let [(_, document)] = &documents(directory.path())[..] else { panic!("{said}") };
    assert_eq!(reasons(document), ["region_forbids_binding"], "{document:#}");
}

/// Rules: SEE-65
#[test]
fn a_refused_bind_leaves_one_file() {
    alone(path_of!("a_refused_bind_leaves_one_file"), Way::Namespace, bound_in_vain);
}

fn waits() {
    let it = MemoryPair::new(Link::Loopback, 64);
    // It asks for 41 ms each time.
    let (qa, qb) = it.pair.another_with(|_| (), |attr| attr.min_rnr_timer = 24);
    let directory = Scratch::new("waits");
    let running = begin(directory.path(), &[std::process::id()], &[]);
    it.post_op(qa, IBV_WR_SEND, 0, 0, 16);
    // A receive comes late.
    until("a file", || {
        assert!(poll(it.pair.a.cq).is_none());
        (!documents(directory.path()).is_empty()).then_some(())
    });
    it.recv(qb, 1, 64);
    it.pair.a.expect(IBV_WC_SUCCESS);
    end(running);
    let [(_, document)] = &documents(directory.path())[..] else { panic!("one file") };
    assert_eq!(reasons(document), ["waits_for_receives"]);
    assert!(!find(&shown(document), "/events", "asked to wait").is_empty());
}

/// Rules: SEE-65
#[test]
fn a_process_that_waits_long_for_receives_leaves_one_file() {
    alone(
        path_of!("a_process_that_waits_long_for_receives_leaves_one_file"),
        Way::Namespace,
        waits,
    );
}
