//! `transom rehearse` on a program that calls each verb that makes an object or changes one (`makes.c`).

use std::path::PathBuf;
use std::sync::LazyLock;

use transom_conformance::c_programs::compile;
use transom_conformance::processes::Scratch;

use super::command::rehearse;

static PROGRAM: LazyLock<(Scratch, PathBuf)> = LazyLock::new(|| {
    let scratch = Scratch::new("rehearsed-makes");
    let binary = compile(&scratch, "rehearsed/makes.c", "makes", &["-libverbs"]);
    (scratch, binary)
});

/// The verbs of the program, in its order.
const VERBS: [&str; 23] = [
    "ibv_open_device",
    "ibv_import_device",
    "ibv_alloc_pd",
    "ibv_create_comp_channel",
    "ibv_create_cq",
    "ibv_create_cq_ex",
    "ibv_resize_cq",
    "ibv_create_srq",
    "ibv_modify_srq",
    "ibv_reg_mr",
    "ibv_rereg_mr",
    "ibv_alloc_null_mr",
    "ibv_alloc_dm",
    "ibv_reg_dm_mr",
    "ibv_alloc_mw",
    "ibv_alloc_mw",
    "ibv_create_ah",
    "ibv_alloc_td",
    "ibv_alloc_parent_domain",
    "ibv_open_xrcd",
    "ibv_create_qp",
    "ibv_attach_mcast",
    "ibv_modify_qp",
];
/// A slow verb takes so many microseconds at least. Without a rehearsal these take less, most of the time.
const SHORTEST: f64 = 400.0;

/// What became of each verb where this is provoked: its errno, and the microseconds that it took.
fn outcomes(place: &str, seed: u64) -> Vec<(i32, f64)> {
    let (scratch, program) = &*PROGRAM;
    let list = scratch.path().join(format!("{place}-{seed}"));
    let words = [program, &list].map(|it| it.to_str().expect("a path in UTF-8"));
    let (status, printed) = rehearse(&["--seed", &seed.to_string(), "--at", place], &words);
    assert_eq!(status, Some(0), "{place}: {printed:?}");
    let told = std::fs::read_to_string(&list).expect("the program wrote it");
    let lines: Vec<Vec<_>> = told.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(lines.iter().map(|words| words[0]).collect::<Vec<_>>(), VERBS);
    let number = |words: &Vec<&str>, at: usize| words[at].parse::<f64>().expect("a number");
    lines.iter().map(|words| (number(words, 1) as i32, number(words, 2))).collect()
}

/// Each takes long with one seed, and with another one if a busy machine made it slow in the first.
///
/// Rule: REH-71
#[test]
fn each_verb_takes_long_where_it_is_provoked_and_does_its_work() {
    for (nth, verb) in VERBS.into_iter().enumerate() {
        for seed in [1, 2] {
            let outcomes = outcomes(&format!("slow-verbs:0.0.{nth}"), seed);
            assert!(outcomes.iter().all(|(error, _)| *error == 0), "{verb}: {outcomes:?}");
            assert!(outcomes[nth].1 >= SHORTEST, "{verb}: {outcomes:?}");
        }
    }
}

/// No other fails with it, and it does its work when it is called again.
///
/// Rule: REH-30
#[test]
fn each_verb_that_makes_something_fails_where_it_is_provoked() {
    let makes = VERBS.iter().take_while(|verb| **verb != "ibv_modify_qp");
    for (nth, verb) in makes.enumerate() {
        let outcomes = outcomes(&format!("refused-objects:0.0.{nth}"), 1);
        for (at, (error, _)) in outcomes.iter().enumerate() {
            let registers = matches!(*verb, "ibv_reg_mr" | "ibv_rereg_mr");
            let may_be =
                matches!(*error, libc::ENOMEM | libc::EAGAIN) || registers && *error == libc::EPERM;
            assert!(if at == nth { may_be } else { *error == 0 }, "{verb}: {outcomes:?}");
        }
    }
}
