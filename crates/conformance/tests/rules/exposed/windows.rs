//! What the account says of windows, on programs of known traffic.

use std::sync::LazyLock;

use transom_conformance::exposed::Exposed;
use transom_exposure::Deed;
use transom_exposure::doors::Scope;
use transom_exposure::opening::Object::{Region, Window1, Window2};

static PROGRAM: LazyLock<Exposed> = LazyLock::new(|| Exposed::new(env!("CARGO_TARGET_TMPDIR")));

/// Rules: EXP-01, EXP-02, EXP-03, EXP-04
#[test]
fn each_binding_of_a_window_is_accounted_for() {
    let ran = PROGRAM.run("windows");
    let account = &ran.accounts[0];
    // The pair's own region comes first. The windows' region has no rights for peers.
    let windows = &account.openings[1..];
    assert_eq!(account.openings[0].opening.object, Region);
    let kinds: Vec<_> = windows.iter().map(|it| (it.opening.object, it.opening.length)).collect();
    let expected = [(Window1, 512), (Window1, 256), (Window2, 64), (Window2, 32), (Window2, 16)];
    assert_eq!(kinds, expected);
    let steps = [
        ("one", "one again"),
        ("one again", "one ended"),
        ("two", "two ended"),
        ("two again", "two taken"),
        ("three", "three ended"),
    ];
    for (it, (bound, ended)) in windows.iter().zip(steps) {
        let opening = &it.opening;
        assert!(ran.step(bound).contains(&opening.since), "{bound}: {opening:?}");
        assert!(ran.step(ended).contains(&opening.until), "{ended}: {opening:?}");
        assert_eq!(opening.until - opening.since, opening.open[0], "{opening:?}");
    }
    let uses = windows.iter().map(|it| it.opening.deeds.map(|times| (times.count, times.bytes)));
    let expected = [
        [(0, 0), (1, 512), (0, 0)],
        [(0, 0); 3],
        [(1, 30), (0, 0), (0, 0)],
        [(0, 0); 3],
        [(0, 0); 3],
    ];
    assert_eq!(uses.collect::<Vec<_>>(), expected);
    let touched = &windows[2].opening.touched.ranges;
    assert_eq!(touched.iter().map(|it| (it.start, it.end)).collect::<Vec<_>>(), [(6, 36)]);
    assert_eq!(windows[2].opening.users[0].deed, Deed::Read);

    let peers = |at: usize| account.could_use(&windows[at].opening).count();
    assert_eq!([peers(0), peers(2)], [2, 1], "all of the domain, or the one that bound it");
    let bound_by = windows[2].opening.users[0].pair;
    assert_eq!(windows[2].opening.scope, Scope::Pair(bound_by));
}
