//! Pseudorandom numbers. The same seed gives the same numbers.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, RngExt, SeedableRng};

/// A source of numbers.
#[derive(Clone, Debug)]
pub struct Random {
    numbers: Xoshiro256PlusPlus,
    /// Garbage comes once in this many times.
    rarity: usize,
}

impl Random {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self { numbers: Xoshiro256PlusPlus::seed_from_u64(seed), rarity: 8 }
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.numbers.next_u64()
    }

    /// A number below this one.
    pub fn below(&mut self, limit: usize) -> usize {
        self.numbers.random_range(0..limit)
    }

    /// True once in this many times, on average.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of these values.
    pub fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    /// Chooses again how rare garbage is: rare, so that a run goes far, or frequent.
    pub fn change_mood(&mut self) {
        self.rarity = self.one_of(&[4, 16, 256]);
    }

    /// Whether to use garbage here.
    pub fn is_wild(&mut self) -> bool {
        self.once_in(self.rarity)
    }

    /// A number that programs get wrong: small, a power of two or next to one, all ones, or any.
    pub fn garbage(&mut self) -> u64 {
        match self.below(6) {
            0 | 1 => self.number() % 8,
            2 => 1 << self.below(64),
            3 => (1_u64 << self.below(64)).wrapping_sub(1),
            4 => 0_u64.wrapping_sub(self.number() % 4),
            _ => self.number(),
        }
    }

    /// Mostly this value, else garbage.
    pub fn mostly(&mut self, value: impl Into<i128>) -> u64 {
        if self.is_wild() { self.garbage() } else { value.into() as u64 }
    }

    /// Some of these bits, sometimes with others.
    pub fn some_bits(&mut self, bits: impl Into<u64>) -> u64 {
        let mixed = bits.into() & self.number();
        if self.is_wild() { mixed | self.garbage() } else { mixed }
    }
}
