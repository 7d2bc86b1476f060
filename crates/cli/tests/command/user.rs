//! The command as a user sees it.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;
use transom_system::environment::ALL;

fn transom(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
    command.args(arguments);
    // In a CI every program prints where to ask, even one that succeeds.
    for variable in ["LD_LIBRARY_PATH", "CI"].into_iter().chain(ALL.iter().map(|it| it.name)) {
        command.env_remove(variable);
    }
    command
}

fn output(command: &mut Command) -> Output {
    command.output().expect("the command was built for this test")
}

/// Standard output of a command that succeeds.
fn said(arguments: &[&str]) -> String {
    let output = output(&mut transom(arguments));
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The standard error of a command, on one line.
fn complaint(output: &Output) -> String {
    on_one_line(&String::from_utf8_lossy(&output.stderr))
}

/// A text without its line breaks, which depend on the terminal.
fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A directory that is removed with its content.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("transom-cli-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, "").unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a program with a directory for the library. An empty file is enough, because nothing here loads it.
fn run(library: &Path, program: &[&str]) -> Output {
    let mut command = transom(&["run", "--"]);
    output(command.args(program).env("TRANSOM_LIB", library).env("XDG_RUNTIME_DIR", library))
}

fn with_library() -> Scratch {
    let scratch = Scratch::new();
    scratch.file("libibverbs.so.1");
    scratch
}

/// A demo that has ended, and the process that owned the window.
struct Demo {
    owner: String,
    began: Instant,
}

impl Demo {
    fn run() -> Self {
        let began = Instant::now();
        let demo = said(&["demo"]);
        let (_, rest) = demo.split_once("in process ").expect("the owner's step");
        let owner = rest.split(|letter: char| !letter.is_ascii_digit()).next().unwrap().to_owned();
        Self { owner, began }
    }

    /// What `transom explain` says of the owner. The records of an older process with the same PID
    /// may still be there, so it asks only for what happened since the demo began.
    fn explained(&self, options: &[&str]) -> String {
        let age = format!("{}s", self.began.elapsed().as_secs() + 10);
        said(&[&["explain", "--pid", &self.owner, "--since", &age], options].concat())
    }
}

#[test]
fn the_demo_shows_two_refusals_with_their_reasons_a_mistake_that_is_found_and_what_was_open() {
    let demo = said(&["demo"]);
    assert_eq!(demo.matches("Refused.").count(), 2, "{demo}");
    let text = on_one_line(&demo);
    for part in [
        "owner opens the RDMA device transom0",
        "guest reads through the window",
        "READ of 32 bytes at 0x",
        "the range goes 16 bytes past the end of the window [0x",
        "owner revokes the window",
        "READ of 64 bytes at 0x",
        "(rule RA-26)",
        "Found.",
        "error[work-lost]: Queue pair 0x",
        "is destroyed while 1 request is under way.",
        "owner fetches the first request at last, and gets: \"The data of request 2.\"",
        "For reading, a region of 4 KiB was open, and peers used 64 bytes of it. You can close 100 %",
        "transom explain",
        "transom check",
        "transom exposure",
    ] {
        assert!(text.contains(part), "no {part:?} in {demo}");
    }
}

#[test]
fn the_demo_works_where_data_goes_through_shared_memory() {
    let output = output(transom(&["demo"]).env("TRANSOM_COPY", "rings"));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_second_process_of_the_demo_ends_with_its_orders() {
    let output = output(transom(&["demo-guest"]).stdin(Stdio::null()));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn explain_gives_every_number_of_a_refusal() {
    let demo = Demo::run();
    let lines = demo.explained(&["--json"]);
    let refusals: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [revoked, outside] = &refusals[..] else { panic!("not two refusals: {lines}") };
    let number = |it: &Value| it.as_str().and_then(|it| it.parse::<u64>().ok());
    assert!(number(&revoked["time_ns"]) >= number(&outside["time_ns"]));
    assert!(number(&outside["time_ns"]).is_some(), "{outside}");
    for refusal in &refusals {
        assert_eq!(refusal["pid"].to_string(), demo.owner);
        assert_eq!(refusal["process"], "transom");
        assert_eq!(refusal["device_state"], "closed");
        assert_eq!(refusal["role"], "target");
        assert_eq!(refusal["operation"], "read");
        assert_eq!(refusal["object"]["kind"], "window_2b");
        assert_eq!(refusal["object"]["length"], "64");
        assert_eq!(refusal["object"]["qp"], refusal["qp"]);
        assert!(refusal["peer_qp"].is_u64());
    }
    assert_eq!(outside["reason"], "past_end");
    assert_eq!(outside["rule"], "RA-33");
    assert_eq!(outside["length"], "32");
    assert_eq!(outside["outside_by"], "16");
    let rights = serde_json::json!(["REMOTE_WRITE", "REMOTE_READ"]);
    assert_eq!(outside["object"]["access"], rights);
    let base = number(&outside["object"]["base"]).unwrap();
    assert_eq!(number(&outside["address"]), Some(base + 48));
    assert_eq!(revoked["reason"], "free_window");
    assert_eq!(revoked["object"]["state"], "free");
    assert_eq!(revoked["outside_by"], Value::Null);
}

/// HUATUO's own layouts of times, as its documents have them.
///
/// Rule: SEE-62
#[test]
fn explain_gives_documents_as_huatuo_stores_them() {
    let demo = Demo::run();
    let plain = demo.explained(&["--json"]);
    let printed = demo.explained(&["--huatuo"]);
    assert_eq!((printed.lines().count(), plain.lines().count()), (2, 2), "{printed}");
    let shape = |text: &Value| -> String {
        let letters = text.as_str().expect("text").chars();
        letters.map(|it| if it.is_ascii_digit() { '9' } else { it }).collect()
    };
    let mut ids = std::collections::BTreeSet::new();
    for (line, plain) in printed.lines().zip(plain.lines()) {
        let document: Value = serde_json::from_str(line).unwrap();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(document["hostname"], host.trim());
        assert_eq!(
            (&document["tracer_name"], &document["tracer_type"]),
            (&"transom".into(), &"event".into())
        );
        assert_eq!(document["tracer_data"], serde_json::from_str::<Value>(plain).unwrap());
        assert_eq!(document["time"], document["tracer_time"]);
        assert_eq!(shape(&document["time"]).replace('-', "+"), "9999+99+99 99:99:99.999 +9999");
        let uploaded = shape(&document["uploaded_time"]);
        assert_eq!(uploaded.replace('-', "+"), "9999+99+99T99:99:99.999+99:99");
        assert_eq!(document["region"], "");
        ids.insert(document["tracer_id"].to_string());
    }
    // They stay the same, so that a document that is sent again is stored once.
    let again = demo.explained(&["--huatuo"]);
    assert!(ids.len() == 2 && ids.iter().all(|id| again.contains(id)), "{ids:?}: {again}");
}

#[test]
fn explain_is_for_people_too() {
    let demo = Demo::run();
    let pid = &demo.owner;
    let all = demo.explained(&[]);
    assert!(all.contains(&format!("s ago)  transom, PID {pid} (device closed)")), "{all}");
    let (revoked, outside) = (all.find("RA-26").unwrap(), all.find("RA-33").unwrap());
    assert!(revoked < outside, "the newest come first: {all}");
    let one = demo.explained(&["--limit", "1"]);
    assert!(one.contains("RA-26") && !one.contains("RA-33"), "{one}");
    assert!(one.contains("1 older; --limit 2 shows all."), "{one}");
}

#[test]
fn explain_says_so_if_there_is_nothing_to_explain() {
    let pid = Demo::run().owner;
    // The demo was over before the moment that is asked for.
    let none = on_one_line(&said(&["explain", "--pid", &pid, "--since", "0s"]));
    assert!(none.starts_with(&format!("No refusals of process {pid} since then.")), "{none}");
    assert!(none.contains("transom demo") && none.contains("transom explain IBV_WC_"), "{none}");
    assert!(none.contains("of this user in this network namespace (/"), "{none}");
    assert_eq!(said(&["explain", "--json", "--pid", &pid, "--since", "0s"]), "");
    let old = said(&["explain", "--pid", &pid, "--since", "1h"]);
    assert!(old.contains("RA-26") && old.contains("RA-33"), "{old}");
}

#[test]
fn explain_does_not_answer_for_processes_that_nobody_knows() {
    for (words, said) in [
        (["--pid", "4294967295"], "no process 4294967295 has opened a device here"),
        // It always runs, and has no device.
        (["--pid", "1"], "did you start it with `transom run`?"),
        (["--process", "no such name"], "no process called no such name"),
    ] {
        for json in [&[][..], &["--json"]] {
            let refused = output(transom(&["explain"]).args(words).args(json));
            assert_eq!(refused.status.code(), Some(1), "{refused:?}");
            assert!(refused.stdout.is_empty(), "{refused:?}");
            assert!(complaint(&refused).contains(said), "{refused:?}");
        }
    }
    let both = Demo::run().explained(&["--process", "transom"]);
    assert!(both.contains("RA-33"), "{both}");
}

#[test]
fn explain_has_the_rules() {
    let rule = said(&["explain", "--rule", "ra-33"]);
    assert!(rule.starts_with("RA-33  (E.2 Key and range checks)\n"), "{rule}");
    assert!(rule.lines().all(|line| line.chars().count() <= 80), "{rule}");
    // What is for those who change the rules is in their file.
    let rule = said(&["explain", "--rule", "mwa-07"]);
    assert!(!rule.contains("source:") && !rule.contains("flag:") && !rule.contains("⇒"), "{rule}");
    let none = output(&mut transom(&["explain", "--rule", "RA-9999"]));
    assert_eq!(none.status.code(), Some(2));
    assert!(complaint(&none).contains("there is no rule RA-9999; those of its kind are RA-01 to"));
}

#[test]
fn explain_follows_what_comes() {
    let mut following = transom(&["explain", "--follow", "--json", "--since", "10s"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let pid = Demo::run().owner;
    let mut of_it = || {
        let refusals = lines.by_ref().map(|line| line.unwrap());
        let mut refusals = refusals.map(|line| serde_json::from_str::<Value>(&line).unwrap());
        refusals.find(|refusal| refusal["pid"] == pid.parse::<u32>().unwrap()).unwrap()
    };
    assert_eq!([of_it(), of_it()].map(|it| it["rule"].clone()), ["RA-33", "RA-26"]);
    following.kill().unwrap();
    following.wait().unwrap();
}

/// `transom run --explain` of a shell's script, whose `$0` is this command.
fn explained_run(scratch: &Scratch, script: &str) -> Command {
    let command = ["run", "--explain", "--", "sh", "-c", script, env!("CARGO_BIN_EXE_transom")];
    let mut command = transom(&command);
    command.env("TRANSOM_LIB", &scratch.0).env("CI", "true");
    command
}

#[test]
fn a_program_that_fails_is_explained_if_that_is_wanted() {
    let scratch = with_library();
    let run = |script: &str| output(&mut explained_run(&scratch, script));
    let failed = run("\"$0\" demo; exit 3");
    assert_eq!(failed.status.code(), Some(3));
    let why = complaint(&failed);
    assert!(why.contains("sh exited with status 3. This was refused, oldest first:"), "{why}");
    let (outside, revoked) = (why.find("RA-33").unwrap(), why.find("RA-26").unwrap());
    assert!(outside < revoked, "the cause comes first: {why}");
    // It is told without being asked for.
    assert!(!why.contains("says why") && !why.contains("Looked at"), "{why}");
    let ended = run("kill -TERM $$");
    assert_eq!(ended.status.signal(), Some(15), "{ended:?}");
    assert!(complaint(&ended).contains("sh was killed by signal 15"), "{ended:?}");
    let good = run("\"$0\" demo");
    assert!(good.status.success() && !complaint(&good).contains("refused"), "{good:?}");
}

/// Rule: EX-07
#[test]
fn only_what_the_program_itself_was_refused_is_explained() {
    let scratch = with_library();
    let run = |script: &str| complaint(&output(&mut explained_run(&scratch, script)));
    // One that does not belong to the run, at the same time.
    let stranger = "env -u TRANSOM_EXPLAIN \"$0\" demo";
    let why = run(&format!("{stranger}; exit 3"));
    assert!(why.contains("Nothing was refused: none of its processes opened a device."), "{why}");
    assert!(!why.contains("RA-") && !why.contains("oldest first"), "{why}");
    assert!(why.contains("of other programs meanwhile: `transom explain`"), "{why}");
    // What a run within this one starts belongs to it.
    let within = "\"$0\" run -- \"$0\" demo";
    let why = run(&format!("{stranger}; {within}; exit 3"));
    assert_eq!((why.matches("(rule RA-33)").count(), why.matches("(rule RA-26)").count()), (1, 1));
    // So does what a check within it runs.
    let why = run("\"$0\" check -- \"$0\" demo; exit 3");
    assert_eq!((why.matches("(rule RA-33)").count(), why.matches("(rule RA-26)").count()), (1, 1));
    // What such a run within it starts, both of them tell.
    let within = "\"$0\" run --explain -- sh -c '\"$0\" demo; exit 4' \"$0\"; exit 3";
    let why = run(within);
    assert_eq!((why.matches("(rule RA-33)").count(), why.matches("(rule RA-26)").count()), (2, 2));
    let why = run("\"$0\" demo-guest </dev/null; exit 3");
    assert!(why.contains("Nothing was refused, and nothing waited for long. It may"), "{why}");
}

#[test]
fn what_is_no_timeline_is_said_to_be_none() {
    let scratch = with_library();
    fs::write(scratch.file("page"), "# A page\n").unwrap();
    let page = scratch.0.join("page");
    let told = output(&mut transom(&["trace", "--read", page.to_str().unwrap()]));
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    assert!(complaint(&told).ends_with("it is no timeline of `transom trace`"), "{told:?}");
    // No timeline is worth opening if there is nothing in it.
    let options = ["trace", "--output", page.to_str().unwrap(), "--", "true"];
    let said = complaint(&output(transom(&options).env("TRANSOM_LIB", &scratch.0)));
    assert!(said.ends_with("no process opened a device, so there is nothing to see."), "{said}");
}

#[test]
fn a_trace_within_a_trace_takes_no_process_from_it() {
    let scratch = with_library();
    let [outer, inner] = ["outer", "inner"].map(|name| scratch.0.join(name).display().to_string());
    let script = "\"$0\" trace --output \"$1\" -- \"$0\" demo";
    let options = ["trace", "--output", &outer, "--", "sh", "-c", script];
    let mut command = transom(&options);
    command.args([env!("CARGO_BIN_EXE_transom"), &inner]).env("TRANSOM_LIB", &scratch.0);
    let said = complaint(&output(&mut command));
    assert_eq!(said.matches("3 processes in").count(), 2, "{said}");
}

/// Each write to such a socket is a message.
#[test]
fn an_explanation_comes_in_one_piece() {
    let scratch = with_library();
    let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let mut command = explained_run(&scratch, "\"$0\" demo 2>&1; exit 3");
    command.stderr(Stdio::from(std::os::fd::OwnedFd::from(theirs)));
    assert_eq!(command.output().unwrap().status.code(), Some(3));
    drop(command);
    let mut message = vec![0; 1 << 16];
    let mut received = || {
        let length = ours.recv(&mut message).unwrap();
        on_one_line(&String::from_utf8_lossy(&message[..length]))
    };
    // The loader complains of the library, which is none.
    let first = received();
    let told = if first.contains("status 3") { first } else { received() };
    assert!(told.contains("sh exited with status 3.") && told.contains("RA-26"), "{told}");
}

/// A signal to it, such as that of a CI that cancels a job, is for the program.
#[test]
fn a_program_that_is_to_be_explained_gets_its_signals() {
    let scratch = with_library();
    let script = "trap 'exit 7' TERM; echo ready; read line";
    let mut running = transom(&["run", "--explain", "--", "sh", "-c", script])
        .env("TRANSOM_LIB", &scratch.0)
        .env("XDG_RUNTIME_DIR", &scratch.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(running.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let pid = rustix::process::Pid::from_child(&running);
    // Left open: `wait` would close it, and the program might see the end of its input before the signal.
    let _input = running.stdin.take();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(7));
}

#[test]
fn devices_are_told_to_programs_and_people() {
    let json: Value = serde_json::from_str(&said(&["devices", "--json"])).unwrap();
    let device = &json["devices"][0];
    assert_eq!(device["name"], "transom0");
    assert_eq!(device["window_types"], serde_json::json!({ "type_1": true, "type_2": "2B" }));
    let gids = device["ports"][0]["gids"].as_array().unwrap();
    assert!(gids.iter().any(|entry| entry["index"] == 0), "{gids:?}");
    assert_eq!(device["ports"][0]["lid"], 0);
    assert!(device["limits"]["max_windows"].as_u64().unwrap() >= 1 << 20);
    assert!(json["processes"].is_array());
    let text = said(&["devices"]);
    assert!(text.contains("transom0") && text.contains("type 1 and 2B"), "{text}");
}

/// The list says for each process how much of its registered memory is shared, and how to share the rest.
#[test]
fn what_is_registered_is_told_by_where_it_is() {
    use transom::{Access, MemoryRegion, Pages, ProtectionDomain, Provider, devices};
    let context = devices(&Provider::software()).unwrap()[0].open().unwrap();
    let pd = ProtectionDomain::new(&context).unwrap();
    let pages = Pages::new(8192).unwrap();
    let _shared = MemoryRegion::register(&pd, pages, Access::LOCAL_WRITE).unwrap();
    let registered = || {
        let json: Value = serde_json::from_str(&said(&["devices", "--json"])).unwrap();
        let processes = json["processes"].as_array().unwrap().clone();
        let this = processes.into_iter().find(|it| it["pid"] == std::process::id());
        this.expect("it is there")["registered"].clone()
    };
    let all_shared =
        serde_json::json!({ "shared_bytes": "8192", "private_bytes": "0", "fix": null });
    assert_eq!(registered(), all_shared);
    let doctor = || {
        let of_this = format!("PID {} ", std::process::id());
        let findings = findings(&mut transom(&["doctor"])).1;
        findings.into_iter().find(|it| it["sentence"].as_str().unwrap().starts_with(&of_this))
    };
    assert_eq!(doctor(), None);
    let private = MemoryRegion::register(&pd, vec![0; 3072], Access::LOCAL_WRITE).unwrap();
    assert_eq!(registered()["private_bytes"], "3072");
    let advice = registered()["fix"].as_str().unwrap().to_owned();
    assert!(advice.contains("transom run"), "{advice}");
    let text = on_one_line(&said(&["devices"]));
    assert!(text.contains("registered: 8 KiB shared, 3 KiB private"), "{text}");
    assert!(text.contains(&advice), "{text}");
    let found = doctor().expect("it is told");
    assert!(found["sentence"].as_str().unwrap().contains("3 KiB of 11 KiB"), "{found}");
    assert_eq!(found["fix"], *advice);
    private.deregister().unwrap();
    assert_eq!(registered(), all_shared);
}

#[test]
fn a_program_that_runs_ends_as_it_does() {
    let scratch = with_library();
    assert_eq!(run(&scratch.0, &["true"]).status.code(), Some(0));
    assert_eq!(run(&scratch.0, &["sh", "-c", "exit 42"]).status.code(), Some(42));
    assert_eq!(run(&scratch.0, &["sh", "-c", "kill -TERM $$"]).status.signal(), Some(15));
    let echo = run(&scratch.0, &["echo", "--help", "-x"]);
    assert!(!echo.stdout.is_empty() && echo.status.success(), "{echo:?}");
}

#[test]
fn a_program_ignores_a_broken_pipe_if_it_would_without_us() {
    let ignored = |before: &str| {
        let line = format!("{before} exec \"$0\" run -- grep SigIgn /proc/self/status");
        let found = output(Command::new("sh").args(["-c", &line, env!("CARGO_BIN_EXE_transom")]));
        let text = String::from_utf8(found.stdout).unwrap();
        let mask = u64::from_str_radix(text.trim_start_matches("SigIgn:").trim(), 16).unwrap();
        mask >> (libc::SIGPIPE - 1) & 1 == 1
    };
    assert!(ignored("trap '' PIPE;"));
    assert!(!ignored(""));
}

/// An empty list differs from none: it has the current directory.
#[test]
fn a_program_is_found_by_the_path_that_it_would_be_found_by() {
    let scratch = with_library();
    let script = scratch.file("transom-test-script");
    fs::write(&script, "#!/bin/sh\necho \"$PATH\"\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let run = |path: Option<&str>, program: &str| {
        let mut command = transom(&["run", "--", program]);
        command.env("TRANSOM_LIB", &scratch.0).env("XDG_RUNTIME_DIR", &scratch.0);
        match path {
            Some(path) => command.env("PATH", path),
            None => command.env_remove("PATH"),
        };
        let output = output(command.current_dir(&scratch.0));
        let said = complaint(&output);
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), said)
    };
    let (status, printed, said) = run(None, "env");
    assert_eq!(status, Some(0), "{said}");
    let path = printed.lines().find_map(|line| line.strip_prefix("PATH=")).unwrap();
    let (first, usual) = path.split_once(':').unwrap();
    assert!(Path::new(first).join("rdma").exists() && usual.contains("/bin"), "{path}");
    assert_eq!(run(Some(""), "transom-test-script").0, Some(0));
    let (status, _, said) = run(None, "transom-test-script");
    assert_eq!(status, Some(127), "{said}");
    assert!(said.contains("no program transom-test-script in PATH"), "{said}");
}

#[test]
fn a_program_that_does_not_run_is_told_apart() {
    let scratch = with_library();
    let missing = run(&scratch.0, &["no-such-program-anywhere"]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(complaint(&missing).contains("no program no-such-program-anywhere in PATH"));
    let script = scratch.file("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(run(&scratch.0, &[script.to_str().unwrap()]).status.code(), Some(126));
    let nowhere = scratch.0.join("nothing");
    assert_eq!(run(&scratch.0, &[nowhere.to_str().unwrap()]).status.code(), Some(127));
    let text = scratch.file("text");
    let denied = run(&scratch.0, &[text.to_str().unwrap()]);
    assert_eq!(denied.status.code(), Some(126));
    assert!(complaint(&denied).contains("chmod +x"), "{denied:?}");
}

#[test]
fn the_loader_is_pointed_at_the_library() {
    let show = ["sh", "-c", "echo \"$LD_LIBRARY_PATH\""];
    let path = |output: Output| String::from_utf8(output.stdout).unwrap().trim().to_owned();
    // It has a link under both names, whatever its own name is.
    for name in ["libibverbs.so.1", "libibverbs.so"] {
        let scratch = Scratch::new();
        let library = scratch.file(name);
        let directory = path(run(&scratch.0, &show));
        for link in ["libibverbs.so.1", "libibverbs.so"] {
            assert_eq!(fs::read_link(Path::new(&directory).join(link)).unwrap(), library);
        }
        assert_eq!(path(run(&scratch.0, &show)), directory);
        let mut command = transom(&["run"]);
        command.args(show).env("TRANSOM_LIB", &scratch.0).env("XDG_RUNTIME_DIR", &scratch.0);
        assert_eq!(
            path(output(command.env("LD_LIBRARY_PATH", "/other"))),
            format!("{directory}:/other")
        );
    }

    let empty = Scratch::new();
    let missing = run(&empty.0, &["true"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(complaint(&missing).contains("TRANSOM_LIB"), "{missing:?}");
}

/// A user who may write above a directory can replace it, with other code in it.
#[test]
fn nothing_is_made_or_taken_where_another_user_decides() {
    let scratch = Scratch::new();
    let open = scratch.0.join("open");
    let theirs = open.join("theirs");
    fs::create_dir_all(&theirs).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let library = with_library();
    let show = ["run", "sh", "-c", "echo \"$LD_LIBRARY_PATH:$LD_PRELOAD:$PATH:$TRANSOM_TREE\""];
    for variable in ["XDG_RUNTIME_DIR", "TMPDIR"] {
        let mut command = transom(&show);
        command.env_remove("XDG_RUNTIME_DIR").env("TRANSOM_LIB", &library.0);
        let shown = output(command.env(variable, &theirs));
        assert!(shown.status.success(), "{shown:?}");
        let shown = String::from_utf8(shown.stdout).unwrap();
        assert!(!shown.contains(open.to_str().unwrap()), "{variable}: {shown}");
        assert_eq!(fs::read_dir(&theirs).unwrap().count(), 0, "{variable}: something is made");
    }
    fs::write(theirs.join("libibverbs.so.1"), "").unwrap();
    let refused = output(transom(&show).env("TRANSOM_LIB", &theirs));
    assert_eq!(refused.status.code(), Some(1));
    let words = complaint(&refused);
    assert!(words.contains("another user might exchange it"), "{words}");
    assert!(words.contains("open can be written to by others (mode 0777)"), "{words}");
}

/// Rules: DEVS-10
#[test]
fn what_describes_no_device_is_refused_before_the_program_runs() {
    let many: Vec<String> = (0..17).map(|number| format!("--device=a{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let long = format!("--device-name={}", "x".repeat(63));
    for (options, reason) in [
        (&["--devices=0"][..], "not in 1..=16"),
        (&["--devices=17"], "not in 1..=16"),
        (&many, "16 devices at most"),
        (&["--devices=2", &long], "1\" is no"),
        (&["--device=a/b"], "is no name for a device"),
        (&["--device=a", "--device=a"], "a is there twice"),
        (&["--device=a,speed=3"], "is no speed of a port"),
        (&["--device=a", "--devices=2"], "cannot be used with"),
        (&["--device=a", "--device-name=b"], "cannot be used with"),
    ] {
        let line = ["--", "sh", "-c", "echo runs"];
        let refused = output(transom(&["run"]).args(options).args(line));
        let said = complaint(&refused);
        assert_eq!(refused.status.code(), Some(2), "{options:?}: {said}");
        assert!(said.contains(reason) && refused.stdout.is_empty(), "{options:?}: {said}");
    }
}

#[test]
fn the_device_can_be_called_otherwise() {
    let line = ["sh", "-c", "echo $TRANSOM_DEVICE_NAME"];
    let named = output(transom(&["run", "--device-name", "rxe0", "--"]).args(line));
    assert_eq!(String::from_utf8_lossy(&named.stdout), "rxe0\n");
    let refused = output(transom(&["run", "--device-name", "a/b", "--"]).args(line));
    assert_eq!((refused.status.code(), &refused.stdout[..]), (Some(2), &b""[..]));
    assert!(complaint(&refused).contains("no name for a device"), "{refused:?}");
    let listed = output(transom(&["devices", "--json"]).env("TRANSOM_DEVICE_NAME", "mlx5_0"));
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed["devices"][0]["name"], "mlx5_0");
}

/// Our librdmacm is found as our libibverbs is, if it is there.
#[test]
fn the_loader_is_pointed_at_both_libraries() {
    let scratch = with_library();
    let library = scratch.file("librdmacm.so");
    let show = ["sh", "-c", "echo \"$LD_LIBRARY_PATH $LD_PRELOAD\""];
    let shown = String::from_utf8(run(&scratch.0, &show).stdout).unwrap();
    let (path, preloaded) = shown.trim().split_once(' ').unwrap();
    let directory = path.split(':').nth(1).expect("one for each library");
    for link in ["librdmacm.so.1", "librdmacm.so"] {
        assert_eq!(fs::read_link(Path::new(directory).join(link)).unwrap(), library);
    }
    let all: Vec<_> = preloaded.split(':').collect();
    assert!(all[0].ends_with("/libibverbs.so.1"), "{all:?}");
    assert_eq!(all[1], format!("{directory}/librdmacm.so.1"));
}

/// Our library is loaded before the program's libraries, after those that the user preloads. An entry of another
/// `transom run` is gone.
#[test]
fn the_library_is_preloaded_once() {
    let scratch = with_library();
    let preloaded = |before: &str| {
        let mut command = transom(&["run"]);
        command.args(["sh", "-c", "echo \"$LD_PRELOAD\""]).env("LD_PRELOAD", before);
        command.env("TRANSOM_LIB", &scratch.0).env("XDG_RUNTIME_DIR", &scratch.0);
        let printed = output(&mut command).stdout;
        let all = String::from_utf8(printed).unwrap();
        all.trim().split(':').map(str::to_owned).collect::<Vec<_>>()
    };
    let alone = preloaded("");
    assert!(alone[0].ends_with("/libibverbs.so.1"), "{alone:?}");
    let with_others = preloaded("/other/libibverbs.so.1 /no/libfirst.so:libsecond.so");
    assert_eq!(with_others[..2], ["/no/libfirst.so", "libsecond.so"]);
    assert_eq!(with_others[2..], alone);
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = said(&["completions", shell]);
        assert!(script.contains("explain") && script.contains("demo"), "{shell}: {script}");
    }
}

#[test]
fn every_subcommand_has_a_manual_page() {
    let scratch = Scratch::new();
    said(&["manual", scratch.0.to_str().unwrap()]);
    let read = |name: &str| fs::read_to_string(scratch.0.join(name)).unwrap();
    for name in [
        "demo",
        "devices",
        "metrics",
        "run",
        "top",
        "metrics",
        "explain",
        "doctor",
        "check",
        "rehearse",
        "exposure",
        "trace",
        "bench",
        "completions",
    ] {
        let page = read(&format!("transom-{name}.1"));
        assert!(page.contains(".SH SYNOPSIS"), "{name}: {page}");
    }
    assert!(read("transom-run.1").contains(".SH EXAMPLES"));
    assert!(read("transom.1").contains("transom\\-run(1)"));
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 14);
}

/// Each finding has a state, a topic and advice. The exit status is 1 if one fails.
#[test]
fn the_doctor_s_status_is_what_it_found() {
    let library = with_library();
    let healthy = findings(transom(&["doctor"]).env("TRANSOM_LIB", &library.0));
    let ill = findings(transom(&["doctor"]).env("TRANSOM_LIB", "/nowhere"));
    for ((output, found), at_least) in [(&healthy, 0), (&ill, 1)] {
        for finding in found {
            let fields = finding.as_object().unwrap();
            assert!(fields.keys().eq(["fix", "sentence", "state", "topic"]), "{finding}");
            let state = finding["state"].as_str().unwrap();
            assert!(["ok", "note", "slow", "fails"].contains(&state), "{finding}");
        }
        let fails = found.iter().any(|finding| finding["state"] == "fails");
        assert_eq!(output.status.code(), Some(i32::from(fails)), "{found:?}");
        assert!(output.status.code() >= Some(at_least), "{found:?}");
    }
    let is_found =
        |it: &Value| it["topic"] == "library" && it["sentence"].to_string().contains("so.1");
    assert!(healthy.1.iter().any(is_found), "{healthy:?}");
}

/// The doctor's findings with `--json`, which changes nothing else.
fn findings(doctor: &mut Command) -> (Output, Vec<Value>) {
    let output = output(doctor.arg("--json"));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = found["findings"].as_array().expect("a list").clone();
    (output, found)
}

/// People and programs get the same findings.
#[test]
fn the_doctor_tells_people_the_same() {
    let library = with_library();
    let doctor = || {
        let mut doctor = transom(&["doctor"]);
        doctor.env("TRANSOM_LIB", &library.0);
        doctor
    };
    let text = String::from_utf8(output(&mut doctor()).stdout).unwrap();
    let text = on_one_line(&text);
    for finding in findings(&mut doctor()).1 {
        // Other processes come and go meanwhile.
        if finding["topic"] == "registered" {
            continue;
        }
        let state = finding["state"].as_str().unwrap();
        let mut line = format!("{state} {}", finding["sentence"].as_str().unwrap());
        if let Some(fix) = finding["fix"].as_str() {
            line += &format!(": {fix}");
        }
        assert!(text.contains(&line), "{line}: {text}");
    }
}

#[test]
fn the_doctor_tells_the_limits_of_a_process() {
    for (limit, words) in [
        ("-n 256", "256 descriptors"),
        ("-l 64", "64 KiB of memory"),
        ("-v 102400", "100 MiB of address space"),
        ("-f 2048", "KiB long"),
    ] {
        let doctor = format!("ulimit {limit} && exec \"$0\" doctor \"$@\"");
        let mut sh = Command::new("sh");
        let found = findings(sh.args(["-c", &doctor, env!("CARGO_BIN_EXE_transom")])).1;
        let is_it =
            |it: &Value| it["state"] == "note" && it["sentence"].to_string().contains(words);
        assert!(found.iter().any(is_it), "{found:?}");
    }
}

/// A script that has this command as its `$0`, in network and mount namespaces of its own.
fn unshare(script: &str) -> Command {
    // SAFETY: it has no arguments and cannot fail.
    let user: &[&str] = if unsafe { libc::geteuid() } == 0 { &[] } else { &["--map-root-user"] };
    let mut command = Command::new("unshare");
    let shell = ["--net", "--mount", "sh", "-euc", script, env!("CARGO_BIN_EXE_transom")];
    command.args(user).args(shell);
    command
}

/// Whether this system lets the test make namespaces.
fn can_unshare() -> bool {
    let can = output(&mut unshare("mount -t tmpfs tmpfs /dev/shm")).status.success();
    if !can {
        println!("skipped: no namespaces can be made here (unshare)");
    }
    can
}

/// If the root is not a mount, no mount namespace can have mounts.
#[test]
fn the_files_of_the_device_are_seen_in_a_plain_chroot() {
    if !can_unshare() {
        return;
    }
    let scratch = Scratch::new();
    let script = format!(
        "cd {}
        mkdir tmp dev
        for path in /usr /bin /lib /lib64 /etc /proc \"$(dirname \"$0\")\"; do
            if [ -h $path ]; then
                ln -s $(readlink $path) .$path
            elif [ -d $path ]; then
                mkdir -p .$path
                mount --rbind $path .$path
            fi
        done
        chroot . \"$0\" run -- cat /sys/class/infiniband/transom0/node_type",
        scratch.0.display()
    );
    let found = output(&mut unshare(&script));
    assert_eq!(String::from_utf8_lossy(&found.stdout), "1: CA\n", "{found:?}");
    assert_eq!(complaint(&found), "");
}

/// In namespaces of its own, if the system allows that.
#[test]
fn the_doctor_tells_of_a_port_that_is_taken_and_of_no_room() {
    if !can_unshare() {
        return;
    }
    let taken = "import socket, subprocess, sys
port = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
port.bind(('::', 4791))
subprocess.run([sys.argv[1], 'doctor'])";
    let script =
        format!("mount -t tmpfs -o size=1m tmpfs /dev/shm\n/usr/bin/python3 -c \"{taken}\" \"$0\"");
    let text = String::from_utf8_lossy(&output(&mut unshare(&script)).stdout).into_owned();
    let text = on_one_line(&text);
    for words in ["note other hosts cannot be reached: UDP port 4791", "KiB are free in /dev/shm"] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn wrong_usage_is_told() {
    for arguments in [&[][..], &["dmeo"], &["explain", "--limit", "few"], &["run"]] {
        let output = output(&mut transom(arguments));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(complaint(&output).contains("Usage") || complaint(&output).contains("--help"));
    }
    // What is far from all names is taken for none of them, and an address is shown.
    let of = |arguments: &[&str]| complaint(&output(&mut transom(arguments)));
    assert!(of(&["check", "--explain", "work-lots"]).contains("'work-lost'"));
    assert!(!of(&["check", "--explain", "nonsense"]).contains("similar"));
    let address = of(&["metrics", "--listen", "localhost:9880"]);
    assert!(on_one_line(&address).contains("such as 127.0.0.1:9879"), "{address}");
    assert!(said(&["--help"]).contains("Exit status"));
    assert!(said(&["explain", "--help"]).contains("outside_by"));
}

/// A status says nothing by itself. Neither does a row that is about another one.
#[test]
fn a_status_is_explained_without_a_case() {
    let causes = said(&["explain", "retry_exc_err"]);
    let begins = "IBV_WC_RETRY_EXC_ERR:\n  Nobody answers: the QP number or GID is wrong";
    assert!(causes.starts_with(begins) && !causes.contains("RNR"), "{causes}");
    assert!(said(&["explain", "EINVAL"]).contains("ibv_modify_qp, EINVAL:\n"));
    let unknown = output(&mut transom(&["explain", "hello"]));
    assert_eq!(unknown.status.code(), Some(2));
    assert!(complaint(&unknown).contains("`--process hello`"), "{unknown:?}");
}

/// Who asks for the short help sees how to type it.
#[test]
fn the_short_help_of_run_has_its_examples_and_the_manual_all_of_it() {
    let short = said(&["run", "-h"]);
    assert!(short.contains("transom run --explain -- make check"), "{short}");
    assert!(!short.contains("port-down=T,at=T") && short.lines().count() < 60, "{short}");
    assert!(said(&["run", "--help"]).contains("port-down=T,at=T"));
    let scratch = Scratch::new();
    said(&["manual", scratch.0.to_str().unwrap()]);
    let page = fs::read_to_string(scratch.0.join("transom-run.1")).unwrap();
    assert!(page.contains("at=T"), "{page}");
}

/// As in `transom explain | head -1`.
#[test]
fn a_reader_may_leave_early() {
    for arguments in [&["completions", "bash"][..], &["bench", "--quick"], &["bench", "--json"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = output(transom(arguments).stdout(writer));
        assert_eq!((output.status.code(), complaint(&output)), (Some(0), String::new()));
    }
    let doctor = |broken: bool| {
        let (reader, writer) = std::io::pipe().unwrap();
        let reader = (!broken).then_some(reader);
        let output = output(transom(&["doctor"]).stdout(writer));
        drop(reader);
        (output.status.code(), complaint(&output))
    };
    assert_eq!(doctor(true), doctor(false));
}

#[test]
fn a_full_disk_is_told() {
    for arguments in [&["doctor"][..], &["bench", "--quick"], &["explain"], &["devices"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = output(transom(arguments).stdout(full));
        let said = complaint(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(
            said.starts_with("error: cannot write to standard output: No space left"),
            "{said}"
        );
    }
}

/// Its figures are still printed.
#[test]
fn a_busy_machine_is_not_judged() {
    let done = AtomicBool::new(false);
    let json = std::thread::scope(|scope| {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..processors {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let bench = ["bench", "--quick", "--json", "WRITE of 8 bytes, to its completion"];
        let printed = output(&mut transom(&bench));
        done.store(true, Ordering::Relaxed);
        String::from_utf8(printed.stdout).unwrap()
    });
    let rows: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [machine, row] = &rows[..] else { panic!("{json}") };
    assert!(machine["others"].as_f64() > Some(0.1), "{json}");
    assert!(row["others"].as_f64() > Some(0.1), "{json}");
    assert!(row["figures"].as_array().unwrap().iter().all(|it| it["median"].is_f64()), "{json}");
    let target = &row["targets"][0];
    assert!(target["ratio"].is_f64() && target["met"].is_null(), "{json}");
}

/// The error says what is wrong with a fault, where, and what is allowed. The program does not run.
#[test]
fn faults_that_make_no_sense_are_refused() {
    for (faults, words) in [
        (&["loss=1"][..], "`loss=1`: `1` is not a share from 0% to 100%"),
        (&["nak=remote-access,op=bind"], "`op=bind`: `bind` is not one of any, send, write"),
        (&["loss=1%", "delay=1ms", "loss=2%"], "--fault: loss is given twice"),
        (&["rnr,op=send", "seed=7"], "--fault: `seed=7` does nothing alone; add what it is for"),
        (&["device-removal,at=1s,device=1"], "--fault: `device=1`: the program has one device, 0"),
        (&["port-down=1s,device=x"], "`device=x`: `x` is not the number of a device, from 0"),
    ] {
        let options = faults.iter().flat_map(|fault| ["--fault", fault]);
        let refused = output(transom(&["run"]).args(options).args(["--", "echo", "ran"]));
        assert_eq!((refused.status.code(), &refused.stdout[..]), (Some(2), &b""[..]));
        assert!(complaint(&refused).contains(words), "{refused:?}");
    }
    let options = ["run", "--devices", "3", "--fault", "port-down=1s,device=3", "--", "true"];
    let refused = output(&mut transom(&options));
    assert_eq!(refused.status.code(), Some(2));
    assert!(complaint(&refused).contains("the program has the devices 0 to 2"), "{refused:?}");
}

/// What the user told of the devices holds in a rehearsal too, and what is no set of devices is refused.
#[test]
fn devices_are_those_that_the_user_told() {
    let library = with_library();
    let seen = std::env::temp_dir().join(format!("transom-told-{}", std::process::id()));
    let line = format!("echo $TRANSOM_DEVICES >>{}", seen.display());
    let mut rehearse = transom(&["rehearse", "--as", "mlx5", "--", "sh", "-c", &line]);
    output(rehearse.env("TRANSOM_LIB", &library.0).env("TRANSOM_DEVICES", "a;b,port=down"));
    let told = fs::read_to_string(&seen).expect("the program ran");
    fs::remove_file(seen).expect("it is there");
    assert!(told.lines().all(|line| line == "a;b,port=down") && !told.is_empty(), "{told:?}");
    let last = format!("a{}", u32::MAX);
    let options = ["run", "--device-name", &last, "--devices", "2", "--", "echo", "ran"];
    let refused = output(&mut transom(&options));
    assert_eq!((refused.status.code(), &refused.stdout[..]), (Some(2), &b""[..]));
    assert!(complaint(&refused).contains("is there twice"), "{refused:?}");
}

/// Values that a variable may not have, and words of the error about allowed values. The other variables take any
/// value: a file or a directory, and the error says what is wrong with it.
const WRONG: [(&str, &str, &str); 16] = [
    ("TRANSOM_DEVICE_NAME", "a/b", "letters, digits"),
    ("TRANSOM_DEVICES", "a;b,speed=3", "is no speed of a port"),
    ("TRANSOM_WINDOWS", "2C", "may be 2A or 2B"),
    ("TRANSOM_COPY", "ring", "may be rings or best"),
    ("TRANSOM_MEMORY", "mine", "may be private or shared"),
    ("TRANSOM_LINK", "wrie", "may be wire"),
    ("TRANSOM_CONGESTION", "yes", "may be notify"),
    ("TRANSOM_CONNECT_TIMEOUT", "0", "may be a number of milliseconds"),
    ("TRANSOM_LAST_BYTE", "yes", "may be tells"),
    ("TRANSOM_LOG", "much", "may be off, error, warn, info, debug or trace"),
    ("TRANSOM_FAULT", "loss=2", "is not a share from 0% to 100%"),
    ("TRANSOM_FAULT", "device-removal,at=1s,device=1", "the program has one device, 0"),
    ("TRANSOM_FAULT_RUN", "x", "may be what `transom run` sets it to"),
    ("TRANSOM_WATCHER", "x", "may be what `transom run` sets it to"),
    ("TRANSOM_TRACE", "x", "may be what `transom run` sets it to"),
    ("TRANSOM_EXPLAIN", "x", "may be what `transom run` sets it to"),
];
const FILES: [&str; 6] = [
    "TRANSOM_LIB",
    "TRANSOM_CAPTURE",
    "TRANSOM_CHECK",
    "TRANSOM_EXPOSURE",
    "TRANSOM_REHEARSE",
    "TRANSOM_TREE",
];

/// `transom run` does not start the program, and no device opens.
#[test]
fn a_variable_with_an_unknown_value_is_an_error_that_names_what_is_allowed() {
    let library = with_library();
    let mut tried: Vec<_> = WRONG.iter().map(|(name, ..)| *name).chain(FILES).collect();
    let mut all = ALL.map(|it| it.name);
    tried.sort_unstable();
    tried.dedup();
    all.sort_unstable();
    assert_eq!(tried, all);
    for (name, value, allowed) in WRONG {
        let run = output(
            transom(&["run", "--", "echo", "ran"]).env("TRANSOM_LIB", &library.0).env(name, value),
        );
        assert_eq!((run.status.code(), &run.stdout[..]), (Some(2), &b""[..]), "{name}");
        let opened = output(transom(&["devices"]).env(name, value));
        // `TRANSOM_LOG` is read by the command itself.
        let status = if name == "TRANSOM_LOG" { 2 } else { 1 };
        assert_eq!((opened.status.code(), &opened.stdout[..]), (Some(status), &b""[..]), "{name}");
        for refused in [&run, &opened] {
            let said = complaint(refused);
            assert!(said.contains(name) && said.contains(allowed), "{said}");
        }
        if status == 1 {
            assert!(complaint(&opened).contains("Invalid argument"), "{}", complaint(&opened));
        }
    }
    // An empty variable counts as not set.
    for (name, ..) in WRONG {
        let mut run = transom(&["run", "--", "true"]);
        let run = output(run.env("TRANSOM_LIB", &library.0).env(name, ""));
        assert!(run.status.success(), "{name}: {run:?}");
    }
}

#[test]
fn a_variable_that_nobody_reads_is_warned_of_with_the_nearest() {
    let library = with_library();
    let run = |name| {
        let mut run = transom(&["run", "--", "true"]);
        complaint(&output(run.env("TRANSOM_LIB", &library.0).env(name, "wire")))
    };
    let said = run("TRANSOM_LNIK");
    assert!(said.contains("nobody reads TRANSOM_LNIK; did you mean TRANSOM_LINK?"), "{said}");
    assert!(!run("TRANSOM_LINK").contains("nobody reads"));
}

/// Each variable that users may set.
#[test]
fn variables_are_in_the_help_text_and_in_the_book() {
    let help = on_one_line(&said(&["run", "--help"]));
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/run.md");
    let page = fs::read_to_string(page).unwrap();
    for variable in ALL.iter().filter(|it| !it.effect.is_empty()) {
        let set = format!("{}={}", variable.name, variable.value);
        assert!(help.contains(&format!("{set} {}", variable.effect)), "{set}: {help}");
        assert!(page.contains(&format!("| `{set}` |")), "{set} is not in docs/run.md");
    }
}

/// Faults reach the program. Those of a network reach the link that has packets.
#[test]
fn faults_reach_the_program() {
    let line = "echo $TRANSOM_FAULT $TRANSOM_LINK";
    let run = |fault| said(&["run", "--fault", fault, "--", "sh", "-c", line]);
    assert_eq!(run("op=read, drop"), "drop,op=read,nth=1..\n");
    assert_eq!(run("delay=1ms,loss=0.5%"), "loss=0.5%,delay=1ms wire\n");
    let in_pieces = ["run", "--fault", "seed=7", "--fault", "loss=1%", "--", "sh", "-c", line];
    assert_eq!(said(&in_pieces), "loss=1%,seed=7 wire\n");
    assert_eq!(run("port-down=2s"), "port-down=2s,at=0ns wire\n");
    for fault in ["reject=28,op=req,nth=1", "delay=3s,op=rep,nth=1", "device-removal,at=5s"] {
        assert_eq!(run(fault), format!("{fault}\n"));
    }
}
