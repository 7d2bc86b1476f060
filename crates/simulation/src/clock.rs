//! Clocks: each device has its own, which starts anywhere and goes a little too fast or too slow.

use crate::random::Random;

/// A device's clock, as a function of the simulation's time. Both count nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    offset: u64,
    /// Nanoseconds of this clock in a million of the simulation's.
    rate: u64,
}

const MILLION: u64 = 1_000_000;

impl Clock {
    /// A clock that is off by up to 1 in 1,000 or, rarely, goes one and a half times as fast or slow.
    pub fn draw(random: &mut Random) -> Self {
        let offset = random.within(0..=1 << 50);
        let rate = match random.below(8) {
            0 => random.within(MILLION * 2 / 3..=MILLION * 3 / 2),
            1 => MILLION,
            _ => random.within(999_000..=1_001_000),
        };
        Self { offset, rate }
    }

    /// What it shows at this time.
    pub fn at(&self, time: u64) -> u64 {
        self.offset + (u128::from(time) * u128::from(self.rate) / u128::from(MILLION)) as u64
    }

    /// The first time at which it shows `reading` or more.
    pub fn time_of(&self, reading: u64) -> u64 {
        let passed = u128::from(reading.saturating_sub(self.offset));
        (passed * u128::from(MILLION)).div_ceil(u128::from(self.rate)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_is_reached_at_its_time_and_not_before() {
        let mut random = Random::new(5);
        for _ in 0..1000 {
            let clock = Clock::draw(&mut random);
            let reading = clock.offset + random.within(1..=1 << 40);
            let time = clock.time_of(reading);
            assert!(clock.at(time) >= reading && clock.at(time - 1) < reading);
        }
    }
}
