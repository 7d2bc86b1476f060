//! The account in memory that outlives the process: cells of one size. A cell has two copies of its content and a
//! number that says which of them is good, so a process may be killed in the middle of a change.

use crate::doors::{Pair, Reach, Scope};
use crate::opening::{Object, Opening, Times, USERS, User};
use crate::sums::Sums;
use crate::touched::{Moment, RANGES, Range, Touched};
use crate::{Deed, Rights};

/// The words of a cell's content.
pub const WORDS: usize = 148;

/// The words of a cell: how often it was written, and two copies.
pub const CELL: usize = 1 + 2 * WORDS;

/// The copy that is good after so many writes: the index of its first word in the cell.
pub const fn copy_after(writes: u64) -> usize {
    1 + (writes as usize & 1) * WORDS
}

/// What a cell holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cell {
    /// Nothing.
    #[default]
    Empty,
    /// The process itself.
    Process(Process),
    /// How long the rights of a scope were of use.
    Reach {
        /// Its device.
        device: u64,
        /// Its scope.
        scope: Scope,
        /// For how long.
        reach: Reach,
    },
    /// A queue pair that lets its peer in.
    Pair(Pair),
    /// A region or window.
    Opening(Box<Opening>),
    /// Regions or windows that are closed, in one for want of room.
    Folded(Box<Folded>),
}

/// The life of a process, and what had no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// When it opened its first device.
    pub began: u64,
    /// When it ended; zero if it did not say.
    pub ended: u64,
    /// How many regions and windows are in no cell.
    pub openings_left_out: u64,
    /// How many queue pairs that let a peer in are in no cell.
    pub pairs_left_out: u64,
    /// How many accesses of peers to memory were refused.
    pub refused: u64,
}

/// Regions or windows of one call, with the same rights, that are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Folded {
    /// Whether they are regions or windows.
    pub object: Object,
    /// Where they were registered or bound.
    pub site: u32,
    /// What peers could do.
    pub rights: Rights,
    /// When the first one opened.
    pub since: u64,
    /// When the last one closed.
    pub until: u64,
    /// Their sums.
    pub sums: Sums,
}

/// Puts numbers one behind the other. It never has more of them than room: the test of the largest cell sees to that.
struct Writer([u64; WORDS], usize);

impl Writer {
    fn put(&mut self, words: impl IntoIterator<Item = u64>) {
        for word in words {
            if let Some(place) = self.0.get_mut(self.1) {
                *place = word;
            }
            self.1 += 1;
        }
    }

    fn put_wide(&mut self, number: u128) {
        self.put([number as u64, (number >> 64) as u64]);
    }

    fn put_scope(&mut self, scope: Scope) {
        self.put(match scope {
            Scope::Domain(number) => [0, number.into()],
            Scope::Pair(number) => [1, number.into()],
        });
    }

    fn put_times(&mut self, times: &Times) {
        self.put([times.count, times.bytes, times.first, times.last]);
    }
}

/// Takes them again. A program may have written anything.
struct Reader<'a>(&'a [u64]);

impl Reader<'_> {
    fn take(&mut self) -> u64 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn take_wide(&mut self) -> u128 {
        u128::from(self.take()) | u128::from(self.take()) << 64
    }

    fn take_scope(&mut self) -> Scope {
        match (self.take(), self.take() as u32) {
            (0, number) => Scope::Domain(number),
            (_, number) => Scope::Pair(number),
        }
    }

    fn take_times(&mut self) -> Times {
        Times { count: self.take(), bytes: self.take(), first: self.take(), last: self.take() }
    }

    fn take_rights(&mut self) -> Rights {
        Rights::from_bits(self.take() as u8)
    }

    fn take_deed(&mut self) -> Deed {
        Deed::ALL[(self.take() as usize).min(2)]
    }

    fn take_object(&mut self) -> Object {
        Object::ALL[(self.take() as usize).min(2)]
    }

    fn take_gid(&mut self) -> [u8; 16] {
        self.take_wide().to_le_bytes()
    }
}

impl Cell {
    /// Its content.
    pub fn words(&self) -> [u64; WORDS] {
        let mut to = Writer([0; WORDS], 0);
        match self {
            Self::Empty => {}
            Self::Process(it) => {
                to.put([1, it.began, it.ended, it.openings_left_out, it.pairs_left_out]);
                to.put([it.refused]);
            }
            Self::Reach { device, scope, reach } => {
                to.put([2, *device]);
                to.put_scope(*scope);
                to.put(reach.parts());
            }
            Self::Pair(it) => {
                to.put([3, it.device, it.number.into(), it.peer.into()]);
                to.put([it.domain.map_or(0, |number| u64::from(number) + 1)]);
                to.put_wide(u128::from_le_bytes(it.gid));
                to.put([it.rights.bits().into(), it.since, it.until]);
            }
            Self::Opening(it) => it.put(&mut to),
            Self::Folded(it) => {
                to.put([5, it.object as u64, it.site.into(), it.rights.bits().into()]);
                to.put([it.since, it.until, it.sums.openings, it.sums.untouched]);
                it.sums.wide().into_iter().for_each(|number| to.put_wide(number));
                it.sums.deeds.iter().for_each(|times| to.put_times(times));
            }
        }
        debug_assert!(to.1 <= WORDS);
        to.0
    }

    /// The cell of this content.
    pub fn of(words: &[u64; WORDS]) -> Self {
        let mut from = Reader(words);
        match from.take() {
            1 => Self::Process(Process {
                began: from.take(),
                ended: from.take(),
                openings_left_out: from.take(),
                pairs_left_out: from.take(),
                refused: from.take(),
            }),
            2 => Self::Reach {
                device: from.take(),
                scope: from.take_scope(),
                reach: Reach::of(|| from.take()),
            },
            3 => Self::Pair(Pair {
                device: from.take(),
                number: from.take() as u32,
                peer: from.take() as u32,
                domain: from.take().checked_sub(1).map(|number| number as u32),
                gid: from.take_gid(),
                rights: from.take_rights(),
                since: from.take(),
                until: from.take(),
            }),
            4 => Self::Opening(Box::new(Opening::take(&mut from))),
            5 => {
                let (object, site) = (from.take_object(), from.take() as u32);
                let (rights, since, until) = (from.take_rights(), from.take(), from.take());
                let mut sums =
                    Sums { openings: from.take(), untouched: from.take(), ..Sums::default() };
                sums.set_wide(|| from.take_wide());
                sums.deeds = [(); 3].map(|()| from.take_times());
                Self::Folded(Box::new(Folded { object, site, rights, since, until, sums }))
            }
            _ => Self::Empty,
        }
    }
}

/// The cells in a file's bytes.
pub fn read(bytes: &[u8]) -> impl Iterator<Item = Cell> {
    bytes.chunks_exact(CELL * 8).filter_map(|bytes| {
        let word = |at: usize| {
            let word = bytes.get(at * 8..)?.first_chunk::<8>()?;
            Some(u64::from_ne_bytes(*word))
        };
        let writes = word(0).filter(|writes| *writes > 0)?;
        let mut words = [0; WORDS];
        for (at, place) in words.iter_mut().enumerate() {
            *place = word(copy_after(writes) + at)?;
        }
        Some(Cell::of(&words))
    })
}

impl Opening {
    fn put(&self, to: &mut Writer) {
        to.put([4, self.object as u64, self.number, self.device, self.key.into()]);
        to.put_scope(self.scope);
        to.put([self.region, self.site.into(), self.rights.bits().into()]);
        to.put([self.address, self.length, self.base, self.since, self.until]);
        to.put(self.open);
        self.deeds.iter().for_each(|times| to.put_times(times));
        to.put([self.others, self.users.len() as u64, self.touched.ranges.len() as u64]);
        to.put_wide(self.touched.excess);
        for user in self.users.iter().take(USERS) {
            to.put([user.pair.into(), user.deed as u64]);
            to.put_times(&user.times);
        }
        for it in self.touched.ranges.iter().take(RANGES) {
            to.put([it.start, it.end, it.first.at, it.first.open, it.last.at, it.last.open]);
        }
    }

    fn take(from: &mut Reader<'_>) -> Self {
        let (object, number, device) = (from.take_object(), from.take(), from.take());
        let (key, scope) = (from.take() as u32, from.take_scope());
        let (region, site, rights) = (from.take(), from.take() as u32, from.take_rights());
        let (address, length, base) = (from.take(), from.take(), from.take());
        let (since, until) = (from.take(), from.take());
        let open = [(); 4].map(|()| from.take());
        let deeds = [(); 3].map(|()| from.take_times());
        let (others, users, ranges) = (from.take(), from.take(), from.take());
        let excess = from.take_wide();
        let user = |from: &mut Reader<'_>| User {
            pair: from.take() as u32,
            deed: from.take_deed(),
            times: from.take_times(),
        };
        let users = (0..users.min(USERS as u64)).map(|_| user(from)).collect();
        let moment = |from: &mut Reader<'_>| Moment { at: from.take(), open: from.take() };
        let mut behind = 0;
        let mut range = |from: &mut Reader<'_>| {
            let (start, end) = (from.take(), from.take());
            let (start, end) = (start.clamp(behind, length), end.min(length));
            behind = end.max(start);
            let (first, last) = (moment(from), moment(from));
            let last = Moment { at: last.at.max(first.at), open: last.open.max(first.open) };
            Range { start, end: behind, first, last }
        };
        let ranges = (0..ranges.min(RANGES as u64)).map(|_| range(from)).collect();
        let touched = Touched { ranges, excess };
        Self {
            number,
            object,
            device,
            key,
            scope,
            region,
            site,
            rights,
            address,
            length,
            base,
            since,
            until,
            open,
            deeds,
            users,
            others,
            touched,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Names;
    use crate::report::{Account, groups};

    /// The largest cells there are, no number like another.
    fn cells() -> Vec<Cell> {
        let mut next = 0_u64;
        let mut take = || {
            next += 1 << 33 | 1;
            next
        };
        let rights = Rights::from_bits(5);
        let mut times = || Times { count: take(), bytes: take(), first: take(), last: take() };
        let deeds = [(); 3].map(|()| times());
        let users = (0..USERS as u32).map(|pair| User { pair, deed: Deed::Write, times: times() });
        let users = users.collect();
        let mut moment = || Moment { at: take(), open: take() };
        let ranges = (0..RANGES as u64).map(|at| {
            let (first, last) = (moment(), moment());
            Range { start: at * 9, end: at * 9 + 5, first, last }
        });
        let touched = Touched { ranges: ranges.collect(), excess: u128::MAX - 3 };
        let opening = Opening {
            number: 7,
            object: Object::Window2,
            device: u64::MAX,
            key: 9,
            scope: Scope::Pair(3),
            region: 6,
            site: 2,
            rights,
            address: u64::MAX - 1,
            length: 777,
            base: 78,
            since: 79,
            until: 80,
            open: [1, 2, 3, 4],
            deeds,
            users,
            others: 5,
            touched,
        };
        let mut sums = Sums { openings: 3, untouched: 2, deeds, ..Sums::default() };
        let mut wide = 1_u128 << 70;
        sums.set_wide(|| {
            wide += 1 << 65 | 1;
            wide
        });
        let mut reach = Reach::default();
        reach.change(Rights::NONE, rights, 1234);
        let pair = Pair {
            device: 1,
            number: 2,
            domain: Some(0),
            peer: 4,
            gid: *b"0123456789abcdef",
            rights,
            since: 5,
            until: 6,
        };
        let folded = Folded { object: Object::Window1, site: 1, rights, since: 2, until: 3, sums };
        vec![
            Cell::Process(Process {
                began: 1,
                ended: 2,
                openings_left_out: 3,
                pairs_left_out: 4,
                refused: 5,
            }),
            Cell::Reach { device: 5, scope: Scope::Domain(6), reach },
            Cell::Pair(pair),
            Cell::Pair(Pair { domain: None, ..pair }),
            Cell::Opening(Box::new(opening)),
            Cell::Folded(Box::new(folded)),
            Cell::Empty,
        ]
    }

    #[test]
    fn cells_are_read_as_they_were_written() {
        for cell in cells() {
            assert_eq!(Cell::of(&cell.words()), cell);
        }
    }

    /// Rule: EXP-06
    #[test]
    fn any_numbers_are_a_cell() {
        let mut seed = 11_u64;
        let mut next = || {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let number = seed.rotate_left(32);
            match seed >> 61 {
                0..=2 => number,
                3 => u64::MAX,
                4 => number >> 32,
                _ => number % 14,
            }
        };
        for round in 0..500 {
            let cells = (0..20).map(|at| {
                let mut words = [(); WORDS].map(|()| next());
                words[0] = at % 5 + 1;
                Cell::of(&words)
            });
            let cells: Vec<_> = cells.collect();
            let account = Account::of(Names::default(), cells, 1 << (round % 64));
            for it in &account.openings {
                let ranges = &it.opening.touched.ranges;
                assert!(ranges.is_sorted_by(|one, next| one.end <= next.start), "{ranges:?}");
                let is_in = |range: &Range| range.end <= it.opening.length;
                assert!(ranges.iter().all(is_in), "{:?}", it.opening);
                assert!(it.sums.touched <= it.sums.bytes && it.sums.needed <= it.sums.used);
                let _ = account.could_use(&it.opening).count();
            }
            let accounts = [account];
            for group in groups(&accounts) {
                let closes = group.sums.changes(group.object == Object::Region);
                assert!(closes.len() <= 7 && group.sums.percent_unused() <= 100.0);
            }
            let sums = accounts[0].sums();
            assert!(sums.unused() <= sums.open);
        }
        assert_eq!(Cell::of(&[u64::MAX; WORDS]), Cell::Empty);
    }
}
