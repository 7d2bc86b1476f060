//! Random numbers that are the same again for the same seed.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, RngExt, SeedableRng};

use super::Share;

/// A source of numbers.
#[derive(Clone, Debug)]
pub(super) struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The numbers of a seed. `stream` tells apart those who share the seed.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        // Streams of neighbouring seeds must differ.
        let mixed = Xoshiro256PlusPlus::seed_from_u64(seed).next_u64();
        Self(Xoshiro256PlusPlus::seed_from_u64(mixed ^ stream))
    }

    /// A number below `limit`, which must not be zero.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0.random_range(0..limit)
    }

    /// Whether an event with this probability happens now. An absent share draws no number, so the following numbers
    /// stay the same.
    pub(super) fn happens(&mut self, share: Option<Share>) -> bool {
        share.is_some_and(|share| self.below(Share::WHOLE) < share.millionths())
    }
}
