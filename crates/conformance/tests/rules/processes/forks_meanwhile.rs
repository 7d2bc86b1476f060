//! A program may fork while another thread of it is inside a verb, or while a thread of ours is. The children can have
//! devices of their own all the same.

use std::process::Command;

use transom_conformance::c_programs::{self, RDMACM, compile};
use transom_conformance::processes::Scratch;
use transom_conformance::programs::library;

/// The program says what it shows.
fn forks_while_others(what: &str) {
    let scratch = Scratch::new(&format!("forks-meanwhile-{what}"));
    let program = compile(&scratch, "forks_meanwhile.c", "forks_meanwhile", RDMACM);
    let mut run = Command::new(&program);
    run.arg(what).env("LD_LIBRARY_PATH", library(env!("CARGO_TARGET_TMPDIR")));
    c_programs::run(&mut run, 1);
}

#[test]
fn children_have_devices_though_another_thread_was_opening_one() {
    forks_while_others("open");
}

#[test]
fn children_have_devices_though_other_threads_were_making_objects() {
    forks_while_others("make");
}

/// Rules: CM-65
#[test]
fn children_have_sockets_though_the_thread_of_a_listener_was_at_work() {
    forks_while_others("listen");
}
