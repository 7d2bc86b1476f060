//! What a program says by `transom.h`: `claimed.c`, with the pool that docs/check.md shows; and by the same functions of
//! the Rust crate.

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;
use std::{env, fs, thread};

use transom::{
    Access, CompletionQueue, MemoryRegion, ProtectionDomain, Provider, QueuePair, check,
};
use transom_check::Kind;
use transom_conformance::checked::{Checked, found_in};
use transom_conformance::documents::root;
use transom_conformance::path_of;
use transom_conformance::processes::{Scratch, again};
use transom_conformance::programs::{Running, library, preloaded};

static POOL: LazyLock<Scratch> = LazyLock::new(|| {
    let scratch = Scratch::new("claimed-pool");
    let page = fs::read_to_string(root().join("docs/check.md")).expect("it is there");
    let section = page.split("## Telling it more").nth(1).expect("a section");
    let code = section.split("```c\n").nth(1).and_then(|rest| rest.split("```").next());
    let file = scratch.path().join("pool_of_the_page.h");
    fs::write(file, code.expect("code")).expect("the scratch folder is ours");
    scratch
});

static PROGRAM: LazyLock<Checked> = LazyLock::new(|| {
    let folders = [POOL.path().to_owned(), root().join("crates/freed")];
    let folders = folders.map(|folder| format!("-I{}", folder.display()));
    let arguments = [folders[0].as_str(), &folders[1], "-libverbs", "-lpthread"];
    Checked::new("claimed", env!("CARGO_TARGET_TMPDIR"), &arguments).preloading()
});

/// Rule: CHK-46
#[test]
fn a_buffer_is_given_back_that_a_receive_may_write_to() {
    PROGRAM.shows(Kind::ClaimedInUse, &["posted", "claimed"]);
}

/// Rule: CHK-46
#[test]
fn claimed_memory_is_posted_or_written_by_a_peer() {
    for case in ["posted-after-it-was-given", "written-by-peer"] {
        let found = PROGRAM.run(&[case, "wrong"]);
        assert!(found.iter().any(|it| it.kind == Kind::ClaimedInUse), "{case}: {found:#?}");
        assert_eq!(PROGRAM.run(&[case, "right"]), [], "{case}");
    }
}

/// Rule: CHK-50
#[test]
fn a_thread_says_that_it_waits() {
    let found = PROGRAM.run(&["waits", "wrong"]);
    assert_eq!(found[0].kind, Kind::SleepsOnCompletions, "{found:#?}");
    assert!(found[0].says.starts_with("A thread waits while"), "{found:#?}");
    assert_eq!(PROGRAM.run(&["waits", "right"]), []);
}

/// Rule: CHK-46
#[test]
fn without_a_check_nothing_is_said() {
    let mut command = Command::new(PROGRAM.binary());
    command.args(["claimed-in-use", "wrong"]);
    command.env("LD_LIBRARY_PATH", library(env!("CARGO_TARGET_TMPDIR")));
    let printed = Running::start(&mut command).success(Duration::from_secs(60));
    printed.unwrap_or_else(|problem| panic!("{problem}"));
}

/// What the program in Rust is to do.
const CASE: &str = "CASE_IN_RUST";

/// Rules: CHK-46, CHK-50
#[test]
fn a_program_in_rust_says_the_same() {
    if let Some(case) = env::var_os(CASE) {
        return program_in_rust(case.to_str().expect("a word")).expect("all goes well");
    }
    let scratch = Scratch::new("checked-in-rust");
    for (case, expected) in [
        ("claims", vec![Kind::ClaimedInUse]),
        ("releases", vec![]),
        ("waits", vec![Kind::SleepsOnCompletions]),
        ("wakes", vec![]),
    ] {
        let directory = scratch.path().join(case);
        fs::create_dir(&directory).expect("the scratch folder is ours");
        let mut command = again(path_of!("a_program_in_rust_says_the_same"));
        command.env(CASE, case).env("TRANSOM_CHECK", &directory).env("LD_PRELOAD", preloaded());
        let run = Running::start(&mut command).success(Duration::from_secs(60));
        run.unwrap_or_else(|problem| panic!("{case}: {problem}"));
        let mut kinds: Vec<_> = found_in(&directory).iter().map(|it| it.kind).collect();
        kinds.retain(|kind| [Kind::ClaimedInUse, Kind::SleepsOnCompletions].contains(kind));
        assert_eq!(kinds, expected, "{case}");
    }
}

fn program_in_rust(case: &str) -> transom::Result<()> {
    let context = transom::devices(&Provider::software())?[0].open()?;
    let pd = ProtectionDomain::new(&context)?;
    let cq = CompletionQueue::new(&context, 16)?;
    let builder = QueuePair::builder(&pd, &cq);
    let (one, other) = (builder.build()?, builder.build()?);
    let (at_one, at_other) = (one.endpoint(), other.endpoint());
    let (one, other) = (one.connect(&at_other)?, other.connect(&at_one)?);
    let buffer = vec![0_u8; 4096];
    let (first, length) = (buffer.as_ptr(), buffer.len());
    let region = MemoryRegion::register(&pd, buffer, Access::LOCAL_WRITE)?;
    if matches!(case, "claims" | "releases") {
        check::claim(first, length);
    }
    if case == "releases" {
        check::release(first, length);
    }
    let received = other.receive(&[region.slice(0..64)?])?;
    let sent = one.send(b"a message")?;
    if matches!(case, "waits" | "wakes") {
        // The completions are in the queue, which nobody has armed.
        let waiting = check::wait(&cq);
        while case == "waits" && !is_found() {
            thread::sleep(Duration::from_millis(10));
        }
        drop(waiting);
    }
    sent.wait()?;
    received.wait()?;
    Ok(())
}

/// Whether the check of this process has found that it sleeps.
fn is_found() -> bool {
    let directory = env::var_os("TRANSOM_CHECK").expect("it is checked");
    found_in(Path::new(&directory)).iter().any(|it| it.kind == Kind::SleepsOnCompletions)
}
