//! Seeds: two devices on a simulated network do what the model says.

use transom_simulation::model::Counts;
use transom_simulation::{Plan, run};

/// What was wrong with a seed, and how to see it.
fn check(seed: u64, counts: &mut Counts) {
    let outcome = run(&Plan::of(seed), false);
    counts.add(&outcome.counts);
    if let Some(wrong) = outcome.wrong {
        panic!(
            "seed {seed}: {wrong}\nagain, with all that happens: cargo xtask simulate --seed {seed} --trace"
        );
    }
}

/// Whatever the network does, every work request completes once and in order, with the right data or
/// a status that says why not; nothing lands outside a right that stands at that moment, and nothing
/// is carried out twice.
/// Rules: PSN-10, PSN-12, PSN-15, PSN-21, PSN-23, PSN-24, PSN-25, AT-10, RN-07, RN-09, CRC-09, NET-16
/// Rules: ORD-02, ORD-10, ORD-14, ORD-18, ORD-28, RA-33, RA-36, RA-43, RA-44, INV-23, INV-24, UC-01
/// Rules: FL-01, FL-03, PSN-20, RN-08, UC-02
#[test]
fn two_devices_do_what_the_model_says() {
    let mut counts = Counts::default();
    // More of them: cargo xtask simulate --seeds 10000
    for seed in 0..400 {
        check(seed, &mut counts);
    }
    // They have not passed because nothing happened.
    assert!(counts.succeeded > 4_000 && counts.received > 2_000, "{counts:#?}");
    assert!(counts.retransmitted > 5_000 && counts.corrupted > 200, "{counts:#?}");
    assert!(counts.refused > 50 && counts.not_ready > 1_000, "{counts:#?}");
}

/// A seed that is run again does the same again.
#[test]
fn a_seed_is_the_same_run_each_time() {
    for seed in 0..20 {
        let [first, second] = [(); 2].map(|()| run(&Plan::of(seed), false));
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
    }
}
