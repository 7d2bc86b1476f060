//! What sanitizers see of the device: `sanitized.c`, compiled with each of them. Of events of verbs:
//! `sanitized_events.c`. And of librdmacm: `sanitized_cm.c`, `sanitized_sockets.c`, `sanitized_threads.c`, and programs
//! without a mistake.

use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use transom_conformance::c_programs::{RDMACM, compile, compile_by, run};
use transom_conformance::harness::{Link, take_turn};
use transom_conformance::processes::{Scratch, is_long};
use transom_conformance::programs::{Printed, Running, installed, library, program};
use transom_conformance::spaces::two_hosts;

use crate::connections::sockets::BEHAVIOURS;

const LIMIT: Duration = Duration::from_secs(120);
const LIBRARIES: [&str; 2] = ["-libverbs", "-lpthread"];

/// What is right.
const RIGHT: [&str; 8] = [
    "right_all",
    "right_atomic",
    "right_what_came",
    "right_failure",
    "right_told_by_a_socket",
    "right_told_by_a_message",
    "right_long_message",
    "right_threads",
];

/// The program, compiled with a sanitizer, and what runs it.
struct Sanitized {
    _scratch: Scratch,
    binary: PathBuf,
    under: Vec<String>,
    /// By which link the queue pairs of a process are connected.
    link: &'static str,
    /// Whether the last byte of a WRITE tells that all of it is there: `tells`, or nothing.
    last_byte: &'static str,
    address_options: &'static str,
    /// The program for the other process. By default it is the same.
    peer: Option<PathBuf>,
}

const SHORT: &str = "malloc_context_size=6";

impl Sanitized {
    fn by_gcc(kind: &str) -> Self {
        Self::of_source("sanitized", kind, &LIBRARIES)
    }

    fn of_source(name: &str, kind: &str, libraries: &[&str]) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let scratch = Scratch::new(&format!("{name}-{kind}-{}", MADE.fetch_add(1, Relaxed)));
        let option = format!("-fsanitize={kind}");
        let arguments = [&[option.as_str()], libraries].concat();
        let binary = compile(&scratch, &format!("{name}.c"), name, &arguments);
        Self::of(scratch, binary)
    }

    fn of(scratch: Scratch, binary: PathBuf) -> Self {
        let (under, link, last_byte) = (Vec::new(), "", "");
        Self {
            _scratch: scratch,
            binary,
            under,
            link,
            last_byte,
            address_options: SHORT,
            peer: None,
        }
    }

    /// With a sanitizer that only clang has. `None` if there is no clang.
    fn by_clang(name: &str, options: &[&str]) -> Option<Self> {
        let clang = installed("clang", "clang");
        let clang = clang.inspect_err(|missing| eprintln!("skipped: {missing}")).ok()?;
        let scratch = Scratch::new(&format!("{name}{}", options.concat().replace('=', "-")));
        let arguments = [options, RDMACM].concat();
        let binary = compile_by(&clang, &scratch, &format!("{name}.c"), name, &arguments);
        Some(Self::of(scratch, binary))
    }

    /// The same with packets between all queue pairs.
    fn over_the_wire(self) -> Self {
        Self { link: "wire", ..self }
    }

    fn run(&self, case: &str) -> (ExitStatus, Printed) {
        let binary = self.binary.to_str().expect("a plain path").to_owned();
        let words = [self.under.clone(), vec![binary, case.to_owned()]].concat();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env("LD_LIBRARY_PATH", library(env!("CARGO_TARGET_TMPDIR")));
        command.env("TRANSOM_LINK", self.link).env("TRANSOM_LAST_BYTE", self.last_byte);
        // Stacks of what is freed and allocated are longer than a pipe is deep.
        command.env("ASAN_OPTIONS", self.address_options);
        self.peer.iter().for_each(|peer| _ = command.env("PEER", peer));
        Running::start(&mut command).end(LIMIT).unwrap_or_else(|problem| panic!("{problem}"))
    }

    /// Each of these cases has a report that says all this.
    fn reports(&self, cases: &[(&str, &[&str])]) {
        thread::scope(|scope| {
            for (case, words) in cases {
                scope.spawn(move || {
                    let (status, Printed { output, complaints }) = self.run(case);
                    assert!(!status.success(), "{case}: {output}{complaints}");
                    for word in *words {
                        assert!(complaints.contains(word), "{case}: no {word:?} in {complaints}");
                    }
                });
            }
        });
    }

    /// The same of a sanitizer that tells blocks apart by tags of a few bits. Some blocks have the tag of another by
    /// chance, so a case may run several times.
    fn reports_by_tags(&self, cases: &[(&str, &[&str])]) {
        for (case, words) in cases {
            let runs = || (0..16).map(|_| self.run(case).1.complaints);
            let is_whole = |report: &String| words.iter().all(|word| report.contains(word));
            assert!(runs().any(|report| is_whole(&report)), "{case}: not all of {words:?}");
        }
    }

    /// Those that are right have none.
    fn is_silent(&self) {
        self.is_silent_in(&RIGHT);
    }

    fn is_silent_in(&self, cases: &[&str]) {
        thread::scope(|scope| {
            for case in cases {
                scope.spawn(move || {
                    let (status, printed) = self.run(case);
                    // Memcheck warns, and counts no error, where the device works as the process ends.
                    let is_told = |line: &str| !PAUSED.iter().any(|words| line.contains(words));
                    let silent = status.success() && !printed.complaints.lines().any(is_told);
                    assert!(silent, "{case}: {status} {printed:?}");
                });
            }
        });
    }
}

static ADDRESS: LazyLock<Sanitized> = LazyLock::new(|| Sanitized::by_gcc("address"));
static THREAD: LazyLock<Sanitized> = LazyLock::new(|| Sanitized::by_gcc("thread"));
const OF_MEMORY: [&str; 1] = ["-fsanitize=memory"];
static MEMORY: LazyLock<Option<Sanitized>> =
    LazyLock::new(|| Sanitized::by_clang("sanitized", &OF_MEMORY));
/// On x86-64 without tags in addresses, it tells pages apart by aliases of them.
static TAGS: LazyLock<Option<Sanitized>> = LazyLock::new(|| {
    let aliases = "-fsanitize-hwaddress-experimental-aliasing";
    let options = ["-fsanitize=hwaddress", aliases];
    let options = if cfg!(target_arch = "x86_64") { &options[..] } else { &options[..1] };
    Sanitized::by_clang("sanitized", options)
});

/// What memcheck says of a thread that ends within the device.
const PAUSED: [&str; 3] = [
    "exiting thread has error reporting disabled",
    "possibly as a result of some mistake in the use",
    "of the VALGRIND_DISABLE_ERROR_REPORTING macros",
];

/// What our sentence says.
const NOT_ITS_OWN: &str = "not all are the program's to use";
const NOT_WRITTEN: &str = "the program has not written all of them";

/// Rules: CHK-80, CHK-81
#[test]
fn the_address_sanitizer_sees_memory_that_is_not_the_programs() {
    ADDRESS.reports(&[
        (
            "freed_before_it_came",
            &[
                "transom: the receive of queue pair",
                "(wr_id 3, posted by post_the_receive at sanitized.c:",
                NOT_ITS_OWN,
                "heap-use-after-free",
                "give_back",
            ],
        ),
        ("beyond_the_block", &[NOT_ITS_OWN, "writes 72 bytes", "heap-buffer-overflow"]),
        (
            "freed_before_a_write",
            &["transom: the WRITE of queue pair", NOT_ITS_OWN, "heap-use-after-free", "give_back"],
        ),
        (
            "freed_before_a_read",
            &["transom: the READ of queue pair", NOT_ITS_OWN, "heap-use-after-free", "give_back"],
        ),
        (
            "freed_before_it_was_sent",
            &["transom: the SEND of queue pair", NOT_ITS_OWN, "heap-use-after-free", "give_back"],
        ),
        (
            "freed_before_an_atomic",
            &["transom: the fetch and add of", NOT_ITS_OWN, "heap-use-after-free", "give_back"],
        ),
    ]);
}

/// Rules: CHK-81
#[test]
fn the_address_sanitizer_sees_that_a_write_comes_from_freed_memory() {
    let report: &[&str] = &[
        "transom: the WRITE of queue pair",
        "(wr_id 7, posted by post_it at sanitized.c:",
        "reads 64 bytes",
        NOT_ITS_OWN,
        "heap-use-after-free",
        "give_back",
    ];
    ADDRESS.reports(&[
        ("freed_before_it_was_written", report),
        ("freed_before_it_was_written_here", report),
    ]);
}

/// Rules: CHK-81, CHK-87
#[test]
fn the_address_sanitizer_is_silent_where_all_is_right() {
    ADDRESS.is_silent();
}

const STOPPED: [&str; 2] = ["right_while_it_is_stopped", "right_atomic_when_it_goes_on"];

/// A WRITE does not need a process that only the AddressSanitizer watches, and an atomic does.
/// Rules: CHK-80
#[test]
fn a_write_does_not_need_the_process_that_the_address_sanitizer_watches_and_an_atomic_does() {
    ADDRESS.is_silent_in(&STOPPED);
}

/// Rules: CHK-80, CHK-81
#[test]
fn a_peer_without_a_sanitizer_asks_the_address_sanitizer_of_its_target() {
    let scratch = Scratch::new("sanitized-peer");
    let peer = Some(compile(&scratch, "sanitized.c", "plain", &LIBRARIES));
    let address = Sanitized { peer, ..Sanitized::by_gcc("address") };
    address.reports(&[
        ("freed_before_a_write", &["transom: the WRITE of", NOT_ITS_OWN, "heap-use-after-free"]),
        ("freed_before_a_read", &["transom: the READ of", NOT_ITS_OWN, "heap-use-after-free"]),
        ("freed_before_an_atomic", &["transom: the fetch and add of", NOT_ITS_OWN]),
    ]);
    address.is_silent_in(&STOPPED);
    address.is_silent_in(&["right_atomic", "right_told_by_a_message"]);
}

/// Rules: CHK-81, CHK-87
#[test]
fn the_hardware_assisted_one_sees_the_same() {
    let Some(tags) = &*TAGS else { return };
    tags.reports_by_tags(&[
        ("freed_before_it_came", &[NOT_ITS_OWN, "tag-mismatch", "give_back"]),
        ("beyond_the_block", &[NOT_ITS_OWN, "writes 72 bytes", "tag-mismatch"]),
    ]);
    // With aliases a fork shares the heap, and clang 14 loses large blocks. So no more than one process and one thread.
    tags.is_silent_in(&["right_all", "right_what_came", "right_failure"]);
}

/// Rules: CHK-33, CHK-81
#[test]
fn the_address_sanitizer_sees_events_that_were_acknowledged_and_by_whom() {
    let both = "fast_unwind_on_malloc=0:malloc_context_size=40";
    let address = Sanitized::of_source("sanitized_cm", "address", RDMACM);
    let address = Sanitized { address_options: both, ..address };
    let by_whom = ["heap-use-after-free", " in acknowledge ", " in next "];
    let reports =
        |by: &'static str, and: &'static [&'static str]| [&by_whom, &[by][..], and].concat();
    address.reports(&[
        ("looks_after_it_acknowledged", &reports(" in look ", &[])),
        ("rejects_after_it_acknowledged", &reports(" in reject ", &["reads 6 bytes", NOT_ITS_OWN])),
        ("acknowledges_twice", &reports(" in main ", &[NOT_ITS_OWN])),
        ("rejects_after_the_end", &["heap-use-after-free", " in end ", NOT_ITS_OWN]),
    ]);
    address.is_silent_in(&["right_all"]);
}

/// Rules: CHK-82, CHK-83
#[test]
fn the_thread_sanitizer_sees_what_nothing_orders() {
    THREAD.reports(&[
        ("changed_before_it_completed", &["data race", "#0 change", "(SEND)'", "post_it"]),
        ("read_before_it_completed", &["data race", "#0 change", "(RECV)'", "post_the_receive"]),
        ("told_by_nothing", &["data race", "look_until_it_is_there", "(RECV)'"]),
        ("changed_before_another_wrote_it", &["data race", "#0 change", "(RECV)'"]),
    ]);
}

/// Rules: CHK-82, CHK-83, CHK-87
#[test]
fn the_thread_sanitizer_is_silent_where_all_is_right() {
    THREAD.is_silent();
}

/// Rules: CHK-83, CHK-87
#[test]
fn the_thread_sanitizer_lets_the_last_byte_tell_if_the_program_relies_on_it() {
    let thread = Sanitized { last_byte: "tells", ..Sanitized::by_gcc("thread") };
    thread.is_silent_in(&["told_by_nothing"]);
    thread.is_silent();
    thread.reports(&[
        ("changed_before_it_completed", &["data race", "#0 change", "(SEND)'", "post_it"]),
        ("read_before_it_completed", &["data race", "#0 change", "(RECV)'", "post_the_receive"]),
    ]);
}

/// Rules: CHK-82, CHK-87
#[test]
fn the_thread_sanitizer_sees_the_same_over_the_wire() {
    take_turn(Link::Wire);
    let thread = Sanitized::by_gcc("thread").over_the_wire();
    thread.reports(&[
        ("changed_before_it_completed", &["data race", "#0 change", "(SEND)'", "post_it"]),
        ("read_before_it_completed", &["data race", "#0 change", "(RECV)'", "post_the_receive"]),
    ]);
    thread.is_silent();
}

/// There the queue pairs of the two processes have numbers of one device.
/// Rules: CHK-83, CHK-87
#[test]
fn the_thread_sanitizer_tells_a_peer_on_another_host_from_one_in_the_process() {
    let Some(hosts) = two_hosts() else { return };
    let thread = Sanitized { under: hosts.before_a_program(), ..Sanitized::by_gcc("thread") };
    thread.reports(&[("told_by_nothing", &["data race", "look_until_it_is_there", "(RECV)'"])]);
    // One after another, because a host has one port.
    for case in ["right_told_by_a_socket", "right_told_by_a_message"] {
        thread.is_silent_in(&[case]);
    }
}

static THREADS: LazyLock<Sanitized> =
    LazyLock::new(|| Sanitized::of_source("sanitized_threads", "thread", RDMACM));

/// Rules: CHK-82, CHK-87
#[test]
fn the_thread_sanitizer_knows_what_events_of_verbs_hand_over() {
    let events = Sanitized::of_source("sanitized_events", "thread", &LIBRARIES);
    events.reports(&[(
        "acknowledged_by_one_that_does_not_have_it",
        &["data race", "#0 change", " gets_completion "],
    )]);
    events.is_silent_in(&["right_completion_event", "right_asynchronous_event"]);
}

/// Rules: CHK-97
#[test]
fn the_thread_sanitizer_sees_what_threads_do_to_what_librdmacm_has() {
    THREADS.reports(&[
        ("changed_before_it_completed", &["data race", "#0 change", "(SEND)'", "send_it"]),
        ("acknowledged_before_another_looked", &["data race", "#0 looks_at_it"]),
        ("changed_while_it_is_sent", &["data race", "#0 change", " sends_it "]),
        ("changed_while_it_is_received", &["data race", "#0 change", " receives_into_it "]),
        ("poll_heard_of_a_pipe", &["data race", "#0 change", " hands_it_over "]),
        ("select_heard_nothing", &["data race", "#0 change", " hands_it_over "]),
    ]);
}

/// Rules: CHK-87, CHK-97
#[test]
fn the_thread_sanitizer_is_silent_where_rdma_cm_and_sockets_hand_over() {
    THREADS.is_silent_in(&[
        "right_connection",
        "right_end",
        "right_sockets",
        "right_poll",
        "right_select",
    ]);
}

/// Rules: CHK-87, CHK-97
#[test]
fn the_thread_sanitizer_is_silent_about_programs_that_connect() {
    take_turn(Link::Wire);
    for (name, behaviours) in [("connects", 23), ("connection_events", 8)] {
        let libraries = [RDMACM, &["-w"]].concat();
        let thread = Sanitized::of_source(name, "thread", &libraries);
        let mut command = Command::new(&thread.binary);
        run(command.env("LD_LIBRARY_PATH", library(env!("CARGO_TARGET_TMPDIR"))), behaviours);
    }
}

/// Rules: CHK-84, CHK-86
#[test]
fn the_memory_sanitizer_sees_bytes_that_were_never_written() {
    let Some(memory) = &*MEMORY else { return };
    memory.reports(&[
        (
            "never_written",
            &[
                "transom: the SEND of queue pair",
                "(wr_id 7, posted by post_it at sanitized.c:",
                NOT_WRITTEN,
                "use-of-uninitialized-value",
            ],
        ),
        ("opcode_of_a_failure", &["use-of-uninitialized-value", "opcode_of_a_failure"]),
    ]);
}

/// Rules: CHK-85, CHK-87
#[test]
fn the_memory_sanitizer_is_silent_where_all_is_right() {
    if let Some(memory) = &*MEMORY {
        memory.is_silent();
    }
}

const NEVER_WRITTEN: &str = "use-of-uninitialized-value";

/// Rules: CHK-88
#[test]
fn the_memory_sanitizer_sees_private_data_that_was_never_written() {
    let Some(memory) = Sanitized::by_clang("sanitized_cm", &OF_MEMORY) else { return };
    memory.reports(&[(
        "asks_with_what_it_never_wrote",
        &[NEVER_WRITTEN, "rdma_connect", " in asks_with_what_it_never_wrote "],
    )]);
    memory.is_silent_in(&["right_all"]);
}

/// Each of these has no mistake, and decides by all that it is told.
/// Rules: CHK-88, CHK-89
#[test]
fn the_memory_sanitizer_is_silent_about_what_librdmacm_tells() {
    take_turn(Link::Wire);
    let all = [("connects", 23), ("connection_events", 8), ("sockets", BEHAVIOURS)];
    for (name, behaviours) in all {
        let options = [OF_MEMORY[0], "-w"];
        let Some(memory) = Sanitized::by_clang(name, &options) else { return };
        let mut command = Command::new(&memory.binary);
        command.env("LD_LIBRARY_PATH", library(env!("CARGO_TARGET_TMPDIR")));
        // One part asks for more than there is.
        command.env("MSAN_OPTIONS", "allocator_may_return_null=1");
        run(&mut command, behaviours);
    }
}

/// Rules: CHK-89
#[test]
fn the_memory_sanitizer_sees_what_a_socket_sends() {
    let Some(memory) = Sanitized::by_clang("sanitized_sockets", &OF_MEMORY) else { return };
    let report: &[&str] = &[NEVER_WRITTEN, "rsend", " in sends_what_it_never_wrote "];
    memory.reports(&[
        ("sends_what_it_never_wrote", report),
        ("sends_what_it_never_wrote_inline", report),
    ]);
    memory.is_silent_in(&["right_all"]);
}

/// Rules: CHK-89
#[test]
fn the_address_sanitizer_sees_the_buffers_of_sockets() {
    let address = Sanitized::of_source("sanitized_sockets", "address", RDMACM);
    // Between the program and the copy are more calls than it otherwise shows.
    let address =
        Sanitized { address_options: "malloc_context_size=6:fast_unwind_on_fatal=0", ..address };
    let of = |size: &'static str| ["heap-use-after-free", size, "give_back"];
    let cases = [
        ("sends_what_it_gave_back", of("READ of size 4096")),
        ("sends_what_it_gave_back_inline", of("READ of size 16")),
        ("receives_into_what_it_gave_back", of("WRITE of size 4096")),
        ("receives_into_what_it_gave_back_inline", of("WRITE of size 16")),
    ];
    address.reports(&cases.each_ref().map(|(case, words)| (*case, &words[..])));
    address.is_silent_in(&["right_all"]);
}

/// Rules: CHK-81, CHK-84, CHK-86, CHK-87
#[test]
fn memcheck_sees_the_same() {
    if !is_long() {
        eprintln!("skipped: it takes seconds; ./test --long runs it");
        return;
    }
    let scratch = Scratch::new("sanitized-plain");
    let binary = compile(&scratch, "sanitized.c", "sanitized", &LIBRARIES);
    let valgrind = program("valgrind", "valgrind");
    let valgrind = valgrind.to_str().expect("a plain path").to_owned();
    let under = vec![valgrind, "--quiet".to_owned(), "--error-exitcode=9".to_owned()];
    let memcheck = Sanitized { under, ..Sanitized::of(scratch, binary) };
    memcheck.reports(&[
        ("freed_before_it_came", &[NOT_ITS_OWN, "Unaddressable", "give_back"]),
        ("freed_before_a_write", &[NOT_ITS_OWN, "Unaddressable", "give_back"]),
        ("never_written", &[NOT_WRITTEN, "Uninitialised"]),
        ("opcode_of_a_failure", &["uninitialised value", "opcode_of_a_failure"]),
    ]);
    memcheck.is_silent();
}
