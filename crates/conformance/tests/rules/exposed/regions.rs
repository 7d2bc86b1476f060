//! What the account says of regions, on programs of known traffic.

use std::sync::LazyLock;

use transom_conformance::exposed::Exposed;
use transom_conformance::path_of;
use transom_conformance::processes::{Way, alone};
use transom_exposure::doors::Scope;
use transom_exposure::opening::{Object, Opening};
use transom_exposure::report::Measured;
use transom_exposure::{Deed, Rights};

static PROGRAM: LazyLock<Exposed> = LazyLock::new(|| Exposed::new(env!("CARGO_TARGET_TMPDIR")));

fn rights(deeds: &[Deed]) -> Rights {
    deeds.iter().copied().collect()
}

fn counts(opening: &Opening) -> [(u64, u64); 3] {
    opening.deeds.map(|times| (times.count, times.bytes))
}

/// Rules: EXP-01, EXP-03, EXP-04, EXP-08
#[test]
fn every_byte_and_operation_on_a_region_is_accounted_for() {
    let ran = PROGRAM.run("regions");
    let [account] = &ran.accounts[..] else { panic!("{:?}", ran.accounts) };
    let [used, unused] = &account.openings[..] else { panic!("{:?}", account.openings) };
    let Measured { opening, at_end: false, sums } = used else { panic!("{used:?}") };
    assert_eq!((opening.object, opening.length), (Object::Region, 4096));
    assert_eq!(opening.rights, rights(&[Deed::Read, Deed::Write]));
    assert_eq!(opening.address, opening.base);
    assert!(ran.step("opened").contains(&opening.since));
    assert!(ran.step("closed").contains(&opening.until));

    assert_eq!(counts(opening), [(1, 16), (3, 116), (0, 0)]);
    let [read, write, _] = opening.deeds;
    assert!(ran.step("read").contains(&read.first) && read.first == read.last);
    assert!(ran.step("first").contains(&write.first));
    assert!(ran.step("third").contains(&write.last));
    let users: Vec<_> = opening.users.iter().map(|it| (it.deed, it.times.count)).collect();
    assert_eq!(users, [(Deed::Write, 2), (Deed::Write, 1), (Deed::Read, 1)]);
    let pairs: Vec<_> = opening.users.iter().map(|it| it.pair).collect();
    assert!(pairs[0] != pairs[1] && pairs[1] == pairs[2] && opening.others == 0);

    let ranges: Vec<_> = opening.touched.ranges.iter().map(|it| (it.start, it.end)).collect();
    assert_eq!(ranges, [(64, 68), (68, 72), (72, 84), (1000, 1100)]);
    let at: Vec<_> = opening.touched.ranges.iter().map(|it| (it.first.at, it.last.at)).collect();
    let steps = [("first", "second"), ("first", "read"), ("read", "read"), ("third", "third")];
    for (at, (first, last)) in at.iter().zip(steps) {
        assert!(ran.step(first).contains(&at.0) && ran.step(last).contains(&at.1), "{at:?}");
    }

    // From the first queue pair's RTR, which is within the step, to the second one's end.
    let open = opening.open[0];
    assert!(open <= opening.until - opening.since, "{opening:?}");
    assert!(ran.between("opened", "closed").contains(&open), "{opening:?}");
    assert_eq!(opening.open, [open, open, open, 0]);
    let used = opening.touched.ranges.iter().map(|it| it.length() * it.last.open).sum::<u64>();
    assert_eq!((sums.open, sums.used), (u128::from(4096 * open), used.into()));
    assert_eq!((sums.touched, sums.excess), (120, 0));
    assert_eq!(sums.beside, u128::from((4096 - 120) * open));
    assert_eq!(sums.open, sums.used + sums.beside + sums.after);

    let unused = &unused.opening;
    assert_eq!((unused.length, counts(unused)), (1000, [(0, 0); 3]));
    assert!(ran.between("unused", "unused closed").contains(&unused.open[0]));
    assert_eq!(account.openings[1].sums.idle, u128::from(1000 * unused.open[0]));
}

/// Rules: EXP-01, EXP-02
#[test]
fn a_region_is_open_while_somebody_is_let_in() {
    let ran = PROGRAM.run("doors");
    let openings = &ran.accounts[0].openings;
    let opening = &openings.iter().find(|it| it.opening.length == 64).expect("it").opening;
    let [any, read, write, atomic] = opening.open;
    assert!(ran.between("let in", "shut").contains(&any), "{opening:?}");
    // The queue pair lets no atomics in.
    assert_eq!((read, write, atomic), (any, any, 0));
    let peers: Vec<_> = ran.accounts[0].could_use(opening).collect();
    let [(pair, rights_of)] = &peers[..] else { panic!("{peers:?}") };
    assert_eq!(*rights_of, rights(&[Deed::Read, Deed::Write]));
    assert_eq!((pair.number, pair.until - pair.since), (pair.peer, any));
    assert!(matches!(opening.scope, Scope::Domain(_)));
}

/// Rules: EXP-01, EXP-03
#[test]
fn a_region_that_moves_is_another_one_from_then_on() {
    let ran = PROGRAM.run("moved");
    let [before, after] = &ran.accounts[0].openings[..] else { panic!("{:?}", ran.accounts) };
    let (before, after) = (&before.opening, &after.opening);
    assert_eq!((before.key, before.length), (after.key, 4096));
    assert_eq!((after.address, after.length), (before.address + 2048, 1024));
    assert_eq!(
        (before.rights, after.rights),
        (rights(&[Deed::Read, Deed::Write]), rights(&[Deed::Write]))
    );
    assert_eq!([counts(before), counts(after)].map(|it| it[1]), [(1, 5), (1, 7)]);
    let ranges = [before, after].map(|it| (it.touched.ranges[0].start, it.touched.ranges[0].end));
    assert_eq!(ranges, [(10, 15), (2, 9)]);
    assert!(ran.step("moved").contains(&before.until) && ran.step("moved").contains(&after.since));
    assert!(before.until <= after.since + 1);
}

/// However many parts it comes in.
/// Rules: EXP-03, EXP-04
#[test]
fn an_operation_of_many_parts_is_one() {
    large("");
}

/// Rules: EXP-03, EXP-04
#[test]
fn an_operation_of_many_packets_is_one() {
    // The program's library is built outside of the network.
    LazyLock::force(&PROGRAM);
    alone(path_of!("an_operation_of_many_packets_is_one"), Way::Network, || large("wire"));
}

fn large(link: &str) {
    let ran = PROGRAM.run_over("large", link);
    let openings = &ran.accounts[0].openings;
    let region = &openings.iter().find(|it| it.opening.length == 2 << 20).expect("it").opening;
    let [(reads, read), written, atomics] = counts(region);
    assert_eq!((read, written, atomics), (700_000, (1, 700_000), (0, 0)), "{link}: {region:?}");
    // Over the wire the requester asks for it in parts.
    assert!(reads == 1 || (reads > 1 && link == "wire"), "{link}: {region:?}");
    let ranges = &region.touched.ranges;
    let ends = ranges.first().zip(ranges.last()).map(|(first, last)| (first.start, last.end));
    assert_eq!(ends, Some((1 << 20, (1 << 20) + 700_000)));
    assert_eq!(ranges.iter().map(|it| it.length()).sum::<u64>(), 700_000);
}

/// Rules: EXP-02, EXP-03, EXP-04
#[test]
fn atomics_count_apart_an_atomic_write_as_a_write_and_a_flush_not() {
    atomics("");
}

/// Rules: EXP-02, EXP-03, EXP-04
#[test]
fn atomics_over_the_wire_count_as_those_of_the_host() {
    // The program's library is built outside of the network.
    LazyLock::force(&PROGRAM);
    let path = path_of!("atomics_over_the_wire_count_as_those_of_the_host");
    alone(path, Way::Network, || atomics("wire"));
}

fn atomics(link: &str) {
    let ran = PROGRAM.run_over("atomics", link);
    let account = &ran.accounts[0];
    let all = rights(&[Deed::Read, Deed::Write, Deed::Atomic]);
    let opening = account.openings.iter().find(|it| it.opening.rights == all).expect("it");
    let opening = &opening.opening;
    assert_eq!(counts(opening), [(0, 0), (1, 8), (2, 16)], "{link}: {opening:?}");
    let users: Vec<_> = opening.users.iter().map(|it| (it.deed, it.times.count)).collect();
    assert_eq!(users, [(Deed::Atomic, 2), (Deed::Write, 1)], "{link}");
    let [_, write, atomic] = opening.deeds;
    assert!(ran.step("added").contains(&atomic.first), "{link}: {atomic:?}");
    assert!(ran.step("not swapped").contains(&atomic.last), "{link}: {atomic:?}");
    assert!(ran.step("written").contains(&write.first), "{link}: {write:?}");
    // Nothing of the answers, which the program itself asked for, nor of the range that was flushed.
    let ranges: Vec<_> = opening.touched.ranges.iter().map(|it| (it.start, it.end)).collect();
    assert_eq!(ranges, [(64, 72), (128, 136), (256, 264)], "{link}");
    // Atomics were let in only later.
    let [any, read, write, atomic] = opening.open;
    assert_eq!((read, write), (any, any), "{link}: {opening:?}");
    assert!(ran.between("let in", "closed").contains(&atomic), "{link}: {opening:?}");
    assert!(ran.between("opened", "let in").contains(&(any - atomic)), "{link}: {opening:?}");
}

/// Rules: EXP-02, EXP-03
#[test]
fn what_is_refused_is_no_use_and_ends_what_is_open() {
    let ran = PROGRAM.run("refused");
    let [region] = &ran.accounts[0].openings[..] else { panic!("{:?}", ran.accounts) };
    assert_eq!(counts(&region.opening), [(0, 0), (1, 5), (0, 0)]);
    let pairs = &ran.accounts[0].pairs;
    assert_eq!(pairs.len(), 2, "{pairs:?}");
    assert!(pairs.iter().all(|pair| ran.step("refused").contains(&pair.until)), "{pairs:?}");
}
