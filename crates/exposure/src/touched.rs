//! The bytes that peers touched, in fixed room.

/// How many ranges are kept of a region or window.
pub const RANGES: usize = 12;

/// Bytes that peers touched: the same first and last time for all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The first one, counted from the beginning of the region or window.
    pub start: u64,
    /// Behind the last one.
    pub end: u64,
    /// When they were first touched.
    pub first: Moment,
    /// When they were last touched.
    pub last: Moment,
}

/// A moment in the life of a region or window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Nanoseconds of the steady clock.
    pub at: u64,
    /// For how many nanoseconds peers could get in until then.
    pub open: u64,
}

impl Range {
    /// How many bytes it has.
    pub const fn length(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    fn same_times(&self, other: &Self) -> bool {
        (self.first, self.last) == (other.first, other.last)
    }
}

/// All bytes that peers touched.
///
/// If there are more ranges than room, the two neighbours become one whose union counts least too much.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// In the order of their addresses. None overlap.
    pub ranges: Vec<Range>,
    /// At most so many bytes × nanoseconds count as used, and were not: ranges were united.
    pub excess: u128,
}

impl Touched {
    /// A peer has touched bytes from `start` to `end`.
    pub fn touch(&mut self, start: u64, end: u64, now: Moment) {
        if start >= end {
            return;
        }
        // Most programs use the same bytes again.
        if let Some(range) = self.ranges.iter_mut().find(|it| (it.start, it.end) == (start, end)) {
            range.last = now;
            return;
        }
        let mut ranges = Vec::with_capacity(self.ranges.len() + 3);
        let mut at = start;
        for range in &self.ranges {
            let (from, to) = (range.start.max(start), range.end.min(end));
            if from >= to {
                ranges.push(*range);
                continue;
            }
            ranges.push(Range { start: at, end: from, first: now, last: now });
            ranges.push(Range { end: from, ..*range });
            ranges.push(Range { start: from, end: to, last: now, ..*range });
            ranges.push(Range { start: to, ..*range });
            at = to;
        }
        ranges.push(Range { start: at, end, first: now, last: now });
        ranges.retain(|range| range.start < range.end);
        ranges.sort_by_key(|range| range.start);
        ranges.dedup_by(|next, last| {
            let is_one = last.end == next.start && last.same_times(next);
            last.end = if is_one { next.end } else { last.end };
            is_one
        });
        self.ranges = ranges;
        while self.ranges.len() > RANGES {
            self.unite_two();
        }
    }

    /// Unites the two neighbours that differ least.
    fn unite_two(&mut self) {
        let pairs = self.ranges.windows(2).map(|pair| united(&pair[0], &pair[1]));
        let least = pairs.enumerate().min_by_key(|(_, (_, excess))| *excess);
        let Some((at, (range, excess))) = least else { return };
        self.ranges[at] = range;
        self.ranges.remove(at + 1);
        self.excess = self.excess.saturating_add(excess);
    }
}

/// The range that covers two neighbours, and how much it counts too much.
fn united(one: &Range, other: &Range) -> (Range, u128) {
    let (first, last) = (one.first.min(other.first), one.last.max(other.last));
    let range = Range { start: one.start, end: other.end, first, last };
    let used = |it: &Range| u128::from(it.length()) * u128::from(it.last.open);
    (range, used(&range).saturating_sub(used(one) + used(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(at: u64) -> Moment {
        Moment { at, open: at }
    }

    fn shown(touched: &Touched) -> Vec<(u64, u64, u64, u64)> {
        touched.ranges.iter().map(|it| (it.start, it.end, it.first.at, it.last.at)).collect()
    }

    /// Rule: EXP-04
    #[test]
    fn each_byte_has_its_own_first_and_last_time() {
        let mut touched = Touched::default();
        touched.touch(10, 30, at(1));
        touched.touch(20, 40, at(2));
        touched.touch(0, 12, at(3));
        touched.touch(50, 60, at(3));
        touched.touch(7, 7, at(4));
        let expected = [
            (0, 10, 3, 3),
            (10, 12, 1, 3),
            (12, 20, 1, 1),
            (20, 30, 1, 2),
            (30, 40, 2, 2),
            (50, 60, 3, 3),
        ];
        assert_eq!(shown(&touched), expected);
        touched.touch(50, 60, at(5));
        assert_eq!(shown(&touched)[5], (50, 60, 3, 5));
        touched.touch(0, 60, at(6));
        let last: Vec<_> = touched.ranges.iter().map(|it| it.last.at).collect();
        assert!(last.iter().all(|last| *last == 6), "{touched:?}");
        assert_eq!(touched.excess, 0);
    }

    /// The same as byte by byte, as long as there is room; and never less than that.
    /// Rules: EXP-04, EXP-05
    #[test]
    fn united_ranges_count_at_most_their_excess_too_much() {
        let mut seed = 7_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..200 {
            let (mut touched, mut bytes) = (Touched::default(), [None; 256]);
            for now in 1..next(40) + 2 {
                let start = next(256);
                let end = (start + next(40)).min(256);
                touched.touch(start, end, at(now));
                bytes[start as usize..end as usize].iter_mut().for_each(|it| *it = Some(now));
            }
            let used = touched.ranges.iter().map(|it| it.length() * it.last.open).sum::<u64>();
            let exact = bytes.iter().flatten().sum::<u64>();
            assert!(touched.ranges.len() <= RANGES);
            assert!(touched.ranges.is_sorted_by(|one, next| one.end <= next.start));
            let most = u128::from(exact) + touched.excess;
            assert!((u128::from(exact)..=most).contains(&used.into()), "{exact}: {touched:?}");
        }
    }
}
