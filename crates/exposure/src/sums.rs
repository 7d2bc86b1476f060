//! Bytes × time: how much was open, how much of it was used, and what would close the rest.

use crate::Deed;
use crate::opening::{Opening, Times};
use crate::touched::Range;

/// How many of the sums may pass 64 bits.
pub(crate) const WIDE: usize = 15;

/// The sums of one or more regions or windows. Those of bytes × time count nanoseconds.
///
/// A byte is used from when it was opened until it was last touched: a program cannot know when its peer will come, but
/// it can close what the peer does not need any more. All other time of a byte is unused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// How many regions or windows.
    pub openings: u64,
    /// How many of them nobody touched.
    pub untouched: u64,
    /// How many bytes they have.
    pub bytes: u128,
    /// How many of them were touched.
    pub touched: u128,
    /// Bytes × time in which a peer could get in.
    pub open: u128,
    /// The same by the right to read, to write, and to use atomics.
    pub by_right: [u128; 3],
    /// What was used of `open`.
    pub used: u128,
    /// What is at most too much in `used`, because there was not enough room to keep each range.
    pub excess: u128,
    /// Bytes × time from the first touch of each byte until its last. No window can be open for less.
    pub needed: u128,
    /// The part of `open` in regions and windows that nobody touched.
    pub idle: u128,
    /// The part in bytes that nobody touched, of those that somebody touched.
    pub beside: u128,
    /// The part after the last touch of each byte.
    pub after: u128,
    /// The part of `by_right` in which nobody used the right, in those that somebody touched.
    pub rights_idle: [u128; 3],
    /// How often they were used for each operation.
    pub deeds: [Times; 3],
}

/// The sum of numbers that a program may have written. If it is too large for one, the largest number.
pub fn total(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}

/// A change that would close some of what was open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Change {
    /// Nobody uses it: it needs no rights of peers.
    NoRights,
    /// A window over the bytes in use, from the first touch to the last, in place of a region.
    Window,
    /// Fewer bytes.
    FewerBytes,
    /// A shorter life: closing it after the last touch.
    ShorterLife,
    /// Leaving out a right that nobody uses.
    FewerRights(Deed),
}

impl Change {
    /// What it is called in a report for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoRights => "no_rights",
            Self::Window => "window",
            Self::FewerBytes => "fewer_bytes",
            Self::ShorterLife => "shorter_life",
            Self::FewerRights(_) => "fewer_rights",
        }
    }
}

impl Sums {
    /// The sums of one, of which peers could use the rights for so many nanoseconds.
    pub fn of(opening: &Opening, open: [u64; 4]) -> Self {
        let length = u128::from(opening.length);
        let times = |bytes: u128, time: u64| bytes.saturating_mul(time.into());
        let sum = |part: fn(&Range, u64) -> u64| {
            let parts = opening.touched.ranges.iter();
            let parts = parts.map(|it| times(it.length().into(), part(it, open[0])));
            parts.fold(0, u128::saturating_add)
        };
        let touched = opening.touched.ranges.iter().map(|it| u128::from(it.length()));
        let touched = touched.fold(0, u128::saturating_add);
        let is_touched = touched > 0;
        let by_right = Deed::ALL.map(|deed| times(length, open[1 + deed as usize]));
        let is_idle = |deed: Deed| is_touched && opening.deeds[deed as usize].count == 0;
        let rights_idle =
            Deed::ALL.map(|deed| if is_idle(deed) { by_right[deed as usize] } else { 0 });
        let all = times(length, open[0]);
        Self {
            openings: 1,
            untouched: (!is_touched).into(),
            bytes: length,
            touched,
            open: all,
            by_right,
            used: sum(|it, _| it.last.open),
            excess: opening.touched.excess,
            needed: sum(|it, _| it.last.open.saturating_sub(it.first.open)),
            idle: if is_touched { 0 } else { all },
            beside: if is_touched { times(length.saturating_sub(touched), open[0]) } else { 0 },
            after: sum(|it, open| open.saturating_sub(it.last.open)),
            rights_idle,
            deeds: opening.deeds,
        }
    }

    /// The sums of both.
    pub fn and(&mut self, other: &Self) {
        self.openings = self.openings.saturating_add(other.openings);
        self.untouched = self.untouched.saturating_add(other.untouched);
        let others = other.wide();
        let mut sums = self.wide().into_iter().zip(others).map(|(one, it)| one.saturating_add(it));
        self.set_wide(|| sums.next().unwrap_or(0));
        self.deeds.iter_mut().zip(&other.deeds).for_each(|(one, other)| one.and(other));
    }

    /// All that may pass 64 bits.
    pub(crate) fn wide(&self) -> [u128; WIDE] {
        let ([read, write, atomic], [no_read, no_write, no_atomic]) =
            (self.by_right, self.rights_idle);
        [
            self.bytes,
            self.touched,
            self.open,
            self.used,
            self.excess,
            self.needed,
            self.idle,
            self.beside,
            self.after,
            read,
            write,
            atomic,
            no_read,
            no_write,
            no_atomic,
        ]
    }

    /// Sets them, one after the other.
    pub(crate) fn set_wide(&mut self, mut next: impl FnMut() -> u128) {
        let places = [
            &mut self.bytes,
            &mut self.touched,
            &mut self.open,
            &mut self.used,
            &mut self.excess,
            &mut self.needed,
            &mut self.idle,
            &mut self.beside,
            &mut self.after,
        ];
        let rights = self.by_right.iter_mut().chain(&mut self.rights_idle);
        places.into_iter().chain(rights).for_each(|place| *place = next());
    }

    /// Bytes × time that were open, and not used.
    pub fn unused(&self) -> u128 {
        self.open.saturating_sub(self.used)
    }

    /// Which part of what was open was not used, in per cent.
    pub fn percent_unused(&self) -> f64 {
        let part = self.unused() as f64 * 100.0 / self.open.max(1) as f64;
        // Rounding may make it a little more than all.
        part.min(100.0)
    }

    /// What would close some of it, and how much, that which closes most first. They overlap. Leaving out a right closes
    /// it for that right alone. `is_region` says whether a window could be in its place.
    pub fn changes(&self, is_region: bool) -> Vec<(Change, u128)> {
        let around = self.open.saturating_sub(self.idle).saturating_sub(self.needed);
        let window = if is_region { around } else { 0 };
        let mut changes = vec![
            (Change::Window, window),
            (Change::NoRights, self.idle),
            (Change::FewerBytes, self.beside),
            (Change::ShorterLife, self.after),
        ];
        changes.sort_by_key(|(change, closes)| (std::cmp::Reverse(*closes), *change));
        let rights = Deed::ALL.map(|it| (Change::FewerRights(it), self.rights_idle[it as usize]));
        changes.extend(rights);
        changes.retain(|(_, closes)| *closes > 0);
        changes
    }
}
