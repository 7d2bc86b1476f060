//! Garbage changes nothing: every verb is called with arguments that are partly sane and partly not,
//! as far as C allows; pointers are null or of live objects of their kind, of either context. A call
//! succeeds, and what it made can be ended, or it is refused with an errno that the manual pages know.
//! What it does not name goes on working.
//!
//! A round is repeated by its seed, which a failure names: `TRANSOM_SEED=17`. `TRANSOM_LONG=1` runs
//! many more.

use std::env;

use transom_conformance::on_each_way;
use transom_conformance::processes::{is_long, note};

mod changing;
mod making;
mod objects;
mod posting;

use objects::Objects;

/// Calls between two looks at whether all works.
const CALLS: usize = 16;

fn round(seed: u64) {
    // The last word of a process that does not end well.
    note(seed);
    let mut objects = Objects::new(seed);
    let acts = [making::ACTS.as_slice(), &changing::ACTS, &posting::ACTS];
    for _ in 0..24 {
        for _ in 0..CALLS {
            objects.random.change_mood();
            let kind = objects.random.one_of(&acts);
            objects.random.one_of(kind)(&mut objects);
        }
        objects.drain();
        objects.works();
    }
    objects.end();
}

on_each_way! {
    /// In a process of its own, so that a crash is seen as one.
    fn garbage_is_refused_or_done() {
        if let Ok(seed) = env::var("TRANSOM_SEED") {
            return round(seed.parse().expect("a seed is a number"));
        }
        (0..if is_long() { 10_000 } else { 100 }).for_each(round);
    }
}
