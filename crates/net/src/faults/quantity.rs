//! Quantities as people write them: `0.5%`, `2ms`, `100mbit`. Each is a whole number of its smallest unit, so a printed
//! value reads back as the same value.

use std::fmt;

/// A share of all cases, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u32);

impl Share {
    /// All of them, in millionths.
    pub const WHOLE: u64 = 1_000_000;

    /// So many millionths. `None` if that is more than the whole.
    pub const fn from_millionths(millionths: u64) -> Option<Self> {
        if millionths <= Self::WHOLE { Some(Self(millionths as u32)) } else { None }
    }

    /// How many millionths.
    pub const fn millionths(self) -> u64 {
        self.0 as u64
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::from_millionths(scaled(text.strip_suffix('%')?, 4)?)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", Scaled(self.millionths(), 4))
    }
}

/// A length of time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time(u64);

/// Units of time: their names, and how many decimal places they lie above the nanosecond.
const TIMES: [(&str, u32); 4] = [("ns", 0), ("us", 3), ("ms", 6), ("s", 9)];

impl Time {
    /// The longest time that you can ask for: a day.
    pub const LONGEST: Self = Self(86_400_000_000_000);

    /// So many nanoseconds. `None` if that is more than [`Time::LONGEST`].
    pub const fn from_nanoseconds(nanoseconds: u64) -> Option<Self> {
        if nanoseconds <= Self::LONGEST.0 { Some(Self(nanoseconds)) } else { None }
    }

    /// How many nanoseconds.
    pub const fn nanoseconds(self) -> u64 {
        self.0
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::from_nanoseconds(with_unit(text, &TIMES)?)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print_with_unit(f, self.0, &TIMES)
    }
}

/// Bits per second, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(u64);

/// Units of rates: their names, and how many decimal places they lie above the bit.
const RATES: [(&str, u32); 4] = [("bit", 0), ("kbit", 3), ("mbit", 6), ("gbit", 9)];

impl Rate {
    /// The highest rate that you can ask for: a terabit per second.
    pub const HIGHEST: Self = Self(1_000_000_000_000);

    /// So many bits per second. `None` if that is zero or more than [`Rate::HIGHEST`].
    pub const fn from_bits(bits: u64) -> Option<Self> {
        if bits > 0 && bits <= Self::HIGHEST.0 { Some(Self(bits)) } else { None }
    }

    /// How many bits in a second.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// How long so many bytes take, in nanoseconds.
    pub(super) fn time_of(self, bytes: u64) -> u64 {
        (u128::from(bytes) * 8 * 1_000_000_000 / u128::from(self.0)) as u64
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::from_bits(with_unit(text, &RATES)?)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print_with_unit(f, self.0, &RATES)
    }
}

/// A number and a unit. Everything after the digits is the unit, so that the end of `ms` is not read as `s`.
fn with_unit(text: &str, units: &[(&str, u32)]) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(end);
    let (_, places) = units.iter().find(|(name, _)| *name == unit)?;
    scaled(number, *places)
}

/// Prints in the largest unit that is not more than the value.
fn print_with_unit(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u32)]) -> fmt::Result {
    let fits = |(_, places): &&(&str, u32)| value >= 10_u64.pow(*places);
    let (name, places) = units.iter().rev().find(fits).unwrap_or(&units[0]);
    write!(f, "{}{name}", Scaled(value, *places))
}

/// A decimal number times ten to the power of `places`. `None` unless that is a whole number that fits.
fn scaled(text: &str, places: u32) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let missing = places.checked_sub(u32::try_from(fraction.len()).ok()?)?;
    let digits = |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse().ok() };
    let (whole, fraction): (u64, u64) = (digits(whole)?, digits(fraction)?);
    let fraction = fraction.checked_mul(10_u64.checked_pow(missing)?)?;
    whole.checked_mul(10_u64.checked_pow(places)?)?.checked_add(fraction)
}

/// A value divided by ten to the power of places, as a decimal number.
struct Scaled(u64, u32);

impl fmt::Display for Scaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = 10_u64.pow(self.1);
        let (whole, fraction) = (self.0 / unit, self.0 % unit);
        if fraction == 0 {
            return write!(f, "{whole}");
        }
        let fraction = format!("{fraction:0places$}", places = self.1 as usize);
        write!(f, "{whole}.{}", fraction.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        for (text, places, value) in [
            ("1", 4, Some(10_000)),
            ("0.5", 4, Some(5_000)),
            ("1.50000", 4, Some(15_000)),
            ("0.0001", 4, Some(1)),
            ("0.00001", 4, None),
            ("1.5", 0, None),
            (".5", 4, None),
            ("5.", 4, None),
            ("", 4, None),
            ("-1", 4, None),
            ("1e3", 4, None),
            ("18446744073709551616", 0, None),
            ("18446744073709551615", 1, None),
        ] {
            assert_eq!(scaled(text, places), value, "{text}");
        }
        assert_eq!(Scaled(15_000, 4).to_string(), "1.5");
        assert_eq!(Scaled(1, 4).to_string(), "0.0001");
        assert_eq!(Scaled(0, 4).to_string(), "0");
    }

    #[test]
    fn units_are_not_taken_for_each_other() {
        assert_eq!(Time::parse("2ms"), Time::from_nanoseconds(2_000_000));
        assert_eq!(Time::parse("1.5s"), Time::from_nanoseconds(1_500_000_000));
        assert_eq!(Time::parse("7ns"), Time::from_nanoseconds(7));
        assert_eq!(Time::parse("2"), None);
        assert_eq!(Time::parse("2m"), None);
        assert_eq!(Time::parse("1.5ns"), None);
        assert_eq!(Time::parse("2000000s"), None);
        assert_eq!(Rate::parse("1mbit"), Rate::from_bits(1_000_000));
        assert_eq!(Rate::parse("0bit"), None);
        assert_eq!(Share::parse("101%"), None);
        assert_eq!(Share::parse("1"), None);
    }
}
