//! The room of the account, and processes that are killed or fork.

use std::sync::LazyLock;

use transom_conformance::exposed::Exposed;
use transom_exposure::opening::Object;
use transom_exposure::sums::Sums;

static PROGRAM: LazyLock<Exposed> = LazyLock::new(|| Exposed::new(env!("CARGO_TARGET_TMPDIR")));

/// Rule: EXP-05
#[test]
fn closed_windows_of_one_call_share_a_cell_and_their_sums_stay() {
    let ran = PROGRAM.run("many");
    let account = &ran.accounts[0];
    let mut sums = Sums::default();
    let single = account.openings.iter().filter(|it| it.opening.object == Object::Window2);
    single.clone().for_each(|it| sums.and(&it.sums));
    assert!(single.count() > 1000);
    let [folded] = &account.folded[..] else { panic!("{:?}", account.folded) };
    sums.and(&folded.sums);
    assert_eq!((sums.openings, sums.untouched), (5000, 0));
    assert_eq!((sums.bytes, sums.touched), (5000 * 64, 5000 * 32));
    let [read, write, atomic] = sums.deeds.map(|it| (it.count, it.bytes));
    assert_eq!((read, write, atomic), ((5000, 5000 * 32), (0, 0), (0, 0)));
    assert_eq!(sums.open, sums.used + sums.beside + sums.after);
    assert_eq!(sums.beside * 2, sums.open, "half of each was touched");
    assert_eq!(account.process.openings_left_out, 0);
}

/// Rule: EXP-05
#[test]
fn what_has_no_room_is_counted() {
    let ran = PROGRAM.run("crowd");
    let account = &ran.accounts[0];
    let left_out = account.process.openings_left_out;
    assert_eq!(account.openings.len() as u64 + left_out, 3001);
    assert!(left_out > 0 && account.folded.is_empty());
    // What has a cell is exact.
    assert_eq!(account.openings[0].opening.deeds[1].count, 1);
}

/// Rules: EXP-02, EXP-06
#[test]
fn the_account_of_a_killed_process_is_whole() {
    let ran = PROGRAM.run("killed");
    let account = &ran.accounts[0];
    assert_eq!(account.process.ended, 0);
    let [used, unused, open] = &account.openings[..] else { panic!("{:?}", account.openings) };
    assert_eq!(used.opening.deeds.map(|it| it.count), [1, 3, 0]);
    assert!(!used.at_end && !unused.at_end && open.at_end);
    assert_eq!((open.opening.length, open.opening.deeds.map(|it| it.count)), (2000, [0; 3]));
    // It slept for 20 ms after the queue pair began to let peers in.
    assert!(open.opening.open[0] >= 20_000_000, "{open:?}");
}

/// Rule: EXP-07
#[test]
fn a_forked_child_has_an_account_of_its_own() {
    let ran = PROGRAM.run("forks");
    let [parent, child] = &ran.accounts[..] else { panic!("{:?}", ran.accounts) };
    assert_ne!(parent.names.pid, child.names.pid);
    assert_eq!(parent.openings.len(), 2);
    let [region] = &child.openings[..] else { panic!("{:?}", child.openings) };
    assert_eq!(region.opening.deeds.map(|it| (it.count, it.bytes)), [(0, 0), (1, 4096), (0, 0)]);
    assert!([parent, child].iter().all(|it| it.process.ended > it.process.began));
    let user = region.opening.users[0].pair;
    assert!(child.pairs.iter().any(|pair| pair.number == user));
}
