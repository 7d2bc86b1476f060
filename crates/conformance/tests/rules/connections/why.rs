//! Calls of `librdmacm.so.1` that fail leave a record of which it was and why, which `transom explain` prints.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use transom::{Connected, Listener, Provider};
use transom_conformance::c_programs::{RDMACM, compile};
use transom_conformance::harness::{Link, take_turn, until};
use transom_conformance::processes::Scratch;
use transom_conformance::programs::library;
use transom_system::registry::{CallRefusal, Registry};

/// These have no answer that says that they failed: they free, or read what is there.
const CANNOT_FAIL: [&str; 6] = [
    "rdma_destroy_event_channel",
    "rdma_event_str",
    "rdma_free_devices",
    "rdma_freeaddrinfo",
    "rdma_get_dst_port",
    "rdma_get_src_port",
];
/// These need nothing but what the system gives.
const TAKE_NOTHING: [&str; 2] = ["rdma_create_event_channel", "rdma_get_devices"];

/// Every function that `librdmacm.so.1` exports and that can fail.
fn functions() -> Vec<&'static str> {
    let map = include_str!("../../../../librdmacm/rdmacm.map");
    let names = map.lines().filter_map(|line| line.trim().strip_suffix(';'));
    let names =
        names.filter(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
    let all: Vec<_> = names.filter(|name| !CANNOT_FAIL.contains(name)).collect();
    assert!(all.len() > 60, "{all:?}");
    all
}

/// A call as the program saw it: the function, and its errno.
type Seen = (String, i32);

/// The program, which has done its part and waits to be let go.
struct Asked {
    running: Child,
    lines: Vec<String>,
    /// Where its refusals are kept.
    slot: u8,
    _scratch: Scratch,
}

impl Asked {
    fn start(words: &[&str]) -> Self {
        let scratch = Scratch::new(&format!("refused-{}", words[0]));
        let program = compile(&scratch, "refused_cm.c", "refused_cm", RDMACM);
        let libraries: &Path = library(env!("CARGO_TARGET_TMPDIR"));
        let mut command = Command::new(&program);
        command.args(words).env("LD_LIBRARY_PATH", libraries).env("CI", "true");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = command.spawn().expect("it was just compiled");
        let lines = BufReader::new(running.stdout.take().expect("a pipe")).lines();
        let lines = lines.map(|line| line.expect("text"));
        let lines = lines.take_while(|line| line != "done").collect();
        let registry = Registry::open().expect("the registry");
        let is_it = |slot: &u8| {
            registry.process(*slot).is_some_and(|it| it.alive && it.pid == running.id())
        };
        let slot = (0..=u8::MAX).find(is_it).expect("it has its device open");
        Self { running, lines, slot, _scratch: scratch }
    }

    /// What was kept of its calls. Each process keeps its last 64.
    fn kept(&self) -> Vec<CallRefusal> {
        let records = Registry::open().expect("the registry").refused_calls(self.slot);
        records.into_iter().map(|record| record.call).collect()
    }

    /// What it saw itself of its calls.
    fn seen(&self) -> Vec<Seen> {
        let seen = |line: &String| {
            let (function, errno) = line.split_once(' ').expect("a call and its errno");
            (function.to_owned(), errno.parse().expect("a number"))
        };
        self.lines.iter().map(seen).collect()
    }

    /// Lets it go: what it said on standard error.
    fn end(mut self) -> String {
        drop(self.running.stdin.take());
        let output = self.running.wait_with_output().expect("it ends");
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(output.status.success(), "{said}");
        said
    }
}

/// A call that fails is kept with its name, its errno and a sentence, whichever function it is.
#[test]
fn every_function_of_librdmacm_says_why_it_fails() {
    take_turn(Link::Wire);
    let all = functions();
    let of_nothing: Vec<_> =
        all.iter().copied().filter(|name| !TAKE_NOTHING.contains(name)).collect();
    let parts = of_nothing.chunks(40).map(|part| [&["of-nothing"], part].concat());
    let mut told = Vec::new();
    for words in parts.chain([vec!["without-descriptors"]]) {
        let asked = Asked::start(&words);
        let (seen, kept) = (asked.seen(), asked.kept());
        asked.end();
        for (function, errno) in seen {
            let of_it = kept.iter().find(|call| call.verb.to_string() == function);
            let of_it = of_it.unwrap_or_else(|| panic!("{function} says nothing: {kept:?}"));
            assert_eq!(of_it.errno, errno, "{of_it}");
            assert!(!of_it.said.is_empty(), "{of_it}");
            told.push(function);
        }
    }
    assert_eq!(told, [of_nothing, TAKE_NOTHING.to_vec()].concat());
}

/// Of an id it says what the id is or does, and what the call takes; of an address what is wrong with it.
#[test]
fn a_call_that_comes_too_early_says_what_comes_before() {
    take_turn(Link::Wire);
    let asked = Asked::start(&["too-early"]);
    let (seen, kept) = (asked.seen(), asked.kept());
    asked.end();
    let sentences: Vec<_> = kept.iter().map(ToString::to_string).collect();
    let expected = [
        "rdma_connect answered EINVAL: the id has no device yet: rdma_resolve_addr, or \
         rdma_bind_addr to an address of a device",
        "rdma_resolve_route answered EINVAL: the id has no address resolved and does not listen; \
         rdma_resolve_route comes after ADDR_RESOLVED, once",
        "rdma_bind_addr answered EADDRNOTAVAIL: the address does not belong to this host: see \
         `ip address`",
        "rdma_listen answered EINVAL: the id listens; an id listens once, and instead of connecting",
        "rdma_bind_addr answered EADDRNOTAVAIL: another id has this port already (`transom devices` says \
         whose); 0.0.0.0, :: and loopback addresses stand for all others",
        "rdma_reject answered EINVAL: the id listens; rdma_reject takes the id of a CONNECT_REQUEST",
    ];
    assert_eq!(sentences, expected);
    assert_eq!(seen.len(), expected.len());
}

/// A call that waits for a second for an acknowledgement says so, in its record and where a CI keeps the output.
/// Rules: CM-52
#[test]
fn an_id_that_waits_for_an_acknowledgement_says_so() {
    take_turn(Link::Wire);
    let asked = Asked::start(&["waits"]);
    let kept = until("it has waited for a second", || asked.kept().pop());
    let sentence = "rdma_destroy_id waits for an event that rdma_get_cm_event gave; acknowledge by \
                    rdma_ack_cm_event";
    assert_eq!(kept.to_string(), sentence);
    let said = asked.end();
    assert_eq!(said.matches(&format!("transom: {sentence}\n")).count(), 1, "{said}");
}

/// The safe API makes the same calls.
#[test]
fn what_the_rust_api_is_refused_is_told_too() {
    let provider = Provider::software();
    let bind = |address: SocketAddr| Listener::<Connected>::bind(&provider, address);
    let first = bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("any port");
    let taken = first.local_address();
    let error = bind(taken).map(drop).expect_err("it is taken");
    assert_eq!(error.errno(), Some(libc::EADDRNOTAVAIL), "{error}");
    let registry = Registry::open().expect("the registry");
    let pid = std::process::id();
    let of_it = |slot: &u8| registry.process(*slot).is_some_and(|it| it.pid == pid);
    let slots = (0..=u8::MAX).filter(of_it);
    let all: Vec<_> = slots.flat_map(|slot| registry.refused_calls(slot)).collect();
    let said = "another id has this port already (`transom devices` says whose); 0.0.0.0, :: and \
                loopback addresses stand for all others";
    let is_it = |call: &CallRefusal| {
        call.verb.to_string() == "rdma_bind_addr" && call.said.to_string() == said
    };
    assert!(all.iter().any(|record| is_it(&record.call)), "{all:?}");
}
