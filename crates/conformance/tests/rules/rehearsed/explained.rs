//! What `transom explain` says of work that a rehearsal made fail.

use std::fs;
use std::process::Command;

use transom_abi::*;
use transom_conformance::explained::explained;
use transom_conformance::harness::*;
use transom_conformance::processes::{Scratch, this_program};
use transom_conformance::programs::Running;
use transom_conformance::queues::*;
use transom_system::registry::Registry;

use super::command::limit;

/// The queue pairs of a test are among the first of its process.
const QUEUE_PAIRS: u32 = 4;

const SAYS: &str = "`transom rehearse` made it fail, as an adapter may at any time";

/// Runs a test of this program again, as the first process of a rehearsal in which something happens at the first
/// operation of each queue pair. There it does what it is about.
fn rehearsed(name: &str, provocation: &str, test: impl FnOnce()) {
    let places: Vec<_> =
        (0..QUEUE_PAIRS).map(|object| format!("place {provocation}:0.{object}.0\n")).collect();
    rehearsed_at(name, provocation, &places.concat(), test);
}

/// The same where something happens at these places.
fn rehearsed_at(name: &str, provocation: &str, places: &str, test: impl FnOnce()) {
    if std::env::var_os("TRANSOM_REHEARSE").is_some() {
        return test();
    }
    let scratch = Scratch::new(provocation);
    let plan = format!("seed 1\nkind {provocation}\nonly\n{places}");
    fs::write(scratch.path().join("plan"), plan).expect("a plan");
    let mut again = Command::new(this_program());
    again.args(["--exact", &format!("rehearsed::explained::{name}")]);
    again.env("TRANSOM_REHEARSE", scratch.path());
    let (status, printed) = Running::start(&mut again).end(limit()).expect("it ends");
    assert!(status.success() && printed.output.contains("1 passed"), "{printed:?}");
}

/// Whether one of the sentences about two queue pairs has these words, and says that the rehearsal did it.
fn is_told(it: &MemoryPair, words: &str) {
    let told = explained(number(it.pair.qa), number(it.pair.qb));
    let found = told.iter().any(|sentence| sentence.contains(words) && sentence.contains(SAYS));
    assert!(found, "{words}: {told:#?}");
}

/// Whether a refused call of this process is told of so, and that the rehearsal did it.
fn is_call_told(words: &str, rule: &str) {
    let registry = Registry::open().expect("the registry");
    let pid = std::process::id();
    let is_own = |slot: &u8| registry.process(*slot).is_some_and(|it| it.pid == pid);
    let calls = (0..=u8::MAX).filter(is_own).flat_map(|slot| registry.refused_calls(slot));
    let told: Vec<_> = calls.map(|record| record.call.to_string()).collect();
    let ends = format!(": `transom rehearse` made it fail, as an adapter may (rule {rule})");
    let is_it = |said: &String| said.starts_with(words) && said.ends_with(&ends);
    assert_eq!(told.iter().filter(|said| is_it(said)).count(), 1, "{words}: {told:#?}");
    assert_eq!(told.iter().filter(|said| said.starts_with(words)).count(), 1, "{told:#?}");
}

fn memory() -> MemoryPair {
    MemoryPair::new(Link::Loopback, 4096)
}

/// Rules: REH-34, EX-01
#[test]
fn a_request_that_failed_in_a_rehearsal_is_told_of() {
    rehearsed("a_request_that_failed_in_a_rehearsal_is_told_of", "failed-requests", || {
        let it = memory();
        let wc = it.op(IBV_WR_RDMA_WRITE, it.far.addr(), it.key(), 8);
        assert_ne!(wc.status, IBV_WC_SUCCESS);
        is_told(&it, &format!("WRITE (wr_id {}) by QP", wc.wr_id));
    });
}

/// Rules: REH-35, EX-01
#[test]
fn a_receive_that_failed_in_a_rehearsal_is_told_of() {
    rehearsed("a_receive_that_failed_in_a_rehearsal_is_told_of", "failed-receives", || {
        let it = memory();
        it.recv(it.pair.qb, 7, 64);
        assert_ne!(it.op(IBV_WR_SEND, 0, 0, 8).status, IBV_WC_SUCCESS);
        is_told(&it, " of 8 bytes");
        // The way in which it failed says nothing of the program.
        let told = explained(number(it.pair.qa), number(it.pair.qb)).concat();
        assert!(!told.contains("has room for") && !told.contains("protection domain"), "{told}");
    });
}

/// Rules: REH-36, EX-01
#[test]
fn a_request_to_a_peer_that_is_gone_in_a_rehearsal_is_told_of() {
    rehearsed("a_request_to_a_peer_that_is_gone_in_a_rehearsal_is_told_of", "gone-peers", || {
        let it = memory();
        let wc = it.op(IBV_WR_RDMA_WRITE, it.far.addr(), it.key(), 8);
        assert_eq!(wc.status, IBV_WC_RETRY_EXC_ERR);
        is_told(&it, &format!("WRITE (wr_id {}) by QP", wc.wr_id));
    });
}

/// Rules: REH-30, EX-04
#[test]
fn an_object_that_was_refused_in_a_rehearsal_is_told_of() {
    let name = "an_object_that_was_refused_in_a_rehearsal_is_told_of";
    // An end has two objects.
    rehearsed_at(name, "refused-objects", "place refused-objects:0.0.2\n", || {
        let end = End::new(Default::default());
        // SAFETY: an open context.
        assert!(unsafe { transom_ibverbs::ibv_alloc_pd(end.context) }.is_null());
        is_call_told("ibv_alloc_pd answered E", "REH-30");
    });
}

/// Rules: REH-31, EX-04
#[test]
fn a_post_that_was_refused_in_a_rehearsal_is_told_of() {
    rehearsed("a_post_that_was_refused_in_a_rehearsal_is_told_of", "refused-posts", || {
        let it = memory();
        let mut sges = [it.near_sge(0, 8)];
        let mut write = rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, it.far.addr(), it.key());
        assert_eq!(try_post(it.pair.qa, &mut write), libc::ENOMEM);
        is_call_told("ibv_post_send answered ENOMEM", "REH-31");
    });
}
