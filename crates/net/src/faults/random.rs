//! Chance that is the same again for the same seed.

use super::Share;

/// A source of numbers (splitmix64: a counter, well mixed).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    /// The numbers of a seed; `stream` tells apart those who share the seed.
    pub(super) fn new(seed: u64, stream: u8) -> Self {
        // Mixed, so that streams of neighbouring seeds are not shifted copies of each other.
        let mut start = Self(seed);
        let mixed = start.number();
        Self(mixed ^ u64::from(stream).wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    pub(super) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is not zero.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(limit)) >> 64) as u64
    }

    /// Whether what happens in this share of cases happens now. A share that is absent leaves the
    /// numbers to come as they are.
    pub(super) fn happens(&mut self, share: Option<Share>) -> bool {
        share.is_some_and(|share| self.below(Share::WHOLE) < share.millionths())
    }
}
