//! Packet sequence numbers (rules PSN-01, ST-06).

use core::cmp::Ordering;

/// A 24-bit packet sequence number; arithmetic is modulo 2^24 (rule PSN-01).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    const MASK: u32 = 0xff_ffff;
    const HALF: u32 = 0x80_0000;

    /// The PSN of the low 24 bits; higher bits are dropped (rule ST-06).
    pub const fn new(value: u32) -> Self {
        Self(value & Self::MASK)
    }

    /// The number itself, below 2^24.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The PSN `count` further on.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// How far `self` is beyond `earlier`, modulo 2^24.
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0) & Self::MASK
    }

    /// Where `self` stands relative to `other` in the half window around it (rule PSN-01).
    pub const fn compare(self, other: Self) -> Ordering {
        match self.since(other) {
            0 => Ordering::Equal,
            1..Self::HALF => Ordering::Greater,
            _ => Ordering::Less,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules: PSN-01
    #[test]
    fn comparison_wraps_in_a_half_window() {
        let start = Psn::new(0xff_fffe);
        let after = start.plus(10);
        assert_eq!(after.value(), 8);
        assert_eq!((after.since(start), start.since(after)), (10, 0xff_fff6));
        assert_eq!(after.compare(start), Ordering::Greater);
        assert_eq!(start.compare(after), Ordering::Less);
        assert_eq!(start.compare(start), Ordering::Equal);
    }

    /// Rules: ST-06
    #[test]
    fn bits_above_24_are_dropped() {
        assert_eq!(Psn::new(0xff00_0001).value(), 1);
    }
}
