//! Numbers that look random and are the same again for the same seed.

use std::ops::RangeInclusive;

use rand::distr::uniform::SampleUniform;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, RngExt, SeedableRng};

/// A source of numbers.
#[derive(Clone, Debug)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in the range.
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        self.0.random_range(range)
    }

    /// A number below `limit`, which is not zero.
    pub fn below<T: SampleUniform + PartialOrd + Default>(&mut self, limit: T) -> T {
        self.0.random_range(T::default()..limit)
    }

    /// True in so many of a thousand cases.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        self.0.random_ratio(per_mille.min(1000), 1000)
    }

    /// One of these, which are not none.
    pub fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    /// One of these, if there are any.
    pub fn any_of<T: Copy>(&mut self, values: &[T]) -> Option<T> {
        (!values.is_empty()).then(|| self.one_of(values))
    }
}
