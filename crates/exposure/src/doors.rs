//! Queue pairs that let peers in, and how long a set of rights was of use to anybody.

use crate::Rights;

/// Who can use the key of a region or window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// The peers of all queue pairs of a protection domain. It is a region's, or a type 1 window's.
    Domain(u32),
    /// The peer of one queue pair, which has bound a window of type 2.
    Pair(u32),
}

/// A queue pair, as long as it lets its peer in to the same things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Its device, by a number of the process.
    pub device: u64,
    /// Its number.
    pub number: u32,
    /// Its protection domain. `None` for the receiving end of XRC: it serves the domains of shared receive queues, so
    /// it counts for all.
    pub domain: Option<u32>,
    /// The queue pair at the other end.
    pub peer: u32,
    /// The address of the other end.
    pub gid: [u8; 16],
    /// What the peer may do.
    pub rights: Rights,
    /// From when on, in nanoseconds of the steady clock.
    pub since: u64,
    /// Until when; zero if it still does.
    pub until: u64,
}

impl Pair {
    /// Whether it serves the keys of this scope.
    pub fn serves(&self, device: u64, scope: Scope) -> bool {
        let is_in = match scope {
            Scope::Domain(domain) => self.domain.is_none_or(|own| own == domain),
            Scope::Pair(number) => self.number == number,
        };
        self.device == device && is_in
    }
}

/// How many sets of rights there are.
const SETS: usize = 8;

/// For each set of rights, how long some queue pair of a scope allowed one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// How many queue pairs do now.
    pairs: [u32; SETS],
    /// Nanoseconds until the last change.
    total: [u64; SETS],
    /// The last change, if some queue pair does now.
    since: [u64; SETS],
}

impl Reach {
    /// A queue pair allows other rights than before.
    pub fn change(&mut self, before: Rights, after: Rights, now: u64) {
        for set in 1..SETS {
            let one_of = |rights: Rights| !rights.both(Rights::from_bits(set as u8)).is_empty();
            let count = self.pairs[set];
            self.pairs[set] = match (one_of(before), one_of(after)) {
                (false, true) => count.saturating_add(1),
                (true, false) => count.saturating_sub(1),
                _ => continue,
            };
            match (count, self.pairs[set]) {
                (0, 1..) => self.since[set] = now,
                (1.., 0) => self.total[set] += now.saturating_sub(self.since[set]),
                _ => {}
            }
        }
    }

    /// Nanoseconds until `now` in which somebody could use one of these rights.
    pub fn total(&self, rights: Rights, now: u64) -> u64 {
        let set = usize::from(rights.bits());
        let running = if self.pairs[set] > 0 { now.saturating_sub(self.since[set]) } else { 0 };
        self.total[set].saturating_add(running)
    }

    /// Its numbers, for a cell.
    pub(crate) fn parts(&self) -> impl Iterator<Item = u64> {
        let set = |set: usize| [self.pairs[set].into(), self.total[set], self.since[set]];
        (1..SETS).flat_map(set)
    }

    /// The reach of these numbers.
    pub(crate) fn of(mut parts: impl FnMut() -> u64) -> Self {
        let mut reach = Self::default();
        for set in 1..SETS {
            reach.pairs[set] = parts() as u32;
            (reach.total[set], reach.since[set]) = (parts(), parts());
        }
        reach
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Deed::{Atomic, Read, Write};

    fn rights(deeds: &[crate::Deed]) -> Rights {
        deeds.iter().copied().collect()
    }

    /// Rule: EXP-02
    #[test]
    fn time_counts_while_somebody_has_one_of_the_rights() {
        let (read, write, both) = (rights(&[Read]), rights(&[Write]), rights(&[Read, Write]));
        let mut reach = Reach::default();
        reach.change(Rights::NONE, read, 10);
        reach.change(Rights::NONE, both, 15);
        reach.change(read, Rights::NONE, 20);
        // The other one may still read.
        assert_eq!([read, write, both].map(|it| reach.total(it, 30)), [20, 15, 20]);
        reach.change(both, write, 40);
        assert_eq!([read, write, both].map(|it| reach.total(it, 50)), [30, 35, 40]);
        reach.change(write, Rights::NONE, 60);
        assert_eq!([read, write, both].map(|it| reach.total(it, 99)), [30, 45, 50]);
        assert_eq!(reach.total(rights(&[Atomic]), 99), 0);
        let mut parts = reach.parts();
        assert_eq!(Reach::of(|| parts.next().unwrap()), reach);
    }
}
