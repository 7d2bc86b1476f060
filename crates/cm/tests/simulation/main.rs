//! Connection managers on a bad network, seed after seed.
//!
//! There are three hosts with two processes each. The processes connect to each other, accept, refuse, delay,
//! disconnect, forget and die. Meanwhile the network loses, duplicates, delays and reorders messages, and replays old
//! ones. The [`model`] is told only of the programs' calls and events. It decides which events a program may get next.
//! When no message is under way any more, every connected end has a peer that is connected with it. When all ids are
//! gone, no table and no timer holds anything.
//!
//! ```sh
//! cargo test -p transom-cm --test simulation                          # 150 seeds
//! TRANSOM_CM_SEEDS=10000 cargo test -p transom-cm --test simulation   # more
//! TRANSOM_CM_SEED=7 cargo test -p transom-cm --test simulation        # one, with all that happens
//! ```

mod model;
mod simulation;

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};

use simulation::{Counts, Simulation};

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name}: a number")))
}

/// Runs a seed. A failure names the seed.
fn run(seed: u64, trace: bool) -> Counts {
    let outcome = catch_unwind(AssertUnwindSafe(|| Simulation::new(seed, trace).run()));
    outcome.unwrap_or_else(|_| {
        panic!(
            "seed {seed} failed; again, with all that happens:\n  \
            TRANSOM_CM_SEED={seed} cargo test -p transom-cm --test simulation -- --nocapture"
        )
    })
}

/// Rules: CM-08, CM-14, CM-15, CM-16, CM-17, CM-18, CM-19, CM-20, CM-22, CM-25, CM-26, CM-27, CM-28, CM-29
/// Rules: CM-30, CM-31, CM-32, CM-33, CM-35, CM-41, CM-44
#[test]
fn every_pair_ends_connected_at_both_ends_or_at_none_and_nothing_is_left() {
    if let Some(seed) = number("TRANSOM_CM_SEED") {
        println!("{:#?}", run(seed, true));
        return;
    }
    let seeds = number("TRANSOM_CM_SEEDS").unwrap_or(150);
    let mut counts = Counts::default();
    for seed in 0..seeds {
        counts.add(&run(seed, false));
    }
    println!("{counts:#?}");
    // Check that enough has happened.
    let enough = |count: u64, each: u64| assert!(count >= each * seeds / 10, "{counts:#?}");
    enough(counts.established, 100);
    enough(counts.resolved, 20);
    enough(counts.rejected, 20);
    enough(counts.unreachable, 5);
    enough(counts.disconnected, 50);
    enough(counts.pairs, 20);
    enough(counts.early, 1);
    enough(counts.lost, 200);
    enough(counts.mras, 50);
    enough(counts.full, 1);
    enough(counts.deaths, 5);
}

/// Every run of a seed is the same.
#[test]
fn a_seed_is_the_same_run_each_time() {
    for seed in 0..5 {
        assert_eq!(run(seed, false), run(seed, false));
    }
}
