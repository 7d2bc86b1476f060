//! The litmus tests of `spec/ordering.md`, played on the device: no outcome is reached that nothing allows. How many of
//! the others are is counted by the program `litmus` (`spec/ordering-reached.md`).

use std::path::Path;
use std::thread;

use transom_conformance::documents::Document;
use transom_conformance::litmus::page;
use transom_conformance::litmus::reached::{Play, wrong};
use transom_conformance::litmus::stage::obstacle;
use transom_conformance::processes::is_long;
use transom_rehearse::Order;

const LITMUS: &str = env!("CARGO_BIN_EXE_litmus");
/// The seeds here: nodes are processes, all are one device, each is a device. The first one has shared memory.
const SEEDS: [u64; 3] = [1, 2, 4];
/// How many seeds there are in the long mode.
const LONG: u64 = 40;

fn is_within(rehearsed: Option<Order>, seed: u64) {
    is_within_by(rehearsed, seed, false);
}

fn is_within_by(rehearsed: Option<Order>, seed: u64, by_packets: bool) {
    let tests = page::parse(&Document::read("spec/ordering.md").text).unwrap();
    let played: Vec<_> = tests.iter().filter(|it| obstacle(&it.program).is_none()).collect();
    let names: Vec<_> = played.iter().map(|it| &*it.name).collect();
    let rounds = if is_long() { 20 } else { 3 };
    let play = Play { seed, rehearsed, rounds, by_packets };
    let reached = play.outcomes(Path::new(LITMUS), &names).unwrap();
    assert_eq!(reached.len(), played.len());
    let found = played.iter().flat_map(|test| wrong(test, &reached[&test.name], rehearsed));
    assert_eq!(found.collect::<Vec<_>>(), [""; 0], "seed {seed}, rehearsed: {rehearsed:?}");
}

/// Rules: ORD-01, ORD-07, ORD-09, ORD-12, ORD-13
#[test]
fn a_plain_run_reaches_no_outcome_that_its_design_excludes() {
    // Nodes are processes with private memory, too.
    SEEDS.into_iter().chain([6]).for_each(|seed| is_within(None, seed));
}

/// Where all that nodes send each other are packets, as between hosts.
///
/// Rules: ORD-01, ORD-07, ORD-09, ORD-12, ORD-13
#[test]
fn by_packets_a_plain_run_reaches_no_more() {
    [1, 6].into_iter().for_each(|seed| is_within_by(None, seed, true));
}

fn rehearsals_are_within(order: Order) {
    let seeds: Vec<_> = if is_long() { (1..=LONG).collect() } else { SEEDS.to_vec() };
    thread::scope(|scope| {
        for half in [0, 1] {
            let seeds = seeds.iter().skip(half).step_by(2);
            scope.spawn(move || seeds.for_each(|seed| is_within(Some(order), *seed)));
        }
    });
}

/// Rules: REH-60, REH-61, REH-62, REH-90, REH-91, REH-92, REH-93, REH-94, ORD-07
#[test]
fn a_rehearsal_reaches_no_outcome_that_the_specification_forbids() {
    rehearsals_are_within(Order::Spec);
}

/// Rules: REH-90, REH-91, REH-92
#[test]
fn a_rehearsal_by_the_model_reaches_no_outcome_that_it_forbids() {
    rehearsals_are_within(Order::Model);
}
