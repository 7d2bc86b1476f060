//! `transom top`: what it shows of programs of known traffic, in a real terminal and for programs.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::Value;
use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::{Scratch, Way, alone, fork_once, interfaces_up};
use transom_conformance::programs::{Running, command, program};
use transom_conformance::queues::number;
use transom_conformance::watching::counters;
use transom_host::Options;
use transom_system::registry::Registry;
use transom_system::segment::Segment;
use transom_system::tools::{self, Tool};

use super::losing::losing_a_write;
use super::roles::{READ, Roles, WRITTEN};

fn top(arguments: &[&str]) -> String {
    let mut top = Command::new(&command()[0]);
    let output = top.arg("top").args(arguments).output().expect("the command");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The object of a process.
fn of(json: &Value, pid: u32) -> &Value {
    let processes = json["processes"].as_array().expect("processes");
    processes.iter().find(|it| it["pid"] == pid).unwrap_or_else(|| panic!("{pid} in {json:#}"))
}

/// A process forks while somebody looks at the depths of its many queues, again and again.
fn forked() {
    const QUEUE_PAIRS: usize = 3000;
    const FORKS: usize = 100;
    let end = End::new(Options::default());
    let queue_pairs: Vec<_> = (0..QUEUE_PAIRS).map(|_| end.qp(IBV_QPT_RC)).collect();
    let registry = Registry::open().expect("a registry");
    let own = registry.processes().into_iter().find(|it| it.alive && it.pid == std::process::id());
    let own = own.expect("it is there");
    let segment = Segment::of(&own).expect("its segment");
    let wake = File::from(registry.wake_of(own.announcer.slot).expect("its pipe"));
    let is_over = AtomicBool::new(false);
    let ask = || {
        while !is_over.load(Relaxed) {
            segment.header().wanted.ask(Tool::Latencies);
            let _ = (&wake).write(&[0]);
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        let _over = Over(&is_over);
        scope.spawn(ask);
        until("times to be wanted", || tools::is_on(Tool::Latencies).then_some(()));
        for _ in 0..FORKS {
            fork_once(|| {
                // SAFETY: this ends the child, if it hangs.
                unsafe { libc::alarm(60) };
                for qp in &queue_pairs {
                    query(*qp);
                }
                poll(end.cq).is_none()
            });
        }
    });
}

/// The thread that looks at them holds the locks of queues, which a child would find locked for ever.
///
/// Rules: SEE-40
#[test]
fn a_child_that_is_forked_while_somebody_looks_at_depths_can_poll() {
    let test = path_of!("a_child_that_is_forked_while_somebody_looks_at_depths_can_poll");
    alone(test, Way::Namespace, forked);
}

fn once_json() -> Value {
    serde_json::from_str(&top(&["--once", "--json", "--interval", "0.1"])).expect("JSON")
}

fn known_traffic() {
    interfaces_up();
    let mut roles = Roles::new("known");
    let json = once_json();
    let (owner, guest) = (of(&json, roles.owner.pid()), of(&json, roles.guest.pid()));
    let sum = (WRITTEN.0 + READ.0, WRITTEN.1 + READ.1);
    for (process, busy, idle) in [(guest, "sent", "received"), (owner, "received", "sent")] {
        assert_eq!(process[busy]["host"]["messages"], sum.0, "{process:#}");
        assert_eq!(process[busy]["host"]["bytes"], sum.1.to_string());
        assert_eq!(process[busy]["host"]["messages_per_second"], 0.0);
        assert_eq!(process[idle]["host"]["messages"], 0);
        assert_eq!(process[busy]["wire"]["messages"], 0);
        let [qp] = &process["queue_pairs"].as_array().expect("a list")[..] else {
            panic!("{process:#}")
        };
        assert_eq!((&qp["transport"], &qp["state"]), (&"RC".into(), &"RTS".into()));
        assert_eq!(qp[busy]["host"]["messages"], sum.0);
    }
    let qp = |process: &Value| process["queue_pairs"][0].clone();
    assert_eq!(qp(guest)["peer_qp"], qp(owner)["qp"]);
    assert_eq!(qp(owner)["peer_pid"], roles.guest.pid());
    assert_eq!(owner["objects"]["mr"], 1);
    let open = ["window", "region"].map(|of| owner[format!("open_{of}_bytes")].clone());
    assert_eq!(open, ["4096", "65536"]);
    assert_eq!((&owner["open_windows"], &owner["binds"]), (&1.into(), &1.into()));
    let (region, window) = (&owner["regions"][0], &owner["windows"][0]);
    let base = |it: &Value| it["base"].as_str().and_then(|base| base.parse::<u64>().ok());
    assert_eq!(base(window), base(region).map(|base| base + 32_768));
    assert_eq!(window["access"], serde_json::json!(["REMOTE_WRITE"]));
    assert_eq!(window["qp"], qp(owner)["qp"]);
    assert_eq!(owner["listeners"][0]["local"], "127.0.0.1:7471");
    let peer = guest["connections"][0]["peer"].as_str().expect("it is connected");
    assert!(peer.ends_with(":7471"), "{peer}");
    assert_eq!(json["refusals"], serde_json::json!([]));

    // While something moves, there are rates.
    roles.guest.go_on();
    let json = until("the rates", || {
        let json = once_json();
        let rate = of(&json, roles.guest.pid())["sent"]["host"]["bytes_per_second"].as_f64();
        (rate > Some(0.0)).then_some(json)
    });
    let rate = |process: &Value, way: &str, what: &str| {
        process[way]["host"][what].as_f64().expect("a number")
    };
    let guest = of(&json, roles.guest.pid());
    let bytes = rate(guest, "sent", "bytes_per_second");
    let messages = rate(guest, "sent", "messages_per_second");
    assert!((bytes - 4096.0 * messages).abs() < 1.0, "{bytes} and {messages}");
    // How long the WRITEs took, as long as there are some.
    let write = until("latencies", || {
        let json = once_json();
        assert_eq!(of(&json, roles.owner.pid())["latencies"], serde_json::json!([]));
        let all = of(&json, roles.guest.pid())["latencies"].as_array().expect("a list");
        assert!(all.len() < 2, "{all:?}");
        all.first().cloned()
    });
    assert_eq!(write["operation"], "write");
    assert!(write["count"].as_u64() > Some(0), "{write}");
    let [p50, p99] = ["p50_ns", "p99_ns"].map(|name| {
        write[name].as_str().and_then(|it| it.parse::<u64>().ok()).expect("it is short")
    });
    assert!(p50 >= 128 && p99 >= p50, "{write}");
    roles.guest.go_on();
    roles.guest.says("refused");
    let json = once_json();
    assert_eq!(of(&json, roles.owner.pid())["refused"], 1);
    // It carries out nothing any more.
    assert_eq!(of(&json, roles.guest.pid())["latencies"], serde_json::json!([]));
    let refusal = &json["refusals"][0];
    assert_eq!((&refusal["reason"], &refusal["count"]), (&"past_end".into(), &1.into()));
    assert_eq!(refusal["pid"], roles.owner.pid());
}

/// Rules: SEE-30, SEE-31, SEE-36
#[test]
fn top_tells_of_each_process_what_it_carried_and_opened() {
    let path = path_of!("top_tells_of_each_process_what_it_carried_and_opened");
    alone(path, Way::Namespace, known_traffic);
}

/// Work waits in each kind of queue, and is taken.
fn filling() {
    let it = MemoryPair::new(Link::Loopback, 64);
    let Pair { qa, qb, .. } = it.pair;
    (0..5).for_each(|number| it.recv(qb, number, 64));
    for _ in 0..2 {
        assert_eq!(it.op(IBV_WR_SEND, 0, 0, 8).status, IBV_WC_SUCCESS);
    }
    // Here nobody has a receive, and the peer waits for one.
    let (waits, never) = it.pair.another_with(|attr| attr.rnr_retry = 7, |_| ());
    (0..4).for_each(|_| it.post_op(waits, IBV_WR_SEND, 0, 0, 8));
    // SAFETY: queue pairs of this test.
    let numbers = [qa, qb, waits, never].map(|qp| unsafe { (*qp).qp_num });
    let depths = || {
        let json = once_json();
        let all = json["processes"].as_array().expect("processes").iter();
        let all = all.flat_map(|it| it["queue_pairs"].as_array().expect("a list"));
        let all: Vec<_> = all.collect();
        numbers.map(|number| {
            let qp = all.iter().find(|it| it["qp"] == number).expect("it is there");
            ["sends", "receives", "completions"].map(|name| qp[name].as_u64())
        })
    };
    // The queue pairs of an end share its completion queue.
    let full = [[0, 0, 0], [0, 3, 2], [4, 0, 0], [0, 0, 2]].map(|all| all.map(Some));
    until("full queues", || (depths() == full).then_some(()));
    (0..4).for_each(|number| it.recv(never, number, 64));
    for _ in 0..4 {
        it.pair.a.expect(IBV_WC_SUCCESS);
    }
    for _ in 0..6 {
        it.pair.b.expect(IBV_WC_SUCCESS);
    }
    let empty = [[0, 0, 0], [0, 3, 0], [0, 0, 0], [0, 0, 0]].map(|all| all.map(Some));
    until("empty queues", || (depths() == empty).then_some(()));
}

/// Rules: SEE-30
#[test]
fn top_tells_how_much_waits_in_each_queue() {
    alone(path_of!("top_tells_how_much_waits_in_each_queue"), Way::Namespace, filling);
}

/// A terminal of tmux, in which a shell runs.
struct Terminal {
    socket: PathBuf,
    _server: Running,
}

impl Terminal {
    fn new(scratch: &Scratch, (columns, rows): (u16, u16)) -> Self {
        let socket = scratch.path().join("tmux");
        let configuration = scratch.path().join("tmux.conf");
        let set = "set -g exit-empty off\nset -g default-terminal tmux-256color\nset -g status off\n\
                   set -s escape-time 0\n";
        std::fs::write(&configuration, set).expect("a file");
        let mut server = Command::new(program("tmux", "tmux"));
        server.arg("-D").arg("-S").arg(&socket).arg("-f").arg(&configuration);
        // A locale of UTF-8, without which tmux shows no other letters. The shell has no start-up files.
        server.env("LC_ALL", "C.UTF-8").env("ENV", "").env_remove("TMUX");
        let server = Running::start(&mut server);
        let terminal = Self { socket, _server: server };
        until("the server", || terminal.socket.exists().then_some(()));
        let (columns, rows) = (columns.to_string(), rows.to_string());
        terminal.tmux(&["new-session", "-d", "-x", &columns, "-y", &rows, "sh"]);
        terminal.types("PS1='ready''> '");
        terminal.keys(&["Enter"]);
        terminal.shows(&["ready>"]);
        terminal
    }

    fn tmux(&self, words: &[&str]) -> String {
        let mut tmux = Command::new(program("tmux", "tmux"));
        let tmux = tmux.arg("-S").arg(&self.socket).args(words).env("LC_ALL", "C.UTF-8");
        let output = tmux.output().expect("tmux");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tmux {words:?}: {said}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys", "--"], keys].concat());
    }

    fn types(&self, line: &str) {
        self.tmux(&["send-keys", "-l", "--", line]);
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until so many lines have all of this in them: a screen may be read while it is drawn.
    fn lists(&self, count: usize, parts: &[&str]) -> String {
        self.until(&format!("{parts:?}"), |screen| with(screen, parts).count() == count)
    }

    /// Waits until all of this stands on the screen.
    fn shows(&self, all: &[&str]) -> String {
        self.until(&format!("{all:?}"), |screen| all.iter().all(|part| screen.contains(part)))
    }

    fn until(&self, what: &str, stands: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let screen = self.screen();
            if stands(&screen) {
                return screen;
            }
            assert!(Instant::now() < end, "waited in vain for {what} in\n{screen}");
            std::thread::yield_now();
        }
    }

    /// The program that the shell waits for.
    fn program(&self) -> libc::pid_t {
        let shell = self.tmux(&["list-panes", "-F", "#{pane_pid}"]);
        let shell = shell.trim();
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"));
        children.expect("the shell runs").trim().parse().expect("it has one child")
    }

    fn resize(&self, columns: u16, rows: u16) {
        self.tmux(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
    }

    /// A click of the left button on the first place of a text.
    fn click(&self, text: &str) {
        let screen = self.screen();
        let found = screen.lines().enumerate().find_map(|(row, line)| {
            let at = line.find(text)?;
            Some((line[..at].chars().count() + 1, row + 1))
        });
        let (column, row) = found.unwrap_or_else(|| panic!("no {text} in\n{screen}"));
        for end in ['M', 'm'] {
            self.types(&format!("\x1b[<0;{column};{row}{end}"));
        }
    }
}

/// The line of a screen with all of this in it.
fn line<'s>(screen: &'s str, parts: &[&str]) -> &'s str {
    with(screen, parts).next().unwrap_or_else(|| panic!("no line with {parts:?} in\n{screen}"))
}

fn with<'s>(screen: &'s str, parts: &[&str]) -> impl Iterator<Item = &'s str> {
    screen.lines().filter(|line| parts.iter().all(|part| line.contains(part)))
}

fn on_a_terminal() {
    interfaces_up();
    let mut roles = Roles::new("terminal");
    let terminal = Terminal::new(&roles.scratch, (80, 24));
    let [owner, guest] = [roles.owner.pid(), roles.guest.pid()].map(|pid| pid.to_string());
    let transom = command()[0].display().to_string();
    terminal.types(&format!("{transom} top --interval 0.1"));
    terminal.keys(&["Enter"]);

    // Both processes, and their queue pairs below.
    terminal.shows(&["transom top", "2 processes", "1 Processes", &owner, &guest]);
    let screen = terminal.lists(2, &["RTS", &owner, &guest]);
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");

    // The memory of the owner: a window in the middle of its region.
    terminal.keys(&["3"]);
    let screen = terminal.shows(&["▒▓", "▓ 2B window "]);
    let region = line(&screen, &["64.0Ki", "RW-", "▒▓"]);
    // Of 38 cells, the window touches three.
    assert_eq!(['▒', '▓'].map(|shade| region.matches(shade).count()), [35, 3], "{region}");
    line(&screen, &["4.0Ki", "-W-", "window +0x8000"]);

    // Who is connected.
    terminal.keys(&["Tab"]);
    terminal.lists(1, &["127.0.0.1:7471", "listens"]);
    terminal.lists(1, &[&guest, "connected"]);

    // Only the guest: by a filter, and then all again.
    terminal.keys(&["/"]);
    terminal.types(&guest);
    terminal.until("the guest alone", |it| it.contains("Filter: ") && !it.contains(&owner));
    terminal.keys(&["Escape"]);
    terminal.shows(&[&owner, &guest]);

    // Sorted by name, PID and PID again: by clicks on titles.
    let order = |screen: &str| {
        let at = |pid: &str| screen.find(pid).expect("it is listed");
        at(&owner) < at(&guest)
    };
    let first = order(&terminal.screen());
    terminal.keys(&["1"]);
    terminal.click("PID");
    terminal.until("the other order", |screen| order(screen) != first);
    terminal.keys(&["r"]);
    terminal.until("the first order", |screen| order(screen) == first);

    // What moves, and on a large screen everything at once.
    roles.guest.go_on();
    terminal.resize(200, 50);
    let screen = terminal.until("rates in all panels", |screen| {
        let moves = |line: &str| line.starts_with(" host ") && !line.contains(" 0 ");
        screen.contains("5 Refusals") && screen.lines().any(moves)
    });
    for title in ["1 Processes", "2 Queue pairs", "3 Memory", "4 Connections", "5 Refusals"] {
        line(&screen, &[title]);
    }
    terminal.until("latencies", |screen| {
        let units = ["ns", "µs", "ms"];
        with(screen, &[&guest, "write"]).any(|line| units.iter().any(|unit| line.contains(unit)))
    });

    // What the guest touches lights up: the window, and nothing else.
    let screen = terminal.until("a touch", |screen| {
        let region = line(screen, &["64.0Ki", "RW-"]);
        region.contains('█') && !region.contains('▓')
    });
    assert!(line(&screen, &["64.0Ki", "RW-"]).contains("▒█"), "{screen}");

    // It holds still as long as it is paused.
    terminal.keys(&["p"]);
    terminal.shows(&["PAUSED"]);
    roles.guest.go_on();
    roles.guest.says("refused");
    let paused = terminal.screen();
    assert!(paused.contains("Nothing was refused or revoked."), "{paused}");
    terminal.keys(&["p"]);
    terminal.shows(&["RA-33", "REMOTE"]);
    terminal.keys(&["?"]);
    terminal.shows(&["any key closes it"]);
    terminal.keys(&["Escape"]);
    terminal.until("the panels", |screen| !screen.contains("any key closes it"));

    // It stops and goes on as any program in a shell does.
    terminal.keys(&["C-z"]);
    terminal.shows(&["Stopped"]);
    terminal.types("clear; fg");
    terminal.keys(&["Enter"]);
    terminal.shows(&["1 Processes"]);
    terminal.keys(&["q"]);
    terminal.until("the shell", |screen| !screen.contains("1 Processes"));
    terminal.types("echo status $?");
    terminal.keys(&["Enter"]);
    terminal.shows(&["status 0"]);
}

/// Rules: SEE-32, SEE-33, SEE-35
#[test]
fn top_shows_it_in_a_terminal_as_keys_and_mouse_ask() {
    let path = path_of!("top_shows_it_in_a_terminal_as_keys_and_mouse_ask");
    alone(path, Way::Namespace, on_a_terminal);
}

/// Each way in which something is closed to peers, while somebody looks.
fn revoked() {
    interfaces_up();
    let it = MemoryPair::new(Link::Loopback, 4096);
    let Pair { a, b, qa, qb } = &it.pair;
    let mut watch = Command::new(&command()[0]);
    let mut watch = Running::start(watch.args(["top", "--json", "--interval", "0.1"]));
    until("events to be wanted", || tools::is_on(Tool::Events).then_some(()));

    let range = |at, access| Range { mr: it.mb, addr: it.far.addr() + at, length: 64, access };
    let (read, write) = (IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE);
    let window = b.mw(IBV_MW_TYPE_2);
    let by_itself = bind(b, *qb, window, range(0, write));
    post(*qb, &mut local_inv_wr(by_itself));
    b.expect(IBV_WC_SUCCESS);
    let by_peer = bind(b, *qb, window, range(64, read));
    it.recv(*qb, 1, 64);
    let mut invalidates = wr(IBV_WR_SEND_WITH_INV);
    invalidates.imm.invalidate_rkey = by_peer;
    post(*qa, &mut invalidates);
    for end in [a, b] {
        end.expect(IBV_WC_SUCCESS);
    }
    let first = b.mw(IBV_MW_TYPE_1);
    let keys_of_first = [range(128, write), range(192, write)].map(|it| bind(b, *qb, first, it));
    // It is unbound.
    bind(b, *qb, first, Range { length: 0, ..range(0, 0) });
    let at_end = bind(b, *qb, window, range(256, write));
    assert_eq!(dealloc_mw(window), 0);
    let regions = [IBV_ACCESS_REMOTE_READ as i32, 0].map(|access| it.part(512, 64, access));
    let region = keys(regions[0]).1;
    assert_eq!(regions.map(dereg), [0, 0]);

    let look = || {
        let line = watch.line(Duration::from_secs(30)).expect("a look");
        let json: Value = serde_json::from_str(&line).expect("JSON");
        let all = json["revocations"].as_array().expect("a list");
        // A look reads the counters before it hears of what happens meanwhile.
        let is_counted = of(&json, std::process::id())["invalidations"] == 2;
        let is_last = |it: &Value| it["kind"] == "region";
        (is_counted && all.iter().any(is_last)).then_some(json)
    };
    let json = until("the last revocation", look);
    let type2 = &json["revocations"][4]["kind"];
    assert!([Value::from("window_2a"), "window_2b".into()].contains(type2), "{json:#}");
    let (here, there) = (number(*qb), number(*qa));
    let (deregistered, none) = (Value::Null, None::<u32>);
    let far = it.far.addr();
    let expected = [
        ("region".into(), region, far + 512, "REMOTE_READ", deregistered.clone(), none, none, 1),
        (type2.clone(), at_end, far + 256, "REMOTE_WRITE", deregistered, none, none, 1),
        // Bound anew, and then unbound.
        (
            "window_1".into(),
            keys_of_first[1],
            far + 192,
            "REMOTE_WRITE",
            "bind".into(),
            Some(here),
            none,
            2,
        ),
        (
            type2.clone(),
            by_peer,
            far + 64,
            "REMOTE_READ",
            "remote_invalidate".into(),
            Some(here),
            Some(there),
            1,
        ),
        (type2.clone(), by_itself, far, "REMOTE_WRITE", "invalidate".into(), Some(here), none, 1),
    ];
    let found = json["revocations"].as_array().expect("a list");
    assert_eq!(found.len(), expected.len(), "{json:#}");
    for (found, (kind, key, base, access, operation, qp, peer_qp, count)) in
        found.iter().zip(expected)
    {
        assert_eq!((&found["kind"], &found["key"]), (&kind, &key.into()), "{json:#}");
        assert_eq!((&found["base"], &found["length"]), (&base.to_string().into(), &"64".into()));
        assert_eq!(found["access"], serde_json::json!([access]));
        assert_eq!(found["operation"], operation, "{found}");
        assert_eq!((&found["qp"], &found["peer_qp"]), (&qp.into(), &peer_qp.into()), "{found}");
        assert_eq!((&found["count"], &found["pid"]), (&count.into(), &std::process::id().into()));
    }
    let sentence = found[3]["sentence"].as_str().expect("text");
    let way = format!("was revoked by SEND_WITH_INV from QP {there:#x} to QP {here:#x}");
    assert!(sentence.ends_with(&way), "{sentence}");
    watch.signal(libc::SIGTERM);
}

/// Rules: SEE-30, SEE-31
#[test]
fn top_tells_what_is_revoked_and_how() {
    alone(path_of!("top_tells_what_is_revoked_and_how"), Way::Namespace, revoked);
}

/// The figure of a row below a title.
fn figure(head: &str, row: &str, title: &str) -> Option<u64> {
    let end = head.split_once(title)?.0.chars().count() + title.len();
    let cells: String = row.chars().take(end).collect();
    cells.split_whitespace().last()?.parse().ok()
}

/// A window is revoked before the eyes of who looks. Something was sent again, and nobody had a receive.
fn revoked_on_a_terminal() {
    interfaces_up();
    let it = losing_a_write(65_536);
    let Pair { qa, qb, .. } = it.pair;
    let half = it.far.len() as u64 / 2;
    let range = Range {
        mr: it.part(0, it.far.len(), (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND) as i32),
        addr: it.far.addr() + half,
        length: half,
        access: IBV_ACCESS_REMOTE_WRITE,
    };
    let window = it.pair.b.mw(IBV_MW_TYPE_2);
    let key = bind(&it.pair.b, qb, window, range);

    let scratch = Scratch::new("revoked");
    let terminal = Terminal::new(&scratch, (80, 24));
    terminal.types(&format!("{} top --interval 0.1", command()[0].display()));
    terminal.keys(&["Enter", "3"]);
    // Half of 38 cells, and once more for its own line.
    let cells = |screen: &str, mark: char| {
        let all = with(screen, &["64.0Ki", "---"]);
        all.map(|line| line.matches(mark).count()).max().unwrap_or_default()
    };
    terminal.until("the window", |screen| cells(screen, '▓') == 19);
    until("events to be wanted", || tools::is_on(Tool::Events).then_some(()));
    let (mut key, mut rounds) = (key, 0);
    until("the end of a window to be seen", || {
        if rounds > 0 {
            // On a machine that had others run meanwhile, the moment may be over.
            key = bind(&it.pair.b, qb, window, range);
        }
        rounds += 1;
        // A peer is there just before.
        assert_eq!(it.op(IBV_WR_RDMA_WRITE, range.addr, key, 64).status, IBV_WC_SUCCESS);
        post(qb, &mut local_inv_wr(key));
        it.pair.b.expect(IBV_WC_SUCCESS);
        let begun = Instant::now();
        let mut screens = std::iter::repeat_with(|| terminal.screen());
        let mut screens = screens.by_ref().take_while(|_| begun.elapsed() < Duration::from_secs(2));
        screens.find(|screen| cells(screen, '×') == 19 && cells(screen, '█') == 0)
    });
    terminal.keys(&["5"]);
    let said = format!("and key {key:#010x} was revoked by LOCAL_INV of QP {:#x}", number(qb));
    let screen = terminal.until("its sentence", |screen| {
        let words: Vec<_> = screen.split(|it: char| it.is_whitespace() || it == '│').collect();
        let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
        words.join(" ").contains(&said)
    });
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    terminal.keys(&["3"]);
    terminal.until("three seconds to be over", |screen| {
        screen.contains("3 Memory") && cells(screen, '░') > 30 && cells(screen, '×') == 0
    });

    let (waits, _) = it.pair.another_with(|attr| attr.rnr_retry = 1, |_| ());
    assert_eq!(it.op_on(waits, IBV_WR_SEND, 0, 0, 8).status, IBV_WC_RNR_RETRY_EXC_ERR);
    // The only packet of a WRITE is lost. On a busy machine answers come late, and more goes again.
    let counted = counters();
    let again = ["local_ack_timeout_err", "packet_seq_err", "implied_nak_seq_err"];
    let again = again.map(|name| counted[&format!("hw/{name}")]).into_iter().sum();
    assert!(again > 0, "{counted:?}");
    // Both devices are of this process, the one that asks and the one that has the window.
    let expected = [[0, 0, 2, again], [rounds, rounds, 0, 0]];
    let json = once_json();
    let devices = json["processes"].as_array().expect("processes");
    for (qp, figures) in [qa, qb].into_iter().zip(expected) {
        let has = |it: &Value| it["qp"] == number(qp);
        let is_of =
            |it: &&Value| it["queue_pairs"].as_array().is_some_and(|all| all.iter().any(has));
        let device = devices.iter().find(is_of).expect("it is there");
        let names = ["binds", "invalidations", "not_ready", "retransmissions"];
        assert_eq!(names.map(|name| device[name].as_u64()), figures.map(Some), "{device:#}");
    }
    terminal.resize(200, 50);
    let pid = std::process::id().to_string();
    terminal.until("all figures", |screen| {
        let Some(head) = with(screen, &["PROGRAM", "AGAIN"]).next() else { return false };
        let (_, rows) = screen.split_once(head).expect("it is there");
        let rows = rows.lines().skip(1).take_while(|row| row.contains(&pid));
        let titles = ["BINDS", "REVOKED", "RNR", "AGAIN"];
        let figures = rows.map(|row| titles.map(|title| figure(head, row, title)));
        let mut figures: Vec<_> = figures.collect();
        figures.sort_unstable();
        figures == expected.map(|all| all.map(Some))
    });
    terminal.keys(&["q"]);
    terminal.shows(&["ready>"]);
}

/// Rules: SEE-30, SEE-32, SEE-35
#[test]
fn top_shows_a_revocation_as_it_happens() {
    let path = path_of!("top_shows_a_revocation_as_it_happens");
    alone(path, Way::Namespace, revoked_on_a_terminal);
}

/// Whether each thread of a process blocks both signals, or none of them: that which waits for them seems to block none.
fn are_blocked_alike(process: libc::pid_t, signals: [libc::c_int; 2]) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let mut threads = threads.map(|it| it.expect("a thread").path().join("status"));
    threads.all(|status| {
        let status = std::fs::read_to_string(status).expect("it goes on");
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t"));
        let blocked = u64::from_str_radix(blocked.expect("its mask"), 16).expect("digits");
        let [one, other] = signals.map(|signal| blocked >> (signal - 1) & 1);
        one == other
    })
}

/// A key and another size of the terminal come at once, again and again.
fn resized() {
    interfaces_up();
    let scratch = Scratch::new("resized");
    let terminal = Terminal::new(&scratch, (80, 24));
    // It draws only what these ask for.
    terminal.types(&format!("{} top --interval 3600", command()[0].display()));
    terminal.keys(&["Enter"]);
    terminal.shows(&["None of your processes has an RDMA device open here."]);
    // If the thread that reads keys heard of it, it would forget one of the two where both are there.
    assert!(are_blocked_alike(terminal.program(), [libc::SIGWINCH, libc::SIGTERM]));
    for columns in [100, 90, 120, 80] {
        let (size, is_paused) = (columns.to_string(), columns > 95);
        terminal.tmux(&["resize-window", "-x", &size, ";", "send-keys", "p"]);
        terminal.until(&format!("{columns} columns, {is_paused}"), |screen| {
            let first = screen.lines().next().unwrap_or_default();
            first.chars().count() == columns - 1 && first.contains("PAUSED") == is_paused
        });
    }
}

/// Rules: SEE-32
#[test]
fn a_key_that_comes_with_another_size_of_the_terminal_is_heard() {
    let path = path_of!("a_key_that_comes_with_another_size_of_the_terminal_is_heard");
    alone(path, Way::Namespace, resized);
}

/// However it ends, the terminal is as it was.
fn endings() {
    interfaces_up();
    let scratch = Scratch::new("endings");
    let terminal = Terminal::new(&scratch, (80, 24));
    let transom = command()[0].display().to_string();
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
        terminal.types(&format!("clear; {transom} top; stty -a | grep -o '.icanon'"));
        terminal.keys(&["Enter"]);
        let screen = terminal.shows(&["None of your processes has an RDMA device open here."]);
        assert!(screen.contains("transom run -- PROGRAM"), "{screen}");
        // SAFETY: it is the child of our own shell, which has not waited for it.
        assert_eq!(unsafe { libc::kill(terminal.program(), signal) }, 0);
        let screen = terminal.shows(&["icanon\n", "ready>"]);
        assert!(!screen.contains("-icanon"), "{signal}: {screen}");
        assert_eq!(
            terminal.tmux(&["display-message", "-p", "#{alternate_on}#{mouse_any_flag}"]),
            "00\n"
        );
    }
}

/// Rules: SEE-33
#[test]
fn top_gives_the_terminal_back_however_it_ends() {
    alone(path_of!("top_gives_the_terminal_back_however_it_ends"), Way::Namespace, endings);
}
