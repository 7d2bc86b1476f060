//! What a program says by `transom.h`: `claimed.c`, with the pool that docs/check.md shows.

use std::fs;
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use transom_check::Kind;
use transom_conformance::checked::Checked;
use transom_conformance::documents::root;
use transom_conformance::processes::Scratch;
use transom_conformance::programs::{Running, library};

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
