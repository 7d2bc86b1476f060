//! The scales of the picture: addresses from top to bottom, time from left to right.

use std::ops::Range;

/// The height of a range without bytes, in pixels.
const LEAST: f64 = 5.0;

/// The most that a range is higher than that.
const MOST: f64 = 42.0;

/// The space between ranges of memory that are apart.
const GAP: f64 = 26.0;

/// A scale of addresses. Between each two bounds it is linear. A longer range is higher, but not by as much as it is
/// longer, so that 64 bytes can be seen in a gigabyte.
pub(super) struct Addresses {
    /// Addresses and their heights, in their order.
    bounds: Vec<(u64, f64)>,
    /// The first addresses of ranges that are apart from those before.
    starts: Vec<u64>,
}

impl Addresses {
    /// A scale for memory with these ranges. `bounds` are addresses in them where something begins or ends.
    pub(super) fn of(mut ranges: Vec<Range<u64>>, bounds: impl IntoIterator<Item = u64>) -> Self {
        ranges.sort_by_key(|range| range.start);
        let mut blocks: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match blocks.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => blocks.push(range),
            }
        }
        let mut all: Vec<u64> = bounds.into_iter().collect();
        all.extend(blocks.iter().flat_map(|block| [block.start, block.end]));
        all.sort_unstable();
        all.dedup();
        let (mut y, mut placed) = (0.0, Vec::new());
        for block in &blocks {
            y += if placed.is_empty() { 0.0 } else { GAP };
            let mut last = block.start;
            for at in all.iter().filter(|at| (block.start..=block.end).contains(at)) {
                y += if *at > last { height(at - last) } else { 0.0 };
                placed.push((*at, y));
                last = *at;
            }
        }
        let starts = blocks.iter().map(|block| block.start).collect();
        Self { bounds: placed, starts }
    }

    /// How high it is.
    pub(super) fn height(&self) -> f64 {
        self.bounds.last().map_or(0.0, |(_, y)| *y)
    }

    /// The place of an address.
    pub(super) fn place(&self, address: u64) -> f64 {
        let after = self.bounds.partition_point(|(at, _)| *at < address);
        match (after.checked_sub(1).and_then(|at| self.bounds.get(at)), self.bounds.get(after)) {
            (_, Some((at, y))) if *at == address => *y,
            (Some((from, top)), Some((to, bottom))) => {
                let part = (address - from) as f64 / (to - from) as f64;
                top + part * (bottom - top)
            }
            (_, Some((_, y))) | (Some((_, y)), None) => *y,
            (None, None) => 0.0,
        }
    }

    /// The first address of each range that is apart from the one before, and its place.
    pub(super) fn starts(&self) -> impl Iterator<Item = (u64, f64)> {
        self.starts.iter().map(|start| (*start, self.place(*start)))
    }
}

fn height(length: u64) -> f64 {
    let steps = (length as f64 / 8.0 + 1.0).log2();
    LEAST + (steps * 2.5).min(MOST)
}

/// A linear scale of time.
pub(super) struct Times {
    /// From when to when, in nanoseconds.
    pub(super) of: Range<u64>,
    /// From where to where.
    pub(super) at: Range<f64>,
}

impl Times {
    /// The place of a moment.
    pub(super) fn place(&self, moment: u64) -> f64 {
        let whole = self.of.end.saturating_sub(self.of.start).max(1);
        let part = moment.clamp(self.of.start, self.of.end) - self.of.start;
        self.at.start + part as f64 / whole as f64 * (self.at.end - self.at.start)
    }

    /// Round moments in it, in nanoseconds since its beginning.
    pub(super) fn ticks(&self) -> impl Iterator<Item = u64> + use<> {
        let whole = self.of.end.saturating_sub(self.of.start).max(1);
        let power = 10_u64.pow((whole / 5).max(1).ilog10());
        let fits = |step: &u64| whole / step <= 8;
        let steps = [1, 2, 5, 10].map(|step| step * power);
        let step = steps.into_iter().find(fits).unwrap_or(whole);
        (0..=whole / step).map(move |tick| tick * step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_bytes_are_higher_and_no_address_is_above_one_before() {
        let ranges = vec![4096..8192, 100_000..100_064, 8000..8192];
        let scale = Addresses::of(ranges, [4160, 4168, 100_032]);
        let places =
            [4096, 4160, 4164, 4168, 8192, 100_000, 100_032, 100_064].map(|it| scale.place(it));
        assert!(places.is_sorted_by(|one, next| one < next), "{places:?}");
        assert_eq!(scale.starts().map(|(at, _)| at).collect::<Vec<_>>(), [4096, 100_000]);
        assert!((places[5] - places[4] - GAP).abs() < 1e-9);
        assert!(places[4] - places[3] > places[1] - places[0]);
        assert_eq!((places[0], places[7]), (0.0, scale.height()));
        let all = 0..u64::MAX;
        assert_eq!(Addresses::of(vec![all], [7]).place(0), 0.0);
    }

    #[test]
    fn ticks_are_round_and_few() {
        for whole in [1, 7, 999, 12_345, 5_000_000_000, u64::MAX] {
            let scale = Times { of: 0..whole, at: 10.0..20.0 };
            let ticks: Vec<_> = scale.ticks().collect();
            assert!((1..=9).contains(&ticks.len()), "{whole}: {ticks:?}");
            assert_eq!((scale.place(0), scale.place(whole)), (10.0, 20.0));
        }
    }
}
