use super::*;
use crate::names::Names;
use crate::report::{Account, groups};
use crate::sums::Change;
use crate::{Deed, Rights};

const DOMAIN: u32 = 3;

fn rights(deeds: &[Deed]) -> Rights {
    deeds.iter().copied().collect()
}

fn region(slot: u32, length: u64) -> Opens {
    Opens {
        device: 1,
        slots: (slot, None),
        key: slot << 8,
        object: Object::Region,
        scope: Scope::Domain(DOMAIN),
        site: 1,
        rights: rights(&[Deed::Read, Deed::Write]),
        address: 0x1000,
        length,
        base: 0x1000,
    }
}

fn pair(number: u32, deeds: &[Deed]) -> Pair {
    let (domain, rights) = (Some(DOMAIN), rights(deeds));
    Pair { device: 1, number, domain, peer: 9, gid: [1; 16], rights, since: 0, until: 0 }
}

fn touch(deed: Deed, address: u64, length: u64) -> Touch {
    Touch { pair: 8, deed, address, length, begins: true }
}

/// The account in the cells that were said to change, as a command reads it.
#[derive(Default)]
struct Kept(Vec<[u64; WORDS]>);

impl Kept {
    fn take(&mut self, audit: &mut Audit) {
        for (at, words) in audit.changed() {
            self.0.resize(self.0.len().max(at + 1), [0; WORDS]);
            self.0[at] = words;
        }
    }

    fn account(&self, end: u64) -> Account {
        Account::of(Names::default(), self.0.iter().map(Cell::of), end)
    }
}

fn account(audit: &mut Audit, end: u64) -> Account {
    let mut kept = Kept::default();
    kept.take(audit);
    kept.account(end)
}

/// Rules: EXP-02, EXP-08
#[test]
fn the_sums_are_those_of_pencil_and_paper() {
    let mut audit = Audit::begin(0);
    audit.opens(&region(0, 100), 1_000);
    audit.lets_in(&pair(8, &[Deed::Read, Deed::Write]), 2_000);
    audit.touches(1, 0, &touch(Deed::Write, 0x1000 + 10, 20), 5_000);
    audit.touches(1, 0, &touch(Deed::Write, 0x1000 + 10, 20), 6_000);
    audit.lets_in(&pair(8, &[]), 10_000);
    audit.closes(1, 0, 12_000);
    let account = account(&mut audit, 99_000);
    let sums = account.sums();
    assert_eq!((sums.open, sums.used), (100 * 8_000, 20 * 4_000));
    assert_eq!(sums.unused(), 720_000);
    assert_eq!((sums.beside, sums.after), (80 * 8_000, 20 * 4_000));
    assert_eq!(sums.needed, 20 * 1_000);
    assert_eq!(sums.by_right, [800_000, 800_000, 0]);
    let expected = [
        (Change::Window, 780_000),
        (Change::FewerBytes, 640_000),
        (Change::ShorterLife, 80_000),
        (Change::FewerRights(Deed::Read), 800_000),
    ];
    assert_eq!(sums.changes(true), expected);
    assert_eq!(sums.changes(false), expected[1..]);
    assert!((sums.percent_unused() - 90.0).abs() < 1e-9);
    let pairs: Vec<_> = account.pairs.iter().map(|it| (it.since, it.until)).collect();
    assert_eq!(pairs, [(2_000, 10_000)]);
}

/// What is open when the process is killed is open until the end that the command knows.
/// Rule: EXP-06
#[test]
fn what_is_open_at_the_end_ends_there() {
    let mut audit = Audit::begin(0);
    audit.lets_in(&pair(8, &[Deed::Read]), 0);
    audit.opens(&region(0, 10), 1_000);
    assert_eq!(account(&mut audit, 4_000).sums().open, 10 * 3_000);
    let mut audit = Audit::begin(0);
    audit.opens(&region(0, 10), 1_000);
    audit.lets_in(&pair(8, &[Deed::Read]), 2_000);
    audit.end(3_000);
    assert_eq!(account(&mut audit, 4_000).sums().open, 10 * 1_000);
}

/// A type 2 window is open to the peer of the queue pair that bound it, a region to those of the domain.
/// Rule: EXP-02
#[test]
fn a_key_is_open_by_the_queue_pairs_that_can_use_it() {
    let window = Opens {
        slots: (1, Some(0)),
        object: Object::Window2,
        scope: Scope::Pair(7),
        ..region(1, 10)
    };
    let mut audit = Audit::begin(0);
    audit.opens(&region(0, 100), 0);
    audit.opens(&window, 0);
    audit.lets_in(&pair(8, &[Deed::Write]), 1_000);
    audit.lets_in(&pair(7, &[Deed::Read]), 2_000);
    audit.lets_in(&Pair { domain: Some(4), ..pair(6, &[Deed::Read]) }, 500);
    audit.lets_in(&Pair { device: 2, ..pair(5, &[Deed::Read]) }, 500);
    let account = account(&mut audit, 4_000);
    let [region, window] = &account.openings[..] else { panic!("{account:?}") };
    assert_eq!(region.opening.open, [3_000, 2_000, 3_000, 0]);
    assert_eq!(window.opening.open, [2_000, 2_000, 0, 0]);
    assert_eq!(window.opening.region, region.opening.number);
    let peers =
        |it: &Opening| account.could_use(it).map(|(pair, _)| pair.number).collect::<Vec<_>>();
    assert_eq!((peers(&region.opening), peers(&window.opening)), (vec![8, 7], vec![7]));
    // The receiving end of XRC serves all domains.
    let mut audit = Audit::begin(0);
    audit.opens(&self::region(0, 100), 0);
    audit.lets_in(&Pair { domain: None, ..pair(6, &[Deed::Read]) }, 500);
    assert_eq!(self::account(&mut audit, 1_000).sums().open, 100 * 500);
}

/// Rule: EXP-05
#[test]
fn folded_or_not_the_sums_are_the_same() {
    let (mut audit, mut kept) = (Audit::begin(0), Kept::default());
    audit.lets_in(&pair(8, &[Deed::Read, Deed::Write]), 0);
    let count = 3 * ROOM as u64;
    for number in 0..count {
        let now = number * 100;
        let site = (number % 5) as u32;
        audit.opens(&Opens { site, ..region(0, 10) }, now);
        if number % 2 == 0 {
            audit.touches(1, 0, &touch(Deed::Read, 0x1000, 4), now + 30);
        }
        audit.closes(1, 0, now + 50);
        kept.take(&mut audit);
    }
    let account = kept.account(u64::MAX);
    assert_eq!(account.folded.len(), 5);
    let sums = account.sums();
    assert_eq!((sums.openings, sums.untouched), (count, count / 2));
    assert_eq!(sums.open, u128::from(count) * 10 * 50);
    assert_eq!(sums.used, u128::from(count / 2) * 4 * 30);
    assert_eq!(sums.deeds[0].count, count / 2);
    assert_eq!(account.process.openings_left_out, 0);
    let accounts = [account];
    let groups = groups(&accounts);
    assert_eq!(groups.len(), 5);
    assert_eq!(groups.iter().map(|it| it.sums.openings).sum::<u64>(), count);
}

/// Rule: EXP-05
#[test]
fn what_has_no_room_is_left_out_and_counted() {
    let (mut audit, mut kept) = (Audit::begin(0), Kept::default());
    let count = ROOM as u32 + 100;
    (0..count).for_each(|slot| audit.opens(&region(slot, 10), 0));
    kept.take(&mut audit);
    // One cell is the process's, and one its reach.
    assert_eq!(kept.account(10).process.openings_left_out, 102);
    (0..count).for_each(|slot| audit.closes(1, slot, 20));
    audit.opens(&region(0, 10), 30);
    kept.take(&mut audit);
    assert_eq!(kept.account(40).process.openings_left_out, 102, "there is room again");
}

/// Rule: EXP-05
#[test]
fn a_disk_without_room_is_as_an_account_without_room() {
    let (mut audit, mut kept) = (Audit::begin(0), Kept::default());
    // The process, its reach and two regions.
    audit.gets_room(4);
    for (slot, needs_room) in [(0, true), (1, true), (2, true), (3, true)] {
        audit.opens(&region(slot, 10), 0);
        assert_eq!(audit.needs_room(), needs_room, "{slot}");
    }
    kept.take(&mut audit);
    assert_eq!((kept.0.len(), kept.account(10).process.openings_left_out), (4, 2));
    audit.gets_room(64);
    assert!(!audit.needs_room());
    audit.opens(&region(4, 10), 0);
    kept.take(&mut audit);
    assert_eq!((kept.0.len(), kept.account(10).process.openings_left_out), (5, 2));
    audit.gets_room(ROOM);
    (5..2 * ROOM as u32).for_each(|slot| audit.opens(&region(slot, 10), 0));
    assert!(!audit.needs_room(), "there cannot be more");
}

/// Connections come and go. The newest stay in the account.
/// Rule: EXP-05
#[test]
fn old_connections_make_room_for_new_ones() {
    let (mut audit, mut kept) = (Audit::begin(0), Kept::default());
    for number in 0..2_000 {
        audit.lets_in(&pair(number, &[Deed::Read]), u64::from(number));
        audit.lets_in(&pair(number, &[]), u64::from(number) + 1);
        kept.take(&mut audit);
    }
    let account = kept.account(9_000);
    assert_eq!(account.pairs.len() as u64 + account.process.pairs_left_out, 2_000);
    assert_eq!(account.pairs.last().map(|pair| pair.number), Some(1_999));
}
