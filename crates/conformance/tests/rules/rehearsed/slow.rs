//! `transom rehearse` on a program that looks at the clock around each verb (`slow.c`).

use transom_conformance::c_programs::compile;
use transom_conformance::processes::Scratch;

use super::command::rehearse;

/// The verbs of the program, in its order.
const VERBS: [&str; 6] = [
    "ibv_alloc_pd",
    "ibv_create_cq",
    "ibv_create_srq",
    "ibv_reg_mr",
    "ibv_create_qp",
    "ibv_modify_qp",
];
/// A slow verb takes so many microseconds at least. Without a rehearsal these take less, most of the time.
const SHORTEST: f64 = 400.0;
/// For each verb there are so many runs, so that a busy machine does not make all of them slow.
const SEEDS: u64 = 3;

/// Rule: REH-71
#[test]
fn each_verb_takes_long_where_it_is_provoked_and_does_its_work() {
    let scratch = Scratch::new("rehearsed-slow");
    let program = compile(&scratch, "rehearsed/slow.c", "slow", &["-libverbs"]);
    let list = scratch.path().join("list");
    let words = [&program, &list].map(|it| it.to_str().expect("a path in UTF-8"));
    for (nth, verb) in VERBS.into_iter().enumerate() {
        for seed in 1..=SEEDS {
            let (seed, place) = (seed.to_string(), format!("slow-verbs:0.0.{nth}"));
            let (status, printed) = rehearse(&["--seed", &seed, "--at", &place], &words);
            assert_eq!(status, Some(0), "{printed:?}");
            let told = std::fs::read_to_string(&list).expect("the program wrote it");
            let lines: Vec<_> = told.lines().filter_map(|line| line.split_once(' ')).collect();
            assert_eq!(lines.iter().map(|it| it.0).collect::<Vec<_>>(), VERBS);
            let took: f64 = lines[nth].1.parse().expect("a number");
            assert!(took >= SHORTEST, "{verb}: {told}");
        }
    }
}
