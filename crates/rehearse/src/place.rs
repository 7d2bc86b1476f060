//! The place of a provocation.

use std::fmt;
use std::str::FromStr;

use crate::Provocation;

/// A moment of a run by its place, not by its time: the n-th operation on an object of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// What is provoked there.
    pub provocation: Provocation,
    /// The number of the process among those of the run that open a device, from 0.
    pub process: u32,
    /// The number of the object in its process. Each kind of object has its own numbers; what has no object has 0.
    pub object: u32,
    /// The number of the operation on this object, from 0.
    pub nth: u64,
}

/// A text that names no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoPlace(String);

impl fmt::Display for NoPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no place; one is like late-work:0.5.12", self.0)
    }
}

impl std::error::Error for NoPlace {}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provocation, process, object, nth } = self;
        write!(f, "{}:{process}.{object}.{nth}", provocation.name())
    }
}

impl FromStr for Place {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Self, NoPlace> {
        let parse = || {
            let (name, numbers) = text.split_once(':')?;
            let mut numbers = numbers.split('.');
            let place = Self {
                provocation: Provocation::named(name)?,
                process: numbers.next()?.parse().ok()?,
                object: numbers.next()?.parse().ok()?,
                nth: numbers.next()?.parse().ok()?,
            };
            numbers.next().is_none().then_some(place)
        };
        parse().ok_or_else(|| NoPlace(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_is_written() {
        let (provocation, process, object, nth) = (Provocation::LateWork, 1, 0x35, 12);
        let place = Place { provocation, process, object, nth };
        assert_eq!(place.to_string(), "late-work:1.53.12");
        assert_eq!("late-work:1.53.12".parse(), Ok(place));
        for wrong in ["", "late-work", "late:1.2.3", "late-work:1.2", "late-work:1.2.3.4"] {
            assert!(wrong.parse::<Place>().unwrap_err().to_string().contains(wrong), "{wrong}");
        }
    }
}
